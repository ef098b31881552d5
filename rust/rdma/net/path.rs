// SPDX-License-Identifier: GPL-2.0

//! Paths to peers.

use crate::{
    errno::EHOSTUNREACH,
    net::{
        frame::Fate,
        headers::{
            IPV4_BYTES,
            IPV6_BYTES,
            UDP_BYTES, //
        },
        ipv4_of_gid,
        is_link_local,
        is_multicast,
        notifier,
        pool::Buffers,
        queue_purpose,
        route::Route,
        train::Train,
        Credit,
        CreditUse,
        Frame,
        Icrc,
        NetDevice,
        NetDeviceSlot,
        PacketQueue,
        ROCE_PORT, //
    }, //
};
use kernel::{
    alloc::{
        flags::{
            GFP_KERNEL_ACCOUNT,
            __GFP_NOWARN, //
        },
        Flags, //
    },
    error::from_err_ptr,
    prelude::*,
    sync::{
        aref::ARef,
        rcu,
        Arc, //
    }, //
};
use rdma_bindings as bindings;

/// The common addresses of all packets between two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Our GID.
    pub local: [u8; 16],
    /// The peer's GID.
    pub remote: [u8; 16],
    /// DSCP and ECN bits.
    pub traffic_class: u8,
    /// Time to live; 0 counts as 1.
    pub hop_limit: u8,
    /// Flow label, 20 bits; for IPv6 only.
    pub flow_label: u32,
    /// UDP source port.
    pub source_port: u16,
    /// The peer's MAC address, if it is known. Only paths to link-local peers use it.
    pub mac: Option<[u8; 6]>,
}

/// UDP, in an IP header.
pub(super) const IPPROTO_UDP: u8 = 17;

/// The headers of a flow, with zeros where packets differ.
#[derive(Clone, Copy)]
pub(super) enum Headers {
    V4([u8; IPV4_BYTES]),
    V6([u8; IPV6_BYTES]),
}

/// A way to a peer, which makes [`Frame`]s.
///
/// Packets go through the IP stack, by a route that is looked up again only when routes or
/// addresses change. While the IPv6 stack lacks our link-local GID, it cannot send them: it may
/// lack a route, and does not solicit neighbours from that address. Then they leave the netdev
/// directly, for the peer's MAC address; see [`DefaultGid`](crate::net::DefaultGid) for the cases.
/// While the stack has the address, packets pass through it, so that firewalls, counters and
/// neighbour discovery work as for any other packet. That is so even if the peer's stack lacks the
/// address, since the peer's driver answers for it.
///
/// A path keeps the headers of its packets. It delays neither the removal of its netdev nor that of
/// its namespace, which take its route away. Frames are refused once they are gone.
///
/// Sending needs exclusive access, so each half of a queue pair has its own path. Process and softirq
/// context.
pub struct Path {
    netdev: NetDeviceSlot,
    pub(super) buffers: Arc<Buffers>,
    /// In its own allocation: a queue pair has two paths, and is to fit 2 KiB.
    flow: KBox<Flow>,
    pub(super) headers: Headers,
    /// Source and destination port.
    pub(super) ports: [u8; 4],
    /// The hash by which queues and receivers distribute flows.
    pub(super) hash: u32,
    pub(super) priority: u32,
    pub(super) routing: Option<Routing>,
    pub(super) waiting: Pending,
    /// What its frames count as.
    pub(super) credit_use: CreditUse,
    tally: Tally,
    /// How far the peer has confirmed what this path sends, as its user counts.
    progress: Option<u32>,
    /// The next packet confirms the neighbour.
    pub(super) is_heard: bool,
}

queue_purpose! {
    /// Frames that never leave this module, until their sender takes them from its path.
    pub OwnFrames: usize::MAX
}

/// Frames that wait to be sent together.
pub(super) enum Pending {
    /// Frames that wait for the next one, if there are any. They leave by the route of `routing`,
    /// which is not replaced until they are sent.
    Train(Option<Train>),
    /// Frames to the local GID, which their sender takes from a path that keeps them.
    Own(PacketQueue<OwnFrames>),
}

/// The results for sent frames.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[must_use]
pub struct Tally {
    /// Frames that the network took, as far as it reports.
    pub sent: u32,
    /// Bytes of the UDP payload of these.
    pub bytes: u64,
    /// Frames that were dropped on the way out: by a full queue, a firewall, or because they do not
    /// fit.
    pub dropped: u32,
}

