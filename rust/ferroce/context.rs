// SPDX-License-Identifier: GPL-2.0

//! Contexts: what one process that has opened a device may use of what all share.

use core::ops::Deref;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::cpu::nr_cpu_ids;
use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::{new_mutex, Arc, Mutex, SetOnce};
use kernel::task::Kuid;
use rdma::net::HeldPacket;
use rdma::share::{Charge, Share};
use rdma::sync::Marked;
use rdma::work::{Flags, Queue};

use crate::table::AH_NUMBERS;

/// Bytes of packets, with all that the kernel keeps for them, that wait for the memory of one process:
/// several queues full of the largest.
const MOST_HELD_BYTES: usize = 16 << 20;

/// Members of multicast groups that are of one context.
pub(crate) const MAX_ATTACHED: usize = 2048;

/// Address handles of one context, of all that there are. Mostly its memory is at an end before.
const MAX_AHS: usize = (*AH_NUMBERS.end() as usize + 1) / 8;

/// Workers that sleep for one context, on a NUMA node, for memory that has to be paged in. As many disks' worth of
/// requests at a time; what is more waits in line, behind what is the process's own.
const PAGING_WORKERS: u16 = 4;

/// Contexts of one user that have such workers, its processes that use on-demand memory: so many, or
/// several for each CPU.
const PAGERS_OF_A_USER: usize = 128;
const PAGERS_OF_A_CPU: usize = 4;

fn pagers_of_a_user() -> usize {
    PAGERS_OF_A_USER.max(PAGERS_OF_A_CPU.saturating_mul(nr_cpu_ids() as usize))
}

/// What one of those may have of what there is a number of for all.
struct Numbers {
    /// Address handles.
    ahs: Arc<Share>,
    /// Queue pairs in multicast groups; one for each group that it is in.
    attached: Arc<Share>,
    /// Bytes of packets that wait for memory.
    held_bytes: Arc<Share>,
}

impl Numbers {
    /// As many as one context may have, as many times. May sleep.
    fn new(times: usize) -> Result<Self> {
        Ok(Self {
            ahs: Share::new(MAX_AHS.saturating_mul(times))?,
            attached: Share::new(MAX_ATTACHED.saturating_mul(times))?,
            held_bytes: Share::new(MOST_HELD_BYTES.saturating_mul(times))?,
        })
    }
}

impl Numbers {
    fn is_used(&self) -> bool {
        let Self {
            ahs,
            attached,
            held_bytes,
        } = self;
        [ahs, attached, held_bytes]
            .iter()
            .any(|share| share.used() > 0)
    }
}

/// How many times as much as one context all those of a user may have: half of what there is.
const CONTEXTS_OF_A_USER: usize = 4;

/// Who has opened a device, however often: else a process had as many shares as it has files.
struct User {
    euid: Kuid,
    contexts: usize,
    numbers: Arc<Numbers>,
    pagers: Arc<Share>,
}

/// All that have opened a device.
#[pin_data]
pub(crate) struct Users {
    #[pin]
    users: Mutex<KVVec<User>>,
}

impl Users {
    /// Nobody. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let users = pin_init!(Self {
            users <- new_mutex!(KVVec::new(), "ferroce::Users::users"),
        });
        Arc::pin_init(users, GFP_KERNEL)
    }

    /// Counts one more context of `euid`, until [`leave`](Self::leave). Returns what the user has.
    fn enter(&self, euid: Kuid) -> Result<(Arc<Numbers>, Arc<Share>)> {
        let mut users = self.users.lock();
        if let Some(user) = users.iter_mut().find(|user| user.euid == euid) {
            user.contexts = user.contexts.saturating_add(1);
            return Ok((user.numbers.clone(), user.pagers.clone()));
        }
        let numbers = Arc::new(Numbers::new(CONTEXTS_OF_A_USER)?, GFP_KERNEL_ACCOUNT)?;
        let pagers = Share::new(pagers_of_a_user())?;
        let user = User {
            euid,
            contexts: 1,
            numbers: numbers.clone(),
            pagers: pagers.clone(),
        };
        // To grow in place can panic, as the kernel's vectors have it.
        let mut more = KVVec::with_capacity(users.len().saturating_add(1), GFP_KERNEL_ACCOUNT)?;
        for user in users.drain_all() {
            let _ = more.push_within_capacity(user);
        }
        let _ = more.push_within_capacity(user);
        *users = more;
        Ok((numbers, pagers))
    }

    /// Counts one context of `euid` less. What the user has is remembered for as long as anything uses
    /// some of it, also of a context that was closed.
    fn leave(&self, euid: Kuid) {
        let mut users = self.users.lock();
        if let Some(user) = users.iter_mut().find(|user| user.euid == euid) {
            user.contexts = user.contexts.saturating_sub(1);
        }
        let forgotten = |users: &KVVec<User>| {
            let mut numbered = users.iter().enumerate();
            let found = numbered.find(|(_, user)| !user.is_known());
            found.map(|(index, _)| index)
        };
        while let Some(index) = forgotten(&users) {
            let _ = users.remove(index);
        }
    }
}

