// SPDX-License-Identifier: GPL-2.0

//! Goes through all states that a scenario leads to.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

use crate::world::{Label, Scenario, State};

/// The result of a search.
pub struct Found {
    /// The number of visited states.
    pub states: usize,
    /// The violation, and the way to it.
    pub violation: Option<String>,
}

/// A hash that is faster than that of the library. Nobody chooses states to collide.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

/// A state, and from where it was reached first.
struct Node {
    state: Rc<State>,
    from: Option<(u32, Label)>,
}

/// Visits all states, breadth first, so that it finds the shortest way to a violation.
///
/// # Panics
///
/// With more than `most` states: then the scenario is too large.
#[must_use]
pub fn explore(scenario: &Scenario, most: usize) -> Found {
    let first = Rc::new(State::new(scenario));
    let mut numbers = HashMap::<_, u32, BuildHasherDefault<Mix>>::default();
    numbers.insert(first.clone(), 0u32);
    let mut nodes = vec![Node {
        state: first,
        from: None,
    }];
    let mut queue = VecDeque::from([0u32]);
    // Of steps that need nothing from outside: from where they come, by where they lead to.
    let mut inner = Vec::new();
    let mut ends = Vec::new();
    while let Some(number) = queue.pop_front() {
        let state = nodes[number as usize].state.clone();
        if let Some(wrong) = state.is_wrong() {
            return found(&nodes, number, &wrong);
        }
        let mut rests = true;
        for (label, next) in state.steps(scenario) {
            let to = nodes.len() as u32;
            let next = Rc::new(next);
            let to = match numbers.entry(next.clone()) {
                Entry::Occupied(old) => *old.get(),
                Entry::Vacant(new) => {
                    nodes.push(Node {
                        state: next,
                        from: Some((number, label)),
                    });
                    queue.push_back(to);
                    *new.insert(to)
                }
            };
            if label.is_inner() {
                rests = false;
                inner.push((to, number));
            }
        }
        if rests {
            if let Some(wrong) = state.is_left(scenario) {
                return found(&nodes, number, &wrong);
            }
            ends.push(number);
        }
        assert!(nodes.len() <= most, "more than {most} states");
    }
    match endless(nodes.len(), inner, ends) {
        Some(number) => found(&nodes, number, "handed to and fro, without an end"),
        None => Found {
            states: nodes.len(),
            violation: None,
        },
    }
}

/// Returns the first state from which none of `ends` can be reached by the steps `inner`.
fn endless(states: usize, mut inner: Vec<(u32, u32)>, ends: Vec<u32>) -> Option<u32> {
    inner.sort_unstable();
    let mut has_end = vec![false; states];
    let mut todo = ends;
    while let Some(to) = todo.pop() {
        if std::mem::replace(&mut has_end[to as usize], true) {
            continue;
        }
        let start = inner.partition_point(|edge| edge.0 < to);
        let before = inner[start..].iter().take_while(|edge| edge.0 == to);
        todo.extend(
            before
                .map(|edge| edge.1)
                .filter(|from| !has_end[*from as usize]),
        );
    }
    let number = has_end.iter().position(|has_end| !has_end)?;
    Some(number as u32)
}

fn found(nodes: &[Node], last: u32, wrong: &str) -> Found {
    let mut steps = Vec::new();
    let mut at = &nodes[last as usize];
    while let Some((from, label)) = &at.from {
        steps.push(label);
        at = &nodes[*from as usize];
    }
    let mut text = format!("{wrong}, after\n");
    for label in steps.iter().rev() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {label:?}");
    }
    let _ = write!(text, "{:#?}", nodes[last as usize].state);
    Found {
        states: nodes.len(),
        violation: Some(text),
    }
}
