// SPDX-License-Identifier: GPL-2.0

//! The driver, in outline: its requester, its responder, and the network between two of them.

use std::mem;

use super::side::{Kind, Packet, Qp};
use super::{Context, Event, Machine, Task};
use crate::policies::machine::Poll;
use crate::policy::{
    gains_by_group, is_backlog_run_over, is_sending, keeps_busy, Budget, Overtaking, Placement,
    Sent, Serve, LARGE, MOST_ASIDE, MUCH, SLOW_NS,
};
use crate::wake::{self, Act, Further, Put, Run, SendBy, SendGate};

/// Packets of a queue pair that may be in the network.
const CREDIT: u32 = 256;
/// Packets of a long message after which an acknowledgement is asked for.
const INTERVAL: u64 = 64;

impl Machine {
    pub(super) fn doorbell(&mut self, qp: usize, has_polled: bool, cx: &mut Context) {
        let has_another_cpu = self.another(cx.cpu).is_some();
        let known = self.known_by(qp);
        let ring = self.qps[known].stream.ring(has_polled, has_another_cpu);
        let is_stream = self.rules.serve.unwrap_or(ring) == Serve::Beside;
        let other = || match is_stream {
            true => self.much_ahead(qp, cx),
            false => self.requests_ahead(qp, cx),
        };
        let origin = self.qps[qp].backlog.origin(cx.cpu);
        let sender = wake::after_doorbell(origin, other, is_stream);
        self.send_by(qp, sender, cx);
    }

    /// Returns the queue pair that stands for the poster of `qp`.
    pub(super) fn known_by(&self, qp: usize) -> usize {
        let poster = self.qps[qp].poster.filter(|_| self.rules.joins_qps);
        poster.map_or(qp, |poster| self.posters[poster].qps[0])
    }

    fn requests_ahead(&self, qp: usize, cx: &Context) -> Option<usize> {
        let is_local = self.costs.wire.is_none();
        let in_flight = self.qps[qp].in_flight;
        self.sent_ahead(qp, cx, |sent| {
            sent.may_be_overtaken(Overtaking::Costs { is_local }, in_flight, || cx.t)
        })
    }

    fn is_known_received(&self, qp: usize) -> bool {
        let state = &self.qps[qp];
        self.costs.wire.is_none() && state.sent == state.acked
    }

    fn much_ahead(&self, qp: usize, cx: &Context) -> Option<usize> {
        self.sent_ahead(qp, cx, |sent| sent.is_much_ahead(|| cx.t))
    }

    fn sent_ahead(
        &self,
        qp: usize,
        cx: &Context,
        may_be_overtaken: impl FnOnce(Sent) -> bool,
    ) -> Option<usize> {
        let is_acknowledged = self.is_known_received(qp);
        let last_sent = &self.qps[qp].last_sent;
        let ahead = last_sent.ahead(cx.cpu, is_acknowledged, may_be_overtaken);
        ahead.filter(|_| self.rules.bonds)
    }

    fn replies_ahead(&self, qp: usize, cx: &Context) -> Option<usize> {
        let Qp {
            last_replied,
            in_flight,
            ..
        } = &self.qps[qp];
        let ahead = last_replied.ahead(cx.cpu, false, |sent| {
            sent.may_be_overtaken(Overtaking::Loses { is_strict: false }, *in_flight, || cx.t)
        });
        ahead.filter(|_| self.rules.bonds)
    }

    fn send_by(&mut self, qp: usize, sender: SendBy<usize>, cx: &mut Context) {
        match sender {
            SendBy::Here => self.send_or_leave(qp, cx),
            SendBy::Process(cpu) => self.leave_to(qp, cpu, cx),
            SendBy::Queued(cpu) => self.run_on(qp, cpu, cx),
            SendBy::Softirq(cpu) => self.send_on(qp, cpu, cx),
            SendBy::Beside => {
                let other = self.another(cx.cpu);
                match self.qps[qp].stream.place(cx.cpu, other) {
                    Placement::Here => self.send_or_leave(qp, cx),
                    Placement::On(cpu) => self.run_on(qp, cpu, cx),
                    Placement::Unbound => self.run_anywhere(qp, cx),
                    Placement::After(ns) => self.look_after(qp, ns, cx),
                }
            }
            SendBy::Nobody => {}
        }
    }

