// SPDX-License-Identifier: GPL-2.0

//! Two queue pairs, and a network that loses, doubles and reorders packets as the input says.

use roce::completion::Status;
use roce::congestion::Law;
use roce::num::Mtu;
use roce::wr::ATOMIC_BYTES;

use crate::net::{fetch_add, read, send, write, Link, Net, Setup, A, B};
use crate::rng::Rng;

/// An area of memory: each request has its own part of it.
const AREA: usize = 16 << 10;
const SOURCE: usize = 0;
const WRITTEN: usize = AREA;
const RECEIVED: usize = 2 * AREA;
const READ: usize = 3 * AREA;
const COUNTER: usize = 4 * AREA;
/// Where the requester has the results of its atomics.
const RESULTS: usize = 4 * AREA;
const MEMORY: usize = 5 * AREA;

/// The most bytes of a request: a few packets.
const MOST: u64 = 2000;
/// So that all requests have room in an area.
const MOST_REQUESTS: u64 = 8;
const ROOM: usize = AREA / MOST_REQUESTS as usize;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Write,
    Send,
    Read,
    FetchAdd,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    kind: Kind,
    len: usize,
}

fn request(rng: &mut Rng) -> Request {
    let kind = match rng.below(4) {
        0 => Kind::Write,
        1 => Kind::Send,
        2 => Kind::Read,
        _ => Kind::FetchAdd,
    };
    Request {
        kind,
        len: rng.below(MOST + 1) as usize,
    }
}

fn setup(rng: &mut Rng) -> Setup {
    Setup {
        mtu: Mtu::B256,
        // The PSNs wrap around.
        psn: [0xff_fff0, 0x7f_fff8],
        link: Link {
            delay_ns: 5_000,
            loss: rng.below(256) as u32,
            duplication: rng.below(256) as u32,
            reordering: rng.below(512) as u32,
            late_ns: 1 + rng.below(1 << 16),
            corruption: 0,
            batch: 1 + rng.below(16) as usize,
        },
        keeps: rng.below(4) != 0,
        law: Law::ALL[rng.below(3) as usize],
        memory: MEMORY,
        ..Setup::default()
    }
}

fn post(net: &mut Net, id: usize, request: Request) {
    let (at, len) = (id * ROOM, request.len as u32);
    let wr_id = id as u64;
    match request.kind {
        Kind::Write => net.post(A, wr_id, write(WRITTEN + at), SOURCE + at, len),
        Kind::Send => {
            net.post_recv(B, wr_id, RECEIVED + at, ROOM as u32);
            net.post(A, wr_id, send(), SOURCE + at, len);
        }
        Kind::Read => net.post(A, wr_id, read(SOURCE + at), READ + at, len),
        Kind::FetchAdd => net.post(
            A,
            wr_id,
            fetch_add(COUNTER, 1),
            RESULTS + 8 * id,
            ATOMIC_BYTES,
        ),
    }
}

/// Checks the data of a request that succeeded. `adds` are the atomics before it.
fn check(net: &Net, id: usize, request: Request, adds: u64) {
    let [ours, theirs] = [A, B].map(|side| &net.ends[side].world.memory);
    let at = id * ROOM;
    let part = |memory: &[u8], area: usize| memory[area + at..][..request.len].to_vec();
    match request.kind {
        Kind::Write => assert_eq!(part(theirs, WRITTEN), part(ours, SOURCE)),
        Kind::Send => assert_eq!(part(theirs, RECEIVED), part(ours, SOURCE)),
        Kind::Read => assert_eq!(part(ours, READ), part(theirs, SOURCE)),
        Kind::FetchAdd => assert_eq!(word(ours, RESULTS + 8 * id), adds, "executed once"),
    }
}

fn word(memory: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(memory[at..at + 8].try_into().expect("eight bytes"))
}

/// Runs requests over a network whose faults the input chooses. Then the network has no more faults.
/// Requests complete in order, the data of those that succeed is right, and each atomic is executed once.
pub fn reorder(input: &[u8]) {
    let mut rng = Rng::of_bytes(input);
    let setup = setup(&mut rng);
    let requests: Vec<_> = (0..1 + rng.below(MOST_REQUESTS))
        .map(|_| request(&mut rng))
        .collect();
    let mut net = Net::new(setup);
    net.rng = rng;
    for side in [A, B] {
        for (at, byte) in net.ends[side].world.memory[..AREA].iter_mut().enumerate() {
            *byte = (at * 7 + side * 13 + at / 256) as u8;
        }
        net.ends[side].world.memory[AREA..].fill(0);
    }
    for (id, request) in requests.iter().enumerate() {
        post(&mut net, id, *request);
    }
    while !net.rng.is_over() && net.step() {}
    net.setup.link = Link {
        delay_ns: setup.link.delay_ns,
        batch: setup.link.batch,
        ..Link::default()
    };
    net.run();
    let statuses = net.ends[A].world.sent_statuses();
    let ids: Vec<_> = statuses.iter().map(|(id, _)| *id).collect();
    assert_eq!(
        ids,
        (0..requests.len() as u64).collect::<Vec<_>>(),
        "all complete, in order"
    );
    let done = statuses
        .iter()
        .take_while(|(_, status)| *status == Status::Success)
        .count();
    let mut adds = 0;
    for (id, request) in requests.iter().take(done).enumerate() {
        check(&net, id, *request, adds);
        adds += u64::from(matches!(request.kind, Kind::FetchAdd));
    }
    let executed = word(&net.ends[B].world.memory, COUNTER);
    match done == requests.len() {
        true => {
            assert_eq!(executed, adds);
            net.assert_quiet();
        }
        false => assert!(
            matches!(statuses[done].1, Status::TransportRetryExceeded),
            "{statuses:?}"
        ),
    }
}
