// SPDX-License-Identifier: GPL-2.0

//! Receiving for a GID that the IPv6 stack knows nothing of.

use core::ops::ControlFlow;
use core::ptr::{self, NonNull};

use kernel::bindings::sk_buff;
use kernel::error::to_result;
use kernel::ffi::{c_uint, c_void};
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::{Arc, Mutex};
use kernel::types::Opaque;

use rdma_bindings as bindings;
use rdma_bindings::{ETH_P_IPV6, NF_ACCEPT, NF_STOLEN, PACKET_HOST};

use crate::module::Hold;
use crate::net::neighbour::{self, Solicitation, IPPROTO_ICMPV6, MAX_SOLICITATION_BYTES};
use crate::net::notifier::{self, Guest};
use crate::net::path::IPPROTO_UDP;
use crate::net::pool::Buffers;
use crate::net::{on_link, NetDevice, NetDeviceSlot, Receiver, RxPacket, ROCE_PORT};
use crate::sync::BhDisabled;

const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;

/// Makes a netdev's default GID an address that works, whether or not the IPv6 stack has it.
///
/// The RDMA core puts the link-local address that a MAC address makes at index 0 of the GID table,
/// and whoever takes the first GID expects to be reached by it. RoCE hardware compares GIDs by
/// itself. A driver above the IP stack depends on that, which need not have the address: it makes
/// its link-local addresses another way (`addr_gen_mode`, as NetworkManager has it), the address is
/// still tentative, or IPv6 is disabled on the netdev or in the whole kernel. There is no route then,
/// nobody answers neighbour discovery, and what arrives is dropped.
///
/// While the stack does not have the address, this hands RoCEv2 datagrams for it to a [`Receiver`],
/// as a [`Tunnel`](crate::net::Tunnel) does, and answers who asks for its MAC address. The other
/// direction is the matter of [`Path`](crate::net::Path). While the stack does have the address,
/// packets are left to it.
///
/// Only the netdev itself has a default GID: a VLAN above it has the addresses of the IP stack and
/// no others.
///
/// It looks at packets from netfilter's ingress hook of the netdev, after all others there, so that
/// a firewall for that hook applies. A packet type would be given what the IPv6 stack gets as well,
/// at the price of a clone of every other IPv6 packet, and of the stack's complaints to the sender.
/// Packets that are not for the GID cost one call.
///
/// It leaves when it is dropped, or before that when the netdev goes. Once dropped, the receiver is
/// not called any more. Dropping it sleeps.
pub struct DefaultGid<R: Receiver> {
    inner: Arc<Inner<R>>,
    netdev: NetDeviceSlot,
}

/// # Invariants
///
/// While the state is [`State::Serving`], `hook` is registered for the netdev and refers to this.
#[pin_data]
struct Inner<R: Receiver> {
    receiver: Arc<R>,
    buffers: Arc<Buffers>,
    #[pin]
    hook: Opaque<bindings::nf_hook_ops>,
    /// Taken with the RTNL held, or without.
    #[pin]
    state: Mutex<State>,
    _hold: Hold,
}

// SAFETY: The hook is the kernel's to use from registration on, and ours under the lock else.
unsafe impl<R: Receiver> Send for Inner<R> {}
// SAFETY: As above.
unsafe impl<R: Receiver> Sync for Inner<R> {}

enum State {
    New,
    Serving {
        /// The multicast MAC address that the netdev was told to receive for us.
        group: Option<[u8; 6]>,
    },
    Left,
}

