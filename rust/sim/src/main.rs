// SPDX-License-Identifier: GPL-2.0

//! Runs plans:
//!
//! ```text
//! sim [--seeds N] [--threads N] PLAN.toml...      seeds 0 to N - 1 of each
//! sim --seed N PLAN.toml                          one, with a trace of its end
//! ```
//!
//! A plan stops at the first seed that fails, and says which and the command that repeats it.

use std::process::ExitCode;
use std::time::Instant;

use sim::plan::Plan;
use sim::run::{run_many, run_traced};
use sim::sabotage::Sabotage;

struct Arguments {
    seeds: u64,
    first: u64,
    seed: Option<u64>,
    threads: usize,
    plans: Vec<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut arguments = Arguments {
        seeds: 100,
        first: 0,
        seed: None,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        plans: Vec::new(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().ok_or(format!("{word} wants a number"))?;
            value.parse().map_err(|_| format!("{value} is no number"))
        };
        match word.as_str() {
            "--seeds" => arguments.seeds = number()?,
            "--first" => arguments.first = number()?,
            "--seed" => arguments.seed = Some(number()?),
            "--threads" => arguments.threads = number()? as usize,
            option if option.starts_with('-') => return Err(format!("no such option: {option}")),
            _ => arguments.plans.push(word),
        }
    }
    match arguments.plans.is_empty() {
        true => Err("which plan?".into()),
        false => Ok(arguments),
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let mut failures = Vec::new();
    for path in &arguments.plans {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        let plan = Plan::parse(&text).map_err(|error| format!("{path}: {error}"))?;
        let result = match arguments.seed {
            Some(seed) => one(path, &plan, seed),
            None => many(path, &text, &plan, arguments),
        };
        failures.extend(result.err());
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(failures.join("\n\n")),
    }
}

fn one(path: &str, plan: &Plan, seed: u64) -> Result<(), String> {
    let (outcome, trace) = run_traced(plan, seed, Sabotage::None);
    for line in trace {
        println!("{line}");
    }
    println!("{:#?}", outcome.events);
    let ms = outcome.at_ns as f64 / 1e6;
    match outcome.failure {
        Some(what) => Err(format!("{path}, seed {seed}: {what}")),
        None => {
            println!("{path}, seed {seed}: {} packets in {ms} ms", outcome.sent);
            Ok(())
        }
    }
}

fn many(path: &str, text: &str, plan: &Plan, arguments: &Arguments) -> Result<(), String> {
    let start = Instant::now();
    let (first, seeds) = (arguments.first, arguments.seeds);
    let outcome = run_many(plan, first, seeds, arguments.threads).map_err(|failure| {
        let (seed, what) = (failure.seed, failure.what);
        format!(
            "{path}, seed {seed}: {what}\n\nthe plan:\n{text}\n\
             again: cargo run --release --manifest-path rust/Cargo.toml -p sim -- --seed {seed} {path}"
        )
    })?;
    println!(
        "{path}: {seeds} seeds, {} packets, {:.1} s of virtual time, in {:.1} s",
        outcome.sent,
        outcome.at_ns as f64 / 1e9,
        start.elapsed().as_secs_f64()
    );
    let events: Vec<String> = outcome
        .events
        .iter()
        .map(|(what, count)| format!("{what} {count}"))
        .collect();
    println!("    {}", events.join(", "));
    Ok(())
}

fn main() -> ExitCode {
    match arguments().and_then(|arguments| run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("sim: {what}");
            ExitCode::FAILURE
        }
    }
}