    fn leave_to(&mut self, qp: usize, cpu: usize, cx: &mut Context) {
        self.run_on(qp, cpu, cx);
        self.look_after(qp, SLOW_NS, cx);
    }

    fn send_or_leave(&mut self, qp: usize, cx: &mut Context) {
        if let Run::Elsewhere(cpu) = self.send(qp, false, None, cx) {
            self.leave_to(qp, cpu, cx);
        }
    }

    fn look_after_time(&mut self, qp: usize, cx: &mut Context) {
        let late = self.late_cpu(cx);
        let run = self.send(qp, late.is_some(), None, cx);
        let has_left = self.qps[qp].has_left();
        let sent_at = self.qps[qp].last_sent.at;
        let has_sent_lately = || sent_at.is_within(cx.t, SLOW_NS);
        let sender = wake::after_timer(run, late, has_left, has_sent_lately);
        if let SendBy::Softirq(_) = sender {
            self.look_after(qp, SLOW_NS, cx);
        }
        self.send_by(qp, sender, cx);
    }

    fn run_later(&mut self, qp: usize, cx: &mut Context) {
        let last = self.qps[qp].last_sent.cpu;
        let known = self.known_by(qp);
        match wake::place(last, false, || self.qps[known].stream.is_one()) {
            Some(cpu) => self.run_on(qp, cpu, cx),
            None => self.run_anywhere(qp, cx),
        }
    }

    /// Returns this CPU, if work items are late here.
    fn late_cpu(&self, cx: &Context) -> Option<usize> {
        let is_late = self.cpus[cx.cpu].is_late(cx.t);
        (is_late && self.rules.defers).then_some(cx.cpu)
    }

    /// Runs the send half, after an acknowledgement, unless the requests are left to another context.
    fn send(&mut self, qp: usize, is_left: bool, ack: Option<u64>, cx: &mut Context) -> Run<usize> {
        cx.t = cx.t.max(self.qps[qp].send_free) + self.costs.run;
        let ahead = self.requests_ahead(qp, cx);
        if let Some(acked) = ack {
            self.retire(qp, acked, cx);
        }
        let ahead = ahead.filter(|_| !self.is_known_received(qp));
        let gate = SendGate {
            is_handed_over: false,
            stops_sending: false,
            is_left,
            is_stranded: false,
            ahead,
        };
        let run = gate.closed().unwrap_or_else(|| self.pump(qp, cx));
        self.qps[qp].send_free = cx.t;
        if run == Run::More {
            self.run_later(qp, cx);
        }
        run
    }

    fn retire(&mut self, qp: usize, acked: u64, cx: &mut Context) {
        cx.t += self.costs.acknowledged;
        let state = &mut self.qps[qp];
        state.acked = state.acked.max(acked);
        let retired = state.acked / state.packets();
        let count = retired - mem::replace(&mut state.retired, retired);
        if count > 0 {
            let cpu = cx.cpu;
            self.at(cx.t, Event::Complete { qp, cpu, count });
        }
    }

    fn is_cpu_wanted(&self, qp: usize, cpu: usize) -> bool {
        self.qps[qp].load.poll == Poll::Events && !self.cpus[cpu].posters.is_empty()
    }

