// SPDX-License-Identifier: GPL-2.0

//! Random work over a bad network, against a model of memory that knows nothing of packets.

use roce::congestion::Law;
use roce::num::{Imm, Iova, Lkey, Mtu, Rkey};
use roce::wr::{Bind, LocalOp, Register, SendFlags, SendOp, ATOMIC_BYTES};

use crate::net::{
    all_succeeded, atomic_write, compare_swap, fetch_add, flush, read, send, send_imm, write,
    write_imm, Link, Net, Setup, A, B,
};
use crate::rng::Rng;
use crate::world::apply;

const MIB: usize = 1 << 20;
const ATOMIC: usize = ATOMIC_BYTES as usize;
/// Never written: the source of SENDs, of WRITEs and of some READs.
const SOURCE: usize = 0;
/// Where the peer WRITEs to.
const WRITTEN: usize = MIB;
/// Receives.
const RECEIVED: usize = 2 * MIB;
/// The destination of READs.
const READ: usize = 3 * MIB;
const END: usize = 4 * MIB;
/// The operands of atomics, at the end of the written area.
const WORDS: usize = RECEIVED - 64;

/// Work on the side that posts it.
const BIND: LocalOp = LocalOp::Bind(Bind {
    window: Rkey(1),
    key: Rkey(2),
    lkey: Lkey(3),
    iova: Iova(4),
    length: 5,
    access: 6,
});

/// A registration, which overtakes earlier requests.
const REGISTER: LocalOp = LocalOp::Register(Register {
    key: Rkey(1),
    iova: Iova(2),
    access: 3,
});

/// A message that takes a receive: its completion, and the place of its bytes.
struct Arrival {
    imm: Option<Imm>,
    byte_len: u32,
    at: usize,
    room: u32,
}

/// The requests of one side, and the memory that they must leave.
struct Model {
    side: usize,
    rng: Rng,
    posted: u64,
    /// The peer's memory.
    peer: Vec<u8>,
    /// Our own.
    own: Vec<u8>,
    arrivals: Vec<Arrival>,
    receives_posted: usize,
    receive_at: usize,
    read_at: usize,
    /// A READ reads memory that the next WRITE may change: the WRITE has to wait.
    fence: bool,
}

impl Model {
    fn new(net: &Net, side: usize) -> Self {
        Self {
            side,
            rng: Rng::new(net.setup.seed * 2 + side as u64),
            posted: 0,
            peer: net.ends[1 - side].world.memory.clone(),
            own: net.ends[side].world.memory.clone(),
            arrivals: Vec::new(),
            receives_posted: 0,
            receive_at: RECEIVED,
            read_at: READ,
            fence: false,
        }
    }

    /// Returns a length, half of the time near a multiple of the MTU.
    fn length(&mut self, mtu: u32) -> u32 {
        let rng = &mut self.rng;
        match rng.below(4) {
            0 => rng.below(5) as u32,
            1 => (rng.below(12) as u32 * mtu + rng.below(3) as u32).saturating_sub(1),
            2 => rng.below(u64::from(mtu)) as u32,
            _ => rng.below(u64::from(mtu) * 20) as u32,
        }
    }

