// SPDX-License-Identifier: GPL-2.0

//! Sockets that pass every datagram to a function.

use crate::{
    module::Hold,
    net::{
        namespace::Tunnels,
        PerNet,
        PerNetRef,
        RxPacket, //
    },
    sync::BhDisabled, //
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    bindings::{
        sk_buff,
        sock, //
    },
    error::to_result,
    ffi::c_int,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use rdma_bindings as bindings;

#[cfg(not(CONFIG_NET_UDP_TUNNEL))]
compile_error!("ferroce needs a kernel with CONFIG_NET_UDP_TUNNEL");

/// Takes the datagrams of a [`Tunnel`].
pub trait Receiver: Send + Sync + 'static {
    /// Handles a datagram that arrived.
    ///
    /// Softirq context, in a read side of RCU ([`RxPacket::context`]); must not sleep. May run on
    /// several CPUs at a time. The UDP checksum, if there is one, was correct.
    fn receive(&self, packet: RxPacket<'_>);
}

/// An address family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6 alone: mapped IPv4 addresses are left to [`V4`](Self::V4).
    V6,
}

/// A UDP port of a network namespace, open on all addresses of one family.
///
/// It is closed when it is dropped, or before that when the namespace is removed. Once dropped, the
/// receiver is not called any more. Dropping it sleeps.
///
/// IPv6 datagrams without a UDP checksum are taken: RoCEv2 has none, as its own CRC covers more.
pub struct Tunnel<R: Receiver> {
    inner: Arc<Inner<R>>,
    namespace: Arc<Tunnels>,
}

/// The part of a tunnel that its namespace uses.
pub(crate) trait Close: Send + Sync {
    /// Closes the socket, if it is open, and waits until the receiver is not running. Sleeps.
    fn close(&self);
}

/// `sk_user_data` has flags in its lowest three bits, so its target is aligned to 8.
///
/// # Invariants
///
/// `socket` is a tunnel socket whose `sk_user_data` points to the `Inner` that holds it. It is set
/// as long as the socket is open.
#[pin_data]
#[repr(align(8))]
struct Inner<R: Receiver> {
    receiver: Arc<R>,
    /// Held while the socket is closed.
    #[pin]
    socket: Mutex<Option<Socket>>,
    _hold: Hold,
}

/// A socket of ours.
struct Socket(NonNull<bindings::socket>);

// SAFETY: A socket may be released from any thread.
unsafe impl Send for Socket {}

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: It was made by `udp_sock_create`, and is ours to release. Its `sk` is there until
        // then.
        unsafe { bindings::udp_tunnel_sock_release((*self.0.as_ptr()).sk) };
    }
}

impl<R: Receiver> Tunnel<R> {
    /// Opens `port` in the namespace of `namespace`. May sleep.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` when the port is in use, for example by another RoCE driver; `EAFNOSUPPORT`
    /// when IPv6 is disabled; `ENOMEM`; `ENODEV` when the module is being unloaded.
    pub fn open<T: PerNet>(
        namespace: &PerNetRef<'_, T>,
        family: Family,
        port: u16,
        receiver: Arc<R>,
    ) -> Result<Self> {
        let hold = Hold::new()?;
        let inner = Arc::pin_init(
            pin_init!(Inner {
                receiver,
                socket <- new_mutex!(None, "Tunnel::socket"),
                _hold: hold,
            }),
            GFP_KERNEL,
        )?;
        let tunnel = Self {
            inner,
            namespace: namespace.tunnels().clone(),
        };
        // The namespace knows the tunnel before it is open, so that its removal closes the tunnel.
        // If the rest fails, the drop of `tunnel` removes it again.
        tunnel.namespace.add(tunnel.inner.clone())?;

        let socket = create(namespace.net().as_raw(), family, port)?;
        // SAFETY: The socket is ours and new. The data outlives the socket: `tunnel` holds the
        // `Inner`, and its drop closes the socket.
        unsafe { tunnel.inner.attach(namespace.net().as_raw(), &socket) };
        // INVARIANT: Attached just now.
        *tunnel.inner.socket.lock() = Some(socket);
        Ok(tunnel)
    }
}

