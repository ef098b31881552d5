// SPDX-License-Identifier: GPL-2.0

//! A peer that sends anything at any time, and an owner that does anything at any time. Nothing
//! panics, no byte is placed outside of a grant, and all taken requests are given back in order:
//! the world ensures that. In the end nothing is held.

use roce::completion::Status;
use roce::congestion::Law;
use roce::host::{Flush, Source};
use roce::num::{Bundle, Iova, Mtu, Pkey, Psn, Qpn, Rkey};
use roce::opcode::{self, Connection, Position, Transport};
use roce::qp::Half;
use roce::recv::{RecvConfig, RecvState, RecvUpdate, RemoteAccess, Replay, Responder};
use roce::send::{Requester, RetryCount, SendConfig, SendState, SendUpdate, Slot};
use roce::time::{AckTimeout, Instant, RnrTimer};
use roce::wire::{self, Packet};
use roce::wr::{
    AtomicOp, BadRequest, LocalOp, RecvRequest, Remote, SendFlags, SendOp, SendRequest,
    ATOMIC_BYTES,
};

use crate::net::{GLOBAL, IOVA, RKEY};
use crate::rng::Rng;
use crate::world::{Grant, Payload, Region, World};

const MEMORY: usize = 1 << 16;

/// A queue pair that is attacked.
pub struct Victim {
    requester: Requester<Payload, Vec<Slot<Payload>>>,
    responder: Responder<Payload, Grant, Vec<Replay<Grant>>>,
    pub world: World,
    now: Instant,
    pub rng: Rng,
    mtu: Mtu,
    posted: u64,
}

impl Victim {
    /// Creates a victim with random memory and events from `rng`.
    pub fn new(mut rng: Rng) -> Self {
        let mut world = World::default();
        world.absence = 100;
        world.memory.resize(MEMORY, 0);
        let mut victim = Self {
            requester: Requester::new(
                Qpn::new(1),
                rng.chance(500),
                (0..1 + rng.below(20)).map(|_| Slot::default()).collect(),
            ),
            responder: Responder::new(Qpn::new(1), replays(rng.below(4))),
            world,
            now: Instant::from_ns(0),
            rng,
            mtu: Mtu::B256,
            posted: 0,
        };
        victim.grant();
        victim.start();
        victim
    }

    fn grant(&mut self) {
        let region = Region {
            iova: IOVA,
            at: 0,
            len: MEMORY,
            read: self.rng.chance(900),
            write: self.rng.chance(900),
            atomic: self.rng.chance(900),
            flush: self.rng.chance(500),
            revocable: self.rng.chance(500),
        };
        self.world.regions.insert(RKEY, region);
    }

    fn start(&mut self) {
        let rng = &mut self.rng;
        let mtu = Mtu::ALL[rng.below(2) as usize];
        self.mtu = mtu;
        let near_wrap = |rng: &mut Rng| Psn::new((0x100_0000 - 20) + rng.below(40) as u32);
        self.requester.start(SendConfig {
            law: Law::Window,
            connection: Connection::Reliable,
            dest_qp: Qpn::new(2),
            pkey: Pkey::DEFAULT,
            mtu,
            bundle: Bundle::ONE,
            sq_psn: near_wrap(rng),
            timeout: AckTimeout::new(rng.below(3) as u8).unwrap(),
            retry_cnt: RetryCount::new(rng.below(8) as u8).unwrap(),
            rnr_retry: RetryCount::new(rng.below(8) as u8).unwrap(),
            max_rd_atomic: rng.below(4) as u8,
        });
        self.responder.start(RecvConfig {
            connection: Connection::Reliable,
            dest_qp: Qpn::new(2),
            pkey: Pkey::DEFAULT,
            mtu,
            bundle: Bundle::ONE,
            rq_psn: near_wrap(rng),
            max_dest_rd_atomic: rng.below(4) as u8,
            min_rnr_timer: RnrTimer::from_low_bits(rng.next() as u8),
            access: RemoteAccess {
                write: rng.chance(900),
                read: rng.chance(900),
                atomic: rng.chance(900),
                flush: GLOBAL,
            },
        });
    }

    /// Returns a length or offset that is likely to matter.
    fn size(&mut self) -> u32 {
        let near = [0, 256, 512, 1024, 4096][self.rng.below(5) as usize];
        (near + self.rng.below(5) as u32).saturating_sub(2)
    }

