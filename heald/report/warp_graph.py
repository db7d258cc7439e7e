"""Pictures of a dependence graph: a column per warp, instances from top to bottom, edges with channels.

Data edges are solid, resource edges dashed, throttles dotted, and dropped edges grey (docs/warps.md).
Graphviz lays out DOT; SVG is laid out here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from hw.errors import InputError
from sw.warps.listing import ListedEdge

#: Maximum number of instances in a picture.
LARGEST = 2_000
#: Pixels: a row, a box, a character, the gap between columns, and the margin.
_ROW, _HEIGHT, _CHARACTER, _GAP, _MARGIN = 46, 26, 7.5, 120, 24
#: Colour and dashes by kind, in the legend's order.
_STYLES = {
    "control": ("#9aa5b1", ""),
    "data": ("#1f5fa8", ""),
    "resource": ("#b3541e", ' stroke-dasharray="6 4"'),
    "throttle": ("#6a3d9a", ' stroke-dasharray="2 3"'),
    "dropped": ("#b8b8b8", ' stroke-dasharray="1 0"'),
}
_DOT = {
    "control": "color=gray60, arrowsize=0.6, weight=10",
    "data": "color=blue3",
    "resource": "color=orangered3, style=dashed",
    "throttle": "color=purple3, style=dotted",
    "dropped": "color=gray75, fontcolor=gray60",
}


@dataclass(frozen=True)
class Arrow:
    """An edge: its kind and its label."""

    source: str
    sink: str
    kind: str
    text: str = ""


@dataclass(frozen=True)
class Figure:
    """Names by warp, each column in order, and arrows between them; `order` lists all names."""

    columns: Mapping[int, tuple[str, ...]]
    order: tuple[str, ...]
    arrows: tuple[Arrow, ...]


def figure(
    nodes: Sequence[tuple[str, int]],
    entries: Iterable[ListedEdge],
    throttle: Iterable[tuple[str, str]] = (),
    channels: Mapping[str, int] | None = None,
) -> Figure:
    """The figure of a graph; `nodes` are names and warps in sequential order.

    Raises `InputError` for more than `LARGEST` nodes.
    """
    if len(nodes) > LARGEST:
        raise InputError(f"a picture must have at most {LARGEST:,} instances, not {len(nodes):,}")
    columns: dict[int, tuple[str, ...]] = dict.fromkeys(sorted({w for _, w in nodes}), ())
    for name, warp in nodes:
        columns[warp] += (name,)
    arrows = [Arrow(a, b, "control") for column in columns.values() for a, b in itertools.pairwise(column)]
    kinds = [
        (e.source, e.sink, "dropped" if not e.kept else "data" if e.data else "resource") for e in entries
    ]
    for source, sink, kind in [*kinds, *((a, b, "throttle") for a, b in throttle)]:
        label, at, distance = sink.partition("@")
        number = None if kind == "dropped" else (channels or {}).get(f"{source}->{sink}")
        parts = ["" if number is None else str(number), at + distance if distance.strip("0,") else ""]
        arrows.append(Arrow(source, label, kind, " ".join(p for p in parts if p)))
    return Figure(columns, tuple(name for name, _ in nodes), tuple(arrows))


def to_dot(drawn: Figure) -> str:
    """The figure in Graphviz's DOT language."""
    lines = ["digraph warps {", "  rankdir=TB;", '  node [shape=box, fontname="sans-serif", height=0.3];']
    for warp, names in drawn.columns.items():
        lines += [f"  subgraph cluster_{warp} {{", f'    label="warp {warp}";']
        lines += [f'    "{name}" [group={warp}];' for name in names]
        lines.append("  }")
    for a in drawn.arrows:
        text = f', label="{a.text}"' if a.text else ""
        free = "" if a.kind == "control" else ", constraint=false"
        lines.append(f'  "{a.source}" -> "{a.sink}" [{_DOT[a.kind]}{text}{free}];')
    return "\n".join([*lines, "}", ""])


