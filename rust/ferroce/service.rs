// SPDX-License-Identifier: GPL-2.0

//! The halves of a queue pair by transport. Connections have a requester and a responder. Datagrams have
//! a sender and a receiver.

use kernel::prelude::*;
use kernel::sync::Arc;
use rdma::qp::QpType;
use rdma::slots::Slots as Storage;
use roce::congestion::Law;
use roce::host::{Flush, Handled};
use roce::num::{Bundle, Psn, Qpn};
use roce::opcode::{Connection, Transport};
use roce::qp::Attributes;
use roce::recv::{RecvReport, RecvState, Replay, Responder};
use roce::send::{Requester, SendReport, SendState, Slot};
use roce::time::Instant;
use roce::ud::{Receiver, Sender};
use roce::wire::{HeaderBytes, Packet};
use roce::wr::SendOp;

use crate::ah::Ah;
use crate::host::{RecvSide, SendSide};
use crate::keys::Segment;
use crate::payload::Payload;

/// The service of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Connection(Connection),
    Datagram,
    /// QP1, which the kernel owns. It works like a queue pair for datagrams.
    Gsi,
}

impl Service {
    pub(crate) fn new(qp_type: QpType) -> Self {
        match qp_type {
            QpType::Rc => Self::Connection(Connection::Reliable),
            QpType::Uc => Self::Connection(Connection::Unreliable),
            QpType::Ud => Self::Datagram,
            QpType::Gsi => Self::Gsi,
        }
    }

    pub(crate) fn qp_type(self) -> QpType {
        match self {
            Self::Connection(Connection::Reliable) => QpType::Rc,
            Self::Connection(Connection::Unreliable) => QpType::Uc,
            Self::Datagram => QpType::Ud,
            Self::Gsi => QpType::Gsi,
        }
    }

    /// Returns true if packets should not overtake each other, because nobody requests them again. A
    /// connection loses the message. Datagram users may rely on the usual order of networks.
    ///
    /// Packets overtake each other if a CPU sends while another one has packets in its queues.
    pub(crate) fn needs_order(self) -> bool {
        matches!(
            self,
            Self::Connection(Connection::Unreliable) | Self::Datagram
        )
    }

    /// Returns true if it is cheaper to send requests together. They pass the network stack as one, and
    /// share acknowledgements. Management datagrams are too few for that.
    pub(crate) fn has_streams(self) -> bool {
        self != Self::Gsi
    }

    /// Returns true if it has one peer.
    pub(crate) fn is_connected(self) -> bool {
        matches!(self, Self::Connection(_))
    }

    /// Returns true if a request completes by an acknowledgement, and not when it is sent.
    pub(crate) fn is_answered(self) -> bool {
        matches!(self, Self::Connection(Connection::Reliable))
    }

    /// Returns true if the service supports such requests.
    pub(crate) fn carries(self, op: &SendOp) -> bool {
        match self {
            Self::Connection(Connection::Reliable) => true,
            Self::Connection(Connection::Unreliable) => matches!(
                op,
                SendOp::Send { .. } | SendOp::Write { .. } | SendOp::Local(_)
            ),
            Self::Datagram | Self::Gsi => matches!(op, SendOp::Send { .. }),
        }
    }

    pub(crate) fn transport(self) -> Transport {
        match self {
            Self::Connection(connection) => connection.transport(),
            Self::Datagram | Self::Gsi => Transport::Ud,
        }
    }
}

pub(crate) type QpRequester = Requester<Payload, Storage<Slot<Payload>>>;
pub(crate) type QpSender = Sender<Payload, Arc<Ah>>;
pub(crate) type QpResponder = Responder<Payload, Segment, Storage<Replay<Segment>>>;

/// The protocol machine of a send half.
pub(crate) enum SendService {
    Connected(Connection, QpRequester),
    Datagram(QpSender),
}

impl SendService {
    /// Creates it. `window` creates the storage for outstanding requests.
    pub(crate) fn new(
        service: Service,
        qpn: Qpn,
        signal_all: bool,
        window: impl FnOnce() -> Result<Storage<Slot<Payload>>>,
    ) -> Result<Self> {
        Ok(match service {
            Service::Connection(connection) => {
                Self::Connected(connection, Requester::new(qpn, signal_all, window()?))
            }
            Service::Datagram | Service::Gsi => Self::Datagram(Sender::new(qpn, signal_all)),
        })
    }

