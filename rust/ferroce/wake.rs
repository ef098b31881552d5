// SPDX-License-Identifier: GPL-2.0

//! Decides which context does what is left, so that no work is ever lost.
//!
//! These are functions of what was read under a lock, or from a flag. They do nothing: their callers do
//! what they say. `C` is a CPU. On a host the crate `wake` goes through all orders in which the calls
//! may happen, with these very functions in them.

/// How a run of a half ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Run<C> {
    /// There is nothing to do, until something happens that starts it again.
    Idle,
    /// Too many frames are still on their way down: it goes on when some of them are gone.
    Blocked,
    /// The next packet is of memory that has to be faulted in: it goes on after that.
    Absent,
    /// There is more to do.
    More,
    /// That CPU had better do it, as its packets would be overtaken.
    Elsewhere(C),
}

/// When to act on what a packet leads to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Act {
    /// On each: at once where requests come alone, and otherwise once for all that come together.
    OnEach,
    /// When the caller says so, once for all that it handles.
    AfterAll,
}

/// How a request came.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Came {
    /// Alone, it seems: it is to be answered at once.
    Alone,
    /// As the first that has its answer given later.
    First,
    /// Behind such a one: its answer is given with that.
    Behind,
}

/// The context that sends what may be sent now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum SendBy<C> {
    /// The context that asks.
    Here,
    /// The work item of process context, on that CPU.
    Process(C),
    /// The work item of softirqs, on that CPU.
    Softirq(C),
    /// Another context beside the one that asks, see the policy.
    Beside,
    /// None: another context does so anyway.
    Nobody,
}

/// The CPU to leave things to, for a half that has sent on `last` before: if it is another than `here`,
/// and `may_be_ahead` with what it has sent.
///
/// What is left to it is done by a work item there. A CPU that is offline runs none: what was in its
/// queues is in another one's by then, and the CPU that was asked in its place would ask it again.
#[inline]
pub(crate) fn ahead<C: Copy + PartialEq>(
    last: Option<C>,
    here: C,
    may_be_ahead: impl FnOnce() -> bool,
    is_online: impl FnOnce(C) -> bool,
) -> Option<C> {
    last.filter(|cpu| *cpu != here && may_be_ahead() && is_online(*cpu))
}

/// Returns the CPU that sends while a backlog is open: that which received the packets, `from`, if it is
/// another one than `here`.
#[inline]
pub(crate) fn origin<C: Copy + PartialEq>(from: Option<C>, here: C) -> Option<C> {
    from.filter(|from| *from != here)
}

/// Returns the context that sends what was posted, after a doorbell. `other` is the CPU that should.
#[inline]
pub(crate) fn after_doorbell<C>(
    origin: Option<C>,
    other: impl FnOnce() -> Option<C>,
    is_stream: bool,
) -> SendBy<C> {
    match origin.or_else(other) {
        Some(cpu) => SendBy::Process(cpu),
        None if is_stream => SendBy::Beside,
        None => SendBy::Here,
    }
}

/// What says whether the send half may be used.
#[derive(Clone, Copy)]
pub(crate) struct SendGate<C> {
    /// A work item will go on sending, and nobody else may, so that packets stay in order. It is cleared
    /// by that work item alone.
    pub(crate) is_handed_over: bool,
    /// What is to be sent waits for memory.
    pub(crate) stops_sending: bool,
    /// The caller leaves it to another CPU, and sees to that.
    pub(crate) is_left: bool,
    /// The CPU whose packets would be overtaken.
    pub(crate) ahead: Option<C>,
}

impl<C: Copy> SendGate<C> {
    /// Returns how the run ends if nothing may be sent in it.
    #[inline]
    pub(crate) fn closed(self) -> Option<Run<C>> {
        if self.is_handed_over && self.ahead.is_some() {
            return Some(Run::More);
        }
        if self.is_handed_over || self.stops_sending || self.is_left {
            return Some(Run::Idle);
        }
        self.ahead.map(Run::Elsewhere)
    }
}

/// Whether a work item goes on alone after such a run, where packets have to stay in order.
#[inline]
pub(crate) fn is_handed_over<C>(run: &Run<C>, needs_order: bool) -> bool {
    needs_order && matches!(run, Run::More)
}

