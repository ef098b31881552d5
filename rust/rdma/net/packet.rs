// SPDX-License-Identifier: GPL-2.0

//! Datagrams that were received.

use crate::{
    crc,
    memory::Pages,
    net::{
        gid_of_ipv4,
        headers::UDP_BYTES,
        skb::{
            dev_of,
            network_header, //
        },
        NetDevice, //
    },
    share::{
        Charge,
        Share, //
    },
    sync::BhDisabled, //
};
use core::{
    mem::ManuallyDrop,
    ops::Deref,
    ptr::NonNull, //
};
use kernel::{
    bindings::{
        sk_buff,
        skb_drop_reason_SKB_DROP_REASON_NOT_SPECIFIED,
        GFP_ATOMIC, //
    },
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;

/// The IP header of a datagram, without IPv4 options.
#[derive(Clone, Copy, Debug)]
pub enum IpHeader<'a> {
    /// IPv4. Its first byte tells whether options follow.
    V4(&'a [u8; 20]),
    /// IPv6, with UDP as the next header.
    V6(&'a [u8; 40]),
}

/// A UDP datagram that was received.
///
/// It stays as the network delivered it, in one buffer or many, and is read where it lies. A local
/// sender may change the payload at any time, so relevant bytes are copied once and then checked.
///
/// # Invariants
///
/// - `skb` is ours, with a UDP header in front, in its linear part. By that header `payload_len`
///   bytes follow it, and the skb has at least as many.
/// - The linear part holds a whole IP header before that: at least 20 bytes, or 40 if `is_ipv6`.
pub struct Datagram {
    pub(super) skb: NonNull<sk_buff>,
    pub(super) payload_len: u32,
    pub(super) is_ipv6: bool,
    pub(super) is_own: bool,
    pub(super) psns: u16,
}

/// A [`Datagram`] that is handled now, in softirq context.
///
/// Dropping it frees it, and counts it as used. It cannot be copied. It can be kept itself
/// ([`into_held`](Self::into_held)), or as a [clone](Self::clone_held) with its own skb.
pub struct RxPacket<'a> {
    datagram: Datagram,
    /// The netdev that it came from, or `None` if it was kept.
    dev: Option<&'a NetDevice>,
    /// It came by the loopback device.
    is_looped: bool,
    context: &'a BhDisabled,
}

/// A [`Datagram`] that is kept for later.
///
/// Its skb has no other owner, so it can be linked into one queue. Dropping it frees it, in process or
/// softirq context.
pub struct HeldPacket {
    datagram: Datagram,
    /// Its charges to the shares of its holder.
    charges: Option<[Charge; 2]>,
}

// SAFETY: The skb is ours and belongs to no thread.
unsafe impl Send for HeldPacket {}

impl Deref for RxPacket<'_> {
    type Target = Datagram;

    #[inline]
    fn deref(&self) -> &Datagram {
        &self.datagram
    }
}

impl Deref for HeldPacket {
    type Target = Datagram;

    #[inline]
    fn deref(&self) -> &Datagram {
        &self.datagram
    }
}

impl<'a> RxPacket<'a> {
    /// Takes a datagram from the UDP layer. Frees it and returns `None` if something other than UDP
    /// stands between its IP header and the payload, or its lengths do not fit.
    ///
    /// # Safety
    ///
    /// `skb` must be a datagram as the stack passes it to `encap_rcv`, given to the callee, in the
    /// read side that `context` proves.
    pub(crate) unsafe fn new(skb: *mut sk_buff, context: &'a BhDisabled) -> Option<Self> {
        let skb = NonNull::new(skb)?;
        // SAFETY: The stack has set `dev`, and it is valid in this read side.
        let dev = unsafe { NetDevice::from_raw(*dev_of(skb.as_ptr())) };
        let mut packet = Self {
            datagram: Datagram {
                skb,
                payload_len: 0,
                is_ipv6: false,
                is_own: false,
                psns: 1,
            },
            dev: Some(dev),
            is_looped: dev.is_loopback(),
            context,
        };
        // INVARIANT: Checked by `parse`.
        if packet.datagram.parse().is_some() {
            if packet.is_looped {
                packet.dev = packet.owner_of_destination(dev).or(Some(dev));
            }
            Some(packet)
        } else {
            packet.reject();
            None
        }
    }

