// SPDX-License-Identifier: GPL-2.0

//! A model of the handover of one queue pair's work between contexts, searched completely.
//!
//! The decisions are the driver's own, `ferroce/wake.rs`. Around them is a model of the driver's
//! actions ([`world`]) on a few CPUs:
//!
//! * doorbells, responses, requests, the timer and the credit;
//! * packets steered to another CPU;
//! * memory that is absent or gone;
//! * work items as the kernel runs them;
//! * a CPU that goes offline and comes back.
//!
//! A lock section, or one access to a flag, is one step. Between two steps of one context any other
//! may make its own. The driver guesses some facts, such as whether a CPU has sent recently. The
//! model tries both results of a guess, but the unusual one only as often as a scenario says,
//! mostly twice.
//!
//! [`explore`] looks at each state that can be reached, and finds
//!
//! * one in which the work item of process context runs twice at a time;
//! * one in which nothing is pending, running or on its way, and work is left;
//! * one without an end, as long as the network and the offline CPUs stand still: contexts hand
//!   work back and forth.
//!
//! The model leaves out:
//!
//! * queue pairs in ERR, which flush;
//! * datagrams that wait for an address;
//! * verbs;
//! * queue pairs connected to their own device;
//! * the order of memory accesses: all contexts see the effects of a step.
//!
//! A context begins with its first step. The timer fires only where it has an effect.

#![forbid(unsafe_code)]

pub mod explore;
#[cfg(test)]
#[path = "../ferroce/policy.rs"]
mod policy;
#[cfg(test)]
mod policies {
    mod credit;
    mod early;
    mod guesses;
    mod judge;
    mod machine;
    mod posters;
}
#[cfg(test)]
#[path = "../ferroce/early/room.rs"]
mod room;
#[cfg(test)]
#[path = "../rdma/net/credit/rule.rs"]
mod rule;
#[path = "../ferroce/wake.rs"]
mod wake;
pub mod world;