    fn pump(&mut self, qp: usize, cx: &mut Context) -> Run<usize> {
        let mut budget = Budget::new(false);
        let is_cpu_wanted = self.is_cpu_wanted(qp, cx.cpu);
        let state = &mut self.qps[qp];
        let began = cx.t;
        let first = state.sent;
        let mut bytes = 0;
        let run = loop {
            if budget.is_spent(|| is_cpu_wanted) {
                break Run::More;
            }
            let count = state.sent - first;
            if u64::from(state.in_flight) + count >= CREDIT.into() {
                state.wants_credit = true;
                break Run::Blocked;
            }
            if !state.has_left() || state.sent - state.acked >= state.window() {
                break Run::Idle;
            }
            let packet = state.bytes(Packet::Request(state.sent));
            budget.spend(packet);
            bytes += u64::from(packet);
            state.sent += 1;
            cx.t += self.costs.send + u64::from(packet) * self.costs.send_byte / 1000;
        };
        let count = (state.sent - first) as u32;
        if count > 0 {
            state.last_sent.note(cx.cpu, began);
            self.transmit(qp, Packet::Request(first), count, bytes, cx);
        }
        let known = self.known_by(qp);
        let goes_on = run == Run::More || self.qps[known].stream.is_one();
        if keeps_busy(bytes, goes_on) {
            self.cpus[cx.cpu].sent_much_at = cx.t;
        }
        if bytes >= MUCH {
            self.qps[qp].last_sent.note_much(cx.t);
        }
        run
    }

    // The network.

    fn transmit(&mut self, qp: usize, packet: Packet, count: u32, bytes: u64, cx: &mut Context) {
        let train = self.qps[qp].train();
        self.qps[qp].in_flight += count;
        let mut begin = 0;
        while begin < count {
            let frames = train.min(count - begin);
            cx.t += self.costs.train;
            let share = bytes * u64::from(frames) / u64::from(count);
            self.carry(qp, packet.behind(begin.into()), frames, share, cx);
            begin += frames;
        }
    }

    /// Sends a train, or single frames, over the network.
    fn carry(&mut self, qp: usize, first: Packet, count: u32, bytes: u64, cx: &mut Context) {
        let peer = self.qps[qp].peer;
        let arrived = Task::Arrived {
            qp: peer,
            first,
            count,
        };
        let Some(wire) = self.costs.wire else {
            self.at(cx.t, Event::Softirq(cx.cpu, arrived));
            return;
        };
        cx.t += wire.frame * u64::from(count);
        let host = cx.cpu / self.costs.cpus;
        let headers = 80 * u64::from(count);
        let begin = self.wire_free[host].max(cx.t);
        let end = begin + (bytes + headers) * wire.byte / 1000;
        self.wire_free[host] = end;
        let cpu = cx.cpu;
        self.at(end, Event::Gone { qp, cpu, count });
        let cpu = (1 - host) * self.costs.cpus + hash(qp.min(peer) / 2, self.costs.cpus);
        self.at(end + wire.latency, Event::Softirq(cpu, arrived));
    }

    pub(super) fn give_back(&mut self, qp: usize, count: u32, cx: &mut Context) {
        let state = &mut self.qps[qp];
        state.in_flight -= count;
        if state.in_flight <= CREDIT / 2 && mem::take(&mut state.wants_credit) {
            self.run_later(qp, cx);
        }
    }

    pub(super) fn softirq(&mut self, task: Task, cx: &mut Context) {
        match task {
            Task::Arrived { qp, first, count } => self.arrive(qp, first, count, cx),
            Task::Timer(qp) => self.look_after_time(qp, cx),
            Task::Send(qp) => {
                self.begin(qp, Kind::Send, cx);
                self.qps[qp].responses.end();
                let late = self.late_cpu(cx);
                let run = self.send(qp, late.is_some(), None, cx);
                self.send_by(qp, wake::after_softirq(run, late), cx);
                self.end(qp, Kind::Send, cx);
            }
            Task::Reply(qp) => {
                self.begin(qp, Kind::Reply, cx);
                if let Some(cpu) = self.reply_run(qp, cx) {
                    self.run_on(qp, cpu, cx);
                }
                self.end(qp, Kind::Reply, cx);
            }
            Task::Backlog { .. } => self.backlog_run(task, cx),
        }
    }

