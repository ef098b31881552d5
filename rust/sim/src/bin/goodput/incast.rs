// SPDX-License-Identifier: GPL-2.0

//! Many senders and one port, under each law of congestion control.

use sim::flow::{fairness, quantile, Measured};
use sim::plan::Plan;
use sim::run::run;
use sim::sabotage::Sabotage;

use crate::figure::{Figure, Line};
use crate::table::table;
use crate::transfer::LINK_GBPS;

/// The queue of the port, and how it marks.
const QUEUE_KIB: u32 = 1024;
const MARK_MIN_KIB: u32 = 40;
const MARK_MAX_KIB: u32 = 200;
const MARK_CHANCE: f64 = 0.1;

/// The laws, by the names that plans have for them.
const LAWS: [&str; 3] = ["fixed", "dcqcn", "window"];

/// The flows that compete for the port.
struct Scenario {
    name: &'static str,
    /// Flows that have as much to send as they may, as plans have them.
    long: &'static str,
    /// Flows that send a short message now and then.
    short: usize,
}

/// The senders of a figure are those of a number alone, which come first.
const SCENARIOS: [Scenario; 9] = [
    Scenario {
        name: "2",
        long: "count = 2",
        short: 0,
    },
    Scenario {
        name: "8",
        long: "count = 8",
        short: 0,
    },
    Scenario {
        name: "16",
        long: "count = 16",
        short: 0,
    },
    Scenario {
        name: "32",
        long: "count = 32",
        short: 0,
    },
    Scenario {
        name: "64",
        long: "count = 64",
        short: 0,
    },
    Scenario {
        name: "32, READs",
        long: "count = 32, op = 'read'",
        short: 0,
    },
    Scenario {
        name: "32, go back n",
        long: "count = 16 }, { count = 16, drops_early = true",
        short: 0,
    },
    Scenario {
        name: "8, 8 short",
        long: "count = 8",
        short: 8,
    },
    Scenario {
        name: "32, 8 short",
        long: "count = 32",
        short: 8,
    },
];

/// Scenarios that are in the figure.
const IN_FIGURE: usize = 5;

/// The results, by law.
pub struct Incasts(Vec<Measurements>);

/// The results of a law.
struct Measurements {
    /// The results of the scenarios, in order.
    scenarios: Vec<Measured>,
    /// The result of flows that join and leave.
    change: Measured,
}

/// The times of a run, in microseconds: when measuring begins and ends, and the time between two
/// samples.
const MEASURED_US: [u32; 3] = [10_000, 40_000, 1_000];

/// Runs a scenario.
fn measure(law: &str, scenario: &Scenario) -> Result<Measured, String> {
    let [_, to_us, _] = MEASURED_US;
    let common = format!("stop_us = {to_us}, law = '{law}'");
    let long = scenario.long.replace(" }", &format!(", {common} }}"));
    let flows = format!(
        "{{ {long}, {common} }},
         {{ count = {}, bytes = 1024, depth = 1, every_us = 100, {common} }}",
        scenario.short
    );
    run_flows(&flows, MEASURED_US)
}

/// Runs flows through the port.
fn run_flows(flows: &str, [from_us, to_us, every_us]: [u32; 3]) -> Result<Measured, String> {
    let plan = Plan::parse(&format!(
        "nodes = 73
         flows = [{flows}]
         measure = {{ from_us = {from_us}, to_us = {to_us}, every_us = {every_us} }}
         link = {{ delay_us = 5, rate_gbps = {LINK_GBPS} }}
         node = {{ batch = 16 }}
         port = {{ towards = 1, rate_gbps = {LINK_GBPS}, queue_kib = {QUEUE_KIB},
                   mark_min_kib = {MARK_MIN_KIB}, mark_max_kib = {MARK_MAX_KIB},
                   mark_chance = {MARK_CHANCE} }}
         qp = {{ mtu = [1024], timeout = 14, window = 32, drops_early = 0, rd_atomic = 16 }}
         work = {{ receives = 1 }}
         storm = 3
         resends = 1000"
    ))?;
    let outcome = run(&plan, 0, Sabotage::None);
    match outcome.failure {
        Some(what) => Err(format!("{flows}: {what}")),
        None => Ok(outcome.measured.unwrap_or_default()),
    }
}

/// When flows join and leave, and when that ends, in microseconds.
const JOIN_US: u32 = 20_000;
const LEAVE_US: u32 = 40_000;
const END_US: u32 = 60_000;

/// Runs eight flows; eight more join, and the first eight leave.
fn measure_change(law: &str) -> Result<Measured, String> {
    let flows = format!(
        "{{ count = 8, law = '{law}', stop_us = {LEAVE_US} }},
         {{ count = 8, law = '{law}', start_us = {JOIN_US}, stop_us = {END_US} }}"
    );
    run_flows(&flows, [1_000, END_US, 1_000])
}

