// SPDX-License-Identifier: GPL-2.0

//! Decides where, when and in which amounts work is done.
//!
//! All results are guesses that affect only speed. Rules that affect correctness are in [`crate::wake`].
//! The functions here are pure: they know no queue pair and no kernel, so the crate `wake` tests them on
//! a host. `C` is a CPU.

use core::mem;

use crate::wake::Came;

/// A place for work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placement<C> {
    /// In the current context.
    Here,
    /// In a work item on that CPU.
    On(C),
    /// In a work item on a CPU that the scheduler chooses, since it knows idle CPUs.
    Unbound,
    /// In the timer, after this number of nanoseconds.
    After(u64),
}

/// Inputs for the placement of a stream.
#[derive(Clone, Copy)]
pub(crate) struct StreamHints<C> {
    /// Another CPU that may be given work.
    pub(crate) other: Option<C>,
    /// The work item ran on the poster's CPU: the scheduler has no idle CPU.
    pub(crate) is_crowded: bool,
    /// Enough doorbells rang since the last one that sent requests.
    pub(crate) is_batch_full: bool,
}

/// Doorbells of a stream until one sends the requests, on a machine with one CPU.
pub(crate) const BATCH: u32 = 32;

/// How long the requests of a stream may wait for more of them, on a machine with one CPU.
const SOON_NS: u64 = 100_000;

impl<C> StreamHints<C> {
    /// Returns where to send the stream. On a single CPU, the scheduler would let a work item preempt
    /// the poster for each request.
    pub(crate) fn place(self) -> Placement<C> {
        match self.other {
            None if self.is_batch_full => Placement::Here,
            None => Placement::After(SOON_NS),
            Some(cpu) if self.is_crowded => Placement::On(cpu),
            Some(_) => Placement::Unbound,
        }
    }
}

/// Size in bytes from which a packet costs more to handle than to steer to another CPU.
pub(crate) const LARGE: u32 = 1024;

/// Returns true if requests for small responses should be sent together, after a group of responses. `bytes` is the
/// size of one.
///
/// A receiver in this machine gets small packets on the sending CPU. It has nothing to do before that CPU is done
/// with the responses. Any other receiver would be idle meanwhile, and a group would stay one.
#[inline]
pub(crate) fn gains_by_group(is_local: bool, bytes: u32) -> bool {
    is_local && bytes < LARGE
}

/// Bytes in one run from which a CPU counts as sending much. One message of a waiting poster is smaller.
pub(crate) const MUCH: u64 = 6 << 10;

/// The same threshold for a run that may be a single message: enough for another CPU to start on while
/// the rest is sent.
const MUCH_ALONE: u64 = 32 << 10;

/// Returns true if a CPU that sent `bytes` in one run should steer packets to other CPUs. `goes_on` says
/// whether it will continue to send.
#[inline]
pub(crate) fn keeps_busy(bytes: u64, goes_on: bool) -> bool {
    bytes >= if goes_on { MUCH } else { MUCH_ALONE }
}

/// Packets in the backlogs of all queue pairs, above which the receiving CPU handles packets itself.
/// Otherwise it would run far ahead with many queue pairs, and use memory that is in no cache.
pub(crate) const MOST_ASIDE: usize = 512;

/// How long a CPU that has sent much counts as sending.
pub(crate) const RECENT_NS: u64 = 1_000_000;

/// How long frames that count as received may stay in the queues of their CPU. A virtual CPU stands
/// still while the host needs its CPU.
pub(crate) const SLOW_NS: u64 = 10_000_000;

/// How long to wait for the CPU that sent unacknowledged packets.
pub(crate) const HELD_NS: u64 = 1_000_000_000;

/// Returns true if a CPU that sent much at `at` counts as sending.
pub(crate) fn is_sending(at: u64, now: u64) -> bool {
    now.saturating_sub(at) < RECENT_NS
}

/// How long work items that take turns run between two turns.
///
/// A task that yields gives up a slice of milliseconds if others never sleep, so a turn must be worth
/// that.
const TURN_NS: u64 = 500_000;

/// Returns true if the turn that began at `at` is over.
pub(crate) fn is_turn_over(at: u64, now: u64) -> bool {
    now.saturating_sub(at) >= TURN_NS
}

/// How long a work item may wait for the worker of a CPU, until it counts as late.
const LONG_WAIT_NS: u64 = 10_000_000;

/// How long a work item that was late uses another worker.
const APART_NS: u64 = 100_000_000;

