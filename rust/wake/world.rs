// SPDX-License-Identifier: GPL-2.0

//! The driver's actions by the decisions of [`wake`], step by step.

use crate::wake::{
    self, after_doorbell, after_replies, after_request, after_response, after_softirq, after_timer,
    further, is_handed_over, place, replies_elsewhere, Act, Came, Further, Put, Rest, Run, SendBy,
    SendGate,
};

type Cpu = u8;

/// Requests that may be outstanding.
const WINDOW: u8 = 1;

/// Packets of a backlog that are handled at a time.
const INBOX_PACKETS: u8 = 2;

/// The initial state and the possible events of a search.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub cpus: u8,
    /// Packets must not overtake each other: of an unreliable connection.
    pub needs_order: bool,
    /// Requests are a stream.
    pub is_stream: bool,
    /// At first one request is outstanding, sent by the first CPU, and one waits behind it.
    pub is_busy: bool,
    /// How many requests are posted, on the first CPU.
    pub posts: u8,
    /// How many requests the peer sends.
    pub requests: u8,
    /// How many of our requests are lost.
    pub losses: u8,
    /// How often a CPU goes offline.
    pub offline: u8,
    /// Whether it comes back.
    pub returns: bool,
    /// Frames that may be on their way.
    pub credit: u8,
    /// How many packets may be steered to another CPU.
    pub aside: u8,
    /// The source of requests, the source of replies, and the destination of received data.
    pub send_memory: Memory,
    pub reply_memory: Memory,
    pub placed_memory: Memory,
    /// Whether work items are late.
    pub late: Late,
    /// The number of unusual results of guesses.
    pub guesses: u8,
    /// Frames in flight always count as recent.
    pub is_recent: bool,
    /// Receivers of this machine may handle sent packets until they are acknowledged.
    pub is_local: bool,
    /// Memory is never faulted in by the CPU that has replied last.
    pub faults_elsewhere: bool,
    /// The rule that is broken.
    pub broken: Option<Broken>,
}

impl Scenario {
    fn looks_for_late(&self) -> bool {
        self.late != Late::Never
    }

    /// Two CPUs, and nothing that happens.
    pub const NOTHING: Self = Self {
        cpus: 2,
        needs_order: false,
        is_stream: false,
        is_busy: false,
        posts: 0,
        requests: 0,
        losses: 0,
        offline: 0,
        returns: false,
        credit: 2,
        aside: 0,
        send_memory: Memory::Present,
        reply_memory: Memory::Present,
        placed_memory: Memory::Present,
        late: Late::Never,
        guesses: 2,
        is_recent: false,
        is_local: false,
        faults_elsewhere: false,
        broken: None,
    };
}

/// Whether the work items of a CPU are late when a context looks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Late {
    Never,
    /// As an unusual guess.
    Maybe,
    Always,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Memory {
    Present,
    /// It can be faulted in.
    Absent,
    /// It cannot.
    Gone,
}

/// A rule that the model breaks, as an earlier driver did or a later one might.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// The handler of a response leaves the sending to the origin of an open backlog, without a
    /// mark.
    LeavesResponses,
    /// The handler of a response leaves the sending to its CPU, for a group of responses, without a mark.
    LeavesGroups,
    /// The handler of a response leaves the sending to the work item of process context, without a mark.
    LeavesQueued,
    /// Steered responses have nothing sent at their end.
    LeavesBatches,
    /// Kept responses have nothing sent at their end.
    LeavesRest,
    /// Work is left to a CPU that is offline.
    LeavesToOffline,
    /// The work item of process context does not take its turn.
    HasNoTurn,
    /// A CPU that finds the turn taken leaves no mark.
    LeavesNoMark,
    /// A backlog is left without queueing its work item.
    ForgetsBacklog,
    /// A CPU that finds a half deferred does not make the work item continue.
    ForgetsHandover,
    /// A half that waits for memory has no work item queued for that.
    ForgetsFaults,
    /// Memory that is gone is not reported when another CPU is to send.
    LeavesFailures,
    /// No credit waker is called.
    ForgetsCredit,
    /// Frames of a CPU that goes offline are overtaken while they are in no queue.
    SendsAtOnce,
    /// A requester that waits for stranded frames does not set the timer.
    ForgetsStranded,
}

/// Work items of the queue pair.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Item {
    Run,
    Reply,
    Send,
    Backlog,
    FaultSend,
    FaultRecv,
}

const ITEMS: [Item; 6] = [
    Item::Run,
    Item::Reply,
    Item::Send,
    Item::Backlog,
    Item::FaultSend,
    Item::FaultRecv,
];

/// Work queues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Queue {
    Unbound,
    UnboundHigh,
    Bound,
    BoundHigh,
    Softirq,
    Faults,
}

impl Queue {
    fn is_bound(self) -> bool {
        matches!(self, Self::Bound | Self::BoundHigh | Self::Softirq)
    }
}

/// Workers of a queue: those of one CPU, or all (0) where it is not bound to CPUs.
type Pool = (Queue, Cpu);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    Request,
    Response,
}

/// The first action in the send half.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum First {
    Nothing,
    Group,
    GoOn,
    Timeout,
    Response {
        is_for_each: bool,
    },
    /// A response that was kept, and is handled after the packet that it waited for.
    Kept,
    Faulted {
        has_failed: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Replier {
    Item,
    GoOn,
    Faults { has_failed: bool },
}

/// The context to which a run of the send half leaves its requests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LeftTo {
    /// The softirq that sends, on that CPU.
    Softirq(Cpu),
    /// The work item of process context, on that CPU, as work items are late there.
    Late(Cpu),
}

impl From<LeftTo> for SendBy<Cpu> {
    fn from(left_to: LeftTo) -> Self {
        match left_to {
            LeftTo::Softirq(cpu) => Self::Softirq(cpu),
            LeftTo::Late(cpu) => Self::Queued(cpu),
        }
    }
}

