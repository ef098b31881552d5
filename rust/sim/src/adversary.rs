// SPDX-License-Identifier: GPL-2.0

//! A peer that sends any packet at any time.
//!
//! It has its own node and address. Some queue pairs of node 0 are connected to it, so it may send
//! them anything that a peer may send. Their owner connects them again when they fail. The
//! adversary knows everything: PSNs, keys and addresses, also those of other queue pairs. The
//! oracle's rules must hold for the honest queue pairs, which are unhurt. No memory may change
//! except that opened for the adversary's connections. A queue pair under attack holds and sends no
//! more than it may.

use roce::num::{Pkey, Psn, Qpn};
use roce::opcode::{self, Position, Transport};
use roce::qp::State;
use roce::wire::{bth, HeaderBytes, MAX_HEADER};

use crate::endpoint::Halves;
use crate::packet::{self, Address, Ecn};
use crate::plan::Range;
use crate::rng::Rng;
use crate::setup::{first_psn, Common};
use crate::sim::{Event, Sim};

/// The adversary's queue pair.
pub(crate) const QPN: u32 = 0x666;
/// Packets that it keeps, to send them again.
const CAPTURED: usize = 64;

/// The adversary's state.
#[derive(Default)]
pub struct Adversary {
    rng: Option<Rng>,
    /// The end of the attack.
    until: u64,
    /// Packets that it got or sent.
    captured: Vec<Vec<u8>>,
    /// How its connections are set up, by queue pair.
    connections: Vec<(usize, Common)>,
}

impl Adversary {
    /// Keeps a packet.
    pub fn capture(&mut self, bytes: Vec<u8>) {
        let Some(rng) = &mut self.rng else { return };
        if bytes.len() < packet::UDP_PAYLOAD + bth::BYTES {
            return;
        }
        if self.captured.len() < CAPTURED {
            self.captured.push(bytes);
        } else {
            let at = rng.index(CAPTURED);
            self.captured[at] = bytes;
        }
    }
}

/// The queue pair under attack.
struct Victim {
    qpn: Qpn,
    transport: Transport,
    mtu: u32,
    /// PSNs that it expects in requests, and has sent its own up to.
    psns: [Psn; 2],
    keys: Vec<u32>,
    iova: u64,
    room: u64,
}

impl Sim {
    /// Connects the adversary, if the plan has one.
    pub(crate) fn add_adversary(&mut self, rng: &mut Rng, span_ns: u64) {
        for number in 0..self.attacked {
            let transport = match number % 2 {
                0 => Transport::Rc,
                _ => Transport::Uc,
            };
            let common = Common::new(&self.plan, rng, transport, self.max_bytes);
            let qp = self.qps.len();
            self.add_qp(rng, 0, &common);
            self.qps[qp].shared = false;
            self.qps[qp].remote = Some(packet::address(self.honest_nodes));
            let track = &mut self.oracle.tracks[qp];
            track.attacked = true;
            track.answers = (track.free_slots.clone(), self.max_bytes.max(8));
            self.adversary.connections.push((qp, common));
            self.connect_adversary(qp);
        }
        if self.attacked > 0 {
            self.adversary.rng = Some(rng.fork());
            self.adversary.until = span_ns;
            self.plan_for(0, Event::Attack);
        }
    }

    fn connect_adversary(&mut self, qp: usize) {
        let connection = self.adversary.connections.iter().find(|(id, _)| *id == qp);
        let Some((_, common)) = connection else {
            return;
        };
        let psn = [(); 2].map(|()| first_psn(&self.plan, &mut self.rng));
        common.start(&mut self.qps[qp].halves, Qpn::new(QPN), psn[0], psn[1]);
        self.qps[qp].state = State::Rts;
    }

    /// Returns true if a queue pair is connected anew when it fails.
    pub(crate) fn will_revive(&self, qp: usize) -> bool {
        self.oracle.tracks[qp].attacked && self.now < self.adversary.until && self.qps[qp].exists
    }

    /// Moves a queue pair from ERR to RESET and to RTS.
    pub(crate) fn revive(&mut self, qp: usize) {
        if !self.qps[qp].exists || self.qps[qp].state != State::Err {
            return;
        }
        self.with(qp, &[], [0; 4], Halves::reset);
        self.oracle.revived(qp);
        self.connect_adversary(qp);
        self.pump(qp);
    }