/// Returns true if a work item that was queued for the worker of a CPU at `queued_at` has waited long.
pub(crate) fn is_long_wait(queued_at: Stamp, now: u64) -> bool {
    !queued_at.is_within(now, LONG_WAIT_NS)
}

/// Returns true if a work item that was queued at `queued_at` has waited long for one that shares the CPU with other
/// tasks.
pub(crate) fn is_long_share(queued_at: Stamp, now: u64) -> bool {
    !queued_at.is_within(now, 4 * LONG_WAIT_NS)
}

/// Returns true if a work item that had waited long at `waited_at` should use another worker.
pub(crate) fn is_apart(waited_at: Stamp, now: u64) -> bool {
    waited_at.is_within(now, APART_NS)
}

/// How long a CPU may begin no work item, until requests are no longer left to those. It may run none at all, for
/// example beside a real-time task.
pub(crate) const LEFT_NS: u64 = 500_000_000;

/// For how long the work items of a CPU count as late after one was, if none of normal priority begins in time before.
/// Such items may be all that is left, and do not count if their owners sleep.
const LATE_NS: u64 = 100_000_000;

/// Returns true if the work items of a CPU are late, so that softirqs should leave requests to them. One that was late
/// last began at `late_at`. The first of those that were queued since one began was queued at `since`.
#[inline]
pub(crate) fn is_late(
    late_at: Option<Stamp>,
    since: Option<Stamp>,
    now: impl FnOnce() -> u64,
) -> bool {
    if late_at.is_none() && since.is_none() {
        return false;
    }
    let now = now();
    let was_late = late_at.is_some_and(|at| !is_late_over(at, now));
    let waits_long = since.is_some_and(|since| is_long_wait(since, now));
    let has_begun = since.is_none_or(|since| since.is_within(now, LEFT_NS));
    (was_late || waits_long) && has_begun
}

/// Returns true if the time is over for which a work item that began late at `at` counts.
pub(crate) fn is_late_over(at: Stamp, now: u64) -> bool {
    !at.is_within(now, LATE_NS)
}

/// A time in units of 1024 ns, modulo 2^32 units (73 minutes).
#[derive(Clone, Copy)]
pub(crate) struct Stamp(pub(crate) u32);

impl Stamp {
    const SHIFT: u32 = 10;

    /// Creates the stamp of a time.
    ///
    /// CAST: Bits above 73 minutes are lost.
    pub(crate) fn new(ns: u64) -> Self {
        Self(ns.wrapping_shr(Self::SHIFT) as u32)
    }

    /// Returns true if the stamp is less than `ns` before `now`. A stamp older than 73 minutes may match
    /// by chance.
    #[inline]
    pub(crate) fn is_within(self, now: u64, ns: u64) -> bool {
        Self::new(now).0.wrapping_sub(self.0) < Self::new(ns).0
    }
}

/// The consequence if packets overtake each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overtaking {
    /// Their message or request is lost: its NAK arrives before the responses in front of it.
    Loses {
        /// Also wait for frames whose receiver has just started on them. The poster may be served late
        /// for that.
        is_strict: bool,
    },
    /// The peer requests them again, and acknowledges received packets.
    Costs {
        /// The sending CPU may hand the frames to a receiver in this machine, instead of a queue of a
        /// card.
        is_local: bool,
    },
}

/// When one half of a queue pair sent last.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    /// The time of the last packet.
    pub(crate) at: Stamp,
    /// The time of the last run that sent much, or several replies.
    pub(crate) much_at: Stamp,
    /// The peer has acknowledged all packets.
    pub(crate) is_acknowledged: bool,
}

impl Sent {
    /// Returns true if packets of another CPU may overtake the last packets. `in_flight` frames are not
    /// received yet.
    ///
    /// A frame counts as received when its receiver begins with it, or with its train. So recent packets
    /// count as in flight for a time, and longer after much. An acknowledged packet cannot be overtaken.
    /// A packet to a receiver in this machine counts as in flight until it is acknowledged. All of these
    /// have time limits, as the CPU may stand still.
    #[inline]
    pub(crate) fn may_be_overtaken(
        self,
        overtaking: Overtaking,
        in_flight: u32,
        now: impl FnOnce() -> u64,
    ) -> bool {
        match overtaking {
            Overtaking::Loses { .. } if in_flight > 0 => true,
            Overtaking::Loses { is_strict } => {
                let now = now();
                self.much_at.is_within(now, SLOW_NS)
                    || (is_strict && self.at.is_within(now, RECENT_NS))
            }
            Overtaking::Costs { .. } if self.is_acknowledged => false,
            Overtaking::Costs { is_local: true } => self.at.is_within(now(), HELD_NS),
            Overtaking::Costs { is_local: false } => {
                let now = now();
                self.much_at.is_within(now, RECENT_NS)
                    || (in_flight > 0 && self.at.is_within(now, SLOW_NS))
            }
        }
    }

