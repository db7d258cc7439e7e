"""Random programs with loops that a parameter repeats, and texts of their warps, right and wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from sw.ir.parse import parse_program
from tests.sw.check.cases import Case

#: A line of a text, or the parameter's offset (None: a constant) and number of iterations, and the body.
_Lines = list["str | _Loop"]


@dataclass
class _Loop:
    offset: int | None
    times: int
    body: _Lines


@dataclass
class _Part:
    """Lines of the program, and of each warp, in step with each other; `inner` are those of a loop."""

    program: list[str] = field(default_factory=list)
    warps: dict[int, _Lines] = field(default_factory=dict)


class Endless:
    """A random program of one parameter `n`, and warps with tokens handed on at random."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.warps = range(rng.randint(2, 3))
        self.buffers = {f"b{k}": rng.choice((1, 2, 2, 3, 4)) for k in range(rng.randint(1, 2))}
        self.count = 0
        self.lines: list[str] = []
        self.texts: dict[int, _Lines] = {w: [] for w in self.warps}
        #: By pair of warps the channel; by channel how many tokens are given in advance.
        self.channels: dict[tuple[int, int], int] = {}

    def case(self, wrong: int) -> Case:
        """The whole, with so many changes of waits and signals."""
        rng = self.rng
        for x in self.warps:
            for y in self.warps:
                if x != y and rng.random() < 0.85:
                    self.channels[x, y] = len(self.channels)
        for (x, y), c in self.channels.items():
            # What goes back is given in advance, or nobody could begin.
            if rng.random() < (0.95 if x > y else 0.1):
                self.texts[x] += [f"signal {c}"] * rng.choice((1, 1, 2, max(self.buffers.values())))
        for _ in range(rng.randint(1, 2)):
            if rng.random() < 0.35:
                self.block(1, "", self.texts, self.lines)
            if rng.random() < 0.2:
                self.lines.append("    for o in range(2):")
                inner: dict[int, _Lines] = {w: [] for w in self.warps}
                self.loop(2, inner)
                for w in self.warps:
                    self.texts[w].append(_Loop(None, 2, inner[w]))
            else:
                self.loop(1, self.texts)
        if rng.random() < 0.35:
            self.block(1, "", self.texts, self.lines)
        for _ in range(wrong):
            self.change(self.texts[rng.choice(list(self.warps))])
        head = ["@program", f"def p(n: int[{rng.choice((0, 3))}, 100000]):"]
        head += [f"    {b}: Buffer[{4 * k}]" for b, k in self.buffers.items()]
        program = parse_program("\n".join([*head, *self.lines]) + "\n")
        return Case(program, {w: _text(t) for w, t in self.texts.items()})

    def loop(self, indent: int, texts: dict[int, _Lines]) -> None:
        """A loop over the parameter."""
        rng = self.rng
        start, more = rng.choice((0, 0, 0, 1)), rng.choice((0, 0, 0, 1, -1))
        stop = "n" if more == 0 else f"n {'+' if more > 0 else '-'} {abs(more)}"
        self.lines.append(f"{'    ' * indent}for i in range({start}, {stop}):")
        bodies: dict[int, _Lines] = {w: [] for w in self.warps}
        self.block(indent + 1, "i", bodies, self.lines)
        for w in self.warps:
            if bodies[w] or rng.random() < 0.5:
                texts[w].append(_Loop(more - start, 0, bodies[w]))
                if rng.random() < 0.12 and bodies[w]:
                    self.rotate(texts[w], bodies[w], more - start)

    def rotate(self, text: _Lines, body: _Lines, offset: int) -> None:
        """The same events, where there is at least one iteration: the first and the last are taken apart."""
        cut = self.rng.randint(0, len(body))
        text[-1:] = [*body[:cut], _Loop(offset - 1, 0, [*body[cut:], *body[:cut]]), *body[cut:]]

    def block(self, indent: int, variable: str, texts: dict[int, _Lines], lines: list[str]) -> None:
        """A few instructions with tokens between them, at times with a loop of constant length."""
        rng = self.rng
        before = {w: len(texts[w]) for w in self.warps}
        workers = [rng.choice(list(self.warps)) for _ in range(rng.randint(1, 3))]
        for w in sorted(workers) if rng.random() < 0.8 else workers:
            label = f"I{self.count}"
            self.count += 1
            pad, inner = indent, "" if rng.random() < 0.85 else "j"
            if inner:
                lines.append(f"{'    ' * indent}for j in range(2):")
                pad += 1
            side = rng.choice(("read", "write"))
            lines.append(f"{'    ' * pad}{label} = f({side}={self.place(variable or inner)}, warp={w})")
            texts[w].append(_Loop(None, 2, [f"op {label}"]) if inner else f"op {label}")
        for (x, y), c in self.channels.items():
            if rng.random() < 0.93:
                times = 1 if rng.random() < 0.95 else 2
                for w, line in ((x, f"signal {c}"), (y, f"wait {c}")):
                    last = len(texts[w])
                    usual = last if line.startswith("signal") else before[w]
                    at = usual if rng.random() < 0.9 else rng.randint(before[w], last)
                    texts[w][at:at] = [line] * times

    def place(self, variable: str) -> str:
        """A tile of a buffer."""
        rng = self.rng
        name, slots = rng.choice(list(self.buffers.items()))
        slot = str(rng.randrange(slots))
        if variable and rng.random() < 0.8:
            index = rng.choice(
                (variable, variable, f"{variable} + 1", f"{variable} * 3 + 2", f"{variable} // 2")
            )
            slot = f"({index}) % {slots}"
        return f"{name}[4 * ({slot}):4 * ({slot}) + {rng.choice((2, 4))}]"

    def change(self, text: _Lines) -> None:
        """Take out, move, double or add a wait or signal somewhere."""
        rng = self.rng
        while (inner := [x for x in text if isinstance(x, _Loop)]) and rng.random() < 0.6:
            text = rng.choice(inner).body
        places = [n for n, x in enumerate(text) if isinstance(x, str) and not x.startswith("op")]
        kind = rng.randrange(4)
        if kind == 3 or not places:
            channel = rng.randrange(max(1, len(self.channels)))
            text.insert(rng.randint(0, len(text)), f"{rng.choice(('wait', 'signal'))} {channel}")
            return
        at = rng.choice(places)
        if kind == 0:
            del text[at]
        elif kind == 1:
            line = text.pop(at)
            text.insert(rng.randint(0, len(text)), line)
        else:
            text.insert(at, text[at])


def _text(lines: _Lines) -> str:
    """The assembly of a warp."""
    made = ["arg r1, n"]
    count = 0

    def put(body: _Lines, depth: int) -> None:
        nonlocal count
        for line in body:
            if isinstance(line, str):
                made.append(line)
                continue
            count += 1
            label, register = f"L{count}", f"r{2 + depth}"
            made.append(
                f"li {register}, {line.times}"
                if line.offset is None
                else f"addi {register}, r1, {line.offset}"
            )
            made.append(f"loop {register}, {label}")
            put(line.body, depth + 1)
            made.append(f"{label}:")

    put(lines, 0)
    return "\n".join([*made, "halt"])
