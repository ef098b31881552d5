// SPDX-License-Identifier: GPL-2.0

//! Rules broken on purpose, to see that the oracle notices.

use roce::num::Psn;
use roce::wire::{Body, Packet, Request};
use roce::wr::AtomicOp;

use crate::endpoint::{Halves, Side};
use crate::sim::Sim;

/// A rule that is broken, outside of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sabotage {
    /// None.
    #[default]
    None,
    /// Links change payload, and the checksum with it.
    Forgery,
    /// Now and then a completion of a send does not reach its owner.
    LostCompletion,
    /// Now and then a completion of a send comes twice.
    DoubledCompletion,
    /// A send that failed is reported as successful.
    FalseSuccess,
    /// A duplicate of an atomic is executed again.
    AtomicTwice,
    /// Data that a peer writes lands a byte further.
    StrayWrite,
    /// Keys open more than they should.
    WideGrants,
    /// Keys stay open though they are invalidated.
    ForgottenInvalidation,
    /// Requests do not wait at fences.
    NoFences,
    /// Timers do not fire.
    NoTimer,
    /// Each packet is sent six times.
    Storm,
    /// Now and then a completion of a receive comes twice.
    ReceiveTwice,
    /// The source of a packet is not checked.
    AnySource,
    /// Each mark is told, however many there are.
    EveryMark,
}

impl Sabotage {
    /// All that breaks something.
    pub const ALL: [Self; 14] = [
        Self::Forgery,
        Self::LostCompletion,
        Self::DoubledCompletion,
        Self::FalseSuccess,
        Self::AtomicTwice,
        Self::StrayWrite,
        Self::WideGrants,
        Self::ForgottenInvalidation,
        Self::NoFences,
        Self::NoTimer,
        Self::Storm,
        Self::ReceiveTwice,
        Self::AnySource,
        Self::EveryMark,
    ];

    /// Returns how often each packet is sent.
    pub(crate) fn copies(self) -> u64 {
        match self {
            Self::Storm => 6,
            _ => 1,
        }
    }
}

impl Sim {
    /// Breaks the rule in nodes and links.
    pub(crate) fn apply_sabotage(&mut self) {
        let sabotage = self.sabotage;
        for node in &mut self.nodes {
            node.memory.wide_grants = sabotage == Sabotage::WideGrants;
            node.memory.forgets_invalidation = sabotage == Sabotage::ForgottenInvalidation;
            node.memory.stray_writes = sabotage == Sabotage::StrayWrite;
        }
        for link in &mut self.links {
            link.forges = sabotage == Sabotage::Forgery;
        }
        for qp in &mut self.qps {
            qp.queues.sabotage = sabotage;
        }
    }

    /// Executes a duplicate of an atomic again, if that rule is broken.
    pub(crate) fn meddle_with_request(&mut self, qp: usize, side: Side, packet: &Packet) {
        if self.sabotage != Sabotage::AtomicTwice || side != Side::Recv {
            return;
        }
        let Body::Request(Request::FetchAdd(eth)) = &packet.body else {
            return;
        };
        let expected: Option<Psn> = match &self.qps[qp].halves {
            Halves::Connected { responder, .. } => responder.expected_psn(),
            Halves::Datagram { .. } => None,
        };
        if !expected.is_some_and(|expected| packet.bth.psn.is_before(expected)) {
            return;
        }
        let op = AtomicOp::FetchAdd { add: eth.swap_add };
        self.with(qp, &[], [0; 4], |_, host| {
            use roce::host::RecvHost;
            let access = roce::host::Access::Atomic;
            if let Ok(grant) = host.authorize(eth.rkey, eth.iova, 8, access) {
                let _ = host.atomic(&grant, op);
            }
        });
    }
}