impl<R: Receiver> DefaultGid<R> {
    /// Serves the default GID of `netdev`. May sleep.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` when the kernel was built without `CONFIG_NETFILTER_INGRESS`; `ENODEV` when the
    /// netdev, or this module, is on its way out; `ENOMEM`.
    pub fn serve(netdev: &NetDevice, receiver: Arc<R>) -> Result<Self> {
        let hold = Hold::new()?;
        let slot = NetDeviceSlot::new(netdev)?;
        let buffers = notifier::buffers()?;
        let inner = Arc::pin_init(
            pin_init!(Inner {
                receiver,
                buffers,
                hook: Opaque::zeroed(),
                state <- new_mutex!(State::New, "DefaultGid::state"),
                _hold: hold,
            }),
            GFP_KERNEL,
        )?;
        // Known to the netdev before it serves, so that it leaves in time. If the rest fails, this
        // is dropped and forgotten again.
        slot.add_guest(inner.clone())?;
        let this = Self {
            inner,
            netdev: slot,
        };
        this.inner.enter(netdev)?;
        Ok(this)
    }
}

impl<R: Receiver> Drop for DefaultGid<R> {
    fn drop(&mut self) {
        // When the netdev is gone, all have left it.
        if let Some(netdev) = self.netdev.get() {
            self.inner.leave(&netdev);
        }
        self.netdev.remove_guest(Arc::as_ptr(&self.inner).cast());
    }
}

impl<R: Receiver> Inner<R> {
    /// Registers the hook. Sleeps.
    ///
    /// To be called once it is a guest of `dev`: until it was asked to leave, the netdev stays in
    /// its namespace.
    fn enter(&self, dev: &NetDevice) -> Result {
        let mut state = self.state.lock();
        if !matches!(*state, State::New) {
            return Err(ENODEV);
        }
        let hook = self.hook.get();
        // SAFETY: The hook is ours until it is registered, and zeros are valid for the rest of it.
        unsafe {
            (*hook).hook = Some(Self::call);
            (*hook).dev = dev.as_raw();
            (*hook).priv_ = ptr::from_ref(self).cast_mut().cast();
            (*hook).pf = bindings::FERROCE_NFPROTO_NETDEV;
            (*hook).hooknum = bindings::FERROCE_NF_NETDEV_INGRESS;
            (*hook).priority = i32::MAX;
        }
        // SAFETY: The hook is filled in. It and what it refers to stay in place until `leave` has
        // unregistered it, which happens before the netdev goes and before `self` does.
        to_result(unsafe { bindings::nf_register_hook(bindings::dev_net(dev.as_raw()), hook) })?;
        // INVARIANT: Registered just now.
        *state = State::Serving { group: listen(dev) };
        Ok(())
    }

    /// # Safety
    ///
    /// For netfilter to call, as the hook that was registered by [`enter`](Self::enter).
    unsafe extern "C" fn call(
        this: *mut c_void,
        skb: *mut sk_buff,
        _state: *const bindings::nf_hook_state,
    ) -> c_uint {
        // SAFETY: It was registered with this pointer; `leave` waits for us before it goes.
        let this = unsafe { &*this.cast::<Self>() };
        // SAFETY: Packets are received with bottom halves disabled, until this has returned.
        let context = unsafe { BhDisabled::assume() };
        // SAFETY: Netfilter passes an skb that is ours until we say otherwise.
        match unsafe { this.look_at(skb, &context) } {
            ControlFlow::Continue(()) => NF_ACCEPT,
            ControlFlow::Break(()) => NF_STOLEN,
        }
    }

