// SPDX-License-Identifier: GPL-2.0

//! Congestion control: how much a requester may have outstanding.
//!
//! A law is told of acknowledgements, of losses, and of congestion on the path: by a congestion
//! notification packet (CNP) of the peer, or by a mark on a response. It answers with a number of
//! PSNs. No law has a timer: each reads the time when it is told of an event.
//!
//! | law | reacts to |
//! |---|---|
//! | [`Window`](Law::Window) | the share of round trips that were congested, losses while packets queue |
//! | [`Dcqcn`](Law::Dcqcn) | CNPs, by a rate, with the parameters that DCQCN was published with |
//! | [`Fixed`](Law::Fixed) | nothing: the control |
//!
//! A loss tells little about congestion: a path may lose packets at random. So
//! [`Window`](Law::Window) compares the round trip with the shortest one. It halves if packets
//! queue and losses are near to each other. Otherwise it shrinks by the number of lost packets.

mod dcqcn;
mod notifier;
mod window;

use crate::limits;
use crate::num::{Mtu, Psn};
use crate::time::{AckTimeout, Instant};

use dcqcn::Dcqcn;
use window::Window;

pub use notifier::Notifier;

/// A law of congestion control.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Law {
    /// A window that follows the share of congested round trips, as DCTCP's does.
    #[default]
    Window,
    /// DCQCN, with a window that enforces its rate.
    Dcqcn,
    /// Always [`SHORT_OUTSTANDING_PSNS`](limits::SHORT_OUTSTANDING_PSNS).
    Fixed,
}

impl Law {
    /// Every law.
    pub const ALL: [Self; 3] = [Self::Window, Self::Dcqcn, Self::Fixed];

    /// The names of all, in the same order.
    pub const NAMES: [&'static str; 3] = [
        Self::ALL[0].name(),
        Self::ALL[1].name(),
        Self::ALL[2].name(),
    ];

    /// Returns the name by which administrators know it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::Dcqcn => "dcqcn",
            Self::Fixed => "fixed",
        }
    }

    /// Returns true if it reacts to marks, so that packets may be marked instead of dropped.
    pub const fn reacts_to_marks(self) -> bool {
        !matches!(self, Self::Fixed)
    }

    /// Returns its place in [`ALL`](Self::ALL).
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// The state of a requester's path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) now: Instant,
    /// The average round trip in nanoseconds; 0 before the first.
    pub(crate) average_ns: u32,
    /// The round trip that was measured just now; 0 if none was.
    pub(crate) sample_ns: u32,
    /// The shortest one.
    pub(crate) least_ns: u32,
    /// How long the requester waits for an acknowledgement.
    pub(crate) timeout: AckTimeout,
    pub(crate) mtu: Mtu,
    /// The oldest PSN that is not acknowledged.
    pub(crate) unacked: Psn,
    /// The PSN after the last that was ever sent.
    pub(crate) end: Psn,
}

impl Path {
    /// Returns true if packets queue on the path, judged by the round trip.
    fn is_queueing(&self) -> bool {
        self.average_ns / 2 > self.least_ns
    }

    /// Returns true if packets wait longer than a quarter of the timeout, on average. A larger window would let
    /// them wait longer.
    fn is_slow(&self) -> bool {
        self.waits_longer(self.average_ns, 4)
    }

    /// Returns true if the packet that was measured just now has waited longer than half of the timeout.
    fn is_near_timeout(&self) -> bool {
        self.waits_longer(self.sample_ns, 2)
    }

    /// Returns true if a packet with this round trip waits longer than that part of the timeout.
    fn waits_longer(&self, round_trip_ns: u32, part: u64) -> bool {
        let waits_ns = u64::from(round_trip_ns.saturating_sub(self.least_ns));
        let timeout_ns = self.timeout.delay_ns();
        timeout_ns.is_some_and(|timeout_ns| waits_ns > timeout_ns / part)
    }

    /// Returns true if `psn` is behind the oldest outstanding PSN, and at most the PSN after the
    /// last one.
    fn is_outstanding(&self, psn: Psn) -> bool {
        let ahead = psn.distance_from(self.unacked);
        ahead > 0 && ahead <= self.end.distance_from(self.unacked)
    }

    /// Returns true if the path is long.
    fn is_long(&self) -> bool {
        self.least_ns >= limits::LONG_ROUND_TRIP_NS
    }

    /// Returns how many PSNs may be outstanding: more on a long path, until packets queue there.
    fn most_psns(&self) -> u32 {
        match self.is_long() && self.average_ns < self.least_ns.saturating_add(self.least_ns / 2) {
            true => limits::MAX_OUTSTANDING_PSNS,
            false => limits::SHORT_OUTSTANDING_PSNS,
        }
    }
}

/// The extent of a loss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loss {
    /// One packet, or some that are far from each other. The peer has kept those behind it.
    One,
    /// So many PSNs, by information of the peer. Packets behind them arrived.
    Some(u32),
    /// All PSNs behind one, as the peer drops them.
    Rest,
    /// All PSNs behind one for which the peer had no receive. The path is not the cause.
    NotReady,
    /// Maybe everything: the peer does not respond.
    Silence,
}

