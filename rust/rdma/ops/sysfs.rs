// SPDX-License-Identifier: GPL-2.0

//! Attributes of a device in sysfs, in `/sys/class/infiniband/DEVICE`.
//!
//! The core prefers netlink for new attributes, but the current `rdma` tool does not know these.
//! Programs look for `parent` here.

use super::{
    Operations,
    MAX_DSCP, //
};
use crate::device::Device;
use core::ptr;
use kernel::{
    bindings::{
        attribute,
        device,
        device_attribute, //
    },
    error::from_result,
    ffi::c_char,
    prelude::*, //
};
use rdma_bindings as bindings;

/// Room for the text of an attribute.
const TEXT_BYTES: usize = kernel::page::PAGE_SIZE;

/// The attributes of the driver `T`.
pub(super) struct Attributes<T>(core::marker::PhantomData<T>);

/// Pointers to constant data.
struct List([*const attribute; 4]);

// SAFETY: Nothing is written through the pointers.
unsafe impl Sync for List {}

impl<T: Operations> Attributes<T> {
    const PARENT: &'static device_attribute = &{
        // SAFETY: Zeros are an attribute without a name and functions.
        let mut parent: device_attribute = unsafe { core::mem::zeroed() };
        parent.attr.name = c"parent".to_bytes_with_nul().as_ptr();
        parent.attr.mode = 0o444;
        parent.__bindgen_anon_1.show = Some(show_parent::<T>);
        parent
    };

    const CONGESTION_CONTROL: &'static device_attribute = &{
        // SAFETY: A zeroed attribute is one without functions.
        let mut control: device_attribute = unsafe { core::mem::zeroed() };
        control.attr.name = c"congestion_control".to_bytes_with_nul().as_ptr();
        control.attr.mode = 0o644;
        control.__bindgen_anon_1.show = Some(show_control::<T>);
        control.__bindgen_anon_2.store = Some(store_control::<T>);
        control
    };

    const CNP_DSCP: &'static device_attribute = &{
        // SAFETY: A zeroed attribute is one without functions.
        let mut dscp: device_attribute = unsafe { core::mem::zeroed() };
        dscp.attr.name = c"cnp_dscp".to_bytes_with_nul().as_ptr();
        dscp.attr.mode = 0o644;
        dscp.__bindgen_anon_1.show = Some(show_dscp::<T>);
        dscp.__bindgen_anon_2.store = Some(store_dscp::<T>);
        dscp
    };

    const LIST: &'static List = &List([
        &Self::PARENT.attr,
        &Self::CONGESTION_CONTROL.attr,
        &Self::CNP_DSCP.attr,
        ptr::null(),
    ]);

    /// Their group.
    pub(super) const GROUP: &'static kernel::bindings::attribute_group = &{
        // SAFETY: Zeros are a group without a name and attributes.
        let mut group: kernel::bindings::attribute_group = unsafe { core::mem::zeroed() };
        group.__bindgen_anon_2.attrs_const = (&raw const Self::LIST.0).cast();
        group
    };
}

/// Returns the device that `device` stands for.
///
/// # Safety
///
/// `device` must be that of an `ib_device` that was made for `T`, or of one of its images in other
/// network namespaces. It must stay registered for `'a`.
unsafe fn device_of<'a, T: Operations>(device: *mut device) -> &'a Device<T> {
    // SAFETY: By the safety requirements `device` is that of an `ib_device` or of an image, from
    // which the core finds the `ib_device`. That was made for `T` and stays registered.
    unsafe { Device::from_raw(bindings::rdma_device_to_ibdev(device.cast())) }
}

/// Shows the text that `write` pushes, and ends the line.
///
/// # Safety
///
/// `device` must be as for [`device_of`] until this returns, and `to` a page that sysfs has cleared.
unsafe fn show<T: Operations>(
    device: *mut device,
    to: *mut c_char,
    write: impl FnOnce(&Device<T>, &mut Text<'_>) -> Result,
) -> isize {
    from_result(|| {
        // SAFETY: By the safety requirements the device stays registered, and `to` is a cleared
        // page.
        let (device, mut text) = unsafe { (device_of::<T>(device), Text::new(to)) };
        write(device, &mut text)?;
        text.push(b"\n")?;
        Ok(text.len())
    })
}

/// # Safety
///
/// Only sysfs may call it, as the `show` of an attribute of a device of `T`: `device` stays
/// registered meanwhile, and `to` is a cleared page.
unsafe extern "C" fn show_parent<T: Operations>(
    device: *mut device,
    _attribute: *mut device_attribute,
    to: *mut c_char,
) -> isize {
    let write = |device: &Device<T>, text: &mut Text<'_>| {
        let netdev = T::get_netdev(device, 1).ok_or(ENODEV)?;
        text.push(netdev.name().as_bytes())
    };
    // SAFETY: sysfs calls for a device that stays registered meanwhile, with a page for the text.
    unsafe { show(device, to, write) }
}

