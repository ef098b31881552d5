// SPDX-License-Identifier: GPL-2.0

//! The driver's ends of a ring that a process maps: against a correct process, and against one that
//! stores anything at any time.
//!
//! The code is the driver's own, `ferroce/queue.rs`, over a ring in which the other side may run at
//! every access. The tests try all interleavings: the steps of the other side at each point. An
//! index that is stored with release, and loaded with acquire, makes earlier stores visible. So the
//! slots' bytes need no other order than the one in which the other side stores them.

extern crate self as kernel;
extern crate self as rdma;

#[path = "../../../ferroce/queue.rs"]
mod queue;
#[path = "../../../rdma/ring/shape.rs"]
mod shape;

/// The items that the driver's code takes from the kernel.
pub mod prelude {
    /// An errno.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Error(i32);

    pub const EINVAL: Error = Error(22);
    pub const ENOMEM: Error = Error(12);
    pub const EBUSY: Error = Error(16);
    pub const GFP_KERNEL: () = ();

    pub type Result<T = ()> = core::result::Result<T, Error>;
}

/// Arrays of a fixed length.
pub mod slots {
    use std::ops::{Deref, DerefMut};

    use crate::prelude::Result;

    pub struct Slots<T>(Vec<T>);

    impl<T: Clone + Default> Slots<T> {
        pub fn new(len: usize, (): ()) -> Result<Self> {
            Ok(Self(vec![T::default(); len]))
        }
    }

    impl<T> Deref for Slots<T> {
        type Target = [T];

        fn deref(&self) -> &[T] {
            &self.0
        }
    }

    impl<T> DerefMut for Slots<T> {
        fn deref_mut(&mut self) -> &mut [T] {
            &mut self.0
        }
    }
}

/// The shared memory: as `rdma/ring.rs` has it, but that the other side runs at each access.
pub mod ring {
    use std::cell::RefCell;
    use std::rc::Rc;

    pub use crate::shape::Shape;

    /// The shared memory: the indices, and a word for each slot.
    #[derive(Clone, Default, Debug)]
    pub struct Memory {
        pub producer: u32,
        pub consumer: u32,
        pub slots: Vec<u64>,
    }

    /// The other side: it may change the shared memory.
    pub type Peer = Box<dyn FnMut(&mut Memory)>;

    struct Shared {
        memory: Memory,
        peer: Peer,
    }

    #[derive(Clone)]
    pub struct SharedRing {
        shared: Rc<RefCell<Shared>>,
        shape: Shape,
    }

    impl SharedRing {
        pub fn new(shape: Shape, peer: Peer) -> Self {
            let memory = Memory {
                slots: vec![0; shape.slots() as usize],
                ..Memory::default()
            };
            let shared = Rc::new(RefCell::new(Shared { memory, peer }));
            Self { shared, shape }
        }

        /// Makes one access. The other side runs before it.
        fn access<R>(&self, f: impl FnOnce(&mut Memory) -> R) -> R {
            let shared = &mut *self.shared.borrow_mut();
            (shared.peer)(&mut shared.memory);
            f(&mut shared.memory)
        }

        /// Returns the memory, without running the other side.
        pub fn memory(&self) -> Memory {
            self.shared.borrow().memory.clone()
        }

        fn place(&self, index: u32) -> usize {
            self.shape.offset(index) / self.shape.slot_bytes()
        }

        pub fn shape(&self) -> Shape {
            self.shape
        }

        pub fn slot_bytes(&self) -> usize {
            self.shape.slot_bytes()
        }

        pub fn next(&self, index: u32) -> u32 {
            self.shape.next(index)
        }

        pub fn producer(&self) -> u32 {
            self.access(|memory| memory.producer) & self.shape.mask()
        }

        pub fn consumer(&self) -> u32 {
            self.access(|memory| memory.consumer) & self.shape.mask()
        }

        pub fn set_producer(&self, index: u32) {
            let index = index & self.shape.mask();
            self.access(|memory| memory.producer = index);
        }

