// SPDX-License-Identifier: GPL-2.0

//! How work is best done: where, when, and how much of it at a time.
//!
//! All of it is guesses, from which nothing but speed depends; what must not go wrong is in
//! [`crate::wake`]. These are functions of what was seen, and do nothing. They know of no queue pair and
//! no kernel, so that they are tested on a host, by the crate `wake`. `C` is a CPU.

use core::mem;

use crate::wake::Came;

/// Where work is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placement<C> {
    /// In the context that asks.
    Here,
    /// By a work item on that CPU.
    On(C),
    /// By a work item on a CPU that the scheduler chooses: it knows idle ones.
    Unbound,
    /// By the timer, after so many nanoseconds.
    After(u64),
}

/// What is known of a stream that is to be sent beside its poster.
#[derive(Clone, Copy)]
pub(crate) struct StreamHints<C> {
    /// A CPU that may be given work.
    pub(crate) other: Option<C>,
    /// The scheduler had the work item run on the poster's CPU: it has no idle one.
    pub(crate) is_crowded: bool,
    /// So many doorbells rang since one sent what was posted that another one is to do so.
    pub(crate) is_batch_full: bool,
}

/// Doorbells of a stream after which what was posted is sent, where there is one CPU.
pub(crate) const BATCH: u32 = 32;

/// How long a stream of requests waits for more of them, where there is one CPU.
const SOON_NS: u64 = 100_000;

impl<C> StreamHints<C> {
    /// Returns where the stream is sent. On the only CPU the scheduler would have a work item preempt the
    /// poster for each request.
    pub(crate) fn place(self) -> Placement<C> {
        match self.other {
            None if self.is_batch_full => Placement::Here,
            None => Placement::After(SOON_NS),
            Some(cpu) if self.is_crowded => Placement::On(cpu),
            Some(_) => Placement::Unbound,
        }
    }
}

/// A packet of so many bytes costs more to handle than to pass on to another CPU.
pub(crate) const LARGE: u32 = 1024;

/// Bytes that one run sends at least for it to be much: more than a message that somebody waits for.
pub(crate) const MUCH: u64 = 6 << 10;

/// Bytes that one run sends at least for it to be much where it may be all that somebody waits for: enough
/// for another CPU to begin with while the rest is sent.
const MUCH_ALONE: u64 = 32 << 10;

/// Returns true if a CPU that has sent so many bytes in one run had better have others handle packets. `goes_on`
/// says whether it will send on.
#[inline]
pub(crate) fn keeps_busy(bytes: u64, goes_on: bool) -> bool {
    bytes >= if goes_on { MUCH } else { MUCH_ALONE }
}

/// How many packets may be put aside in the backlogs of all queue pairs until the CPU that brings more has
/// to handle them. With many queue pairs one CPU would run far ahead of the other otherwise, and use memory
/// that is in no cache.
pub(crate) const MOST_ASIDE: usize = 512;

/// How long a CPU that has sent much is taken for one that goes on.
pub(crate) const RECENT_NS: u64 = 1_000_000;

/// How long frames that count as received may still be in the queues of the CPU that has sent them. One of a
/// virtual machine stands still for a while where others want the CPU that it runs on, too.
pub(crate) const SLOW_NS: u64 = 10_000_000;

/// How long a CPU that has sent what is not acknowledged is waited for.
const HELD_NS: u64 = 1_000_000_000;

/// Returns true if a CPU that has sent much at `at` is one that goes on sending.
pub(crate) fn is_sending(at: u64, now: u64) -> bool {
    now.saturating_sub(at) < RECENT_NS
}

/// How long work items of one CPU go on that take turns with others, between two turns of these.
///
/// Who yields gives up a slice of the scheduler's, of milliseconds where others never sleep, so a turn has to
/// be worth that.
const TURN_NS: u64 = 500_000;

/// Returns true if a turn is over that began at `at`.
pub(crate) fn is_turn_over(at: u64, now: u64) -> bool {
    now.saturating_sub(at) >= TURN_NS
}

