// SPDX-License-Identifier: GPL-2.0

//! Timers, and sending again.

use core::ops::DerefMut;

use super::lateness::Held;
use super::window::Slot;
use super::{Failure, Phase, Requester, Running, Sequence, Timer};
use crate::completion::Status;
use crate::congestion::{Control, Loss};
use crate::event::Event;
use crate::host::SendHost;
use crate::limits::{MAX_PROBE_DOUBLINGS, MAX_TIMEOUT_DOUBLINGS, RNR_RETRY_INFINITE};
use crate::time::{Instant, RnrTimer};

impl<P, S: DerefMut<Target = [Slot<P>]>> Requester<P, S> {
    /// Returns the time to call [`handle_timeout`](Self::handle_timeout).
    ///
    /// It moves back with every acknowledgement: a timer that is already armed for an earlier time
    /// may be left alone and looked at again when it fires.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let Phase::Running(sequence) = &self.phase else {
            return None;
        };
        match sequence.timer {
            Timer::Off => None,
            Timer::Rnr(at) => Some(at),
            Timer::Ack(at) => Some(at.min(sequence.probe_at)),
        }
    }

    /// Handles the passing of time; [`poll_transmit`](Self::poll_transmit) may have more after it.
    /// May be called at any time; does nothing before [`poll_timeout`](Self::poll_timeout).
    ///
    /// Returns true if the timeout of the queue pair, or the wait for a receiver, is over. If not, there may still be
    /// a probe to send, though earlier packets may only be slow.
    pub fn handle_timeout<H: SendHost<Payload = P>>(&mut self, now: Instant, host: &mut H) -> bool {
        let Some(mut running) = self.running() else {
            return false;
        };
        let is_over = running.sequence.is_timed_out(now);
        let outcome = running.handle_timeout(now, host);
        self.settle(outcome, host);
        is_over
    }
}

