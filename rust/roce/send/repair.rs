// SPDX-License-Identifier: GPL-2.0

//! Sending again no more than was lost.
//!
//! A NAK names the oldest packet that the peer lacks. Nothing says whether the peer has kept the packets
//! behind it. So the requester sends this packet alone again, and the answer tells:
//!
//! ```text
//!   the peer has more, or lacks a later packet:   it keeps packets, or some were late
//!   the peer lacks the very next packet:          it drops them, or more was lost in a row
//! ```
//!
//! Some packets more may only have been late. Many more, or all that was sent, prove that it keeps them.
//!
//! If the peer lacks the very next packet, a whole train may be lost: the next repair has as many packets as a train.
//! If it still lacks the next one, it is taken to drop packets. Then the requester goes back n at once, and tries a
//! repair again after some losses. Of a peer that is proven to keep packets, the first repair has as many packets as
//! the last gap, and each further one as many as are known of this gap (module `gaps`).
//!
//! On a long path with many losses one NAK after the other would take long. Then all that may be missing is sent
//! again at once: see the module `gaps`.
//!
//! What is missing may only be late: then it is waited for first, see the module `lateness`.
//!
//! Of responses the requester is the receiver. The host keeps those that come before their turn, and the
//! requester asks again for the missing ones alone: a part of a READ, or one request. If a peer that keeps packets
//! has answered several READs, and responses to each are missing, all READs are asked for at once.

use core::ops::DerefMut;

use super::lateness::Held;
use super::window::{Ahead, Entry, Outstanding, Slot, Window};
use super::{Blocked, Failure, Parts, Requester, Running, Sequence, Timer};
use crate::congestion::{Before, Control, Loss};
use crate::event::Event;
use crate::host::{Handled, SendHost};
use crate::limits::{
    KEEPING_PROOF_PSNS, MAX_EARLY_PSNS, MAX_PROBE_RESPONSES, MAX_REPAIR_PACKETS, MAX_TRAIN_PACKETS,
    MIN_PROBE_NS, RETRY_KEEPING,
};
use crate::num::Psn;
use crate::time::{Instant, Micros};
use crate::wr::SendOp;

/// Whether the peer keeps early packets, as far as known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keeping {
    Unknown,
    /// It has packets behind a repair. They may only have been late.
    Seems,
    Keeps,
    /// It drops them. After so many losses it may have changed.
    Drops(u8),
}

impl Keeping {
    /// Returns true if only what is missing is to be sent again.
    fn may_keep(self) -> bool {
        matches!(self, Self::Seems | Self::Keeps)
    }

    /// Returns true if nothing speaks against it.
    fn is_clear(self) -> bool {
        matches!(self, Self::Unknown | Self::Keeps)
    }
}

/// What is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Missing {
    /// So many packets, which the peer lacks.
    Requests(u16),
    /// One packet, which the peer lacks, and some of those behind it.
    Scattered,
    /// Maybe so many packets, or the acknowledgement of them.
    Unknown(u16),
    /// Responses that we lack.
    Responses,
    /// Maybe so many responses. They may only be slow.
    MaybeResponses(u16),
}

impl Missing {
    fn is_of_responses(self) -> bool {
        matches!(self, Self::Responses | Self::MaybeResponses(_))
    }
}

/// Why packets are sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    /// They are missing.
    Gap,
    /// Nothing was heard for some round trips. They may only be slow.
    Silence,
    /// Nothing was heard for as long as the timeout.
    Timeout,
}

/// What is to be sent again, from the oldest outstanding packet on, which the peer lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// So many packets, as they are lost.
    Gap(u16),
    /// So many packets. Either more was lost, or the peer is only slow: that is no reason to send all again.
    Probe(u16),
    /// All packets.
    All,
}

/// What the answer to a repair tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    /// Nothing, or nothing more: it may be the answer to another packet, or it came.
    Nothing,
    /// Nothing: the packet was sent again before, with those behind it.
    OneOfMany,
    /// Nothing, not even by what the peer has behind it: the packet was sent again before, maybe with those.
    Again,
    /// How long it takes, or that the packet was not lost but late.
    Time,
    /// How long it takes, however short that is.
    TimeOnly,
    /// That the packets were not lost but late. Some of them may be, so it does not tell how long it takes.
    Order,
    /// The packet was late: it came before the repair.
    Late,
}

/// Packets that are sent again, though not those behind them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repair {
    missing: Missing,
    /// The oldest PSN of them.
    start: Psn,
    /// The PSN after the last of them.
    stop: Psn,
    /// The PSN after the last that was ever sent when the repair began.
    end: Psn,
    /// Not all of them are sent.
    is_under_way: bool,
    /// When it began.
    at: Instant,
    /// What its answer tells.
    answer: Answer,
    /// What the law of congestion control allowed before.
    before: Before,
}

/// Responses that came before their turn, and which the host may have kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct EarlyResponses {
    /// The PSN of the first of them.
    first: Psn,
    /// The PSN after the last.
    stop: Psn,
    /// Others behind them were not kept, as they were too far ahead.
    has_dropped: bool,
    /// Some requests may have responses before the last that are to be asked for in advance.
    asks_ahead: bool,
}

impl EarlyResponses {
    /// Returns the PSN after the responses to `entry`, the oldest request, that are missing.
    fn missing_of<P>(&self, entry: &Outstanding<P>) -> Psn {
        self.first.earlier(entry.end())
    }
}

impl Repair {
    /// Returns how many packets were sent again if the peer has them, and lacks the very next one.
    fn got_no_further(&self, unacked: Psn) -> Option<u16> {
        let is_so = unacked == self.stop && self.stop.is_before(self.end) && !self.was_late();
        match self.missing {
            Missing::Requests(packets) | Missing::Unknown(packets) => is_so.then_some(packets),
            Missing::Scattered | Missing::Responses | Missing::MaybeResponses(_) => None,
        }
    }