    /// Returns the netdev that has the destination address, in the namespace of `dev`.
    fn owner_of_destination(&self, dev: &NetDevice) -> Option<&'a NetDevice> {
        // SAFETY: The netdev is valid, and so is its namespace in a read side. The lookups return
        // null or a netdev that is valid in this read side, which lasts for `'a`. The addresses lie
        // at their places in the headers.
        unsafe {
            let net = bindings::dev_net_rcu(dev.as_raw());
            let dev = match self.ip_header() {
                IpHeader::V4(ip) => {
                    let address = u32::from_ne_bytes([ip[16], ip[17], ip[18], ip[19]]);
                    bindings::__ip_dev_find(net, address, false)
                }
                IpHeader::V6(ip) => find_v6(net, gid(&ip[24..40])),
            };
            (!dev.is_null()).then(|| NetDevice::from_raw(dev))
        }
    }

    /// Keeps the datagram for later. A datagram of the same device still counts against the credit of
    /// its sender.
    pub fn into_held(self) -> HeldPacket {
        let datagram = Datagram { ..*self };
        core::mem::forget(self);
        let skb = datagram.skb.as_ptr();
        // The socket may be freed after the read side in which it was received.
        //
        // SAFETY: The skb is ours, and only this thread has it.
        unsafe {
            if !datagram.is_own {
                bindings::skb_orphan(skb);
            }
            detach(skb);
        }
        // INVARIANT: It is the same datagram, and nobody else has it.
        HeldPacket::from_parts(datagram, None)
    }

    /// Clones the datagram, to keep the clone for later. The clone has an skb of its own over the
    /// same bytes.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EINVAL` for one that never left this module: the clone would count against no credit.
    pub fn clone_held(&self) -> Result<HeldPacket> {
        if self.is_own {
            return Err(EINVAL);
        }
        // SAFETY: The skb is ours. Nothing here writes to its bytes, which the clone shares.
        let clone = unsafe { kernel::bindings::skb_clone(self.skb.as_ptr(), GFP_ATOMIC) };
        let clone = NonNull::new(clone).ok_or(ENOMEM)?;
        // SAFETY: The clone is ours, and only this thread has it. It has no socket.
        unsafe { detach(clone.as_ptr()) };
        let datagram = Datagram {
            skb: clone,
            ..**self
        };
        // INVARIANT: The clone has the same bytes and headers, and nobody else has it.
        Ok(HeldPacket::from_parts(datagram, None))
    }

    /// Frees the datagram and counts it as dropped, for drop monitors.
    pub fn reject(self) {
        let skb = self.skb.as_ptr();
        core::mem::forget(self);
        // SAFETY: The skb was ours until now.
        unsafe {
            kernel::bindings::sk_skb_reason_drop(
                core::ptr::null_mut(),
                skb,
                skb_drop_reason_SKB_DROP_REASON_NOT_SPECIFIED,
            )
        };
    }

    /// Returns evidence of the read side in which the datagram was received.
    pub fn context(&self) -> &'a BhDisabled {
        self.context
    }

    /// Returns the netdev that received it: the VLAN's, if it was tagged. For a datagram that this
    /// machine sent to itself, it is the netdev that has the destination address. Returns `None` if
    /// the datagram was kept meanwhile.
    ///
    /// A packet for a bond, a bridge or another netdev above the one from which it came has the upper one.
    /// If several netdevs have the destination address, it may be any of them.
    #[inline]
    pub fn device(&self) -> Option<&'a NetDevice> {
        self.dev
    }

    /// Returns true if this machine sent it to itself by the loopback device. Returns false if the datagram was
    /// kept meanwhile.
    #[inline]
    pub fn is_looped(&self) -> bool {
        self.is_looped
    }
}

