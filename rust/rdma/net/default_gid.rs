// SPDX-License-Identifier: GPL-2.0

//! Reception for a GID that the IPv6 stack does not have.

use crate::{
    module::Hold,
    net::{
        headers::{
            IPV6_BYTES,
            UDP_BYTES, //
        },
        membership::is_multicast,
        neighbour::{
            self,
            Solicitation,
            IPPROTO_ICMPV6,
            MAX_SOLICITATION_BYTES, //
        },
        notifier::{
            self,
            Guest, //
        },
        on_link,
        path::IPPROTO_UDP,
        pool::Buffers,
        skb::{
            dev_of,
            network_header,
            next_of, //
        },
        NetDevice,
        NetDeviceSlot,
        Receiver,
        RxPacket,
        ROCE_PORT, //
    },
    sync::BhDisabled, //
};
use core::{
    ops::ControlFlow,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    bindings::sk_buff,
    error::to_result,
    ffi::{
        c_uint,
        c_void, //
    },
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    types::Opaque, //
};
use rdma_bindings::{
    self as bindings,
    ETH_P_IPV6,
    NF_ACCEPT,
    NF_STOLEN,
    PACKET_HOST, //
};

/// Makes a netdev's default GID an address that works, whether or not the IPv6 stack has it.
///
/// The RDMA core puts the link-local address of the MAC address at index 0 of the GID table, and
/// users of the first GID expect that it works. RoCE hardware compares GIDs by itself. A driver
/// above the IP stack depends on the IP stack, which may lack the address. The stack may make
/// link-local addresses in another way (`addr_gen_mode`, as with NetworkManager), the address may
/// still be tentative, or IPv6 may be disabled. Then there is no route, no answer to neighbour
/// discovery, and received packets are dropped.
///
/// While the stack lacks the address, this passes RoCEv2 datagrams for it to a [`Receiver`], like a
/// [`Tunnel`](crate::net::Tunnel), and answers neighbour solicitations. [`Path`](crate::net::Path) sends
/// such packets. While the stack has the address, packets are left to it.
///
/// Only the netdev itself has a default GID: a VLAN above it has the addresses of the IP stack and
/// no others.
///
/// It looks at packets from netfilter's ingress hook of the netdev, after all others there, so that
/// a firewall for that hook applies. A packet type would get the packets of the IPv6 stack as well.
/// That would cost a clone of every other IPv6 packet, and the stack would send errors to the
/// sender. Packets that are not for the GID cost one call.
///
/// It leaves when it is dropped, or before that when the netdev goes. Once dropped, the receiver is
/// not called any more. Dropping it sleeps.
pub struct DefaultGid<R: Receiver> {
    inner: Arc<Inner<R>>,
    netdev: NetDeviceSlot,
}

/// # Invariants
///
/// While the state is [`State::Serving`], `hook` is registered for the netdev and refers to this
/// object.
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

// SAFETY: The kernel uses the hook from its registration on. Otherwise this crate uses it under the
// lock.
unsafe impl<R: Receiver> Send for Inner<R> {}
// SAFETY: Shared access is to `hook` under the lock of `state`, and to fields that are `Sync`.
unsafe impl<R: Receiver> Sync for Inner<R> {}

#[cfg(CONFIG_NETFILTER_INGRESS)]
use rdma_bindings::{
    nf_register_net_hook as register_hook,
    nf_unregister_net_hook as unregister_hook,
    //, //
};

/// Replaces the kernel's function in kernels without such hooks.
///
/// # Safety
///
/// None.
#[cfg(not(CONFIG_NETFILTER_INGRESS))]
unsafe fn register_hook(_net: *mut bindings::net, _hook: *const bindings::nf_hook_ops) -> i32 {
    crate::errno::EOPNOTSUPP.to_errno()
}

/// Replaces the kernel's function in kernels without such hooks.
///
/// # Safety
///
/// None.
#[cfg(not(CONFIG_NETFILTER_INGRESS))]
unsafe fn unregister_hook(_net: *mut bindings::net, _hook: *const bindings::nf_hook_ops) {}

enum State {
    New,
    Serving {
        /// The multicast MAC address that the netdev was told to receive for us.
        group: Option<[u8; 6]>,
    },
    Left,
}