/// A time in units of 1024 ns, as far as 32 bits go: 73 minutes.
#[derive(Clone, Copy)]
pub(crate) struct Stamp(pub(crate) u32);

impl Stamp {
    const SHIFT: u32 = 10;

    /// Makes the stamp of a time.
    ///
    /// CAST: What is lost is above 73 minutes.
    pub(crate) fn new(ns: u64) -> Self {
        Self(ns.wrapping_shr(Self::SHIFT) as u32)
    }

    /// Returns true if it is less than `ns` before `now`. Now and then that is so of an old one, too.
    #[inline]
    pub(crate) fn is_within(self, now: u64, ns: u64) -> bool {
        Self::new(now).0.wrapping_sub(self.0) < Self::new(ns).0
    }
}

/// What comes of it if packets overtake each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overtaking {
    /// The message is lost, or the request that they belong to: its refusal arrives before the responses in
    /// front of it.
    Loses {
        /// Also what its receiver has begun with just now is waited for, though its poster may be served
        /// late for that.
        is_strict: bool,
    },
    /// The peer asks for them once more, and says what it has received.
    Costs {
        /// The CPU that sends hands the frames over to a receiver in this machine, maybe, and not to a
        /// queue of a card.
        is_local: bool,
    },
}

/// When one half of a queue pair has sent last.
#[derive(Clone, Copy)]
pub(crate) struct Sent {
    /// When it was anything.
    pub(crate) at: Stamp,
    /// When it was much.
    pub(crate) much_at: Stamp,
    /// The peer is known to have all of it.
    pub(crate) is_acknowledged: bool,
}

impl Sent {
    /// Returns true if what another CPU sends may overtake that, of which `in_flight` frames were not
    /// received yet. A frame counts as received when its receiver begins with it, or with its train, so what
    /// was sent just now counts as in flight for a time, much for longer. Where the peer says what it has,
    /// nothing that it has is overtaken; and what a receiver in this machine may be at counts as in flight
    /// until then. But there is an end to it, as the CPU may stand still.
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

    /// Returns true if it was much that a stream may overtake. Of little, its work item finds out: that
    /// moves seldom.
    #[inline]
    pub(crate) fn is_much_ahead(self, now: impl FnOnce() -> u64) -> bool {
        !self.is_acknowledged && self.much_at.is_within(now(), RECENT_NS)
    }
}

/// How much one run of a half sends at most.
///
/// Nobody else can use the half meanwhile, and the network begins with a run's packets after it.
pub(crate) struct Budget {
    packets: u32,
    bytes: u32,
    most: u32,
    /// Bytes that it may have in any case, if others want the CPU.
    least: u32,
}

impl Budget {
    const PACKETS: u32 = 64;
    /// Two trains. Where another CPU handles them, it is interrupted for each run, and interrupts in return.
    const BYTES: u32 = 124 << 10;
    /// Likewise to a queue pair of the same device: the other end has one thing to wait for, and begins
    /// earlier.
    const OWN_BYTES: u32 = 60 << 10;
    /// Bytes that a run may have in any case, if others want the CPU. With twice as many a latency beside a
    /// stream is that of rdma_rxe; with half as many the stream loses more than others gain.
    const SHORT_BYTES: u32 = 32 << 10;

    /// Makes that of a connection's run; `is_own` says that its packets enter no network.
    pub(crate) fn new(is_own: bool) -> Self {
        Self {
            packets: 0,
            bytes: 0,
            most: if is_own { Self::OWN_BYTES } else { Self::BYTES },
            least: Self::SHORT_BYTES,
        }
    }

    /// Makes that of a run of datagrams, which are of one packet each.
    pub(crate) fn of_datagrams() -> Self {
        Self {
            packets: 0,
            bytes: 0,
            most: u32::MAX,
            least: u32::MAX,
        }
    }