    /// Returns true if the peer has these packets, and not all that was sent before them.
    fn has_arrived(&self, unacked: Psn) -> bool {
        match self.missing {
            // Others that were sent again before it are on their way.
            Missing::Requests(_) if self.answer == Answer::OneOfMany => false,
            Missing::Requests(_) | Missing::Scattered => {
                !unacked.is_before(self.stop) && unacked.is_before(self.end) && !self.was_late()
            }
            // Others may have been on their way.
            Missing::Unknown(_) => self.got_no_further(unacked).is_some(),
            Missing::Responses | Missing::MaybeResponses(_) => false,
        }
    }

    /// Returns what the peer shows by packets behind this repair that it has. A few may have come late, but not the
    /// one that made the peer ask, which was sent before `end`. If the repair has all that was sent, what the peer has
    /// behind it was sent later. If its oldest packet was sent again before, that may have come before the repair, and
    /// those behind it in their turn: then nothing is shown.
    fn shows_keeping(&self, unacked: Psn, known: Keeping) -> Option<Keeping> {
        let is_of_requests = matches!(self.missing, Missing::Requests(_) | Missing::Scattered);
        let has_rest = self.stop.is_before(self.end);
        let was_sent_again = matches!(self.answer, Answer::OneOfMany | Answer::Again);
        if !is_of_requests || was_sent_again || !has_rest || !self.stop.is_before(unacked) {
            return None;
        }
        let has_many = unacked.distance_from(self.stop) >= KEEPING_PROOF_PSNS;
        let is_proof = (has_many || !unacked.is_before(self.end)) && !self.was_late();
        match known {
            _ if is_proof => Some(Keeping::Keeps),
            Keeping::Keeps => None,
            _ => Some(Keeping::Seems),
        }
    }

    /// Returns true if the peer lacks what is behind as many packets as it has room to keep.
    fn filled(&self, unacked: Psn) -> bool {
        !self.was_late() && unacked.distance_from(self.start) >= MAX_EARLY_PSNS
    }

    /// Returns how many responses were asked for, if these have come and those behind them have not. Those were
    /// asked for before, so they are lost.
    fn lacks_responses(&self, unacked: Psn) -> Option<u16> {
        let is_so = !self.is_under_way && unacked == self.stop && unacked.is_before(self.end);
        match self.missing {
            Missing::MaybeResponses(count) if is_so => Some(count),
            _ => None,
        }
    }

    /// Returns true if nothing more is to be learnt from it.
    fn is_over(&self, unacked: Psn) -> bool {
        match self.missing {
            Missing::Requests(_) | Missing::Unknown(_) | Missing::Scattered => {
                !unacked.is_before(self.end)
            }
            // One in progress has yet to end: what is behind it is not to be sent again.
            _ if self.is_under_way || unacked.is_before(self.stop) => false,
            _ => self.lacks_responses(unacked).is_none(),
        }
    }

    /// Returns true if it was for nothing, as the packet was only late.
    fn was_late(&self) -> bool {
        self.answer == Answer::Late
    }

    /// Returns true if it was a question, and nothing was known to be missing.
    fn is_probe(&self) -> bool {
        matches!(self.missing, Missing::Unknown(_))
    }

    /// Returns true if all packets are sent again of which some are lost.
    fn is_scattered(&self) -> bool {
        self.missing == Missing::Scattered
    }

    /// Returns true if `psn` is of it.
    fn has(&self, psn: Psn) -> bool {
        !psn.is_before(self.start) && psn.is_before(self.stop)
    }
}