    /// Returns true if there is something to send, though nothing was posted.
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        match self {
            Self::Connected(_, requester) => requester.has_left(),
            Self::Datagram(_) => true,
        }
    }

    /// Notes that all that was posted is complete. Returns true if there is nothing to send then.
    #[inline]
    pub(crate) fn rest(&mut self) -> bool {
        match self {
            Self::Connected(_, requester) => requester.rest(),
            Self::Datagram(_) => false,
        }
    }

    /// Returns true if the peer has acknowledged all packets. Only a reliable peer acknowledges.
    #[inline]
    pub(crate) fn is_acknowledged(&self) -> bool {
        match self {
            Self::Connected(Connection::Reliable, requester) => !requester.has_outstanding(),
            Self::Connected(Connection::Unreliable, _) | Self::Datagram(_) => false,
        }
    }

    /// Returns true if a started request has packets to send, for the first time or again.
    pub(crate) fn has_unsent(&self) -> bool {
        match self {
            Self::Connected(_, requester) => requester.has_unsent(),
            Self::Datagram(_) => false,
        }
    }

    /// Returns how many requests may be outstanding.
    pub(crate) fn room(&self) -> usize {
        match self {
            Self::Connected(_, requester) => requester.room(),
            Self::Datagram(_) => 0,
        }
    }

    /// Enlarges the storage for outstanding requests. Returns the old storage, to be freed.
    pub(crate) fn widen(&mut self, storage: Storage<Slot<Payload>>) -> Storage<Slot<Payload>> {
        match self {
            Self::Connected(_, requester) => requester.widen(storage),
            Self::Datagram(_) => storage,
        }
    }

    pub(crate) fn start(&mut self, attributes: &Attributes, bundle: Bundle, law: Law) {
        match self {
            Self::Connected(connection, requester) => {
                requester.start(attributes.send_config(*connection, bundle, law));
            }
            Self::Datagram(sender) => {
                sender.start(attributes.datagram_config(), attributes.sq_psn);
            }
        }
    }

    pub(crate) fn modify(&mut self, attributes: &Attributes, bundle: Bundle) {
        match self {
            Self::Connected(_, requester) => requester.modify(attributes.send_update(bundle)),
            Self::Datagram(sender) => sender.modify(attributes.datagram_config()),
        }
    }

    pub(crate) fn drain(&mut self, host: &mut SendSide<'_>) {
        match self {
            Self::Connected(_, requester) => requester.drain(host),
            Self::Datagram(sender) => sender.drain(host),
        }
    }

    pub(crate) fn resume(&mut self) {
        match self {
            Self::Connected(_, requester) => requester.resume(),
            Self::Datagram(sender) => sender.resume(),
        }
    }

    pub(crate) fn enter_error(&mut self, host: &mut SendSide<'_>) -> Flush {
        match self {
            Self::Connected(_, requester) => requester.enter_error(host),
            Self::Datagram(sender) => sender.enter_error(host),
        }
    }

    pub(crate) fn flush_posted(&mut self, host: &mut SendSide<'_>) -> Flush {
        match self {
            Self::Connected(_, requester) => requester.flush_posted(host),
            Self::Datagram(sender) => sender.flush_posted(host),
        }
    }

    pub(crate) fn reset(&mut self, host: &mut SendSide<'_>) {
        match self {
            Self::Connected(_, requester) => requester.reset(host),
            Self::Datagram(sender) => sender.reset(host),
        }
    }

    pub(crate) fn state(&self) -> SendState {
        match self {
            Self::Connected(_, requester) => requester.state(),
            Self::Datagram(sender) => sender.state(),
        }
    }

    pub(crate) fn next_psn(&self) -> Option<Psn> {
        match self {
            Self::Connected(_, requester) => requester.next_psn(),
            Self::Datagram(sender) => sender.next_psn(),
        }
    }

    /// Returns the progress; `None` for datagrams, and unless it runs.
    pub(crate) fn report(&self) -> Option<SendReport> {
        match self {
            Self::Connected(_, requester) => requester.report(),
            Self::Datagram(_) => None,
        }
    }

    /// Handles a response. Datagrams have none, and are not sent again.
    pub(crate) fn handle_response(
        &mut self,
        now: Instant,
        packet: &Packet,
        host: &mut SendSide<'_>,
    ) -> Handled {
        match self {
            Self::Connected(_, requester) => requester.handle_response(now, packet, host),
            Self::Datagram(_) => Handled::Done,
        }
    }

    /// Notes that the path is congested. Returns true if it has a law that reacts.
    pub(crate) fn congested(&mut self, now: Instant) -> bool {
        match self {
            Self::Connected(_, requester) => requester.congested(now),
            Self::Datagram(_) => false,
        }
    }

    /// Notes that an early response was not kept.
    pub(crate) fn not_kept(&mut self) {
        if let Self::Connected(_, requester) = self {
            requester.not_kept();
        }
    }

    /// Handles an early response whose turn may have come.
    pub(crate) fn handle_kept(
        &mut self,
        now: Instant,
        packet: &Packet,
        host: &mut SendSide<'_>,
    ) -> Handled {
        match self {
            Self::Connected(_, requester) => requester.handle_kept(now, packet, host),
            Self::Datagram(_) => Handled::Done,
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Connected(_, requester) => requester.poll_timeout(),
            Self::Datagram(_) => None,
        }
    }

    /// Returns true if the half has failed.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.state(), SendState::Error | SendState::Stopped)
    }

    /// Handles the passing of time. Returns true if the timeout of the queue pair, or the wait for a receiver, is
    /// over.
    pub(crate) fn handle_timeout(&mut self, now: Instant, host: &mut SendSide<'_>) -> bool {
        match self {
            Self::Connected(_, requester) => requester.handle_timeout(now, host),
            Self::Datagram(_) => false,
        }
    }
}

