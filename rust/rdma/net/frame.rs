// SPDX-License-Identifier: GPL-2.0

//! Frames that are sent.

use crate::{
    crc,
    memory::Pages,
    net::{
        headers::{
            IPV4_BYTES,
            IPV6_BYTES,
            UDP_BYTES, //
        },
        on_link,
        packet::{
            Datagram,
            HeldPacket, //
        },
        path::{
            Headers,
            NextHop,
            Path,
            Pending,
            Routing, //
        },
        pool::PAGES_BYTES,
        train::Train,
        Credit, //
    }, //
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    bindings::sk_buff,
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;

/// Bytes of a BTH.
const BTH_BYTES: usize = 12;
/// Bytes of the ICRC.
const ICRC_BYTES: usize = 4;
/// Bytes of the headers of a packet over IPv4, up to and with the BTH.
const IPV4_HEADERS: usize = IPV4_BYTES + UDP_BYTES + BTH_BYTES;
/// Bytes of those of a packet over IPv6.
const IPV6_HEADERS: usize = IPV6_BYTES + UDP_BYTES + BTH_BYTES;
/// Room for the headers of tunnels that a frame passes on this machine. Several of them need less.
/// If the kernel splits a train behind them, it puts them in front of each frame without a check
/// for room.
const TUNNEL_BYTES: u32 = 512;
/// The most payload of a frame that leaves this module, or is in one buffer.
const LARGEST_PAYLOAD: usize = 4096;
/// The largest IPv4 packet, header included.
pub(super) const MAX_IP_BYTES: usize = 0xffff;

/// The ICRC as the protocol defines it: a CRC-32 over the whole packet, in which fields that may change
/// on the way count as ones.
pub trait Icrc {
    /// The CRC before the first byte of the packet.
    const SEED: u32;

    /// Sets those fields of the headers to ones, up to and with the BTH.
    fn mask_ipv4(headers: &mut [u8; IPV4_HEADERS]);

    /// Does the same for a packet over IPv6.
    fn mask_ipv6(headers: &mut [u8; IPV6_HEADERS]);

    /// Returns the bytes at the end of the packet, from the CRC over all before them.
    fn finish(crc: u32) -> [u8; ICRC_BYTES];
}

/// The result for a train.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Fate {
    /// The network took it, as far as it reports.
    Taken,
    /// It was dropped on the way out: by a full queue, a firewall, or because it does not fit.
    Dropped,
}

/// A packet on its way out.
///
/// [`Path::frame`] makes it for an announced length of payload. The caller pushes the payload and
/// sends the frame, together with those after it if there are any. If it is dropped before, it is
/// freed and not sent.
///
/// Process and softirq context; nothing here sleeps.
///
/// # Invariants
///
/// - `skb` is ours alone. Its data is as long as `icrc_at` and an ICRC, and linear up to `linear`; behind
///   that it has pieces of `PAGES_BYTES`, and one of the rest.
/// - `linear` is the length of all data, or the offset of the payload.
/// - `filled <= payload_end <= icrc_at`; all bytes before `filled` are written.
pub struct Frame<'p> {
    path: &'p mut Path,
    credit: &'p Arc<Credit>,
    next_hop: NextHop,
    skb: Skb,
    linear: usize,
    filled: usize,
    payload_end: usize,
    icrc_at: usize,
}