        pub fn set_consumer(&self, index: u32) {
            let index = index & self.shape.mask();
            self.access(|memory| memory.consumer = index);
        }

        /// Reads a slot. Each half is an access of its own: the other side may change it in
        /// between.
        pub fn read(&self, index: u32, to: &mut [u8]) {
            let place = self.place(index);
            let (low, high) = to.split_at_mut(4);
            low.copy_from_slice(&self.access(|memory| memory.slots[place]).to_le_bytes()[..4]);
            high.copy_from_slice(&self.access(|memory| memory.slots[place]).to_le_bytes()[4..]);
        }

        pub fn write(&self, index: u32, from: &[u8]) {
            let place = self.place(index);
            let word = u64::from_le_bytes(from.try_into().unwrap());
            let low = 0xffff_ffff;
            self.access(|memory| memory.slots[place] = (word & low) | (memory.slots[place] & !low));
            self.access(|memory| memory.slots[place] = word);
        }
    }
}

mod choice;
mod shapes;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use choice::{every, Choices};
use prelude::{EBUSY, EINVAL, ENOMEM};
use queue::{Move, PostQueue, WorkQueue, PIECE};
use ring::{Memory, Peer, Shape, SharedRing};

const ENTRIES: u32 = 3;

fn shape() -> Shape {
    Shape::new(ENTRIES, 8).unwrap()
}

/// Returns a process that posts `count` entries, each when there is room: the slot in two stores,
/// then the index. `choices` decides how many of these steps it makes at a time.
fn producer(choices: Choices, count: u64) -> Peer {
    let shape = shape();
    let mut posted = 0;
    let mut step = 0;
    let mut own = 0;
    Box::new(move |memory: &mut Memory| {
        while posted < count && choices.choose(2) == 1 {
            let place = own as usize;
            match step {
                // It only reads the index that it waits for.
                0 if shape.next(own) == memory.consumer => return,
                0 => memory.slots[place] = (posted + 1) & 0xffff_ffff,
                1 => memory.slots[place] = (posted + 1) | ((posted + 1) << 32),
                _ => {
                    own = shape.next(own);
                    memory.producer = own;
                    posted += 1;
                }
            }
            step = (step + 1) % 3;
        }
    })
}

/// Returns entry `number` as a producer makes it, from 1 on.
fn entry(number: u64) -> [u8; 8] {
    (number | (number << 32)).to_le_bytes()
}

// Rules: WRQ-13
#[test]
fn a_consumer_sees_whole_entries_in_their_order() {
    let mut most = 0;
    let runs = every(|choices| {
        let ring = SharedRing::new(shape(), producer(choices.clone(), 4));
        let mut queue = WorkQueue::new(ring);
        let (mut taken, mut retired) = (0, 0);
        for _ in 0..4 {
            let mut copy = [0xee; 8];
            if queue.copy_next(&mut copy) {
                taken += 1;
                assert_eq!(copy, entry(taken));
                queue.take();
            }
            if retired < taken && choices.choose(2) == 1 {
                retired += 1;
                queue.retire();
            }
        }
        most = most.max(taken);
    });
    assert!(runs > 1_000_000 && most == 4, "{runs} runs, {most} entries");
}

#[test]
fn a_slot_that_is_left_is_there_again() {
    every(|choices| {
        let ring = SharedRing::new(shape(), producer(choices, 2));
        let queue = WorkQueue::new(ring);
        let mut copy = [0; 8];
        for _ in 0..3 {
            if queue.copy_next(&mut copy) {
                assert_eq!(copy, entry(1), "it was not taken");
            }
        }
    });
}

