// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::{new_mutex, Arc};
use rdma::ah::{udp_sport, AhAttr, AhInfo, Gids};
use rdma::errno::EOPNOTSUPP;
use rdma::mmap::Mminfo;
use rdma::net::{Credit, CreditGuard, Flow, Path};
use rdma::object::{Pd as IbPd, Qp as IbQp};
use rdma::ops::NewQp;
use rdma::post::{RecvList, SendList};
use rdma::qp::{QpAttr, QpCaps, QpInfo, QpInit, QpValues, Resolver};
use rdma::ring::{Shape, SharedRing};
use rdma::slots::Slots;
use rdma::sync::IrqSpinLock;
use rdma::timer::TimerGuard;
use rdma::udata::Udata;
use rdma::upcall::QpUpcall;
use roce::abi::{recv_wqe, send_wqe, sge, Poster, SendLimits};
use roce::congestion::{Law, Notifier};
use roce::limits::{MAX_INLINE_BYTES, MAX_SGE, MAX_WINDOW_REQUESTS};
use roce::num::{Bundle, Mtu, Qpn};
use roce::qp::{Mask, State};
use roce::recv::{RecvState, Replay};
use roce::send::{SendState, Slot};

use super::attr::{from_core, to_core, values};
use super::{post, Verbs};
use crate::ah::Vectors;
use crate::congestion;
use crate::context::Context;
use crate::device::{Device, MAX_QP_WR};
use crate::early::EarlyPackets;
use crate::flush::flush;
use crate::host::{Deferred, OwnReceives, Receives, RecvQueue, SendQueue, Spare};
use crate::keys::Segment;
use crate::paging::MemoryWait;
use crate::payload::Payload;
use crate::policy::Arrivals;
use crate::port::PORT;
use crate::pump;
use crate::qp::{Fixed, Qp, RecvHalf, Route, SendHalf};
use crate::queue::{PostQueue, WorkQueue};
use crate::requester;
use crate::service::{RecvService, SendService, Service};
use crate::settings::Settings;
use crate::srq::Srq;
use crate::sweep::Sweeps;
use crate::table::{QpId, QPNS};
use crate::tell::tell;

/// Frames of one queue pair that may lie in queues below us: more than a netdev needs to be busy,
/// less than one queue pair may fill a queue with. Those of one half may be a quarter more.
const FRAMES_IN_FLIGHT: u32 = 256;

/// The driver's value of a queue pair of the core.
pub(crate) struct Handle {
    qp: Arc<Qp>,
    /// Where the kernel posts, if it is the owner.
    posts: Option<Pin<KBox<Posts>>>,
    _timer: TimerGuard<Qp>,
    _credit: CreditGuard,
    // Last: no doorbell, and no timer, makes it busy any more.
    _end: End,
}

/// A queue pair that its poster no longer counts when this is dropped.
struct End(Arc<Qp>);

impl Drop for End {
    fn drop(&mut self) {
        let poster = &self.0.fixed.send_cq.poster;
        self.0.stream.note_idle(poster);
    }
}

/// The kernel's ends of the queues.
///
/// Their locks may be taken in any context, and no other lock is taken under them. They are not held
/// while the queue pair works on posted requests.
#[pin_data]
struct Posts {
    #[pin]
    send: IrqSpinLock<PostQueue>,
    /// None with a shared receive queue.
    #[pin]
    recv: IrqSpinLock<Option<PostQueue>>,
    limits: SendLimits,
    max_recv_sge: u32,
}

impl Posts {
    fn new(send: &SharedRing, recv: Option<&SharedRing>, caps: &QpCaps) -> Result<Pin<KBox<Self>>> {
        let send = PostQueue::new(send)?;
        let recv = recv.map(PostQueue::new).transpose()?;
        let posts = pin_init!(Self {
            send <- rdma::new_irq_spinlock!(send, "ferroce::Posts::send"),
            recv <- rdma::new_irq_spinlock!(recv, "ferroce::Posts::recv"),
            limits: send_limits(caps, Poster::Kernel),
            max_recv_sge: caps.max_recv_sge,
        });
        KBox::pin_init(posts, GFP_KERNEL)
    }
}