/// Drops the references of a received skb, so that it can be kept.
///
/// The route and the netdev may be freed after the read side in which it was received. The end of a
/// network namespace waits for all references to its connections and to its IPsec states.
///
/// # Safety
///
/// Only the caller may have the skb.
unsafe fn detach(skb: *mut sk_buff) {
    // SAFETY: By the safety requirements nobody else has the skb.
    unsafe {
        bindings::skb_dst_drop(skb);
        bindings::nf_reset_ct(skb);
        bindings::skb_ext_reset(skb);
        *dev_of(skb) = core::ptr::null_mut();
    }
}

impl Datagram {
    /// Checks the headers against the invariants, and sets the fields from them.
    // Rules: ENC-23
    fn parse(&mut self) -> Option<()> {
        let skb = self.skb.as_ptr();
        // SAFETY: The skb is ours. UDP has pulled its header into the linear part, at `data`; IP has
        // done so with its own, at the network header before that.
        let (data, len, linear, before) = unsafe {
            (
                (*skb).data,
                (*skb).len,
                linear(skb),
                (*skb).data.offset_from(network_header(skb)),
            )
        };
        let before = usize::try_from(before).ok()?;
        if linear < UDP_BYTES || before < 20 {
            return None;
        }
        // SAFETY: These bytes are in the linear part, just checked.
        let udp = unsafe { &*data.cast::<[u8; UDP_BYTES]>() };
        let udp_len = u32::from(u16::from_be_bytes([udp[4], udp[5]]));
        if udp_len > len {
            return None;
        }
        self.payload_len = udp_len.checked_sub(UDP_BYTES as u32)?;

        // SAFETY: The network header starts `before` bytes, at least 20, before `data`.
        let version = unsafe { *data.wrapping_sub(before) } >> 4;
        match version {
            4 => self.is_ipv6 = false,
            // Nothing but the header itself: extension headers have no place in RoCEv2.
            6 if before == 40 => self.is_ipv6 = true,
            _ => return None,
        }
        Some(())
    }

    /// Returns true if it came over IPv6.
    #[inline]
    pub fn is_ipv6(&self) -> bool {
        self.is_ipv6
    }

    /// Returns true if it never left this module, and so has no ICRC: see
    /// [`Path::keep_own`](crate::net::Path::keep_own).
    #[inline]
    pub fn is_own(&self) -> bool {
        self.is_own
    }

    /// Returns the number of packets that it stands for, as it was [sent](crate::net::Frame::send).
    /// The number is 1 unless the datagram [never left this module](Self::is_own).
    #[inline]
    pub fn psns(&self) -> u32 {
        self.psns.into()
    }

