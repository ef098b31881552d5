// SPDX-License-Identifier: GPL-2.0

//! Queue pairs: two halves, each under a lock of its own, and what both stand on.

use core::mem;

use kernel::cpu::CpuId;
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Full, Release};
use kernel::sync::{new_mutex, Arc, Mutex};
use kernel::workqueue::{impl_has_work, new_work, Work};
use rdma::ah::Gids;
use rdma::net::{Credit, Path};
use rdma::sync::{BhSpinLock, Marked};
use rdma::timer::{impl_has_timer, Timer};
use rdma::upcall::QpUpcall;
use rdma::work::Queue;
use roce::abi::Poster;
use roce::host::Flush;
use roce::num::{Bundle, Mtu, Pkey, Qpn};
use roce::qp::State;

use crate::backlog::Backlog;
use crate::context::Context;
use crate::cq::Cq;
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

/// Names of a queue pair's work items. [`RUN`](work::RUN) is queued where it is best done, on one of four
/// queues, so that it takes [turns](Qp::turn); each other one has one queue.
pub(crate) mod work {
    /// Goes on with all that was left to process context.
    pub(crate) const RUN: u64 = 0;
    /// Sends replies, in a softirq.
    pub(crate) const REPLY: u64 = 1;
    /// Sends requests, in a softirq.
    pub(crate) const SEND: u64 = 2;
    /// Raises events for an owner in the kernel, in process context.
    pub(crate) const EVENT: u64 = 3;
    /// Faults in what the send half waits for, and has it go on, in process context.
    pub(crate) const FAULT_SEND: u64 = 4;
    /// Likewise for the receive half.
    pub(crate) const FAULT_RECV: u64 = 5;
    /// Handles packets that another CPU has put aside, in a softirq.
    pub(crate) const BACKLOG: u64 = 6;
    /// Handles responses from its own device, in a softirq.
    pub(crate) const RESPONSES: u64 = 7;
}

/// The two ends of a connection, as GIDs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) ours: [u8; 16],
    pub(crate) theirs: [u8; 16],
}

/// The way to the peer.
pub(crate) struct Route {
    pub(crate) path: Path,
}

/// Bytes of payload of a packet that stays in the module: few enough that one CPU begins with the first
/// while another is busy with the next.
const OWN_PACKET_BYTES: u32 = 32 << 10;

impl Route {
    pub(crate) fn ends(&self) -> Ends {
        let flow = self.path.flow();
        Ends {
            ours: flow.local,
            theirs: flow.remote,
        }
    }

    /// How much of a message one of its packets takes.
    pub(crate) fn bundle(&self, mtu: Mtu) -> Bundle {
        if self.path.keeps_own() {
            Bundle::within(OWN_PACKET_BYTES, mtu)
        } else {
            Bundle::ONE
        }
    }
}

/// What sends, and its surroundings.
pub(crate) struct SendHalf {
    pub(crate) service: SendService,
    pub(crate) send: SendQueue,
    /// A work item will go on sending, and nobody else may, so that packets stay in order.
    pub(crate) is_handed_over: bool,
    /// What waits for memory that is paged in.
    pub(crate) waiting: MemoryWait,
    /// The way to the peer, of a connection.
    pub(crate) route: Option<Route>,
    /// Where what it does is counted: by the device, or the counter that it is bound to.
    pub(crate) stats: Arc<Stats>,
}

/// What receives, and its surroundings.
pub(crate) struct RecvHalf {
    pub(crate) service: RecvService,
    pub(crate) recv: RecvQueue,
    pub(crate) arrivals: Arrivals,
    pub(crate) sweeps: Sweeps,
    /// What waits for memory that is paged in.
    pub(crate) waiting: MemoryWait,
    /// The way to the peer, of a connection.
    pub(crate) route: Option<Route>,
    /// As in [`SendHalf`].
    pub(crate) stats: Arc<Stats>,
}