/// One step of a context.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Op {
    /// A doorbell, as far as it decides.
    Ring,
    RunBeside,
    RunLater,
    ReplyLater,
    Queue(Item, Queue, Cpu),
    /// The softirq that sends, as far as it looks whether work items are late.
    SendGroup,
    /// The timer, as far as it looks whether they are late.
    Timeout,
    /// Under the send lock.
    Send(First, Option<LeftTo>),
    AfterSend {
        more: bool,
        waits: bool,
    },
    /// A response, as far as it reads the origin.
    Respond {
        is_for_each: bool,
    },
    /// Under the receive lock.
    Request {
        is_for_each: bool,
    },
    /// Under the receive lock.
    Reply(Replier),
    ReplyAt(Cpu),
    SendAt(Cpu),
    SendAfterKept(Cpu),
    TurnBegin,
    TurnEnd,
    TakeOver,
    /// A packet arrives. The step checks only whether others wait.
    Look(Kind),
    Steer(Kind),
    Put(Kind, Option<Cpu>),
    MakeRoom,
    /// Of a backlog, with its lock `turn`.
    Unlock,
    BacklogBegin,
    BacklogNext(Batch),
    BacklogEnd(Batch, bool),
    Further(bool),
    FaultSendSee,
    FaultRecvLook,
    FaultRecvSee,
    FaultRecvPlace {
        has_failed: bool,
    },
}

/// Packets of a backlog that are handled together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Batch {
    origin: Option<Cpu>,
    had_requests: bool,
    had_responses: bool,
    handled: u8,
}

/// A context, with its remaining steps from the last to the first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Context {
    cpu: Cpu,
    in_softirq: bool,
    /// Of a work item.
    item: Option<(Item, Pool)>,
    ops: Vec<Op>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
struct Work {
    pending: Option<(Queue, Cpu)>,
    last: Option<(Queue, Cpu)>,
}