/// Returns a row of the table of flows that join and leave.
fn change_cells(law: &str, measured: &Measured) -> Vec<String> {
    let ns = |us: u32| u64::from(us) * 1000;
    let moved = |from_us, to_us| measured.moved(ns(from_us), ns(to_us));
    let window_us = 4_000;
    let starts = (JOIN_US..LEAVE_US - window_us).step_by(1_000);
    let mut fair = starts.filter(|at| fairness(&moved(*at, at + window_us)) >= 0.9);
    let after = fair
        .next()
        .map_or("–".into(), |at| format!("{} ms", (at - JOIN_US) / 1000));
    let last = moved(LEAVE_US - 8_000, LEAVE_US);
    let mbps = |at: u32| moved(at, at + 1_000).iter().sum::<u64>() * 8 / 1000;
    let slowest = (LEAVE_US..END_US).step_by(1_000).map(mbps).min();
    vec![
        law.to_owned(),
        format!("{:.3}", fairness(&moved(4_000, JOIN_US)[..8])),
        after,
        format!("{:.3}", fairness(&last)),
        format!("{}", slowest.unwrap_or(0)),
    ]
}

fn cells(law: &str, scenario: &Scenario, measured: &Measured) -> Vec<String> {
    let moved = measured.moved(0, u64::MAX);
    let (long, _) = moved.split_at(moved.len() - scenario.short);
    let (before, port) = (&measured.before, &measured.port);
    let percent = |share: f64| format!("{:.2}%", 100.0 * share);
    let of_packets = |count: u64| percent(count as f64 / port.packets.max(1) as f64);
    let times = measured.times_ns.split_at(long.len());
    let p99_us = |times: &[Vec<u64>]| match times.concat().as_slice() {
        [] => String::from("–"),
        times => format!("{:.0}", quantile(times, 0.99) as f64 / 1e3),
    };
    vec![
        law.to_owned(),
        scenario.name.to_owned(),
        percent(port.utilisation()),
        format!("{:.3}", fairness(long)),
        before.drops().to_string(),
        of_packets(port.drops()),
        of_packets(port.marks),
        format!("{:.0}", port.mean_bytes() / 1024.0),
        format!("{}", port.p99_bytes() / 1024),
        p99_us(times.0),
        p99_us(times.1),
    ]
}

impl Incasts {
    /// Measures all of it.
    pub fn measure() -> Result<Self, String> {
        let mut laws = Vec::new();
        for law in LAWS {
            let mut scenarios = Vec::new();
            for scenario in &SCENARIOS {
                scenarios.push(measure(law, scenario)?);
            }
            let change = measure_change(law)?;
            laws.push(Measurements { scenarios, change });
        }
        Ok(Self(laws))
    }

    /// Returns the section of the page.
    pub fn section(&self) -> String {
        let head = [
            "law",
            "senders",
            "busy",
            "Jain",
            "first drops",
            "drops",
            "marks",
            "queue",
            "p99",
            "64 KiB",
            "1 KiB",
        ];
        let rows = LAWS.iter().zip(&self.0).flat_map(|(law, measured)| {
            let scenarios = SCENARIOS.iter().zip(&measured.scenarios);
            scenarios.map(|(scenario, measured)| cells(law, scenario, measured))
        });
        let incasts = table(&head, &rows.collect::<Vec<_>>());
        let head = ["law", "Jain of 8", "fair after", "Jain of 16", "slowest ms"];
        let rows = LAWS.iter().zip(&self.0);
        let rows = rows.map(|(law, measured)| change_cells(law, &measured.change));
        let changes = table(&head, &rows.collect::<Vec<_>>());
        let [from_us, to_us, _] = MEASURED_US;
        format!(
            "\
Many nodes WRITE 64 KiB at a time to one node, each on its own connection with four outstanding
messages. All begin at once. Their packets meet at a port of {LINK_GBPS} Gbit/s with a queue of
{QUEUE_KIB} KiB. The port marks packets from {MARK_MIN_KIB} KiB of queue on: {:.0}% just below {MARK_MAX_KIB} KiB,
and all from there on. If the law does not react to marks, it drops packets instead. The round trip
without load takes 10 µs. The table shows the milliseconds from {} to {}.

===============  ==============================================================================
``busy``         the share of the time in which the port sends
``Jain``         Jain's index of fairness of the senders' bytes; 1 is the best
``first drops``  the packets dropped before the measurement
``drops``        the share of dropped packets
``marks``        the share of marked packets
``queue``        the average queue, in KiB
``p99``          the queue that is exceeded in 1% of the time, in KiB
``64 KiB``       the time that 1% of the messages exceed, in µs
``1 KiB``        the same for short messages, which eight other nodes WRITE from time to time
===============  ==============================================================================

In ``go back n`` half of the pairs drop early packets.

.. image:: incast.svg

{incasts}
Eight nodes WRITE as above, eight more join, and 20 ms later the first eight leave. ``fair after``
is the average time from the join until the index of all sixteen stays at 0.9 or more for 4 ms.
``slowest ms`` is the goodput of the worst millisecond after the leave, in Mbit/s of messages.

{changes}",
            100.0 * MARK_CHANCE,
            from_us / 1000,
            to_us / 1000,
        )
    }

    /// Returns the picture of the page.
    pub fn figure(&self) -> String {
        let in_figure = &SCENARIOS[..IN_FIGURE];
        let kib = |measured: &Measured| measured.port.p99_bytes() as f64 / 1024.0;
        let lines = LAWS.iter().zip(&self.0).map(|(law, measured)| Line {
            name: law,
            values: measured.scenarios[..IN_FIGURE].iter().map(kib).collect(),
        });
        let figure = Figure {
            x_title: "senders",
            x_names: in_figure.iter().map(|one| one.name.to_owned()).collect(),
            y_title: "KiB of queue, 99th percentile",
            y_most: f64::from(QUEUE_KIB),
            y_step: 256.0,
            lines: lines.collect(),
        };
        figure.svg()
    }
}