/// The way by which packets leave.
pub(super) enum Routing {
    /// Through the IP stack.
    Routed(Route),
    /// Directly out of the netdev, since the IPv6 stack lacks our GID.
    OnLink {
        mac: [u8; 6],
        /// The generation of the netdev's IPv6 addresses when this way was chosen.
        generation: i32,
    },
}

/// The way by which one packet leaves.
pub(super) enum NextHop {
    /// Through the IP stack by the route of its path.
    Routed,
    /// Out of this netdev to this MAC address; IPv6 only.
    OnLink(ARef<NetDevice>, [u8; 6]),
}

/// The netdev of [`Path`]s, without delaying its removal.
#[derive(Clone)]
pub struct Egress {
    netdev: NetDeviceSlot,
    buffers: Arc<Buffers>,
}

impl Egress {
    /// Creates the egress of `netdev`. May sleep.
    ///
    /// # Errors
    ///
    /// `ENODEV` when the netdev is being unregistered; `ENOMEM`.
    pub fn new(netdev: &NetDevice) -> Result<Self> {
        Ok(Self {
            netdev: NetDeviceSlot::new(netdev)?,
            buffers: notifier::buffers()?,
        })
    }

    /// Returns true if it is that of `netdev`. Process and softirq context.
    pub fn is_of(&self, netdev: &NetDevice) -> bool {
        let ours = self.netdev.get();
        ours.is_some_and(|ours| ours.as_raw() == netdev.as_raw())
    }

    /// Creates a path for `flow`. The local GID must be the netdev's. Any context.
    ///
    /// The first frame looks up the route.
    ///
    /// # Errors
    ///
    /// `EINVAL` when one end is IPv4 and the other IPv6; `ENOMEM`.
    pub fn path(&self, flow: Flow) -> Result<Path> {
        Path::out_of(self, flow, GFP_ATOMIC | __GFP_NOWARN)
    }
}

impl Path {
    /// Creates a path for `flow` out of `netdev`, which is the netdev of our GID. May sleep.
    ///
    /// # Errors
    ///
    /// Those of [`Egress::new`] and [`Egress::path`].
    pub fn new(netdev: &NetDevice, flow: Flow) -> Result<Self> {
        Self::out_of(&Egress::new(netdev)?, flow, GFP_KERNEL_ACCOUNT)
    }

    // Rules: ENC-11
    fn out_of(egress: &Egress, flow: Flow, flags: Flags) -> Result<Self> {
        let mut flow = flow;
        flow.hop_limit = flow.hop_limit.max(1);
        let [s0, s1] = flow.source_port.to_be_bytes();
        let [d0, d1] = ROCE_PORT.to_be_bytes();
        Ok(Self {
            netdev: egress.netdev.clone(),
            buffers: egress.buffers.clone(),
            flow: KBox::new(flow, flags)?,
            headers: Headers::new(&flow)?,
            ports: [s0, s1, d0, d1],
            hash: hash_of(&flow),
            // SAFETY: The function looks its argument up in a table that covers all values.
            priority: unsafe { bindings::rt_tos2priority(flow.traffic_class) },
            routing: None,
            waiting: Pending::Train(None),
            credit_use: CreditUse::Request,
            tally: Tally::default(),
            progress: None,
            is_heard: false,
        })
    }

    /// Keeps frames to the local GID in this module, if the path leads there. They need no network and
    /// no ICRC. The sender takes them by [`take_own`](Self::take_own). There must be a route as for
    /// other frames, so that a removed address is not reachable.
    pub fn keep_own(mut self) -> Self {
        if self.flow.local == self.flow.remote {
            self.waiting = Pending::Own(PacketQueue::new());
        }
        self
    }

    /// Counts its frames as [replies](CreditUse::Reply), and not as requests.
    pub fn for_replies(mut self) -> Self {
        self.credit_use = CreditUse::Reply;
        self
    }

    /// Returns what its frames count as.
    #[inline]
    pub fn credit_use(&self) -> CreditUse {
        self.credit_use
    }

    /// Returns true if it keeps frames.
    #[inline]
    pub fn keeps_own(&self) -> bool {
        matches!(self.waiting, Pending::Own(_))
    }