    /// Returns true if a stream may overtake much data. The work item of a stream seldom moves, so
    /// smaller amounts are checked there.
    #[inline]
    pub(crate) fn is_much_ahead(self, now: impl FnOnce() -> u64) -> bool {
        !self.is_acknowledged && self.much_at.is_within(now(), RECENT_NS)
    }
}

/// The limit of one run of a half.
///
/// During a run no other CPU can use the half, and the network starts on the packets after it.
pub(crate) struct Budget {
    packets: u32,
    bytes: u32,
    most: u32,
    /// Bytes that are allowed even if other tasks need the CPU.
    least: u32,
}

impl Budget {
    const PACKETS: u32 = 64;
    /// Two trains. If another CPU handles them, each run costs an interrupt in both directions.
    const BYTES: u32 = 124 << 10;
    /// The same for the same device: the other end waits for one thing only, and starts earlier.
    const OWN_BYTES: u32 = 60 << 10;
    /// Bytes that are allowed even if other tasks need the CPU. Twice as many give the latency of
    /// rdma_rxe beside a stream. Half as many cost the stream more than others gain.
    const SHORT_BYTES: u32 = 32 << 10;

    /// Creates the budget of a connection's run. `is_own` says that its packets enter no network.
    pub(crate) fn new(is_own: bool) -> Self {
        Self {
            packets: 0,
            bytes: 0,
            most: if is_own { Self::OWN_BYTES } else { Self::BYTES },
            least: Self::SHORT_BYTES,
        }
    }

    /// Creates the budget of a run of datagrams, each of which is one packet.
    pub(crate) fn of_datagrams() -> Self {
        Self {
            packets: 0,
            bytes: 0,
            most: u32::MAX,
            least: u32::MAX,
        }
    }

    /// Returns true if the run is over. `is_cpu_wanted` says whether other tasks need the CPU.
    #[inline]
    pub(crate) fn is_spent(&self, is_cpu_wanted: impl FnOnce() -> bool) -> bool {
        self.packets >= Self::PACKETS
            || self.bytes >= self.most
            || (self.bytes >= self.least && is_cpu_wanted())
    }

    /// Counts a packet.
    #[inline]
    pub(crate) fn spend(&mut self, bytes: u32) {
        self.packets = self.packets.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Packets of a backlog that one run may handle, without and with other tasks that need the CPU.
const BACKLOG_PACKETS: u32 = 64;
const LEAST_PACKETS: u32 = 8;

/// Returns true if a run that handled this number of backlog packets is over.
#[inline]
pub(crate) fn is_backlog_run_over(handled: u32, is_cpu_wanted: impl FnOnce() -> bool) -> bool {
    handled >= BACKLOG_PACKETS || (handled >= LEAST_PACKETS && is_cpu_wanted())
}

/// What the owner of a completion queue does until there are completions.
///
/// An owner that polls may have armed a queue for a completion that never comes, because its peer only
/// writes and reads. So a single arming counts for a short time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Habit {
    /// It polls.
    Polls,
    /// It has armed the queue. It may poll nevertheless, and never arm the queue again.
    ArmedOnce,
    /// It has armed the queue again after an event, so it sleeps.
    Sleeps,
}

impl Habit {
    /// How long an owner counts as one that sleeps, after it armed its queue once.
    pub(crate) const ONCE_MS: u32 = 20;
    /// The same after the last arming or event of an owner that sleeps again and again.
    pub(crate) const OFTEN_MS: u32 = 1000;

    /// Encodes it in a word.
    pub(crate) const fn to_bits(self) -> u32 {
        self as u32
    }

    /// Decodes the result of [`to_bits`](Self::to_bits).
    #[inline]
    pub(crate) const fn from_bits(bits: u32) -> Self {
        match bits {
            0 => Self::Polls,
            1 => Self::ArmedOnce,
            _ => Self::Sleeps,
        }
    }

