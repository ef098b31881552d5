// SPDX-License-Identifier: GPL-2.0

//! The decisions of each rule of the policy in the cases that matter.

use crate::policy::{
    is_apart, is_backlog_run_over, is_late, is_late_over, is_long_share, is_long_wait, is_sending,
    is_turn_over, Arrivals, Budget, Habit, Overtaking, Placement, Sent, Stamp, StreamHints, Watch,
    BATCH, LARGE, MOST_ASIDE, MUCH, SLOW_NS,
};
use crate::wake::Came;

const MS: u64 = 1_000_000;
const LOSES: Overtaking = Overtaking::Loses { is_strict: false };

fn place(other: Option<u8>, is_crowded: bool, is_batch_full: bool) -> Placement<u8> {
    let hints = StreamHints {
        other,
        is_crowded,
        is_batch_full,
    };
    hints.place()
}

#[test]
fn a_stream_is_sent_beside_its_poster() {
    assert_eq!(place(Some(3), false, false), Placement::Unbound);
    assert_eq!(place(Some(3), true, false), Placement::On(3));
}

#[test]
fn on_the_only_cpu_a_stream_waits_for_more_of_it_but_not_for_long() {
    assert!(matches!(place(None, false, false), Placement::After(ns) if ns <= MS));
    assert_eq!(place(None, false, true), Placement::Here);
    const { assert!(BATCH > 1) };
}

fn sent(at: u64, much_at: u64) -> Sent {
    Sent {
        at: Stamp::new(at),
        much_at: Stamp::new(much_at),
        is_acknowledged: false,
    }
}

#[test]
fn where_overtaking_loses_what_is_in_flight_is_never_overtaken() {
    let now = 1_000_000 * MS;
    let old = sent(now - 1000 * MS, now - 1000 * MS);
    assert!(old.may_be_overtaken(LOSES, 1, || now));
    assert!(!old.may_be_overtaken(LOSES, 0, || now));
    let strict = Overtaking::Loses { is_strict: true };
    let little = sent(now - MS / 2, 0);
    assert!(little.may_be_overtaken(strict, 0, || now));
    assert!(!little.may_be_overtaken(strict, 0, || now + MS));
    assert!(!little.may_be_overtaken(LOSES, 0, || now));
    let much = sent(now - 2 * MS, now - 2 * MS);
    assert!(much.may_be_overtaken(LOSES, 0, || now));
    let later = now + SLOW_NS;
    assert!(!much.may_be_overtaken(LOSES, 0, || later));
}

#[test]
fn where_overtaking_costs_little_the_bond_ends_with_the_acknowledgement_or_in_time() {
    let now = 1_000_000 * MS;
    let local = Overtaking::Costs { is_local: true };
    let far = Overtaking::Costs { is_local: false };
    let recent = sent(now - 5 * MS, 0);
    assert!(recent.may_be_overtaken(local, 0, || now + 500 * MS));
    assert!(!recent.may_be_overtaken(local, 1, || now + 1000 * MS));
    assert!(recent.may_be_overtaken(far, 1, || now));
    assert!(!recent.may_be_overtaken(far, 0, || now));
    assert!(!recent.may_be_overtaken(far, 1, || now + SLOW_NS));
    let much = sent(0, now - MS / 2);
    assert!(much.may_be_overtaken(far, 0, || now));
    assert!(!much.may_be_overtaken(far, 0, || now + MS));
    for known in [recent, much] {
        let known = Sent {
            is_acknowledged: true,
            ..known
        };
        assert!(!known.may_be_overtaken(local, 1, || now));
        assert!(!known.may_be_overtaken(far, 1, || now));
    }
}

#[test]
fn a_stream_waits_for_much_that_was_sent_just_now() {
    let now = 1_000_000 * MS;
    let much = sent(0, now - MS / 2);
    assert!(much.is_much_ahead(|| now));
    assert!(!much.is_much_ahead(|| now + MS));
    let known = Sent {
        is_acknowledged: true,
        ..much
    };
    assert!(!known.is_much_ahead(|| now));
}

