// SPDX-License-Identifier: GPL-2.0

//! Seeds that found a defect, with the plans as they were then: those of `plans/` may change.
//!
//! A change of the simulator's own draws makes another run of a seed. To see that one still finds
//! its defect, break the code again; if it does not, look for a seed that does.

use sim::plan::Plan;
use sim::run::run;
use sim::sabotage::Sabotage;

fn runs(plan: &str, seed: u64) {
    let plan = Plan::parse(plan).unwrap();
    assert_eq!(
        run(&plan, seed, Sabotage::None).failure,
        None,
        "seed {seed}"
    );
}

/// A stray duplicate of a READ whose key was invalidated failed the responder.
#[test]
fn a_stray_duplicate_of_a_read() {
    runs(include_str!("../found/many.toml"), 88);
}

/// A packet to be sent again whose memory was absent counted as never sent.
#[test]
fn memory_absent_when_sent_again() {
    runs(include_str!("../found/chaos.toml"), 23);
}