impl<R: Receiver> DefaultGid<R> {
    /// Serves the default GID of `netdev`. Sleeps, and takes the RTNL.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` when the kernel was built without `CONFIG_NETFILTER_INGRESS`; `ENODEV` when the
    /// netdev, or this module, is being removed; `ENOMEM`.
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
        // The netdev knows the guest before it serves, so that it leaves in time. If the rest
        // fails, the drop of `this` removes the guest again.
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
        // When the netdev is gone, all guests have left it.
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
        // SAFETY: The hook is filled in. The hook and `self`, to which it refers, stay in place
        // until `leave` has unregistered the hook. That happens before the netdev is removed and
        // before `self` is dropped.
        to_result(unsafe { register_hook(bindings::dev_net(dev.as_raw()), hook) })?;
        // INVARIANT: Registered just now.
        *state = State::Serving { group: listen(dev) };
        Ok(())
    }

    /// # Safety
    ///
    /// Only netfilter may call it, as the hook that was registered by [`enter`](Self::enter).
    unsafe extern "C" fn call(
        this: *mut c_void,
        skb: *mut sk_buff,
        _state: *const bindings::nf_hook_state,
    ) -> c_uint {
        // SAFETY: The hook was registered with this pointer, and `leave` waits for this call before
        // the object is freed.
        let this = unsafe { &*this.cast::<Self>() };
        // SAFETY: Packets are received with bottom halves disabled, until this has returned.
        let context = unsafe { BhDisabled::assume() };
        // SAFETY: Netfilter passes an skb that is ours until this function returns `NF_ACCEPT`.
        match unsafe { this.look_at(skb, &context) } {
            ControlFlow::Continue(()) => NF_ACCEPT,
            ControlFlow::Break(()) => NF_STOLEN,
        }
    }

    /// Takes the packet, or leaves it to others.
    ///
    /// # Safety
    ///
    /// `skb` must be a packet that was received, with `data` at its network header, in the read
    /// side that `context` proves. It is given away if this returns `Break`.
    #[inline]
    unsafe fn look_at(&self, skb: *mut sk_buff, context: &BhDisabled) -> ControlFlow<()> {
        // SAFETY: The skb is valid. CAST: The number is of 16 bits.
        let is_ours = unsafe {
            (*skb).__bindgen_anon_4.headers.as_ref().protocol == (ETH_P_IPV6 as u16).to_be()
                && !bindings::skb_vlan_tag_present(skb)
        };
        let mut packet = [0; IPV6_BYTES + UDP_BYTES];
        // SAFETY: The skb is valid.
        if !is_ours || !unsafe { copy(skb, &mut packet) } {
            return ControlFlow::Continue(());
        }
        // SAFETY: The netdev is valid in this read side.
        let dev = unsafe { NetDevice::from_raw(*dev_of(skb)) };
        let [_, _, _, _, _, _, next, ..] = packet;
        match next {
            // SAFETY: The requirements of the callee are those of this function, which its caller
            // meets.
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
        let is_for_host = u32::from(unsafe { (*skb).__bindgen_anon_4.headers.as_ref() }.pkt_type())
            == PACKET_HOST;
        if !is_for_host || dev.has_default_gid() {
            return ControlFlow::Continue(());
        }
        // SAFETY: The skb is ours. The function replaces it if it is shared, and frees it if that
        // fails.
        let skb = unsafe { bindings::skb_share_check(skb, bindings::GFP_ATOMIC) };
        let Some(skb) = NonNull::new(skb) else {
            return ControlFlow::Break(());
        };
        // SAFETY: The skb is ours alone, and given away.
        for skb in unsafe { Segments::of(skb) } {
            // SAFETY: Each segment is an skb that is ours alone, with the network header at `data`.
            let packet = unsafe { deliverable(skb).and_then(|skb| RxPacket::new(skb, context)) };
            if let Some(packet) = packet {
                self.receiver.receive(packet);
            }
        }
        ControlFlow::Break(())
    }

    /// Answers a solicitation of the GID of `dev`, unless the stack does.
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
        // SAFETY: The skb is valid, and `packet` has room for all of it.
        if !unsafe { copy(skb, packet) } {
            return;
        }
        let Some(question) = Solicitation::parse(packet, gid) else {
            return;
        };
        if !dev.has_default_gid() {
            let answer = question.answer(gid, dev.address());
            // The peer asks again if the answer is lost.
            let _ = self.send(dev, &answer, question.mac());
        }
    }

    /// Sends an IPv6 packet out of `dev`.
    fn send(&self, dev: &NetDevice, packet: &[u8], mac: [u8; 6]) -> Result {
        // CAST: The packet is short.
        let skb = self.buffers.skb(dev.headroom(), packet.len() as u32)?;
        // SAFETY: The skb is ours, and has room for the packet. It is complete then, and given
        // away.
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
            // SAFETY: By the type invariants it is registered for this netdev, which is still in
            // the same namespace. All callers have left the hook after a grace period.
            unsafe {
                unregister_hook(bindings::dev_net(dev.as_raw()), self.hook.get());
                bindings::synchronize_net();
            }
            stop_listening(dev, group);
        }
    }
}

