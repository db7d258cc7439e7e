"""Find the loops of a warp whose trip count is a parameter, and see that nothing else depends on it.

In their bodies, a register that is read before it is written may differ from iteration to iteration, and so
may what is computed from it. Neither events nor control may depend on such registers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from hw import isa
from sw.check.program_loops import FIXED, Count, UnlikeError, Value, join
from sw.check.text import Block, Line, Loop
from sw.ir.types import HIGH, LOW, Type

#: Values of registers by number, of parameter registers by name; those that are missing are fixed.
_State = dict[int | str, Value]


@dataclass
class Counted:
    """Follows a warp's text; `loops` are those found, by identity, with the parameter that repeats them.

    `types` are those of the parameters. Raises `UnlikeError`.
    """

    types: Mapping[str, Type]
    loops: dict[int, Count] = field(default_factory=dict)

    def block(self, block: Block, state: _State, *, inside: bool = False) -> _State | None:
        """What is known behind a block, None where none comes there."""
        states: list[_State | None] = [None] * (len(block.nodes) + 1)
        states[0] = state
        todo = [0]
        while todo:
            at = todo.pop()
            if at == len(block.nodes):
                continue
            now = states[at]
            assert now is not None
            node = block.nodes[at]
            for following, after in self.node(node, at, now, inside=inside):
                old = states[following]
                merged = after if old is None else _joined(old, after)
                if merged != old:
                    states[following] = merged
                    todo.append(following)
        return states[-1]

    def node(self, node: Line | Loop, at: int, state: _State, *, inside: bool) -> list[tuple[int, _State]]:
        """Where control goes from a node, and what is known there."""
        if isinstance(node, Loop):
            after = self.loop(node, state, inside=inside)
            return [] if after is None else [(at + 1, after)]
        if node.name == "jump":
            self.control(node, state)
            assert node.target is not None
            stays = [(at + 1, state)] if node.predicate else []
            return [(node.target, state), *stays]
        if node.name == "halt":
            self.control(node, state)
            if inside:
                self.fail(node, "a halt stands in the loop")
            return [(at + 1, state)] if node.predicate else []
        return [(at + 1, self.line(node, state))]

    def loop(self, loop: Loop, state: _State, *, inside: bool) -> _State | None:
        """A loop: one that the parameter repeats, or one like any other."""
        line = loop.line
        self.control(line, state)
        count = _value(state, line.fields["rs1"])
        if isinstance(count, Count):
            if inside:
                self.fail(line, "repeated loops are nested")
            if line.predicate:
                self.fail(line, "a repeated loop has a predicate")
            self.loops[id(loop)] = count
            end = self.block(loop.body, {**state, **dict.fromkeys(_written(loop.body))}, inside=True)
            if end is None:
                self.fail(line, "a loop never gets to its end")
            return _joined(state, end)
        if count != FIXED:
            self.fail(line, f"how often a loop runs {self.depends}")
        while True:
            end = self.block(loop.body, state, inside=inside)
            if end is None:
                # Without a round, control goes on behind the loop.
                return state
            after = _joined(state, end)
            if after == state:
                return state
            state = after

    def control(self, line: Line, state: _State) -> None:
        """The predicate must be known."""
        if _value(state, line.predicate) != FIXED:
            self.fail(line, f"whether an instruction happens {self.depends}")

    @property
    def depends(self) -> str:
        """What must not be."""
        return f"depends on {' or '.join(self.types)}, or on how many iterations came before"

    def fail(self, line: Line, what: str) -> NoReturn:
        """Raise the error."""
        raise UnlikeError(f"line {line.number} of a warp: {what}")

    def line(self, line: Line, state: _State) -> _State:
        """One instruction."""
        f, name = line.fields, line.name
        spec = isa.INSTRUCTIONS.get(name)
        if name == "nop":
            return state
        if name in ("op", "wait", "signal") or (spec is not None and spec.engine):
            self.control(line, state)
            if spec is not None and spec.engine:
                used: list[int | str] = [f[x.name] for x in spec.fields]
                if any(_value(state, r) != FIXED for r in (*used, *spec.parameters)):
                    self.fail(line, f"what an operation is given {self.depends}")
            return state
        if name in ("param", "parami"):
            self.control(line, state)
            if name == "param" and _value(state, f["rs1"]) != FIXED:
                # Also because a value may be too wide in some iteration.
                self.fail(line, f"what a parameter register is given {self.depends}")
            return state | {isa.BY_PARAMETER[f["parameter"]].name: FIXED}
        register = f["rd"]
        made = self.scalar(line, state)
        if line.predicate:
            fixed = _value(state, line.predicate) == FIXED
            made = join(made, _value(state, register)) if fixed else None
        return state | {register: made} if register else state

    def scalar(self, line: Line, state: _State) -> Value:
        """What an instruction puts into its register."""
        f, name = line.fields, line.name
        if name == "arg":
            return self.count(Count(line.text)) if line.text in self.types else FIXED
        sources = [f[x] for x in ("rs1", "rs2", "rs3") if x in f]
        if name == "lih":
            sources.append(f["rd"])
        values = [_value(state, r) for r in sources]
        if name in ("div", "rem") and values[1] != FIXED:
            self.fail(line, f"whether a divisor is zero {self.depends}")
        if all(v == FIXED for v in values):
            return FIXED
        counts = [v for v in values if isinstance(v, Count)]
        if len(counts) == 1:
            if name in ("addi", "subi"):
                more = f["imm"] if name == "addi" else -f["imm"]
                return self.count(Count(counts[0].name, counts[0].offset + more))
            if name in ("add", "or", "sub") and 0 in sources and not (name == "sub" and sources[0] == 0):
                return counts[0]
        return None

    def count(self, count: Count) -> Value:
        """The parameter with an offset; anything where the sum may wrap."""
        kind = self.types[count.name]
        fits = kind.low + count.offset >= LOW and kind.high - 1 + count.offset < HIGH
        return count if fits else None


def _value(state: _State, register: int | str) -> Value:
    return state.get(register, FIXED) if register != 0 else FIXED


def _joined(a: _State, b: _State) -> _State:
    return {r: join(_value(a, r), _value(b, r)) for r in {**a, **b}}


def _written(block: Block) -> set[int | str]:
    """The registers that a block writes."""
    found: set[int | str] = set()
    for line in block.lines():
        if line.name in ("param", "parami"):
            found.add(isa.BY_PARAMETER[line.fields["parameter"]].name)
        elif line.fields.get("rd"):
            found.add(line.fields["rd"])
    return found


def marked(block: Block, loops: Mapping[int, Count]) -> Block:
    """The block with operations where a repeated loop starts, each of its rounds does, and it ends.

    They are named " start n", " round n" and " end n" for a parameter n, as no operation of a program can be.
    """
    nodes: list[Line | Loop] = []
    place = []
    for node in block.nodes:
        place.append(len(nodes))
        if isinstance(node, Loop):
            inner = marked(node.body, loops)
            if id(node) in loops:
                # A jump to the first instruction of the body does not begin a round.
                shifted = (_moved(n, lambda t: t + 1) for n in inner.nodes)
                inner = Block((_mark(node, "round", loops), *shifted))
                nodes += [_mark(node, "start", loops), Loop(node.line, inner), _mark(node, "end", loops)]
            else:
                nodes.append(Loop(node.line, inner))
        else:
            nodes.append(node)
    place.append(len(nodes))
    return Block(tuple(_moved(n, place.__getitem__) for n in nodes))


def _mark(loop: Loop, what: str, loops: Mapping[int, Count]) -> Line:
    return Line(loop.line.number, "op", {}, f" {what} {loops[id(loop)].name}")


def _moved(node: Line | Loop, change: Callable[[int], int]) -> Line | Loop:
    """A node with another target, if it is a jump."""
    if isinstance(node, Loop) or node.target is None:
        return node
    return dataclasses.replace(node, target=change(node.target))
