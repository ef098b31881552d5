// SPDX-License-Identifier: GPL-2.0

//! Queue pairs: two halves, each under its own lock, and their common state.

use core::mem;

use kernel::cpu::CpuId;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Full};
use kernel::sync::{Arc, Mutex};
use kernel::workqueue::{impl_has_work, new_work, Work};
use rdma::ah::Gids;
use rdma::net::{Credit, Datagram, Path};
use rdma::sync::{BhSpinLock, Marked};
use rdma::timer::{impl_has_timer, Timer};
use rdma::upcall::QpUpcall;
use rdma::work::Queue;
use roce::abi::Poster;
use roce::congestion::Notifier;
use roce::host::Flush;
use roce::num::{Bundle, Mtu, Pkey, Qpn};
use roce::qp::State;

use crate::backlog::Backlog;
use crate::context::Context;
use crate::cq::Cq;
use crate::early::{EarlyPackets, Gap, Keeps};
use crate::host::{Common, Deferred, Events, RecvQueue, RecvSide, SendQueue, SendSide};
use crate::paging::MemoryWait;
use crate::payload::Incoming;
use crate::policy::{Arrivals, Overtaking};
use crate::service::{RecvService, SendService, Service};
use crate::settings::Settings;
use crate::srq::Srq;
use crate::stats::Stats;
use crate::steering::LastSent;
use crate::stream::Stream;
use crate::sweep::Sweeps;
use crate::table::{PdId, QpId};
use crate::turn::Turn;
use crate::wake;

mod shared;

pub(crate) use self::shared::Shared;

/// How a run of a half ended.
pub(crate) type Run = wake::Run<CpuId>;

impl From<Flush> for Run {
    fn from(flush: Flush) -> Self {
        match flush {
            Flush::Done => Self::Idle,
            Flush::More => Self::More,
        }
    }
}

/// Names of a queue pair's work items. [`RUN`](work::RUN) uses four workqueues, so it takes
/// [turns](Qp::turn). Each other one uses one workqueue.
pub(crate) mod work {
    /// Continues with all work of process context.
    pub(crate) const RUN: u64 = 0;
    /// Sends replies, in a softirq.
    pub(crate) const REPLY: u64 = 1;
    /// Sends requests, in a softirq.
    pub(crate) const SEND: u64 = 2;
    /// Raises events for an owner in the kernel, in process context.
    pub(crate) const EVENT: u64 = 3;
    /// Faults in memory for the send half and resumes it, in process context.
    pub(crate) const FAULT_SEND: u64 = 4;
    /// Does the same for the receive half.
    pub(crate) const FAULT_RECV: u64 = 5;
    /// Handles steered packets, in a softirq.
    pub(crate) const BACKLOG: u64 = 6;
    /// Handles responses of the same device, in a softirq.
    pub(crate) const RESPONSES: u64 = 7;
}

/// The two ends of a connection, or of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    /// Our GID.
    pub(crate) ours: [u8; 16],
    /// That of the peer.
    pub(crate) theirs: [u8; 16],
    /// Packets enter no network, as both ends are of the same device. Others between the same GIDs are forged.
    pub(crate) is_own: bool,
}

impl Ends {
    /// Returns the ends of a received packet.
    pub(crate) fn of(datagram: &Datagram) -> Self {
        Self {
            ours: datagram.destination(),
            theirs: datagram.source(),
            is_own: datagram.is_own(),
        }
    }
}

/// The path to the peer.
pub(crate) struct Route {
    pub(crate) path: Path,
}

/// Payload bytes of a packet to the same device. The receiving CPU can start on the first one while the
/// sender makes the next.
const OWN_PACKET_BYTES: u32 = 32 << 10;

impl Route {
    pub(crate) fn ends(&self) -> Ends {
        let flow = self.path.flow();
        Ends {
            ours: flow.local,
            theirs: flow.remote,
            is_own: self.path.keeps_own(),
        }
    }

    /// Returns the path for the receive half.
    pub(crate) fn for_replies(self) -> Self {
        Self {
            path: self.path.for_replies(),
        }
    }

    /// Returns how much of a message one packet contains.
    pub(crate) fn bundle(&self, mtu: Mtu) -> Bundle {
        if self.path.keeps_own() {
            Bundle::within(OWN_PACKET_BYTES, mtu)
        } else {
            Bundle::ONE
        }
    }
}

