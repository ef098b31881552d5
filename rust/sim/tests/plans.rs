// SPDX-License-Identifier: GPL-2.0

//! Some seeds of each plan. `make sim` runs many.

use sim::plan::Plan;
use sim::run::{run, run_many};
use sim::sabotage::Sabotage;

fn plan(name: &str) -> Plan {
    let path = format!("{}/plans/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    Plan::parse(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Runs seeds of a plan, and checks that its events happen.
fn some(name: &str, seeds: u64) {
    if let Err(failure) = run_many(&plan(name), 0, seeds, 1) {
        let (seed, what) = (failure.seed, failure.what);
        panic!(
            "{name}, seed {seed}: {what}\nagain: cargo run -p sim -- --seed {seed} \
             rust/sim/plans/{name}.toml"
        );
    }
}

macro_rules! plans {
    ($($name:ident: $seeds:literal,)*) => {
        $(
            #[test]
            fn $name() {
                some(stringify!($name), $seeds);
            }
        )*

        #[test]
        fn no_plan_is_left_out() {
            let there = concat!(env!("CARGO_MANIFEST_DIR"), "/plans");
            let names = std::fs::read_dir(there).unwrap();
            let mut names: Vec<String> = names
                .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().into())
                .collect();
            names.sort();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

plans! {
    adversary: 60,
    bad: 60,
    bundles: 100,
    chaos: 100,
    crowded: 40,
    cut: 100,
    faults: 100,
    good: 100,
    impatient: 60,
    long: 8,
    lossy: 100,
    many: 15,
    marked: 40,
    narrow: 30,
    overloaded: 2,
    patient: 100,
    slow: 100,
    unreliable: 100,
}

#[test]
fn a_run_is_its_plan_and_seed() {
    let plan = plan("faults");
    for seed in 0..10 {
        let [first, second] = [(); 2].map(|()| run(&plan, seed, Sabotage::None));
        assert_eq!(first, second);
    }
}

#[test]
fn a_plan_with_a_word_that_means_nothing_is_refused() {
    assert!(Plan::parse("link.los = 0.1").unwrap_err().contains("los"));
}