    /// Notes how far the peer has confirmed what it got by this path. If that changes, the peer is reachable, and
    /// the next packet tells the stack so. Otherwise the stack would ask for the neighbour again and again while
    /// packets flow, and stop them if a congested network drops its questions.
    #[inline]
    pub fn note_progress(&mut self, progress: Option<u32>) {
        if self.progress != progress {
            self.is_heard = self.progress.is_some() && progress.is_some();
            self.progress = progress;
        }
    }

    /// Returns the frames that were kept since the last call, in order, or `None` if there are
    /// none.
    #[inline]
    pub fn take_own(&mut self) -> Option<PacketQueue<OwnFrames>> {
        match &mut self.waiting {
            Pending::Own(own) if !own.is_empty() => Some(core::mem::take(own)),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn count_sent(&mut self, frames: u32, bytes: u32) {
        self.tally.sent = self.tally.sent.wrapping_add(frames);
        self.tally.bytes = self.tally.bytes.wrapping_add(bytes.into());
    }

    /// Returns its flow.
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Returns true if it leads to a multicast group.
    #[inline]
    pub fn is_multicast(&self) -> bool {
        is_multicast(self.flow.remote)
    }

    /// Starts a frame. It has the headers below, `transport` (a BTH and its extension headers),
    /// `payload_len` bytes that the caller pushes, `pad` bytes of zeros, and the ICRC. It counts
    /// against `credit` from when it is sent until the network has freed it.
    ///
    /// Process and softirq context; does not sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` when `transport` is shorter than a BTH, `pad` is above 3, or all together are more
    /// than IP can carry. `EHOSTUNREACH`, `ENETUNREACH`, `ENODEV` and others when there is no route
    /// now, `ENOMEM`. The packet then counts as lost.
    pub fn frame<'p>(
        &'p mut self,
        credit: &'p Arc<Credit>,
        transport: &[u8],
        payload_len: usize,
        pad: u8,
    ) -> Result<Frame<'p>> {
        let next_hop = match self.next_hop() {
            Some(next_hop) => next_hop,
            None => {
                self.flush(credit);
                self.routing = None;
                // That was another neighbour, perhaps.
                self.is_heard = false;
                self.routing = Some(self.look_up()?);
                self.next_hop().ok_or(EHOSTUNREACH)?
            }
        };
        Frame::new(self, credit, next_hop, transport, payload_len, pad)
    }

    /// Sends the pending train. A sender must call this before it releases the path. Process and
    /// softirq context; does not sleep.
    #[inline]
    pub fn flush(&mut self, credit: &Arc<Credit>) {
        let Pending::Train(train) = &mut self.waiting else {
            return;
        };
        let Some(train) = train.take() else {
            return;
        };
        let frames = train.frames();
        let bytes = train.payload_bytes();
        match self.send_train(train, credit) {
            Fate::Taken => self.count_sent(frames, bytes),
            Fate::Dropped => self.tally.dropped = self.tally.dropped.wrapping_add(frames),
        }
    }

    /// Sends a packet of headers alone, with the ICRC of `C` and a traffic class of its own, behind
    /// waiting frames. Process and softirq context; does not sleep.
    ///
    /// # Errors
    ///
    /// Those of [`frame`](Self::frame).
    pub fn send_alone<C: Icrc>(
        &mut self,
        credit: &Arc<Credit>,
        transport: &[u8],
        traffic_class: u8,
    ) -> Result {
        self.flush(credit);
        let before = (self.headers, self.priority);
        let flow = Flow {
            traffic_class,
            ..*self.flow
        };
        self.headers = Headers::new(&flow)?;
        // SAFETY: The function looks its argument up in a table that covers all values.
        self.priority = unsafe { bindings::rt_tos2priority(traffic_class) };
        let sent = match self.frame(credit, transport, 0, 0) {
            Ok(frame) => frame.send::<C>(1),
            Err(error) => Err(error),
        };
        self.flush(credit);
        (self.headers, self.priority) = before;
        sent
    }

    /// Returns the number in its train of the next frame, which has `size` bytes of UDP payload.
    /// Sends waiting frames first if it cannot leave with them.
    #[inline]
    pub(super) fn number_for(&mut self, size: u32, credit: &Arc<Credit>) -> u16 {
        match &self.waiting {
            Pending::Train(Some(train)) if train.takes(size) => train.next(),
            Pending::Train(Some(_)) => {
                self.flush(credit);
                0
            }
            Pending::Train(None) | Pending::Own(_) => 0,
        }
    }