impl<P, S: DerefMut<Target = [Slot<P>]>> Running<'_, P, S> {
    /// Responses that are known to be lost and are asked for at once.
    const MAX_ASKED: u16 = MAX_EARLY_PSNS as u16;

    /// Sends the oldest outstanding packet again, which the peer lacks, unless it may be late.
    // Rules: RTY-22
    pub(super) fn repair<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        host: &mut H,
    ) -> Result<(), Failure> {
        if self.sequence.keeping.may_keep() && self.sequence.waits_for(Held::Request, now) {
            return Ok(());
        }
        self.repair_now(now, host)
    }

    /// Ends the wait for a packet that may be late, and has it sent again. Returns true if one was waited for.
    // Rules: RTY-22
    pub(super) fn end_wait<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        host: &mut H,
    ) -> Result<bool, Failure> {
        let held = self.sequence.lateness.held();
        match held {
            Held::Nothing | Held::Given => return Ok(false),
            Held::Request | Held::Response => self.sequence.lateness.give_up(),
        }
        self.sequence.arm_probe(now);
        match held {
            Held::Response => self.ask_again_now(now, host)?,
            _ => self.repair_now(now, host)?,
        }
        Ok(true)
    }

    /// Sends the oldest outstanding packet again, which the peer lacks, alone or with those behind it.
    // Rules: NAK-14, RTY-15, RTY-18
    fn repair_now<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        host: &mut H,
    ) -> Result<(), Failure> {
        let sequence = &mut *self.sequence;
        let unacked = sequence.unacked;
        let last = sequence
            .repair
            .and_then(|last| last.got_no_further(unacked));
        let is_within = sequence.repairs(unacked);
        sequence.gaps.note(unacked, last.or(is_within.then_some(0)));
        // Rules: DUP-18, NAK-15
        if sequence.recovering || matches!(sequence.timer, Timer::Rnr(_)) || sequence.awaits(now) {
            return Ok(());
        }
        let has_filled = sequence.repair.is_some_and(|last| last.filled(unacked));
        if sequence.keeping.may_keep() && has_filled {
            // It has no room for what was behind.
            return self.recover_from(Loss::Some(1), now, host);
        }
        let packets = match sequence.judge(last) {
            Verdict::Gap(packets) => packets,
            Verdict::All => return self.recover(now, host),
            Verdict::Probe(packets) => {
                let stop = unacked.add(packets.into()).earlier(sequence.end);
                sequence.begin_repair(now, Missing::Unknown(packets), stop, Cause::Silence);
                sequence.arm_ack_timer(now);
                return Ok(());
            }
        };
        if last.is_some() {
            sequence.gaps.grow(packets);
        }
        let stop = unacked.add(packets.into()).earlier(sequence.end);
        if let Some(stop) = self.scattered_to().filter(|to| stop.is_before(*to)) {
            return self.begin_counted(now, Missing::Scattered, stop, host);
        }
        self.begin_counted(now, Missing::Requests(packets), stop, host)
    }

    /// Returns the PSN up to which some packets are likely to be lost, if they are so many that all are to be sent
    /// again. A READ or atomic among them is not, nor is what is behind it: its answer would come again.
    // Rules: RTY-23
    fn scattered_to(&self) -> Option<Psn> {
        let sequence = &*self.sequence;
        let are_many = |packets| sequence.gaps.are_many(packets, &sequence.round_trip);
        if sequence.keeping != Keeping::Keeps || !are_many(sequence.outstanding()) {
            return None;
        }
        // Few of those that were sent again are lost again.
        if sequence.was_sent_again(sequence.unacked) {
            return None;
        }
        let answered = (0..self.window.len())
            .filter_map(|index| self.window.good(index))
            .find(|entry| entry.is_answered());
        let stop = match answered {
            Some(entry) if entry.first.is_before(sequence.end) => entry.first,
            _ => sequence.end,
        };
        let packets = stop.distance_from(sequence.unacked);
        let is_ahead = sequence.unacked.is_before(stop);
        (is_ahead && are_many(packets)).then_some(stop)
    }

    /// Begins a repair that counts as a retry.
    fn begin_counted<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        missing: Missing,
        stop: Psn,
        host: &mut H,
    ) -> Result<(), Failure> {
        let count = stop.distance_from(self.sequence.unacked);
        let loss = match missing {
            Missing::Requests(1) | Missing::Scattered if self.sequence.keeping.is_clear() => {
                Loss::One
            }
            _ => Loss::Some(count.min(MAX_REPAIR_PACKETS.into())),
        };
        self.sequence.recovering = true;
        let before = self.sequence.pace.before();
        self.sequence.lost(loss, now);
        self.count_retry(host)?;
        self.sequence.round_trip.answered(now);
        self.sequence.begin_repair(now, missing, stop, Cause::Gap);
        if let Some(repair) = &mut self.sequence.repair {
            repair.before = before;
        }
        self.sequence.arm_ack_timer(now);
        Ok(())
    }

    /// Continues after a successful repair. Packets that are missing now were sent before the
    /// repair, so they are lost.
    // Rules: RTY-18
    pub(super) fn check_repair<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        host: &mut H,
    ) -> Result<(), Failure> {
        let unacked = self.sequence.unacked;
        match &self.sequence.repair {
            Some(repair) if repair.has_arrived(unacked) => {}
            _ => return Ok(()),
        }
        // Its answer may be on its way.
        if self.window.good(0).is_none_or(Outstanding::is_answered) {
            return Ok(());
        }
        self.repair(now, host)
    }

    /// Handles an acknowledgement without news: the peer got a later packet. If it comes long after
    /// a repair, the repair was lost. If it comes without one, and the peer keeps packets, the NAK
    /// was lost.
    // Rules: RTY-19
    pub(super) fn handle_repeated(&mut self, now: Instant, psn: Psn) {
        let sequence = &mut *self.sequence;
        let unacked = sequence.unacked;
        if psn.next() != unacked || sequence.awaits(now) || sequence.sends_again() {
            return;
        }
        // The answer to a READ may be on its way. The oldest request may not be sent yet.
        let is_answered = self.window.good(0).is_none_or(Outstanding::is_answered);
        if is_answered || sequence.outstanding() == 0 {
            return;
        }
        let moved_us = Micros::of(now).since(sequence.moved_at);
        let was_due = u64::from(moved_us).saturating_mul(1000) >= sequence.round_trip.patience_ns();
        let one = (Missing::Requests(1), unacked.next());
        let (missing, stop) = match sequence.repair.filter(|repair| repair.has(unacked)) {
            // It may be for one of those that were sent again.
            Some(repair) if repair.is_scattered() && !was_due => return,
            Some(repair) if repair.is_scattered() => one,
            Some(repair) => (repair.missing, repair.stop),
            // An acknowledgement that comes soon after another one may be for a duplicate.
            None if sequence.keeping.may_keep() && was_due => one,
            None => return,
        };
        let cause = match missing {
            Missing::Unknown(_) | Missing::MaybeResponses(_) => Cause::Silence,
            Missing::Requests(_) | Missing::Scattered | Missing::Responses => Cause::Gap,
        };
        sequence.ask_unheard(now, |sequence| {
            sequence.begin_repair(now, missing, stop, cause);
        });
    }

    /// Continues after a response that ends an answer, maybe that to a probe for responses. As those behind it
    /// have not come before it, they are lost: asks for twice as many of them. `is_of_request` says whether it
    /// ends the answer to the whole request, too, and so may be the first one.
    // Rules: RTY-20
    #[inline]
    pub(super) fn check_responses(&mut self, now: Instant, is_of_request: bool) {
        let sequence = &mut *self.sequence;
        if sequence.may_lack_all {
            sequence.expect_rest(now);
        }
        let Some(repair) = sequence.repair else {
            return;
        };
        let Some(count) = repair.lacks_responses(sequence.unacked) else {
            return;
        };
        let Some(entry) = self.window.good(0).filter(|entry| entry.is_answered()) else {
            return;
        };
        if sequence.early.is_some() || (is_of_request && count <= MAX_PROBE_RESPONSES) {
            return;
        }
        sequence.lost(Loss::Some(count.min(MAX_REPAIR_PACKETS).into()), now);
        // No more than there is room to keep if the first of them is lost again.
        let count = count.saturating_mul(2).min(Self::MAX_ASKED);
        let _ = sequence.ask_for_some(now, count, entry);
    }

    /// Handles a response with the PSNs from `psn` to `stop`, which came before its turn: asks for those that
    /// are missing, once, and says whether the host may keep this one.
    // Rules: ACK-6, RTY-21
    pub(super) fn handle_early<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        psn: Psn,
        stop: Psn,
        host: &mut H,
    ) -> Result<Handled, Failure> {
        if self.is_kept {
            return self.handle_early_again(now, psn, host);
        }
        host.observe(Event::ResponseGap);
        if let Some(left) = self.sequence.drops_responses.checked_sub(1) {
            if !self.sequence.recovering {
                self.sequence.drops_responses = left;
            }
            return self.recover(now, host).map(|()| Handled::Done);
        }
        let sequence = &mut *self.sequence;
        let gap = (sequence.early).map_or(sequence.unacked, |early| early.stop);
        let may_be_kept = sequence.may_keep(psn, stop);
        if may_be_kept && gap.is_before(psn) {
            self.want_ahead(gap, psn);
        }
        self.ask_again(now, host)?;
        self.sequence.expect_missing(now);
        Ok(match may_be_kept {
            true => Handled::Early,
            false => Handled::Done,
        })
    }

    /// Handles an early response that was kept before, and is still early.
    fn handle_early_again<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        psn: Psn,
        host: &mut H,
    ) -> Result<Handled, Failure> {
        let Some(early) = &mut self.sequence.early else {
            return Ok(Handled::Done);
        };
        early.first = psn;
        if let Some(end) = self.asked_ahead().filter(|_| !self.sequence.sends_again()) {
            self.sequence.expect_ahead(now, psn.earlier(end));
        } else if !self.sequence.was_sent_again(self.sequence.unacked) {
            self.ask_again(now, host)?;
        }
        Ok(Handled::Early)
    }

    /// Notes that the responses from `gap` on and before `stop` are missing, behind others that are. Those to each
    /// request are asked for without waiting for the ones before. Only of a peer that is known to keep packets:
    /// rdma_rxe does not answer a READ again before the start of its last answer.
    // Rules: RTY-24
    #[cold]
    fn want_ahead(&mut self, gap: Psn, stop: Psn) {
        let sequence = &mut *self.sequence;
        let may_be_late = sequence.lateness.wait_ns() > 0;
        if sequence.keeping != Keeping::Keeps || may_be_late {
            return;
        }
        let mut is_new = false;
        for index in 1..self.window.len().min(MAX_EARLY_PSNS as usize) {
            let Some(entry) = self.window.good_mut(index) else {
                continue;
            };
            if !entry.first.is_before(stop) {
                break;
            }
            let (from, to) = (gap.later(entry.first), stop.earlier(entry.end()));
            // An atomic WRITE would need its payload, which may be absent.
            let may_ask = entry.is_answered() && !matches!(entry.op, SendOp::AtomicWrite { .. });
            let is_missing = may_ask && from.is_before(to);
            let (Some(from), Some(to)) = (entry.index_of(from), entry.index_of(to)) else {
                continue;
            };
            if is_missing && entry.ahead == Ahead::No {
                entry.ahead = Ahead::Wanted { from, to };
                is_new = true;
            }
        }
        if is_new {
            sequence.set_asks_ahead(true);
        }
    }

    /// Returns the PSN after the oldest request, if its responses that are missing were asked for in advance.
    fn asked_ahead(&self) -> Option<Psn> {
        let oldest = self.window.good(0)?;
        let from = oldest.index_of(self.sequence.unacked)?;
        (oldest.ahead == Ahead::Asked { from }).then(|| oldest.end())
    }

    /// Asks again for the responses behind those that were kept, if they were too many.
    // Rules: RTY-21
    pub(super) fn ask_for_rest<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        host: &mut H,
    ) -> Result<(), Failure> {
        if !core::mem::take(&mut self.sequence.lacks_rest) {
            return Ok(());
        }
        // Those that were not kept may have come again meanwhile. Then the oldest request may not be sent yet.
        let is_missing = self.sequence.outstanding() > 0
            && self.window.good(0).is_some_and(Outstanding::is_answered);
        match is_missing {
            true => self.ask_again_now(now, host),
            false => Ok(()),
        }
    }

    /// Asks again for the oldest responses that are missing, unless they may be late.
    fn ask_again<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        host: &mut H,
    ) -> Result<(), Failure> {
        if self.sequence.waits_for(Held::Response, now) {
            return Ok(());
        }
        self.ask_again_now(now, host)
    }

    /// Asks again for the oldest responses that are missing.
    fn ask_again_now<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        host: &mut H,
    ) -> Result<(), Failure> {
        let sequence = &*self.sequence;
        // Rules: DUP-18, NAK-15
        if sequence.recovering || matches!(sequence.timer, Timer::Rnr(_)) {
            return Ok(());
        }
        let Some(entry) = self.window.good(0) else {
            return self.recover(now, host);
        };
        let stop = sequence.missing_responses_of(entry);
        self.begin_counted(now, Missing::Responses, stop, host)
    }

    /// Sends the oldest outstanding packet again, as nothing was heard for some round trips. The
    /// peer answers it in any case. A READ is only requested up to its first response that has
    /// come, and of many responses a few are: all of them may only be slow. If the peer may have dropped
    /// what was behind a repair, all of it is sent again.
    // Rules: RTY-20
    pub(super) fn probe<H: SendHost<Payload = P>>(&mut self, now: Instant, host: &mut H) {
        let sequence = &mut *self.sequence;
        let Some(Entry::Good(entry)) = self.window.get(0) else {
            return;
        };
        if sequence.outstanding() == 0 {
            return;
        }
        if sequence.sends_again() {
            // All of it that may be outstanding may be lost again: nobody would tell.
            if sequence.blocked == Some(Blocked::PsnWindow) {
                host.observe(Event::Probe);
                sequence.lost(Loss::Silence, now);
                sequence.ask_unheard(now, Sequence::go_back);
            }
            return;
        }
        if !sequence.is_in_answer(entry) && sequence.has_stuck_guess() {
            sequence.keeping = Keeping::Drops(RETRY_KEEPING);
            host.observe(Event::Probe);
            return sequence.ask_unheard(now, Sequence::go_back);
        }
        let has_gap = entry.is_answered() && sequence.early_behind_gap().is_some();
        let may_lack_all = sequence.may_lack_all && !sequence.repairs(sequence.unacked);
        let is_behind_repair = entry.is_answered() && sequence.has_repaired_before();
        let may_lack_rest = is_behind_repair && sequence.keeping != Keeping::Keeps
            || entry.is_answered() && sequence.may_have_dropped();
        // If responses were kept, only what is missing before them is asked for.
        let has_early = entry.is_answered() && sequence.early.is_some();
        if !has_early && (may_lack_all || may_lack_rest) {
            sequence.may_lack_all = false;
            host.observe(Event::Probe);
            return sequence.ask_unheard(now, Sequence::go_back);
        }
        let (missing, stop) = sequence.oldest_missing(entry);
        let cause = match has_gap {
            true => Cause::Gap,
            false => Cause::Silence,
        };
        if !has_gap && stop.distance_from(sequence.unacked) > MAX_PROBE_RESPONSES.into() {
            // All of them may only be slow. So more are asked for once before the timeout.
            let is_known = sequence.round_trip.average_ns() > 0;
            let count = match sequence.probes {
                // A few responses to a lost request for a part are not asked for. The window bounds the part.
                2 if sequence.parts == Parts::Unheard => {
                    let all = stop.distance_from(sequence.unacked);
                    u16::try_from(all).unwrap_or(u16::MAX)
                }
                2 if is_known => MAX_REPAIR_PACKETS,
                _ => MAX_PROBE_RESPONSES,
            };
            if sequence.ask_for_some(now, count, entry) {
                host.observe(Event::Probe);
            } else if sequence.probes == 1 {
                // Nothing was asked, so there is no reason to wait longer than for the first time.
                sequence.probe_at = now.after_ns(sequence.round_trip.probe_ns(false));
            }
            return;
        }
        host.observe(Event::Probe);
        sequence.ask_unheard(now, |sequence| {
            sequence.begin_repair(now, missing, stop, cause);
        });
        if has_gap {
            sequence.expect_missing(now);
        }
    }

    /// Sends the oldest outstanding packet again after a timeout, or the request for its responses. The peer may
    /// only be slow: all packets again would make it slower. The answer tells whether the peer lacks those
    /// behind it. If it does not, and nothing follows, a probe goes back n. If all is being sent again, that begins anew.
    // Rules: RTY-1, RTY-7
    pub(super) fn ask_after_timeout(&mut self, now: Instant) {
        let sequence = &mut *self.sequence;
        let Some(oldest) = self.window.good(0) else {
            return sequence.go_back();
        };
        // All is sent again already. A repair would end that, and the peer may have dropped the rest. What is behind a
        // bad request is never sent.
        let is_stuck = sequence.blocked == Some(Blocked::BadRequest);
        if sequence.sends_again() && !sequence.is_repairing() && !is_stuck {
            return sequence.go_back();
        }
        let (missing, stop) = sequence.oldest_missing(oldest);
        sequence.may_lack_all = true;
        sequence.may_lack_to = sequence.end;
        sequence.begin_repair(now, missing, stop, Cause::Timeout);
    }

    /// Ends the repair in progress if `next` is past it: what comes next was never sent.
    #[inline]
    pub(super) fn end_repair(&mut self) {
        self.sequence.end_repair(self.window);
    }
}