    /// Makes a packet whose numbers are likely to matter: a header of random bytes, repaired in
    /// places, that parses.
    fn packet(&mut self) -> Option<(Packet, Half)> {
        let mut header = [0; wire::MAX_HEADER];
        self.rng.fill(&mut header);
        let operations = [0x15, 0x15, 0x15, 0x1e][self.rng.below(4) as usize];
        let operation = self.rng.below(operations) as u8;
        let (_, info) = opcode::decode(operation).ok()?;
        let half = if info.request {
            Half::Responder
        } else {
            Half::Requester
        };
        header[0] = operation;
        header[1] &= 0x80;
        let around = match half {
            Half::Requester => self.requester.next_psn(),
            Half::Responder => self.responder.expected_psn(),
        };
        // Half of the packets are those that an honest peer might send next.
        let honest = self.rng.chance(500);
        let psn = match half {
            Half::Responder if honest => around?,
            Half::Requester if honest => around?.sub(1 + self.rng.below(3) as u32),
            _ => {
                let spread = [3, 40, 1 << 24][self.rng.below(3) as usize];
                around?
                    .add(self.rng.below(spread) as u32)
                    .sub(spread as u32 / 2)
            }
        };
        header[9..12].copy_from_slice(&psn.to_be_bytes());
        let payload = match (info.payload, info.position) {
            (false, _) => 0,
            (true, Position::First | Position::Middle) if honest => self.mtu.bytes(),
            (true, _) if honest => self.rng.below(u64::from(self.mtu.bytes())) as u32,
            (true, _) => self.size(),
        };
        // RETH or AtomicETH, or AETH.
        if half == Half::Responder {
            let at = u64::from(self.size()) & [!7, !0][self.rng.below(2) as usize];
            let only = honest && info.payload && info.position == Position::Only;
            let length = if only { payload } else { self.size() };
            header[12..20].copy_from_slice(&(IOVA + at).to_be_bytes());
            header[20..24].copy_from_slice(&RKEY.to_be_bytes());
            header[24..28].copy_from_slice(&length.to_be_bytes());
        } else {
            let refusals = if honest { 0 } else { 5 };
            let syndromes = [0x1f, 0x1f, 0x21, 0x60, 0x61, 0x62, 0x63];
            header[12] = syndromes[self.rng.below(2 + refusals) as usize];
        }
        let extensions = opcode::header_bytes(Transport::Rc, info);
        let pad = payload.wrapping_neg() & 3;
        header[1] |= (pad as u8) << 4;
        let packet = wire::parse(&header, 12 + extensions + payload + pad + 4);
        Some((packet.expect("it was made to parse"), half))
    }

    fn handle_packet(&mut self) {
        let Some((packet, half)) = self.packet() else {
            return;
        };
        let payload = vec![7; packet.payload_len as usize];
        let mut host = self.world.host(&payload);
        // It may be put off, and never come again.
        let _ = match half {
            Half::Requester => self.requester.handle_response(self.now, &packet, &mut host),
            Half::Responder => self.responder.handle_request(&packet, &mut host),
        };
    }

    fn transmit(&mut self) {
        let faulty = self.rng.chance(20);
        for _ in 0..self.rng.below(8) {
            let mut host = self.world.host(&[]);
            let Some(transmit) = self.requester.poll_transmit(self.now, &mut host) else {
                break;
            };
            if let Source::Bytes { memory, at, len } = transmit.source {
                assert!(len > 0 && at + len <= memory.len);
            }
            let psn = transmit.psn;
            if self.world.is_absent() {
                self.requester.unsend(psn);
            } else if faulty {
                let mut host = self.world.host(&[]);
                self.requester.payload_fault(psn, &mut host);
            }
        }
        for _ in 0..self.rng.below(8) {
            let mut host = self.world.host(&[]);
            let Some(transmit) = self.responder.poll_transmit(&mut host) else {
                break;
            };
            if let Source::Bytes { memory, at, len } = transmit.source {
                assert!(len > 0 && at + len <= memory.len);
            }
            if self.world.is_absent() {
                self.responder.unsend();
            } else if faulty {
                let mut host = self.world.host(&[]);
                self.responder.payload_fault(&mut host);
            }
        }
    }

    fn post(&mut self) {
        let wr_id = self.posted;
        self.posted += 1;
        let bad = BadRequest {
            wr_id,
            status: Status::LocalProtection,
        };
        let atomic = self.rng.chance(200);
        let length = if atomic { ATOMIC_BYTES } else { self.size() };
        let payload = self.world.payload(0, length);
        let remote = Remote {
            iova: Iova(IOVA),
            rkey: Rkey(RKEY),
        };
        if self.rng.chance(300) {
            let request = RecvRequest {
                wr_id,
                length,
                payload,
            };
            let is_bad = self.rng.chance(20);
            let queue = &mut self.world.recv_queue;
            queue.push_back(if is_bad { Err(bad) } else { Ok(request) });
            return;
        }
        let op = match self.rng.below(4) {
            0 if atomic => SendOp::AtomicWrite { remote },
            _ if atomic => SendOp::Atomic {
                remote,
                op: AtomicOp::FetchAdd { add: 1 },
            },
            0 if self.rng.chance(100) => SendOp::SendInvalidate { rkey: Rkey(RKEY) },
            1 if self.rng.chance(100) => SendOp::Local(LocalOp::Invalidate { rkey: Rkey(RKEY) }),
            0 => SendOp::Send { imm: None },
            1 => SendOp::Write { remote, imm: None },
            _ => SendOp::Read { remote },
        };
        let request = SendRequest {
            wr_id,
            op,
            flags: SendFlags {
                fence: self.rng.chance(100),
                signaled: self.rng.chance(500),
                solicited: self.rng.chance(500),
            },
            length,
            payload,
        };
        let is_bad = self.rng.chance(20);
        let queue = &mut self.world.send_queue;
        queue.push_back(if is_bad { Err(bad) } else { Ok(request) });
    }