impl Default for Queue {
    fn default() -> Self {
        Self::Unbound
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Turn {
    Idle,
    Taken,
    Wanted,
}

/// The state of the model.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    online: u8,
    offline_left: u8,
    /// A CPU that has sent is going offline: its frames are in no queue.
    is_plugging: bool,
    has_overtaken: bool,
    guesses_left: u8,
    // The surroundings.
    posts_left: u8,
    requests_left: u8,
    losses_left: u8,
    requests_coming: u8,
    responses_coming: u8,
    request_frames: u8,
    reply_frames: u8,
    // The send half.
    posted: u8,
    under_way: u8,
    lost: u8,
    again: u8,
    is_blocked: bool,
    is_handed_over: bool,
    send_stops: bool,
    held_responses: u8,
    last_sent: Option<Cpu>,
    // The receive half.
    owed: u8,
    recv_stops: bool,
    held_requests: u8,
    waiting: u8,
    last_replied: Option<Cpu>,
    // Memory.
    send_memory: Memory,
    reply_memory: Memory,
    placed_memory: Memory,
    // Shared by both halves.
    wanted: bool,
    armed: bool,
    turn: Turn,
    // The backlog.
    is_open: bool,
    is_left: bool,
    from: Option<Cpu>,
    packets: Vec<Kind>,
    is_locked: bool,
    works: [Work; ITEMS.len()],
    contexts: Vec<Context>,
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub enum Label {
    Post,
    PeerRequests,
    Arrives,
    IsLost,
    Acknowledged,
    Offline(Cpu),
    OfflineForGood,
    Online(Cpu),
    Receives(Kind, Cpu),
    Timer(Cpu),
    Starts(Item, Queue, Cpu),
    Step(Cpu, Op),
}

impl Label {
    /// Returns true if it happens without the network, the owner and changes of the online CPUs.
    #[must_use]
    pub fn is_inner(self) -> bool {
        matches!(
            self,
            Self::Receives(..)
                | Self::Timer(_)
                | Self::OfflineForGood
                | Self::Starts(..)
                | Self::Step(..)
        )
    }
}

/// Undetermined decisions: each run of a step tries another combination.
#[derive(Default)]
struct Choices {
    /// The choices made: the number chosen, and the number of alternatives.
    made: Vec<(u8, u8)>,
    at: usize,
}

impl Choices {
    fn choose(&mut self, of: u8) -> u8 {
        if self.at == self.made.len() {
            self.made.push((0, of));
        }
        let chosen = self.made[self.at].0;
        self.at += 1;
        chosen
    }

    /// Goes to the next way. Returns false if there is none.
    fn next(&mut self) -> bool {
        self.at = 0;
        while let Some((chosen, of)) = self.made.pop() {
            if chosen + 1 < of {
                self.made.push((chosen + 1, of));
                return true;
            }
        }
        false
    }
}

impl State {
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        let busy = u8::from(scenario.is_busy);
        Self {
            online: (1 << scenario.cpus) - 1,
            offline_left: scenario.offline,
            is_plugging: false,
            has_overtaken: false,
            guesses_left: scenario.guesses,
            posts_left: scenario.posts,
            requests_left: scenario.requests,
            losses_left: scenario.losses,
            requests_coming: 0,
            responses_coming: 0,
            request_frames: busy,
            reply_frames: 0,
            posted: busy,
            under_way: busy,
            lost: 0,
            again: 0,
            is_blocked: scenario.is_busy,
            is_handed_over: false,
            send_stops: false,
            held_responses: 0,
            last_sent: scenario.is_busy.then_some(0),
            owed: 0,
            recv_stops: false,
            held_requests: 0,
            waiting: 0,
            last_replied: None,
            send_memory: scenario.send_memory,
            reply_memory: scenario.reply_memory,
            placed_memory: scenario.placed_memory,
            wanted: false,
            armed: scenario.is_busy,
            turn: Turn::Idle,
            is_open: false,
            is_left: false,
            from: None,
            packets: Vec::new(),
            is_locked: false,
            works: [Work::default(); ITEMS.len()],
            contexts: Vec::new(),
        }
    }

    /// Returns the violation of a rule that must hold at any time.
    #[must_use]
    pub fn is_wrong(&self) -> Option<String> {
        if self.has_overtaken {
            return Some("a frame in no queue is overtaken".into());
        }
        let runs = self.contexts.iter();
        let runs = runs.filter(|context| context.ops.contains(&Op::TurnEnd));
        (runs.count() > 1).then(|| "the work item runs twice at a time".into())
    }

    /// Returns the work that is left in a state where nothing runs by itself.
    #[must_use]
    pub fn is_left(&self, scenario: &Scenario) -> Option<String> {
        // The work continues when frames have gone or packets arrive.
        if self.in_flight() > 0 || self.requests_coming > 0 || self.responses_coming > 0 {
            return None;
        }
        let has_room = scenario.needs_order || self.under_way < WINDOW;
        let left = [
            (self.posted > 0 && has_room, "a request to be sent"),
            (self.again > 0, "a request to be sent again"),
            (self.lost > 0, "a request that is lost, and no timer"),
            (self.owed > 0, "a reply to be sent"),
            (
                self.waiting > 0,
                "requests that wait to be answered together",
            ),
            (self.is_handed_over, "a half that was handed over"),
            (
                self.send_stops || self.held_responses > 0,
                "a send half that waits for memory",
            ),
            (
                self.recv_stops || self.held_requests > 0,
                "a receive half that waits for memory",
            ),
            (!self.packets.is_empty(), "packets in the backlog"),
            (self.is_open, "an open backlog"),
            (self.is_left, "a backlog that was left"),
        ];
        let left = left.iter().find(|(is_left, _)| *is_left)?;
        Some(format!("{} is left", left.1))
    }

    fn in_flight(&self) -> u8 {
        self.request_frames + self.reply_frames
    }

    fn is_online(&self, cpu: Cpu) -> bool {
        self.online & (1 << cpu) != 0
    }

    fn cpus(&self) -> impl Iterator<Item = Cpu> {
        let online = self.online;
        (0..8).filter(move |cpu| online & (1 << cpu) != 0)
    }

    /// Returns the next CPU that is online.
    fn other(&self, cpu: Cpu) -> Option<Cpu> {
        self.cpus()
            .find(|other| *other > cpu)
            .or_else(|| self.cpus().find(|other| *other < cpu))
    }

    /// Returns the CPUs that may run work queued for `cpu`.
    fn in_place_of(&self, cpu: Cpu) -> Vec<Cpu> {
        if self.is_online(cpu) {
            return vec![cpu];
        }
        self.cpus().collect()
    }

    fn has_softirq(&self, cpu: Cpu) -> bool {
        let mut contexts = self.contexts.iter();
        contexts.any(|context| context.in_softirq && context.cpu == cpu)
    }

    fn is_running(&self, item: Item, pool: Pool) -> bool {
        let mut contexts = self.contexts.iter();
        contexts.any(|context| context.item == Some((item, pool)))
    }

    /// Begins a context, with its first step.
    fn begin(mut self, scenario: &Scenario, start: Start, label: Label, steps: &mut Steps) {
        let number = self.contexts.len();
        self.contexts.push(Context {
            cpu: start.cpu,
            in_softirq: start.in_softirq,
            item: start.item,
            ops: vec![start.op],
        });
        self.context_steps(scenario, number, Some(label), steps);
    }

    /// Returns all possible next steps.
    #[must_use]
    pub fn steps(&self, scenario: &Scenario) -> Vec<(Label, Self)> {
        let mut steps = Vec::new();
        self.outer_steps(scenario, &mut steps);
        self.starts(scenario, &mut steps);
        for number in 0..self.contexts.len() {
            self.context_steps(scenario, number, None, &mut steps);
        }
        steps
    }

    fn outer_steps(&self, scenario: &Scenario, steps: &mut Steps) {
        if self.posts_left > 0 {
            let mut next = self.clone();
            next.posts_left -= 1;
            next.posted += 1;
            let start = Start::process(next.in_place_of(0)[0], Op::Ring);
            next.begin(scenario, start, Label::Post, steps);
        }
        if self.requests_left > 0 {
            let mut next = self.clone();
            next.requests_left -= 1;
            next.requests_coming += 1;
            steps.push((Label::PeerRequests, next));
        }
        if self.request_frames > 0 {
            let mut next = self.clone();
            next.request_frames -= 1;
            let mut lost = next.clone();
            next.responses_coming += u8::from(!scenario.needs_order);
            next.give_back(scenario, Label::Arrives, steps);
            if self.losses_left > 0 {
                lost.losses_left -= 1;
                lost.lost += 1;
                lost.give_back(scenario, Label::IsLost, steps);
            }
        }
        if self.reply_frames > 0 {
            let mut next = self.clone();
            next.reply_frames -= 1;
            next.give_back(scenario, Label::Acknowledged, steps);
        }
        if self.is_plugging {
            let mut next = self.clone();
            next.is_plugging = false;
            steps.push((Label::OfflineForGood, next));
        }
        if self.offline_left > 0 && !self.is_plugging && self.online.count_ones() > 1 {
            for cpu in self.cpus().filter(|cpu| !self.has_softirq(*cpu)) {
                steps.push((Label::Offline(cpu), self.without(cpu)));
            }
        }
        if scenario.returns && !self.is_plugging {
            for cpu in (0..scenario.cpus).filter(|cpu| !self.is_online(*cpu)) {
                let mut next = self.clone();
                next.online |= 1 << cpu;
                steps.push((Label::Online(cpu), next));
            }
        }
    }

    /// Takes a CPU offline. Processes and the workers of process context move to another CPU.
    fn without(&self, cpu: Cpu) -> Self {
        let mut next = self.clone();
        next.offline_left -= 1;
        next.online &= !(1 << cpu);
        next.is_plugging = true;
        let other = next.in_place_of(cpu)[0];
        for context in next
            .contexts
            .iter_mut()
            .filter(|context| context.cpu == cpu)
        {
            context.cpu = other;
        }
        next.contexts.sort_unstable();
        next
    }

    /// Removes a frame that has left.
    fn give_back(mut self, scenario: &Scenario, label: Label, steps: &mut Steps) {
        if self.in_flight() > scenario.credit / 2 || !self.wanted {
            return steps.push((label, self));
        }
        self.wanted = false;
        if scenario.broken == Some(Broken::ForgetsCredit) {
            return steps.push((label, self));
        }
        let start = Start::process(self.in_place_of(0)[0], Op::RunLater);
        self.begin(scenario, start, label, steps);
    }

    /// Adds the steps that begin a context.
    fn starts(&self, scenario: &Scenario, steps: &mut Steps) {
        for cpu in self.cpus().filter(|cpu| !self.has_softirq(*cpu)) {
            if self.requests_coming > 0 {
                let mut next = self.clone();
                next.requests_coming -= 1;
                let start = Start::softirq(cpu, Op::Look(Kind::Request));
                next.begin(scenario, start, Label::Receives(Kind::Request, cpu), steps);
            }
            if self.responses_coming > 0 {
                let mut next = self.clone();
                next.responses_coming -= 1;
                let start = Start::softirq(cpu, Op::Look(Kind::Response));
                next.begin(scenario, start, Label::Receives(Kind::Response, cpu), steps);
            }
            // Otherwise it has no effect, or others do the work.
            let is_late = scenario.is_stream && self.posted > 0 && self.under_way < WINDOW;
            let is_late = is_late || (scenario.needs_order && self.posted > 0);
            if self.armed && (self.lost > 0 || is_late) {
                let mut next = self.clone();
                next.armed = false;
                let op = match scenario.looks_for_late() {
                    true => Op::Timeout,
                    false => Op::Send(First::Timeout, None),
                };
                let start = Start::softirq(cpu, op);
                next.begin(scenario, start, Label::Timer(cpu), steps);
            }
        }
        for item in ITEMS {
            self.item_starts(scenario, item, steps);
        }
    }

    fn item_starts(&self, scenario: &Scenario, item: Item, steps: &mut Steps) {
        let Some(pool) = self.works[item as usize].pending else {
            return;
        };
        if self.is_running(item, pool) {
            return;
        }
        let (queue, home) = pool;
        let cpus = match queue.is_bound() {
            true => self.in_place_of(home),
            false => self.cpus().collect(),
        };
        let in_softirq = queue == Queue::Softirq;
        let shuns = scenario.faults_elsewhere && queue == Queue::Faults;
        let shunned = self
            .last_replied
            .filter(|_| shuns && self.online.count_ones() > 1);
        for cpu in cpus {
            if Some(cpu) == shunned {
                continue;
            }
            if in_softirq && self.has_softirq(cpu) {
                continue;
            }
            let mut next = self.clone();
            next.works[item as usize] = Work {
                pending: None,
                last: Some(pool),
            };
            let op = match item {
                Item::Run => Op::TurnBegin,
                Item::Reply => Op::Reply(Replier::Item),
                Item::Send if scenario.looks_for_late() => Op::SendGroup,
                Item::Send => Op::Send(First::Group, None),
                Item::Backlog => Op::BacklogBegin,
                Item::FaultSend => Op::FaultSendSee,
                Item::FaultRecv => Op::FaultRecvLook,
            };
            let start = Start {
                cpu,
                in_softirq,
                item: Some((item, pool)),
                op,
            };
            next.begin(scenario, start, Label::Starts(item, queue, cpu), steps);
        }
    }

    /// Adds the next step of a context, in all variants. `start` is the event that begins the
    /// context.
    fn context_steps(
        &self,
        scenario: &Scenario,
        number: usize,
        start: Option<Label>,
        steps: &mut Steps,
    ) {
        let Some(&op) = self.contexts[number].ops.last() else {
            return;
        };
        let takes_lock = matches!(op, Op::MakeRoom | Op::BacklogNext(_));
        if takes_lock && self.is_locked {
            return;
        }
        let cpu = self.contexts[number].cpu;
        let mut choices = Choices::default();
        loop {
            let mut state = self.clone();
            let mut context = state.contexts.remove(number);
            context.ops.pop();
            let mut step = Step {
                scenario,
                state,
                context,
                choices,
            };
            step.run(op);
            let Step {
                mut state,
                context,
                choices: made,
                ..
            } = step;
            if !context.ops.is_empty() {
                state.contexts.push(context);
            }
            state.forget(scenario);
            steps.push((start.unwrap_or(Label::Step(cpu, op)), state));
            choices = made;
            if !choices.next() {
                return;
            }
        }
    }
}

impl State {
    /// Returns true if responses may allow something to be sent.
    fn has_left(&self) -> bool {
        self.is_blocked || self.again > 0
    }