    /// Returns the results for frames that were flushed since the last call.
    #[inline]
    pub fn take_tally(&mut self) -> Tally {
        core::mem::take(&mut self.tally)
    }

    /// Returns the way of the next packet, or `None` if that must be looked up again. The packet
    /// takes the same way as waiting frames, if there are any.
    #[inline]
    fn next_hop(&self) -> Option<NextHop> {
        if let Pending::Train(Some(Train {
            next_hop: NextHop::Routed,
            ..
        })) = &self.waiting
        {
            return Some(NextHop::Routed);
        }
        match self.routing.as_ref()? {
            Routing::Routed(route) => route.is_valid().then_some(NextHop::Routed),
            Routing::OnLink { mac, generation } => {
                let dev = self.netdev.get()?;
                (dev.ipv6_generation() == *generation).then_some(NextHop::OnLink(dev, *mac))
            }
        }
    }

    /// Returns the headroom that the netdev of the route needs. If it needs more later, the kernel makes
    /// room when it adds the header.
    #[inline]
    pub(super) fn headroom(&self) -> u32 {
        match &self.routing {
            Some(Routing::Routed(route)) => route.headroom(),
            Some(Routing::OnLink { .. }) | None => 0,
        }
    }

    fn look_up(&self) -> Result<Routing> {
        let dev = self.netdev.get().ok_or(ENODEV)?;
        if let Some(routing) = self.on_link(&dev) {
            return Ok(routing);
        }
        let _rcu = rcu::read_lock();
        // SAFETY: A namespace outlives its netdevs, and the read side in which one refers to it.
        let net = unsafe { bindings::dev_net_rcu(dev.as_raw()) };
        // SAFETY: The namespace is valid in this read side of RCU, and so is the netdev.
        let route = unsafe {
            match self.headers {
                Headers::V4(_) => self.look_up_v4(net, &dev),
                Headers::V6(_) => self.look_up_v6(net, &dev),
            }
        };
        route.map(Routing::Routed)
    }

    /// Returns the way past the IPv6 stack, if the stack lacks our GID. Then it may lack a route,
    /// too, and cannot solicit neighbours from that address.
    fn on_link(&self, dev: &NetDevice) -> Option<Routing> {
        let Flow { local, remote, .. } = *self.flow;
        if !is_link_local(local) || !is_link_local(remote) {
            return None;
        }
        let mac = if remote == local {
            dev.address()
        } else {
            self.flow.mac?
        };
        // The generation is read before the check, so that a later change is noticed.
        let generation = dev.ipv6_generation();
        (!dev.has_ipv6(local)).then_some(Routing::OnLink { mac, generation })
    }

    /// # Safety
    ///
    /// `net` must be valid, and this a read side of RCU.
    unsafe fn look_up_v4(&self, net: *mut bindings::net, dev: &NetDevice) -> Result<Route> {
        let (Some(local), Some(remote)) =
            (ipv4_of_gid(self.flow.local), ipv4_of_gid(self.flow.remote))
        else {
            return Err(EINVAL);
        };
        // SAFETY: Zeros are valid for all of it.
        let mut key: bindings::flowi4 = unsafe { core::mem::zeroed() };
        key.__fl_common = self.key(dev);
        key.__fl_common.flowic_dscp = self.flow.traffic_class & !3;
        key.saddr = u32::from_ne_bytes(local);
        key.daddr = u32::from_ne_bytes(remote);
        key.uli.ports.dport = ROCE_PORT.to_be();
        key.uli.ports.sport = self.flow.source_port.to_be();
        // SAFETY: `net` is valid, and so is the key.
        let route = from_err_ptr(unsafe {
            bindings::ip_route_output_flow(net, &mut key, core::ptr::null())
        })?;
        // A route starts with the entry that routes of all protocols have in common.
        //
        // SAFETY: The lookup gave us a reference; the caller has a read side.
        unsafe { Route::keep(self.netdev.routes(), route.cast(), 0) }
    }