#[test]
fn a_turn_is_over_in_time() {
    let now = 1_000_000 * MS;
    assert!(is_turn_over(0, now));
    assert!(!is_turn_over(now, now));
    assert!(!is_turn_over(now, now + MS / 4));
    assert!(is_turn_over(now, now + MS));
}

#[test]
fn a_work_item_that_waits_long_gets_another_worker_for_a_time() {
    let now = 1_000_000 * MS;
    let at = Stamp::new(now);
    assert!(!is_long_wait(at, now + 9 * MS));
    assert!(is_long_wait(at, now + 11 * MS));
    assert!(!is_long_share(at, now + 39 * MS));
    assert!(is_long_share(at, now + 41 * MS));
    assert!(is_apart(at, now + 99 * MS));
    assert!(!is_apart(at, now + 101 * MS));
}

#[test]
fn stamps_go_on_past_32_bits() {
    // 73 minutes are 2^32 units: a stamp just before is recent just after.
    let turn = 1u64 << 42;
    let much = sent(0, turn - MS / 4);
    assert!(much.is_much_ahead(|| turn + MS / 4));
}

/// Returns how many packets of so many bytes a run sends.
fn run(is_own: bool, bytes: u32, is_cpu_wanted: bool) -> u32 {
    packets_of(Budget::new(is_own), bytes, is_cpu_wanted)
}

fn packets_of(mut budget: Budget, bytes: u32, is_cpu_wanted: bool) -> u32 {
    let mut packets = 0;
    while !budget.is_spent(|| is_cpu_wanted) {
        budget.spend(bytes);
        packets += 1;
        assert!(packets < 10_000);
    }
    packets
}

#[test]
fn a_run_is_bounded_in_packets_and_bytes() {
    assert_eq!(run(false, 0, false), 64);
    assert_eq!(run(false, 4096, false), 31);
    assert_eq!(run(true, 4096, false), 15);
    assert_eq!(run(true, 32 << 10, false), 2);
    assert_eq!(run(false, u32::MAX, false), 1);
}

#[test]
fn a_run_is_shorter_if_others_want_the_cpu_but_never_nothing() {
    assert_eq!(run(false, 4096, true), 8);
    assert_eq!(run(false, 64 << 10, true), 1);
    assert_eq!(run(false, 64, true), 64);
}

#[test]
fn a_run_of_datagrams_is_bounded_in_packets() {
    for is_cpu_wanted in [false, true] {
        assert_eq!(packets_of(Budget::of_datagrams(), 4096, is_cpu_wanted), 64);
    }
}

#[test]
fn a_backlog_is_handled_in_runs() {
    assert!(!is_backlog_run_over(7, || true));
    assert!(is_backlog_run_over(8, || true));
    assert!(!is_backlog_run_over(63, || false));
    assert!(is_backlog_run_over(64, || false));
}

#[test]
fn a_cpu_that_has_sent_much_goes_on_for_a_millisecond() {
    assert!(is_sending(10 * MS, 10 * MS + MS / 2));
    assert!(!is_sending(10 * MS, 11 * MS));
    // The clock of another CPU may be ahead.
    assert!(is_sending(10 * MS, 9 * MS));
}

#[test]
fn what_is_much_is_more_than_what_is_large() {
    const { assert!((LARGE as u64) < MUCH) };
    const { assert!(MOST_ASIDE > 0) };
}

#[test]
fn requests_that_come_alone_are_answered_at_once_in_the_end() {
    let mut arrivals = Arrivals::default();
    let mut at_once = 0;
    for _ in 0..100 {
        match arrivals.note() {
            Came::Alone => at_once += 1,
            Came::First => arrivals.end(),
            Came::Behind => panic!("none was waiting"),
        }
    }
    assert!(at_once > 85, "{at_once}");
}

#[test]
fn requests_that_come_together_are_answered_together() {
    let mut arrivals = Arrivals::default();
    for _ in 0..20 {
        assert_eq!(arrivals.note(), Came::First);
        for _ in 0..7 {
            assert_eq!(arrivals.note(), Came::Behind);
        }
        arrivals.end();
    }
}

