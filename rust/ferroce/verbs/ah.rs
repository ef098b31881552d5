// SPDX-License-Identifier: GPL-2.0

//! Address handles.

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::prelude::*;
use kernel::sync::Arc;
use rdma::ah::{udp_sport, AhAttr, AhInfo};
use rdma::net::{Flow, Path};
use rdma::object::Pd as IbPd;
use rdma::share::Charge;
use rdma::sync::IrqSpinLock;
use rdma::udata::Udata;
use roce::abi::AddressVector;
use roce::num::Qpn;

use super::Verbs;
use crate::ah::{Ah, Destination};
use crate::port::PORT;
use crate::qp::Shared;
use crate::table::{PdId, AH_NUMBERS};

/// The driver's side of an address handle of the core.
pub(crate) enum Handle {
    /// A process's: its work requests name it by a number.
    Process(Numbered),
    /// The kernel's, which may create, change and destroy it in any context: no more than an address,
    /// that goes into each work request.
    Kernel(Pin<KBox<Address>>),
}

/// The destination of a process's datagrams.
pub(crate) struct Numbered {
    number: u32,
    _charges: Option<[Charge; 2]>,
    shared: Arc<Shared>,
    ah: Arc<Ah>,
}

/// The destination of the kernel's datagrams.
#[pin_data]
pub(crate) struct Address {
    pd: PdId,
    #[pin]
    info: IrqSpinLock<AhInfo>,
}

/// Creates an address handle, and tells a process its number: `struct rxe_create_ah_resp`. Any
/// context if the kernel calls.
///
/// # Errors
///
/// Those of [`AhAttr::resolve`] and [`Path::new`], and `EBUSY` if all numbers are in use, for a
/// process; `ENOMEM`, also if it has too many.
pub(super) fn create(pd: &IbPd<Verbs>, attr: &AhAttr<'_>, udata: &mut Udata<'_>) -> Result<Handle> {
    const RESPONSE_BYTES: usize = 8;

    if !udata.is_user() {
        let address = pin_init!(Address {
            pd: pd.id(),
            info <- rdma::new_irq_spinlock!(attr.info(), "ferroce::ah::Address"),
        });
        return Ok(Handle::Kernel(KBox::pin_init(address, GFP_ATOMIC)?));
    }
    let shared = pd.device().shared.clone();
    let context = pd.ucontext();
    let charges = context.map(|context| context.take_ah()).transpose()?;
    let place = shared.objects.ahs.reserve(AH_NUMBERS)?;
    let number = place.id();
    let ah = Arc::pin_init(
        Ah::new(pd.id(), destination(attr, number)?),
        GFP_KERNEL_ACCOUNT,
    )?;

    let mut response = [0; RESPONSE_BYTES];
    if let Some(to) = response.first_chunk_mut() {
        *to = number.to_ne_bytes();
    }
    udata.respond(&response)?;
    place.publish(ah.clone())?;
    Ok(Handle::Process(Numbered {
        number,
        _charges: charges,
        shared: shared.clone(),
        ah,
    }))
}

/// Returns where `attr` leads from the address handle of that number.
fn destination(attr: &AhAttr<'_>, number: u32) -> Result<Destination> {
    let info = attr.resolve()?;
    // Which queue pairs will send by it is not known: its number stands for them, so that address
    // handles have different ports.
    let ends = Qpn::new(number).get();
    let flow = Flow {
        local: attr.sgid(),
        remote: info.dgid,
        traffic_class: info.traffic_class,
        hop_limit: info.hop_limit,
        flow_label: info.flow_label,
        source_port: udp_sport(info.flow_label, ends, ends),
        mac: (info.dmac != [0; 6]).then_some(info.dmac),
    };
    let path = Path::new(&*attr.netdev()?, flow)?;
    Ok(Destination { info, path })
}

impl Handle {
    /// Returns where it leads.
    pub(super) fn info(&self) -> AhInfo {
        match self {
            Self::Process(numbered) => numbered.ah.info(),
            Self::Kernel(address) => *address.info.lock(),
        }
    }

    /// Returns the address vector for work requests of the kernel. Returns `None` for an address
    /// handle of a process, or of another protection domain than `pd`. Any context.
    pub(super) fn vector(&self, pd: PdId) -> Option<AddressVector> {
        let Self::Kernel(address) = self else {
            return None;
        };
        let info = *address.info.lock();
        (address.pd == pd).then_some(AddressVector {
            port: PORT,
            sgid_index: info.sgid_index,
            dgid: info.dgid,
            flow_label: info.flow_label,
            hop_limit: info.hop_limit,
            traffic_class: info.traffic_class,
        })
    }

    /// Changes the destination. Any context if it is the kernel's.
    ///
    /// # Errors
    ///
    /// Those of [`AhAttr::resolve`] and [`Path::new`], for a process.
    pub(super) fn modify(&self, attr: &AhAttr<'_>) -> Result {
        match self {
            Self::Process(numbered) => numbered.ah.replace(destination(attr, numbered.number)?),
            Self::Kernel(address) => *address.info.lock() = attr.info(),
        }
        Ok(())
    }

    /// Removes it. Datagrams that are being sent by it still go to its destination.
    pub(super) fn destroy(&self) {
        if let Self::Process(numbered) = self {
            numbered.shared.objects.ahs.remove(numbered.number);
        }
    }
}
