"""Draws a fabric as SVG: a box per PE, an arrow per link, and optionally what each PE does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from hw.fabric.bitstream import entry_words
from hw.fabric.fabric import Fabric
from hw.fabric.layout import layout
from hw.fabric.operations import Unit

#: Pixels: width of a box, gap between boxes, line of text, margin, character.
_WIDTH, _GAP, _LINE, _MARGIN, _CHARACTER = 104, 64, 14, 48, 6.3
#: Pixels between the two directions of a link, and from a title to the boxes.
_APART, _TITLE = 9, 40
#: Fill colours of PEs with a memory port, with a table, and of all others.
_FILLS = ((Unit.MEMORY, "#dfeaf7"), (Unit.TABLE, "#f3ead9"), (None, "#f4f6f8"))
_STYLE = (
    "text{font:11px sans-serif;text-anchor:middle}.title{font-size:14px;font-weight:bold}"
    ".head{font-weight:bold}.dim{fill:#6b7785}.wire{font-size:10px;paint-order:stroke;stroke:#fff;"
    "stroke-width:3px}rect{stroke:#52606d}path{fill:none}"
)


@dataclass(frozen=True)
class Text:
    """A line of text with its colour; `title` is its tooltip."""

    text: str
    colour: str = "#1f2933"
    title: str = ""


@dataclass(frozen=True)
class Panel:
    """One picture of the CGRA: the lines in the box of each PE, the first in bold; the links in use."""

    title: str
    boxes: Mapping[int, Sequence[Text]]
    links: Mapping[int, Text]


def to_svg(fabric: Fabric) -> str:
    """Draws the PEs with their kinds, and the links between them."""
    boxes = {}
    for pe, kind in enumerate(fabric.kinds):
        size = f"{kind.registers} registers, {layout(fabric, pe).words} words"
        lines = [kind.name, *sorted(unit.value for unit in kind.units), f"{kind.registers} registers"]
        lines += [f"{kind.lanes} lanes"] * (kind.lanes > 1)
        boxes[pe] = [Text(line, title=size) for line in lines]
    links = {i: Text("", "#52606d") for i in range(len(fabric.links))}
    title = f"{fabric.name}: {fabric.rows} x {fabric.cols}, {entry_words(fabric)} words per context"
    return document(fabric, [Panel(title, boxes, links)], per_row=1)


def document(fabric: Fabric, panels: Sequence[Panel], per_row: int) -> str:
    """Arranges panels in rows as one SVG."""
    lines = max((len(box) for panel in panels for box in panel.boxes.values()), default=1)
    height = 24 + _LINE * max(2, lines)
    width = fabric.cols * (_WIDTH + _GAP) + _MARGIN
    tall = fabric.rows * (height + _GAP) + _TITLE
    body: list[str] = []
    colours = dict.fromkeys(link.colour for panel in panels for link in panel.links.values())
    for n, panel in enumerate(panels):
        down, right = divmod(n, per_row)
        body.append(f'<g transform="translate({_MARGIN + right * width} {_MARGIN + down * tall})">')
        body += _Drawing(fabric, height, list(colours)).panel(panel)
        body.append("</g>")
    size = _MARGIN + min(per_row, len(panels)) * width, _MARGIN + -(-len(panels) // per_row) * tall
    markers = "".join(
        f'<marker id="arrow{i}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="6" markerHeight="6" '
        f'orient="auto"><path d="M0 0L8 4L0 8z" style="fill:{colour}"/></marker>'
        for i, colour in enumerate(["#d3d9df", *colours])
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" '
            f'viewBox="0 0 {size[0]} {size[1]}">',
            f"<style>{_STYLE}</style>",
            f"<defs>{markers}</defs>",
            f'<path d="M0 0h{size[0]}v{size[1]}h-{size[0]}z" style="fill:#fff"/>',
            *body,
            "</svg>",
            "",
        ]
    )


Point = tuple[float, float]


class _Drawing:
    """The geometry of a fabric whose boxes all have the same height."""

    def __init__(self, fabric: Fabric, height: int, colours: Sequence[str]):
        self.fabric, self.height = fabric, height
        self.colours = {colour: i for i, colour in enumerate(colours, start=1)}

    def panel(self, panel: Panel) -> list[str]:
        """Draws idle links, the links in use above them, the boxes, and the labels of links."""
        fabric = self.fabric
        found = [f'<text x="0" y="10" class="title" text-anchor="start" style="text-anchor:start">'
                 f"{escape(panel.title)}</text>"]  # fmt: skip
        texts = []
        for used in (False, True):
            for number in range(len(fabric.links)):
                if (number in panel.links) is used:
                    path, (x, y) = self.link(number)
                    text = panel.links.get(number)
                    colour = text.colour if text else "#d3d9df"
                    arrow = self.colours[colour] if text else 0
                    width = 1.8 if text and text.text else 1
                    found.append(
                        f'<path d="{path}" stroke="{colour}" stroke-width="{width}" '
                        f'marker-end="url(#arrow{arrow})"/>'
                    )
                    if text and text.text:
                        texts.append(_text(x, y + 3, text, "wire", 9))
        for pe, kind in enumerate(fabric.kinds):
            x, y = self.corner(pe)
            fill = next(colour for unit, colour in _FILLS if unit is None or unit in kind.units)
            found.append(
                f'<rect x="{x:g}" y="{y:g}" width="{_WIDTH}" height="{self.height}" rx="4" fill="{fill}"/>'
            )
            row, col = fabric.at(pe)
            where = Text(f"{row},{col}", "#9aa5b1")
            found.append(_text(x + _WIDTH - 14, y + self.height - 5, where, "", 9))
            for i, line in enumerate(panel.boxes.get(pe, ())):
                place = x + _WIDTH / 2, y + _LINE * (i + 1) + 2
                found.append(_text(*place, line, "head" if i == 0 else "", int(_WIDTH / _CHARACTER)))
        return found + texts

    def corner(self, pe: int) -> Point:
        """The upper left corner of a box."""
        row, col = self.fabric.at(pe)
        return col * (_WIDTH + _GAP), _TITLE + row * (self.height + _GAP)

    def link(self, number: int) -> tuple[str, Point]:
        """The line of a link, and the position of its label."""
        link = self.fabric.links[number]
        (r0, c0), (r1, c1) = self.fabric.at(link.source), self.fabric.at(link.target)
        (x0, y0), (x1, y1) = self.corner(link.source), self.corner(link.target)
        w, h, down, right = _WIDTH, self.height, _sign(r1 - r0), _sign(c1 - c0)
        # Side to side; the two directions of a link run apart.
        start = x0 + w / 2 * (1 + right), y0 + h / 2 * (1 + down)
        end = x1 + w / 2 * (1 - right), y1 + h / 2 * (1 - down)
        if max(abs(r1 - r0), abs(c1 - c0)) == 1:
            straight = 0 in (down, right)
            apart = _APART if straight else _APART / 2
            aside = apart * down, -apart * right
            start, end = _moved(start, *aside), _moved(end, *aside)
            # Labels of crossing diagonals stay apart.
            part = 0.5 if straight else 0.3
            place = start[0] + part * (end[0] - start[0]), start[1] + part * (end[1] - start[1])
            return f"M{start[0]:g} {start[1]:g}L{end[0]:g} {end[1]:g}", place
        if down == 0:
            # A long link within a row: above the boxes to the right, below them to the left.
            side, level = (-1, 0) if right > 0 else (1, h)
            start = x0 + w / 2 + 20 * right, y0 + level
            end = x1 + w / 2 - 20 * right, y1 + level
            return _bent(start, end, (0, side * _GAP * 0.8))
        if right == 0:
            side, level = (-1, 0) if down > 0 else (1, w)
            start = x0 + level, y0 + h / 2 + 12 * down
            end = x1 + level, y1 + h / 2 - 12 * down
            return _bent(start, end, (side * _GAP * 0.8, 0))
        return _bent(start, end, (_APART * down, -_APART * right))


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _moved(point: Point, right: float, down: float) -> Point:
    return point[0] + right, point[1] + down


def _bent(start: Point, end: Point, by: Point) -> tuple[str, Point]:
    """A curve that leaves and arrives sideways, and its midpoint."""
    (x0, y0), (x1, y1) = start, end
    path = f"M{x0:g} {y0:g}C{x0 + by[0]:g} {y0 + by[1]:g} {x1 + by[0]:g} {y1 + by[1]:g} {x1:g} {y1:g}"
    return path, ((x0 + x1) / 2 + 0.75 * by[0], (y0 + y1) / 2 + 0.75 * by[1])


def _text(x: float, y: float, text: Text, style: str, most: int) -> str:
    """A text cut to this many characters; its tooltip shows the whole text."""
    shown = text.text if len(text.text) <= most else text.text[: most - 1] + "…"
    title = text.title or (text.text if shown != text.text else "")
    inner = escape(shown) + (f"<title>{escape(title)}</title>" if title else "")
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x:g}" y="{y:g}"{kind} style="fill:{text.colour}">{inner}</text>'