fn send_limits(caps: &QpCaps, poster: Poster) -> SendLimits {
    SendLimits {
        max_sge: caps.max_send_sge,
        max_inline: caps.max_inline_data,
        poster,
    }
}

/// Creates a queue pair.
///
/// # Errors
///
/// `EOPNOTSUPP` for a transport or flags that ferroce does not serve, and for a process's QP1; `EINVAL`
/// for larger queues than advertised or queues of another owner; `EBUSY` if all numbers are in use, or
/// there is a QP1 already; `ENOMEM`.
pub(super) fn create(
    pd: &IbPd<Verbs>,
    init: &mut QpInit<'_, Verbs>,
    upcall: QpUpcall,
    udata: &mut Udata<'_>,
) -> Result<NewQp<Handle>> {
    let service = Service::new(init.qp_type);
    let owner = owner(init, udata)?;
    if init.create_flags != 0 || service == Service::Gsi && owner == Poster::Process {
        return Err(EOPNOTSUPP);
    }
    check_caps(&init.caps)?;
    let shared = &pd.device().shared;

    let send_shape = send_shape(&mut init.caps)?;
    let send_ring = SharedRing::new(send_shape)?;
    let srq = init.srq.map(|srq| Arc::clone(srq));
    let recv_ring = match srq {
        Some(_) => {
            init.caps.max_recv_wr = 0;
            init.caps.max_recv_sge = 0;
            None
        }
        None => Some(SharedRing::new(recv_shape(&mut init.caps)?)?),
    };
    let posts = match owner {
        Poster::Process => {
            respond(udata, &send_ring, recv_ring.as_ref())?;
            None
        }
        Poster::Kernel => Some(Posts::new(&send_ring, recv_ring.as_ref(), &init.caps)?),
    };

    let place = match service {
        Service::Gsi => shared.qps.reserve_at(Qpn::GSI.get())?,
        Service::Connection(_) | Service::Datagram => shared.qps.reserve(QPNS)?,
    };
    let qpn = Qpn::new(place.id());
    let window = send_shape.capacity().min(MAX_WINDOW_REQUESTS as u32);
    let room = match owner {
        Poster::Process => window.min(FIRST_WINDOW),
        // Where it posts, none can be made.
        Poster::Kernel => window,
    };
    let send = SendHalf {
        service: SendService::new(service, qpn, init.sq_sig_all, || storage(room))?,
        send: SendQueue {
            queue: WorkQueue::new(send_ring),
            limits: send_limits(&init.caps, owner),
            scratch: storage(send_shape.slot_bytes() as u32)?,
            spare: Spare::new(init.caps.max_send_sge, init.caps.max_inline_data),
            vectors: vectors(service)?,
        },
        is_handed_over: false,
        arrivals: Arrivals::default(),
        waiting: MemoryWait::default(),
        early: EarlyPackets::default(),
        route: None,
        stats: shared.stats.clone(),
    };
    let recv = RecvHalf {
        service: RecvService::new(service, qpn),
        recv: RecvQueue {
            spare: Spare::new(
                srq.as_ref()
                    .map_or(init.caps.max_recv_sge, |srq| srq.max_sge()),
                0,
            ),
            receives: receives(recv_ring, srq.as_ref(), &init.caps)?,
        },
        arrivals: Arrivals::default(),
        sweeps: Sweeps::default(),
        waiting: MemoryWait::default(),
        early: EarlyPackets::default(),
        notifier: Notifier::default(),
        route: None,
        stats: shared.stats.clone(),
    };
    let fixed = Fixed {
        shared: shared.clone(),
        gids: Gids::of(pd.device()),
        id: QpId::new(),
        qpn,
        service,
        pd: pd.id(),
        owner,
        context: pd.ucontext().map(|context| Arc::clone(context)),
        send_cq: Arc::clone(init.send_cq),
        recv_cq: Arc::clone(init.recv_cq),
        srq,
        upcall,
        credit: Credit::new(FRAMES_IN_FLIGHT)?,
        window,
    };
    let settings = Settings::new(init.caps, init.sq_sig_all);
    let settings = KBox::pin_init(
        new_mutex!(settings, "ferroce::Qp::settings"),
        GFP_KERNEL_ACCOUNT,
    )?;
    let qp = Arc::pin_init(Qp::new(fixed, send, recv, settings), GFP_KERNEL_ACCOUNT)?;
    let timer = TimerGuard::new(qp.clone())?;
    let credit = qp.fixed.credit.attach(qp.clone())?;
    place.publish(qp.clone())?;
    Ok(NewQp {
        data: Handle {
            _end: End(qp.clone()),
            qp,
            posts,
            _timer: timer,
            _credit: credit,
        },
        qp_num: qpn.get(),
    })
}

