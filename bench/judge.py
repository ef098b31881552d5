# SPDX-License-Identifier: GPL-2.0
"""The results of runs of workloads (bench/explore): ratios of ferroce's bytes a second to
rdma_rxe's, and their summary. All of it is data for JSON."""

import json
import math
import re
import statistics

from figures import number
from workloads import parse

DRIVERS = ("ferroce", "rxe")
# The targets by plan, of random workloads and of bursts: the minimum, and the aim.
TARGETS = {
    "explore": {"mean": (2.8, 4), "p5": (1.2, 2), "worst": (0.95, 1.2), "burst": (2, 4)},
    "explore-count": {"mean": (2.8, 4), "p5": (1.5, 2), "worst": (1.1, 1.5), "burst": (2, 4)},
}
TARGET_NAMES = {"mean": "geometric mean", "p5": "5th percentile", "worst": "worst",
                "burst": "worst of the bursts by name"}
# Counters that must be 0 on a wire without loss.
FAULTS = ("out_of_seq_request", "send_seq_err", "completer_retry_err")


def read_samples(lines):
    """The facts about the machine, and the runs."""
    about, runs = {}, []
    for line in map(json.loads, lines):
        if "about" in line:
            about |= line["about"]
        else:
            runs.append(line)
    return about, runs


def is_random(name):
    return name.isdigit()


def median(values):
    return statistics.median(values) if values else None


def ratio(row, of):
    """The median or the best of a row's rounds. None if a driver failed in one."""
    ours, theirs = (row[driver]["rounds"] for driver in DRIVERS)
    if any(row[driver]["failed"] for driver in DRIVERS) or not ours or not theirs:
        return None
    return round(of(ours) / of(theirs), 3)


def make_row(name, runs):
    """The result of one workload: the medians of its rounds, their ratio, that of the best rounds,
    and the counters of the runs."""
    row = {"name": name, "line": runs[0]["line"]}
    for driver in DRIVERS:
        good = [run for run in runs if run["driver"] == driver and "failed" not in run]
        failed = [run["failed"] for run in runs if run["driver"] == driver and "failed" in run]
        counted = {}
        for run in good:
            for counter, times in run["counters"].items():
                counted[counter] = counted.get(counter, 0) + times
        row[driver] = {
            "messages": median([run["messages"] for run in good]),
            "bytes": median([run["bytes"] for run in good]),
            "rounds": [run["bytes"] for run in good],
            "lost": sum(run["lost"] for run in good) / max(1, sum(run["sent"] for run in good)),
            "overtaken": sum(run["overtaken"] for run in good),
            "counters": counted, "failed": failed}
    row["ratio"] = ratio(row, median)
    row["best"] = ratio(row, max)
    return row


def make_rows(runs):
    by_name = {}
    for run in runs:
        by_name.setdefault(run["name"], []).append(run)
    return [make_row(name, some) for name, some in by_name.items()]