    /// Takes the packet, or leaves it to others.
    ///
    /// # Safety
    ///
    /// `skb` must be a packet that was received, with `data` at its network header, in the read side
    /// that `context` proves. It is given away if this breaks.
    #[inline]
    unsafe fn look_at(&self, skb: *mut sk_buff, context: &BhDisabled) -> ControlFlow<()> {
        // SAFETY: The skb is valid. CAST: The number is of 16 bits.
        let is_ours = unsafe {
            bindings::skb_protocol(skb) == (ETH_P_IPV6 as u16).to_be()
                && !bindings::skb_vlan_tag_present(skb)
        };
        let mut packet = [0; IPV6_BYTES + UDP_BYTES];
        // SAFETY: The skb is valid.
        if !is_ours || !unsafe { copy(skb, &mut packet) } {
            return ControlFlow::Continue(());
        }
        // SAFETY: The netdev is valid in this read side.
        let dev = unsafe { NetDevice::from_raw(bindings::skb_dev(skb)) };
        let [_, _, _, _, _, _, next, ..] = packet;
        match next {
            // SAFETY: As for this function.
            IPPROTO_UDP if is_roce(dev, &packet) => unsafe { self.take(skb, dev, context) },
            IPPROTO_ICMPV6 => {
                // SAFETY: The skb is valid.
                unsafe { self.answer(skb, dev) };
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Continue(()),
        }
    }

    /// Receives a RoCEv2 datagram for the GID of `dev`, unless the stack does.
    ///
    /// # Safety
    ///
    /// As for [`look_at`](Self::look_at).
    unsafe fn take(
        &self,
        skb: *mut sk_buff,
        dev: &NetDevice,
        context: &BhDisabled,
    ) -> ControlFlow<()> {
        // SAFETY: The skb is valid.
        let is_for_host = u32::from(unsafe { bindings::skb_pkt_type(skb) }) == PACKET_HOST;
        if !is_for_host || dev.has_default_gid() {
            return ControlFlow::Continue(());
        }
        // SAFETY: The skb is ours. It is replaced if somebody else has it too; if that fails, it is
        // gone.
        let skb = unsafe { bindings::skb_share_check(skb, bindings::GFP_ATOMIC) };
        let Some(skb) = NonNull::new(skb) else {
            return ControlFlow::Break(());
        };
        // SAFETY: The skb is ours alone, and given away.
        for skb in unsafe { Segments::of(skb) } {
            // SAFETY: As above, with the network header at `data`.
            let packet = unsafe { deliverable(skb).and_then(|skb| RxPacket::new(skb, context)) };
            if let Some(packet) = packet {
                self.receiver.receive(packet);
            }
        }
        ControlFlow::Break(())
    }

    /// Answers a question for the MAC address behind the GID of `dev`, unless the stack does.
    ///
    /// # Safety
    ///
    /// `skb` must be valid, with `data` at its network header.
    unsafe fn answer(&self, skb: *mut sk_buff, dev: &NetDevice) {
        let Some(gid) = dev.default_gid() else {
            return;
        };
        let mut packet = [0; MAX_SOLICITATION_BYTES];
        // SAFETY: The skb is valid.
        let len = unsafe { (*skb).len } as usize;
        let Some(packet) = packet.get_mut(..len) else {
            return;
        };
        // SAFETY: As above.
        if !unsafe { copy(skb, packet) } {
            return;
        }
        let Some(question) = Solicitation::parse(packet, gid) else {
            return;
        };
        if !dev.has_default_gid() {
            let answer = question.answer(gid, dev.address());
            // It is asked again if this one is lost.
            let _ = self.send(dev, &answer, question.mac());
        }
    }

    /// Sends an IPv6 packet out of `dev`.
    fn send(&self, dev: &NetDevice, packet: &[u8], mac: [u8; 6]) -> Result {
        // CAST: The packet is short.
        let skb = self.buffers.skb(dev.headroom(), packet.len() as u32)?;
        // SAFETY: The skb is ours, and has room for the packet. It is whole then, and given away.
        unsafe {
            let data = (*skb.as_ptr()).data;
            ptr::copy_nonoverlapping(packet.as_ptr(), data, packet.len());
            bindings::skb_reset_network_header(skb.as_ptr());
            let _ = on_link::send(skb, dev, mac);
        }
        Ok(())
    }
}

impl<R: Receiver> Guest for Inner<R> {
    fn address_changed(&self, dev: &NetDevice) {
        let mut state = self.state.lock();
        if let State::Serving { group } = &mut *state {
            let old = core::mem::replace(group, listen(dev));
            stop_listening(dev, old);
        }
    }