    /// Returns the habit after the owner has armed the queue. `had_event` says whether there was an event
    /// since it did so before.
    pub(crate) fn armed(self, had_event: bool) -> Self {
        let known = match had_event {
            true => Self::Sleeps,
            false => Self::ArmedOnce,
        };
        self.max(known)
    }

    /// Returns true if the owner counts as one that sleeps. `is_past` says whether its last arming or event was
    /// more than so many milliseconds ago. The kernel never only polls.
    #[inline]
    pub(crate) fn sleeps(self, is_kernel: bool, is_past: impl FnOnce(u32) -> bool) -> bool {
        match self {
            Self::Polls => false,
            _ if is_kernel => true,
            Self::ArmedOnce => !is_past(Self::ONCE_MS),
            Self::Sleeps => !is_past(Self::OFTEN_MS),
        }
    }
}

/// Observes whether the owner of a completion queue polls it without arming it. `T` is a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch<T> {
    /// When the current period of observation began, and how far the owner had polled.
    since: T,
    polled_then: u32,
    /// The owner polled in the last period, too.
    polled_before: bool,
    /// When the last completion was written.
    written_at: T,
}

impl<T: Copy> Watch<T> {
    /// How long completions may arrive without a request for an event, until an owner that sleeps counts as
    /// one that polls.
    pub(crate) const AWAKE_MS: u32 = 20;

    /// Begins with an empty queue.
    pub(crate) fn new(now: T) -> Self {
        Self {
            since: now,
            polled_then: 0,
            polled_before: false,
            written_at: now,
        }
    }

    /// Begins the first period, with the owner's index `consumer`.
    pub(crate) fn begin(&mut self, now: T, consumer: u32) {
        self.begin_period(now, consumer);
        self.polled_before = false;
    }

    fn begin_period(&mut self, now: T, consumer: u32) {
        self.since = now;
        self.polled_then = consumer;
    }

    /// Notes that a completion was written.
    #[inline]
    pub(crate) fn note_written(&mut self, now: T) {
        self.written_at = now;
    }

    /// Returns true if the owner polls. `is_past` says whether a time was more than so many milliseconds ago.
    ///
    /// A time without completions does not count: the owner may have slept for another reason. If the queue
    /// `is_armed` for a solicited completion, the owner may have polled the earlier ones and then slept, so it
    /// has to poll in two periods.
    pub(crate) fn is_polled(
        &mut self,
        now: T,
        consumer: u32,
        is_armed: bool,
        is_past: impl Fn(T, u32) -> bool,
    ) -> bool {
        if is_past(self.written_at, Self::AWAKE_MS) {
            self.begin(now, consumer);
        }
        if !is_past(self.since, Self::AWAKE_MS) {
            return false;
        }
        let has_polled = consumer != self.polled_then;
        let is_sure = !is_armed || self.polled_before;
        self.begin_period(now, consumer);
        self.polled_before = has_polled;
        has_polled && is_sure
    }
}

/// How to serve a doorbell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Serve {
    /// At once, in the context of the poster, for the least latency.
    Here,
    /// In a work item beside the poster, which finds many requests at a time, for the most throughput.
    Beside,
}

/// Distinguishes a poster that waits for each request from one that streams.
///
/// On one machine a request that is served at once is complete when its doorbell returns, so both
/// posters look alike. Therefore some doorbells are *probes*, which a work item serves. If the next
/// doorbell comes before the probe is complete, the poster streams. Each failed probe doubles the number
/// of doorbells until the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Depth {
    /// Doorbells that found outstanding requests, minus those that found none.
    score: u8,
    /// The binary logarithm of the number of doorbells between two probes.
    backoff: u8,
    /// The last doorbell was a probe.
    is_probing: bool,
    /// Doorbells until the next probe.
    left: u16,
}

impl Depth {
    /// The score from which doorbells are served beside the poster.
    const STREAM: u8 = 16;
    /// The initial score of a poster that streams.
    const START: u8 = 24;
    /// The highest score. It bounds the time until a poster that starts to wait is served at once.
    const MOST: u8 = 64;
    /// The penalty for a doorbell that finds no outstanding request. A poster that waits for six
    /// requests at a time gains by a work item. One that waits for four loses, unless they are small.
    const WAITED: u8 = 4;
    /// The reward for a doorbell that is served at once and finds outstanding requests.
    const OUTSTANDING: u8 = 2;
    const LEAST_BACKOFF: u8 = 1;
    const MOST_BACKOFF: u8 = 10;

