"""Drawings of the graph of tables: plain text, Mermaid for Markdown, and SVG.

All three are pure functions of a checked WarehouseSpec. The SVG is laid out in layers from left to right: every table
is to the right of all its sources, there are few crossings, and edges lead around boxes.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, pairwise
from statistics import fmean

from headgate.core import Graph
from headgate.core.lengths import plural
from headgate.warehouse.declare.checks import kind_of
from headgate.warehouse.declare.durations import readable
from headgate.warehouse.declare.spec import DimensionSpec, NodeSpec, StreamSpec, TableSpec, WarehouseSpec


def counts(spec: WarehouseSpec) -> str:
    """The numbers of streams, dimensions and tables, in words."""
    numbers = [("stream", len(spec.streams)), ("dimension", len(spec.dimensions)), ("table", len(spec.tables))]
    parts = [f"{n} {plural(kind, n)}" for kind, n in numbers if n or kind != "dimension"]
    return ", ".join(parts)


# --- text ----------------------------------------------------------------------------------------------------


def text(spec: WarehouseSpec) -> str:
    """One line for each node, grouped by level: the length of the longest path from a source."""
    graph = spec.graph()
    nodes = spec.nodes()
    rows = [_text_row(node) for node in nodes]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"{spec.name}: {counts(spec)}"]
    for number, level in enumerate(graph.from_sources):
        lines += ["", f"level {number}"]
        for i in level.nodes:
            cells = (cell.ljust(width) for cell, width in zip(rows[i], widths, strict=True))
            lines.append(f"  {'  '.join(cells)}".rstrip())
    return "\n".join(lines) + "\n"


def _text_row(node: NodeSpec) -> tuple[str, ...]:
    sources = f"<- {', '.join(node.sources)}" if isinstance(node, TableSpec) else ""
    return (node.name, kind_of(node), _priority(node), sources, ", ".join(_details(node)))


# --- Mermaid -------------------------------------------------------------------------------------------------

_SHAPES = {"stream": '[("{}")]', "dimension": '[/"{}"/]', "table": '["{}"]'}


def mermaid(spec: WarehouseSpec) -> str:
    """A flow chart for a ```` ```mermaid ```` block."""
    lines = ["flowchart LR"]
    for node in spec.nodes():
        label = "<br/>".join([f"<b>{node.name}</b>", *_small_print(node)])
        lines.append(f"    {_mermaid_id(node.name)}{_SHAPES[kind_of(node)].format(label)}:::{kind_of(node)}")
    lines += [f"    {_mermaid_id(source)} --> {_mermaid_id(target)}" for source, target in spec.graph().edges]
    lines += [
        f"    classDef {kind} fill:{fill},stroke:{stroke},color:{_INK}" for kind, (fill, stroke) in _COLOURS.items()
    ]
    return "\n".join(lines) + "\n"


def _mermaid_id(name: str) -> str:
    """An identifier that is not a keyword of Mermaid, such as ``end``."""
    return f"t_{name}"


# --- labels of nodes -----------------------------------------------------------------------------------------


def _priority(node: NodeSpec) -> str:
    return f"priority {node.priority:g}"


def _details(node: NodeSpec) -> list[str]:
    """The declared options that influence when the node is updated."""
    details = []
    if isinstance(node, StreamSpec) and node.period is not None:
        details.append(f"every {readable(node.period)}")
    if not isinstance(node, DimensionSpec):
        details += [f"target lag {readable(node.target_lag)}"] if node.target_lag is not None else []
        details += [f"class {node.importance_class}"] if node.importance_class else []
    if isinstance(node, TableSpec) and node.group is not None:
        details.append(f"group {node.group}")
    if isinstance(node, TableSpec) and node.mode != "auto":
        details.append(f"mode {node.mode}")
    return details


def _small_print(node: NodeSpec) -> list[str]:
    first = [] if isinstance(node, TableSpec) else [kind_of(node)]
    return [", ".join([*first, _priority(node)]), *([", ".join(details)] if (details := _details(node)) else [])]


# --- SVG -----------------------------------------------------------------------------------------------------

#: {kind: (fill, stroke)}
_COLOURS = {
    "stream": ("#e3eefb", "#2f6db5"),
    "dimension": ("#f1e9fa", "#7a4fb0"),
    "table": ("#e9f5ea", "#3c8a4a"),
}
_INK, _FAINT, _LINK = "#1f2933", "#52606d", "#829ab1"
_MARGIN, _HEADING = 24.0, 34.0
_NAME_SIZE, _SMALL_SIZE, _LINE = 13.0, 11.0, 15.0
_BETWEEN_LAYERS, _BETWEEN_BOXES, _PADDING = 72.0, 18.0, 12.0
_TIP = 8.0
_LETTER = 0.602  # width of a letter of a monospaced font, relative to the font size

_STYLE = (
    f"text{{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:{_INK}}}"
    f".heading{{font-size:15px;font-weight:bold}}.name{{font-size:{_NAME_SIZE:g}px;font-weight:bold}}"
    f".small{{font-size:{_SMALL_SIZE:g}px;fill:{_FAINT}}}.edge{{fill:none;stroke:{_LINK};stroke-width:1.5}}"
)


@dataclass(frozen=True, slots=True)
class _Box:
    """The text in the box of one node, and the size of the box."""

    name: str
    kind: str
    small: tuple[str, ...]
    tooltip: str

    @property
    def width(self) -> float:
        letters = max(len(self.name) * _NAME_SIZE, *(len(line) * _SMALL_SIZE for line in self.small))
        return letters * _LETTER + 2 * _PADDING

    @property
    def height(self) -> float:
        return _LINE * (1 + len(self.small)) + _PADDING


def svg(spec: WarehouseSpec) -> str:
    """A self-contained picture, without scripts, fonts or other files."""
    boxes = [_Box(n.name, kind_of(n), tuple(_small_print(n)), n.comment or n.name) for n in spec.nodes()]
    layout = _Layout(spec.graph(), [box.height for box in boxes], [box.width for box in boxes])
    heading = f"{spec.name}: {counts(spec)}"
    width = max(layout.width, len(heading) * 15 * _LETTER) + 2 * _MARGIN
    height = layout.height + _HEADING + 2 * _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{escape(heading)}">',
        f"<style>{_STYLE}</style>",
        f'<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="{_TIP:g}" markerHeight="{_TIP:g}" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" fill="{_LINK}"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text class="heading" x="{_MARGIN:g}" y="{_MARGIN + 12:g}">{escape(heading)}</text>',
        f'<g transform="translate({_MARGIN:g} {_MARGIN + _HEADING:g})">',
        *(f'<path class="edge" marker-end="url(#tip)" d="{d}"/>' for d in layout.edges()),
        *(_svg_box(box, *layout.corner(i)) for i, box in enumerate(boxes)),
        "</g>",
        "</svg>",
    ]
    # Letters beyond ASCII as references: the picture is the same whatever encoding it is saved in.
    return ("\n".join(parts) + "\n").encode("ascii", "xmlcharrefreplace").decode()


def _svg_box(box: _Box, x: float, y: float) -> str:
    fill, stroke = _COLOURS[box.kind]
    middle = box.width / 2
    small = "".join(
        f'<text class="small" text-anchor="middle" x="{middle:.1f}" y="{_LINE * (k + 2) + 2:.1f}">{escape(line)}</text>'
        for k, line in enumerate(box.small)
    )
    return (
        f'<g transform="translate({x:.1f} {y:.1f})"><title>{escape(box.tooltip)}</title>'
        f'<rect width="{box.width:.1f}" height="{box.height:.1f}" rx="6" fill="{fill}" stroke="{stroke}"/>'
        f'<text class="name" text-anchor="middle" x="{middle:.1f}" y="{_LINE + 3:.1f}">{escape(box.name)}</text>'
        f"{small}</g>"
    )


class _Layout:
    """Where the boxes of a graph go, by the method of Sugiyama, Tagawa and Toda (1981): layers, then the order in
    each layer, then places.

    An edge that skips layers gets a *bend* in each of them: an item without a box, numbered after the nodes, that
    keeps a lane free for it. So edges lead only from one layer to the next.
    """

    def __init__(self, graph: Graph, heights: Sequence[float], widths: Sequence[float]) -> None:
        self._layer = _layers(graph)
        self._heights, self._widths = list(heights), list(widths)
        self._routes = [self._route(graph.index[a], graph.index[b]) for a, b in graph.edges]
        self._before: list[list[int]] = [[] for _ in self._layer]
        self._after: list[list[int]] = [[] for _ in self._layer]
        for route in self._routes:
            for a, b in pairwise(route):
                self._after[a].append(b)
                self._before[b].append(a)
        count = max(self._layer, default=-1) + 1
        self._rows: list[list[int]] = [[i for i, layer in enumerate(self._layer) if layer == k] for k in range(count)]
        self._untangle()
        self._y = [0.0] * len(self._layer)
        self._place()
        columns = [max(self._widths[i] for i in row) for row in self._rows]
        self._left = list(accumulate((w + _BETWEEN_LAYERS for w in columns), initial=0.0))
        self._columns = columns
        self.width = self._left[-1] - _BETWEEN_LAYERS if columns else 0.0
        self.height = max((y + h / 2 for y, h in zip(self._y, self._heights, strict=True)), default=0.0)

    def corner(self, node: int) -> tuple[float, float]:
        """The upper left corner of a node's box; boxes are centred in their column."""
        free = self._columns[self._layer[node]] - self._widths[node]
        return self._left[self._layer[node]] + free / 2, self._y[node] - self._heights[node] / 2

    def edges(self) -> Iterable[str]:
        """For each edge of the graph, in order, the commands of an SVG path."""
        for start, *rest in self._routes:
            x, y = self.corner(start)[0] + self._widths[start], self._y[start]
            path = f"M{x:.1f} {y:.1f}"
            for item in rest:
                left, to = self._left[self._layer[item]], self._y[item]
                middle = left - _BETWEEN_LAYERS / 2
                path += f"H{left - _BETWEEN_LAYERS:.1f}"
                path += f"C{middle:.1f} {y:.1f} {middle:.1f} {to:.1f} {left - _TIP:.1f} {to:.1f}"
                y = to
            yield f"{path}H{self.corner(rest[-1])[0]:.1f}"

    def _route(self, source: int, target: int) -> list[int]:
        skipped = range(self._layer[source] + 1, self._layer[target])
        bends = range(len(self._layer), len(self._layer) + len(skipped))
        self._layer += skipped
        self._heights += [0.0] * len(skipped)
        self._widths += [0.0] * len(skipped)
        return [source, *bends, target]

    def _untangle(self) -> None:
        """Order each layer by the positions of neighbours, forth and back; keep the order with fewest crossings."""
        best, fewest = [list(row) for row in self._rows], self._crossings()
        for sweep in range(12):
            forth = sweep % 2 == 0
            neighbours = self._before if forth else self._after
            place = {item: float(k) for row in self._rows for k, item in enumerate(row)}
            for row in self._rows if forth else reversed(self._rows):
                pull = {i: fmean(place[j] for j in neighbours[i]) if neighbours[i] else place[i] for i in row}
                row.sort(key=pull.__getitem__)
                place.update((item, float(k)) for k, item in enumerate(row))
            if (crossings := self._crossings()) < fewest:
                best, fewest = [list(row) for row in self._rows], crossings
        self._rows = best

    def _crossings(self) -> int:
        total = 0
        for row, following in pairwise(self._rows):
            place = {item: k for k, item in enumerate(following)}
            passed: list[int] = []
            for item in row:
                ends = [place[j] for j in self._after[item]]
                total += sum(len(passed) - bisect_right(passed, end) for end in ends)
                for end in ends:
                    insort(passed, end)
        return total

    def _place(self) -> None:
        """Move all boxes towards their neighbours, as far as the order and the gaps between boxes allow."""
        for row in self._rows:
            self._settle(row, [0.0] * len(row))
        for sweep in range(8):
            forth = sweep % 2 == 0
            neighbours = self._before if forth else self._after
            for row in self._rows if forth else reversed(self._rows):
                self._settle(row, [fmean(self._y[j] for j in neighbours[i] or [i]) for i in row])
        top = min((y - h / 2 for y, h in zip(self._y, self._heights, strict=True)), default=0.0)
        self._y = [y - top for y in self._y]

    def _settle(self, row: Sequence[int], wanted: Sequence[float]) -> None:
        """Set the positions nearest to ``wanted`` (least squares) that keep the order and the distances of a layer.

        After subtracting the least distances, positions only have to ascend (isotonic regression): neighbours that do
        not ascend get their mean.
        """
        distances = [(self._heights[a] + self._heights[b]) / 2 + _BETWEEN_BOXES for a, b in pairwise(row)]
        least = list(accumulate(distances, initial=0.0))
        pooled: list[tuple[float, int]] = []
        for want, offset in zip(wanted, least, strict=False):
            mean, size = want - offset, 1
            while pooled and pooled[-1][0] > mean:
                other, count = pooled.pop()
                mean, size = (mean * size + other * count) / (size + count), size + count
            pooled.append((mean, size))
        settled = (mean for mean, size in pooled for _ in range(size))
        for item, mean, offset in zip(row, settled, least, strict=False):
            self._y[item] = mean + offset


def _layers(graph: Graph) -> list[int]:
    """The layer of each node: its longest path from a source; a source is just before its first reader."""
    return [
        min((int(graph.depth[j]) for j in graph.downstream[i]), default=1) - 1 if not graph.upstream[i] else int(depth)
        for i, depth in enumerate(graph.depth)
    ]


#: {format: what draws it}
FORMATS: Mapping[str, Callable[[WarehouseSpec], str]] = {"text": text, "mermaid": mermaid, "svg": svg}