    /// Returns true if the run is over. `is_cpu_wanted` says whether others want the CPU.
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

/// Packets of a backlog that one run handles at most; and in any case, if others want the CPU.
const BACKLOG_PACKETS: u32 = 64;
const LEAST_PACKETS: u32 = 8;

/// Returns true if a run is over that has handled so many packets of a backlog.
#[inline]
pub(crate) fn is_backlog_run_over(handled: u32, is_cpu_wanted: impl FnOnce() -> bool) -> bool {
    handled >= BACKLOG_PACKETS || (handled >= LEAST_PACKETS && is_cpu_wanted())
}

/// How a doorbell is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Serve {
    /// At once, in the context of the poster: the least latency.
    Here,
    /// By a work item beside the poster, which finds many requests at a time: the most throughput.
    Beside,
}

/// Tells a poster that waits for each request from one that posts on.
///
/// Where both ends are on one machine a request that is served at once is complete when its doorbell
/// returns, so both posters look alike. Then one doorbell is served beside the poster now and then, a
/// *probe*: if the next doorbell comes before that request is complete, the poster posts on. Each probe
/// that fails doubles the number of doorbells until the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Depth {
    /// Doorbells that found requests outstanding, less those that found none.
    score: u8,
    /// The logarithm of the number of doorbells between two probes.
    backoff: u8,
    /// The last doorbell was a probe.
    is_probing: bool,
    /// Doorbells until the next probe.
    left: u16,
}

impl Depth {
    /// From this score on doorbells are served beside the poster.
    const STREAM: u8 = 16;
    /// The score of a poster that was just found to post on.
    const START: u8 = 24;
    /// The highest score: how soon a poster that begins to wait is served at once.
    const MOST: u8 = 64;
    /// What a doorbell takes away that found nothing outstanding. A poster of six requests at a time, which
    /// waits for them, gains by being served beside; one of four loses, unless they are small.
    const WAITED: u8 = 4;
    /// What a doorbell counts that is served at once and finds requests outstanding.
    const OUTSTANDING: u8 = 2;
    const LEAST_BACKOFF: u8 = 1;
    const MOST_BACKOFF: u8 = 10;

    /// Of a queue pair that was never posted to: its second doorbell is a probe.
    pub(crate) const fn new() -> Self {
        Self {
            score: 0,
            backoff: Self::LEAST_BACKOFF,
            is_probing: false,
            left: 1,
        }
    }

    /// In the bits of a word.
    pub(crate) const fn to_bits(self) -> u32 {
        ((self.left as u32) << 16)
            | ((self.is_probing as u32) << 12)
            | ((self.backoff as u32 & 0xf) << 8)
            | self.score as u32
    }

    /// From those.
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

    /// Returns true if the last doorbells were those of a poster that posts on.
    pub(crate) fn is_stream(self) -> bool {
        self.score >= Self::STREAM
    }

    /// Counts a doorbell, before which the poster had seen all earlier requests complete or not. Returns
    /// how it is to be served. `may_probe` says whether there is another CPU: on one a probe would be served
    /// only when the poster has waited for some time.
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

    /// The poster posts on.
    fn started(self) -> Self {
        Self {
            score: Self::START,
            is_probing: false,
            ..self
        }
    }

    /// The poster waits.
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

/// Requests in a row that are taken to come alone before it is looked at again.
const TRUST: u8 = 16;

/// Tells whether the peer's requests come alone, each when the one before was answered.
///
/// One that does is answered at once, which spares it a softirq of its own; those that come together
/// are answered together after the last of them. Only an answer that is given then shows which of it
/// is so. So that is done now and then in any case, the more seldom the more often there was one.
///
/// It is a guess, from which nothing but speed depends; but after each [`Came::First`] somebody has
/// to call [`end`](Self::end).
#[derive(Default)]
pub(crate) struct Arrivals {
    /// Requests that wait for the answer which is given after the last of them, or many.
    waiting: u8,
    /// How many are taken to come alone after that.
    trust: u8,
    /// Those that are left of them.
    left: u8,
}

impl Arrivals {
    /// There was a request to answer.
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

    /// Those that came together are answered.
    pub(crate) fn end(&mut self) {
        self.trust = match mem::take(&mut self.waiting) {
            0 => return,
            1 => self.trust.saturating_mul(2).clamp(1, TRUST),
            _ => 0,
        };
        self.left = self.trust;
    }
}