#[test]
fn a_queue_is_drained_when_all_is_retired() {
    let mut most = 0;
    every(|choices| {
        let ring = SharedRing::new(shape(), producer(choices, 2));
        let mut queue = WorkQueue::new(ring);
        let mut retired = 0;
        for _ in 0..3 {
            if queue.copy_next(&mut [0; 8]) {
                assert!(!queue.is_drained(), "one is not taken");
                queue.take();
                assert!(!queue.is_drained(), "one is not retired");
                queue.retire();
                retired += 1;
            }
        }
        if retired == 2 {
            assert!(queue.is_drained());
        }
        most = most.max(retired);
    });
    assert_eq!(most, 2);
}

/// Returns a process that consumes the driver's entries, and records them.
fn consumer(choices: Choices, seen: Rc<RefCell<Vec<u64>>>) -> Peer {
    let shape = shape();
    let mut own = 0;
    Box::new(move |memory: &mut Memory| {
        while own != memory.producer && choices.choose(2) == 1 {
            seen.borrow_mut().push(memory.slots[own as usize]);
            own = shape.next(own);
            memory.consumer = own;
        }
    })
}

// Rules: WRQ-13
#[test]
fn a_producer_publishes_whole_entries_and_overwrites_none() {
    let mut most = 0;
    let runs = every(|choices| {
        let seen = Rc::default();
        let ring = SharedRing::new(shape(), consumer(choices, Rc::clone(&seen)));
        let mut queue = PostQueue::new(&ring).unwrap();
        let mut posted = 0;
        for _ in 0..6 {
            let made = queue.post(|slot| {
                slot.copy_from_slice(&entry(posted + 1));
                Ok(8)
            });
            match made {
                Ok(()) => posted += 1,
                Err(error) => {
                    assert_eq!(error, ENOMEM);
                    assert!(posted - seen.borrow().len() as u64 <= u64::from(ENTRIES));
                }
            }
        }
        // Entries that were not seen are still there, in order.
        let memory = ring.memory();
        let mut seen = seen.take();
        let mut index = memory.consumer;
        while index != memory.producer {
            seen.push(memory.slots[index as usize]);
            index = shape().next(index);
        }
        let all: Vec<_> = (1..=posted).map(|number| number | (number << 32)).collect();
        assert_eq!(seen, all);
        most = most.max(posted);
    });
    assert!(runs > 1000 && most == 6, "{runs} runs, {most} entries");
}

#[test]
fn what_cannot_be_made_is_not_posted() {
    let ring = SharedRing::new(shape(), Box::new(|_| {}));
    let mut queue = PostQueue::new(&ring).unwrap();
    assert_eq!(queue.post(|_| Err(EINVAL)), Err(EINVAL));
    assert_eq!(queue.post(|slot| Ok(slot.len() + 1)), Err(EINVAL));
    assert_eq!(ring.memory().producer, 0);
}

/// Returns a process that sometimes stores anything: invalid indices, and slots that change while
/// they are copied.
fn hostile(choices: Choices, stores: u32) -> Peer {
    const INDICES: [u32; 6] = [0, 1, 2, 3, 4, u32::MAX];
    let mut left = stores;
    Box::new(move |memory: &mut Memory| {
        while left > 0 {
            match choices.choose(1 + 2 * INDICES.len()) {
                0 => return,
                which if which <= INDICES.len() => memory.producer = INDICES[which - 1],
                which => memory.consumer = INDICES[which - 1 - INDICES.len()],
            }
            memory.slots.fill(u64::from(left) * 0x1111_1111_1111_1111);
            left -= 1;
        }
    })
}

// Rules: WRQ-12, WRQ-14
#[test]
fn a_peer_that_stores_anything_has_no_hold_on_us() {
    let runs = every(|choices| {
        let ring = SharedRing::new(shape(), hostile(choices.clone(), 3));
        let mut queue = WorkQueue::new(ring.clone());
        // The slots that are taken and not given back, counted independently of the driver.
        let mut held = VecDeque::new();
        let mut next = 0;
        for _ in 0..3 {
            assert!(queue.waiting() <= ENTRIES, "more than there can be");
            let mut copy = [0; 8];
            let is_room = held.len() < ENTRIES as usize;
            if is_room && queue.copy_next(&mut copy) {
                // It advances slot by slot, regardless of the other side.
                held.push_back(next);
                next = shape().next(next);
                queue.take();
            }
            if choices.choose(2) == 1 && held.pop_front().is_some() {
                queue.retire();
                // The published index comes from its own count.
                let own = held.front().copied().unwrap_or(next);
                assert_eq!(ring.memory().consumer, own);
            }
        }
    });
    assert!(runs > 100_000, "{runs} runs");
}