/// Returns how long an owner counts as one that sleeps, in milliseconds after it last armed its queue.
fn asleep_ms(habit: Habit, is_kernel: bool) -> u32 {
    let counts = |ms| habit.sleeps(is_kernel, |limit| ms > limit);
    (0..5000).take_while(|ms| counts(*ms)).count() as u32
}

#[test]
fn an_owner_that_armed_its_queue_once_may_poll() {
    let once = Habit::Polls.armed(false);
    assert_eq!(once, Habit::ArmedOnce);
    assert_eq!(asleep_ms(Habit::Polls, false), 0);
    assert_eq!(asleep_ms(once, false), Habit::ONCE_MS + 1);
    // Arming again without an event is no sign of sleep.
    assert_eq!(once.armed(false), once);
}

#[test]
fn an_owner_that_arms_after_an_event_sleeps() {
    let often = Habit::ArmedOnce.armed(true);
    assert_eq!(often, Habit::Sleeps);
    assert_eq!(often.armed(false), Habit::Sleeps);
    assert_eq!(asleep_ms(often, false), Habit::OFTEN_MS + 1);
    assert_eq!(
        asleep_ms(Habit::Polls.armed(false), true),
        5000,
        "the kernel"
    );
}

#[test]
fn a_habit_survives_its_word() {
    for habit in [Habit::Polls, Habit::ArmedOnce, Habit::Sleeps] {
        assert_eq!(Habit::from_bits(habit.to_bits()), habit);
    }
}

/// Has a completion written every millisecond but those of `pause`, and the owner poll all of them when `polls` says
/// so. Returns when it counts as one that polls.
fn polls_after(
    is_armed: bool,
    pause: core::ops::Range<u32>,
    polls: impl Fn(u32) -> bool,
) -> Option<u32> {
    let mut watch = Watch::new(0u32);
    watch.begin(0, 0);
    let mut consumer = 0;
    (1..500).find(|now| {
        if pause.contains(now) {
            return false;
        }
        if polls(*now) {
            consumer = *now;
        }
        let is_polled = watch.is_polled(*now, consumer, is_armed, |then, ms| now - then > ms);
        watch.note_written(*now);
        is_polled
    })
}

#[test]
fn an_owner_that_polls_without_arming_is_noticed() {
    const PERIOD: u32 = Watch::<u32>::AWAKE_MS + 1;
    assert_eq!(polls_after(false, 0..0, |_| true), Some(PERIOD));
    assert_eq!(polls_after(true, 0..0, |_| true), Some(2 * PERIOD));
    assert_eq!(polls_after(false, 0..0, |_| false), None);
    // It polled once and slept then.
    assert_eq!(polls_after(true, 0..0, |now| now < PERIOD), None);
    // A pause does not count, nor does what was before it.
    let pause = 10..10 + PERIOD + 1;
    let after = pause.end + PERIOD;
    assert_eq!(polls_after(false, pause, |_| true), Some(after));
    let pause = PERIOD + 1..2 * PERIOD + 2;
    let after = pause.end + 2 * PERIOD;
    assert_eq!(polls_after(true, pause, |_| true), Some(after));
}

#[test]
fn work_items_are_late_after_a_long_wait_unless_none_begins_at_all() {
    let now = 10_000 * MS;
    let ago = |ns: Option<u64>| ns.map(|ns| Stamp::new(now - ns));
    let late = |late_at, waits| is_late(ago(late_at), ago(waits), || now);
    let lately = Some(90 * MS);
    assert!(!late(None, None));
    assert!(late(lately, None));
    assert!(!late(Some(110 * MS), None));
    assert!(!late(None, Some(9 * MS)));
    assert!(late(None, Some(11 * MS)));
    assert!(late(lately, Some(MS)));
    assert!(late(lately, Some(490 * MS)));
    assert!(!late(lately, Some(510 * MS)));
    assert!(late(Some(110 * MS), Some(11 * MS)));
    assert!(!is_late_over(Stamp::new(now - 90 * MS), now));
    assert!(is_late_over(Stamp::new(now - 110 * MS), now));
}