def percentile(values, part):
    """The quantile with so much of the values below it, interpolated."""
    values = sorted(values)
    at = part * (len(values) - 1)
    low = math.floor(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def summary(rows, key="ratio"):
    """The summary of the ratios of some rows; None without any."""
    ratios = [row[key] for row in rows if row[key]]
    if not ratios:
        return None
    return {"count": len(ratios), "mean": round(statistics.geometric_mean(ratios), 3),
            "median": round(statistics.median(ratios), 3), "p5": round(percentile(ratios, 0.05), 3),
            "worst": min(ratios), "slower": sum(ratio < 1 for ratio in ratios)}


def failures(rows, driver):
    return [row for row in rows if row[driver]["failed"]]


def faults(rows, driver):
    """The total of lost and reordered packets, by counter."""
    return {name: sum(row[driver]["counters"].get(name, 0) for row in rows) for name in FAULTS}


def against(recorded, rows):
    """The ratios of a recorded run and of this one, for the same workloads: name, then,
    now."""
    before = {(row["name"], row["line"]): row["ratio"] for row in recorded}
    found = [(row["name"], before.get((row["name"], row["line"])), row["ratio"]) for row in rows]
    return [(name, then, now) for name, then, now in found if then and now]


def fallen(compared, tolerance):
    """The workloads whose ratio has fallen by more than a part of it."""
    return [(name, then, now) for name, then, now in compared if now < then * (1 - tolerance)]


# ---- the classes of the slow workloads -------------------------------------

def size_class(workload):
    most = next((most for most in (256, 4096, 65536) if workload.size[1] <= most), None)
    return f"{most} B or less" if most else "more"


def depth_class(workload):
    at_once = workload.qps * workload.depth
    return "1" if at_once == 1 else "2 to 16" if at_once <= 16 else "17 to 128" if at_once <= 128 \
        else "more"


CLASSES = {
    "transport": lambda load: load.transport,
    "operation": lambda load: load.op[0] if len(load.op) == 1 else "several",
    "size": size_class,
    "requests at once": depth_class,
    "queue pairs": lambda load: str(load.qps),
    "threads": lambda load: str(load.threads),
    "list": lambda load: str(load.list) if load.list == 1 else "2 or more",
    "burst": lambda load: "none" if not load.burst else "1 to 8" if load.burst <= 8 else "more",
    "rest": lambda load: f"{load.rest_us} us" if load.burst else "none",
    "completions": lambda load: load.poll,
    "signalled": lambda load: f"each {load.signal}",
    "ends": lambda load: "loopback" if load.loopback else f"{load.processes} processes",
    "ways": lambda load: "both" if load.both else "one",
}


def by_class(rows):
    """The summary of the rows of each class: its property, its name, the summary."""
    found = {}
    for row in rows:
        workload = parse(row["line"])
        for what, class_of in CLASSES.items():
            found.setdefault((what, class_of(workload)), []).append(row)
    def place(item):
        what, name = item[0]
        return list(CLASSES).index(what), re.sub(r"\d+", lambda digits: digits[0].zfill(9), name)

    return [[what, name, made] for (what, name), some in sorted(found.items(), key=place)
            if (made := summary(some))]


def slowest(rows):
    """The slowest first, and those without a ratio behind all others."""
    return sorted(rows, key=lambda row: row["ratio"] or math.inf)


def worst(rows):
    """The slowest one with a ratio, as a target has it; None without any."""
    row = next((row for row in slowest(rows) if row["ratio"]), None)
    return row and {"row": row["name"], "ratio": row["ratio"]}


def make_targets(plan, chance, known):
    """Targets like those of figures.py."""
    made = summary(chance)
    bursts = [row for row in known if parse(row["line"]).rest_us]

    def reached(key):
        if key == "burst":
            return worst(bursts)
        if key == "worst" or not made:
            return worst(chance)
        return {"row": "", "ratio": made[key]}

    return [{"name": TARGET_NAMES[key], "against": "rxe", "least": least, "aim": aim,
             "reached": reached(key)} for key, (least, aim) in TARGETS[plan].items()]


def result(plan, about, runs):
    rows = make_rows(runs)
    chance = [row for row in rows if is_random(row["name"])]
    known = [row for row in rows if not is_random(row["name"])]
    return {"about": about, "targets": make_targets(plan, chance, known),
            "random": summary(chance), "random, best": summary(chance, "best"),
            "known": summary(known), "known, best": summary(known, "best"),
            "faults": {driver: faults(rows, driver) for driver in DRIVERS},
            "classes": by_class(chance), "rows": rows}


# ---- in words --------------------------------------------------------------

def rate_cells(row, driver):
    """Messages and bytes a second, or a note that there are none."""
    if row[driver]["failed"] or not row[driver]["bytes"]:
        return ["failed", ""]
    return [rate(row[driver]["messages"] / 1e3), rate(row[driver]["bytes"] / 1e6)]


def rate(value):
    """With three digits, however small it is."""
    return f"{value:#.3g}".rstrip(".") if value < 999.5 else f"{value:.0f}"


def faults_said(row, driver):
    """The unwanted packet counters, as one remark, or none."""
    several = [f"{name} {row[driver]['counters'][name]}" for name in FAULTS
               if row[driver]["counters"].get(name)]
    return [f"{driver}: {', '.join(several)}"] if several else []


def remarks(row):
    """The losses, and the unwanted packet counters."""
    said = []
    for driver in DRIVERS:
        if row[driver]["lost"]:
            said.append(f"{driver} lost {row[driver]['lost']:.1%}")
        if row[driver].get("overtaken"):
            said.append(f"{driver}: {row[driver]['overtaken']} overtaken")
        said += faults_said(row, driver)
    return "; ".join(said)


def row_cells(row):
    return [row["name"], *rate_cells(row, "ferroce"), *rate_cells(row, "rxe"),
            number(row["ratio"]), row["line"], remarks(row)]


ROW_HEAD = ["workload", "ferroce k/s", "MB/s", "rdma_rxe k/s", "MB/s", "ratio", "line", ""]
SUMMARY_HEAD = ["", "number", "geometric mean", "median", "5th percentile", "worst", "slower"]


def summary_cells(name, made):
    return [name, f"{made['count']}", *(number(made[key]) for key in
                                        ("mean", "median", "p5", "worst")), f"{made['slower']}"]


def summaries(made):
    """With several rounds also the best ones, which a busy host disturbs less."""
    several = any(len(row[driver]["rounds"]) > 1 for row in made["rows"] for driver in DRIVERS)
    of = (("", ""), (", best", ", best rounds")) if several else (("", ""),)
    return [summary_cells(name + words, made[key + part])
            for key, name in (("random", "random workloads"), ("known", "those by name"))
            for part, words in of if made[key + part]]


def is_busy(about):
    """True if the host was busy with other work, and that matters."""
    return not about["machine"].endswith("counting instructions") and \
        float(about["load before"]) >= 0.5


def class_cells(made):
    return [[what, *summary_cells(name, some)] for what, name, some in made["classes"]]