    fn leave(&self, dev: &NetDevice) {
        let mut state = self.state.lock();
        if let State::Serving { group } = core::mem::replace(&mut *state, State::Left) {
            // SAFETY: By the type invariants it is registered for this netdev, which is still in the
            // same namespace. Whoever is in the hook has left it after a grace period.
            unsafe {
                bindings::nf_unregister_hook(bindings::dev_net(dev.as_raw()), self.hook.get());
                bindings::synchronize_net();
            }
            stop_listening(dev, group);
        }
    }
}

/// Has the netdev receive what is sent to those who might have its default GID. Returns the multicast
/// MAC address of that; none if that cannot be done, so that nobody finds us by asking for us.
fn listen(dev: &NetDevice) -> Option<[u8; 6]> {
    let group = neighbour::multicast_mac(neighbour::solicited_node(dev.default_gid()?));
    // SAFETY: The netdev is valid, and has addresses of 6 bytes as it has a default GID.
    let ret = unsafe { bindings::dev_mc_add(dev.as_raw(), group.as_ptr()) };
    (ret == 0).then_some(group)
}

/// Undoes [`listen`].
fn stop_listening(dev: &NetDevice, group: Option<[u8; 6]>) {
    if let Some(group) = group {
        // SAFETY: As for `listen`, which has added it.
        unsafe { bindings::dev_mc_del(dev.as_raw(), group.as_ptr()) };
    }
}

/// Whether a packet with these headers is RoCEv2 for the default GID of `dev`.
#[inline]
fn is_roce(dev: &NetDevice, packet: &[u8; IPV6_BYTES + UDP_BYTES]) -> bool {
    let (header, udp) = packet.split_at(IPV6_BYTES);
    let [p0, p1] = ROCE_PORT.to_be_bytes();
    matches!(udp, [_, _, d0, d1, ..] if (*d0, *d1) == (p0, p1))
        && dev
            .default_gid()
            .is_some_and(|gid| header.last_chunk() == Some(&gid))
}

/// Copies the first bytes of a packet, as many as `to` has. Returns whether there are as many.
///
/// # Safety
///
/// `skb` must be valid.
#[inline]
unsafe fn copy(skb: *const sk_buff, to: &mut [u8]) -> bool {
    // SAFETY: The skb is valid, and `to` has room. CAST: The length is a small one.
    unsafe { bindings::skb_copy_bits(skb, 0, to.as_mut_ptr().cast(), to.len() as i32) == 0 }
}

/// Does for a packet what the IPv6 and UDP layers do before they hand it to a tunnel's socket: checks
/// lengths and checksum, cuts off what does not belong to the datagram, and brings the UDP header to
/// `data`, in the linear part. Frees it if something is wrong with it.
///
/// # Safety
///
/// `skb` must be ours alone and is given away: an IPv6 packet, with its network header at `data`.
unsafe fn deliverable(skb: NonNull<sk_buff>) -> Option<*mut sk_buff> {
    // SAFETY: As for this function.
    if unsafe { uncover(skb.as_ptr()) }.is_some() {
        return Some(skb.as_ptr());
    }
    // SAFETY: The skb is ours.
    unsafe {
        kernel::bindings::sk_skb_reason_drop(
            ptr::null_mut(),
            skb.as_ptr(),
            kernel::bindings::skb_drop_reason_SKB_DROP_REASON_NOT_SPECIFIED,
        )
    };
    None
}

/// # Safety
///
/// As for [`deliverable`], which keeps the skb.
unsafe fn uncover(skb: *mut sk_buff) -> Option<()> {
    // CAST: Both are small.
    const HEADERS: u32 = (IPV6_BYTES + UDP_BYTES) as u32;

    let mut packet = [0; IPV6_BYTES + UDP_BYTES];
    // SAFETY: The skb is ours alone.
    if unsafe { !bindings::pskb_may_pull(skb, HEADERS) || !copy(skb, &mut packet) } {
        return None;
    }
    let [first, _, _, _, l0, l1, next, ..] = packet;
    let [.., u0, u1, c0, c1] = packet;
    let ip_len = u32::from(u16::from_be_bytes([l0, l1]));
    let udp_len = u32::from(u16::from_be_bytes([u0, u1]));
    // CAST: As above.
    let end = udp_len.wrapping_add(IPV6_BYTES as u32);
    // SAFETY: The skb is ours.
    let len = unsafe { (*skb).len };
    let is_whole = first >> 4 == 6
        && next == IPPROTO_UDP
        && udp_len >= UDP_BYTES as u32
        && udp_len <= ip_len
        && ip_len.wrapping_add(IPV6_BYTES as u32) <= len;
    if !is_whole {
        return None;
    }
    // SAFETY: The skb is ours alone and at least as long, with the headers in its linear part.
    unsafe {
        if bindings::pskb_trim_rcsum(skb, end) != 0 {
            return None;
        }
        bindings::skb_pull_rcsum(skb, IPV6_BYTES as u32);
        // RoCEv2 has no checksum: its ICRC covers more.
        let is_right = (c0, c1) == (0, 0) || bindings::udp6_checksum_validate(skb) == 0;
        is_right.then_some(())
    }
}

/// The packets of an skb: one, unless receive offload has put several of them together.
///
/// # Invariants
///
/// `next` is null or the first of a list of packets that are ours alone, with `data` at the network
/// header, or at the MAC header if they were cut.
struct Segments {
    next: *mut sk_buff,
}

impl Segments {
    /// # Safety
    ///
    /// `skb` must be ours alone and is given away: a packet that was received, with its network
    /// header at `data`.
    unsafe fn of(skb: NonNull<sk_buff>) -> Self {
        let skb = skb.as_ptr();
        // SAFETY: The skb is ours.
        if !unsafe { bindings::skb_is_gso(skb) } {
            // SAFETY: As above. INVARIANT: A list of one packet.
            unsafe { *next_of(skb) = ptr::null_mut() };
            return Self { next: skb };
        }
        // SAFETY: The skb is ours alone; the bytes from the MAC header on are still in its linear
        // part. It was put together by UDP, which is cut from the MAC header on.
        let list = unsafe {
            let mac_header = bindings::skb_mac_header(skb);
            let before = (*skb).data.offset_from(mac_header);
            // CAST: A header's length.
            kernel::bindings::skb_push(skb, before as u32);
            let list = bindings::__skb_gso_segment(skb, bindings::FERROCE_NETIF_F_SG, false);
            kernel::bindings::consume_skb(skb);
            list
        };
        let next = kernel::error::from_err_ptr(list).unwrap_or(ptr::null_mut());
        // INVARIANT: What the cut has left, or nothing.
        Self { next }
    }
}

impl Iterator for Segments {
    type Item = NonNull<sk_buff>;

    fn next(&mut self) -> Option<NonNull<sk_buff>> {
        let skb = NonNull::new(self.next)?;
        // SAFETY: By the type invariants the packet is ours, and so is the rest of the list. Its
        // network header is at `data`, or behind that in the linear part.
        unsafe {
            self.next = core::mem::replace(&mut *next_of(skb.as_ptr()), ptr::null_mut());
            let before =
                bindings::skb_network_header(skb.as_ptr()).offset_from((*skb.as_ptr()).data);
            // CAST: A header's length.
            kernel::bindings::skb_pull(skb.as_ptr(), before as u32);
        }
        Some(skb)
    }
}

/// Where an skb refers to the next one of its list.
///
/// # Safety
///
/// `skb` must be valid.
unsafe fn next_of(skb: *mut sk_buff) -> *mut *mut sk_buff {
    // SAFETY: By the safety requirements.
    unsafe { &raw mut (*skb).__bindgen_anon_1.__bindgen_anon_1.next }
}

impl Drop for Segments {
    fn drop(&mut self) {
        for skb in self {
            // SAFETY: The packet is ours.
            unsafe { kernel::bindings::consume_skb(skb.as_ptr()) };
        }
    }
}