    /// Clears state without effect, so that equivalent states are equal.
    fn forget(&mut self, scenario: &Scenario) {
        self.contexts.sort_unstable();
        for item in ITEMS {
            let last = self.works[item as usize].last;
            if last.is_some_and(|last| !self.is_running(item, last)) {
                self.works[item as usize].last = None;
            }
        }
        let is_ordered = scenario.needs_order && self.posted > 0;
        self.armed &= self.losses_left > 0 || self.lost > 0 || scenario.is_stream || is_ordered;
        self.from = self.from.filter(|_| self.is_open);
    }
}

type Steps = Vec<(Label, State)>;

/// How a context begins.
struct Start {
    cpu: Cpu,
    in_softirq: bool,
    item: Option<(Item, Pool)>,
    op: Op,
}

impl Start {
    fn process(cpu: Cpu, op: Op) -> Self {
        Self {
            cpu,
            in_softirq: false,
            item: None,
            op,
        }
    }

    fn softirq(cpu: Cpu, op: Op) -> Self {
        Self {
            in_softirq: true,
            ..Self::process(cpu, op)
        }
    }
}

/// One step of one context.
struct Step<'a> {
    scenario: &'a Scenario,
    state: State,
    context: Context,
    choices: Choices,
}

fn act(is_for_each: bool) -> Act {
    match is_for_each {
        true => Act::OnEach,
        false => Act::AfterAll,
    }
}

