// SPDX-License-Identifier: GPL-2.0

//! Goes through all runs of a program that makes choices.

use std::cell::RefCell;
use std::rc::Rc;

/// The choices of one run: of how many each was, and which was taken.
#[derive(Clone, Default)]
pub struct Choices(Rc<RefCell<Path>>);

#[derive(Default)]
struct Path {
    taken: Vec<(usize, usize)>,
    depth: usize,
}

impl Choices {
    /// Returns a number below `count`: another one in each run, until all were used.
    pub fn choose(&self, count: usize) -> usize {
        let path = &mut *self.0.borrow_mut();
        let depth = path.depth;
        path.depth += 1;
        match path.taken.get(depth) {
            Some((of, which)) => {
                assert_eq!(*of, count, "a run that does not repeat");
                *which
            }
            None => {
                path.taken.push((count, 0));
                0
            }
        }
    }

    /// Advances to the next run. Returns false if there is none.
    fn advance(&self) -> bool {
        let path = &mut *self.0.borrow_mut();
        path.depth = 0;
        while let Some((of, which)) = path.taken.pop() {
            if which + 1 < of {
                path.taken.push((of, which + 1));
                return true;
            }
        }
        false
    }
}

/// Runs `program` with every sequence of choices, and says how many there were.
pub fn every(mut program: impl FnMut(Choices)) -> u64 {
    let choices = Choices::default();
    let mut runs = 0;
    loop {
        program(choices.clone());
        runs += 1;
        if !choices.advance() {
            return runs;
        }
    }
}
