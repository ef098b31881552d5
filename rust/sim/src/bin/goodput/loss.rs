// SPDX-License-Identifier: GPL-2.0

//! Goodput by loss and round-trip time.

use crate::figure::{Figure, Line};
use crate::table::table;
use crate::transfer::{goodput, LINK_GBPS, MIB};

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

/// Round-trip times, in microseconds, and their names.
pub const RTTS: [(u32, &str); 4] = [
    (10, "10 µs"),
    (100, "100 µs"),
    (1_000, "1 ms"),
    (10_000, "10 ms"),
];

/// How many packets are lost in a row, on average, and their names.
const RUNS: [(u32, &str); 4] = [(1, "1"), (4, "4"), (15, "15"), (60, "60")];

/// Goodput in Mbit/s, by round-trip time and loss.
pub struct Losses {
    single: Vec<[u64; LOSSES.len()]>,
    /// By how many packets are lost in a row. One of a hundred is lost.
    runs: Vec<[u64; RUNS.len()]>,
}

/// Returns the faults of a link that loses a hundredth of all packets, `length` in a row on average.
fn lost_in_runs(length: u32) -> String {
    let length = f64::from(length);
    format!(
        "burst = {}, burst_goes_on = {}, burst_ends_idle = true",
        0.01 / length,
        1.0 - 1.0 / length
    )
}

/// Returns rows of a table for each round-trip time.
fn rows<const N: usize>(figures: &[[u64; N]]) -> Vec<Vec<String>> {
    let rows = RTTS.iter().zip(figures).map(|((_, name), row)| {
        let cells = row.iter().map(u64::to_string);
        std::iter::once((*name).to_owned()).chain(cells).collect()
    });
    rows.collect()
}

impl Losses {
    /// Measures all of it.
    pub fn measure() -> Result<Self, String> {
        let (mut single, mut runs) = (Vec::new(), Vec::new());
        for (rtt_us, _) in RTTS {
            let mut row = [0; LOSSES.len()];
            for (cell, (loss, _)) in row.iter_mut().zip(LOSSES) {
                *cell = goodput(rtt_us, &format!("loss = {}", f64::from(loss) / 1e6))?;
            }
            single.push(row);
            let mut row = [0; RUNS.len()];
            for (cell, (length, _)) in row.iter_mut().zip(RUNS) {
                *cell = goodput(rtt_us, &lost_in_runs(length))?;
            }
            runs.push(row);
        }
        Ok(Self { single, runs })
    }

    /// Returns the section of the page.
    pub fn section(&self) -> String {
        let mut head = vec!["RTT"];
        head.extend(LOSSES.map(|(_, name)| name));
        let single = table(&head, &rows(&self.single));
        let mut head = vec!["RTT"];
        head.extend(RUNS.map(|(_, name)| name));
        let runs = table(&head, &rows(&self.runs));
        format!(
            "\
The table has the Mbit/s of messages of one reliable connection, for rates of loss in both directions
and round-trip times without load.

===============  ================================
link             {LINK_GBPS} Gbit/s
messages         WRITEs of 64 KiB, {MIB} MiB in all
outstanding      up to 32 messages
path MTU         1024 bytes
ACK timeout      67 ms (code 14)
===============  ================================

A NAK names one missing packet, and the next one is known when that has arrived. So each gap costs a
round trip. The wire format of RoCEv2 has no place to name more gaps. If a path is long and losses are near to
each other, the requester therefore sends all outstanding packets again at once. The receiver keeps 1024
packets behind a gap: more are lost. A larger MTU, or several connections, raise the goodput.

.. image:: goodput.svg

{single}
A switch whose queue is full, and ``netem`` on frames that pass as one train, lose several packets in a row. With 1%
of the packets lost, so many in a row on average:

{runs}"
        )
    }

    /// Returns the picture of the page.
    pub fn figure(&self) -> String {
        let lines = RTTS.iter().zip(&self.single).map(|((_, name), row)| Line {
            name,
            values: row.iter().map(|mbps| *mbps as f64 / 1000.0).collect(),
        });
        let figure = Figure {
            x_title: "packets lost",
            x_names: LOSSES.iter().map(|(_, name)| (*name).to_owned()).collect(),
            y_title: "Gbit/s of messages",
            y_most: f64::from(LINK_GBPS),
            y_step: 2.0,
            lines: lines.collect(),
        };
        figure.svg()
    }
}