impl<P, S: DerefMut<Target = [Slot<P>]>> Requester<P, S> {
    /// Says that the host has not kept a response that was [early](Handled::Early). All of them are asked for
    /// again, now and after the next losses.
    // Rules: RTY-21
    pub fn not_kept(&mut self) {
        if let Some(running) = self.running() {
            running.sequence.drops_responses = RETRY_KEEPING;
            running.sequence.early = None;
            if !matches!(running.sequence.timer, Timer::Rnr(_)) {
                running.sequence.go_back();
            }
        }
    }
}

impl Sequence {
    /// Returns true if the oldest outstanding packet, which is missing, is waited for from now on, or still.
    // Rules: RTY-22
    fn waits_for(&mut self, what: Held, now: Instant) -> bool {
        match self.lateness.held() {
            Held::Request | Held::Response if now < self.probe_at => return true,
            Held::Request | Held::Response => {
                self.lateness.give_up();
                return false;
            }
            Held::Given => return false,
            Held::Nothing => {}
        }
        let (unacked, wait_ns) = (self.unacked, self.lateness.wait_ns());
        let was_sent_again = self.was_sent_again(unacked);
        // Only the timer ends the wait for sure.
        let may_wait = wait_ns > 0 && matches!(self.timer, Timer::Ack(_));
        if !may_wait || was_sent_again || self.recovering {
            return false;
        }
        self.lateness.hold(what);
        self.probe_at = now.after_ns(wait_ns);
        true
    }

