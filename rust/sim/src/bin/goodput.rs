// SPDX-License-Identifier: GPL-2.0

//! What a reliable connection gets through a network that loses packets, as a table and a figure:
//!
//! ```text
//! goodput DIRECTORY             writes goodput.rst and goodput.svg there
//! goodput --check DIRECTORY     fails if they are not what it would write
//! ```

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use sim::plan::Plan;
use sim::run::run;
use sim::sabotage::Sabotage;

/// Rates of loss, in millionths, and their names.
const LOSSES: [(u32, &str); 8] = [
    (0, "none"),
    (100, "0.01%"),
    (500, "0.05%"),
    (1_000, "0.1%"),
    (5_000, "0.5%"),
    (10_000, "1%"),
    (20_000, "2%"),
    (50_000, "5%"),
];

/// Round-trip times, in microseconds, their names and the colours of their lines.
const RTTS: [(u32, &str, &str); 4] = [
    (10, "10 µs", "#1b6ca8"),
    (100, "100 µs", "#2a9d57"),
    (1_000, "1 ms", "#d08c1d"),
    (10_000, "10 ms", "#b8392f"),
];

const LINK_GBPS: u32 = 10;
const MESSAGE: u64 = 65536;
const MESSAGES: u64 = 160;
const SEEDS: u64 = 4;

/// Megabits of messages in a second, on average over some runs.
fn goodput(loss: u32, rtt_us: u32) -> Result<u64, String> {
    let plan = Plan::parse(&format!(
        "rc = 1\nspan_us = 1000\n
         link = {{ delay_us = {}, rate_gbps = {LINK_GBPS}, loss = {} }}\n
         node = {{ batch = 16 }}\n
         qp = {{ mtu = [1024], timeout = 14, window = 32 }}\n
         work = {{ messages = {MESSAGES}, max_bytes = {MESSAGE}, longest = true, burst = 32,
                   receives = 1, signaled = 1, fence = 0, one_way = true,
                   send = 0, read = 0, atomic = 0, counter = 0, atomic_write = 0, flush = 0,
                   window = 0, forward = 0 }}\nresends = 1000",
        f64::from(rtt_us) / 2.0,
        f64::from(loss) / 1e6,
    ))?;
    let mut took_ns = 0;
    for seed in 0..SEEDS {
        let outcome = run(&plan, seed, Sabotage::None);
        if let Some(what) = outcome.failure {
            return Err(format!("loss {loss}, {rtt_us} µs, seed {seed}: {what}"));
        }
        took_ns += outcome.done_ns;
    }
    Ok(MESSAGE * MESSAGES * SEEDS * 8 * 1000 / took_ns)
}

type Table = Vec<[u64; LOSSES.len()]>;

fn measure() -> Result<Table, String> {
    let mut table = Table::new();
    for (rtt_us, ..) in RTTS {
        let mut row = [0; LOSSES.len()];
        for (cell, (loss, _)) in row.iter_mut().zip(LOSSES) {
            *cell = goodput(loss, rtt_us)?;
        }
        table.push(row);
    }
    Ok(table)
}

fn page(table: &Table) -> String {
    let mut page = format!(
        "\
.. SPDX-License-Identifier: GPL-2.0
.. Made by make figures: change the code, then run it.

================
Goodput and loss
================

What one reliable connection gets through a link of {LINK_GBPS} Gbit/s that loses packets, either way, by
the simulator of ``rust/sim``: WRITEs of 64 KiB, up to 32 of them outstanding, a path MTU of 1024
bytes, a local ACK timeout of 67 ms (code 14), {} MiB in all. In Mbit/s of messages, for rates of
loss and round-trip times without load. By this, changes to recovery and congestion control are to be
judged.

.. image:: goodput.svg

",
        (MESSAGE * MESSAGES * SEEDS) >> 20
    );
    let line = |page: &mut String| {
        let _ = write!(page, "======");
        for _ in LOSSES {
            let _ = write!(page, "  ======");
        }
        page.push('\n');
    };
    line(&mut page);
    let _ = write!(page, "RTT   ");
    for (_, name) in LOSSES {
        let _ = write!(page, "  {name:<6}");
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    line(&mut page);
    for ((_, name, _), row) in RTTS.iter().zip(table) {
        let _ = write!(page, "{name:<6}");
        for cell in row {
            let _ = write!(page, "  {cell:<6}");
        }
        page.truncate(page.trim_end().len());
        page.push('\n');
    }
    line(&mut page);
    page
}

const LEFT: u64 = 70;
const TOP: u64 = 30;
const WIDTH: u64 = 560;
const HEIGHT: u64 = 300;

fn figure(table: &Table) -> String {
    let most = u64::from(LINK_GBPS) * 1000;
    let x = |loss: usize| LEFT + WIDTH * loss as u64 / (LOSSES.len() as u64 - 1);
    let y = |mbps: u64| TOP + HEIGHT - HEIGHT * mbps.min(most) / most;
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"400\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <!-- SPDX-License-Identifier: GPL-2.0 -->\n\
         <rect width=\"760\" height=\"400\" fill=\"white\"/>\n",
    );
    for gbps in (0..=LINK_GBPS).step_by(2) {
        let at = y(u64::from(gbps) * 1000);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{at}\" x2=\"{}\" y2=\"{at}\" stroke=\"#ddd\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{gbps}</text>",
            LEFT + WIDTH,
            LEFT - 8,
            at + 4
        );
    }
    for (loss, (_, name)) in LOSSES.iter().enumerate() {
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{name}</text>",
            x(loss),
            TOP + HEIGHT + 20
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">packets lost</text>\n\
         <text x=\"20\" y=\"{}\" text-anchor=\"middle\" transform=\"rotate(-90 20 {})\">Gbit/s of \
         messages</text>",
        LEFT + WIDTH / 2,
        TOP + HEIGHT + 45,
        TOP + HEIGHT / 2,
        TOP + HEIGHT / 2
    );
    for (number, ((_, name, colour), row)) in RTTS.iter().zip(table).enumerate() {
        let points: Vec<String> = row
            .iter()
            .enumerate()
            .map(|(loss, mbps)| format!("{},{}", x(loss), y(*mbps)))
            .collect();
        let (from, to, at) = (
            LEFT + WIDTH + 20,
            LEFT + WIDTH + 45,
            TOP + 20 * number as u64,
        );
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <line x1=\"{from}\" y1=\"{at}\" x2=\"{to}\" y2=\"{at}\" stroke=\"{colour}\" \
             stroke-width=\"2\"/>\n\
             <text x=\"{}\" y=\"{}\">{name}</text>",
            points.join(" "),
            to + 7,
            at + 4,
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Writes a file, or looks whether it is what would be written.
fn put(path: &Path, text: &str, check: bool) -> Result<(), String> {
    let there = path.display();
    if !check {
        return std::fs::write(path, text).map_err(|error| format!("{there}: {error}"));
    }
    match std::fs::read_to_string(path) {
        Ok(old) if old == text => Ok(()),
        _ => Err(format!("{there} is not fresh: make figures")),
    }
}

fn make() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (check, directory) = match words.as_slice() {
        [directory] => (false, directory),
        [option, directory] if option == "--check" => (true, directory),
        _ => return Err("goodput [--check] DIRECTORY".into()),
    };
    let table = measure()?;
    let directory = Path::new(directory);
    put(&directory.join("goodput.rst"), &page(&table), check)?;
    put(&directory.join("goodput.svg"), &figure(&table), check)
}

fn main() -> ExitCode {
    match make() {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("goodput: {what}");
            ExitCode::FAILURE
        }
    }
}
