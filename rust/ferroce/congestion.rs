// SPDX-License-Identifier: GPL-2.0

//! Explicit congestion notification: packets that were marked on their way, and the CNPs that tell of them.
//!
//! The network marks a packet (CE) instead of dropping it, if the sender declares that it reacts
//! (ECT). The receiver of a marked packet sends a congestion notification packet, and the sender's
//! law of congestion control reacts. All of this is for reliable connections. On other transports,
//! the user sets the whole traffic class.

use kernel::sync::ArcBorrow;
use rdma::net::Datagram;
use roce::congestion::Law;
use roce::wire::Packet;

use crate::device::Device;
use crate::parse::check_icrc;
use crate::qp::{Ends, Qp, Route};
use crate::requester::now;
use crate::stats::Counter;
use crate::tx::Icrc;

/// The bits of a traffic class that are for notification, and two of their values.
const ECN_MASK: u8 = 3;
const ECT_0: u8 = 2;
const CE: u8 = 3;

/// Returns the traffic class of packets that `law` has sent, of those with `class` otherwise.
// Rules: CNP-6
pub(crate) fn traffic_class(class: u8, law: Law) -> u8 {
    match law.reacts_to_marks() {
        true => class & !ECN_MASK | ECT_0,
        false => class,
    }
}

/// Returns true if the network says that a packet met congestion.
#[inline]
pub(crate) fn is_marked(datagram: &Datagram) -> bool {
    datagram.traffic_class() & ECN_MASK == CE
}

/// Reacts to a marked packet between `ends`: tells the peer, and of data that a READ asked for the requester.
/// An acknowledgement says nothing of the way that requests go. Softirq context, or that of a work item.
// Rules: CNP-4
#[cold]
pub(crate) fn handle_mark(qp: ArcBorrow<'_, Qp>, ends: Ends, packet: &Packet) {
    if !qp.fixed.service.is_answered() {
        return;
    }
    let stats = &qp.shared().stats;
    stats.count(Counter::MarkedPackets);
    if packet.is_read_data() {
        let mut half = qp.send.lock();
        if half.route.as_ref().map(Route::ends) == Some(ends) {
            half.service.congested(now());
        }
    }
    let mut guard = qp.recv.lock();
    let half = &mut *guard;
    if !half.takes(ends) || !half.notifier.marked(now()) {
        return;
    }
    let (Some(route), Some(cnp)) = (&mut half.route, half.service.cnp()) else {
        return;
    };
    if route.path.keeps_own() {
        return;
    }
    let class = qp.shared().cnp_dscp() << 2;
    match route
        .path
        .send_alone::<Icrc>(&qp.fixed.credit, cnp.as_bytes(), class)
    {
        Ok(()) => stats.count(Counter::CnpsSent),
        Err(_) => stats.count(Counter::SendError),
    }
}

/// Handles a CNP, of which `first` are the first bytes, for `qp`.
///
/// # Errors
///
/// The counter of the reason for which it is dropped.
// Rules: CNP-2
#[cold]
pub(crate) fn handle_cnp(
    device: &Device,
    qp: Option<ArcBorrow<'_, Qp>>,
    datagram: &Datagram,
    first: &[u8],
) -> Result<(), Counter> {
    let qp = qp.ok_or(Counter::UnknownQp)?;
    check_icrc(datagram, first)?;
    let mut half = qp.send.lock();
    if half.route.as_ref().map(Route::ends) != Some(Ends::of(datagram)) {
        return Err(Counter::BadSource);
    }
    let counter = match half.service.congested(now()) {
        true => Counter::CnpsHandled,
        false => Counter::CnpsIgnored,
    };
    device.shared.stats.count(counter);
    Ok(())
}