/// Makes the netdev receive solicitations of its default GID. Returns the multicast MAC address to
/// which they are sent. Returns `None` if the netdev refuses, and then peers do not find us by
/// solicitation.
fn listen(dev: &NetDevice) -> Option<[u8; 6]> {
    let group = neighbour::multicast_mac(neighbour::solicited_node(dev.default_gid()?));
    // SAFETY: The netdev is valid, and has addresses of 6 bytes as it has a default GID. Their length does not
    // change, as the netdev has a guest.
    let ret = unsafe { bindings::dev_mc_add(dev.as_raw(), group.as_ptr()) };
    (ret == 0).then_some(group)
}

/// Undoes [`listen`].
fn stop_listening(dev: &NetDevice, group: Option<[u8; 6]>) {
    if let Some(group) = group {
        // SAFETY: The netdev is valid, and `listen` has added an address of 6 bytes. Their length did not change
        // since, as the netdev has a guest.
        unsafe { bindings::dev_mc_del(dev.as_raw(), group.as_ptr()) };
    }
}

/// Returns true if a packet with these headers is RoCEv2 of another node for the default GID of `dev`.
#[inline]
fn is_roce(dev: &NetDevice, packet: &[u8; IPV6_BYTES + UDP_BYTES]) -> bool {
    let (header, udp) = packet.split_at(IPV6_BYTES);
    let [p0, p1] = ROCE_PORT.to_be_bytes();
    let Some((rest, destination)) = header.split_last_chunk() else {
        return false;
    };
    matches!(udp, [_, _, d0, d1, ..] if (*d0, *d1) == (p0, p1))
        && dev.default_gid().as_ref() == Some(destination)
        && rest
            .last_chunk()
            .is_some_and(|source| is_of_another(source, destination))
}

/// Returns true if a node with the address `source` can be the sender of a packet to `destination`: not a group,
/// nor the unspecified address, nor the host itself. The IPv6 stack has the same rule for received packets.
fn is_of_another(source: &[u8; 16], destination: &[u8; 16]) -> bool {
    const LOOPBACK: u128 = 1;

    !is_multicast(*source) && u128::from_be_bytes(*source) > LOOPBACK && source != destination
}

/// Copies the first bytes of a packet into `to`. Returns false if the packet is shorter than `to`.
///
/// # Safety
///
/// `skb` must be valid.
#[inline]
unsafe fn copy(skb: *const sk_buff, to: &mut [u8]) -> bool {
    // SAFETY: The skb is valid, and `to` has room. CAST: The length is a small one.
    unsafe { bindings::skb_copy_bits(skb, 0, to.as_mut_ptr().cast(), to.len() as i32) == 0 }
}

/// Prepares a packet as the IPv6 and UDP layers do before they pass it to a tunnel's socket. Checks
/// lengths and checksum, cuts off the bytes behind the datagram, and moves `data` to the UDP
/// header, in the linear part. Frees the packet if it is invalid.
///
/// # Safety
///
/// `skb` must be ours alone and is given away: an IPv6 packet, with its network header at `data`.
unsafe fn deliverable(skb: NonNull<sk_buff>) -> Option<*mut sk_buff> {
    // SAFETY: The requirements of the callee are those of this function, which its caller meets.
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
/// As for [`deliverable`], but the caller keeps the skb.
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
    // CAST: The header is short.
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
        let is_right = (c0, c1) == (0, 0) || bindings::skb_checksum_validate(skb) == 0;
        is_right.then_some(())
    }
}

/// The packets of an skb: one, unless receive offload has put several of them together.
///
/// # Invariants
///
/// `next` is null or the first of a list of packets that are ours alone. Their `data` is at the
/// network header, or at the MAC header if they were cut.
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
            // SAFETY: The skb is ours alone, so nobody else reads its link. INVARIANT: A list of
            // one packet.
            unsafe { *next_of(skb) = ptr::null_mut() };
            return Self { next: skb };
        }
        // SAFETY: The skb is ours alone; the bytes from the MAC header on are still in its linear
        // part. UDP put it together, and such a packet is cut from the MAC header on.
        let list = unsafe {
            let mac_header = bindings::skb_mac_header(skb);
            let before = (*skb).data.offset_from(mac_header);
            // CAST: The length of a header is small.
            kernel::bindings::skb_push(skb, before as u32);
            let list = bindings::__skb_gso_segment(skb, bindings::FERROCE_NETIF_F_SG, false);
            bindings::consume_skb(skb);
            list
        };
        let next = kernel::error::from_err_ptr(list).unwrap_or(ptr::null_mut());
        // INVARIANT: The segments are ours alone, with `data` at the MAC header, or there are none.
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
            let before = network_header(skb.as_ptr()).offset_from((*skb.as_ptr()).data);
            // CAST: The length of a header is small.
            kernel::bindings::skb_pull(skb.as_ptr(), before as u32);
        }
        Some(skb)
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        for skb in self {
            // SAFETY: The packet is ours.
            unsafe { bindings::consume_skb(skb.as_ptr()) };
        }
    }
}