    /// Returns its IP header.
    #[inline]
    pub fn ip_header(&self) -> IpHeader<'_> {
        // SAFETY: By the type invariants the network header is there, with that many bytes. Nobody
        // writes to the headers of a datagram that was delivered.
        unsafe {
            let ip = network_header(self.skb.as_ptr());
            if self.is_ipv6 {
                IpHeader::V6(&*ip.cast())
            } else {
                IpHeader::V4(&*ip.cast())
            }
        }
    }

    /// Returns its UDP header.
    #[inline]
    pub fn udp_header(&self) -> &[u8; UDP_BYTES] {
        // SAFETY: By the type invariants the UDP header is at `data`, in the linear part. Nobody
        // writes to the headers of a datagram that was delivered.
        unsafe { &*(*self.skb.as_ptr()).data.cast() }
    }

    /// Returns the source address as a GID.
    #[inline]
    pub fn source(&self) -> [u8; 16] {
        match self.ip_header() {
            IpHeader::V4(ip) => gid_of_ipv4([ip[12], ip[13], ip[14], ip[15]]),
            IpHeader::V6(ip) => gid(&ip[8..24]),
        }
    }

    /// Returns the destination address as a GID.
    #[inline]
    pub fn destination(&self) -> [u8; 16] {
        match self.ip_header() {
            IpHeader::V4(ip) => gid_of_ipv4([ip[16], ip[17], ip[18], ip[19]]),
            IpHeader::V6(ip) => gid(&ip[24..40]),
        }
    }

    /// Returns its DSCP and ECN bits.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        match self.ip_header() {
            IpHeader::V4(ip) => ip[1],
            IpHeader::V6(ip) => ip[0] << 4 | ip[1] >> 4,
        }
    }

    /// Returns the number of bytes of UDP payload.
    #[inline]
    pub fn payload_len(&self) -> u32 {
        self.payload_len
    }

    /// Copies the first bytes of the payload, as many as `buffer` has room for. Returns them.
    #[inline]
    pub fn peek<'b>(&self, buffer: &'b mut [u8]) -> &'b [u8] {
        let len = buffer.len().min(self.payload_len as usize);
        let buffer = &mut buffer[..len];
        match self.read(0, buffer) {
            Ok(()) => buffer,
            Err(_) => &[],
        }
    }

    /// Copies bytes of the payload from `offset` on into all of `buffer`.
    ///
    /// # Errors
    ///
    /// `EINVAL` when they are not all within the payload; `EFAULT` when they cannot be read.
    #[inline]
    pub fn read(&self, offset: usize, buffer: &mut [u8]) -> Result {
        self.check(offset, buffer.len())?;
        // SAFETY: The bytes are within the payload; `buffer` is valid for writes of its length.
        unsafe { self.copy(offset, buffer.as_mut_ptr(), buffer.len()) }
    }

    /// Copies `len` bytes of the payload from `offset` on to byte `at` of `to`.
    ///
    /// # Errors
    ///
    /// `EINVAL` when they are not all within the payload; `EFAULT` when they are not all within
    /// `to`, when `to` is not writable, or when they cannot be read; `EAGAIN` when some of `to` is
    /// absent. Some may have been written then.
    pub fn copy_to(&self, offset: usize, len: usize, to: &impl Pages, at: u64) -> Result {
        self.check(offset, len)?;
        let mut from = offset;
        to.write_chunks(at, len, |chunk, chunk_len| {
            // SAFETY: All chunks make up `len` bytes, so these are within the payload; `chunk` is
            // valid for writes of `chunk_len`.
            unsafe { self.copy(from, chunk, chunk_len)? };
            from = from.wrapping_add(chunk_len);
            Ok(())
        })
    }

    /// Continues `crc` over `len` bytes of the payload from `offset` on, see
    /// [`crc32_le`](crate::crc::crc32_le).
    ///
    /// # Errors
    ///
    /// `EINVAL` when they are not all within the payload; `EFAULT` when they cannot be read.
    pub fn crc(&self, crc: u32, offset: usize, len: usize) -> Result<u32> {
        self.check(offset, len)?;
        let start = offset.wrapping_add(UDP_BYTES);
        let end = start.wrapping_add(len);
        let skb = self.skb.as_ptr();
        // SAFETY: The skb is ours.
        if end <= unsafe { linear(skb) } {
            // SAFETY: The bytes are in the linear part, just checked.
            return Ok(unsafe { crc::crc32_le_raw(crc, (*skb).data.add(start), len) });
        }

        let mut crc = crc;
        let mut done = 0usize;
        let mut walk = Walk::new(self, start, end);
        while done < len {
            let (chunk, chunk_len) = walk.next(done).ok_or(EFAULT)?;
            let chunk_len = chunk_len.min(len.wrapping_sub(done));
            // SAFETY: The chunk is valid for reads until the next one is requested.
            crc = unsafe { crc::crc32_le_raw(crc, chunk, chunk_len) };
            done = done.wrapping_add(chunk_len);
        }
        Ok(crc)
    }

    /// # Errors
    ///
    /// `EINVAL` unless `len` bytes from `offset` on are within the payload.
    #[inline]
    fn check(&self, offset: usize, len: usize) -> Result {
        let payload_len = self.payload_len as usize;
        if offset <= payload_len && len <= payload_len.wrapping_sub(offset) {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }

    /// # Safety
    ///
    /// The bytes must be within the payload, and `to` valid for writes of `len`.
    #[inline]
    unsafe fn copy(&self, offset: usize, to: *mut u8, len: usize) -> Result {
        let skb = self.skb.as_ptr();
        let start = offset.wrapping_add(UDP_BYTES);
        // SAFETY: By the safety requirements the bytes are within the payload, and `to` has room.
        // The skb is ours, and the bytes are read only if they end within its linear part.
        unsafe {
            if start.wrapping_add(len) <= linear(skb) {
                bindings::memcpy(to.cast(), (*skb).data.add(start).cast(), len);
                return Ok(());
            }
        }
        // The payload is below 64 KiB.
        let (start, len) = (start as i32, len as i32);
        // SAFETY: By the safety requirements the bytes are within the payload, and `to` has room.
        // The C function tolerates memory that changes meanwhile.
        let ret = unsafe { bindings::skb_copy_bits(skb, start, to.cast(), len) };
        if ret == 0 {
            Ok(())
        } else {
            Err(EFAULT)
        }
    }
}

