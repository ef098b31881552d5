// SPDX-License-Identifier: GPL-2.0

//! Links: a device over a netdev, from `rdma link add` to the end of either.

use core::ptr;

use kernel::prelude::*;
use kernel::sync::Arc;
use rdma::ah::Gids;
use rdma::device::{Device as IbDevice, NodeAttr};
use rdma::errno::{EADDRINUSE, EOPNOTSUPP};
use rdma::link::{for_each_device, Link, LinkName, NewDevice, StandIn};
use rdma::net::{Net, NetDevice, NetdevEvent, NetdevEvents, PerNetRegistration};
use rdma::sync::Global;

use crate::attach::{Attached, Namespace};
use crate::device::Device;
use crate::keys::LOCAL_DMA_LKEY;
use crate::queues::Queues;
use crate::steering::Senders;
use crate::verbs::{port, Verbs};

/// The state of the module.
pub(crate) struct State {
    pub(crate) namespaces: PerNetRegistration<Namespace>,
    pub(crate) queues: Arc<Queues>,
    pub(crate) senders: Arc<Senders>,
}

impl State {
    /// Makes it. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let state = Self {
            namespaces: PerNetRegistration::new()?,
            queues: Arc::new(Queues::new()?, GFP_KERNEL)?,
            senders: Arc::new(Senders::new()?, GFP_KERNEL)?,
        };
        Ok(Arc::new(state, GFP_KERNEL)?)
    }
}

/// The instance that links use.
pub(crate) static STATE: Global<State> = Global::new();

impl Link for Verbs {
    const TYPE: &'static CStr = c"ferroce";

    fn newlink(name: LinkName<'_>, netdev: &NetDevice) -> Result {
        open(name, netdev)
    }

    fn dellink(device: &IbDevice<Self>) {
        device.leave();
    }
}

/// Registers links of type `rxe`, instead of the kernel's own driver. May sleep.
///
/// # Errors
///
/// `EBUSY` if that driver is loaded, `EEXIST` if the kernel has it built in, `ENOMEM`.
pub(crate) fn stand_in_for_rxe(module: &'static ThisModule) -> Result<StandIn<Verbs>> {
    StandIn::register(module, c"rxe", c"rdma_rxe").inspect_err(|error| {
        let what_helps = if *error == EBUSY {
            "rdma_rxe is loaded: rmmod rdma_rxe, or load this without as_rxe"
        } else if *error == EEXIST {
            "the kernel has it already: load this without as_rxe"
        } else {
            "no memory"
        };
        pr_err!("cannot make links of type rxe: {}\n", what_helps);
    })
}

/// Makes a device called `name` over `netdev`. May sleep.
///
/// # Errors
///
/// `EOPNOTSUPP` for a netdev that is not like Ethernet or is a VLAN, `EEXIST` if it has a device
/// already or the name is taken, `EADDRINUSE` if another user has UDP port 4791 in its namespace,
/// `ENODEV` if it is on its way out.
fn open(name: LinkName<'_>, netdev: &NetDevice) -> Result {
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

    let device = Device::new(netdev, state.queues.clone(), state.senders.clone())?;
    let shared = device.shared.clone();
    let node = NodeAttr {
        node_guid: device.node_guid,
        node_desc: b"ferroce",
        comp_vectors: kernel::cpu::nr_cpu_ids(),
        local_dma_lkey: LOCAL_DMA_LKEY.0,
    };
    let attached = Attached::new(&namespace, netdev, device)?;
    let device = NewDevice::<Verbs>::new(&net, attached, node)?
        .register(name)
        // The core's error for a name in use does not tell a user the reason.
        .map_err(|error| if error == ENFILE { EEXIST } else { error })?;
    if let Some(device) = device.try_get() {
        device.set_gids(Gids::of(&device));
    }
    // Events of the netdev reach registered devices alone, so its removal may have gone unnoticed.
    let is_there = |now: &Net| ptr::eq(now, &*net) && shared.port.netdev().is_ok();
    if !netdev.net().is_some_and(|now| is_there(&now)) {
        if let Some(device) = device.try_get() {
            device.leave();
            device.unregister();
        }
        return Err(ENODEV);
    }
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

/// Handles events of netdevs.
pub(crate) struct Events;

impl NetdevEvents for Events {
    fn event(&self, event: NetdevEvent, netdev: &NetDevice) {
        for_each_device::<Verbs>(|device| {
            if !device.shared.port.netdev().is_ok_and(|own| own.is(netdev)) {
                return;
            }
            match event {
                NetdevEvent::Unregister => port::remove(device),
                NetdevEvent::Up | NetdevEvent::Down | NetdevEvent::Change => {
                    port::tell_state(device, netdev);
                }
                _ => {}
            }
        });
    }
}

/// A name for the log. Bytes that are not text are escaped.
struct Text<'a>(&'a [u8]);

impl kernel::fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut kernel::fmt::Formatter<'_>) -> kernel::fmt::Result {
        use kernel::fmt::Write;
        self.0
            .escape_ascii()
            .try_for_each(|byte| f.write_char(char::from(byte)))
    }
}