    /// Posts one random request, and applies it to the model.
    fn post(&mut self, net: &mut Net) {
        let room = (END - self.read_at).min(READ - self.receive_at);
        let mut len = self.length(net.setup.mtu.bytes()).min(room as u32);
        let size = len as usize;
        let from = SOURCE + self.rng.below((MIB - size.max(ATOMIC)) as u64) as usize;
        let to = WRITTEN + self.rng.below((WORDS - WRITTEN - size) as u64) as usize;
        let imm = (self.rng.next() as u32).to_ne_bytes();
        let mut flags = SendFlags {
            fence: self.rng.chance(50),
            signaled: true,
            solicited: self.rng.chance(300),
        };
        let data = self.own[from..from + size].to_vec();
        let with_imm = self.rng.chance(400);
        let (op, at) = match self.rng.below(10) {
            0 | 1 => {
                let at = self.receive_at;
                self.receive_at += size;
                self.peer[at..at + size].copy_from_slice(&data);
                self.arrivals.push(Arrival {
                    imm: with_imm.then_some(Imm(imm)),
                    byte_len: len,
                    at,
                    room: len,
                });
                (if with_imm { send_imm(imm) } else { send() }, from)
            }
            2 | 3 => {
                self.peer[to..to + size].copy_from_slice(&data);
                flags.fence |= std::mem::take(&mut self.fence);
                if with_imm {
                    self.arrivals.push(Arrival {
                        imm: Some(Imm(imm)),
                        byte_len: len,
                        at: RECEIVED,
                        room: 0,
                    });
                }
                (
                    if with_imm {
                        write_imm(to, imm)
                    } else {
                        write(to)
                    },
                    from,
                )
            }
            6 => {
                let word = WORDS + 8 * self.rng.below(8) as usize;
                let data = self.own[from..from + ATOMIC].to_vec();
                self.peer[word..word + ATOMIC].copy_from_slice(&data);
                len = ATOMIC as u32;
                (atomic_write(word), from)
            }
            4 | 5 if room >= ATOMIC => {
                let word = WORDS + 8 * self.rng.below(8) as usize;
                let found = self.peer[word..word + ATOMIC].try_into().unwrap();
                let value = u64::from_ne_bytes(found);
                let other = self.rng.next();
                let op = match self.rng.below(3) {
                    0 => fetch_add(word, other),
                    1 => compare_swap(word, value, other),
                    _ => compare_swap(word, other, 0),
                };
                if let SendOp::Atomic { op, .. } = op {
                    let new = apply(op, value);
                    self.peer[word..word + ATOMIC].copy_from_slice(&new.to_ne_bytes());
                }
                let at = self.read_at;
                self.read_at += ATOMIC;
                self.own[at..at + ATOMIC].copy_from_slice(&found);
                len = ATOMIC as u32;
                (op, at)
            }
            8 => {
                len = 0;
                let op = if self.rng.chance(500) { BIND } else { REGISTER };
                (SendOp::Local(op), from)
            }
            7 => (flush(to, with_imm), from),
            _ => {
                let changing = self.rng.chance(500);
                self.fence |= changing;
                let source = if changing { to } else { from };
                let at = self.read_at;
                self.read_at += size;
                self.own[at..at + size].copy_from_slice(&self.peer[source..source + size]);
                (read(source), at)
            }
        };
        net.post_flagged(self.side, self.posted, op, flags, at, len);
        self.posted += 1;
    }

    /// Posts the receive for the next message that lacks it; false if there is none.
    fn post_receive(&mut self, net: &mut Net) -> bool {
        let Some(arrival) = self.arrivals.get(self.receives_posted) else {
            return false;
        };
        let id = self.receives_posted as u64;
        net.post_recv(1 - self.side, id, arrival.at, arrival.room);
        self.receives_posted += 1;
        true
    }

    fn check(&self, net: &Net) {
        let (own, peer) = (&net.ends[self.side].world, &net.ends[1 - self.side].world);
        all_succeeded(&own.sent_statuses(), 0..self.posted);
        all_succeeded(&peer.received_statuses(), 0..self.arrivals.len() as u64);
        for (completion, arrival) in peer.received.iter().zip(&self.arrivals) {
            assert_eq!(completion.imm, arrival.imm);
            assert_eq!(completion.byte_len, arrival.byte_len);
        }
        assert!(own.memory[READ..END] == self.own[READ..END], "READs");
        assert!(own.memory[..MIB] == self.own[..MIB], "the source changed");
        let changed = WRITTEN..READ;
        assert!(
            peer.memory[changed.clone()] == self.peer[changed],
            "SENDs and WRITEs"
        );
    }
}