    /// Learns from what is acknowledged how late packets are: one that was missing came while it was waited for,
    /// or before it can have come again. Measures how long a repair takes otherwise.
    // Rules: RTY-22
    fn learn_lateness(&mut self, now: Instant) {
        if let Held::Request | Held::Response = self.lateness.held() {
            let wait_ns = self.lateness.wait_ns();
            let late_ns = now.after_ns(wait_ns).since(self.probe_at);
            self.lateness.prove(late_ns, &self.round_trip);
        }
        self.lateness.hold(Held::Nothing);
        let unacked = self.unacked;
        let Some(repair) = &mut self.repair else {
            return;
        };
        if unacked.is_before(repair.stop) {
            return;
        }
        let took_ns = now.since(repair.at);
        match repair.answer {
            Answer::Time | Answer::Order if self.round_trip.is_too_soon(took_ns) => {
                repair.answer = Answer::Late;
                // If it was waited for before, it was late by that, too.
                let late_ns = took_ns.saturating_add(self.lateness.wait_ns());
                self.lateness.suspect(late_ns, &self.round_trip);
                self.pace.forgive(repair.before);
                self.gaps.forgive();
            }
            Answer::Time | Answer::TimeOnly => {
                repair.answer = Answer::Nothing;
                self.round_trip.measured(took_ns);
            }
            Answer::Order => repair.answer = Answer::Nothing,
            Answer::Nothing | Answer::OneOfMany | Answer::Again | Answer::Late => {}
        }
    }

