// SPDX-License-Identifier: GPL-2.0

//! Contexts: the shares of a process that has opened a device in its common resources.

use core::ops::Deref;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::cpu::nr_cpu_ids;
use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::{new_mutex, Arc, Mutex, SetOnce};
use kernel::task::Kuid;
use rdma::net::HeldPacket;
use rdma::odp::Pager;
use rdma::sched::pause;
use rdma::share::{Charge, Share};
use rdma::sync::Marked;
use rdma::user::current_user;
use rdma::work::{Flags, Queue};

use crate::keys::MW_INDICES;
use crate::table::{AH_NUMBERS, MAX_PD};

/// Bytes of packets that wait for the memory of one process, including the kernel's own data: several
/// full queues of the largest packets.
const MOST_HELD_BYTES: usize = 16 << 20;

/// Memberships in multicast groups of one context.
pub(crate) const MAX_ATTACHED: usize = 2048;

/// Address handles of one context. Its memory usually ends first.
const MAX_AHS: usize = (*AH_NUMBERS.end() as usize + 1) / 8;

/// Memory windows of one context. Its memory may end first.
const MAX_WINDOWS: usize = (*MW_INDICES.end() - *MW_INDICES.start() + 1) as usize / 8;

/// Protection domains of one context. The core's memory for these takes some megabytes.
const MAX_PDS: usize = MAX_PD as usize / 64;

/// Workers that fault in memory for one context, on each NUMA node. Further faults wait in line behind
/// those of the same process. One of them may be busy with the removal of chunks.
const PAGING_WORKERS: u16 = 4;

/// Contexts of one user that may have such workers: this number, or several for each CPU.
const PAGERS_OF_A_USER: usize = 128;
const PAGERS_OF_A_CPU: usize = 4;

fn pagers_of_a_user() -> usize {
    PAGERS_OF_A_USER.max(PAGERS_OF_A_CPU.saturating_mul(nr_cpu_ids() as usize))
}

/// The shares of one context, or of one user, in resources with a fixed number.
struct Numbers {
    /// Address handles.
    ahs: Arc<Share>,
    /// Memory windows.
    windows: Arc<Share>,
    /// Protection domains.
    pds: Arc<Share>,
    /// Memberships of queue pairs in multicast groups.
    attached: Arc<Share>,
    /// Bytes of waiting packets.
    held_bytes: Arc<Share>,
}

impl Numbers {
    /// Creates shares of `times` contexts. May sleep.
    fn new(times: usize) -> Result<Self> {
        Ok(Self {
            ahs: Share::new(MAX_AHS.saturating_mul(times))?,
            windows: Share::new(MAX_WINDOWS.saturating_mul(times))?,
            pds: Share::new(MAX_PDS.saturating_mul(times))?,
            attached: Share::new(MAX_ATTACHED.saturating_mul(times))?,
            held_bytes: Share::new(MOST_HELD_BYTES.saturating_mul(times))?,
        })
    }

    fn is_used(&self) -> bool {
        let Self {
            ahs,
            windows,
            pds,
            attached,
            held_bytes,
        } = self;
        [ahs, windows, pds, attached, held_bytes]
            .iter()
            .any(|share| share.used() > 0)
    }
}

/// The shares of a user, in units of one context's: half of all.
const CONTEXTS_OF_A_USER: usize = 4;

/// A user that has opened a device. A process may open it once for each file that it may have, so
/// contexts alone would not bound it.
struct User {
    id: Kuid,
    contexts: usize,
    numbers: Arc<Numbers>,
    pagers: Arc<Share>,
}

/// All users of a device.
#[pin_data]
pub(crate) struct Users {
    #[pin]
    users: Mutex<KVVec<User>>,
}

impl Users {
    /// Creates an empty list. May sleep.
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