/// Lets both sides work on each other; returns packets sent for each that was needed.
fn run(setup: Setup, messages: u64, late_receives: bool) -> f64 {
    let mut net = Net::new(setup);
    let mut models = [A, B].map(|side| Model::new(&net, side));
    let mut rng = Rng::new(setup.seed ^ 0xabcd);
    let mut steps = 0u64;
    loop {
        let mut left = false;
        for model in &mut models {
            if model.posted < messages {
                left = true;
                if rng.chance(300) {
                    model.post(&mut net);
                }
            }
            let chance = if late_receives { 50 } else { 1000 };
            if rng.chance(chance) {
                model.post_receive(&mut net);
            }
            left |= model.receives_posted < model.arrivals.len();
        }
        if !net.step() && !left {
            break;
        }
        steps += 1;
        assert!(steps < 3_000_000, "it does not end");
    }
    net.assert_quiet();
    for model in &models {
        model.check(&net);
    }
    let needed = models.iter().map(|model| {
        let bytes = model.receive_at - RECEIVED + model.read_at - READ;
        messages as f64 * 2.0 + bytes as f64 / f64::from(setup.mtu.bytes())
    });
    net.packets as f64 / needed.sum::<f64>()
}

/// Returns a link with the given faults, each in a thousand.
fn link(loss: u32, duplication: u32, reordering: u32, corruption: u32) -> Link {
    Link {
        delay_ns: 5_000,
        loss,
        duplication,
        reordering,
        late_ns: 0,
        corruption,
        batch: 8,
    }
}

/// Returns what a seed chooses in each plan.
fn setup_of(seed: u64, link: Link) -> Setup {
    let near_wrap = 0x100_0000 - (seed as u32 * 7) % 200;
    Setup {
        psn: [near_wrap, near_wrap + 0x40_0000],
        rd_atomic: [1, 2, 4, 16][seed as usize % 4],
        link: Link {
            batch: 1 + seed as usize % 16,
            ..link
        },
        seed,
        ..Setup::default()
    }
}

/// Runs a plan with many seeds; more packets than `bound` times those needed are a storm. A
/// receiver that is late costs a window for each time that it was not ready, and is not counted.
fn plan(link: Link, bound: f64) {
    plan_with(link, 0, bound);
}

/// Runs a plan with absent memory: `absence` in a thousand accesses.
fn plan_with(link: Link, absence: u32, bound: f64) {
    for seed in 0..60 {
        let setup = Setup {
            mtu: Mtu::ALL[seed as usize % 5],
            absence,
            ..setup_of(seed, link)
        };
        let late_receives = seed % 3 == 0;
        let ratio = run(setup, 40, late_receives);
        assert!(
            late_receives || ratio < bound,
            "seed {seed}: {ratio} packets for each needed"
        );
    }
}

// Rules: RSP-18
#[test]
fn a_good_network() {
    plan(link(0, 0, 0, 0), 2.0);
}

#[test]
fn loss() {
    plan(link(10, 0, 0, 0), 3.0);
}

#[test]
fn heavy_loss() {
    plan(link(100, 0, 0, 0), 6.0);
}

#[test]
fn duplication() {
    plan(link(0, 200, 0, 0), 3.0);
}

#[test]
fn reordering() {
    plan(link(0, 0, 100, 0), 12.0);
}

#[test]
fn corruption() {
    plan(link(0, 0, 0, 20), 3.0);
}

// Rules: ORD-2, ORD-3, ORD-8, RSP-17, RSP-20
#[test]
fn everything_at_once() {
    plan(link(20, 50, 50, 10), 6.0);
}

// Rules: RSP-22
#[test]
fn memory_that_comes_and_goes() {
    plan_with(link(0, 0, 0, 0), 300, 2.0);
}

#[test]
fn memory_that_comes_and_goes_on_a_bad_network() {
    plan_with(link(20, 50, 50, 10), 300, 6.0);
}

/// Runs a plan without losses and without a timeout: nothing may wait for one.
fn plan_without_loss(link: Link, absence: u32) {
    for seed in 0..120 {
        let setup = Setup {
            mtu: Mtu::ALL[seed as usize % 2],
            timeout: 0,
            stalls: 40,
            cnps: 200,
            law: Law::ALL[seed as usize % 3],
            absence,
            ..setup_of(seed, link)
        };
        run(setup, 40, seed % 2 == 0);
    }
}

#[test]
fn congestion_without_a_timeout() {
    plan_without_loss(link(0, 50, 0, 0), 300);
}

// Rules: RNR-20
#[test]
fn reordering_without_a_timeout() {
    plan_without_loss(link(0, 0, 50, 0), 0);
    plan_without_loss(link(0, 50, 50, 0), 100);
}
