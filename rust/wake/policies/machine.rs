// SPDX-License-Identifier: GPL-2.0

//! A machine of several CPUs whose work costs time, and the driver on it.
//!
//! The decisions are those of `policy.rs` and `wake.rs`. Around them is an outline of the driver:
//! doorbells, work items, softirqs, steered packets, acknowledgements. A reliable connection
//! carries WRITEs, or READs of one packet, which a process of its own posts. Each received packet is
//! a step, and so is each run of a half under its lock. Other CPUs see the effects of a step at its
//! end. Tasks of one CPU do not interrupt each other, so a step takes its full time at once.
//!
//! The model leaves out:
//!
//! * losses and repairs: packets that were overtaken are only counted;
//! * the adaptive window: here it is always the widest;
//! * longer READs, receives, and datagrams;
//! * the tick, priorities among processes, and their migration between CPUs;
//! * caches, apart from the order of costs.

mod costs;
mod driver;
mod poster;
mod side;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::mem;

pub(crate) use costs::{Costs, CARDS, EMULATOR, GUEST, SERVER};
pub(crate) use poster::{Load, Poll, STREAM};

use poster::{Poster, Wait};
use side::{Item, Kind, Packet, Qp};

use crate::policy::{is_late, is_long_wait, Serve, Stamp};

/// How many completions a poster takes at a time.
const POLLED: u64 = 16;
/// The number of steps after which a workload counts as endless.
const MOST_STEPS: u64 = 20_000_000;

/// The rules in force, and their replacements.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// The service of each doorbell, instead of the policy's choice.
    pub(crate) serve: Option<Serve>,
    /// Large packets are handled by another CPU than the sending one.
    pub(crate) steers: bool,
    /// A half continues to send on the CPU that has sent.
    pub(crate) bonds: bool,
    /// A poster is observed over all of its queue pairs together, and not for each.
    pub(crate) joins_qps: bool,
    /// READs that a group of responses allows are sent together.
    pub(crate) groups: bool,
    /// Softirqs leave requests to work items that are late.
    pub(crate) defers: bool,
}

pub(crate) const POLICY: Rules = Rules {
    serve: None,
    steers: true,
    bonds: true,
    joins_qps: true,
    groups: true,
    defers: true,
};

/// The result of a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Nanoseconds for a message, of all of them.
    pub(crate) ns: f64,
    pub(crate) overtaken: u64,
    /// Packets that another CPU handled than the receiving one.
    pub(crate) steered: u64,
    /// Interrupts that a CPU has sent to another one.
    pub(crate) interrupts: u64,
    /// Nanoseconds that a work item waited at most.
    pub(crate) wait: u64,
}

#[derive(Clone, Copy)]
enum Task {
    /// Packets of a train that was received.
    Arrived {
        qp: usize,
        first: Packet,
        count: u32,
    },
    Send(usize),
    Reply(usize),
    Backlog {
        qp: usize,
        handled: u32,
        had_requests: bool,
        had_responses: bool,
    },
    Timer(usize),
}

