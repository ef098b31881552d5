// SPDX-License-Identifier: GPL-2.0

//! Network devices.

use crate::{
    net::{
        link_local_gid,
        Net, //
    },
    sync::ReadSide, //
};
use core::ptr::NonNull;
use kernel::{
    fmt::{
        self,
        Write as _, //
    },
    sync::{
        aref::{
            ARef,
            AlwaysRefCounted, //
        },
        rcu, //
    },
    types::Opaque, //
};
use rdma_bindings as bindings;

/// A network device, `struct net_device`.
///
/// A reference ([`ARef`]) to one delays its removal: the kernel waits, with warnings, until all are
/// dropped. A long-lived owner keeps a [`NetDeviceSlot`](crate::net::NetDeviceSlot) instead.
///
/// Attributes are snapshots and may change right after; those that are several bytes wide may be
/// torn when they are changed meanwhile. Any context.
#[repr(transparent)]
pub struct NetDevice(Opaque<bindings::net_device>);

// SAFETY: A netdev may be used and released from any thread.
unsafe impl Send for NetDevice {}
// SAFETY: Shared access reads fields that any thread may read at any time.
unsafe impl Sync for NetDevice {}

// SAFETY: `dev_hold` and `dev_put` count references to the netdev, which every netdev has.
unsafe impl AlwaysRefCounted for NetDevice {
    fn inc_ref(&self) {
        // SAFETY: The reference proves that the netdev is valid.
        unsafe { bindings::dev_hold(self.as_raw()) };
    }

    /// # Safety
    ///
    /// The caller must own a reference, which it gives up.
    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller gives up a reference, and does not use the netdev afterwards.
        unsafe { bindings::dev_put(obj.cast().as_ptr()) };
    }
}

impl NetDevice {
    /// Hardware type of Ethernet.
    pub const ETHERNET: u16 = 1;
    /// Hardware type of the loopback device.
    pub const LOOPBACK: u16 = 772;
    /// Hardware type of devices without a link layer, such as tunnels of IP.
    pub const NONE: u16 = 0xfffe;

