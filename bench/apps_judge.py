# SPDX-License-Identifier: GPL-2.0
"""The results of runs of applications (bench/apps): medians, ratios, targets, and unwanted packet
counters. All of it is data for JSON."""

import statistics

from apps_cases import APPS, TARGETS
from figures import make_targets, number, ratio, spread
from judge import DRIVERS, faults, faults_said

HEAD = ["", "", "ferroce", "rdma_rxe", "ratio", "spread", ""]
GROUP_HEAD = ["", "number", "geometric mean", "worst", "", "failed: ferroce", "rdma_rxe"]


def make_side(runs, driver):
    """The values of one application's rounds with a driver."""
    mine = [run for run in runs if run["driver"] == driver]
    values = [run["value"] for run in mine if "failed" not in run]
    counted = {}
    for run in mine:
        for counter, times in run.get("counters", {}).items():
            counted[counter] = counted.get(counter, 0) + times
    return {"value": statistics.median(values) if values else None, "rounds": values,
            "spread": spread(values), "counters": counted,
            "failed": [run["failed"] for run in mine if "failed" in run]}


def make_row(app, runs):
    """A driver that failed in one round has no ratio."""
    row = {"group": app.group, "name": app.name, "unit": app.unit}
    row |= {driver: make_side(runs, driver) for driver in DRIVERS}
    good = not any(row[driver]["failed"] for driver in DRIVERS)
    ours, theirs = (row[driver]["value"] for driver in DRIVERS)
    row["to rxe"] = ratio(app.unit, ours, theirs) if good else None
    return row


def make_rows(runs):
    by_name = {}
    for run in runs:
        by_name.setdefault(run["name"], []).append(run)
    return [make_row(app, by_name[app.name]) for app in APPS if app.name in by_name]


def for_targets(rows):
    """A failure of ferroce counts as 0 for the targets."""
    return [row | {"to rxe": 0} if row["ferroce"]["failed"] else row for row in rows]


def make_summary(name, rows):
    ratios = {row["name"]: row["to rxe"] for row in rows if row["to rxe"]}
    worst = min(ratios, key=ratios.get, default=None)
    return {"name": name, "count": len(ratios),
            "mean": round(statistics.geometric_mean(ratios.values()), 3) if ratios else None,
            "worst": ratios.get(worst), "of": worst,
            "failed": {driver: sum(bool(row[driver]["failed"]) for row in rows) for driver in DRIVERS}}


def make_summaries(rows):
    """The summary of each group, and of all together."""
    groups = dict.fromkeys(row["group"] for row in rows)
    return [*(make_summary(name, [row for row in rows if row["group"] == name]) for name in groups),
            make_summary("all", rows)]


def result(about, runs):
    rows = make_rows(runs)
    return {"about": about, "targets": make_targets(TARGETS, for_targets(rows)),
            "summaries": make_summaries(rows),
            "faults": {driver: faults(rows, driver) for driver in DRIVERS}, "rows": rows}


# ---- in words --------------------------------------------------------------

def value_cell(side):
    return "failed" if side["failed"] else number(side["value"])


def remarks(row):
    """The unwanted packet counters."""
    return "; ".join(said for driver in DRIVERS for said in faults_said(row, driver))


def spread_cell(row):
    known = [row[driver]["spread"] for driver in DRIVERS if row[driver]["spread"] is not None]
    return f"{max(known):.0%}" if known else "–"


def row_cells(row):
    return [row["name"], row["unit"], *(value_cell(row[driver]) for driver in DRIVERS),
            number(row["to rxe"]), spread_cell(row), remarks(row)]


def summary_cells(made):
    return [made["name"], f"{made['count']}", number(made["mean"]), number(made["worst"]),
            made["of"] or "", *(f"{made['failed'][driver]}" for driver in DRIVERS)]


def reasons(rows):
    """The failed applications, with the number of rounds and the last message."""
    def last(said):
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        return lines[-1] if lines else "nothing was said"

    return [f"{row['name']}, {driver}, {len(row[driver]['failed'])} of "
            f"{len(row[driver]['failed']) + len(row[driver]['rounds'])}: {last(row[driver]['failed'][0])}"
            for row in rows for driver in DRIVERS if row[driver]["failed"]]
