// SPDX-License-Identifier: GPL-2.0

//! Goodput of a connection with reordered packets.

use crate::loss::RTTS;
use crate::table::table;
use crate::transfer::{goodput, LINK_GBPS};

/// Nanoseconds that the link takes for a packet of 1024 bytes, with all its headers.
const PACKET_NS: u32 = 900;

/// How many packets in a hundred are late, by how many packet times at most.
const LATENESS: [(u32, u32); 4] = [(1, 2), (1, 8), (1, 64), (10, 8)];

/// Goodput in Mbit/s, by round-trip time: where no packet is late, and by lateness.
pub struct Reorderings(Vec<(u64, [u64; LATENESS.len()])>);

impl Reorderings {
    /// Measures all of it.
    pub fn measure() -> Result<Self, String> {
        let mut rows = Vec::new();
        for (rtt_us, _) in RTTS {
            let mut row = [0; LATENESS.len()];
            for (cell, (percent, packets)) in row.iter_mut().zip(LATENESS) {
                let link = format!(
                    "reordering = {}, late_us = {}",
                    f64::from(percent) / 100.0,
                    f64::from(packets * PACKET_NS) / 1e3
                );
                *cell = goodput(rtt_us, &link)?;
            }
            rows.push((goodput(rtt_us, "loss = 0")?, row));
        }
        Ok(Self(rows))
    }

    /// Returns the section of the page.
    pub fn section(&self) -> String {
        let names = LATENESS.map(|(percent, packets)| format!("{percent}% by {packets}"));
        let mut head = vec!["RTT", "none"];
        head.extend(names.iter().map(String::as_str));
        let rows = RTTS.iter().zip(&self.0).map(|((_, name), (none, row))| {
            let cells = row.iter().map(|mbps| {
                let share = 100.0 * *mbps as f64 / *none as f64;
                format!("{mbps}, {share:.1}%")
            });
            let first = [(*name).to_owned(), none.to_string()];
            first.into_iter().chain(cells).collect()
        });
        let table = table(&head, &rows.collect::<Vec<_>>());
        format!(
            "\
Here a share of the packets of the same connection is late, in both directions. ``1% by 8`` means
that 1% of them are late by up to 8 times the time of a packet on the link of {LINK_GBPS} Gbit/s. The
table has the Mbit/s, and their share of the value without late packets.

{table}"
        )
    }
}