impl User {
    fn is_known(&self) -> bool {
        self.contexts > 0 || self.numbers.is_used() || self.pagers.used() > 0
    }
}

/// The context of a process that has opened a device.
///
/// It owns the process's shares of what others need, too. Whoever uses some of a share holds the
/// context, which may so outlive the core's. The kernel as a user has none, and is not bounded.
pub(crate) struct Context {
    numbers: Numbers,
    /// What all contexts of its user have together.
    of_user: Arc<Numbers>,
    /// Where its memory is paged in, and written back to persistence. It is there once the process has
    /// a region that may need that.
    paging: SetOnce<(Queue, Charge)>,
    pagers: Arc<Share>,
    is_closed: Atomic<bool>,
}

impl Context {
    /// A context that uses nothing. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn new((of_user, pagers): (Arc<Numbers>, Arc<Share>)) -> Result<Arc<Self>> {
        let context = Self {
            numbers: Numbers::new(1)?,
            of_user,
            paging: SetOnce::new(),
            pagers,
            is_closed: Atomic::new(false),
        };
        Ok(Arc::new(context, GFP_KERNEL_ACCOUNT)?)
    }

    /// Counts one more address handle.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there are too many.
    pub(crate) fn take_ah(&self) -> Result<[Charge; 2]> {
        Ok([self.numbers.ahs.take(1)?, self.of_user.ahs.take(1)?])
    }

    /// Counts one more queue pair that is in a group.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there are too many.
    pub(crate) fn attach(&self) -> Result<Attached> {
        Ok(Attached {
            of_context: self.numbers.attached.clone(),
            of_user: self.of_user.attached.clone(),
            _charges: [
                self.numbers.attached.take(1)?,
                self.of_user.attached.take(1)?,
            ],
        })
    }

    /// Counts the memory of a packet that waits for memory.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if it is too much; the packet is dropped then.
    pub(crate) fn charge(&self, packet: HeldPacket) -> Result<HeldPacket> {
        let shares = [&self.numbers.held_bytes, &self.of_user.held_bytes];
        packet.charged_to(shares).map_err(|_| ENOMEM)
    }

    /// Makes a queue of work items that sleep for memory of the process, unless there is one. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also if the user has too many; `ENODEV` when the module is being unloaded.
    pub(crate) fn prepare_paging(&self) -> Result {
        if self.paging().is_none() {
            let charge = self.pagers.take(1)?;
            let queue = Queue::with_workers(c"ferroce_fault", Flags::UNBOUND, PAGING_WORKERS)?;
            // Another thread may have been faster.
            let _ = self.paging.populate((queue, charge));
        }
        Ok(())
    }

    /// The queue of work items that sleep for memory of the process. Any context.
    #[inline]
    pub(crate) fn paging(&self) -> Option<&Queue> {
        self.paging.as_ref().map(|(queue, _)| queue)
    }

    /// Whether the process has closed the device. Any context.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.read_once()
    }
}

/// What a queue pair that is in a group takes of its context's shares, and of its user's.
pub(crate) struct Attached {
    of_context: Arc<Share>,
    of_user: Arc<Share>,
    _charges: [Charge; 2],
}

impl Attached {
    /// Whether it was of that context.
    pub(crate) fn is_of(&self, context: &Context) -> bool {
        Arc::ptr_eq(&self.of_context, &context.numbers.attached)
    }

    /// Whether it was of a context of the same user.
    pub(crate) fn is_of_user_of(&self, context: &Context) -> bool {
        Arc::ptr_eq(&self.of_user, &context.of_user.attached)
    }
}

/// A context that a process has open. Dropping it closes the context.
pub(crate) struct OpenContext {
    context: Arc<Context>,
    users: Arc<Users>,
    euid: Kuid,
}

impl OpenContext {
    /// A context of the calling process, which is one of `users`, that uses nothing. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(users: &Arc<Users>) -> Result<Self> {
        let euid = Kuid::current_euid();
        let of_user = users.enter(euid)?;
        let context = Context::new(of_user).inspect_err(|_| users.leave(euid))?;
        Ok(Self {
            context,
            users: users.clone(),
            euid,
        })
    }
}

impl Deref for OpenContext {
    type Target = Arc<Context>;

    fn deref(&self) -> &Arc<Context> {
        &self.context
    }
}

impl Drop for OpenContext {
    fn drop(&mut self) {
        self.context.is_closed.write_once(true);
        self.users.leave(self.euid);
    }
}