    /// # Safety
    ///
    /// `dev` must be valid for `'a`.
    pub(crate) unsafe fn from_raw<'a>(dev: *mut bindings::net_device) -> &'a Self {
        // SAFETY: `NetDevice` is transparent, and by the safety requirements `dev` is valid for
        // `'a`.
        unsafe { &*dev.cast() }
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::net_device {
        self.0.get()
    }

    /// Returns an owned reference.
    pub fn hold(&self) -> ARef<Self> {
        self.into()
    }

    /// Returns true if both are the same device.
    #[inline]
    pub fn is(&self, other: &Self) -> bool {
        core::ptr::eq(self, other)
    }

    /// Returns its number, unique within its namespace; at least 1.
    #[inline]
    pub fn ifindex(&self) -> u32 {
        // SAFETY: The netdev is valid.
        unsafe { bindings::netdev_ifindex(self.as_raw()) }.unsigned_abs()
    }

    /// Returns the length of the largest network-layer packet, in bytes.
    pub fn mtu(&self) -> u32 {
        // SAFETY: The netdev is valid.
        unsafe { bindings::netdev_mtu(self.as_raw()) }
    }

    /// Returns its hardware type, one of `ARPHRD_*`.
    pub fn hardware_type(&self) -> u16 {
        // SAFETY: The netdev is valid.
        unsafe { bindings::netdev_type(self.as_raw()) }
    }

    /// Returns its hardware address, or zeros if it has none, or one that is not 6 bytes long.
    pub fn address(&self) -> [u8; 6] {
        let mut address = [0; 6];
        // SAFETY: The netdev is valid.
        if usize::from(unsafe { bindings::netdev_addr_len(self.as_raw()) }) == address.len() {
            // SAFETY: The netdev has an address of 6 bytes, for which there is room.
            unsafe { bindings::netdev_copy_address(self.as_raw(), address.as_mut_ptr()) };
        }
        address
    }

    /// Returns its default GID, which the core puts at index 0 of the table: the link-local IPv6
    /// address that its hardware address makes. Returns `None` if that is not 6 bytes long.
    pub fn default_gid(&self) -> Option<[u8; 16]> {
        let mut identifier = [0; 8];
        // SAFETY: The netdev is valid, and `identifier` has room for 8 bytes.
        let ret = unsafe { bindings::addrconf_ifid_eui48(identifier.as_mut_ptr(), self.as_raw()) };
        (ret == 0).then(|| link_local_gid(identifier))
    }

    /// Returns true if the IPv6 stack has this address here and uses it. The stack does not use an
    /// address that it still checks for duplicates.
    #[cfg(CONFIG_IPV6)]
    pub fn has_ipv6(&self, address: [u8; 16]) -> bool {
        // SAFETY: Zeros are valid for all of it.
        let mut addr: bindings::in6_addr = unsafe { core::mem::zeroed() };
        addr.in6_u.u6_addr8 = address;
        let _rcu = rcu::read_lock();
        // SAFETY: The netdev is valid, and in this read side its namespace is. The namespace has
        // addresses only if IPv6 was not disabled at boot.
        unsafe {
            let net = bindings::dev_net_rcu(self.as_raw());
            bindings::ipv6_mod_enabled()
                && bindings::ipv6_chk_addr(net, &addr, self.as_raw(), 1) != 0
        }
    }

    /// Returns false, as there is no address without IPv6.
    #[cfg(not(CONFIG_IPV6))]
    pub fn has_ipv6(&self, _address: [u8; 16]) -> bool {
        false
    }

    /// Returns true if the IPv6 stack has the [default GID](Self::default_gid) and uses it.
    pub fn has_default_gid(&self) -> bool {
        self.default_gid().is_some_and(|gid| self.has_ipv6(gid))
    }

    /// Returns a number that changes whenever the result of [`has_ipv6`](Self::has_ipv6) may
    /// change.
    #[cfg(CONFIG_IPV6)]
    pub(super) fn ipv6_generation(&self) -> i32 {
        let _rcu = rcu::read_lock();
        // SAFETY: The netdev is valid, and in this read side its namespace is.
        unsafe { bindings::ipv6_dev_addr_genid(bindings::dev_net_rcu(self.as_raw())) }
    }

    /// Returns a constant, as there is no address without IPv6.
    #[cfg(not(CONFIG_IPV6))]
    pub(super) fn ipv6_generation(&self) -> i32 {
        0
    }

    /// Returns the room that a packet needs in front for this netdev's header.
    pub(super) fn headroom(&self) -> u32 {
        // SAFETY: The netdev is valid.
        unsafe { bindings::LL_RESERVED_SPACE(self.as_raw()) }
    }

    /// Returns its name.
    pub fn name(&self) -> Name {
        let mut name = [0; Name::BYTES];
        // SAFETY: The netdev is valid, and `name` has room for a name.
        unsafe { bindings::netdev_copy_name(self.as_raw(), name.as_mut_ptr()) };
        // INVARIANT: The last byte is 0, even if the name changed during the copy.
        name[Name::BYTES - 1] = 0;
        Name(name)
    }

    /// Returns true if it is set up.
    pub fn is_up(&self) -> bool {
        // SAFETY: The netdev is valid.
        unsafe { bindings::netif_running(self.as_raw()) }
    }

    /// Returns true if its link is there.
    pub fn has_carrier(&self) -> bool {
        // SAFETY: The netdev is valid.
        unsafe { bindings::netif_carrier_ok(self.as_raw()) }
    }

    /// Returns true if it is the loopback device of its namespace.
    pub fn is_loopback(&self) -> bool {
        self.hardware_type() == Self::LOOPBACK
    }

    /// Returns true if it is registered: known by name to its namespace, and not being removed.
    pub fn is_registered(&self) -> bool {
        // SAFETY: The netdev is valid.
        unsafe { bindings::netdev_is_registered(self.as_raw()) }
    }

    /// Returns true if it is registered, and not on its way to another namespace. It leaves this state
    /// before the notifier of its removal from its namespace.
    pub fn is_staying(&self) -> bool {
        // SAFETY: The netdev is valid.
        self.is_registered() && !unsafe { bindings::netdev_is_moving(self.as_raw()) }
    }

    /// Returns true if it is a pure software device without a lower device. It has no queues, and passes
    /// each frame to a receiver on this machine.
    pub fn is_local(&self) -> bool {
        // SAFETY: The netdev is valid.
        unsafe { bindings::netdev_is_local(self.as_raw()) }
    }

    /// Returns the number of its VLAN, if it is one.
    pub fn vlan_id(&self) -> Option<u16> {
        // SAFETY: The netdev is valid.
        if !unsafe { bindings::is_vlan_dev(self.as_raw()) } {
            return None;
        }
        // SAFETY: It is valid, and a VLAN.
        Some(unsafe { bindings::vlan_dev_vlan_id(self.as_raw()) })
    }

    /// Returns the device that carries this one's frames with a VLAN tag, if it is a VLAN; the
    /// lowest one, if they are stacked.
    pub fn vlan_lower(&self) -> Option<&Self> {
        // SAFETY: The netdev is valid.
        if !unsafe { bindings::is_vlan_dev(self.as_raw()) } {
            return None;
        }
        // SAFETY: It is a VLAN. A VLAN holds its lower device until it is freed itself.
        Some(unsafe { Self::from_raw(bindings::vlan_dev_real_dev(self.as_raw())) })
    }

    /// Returns true if it is in the namespace of `other`. Any context.
    pub fn is_beside(&self, other: &Self) -> bool {
        let _rcu = rcu::read_lock();
        // SAFETY: Both netdevs are valid, and this is a read side of RCU.
        unsafe { bindings::dev_net_rcu(self.as_raw()) == bindings::dev_net_rcu(other.as_raw()) }
    }

    /// Returns the netdev with this number in the same namespace. Any context.
    pub fn beside<'g>(&self, ifindex: u32, _guard: &'g impl ReadSide) -> Option<&'g Self> {
        let ifindex = i32::try_from(ifindex).ok()?;
        let _rcu = rcu::read_lock();
        // SAFETY: The netdev is valid, and in this read side its namespace is. The result is null or
        // valid in the read side in which it was found, which `_guard` proves to last for `'g`.
        unsafe {
            let net = bindings::dev_net_rcu(self.as_raw());
            let found = bindings::dev_get_by_index_rcu(net, ifindex);
            (!found.is_null()).then(|| Self::from_raw(found))
        }
    }

    /// Returns true if it is above another device, as far as is known without the RTNL. Any context.
    pub fn has_lower(&self) -> bool {
        // SAFETY: The netdev is valid.
        unsafe { bindings::netdev_has_lower(self.as_raw()) }
    }

    /// Returns true if `upper` is above this device: a bond or a bridge that it belongs to, a VLAN or
    /// macvlan on it, and so on. Others may be between the two. Any context.
    pub fn is_below(&self, upper: &Self) -> bool {
        let _rcu = rcu::read_lock();
        // SAFETY: Both netdevs are valid, and this is a read side of RCU.
        unsafe { bindings::netdev_has_upper_dev_all_rcu(self.as_raw(), upper.as_raw()) }
    }

    /// Returns its namespace, unless that is being removed.
    pub fn net(&self) -> Option<ARef<Net>> {
        let _rcu = rcu::read_lock();
        // SAFETY: The netdev is valid.
        let net = NonNull::new(unsafe { bindings::dev_net_rcu(self.as_raw()) })?;
        // SAFETY: A namespace outlives the read side in which a netdev refers to it. It also
        // outlives its netdevs, and this one is not freed.
        unsafe { Net::try_hold(net) }
    }
}

/// The name of a [`NetDevice`].
///
/// # Invariants
///
/// The last byte is 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name([u8; Self::BYTES]);

impl Name {
    const BYTES: usize = 16;

    /// Returns the bytes of the name, without the zeros behind it.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or(&[])
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes()
            .iter()
            .try_for_each(|byte| f.write_char(char::from(*byte)))
    }
}
