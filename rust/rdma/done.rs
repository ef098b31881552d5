// SPDX-License-Identifier: GPL-2.0

//! An event that happens once, and for which processes wait.

use kernel::{
    bindings,
    prelude::*,
    time::msecs_to_jiffies,
    types::Opaque, //
};

/// An event that happens once.
///
/// The `kernel` crate's `Completion` waits even if the process is killed. The wait for this one
/// ends then.
#[pin_data]
pub struct Done {
    #[pin]
    inner: Opaque<bindings::completion>,
}

// SAFETY: A completion belongs to no thread.
unsafe impl Send for Done {}
// SAFETY: The kernel synchronises access to it.
unsafe impl Sync for Done {}

/// How a [wait](Done::wait) ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// It has happened.
    Done,
    /// It has not happened in time.
    TimedOut,
    /// The process was killed.
    Killed,
}

impl Done {
    /// Creates an event that has not happened.
    pub fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- Opaque::ffi_init(|inner| {
                // SAFETY: `inner` is valid for writes, and pinned from now on.
                unsafe { bindings::init_completion(inner) }
            }),
        })
    }

    /// Sets the event. Any context.
    pub fn set(&self) {
        // SAFETY: It was initialised.
        unsafe { bindings::complete_all(self.inner.get()) };
    }

    /// Waits until it happens, for at most `ms` milliseconds or until the process is killed. Sleeps.
    pub fn wait(&self, ms: u32) -> Waited {
        // SAFETY: It was initialised.
        let left = unsafe {
            bindings::wait_for_completion_killable_timeout(self.inner.get(), msecs_to_jiffies(ms))
        };
        match left {
            0 => Waited::TimedOut,
            1.. => Waited::Done,
            _ => Waited::Killed,
        }
    }
}
