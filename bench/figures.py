# SPDX-License-Identifier: GPL-2.0
"""The results of samples: a row for each figure with medians and ratios, and the reached targets.
All of it is data for JSON."""

import json
import statistics

from cases import RATES


def read_samples(lines):
    """The facts about the machine, the values by row and driver, and the failed cases."""
    about, values, failed = {}, {}, []
    for line in map(json.loads, lines):
        if "about" in line:
            about |= line["about"]
        elif "failed" in line:
            failed.append(f"{line['failed']}, {line['driver']}, round {line['round']}")
        else:
            values.setdefault((line["row"], line["driver"]), []).append(line["value"])
    return about, values, failed


def ratio(unit, ours, theirs):
    """The ratio of ferroce's value, above 1 if better; None without either value."""
    if not ours or not theirs:
        return None
    return round(ours / theirs if unit in RATES else theirs / ours, 3)


def spread(samples):
    """The spread of the samples, as a part of their median; None for a single one."""
    if not samples or len(samples) < 2:
        return None
    return round((max(samples) - min(samples)) / statistics.median(samples), 3)


def make_row(case, figure, values):
    """None without samples."""
    name = case.name + figure.suffix

    def median(row, driver):
        samples = values.get((row, driver))
        return statistics.median(samples) if samples else None

    ours, theirs = median(name, "ferroce"), median(name, "rxe")
    tcp = median(case.tcp or name, "tcp")
    if ours is None and theirs is None and median(name, "tcp") is None:
        return None
    return {"group": case.group, "name": name, "unit": figure.unit, "ferroce": ours, "rxe": theirs,
            "tcp": tcp, "to rxe": ratio(figure.unit, ours, theirs),
            "to tcp": ratio(figure.unit, ours, tcp),
            "spread": {driver: spread(values.get((name, driver)))
                       for driver in ("ferroce", "rxe")}}


def make_rows(cases, values):
    rows = (make_row(case, figure, values) for case in cases for figure in case.figures)
    return [row for row in rows if row]


def reached(target, rows):
    """The worst of the target's rows, and its ratio; None if none was measured."""
    found = {row["name"]: row for row in rows}

    def one(name):
        row = found.get(name)
        if not row:
            return None
        if target.against in ("rxe", "tcp"):
            return row[f"to {target.against}"]
        other = found.get(target.against)
        return ratio(row["unit"], row["ferroce"], other and other["ferroce"])

    ratios = {name: one(name) for name in target.rows}
    ratios = {name: value for name, value in ratios.items() if value is not None}
    if not ratios:
        return None
    worst = min(ratios, key=ratios.get)
    return {"row": worst, "ratio": ratios[worst]}


def make_targets(targets, rows):
    return [{"name": target.name, "against": target.against, "least": target.least,
             "aim": target.aim, "rows": target.rows, "reached": reached(target, rows)}
            for target in targets]


def fallen(recorded, rows, tolerance):
    """The recorded rows whose ratio has fallen by more than a part of it: name, then, now. Instructions
    do not depend on the machine. So a row of them has fallen only if ferroce's own have risen as much, and
    not if rdma_rxe's, which differ by up to 14% in short workloads, happen to be few."""
    now = {row["name"]: row for row in rows if row["to rxe"]}

    def has_fallen(then, row):
        least = 1 - tolerance
        is_counted = then["unit"].startswith("instructions")
        return row["to rxe"] < then["to rxe"] * least and (
            not is_counted or ratio(then["unit"], row["ferroce"], then["ferroce"]) < least)

    return [(then["name"], then["to rxe"], now[then["name"]]["to rxe"]) for then in recorded
            if then["to rxe"] and then["name"] in now and has_fallen(then, now[then["name"]])]


def lines_of_json(made):
    """A line for each row, so that a difference can be read."""
    def several(values):
        return "[\n" + ",\n".join(json.dumps(value, ensure_ascii=False) for value in values) + "\n]"
    parts = [f'"{key}": ' + (several(value) if isinstance(value, list) else json.dumps(value, indent=1))
             for key, value in made.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def host(run):
    """The facts about the host that scripts/bench recorded."""
    return dict(line.split("=", 1) for line in (run / "host").read_text().splitlines())


def say_fallen(lost):
    for name, before, now in lost:
        print(f"{name}: the ratio to rdma_rxe was {number(before)}, and is {number(now)}")


def number(value):
    """With three digits or so, as a table has it."""
    if value is None:
        return "–"
    return f"{value:.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"


TARGET_HEAD = ["target", "at least", "aim", "worst", "", "of"]


def target_cells(target):
    """The targets and the results of a table."""
    got = target["reached"]
    return [target["name"], number(target["least"]), number(target["aim"]),
            number(got and got["ratio"]), verdict(target), got["row"] if got else ""]


def verdict(target):
    """The result of a target, in a word."""
    if not target["reached"]:
        return "not measured"
    got = target["reached"]["ratio"]
    if got < target["least"]:
        return "not reached"
    return "aim reached" if target["aim"] and got >= target["aim"] else "reached"