/// Returns the kind of poster. All objects of a queue pair must be of the same owner: a process
/// must not see the kernel's work requests and completions, nor may the kernel trust a process's.
fn owner(init: &QpInit<'_, Verbs>, udata: &Udata<'_>) -> Result<Poster> {
    let is_user = udata.is_user();
    let is_same = init.send_cq.is_user() == is_user
        && init.recv_cq.is_user() == is_user
        && init.srq.is_none_or(|srq| srq.is_user() == is_user);
    match is_same {
        false => Err(EINVAL),
        true if is_user => Ok(Poster::Process),
        true => Ok(Poster::Kernel),
    }
}

fn check_caps(caps: &QpCaps) -> Result {
    let within = caps.max_send_wr <= MAX_QP_WR
        && caps.max_recv_wr <= MAX_QP_WR
        && caps.max_send_sge <= MAX_SGE as u32
        && caps.max_recv_sge <= MAX_SGE as u32
        && caps.max_inline_data <= MAX_INLINE_BYTES as u32;
    if within {
        Ok(())
    } else {
        Err(EINVAL)
    }
}

/// Returns the shape of a send queue's ring, and its limits. SGEs and inline data share the space of a
/// slot, so the smaller of them gets as much as the larger one requested.
fn send_shape(caps: &mut QpCaps) -> Result<Shape> {
    const SGE: u32 = sge::SGE_BYTES as u32;

    let sges = caps.max_send_sge.max(caps.max_inline_data.div_ceil(SGE));
    caps.max_send_sge = sges;
    caps.max_inline_data = sges.saturating_mul(SGE);
    let slot = (send_wqe::DATA as u32).saturating_add(caps.max_inline_data);
    let shape = Shape::new(caps.max_send_wr, slot).ok_or(EINVAL)?;
    caps.max_send_wr = shape.capacity();
    Ok(shape)
}

fn recv_shape(caps: &mut QpCaps) -> Result<Shape> {
    let sges = caps.max_recv_sge.saturating_mul(sge::SGE_BYTES as u32);
    let slot = (recv_wqe::DATA as u32).saturating_add(sges);
    let shape = Shape::new(caps.max_recv_wr, slot).ok_or(EINVAL)?;
    caps.max_recv_wr = shape.capacity();
    Ok(shape)
}

/// Returns where a queue pair takes its receives from: its own ring, or else a queue that it shares.
fn receives(ring: Option<SharedRing>, srq: Option<&Arc<Srq>>, caps: &QpCaps) -> Result<Receives> {
    match (ring, srq) {
        (None, Some(srq)) => Ok(Receives::Shared(srq.clone())),
        (Some(ring), _) => Ok(Receives::Own(OwnReceives {
            scratch: storage(ring.slot_bytes() as u32)?,
            queue: WorkQueue::new(ring),
            max_sge: caps.max_recv_sge,
        })),
        (None, None) => Err(EINVAL),
    }
}

/// Tells the process where to map its rings: `struct rxe_create_qp_resp`.
fn respond(udata: &mut Udata<'_>, send: &SharedRing, recv: Option<&SharedRing>) -> Result {
    let recv = match recv {
        Some(recv) => udata.share(recv)?.to_bytes(),
        None => [0; Mminfo::BYTES],
    };
    let send = udata.share(send)?.to_bytes();
    let mut response = [0; 2 * Mminfo::BYTES];
    for (to, from) in response.iter_mut().zip([recv, send].as_flattened()) {
        *to = *from;
    }
    udata.respond(&response)
}