    /// Takes one packet of a train, and comes back for the others.
    fn arrive(&mut self, qp: usize, packet: Packet, count: u32, cx: &mut Context) {
        let frame = self.costs.wire.map(|wire| wire.frame);
        cx.t += frame.unwrap_or(0);
        if frame.is_none() {
            let peer = self.qps[qp].peer;
            self.give_back(peer, 1, cx);
        }
        let bytes = self.qps[qp].bytes(packet);
        let is_open = self.qps[qp].backlog.is_open;
        let other = (!is_open).then(|| self.other_for(bytes, cx)).flatten();
        if is_open || other.is_some() {
            self.put_aside(qp, packet, other, cx);
        } else {
            self.hand_over(qp, packet, Act::OnEach, cx);
        }
        if count > 1 {
            let rest = Task::Arrived {
                qp,
                first: packet.behind(1),
                count: count - 1,
            };
            self.cpus[cx.cpu].softirqs.push_front(rest);
        }
    }

    fn other_for(&self, bytes: u32, cx: &Context) -> Option<usize> {
        let other = self.idler(cx).filter(|_| bytes >= LARGE);
        other.filter(|_| self.aside < MOST_ASIDE)
    }

    fn idler(&self, cx: &Context) -> Option<usize> {
        let is_sending = |cpu: usize| is_sending(self.cpus[cpu].sent_much_at, cx.t);
        if !self.rules.steers || !is_sending(cx.cpu) {
            return None;
        }
        self.another(cx.cpu).filter(|other| !is_sending(*other))
    }

    fn put_aside(&mut self, qp: usize, packet: Packet, other: Option<usize>, cx: &mut Context) {
        cx.t += self.costs.aside;
        loop {
            let backlog = &mut self.qps[qp].backlog;
            let has_room = || self.aside < MOST_ASIDE;
            let put = wake::put(backlog.is_open, backlog.packets.is_empty(), has_room, other);
            match put {
                Put::Full => {
                    if let Some(oldest) = self.take_out(qp) {
                        self.hand_over(qp, oldest, Act::OnEach, cx);
                    }
                    continue;
                }
                Put::Here => self.hand_over(qp, packet, Act::OnEach, cx),
                Put::Behind => backlog.packets.push_back(packet),
                Put::First(cpu) => {
                    backlog.packets.push_back(packet);
                    (backlog.is_open, backlog.from) = (true, Some(cx.cpu));
                    self.handle_backlog_on(qp, cpu, cx);
                }
            }
            if matches!(put, Put::Behind | Put::First(_)) {
                self.aside += 1;
                self.outcome.steered += 1;
            }
            return;
        }
    }

    fn take_out(&mut self, qp: usize) -> Option<Packet> {
        let packet = self.qps[qp].backlog.packets.pop_front()?;
        self.aside -= 1;
        Some(packet)
    }

    /// Handles one packet of a backlog, and comes back for the others.
    fn backlog_run(&mut self, task: Task, cx: &mut Context) {
        let Task::Backlog {
            qp,
            mut handled,
            mut had_requests,
            mut had_responses,
        } = task
        else {
            return;
        };
        if handled == 0 {
            self.begin(qp, Kind::Backlog, cx);
        }
        let is_over = is_backlog_run_over(handled, || self.is_cpu_wanted(qp, cx.cpu));
        let origin = self.qps[qp].backlog.origin(cx.cpu);
        if let Some(packet) = (!is_over).then(|| self.take_out(qp)).flatten() {
            let act = match origin {
                Some(_) => Act::AfterAll,
                None => Act::OnEach,
            };
            had_requests |= packet.is_request();
            had_responses |= !packet.is_request();
            self.hand_over(qp, packet, act, cx);
            handled += 1;
            let rest = Task::Backlog {
                qp,
                handled,
                had_requests,
                had_responses,
            };
            self.cpus[cx.cpu].softirqs.push_front(rest);
            self.qps[qp].items[Kind::Backlog as usize].until = u64::MAX;
            return;
        }
        let had = (had_requests, had_responses);
        self.end_backlog_run(qp, is_over, origin, had, cx);
    }

