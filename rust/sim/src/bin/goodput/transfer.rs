// SPDX-License-Identifier: GPL-2.0

//! One connection that moves messages through a link.

use sim::plan::Plan;
use sim::run::run;
use sim::sabotage::Sabotage;

/// The rate of the link.
pub const LINK_GBPS: u32 = 10;
/// Bytes of a message.
const MESSAGE: u64 = 65536;
/// Messages in a run.
const MESSAGES: u64 = 160;
/// Runs, of which the average is taken.
const SEEDS: u64 = 4;

/// MiB of messages in all runs.
pub const MIB: u64 = (MESSAGE * MESSAGES * SEEDS) >> 20;

/// Returns the megabits of messages in a second that a link carries, on average over some runs.
/// `link` is the link's faults, in the syntax of a plan.
pub fn goodput(rtt_us: u32, link: &str) -> Result<u64, String> {
    let plan = Plan::parse(&format!(
        "rc = 1\nspan_us = 1000\n
         link = {{ delay_us = {}, rate_gbps = {LINK_GBPS}, {link} }}\n
         node = {{ batch = 16 }}\n
         qp = {{ mtu = [1024], timeout = 14, window = 32, drops_early = 0 }}\n
         work = {{ messages = {MESSAGES}, max_bytes = {MESSAGE}, longest = true, burst = 32,
                   receives = 32, signaled = 1, fence = 0, one_way = true,
                   send = 0, read = 0, atomic = 0, counter = 0, atomic_write = 0, flush = 0,
                   window = 0, forward = 0 }}\nresends = 1000",
        f64::from(rtt_us) / 2.0,
    ))?;
    let mut took_ns = 0;
    for seed in 0..SEEDS {
        let outcome = run(&plan, seed, Sabotage::None);
        if let Some(what) = outcome.failure {
            return Err(format!("{link}, {rtt_us} µs, seed {seed}: {what}"));
        }
        took_ns += outcome.done_ns;
    }
    Ok(MESSAGE * MESSAGES * SEEDS * 8 * 1000 / took_ns)
}