/// The protocol machine of a receive half.
pub(crate) enum RecvService {
    Connected(Connection, QpResponder),
    Datagram(Receiver<Payload>),
}

impl RecvService {
    pub(crate) fn new(service: Service, qpn: Qpn) -> Self {
        match service {
            Service::Connection(connection) => {
                Self::Connected(connection, Responder::new(qpn, Storage::empty()))
            }
            Service::Datagram | Service::Gsi => Self::Datagram(Receiver::new(qpn)),
        }
    }

    /// Replaces the storage for replies that may be sent again.
    pub(crate) fn set_replay(&mut self, replay: Storage<Replay<Segment>>) {
        if let Self::Connected(_, responder) = self {
            drop(responder.set_replay(replay));
        }
    }

    pub(crate) fn start(&mut self, attributes: &Attributes, bundle: Bundle) {
        match self {
            Self::Connected(connection, responder) => {
                responder.start(attributes.recv_config(*connection, bundle));
            }
            Self::Datagram(receiver) => receiver.start(attributes.datagram_config()),
        }
    }

    pub(crate) fn set_established(&mut self) {
        if let Self::Connected(_, responder) = self {
            responder.set_established();
        }
    }

    pub(crate) fn modify(&mut self, attributes: &Attributes, bundle: Bundle) {
        match self {
            Self::Connected(_, responder) => responder.modify(attributes.recv_update(bundle)),
            Self::Datagram(receiver) => receiver.modify(attributes.datagram_config()),
        }
    }

    pub(crate) fn handle_request(&mut self, packet: &Packet, host: &mut RecvSide<'_>) -> Handled {
        match self {
            Self::Connected(_, responder) => responder.handle_request(packet, host),
            Self::Datagram(receiver) => receiver.handle_datagram(packet, host),
        }
    }

    /// Handles an early request whose turn may have come. Datagrams have none.
    pub(crate) fn handle_kept(&mut self, packet: &Packet, host: &mut RecvSide<'_>) -> Handled {
        match self {
            Self::Connected(_, responder) => responder.handle_kept(packet, host),
            Self::Datagram(_) => Handled::Done,
        }
    }

    /// Returns true if there is work after a batch of packets: a reply is pending, or the half has
    /// failed.
    pub(crate) fn needs_poll(&mut self) -> bool {
        match self {
            Self::Connected(_, responder) => responder.needs_poll(),
            Self::Datagram(receiver) => receiver.state() == RecvState::Error,
        }
    }

    pub(crate) fn enter_error(&mut self, host: &mut RecvSide<'_>) -> Flush {
        match self {
            Self::Connected(_, responder) => responder.enter_error(host),
            Self::Datagram(receiver) => receiver.enter_error(host),
        }
    }

    pub(crate) fn reset(&mut self, host: &mut RecvSide<'_>) {
        match self {
            Self::Connected(_, responder) => responder.reset(host),
            Self::Datagram(receiver) => receiver.reset(host),
        }
    }

    pub(crate) fn state(&self) -> RecvState {
        match self {
            Self::Connected(_, responder) => responder.state(),
            Self::Datagram(receiver) => receiver.state(),
        }
    }

    /// Returns the packet that tells the peer of congestion, while there is one to tell.
    pub(crate) fn cnp(&self) -> Option<HeaderBytes> {
        match self {
            Self::Connected(_, responder) => responder.cnp(),
            Self::Datagram(_) => None,
        }
    }

    pub(crate) fn expected_psn(&self) -> Option<Psn> {
        match self {
            Self::Connected(_, responder) => responder.expected_psn(),
            Self::Datagram(_) => None,
        }
    }

    /// Returns the progress; `None` for datagrams, and unless it runs.
    pub(crate) fn report(&mut self) -> Option<RecvReport> {
        match self {
            Self::Connected(_, responder) => responder.report(),
            Self::Datagram(_) => None,
        }
    }
}