    /// Judges what is to be sent again, and notes what that says of the peer, which has room to keep packets. If it lacks
    /// the packet right behind the last repair, `last` is the number of packets of that.
    // Rules: RTY-15, RTY-18
    fn judge(&mut self, last: Option<u16>) -> Verdict {
        let was_probe = self.repair.is_some_and(|repair| repair.is_probe());
        // If one of a train is lost again, only the timer tells.
        let may_guess = self.config.timeout.delay_ns().is_some();
        let packets = match (self.keeping, last) {
            (_, Some(packets)) if was_probe && packets < MAX_REPAIR_PACKETS => {
                return Verdict::Probe(packets.saturating_mul(2));
            }
            (_, Some(_)) if was_probe => return Verdict::All,
            (Keeping::Drops(left @ 1..), _) => {
                self.keeping = Keeping::Drops(left.wrapping_sub(1));
                return Verdict::All;
            }
            // A whole train may be lost. To go back n would send it again, too.
            (Keeping::Unknown | Keeping::Seems, Some(1)) | (Keeping::Drops(0), None)
                if may_guess =>
            {
                MAX_TRAIN_PACKETS
            }
            (Keeping::Unknown | Keeping::Seems | Keeping::Drops(0), Some(_)) => {
                // Either more was lost in a row than that, or it drops packets, and some were late.
                self.keeping = Keeping::Drops(RETRY_KEEPING);
                return Verdict::All;
            }
            (Keeping::Keeps, None) if !may_guess => 1,
            (Keeping::Keeps, _) => self.gaps.length(),
            (_, None) => 1,
        };
        if packets > MAX_REPAIR_PACKETS {
            // Maybe it had no more room.
            self.keeping = Keeping::Seems;
            return Verdict::All;
        }
        Verdict::Gap(packets)
    }

    /// Returns what to send again first of `oldest`, the oldest request, and the PSN after that.
    fn oldest_missing<P>(&self, oldest: &Outstanding<P>) -> (Missing, Psn) {
        match oldest.is_answered() {
            true => (Missing::Responses, self.missing_responses_of(oldest)),
            false => (Missing::Unknown(1), self.unacked.next()),
        }
    }

    /// Returns the PSN after the responses to `oldest`, the oldest request, that are missing. One is outstanding.
    fn missing_responses_of<P>(&self, oldest: &Outstanding<P>) -> Psn {
        match self.early_behind_gap() {
            Some(early) => early.missing_of(oldest),
            // A part of a READ may not have been asked for yet. An early NAK is in place of the response to this PSN.
            None => oldest.end().earlier(self.end),
        }
    }

    /// Returns the responses that were kept, if others are missing before them. If not, the host is handling these.
    fn early_behind_gap(&self) -> Option<EarlyResponses> {
        self.early
            .filter(|early| self.unacked.is_before(early.first))
    }

    /// Returns true if some responses to `entry`, the oldest request, have come, and some to its last part. A peer
    /// that answers has the request.
    // Rules: SEG-22
    fn is_in_answer<P>(&self, entry: &Outstanding<P>) -> bool {
        entry.is_answered() && self.unacked != entry.first && self.parts != Parts::Unheard
    }

    /// Returns true if responses may be missing that were asked for again with all behind them. Others that came
    /// before their turn were not kept.
    fn may_have_dropped(&self) -> bool {
        let was_sent_again = self.unacked.is_before(self.asked_again_to);
        self.drops_responses > 0 && (self.recovering || was_sent_again)
    }

    /// Returns true if the peer has the packets of a repair. It may have dropped what was behind them.
    fn has_repaired_before(&self) -> bool {
        self.repair.is_some_and(|repair| {
            !repair.missing.is_of_responses() && !self.unacked.is_before(repair.stop)
        })
    }

    /// Returns true if the last repair includes `psn`.
    fn repairs(&self, psn: Psn) -> bool {
        self.repair.is_some_and(|repair| repair.has(psn))
    }

    /// Returns true if a train was sent again of which the peer lacks some, and it is not known to keep packets. If one
    /// is lost again, a peer that drops packets lacks all behind it.
    fn has_stuck_guess(&self) -> bool {
        let is_stuck = |repair: Repair| {
            matches!(repair.missing, Missing::Requests(2..)) && repair.has(self.unacked)
        };
        self.keeping != Keeping::Keeps && self.repair.is_some_and(is_stuck)
    }

    /// Returns true if `psn` was sent again, alone or with all behind it.
    fn was_sent_again(&self, psn: Psn) -> bool {
        psn.is_before(self.asked_again_to) || self.repairs(psn) || self.gaps.has_guessed(psn)
    }

