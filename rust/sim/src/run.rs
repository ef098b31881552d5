// SPDX-License-Identifier: GPL-2.0

//! Many runs.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;
use std::thread;

use crate::plan::Plan;
use crate::sabotage::Sabotage;
use crate::sim::{Outcome, Sim};

/// A run that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// The fault.
    pub what: String,
}

/// Runs `plan` with `seed`. A panic is a failure like others.
pub fn run(plan: &Plan, seed: u64, sabotage: Sabotage) -> Outcome {
    let run = || Sim::new(plan, seed, sabotage).run();
    panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|why| Outcome {
        failure: Some(format!("panic: {}", message(&*why))),
        ..Outcome::default()
    })
}

/// Runs a seed with a trace. Returns the outcome and the end of the trace.
pub fn run_traced(plan: &Plan, seed: u64, sabotage: Sabotage) -> (Outcome, Vec<String>) {
    let mut sim = Sim::new(plan, seed, sabotage);
    sim.trace = Some(Default::default());
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| sim.run()));
    let outcome = outcome.unwrap_or_else(|why| Outcome {
        failure: Some(format!("panic: {}", message(&*why))),
        ..Outcome::default()
    });
    (outcome, sim.trace.unwrap_or_default().into())
}

fn message(why: &(dyn std::any::Any + Send)) -> String {
    let literal = why.downcast_ref::<&str>().map(|what| (*what).to_owned());
    let owned = why.downcast_ref::<String>().cloned();
    literal.or(owned).unwrap_or_default()
}

/// Runs seeds `first` to `first + count` of a plan on so many threads, until one fails.
///
/// # Errors
///
/// The failure of the lowest seed among those that failed, or an event of the plan's `sees` that no
/// run saw.
pub fn run_many(plan: &Plan, first: u64, count: u64, threads: usize) -> Result<Outcome, Failure> {
    let next = AtomicU64::new(first);
    let failed = AtomicBool::new(false);
    let total = Mutex::new((Outcome::default(), None::<Failure>));
    let work = || {
        let mut sum = Outcome::default();
        while !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                break;
            }
            let outcome = run(plan, seed, Sabotage::None);
            if let Some(what) = outcome.failure {
                failed.store(true, Ordering::Relaxed);
                let mut total = total.lock().unwrap_or_else(|poison| poison.into_inner());
                if total.1.as_ref().is_none_or(|other| seed < other.seed) {
                    total.1 = Some(Failure { seed, what });
                }
                return;
            }
            sum.add(&outcome);
        }
        let mut total = total.lock().unwrap_or_else(|poison| poison.into_inner());
        total.0.add(&sum);
    };
    thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            scope.spawn(work);
        }
        work();
    });
    match total
        .into_inner()
        .unwrap_or_else(|poison| poison.into_inner())
    {
        (_, Some(failure)) => Err(failure),
        (sum, None) => match sum.what_is_wrong(plan) {
            Some(what) => Err(Failure { seed: first, what }),
            None => Ok(sum),
        },
    }
}

impl Outcome {
    /// Returns the first goal of the plan that many runs together missed.
    fn what_is_wrong(&self, plan: &Plan) -> Option<String> {
        let times = |what: &str| self.events.get(what).copied().unwrap_or(0);
        let unseen = plan.sees.iter().find(|what| times(what) == 0);
        if let Some(what) = unseen {
            return Some(format!("no run saw: {what}"));
        }
        let (timeouts, harmed) = (times("timeouts"), times("harmed"));
        let most = plan.timeouts * harmed as f64;
        if plan.timeouts > 0.0 && timeouts as f64 > most {
            return Some(format!("{timeouts} timeouts, with {harmed} packets harmed"));
        }
        None
    }

    /// Adds the outcome of another run.
    pub fn add(&mut self, other: &Self) {
        self.at_ns += other.at_ns;
        self.sent += other.sent;
        for (what, count) in &other.events {
            *self.events.entry(what).or_default() += count;
        }
    }
}