/// The send half.
pub(crate) struct SendHalf {
    pub(crate) service: SendService,
    pub(crate) send: SendQueue,
    /// Only a work item may continue to send, so that packets stay in order.
    pub(crate) is_handed_over: bool,
    /// How responses arrive that allow requests.
    pub(crate) arrivals: Arrivals,
    /// Packets that wait for memory.
    pub(crate) waiting: MemoryWait,
    /// Responses that arrived early.
    pub(crate) early: EarlyPackets,
    /// The path to the peer of a connection.
    pub(crate) route: Option<Route>,
    /// The counters of the device, or those that the queue pair is bound to.
    pub(crate) stats: Arc<Stats>,
}

impl SendHalf {
    /// Returns the result of [`Qp::late_cpu`], unless a failure is to be announced.
    pub(crate) fn late_cpu(&self, qp: &Qp) -> Option<CpuId> {
        match self.service.has_failed() {
            true => None,
            false => qp.late_cpu(),
        }
    }

    /// Returns true if there are requests, or packets of them, that can be sent now.
    pub(crate) fn has_unsent(&self) -> bool {
        self.send.queue.waiting() > 0 || self.service.has_unsent()
    }
}

impl Keeps for SendHalf {
    fn kept(&mut self) -> (&mut EarlyPackets, &mut MemoryWait) {
        (&mut self.early, &mut self.waiting)
    }
}

impl Keeps for RecvHalf {
    fn kept(&mut self) -> (&mut EarlyPackets, &mut MemoryWait) {
        (&mut self.early, &mut self.waiting)
    }
}

/// The receive half.
pub(crate) struct RecvHalf {
    pub(crate) service: RecvService,
    pub(crate) recv: RecvQueue,
    /// How requests arrive that need a reply.
    pub(crate) arrivals: Arrivals,
    pub(crate) sweeps: Sweeps,
    /// Packets that wait for memory.
    pub(crate) waiting: MemoryWait,
    /// Requests that arrived early.
    pub(crate) early: EarlyPackets,
    /// When to tell the peer that packets were marked.
    pub(crate) notifier: Notifier,
    /// The path to the peer of a connection.
    pub(crate) route: Option<Route>,
    /// As in [`SendHalf`].
    pub(crate) stats: Arc<Stats>,
}

impl RecvHalf {
    /// Returns true if this half accepts packets between these ends. A connection has one peer.
    /// Datagrams come from any sender.
    pub(crate) fn takes(&self, packet: Ends) -> bool {
        match self.service {
            RecvService::Connected(..) => self
                .route
                .as_ref()
                .is_some_and(|route| route.ends() == packet),
            RecvService::Datagram(_) => true,
        }
    }
}

/// The constant state of a queue pair.
pub(crate) struct Fixed {
    pub(crate) shared: Arc<Shared>,
    pub(crate) gids: Gids,
    pub(crate) id: QpId,
    pub(crate) qpn: Qpn,
    pub(crate) service: Service,
    pub(crate) pd: PdId,
    pub(crate) owner: Poster,
    /// The context of a process.
    pub(crate) context: Option<Arc<Context>>,
    pub(crate) send_cq: Arc<Cq>,
    pub(crate) recv_cq: Arc<Cq>,
    pub(crate) srq: Option<Arc<Srq>>,
    pub(crate) upcall: QpUpcall,
    pub(crate) credit: Arc<Credit>,
    /// The number of requests that may be outstanding.
    pub(crate) window: u32,
}