    /// # Safety
    ///
    /// `net` must be valid, and this a read side of RCU.
    #[cfg(CONFIG_IPV6)]
    unsafe fn look_up_v6(&self, net: *mut bindings::net, dev: &NetDevice) -> Result<Route> {
        // SAFETY: Zeros are valid for all of it.
        let mut key: bindings::flowi6 = unsafe { core::mem::zeroed() };
        key.__fl_common = self.key(dev);
        key.saddr.in6_u.u6_addr8 = self.flow.local;
        key.daddr.in6_u.u6_addr8 = self.flow.remote;
        key.flowlabel = first_word(&self.flow) & u32::to_be(0x0fff_ffff);
        key.uli.ports.dport = ROCE_PORT.to_be();
        key.uli.ports.sport = self.flow.source_port.to_be();
        // SAFETY: `net` is valid, and so is the key.
        let route = from_err_ptr(unsafe {
            bindings::ip6_dst_lookup_flow(net, core::ptr::null(), &mut key, core::ptr::null())
        })?;
        // SAFETY: The lookup gave us a reference to an IPv6 route; the caller has a read side.
        unsafe {
            let cookie = bindings::rt6_get_cookie(bindings::dst_rt6_info(route));
            Route::keep(self.netdev.routes(), route, cookie)
        }
    }

    /// # Safety
    ///
    /// None.
    #[cfg(not(CONFIG_IPV6))]
    unsafe fn look_up_v6(&self, _net: *mut bindings::net, _dev: &NetDevice) -> Result<Route> {
        Err(EHOSTUNREACH)
    }

    fn key(&self, dev: &NetDevice) -> bindings::flowi_common {
        // SAFETY: Zeros are valid for all of it.
        let mut key: bindings::flowi_common = unsafe { core::mem::zeroed() };
        // CAST: Indices of netdevs are positive.
        key.flowic_oif = dev.ifindex() as i32;
        key.flowic_proto = IPPROTO_UDP;
        key
    }
}

impl Headers {
    // Rules: ENC-1, ENC-9, ENC-10
    fn new(flow: &Flow) -> Result<Self> {
        match (ipv4_of_gid(flow.local), ipv4_of_gid(flow.remote)) {
            (Some(local), Some(remote)) => Ok(Self::V4(Self::v4(flow, local, remote))),
            (None, None) => Ok(Self::V6(Self::v6(flow))),
            _ => Err(EINVAL),
        }
    }

    /// Returns the header of packets that may not be fragmented. So the identification is arbitrary
    /// (RFC 6864): 0, or the number of a packet in its train.
    // Rules: ENC-2, ENC-4, ENC-6, ENC-7, ENC-8, ENC-25
    fn v4(flow: &Flow, local: [u8; 4], remote: [u8; 4]) -> [u8; IPV4_BYTES] {
        const DONT_FRAGMENT: u8 = 0x40;
        let [s0, s1, s2, s3] = local;
        let [d0, d1, d2, d3] = remote;
        #[rustfmt::skip]
        let header = [
            0x45, flow.traffic_class, 0, 0,
            0, 0, DONT_FRAGMENT, 0,
            flow.hop_limit, IPPROTO_UDP, 0, 0,
            s0, s1, s2, s3,
            d0, d1, d2, d3,
        ];
        header
    }

    // Rules: ENC-4, ENC-7, ENC-8, ENC-25
    fn v6(flow: &Flow) -> [u8; IPV6_BYTES] {
        let rest = [0, 0, IPPROTO_UDP, flow.hop_limit];
        let fields = [
            &first_word(flow).to_ne_bytes()[..],
            &rest,
            &flow.local,
            &flow.remote,
        ];
        let mut header = [0; IPV6_BYTES];
        for (to, from) in header.iter_mut().zip(fields.into_iter().flatten()) {
            *to = *from;
        }
        header
    }

    /// Returns the number of bytes of the IP header.
    pub(super) fn ip_bytes(&self) -> usize {
        match self {
            Self::V4(ip) => ip.len(),
            Self::V6(ip) => ip.len(),
        }
    }

    /// Returns the number of bytes below the transport's headers.
    pub(super) fn bytes(&self) -> usize {
        self.ip_bytes().wrapping_add(UDP_BYTES)
    }
}

/// Returns the version, traffic class and flow label of an IPv6 header, as they lie in memory.
fn first_word(flow: &Flow) -> u32 {
    let class = u32::from(flow.traffic_class);
    (6 << 28 | class << 20 | (flow.flow_label & 0x000f_ffff)).to_be()
}

/// Returns a hash of a flow, which is not 0.
fn hash_of(flow: &Flow) -> u32 {
    // FNV-1a.
    let port = flow.source_port.to_be_bytes();
    let bytes = [&flow.local[..], &flow.remote, &port].into_iter().flatten();
    let hash = bytes.fold(0x811c_9dc5u32, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    });
    hash.max(1)
}