impl RecvHalf {
    /// Whether packets between those ends are for it: a connection has one peer, datagrams come
    /// from anybody.
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

/// What never changes in a queue pair's life.
pub(crate) struct Fixed {
    pub(crate) shared: Arc<Shared>,
    pub(crate) gids: Gids,
    pub(crate) id: QpId,
    pub(crate) qpn: Qpn,
    pub(crate) service: Service,
    pub(crate) pd: PdId,
    pub(crate) owner: Poster,
    /// Of a process.
    pub(crate) context: Option<Arc<Context>>,
    pub(crate) send_cq: Arc<Cq>,
    pub(crate) recv_cq: Arc<Cq>,
    pub(crate) srq: Option<Arc<Srq>>,
    pub(crate) upcall: QpUpcall,
    pub(crate) credit: Arc<Credit>,
    /// How many requests may be under way at most.
    pub(crate) window: u32,
}

/// A queue pair.
///
/// Locks, see `Documentation/locking.rst`: `settings` before `send` or `recv`, never both of
/// these, and each before a completion queue's ring.
///
/// With a count of references it fits 2 KiB, where the kernel is none for debugging; what does not,
/// takes four.
#[pin_data]
pub(crate) struct Qp {
    pub(crate) fixed: Fixed,
    state: Atomic<u32>,
    /// Whether the owner asked to be told when the send queue has drained.
    notify_drained: Atomic<bool>,
    pub(crate) last_sent: LastSent,
    pub(crate) last_replied: LastSent,
    pub(crate) stream: Stream,
    /// More requests could be under way if there were room for them.
    is_narrow: Atomic<bool>,
    /// The number of the queue pair of the same device that it is connected to; 0 if there is none.
    own_peer: Atomic<u32>,
    /// Whose turn it is to run the work item that several work queues have.
    pub(crate) turn: Turn,
    #[pin]
    pub(crate) send: BhSpinLock<SendHalf>,
    #[pin]
    pub(crate) recv: BhSpinLock<RecvHalf>,
    #[pin]
    pub(crate) backlog: Backlog,
    /// Responses from its own device: requests need not wait behind them.
    #[pin]
    pub(crate) responses: Backlog,
    #[pin]
    pub(crate) settings: Mutex<Settings>,
    #[pin]
    pub(crate) timer: Timer<Self>,
    #[pin]
    run: Work<Self, { work::RUN }>,
    #[pin]
    reply: Work<Self, { work::REPLY }>,
    #[pin]
    send_work: Work<Self, { work::SEND }>,
    /// What the work item is to raise.
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
    /// A queue pair in RESET.
    pub(crate) fn new(
        fixed: Fixed,
        send: SendHalf,
        recv: RecvHalf,
        settings: Settings,
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
            backlog <- Backlog::new(),
            responses <- Backlog::new(),
            settings <- new_mutex!(settings, "ferroce::Qp::settings"),
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

    /// The state as packets and doorbells see it.
    pub(crate) fn state(&self) -> State {
        // What was stored is a state's code, so the default is never taken.
        State::from_code(self.state.load(Acquire)).unwrap_or(State::Err)
    }

    /// Publishes a state. All that it promises must be set up before.
    pub(crate) fn set_state(&self, state: State) {
        self.state.store(state as u32, Release);
    }

    /// Publishes that the queue pair has failed, unless it is not in service (any more).
    ///
    /// Called under the lock of the half that failed: a reset publishes its state before it takes
    /// that lock, so the failure of what was reset since is never taken for one of what comes after.
    // Rules: ERR-18
    pub(crate) fn fail(&self) {
        for state in [State::Rtr, State::Rts, State::Sqd, State::Sqe] {
            let _ = self.state.cmpxchg(state as u32, State::Err as u32, Full);
        }
    }

    /// Publishes that the send queue has failed, and it alone. Under the send lock, as
    /// [`fail`](Self::fail).
    pub(crate) fn fail_send(&self) {
        for state in [State::Rts, State::Sqd] {
            let _ = self.state.cmpxchg(state as u32, State::Sqe as u32, Full);
        }
    }

    /// The queue pair of the same device that it is connected to, whose packets reach it by no network.
    pub(crate) fn own_peer(&self) -> Option<Qpn> {
        match self.own_peer.read_once() {
            0 => None,
            number => Some(Qpn::new(number)),
        }
    }

    /// Sets which one that is.
    pub(crate) fn set_own_peer(&self, peer: Option<Qpn>) {
        self.own_peer.write_once(peer.map_or(0, Qpn::get));
    }

    /// Notes events for the work item to raise.
    pub(crate) fn note(&self, events: Events) {
        let mut old = self.events.read_once();
        while let Err(other) = self.events.cmpxchg(old, old | events.0, Full) {
            old = other;
        }
    }

    /// Takes what was noted.
    pub(crate) fn take_noted(&self) -> Events {
        Events(self.events.xchg(0, Full))
    }

    /// Whether the owner is told when the send queue has drained.
    pub(crate) fn notifies_drained(&self) -> bool {
        self.notify_drained.read_once()
    }

    /// Sets whether the owner is told when the send queue has drained.
    pub(crate) fn set_notify_drained(&self, notify: bool) {
        self.notify_drained.write_once(notify);
    }

    /// The context of the process that has it.
    #[inline]
    pub(crate) fn owner(&self) -> Option<&Context> {
        self.fixed.context.as_deref()
    }

    /// Where it waits for memory to be paged in: in its process's share of the workers.
    pub(crate) fn paging(&self) -> &Queue {
        let own = self.owner().and_then(Context::paging);
        // A region that one can wait for has come with a queue, and the kernel has none.
        own.unwrap_or(&self.shared().queues.unbound)
    }

    /// Whether its owner sleeps until there is something to poll, and so has a CPU for itself no more
    /// than others have.
    #[inline]
    pub(crate) fn takes_turns(&self) -> bool {
        self.fixed.recv_cq.has_sleeper() || self.fixed.send_cq.has_sleeper()
    }

    /// Returns the CPU whose requests may be overtaken by what this one sends now.
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

    /// Likewise, of a stream, whose work item moves seldom.
    #[inline]
    pub(crate) fn stream_ahead(&self) -> Option<CpuId> {
        self.of_network(|| self.last_sent.much_ahead())
    }

    /// Returns what `ahead` says, or nothing if its packets enter no network.
    #[inline]
    fn of_network(&self, ahead: impl FnOnce() -> Option<CpuId>) -> Option<CpuId> {
        match self.own_peer() {
            Some(_) => None,
            None => ahead(),
        }
    }

    /// Likewise, of replies.
    #[inline]
    pub(crate) fn replies_ahead(&self) -> Option<CpuId> {
        let in_flight = self.fixed.credit.in_flight();
        self.last_replied
            .ahead(Overtaking::Loses { is_strict: false }, in_flight)
    }

    /// Returns true if its last requests were those of a stream.
    pub(crate) fn is_stream(&self) -> bool {
        self.stream.is_one(&self.fixed.send_cq.poster)
    }

    /// Returns what the queue pairs of its device share.
    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        &self.fixed.shared
    }

    /// Returns true if more requests could be under way if there were room for them.
    pub(crate) fn is_narrow(&self) -> bool {
        self.is_narrow.read_once()
    }

    /// Notes whether that is so.
    pub(crate) fn set_narrow(&self, is_narrow: bool) {
        self.is_narrow.write_once(is_narrow);
    }

    /// The partition that packets must be of. There is one, at index 0 of the table.
    pub(crate) fn pkey(&self) -> Pkey {
        Pkey::DEFAULT
    }

    /// Has what it does be counted by `stats` from now on. Takes both locks, one after the other.
    pub(crate) fn count_by(&self, stats: &Arc<Stats>) {
        // What counted before goes at the end, with no lock held.
        let _send = mem::replace(&mut self.send.lock().stats, stats.clone());
        let _recv = mem::replace(&mut self.recv.lock().stats, stats.clone());
    }

    /// Runs `f` on what sends, with its host. The send lock is held by the caller.
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

    /// Runs `f` on what receives, with its host. The receive lock is held by the caller.
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