impl HeldPacket {
    /// Creates a datagram that is kept.
    ///
    /// The invariants of [`Datagram`] must hold, and nobody else may have its skb.
    #[inline]
    pub(super) fn from_parts(datagram: Datagram, charges: Option<[Charge; 2]>) -> Self {
        Self { datagram, charges }
    }

    #[inline]
    pub(super) fn into_parts(self) -> (Datagram, Option<[Charge; 2]>) {
        let mut this = ManuallyDrop::new(self);
        (Datagram { ..**this }, this.charges.take())
    }

    /// The least memory that a datagram is counted with, on machines with pages of any size. A small one may be the
    /// only one that keeps its pages.
    const LEAST_MEMORY: u32 = 8192;

    /// Returns the bytes of its memory, with the kernel's own data. A datagram that came in fragments may have
    /// much. It does not change while the datagram is kept.
    pub fn memory(&self) -> usize {
        self.counted() as usize
    }

    fn counted(&self) -> u32 {
        // SAFETY: The skb is ours.
        unsafe { self.skb.as_ref() }
            .truesize
            .max(Self::LEAST_MEMORY)
    }

    /// Counts its [memory](Self::memory) against each of `shares` until it is freed or
    /// [handled](Self::now).
    ///
    /// # Errors
    ///
    /// The datagram, if one of them has too little left.
    pub fn charged_to(mut self, shares: [&Arc<Share>; 2]) -> Result<Self, Self> {
        let bytes = self.counted();
        let [first, second] = shares;
        let charges = first
            .take(bytes)
            .and_then(|first| Ok([first, second.take(bytes)?]));
        match charges {
            Ok(charges) => {
                self.charges = Some(charges);
                Ok(self)
            }
            Err(_) => Err(self),
        }
    }

    /// Returns the datagram to be handled now. Bottom halves are disabled.
    #[inline]
    pub fn now(self, context: &BhDisabled) -> RxPacket<'_> {
        let (datagram, _charges) = self.into_parts();
        // INVARIANT: It is the same datagram, and nobody else has it.
        RxPacket {
            datagram,
            dev: None,
            is_looped: false,
            context,
        }
    }
}

impl Drop for HeldPacket {
    fn drop(&mut self) {
        // 0 means that the function may not use the CPU's cache of skbs.
        //
        // SAFETY: The reference is ours, and is given up.
        unsafe { bindings::napi_consume_skb(self.skb.as_ptr(), 0) };
    }
}

