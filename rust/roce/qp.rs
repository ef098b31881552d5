// SPDX-License-Identifier: GPL-2.0

//! Queue pairs: their states and attributes, and the checks of a packet for one.

pub mod attr;
mod check;
pub mod state;

pub use attr::{Attr, AttrError, Attributes, Mask};
pub use check::{check, Half};
pub use state::{transition, State, Transition};