/// A queue pair.
///
/// The lock order is `settings`, then `send` or `recv`, then the ring of a completion queue. `send` and
/// `recv` are never held together. See `Documentation/locking.rst`.
///
/// With its reference count it has just 2 KiB, which is what it takes.
#[pin_data]
pub(crate) struct Qp {
    pub(crate) fixed: Fixed,
    state: Atomic<u32>,
    /// The owner asked for an event when the send queue has drained.
    notify_drained: Atomic<bool>,
    pub(crate) last_sent: LastSent,
    pub(crate) last_replied: LastSent,
    pub(crate) stream: Stream,
    /// More requests could be outstanding if the window had room.
    is_narrow: Atomic<bool>,
    /// The number of the connected queue pair of the same device, or 0.
    own_peer: Atomic<u32>,
    /// The turn of the work item that uses several workqueues.
    pub(crate) turn: Turn,
    #[pin]
    pub(crate) send: BhSpinLock<SendHalf>,
    #[pin]
    pub(crate) recv: BhSpinLock<RecvHalf>,
    /// The gaps before early packets of the halves.
    pub(crate) response_gap: Gap,
    pub(crate) request_gap: Gap,
    #[pin]
    pub(crate) backlog: Backlog,
    /// Responses of the same device. Requests need not wait behind them.
    #[pin]
    pub(crate) responses: Backlog,
    /// In its own allocation: only the verbs use it, and this one is full.
    pub(crate) settings: Pin<KBox<Mutex<Settings>>>,
    #[pin]
    pub(crate) timer: Timer<Self>,
    #[pin]
    run: Work<Self, { work::RUN }>,
    #[pin]
    reply: Work<Self, { work::REPLY }>,
    #[pin]
    send_work: Work<Self, { work::SEND }>,
    /// The events to raise.
    events: Atomic<u32>,
    #[pin]
    event: Work<Self, { work::EVENT }>,
    #[pin]
    fault_send: Work<Self, { work::FAULT_SEND }>,
    #[pin]
    fault_recv: Work<Self, { work::FAULT_RECV }>,
    #[pin]
    handle_backlog: Work<Self, { work::BACKLOG }>,
    #[pin]
    handle_responses: Work<Self, { work::RESPONSES }>,
}

impl_has_work! {
    impl HasWork<Self, { work::RUN }> for Qp { self.run }
    impl HasWork<Self, { work::REPLY }> for Qp { self.reply }
    impl HasWork<Self, { work::SEND }> for Qp { self.send_work }
    impl HasWork<Self, { work::EVENT }> for Qp { self.event }
    impl HasWork<Self, { work::FAULT_SEND }> for Qp { self.fault_send }
    impl HasWork<Self, { work::FAULT_RECV }> for Qp { self.fault_recv }
    impl HasWork<Self, { work::BACKLOG }> for Qp { self.handle_backlog }
    impl HasWork<Self, { work::RESPONSES }> for Qp { self.handle_responses }
}

impl_has_timer! {
    impl HasTimer<Self> for Qp { self.timer }
}

impl Qp {
    /// Creates a queue pair in RESET.
    pub(crate) fn new(
        fixed: Fixed,
        send: SendHalf,
        recv: RecvHalf,
        settings: Pin<KBox<Mutex<Settings>>>,
    ) -> impl PinInit<Self> {
        pin_init!(Self {
            fixed,
            state: Atomic::new(State::Reset as u32),
            notify_drained: Atomic::new(false),
            last_sent: LastSent::new(),
            last_replied: LastSent::new(),
            stream: Stream::new(),
            is_narrow: Atomic::new(false),
            own_peer: Atomic::new(0),
            turn: Turn::new(),
            send <- rdma::new_bh_spinlock!(send, "ferroce::Qp::send"),
            recv <- rdma::new_bh_spinlock!(recv, "ferroce::Qp::recv"),
            response_gap: Gap::new(),
            request_gap: Gap::new(),
            backlog <- Backlog::new(),
            responses <- Backlog::new(),
            settings,
            timer <- Timer::new(),
            run <- new_work!("ferroce::Qp::run"),
            reply <- new_work!("ferroce::Qp::reply"),
            send_work <- new_work!("ferroce::Qp::send_work"),
            events: Atomic::new(0),
            event <- new_work!("ferroce::Qp::event"),
            fault_send <- new_work!("ferroce::Qp::fault_send"),
            fault_recv <- new_work!("ferroce::Qp::fault_recv"),
            handle_backlog <- new_work!("ferroce::Qp::handle_backlog"),
            handle_responses <- new_work!("ferroce::Qp::handle_responses"),
        })
    }

    /// Returns the state for packets and doorbells.
    pub(crate) fn state(&self) -> State {
        // The stored value is a state's code, so the default is never taken.
        State::from_code(self.state.load(Acquire)).unwrap_or(State::Err)
    }

    /// Publishes RESET or ERR. Orders this before all later accesses, for those who post and then read the
    /// state.
    pub(crate) fn set_state(&self, state: State) {
        let _ = self.state.xchg(state as u32, Full);
    }

