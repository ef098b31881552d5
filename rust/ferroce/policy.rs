// SPDX-License-Identifier: GPL-2.0

//! How work is best done: guesses, from which nothing but speed depends.
//!
//! They are functions of what was seen, and do nothing. They know of no queue pair and no kernel, so that
//! they are tested on a host, by the crate `wake`.

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
    /// What a doorbell takes away that found nothing outstanding. Who posts six requests at a time and
    /// waits for them gains by being served beside; who posts four loses, unless they are small.
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