def to_svg(drawn: Figure) -> str:
    """The figure as SVG: a row holds what can happen at the same time."""
    rows = _rows(drawn)
    left, widths = _columns(drawn)
    warp_of = {name: warp for warp, names in drawn.columns.items() for name in names}
    top = _MARGIN + 34
    legend = [kind for kind in _STYLES if any(a.kind == kind for a in drawn.arrows)]
    width = max(max((left[w] + widths[w] for w in left), default=0), 90 * len(legend)) + _MARGIN
    height = top + _ROW * (max(rows.values(), default=0) + 1) + 40
    body = [
        f'<text x="{left[w] + widths[w] / 2:g}" y="{_MARGIN + 10}" class="title">warp {w}</text>'
        for w in left
    ]

    def middle(name: str) -> float:
        return top + _ROW * rows[name] + _HEIGHT / 2

    # Grey edges first, so they lie below.
    texts: list[str] = []
    for arrow in sorted(drawn.arrows, key=lambda a: (a.kind != "control", a.kind != "dropped")):
        ends = [(left[warp_of[n]], widths[warp_of[n]], middle(n)) for n in (arrow.source, arrow.sink)]
        path, place = _path(arrow, *ends)
        colour, dashes = _STYLES[arrow.kind]
        body.append(
            f'<path d="{path}" fill="none" stroke="{colour}"{dashes} marker-end="url(#{arrow.kind})"/>'
        )
        if arrow.text:
            x, y = place
            texts.append(
                f'<text x="{x:g}" y="{y:g}" class="channel" fill="{colour}">{escape(arrow.text)}</text>'
            )
    for name, warp in warp_of.items():
        x, y = left[warp], middle(name) - _HEIGHT / 2
        body.append(f'<rect x="{x:g}" y="{y:g}" width="{widths[warp]:g}" height="{_HEIGHT}" rx="4"/>')
        body.append(f'<text x="{x + widths[warp] / 2:g}" y="{y + 18:g}" class="name">{escape(name)}</text>')
    for n, kind in enumerate(legend):
        x, y = _MARGIN + 90 * n, height - 18
        colour, dashes = _STYLES[kind]
        body.append(f'<path d="M{x} {y - 4}h24" stroke="{colour}"{dashes}/>')
        body.append(f'<text x="{x + 29}" y="{y}" class="legend">{kind}</text>')
    markers = [
        f'<marker id="{kind}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{colour}"/></marker>'
        for kind, (colour, _) in _STYLES.items()
    ]
    style = (
        "text{font:12px sans-serif;text-anchor:middle}.title{font-weight:bold}.legend{text-anchor:start}"
        ".channel{font-size:11px;paint-order:stroke;stroke:#fff;stroke-width:3px}"
        "rect{fill:#f4f6f8;stroke:#52606d}"
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}">'
    )
    ground = f'<path d="M0 0h{width:g}v{height:g}h-{width:g}z" fill="#fff"/>'
    return (
        "\n".join(
            [head, f"<style>{style}</style>", f"<defs>{''.join(markers)}</defs>", ground, *body, *texts]
        )
        + "\n</svg>\n"
    )


def _rows(drawn: Figure) -> dict[str, int]:
    """A row for every name: beside the sources of its data edges, below those of other edges."""
    place = {name: n for n, name in enumerate(drawn.order)}
    into: dict[str, list[tuple[str, int]]] = {name: [] for name in drawn.order}
    for a in drawn.arrows:
        if place[a.source] < place[a.sink] and a.kind != "dropped":
            into[a.sink].append((a.source, 0 if a.kind == "data" else 1))
    rows: dict[str, int] = {}
    for name in drawn.order:
        rows[name] = max((rows[source] + step for source, step in into[name]), default=0)
    return rows


def _columns(drawn: Figure) -> tuple[dict[int, float], dict[int, float]]:
    left: dict[int, float] = {}
    widths: dict[int, float] = {}
    x = float(_MARGIN)
    for warp, names in drawn.columns.items():
        widths[warp] = max(60.0, _CHARACTER * max(map(len, names)) + 18)
        left[warp] = x
        x += widths[warp] + _GAP
    return left, widths


_Box = tuple[float, float, float]


def _path(arrow: Arrow, source: _Box, sink: _Box) -> tuple[str, tuple[float, float]]:
    """The line of an arrow between two boxes (left, width, middle), and its label's position."""
    (x0, width0, y0), (x1, width1, y1) = source, sink
    if arrow.kind == "control":
        x = x0 + width0 / 2
        return f"M{x:g} {y0 + _HEIGHT / 2:g}V{y1 - _HEIGHT / 2:g}", (x, y0)
    # Off the middle of the side, to keep incoming and outgoing arrows apart.
    shift = 0 if arrow.kind == "data" else 5
    start, end = (x0 + width0, x1) if x1 > x0 else (x0, x1 + width1)
    y0, y1 = y0 + shift, y1 - shift if y1 > y0 else y1 + shift
    bend = (end - start) / 2
    path = f"M{start:g} {y0:g}C{start + bend:g} {y0:g} {end - bend:g} {y1:g} {end:g} {y1:g}"
    # Where the label goes: a third of the way along the curve.
    t = 0.3
    weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
    points = ((start, y0), (start + bend, y0), (end - bend, y1), (end, y1))
    x, y = (sum(w * p[axis] for w, p in zip(weights, points, strict=True)) for axis in range(2))
    return path, (x, y + 4)
