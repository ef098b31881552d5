// SPDX-License-Identifier: GPL-2.0

//! Packets between queue pairs of one device, which enter no network.

use kernel::cpu::CpuId;
use kernel::prelude::*;
use kernel::sync::rcu;
use rdma::net::{OwnFrames, PacketQueue};
use roce::wire::{Body, MAX_HEADER};

use crate::kick;
use crate::parse::Parsed;
use crate::qp::Qp;
use crate::stats::Counter;

/// Passes packets of `sender` to the connected queue pair of the same device. The sender holds its own
/// lock, so they are handled later. Bottom halves are disabled.
///
/// That queue pair must be connected to the sender. Otherwise packets of a stranger could delay those of
/// the peer.
///
/// # Errors
///
/// The counter of the reason for which they are dropped.
pub(crate) fn pass(sender: &Qp, mut frames: PacketQueue<OwnFrames>) -> Result<(), Counter> {
    let shared = sender.shared();
    let Some(first) = frames.pop() else {
        return Ok(());
    };
    let mut header = [0; MAX_HEADER];
    let parsed = Parsed::new(&first, first.peek(&mut header));
    let packet = parsed.packet()?;
    let guard = rcu::read_lock();
    let qp = shared.qps.get(packet.bth.dest_qp.get(), &guard);
    let qp = qp.ok_or(Counter::UnknownQp)?;
    if qp.own_peer() != Some(sender.fixed.qpn) {
        return Err(Counter::BadSource);
    }
    let here = CpuId::current();
    let len = first.payload_len();
    frames.push_front(first);
    if matches!(packet.body, Body::Response(_)) {
        let cpu = qp.last_sent.cpu().unwrap_or(here);
        let cpu = qp.responses.put_own(frames, cpu);
        kick::handle_responses_on(qp, cpu);
        return Ok(());
    }
    let cpu = shared.senders.other_for(len).unwrap_or(here);
    if cpu != here {
        let steered = u64::from(frames.len());
        shared.stats.add(Counter::SteeredPackets, steered);
    }
    let cpu = qp.backlog.put_own(frames, cpu);
    kick::handle_backlog_on(qp, cpu);
    Ok(())
}
