// SPDX-License-Identifier: GPL-2.0

//! Attaches devices to the network namespaces of their netdevs: packets arrive as long as that lasts.

use core::ops::Deref;

use kernel::prelude::*;
use kernel::sync::{new_mutex, Arc, Mutex};
use rdma::errno::{EAFNOSUPPORT, EOPNOTSUPP};
use rdma::net::{DefaultGid, Family, NetDevice, PerNet, PerNetRef, Tunnel, ROCE_PORT};
use rdma::timer::TimerGuard;

use crate::device::Device;
use crate::qp::Shared;
use crate::rx::Ingress;

/// A device, reachable from the network as long as this exists.
pub(crate) struct Attached {
    device: Arc<Device>,
    ifindex: u32,
    // Dropped in this order.
    _default_gid: Option<DefaultGid<Ingress>>,
    sockets: Entered,
    _sweep_timer: TimerGuard<Shared>,
}

impl Attached {
    /// Attaches a device to a netdev. May sleep.
    ///
    /// # Errors
    ///
    /// `EEXIST` if the netdev has a device already, `EADDRINUSE` if another user has UDP port 4791 in its
    /// namespace.
    pub(crate) fn new(
        namespace: &PerNetRef<'_, Namespace>,
        netdev: &NetDevice,
        device: Arc<Device>,
    ) -> Result<Self> {
        let ingress = namespace.sockets.ingress.clone();
        let ifindex = netdev.ifindex();
        let place = ingress.devices.reserve_at(ifindex).map_err(|error| {
            if error == EBUSY {
                EEXIST
            } else {
                error
            }
        })?;
        let sockets = Sockets::enter(namespace)?;
        let default_gid = default_gid(netdev, &ingress)?;
        let sweep_timer = TimerGuard::new(device.shared.clone())?;
        place.publish(device.clone())?;
        Ok(Self {
            device,
            ifindex,
            _default_gid: default_gid,
            sockets,
            _sweep_timer: sweep_timer,
        })
    }
}

/// Receives packets for the netdev's default GID, regardless of the IPv6 stack.
fn default_gid(netdev: &NetDevice, ingress: &Arc<Ingress>) -> Result<Option<DefaultGid<Ingress>>> {
    match DefaultGid::serve(netdev, ingress.clone()) {
        Ok(default_gid) => Ok(Some(default_gid)),
        // A kernel without the hook for that. The GID works while the IPv6 stack has the address.
        Err(error) if error == EOPNOTSUPP => Ok(None),
        Err(error) => Err(error),
    }
}

impl Deref for Attached {
    type Target = Arc<Device>;

    fn deref(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.sockets.0.ingress.devices.remove(self.ifindex);
    }
}

/// The state of a network namespace.
#[pin_data]
pub(crate) struct Namespace {
    sockets: Arc<Sockets>,
}

impl PerNet for Namespace {
    fn init() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            sockets: Arc::pin_init(Sockets::new()?, GFP_KERNEL)?,
        })
    }
}

/// The sockets of a namespace, which are open as long as there is a link.
#[pin_data]
struct Sockets {
    ingress: Arc<Ingress>,
    #[pin]
    open: Mutex<Option<Open>>,
}

/// Sockets that are open.
struct Open {
    links: usize,
    _v4: Tunnel<Ingress>,
    _v6: Option<Tunnel<Ingress>>,
}

impl Sockets {
    fn new() -> Result<impl PinInit<Self, Error>> {
        let ingress = Arc::pin_init(Ingress::new(), GFP_KERNEL)?;
        Ok(try_pin_init!(Self {
            ingress,
            open <- new_mutex!(None, "ferroce::Sockets::open"),
        }))
    }

    /// Counts one more link, the first of which opens the sockets.
    fn enter(namespace: &PerNetRef<'_, Namespace>) -> Result<Entered> {
        let this = &namespace.sockets;
        let mut open = this.open.lock();
        if let Some(open) = &mut *open {
            open.links = open.links.saturating_add(1);
            return Ok(Entered(this.clone()));
        }
        let bind = |family| Tunnel::open(namespace, family, ROCE_PORT, this.ingress.clone());
        let v4 = bind(Family::V4)?;
        let v6 = match bind(Family::V6) {
            Ok(v6) => Some(v6),
            // The kernel has no IPv6, or it is disabled: IPv4 is there nevertheless.
            Err(error) if error == EAFNOSUPPORT => None,
            Err(error) => return Err(error),
        };
        *open = Some(Open {
            links: 1,
            _v4: v4,
            _v6: v6,
        });
        Ok(Entered(this.clone()))
    }

    /// Counts one link less, the last of which closes the sockets.
    fn leave(&self) {
        let mut open = self.open.lock();
        if let Some(sockets) = &mut *open {
            sockets.links = sockets.links.saturating_sub(1);
            if sockets.links == 0 {
                *open = None;
            }
        }
    }
}

/// A link that is counted by its namespace's sockets.
struct Entered(Arc<Sockets>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.leave();
    }
}
