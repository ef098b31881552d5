// SPDX-License-Identifier: GPL-2.0

//! Multicast groups: the queue pairs that get a copy of what is sent to them.

use core::cmp::Ordering;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::kvec::InsertError;
use kernel::prelude::*;
use kernel::sync::{new_mutex, Mutex};
use rdma::net::{Membership, NetDevice};
use rdma::sync::BhSpinLock;
use roce::num::Qpn;

/// Groups of one device.
pub(crate) const MAX_GROUPS: u32 = 8192;
/// Queue pairs of one group.
pub(crate) const MAX_MEMBERS: u32 = 64;
/// Members of all groups together.
pub(crate) const MAX_ATTACHED: u32 = MAX_GROUPS * MAX_MEMBERS;

/// The queue pairs of a group, by number: the core destroys none that is attached.
#[derive(Clone, Copy)]
pub(crate) struct Members {
    qpns: [Qpn; MAX_MEMBERS as usize],
    count: usize,
}

impl Members {
    fn new(qpn: Qpn) -> Self {
        Self {
            qpns: [qpn; MAX_MEMBERS as usize],
            count: 1,
        }
    }

    pub(crate) fn as_slice(&self) -> &[Qpn] {
        self.qpns.get(..self.count).unwrap_or(&[])
    }

    fn add(&mut self, qpn: Qpn) -> Result {
        if self.as_slice().contains(&qpn) {
            return Err(EEXIST);
        }
        *self.qpns.get_mut(self.count).ok_or(ENOMEM)? = qpn;
        self.count = self.count.saturating_add(1);
        Ok(())
    }

    /// The last one takes the place of the one that goes.
    fn remove(&mut self, qpn: Qpn) -> Result {
        let members = self.qpns.get_mut(..self.count).ok_or(EINVAL)?;
        let last = *members.last().ok_or(EINVAL)?;
        let member = members.iter_mut().find(|member| **member == qpn);
        *member.ok_or(EINVAL)? = last;
        self.count = self.count.saturating_sub(1);
        Ok(())
    }
}

/// A group with at least one member.
struct Group {
    mgid: [u8; 16],
    members: Members,
    _membership: Membership,
}

/// The groups of a device.
#[pin_data]
pub(crate) struct Groups {
    /// Held while there come to be more or fewer of them, which sleeps.
    #[pin]
    change: Mutex<()>,
    /// In the order of their GIDs.
    #[pin]
    groups: BhSpinLock<KVVec<KBox<Group>>>,
}

impl Groups {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            change <- new_mutex!((), "ferroce::Groups::change"),
            groups <- rdma::new_bh_spinlock!(KVVec::new(), "ferroce::Groups::groups"),
        })
    }

    /// The queue pairs that get what is sent to `mgid`; none if there is no such group. Process and
    /// softirq context.
    pub(crate) fn members(&self, mgid: [u8; 16]) -> Option<Members> {
        let groups = self.groups.lock();
        let index = find(&groups, mgid).ok()?;
        Some(groups.get(index)?.members)
    }

    /// Has the queue pair `qpn` get what is sent to `mgid`. The first one has `netdev` join the
    /// group. Sleeps, and takes the RTNL.
    ///
    /// # Errors
    ///
    /// Those of [`Membership::join`]; `EEXIST` if it does already; `ENOMEM`, also if there are too
    /// many groups or members.
    pub(crate) fn attach(&self, netdev: &NetDevice, mgid: [u8; 16], qpn: Qpn) -> Result {
        let _change = self.change.lock();
        if let Some(added) = self.edit(mgid, |members| members.add(qpn)) {
            return added;
        }
        self.make_room()?;
        let group = KBox::new(
            Group {
                mgid,
                members: Members::new(qpn),
                _membership: Membership::join(netdev, mgid)?,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        match self.insert(group) {
            Ok(()) => Ok(()),
            // Not to be: there is room, and nobody else changes the groups now.
            Err(group) => {
                drop(group);
                Err(ENOMEM)
            }
        }
    }

    /// Undoes [`attach`](Self::attach). The last one has the netdev leave the group: sleeps, and
    /// takes the RTNL.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the queue pair is no member.
    // Rules: MCG-4
    pub(crate) fn detach(&self, mgid: [u8; 16], qpn: Qpn) -> Result {
        let _change = self.change.lock();
        self.edit(mgid, |members| members.remove(qpn))
            .ok_or(EINVAL)??;
        let empty = self.take_empty(mgid);
        drop(empty);
        Ok(())
    }

    fn edit(&self, mgid: [u8; 16], f: impl FnOnce(&mut Members) -> Result) -> Option<Result> {
        let mut groups = self.groups.lock();
        let index = find(&groups, mgid).ok()?;
        Some(f(&mut groups.get_mut(index)?.members))
    }

    /// Makes room for one more group.
    fn make_room(&self) -> Result {
        let (len, capacity) = {
            let groups = self.groups.lock();
            (groups.len(), groups.capacity())
        };
        if len >= MAX_GROUPS as usize {
            return Err(ENOMEM);
        }
        if len < capacity {
            return Ok(());
        }
        let larger = len.saturating_mul(2).max(4);
        let mut new = KVVec::with_capacity(larger, GFP_KERNEL_ACCOUNT)?;
        let old = {
            let mut groups = self.groups.lock();
            for group in groups.drain_all() {
                // There is room for more than there are.
                let _ = new.push_within_capacity(group);
            }
            core::mem::replace(&mut *groups, new)
        };
        drop(old);
        Ok(())
    }

    fn insert(&self, group: KBox<Group>) -> Result<(), KBox<Group>> {
        let mut groups = self.groups.lock();
        let Err(index) = find(&groups, group.mgid) else {
            return Err(group);
        };
        groups
            .insert_within_capacity(index, group)
            .map_err(|error| match error {
                InsertError::IndexOutOfBounds(group) | InsertError::OutOfCapacity(group) => group,
            })
    }

    /// Takes the group out if it has no member.
    fn take_empty(&self, mgid: [u8; 16]) -> Option<KBox<Group>> {
        let mut groups = self.groups.lock();
        let index = find(&groups, mgid).ok()?;
        if groups.get(index)?.members.count > 0 {
            return None;
        }
        groups.remove(index).ok()
    }
}

/// Where the group is, or else would be. The search of the standard library can panic.
fn find(groups: &[KBox<Group>], mgid: [u8; 16]) -> Result<usize, usize> {
    let (mut from, mut to) = (0usize, groups.len());
    while from < to {
        let half = to.saturating_sub(from) / 2;
        let middle = from.saturating_add(half);
        let Some(group) = groups.get(middle) else {
            break;
        };
        match group.mgid.cmp(&mgid) {
            Ordering::Equal => return Ok(middle),
            Ordering::Less => from = middle.saturating_add(1),
            Ordering::Greater => to = middle,
        }
    }
    Err(from)
}