#[derive(Clone, Copy)]
enum Event {
    Free(usize),
    Softirq(usize, Task),
    Work(usize, usize),
    Wake(usize),
    Complete { qp: usize, cpu: usize, count: u64 },
    Received { qp: usize, cpu: usize },
    Gone { qp: usize, cpu: usize, count: u32 },
    Timer { qp: usize, cpu: usize, at: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ran {
    Softirq,
    Work,
    Poster(usize),
}

struct Cpu {
    softirqs: VecDeque<Task>,
    works: VecDeque<usize>,
    posters: VecDeque<usize>,
    spinning: usize,
    /// Work items on their way to it.
    expected: usize,
    busy_until: u64,
    ran: Ran,
    /// The task to continue in process context.
    thread: Ran,
    sent_much_at: u64,
    /// When a work item last began that was late.
    late_at: Option<u64>,
    /// When one was queued since then.
    queued_at: Option<u64>,
}

impl Cpu {
    fn is_late(&self, now: u64) -> bool {
        let [late_at, since] = [self.late_at, self.queued_at].map(|at| at.map(Stamp::new));
        is_late(late_at, since, || now)
    }
}

/// Where and when something is done.
#[derive(Clone, Copy)]
struct Context {
    cpu: usize,
    t: u64,
}

struct Machine {
    costs: Costs,
    rules: Rules,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    kinds: Vec<Event>,
    cpus: Vec<Cpu>,
    qps: Vec<Qp>,
    posters: Vec<Poster>,
    aside: usize,
    wire_free: [u64; 2],
    outcome: Outcome,
}

/// Runs `load` on such a machine.
pub(crate) fn run(costs: Costs, load: Load, rules: Rules) -> Outcome {
    let mut machine = Machine::new(costs, load, rules);
    let mut steps = 0;
    while machine
        .posters
        .iter()
        .any(|poster| poster.wait != Wait::Done)
    {
        let Reverse((at, event)) = machine.events.pop().expect("work is left to nobody");
        machine.happen(at, machine.kinds[event as usize]);
        steps += 1;
        assert!(steps < MOST_STEPS, "{} {load:?}", costs.name);
    }
    let clients = machine.posters.iter().filter(|poster| !poster.is_server);
    let elapsed = clients.clone().map(|poster| poster.end - poster.rested);
    let messages = load.messages * load.threads as u64;
    Outcome {
        ns: elapsed.max().unwrap_or(0) as f64 / messages as f64,
        ..machine.outcome
    }
}

impl Machine {
    fn new(costs: Costs, load: Load, rules: Rules) -> Self {
        let hosts = 1 + usize::from(costs.wire.is_some());
        let cpu = || Cpu {
            softirqs: VecDeque::new(),
            works: VecDeque::new(),
            posters: VecDeque::new(),
            spinning: 0,
            expected: 0,
            busy_until: 0,
            ran: Ran::Work,
            thread: Ran::Work,
            // Long ago.
            sent_much_at: 0,
            late_at: None,
            queued_at: None,
        };
        let mut machine = Self {
            costs,
            rules,
            events: BinaryHeap::new(),
            kinds: Vec::new(),
            cpus: (0..hosts * costs.cpus).map(|_| cpu()).collect(),
            qps: Vec::new(),
            posters: Vec::new(),
            aside: 0,
            wire_free: [0; 2],
            outcome: Outcome {
                ns: 0.0,
                overtaken: 0,
                steered: 0,
                interrupts: 0,
                wait: 0,
            },
        };
        for thread in 0..load.threads {
            machine.add_poster(thread, load);
        }
        for poster in 0..machine.posters.len() {
            machine.at(START, Event::Wake(poster));
        }
        machine
    }

    fn add_poster(&mut self, thread: usize, load: Load) {
        let client = self.posters.len();
        let first = self.qps.len();
        for place in 0..load.qps {
            let qp = first + 2 * place;
            let server = load.is_ping_pong.then_some(client + 1);
            self.qps.push(Qp::new(qp + 1, Some(client), load));
            self.qps.push(Qp::new(qp, server, load));
        }
        let qps = |end: usize| (0..load.qps).map(|place| first + 2 * place + end).collect();
        let cpus = self.costs.cpus;
        let ends = 1 + usize::from(load.is_ping_pong && self.costs.wire.is_none());
        let cpu = (thread * ends) % cpus;
        let poster = Poster::new(cpu, qps(0), load, false);
        self.posters.push(poster);
        if load.is_ping_pong {
            let cpu = match self.costs.wire {
                Some(_) => cpus + cpu,
                None => (cpu + 1) % cpus,
            };
            let poster = Poster::new(cpu, qps(1), load, true);
            self.posters.push(poster);
        }
    }

    fn at(&mut self, at: u64, event: Event) {
        self.events.push(Reverse((at, self.kinds.len() as u64)));
        self.kinds.push(event);
    }

    fn happen(&mut self, now: u64, event: Event) {
        let cpu = match event {
            Event::Free(cpu) => cpu,
            Event::Softirq(cpu, task) => {
                self.cpus[cpu].softirqs.push_back(task);
                cpu
            }
            Event::Work(cpu, qp) => {
                self.cpus[cpu].expected -= 1;
                self.cpus[cpu].works.push_back(qp);
                cpu
            }
            Event::Wake(poster) => {
                self.posters[poster].wait = Wait::No;
                let cpu = self.posters[poster].cpu;
                self.cpus[cpu].posters.push_back(poster);
                cpu
            }
            Event::Complete { qp, cpu, count } => {
                self.complete(qp, count);
                self.tell(qp, Context { cpu, t: now });
                return;
            }
            Event::Received { qp, cpu } => {
                if let Some(poster) = self.qps[qp].poster {
                    self.posters[poster].received += 1;
                    self.tell(qp, Context { cpu, t: now });
                }
                return;
            }
            Event::Gone { qp, cpu, count } => {
                self.give_back(qp, count, &mut Context { cpu, t: now });
                return;
            }
            Event::Timer { qp, cpu, at } => {
                if self.qps[qp].timer != Some(at) {
                    return;
                }
                self.qps[qp].timer = None;
                self.cpus[cpu].softirqs.push_back(Task::Timer(qp));
                cpu
            }
        };
        self.dispatch(cpu, now);
    }

    fn dispatch(&mut self, cpu: usize, now: u64) {
        if self.cpus[cpu].busy_until > now {
            return;
        }
        let mut cx = Context { cpu, t: now };
        let state = &mut self.cpus[cpu];
        if let Some(task) = state.softirqs.pop_front() {
            if state.ran != Ran::Softirq || state.busy_until < now {
                cx.t += self.costs.softirq;
            }
            state.ran = Ran::Softirq;
            self.softirq(task, &mut cx);
        } else if let Some(qp) = self.next_work(cpu, now) {
            self.switch(Ran::Work, &mut cx);
            self.work(qp, &mut cx);
        } else if let Some(poster) = self.cpus[cpu].posters.pop_front() {
            self.switch(Ran::Poster(poster), &mut cx);
            self.step(poster, &mut cx);
        } else {
            return;
        }
        let end = cx.t.max(now + 1);
        self.cpus[cpu].busy_until = end;
        self.at(end, Event::Free(cpu));
    }

    /// Returns the next work item of that CPU, if it is not a poster's turn.
    fn next_work(&mut self, cpu: usize, now: u64) -> Option<usize> {
        let state = &mut self.cpus[cpu];
        let sleeps = self.qps[*state.works.front()?].load.poll == Poll::Events;
        let has_normal_priority = sleeps || (self.rules.defers && state.is_late(now));
        if has_normal_priority && state.thread == Ran::Work && !state.posters.is_empty() {
            return None;
        }
        state.works.pop_front()
    }

    fn switch(&mut self, to: Ran, cx: &mut Context) {
        let cpu = &mut self.cpus[cx.cpu];
        cpu.ran = to;
        if mem::replace(&mut cpu.thread, to) != to {
            cx.t += self.costs.switch;
        }
    }

    /// Returns the CPUs of a CPU's host, from the one after it on.
    fn others(&self, cpu: usize) -> impl Iterator<Item = usize> {
        let cpus = self.costs.cpus;
        let host = cpu / cpus * cpus;
        (1..cpus).map(move |by| host + (cpu - host + by) % cpus)
    }

    fn another(&self, cpu: usize) -> Option<usize> {
        self.others(cpu).next()
    }

    fn is_idle(&self, cpu: usize, now: u64) -> bool {
        let cpu = &self.cpus[cpu];
        let is_empty = cpu.softirqs.is_empty() && cpu.works.is_empty() && cpu.posters.is_empty();
        is_empty && cpu.busy_until <= now && cpu.spinning == 0 && cpu.expected == 0
    }

    fn idle_cpu(&self, near: usize, last: Option<usize>, now: u64) -> usize {
        let mut candidates = last.into_iter().chain(self.others(near));
        let idle = candidates.find(|cpu| self.is_idle(*cpu, now));
        idle.unwrap_or(near)
    }

    /// Queues it for a softirq of `cpu`.
    fn raise(&mut self, cpu: usize, task: Task, cx: &mut Context) {
        self.interrupt(cpu, cx);
        let delivery = if cpu == cx.cpu {
            0
        } else {
            self.costs.delivery
        };
        self.at(cx.t + delivery, Event::Softirq(cpu, task));
    }

    fn interrupt(&mut self, cpu: usize, cx: &mut Context) {
        if cpu != cx.cpu {
            cx.t += self.costs.interrupt;
            self.outcome.interrupts += 1;
        }
    }

    /// Queues an item. Returns the CPU on which it will run, unless it is queued.
    fn queue(&mut self, qp: usize, kind: Kind, cpu: usize, cx: &Context) -> Option<usize> {
        let item = &mut self.qps[qp].items[kind as usize];
        if mem::replace(&mut item.is_pending, true) {
            return None;
        }
        item.queued_at = cx.t;
        let is_running = item.until > cx.t;
        item.cpu.filter(|_| is_running).or(Some(cpu))
    }

    fn begin(&mut self, qp: usize, kind: Kind, cx: &Context) {
        let item = &mut self.qps[qp].items[kind as usize];
        item.is_pending = false;
        item.cpu = Some(cx.cpu);
        if kind == Kind::Run {
            let queued_at = item.queued_at;
            self.note_begun(qp, queued_at, cx);
        }
    }

    fn note_begun(&mut self, qp: usize, queued_at: u64, cx: &Context) {
        self.outcome.wait = self.outcome.wait.max(cx.t - queued_at);
        if self.qps[qp].load.poll != Poll::Events {
            let is_late = is_long_wait(Stamp::new(queued_at), cx.t);
            self.cpus[cx.cpu].late_at = is_late.then_some(cx.t);
            self.cpus[cx.cpu].queued_at = None;
        }
    }

    fn end(&mut self, qp: usize, kind: Kind, cx: &Context) {
        self.qps[qp].items[kind as usize].until = cx.t;
    }

    fn send_on(&mut self, qp: usize, cpu: usize, cx: &mut Context) {
        if let Some(cpu) = self.queue(qp, Kind::Send, cpu, cx) {
            self.raise(cpu, Task::Send(qp), cx);
        }
    }

    fn reply_on(&mut self, qp: usize, cpu: usize, cx: &mut Context) {
        if let Some(cpu) = self.queue(qp, Kind::Reply, cpu, cx) {
            self.raise(cpu, Task::Reply(qp), cx);
        }
    }

    fn handle_backlog_on(&mut self, qp: usize, cpu: usize, cx: &mut Context) {
        if let Some(cpu) = self.queue(qp, Kind::Backlog, cpu, cx) {
            let task = Task::Backlog {
                qp,
                handled: 0,
                had_requests: false,
                had_responses: false,
            };
            self.raise(cpu, task, cx);
        }
    }

    fn run_on(&mut self, qp: usize, cpu: usize, cx: &mut Context) {
        let Some(cpu) = self.queue(qp, Kind::Run, cpu, cx) else {
            return;
        };
        let delay = match cpu == cx.cpu {
            true => 0,
            false => self.costs.delivery + self.costs.wake,
        };
        if self.qps[qp].load.poll != Poll::Events {
            self.cpus[cpu].queued_at.get_or_insert(cx.t);
        }
        self.interrupt(cpu, cx);
        self.cpus[cpu].expected += 1;
        self.at(cx.t + delay, Event::Work(cpu, qp));
    }

    fn run_anywhere(&mut self, qp: usize, cx: &mut Context) {
        let Item { cpu: last, .. } = self.qps[qp].items[Kind::Run as usize];
        let cpu = self.idle_cpu(cx.cpu, last, cx.t);
        self.run_on(qp, cpu, cx);
    }

    fn look_after(&mut self, qp: usize, ns: u64, cx: &Context) {
        let at = cx.t + ns;
        if self.qps[qp].timer.is_none_or(|armed| at < armed) {
            self.qps[qp].timer = Some(at);
            self.at(
                at,
                Event::Timer {
                    qp,
                    cpu: cx.cpu,
                    at,
                },
            );
        }
    }

    // The poster.

    fn step(&mut self, poster: usize, cx: &mut Context) {
        self.look(poster, cx);
        let ready = self.ready(poster);
        let state = &mut self.posters[poster];
        if let Some(qp) = ready {
            self.cpus[cx.cpu].posters.push_back(poster);
            self.post(poster, qp, cx);
            return;
        }
        if !state.completions.is_empty() {
            self.cpus[cx.cpu].posters.push_back(poster);
            return;
        }
        let is_answered =
            state.is_server || !state.load.is_ping_pong || state.received >= state.load.messages;
        if state.is_done() && is_answered {
            (state.wait, state.end) = (Wait::Done, cx.t - START);
            return;
        }
        if state.posted >= state.rests_at && state.seen == state.posted {
            let (burst, rest) = state.load.burst.unwrap_or((0, 0));
            state.rests_at += burst;
            state.rested += rest;
            state.wait = Wait::Rests;
            self.at(cx.t + rest, Event::Wake(poster));
            return;
        }
        if state.load.poll == Poll::Events {
            state.wait = Wait::Sleeps;
        } else {
            state.wait = Wait::Spins;
            self.cpus[cx.cpu].spinning += 1;
        }
    }

    /// Lets the poster poll for completions, if it polls now.
    fn look(&mut self, poster: usize, cx: &mut Context) {
        let can_post = self.ready(poster).is_some();
        let state = &mut self.posters[poster];
        if mem::take(&mut state.is_woken) {
            cx.t += self.costs.event;
        }
        let polls_each = state.load.poll == Poll::Each && state.has_just_posted;
        let looks = !can_post || polls_each || state.load.is_ping_pong;
        state.has_just_posted = false;
        if !looks {
            return;
        }
        let count = state.completions.len().min(POLLED as usize);
        cx.t += self.costs.poll * count.max(1) as u64;
        for qp in state.completions.drain(..count) {
            self.qps[qp].seen += 1;
            state.seen += 1;
        }
    }

    /// Returns a queue pair to which the poster may post.
    fn ready(&self, poster: usize) -> Option<usize> {
        let state = &self.posters[poster];
        let has_room = |qp: &usize| {
            let qp = &self.qps[*qp];
            qp.posted - qp.seen < qp.load.depth
        };
        let qps = state.qps.iter().cycle().skip(state.turn);
        let mut qps = qps.take(state.qps.len()).copied();
        qps.find(has_room).filter(|_| state.may_post())
    }

    fn post(&mut self, poster: usize, qp: usize, cx: &mut Context) {
        let state = &mut self.posters[poster];
        let most = self.qps[qp].load.depth - (self.qps[qp].posted - self.qps[qp].seen);
        let limit = state.load.messages.min(state.rests_at) - state.posted;
        let count = state.load.list.min(most).min(limit);
        state.posted += count;
        state.has_just_posted = true;
        state.turn = (state.turn + 1) % state.qps.len();
        let has_polled = state.completions.is_empty();
        cx.t += count * self.costs.post + self.costs.doorbell;
        self.qps[qp].posted += count;
        self.doorbell(qp, has_polled, cx);
    }

    fn complete(&mut self, qp: usize, count: u64) {
        self.qps[qp].complete += count;
        let known = self.known_by(qp);
        let is_complete = |qp: usize| self.qps[qp].complete == self.qps[qp].posted;
        let is_idle = match self.qps[qp].poster.filter(|_| self.rules.joins_qps) {
            Some(poster) => self.posters[poster].qps.iter().all(|qp| is_complete(*qp)),
            None => is_complete(qp),
        };
        let stream = &mut self.qps[known].stream;
        stream.heard = true;
        stream.is_idle |= is_idle;
        if let Some(poster) = self.qps[qp].poster {
            let new = (0..count).map(|_| qp);
            self.posters[poster].completions.extend(new);
        }
    }

    /// Wakes the poster of `qp`, if it waits.
    fn tell(&mut self, qp: usize, cx: Context) {
        let Some(poster) = self.qps[qp].poster else {
            return;
        };
        let state = &mut self.posters[poster];
        let cpu = state.cpu;
        match state.wait {
            Wait::Spins => {
                state.wait = Wait::No;
                self.cpus[cpu].spinning -= 1;
                self.cpus[cpu].posters.push_back(poster);
                self.dispatch(cpu, cx.t);
            }
            Wait::Sleeps => {
                state.wait = Wait::No;
                state.is_woken = true;
                let delay = match cpu == cx.cpu {
                    true => 0,
                    false => self.costs.delivery + self.costs.wake,
                };
                self.at(cx.t + delay, Event::Wake(poster));
            }
            _ => {}
        }
    }
}

/// The start time. It is so late that initial times of 0 are long ago.
const START: u64 = 1_000_000_000;