// Rules: WRQ-14
#[test]
fn a_peer_that_stores_anything_does_not_mislead_a_producer() {
    let runs = every(|choices| {
        let ring = SharedRing::new(shape(), hostile(choices, 2));
        let mut queue = PostQueue::new(&ring).unwrap();
        let mut next = 0;
        for _ in 0..3 {
            let made = queue.post(|slot| {
                slot.copy_from_slice(&entry(7));
                Ok(8)
            });
            if made.is_ok() {
                next = shape().next(next);
                assert_eq!(ring.memory().producer, next);
            }
        }
    });
    assert!(runs > 1000, "{runs} runs");
}

/// Returns a ring for `entries` entries without another user.
fn quiet(entries: u32) -> SharedRing {
    SharedRing::new(Shape::new(entries, 8).unwrap(), Box::new(|_| {}))
}

/// A process stores anything to either ring while a queue moves from one to the other, slot by slot.
#[test]
fn a_queue_moves_to_another_ring_whatever_its_peer_stores() {
    let (mut moves, mut refused) = (0, 0);
    every(|choices| {
        let from = SharedRing::new(shape(), hostile(choices.clone(), 2));
        let mut queue = WorkQueue::new(from);
        let entries = [1, 7][choices.choose(2)];
        let to = SharedRing::new(Shape::new(entries, 8).unwrap(), hostile(choices, 1));
        let mut moving = queue.begin_move(to, 1);
        for step in 0.. {
            assert!(step <= 2 * shape().slots(), "there is an end to it");
            match queue.copy_piece(&mut moving, &mut [0; 8]) {
                Ok(false) => continue,
                Ok(true) => moves += 1,
                Err(error) => {
                    assert!(entries == 1 && error == EINVAL);
                    refused += 1;
                    return;
                }
            }
            queue.complete_move(&moving);
            assert!(queue.waiting() <= entries);
            return;
        }
    });
    assert!(moves > 1000 && refused > 10, "{moves} and {refused}");
}

#[test]
fn a_move_that_others_keep_going_is_given_up() {
    let ring = quiet(ENTRIES);
    let mut posts = PostQueue::new(&ring).unwrap();
    let mut queue = WorkQueue::new(ring);
    let mut moving = queue.begin_move(quiet(7), 1);
    let mut steps = 0;
    let given_up = loop {
        // As many as can be are there before each step, and none of them was there before.
        while posts.post(|slot| Ok(slot.len())).is_ok() {}
        match queue.copy_piece(&mut moving, &mut [0; 8]) {
            Ok(is_moved) => assert!(!is_moved),
            Err(error) => break error,
        }
        while queue.waiting() > 0 {
            queue.take();
            queue.retire();
            moving.skip(1);
        }
        steps += 1;
    };
    assert_eq!((given_up, steps), (EBUSY, 2 * shape().slots()));
}

/// Large slots go a few at a time, and none is too large.
#[test]
fn a_piece_is_of_a_bounded_number_of_slots_and_bytes() {
    for (slot_bytes, expected) in [(8, 64), (256, 64), (512, 32), (1 << 14, 1), (1 << 16, 1)] {
        let ring = |entries| {
            let shape = Shape::new(entries, slot_bytes).unwrap();
            SharedRing::new(shape, Box::new(|_| {}))
        };
        let mut moving = Move::new(&ring(200), ring(200), PIECE);
        let mut steps = 1;
        while !moving.copy(&ring(200), 0, 200, &mut [0; 8]).unwrap() {
            steps += 1;
        }
        assert_eq!(steps, 200_u32.div_ceil(expected), "slots of {slot_bytes}");
    }
}

