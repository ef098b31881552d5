// SPDX-License-Identifier: GPL-2.0

//! Multicast groups: the queue pairs that get a copy of each packet.

use core::cmp::Ordering;

use kernel::alloc::flags::GFP_KERNEL_ACCOUNT;
use kernel::alloc::kvec::InsertError;
use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::{new_mutex, Arc, Mutex};
use rdma::net::{Membership, NetDevice};
use rdma::slots::Slots;
use rdma::sync::{BhSpinLock, Marked};
use roce::num::Qpn;

use crate::context::{self, Attached, Context};

/// Groups of one device.
pub(crate) const MAX_GROUPS: u32 = 16384;
/// Queue pairs of one group.
pub(crate) const MAX_MEMBERS: u32 = 256;
/// Members of all groups together.
pub(crate) const MAX_ATTACHED: u32 = MAX_GROUPS * MAX_MEMBERS;
// A context that fills groups up leaves seven eighths of them.
const _: () = assert!(context::MAX_ATTACHED == MAX_GROUPS as usize / 8);
/// Members of one group that are of one context.
const MAX_MEMBERS_OF_ONE: usize = MAX_MEMBERS as usize / 4;
/// The same, of all contexts of a user.
const MAX_MEMBERS_OF_A_USER: usize = MAX_MEMBERS as usize / 2;
/// Members that a new group has room for.
const FIRST_ROOM: usize = 4;

/// The number of a member, or 0, which none has.
struct Place(Atomic<u32>);

impl Default for Place {
    fn default() -> Self {
        Self(Atomic::new(0))
    }
}

/// The queue pairs of a group, by number: the core destroys none that is attached.
///
/// They are not copied for each packet: members come and go in place.
#[derive(Clone)]
pub(crate) struct Members(Arc<Slots<Place>>);

impl Members {
    pub(crate) fn iter(&self) -> impl Iterator<Item = Qpn> + '_ {
        let numbers = self.0.iter().map(|place| place.0.read_once());
        numbers.filter(|qpn| *qpn != 0).map(Qpn::new)
    }
}

/// Room for members: a place for each, and the charges of a process's members.
struct Room {
    places: Members,
    stakes: Slots<Option<Attached>>,
}

impl Room {
    /// Creates room for `count` members. May sleep.
    fn new(count: usize) -> Result<Self> {
        Ok(Self {
            places: Members(Arc::new(
                Slots::new(count, GFP_KERNEL_ACCOUNT)?,
                GFP_KERNEL_ACCOUNT,
            )?),
            stakes: Slots::new(count, GFP_KERNEL_ACCOUNT)?,
        })
    }

    fn len(&self) -> usize {
        self.stakes.len()
    }

    fn places(&mut self) -> impl Iterator<Item = (&Place, &mut Option<Attached>)> {
        self.places.0.iter().zip(self.stakes.iter_mut())
    }

    /// Returns the place of `qpn`, or with 0 a free one.
    fn find(&mut self, qpn: u32) -> Option<(&Place, &mut Option<Attached>)> {
        self.places().find(|(place, _)| place.0.read_once() == qpn)
    }

    /// Takes in those of `old`, which has less room.
    fn take_over(&mut self, old: &mut Self) {
        for ((to, to_stake), (from, from_stake)) in self.places().zip(old.places()) {
            to.0.write_once(from.0.read_once());
            *to_stake = from_stake.take();
        }
    }
}

/// A group with at least one member.
struct Group {
    mgid: [u8; 16],
    room: Room,
    _membership: Membership,
}

impl Group {
    fn count(&self) -> usize {
        number_of(self.room.places.iter())
    }

    /// Returns the room that is needed for `qpn` to become a member of `context`: as much as
    /// there is or more.
    fn room_for(&self, qpn: Qpn, context: Option<&Context>) -> Result<usize> {
        if self.room.places.iter().any(|member| member == qpn) {
            return Err(EEXIST);
        }
        if let Some(context) = context {
            let stakes = || self.room.stakes.iter().flatten();
            let of_context = number_of(stakes().filter(|stake| stake.is_of(context)));
            let of_user = number_of(stakes().filter(|stake| stake.is_of_user_of(context)));
            if of_context >= MAX_MEMBERS_OF_ONE || of_user >= MAX_MEMBERS_OF_A_USER {
                return Err(ENOMEM);
            }
        }
        let room = self.room.len();
        match self.count() {
            count if count < room => Ok(room),
            count if count < MAX_MEMBERS as usize => {
                Ok(room.saturating_mul(2).min(MAX_MEMBERS as usize))
            }
            _ => Err(ENOMEM),
        }
    }

