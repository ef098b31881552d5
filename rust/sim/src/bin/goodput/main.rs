// SPDX-License-Identifier: GPL-2.0

//! Goodput of reliable connections through networks with loss, reordering and congestion, as a page
//! with tables and figures:
//!
//! ```text
//! goodput DIRECTORY             writes goodput.rst and its figures there
//! goodput --check DIRECTORY     fails if they are not what it would write
//! ```

use std::path::Path;
use std::process::ExitCode;

use incast::Incasts;
use loss::Losses;
use reorder::Reorderings;

mod figure;
mod incast;
mod loss;
mod reorder;
mod table;
mod transfer;

/// Makes the page of its sections.
fn page(losses: &Losses, reorderings: &Reorderings, incasts: &Incasts) -> String {
    format!(
        "\
.. SPDX-License-Identifier: GPL-2.0
.. Made by make figures: change the code, then run it.

================
Goodput and loss
================

This page shows the goodput of reliable connections through bad networks, measured by the simulator
in ``rust/sim``. Both ends are ferroce's: the receiver keeps early packets. Use it to judge changes
to recovery and congestion control.

Loss
====

{}
Reordering
==========

{}
Congestion
==========

{}",
        losses.section(),
        reorderings.section(),
        incasts.section(),
    )
}

/// Writes a file, or checks that it has this text.
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
    let (losses, reorderings) = (Losses::measure()?, Reorderings::measure()?);
    let incasts = Incasts::measure()?;
    let directory = Path::new(directory);
    let page = page(&losses, &reorderings, &incasts);
    put(&directory.join("goodput.rst"), &page, check)?;
    put(&directory.join("goodput.svg"), &losses.figure(), check)?;
    put(&directory.join("incast.svg"), &incasts.figure(), check)
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