impl<'p> Frame<'p> {
    /// Starts a frame, see [`Path::frame`].
    #[inline]
    pub(super) fn new(
        path: &'p mut Path,
        credit: &'p Arc<Credit>,
        next_hop: NextHop,
        transport: &[u8],
        payload_len: usize,
        pad: u8,
    ) -> Result<Self> {
        if transport.len() < BTH_BYTES || pad > 3 || payload_len > MAX_IP_BYTES {
            return Err(EINVAL);
        }
        let below = path.headers.bytes();
        let headers_end = below.checked_add(transport.len()).ok_or(EINVAL)?;
        let payload_end = headers_end.checked_add(payload_len).ok_or(EINVAL)?;
        let icrc_at = payload_end.wrapping_add(usize::from(pad));
        let len = icrc_at.wrapping_add(ICRC_BYTES);
        if len > MAX_IP_BYTES {
            return Err(EINVAL);
        }

        let headroom = match &next_hop {
            _ if path.keeps_own() => 0,
            NextHop::Routed => path.headroom().saturating_add(TUNNEL_BYTES),
            NextHop::OnLink(dev, _) => dev.headroom(),
        };
        let is_large = payload_len > LARGEST_PAYLOAD;
        let linear = if is_large { headers_end } else { len };
        // CAST: `len` is below 64 KiB.
        let skb = Skb(path.buffers.skb(headroom, linear as u32)?);
        if is_large {
            if !path.keeps_own() {
                return Err(EINVAL);
            }
            // SAFETY: The skb is ours, and was made there just now.
            unsafe { path.buffers.extend(skb.0, len.wrapping_sub(linear)) }?;
        }
        // INVARIANT: Made just now, with `len` bytes of data; the transport's headers are written
        // below, those in front by `seal`.
        let frame = Self {
            path,
            credit,
            next_hop,
            skb,
            linear,
            filled: headers_end,
            payload_end,
            icrc_at,
        };
        // SAFETY: `headers_end` is within the data.
        unsafe {
            ptr::copy_nonoverlapping(transport.as_ptr(), frame.at(below), transport.len());
        }
        Ok(frame)
    }