impl Drop for RxPacket<'_> {
    fn drop(&mut self) {
        // SAFETY: The skb is ours and given up; bottom halves are disabled, as `context` proves.
        unsafe { consume(self.skb) };
    }
}

/// Returns the number of linear bytes of an skb.
///
/// # Safety
///
/// `skb` must be valid, and nobody may be changing its lengths.
#[inline]
unsafe fn linear(skb: *const sk_buff) -> usize {
    // SAFETY: By the safety requirements the skb is valid, and nobody else changes it meanwhile.
    unsafe { (*skb).len.wrapping_sub((*skb).data_len) as usize }
}

/// Frees an skb in a context that may use the CPU's cache of skbs.
///
/// # Safety
///
/// The caller must own `skb` and give it up, and bottom halves must be disabled.
#[inline]
unsafe fn consume(skb: NonNull<sk_buff>) {
    // Any number but 0 means that bottom halves are disabled.
    //
    // SAFETY: By the safety requirements the skb is valid, and nobody else changes it meanwhile.
    unsafe { bindings::napi_consume_skb(skb.as_ptr(), 1) };
}

/// Returns the netdev with `address`, or null.
///
/// # Safety
///
/// `net` must be valid, and this a read side of RCU.
#[cfg(CONFIG_IPV6)]
unsafe fn find_v6(net: *mut bindings::net, address: [u8; 16]) -> *mut bindings::net_device {
    // SAFETY: Zeros are valid for all of it.
    let mut addr: bindings::in6_addr = unsafe { core::mem::zeroed() };
    addr.in6_u.u6_addr8 = address;
    // SAFETY: By the safety requirements the namespace is valid, and this is a read side of RCU.
    // The namespace has addresses only if IPv6 was not disabled at boot.
    unsafe {
        if bindings::ipv6_mod_enabled() {
            bindings::ipv6_dev_find(net, &addr, core::ptr::null_mut())
        } else {
            core::ptr::null_mut()
        }
    }
}

/// # Safety
///
/// None.
#[cfg(not(CONFIG_IPV6))]
unsafe fn find_v6(_net: *mut bindings::net, _address: [u8; 16]) -> *mut bindings::net_device {
    core::ptr::null_mut()
}

/// Returns an IPv6 address in a header, as a GID.
#[inline]
fn gid(bytes: &[u8]) -> [u8; 16] {
    bytes.try_into().unwrap_or_default()
}

/// A walk over the pieces of a datagram.
///
/// # Invariants
///
/// `state` was prepared for the skb of `_packet`.
struct Walk<'a> {
    state: bindings::skb_seq_state,
    _packet: &'a Datagram,
}

impl<'a> Walk<'a> {
    /// Creates a walk from byte `start` to `end` of the skb, which are within it.
    fn new(packet: &'a Datagram, start: usize, end: usize) -> Self {
        // SAFETY: Zeros are valid for all of it.
        let mut state = unsafe { core::mem::zeroed() };
        // SAFETY: The skb is valid. CAST: A datagram is below 64 KiB.
        unsafe {
            kernel::bindings::skb_prepare_seq_read(
                packet.skb.as_ptr(),
                start as u32,
                end as u32,
                &mut state,
            )
        };
        // INVARIANT: Prepared just now.
        Self {
            state,
            _packet: packet,
        }
    }

    /// Returns the piece that starts `done` bytes after the walk's start, where the last one ended.
    /// It may reach beyond the walk's end, and is not empty.
    fn next(&mut self, done: usize) -> Option<(*const u8, usize)> {
        let mut chunk = core::ptr::null();
        // SAFETY: By the type invariants the walk was prepared and is not over. CAST: A datagram is
        // below 64 KiB.
        let len =
            unsafe { kernel::bindings::skb_seq_read(done as u32, &mut chunk, &mut self.state) };
        (len != 0).then_some((chunk, len as usize))
    }
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants the walk was prepared.
        unsafe { kernel::bindings::skb_abort_seq_read(&mut self.state) };
    }
}
