// SPDX-License-Identifier: GPL-2.0

//! Decides which context continues with unfinished work, so that no work is lost.
//!
//! The functions depend only on values that their callers read under a lock or from a flag. They have no
//! effect of their own: the callers act on the results. `C` is a CPU. On a host, the crate `wake` checks
//! these functions against all orders of events.

/// How a run of a half ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Run<C> {
    /// There is nothing to do until the next event.
    Idle,
    /// Too many frames are in the network. The run continues when some of them are freed.
    Blocked,
    /// The memory of the next packet must be faulted in first.
    Absent,
    /// There is more to do.
    More,
    /// That CPU should do it, because its packets would be overtaken.
    Elsewhere(C),
}

/// When to act on the effects of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Act {
    /// For each packet: at once for a single request, and once for a group.
    OnEach,
    /// When the caller has handled all packets.
    AfterAll,
}

/// How a request arrived.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Came {
    /// It seems to be single, so its reply is sent at once.
    Alone,
    /// It is the first of a group. Its reply is sent later.
    First,
    /// It belongs to a group that has begun.
    Behind,
}

/// The context that sends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum SendBy<C> {
    /// The current context.
    Here,
    /// The work item of process context, on that CPU.
    Process(C),
    /// The same, but work items are late there. The timer checks again.
    Queued(C),
    /// The work item of softirq context, on that CPU.
    Softirq(C),
    /// Another context beside the current one, which the policy chooses.
    Beside,
    /// None: another context sends in any case.
    Nobody,
}

/// Returns the CPU that should continue for a half that sent on `last` before. This is `last`, if it is
/// not `here` and `may_be_ahead` is true.
///
/// A work item on that CPU does the work. An offline CPU runs none, and its queues have moved to another
/// CPU. The work item would run there and return the work.
#[inline]
pub(crate) fn ahead<C: Copy + PartialEq>(
    last: Option<C>,
    here: C,
    may_be_ahead: impl FnOnce() -> bool,
    is_online: impl FnOnce(C) -> bool,
) -> Option<C> {
    last.filter(|cpu| *cpu != here && may_be_ahead() && is_online(*cpu))
}

/// Returns true if the packets of `last` are in no queue for a moment: the CPU is offline, but its
/// removal is not complete. Packets of another CPU would overtake them.
#[inline]
pub(crate) fn is_stranded<C: Copy>(
    last: Option<C>,
    may_be_ahead: impl FnOnce() -> bool,
    is_online: impl FnOnce(C) -> bool,
    is_plugging: impl FnOnce() -> bool,
) -> bool {
    last.is_some_and(|cpu| !is_online(cpu) && may_be_ahead() && is_plugging())
}

/// Returns the CPU that sends while a backlog is open. This is `from`, which received the packets, if it
/// is not `here`.
#[inline]
pub(crate) fn origin<C: Copy + PartialEq>(from: Option<C>, here: C) -> Option<C> {
    from.filter(|from| *from != here)
}

/// Returns the context that sends posted requests after a doorbell. `other` returns the CPU that should.
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

/// Conditions under which a run may send.
#[derive(Clone, Copy)]
pub(crate) struct SendGate<C> {
    /// Only a work item may continue to send, so that packets stay in order. Only that work item clears
    /// this.
    pub(crate) is_handed_over: bool,
    /// The data to send waits for memory.
    pub(crate) stops_sending: bool,
    /// The caller has another CPU send, or this one later, or a work item.
    pub(crate) is_left: bool,
    /// Packets ahead are in no queue for a moment. The timer checks again.
    pub(crate) is_stranded: bool,
    /// The CPU whose packets would be overtaken.
    pub(crate) ahead: Option<C>,
}

impl<C: Copy> SendGate<C> {
    /// Returns how the run ends, if it may send nothing.
    #[inline]
    pub(crate) fn closed(self) -> Option<Run<C>> {
        if self.is_handed_over && self.ahead.is_some() {
            return Some(Run::More);
        }
        if self.is_handed_over || self.stops_sending || self.is_left || self.is_stranded {
            return Some(Run::Idle);
        }
        self.ahead.map(Run::Elsewhere)
    }
}

/// Returns true if only a work item may continue after such a run, because packets must stay in order.
#[inline]
pub(crate) fn is_handed_over<C>(run: &Run<C>, needs_order: bool) -> bool {
    needs_order && matches!(run, Run::More)
}

