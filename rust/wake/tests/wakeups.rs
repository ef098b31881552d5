// SPDX-License-Identifier: GPL-2.0

//! No work of a queue pair is ever left without a context that does it. The search finds each rule
//! that is broken.

use wake::explore::explore;
use wake::world::{Broken, Late, Memory, Scenario};

/// More states than these are too many to look at in a test.
const MOST: usize = 1_000_000;

const NOTHING: Scenario = Scenario::NOTHING;

/// One request is outstanding, and one waits behind it, while a request of the peer arrives that
/// may be steered to another CPU.
const BUSY: Scenario = Scenario {
    is_busy: true,
    requests: 1,
    aside: 1,
    ..NOTHING
};

const LATE: Scenario = Scenario {
    late: Late::Maybe,
    ..BUSY
};

const REPLIES: Scenario = Scenario {
    requests: 2,
    offline: 1,
    ..NOTHING
};

const ORDERED: Scenario = Scenario {
    needs_order: true,
    posts: 3,
    credit: 2,
    offline: 1,
    returns: true,
    ..NOTHING
};

const POSTS: Scenario = Scenario {
    posts: 2,
    credit: 1,
    ..NOTHING
};

const STREAM: Scenario = Scenario {
    is_stream: true,
    posts: 2,
    ..NOTHING
};

const BACKLOG: Scenario = Scenario {
    requests: 3,
    aside: 1,
    ..NOTHING
};

const GONE: Scenario = Scenario {
    requests: 2,
    reply_memory: Memory::Gone,
    faults_elsewhere: true,
    ..NOTHING
};

/// Checks a scenario over a card, and with receivers in this machine.
fn nothing_is_left(scenario: Scenario) {
    for is_local in [false, true] {
        let scenario = Scenario {
            is_local,
            ..scenario
        };
        let found = explore(&scenario, MOST);
        println!("{} states of {scenario:?}", found.states);
        if let Some(violation) = found.violation {
            panic!("{violation}");
        }
    }
}

/// Checks the violation that a broken rule causes.
fn breaks(broken: Broken, scenario: Scenario, expected: &str) {
    let scenario = Scenario {
        broken: Some(broken),
        ..scenario
    };
    let found = explore(&scenario, MOST);
    println!("{} states of {scenario:?}", found.states);
    let violation = found.violation.expect("it should have been found");
    println!("{violation}");
    assert!(violation.starts_with(expected), "{violation}");
}

#[test]
fn doorbells_and_responses() {
    nothing_is_left(POSTS);
    nothing_is_left(Scenario {
        is_recent: true,
        credit: 2,
        ..POSTS
    });
}

#[test]
fn streams() {
    nothing_is_left(STREAM);
}

#[test]
fn the_timer() {
    nothing_is_left(Scenario {
        posts: 1,
        losses: 1,
        offline: 1,
        ..NOTHING
    });
    nothing_is_left(Scenario {
        losses: 1,
        guesses: 1,
        ..POSTS
    });
}

#[test]
fn packets_that_are_put_aside() {
    nothing_is_left(Scenario {
        guesses: 1,
        ..BACKLOG
    });
    nothing_is_left(Scenario {
        requests: 2,
        offline: 1,
        ..BACKLOG
    });
}

#[test]
fn packets_that_are_put_aside_while_a_request_waits() {
    nothing_is_left(BUSY);
}

#[test]
fn work_items_that_may_be_late() {
    nothing_is_left(Scenario { guesses: 1, ..LATE });
    nothing_is_left(Scenario {
        late: Late::Maybe,
        losses: 1,
        guesses: 1,
        ..POSTS
    });
    nothing_is_left(Scenario {
        late: Late::Maybe,
        offline: 1,
        guesses: 1,
        ..POSTS
    });
    nothing_is_left(Scenario {
        late: Late::Maybe,
        posts: 2,
        guesses: 1,
        ..ORDERED
    });
    nothing_is_left(Scenario {
        late: Late::Maybe,
        ..STREAM
    });
}

#[test]
fn work_items_that_are_late() {
    for scenario in [BUSY, POSTS, STREAM] {
        nothing_is_left(Scenario {
            late: Late::Always,
            guesses: 1,
            ..scenario
        });
    }
    nothing_is_left(Scenario {
        late: Late::Always,
        posts: 2,
        guesses: 1,
        ..ORDERED
    });
}