    /// Creates the state of a new queue pair. Its second doorbell is a probe.
    pub(crate) const fn new() -> Self {
        Self {
            score: 0,
            backoff: Self::LEAST_BACKOFF,
            is_probing: false,
            left: 1,
        }
    }

    /// Encodes the state in a word.
    pub(crate) const fn to_bits(self) -> u32 {
        ((self.left as u32) << 16)
            | ((self.is_probing as u32) << 12)
            | ((self.backoff as u32 & 0xf) << 8)
            | self.score as u32
    }

    /// Decodes the state from a word.
    ///
    /// CAST: Each field is cut to its bits.
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self {
            score: bits as u8,
            backoff: (bits >> 8) as u8 & 0xf,
            is_probing: bits & (1 << 12) != 0,
            left: (bits >> 16) as u16,
        }
    }

    /// Returns true if the poster streams.
    pub(crate) fn is_stream(self) -> bool {
        self.score >= Self::STREAM
    }

    /// Counts a doorbell and returns how to serve it. `was_idle` says whether the poster had seen all
    /// earlier requests complete. `may_probe` says whether there is another CPU: on a single CPU a probe
    /// would be served only after the poster has waited for a time.
    #[must_use]
    pub(crate) fn ring(self, was_idle: bool, may_probe: impl FnOnce() -> bool) -> (Self, Serve) {
        if self.is_stream() {
            return self.ring_of_stream(was_idle);
        }
        if self.is_probing {
            return match was_idle {
                true => (self.failed(), Serve::Here),
                false => (self.started(), Serve::Beside),
            };
        }
        let score = match was_idle {
            true => self.score.saturating_sub(Self::WAITED),
            false => self.score.saturating_add(Self::OUTSTANDING),
        };
        if score >= Self::STREAM {
            return (self.started(), Serve::Beside);
        }
        if self.left == 0 && may_probe() {
            let probing = Self {
                score,
                is_probing: true,
                ..self
            };
            return (probing, Serve::Beside);
        }
        let left = self.left.saturating_sub(1);
        (
            Self {
                score,
                left,
                ..self
            },
            Serve::Here,
        )
    }

    fn ring_of_stream(self, was_idle: bool) -> (Self, Serve) {
        let score = match was_idle {
            true => self.score.saturating_sub(Self::WAITED),
            false => self.score.saturating_add(1).min(Self::MOST),
        };
        if score < Self::STREAM {
            return (self.failed(), Serve::Here);
        }
        let backoff = match score {
            Self::MOST => Self::LEAST_BACKOFF,
            _ => self.backoff,
        };
        let stream = Self {
            score,
            backoff,
            ..self
        };
        (stream, Serve::Beside)
    }

    /// Enters the state of a poster that streams.
    fn started(self) -> Self {
        Self {
            score: Self::START,
            is_probing: false,
            ..self
        }
    }

    /// Enters the state of a poster that waits.
    fn failed(self) -> Self {
        let backoff = self.backoff.saturating_add(1).min(Self::MOST_BACKOFF);
        Self {
            score: 0,
            backoff,
            is_probing: false,
            left: 1 << backoff,
        }
    }
}

/// Packets in a row that count as single before the next test.
const TRUST: u8 = 16;

/// Distinguishes single packets of the peer, each sent after the answer to the one before, from groups.
///
/// It serves requests that need a reply, and responses that allow new requests. A single packet gets its
/// answer at once, without a softirq. A group gets its answers together, after its last packet. Only an
/// immediate answer shows which case it is. So some answers are immediate in any case, and fewer of them
/// the more often there was a group or not.
///
/// This is a guess that affects only speed. But after each [`Came::First`] the caller has to call
/// [`end`](Self::end).
#[derive(Default)]
pub(crate) struct Arrivals {
    /// Packets that wait for an answer after the last of the group.
    waiting: u8,
    /// Packets that count as single after that.
    trust: u8,
    /// The rest of them.
    left: u8,
}

impl Arrivals {
    /// Counts a packet and returns how to answer.
    #[inline]
    pub(crate) fn note(&mut self) -> Came {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            return Came::Alone;
        }
        self.waiting = self.waiting.saturating_add(1);
        match self.waiting {
            1 => Came::First,
            _ => Came::Behind,
        }
    }

    /// Ends a group: it is answered.
    pub(crate) fn end(&mut self) {
        self.trust = match mem::take(&mut self.waiting) {
            0 => return,
            1 => self.trust.saturating_mul(2).clamp(1, TRUST),
            _ => 0,
        };
        self.left = self.trust;
    }
}