/// Returns the context that sends the requests that a response allows, after `run`. `left_to` is the context
/// to which the run left them: a softirq of the CPU that received the packet, or of this one after the current
/// packets, or the work item of process context.
///
/// A CPU that handles steered packets has another one send for these packets only. So `left_to` cannot be
/// used for another response.
#[inline]
pub(crate) fn after_response<C>(
    run: Run<C>,
    left_to: Option<SendBy<C>>,
    has_left: bool,
    act: Act,
) -> SendBy<C> {
    match (run, left_to) {
        _ if !has_left => SendBy::Nobody,
        (Run::Elsewhere(cpu), _) => SendBy::Process(cpu),
        (_, Some(sender)) if matches!(act, Act::OnEach) => sender,
        _ => SendBy::Nobody,
    }
}

/// Returns the context that sends the requests that a softirq work item did not send. `late` is its CPU, if it
/// left them to the work item of process context there.
#[inline]
pub(crate) fn after_softirq<C>(run: Run<C>, late: Option<C>) -> SendBy<C> {
    match (run, late) {
        (Run::Elsewhere(cpu), _) => SendBy::Process(cpu),
        (_, Some(cpu)) => SendBy::Queued(cpu),
        _ => SendBy::Nobody,
    }
}

/// Returns the context that sends the requests that the timer did not send: it left them to another CPU, or on
/// CPU `late` to the work item of process context. If the other CPU has sent nothing lately, its work items may
/// not get to run. A softirq does.
#[inline]
pub(crate) fn after_timer<C>(
    run: Run<C>,
    late: Option<C>,
    is_unsent: bool,
    has_sent_lately: impl FnOnce() -> bool,
) -> SendBy<C> {
    match (run, late) {
        _ if !is_unsent => SendBy::Nobody,
        (Run::Elsewhere(cpu), _) => match has_sent_lately() {
            true => SendBy::Process(cpu),
            false => SendBy::Softirq(cpu),
        },
        (_, Some(cpu)) => SendBy::Queued(cpu),
        _ => SendBy::Nobody,
    }
}

/// Returns how the run of replies to a request ends, or nothing if it is to run now. `came` counts the
/// request.
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

/// Returns the CPU that has to send the replies instead of this one.
#[inline]
pub(crate) fn replies_elsewhere<C>(
    ahead: Option<C>,
    needs_poll: impl FnOnce() -> bool,
) -> Option<C> {
    ahead.filter(|_| needs_poll())
}

/// The work item to queue after a run of replies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Rest {
    /// None.
    Nothing,
    /// The work item that replies.
    Reply,
    /// The work item that faults memory in.
    Fault,
}

/// Returns the work item to queue after a run of replies.
#[inline]
pub(crate) fn after_replies<C>(run: &Run<C>) -> Rest {
    match run {
        Run::More => Rest::Reply,
        Run::Absent => Rest::Fault,
        Run::Idle | Run::Blocked | Run::Elsewhere(_) => Rest::Nothing,
    }
}

/// Returns the CPU on which the work item of process context continues, for a half that sent on `last`
/// before. None means any CPU.
#[inline]
pub(crate) fn place<C>(
    last: Option<C>,
    needs_order: bool,
    is_stream: impl FnOnce() -> bool,
) -> Option<C> {
    last.filter(|_| needs_order || is_stream())
}

/// The fate of a packet that reaches a backlog.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Put<C> {
    /// It waits behind other packets, which a work item handles.
    Behind,
    /// There is no room. The receiving CPU handles the oldest packet.
    Full,
    /// It opens the backlog for that CPU. The caller must queue the work item.
    First(C),
    /// No packet waits, so it is handled here.
    Here,
}

/// Returns the fate of a packet that `other` should handle.
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

/// The work item that continues with a backlog.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Further {
    /// None: the backlog is closed, and the next packet queues one.
    Nobody,
    /// The softirq work item, once more.
    Again,
    /// The work item of process context.
    Left,
}

/// Returns the work item that continues with a backlog. `more` says whether the run left packets in it.
#[inline]
pub(crate) fn further(more: bool, gives_way: impl FnOnce() -> bool) -> Further {
    match more {
        false => Further::Nobody,
        true if gives_way() => Further::Left,
        true => Further::Again,
    }
}
