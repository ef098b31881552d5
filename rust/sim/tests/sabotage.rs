// SPDX-License-Identifier: GPL-2.0

//! The simulator can fail: each rule that is broken on purpose is noticed.

use sim::plan::Plan;
use sim::run::run;
use sim::sabotage::Sabotage;

/// A good network, and work that has no faults.
const GOOD: &str = "rc = 2\nwork.messages = 40\nwork.signaled = 0.9\n";
/// A network that loses and doubles packets.
const BAD: &str = "rc = 2\nwork.messages = 40\nwork.signaled = 0.9\n
    link.loss = 0.01\nlink.duplication = 0.05\n";
/// Each queue pair posts something that must fail.
const FAULTY: &str = "rc = 4\nwork.messages = 40\nwork.window = 8\ntrouble.faults = 1\n";

/// The adversary is there.
const ATTACKED: &str = "rc = 4\nattacked = 1\nspan_us = 5000\n";

/// A port marks each packet that finds another there.
const MARKED: &str =
    "rc = 4\nspan_us = 100\nwork.messages = 40\nport.towards = 2\nport.mark_max_kib = 0.01\n
    storm = 2\n";

const RUNS: u64 = 60;
const ENOUGH: usize = 3;

/// Returns how many runs of a plan fail. Some are enough.
fn noticed(plan: &str, sabotage: Sabotage) -> usize {
    let plan = Plan::parse(plan).unwrap();
    let runs = (0..RUNS).map(|seed| run(&plan, seed, sabotage));
    let failed = runs.filter(|outcome| outcome.failure.is_some());
    failed.take(ENOUGH).count()
}

#[test]
fn nothing_is_noticed_where_nothing_is_wrong() {
    for plan in [GOOD, BAD, FAULTY, ATTACKED, MARKED] {
        assert_eq!(noticed(plan, Sabotage::None), 0);
    }
}

#[test]
fn each_broken_rule_is_noticed() {
    for sabotage in Sabotage::ALL {
        let plan = match sabotage {
            Sabotage::Storm => GOOD,
            Sabotage::AnySource => ATTACKED,
            Sabotage::EveryMark => MARKED,
            Sabotage::FalseSuccess | Sabotage::WideGrants | Sabotage::ForgottenInvalidation => {
                FAULTY
            }
            _ => BAD,
        };
        let count = noticed(plan, sabotage);
        assert!(
            count >= ENOUGH,
            "{sabotage:?} is noticed by {count} of {RUNS} runs"
        );
    }
}
