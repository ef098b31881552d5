// SPDX-License-Identifier: GPL-2.0

//! Timers, and sending again.

use core::ops::DerefMut;

use super::window::Slot;
use super::{Failure, Phase, Requester, Running, Sequence, Timer};
use crate::completion::Status;
use crate::event::Event;
use crate::host::SendHost;
use crate::limits::{self, RNR_RETRY_INFINITE};
use crate::time::{Instant, RnrTimer};

impl<P, S: DerefMut<Target = [Slot<P>]>> Requester<P, S> {
    /// When to call [`handle_timeout`](Self::handle_timeout).
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
            Timer::Ack(at) | Timer::Rnr(at) => Some(at),
        }
    }

    /// Handles the passing of time; [`poll_transmit`](Self::poll_transmit) may have more after it.
    /// May be called at any time; does nothing before [`poll_timeout`](Self::poll_timeout).
    pub fn handle_timeout<H: SendHost<Payload = P>>(&mut self, now: Instant, host: &mut H) {
        if let Some(mut running) = self.running() {
            let outcome = running.handle_timeout(now, host);
            self.settle(outcome, host);
        }
    }
}

impl<P, S> Running<'_, P, S> {
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
                self.sequence.pace.timed_out();
                self.send_again(host)
            }
            _ => Ok(()),
        }
    }

    /// Something was lost, as a NAK or a gap tells: sends again from the oldest outstanding PSN,
    /// once for each such PSN.
    // Rules: NAK-14, RTY-15
    pub(super) fn recover<H: SendHost<Payload = P>>(
        &mut self,
        host: &mut H,
    ) -> Result<(), Failure> {
        // Rules: DUP-18, NAK-15
        if self.sequence.recovering || matches!(self.sequence.timer, Timer::Rnr(_)) {
            return Ok(());
        }
        self.sequence.recovering = true;
        self.sequence.pace.lost();
        self.send_again(host)
    }

    /// Goes back to the oldest outstanding PSN, or fails when that was done too often.
    // Rules: RTY-8, RTY-9
    fn send_again<H: SendHost<Payload = P>>(&mut self, host: &mut H) -> Result<(), Failure> {
        let Some(left) = self.sequence.retries_left.checked_sub(1) else {
            host.observe(Event::RetryExceeded);
            // Rules: RTY-11
            return Err(Failure(Status::TransportRetryExceeded));
        };
        self.sequence.retries_left = left;
        self.sequence.go_back();
        host.observe(Event::Retransmit);
        Ok(())
    }

    /// The peer has no receive for the oldest outstanding request: leaves it alone for a while.
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
        // What was sent behind it was in vain, too.
        sequence.pace.lost();
        // Rules: RNR-9
        sequence.go_back();
        // Rules: RNR-8
        sequence.timer = Timer::Rnr(now.after_ns(timer.delay_ns()));
        Ok(())
    }
}

impl Sequence {
    /// Moves `next` back to the oldest outstanding PSN, which is in the oldest request.
    // Rules: PSN-14, RTY-7
    fn go_back(&mut self) {
        self.next = self.unacked;
        self.cursor = 0;
        self.timer = Timer::Off;
    }

    /// Waits for an acknowledgement from now on, if the queue pair has a timeout.
    ///
    /// After a timeout it waits twice as long, after two four times, the most that the timeout of a
    /// queue pair may last: a peer that is only slow, as one on a busy host, is not given up.
    pub(super) fn arm_ack_timer(&mut self, now: Instant) {
        // Rules: RTY-16
        if !self.is_acknowledged() {
            return;
        }
        // Rules: RTY-3
        let patience = 1u64.wrapping_shl(self.timeouts.min(limits::MAX_TIMEOUT_DOUBLINGS));
        self.timer = match self.config.timeout.delay_ns() {
            Some(delay_ns) => Timer::Ack(now.after_ns(delay_ns.saturating_mul(patience))),
            // Rules: RTY-4
            None => Timer::Off,
        };
    }
}
