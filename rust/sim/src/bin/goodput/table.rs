// SPDX-License-Identifier: GPL-2.0

//! Tables of reStructuredText.

/// Makes a table: a head, and rows of as many cells. No cell of the first column is empty.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let all = || std::iter::once(&head).chain(rows);
    let width = |column: usize| {
        let cells = all().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let rule: Vec<String> = widths.iter().map(|width| "=".repeat(*width)).collect();
    let rule = rule.join("  ");
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        cells.join("  ").trim_end().to_owned()
    };
    let mut lines = vec![rule.clone(), line(&head), rule.clone()];
    lines.extend(rows.iter().map(line));
    lines.push(rule);
    lines.join("\n") + "\n"
}