impl Step<'_> {
    fn is_broken(&self, rule: Broken) -> bool {
        self.scenario.broken == Some(rule)
    }

    fn cpu(&self) -> Cpu {
        self.context.cpu
    }

    /// Makes a guess. True is the unusual result.
    fn guess(&mut self) -> bool {
        if self.state.guesses_left == 0 || self.choices.choose(2) == 0 {
            return false;
        }
        self.state.guesses_left -= 1;
        true
    }

    /// Adds the next steps of the context, in this order.
    fn then(&mut self, ops: &[Op]) {
        self.context.ops.extend(ops.iter().rev());
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Ring => self.ring(),
            Op::RunBeside => self.run_beside(),
            Op::RunLater => self.run_later(),
            Op::ReplyLater => self.reply_later(),
            Op::Queue(item, queue, cpu) => self.enqueue(item, queue, cpu),
            Op::SendGroup => {
                let late = self.late();
                self.then(&[Op::Send(First::Group, late)]);
            }
            Op::Timeout => {
                // What is overdue is sent at once.
                let late = match self.state.lost {
                    0 => self.late(),
                    _ => None,
                };
                self.then(&[Op::Send(First::Timeout, late)]);
            }
            Op::Send(first, left_to) => self.run_send(first, left_to),
            Op::AfterSend { more, waits } => {
                if more {
                    self.run_later();
                }
                if waits && !self.is_broken(Broken::ForgetsFaults) {
                    self.enqueue(Item::FaultSend, Queue::Faults, 0);
                }
            }
            Op::Respond { is_for_each } => {
                let left_to = match self.origin() {
                    Some(cpu) if self.guess() => {
                        let kept = Op::Send(First::Kept, Some(LeftTo::Softirq(cpu)));
                        return self.then(&[kept, Op::SendAfterKept(cpu)]);
                    }
                    None if is_for_each && self.guess() => Some(LeftTo::Softirq(self.context.cpu)),
                    None if is_for_each => self.late(),
                    origin => origin.map(LeftTo::Softirq),
                };
                self.then(&[Op::Send(First::Response { is_for_each }, left_to)]);
            }
            Op::Request { is_for_each } => self.request(is_for_each),
            Op::Reply(replier) => self.run_replies(replier),
            Op::ReplyAt(cpu) => {
                if self.state.owed > 0 {
                    self.enqueue(Item::Reply, Queue::Softirq, cpu);
                }
            }
            Op::SendAt(cpu) => self.send_at(cpu, Broken::LeavesBatches),
            Op::SendAfterKept(cpu) => self.send_at(cpu, Broken::LeavesRest),
            Op::TurnBegin => self.begin_turn(),
            Op::TurnEnd => self.end_turn(),
            Op::TakeOver => self.take_over(),
            Op::Look(kind) => match self.state.is_open {
                true => self.then(&[Op::Put(kind, None)]),
                false => self.then(&[Op::Steer(kind)]),
            },
            Op::Steer(kind) => self.steer(kind),
            Op::Put(kind, other) => self.put(kind, other),
            Op::MakeRoom => {
                if !self.state.packets.is_empty() {
                    self.state.is_locked = true;
                    let oldest = self.state.packets.remove(0);
                    self.hand_over(oldest, true, &[Op::Unlock]);
                }
            }
            Op::Unlock => self.state.is_locked = false,
            Op::BacklogBegin => {
                let batch = Batch {
                    origin: self.origin(),
                    had_requests: false,
                    had_responses: false,
                    handled: 0,
                };
                self.then(&[Op::BacklogNext(batch)]);
            }
            Op::BacklogNext(batch) => self.next_of_inbox(batch),
            Op::BacklogEnd(batch, more) => self.end_batch(batch, more),
            Op::Further(more) => self.go_further(more),
            Op::FaultSendSee => {
                let has_failed = see_to(&mut self.state.send_memory, self.state.send_stops);
                see_to(&mut self.state.placed_memory, self.state.held_responses > 0);
                self.then(&[Op::Send(First::Faulted { has_failed }, None)]);
            }
            Op::FaultRecvLook => {
                if self.state.recv_stops || self.state.held_requests > 0 {
                    self.then(&[Op::FaultRecvSee]);
                }
            }
            Op::FaultRecvSee => {
                let has_failed = see_to(&mut self.state.reply_memory, self.state.recv_stops);
                see_to(&mut self.state.placed_memory, self.state.held_requests > 0);
                self.then(&[Op::FaultRecvPlace { has_failed }]);
            }
            Op::FaultRecvPlace { has_failed } => {
                self.state.recv_stops = false;
                if self.state.held_requests > 0 && self.state.placed_memory != Memory::Absent {
                    self.state.held_requests -= 1;
                    self.state.owed += 1;
                }
                let replier = Replier::Faults { has_failed };
                let again = Op::Queue(Item::FaultRecv, Queue::Faults, 0);
                self.then(&[Op::Reply(replier), again]);
            }
        }
    }

    // Where work goes.

    fn enqueue(&mut self, item: Item, queue: Queue, cpu: Cpu) {
        let work = self.state.works[item as usize];
        if work.pending.is_some() {
            return;
        }
        // The owner may begin to sleep at any time.
        let queue = match queue {
            Queue::BoundHigh if self.guess() => self.queue_in_turn(),
            Queue::UnboundHigh if self.guess() => Queue::Unbound,
            queue => queue,
        };
        let cpu = match queue.is_bound() {
            true if self.state.is_online(cpu) => cpu,
            true => self.cpu(),
            false => 0,
        };
        // As the kernel does: behind a current run of the same queue, and on the workers that got
        // the item last.
        let own = self.context.item;
        let is_running = |pool| own == Some((item, pool)) || self.state.is_running(item, pool);
        let last = work
            .last
            .filter(|last| last.0 == queue && is_running(*last));
        let pool = last.unwrap_or((queue, cpu));
        self.state.works[item as usize].pending = Some(pool);
    }

    /// Returns the queue of work that takes turns.
    fn queue_in_turn(&mut self) -> Queue {
        match !self.scenario.needs_order && self.guess() {
            true => Queue::Unbound,
            false => Queue::Bound,
        }
    }

    fn run_later(&mut self) {
        match place(self.state.last_sent, self.scenario.needs_order, || {
            self.scenario.is_stream
        }) {
            Some(cpu) => self.enqueue(Item::Run, Queue::BoundHigh, cpu),
            None => self.enqueue(Item::Run, Queue::UnboundHigh, 0),
        }
    }

    fn reply_later(&mut self) {
        let cpu = self.origin().or_else(|| self.replies_ahead());
        let cpu = cpu.unwrap_or(self.cpu());
        self.enqueue(Item::Reply, Queue::Softirq, cpu);
    }

    fn run_beside(&mut self) {
        match self.choices.choose(3) {
            0 => self.state.armed = true,
            1 => self.enqueue(Item::Run, Queue::UnboundHigh, 0),
            _ => {
                let cpu = self.state.other(self.cpu()).unwrap_or(self.cpu());
                self.enqueue(Item::Run, Queue::BoundHigh, cpu);
            }
        }
    }

    fn send_by(&mut self, sender: SendBy<Cpu>) {
        match sender {
            SendBy::Here => self.then(&[Op::Send(First::Nothing, None)]),
            SendBy::Process(cpu) | SendBy::Queued(cpu) => {
                self.then(&[Op::Queue(Item::Run, Queue::BoundHigh, cpu)])
            }
            SendBy::Softirq(cpu) => self.then(&[Op::Queue(Item::Send, Queue::Softirq, cpu)]),
            SendBy::Beside => self.then(&[Op::RunBeside]),
            SendBy::Nobody => {}
        }
    }

    // Values that the driver reads.

    fn origin(&self) -> Option<Cpu> {
        let from = self.state.from.filter(|_| self.state.is_open);
        wake::origin(from, self.cpu())
    }

    fn ahead(&self, last: Option<Cpu>, may_be_ahead: impl FnOnce() -> bool) -> Option<Cpu> {
        let is_online = |cpu| self.state.is_online(cpu) || self.is_broken(Broken::LeavesToOffline);
        wake::ahead(last, self.cpu(), may_be_ahead, is_online)
    }

    fn requests_ahead(&mut self) -> Option<Cpu> {
        // The age is a guess if correctness does not depend on it.
        let in_flight = self.state.in_flight() > 0;
        let is_recent = self.scenario.is_recent;
        // Of a few frames that went over a card, those in flight count. Of many, the recent ones count.
        let may_be_ahead = match (self.scenario.needs_order, self.scenario.is_local) {
            (true, _) => in_flight || self.guess(),
            (false, true) => self.state.under_way > 0 && (is_recent || self.guess()),
            (false, false) => in_flight && is_recent || self.guess(),
        };
        self.ahead(self.state.last_sent, || may_be_ahead)
    }

    fn is_stranded(&self) -> bool {
        let state = &self.state;
        !self.is_broken(Broken::SendsAtOnce)
            && wake::is_stranded(
                state.last_sent,
                || state.in_flight() > 0,
                |cpu| state.is_online(cpu),
                || state.is_plugging,
            )
    }

    fn replies_ahead(&self) -> Option<Cpu> {
        self.ahead(self.state.last_replied, || self.state.in_flight() > 0)
    }

    // The send half.

    fn ring(&mut self) {
        let is_stream = self.scenario.is_stream && self.guess();
        let other = self.requests_ahead();
        let sender = after_doorbell(self.origin(), || other, is_stream);
        self.send_by(sender);
    }

    /// Guesses whether work items are late on this CPU.
    fn late(&mut self) -> Option<LeftTo> {
        let cpu = self.context.cpu;
        let is_late = match self.scenario.late {
            Late::Never => false,
            Late::Maybe => self.guess(),
            Late::Always => true,
        };
        is_late.then_some(LeftTo::Late(cpu))
    }

    fn run_send(&mut self, first: First, left_to: Option<LeftTo>) {
        let needs_order = self.scenario.needs_order;
        let ahead = self.requests_ahead();
        self.state.is_handed_over |= needs_order && ahead.is_some();
        let has_failed = self.begin_send(first);
        let is_known = has_failed && !needs_order && !self.is_broken(Broken::LeavesFailures);
        let is_received = self.scenario.is_local && self.state.under_way == 0;
        let is_free = is_known || (!needs_order && is_received);
        let ahead = ahead.filter(|_| !is_free);
        let is_unsent = self.state.posted > 0 || self.state.again > 0;
        let late = match left_to {
            Some(LeftTo::Late(cpu)) => Some(cpu),
            _ => None,
        };
        let has_left = self.state.has_left() || (late.is_some() && is_unsent);
        let gate = SendGate {
            is_handed_over: self.state.is_handed_over,
            stops_sending: self.state.send_stops,
            is_left: left_to.is_some(),
            is_stranded: needs_order && self.is_stranded(),
            ahead,
        };
        self.state.armed |= gate.is_stranded && !self.is_broken(Broken::ForgetsStranded);
        let run = match gate.closed() {
            Some(Run::More) if self.is_broken(Broken::ForgetsHandover) => Run::Idle,
            Some(run) => run,
            None => self.send(has_failed),
        };
        self.state.is_handed_over |= is_handed_over(&run, needs_order);
        self.state.armed |= !needs_order && self.state.under_way > 0;
        let more = run == Run::More;
        let waits = self.state.send_stops || self.state.held_responses > 0;
        let sender = match (first, run) {
            (First::Response { .. }, Run::Idle) if self.loses_response(left_to) => SendBy::Nobody,
            (First::Response { is_for_each }, run) => {
                after_response(run, left_to.map(SendBy::from), has_left, act(is_for_each))
            }
            (First::Group, run) => after_softirq(run, late),
            (First::GoOn, Run::Elsewhere(cpu)) => SendBy::Softirq(cpu),
            (First::Timeout, run) => {
                let sender = after_timer(run, late, is_unsent, || self.guess());
                self.state.armed |= sender != SendBy::Nobody;
                sender
            }
            (_, Run::Elsewhere(cpu)) => SendBy::Process(cpu),
            _ => SendBy::Nobody,
        };
        self.send_by(sender);
        if more || waits {
            self.then(&[Op::AfterSend { more, waits }]);
        }
    }

    /// Returns true if requests that are left to that context after a response are forgotten.
    fn loses_response(&self, left_to: Option<LeftTo>) -> bool {
        self.is_broken(match left_to {
            Some(LeftTo::Late(_)) => Broken::LeavesQueued,
            Some(LeftTo::Softirq(cpu)) if cpu == self.context.cpu => Broken::LeavesGroups,
            _ => Broken::LeavesResponses,
        })
    }

    /// Queues the work item that sends on `cpu`, if there is a reason, unless `broken` leaves it out.
    fn send_at(&mut self, cpu: Cpu, broken: Broken) {
        if self.state.has_left() && !self.is_broken(broken) {
            self.enqueue(Item::Send, Queue::Softirq, cpu);
        }
    }

    /// Starts a run of the send half. Returns true if the memory to send is known to be gone.
    fn begin_send(&mut self, first: First) -> bool {
        match first {
            First::Nothing | First::Group => {}
            First::GoOn => self.state.is_handed_over = false,
            First::Timeout => {
                if self.state.held_responses == 0 {
                    self.state.again += self.state.lost;
                    self.state.lost = 0;
                }
            }
            First::Response { .. } | First::Kept => {
                let is_absent = self.state.placed_memory == Memory::Absent;
                if is_absent || self.state.held_responses > 0 {
                    self.state.held_responses += 1;
                } else {
                    self.state.under_way -= 1;
                }
            }
            First::Faulted { has_failed } => {
                self.state.send_stops = false;
                if self.state.held_responses > 0 && self.state.placed_memory != Memory::Absent {
                    self.state.held_responses -= 1;
                    self.state.under_way -= 1;
                }
                return has_failed;
            }
        }
        false
    }

    /// Sends one packet.
    fn send(&mut self, has_failed: bool) -> Run<Cpu> {
        let state = &mut self.state;
        if state.in_flight() >= self.scenario.credit {
            state.wanted = true;
            return Run::Blocked;
        }
        let has_room = self.scenario.needs_order || state.under_way < WINDOW;
        let is_again = state.again > 0;
        if !is_again && (state.posted == 0 || !has_room) {
            state.is_blocked = state.posted > 0;
            return Run::Idle;
        }
        state.is_blocked = false;
        let is_there = state.send_memory == Memory::Present;
        if !is_there && !has_failed {
            state.send_stops = true;
            return Run::Absent;
        }
        let is_gone = |cpu| state.is_plugging && !state.is_online(cpu);
        let is_overtaken = self.scenario.needs_order && state.last_sent.is_some_and(is_gone);
        state.has_overtaken |= is_overtaken && state.in_flight() > 0;
        state.last_sent = Some(self.context.cpu);
        if is_again {
            state.again -= 1;
            state.under_way -= u8::from(!is_there);
        } else {
            state.posted -= 1;
            state.under_way += u8::from(is_there && !self.scenario.needs_order);
        }
        state.request_frames += u8::from(is_there);
        Run::More
    }

    // The receive half.

    fn request(&mut self, is_for_each: bool) {
        if self.state.held_requests > 0 {
            self.state.held_requests += 1;
            return;
        }
        let is_put_off = self.state.placed_memory == Memory::Absent;
        if is_put_off {
            self.state.held_requests += 1;
        } else {
            self.state.owed += u8::from(!self.scenario.needs_order);
        }
        if is_put_off && !self.is_broken(Broken::ForgetsFaults) {
            self.then(&[Op::Queue(Item::FaultRecv, Queue::Faults, 0)]);
        }
        if is_for_each && self.state.owed > 0 {
            let run = self.answer();
            self.go_on_replying(run);
        }
    }

    fn answer(&mut self) -> Run<Cpu> {
        let waits = self.state.recv_stops || self.state.held_requests > 0;
        let is_elsewhere = self.origin().is_some() || self.replies_ahead().is_some() || waits;
        let is_alone = !is_elsewhere && self.state.waiting == 0 && self.guess();
        let state = &mut self.state;
        let came = || {
            if is_alone {
                return Came::Alone;
            }
            state.waiting = (state.waiting + 1).min(2);
            match state.waiting {
                1 => Came::First,
                _ => Came::Behind,
            }
        };
        match after_request(is_elsewhere, came) {
            Some(run) => run,
            None => self.reply(false),
        }
    }

    fn run_replies(&mut self, replier: Replier) {
        let owed = self.state.owed;
        let has_failed = replier == Replier::Faults { has_failed: true };
        let is_known = has_failed && !self.is_broken(Broken::LeavesFailures);
        let ahead = self.replies_ahead().filter(|_| !is_known);
        self.state.waiting = 0;
        if let Some(cpu) = replies_elsewhere(ahead, || owed > 0) {
            let next = match replier {
                Replier::Item => Op::Queue(Item::Run, Queue::BoundHigh, cpu),
                Replier::GoOn | Replier::Faults { .. } => Op::ReplyLater,
            };
            return self.then(&[next]);
        }
        let run = self.reply(has_failed);
        self.go_on_replying(run);
    }

    fn go_on_replying(&mut self, run: Run<Cpu>) {
        match after_replies(&run) {
            Rest::Nothing => {}
            Rest::Reply => self.then(&[Op::ReplyLater]),
            Rest::Fault if self.is_broken(Broken::ForgetsFaults) => {}
            Rest::Fault => self.then(&[Op::Queue(Item::FaultRecv, Queue::Faults, 0)]),
        }
    }

    /// Sends one packet.
    fn reply(&mut self, has_failed: bool) -> Run<Cpu> {
        let state = &mut self.state;
        if state.recv_stops {
            return Run::Absent;
        }
        if state.in_flight() >= self.scenario.credit {
            state.wanted = true;
            return Run::Blocked;
        }
        if state.owed == 0 {
            return Run::Idle;
        }
        if state.reply_memory != Memory::Present && !has_failed {
            state.recv_stops = true;
            return Run::Absent;
        }
        // If it is gone the peer is told so.
        state.last_replied = Some(self.context.cpu);
        state.owed -= 1;
        state.reply_frames += 1;
        Run::More
    }

    // The work item of process context.

    fn begin_turn(&mut self) {
        let has_turn = !self.is_broken(Broken::HasNoTurn);
        if has_turn && self.state.turn != Turn::Idle {
            if !self.is_broken(Broken::LeavesNoMark) {
                self.state.turn = Turn::Wanted;
            }
            return;
        }
        self.state.turn = Turn::Taken;
        let send = Op::Send(First::GoOn, None);
        self.then(&[Op::TakeOver, send, Op::Reply(Replier::GoOn), Op::TurnEnd]);
    }

    fn end_turn(&mut self) {
        let was = std::mem::replace(&mut self.state.turn, Turn::Idle);
        if was == Turn::Wanted {
            self.then(&[Op::RunLater]);
        }
    }

    fn take_over(&mut self) {
        if !std::mem::take(&mut self.state.is_left) {
            return;
        }
        let moves = self.guess();
        let Some(other) = self.state.other(self.cpu()).filter(|_| moves) else {
            return self.then(&[Op::BacklogBegin]);
        };
        self.state.from = Some(self.cpu());
        self.then(&[Op::Queue(Item::Backlog, Queue::Softirq, other)]);
    }

    // The backlog.

    fn steer(&mut self, kind: Kind) {
        let is_aside = self.scenario.aside > 0 && self.guess();
        match self.state.other(self.cpu()).filter(|_| is_aside) {
            Some(other) => self.then(&[Op::Put(kind, Some(other))]),
            None => self.hand_over(kind, true, &[]),
        }
    }

    fn put(&mut self, kind: Kind, other: Option<Cpu>) {
        let is_empty = self.state.packets.is_empty();
        let has_room = || self.state.packets.len() < self.scenario.aside.into();
        match wake::put(self.state.is_open, is_empty, has_room, other) {
            Put::Here => self.hand_over(kind, true, &[]),
            Put::Full => self.then(&[Op::MakeRoom, Op::Put(kind, other)]),
            Put::Behind => self.state.packets.push(kind),
            Put::First(cpu) => {
                self.state.packets.push(kind);
                self.state.is_open = true;
                self.state.from = Some(self.cpu());
                self.then(&[Op::Queue(Item::Backlog, Queue::Softirq, cpu)]);
            }
        }
    }

    fn hand_over(&mut self, kind: Kind, is_for_each: bool, after: &[Op]) {
        self.then(after);
        self.then(&[match kind {
            Kind::Request => Op::Request { is_for_each },
            Kind::Response => Op::Respond { is_for_each },
        }]);
    }

    fn next_of_inbox(&mut self, batch: Batch) {
        let is_wanted = batch.handled > 0 && self.guess();
        if batch.handled == INBOX_PACKETS || is_wanted {
            return self.then(&[Op::BacklogEnd(batch, true)]);
        }
        if self.state.packets.is_empty() {
            self.state.is_open = false;
            return self.then(&[Op::BacklogEnd(batch, false)]);
        }
        self.state.is_locked = true;
        let kind = self.state.packets.remove(0);
        let batch = Batch {
            had_requests: batch.had_requests | (kind == Kind::Request),
            had_responses: batch.had_responses | (kind == Kind::Response),
            handled: batch.handled + 1,
            ..batch
        };
        let is_for_each = batch.origin.is_none();
        self.hand_over(kind, is_for_each, &[Op::Unlock, Op::BacklogNext(batch)]);
    }

    fn end_batch(&mut self, batch: Batch, more: bool) {
        if more {
            self.then(&[Op::Further(more)]);
        }
        let Some(origin) = batch.origin else {
            return;
        };
        if batch.had_responses {
            self.then(&[Op::SendAt(origin)]);
        }
        if batch.had_requests {
            self.then(&[Op::ReplyAt(origin)]);
        }
    }

    fn go_further(&mut self, more: bool) {
        let gives_way = more && self.guess();
        match further(more, || gives_way) {
            Further::Nobody => {}
            Further::Again => self.enqueue(Item::Backlog, Queue::Softirq, self.cpu()),
            Further::Left => {
                self.state.is_left = true;
                if !self.is_broken(Broken::ForgetsBacklog) {
                    self.then(&[Op::Queue(Item::Run, Queue::BoundHigh, self.cpu())]);
                }
            }
        }
    }
}

/// Faults memory in, if it is waited for. Returns whether that cannot be.
fn see_to(memory: &mut Memory, is_wanted: bool) -> bool {
    match *memory {
        Memory::Absent if is_wanted => *memory = Memory::Present,
        Memory::Gone if is_wanted => return true,
        _ => {}
    }
    false
}