/// Returns the context that sends what a response allows to be sent, after `run`; `origin` is the CPU to
/// which that left it.
///
/// A CPU that handles packets that were put aside has `origin` send for those alone, so this cannot be
/// left to it for any other.
#[inline]
pub(crate) fn after_response<C>(
    run: Run<C>,
    origin: Option<C>,
    has_left: bool,
    act: Act,
) -> SendBy<C> {
    match (run, origin) {
        _ if !has_left => SendBy::Nobody,
        (Run::Elsewhere(cpu), _) => SendBy::Process(cpu),
        (_, Some(cpu)) if matches!(act, Act::OnEach) => SendBy::Softirq(cpu),
        _ => SendBy::Nobody,
    }
}

/// Returns the context that sends what a run of the timer has left to another CPU, if something is unsent. The
/// work items of that CPU may have to wait, which it shows by sending nothing; a softirq does not.
#[inline]
pub(crate) fn after_timer<C>(
    run: Run<C>,
    is_unsent: bool,
    has_sent_lately: impl FnOnce() -> bool,
) -> SendBy<C> {
    match run {
        Run::Elsewhere(cpu) if is_unsent => match has_sent_lately() {
            true => SendBy::Process(cpu),
            false => SendBy::Softirq(cpu),
        },
        _ => SendBy::Nobody,
    }
}

/// Returns how the run of replies ends that a request led to, or nothing if it is to be run now.
/// `came` notes the request.
#[inline]
pub(crate) fn after_request<C>(is_elsewhere: bool, came: impl FnOnce() -> Came) -> Option<Run<C>> {
    if is_elsewhere {
        return Some(Run::More);
    }
    match came() {
        Came::Alone => None,
        Came::First => Some(Run::More),
        Came::Behind => Some(Run::Idle),
    }
}

/// The CPU that has to send what is owed in place of this one.
#[inline]
pub(crate) fn replies_elsewhere<C>(
    ahead: Option<C>,
    needs_poll: impl FnOnce() -> bool,
) -> Option<C> {
    ahead.filter(|_| needs_poll())
}

/// What is to be queued after a run of replies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Rest {
    Nothing,
    /// The work item that replies.
    Reply,
    /// The one that faults memory in.
    Fault,
}

/// What goes on after a run of replies.
#[inline]
pub(crate) fn after_replies<C>(run: &Run<C>) -> Rest {
    match run {
        Run::More => Rest::Reply,
        Run::Absent => Rest::Fault,
        Run::Idle | Run::Blocked | Run::Elsewhere(_) => Rest::Nothing,
    }
}

/// The CPU on which the work item of process context has to go on, or had better, for a half that has sent on
/// `last` before; any if none is returned.
#[inline]
pub(crate) fn place<C>(
    last: Option<C>,
    needs_order: bool,
    is_stream: impl FnOnce() -> bool,
) -> Option<C> {
    last.filter(|_| needs_order || is_stream())
}

/// What becomes of a packet that comes to a backlog.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Put<C> {
    /// It waits behind others, of which a work item knows.
    Behind,
    /// There is no room for it: the CPU that brings it handles the oldest.
    Full,
    /// It opens the backlog for that CPU, which has to be told.
    First(C),
    /// None waits, so it is handled here.
    Here,
}

/// What does, of one that had better be handled by `other`.
#[inline]
pub(crate) fn put<C>(
    is_open: bool,
    is_empty: bool,
    has_room: impl FnOnce() -> bool,
    other: Option<C>,
) -> Put<C> {
    match other {
        _ if is_open && !is_empty && !has_room() => Put::Full,
        _ if is_open => Put::Behind,
        Some(cpu) => Put::First(cpu),
        None => Put::Here,
    }
}

/// The work item that goes on with a backlog.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Further {
    /// It is closed: the next packet has somebody told.
    Nobody,
    /// The work item of softirqs, once more.
    Again,
    /// The work item of process context.
    Left,
}

/// Returns that, after a run that has left `more` in it or not.
#[inline]
pub(crate) fn further(more: bool, gives_way: impl FnOnce() -> bool) -> Further {
    match more {
        false => Further::Nobody,
        true if gives_way() => Further::Left,
        true => Further::Again,
    }
}