    /// Does something that an owner does seldom.
    fn verb(&mut self) {
        let rng = &mut self.rng;
        let mut host = self.world.host(&[]);
        match rng.below(10) {
            0 => self.requester.drain(&mut host),
            1 | 2 => self.requester.resume(),
            3 => self.requester.modify(SendUpdate {
                bundle: Bundle::ONE,
                timeout: AckTimeout::new(rng.below(4) as u8).unwrap(),
                retry_cnt: RetryCount::new(rng.below(8) as u8).unwrap(),
                rnr_retry: RetryCount::new(rng.below(8) as u8).unwrap(),
                max_rd_atomic: rng.below(5) as u8,
                pkey: Pkey::DEFAULT,
            }),
            4 => self.responder.modify(RecvUpdate {
                bundle: Bundle::ONE,
                min_rnr_timer: RnrTimer::from_low_bits(rng.next() as u8),
                access: RemoteAccess {
                    write: rng.chance(900),
                    read: rng.chance(900),
                    atomic: rng.chance(900),
                    flush: GLOBAL,
                },
                pkey: Pkey::DEFAULT,
                max_dest_rd_atomic: rng.below(5) as u8,
            }),
            5 => drop(self.responder.set_replay(replays(rng.below(5)))),
            6 => self.world.regions.clear(),
            7 => self.grant(),
            8 => self.responder.set_established(),
            _ => self.fail(),
        }
    }

    /// Moves the queue pair to ERR, RESET and RTS.
    fn fail(&mut self) {
        let mut host = self.world.host(&[]);
        while self.requester.enter_error(&mut host) == Flush::More {}
        while self.responder.enter_error(&mut host) == Flush::More {}
        assert_eq!(self.requester.state(), SendState::Error);
        assert_eq!(self.responder.state(), RecvState::Error);
        assert_eq!(self.world.payloads.count(), 0);
        assert_eq!(self.world.grants.count(), 0);
        let mut host = self.world.host(&[]);
        self.requester.reset(&mut host);
        self.responder.reset(&mut host);
        self.start();
    }

    /// Does one random action of the peer, of the owner or of time.
    pub fn live(&mut self) {
        match self.rng.below(100) {
            0..=59 => self.handle_packet(),
            60..=74 => self.transmit(),
            75..=89 => self.post(),
            90..=98 => {
                self.now = self.now.after_ns(self.rng.below(20_000));
                let mut host = self.world.host(&[]);
                self.requester.handle_timeout(self.now, &mut host);
            }
            _ => self.verb(),
        }
        // Mostly a failed queue pair is set up anew, or there would be little to attack.
        let failed = self.requester.state() == SendState::Error
            || matches!(self.responder.state(), RecvState::Failed | RecvState::Error);
        if failed && self.rng.chance(200) {
            self.fail();
        }
    }

    /// Ends the test: nothing may be held any more.
    pub fn end(&mut self) {
        self.fail();
        self.requester.reset(&mut self.world.host(&[]));
        self.responder.reset(&mut self.world.host(&[]));
        assert_eq!(self.world.payloads.count(), 0);
        assert_eq!(self.world.grants.count(), 0);
    }
}

fn replays(count: u64) -> Vec<Replay<Grant>> {
    (0..count).map(|_| Replay::default()).collect()
}

// Rules: CPL-4, CPL-5, VAL-16
#[test]
fn nothing_that_a_peer_or_owner_does_breaks_it() {
    use roce::event::Event;

    let mut seen = [0usize; 6];
    let mut atomics = 0;
    for seed in 0..300 {
        let mut victim = Victim::new(Rng::new(seed));
        for _ in 0..1300 {
            victim.live();
        }
        for (count, event) in seen.iter_mut().zip([
            Event::MessageReceived,
            Event::MessageSent,
            Event::DuplicateRequest,
            Event::ResponseGap,
            Event::StaleResponse,
            Event::RnrNakSent,
        ]) {
            *count += victim.world.count(event);
        }
        atomics += victim.world.atomics;
        victim.end();
    }
    // The attacks get somewhere.
    assert!(seen.iter().all(|count| *count > 400), "{seen:?}");
    assert!(atomics > 400, "{atomics}");
}
