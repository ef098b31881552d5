// SPDX-License-Identifier: GPL-2.0

//! Requester and responder of a reliable connection, each on its own against packets made by hand,
//! and against each other over a network on virtual time.

mod adversary;
mod atomics;
mod drain;
mod exchange;
mod flush;
mod late;
mod local;
mod long;
mod loss;
mod net;
mod parts;
mod random;
mod repair;
mod requester;
mod responder;
mod rng;
mod sequences;
mod world;