    /// Publishes a state that a verb sets, unless the queue pair has failed since the verb looked at it: only a
    /// reset ends ERR. Everything that the state implies must be set up before.
    // Rules: STA-1
    pub(crate) fn advance(&self, state: State) {
        self.change_state(state, |old| old != State::Err);
    }

    /// Publishes that the queue pair has failed, unless it is out of service.
    ///
    /// The lock of the failed half must be held. A reset publishes its state before it takes that lock.
    /// So a failure before the reset cannot affect the queue pair after it.
    // Rules: ERR-18, STA-1
    pub(crate) fn fail(&self) {
        self.change_state(State::Err, State::takes_requests);
    }

    /// Publishes that the send queue alone has failed. The send lock must be held, as for
    /// [`fail`](Self::fail).
    pub(crate) fn fail_send(&self) {
        self.change_state(State::Sqe, |old| matches!(old, State::Rts | State::Sqd));
    }

    /// Publishes a state if `may_leave` holds for the one before it, however often others change that meanwhile.
    fn change_state(&self, new: State, may_leave: impl Fn(State) -> bool) {
        let mut old = self.state.read_once();
        while State::from_code(old).is_some_and(&may_leave) {
            match self.state.cmpxchg(old, new as u32, Full) {
                Ok(_) => return,
                Err(other) => old = other,
            }
        }
    }

    /// Returns the connected queue pair of the same device. Packets to it enter no network.
    pub(crate) fn own_peer(&self) -> Option<Qpn> {
        match self.own_peer.read_once() {
            0 => None,
            number => Some(Qpn::new(number)),
        }
    }

    /// Sets the connected queue pair of the same device.
    pub(crate) fn set_own_peer(&self, peer: Option<Qpn>) {
        self.own_peer.write_once(peer.map_or(0, Qpn::get));
    }

    /// Notes events for the work item.
    pub(crate) fn note(&self, events: Events) {
        let mut old = self.events.read_once();
        while let Err(other) = self.events.cmpxchg(old, old | events.0, Full) {
            old = other;
        }
    }

    /// Takes the noted events.
    pub(crate) fn take_noted(&self) -> Events {
        Events(self.events.xchg(0, Full))
    }

    /// Returns true if the owner asked for an event when the send queue has drained.
    pub(crate) fn notifies_drained(&self) -> bool {
        self.notify_drained.read_once()
    }

    /// Sets whether the owner gets an event when the send queue has drained.
    pub(crate) fn set_notify_drained(&self, notify: bool) {
        self.notify_drained.write_once(notify);
    }

    /// Returns the context of the owning process.
    #[inline]
    pub(crate) fn owner(&self) -> Option<&Context> {
        self.fixed.context.as_deref()
    }

    /// Returns the workqueue for page faults, which belongs to the process.
    pub(crate) fn paging(&self) -> &Queue {
        let own = self.owner().and_then(Context::paging);
        // A region that one can wait for has come with a queue, and the kernel has none.
        own.unwrap_or(&self.shared().queues.unbound)
    }

    /// Returns true if the owner sleeps until there are completions. Then it has no more right to a CPU
    /// than others.
    #[inline]
    pub(crate) fn takes_turns(&self) -> bool {
        self.fixed.recv_cq.has_sleeper() || self.fixed.send_cq.has_sleeper()
    }

    /// Returns this CPU, if work items are late here. Then a softirq should leave its requests to the work item.
    ///
    /// What softirqs send is acknowledged to softirqs, which send again. These queue pairs would go on among
    /// themselves, and the work items of the others would wait for seconds.
    #[inline]
    pub(crate) fn late_cpu(&self) -> Option<CpuId> {
        let here = CpuId::current();
        self.fixed.shared.senders.is_late(here).then_some(here)
    }

    /// Returns the CPU whose requests this CPU would overtake now.
    #[inline]
    pub(crate) fn requests_ahead(&self) -> Option<CpuId> {
        let service = self.fixed.service;
        let is_local = self.fixed.shared.is_local;
        let overtaking = match service.needs_order() {
            true => Overtaking::Loses {
                is_strict: service.is_connected(),
            },
            false if service.is_answered() => Overtaking::Costs { is_local },
            false => return None,
        };
        self.of_network(|| {
            let in_flight = self.fixed.credit.in_flight();
            self.last_sent.ahead(overtaking, in_flight)
        })
    }