    /// Adds a member. The caller has made room.
    fn add(&mut self, qpn: Qpn, stake: Option<Attached>) -> Result {
        let (place, its_stake) = self.room.find(0).ok_or(ENOMEM)?;
        *its_stake = stake;
        place.0.write_once(qpn.get());
        Ok(())
    }

    fn remove(&mut self, qpn: Qpn) -> Result {
        let (place, its_stake) = self.room.find(qpn.get()).ok_or(EINVAL)?;
        place.0.write_once(0);
        *its_stake = None;
        Ok(())
    }
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

    /// Returns the members of the group `mgid`; none if there is no such group. Process and softirq
    /// context.
    pub(crate) fn members(&self, mgid: [u8; 16]) -> Option<Members> {
        let groups = self.groups.lock();
        let index = find(&groups, mgid).ok()?;
        Some(groups.get(index)?.room.places.clone())
    }

    /// Adds the queue pair `qpn` to the group `mgid`, for a process if there is a context. The first
    /// member makes `netdev` join the group. Sleeps, and takes the RTNL.
    ///
    /// # Errors
    ///
    /// Those of [`Membership::join`]; `EEXIST` if it is a member; `ENOMEM`, also if there are too many
    /// groups or members, or the user has too many.
    pub(crate) fn attach(
        &self,
        netdev: &NetDevice,
        mgid: [u8; 16],
        qpn: Qpn,
        context: Option<&Context>,
    ) -> Result {
        let _change = self.change.lock();
        let room = self.edit(mgid, |group| group.room_for(qpn, context));
        let stake = context.map(Context::attach).transpose();
        if let Some(room) = room {
            self.widen(mgid, room?)?;
            let stake = stake?;
            let added = self.edit(mgid, |group| group.add(qpn, stake));
            return added.unwrap_or(Err(ENOMEM));
        }
        let stake = stake?;
        self.make_room()?;
        let mut group = KBox::new(
            Group {
                mgid,
                room: Room::new(FIRST_ROOM)?,
                _membership: Membership::join(netdev, mgid)?,
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        group.add(qpn, stake)?;
        match self.insert(group) {
            Ok(()) => Ok(()),
            // This cannot happen: there is room, and nobody else changes the groups now.
            Err(group) => {
                drop(group);
                Err(ENOMEM)
            }
        }
    }

    /// Gives a group room for as many members, if it has less. Nobody else changes it now. May
    /// sleep.
    fn widen(&self, mgid: [u8; 16], room: usize) -> Result {
        if self.edit(mgid, |group| group.room.len() >= room) != Some(false) {
            return Ok(());
        }
        let mut wider = Room::new(room)?;
        let old = self.edit(mgid, |group| {
            wider.take_over(&mut group.room);
            core::mem::replace(&mut group.room, wider)
        });
        drop(old);
        Ok(())
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
        self.edit(mgid, |group| group.remove(qpn)).ok_or(EINVAL)??;
        let empty = self.take_empty(mgid);
        drop(empty);
        Ok(())
    }

    /// Runs `f` on the group, if there is one.
    fn edit<R>(&self, mgid: [u8; 16], f: impl FnOnce(&mut Group) -> R) -> Option<R> {
        let mut groups = self.groups.lock();
        let index = find(&groups, mgid).ok()?;
        Some(f(&mut *groups.get_mut(index)?))
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
        if groups.get(index)?.count() > 0 {
            return None;
        }
        groups.remove(index).ok()
    }
}

/// Returns how many there are. The standard library's way of counting can panic.
fn number_of<T>(items: impl Iterator<Item = T>) -> usize {
    items.fold(0, |count: usize, _| count.saturating_add(1))
}

/// Returns where the group is, or else would be. The search of the standard library can panic.
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
