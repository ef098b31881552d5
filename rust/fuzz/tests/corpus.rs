// SPDX-License-Identifier: GPL-2.0

//! Runs the inputs that the fuzzer found, and those of captures, through the targets.

use std::fs;
use std::path::Path;

fn run(name: &str) {
    let (_, target) = fuzz::TARGETS
        .into_iter()
        .find(|target| target.0 == name)
        .expect("a target");
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name);
    let mut count = 0;
    for entry in fs::read_dir(&dir).expect("a corpus") {
        let path = entry.expect("an input").path();
        println!("{}", path.display());
        target(&fs::read(path).expect("an input"));
        count += 1;
    }
    assert!(count > 10, "{count} inputs of {name}");
}

#[test]
fn packets() {
    run("packet");
}

#[test]
fn requests() {
    run("request");
}

#[test]
fn endpoints() {
    run("endpoint");
}

#[test]
fn reordering() {
    run("reorder");
}

/// Each small input is valid or refused.
#[test]
fn the_smallest_inputs() {
    for (_, target) in fuzz::TARGETS {
        target(&[]);
        for byte in 0..=u8::MAX {
            target(&[byte]);
            target(&[byte; 24]);
        }
    }
}