/// Returns where datagrams go without an address handle; nothing, of a connection.
fn vectors(service: Service) -> Result<Option<KBox<Vectors>>> {
    Ok(match service {
        Service::Connection(_) => None,
        Service::Datagram | Service::Gsi => {
            Some(KBox::new(Vectors::default(), GFP_KERNEL_ACCOUNT)?)
        }
    })
}

/// Returns room for `count` objects of the protocol, charged to the process.
fn storage<T: Default>(count: u32) -> Result<Slots<T>> {
    Slots::new(count as usize, GFP_KERNEL_ACCOUNT)
}

/// Initial room for requests of a process. Of many queue pairs, most never have more outstanding. They
/// take half a KiB.
const FIRST_WINDOW: u32 = 3;
const _: () = assert!(FIRST_WINDOW as usize * size_of::<Slot<Payload>>() <= 512);

/// How many times as much room there is next.
const WIDER: usize = 4;

/// Makes room for more requests, as many as may be. Goes without if there is no memory. Sleeps.
#[cold]
fn widen(qp: &Qp) {
    qp.set_narrow(false);
    let room = qp.send.lock().service.room();
    let wider = room.saturating_mul(WIDER).min(qp.fixed.window as usize);
    if wider <= room {
        return;
    }
    if let Ok(storage) = Slots::new(wider, GFP_KERNEL_ACCOUNT) {
        let _old = qp.send.lock().service.widen(storage);
    }
}

/// Allocations for a modification. All are made before anything changes.
struct Prepared {
    routes: Option<(Route, Route)>,
    replay: Option<Slots<Replay<Segment>>>,
}

impl Handle {
    /// Rings the doorbell of the send queue.
    pub(super) fn doorbell(&self) -> Result {
        requester::doorbell(self.qp.as_arc_borrow())?;
        if !self.qp.is_narrow() {
            return Ok(());
        }
        // A poster that filled the whole queue at once may not ring again.
        widen(&self.qp);
        requester::go_on_sending(self.qp.as_arc_borrow());
        Ok(())
    }

    /// Posts sends of the kernel. Any context.
    ///
    /// # Errors
    ///
    /// Those of [`post::sends`]; `EINVAL` in a state in which nothing may be posted.
    pub(super) fn post_send(&self, list: &mut SendList<'_, Verbs>) -> Result {
        let posts = self.posts.as_ref().ok_or(EOPNOTSUPP)?;
        let state = self.qp.state();
        if matches!(state, State::Reset | State::Init | State::Rtr) {
            return Err(EINVAL);
        }
        let sender = post::Sender {
            service: self.qp.fixed.service,
            pd: self.qp.fixed.pd,
            limits: posts.limits,
            has_failed: state == State::Err,
        };
        let (count, result) = post::sends(&mut posts.send.lock(), &sender, list);
        if count > 0 {
            requester::posted_sends(self.qp.as_arc_borrow());
        }
        result
    }

    /// Posts receives of the kernel. Any context.
    ///
    /// # Errors
    ///
    /// Those of [`post::receives`]; `EINVAL` in RESET, and if there is a shared receive queue.
    // Rules: STA-9
    pub(super) fn post_recv(&self, list: &mut RecvList<'_>) -> Result {
        let posts = self.posts.as_ref().ok_or(EOPNOTSUPP)?;
        if self.qp.state() == State::Reset {
            return Err(EINVAL);
        }
        let result = match &mut *posts.recv.lock() {
            Some(queue) => post::receives(queue, posts.max_recv_sge, list),
            None => Err(EINVAL),
        };
        requester::posted_receives(self.qp.as_arc_borrow());
        result
    }

