// SPDX-License-Identifier: GPL-2.0

//! Links: a device over a netdev, from `rdma link add` to the end of either.

use core::ops::Deref;

use kernel::prelude::*;
use kernel::sync::{new_mutex, Arc, Mutex};
use rdma::device::{NewDevice, NodeAttr, PortEvent};
use rdma::errno::{EADDRINUSE, EAFNOSUPPORT, EOPNOTSUPP};
use rdma::link::{for_each_device, LinkName};
use rdma::net::{
    DefaultGid, Family, NetDevice, NetdevEvent, NetdevEvents, PerNet, PerNetRef,
    PerNetRegistration, Tunnel, ROCE_PORT,
};
use rdma::sync::Global;
use rdma::timer::TimerGuard;

use crate::device::{Device, Queues, PORT};
use crate::keys::LOCAL_DMA_LKEY;
use crate::rx::Ingress;
use crate::stats::Counter;
use crate::verbs::Verbs;

/// What the module has one of.
pub(crate) struct State {
    pub(crate) namespaces: PerNetRegistration<Namespace>,
    pub(crate) queues: Arc<Queues>,
}

/// Where links find it.
pub(crate) static STATE: Global<State> = Global::new();

/// Makes a device called `name` over `netdev`. May sleep.
///
/// # Errors
///
/// `EOPNOTSUPP` for a netdev that is not like Ethernet or is a VLAN, `EEXIST` if it has a device
/// already or the name is taken, `EADDRINUSE` if somebody else has UDP port 4791 in its namespace,
/// `ENODEV` if it is on its way out.
pub(crate) fn open(name: LinkName<'_>, netdev: &NetDevice) -> Result {
    try_open(name, netdev).inspect_err(|error| explain(name, netdev, *error))
}

fn try_open(name: LinkName<'_>, netdev: &NetDevice) -> Result {
    if !matches!(
        netdev.hardware_type(),
        NetDevice::ETHERNET | NetDevice::LOOPBACK
    ) || netdev.vlan_lower().is_some()
    {
        return Err(EOPNOTSUPP);
    }
    let state = STATE.get().ok_or(ENODEV)?;
    let net = netdev.net().ok_or(ENODEV)?;
    let namespace = state.namespaces.get(&net).ok_or(ENODEV)?;

    let device = Device::new(netdev, state.queues.clone())?;
    let node = NodeAttr {
        node_guid: device.node_guid,
        comp_vectors: kernel::cpu::nr_cpu_ids(),
        local_dma_lkey: LOCAL_DMA_LKEY,
    };
    let attached = Attached::new(&namespace, netdev, device)?;
    NewDevice::<Verbs>::new(netdev, attached, node)?
        .register(name)
        // What the core says of a name that is in use tells a user nothing.
        .map_err(|error| if error == ENFILE { EEXIST } else { error })?;
    pr_info!(
        "{}: RoCEv2 on {}\n",
        Text(name.as_bytes()),
        Text(netdev.name().as_bytes())
    );
    Ok(())
}

/// Says in the log why a link was refused: netlink tells the user no more than the error's number.
fn explain(name: LinkName<'_>, netdev: &NetDevice, error: Error) {
    let why = match error {
        error if error == EOPNOTSUPP => "not an Ethernet-like device of its own",
        error if error == EEXIST => "it has a device already, or that name is in use",
        error if error == EADDRINUSE => "UDP port 4791 is taken in its network namespace",
        error if error == ENODEV => "it is being removed",
        _ => "no device could be made",
    };
    pr_notice!(
        "cannot make {} on {}: {} ({:?})\n",
        Text(name.as_bytes()),
        Text(netdev.name().as_bytes()),
        why,
        error
    );
}

/// A device, reachable from the network as long as this exists.
pub(crate) struct Attached {
    device: Arc<Device>,
    ifindex: u32,
    // Dropped in this order.
    _default_gid: Option<DefaultGid<Ingress>>,
    sockets: Entered,
    _sweep_timer: TimerGuard<Device>,
}

impl Attached {
    fn new(
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
        let sweep_timer = TimerGuard::new(device.clone())?;
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

/// Has packets for the netdev's default GID arrive, whatever the IPv6 stack thinks of it.
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

/// What goes with a network namespace.
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

/// What devices do when something happens to their netdevs.
pub(crate) struct Events;

impl NetdevEvents for Events {
    fn event(&self, event: NetdevEvent, netdev: &NetDevice) {
        for_each_device::<Verbs>(|device| {
            if !device.netdev.get().is_some_and(|own| own.is(netdev)) {
                return;
            }
            match event {
                NetdevEvent::Unregister => {
                    device.leave();
                    device.unregister_queued();
                }
                NetdevEvent::Up | NetdevEvent::Down | NetdevEvent::Change => {
                    let Some(active) = device.update_active(netdev) else {
                        return;
                    };
                    if !active {
                        device.stats.count(Counter::LinkDowned);
                    }
                    let event = if active {
                        PortEvent::Active
                    } else {
                        PortEvent::Error
                    };
                    device.dispatch_port_event(PORT.into(), event);
                }
                _ => {}
            }
        });
    }
}

/// A name for the log: what is not text in it is escaped.
struct Text<'a>(&'a [u8]);

impl kernel::fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut kernel::fmt::Formatter<'_>) -> kernel::fmt::Result {
        use kernel::fmt::Write;
        self.0
            .escape_ascii()
            .try_for_each(|byte| f.write_char(char::from(byte)))
    }
}