    /// Counts a context of the user `id`, until [`leave`](Self::leave). Returns the shares of the user.
    fn enter(&self, id: Kuid) -> Result<(Arc<Numbers>, Arc<Share>)> {
        let mut users = self.users.lock();
        if let Some(user) = users.iter_mut().find(|user| user.id == id) {
            user.contexts = user.contexts.saturating_add(1);
            return Ok((user.numbers.clone(), user.pagers.clone()));
        }
        let numbers = Arc::new(Numbers::new(CONTEXTS_OF_A_USER)?, GFP_KERNEL_ACCOUNT)?;
        let pagers = Share::new(pagers_of_a_user())?;
        let user = User {
            id,
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

    /// Removes a context of the user `id`. The user is remembered while any of its share is in use, even by a
    /// closed context.
    fn leave(&self, id: Kuid) {
        let mut users = self.users.lock();
        if let Some(user) = users.iter_mut().find(|user| user.id == id) {
            user.contexts = user.contexts.saturating_sub(1);
        }
        // Newer compilers keep a check that the count of `enumerate` does not overflow.
        let forgotten = |users: &KVVec<User>| {
            (0..users.len()).find(|index| users.get(*index).is_some_and(|user| !user.is_known()))
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
/// It owns the shares of the process. A user of a share holds the context, which may so outlive the
/// core's. The kernel has no context and no bound.
pub(crate) struct Context {
    numbers: Numbers,
    /// The shares that all contexts of its user have together.
    of_user: Arc<Numbers>,
    /// Where its memory is paged in, and written back to persistence. It is there once the process has
    /// a region that may need that.
    pager: SetOnce<Arc<Pager>>,
    pagers: Arc<Share>,
    is_closed: Atomic<bool>,
}

impl Context {
    /// Creates a context that uses nothing. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn new((of_user, pagers): (Arc<Numbers>, Arc<Share>)) -> Result<Arc<Self>> {
        let context = Self {
            numbers: Numbers::new(1)?,
            of_user,
            pager: SetOnce::new(),
            pagers,
            is_closed: Atomic::new(false),
        };
        Ok(Arc::new(context, GFP_KERNEL_ACCOUNT)?)
    }

    /// Charges an address handle.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there are too many.
    pub(crate) fn take_ah(&self) -> Result<[Charge; 2]> {
        self.take(|numbers| &numbers.ahs)
    }

    /// Charges a memory window.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there are too many.
    pub(crate) fn take_window(&self) -> Result<[Charge; 2]> {
        self.take(|numbers| &numbers.windows)
    }

    /// Charges a protection domain.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there are too many.
    pub(crate) fn take_pd(&self) -> Result<[Charge; 2]> {
        self.take(|numbers| &numbers.pds)
    }

    /// Charges a membership in a group.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there are too many.
    pub(crate) fn attach(&self) -> Result<Attached> {
        Ok(Attached {
            of_context: self.numbers.attached.clone(),
            of_user: self.of_user.attached.clone(),
            _charges: self.take(|numbers| &numbers.attached)?,
        })
    }

    /// Charges one unit to the context and to its user.
    fn take(&self, of: fn(&Numbers) -> &Arc<Share>) -> Result<[Charge; 2]> {
        Ok([of(&self.numbers).take(1)?, of(&self.of_user).take(1)?])
    }

    /// Charges a packet that waits.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there are too many; the packet is dropped then.
    pub(crate) fn charge(&self, packet: HeldPacket) -> Result<HeldPacket> {
        let shares = [&self.numbers.held_bytes, &self.of_user.held_bytes];
        packet.charged_to(shares).map_err(|_| ENOMEM)
    }

    /// Returns true if half of the share for waiting packets is in use. The rest is reserved for packets
    /// that wait for memory, because a peer decides how many early packets arrive. Any context.
    pub(crate) fn holds_much(&self) -> bool {
        self.numbers.held_bytes.is_half_used() || self.of_user.held_bytes.is_half_used()
    }

    /// Returns the workers that fault in memory of the process. Creates them, unless they exist. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also if the user has too many; `ENODEV` when the module is being unloaded; `EINTR` if the process is
    /// being killed.
    pub(crate) fn prepare_paging(&self) -> Result<&Arc<Pager>> {
        if self.pager.as_ref().is_none() {
            match self.make_pager() {
                Ok(pager) => _ = self.pager.populate(pager),
                Err(error) if self.pager.as_ref().is_none() => return Err(error),
                // Another thread was faster.
                Err(_) => {}
            }
        }
        loop {
            if let Some(pager) = self.pager.as_ref() {
                return Ok(pager);
            }
            // Another thread is about to store it.
            pause()?;
        }
    }

    fn make_pager(&self) -> Result<Arc<Pager>> {
        let charge = self.pagers.take(1)?;
        let queue = Queue::with_workers(c"ferroce_fault", Flags::UNBOUND, PAGING_WORKERS)?;
        Pager::new(queue, charge)
    }

    /// Returns the workqueue for page faults of the process. Any context.
    #[inline]
    pub(crate) fn paging(&self) -> Option<&Queue> {
        self.pager.as_ref().map(|pager| pager.queue())
    }

    /// Returns true if the process has closed the device. Any context.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.read_once()
    }
}

/// The charges of a queue pair in a group: of its context's shares, and of its user's.
pub(crate) struct Attached {
    of_context: Arc<Share>,
    of_user: Arc<Share>,
    _charges: [Charge; 2],
}

impl Attached {
    /// Returns true if it was of that context.
    pub(crate) fn is_of(&self, context: &Context) -> bool {
        Arc::ptr_eq(&self.of_context, &context.numbers.attached)
    }

    /// Returns true if it was of a context of the same user.
    pub(crate) fn is_of_user_of(&self, context: &Context) -> bool {
        Arc::ptr_eq(&self.of_user, &context.of_user.attached)
    }
}

/// A context that a process has open. Dropping it closes the context.
pub(crate) struct OpenContext {
    context: Arc<Context>,
    users: Arc<Users>,
    user: Kuid,
}

impl OpenContext {
    /// Creates a context of the calling process, which is one of `users`, that uses nothing. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(users: &Arc<Users>) -> Result<Self> {
        let user = current_user();
        let of_user = users.enter(user)?;
        let context = Context::new(of_user).inspect_err(|_| users.leave(user))?;
        Ok(Self {
            context,
            users: users.clone(),
            user,
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
        self.users.leave(self.user);
    }
}