    /// Changes attributes and state.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a transition that does not exist, an attribute that it lacks or does not
    /// allow, and a value out of its range; `ENETUNREACH` and the like if there is no route to the
    /// peer; `ENOMEM`. Nothing has changed then.
    pub(super) fn modify(object: &IbQp<Verbs>, attr: &QpAttr<'_>) -> Result {
        let qp = object.qp.as_arc_borrow();
        let (state, deferred) = object.change(attr, object)?;
        // Owners are told, and work is done that may tell them more, with no lock of ours held.
        let cq = match state {
            State::Reset => &qp.fixed.recv_cq,
            _ => &qp.fixed.send_cq,
        };
        tell(qp, cq, deferred);
        match state {
            State::Err => flush(qp),
            // Send the requests that were posted while it was drained.
            State::Rts => requester::go_on_sending(qp),
            _ => {}
        }
        Ok(())
    }

    fn change(&self, attr: &QpAttr<'_>, object: &IbQp<Verbs>) -> Result<(State, Deferred)> {
        let qp = &self.qp;
        let mut settings = qp.settings.lock();
        let qp_type = qp.fixed.service.qp_type();
        let current = self.state(&settings);
        let next = from_core(attr.transition(to_core(current), qp_type)?);
        let mask = Mask(attr.mask);
        if attr.pkey_index.is_some_and(|index| index != 0)
            || attr.port.is_some_and(|port| port != u32::from(PORT))
        {
            return Err(EINVAL);
        }
        let mut new = *settings;
        new.state = next;
        new.attributes = settings
            .attributes
            .modified(&values(&attr.values), mask, qp.shared().port.active_mtu())
            .map_err(|_| EINVAL)?;
        if mask.contains(Mask::ACCESS_FLAGS) {
            new.access = attr.values.qp_access_flags;
        }
        if let Some(av) = &attr.av {
            new.ah = Some(av.resolve()?);
        }
        if (current, next) == (State::Init, State::Rtr) {
            new.law = qp.shared().law();
        }
        let prepared = self.prepare(attr, &new)?;
        if let Some(notify) = attr.en_sqd_async_notify {
            qp.set_notify_drained(notify);
        }
        let deferred = self.carry_out(current, &new, prepared);
        object.set_resolver(self.resolver(next), qp_type);
        *settings = if next == State::Reset {
            Settings::new(settings.caps, settings.signal_all)
        } else {
            new
        };
        Ok((next, deferred))
    }

    /// Returns the resolver of the peer's address for a queue pair in `state`.
    ///
    /// From INIT on, the next modification names the peer. The core cannot resolve it while the IPv6
    /// stack lacks our default GID, which may be the GID in use.
    fn resolver(&self, state: State) -> Resolver {
        if !matches!(self.qp.fixed.service, Service::Connection(_)) {
            return Resolver::Core;
        }
        match self.qp.shared().port.netdev() {
            Ok(netdev) if state == State::Init && !netdev.has_default_gid() => Resolver::Driver,
            _ => Resolver::Core,
        }
    }

    fn prepare(&self, attr: &QpAttr<'_>, new: &Settings) -> Result<Prepared> {
        let routes = match (&attr.av, new.ah) {
            (Some(av), Some(ah)) => {
                let route = || self.route(av, &ah, new);
                Some((route()?, route()?.for_replies()))
            }
            _ => None,
        };
        let replay = if Mask(attr.mask).contains(Mask::MAX_DEST_RD_ATOMIC) {
            // rdma_rxe rounds the depth of its requester up like this.
            let depth = u32::from(new.attributes.max_dest_rd_atomic);
            Some(storage(depth.checked_next_power_of_two().unwrap_or(depth))?)
        } else {
            None
        };
        Ok(Prepared { routes, replay })
    }

    /// Returns the traffic class of its packets. Those of a reliable connection may be marked.
    fn traffic_class(&self, info: &AhInfo, law: Law) -> u8 {
        match self.qp.fixed.service.is_answered() {
            true => congestion::traffic_class(info.traffic_class, law),
            false => info.traffic_class,
        }
    }

    // Rules: ENC-14
    fn route(&self, av: &AhAttr<'_>, info: &AhInfo, new: &Settings) -> Result<Route> {
        let dest = new.attributes.dest_qp;
        let flow = Flow {
            local: av.sgid(),
            remote: info.dgid,
            traffic_class: self.traffic_class(info, new.law),
            hop_limit: info.hop_limit,
            flow_label: info.flow_label,
            source_port: udp_sport(info.flow_label, self.qp.fixed.qpn.get(), dest.get()),
            mac: (info.dmac != [0; 6]).then_some(info.dmac),
        };
        let path = Path::new(&*av.netdev()?, flow)?.keep_own();
        Ok(Route { path })
    }

