// SPDX-License-Identifier: GPL-2.0

//! Counters of a device, which `rdma statistic` shows.

use kernel::prelude::*;
use rdma::percpu::PerCpuCounters;
use rdma::stats::Counter as Name;
use roce::event::Event;

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A counter. Counters that rdma_rxe has, too, have its names.
        #[derive(Clone, Copy)]
        pub(crate) enum Counter {
            $($(#[$doc])* $variant,)*
        }

        /// The counters' names, in the order of [`Counter`].
        pub(crate) const NAMES: &[Name] = &[$(Name::new($name)),*];
    };
}

counters! {
    /// Packets handed to the network.
    SentPackets = c"sent_pkts",
    /// Packets of a queue pair that arrived intact.
    ReceivedPackets = c"rcvd_pkts",
    /// See [`Event::DuplicateRequest`].
    DuplicateRequest = c"duplicate_request",
    /// See [`Event::OutOfSequenceRequest`].
    OutOfSequenceRequest = c"out_of_seq_request",
    /// See [`Event::RnrNakReceived`].
    RnrReceived = c"rcvd_rnr_err",
    /// See [`Event::RnrNakSent`].
    RnrSent = c"send_rnr_err",
    /// See [`Event::SequenceNakReceived`].
    SequenceNakReceived = c"rcvd_seq_err",
    /// See [`Event::AckCoalesced`].
    AckDeferred = c"ack_deferred",
    /// See [`Event::RetryExceeded`].
    RetryExceeded = c"retry_exceeded_err",
    /// See [`Event::RnrRetryExceeded`].
    RnrRetryExceeded = c"retry_rnr_exceeded_err",
    /// See [`Event::Retransmit`].
    Retransmit = c"completer_retry_err",
    /// Packets that the network did not take.
    SendError = c"send_err",
    /// Times that the network device went down.
    LinkDowned = c"link_downed",
    /// See [`Event::MessageSent`].
    MessagesSent = c"rdma_sends",
    /// See [`Event::MessageReceived`].
    MessagesReceived = c"rdma_recvs",
    /// Bytes of the packets sent, from the transport header on.
    SentBytes = c"sent_bytes",
    /// Bytes of the packets received, from the transport header on.
    ReceivedBytes = c"rcvd_bytes",
    /// See [`Event::AckTimeout`].
    AckTimeout = c"ack_timeout",
    /// See [`Event::ResponseGap`].
    ResponseGap = c"response_gap",
    /// See [`Event::SequenceNakSent`].
    SequenceNakSent = c"send_seq_err",
    /// See [`Event::InvalidRequestNakSent`].
    InvalidRequestSent = c"send_inv_req_err",
    /// See [`Event::RemoteAccessNakSent`].
    AccessErrorSent = c"send_access_err",
    /// See [`Event::RemoteOperationNakSent`].
    OperationErrorSent = c"send_op_err",
    /// See [`Event::StaleResponse`].
    StaleResponse = c"stale_response",
    /// Packets dropped as their ICRC is wrong.
    BadIcrc = c"drop_bad_icrc",
    /// See [`Event::BadOpcode`].
    BadOpcode = c"drop_bad_opcode",
    /// See [`Event::BadPkey`].
    BadPkey = c"drop_bad_pkey",
    /// See [`Event::BadQkey`].
    BadQkey = c"drop_bad_qkey",
    /// See [`Event::NoReceive`].
    NoReceive = c"drop_no_receive",
    /// See [`Event::MessageDropped`].
    MessageDropped = c"drop_message",
    /// See [`Event::BadHeader`].
    BadHeader = c"drop_bad_header",
    /// See [`Event::BadState`].
    BadState = c"drop_bad_state",
    /// Packets dropped as no queue pair has that number, or is in that multicast group.
    UnknownQp = c"drop_unknown_qp",
    /// Of the packets sent, those to multicast groups.
    SentMulticast = c"sent_mcast_pkts",
    /// Of the packets received, those to multicast groups.
    ReceivedMulticast = c"rcvd_mcast_pkts",
    /// Packets dropped as they are not from the queue pair's peer.
    BadSource = c"drop_bad_source",
    /// Times that memory was faulted in for waiting packets or requests.
    PageFaults = c"page_faults",
    /// Packets that waited for memory that was faulted in.
    HeldPackets = c"held_pkts",
    /// Packets that came before their turn and were kept until then.
    EarlyPackets = c"early_pkts",
    /// See [`Event::Probe`].
    Probe = c"ack_probe",
    /// Packets that were handled by another CPU than the receiving one.
    SteeredPackets = c"steered_pkts",
    /// Of these, those that may have been missing, and were handled before others.
    SteeredAhead = c"steered_ahead",
    /// Packets that the network marked as it was congested.
    MarkedPackets = c"np_ecn_marked_roce_packets",
    /// Congestion notification packets sent.
    CnpsSent = c"np_cnp_sent",
    /// Congestion notification packets that a requester reacted to.
    CnpsHandled = c"rp_cnp_handled",
    /// Congestion notification packets for a queue pair that does not react.
    CnpsIgnored = c"rp_cnp_ignored",
    /// Packets dropped as too many waited already, for memory, for another CPU or for their turn.
    DroppedHeld = c"drop_held",
}