/// What a law allowed before a loss.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    psns: u16,
    threshold: u16,
    since_loss: u16,
}

/// A law of congestion control.
pub(crate) trait Control {
    /// Returns how many PSNs may be outstanding.
    fn psns(&self) -> u32;

    /// Notes that so many PSNs were acknowledged.
    fn acknowledged(&mut self, count: u32, path: &Path);

    /// Notes a loss.
    fn lost(&mut self, loss: Loss, path: &Path);

    /// Notes that the path is congested.
    fn congested(&mut self, path: &Path);

    /// Returns true if the path was congested not long ago.
    fn was_congested(&self) -> bool;
}

/// The law of a requester, with its state.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Controller {
    Window(Window),
    Dcqcn(Dcqcn),
    Fixed,
}

impl Controller {
    /// Returns `law` for a requester whose first packet is `first`.
    pub(crate) const fn new(law: Law, first: Psn) -> Self {
        match law {
            Law::Window => Self::Window(Window::new(first)),
            Law::Dcqcn => Self::Dcqcn(Dcqcn::NEW),
            Law::Fixed => Self::Fixed,
        }
    }

    /// Returns what is needed to [forgive](Self::forgive) a loss.
    pub(crate) fn before(&self) -> Before {
        match self {
            Self::Window(window) => window.before(),
            Self::Dcqcn(_) | Self::Fixed => Before::default(),
        }
    }

    /// Notes that what was taken for lost was only late.
    pub(crate) fn forgive(&mut self, before: Before) {
        if let Self::Window(window) = self {
            window.forgive(before);
        }
    }
}

impl Control for Controller {
    #[inline]
    fn psns(&self) -> u32 {
        match self {
            Self::Window(window) => window.psns(),
            Self::Dcqcn(dcqcn) => dcqcn.psns(),
            Self::Fixed => limits::SHORT_OUTSTANDING_PSNS,
        }
    }

    #[inline]
    fn acknowledged(&mut self, count: u32, path: &Path) {
        match self {
            Self::Window(window) => window.acknowledged(count, path),
            Self::Dcqcn(dcqcn) => dcqcn.acknowledged(count, path),
            Self::Fixed => {}
        }
    }

    fn lost(&mut self, loss: Loss, path: &Path) {
        match self {
            Self::Window(window) => window.lost(loss, path),
            Self::Dcqcn(dcqcn) => dcqcn.lost(loss, path),
            Self::Fixed => {}
        }
    }

    fn congested(&mut self, path: &Path) {
        match self {
            Self::Window(window) => window.congested(path),
            Self::Dcqcn(dcqcn) => dcqcn.congested(path),
            Self::Fixed => {}
        }
    }

    fn was_congested(&self) -> bool {
        match self {
            Self::Window(window) => window.was_congested(),
            Self::Dcqcn(dcqcn) => dcqcn.was_congested(),
            Self::Fixed => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a path with these round trips in microseconds.
    pub(super) fn path(average_us: u32, least_us: u32, at_us: u64) -> Path {
        Path {
            now: Instant::from_ns(at_us * 1000),
            average_ns: average_us * 1000,
            sample_ns: average_us * 1000,
            least_ns: least_us * 1000,
            timeout: AckTimeout::new(14).unwrap(),
            mtu: Mtu::B1024,
            unacked: Psn::new(0),
            end: Psn::new(100),
        }
    }

    #[test]
    fn laws_have_names_and_places() {
        for law in Law::ALL {
            assert_eq!(Law::ALL[law.index()], law);
            assert_eq!(Law::NAMES[law.index()], law.name());
        }
    }

    // Rules: SEG-19
    #[test]
    fn every_law_stays_within_its_bounds() {
        for law in Law::ALL {
            let mut control = Controller::new(law, Psn::new(0));
            for step in 0..20_000u64 {
                let path = path(300 + (step % 700) as u32, 300, step * 7);
                match step % 11 {
                    0 => control.lost(Loss::Some(64), &path),
                    1 => control.congested(&path),
                    2 if step % 5 == 0 => control.lost(Loss::Rest, &path),
                    3 if step % 7 == 0 => control.lost(Loss::Silence, &path),
                    4 if step % 9 == 0 => control.lost(Loss::NotReady, &path),
                    _ => control.acknowledged((step % 600) as u32, &path),
                }
                assert!(control.psns() >= limits::MIN_CONGESTED_PSNS, "{control:?}");
                assert!(
                    control.psns() <= limits::MAX_OUTSTANDING_PSNS,
                    "{control:?}"
                );
            }
            for step in 20_000..200_000u64 {
                control.acknowledged(u32::MAX, &path(100, 100, step * 100));
            }
            assert_eq!(control.psns(), limits::SHORT_OUTSTANDING_PSNS, "{law:?}");
        }
    }
}