    /// Returns the address of byte `offset`, counted from the IP header.
    ///
    /// # Safety
    ///
    /// `offset` must be within the linear data.
    #[inline]
    unsafe fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: By the safety requirements `offset` is within the linear data.
        unsafe { (*self.skb.0.as_ptr()).data.add(offset) }
    }

    /// # Errors
    ///
    /// `EINVAL` unless `len` more bytes of payload were announced.
    #[inline]
    fn check(&self, len: usize) -> Result {
        if len <= self.payload_end.wrapping_sub(self.filled) {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }

    /// Returns the address for the next bytes of the data, and the contiguous room there.
    ///
    /// # Safety
    ///
    /// `filled` must be within the data.
    #[inline]
    unsafe fn room(&self) -> (*mut u8, usize) {
        let Some(behind) = self.filled.checked_sub(self.linear) else {
            // SAFETY: By the safety requirements `filled` is within the data, and it is before the
            // end of the linear part.
            let to = unsafe { self.at(self.filled) };
            return (to, self.linear.wrapping_sub(self.filled));
        };
        // CAST: There are few pieces.
        let (piece, offset) = ((behind / PAGES_BYTES) as u32, behind % PAGES_BYTES);
        // SAFETY: By the type invariants there is this piece, with more bytes than `offset`.
        let to = unsafe {
            bindings::skb_piece(self.skb.as_ptr(), piece)
                .cast::<u8>()
                .add(offset)
        };
        (to, PAGES_BYTES.wrapping_sub(offset))
    }

    /// Appends bytes to the data.
    ///
    /// # Safety
    ///
    /// `from` must be valid for reads of `len` bytes, which may change meanwhile, and there must be room
    /// for as many before the end of the data.
    #[inline]
    unsafe fn append(&mut self, from: *const u8, len: usize) {
        let mut done = 0usize;
        while done < len {
            // SAFETY: By the safety requirements there is room for more.
            unsafe {
                let (to, room) = self.room();
                let run = room.min(len.wrapping_sub(done));
                bindings::memcpy(to.cast(), from.add(done).cast(), run);
                done = done.wrapping_add(run);
                self.filled = self.filled.wrapping_add(run);
            }
        }
    }

    /// Appends `bytes` to the payload.
    ///
    /// # Errors
    ///
    /// `EINVAL` when that is more than was announced.
    pub fn push(&mut self, bytes: &[u8]) -> Result {
        self.check(bytes.len())?;
        // SAFETY: There is room for as many bytes before the payload's end.
        unsafe { self.append(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Appends `len` bytes of `memory` from byte `at` on to the payload.
    ///
    /// They are copied now, so later changes have no effect.
    ///
    /// # Errors
    ///
    /// `EINVAL` when that is more than was announced; `EFAULT` when they are not all within `memory`;
    /// `EAGAIN` when some of it is absent.
    pub fn push_memory(&mut self, memory: &impl Pages, at: u64, len: usize) -> Result {
        self.check(len)?;
        memory.read_chunks(at, len, |chunk, chunk_len| {
            // SAFETY: The chunk is valid for reads of `chunk_len`, and all chunks make up `len`
            // bytes, for which there is room.
            unsafe { self.append(chunk, chunk_len) };
            Ok(())
        })
    }

    /// Sends it with the ICRC of `C`, at the latest when its path is [flushed](Path::flush). The
    /// receiver is told that it stands for `psns` packets.
    ///
    /// # Errors
    ///
    /// `EINVAL` when announced payload is missing, or when a frame that leaves this module does not
    /// stand for exactly one packet. The frame is dropped then.
    pub fn send<C: Icrc>(mut self, psns: u32) -> Result {
        let is_own = self.path.keeps_own();
        let psns = u16::try_from(psns).map_err(|_| EINVAL)?;
        if self.filled != self.payload_end || (psns != 1 && !is_own) {
            return Err(EINVAL);
        }
        let below = self.path.headers.bytes();
        // CAST: All lengths are below 64 KiB.
        let size = self.icrc_at.wrapping_add(ICRC_BYTES).wrapping_sub(below) as u32;
        let number = self.path.number_for(size, self.credit);
        self.seal::<C>(number);
        let Self {
            path,
            credit,
            next_hop,
            skb,
            ..
        } = self;
        // SAFETY: The skb is ours alone. The headers are where the offsets say.
        unsafe {
            bindings::skb_reset_network_header(skb.as_ptr());
            // CAST: An IP header is short.
            bindings::skb_set_transport_header(skb.as_ptr(), path.headers.ip_bytes() as i32);
        }
        let train = match &mut path.waiting {
            // SAFETY: A whole packet with the headers of this path, with neither owner nor
            // destructor.
            Pending::Own(_) => return unsafe { path.keep(skb, size, psns, credit) },
            Pending::Train(train) => train,
        };
        match train {
            // SAFETY: The skb is a whole packet with the headers of this path, as are those of the
            // train.
            Some(train) => unsafe { train.append(skb, size) },
            None => {
                // SAFETY: The skb is ours alone and has neither owner nor destructor yet.
                unsafe {
                    bindings::__skb_set_sw_hash(skb.as_ptr(), path.hash, true);
                    (*skb.as_ptr()).__bindgen_anon_4.headers.as_mut().priority = path.priority;
                }
                // SAFETY: The skb is ours alone, linear, and a whole packet with the headers of
                // this path.
                *train = Some(unsafe { Train::new(next_hop, skb, size) });
            }
        }
        Ok(())
    }

    /// Writes the missing parts: the headers in front, the pad and the ICRC. `number` is the position of
    /// the frame in its train, from which the kernel computes the IPv4 identification.
    // Rules: ENC-5, ENC-12
    #[inline]
    fn seal<C: Icrc>(&mut self, number: u16) {
        // CAST: All lengths are below 64 KiB.
        let ip_len = self.icrc_at.wrapping_add(ICRC_BYTES) as u16;
        let udp_len = ip_len.wrapping_sub(self.path.headers.ip_bytes() as u16);
        match self.path.headers {
            Headers::V4(ref ip) => {
                // SAFETY: The headers, with a BTH, are within the linear data.
                let headers: &mut [u8; IPV4_HEADERS] = unsafe { &mut *self.at(0).cast() };
                put(headers, ip, &self.path.ports, udp_len);
                [headers[2], headers[3]] = ip_len.to_be_bytes();
                [headers[4], headers[5]] = number.to_be_bytes();
                self.finish::<C, IPV4_HEADERS>(C::mask_ipv4);
            }
            Headers::V6(ref ip) => {
                // SAFETY: The headers, with a BTH, are within the linear data.
                let headers: &mut [u8; IPV6_HEADERS] = unsafe { &mut *self.at(0).cast() };
                put(headers, ip, &self.path.ports, udp_len);
                [headers[4], headers[5]] = udp_len.to_be_bytes();
                self.finish::<C, IPV6_HEADERS>(C::mask_ipv6);
            }
        }
    }

    /// Computes the ICRC in one call over the packet with its headers masked, and then restores the
    /// headers. They are the first `N` bytes, which are all written. The stack computes the IPv4
    /// checksum. A packet that stays in this module has no ICRC.
    #[inline]
    fn finish<C: Icrc, const N: usize>(&mut self, mask: impl FnOnce(&mut [u8; N])) {
        if self.path.keeps_own() {
            return self.finish_own();
        }
        let pad = self.icrc_at.wrapping_sub(self.payload_end);
        // SAFETY: All of this is within the linear data. Everything up to the ICRC is written before the
        // CRC is computed.
        unsafe {
            // Rules: WIRE-32
            if pad != 0 {
                ptr::write_bytes(self.at(self.payload_end), 0, pad);
            }
            let headers: *mut [u8; N] = self.at(0).cast();
            let real = *headers;
            mask(&mut *headers);
            // Rules: ENC-16
            let crc = crc::crc32_le_raw(C::SEED, self.at(0), self.icrc_at);
            *headers = real;
            let icrc = C::finish(crc);
            ptr::copy_nonoverlapping(icrc.as_ptr(), self.at(self.icrc_at), icrc.len());
        }
    }

    /// Does the same for a packet that stays in this module. Its ICRC is zero.
    #[inline]
    fn finish_own(&mut self) {
        const ZEROS: [u8; 3 + ICRC_BYTES] = [0; 3 + ICRC_BYTES];

        let end = self.icrc_at.wrapping_add(ICRC_BYTES);
        let rest = end.wrapping_sub(self.payload_end).min(ZEROS.len());
        // SAFETY: All that is not written yet is from the payload's end to that of the data.
        unsafe { self.append(ZEROS.as_ptr(), rest) };
    }
}

/// Puts an IP and a UDP header in front of a BTH.
#[inline]
fn put<const IP: usize, const ALL: usize>(
    headers: &mut [u8; ALL],
    ip: &[u8; IP],
    ports: &[u8; 4],
    udp_len: u16,
) {
    let (to_ip, rest) = headers.split_at_mut(IP);
    to_ip.copy_from_slice(ip);
    // Rules: ENC-13
    // No checksum: the ICRC covers more, and RoCEv2 wants it to be 0 over IPv6 too.
    let (to_ports, rest) = rest.split_at_mut(ports.len());
    to_ports.copy_from_slice(ports);
    let (to_len, rest) = rest.split_at_mut(2);
    to_len.copy_from_slice(&udp_len.to_be_bytes());
    let (to_checksum, _) = rest.split_at_mut(2);
    to_checksum.fill(0);
}

/// An skb of ours alone, and the skbs in its list. Dropping it frees it.
pub(super) struct Skb(NonNull<sk_buff>);

impl Skb {
    #[inline]
    pub(super) fn as_ptr(&self) -> *mut sk_buff {
        self.0.as_ptr()
    }

    /// Returns its length, of all pieces.
    #[inline]
    pub(super) fn len(&self) -> u32 {
        // SAFETY: The skb is ours.
        unsafe { (*self.0.as_ptr()).len }
    }

    #[inline]
    pub(super) fn into_inner(self) -> NonNull<sk_buff> {
        core::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for Skb {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: The skb is ours.
        unsafe { bindings::consume_skb(self.0.as_ptr()) };
    }
}

impl Path {
    /// Keeps a frame with `size` bytes of UDP payload for [`take_own`](Self::take_own).
    ///
    /// # Safety
    ///
    /// `skb` must be a whole packet with the headers of this path, its network header set, and with
    /// neither owner nor destructor.
    #[inline]
    unsafe fn keep(&mut self, skb: Skb, size: u32, psns: u16, credit: &Arc<Credit>) -> Result {
        let Pending::Own(own) = &mut self.waiting else {
            return Err(EINVAL);
        };
        let skb = skb.into_inner();
        // SAFETY: The skb is ours. CAST: An IP header is short.
        unsafe {
            credit.charge(skb.as_ptr(), psns.into(), self.credit_use);
            kernel::bindings::skb_pull(skb.as_ptr(), self.headers.ip_bytes() as u32);
        }
        // INVARIANT: `data` is at the UDP header now, which `size` bytes follow. The IP header is
        // before it.
        let datagram = Datagram {
            skb,
            payload_len: size,
            is_ipv6: matches!(self.headers, Headers::V6(_)),
            is_own: true,
            psns,
        };
        let packet = HeldPacket::from_parts(datagram, None);
        own.push(packet).map_err(|_| ENOMEM)?;
        self.count_sent(1, size);
        Ok(())
    }

    /// Sends the pending train, by the route of the path. It is dropped if the route was taken away.
    pub(super) fn send_train(&mut self, train: Train, credit: &Arc<Credit>) -> Fate {
        let (next_hop, skb) = train.couple(credit, self.credit_use);
        match next_hop {
            // SAFETY: The skb is a complete IP packet of this family, or a train of them, and given
            // away here.
            NextHop::Routed => unsafe { send_routed(skb, self) },
            // SAFETY: The skb is a complete IPv6 packet and given away here. Only single packets
            // take this way.
            NextHop::OnLink(dev, mac) => unsafe { on_link::send(skb, &dev, mac) },
        }
    }
}

/// Sends a packet through the IP stack.
///
/// # Safety
///
/// `skb` must be ours alone, and is given away: a whole IP packet of the family of `path`.
#[inline]
unsafe fn send_routed(skb: NonNull<sk_buff>, path: &mut Path) -> Fate {
    let skb = skb.as_ptr();
    if core::mem::take(&mut path.is_heard) {
        // SAFETY: The skb is ours alone.
        unsafe { bindings::skb_set_dst_pending_confirm(skb, 1) };
    }
    // SAFETY: The route stays in this read side of RCU. An owner that keeps the skb for longer takes
    // a reference. The netdev of a route is valid in a read side, and so is its namespace.
    let send = |dst: NonNull<_>| unsafe {
        if !fits(skb, dst) {
            return None;
        }
        bindings::skb_dst_set_noref(skb, dst.as_ptr());
        let net = bindings::dst_dev_net_rcu(dst.as_ptr());
        Some(match path.headers {
            Headers::V4(_) => bindings::ip_local_out(net, ptr::null_mut(), skb),
            Headers::V6(_) => bindings::ip6_local_out(net, ptr::null_mut(), skb),
        })
    };
    let sent = match &path.routing {
        Some(Routing::Routed(route)) => route.with(send).flatten(),
        Some(Routing::OnLink { .. }) | None => None,
    };
    match sent {
        Some(0 | CONGESTION) => Fate::Taken,
        Some(_) => Fate::Dropped,
        None => {
            // SAFETY: The skb is ours, as nobody took it.
            unsafe { bindings::consume_skb(skb) };
            Fate::Dropped
        }
    }
}

/// Returns true if the packets of `skb` fit the MTU of the route `dst`.
///
/// The IP stack would answer a longer one by an ICMP message to its sender, which is this machine. Then the
/// route keeps the small MTU for ten minutes, even if that of the netdev has become larger again.
///
/// # Safety
///
/// Both must be valid.
#[inline]
unsafe fn fits(skb: *mut sk_buff, dst: NonNull<bindings::dst_entry>) -> bool {
    // SAFETY: The caller promises that the skb is valid.
    let len = unsafe { (*skb).len };
    if len <= ALWAYS_FITS {
        return true;
    }
    // SAFETY: The caller promises that the route is valid.
    let mtu = unsafe { bindings::dst_mtu(dst.as_ptr()) };
    if len <= mtu {
        return true;
    }
    // SAFETY: The caller promises that the skb is valid. Only a train is asked for its segments.
    unsafe { bindings::skb_is_gso(skb) && bindings::skb_gso_validate_network_len(skb, mtu) }
}

/// The length of a packet that needs no look at the MTU: the least MTU of IPv4.
const ALWAYS_FITS: u32 = 68;

/// `NET_XMIT_CN`: taken, although the queue is filling up.
pub(super) const CONGESTION: i32 = 2;
