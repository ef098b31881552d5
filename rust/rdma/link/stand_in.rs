// SPDX-License-Identifier: GPL-2.0

//! Standing in for another driver: its link type makes our devices.

use super::{
    newlink_callback,
    Link, //
};
use crate::module::Hold;
use core::{
    marker::{
        PhantomData,
        PhantomPinned, //
    },
    pin::Pin, //
};
use kernel::{
    error::to_result,
    ffi::{
        c_int,
        c_void, //
    },
    prelude::*,
    types::Opaque, //
};
use rdma_bindings as bindings;

/// Makes links of another driver's type by the driver `T`, and keeps that driver's module from
/// being loaded.
///
/// The core accepts a type once. It warns about a second registration, and follows a null pointer
/// when that registration ends. So the two modules must not meet.
///
/// Dropping it may sleep. Devices that were made stay.
pub struct StandIn<T: Link> {
    // Dropped in this order.
    _link_type: LinkType,
    _refusal: Refusal,
    _driver: PhantomData<T>,
}

impl<T: Link> StandIn<T> {
    /// Registers `link_type` for the driver `T`, which is `module`, and refuses the module called
    /// `other`. May sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if `other` is there, `EEXIST` if something else has that type, `ENOMEM`, `ENODEV` if
    /// our module is being unloaded.
    pub fn register(
        module: &'static ThisModule,
        link_type: &'static CStr,
        other: &'static CStr,
    ) -> Result<Self> {
        // From here on the module cannot be loaded, so the check comes afterwards.
        let refusal = Refusal::of(other)?;
        if is_loaded(module, other) {
            return Err(EBUSY);
        }
        Ok(Self {
            _link_type: LinkType::register(link_type, newlink_callback::<T>)?,
            _refusal: refusal,
            _driver: PhantomData,
        })
    }
}

/// Returns true if there is a module called `name`, beside `module`.
fn is_loaded(module: &'static ThisModule, name: &CStr) -> bool {
    // SAFETY: `module` is alive, and in the set of all modules before any of its code runs. The name is a
    // string.
    let object = unsafe {
        let all = (*module.as_ptr()).mkobj.kobj.kset;
        if all.is_null() {
            return false;
        }
        bindings::kset_find_obj(all, name.as_char_ptr())
    };
    if object.is_null() {
        return false;
    }
    // SAFETY: The reference was taken above.
    unsafe { bindings::kobject_put(object) };
    true
}

type Newlink = unsafe extern "C" fn(*const kernel::ffi::c_char, *mut bindings::net_device) -> c_int;

/// A link type beside that of the driver's registration. Its devices are deleted like others.
///
/// # Invariants
///
/// It is registered with the core.
struct LinkType(Pin<KBox<Opaque<bindings::rdma_link_ops>>>);

// SAFETY: The core synchronises its use of the operations, and this crate only passes their
// address.
unsafe impl Send for LinkType {}
// SAFETY: Shared access reads nothing but the address of the link type.
unsafe impl Sync for LinkType {}

impl LinkType {
    fn register(name: &'static CStr, newlink: Newlink) -> Result<Self> {
        // SAFETY: A zeroed `rdma_link_ops` is a valid one.
        let mut ops: bindings::rdma_link_ops = unsafe { core::mem::zeroed() };
        ops.type_ = name.as_char_ptr();
        ops.newlink = Some(newlink);
        let ops = KBox::pin(Opaque::new(ops), GFP_KERNEL)?;
        // SAFETY: The operations stay in place until they are unregistered by `drop`. Only the list
        // tells whether the core added them, as the function returns nothing.
        let listed = unsafe {
            bindings::rdma_link_register(ops.get());
            !(&raw const (*ops.get()).list.next)
                .read_volatile()
                .is_null()
        };
        if !listed {
            return Err(EEXIST);
        }
        // INVARIANT: The operations are in the core's list.
        Ok(Self(ops))
    }
}

impl Drop for LinkType {
    fn drop(&mut self) {
        // SAFETY: By the type invariants it is registered. This waits for `newlink` to return.
        unsafe { bindings::rdma_link_unregister(self.0.get()) };
    }
}

/// Keeps a module from being loaded.
///
/// # Invariants
///
/// The block is registered with the kernel.
struct Refusal {
    block: Pin<KBox<Block>>,
    _hold: Hold,
}

#[pin_data]
struct Block {
    #[pin]
    block: Opaque<bindings::notifier_block>,
    name: &'static CStr,
    #[pin]
    _pin: PhantomPinned,
}

// SAFETY: A notifier block may be unregistered from any thread.
unsafe impl Send for Block {}
// SAFETY: The kernel alone uses the block, and synchronises that. The rest is `Sync`.
unsafe impl Sync for Block {}

impl Refusal {
    /// # Errors
    ///
    /// `ENOMEM`, `ENODEV` if our module is being unloaded.
    fn of(name: &'static CStr) -> Result<Self> {
        let hold = Hold::new()?;
        let block = KBox::pin_init(
            pin_init!(Block {
                block: Opaque::new(bindings::notifier_block {
                    notifier_call: Some(Block::call),
                    next: core::ptr::null_mut(),
                    priority: 0,
                }),
                name,
                _pin: PhantomPinned,
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: The block is filled in and pinned; it is unregistered before it is dropped.
        to_result(unsafe { bindings::register_module_notifier(block.block.get()) })?;
        // INVARIANT: Registered just now.
        Ok(Self { block, _hold: hold })
    }
}

impl Drop for Refusal {
    fn drop(&mut self) {
        // It fails only for blocks that are not registered.
        //
        // SAFETY: By the type invariants the block is registered.
        unsafe { bindings::unregister_module_notifier(self.block.block.get()) };
    }
}

impl Block {
    /// # Safety
    ///
    /// Only the kernel may call it, on a block that was registered, with a module.
    unsafe extern "C" fn call(
        block: *mut bindings::notifier_block,
        event: usize,
        module: *mut c_void,
    ) -> c_int {
        // CAST: The constants are 1.
        const OK: c_int = bindings::NOTIFY_OK as c_int;
        const COMING: usize = bindings::module_state_MODULE_STATE_COMING as usize;

        if event != COMING {
            return OK;
        }
        // SAFETY: The kernel passes the block that was registered, which is the field of a `Block`
        // that is alive until it is unregistered.
        let this = unsafe {
            &*kernel::container_of!(Opaque::cast_from(block).cast_mut(), Self, block).cast_const()
        };
        // SAFETY: The kernel passes a module that is being loaded. Its name does not change.
        let name = unsafe { &(*module.cast::<bindings::module>()).name };
        let name = name.iter().take_while(|byte| **byte != 0);
        if !name.eq(this.name.to_bytes()) {
            return OK;
        }
        pr_notice!("{} is kept out: its links are made here\n", this.name);
        // SAFETY: The function takes any error number.
        unsafe { bindings::notifier_from_errno(EBUSY.to_errno()) }
    }
}