impl<P, S: DerefMut<Target = [Slot<P>]>> Running<'_, P, S> {
    // Rules: RTY-1
    fn handle_timeout<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        host: &mut H,
    ) -> Result<(), Failure> {
        match self.sequence.timer {
            Timer::Rnr(at) if at <= now => {
                self.sequence.timer = Timer::Off;
                Ok(())
            }
            Timer::Ack(at) if at <= now => {
                host.observe(Event::AckTimeout);
                // A NAK that comes later is for what is sent again now.
                self.sequence.recovering = false;
                self.sequence.timeouts = self.sequence.timeouts.saturating_add(1);
                self.sequence.lost(Loss::Silence, now);
                self.count_retry(host)?;
                self.ask_after_timeout(now);
                Ok(())
            }
            Timer::Ack(_) if self.sequence.probe_at <= now => {
                if self.end_wait(now, host)? {
                    return Ok(());
                }
                if self.sequence.has_unsent_question() {
                    self.sequence.arm_probe(now);
                    return Ok(());
                }
                self.sequence.probes = self.sequence.probes.saturating_add(1);
                self.sequence.arm_probe(now);
                self.probe(now, host);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Sends again from the oldest outstanding PSN, as a NAK or a gap tells that something was lost, once for each
    /// such PSN.
    // Rules: NAK-14, RTY-15
    pub(super) fn recover<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        host: &mut H,
    ) -> Result<(), Failure> {
        self.recover_from(Loss::Rest, now, host)
    }

    /// Recovers as [`recover`](Self::recover) does, and tells the law of congestion control of `loss`.
    pub(super) fn recover_from<H: SendHost<Payload = P>>(
        &mut self,
        loss: Loss,
        now: Instant,
        host: &mut H,
    ) -> Result<(), Failure> {
        // Rules: DUP-18, NAK-15
        if self.sequence.recovering || matches!(self.sequence.timer, Timer::Rnr(_)) {
            return Ok(());
        }
        self.sequence.recovering = true;
        self.sequence.lost(loss, now);
        self.send_again(host)
    }

    /// Goes back to the oldest outstanding PSN, or fails when that was done too often.
    fn send_again<H: SendHost<Payload = P>>(&mut self, host: &mut H) -> Result<(), Failure> {
        self.count_retry(host)?;
        self.sequence.go_back();
        Ok(())
    }

    /// Counts that something is sent again, or fails when that was done too often.
    // Rules: RTY-8, RTY-9
    pub(super) fn count_retry<H: SendHost<Payload = P>>(
        &mut self,
        host: &mut H,
    ) -> Result<(), Failure> {
        let Some(left) = self.sequence.retries_left.checked_sub(1) else {
            host.observe(Event::RetryExceeded);
            // Rules: RTY-11
            return Err(Failure(Status::TransportRetryExceeded));
        };
        self.sequence.retries_left = left;
        host.observe(Event::Retransmit);
        Ok(())
    }

    /// Leaves the peer alone for a while, as it has no receive for the oldest outstanding request.
    pub(super) fn wait_for_receiver<H: SendHost<Payload = P>>(
        &mut self,
        now: Instant,
        timer: RnrTimer,
        host: &mut H,
    ) -> Result<(), Failure> {
        let sequence = &mut *self.sequence;
        if matches!(sequence.timer, Timer::Rnr(_)) {
            // Rules: RNR-15
            return Ok(()); // The same NAK, twice.
        }
        host.observe(Event::RnrNakReceived);
        // Rules: RNR-12
        if sequence.config.rnr_retry.get() != RNR_RETRY_INFINITE {
            // Rules: RNR-11
            let Some(left) = sequence.rnr_retries_left.checked_sub(1) else {
                host.observe(Event::RnrRetryExceeded);
                // Rules: RNR-18
                return Err(Failure(Status::RnrRetryExceeded));
            };
            sequence.rnr_retries_left = left;
        }
        // Rules: RNR-14
        // The peer is there, which is all that the other count is about.
        sequence.retries_left = sequence.config.retry_cnt.get();
        sequence.timeouts = 0;
        // Later packets are lost, too.
        sequence.lost(Loss::NotReady, now);
        // Rules: RNR-9
        sequence.go_back();
        // Rules: RNR-8
        sequence.timer = Timer::Rnr(now.after_ns(timer.delay_ns()));
        Ok(())
    }
}

impl Sequence {
    /// Returns true if the timer, which is not that of a probe, has expired.
    fn is_timed_out(&self, now: Instant) -> bool {
        match self.timer {
            Timer::Off => false,
            Timer::Rnr(at) | Timer::Ack(at) => at <= now,
        }
    }

    /// Has the law of congestion control react to a loss.
    pub(super) fn lost(&mut self, loss: Loss, now: Instant) {
        let path = self.path(now);
        self.pace.lost(loss, &path);
    }

    /// Moves `next` back to the oldest outstanding PSN, which is in the oldest request.
    // Rules: PSN-14, RTY-7
    pub(super) fn go_back(&mut self) {
        self.end_guess();
        self.next = self.unacked;
        self.cursor = 0;
        self.blocked = None;
        self.timer = Timer::Off;
        self.repair = None;
        self.lateness.hold(Held::Nothing);
        self.asked_again_to = self.end;
        self.round_trip.forget();
    }

    /// Waits for an acknowledgement from now on, if the queue pair has a timeout.
    ///
    /// It waits longer if answers lately took about as long, as from a peer on a busy host. After a timeout it waits
    /// twice as long, after two four times, so that such a peer is not given up. Four times is the most in any case.
    pub(super) fn arm_ack_timer(&mut self, now: Instant) {
        // Rules: RTY-16
        if !self.is_acknowledged() {
            return;
        }
        self.timer = match self.config.timeout.delay_ns() {
            Some(least_ns) => Timer::Ack(now.after_ns(self.ack_wait_ns(least_ns))),
            // Rules: RTY-4
            None => Timer::Off,
        };
        self.arm_probe(now);
    }

    /// Returns how long to wait for an acknowledgement, for a timeout of `least_ns`.
    // Rules: RTY-3
    #[inline]
    fn ack_wait_ns(&self, least_ns: u64) -> u64 {
        let most_ns = least_ns.saturating_mul(1 << MAX_TIMEOUT_DOUBLINGS);
        let patience = 1u64.wrapping_shl(MAX_TIMEOUT_DOUBLINGS.min(self.timeouts.into()));
        let slow_ns = self.round_trip.longest_ns().saturating_mul(2);
        let waits_ns = least_ns.saturating_mul(patience);
        waits_ns.max(slow_ns.min(most_ns))
    }

    /// Waits for some round trips from now on before it asks for an answer once more.
    // Rules: RTY-20
    pub(super) fn arm_probe(&mut self, now: Instant) {
        let is_repairing = self.repair.is_some() || self.lateness.wait_ns() > 0;
        let waits_ns = self.round_trip.probe_ns(is_repairing);
        self.probe_at = now.after_ns(self.backed_off_ns(waits_ns));
    }

    /// Doubles `waits_ns` for each question that was asked since the last answer.
    pub(super) fn backed_off_ns(&self, waits_ns: u64) -> u64 {
        let doublings = self.probes.min(MAX_PROBE_DOUBLINGS);
        let factor = 1u64.wrapping_shl(doublings.into());
        waits_ns.saturating_mul(factor)
    }
}