/// # Safety
///
/// Only sysfs may call it, as the `show` of an attribute of a device of `T`: `device` stays
/// registered meanwhile, and `to` is a cleared page.
unsafe extern "C" fn show_control<T: Operations>(
    device: *mut device,
    _attribute: *mut device_attribute,
    to: *mut c_char,
) -> isize {
    let write = |device: &Device<T>, text: &mut Text<'_>| {
        let chosen = T::congestion_control(device);
        for (index, name) in T::CONGESTION_CONTROLS.iter().enumerate() {
            let space: &[u8] = if index > 0 { b" " } else { b"" };
            let (before, after): (&[u8], &[u8]) = match index == chosen {
                true => (b"[", b"]"),
                false => (b"", b""),
            };
            for part in [space, before, name.as_bytes(), after] {
                text.push(part)?;
            }
        }
        Ok(())
    };
    // SAFETY: sysfs calls for a device that stays registered meanwhile, with a page for the text.
    unsafe { show(device, to, write) }
}

/// # Safety
///
/// Only sysfs may call it, as the `show` of an attribute of a device of `T`: `device` stays
/// registered meanwhile, and `to` is a cleared page.
unsafe extern "C" fn show_dscp<T: Operations>(
    device: *mut device,
    _attribute: *mut device_attribute,
    to: *mut c_char,
) -> isize {
    let write = |device: &Device<T>, text: &mut Text<'_>| {
        let dscp = T::cnp_dscp(device).min(MAX_DSCP);
        text.push(&[b'0'.wrapping_add(dscp / 10), b'0'.wrapping_add(dscp % 10)])
    };
    // SAFETY: sysfs calls for a device that stays registered meanwhile, with a page for the text.
    unsafe { show(device, to, write) }
}

/// Takes the text that was written to an attribute, without the end of its line.
///
/// # Safety
///
/// `device` must be as for [`device_of`] until this returns, and `len` bytes may be read at `from`.
unsafe fn store<T: Operations>(
    device: *mut device,
    from: *const c_char,
    len: usize,
    take: impl FnOnce(&Device<T>, &[u8]) -> Result,
) -> isize {
    from_result(|| {
        // SAFETY: By the safety requirements the device stays registered.
        let device = unsafe { device_of::<T>(device) };
        // SAFETY: By the safety requirements there are `len` bytes.
        let text = unsafe { core::slice::from_raw_parts(from.cast::<u8>(), len) };
        take(device, text.strip_suffix(b"\n").unwrap_or(text))?;
        isize::try_from(len).map_err(|_| EINVAL)
    })
}

/// # Safety
///
/// Only sysfs may call it, as the `store` of an attribute of a device of `T`: `device` stays
/// registered meanwhile, and `len` bytes may be read at `from`.
unsafe extern "C" fn store_control<T: Operations>(
    device: *mut device,
    _attribute: *mut device_attribute,
    from: *const c_char,
    len: usize,
) -> isize {
    let take = |device: &Device<T>, name: &[u8]| {
        let mut names = T::CONGESTION_CONTROLS.iter();
        let index = names.position(|known| known.as_bytes() == name);
        T::set_congestion_control(device, index.ok_or(EINVAL)?);
        Ok(())
    };
    // SAFETY: sysfs calls for a device that stays registered meanwhile, with `len` bytes.
    unsafe { store(device, from, len, take) }
}

/// # Safety
///
/// Only sysfs may call it, as the `store` of an attribute of a device of `T`: `device` stays
/// registered meanwhile, and `len` bytes may be read at `from`.
unsafe extern "C" fn store_dscp<T: Operations>(
    device: *mut device,
    _attribute: *mut device_attribute,
    from: *const c_char,
    len: usize,
) -> isize {
    let take = |device: &Device<T>, text: &[u8]| {
        T::set_cnp_dscp(device, parse_dscp(text)?);
        Ok(())
    };
    // SAFETY: sysfs calls for a device that stays registered meanwhile, with `len` bytes.
    unsafe { store(device, from, len, take) }
}

/// Returns the code point that `text` names by one or two digits.
///
/// # Errors
///
/// `EINVAL`.
fn parse_dscp(text: &[u8]) -> Result<u8> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte.wrapping_sub(b'0')),
        _ => Err(EINVAL),
    };
    let dscp = match text {
        [ones] => digit(*ones)?,
        [tens, ones] => digit(*tens)?.wrapping_mul(10).wrapping_add(digit(*ones)?),
        _ => return Err(EINVAL),
    };
    match dscp {
        0..=MAX_DSCP => Ok(dscp),
        _ => Err(EINVAL),
    }
}

/// The text of an attribute.
struct Text<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl Text<'_> {
    /// # Safety
    ///
    /// There must be a page at `to`, for `'a`.
    unsafe fn new(to: *mut c_char) -> Self {
        Self {
            // SAFETY: By the safety requirements there is a page, and sysfs has cleared it.
            buffer: unsafe { core::slice::from_raw_parts_mut(to.cast::<u8>(), TEXT_BYTES) },
            len: 0,
        }
    }

    fn push(&mut self, text: &[u8]) -> Result {
        let end = self.len.checked_add(text.len()).ok_or(EINVAL)?;
        let to = self.buffer.get_mut(self.len..end).ok_or(ENOSPC)?;
        to.copy_from_slice(text);
        self.len = end;
        Ok(())
    }

    fn len(&self) -> isize {
        // CAST: It is no more than a page.
        self.len as isize
    }
}