    /// Sends one packet of the adversary, and schedules the next.
    pub(crate) fn attack(&mut self) {
        let Some(mut rng) = self.adversary.rng.clone() else {
            return;
        };
        let bytes = match self.plan.cnps {
            Range::Fixed(0.0) => self.hostile(&mut rng),
            cnps => self.hostile_to_congestion(&mut rng, cnps),
        };
        let at = self.now + 1 + rng.below(4000);
        self.adversary.rng = Some(rng);
        if let Some(bytes) = bytes {
            self.adversary.capture(bytes.clone());
            let (from, to) = (self.honest_nodes, packet::address(0));
            // It is no queue pair's.
            self.transmit_from(from, usize::MAX, bytes, to);
        }
        if at < self.adversary.until {
            self.plan_for(at, Event::Attack);
        }
    }

    /// Makes a CNP for some queue pair or for none, or another packet that may be marked.
    fn hostile_to_congestion(&mut self, rng: &mut Rng, cnps: Range) -> Option<Vec<u8>> {
        if !cnps.happens(rng) {
            let mut bytes = self.hostile(rng)?;
            packet::set_ecn(&mut bytes, rng.pick(&[Ecn::NotEct, Ecn::Ect0, Ecn::Ce]));
            return Some(bytes);
        }
        let ends = (packet::address(self.honest_nodes), packet::address(0));
        let qp = rng.index(self.qps.len());
        let dest = match rng.percent(95) {
            true => self.qps[qp].qpn,
            false => Qpn::new(rng.next() as u32),
        };
        let mut bytes = packet::notification(ends.0, ends.1, dest);
        if rng.percent(20) {
            // A packet with reserved values, or of a wrong length, and a right ICRC.
            let at = packet::UDP_PAYLOAD + bth::BYTES + rng.index(16);
            bytes[at] = rng.next() as u8;
            bytes.resize(bytes.len() + 4 - 4 * rng.index(3), 0);
            packet::seal(&mut bytes);
        }
        Some(bytes)
    }

    fn hostile(&mut self, rng: &mut Rng) -> Option<Vec<u8>> {
        let ends = (packet::address(self.honest_nodes), packet::address(0));
        match rng.below(100) {
            0..=4 => Some(garbage(rng, ends)),
            5..=14 if !self.adversary.captured.is_empty() => {
                let at = rng.index(self.adversary.captured.len());
                let mut bytes = self.adversary.captured[at].clone();
                // From the adversary to node 0, regardless of its sender.
                bytes[12..16].copy_from_slice(&ends.0);
                bytes[16..20].copy_from_slice(&ends.1);
                if rng.percent(30) {
                    let at = packet::UDP_PAYLOAD + rng.index(bytes.len() - packet::UDP_PAYLOAD);
                    bytes[at] = rng.next() as u8;
                }
                packet::seal(&mut bytes);
                Some(bytes)
            }
            // Most packets go to its own connections; the others are not valid there.
            kind => {
                let victim = self.victim(rng, kind < 90)?;
                Some(self.request_or_response(rng, &victim, ends))
            }
        }
    }

    fn victim(&self, rng: &mut Rng, own: bool) -> Option<Victim> {
        let here: Vec<_> = self.qps.iter().filter(|qp| qp.node == 0).collect();
        let attacked = |id: usize| self.oracle.tracks[id].attacked;
        let choices: Vec<_> = here.iter().filter(|qp| attacked(qp.id) == own).collect();
        let qp = match choices.is_empty() {
            true => return None,
            false => rng.pick(&choices),
        };
        let psns = match &qp.halves {
            Halves::Connected {
                requester,
                responder,
            } => [responder.expected_psn()?, requester.next_psn()?],
            Halves::Datagram { .. } => [Psn::new(0); 2],
        };
        let mut keys = vec![qp.app.key, qp.app.key, qp.app.key, qp.app.counter_key];
        // The keys of others are not for this connection.
        keys.extend(here.iter().map(|qp| qp.app.key));
        keys.push(qp.app.read_key);
        if attacked(qp.id) {
            // The counters are everyone's.
            keys.retain(|key| *key != qp.app.counter_key);
        }
        Some(Victim {
            qpn: qp.qpn,
            transport: qp.transport,
            mtu: qp.mtu.bytes(),
            psns,
            keys,
            iova: qp.app.iova,
            room: self.oracle.tracks[qp.id].model.len() as u64,
        })
    }