    /// Returns true if the peer was asked with packets that it may have, without news of them, and has not shown yet
    /// whether it has what is behind them. If the oldest request is a READ or the like, no acknowledgement tells, but
    /// its first response. A peer that keeps packets takes new ones as well. Without a timer nothing else would end
    /// that.
    // Rules: RTY-25
    #[inline]
    pub(super) fn awaits_answer<P, S>(&self, window: &Window<P, S>) -> bool
    where
        S: DerefMut<Target = [Slot<P>]>,
    {
        match self.repair {
            Some(repair) if repair.is_probe() => self.awaits_answer_to(&repair, window.good(0)),
            _ => false,
        }
    }

    #[cold]
    fn awaits_answer_to<P>(&self, question: &Repair, oldest: Option<&Outstanding<P>>) -> bool {
        let is_behind = question.stop.is_before(self.unacked);
        let answers = oldest.is_some_and(|oldest| self.is_in_answer(oldest));
        let has_timer = matches!(self.timer, Timer::Ack(_));
        !is_behind && !answers && has_timer && self.keeping != Keeping::Keeps
    }

    /// Returns true if packets of a repair are to be sent now.
    pub(super) fn is_repairing(&self) -> bool {
        self.repair.is_some_and(|repair| repair.is_under_way)
    }

    /// Returns true if packets are to be sent again, but the host has not asked for any since.
    pub(super) fn has_unsent_question(&self) -> bool {
        self.sends_again() && self.blocked.is_none()
    }

    /// Returns true if packets that were sent are to be sent again now.
    pub(super) fn sends_again(&self) -> bool {
        self.next != self.end
    }

    /// Returns true if the oldest outstanding packet was sent again so lately that the answer may be on its
    /// way.
    fn awaits(&self, now: Instant) -> bool {
        let Some(repair) = self.repair else {
            return false;
        };
        let due = repair.at.after_ns(self.round_trip.patience_ns());
        match repair.is_scattered() && self.unacked != repair.start {
            // One more of them costs little, and the one on its way may be lost again.
            true => !self.unacked.is_before(self.next),
            false => repair.has(self.unacked) && now < due,
        }
    }

    /// Has packets sent again as `again` says, though nothing new was heard. So the timeout is not put off: the
    /// process has said how long to wait for an answer.
    fn ask_unheard(&mut self, now: Instant, again: impl FnOnce(&mut Self)) {
        let timer = self.timer;
        again(self);
        self.timer = timer;
        self.arm_probe(now);
    }

    /// Waits for responses that were asked for again: they come right behind those that come before their turn. If
    /// these end, and nothing follows, they are lost again. On a congested path packets of others may come between.
    /// The wait doubles with each question.
    // Rules: RTY-20
    fn expect_missing(&mut self, now: Instant) {
        let is_asked = self
            .repair
            .is_some_and(|repair| repair.missing == Missing::Responses && repair.has(self.unacked));
        let may_be_queued = self.pace.was_congested() || self.lateness.held() != Held::Nothing;
        if is_asked && !may_be_queued {
            let waits_ns = self.backed_off_ns(self.round_trip.silence_ns());
            self.probe_at = now.after_ns(waits_ns);
        }
    }

    /// Waits for the responses behind an answer, after a timeout. Of a peer that has only been slow, they come right
    /// behind it. Otherwise all requests are lost, and the next timeout may come before the usual question: then each
    /// request would cost one.
    // Rules: RTY-20
    #[cold]
    fn expect_rest(&mut self, now: Instant) {
        if self.outstanding() > 0 && !self.repairs(self.unacked) {
            let waits_ns = self.round_trip.silence_ns().max(MIN_PROBE_NS);
            self.probe_at = now.after_ns(waits_ns);
        }
    }

    /// Returns true if responses may have to be asked for in advance.
    #[inline]
    pub(super) fn asks_ahead(&self) -> bool {
        self.early.is_some_and(|early| early.asks_ahead)
    }

    /// Sets the result of [`asks_ahead`](Self::asks_ahead), if there are early responses.
    pub(super) fn set_asks_ahead(&mut self, asks: bool) {
        if let Some(early) = &mut self.early {
            early.asks_ahead = asks;
        }
    }

    /// Waits for the oldest responses that are missing, which were asked for in advance. `stop` is the first behind
    /// them.
    // Rules: RTY-24
    fn expect_ahead(&mut self, now: Instant, stop: Psn) {
        if !self.recovering {
            // Not before: many losses that are told at once seem to be those of a full queue.
            self.lost(Loss::One, now);
        }
        self.recovering = true;
        self.repair = Some(Repair {
            missing: Missing::Responses,
            start: self.unacked,
            stop,
            end: self.end,
            is_under_way: false,
            at: now,
            // It was asked for earlier than now.
            answer: Answer::Nothing,
            before: self.pace.before(),
        });
        self.expect_missing(now);
    }

    /// Asks again for at most `count` responses to `entry`, the oldest request, though nothing new was heard.
    /// Returns false if it does not. Before the first response to the last request for them, the peer may not have got
    /// that: it would take one for fewer responses for a new request, and later ones for more of them as invalid.
    fn ask_for_some<P>(&mut self, now: Instant, count: u16, entry: &Outstanding<P>) -> bool {
        let some = self.unacked.add(count.into());
        let all = self.missing_responses_of(entry);
        let stop = some.earlier(all);
        if !self.is_in_answer(entry) && stop != all {
            return false;
        }
        self.ask_unheard(now, |sequence| {
            sequence.begin_repair(now, Missing::MaybeResponses(count), stop, Cause::Silence);
        });
        true
    }