    fn end_backlog_run(
        &mut self,
        qp: usize,
        more: bool,
        origin: Option<usize>,
        (had_requests, had_responses): (bool, bool),
        cx: &mut Context,
    ) {
        if !more {
            self.qps[qp].backlog.is_open = false;
        }
        if let Some(origin) = origin {
            if had_requests && self.qps[qp].owes() {
                self.reply_on(qp, origin, cx);
            }
            if had_responses && self.qps[qp].has_left() {
                self.send_on(qp, origin, cx);
            }
        }
        let gives_way = || self.is_cpu_wanted(qp, cx.cpu) || self.idler(cx).is_some();
        match wake::further(more, gives_way) {
            Further::Nobody => {}
            Further::Again => self.handle_backlog_on(qp, cx.cpu, cx),
            Further::Left => {
                self.qps[qp].backlog.is_left = true;
                self.run_on(qp, cx.cpu, cx);
            }
        }
        self.end(qp, Kind::Backlog, cx);
    }

    fn hand_over(&mut self, qp: usize, packet: Packet, act: Act, cx: &mut Context) {
        match packet {
            Packet::Request(number) => self.request(qp, number, act, cx),
            Packet::Ack(acked) => self.response(qp, acked, None, act, cx),
            Packet::Answer(number) => {
                let bytes = self.qps[qp].bytes(packet);
                cx.t += self.costs.receive + u64::from(bytes) * self.costs.receive_byte / 1000;
                self.response(qp, number + 1, Some(bytes), act, cx);
            }
        }
    }

    /// Handles an acknowledgement, or the last packet of a response to a READ, of `answer` bytes.
    fn response(&mut self, qp: usize, acked: u64, answer: Option<u32>, act: Act, cx: &mut Context) {
        let origin = self.qps[qp].backlog.origin(cx.cpu);
        let is_for_each = origin.is_none() && act == Act::OnEach;
        let late = self.late_cpu(cx).filter(|_| is_for_each);
        let may_be_left = self.rules.groups && is_for_each && late.is_none();
        let is_local = self.costs.wire.is_none();
        let gains = answer.is_some_and(|bytes| gains_by_group(is_local, bytes));
        let is_left = may_be_left && gains && self.qps[qp].is_one_of_many(acked);
        let softirq = origin.or_else(|| is_left.then_some(cx.cpu));
        let left_to = softirq.map(SendBy::Softirq).or(late.map(SendBy::Queued));
        let run = self.send(qp, left_to.is_some(), Some(acked), cx);
        let has_left = self.qps[qp].has_left();
        self.send_by(qp, wake::after_response(run, left_to, has_left, act), cx);
    }

    // The responder.

    fn request(&mut self, qp: usize, number: u64, act: Act, cx: &mut Context) {
        let state = &mut self.qps[qp];
        let bytes = u64::from(state.bytes(Packet::Request(number)));
        cx.t = cx.t.max(state.recv_free);
        cx.t += self.costs.receive + bytes * self.costs.receive_byte / 1000;
        self.outcome.overtaken += u64::from(number != state.expected);
        state.expected = state.expected.max(number + 1);
        state.stream.heard = true;
        let is_last = state.is_last(number);
        if is_last || (number + 1) % INTERVAL == 0 {
            state.owed = state.owed.max(number + 1);
        }
        let run = match act == Act::OnEach && state.owes() {
            true => self.reply_to_request(qp, cx),
            false => None,
        };
        self.qps[qp].recv_free = cx.t;
        if is_last {
            let cpu = cx.cpu;
            self.at(cx.t, Event::Received { qp, cpu });
        }
        if run == Some(Run::More) {
            self.reply_later(qp, cx);
        }
    }