    /// Returns that CPU for a stream. Its work item seldom moves.
    #[inline]
    pub(crate) fn stream_ahead(&self) -> Option<CpuId> {
        self.of_network(|| self.last_sent.much_ahead())
    }

    /// Returns true if requests must not overtake each other, and some are in no queue for a moment.
    #[inline]
    pub(crate) fn is_stranded(&self) -> bool {
        let is_stranded = || self.last_sent.is_stranded(self.fixed.credit.in_flight());
        self.fixed.service.needs_order() && is_stranded()
    }

    /// Returns the result of `ahead`, or nothing if packets enter no network.
    #[inline]
    fn of_network(&self, ahead: impl FnOnce() -> Option<CpuId>) -> Option<CpuId> {
        match self.own_peer() {
            Some(_) => None,
            None => ahead(),
        }
    }

    /// Returns the CPU whose replies this CPU would overtake now.
    #[inline]
    pub(crate) fn replies_ahead(&self) -> Option<CpuId> {
        let in_flight = self.fixed.credit.in_flight();
        self.last_replied
            .ahead(Overtaking::Loses { is_strict: false }, in_flight)
    }

    /// Returns true if the last requests were those of a stream.
    pub(crate) fn is_stream(&self) -> bool {
        self.stream.is_one(&self.fixed.send_cq.poster)
    }

    /// Returns the common state of the device's queue pairs.
    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        &self.fixed.shared
    }

    /// Returns true if more requests could be outstanding if the window had room.
    pub(crate) fn is_narrow(&self) -> bool {
        self.is_narrow.read_once()
    }

    /// Sets the result of [`is_narrow`](Self::is_narrow).
    pub(crate) fn set_narrow(&self, is_narrow: bool) {
        self.is_narrow.write_once(is_narrow);
    }

    /// Returns the partition of accepted packets: the one at index 0 of the table.
    pub(crate) fn pkey(&self) -> Pkey {
        Pkey::DEFAULT
    }

    /// Counts into `stats` from now on. Takes both locks, one after the other.
    pub(crate) fn count_by(&self, stats: &Arc<Stats>) {
        // The old counters are dropped at the end, with no lock held.
        let _send = mem::replace(&mut self.send.lock().stats, stats.clone());
        let _recv = mem::replace(&mut self.recv.lock().stats, stats.clone());
    }

    /// Runs `f` on the send half with its host. The send lock is held by the caller.
    pub(crate) fn with_send<R>(
        &self,
        half: &mut SendHalf,
        incoming: Option<Incoming<'_>>,
        deferred: &mut Deferred,
        f: impl FnOnce(&mut SendService, &mut SendSide<'_>, Option<&mut Route>) -> R,
    ) -> R {
        let mut host = SendSide {
            common: self.common(&self.fixed.send_cq, &half.stats, incoming, deferred),
            send: &mut half.send,
            stream: &self.stream,
        };
        f(&mut half.service, &mut host, half.route.as_mut())
    }

    /// Runs `f` on the receive half with its host. The receive lock is held by the caller.
    pub(crate) fn with_recv<R>(
        &self,
        half: &mut RecvHalf,
        incoming: Option<Incoming<'_>>,
        deferred: &mut Deferred,
        f: impl FnOnce(&mut RecvService, &mut RecvSide<'_>, Option<&mut Route>) -> R,
    ) -> R {
        let mut host = RecvSide {
            common: self.common(&self.fixed.recv_cq, &half.stats, incoming, deferred),
            recv: &mut half.recv,
        };
        f(&mut half.service, &mut host, half.route.as_mut())
    }

    fn common<'a>(
        &'a self,
        cq: &'a Cq,
        stats: &'a Stats,
        incoming: Option<Incoming<'a>>,
        deferred: &'a mut Deferred,
    ) -> Common<'a> {
        Common {
            objects: &self.fixed.shared.objects,
            gids: &self.fixed.gids,
            pd: self.fixed.pd,
            qp: self.fixed.id,
            qpn: self.fixed.qpn,
            owner: self.fixed.owner,
            cq,
            stats,
            incoming,
            deferred,
        }
    }
}