impl<R: Receiver> Drop for Tunnel<R> {
    fn drop(&mut self) {
        self.inner.close();
        self.namespace.remove(Arc::as_ptr(&self.inner).cast());
    }
}

/// Returns a UDP socket of `net`, bound to `port`.
fn create(net: *mut bindings::net, family: Family, port: u16) -> Result<Socket> {
    // SAFETY: Zeros are valid for all of it.
    let mut config: bindings::udp_port_cfg = unsafe { core::mem::zeroed() };
    // CAST: Families are below 256.
    config.family = match family {
        Family::V4 => bindings::AF_INET as u8,
        Family::V6 => bindings::AF_INET6 as u8,
    };
    config.local_udp_port = port.to_be();
    config.set_ipv6_v6only(1);

    let mut socket = ptr::null_mut();
    // SAFETY: The namespace has users; the rest is valid for the call.
    to_result(unsafe { bindings::udp_sock_create(net, &mut config, &mut socket) })?;
    let socket = Socket(NonNull::new(socket).ok_or(ENOMEM)?);
    // SAFETY: The socket is valid and has not been used.
    unsafe { bindings::sock_reclassify((*socket.0.as_ptr()).sk) };
    Ok(socket)
}

impl<R: Receiver> Inner<R> {
    /// Makes the socket call [`encap_rcv`](Self::encap_rcv).
    ///
    /// # Safety
    ///
    /// The socket must be new, and `self` must be kept in place until the socket is released and a
    /// grace period of RCU has passed.
    unsafe fn attach(&self, net: *mut bindings::net, socket: &Socket) {
        // SAFETY: Zeros are valid for all of it.
        let mut config: bindings::udp_tunnel_sock_cfg = unsafe { core::mem::zeroed() };
        config.sk_user_data = ptr::from_ref(self).cast_mut().cast();
        config.encap_type = 1;
        config.encap_rcv = Some(Self::encap_rcv);
        // SAFETY: By the safety requirements the socket is new, and `self` outlives it.
        unsafe { bindings::setup_udp_tunnel_sock(net, (*socket.0.as_ptr()).sk, &mut config) };
    }

    /// Takes a datagram. Returns 0, so that the UDP layer leaves it to this module.
    ///
    /// # Safety
    ///
    /// Only the UDP layer may call it, on a socket that was [attached](Self::attach).
    // Rules: ENC-24
    unsafe extern "C" fn encap_rcv(sk: *mut sock, skb: *mut sk_buff) -> c_int {
        // SAFETY: The stack calls this with bottom halves disabled, and until it returns.
        let context = unsafe { BhDisabled::assume() };
        // SAFETY: The stack gives us the datagram, with the UDP header in front, and ends its own
        // use of it.
        let packet = unsafe { RxPacket::new(skb, &context) };
        // SAFETY: The socket is valid, and this is a read side.
        let this = unsafe { bindings::rcu_dereference_sk_user_data(sk) }.cast::<Self>();
        // SAFETY: It is null once the socket is being closed; otherwise it is the `Inner` that
        // attached it, which stays in place until this read side is over.
        if let (Some(this), Some(packet)) = (unsafe { this.as_ref() }, packet) {
            this.receiver.receive(packet);
        }
        0
    }
}

impl<R: Receiver> Close for Inner<R> {
    fn close(&self) {
        let mut socket = self.socket.lock();
        if let Some(socket) = socket.take() {
            drop(socket);
            // A CPU that found the socket before may still be in the receiver.
            //
            // SAFETY: This is process context, as `close` sleeps.
            unsafe { bindings::synchronize_net() };
        }
    }
}
