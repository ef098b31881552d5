# SPDX-License-Identifier: GPL-2.0
"""A picture of a result: a bar for each row with its speed relative to rdma_rxe, and with its
target."""

import itertools
import math
from xml.sax.saxutils import escape

LABEL, PLOT, VALUE, GAP = 205, 330, 75, 20
COLUMN = LABEL + PLOT + VALUE
ROW, HEAD, TOP, BOTTOM = 17, 30, 92, 34
WORSE, SHORT, FAIR, GOOD, FREE = "#b8392f", "#d08c1d", "#58b368", "#1d7a3e", "#1b6ca8"


def scale(result):
    """The powers of two at both ends of the axis."""
    ratios = [row["to rxe"] for row in result["rows"] if row["to rxe"]]
    ratios += [row["to tcp"] for row in result["rows"] if row["to rxe"] and row["to tcp"]]
    ratios += [bound for target in result["targets"] if target["against"] == "rxe"
               for bound in (target["least"], target["aim"]) if bound]
    low = min([0.5, *ratios])
    high = max([4, *ratios])
    return math.floor(math.log2(low)), math.ceil(math.log2(high))


def bounds(result):
    """Least and aim of each row that has them, against rdma_rxe."""
    return {name: (target["least"], target["aim"]) for target in result["targets"]
            if target["against"] == "rxe" for name in target["rows"]}


def colour(ratio, bound):
    if ratio < 1:
        return WORSE
    if not bound:
        return FREE
    if ratio < bound[0]:
        return SHORT
    return GOOD if bound[1] and ratio >= bound[1] else FAIR


def text(x, y, said, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}"{" " + more if more else ""}>{escape(said)}</text>'


def line(x1, y1, x2, y2, stroke, more=""):
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"'
            f'{" " + more if more else ""}/>')


def columns(groups):
    """The groups in two columns of about one height."""
    def height(group):
        return HEAD + ROW * len(group[1])

    left, right = [], []
    half = sum(map(height, groups)) / 2
    for group in groups:
        column = left if sum(map(height, left)) + height(group) / 2 <= half else right
        column.append(group)
    return [column for column in (left, right) if column], \
        max(sum(map(height, column)) for column in (left, right))


class Column:
    """Draws groups of rows below each other."""

    def __init__(self, left, low, high, bound):
        self.left, self.low, self.high, self.bound = left, low, high, bound
        self.y = TOP
        self.parts = []

    def x(self, ratio):
        share = (math.log2(ratio) - self.low) / (self.high - self.low)
        return self.left + LABEL + PLOT * min(max(share, 0), 1)

    def grid(self, top, bottom):
        for power in range(self.low, self.high + 1):
            at = self.x(2.0 ** power)
            self.parts.append(line(at, top, at, bottom, "#333" if power == 0 else "#e2e2e2"))

    def axis(self):
        for power in range(self.low, self.high + 1):
            name = str(2 ** power) if power >= 0 else f"1/{2 ** -power}"
            self.parts.append(text(self.x(2.0 ** power), self.y + 14, name,
                                   'text-anchor="middle" fill="#666"'))

    def group(self, name, rows):
        self.y += HEAD
        self.parts.append(text(self.left + LABEL - 8, self.y - 7, name,
                               'text-anchor="end" font-weight="bold"'))
        self.grid(self.y - 2, self.y + ROW * len(rows))
        for row in rows:
            self.row(row)

    def row(self, row):
        ratio, bound = row["to rxe"], self.bound.get(row["name"])
        middle = self.y + ROW / 2
        begin, end = sorted((self.x(1), self.x(ratio)))
        self.parts += [
            text(self.left + LABEL - 8, middle + 4, row["name"], 'text-anchor="end"'),
            f'<rect x="{begin:.1f}" y="{self.y + 3}" width="{max(end - begin, 1):.1f}" '
            f'height="{ROW - 6}" rx="2" fill="{colour(ratio, bound)}"/>',
            text(self.left + LABEL + PLOT + 8, middle + 4, f"{ratio:.2f}", 'font-weight="bold"')]
        for at, dash in zip(bound or (), ("", 'stroke-dasharray="3 2"')):
            if at:
                self.parts.append(line(self.x(at), self.y + 1, self.x(at), self.y + ROW - 1,
                                       "#000", f'stroke-width="1.6" {dash}'.strip()))
        if row["to tcp"]:
            x = self.x(row["to tcp"])
            self.parts.append(f'<path d="M{x - 4:.1f} {middle}L{x:.1f} {middle - 4}L{x + 4:.1f} '
                              f'{middle}L{x:.1f} {middle + 4}Z" fill="#fff" stroke="#000"/>')
        self.y += ROW


def legend():
    parts, x = [], 20
    for fill, said in ((GOOD, "aim reached"), (FAIR, "reached"), (SHORT, "not reached"),
                       (WORSE, "worse than rdma_rxe"), (FREE, "no target")):
        parts += [f'<rect x="{x}" y="60" width="14" height="11" rx="2" fill="{fill}"/>',
                  text(x + 20, 70, said)]
        x += 44 + 6.5 * len(said)
    parts += [line(x, 58, x, 73, "#000", 'stroke-width="1.6"'), text(x + 7, 70, "at least"),
              line(x + 72, 58, x + 72, 73, "#000", 'stroke-width="1.6" stroke-dasharray="3 2"'),
              text(x + 79, 70, "aim"),
              f'<path d="M{x + 114} 65.5l4 -4l4 4l-4 4Z" fill="#fff" stroke="#000"/>',
              text(x + 128, 70, "against TCP")]
    return parts


def draw(result):
    """The picture as SVG."""
    about = result["about"]
    rows = [row for row in result["rows"] if row["to rxe"]]
    grouped = itertools.groupby(rows, key=lambda row: row["group"])
    halves, height = columns([(name, list(group)) for name, group in grouped])
    width = max(GAP + (COLUMN + GAP) * len(halves), 840)
    height += TOP + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11.5">',
        "<!-- SPDX-License-Identifier: GPL-2.0 -->",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        text(20, 28, "ferroce beside rdma_rxe: how many times as good", 'font-size="18" font-weight="bold"'),
        text(20, 47, f"Linux {about['kernel']}, {about['machine']}, {about['date']}", 'fill="#666"'), *legend()]
    low, high = scale(result)
    for number, half in enumerate(halves):
        column = Column(GAP + number * (COLUMN + GAP), low, high, bounds(result))
        for name, group in half:
            column.group(name, group)
        column.axis()
        parts += column.parts
    return "\n".join([*parts, "</svg>\n"])