    /// Makes the change, which cannot fail any more.
    fn carry_out(&self, current: State, new: &Settings, prepared: Prepared) -> Deferred {
        let qp = &self.qp;
        let mut deferred = Deferred::default();
        match new.state {
            State::Reset => deferred = self.reset(),
            State::Err => qp.set_state(State::Err),
            _ => {
                self.change_halves(current, new, prepared);
                qp.advance(new.state);
            }
        }
        if (current, new.state) == (State::Rts, State::Sqd) {
            let mut half = qp.send.lock();
            qp.with_send(&mut half, None, &mut deferred, |service, host, _| {
                service.drain(host);
            });
        }
        deferred
    }

    fn change_halves(&self, current: State, new: &Settings, prepared: Prepared) {
        let qp = &self.qp;
        let (send_route, recv_route) = prepared.routes.unzip();
        let bundle = |route: &Option<Route>| match route {
            Some(route) => route.bundle(new.attributes.path_mtu),
            None => Bundle::ONE,
        };
        {
            let mut half = qp.recv.lock();
            half.route = recv_route.or(half.route.take());
            let keeps_own = half
                .route
                .as_ref()
                .is_some_and(|route| route.path.keeps_own());
            qp.set_own_peer(keeps_own.then_some(new.attributes.dest_qp));
            let bundle = bundle(&half.route);
            if let Some(replay) = prepared.replay {
                half.service.set_replay(replay);
            }
            match (current, new.state) {
                (State::Init, State::Rtr) => half.service.start(&new.attributes, bundle),
                (State::Rtr, State::Rts) => half.service.set_established(),
                _ => {}
            }
            half.service.modify(&new.attributes, bundle);
        }
        let mut half = qp.send.lock();
        half.route = send_route.or(half.route.take());
        let bundle = bundle(&half.route);
        match (current, new.state) {
            (State::Rtr, State::Rts) => {
                // Posting before was refused, though the provider left it in the ring.
                half.send.queue.reset();
                qp.stream.note_idle(&qp.fixed.send_cq.poster);
                half.service.start(&new.attributes, bundle, new.law);
            }
            (State::Sqd | State::Sqe, State::Rts) => half.service.resume(),
            _ => {}
        }
        half.service.modify(&new.attributes, bundle);
    }

    /// Moves to RESET: forgets everything. Returns the events of the receive half. A reply that it still owed
    /// may have failed, as its memory was gone.
    fn reset(&self) -> Deferred {
        let qp = &self.qp;
        qp.set_state(State::Reset);
        qp.set_own_peer(None);
        qp.backlog.clear();
        qp.responses.clear();
        let mut deferred = Deferred::default();
        {
            let mut half = qp.send.lock();
            qp.with_send(&mut half, None, &mut deferred, |service, host, _| {
                service.reset(host);
            });
            half.send.queue.reset();
            qp.stream.note_idle(&qp.fixed.send_cq.poster);
            half.route = None;
            if let Some(vectors) = &mut half.send.vectors {
                vectors.forget();
            }
            half.is_handed_over = false;
            half.arrivals = Arrivals::default();
            half.waiting.clear();
            half.early.clear();
            qp.response_gap.note_left(&half.early);
            qp.last_sent.note_acknowledged(true);
        }
        let mut half = qp.recv.lock();
        let _ = pump::replies(qp, &mut half, &mut deferred);
        qp.with_recv(&mut half, None, &mut deferred, |service, host, _| {
            service.reset(host);
        });
        half.recv.reset();
        half.arrivals = Arrivals::default();
        half.sweeps = Sweeps::default();
        half.waiting.clear();
        half.early.clear();
        qp.request_gap.note_left(&half.early);
        half.route = None;
        deferred
    }

