// SPDX-License-Identifier: GPL-2.0

//! Pictures of lines, as SVG.

use std::fmt::Write;

const LEFT: f64 = 70.0;
const TOP: f64 = 30.0;
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 300.0;

/// The colours of the lines.
const COLOURS: [&str; 4] = ["#1b6ca8", "#2a9d57", "#d08c1d", "#b8392f"];

/// A picture.
pub struct Figure<'a> {
    /// The label of the x axis.
    pub x_title: &'a str,
    /// The names of its places.
    pub x_names: Vec<String>,
    /// The label of the y axis.
    pub y_title: &'a str,
    /// The value at the top.
    pub y_most: f64,
    /// The values between two rules.
    pub y_step: f64,
    /// Four lines at most.
    pub lines: Vec<Line<'a>>,
}

/// A line of a picture.
pub struct Line<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its values, one for each place.
    pub values: Vec<f64>,
}

impl Figure<'_> {
    fn x(&self, place: usize) -> f64 {
        let last = self.x_names.len().saturating_sub(1).max(1);
        (LEFT + WIDTH * place as f64 / last as f64).round()
    }

    fn y(&self, value: f64) -> f64 {
        (TOP + HEIGHT - HEIGHT * (value / self.y_most).min(1.0)).round()
    }

    /// Returns the picture as a file.
    pub fn svg(&self) -> String {
        let mut svg = String::from(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"400\" \
             font-family=\"sans-serif\" font-size=\"12\">\n\
             <!-- SPDX-License-Identifier: GPL-2.0 -->\n\
             <rect width=\"760\" height=\"400\" fill=\"white\"/>\n",
        );
        self.draw_axes(&mut svg);
        for (number, line) in self.lines.iter().enumerate() {
            self.draw_line(&mut svg, number, line);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn draw_axes(&self, svg: &mut String) {
        let (left, right) = (LEFT, LEFT + WIDTH);
        let rules = (self.y_most / self.y_step).round() as u32;
        for value in (0..=rules).map(|rule| f64::from(rule) * self.y_step) {
            let at = self.y(value);
            let _ = writeln!(
                svg,
                "<line x1=\"{left}\" y1=\"{at}\" x2=\"{right}\" y2=\"{at}\" stroke=\"#ddd\"/>\n\
                 <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{value}</text>",
                left - 8.0,
                at + 4.0
            );
        }
        for (place, name) in self.x_names.iter().enumerate() {
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{name}</text>",
                self.x(place),
                TOP + HEIGHT + 20.0
            );
        }
        let middle = TOP + HEIGHT / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
             <text x=\"20\" y=\"{middle}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 20 {middle})\">{}</text>",
            LEFT + WIDTH / 2.0,
            TOP + HEIGHT + 45.0,
            self.x_title,
            self.y_title,
        );
    }

    fn draw_line(&self, svg: &mut String, number: usize, line: &Line<'_>) {
        let points: Vec<String> = line
            .values
            .iter()
            .enumerate()
            .map(|(place, value)| format!("{},{}", self.x(place), self.y(*value)))
            .collect();
        let colour = COLOURS[number % COLOURS.len()];
        let (from, to) = (LEFT + WIDTH + 20.0, LEFT + WIDTH + 45.0);
        let at = TOP + 20.0 * number as f64;
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <line x1=\"{from}\" y1=\"{at}\" x2=\"{to}\" y2=\"{at}\" stroke=\"{colour}\" \
             stroke-width=\"2\"/>\n\
             <text x=\"{}\" y=\"{}\">{}</text>",
            points.join(" "),
            to + 7.0,
            at + 4.0,
            line.name,
        );
    }
}