/// The usual names of adapter counters, each as a sum of ferroce's counters.
const ADAPTER_NAMES: &[(Name, &[Counter])] = &[
    (
        Name::new(c"out_of_sequence"),
        &[Counter::OutOfSequenceRequest],
    ),
    (
        Name::new(c"packet_seq_err"),
        &[Counter::SequenceNakReceived],
    ),
    (Name::new(c"implied_nak_seq_err"), &[Counter::ResponseGap]),
    (Name::new(c"local_ack_timeout_err"), &[Counter::AckTimeout]),
    (Name::new(c"rnr_nak_retry_err"), &[Counter::RnrReceived]),
    (
        Name::new(c"out_of_buffer"),
        &[Counter::RnrSent, Counter::NoReceive],
    ),
    (Name::new(c"roce_adp_retrans"), &[Counter::Probe]),
];

/// The names of all that is shown: those of [`Counter`], then those of adapters.
pub(crate) const SHOWN: &[Name] = &{
    let mut names = [Name::new(c""); NAMES.len() + ADAPTER_NAMES.len()];
    let mut at = 0;
    while at < NAMES.len() {
        names[at] = NAMES[at];
        at += 1;
    }
    while at < names.len() {
        names[at] = ADAPTER_NAMES[at - NAMES.len()].0;
        at += 1;
    }
    names
};

impl From<Event> for Counter {
    fn from(event: Event) -> Self {
        match event {
            Event::DuplicateRequest => Self::DuplicateRequest,
            Event::OutOfSequenceRequest => Self::OutOfSequenceRequest,
            Event::RnrNakSent => Self::RnrSent,
            Event::RnrNakReceived => Self::RnrReceived,
            Event::SequenceNakSent => Self::SequenceNakSent,
            Event::SequenceNakReceived => Self::SequenceNakReceived,
            Event::InvalidRequestNakSent => Self::InvalidRequestSent,
            Event::RemoteAccessNakSent => Self::AccessErrorSent,
            Event::RemoteOperationNakSent => Self::OperationErrorSent,
            Event::ResponseGap => Self::ResponseGap,
            Event::AckTimeout => Self::AckTimeout,
            Event::Retransmit => Self::Retransmit,
            Event::Probe => Self::Probe,
            Event::RetryExceeded => Self::RetryExceeded,
            Event::RnrRetryExceeded => Self::RnrRetryExceeded,
            Event::AckCoalesced => Self::AckDeferred,
            Event::BadOpcode => Self::BadOpcode,
            Event::BadPkey => Self::BadPkey,
            Event::BadQkey => Self::BadQkey,
            Event::NoReceive => Self::NoReceive,
            Event::MessageDropped => Self::MessageDropped,
            Event::BadHeader => Self::BadHeader,
            Event::BadState => Self::BadState,
            Event::StaleResponse => Self::StaleResponse,
            Event::MessageReceived => Self::MessagesReceived,
            Event::MessageSent => Self::MessagesSent,
        }
    }
}

/// The counters of a device, or of queue pairs that were bound to some of their own. Counting is cheap and may be done in any context.
pub(crate) struct Stats(PerCpuCounters<{ NAMES.len() }>);

impl Stats {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(PerCpuCounters::new()?))
    }

    pub(crate) fn count(&self, counter: Counter) {
        self.add(counter, 1);
    }

    pub(crate) fn add(&self, counter: Counter, count: u64) {
        self.0.add(counter as usize, count);
    }

    /// Counts a packet of so many bytes that is a queue pair's.
    pub(crate) fn count_received(&self, bytes: u32) {
        self.count(Counter::ReceivedPackets);
        self.add(Counter::ReceivedBytes, u64::from(bytes));
    }

    /// Adds all that was counted by `other`.
    pub(crate) fn add_all(&self, other: &Self) {
        for index in 0..NAMES.len() {
            self.0.add(index, other.0.sum(index));
        }
    }

    /// Returns a counter's value.
    pub(crate) fn get(&self, counter: Counter) -> u64 {
        self.0.sum(counter as usize)
    }

    /// Writes the value of everything that is shown to `values`, in the order of [`SHOWN`].
    pub(crate) fn read(&self, values: &mut [u64]) {
        let (own, adapters) = values.split_at_mut(NAMES.len().min(values.len()));
        for (index, value) in own.iter_mut().enumerate() {
            *value = self.0.sum(index);
        }
        for (value, (_, counters)) in adapters.iter_mut().zip(ADAPTER_NAMES) {
            let each = counters.iter().map(|counter| self.get(*counter));
            *value = each.fold(0, u64::wrapping_add);
        }
    }
}