    /// Has packets sent again, from the oldest outstanding one up to `stop`.
    fn begin_repair(&mut self, now: Instant, missing: Missing, stop: Psn, cause: Cause) {
        let (start, end) = (self.unacked, self.end);
        let (asked_again_to, round_trip) = (self.asked_again_to, self.round_trip);
        // Of several that were sent nobody knows which is acknowledged.
        let was_sent_again = self.was_sent_again(start);
        let was_guessed = self.gaps.has_guessed(start);
        let was_waited_for = self.lateness.held() == Held::Given;
        let answer = match cause {
            // The answer may be one to what was sent before. So its time says nothing.
            Cause::Silence | Cause::Timeout => Answer::Nothing,
            Cause::Gap if was_guessed => Answer::OneOfMany,
            Cause::Gap if was_sent_again => Answer::Again,
            Cause::Gap if missing == Missing::Scattered => Answer::Nothing,
            Cause::Gap if was_waited_for => Answer::TimeOnly,
            Cause::Gap if matches!(missing, Missing::Requests(2..)) => Answer::Order,
            Cause::Gap => Answer::Time,
        };
        let before = self.pace.before();
        if missing.is_of_responses() {
            self.note_rest();
            self.note_part();
        }
        self.go_back();
        self.asked_again_to = asked_again_to;
        if missing == Missing::Scattered {
            self.gaps.guessed(stop);
        }
        if cause != Cause::Gap {
            // The path may only be slow. Then nothing is ever measured if this begins anew each time.
            self.round_trip = round_trip;
            if cause == Cause::Timeout {
                self.round_trip.timed_out();
            }
            if cause == Cause::Timeout || self.round_trip.is_asked_by(stop) {
                self.round_trip.asked(now);
            }
        }
        self.repair = Some(Repair {
            missing,
            start,
            stop,
            end,
            is_under_way: true,
            at: now,
            answer,
            before,
        });
    }

    /// Notes that the peer may lack what is behind the last repair, if that was of requests. A repair of responses,
    /// which tells nothing of that, takes its place.
    // Rules: RTY-20
    fn note_rest(&mut self) {
        let repair = self.repair.filter(|last| !last.missing.is_of_responses());
        let Some(last) = repair.filter(|_| self.keeping != Keeping::Keeps) else {
            return;
        };
        self.may_lack_to = match self.may_lack_all {
            true => self.may_lack_to.later(last.end),
            false => last.end,
        };
        self.may_lack_all = true;
    }

    /// Notes that what is left of packets that are all sent again will not be.
    pub(super) fn end_guess(&mut self) {
        let repair = self.repair.filter(|repair| repair.is_under_way);
        if repair.is_some_and(|repair| repair.is_scattered()) {
            self.gaps.guessed(self.next);
        }
    }

    /// Ends the repair in progress if `next` is past it.
    #[inline]
    pub(super) fn end_repair<P, S>(&mut self, window: &Window<P, S>)
    where
        S: DerefMut<Target = [Slot<P>]>,
    {
        let next = self.next;
        match &mut self.repair {
            Some(repair) if repair.is_under_way && !next.is_before(repair.stop) => {
                repair.is_under_way = false;
                if !repair.missing.is_of_responses() {
                    // One packet may stand for several PSNs.
                    repair.stop = next;
                }
            }
            _ => return,
        }
        self.next = self.end;
        self.cursor = window.count_before(self.end);
    }

    /// Returns true if the packet that ends at `end` is the last of a repair.
    #[inline]
    pub(super) fn ends_repair(&self, end: Psn) -> bool {
        match self.repair {
            Some(repair) => repair.is_under_way && !end.is_before(repair.stop),
            None => false,
        }
    }

    /// Returns the PSN up to which responses are asked for again now.
    #[inline]
    pub(super) fn asks_up_to(&self) -> Option<Psn> {
        self.repair
            .filter(|repair| repair.is_under_way && repair.missing.is_of_responses())
            .map(|repair| repair.stop)
    }

    /// Takes back that the packet `psn` was sent, as far as a repair is concerned.
    pub(super) fn reopen_repair(&mut self, psn: Psn) {
        if let Some(repair) = &mut self.repair {
            repair.is_under_way |= psn.is_before(repair.stop);
        }
    }

    /// Returns true if the host may keep a response that came before its turn. Notes that it does.
    fn may_keep(&mut self, psn: Psn, stop: Psn) -> bool {
        let is_near = psn.distance_from(self.unacked) < MAX_EARLY_PSNS;
        match &mut self.early {
            Some(early) if !is_near => {
                early.has_dropped = true;
                return false;
            }
            None if !is_near => return false,
            Some(early) => {
                if psn.is_before(early.first) {
                    early.first = psn;
                }
                if early.stop.is_before(stop) {
                    early.stop = stop;
                }
            }
            early @ None => {
                *early = Some(EarlyResponses {
                    first: psn,
                    stop,
                    has_dropped: false,
                    asks_ahead: false,
                });
            }
        }
        true
    }

    /// Learns from what is acknowledged whether the peer keeps packets. Forgets what is over.
    #[inline]
    pub(super) fn learn(&mut self, now: Instant) {
        let is_held = self.lateness.held() != Held::Nothing;
        if is_held || self.repair.is_some() || self.early.is_some() {
            self.learn_from_loss(now);
        }
    }

    #[cold]
    fn learn_from_loss(&mut self, now: Instant) {
        let unacked = self.unacked;
        self.learn_lateness(now);
        if let Some(repair) = self.repair {
            if let Some(keeping) = repair.shows_keeping(unacked, self.keeping) {
                self.keeping = keeping;
            }
            self.repair = Some(repair).filter(|repair| !repair.is_over(unacked));
        }
        if let Some(early) = self.early.filter(|early| !unacked.is_before(early.stop)) {
            self.early = None;
            self.lacks_rest |= early.has_dropped;
        }
    }
}
