// SPDX-License-Identifier: GPL-2.0

//! A model of who does what is left of one queue pair, gone through as a whole.
//!
//! The decisions are the driver's own, `ferroce/wake.rs`. Around them is a model of what the driver does
//! with them ([`world`]), on a few CPUs: doorbells, responses, requests, packets put aside for another
//! CPU, the timer, the credit, memory that is absent or gone, work items as the kernel runs them, and a
//! CPU that goes offline and comes back. What happens under one lock, or by one access to a flag, is one
//! step; between two steps of one context any other may make its own. What is a guess in the driver
//! (whether it has sent recently, whether the CPU is wanted) is tried in both ways, the unusual one so
//! often as a scenario says, mostly twice.
//!
//! [`explore`] looks at each state that can be reached, and finds
//!
//! * one in which the work item of process context runs twice at a time;
//! * one in which nothing is pending, running or on its way, and work is left;
//! * one from which there is no end, whatever is run next, as long as the network and the CPUs that are
//!   offline stand still: work that is handed to and fro.
//!
//! What the model leaves out: queue pairs in ERR, which flush; datagrams that wait for an address;
//! verbs; queue pairs connected to their own device; and the order of accesses to memory, of which each
//! step is taken to be seen by all. A context begins with its first step, and the timer goes off only
//! where something comes of it.

#![forbid(unsafe_code)]

pub mod explore;
#[cfg(test)]
#[path = "../ferroce/policy.rs"]
mod policy;
#[cfg(test)]
mod policies {
    mod guesses;
    mod judge;
    mod machine;
    mod posters;
}
#[path = "../ferroce/wake.rs"]
mod wake;
pub mod world;