    /// Returns the state of a queue pair with these settings.
    ///
    /// A half that has failed shows at once, as its completions do, and not just when the whole
    /// queue pair has followed it.
    fn state(&self, settings: &Settings) -> State {
        let qp = &self.qp;
        let send = qp.send.lock().service.state();
        let recv = qp.recv.lock().service.state();
        let failed = qp.state() == State::Err
            || send == SendState::Error
            || matches!(recv, RecvState::Failed | RecvState::Error);
        match send {
            _ if failed => State::Err,
            SendState::Stopped => State::Sqe,
            _ => settings.state,
        }
    }

    /// Returns the attributes of the queue pair.
    pub(super) fn query(&self) -> QpInfo {
        let qp = &self.qp;
        let settings = *qp.settings.lock();
        let attributes = &settings.attributes;
        let (sq_psn, send_state) = {
            let half = qp.send.lock();
            (half.service.next_psn(), half.service.state())
        };
        let rq_psn = qp.recv.lock().service.expected_psn();
        let path_mtu = settings.ah.map(|_| attributes.path_mtu);
        QpInfo {
            state: to_core(self.state(&settings)),
            sq_draining: send_state == SendState::Draining,
            values: QpValues {
                path_mtu: path_mtu.map_or(0, Mtu::code),
                rq_psn: rq_psn.unwrap_or(attributes.rq_psn).get(),
                sq_psn: sq_psn.unwrap_or(attributes.sq_psn).get(),
                dest_qp_num: attributes.dest_qp.get(),
                qkey: attributes.qkey.0,
                qp_access_flags: settings.access,
                max_rd_atomic: attributes.max_rd_atomic,
                max_dest_rd_atomic: attributes.max_dest_rd_atomic,
                min_rnr_timer: attributes.min_rnr_timer.code(),
                timeout: attributes.timeout.code(),
                retry_cnt: attributes.retry_cnt.get(),
                rnr_retry: attributes.rnr_retry.get(),
            },
            caps: settings.caps,
            av: settings.ah,
            pkey_index: 0,
            en_sqd_async_notify: qp.notifies_drained(),
            port: PORT.into(),
            sq_sig_all: settings.signal_all,
        }
    }

    /// Returns the queue pair.
    pub(super) fn qp(&self) -> &Qp {
        &self.qp
    }

    /// Adds it to a multicast group, for a process if there is a context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not for datagrams; `ENODEV` if the netdev is gone; those of
    /// [`Groups::attach`](crate::groups::Groups::attach).
    // Rules: MCG-5
    pub(super) fn attach(
        &self,
        device: &Device,
        mgid: [u8; 16],
        context: Option<&Context>,
    ) -> Result {
        let fixed = &self.qp.fixed;
        if fixed.service != Service::Datagram {
            return Err(EINVAL);
        }
        let netdev = fixed.shared.port.netdev()?;
        device.groups.attach(&netdev, mgid, fixed.qpn, context)
    }

    /// Undoes [`attach`](Self::attach).
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not attached to that group.
    pub(super) fn detach(&self, device: &Device, mgid: [u8; 16]) -> Result {
        device.groups.detach(mgid, self.qp.fixed.qpn)
    }

    /// Takes the queue pair out of service. Its timer stops when the handle is dropped.
    ///
    /// A process that polls, and does nothing else, learns from its completions that the device goes: its
    /// rings are there longer than the device.
    pub(super) fn destroy(&self, device: &Device) {
        let fixed = &self.qp.fixed;
        if device.is_leaving() && fixed.owner != Poster::Kernel && self.qp.state() != State::Reset {
            self.qp.set_state(State::Err);
            flush(self.qp.as_arc_borrow());
        }
        fixed.shared.qps.remove(fixed.qpn.get());
        let deferred = self.reset();
        // A completion queue of the kernel waits below for the events that it was promised.
        tell(self.qp.as_arc_borrow(), &fixed.recv_cq, deferred);
        if fixed.owner == Poster::Kernel {
            for cq in [&fixed.send_cq, &fixed.recv_cq] {
                cq.forget(fixed.qpn);
                cq.wait_told();
            }
        }
    }
}