#[test]
fn three_cpus() {
    nothing_is_left(Scenario {
        cpus: 3,
        returns: true,
        ..REPLIES
    });
    nothing_is_left(Scenario {
        cpus: 3,
        posts: 2,
        ..ORDERED
    });
}

#[test]
fn replies_while_a_cpu_goes_and_comes() {
    nothing_is_left(Scenario {
        requests: 3,
        ..REPLIES
    });
    nothing_is_left(Scenario {
        returns: true,
        ..REPLIES
    });
}

#[test]
fn packets_in_order_while_a_cpu_goes_and_comes() {
    nothing_is_left(ORDERED);
    nothing_is_left(Scenario {
        credit: 1,
        guesses: 1,
        ..ORDERED
    });
    nothing_is_left(Scenario {
        credit: 1,
        returns: false,
        ..ORDERED
    });
}

#[test]
fn a_request_while_a_cpu_goes() {
    nothing_is_left(Scenario {
        posts: 1,
        requests: 1,
        offline: 1,
        guesses: 1,
        ..NOTHING
    });
}

#[test]
fn memory_that_is_absent_or_gone() {
    for memory in [Memory::Absent, Memory::Gone] {
        nothing_is_left(Scenario {
            posts: 2,
            send_memory: memory,
            ..NOTHING
        });
        nothing_is_left(Scenario {
            requests: 2,
            reply_memory: memory,
            ..NOTHING
        });
    }
    nothing_is_left(Scenario {
        is_busy: true,
        requests: 1,
        guesses: 1,
        placed_memory: Memory::Absent,
        ..NOTHING
    });
}

#[test]
fn a_response_must_not_be_left_to_the_origin() {
    let expected = "a request to be sent is left";
    breaks(Broken::LeavesResponses, BUSY, expected);
    breaks(Broken::LeavesBatches, BUSY, expected);
    breaks(Broken::LeavesRest, BUSY, expected);
    breaks(Broken::LeavesGroups, BUSY, expected);
    breaks(Broken::LeavesQueued, LATE, expected);
}

#[test]
fn nothing_must_be_left_to_a_cpu_that_is_offline() {
    let expected = "handed to and fro";
    breaks(Broken::LeavesToOffline, REPLIES, expected);
    let ordered = Scenario {
        posts: 2,
        returns: false,
        ..ORDERED
    };
    breaks(Broken::LeavesToOffline, ordered, expected);
}

#[test]
fn what_is_in_no_queue_must_not_be_overtaken() {
    let expected = "a frame in no queue is overtaken";
    breaks(Broken::SendsAtOnce, ORDERED, expected);
}

#[test]
fn whoever_waits_for_that_must_look_again() {
    let expected = "a request to be sent is left";
    breaks(Broken::ForgetsStranded, ORDERED, expected);
}

#[test]
fn the_work_item_must_take_its_turn() {
    breaks(Broken::HasNoTurn, BUSY, "the work item runs twice");
    breaks(Broken::HasNoTurn, ORDERED, "the work item runs twice");
}

#[test]
fn who_finds_the_turn_taken_must_leave_a_mark() {
    let expected = "a request to be sent is left";
    breaks(Broken::LeavesNoMark, BUSY, expected);
}

#[test]
fn a_backlog_must_be_left_to_somebody() {
    breaks(Broken::ForgetsBacklog, BACKLOG, "an open backlog is left");
}

#[test]
fn a_deferred_half_must_be_left_to_somebody() {
    let expected = "a request to be sent is left";
    breaks(Broken::ForgetsHandover, ORDERED, expected);
}

#[test]
fn memory_must_be_waited_for_by_somebody() {
    let absent = Scenario {
        posts: 1,
        send_memory: Memory::Absent,
        ..NOTHING
    };
    breaks(Broken::ForgetsFaults, absent, "a request to be sent");
}

#[test]
fn that_memory_is_gone_must_be_told() {
    nothing_is_left(GONE);
    breaks(Broken::LeavesFailures, GONE, "handed to and fro");
}

#[test]
fn credit_must_wake_who_wants_it() {
    let expected = "a request to be sent is left";
    breaks(Broken::ForgetsCredit, ORDERED, expected);
}