    fn reply_to_request(&mut self, qp: usize, cx: &mut Context) -> Option<Run<usize>> {
        let origin = self.qps[qp].backlog.origin(cx.cpu);
        let is_elsewhere = origin.is_some() || self.replies_ahead(qp, cx).is_some();
        let ended = wake::after_request(is_elsewhere, || self.qps[qp].arrivals.note());
        if ended.is_none() {
            self.reply(qp, cx);
        }
        ended
    }

    fn reply_later(&mut self, qp: usize, cx: &mut Context) {
        let origin = self.qps[qp].backlog.origin(cx.cpu);
        let cpu = origin.or_else(|| self.replies_ahead(qp, cx));
        self.reply_on(qp, cpu.unwrap_or(cx.cpu), cx);
    }

    /// Sends the owed replies. Returns the CPU that must send them, if it is another one.
    fn reply_run(&mut self, qp: usize, cx: &mut Context) -> Option<usize> {
        cx.t = cx.t.max(self.qps[qp].recv_free) + self.costs.run;
        let ahead = self.replies_ahead(qp, cx);
        let elsewhere = wake::replies_elsewhere(ahead, || self.qps[qp].owes());
        if elsewhere.is_none() {
            self.qps[qp].arrivals.end();
            self.reply(qp, cx);
        }
        self.qps[qp].recv_free = cx.t;
        elsewhere
    }

    fn reply(&mut self, qp: usize, cx: &mut Context) {
        if !self.qps[qp].owes() {
            return;
        }
        let state = &mut self.qps[qp];
        let first = mem::replace(&mut state.replied, state.owed);
        state.last_replied.cpu = Some(cx.cpu);
        if state.load.reads.is_some() {
            let count = (state.owed - first) as u32;
            return self.answer(qp, first, count, cx);
        }
        let ack = Packet::Ack(state.owed);
        cx.t += self.costs.acknowledge;
        self.transmit(qp, ack, 1, 0, cx);
    }

    /// Sends the responses to READs.
    fn answer(&mut self, qp: usize, first: u64, count: u32, cx: &mut Context) {
        let answer = Packet::Answer(first);
        let bytes = u64::from(self.qps[qp].bytes(answer)) * u64::from(count);
        cx.t += self.costs.send * u64::from(count) + bytes * self.costs.send_byte / 1000;
        self.transmit(qp, answer, count, bytes, cx);
        if keeps_busy(bytes, true) {
            self.cpus[cx.cpu].sent_much_at = cx.t;
        }
        if bytes >= MUCH || count > 1 {
            self.qps[qp].last_replied.note_much(cx.t);
        }
    }

    // The work item of process context.

    pub(super) fn work(&mut self, qp: usize, cx: &mut Context) {
        self.begin(qp, Kind::Run, cx);
        if mem::take(&mut self.qps[qp].backlog.is_left) {
            let other = self.idler(cx);
            if other.is_some() && self.qps[qp].backlog.from.is_some() {
                self.qps[qp].backlog.from = Some(cx.cpu);
            }
            self.handle_backlog_on(qp, other.unwrap_or(cx.cpu), cx);
        } else {
            self.qps[qp].stream.note_run(cx.cpu);
        }
        if let Run::Elsewhere(cpu) = self.send(qp, false, None, cx) {
            self.send_on(qp, cpu, cx);
        }
        if self.reply_run(qp, cx).is_some() {
            self.reply_later(qp, cx);
        }
        self.end(qp, Kind::Run, cx);
    }
}

/// Returns the CPU of the receive queue for a connection's packets. It spreads a few connections as
/// evenly as possible.
fn hash(connection: usize, cpus: usize) -> usize {
    let mixed = (connection as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    ((mixed * cpus as u64) >> 32) as usize
}