/// The kernel posts, the driver takes, and the ring is replaced by one of another size, slot by slot,
/// in any order.
#[test]
fn what_the_kernel_posts_is_taken_in_its_order_though_the_ring_moves() {
    let (mut most, mut moves, mut refused) = (0, 0, 0);
    let (mut overtaken, mut posted_meanwhile) = (0, 0);
    every(|choices| {
        let ring = quiet(ENTRIES);
        let mut posts = PostQueue::new(&ring).unwrap();
        let mut queue = WorkQueue::new(ring);
        let mut moving: Option<(Move, SharedRing)> = None;
        let (mut posted, mut taken) = (0, 0);
        for _ in 0..9 {
            match choices.choose(4) {
                0 => {
                    let made = posts.post(|slot| {
                        slot.copy_from_slice(&entry(posted + 1));
                        Ok(8)
                    });
                    posted += u64::from(made.is_ok());
                    posted_meanwhile += u32::from(made.is_ok() && moving.is_some());
                }
                1 => {
                    let mut copy = [0; 8];
                    assert_eq!(queue.copy_next(&mut copy), taken < posted);
                    if taken < posted {
                        taken += 1;
                        assert_eq!(copy, entry(taken));
                        queue.take();
                        queue.retire();
                        if let Some((moving, _)) = &mut moving {
                            moving.skip(1);
                            overtaken += 1;
                        }
                    }
                }
                size => {
                    let entries = if size == 2 { 1 } else { 7 };
                    let (mut step, to) = moving.take().unwrap_or_else(|| {
                        let to = quiet(entries);
                        (queue.begin_move(to.clone(), 1), to)
                    });
                    match queue.copy_piece(&mut step, &mut [0; 8]) {
                        Ok(false) => moving = Some((step, to)),
                        Ok(true) => {
                            queue.complete_move(&step);
                            posts.go_on_in(to);
                            moves += 1;
                        }
                        Err(error) => {
                            assert!(posted - taken > u64::from(to.shape().capacity()));
                            assert_eq!(error, EINVAL);
                            refused += 1;
                        }
                    }
                }
            }
        }
        most = most.max(posted - taken);
    });
    assert!(moves > 1000 && refused > 100 && most > u64::from(ENTRIES));
    assert!(overtaken > 1000 && posted_meanwhile > 1000);
}

#[test]
fn a_reset_forgets_what_was_posted() {
    every(|choices| {
        let ring = SharedRing::new(shape(), producer(choices, 3));
        let mut queue = WorkQueue::new(ring.clone());
        queue.copy_next(&mut [0; 8]);
        queue.reset();
        assert!(ring.memory().consumer <= ring.memory().producer);
        // Entries that the process posted since come next, and no older ones.
        let before = u64::from(ring.memory().consumer);
        let mut copy = [0; 8];
        if queue.copy_next(&mut copy) {
            assert_eq!(copy, entry(before + 1));
        }
    });
}

/// The search finds faults: with the index stored before the slot, the driver reads half an entry.
#[test]
fn a_process_that_publishes_too_early_is_caught() {
    let torn = Rc::new(RefCell::new(0));
    let count = torn.clone();
    every(move |choices| {
        let mut steps = 0;
        let early = Box::new(move |memory: &mut Memory| {
            while steps < 2 && choices.choose(2) == 1 {
                match steps {
                    0 => memory.producer = 1,
                    _ => memory.slots[0] = 1 | (1 << 32),
                }
                steps += 1;
            }
        });
        let queue = WorkQueue::new(SharedRing::new(shape(), early));
        let mut copy = [0; 8];
        if queue.copy_next(&mut copy) && copy != entry(1) {
            *count.borrow_mut() += 1;
        }
    });
    assert!(*torn.borrow() > 0);
}