    /// Makes a packet that parses, with values that are likely to matter.
    fn request_or_response(
        &self,
        rng: &mut Rng,
        victim: &Victim,
        ends: (Address, Address),
    ) -> Vec<u8> {
        let mut header = [0; MAX_HEADER];
        rng.fill(&mut header);
        let (code, info) = loop {
            // Those up to an atomic acknowledgement more often than those behind.
            let codes = if rng.percent(80) { 0x15 } else { 0x1e };
            let code = rng.below(codes) as u8;
            let code = code | ((victim.transport as u8) << 5);
            if let Ok((_, info)) = opcode::decode(code) {
                break (code, info);
            }
        };
        let honest = rng.percent(60);
        let half = usize::from(!info.request);
        let psn = match half {
            0 if honest => victim.psns[0],
            1 if honest => victim.psns[1].sub(1 + rng.below(3) as u32),
            half => {
                let spread = rng.pick(&[3, 40, 1 << 24]);
                victim.psns[half]
                    .add(rng.below(spread) as u32)
                    .sub(spread as u32 / 2)
            }
        };
        let payload = match info.position {
            _ if !info.payload => 0,
            Position::First | Position::Middle if honest => victim.mtu,
            _ if honest => 1 + rng.below(u64::from(victim.mtu)) as u32,
            _ => size(rng),
        };
        header[0] = code;
        // Solicited or not; MigReq, which is ignored; no version but 0.
        header[1] &= 0xc0;
        header[1] |= (payload.wrapping_neg() as u8 & 3) << 4;
        let pkey = if rng.percent(98) {
            Pkey::DEFAULT
        } else {
            Pkey(rng.next() as u16)
        };
        header[2..4].copy_from_slice(&pkey.0.to_be_bytes());
        header[5..8].copy_from_slice(&victim.qpn.to_be_bytes());
        header[9..12].copy_from_slice(&psn.to_be_bytes());
        if info.request && victim.transport != Transport::Ud {
            // RETH or AtomicETH, mostly of memory that is there.
            let inside = rng.below(victim.room);
            let near = rng.pick(&[0, inside, inside & !7, victim.room - 8, victim.room, !0]);
            let length = match info.position {
                Position::Only if honest && info.payload => payload,
                _ => size(rng).wrapping_mul(rng.pick(&[1, 1, 4, 0x8000_0000])),
            };
            header[12..20].copy_from_slice(&victim.iova.wrapping_add(near).to_be_bytes());
            header[20..24].copy_from_slice(&rng.pick(&victim.keys).to_be_bytes());
            header[24..28].copy_from_slice(&length.to_be_bytes());
        } else if !info.request {
            let refusals = if honest { 0 } else { 6 };
            header[12] = [0x1f, 0x00, 0x21, 0x60, 0x61, 0x62, 0x63, 0x7f][rng.index(2 + refusals)];
        }
        // A datagram has no valid Q_Key here: a random one differs.
        let extensions = opcode::header_bytes(victim.transport, info) as usize;
        let mut bytes = packet::start(ends.0, ends.1, &header[..bth::BYTES + extensions]);
        bytes.resize(bytes.len() + payload as usize, rng.next() as u8);
        packet::finish(&mut bytes, payload.wrapping_neg() as u8 & 3);
        bytes
    }
}

/// Draws a length that is likely to matter.
fn size(rng: &mut Rng) -> u32 {
    let near: u32 = rng.pick(&[0, 8, 256, 512, 1024, 4096]);
    (near + rng.below(5) as u32).saturating_sub(2)
}

/// Makes bytes that are no packet, with or without a right checksum.
fn garbage(rng: &mut Rng, ends: (Address, Address)) -> Vec<u8> {
    let mut header = HeaderBytes::as_bytes(&HeaderBytes::new(
        &roce::wire::Bth {
            transport: Transport::Rc,
            solicited: false,
            mig_req: false,
            pad: 0,
            pkey: Pkey::DEFAULT,
            fecn: false,
            becn: false,
            dest_qp: Qpn::new(rng.pick(&[0, 1, 0x11, 0xff_ffff])),
            ack_req: true,
            psn: Psn::new(rng.next() as u32),
        },
        &roce::wire::Body::Request(roce::wire::Request::SendFirst),
    ))
    .to_vec();
    header.truncate(rng.index(header.len() + 1));
    let mut bytes = packet::start(ends.0, ends.1, &header);
    let more = rng.index(64);
    bytes.resize(bytes.len() + more, 0);
    rng.fill(&mut bytes[packet::UDP_PAYLOAD..]);
    packet::finish(&mut bytes, 0);
    if rng.percent(50) {
        bytes.truncate(rng.index(bytes.len()));
    }
    bytes
}
