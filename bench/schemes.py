"""Three other ways to order the warps of an emitted program, to compare `sw.warps` with (`bench.sync`)."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from hw.config import MachineConfig
from sw.compile.forms import HALVES, INNER, Loop, both, count, index
from sw.ir.expression import Const, Expr, Op, apply, evaluate
from sw.ir.program import For, Instruction, Program, Region
from sw.ir.roles import WarpRole
from sw.ir.scope import retype
from sw.ir.split import replaced
from sw.ir.walk import instructions
from sw.warps.candidates import behind, meeting
from sw.warps.choose import world_of
from sw.warps.listing import bounded_runs
from sw.warps.sites import Gap, Order, Spot, SyncSite, insert, spots
from sw.warps.tokens import Demand, World

# Barriers


def barrier(program: Program, config: MachineConfig) -> Program:
    """The program with barriers of all warps between dependent phases."""
    world, demands = world_of(bounded_runs(program), config.channel_depth)
    pairs = [(int(t), int(u), d) for d in demands for t, u in d.pairs]
    pairs.sort(key=lambda pair: (pair[1], pair[0]))
    sites: list[SyncSite] = []
    while (bad := _open(world, sites, pairs)) is not None:
        sites.append(SyncSite(bad.sink.ancestor(meeting(bad.source, bad.sink)), Order.WAIT))
    for site in list(sites):
        rest = [s for s in sites if s is not site]
        if _open(world, rest, pairs) is None:
            sites = rest
    warps = sorted({s.warp for s in instructions(program) if s.warp is not None})
    draft = _Draft(program)
    for site in sites:
        draft.meet(site.gap, warps)
    return draft.program()


def _open(world: World, sites: Sequence[SyncSite], pairs: Sequence[tuple[int, int, Demand]]) -> Demand | None:
    """The demand of the first pair of dependent instances (by the later one) with no site in between."""
    world.add(sites)
    at = world.times(tuple(sites))
    early, late = (np.searchsorted(at, [pair[n] for pair in pairs]) for n in range(2))
    bad = np.flatnonzero(early == late)
    return pairs[bad[0]][2] if bad.size else None


# The program with waits and signals


class _Draft:
    """A program to which waits and signals are added, with tokens that exist at the start."""

    def __init__(self, program: Program):
        self.source = program
        self.additions: defaultdict[Gap, list[Instruction]] = defaultdict(list)
        #: Signals at the start, and the number of repetitions of each instruction by label.
        self.advance: list[Instruction] = []
        self.times: dict[str, int] = {}
        self.channels: dict[object, int] = {}

    def operation(self, name: str, warp: int, channel: object, when: Expr | None, times: int) -> Instruction:
        """Waits or signals of a warp on the channel with this key."""
        label = f"{name}_{len(self.times)}"
        self.times[label] = times
        number = self.channels.setdefault(channel, len(self.channels))
        return Instruction(label, name, warp=warp, when=when, operands=(("channel", Const(number)),))

    def add(
        self, gap: Gap, name: str, warp: int, channel: object, when: Expr | None = None, times: int = 1
    ) -> None:
        """Add one or several to a gap, after those already there."""
        self.additions[gap].append(self.operation(name, warp, channel, when, times))

    def lead(self, warp: int, channel: object, tokens: int) -> None:
        """Tokens that a warp gives at the start."""
        self.advance.append(self.operation("signal", warp, channel, None, tokens))

    def meet(self, gap: Gap, warps: Sequence[int]) -> None:
        """A barrier: each warp signals the array's warp, which then signals all others."""
        hub = WarpRole.GEMM if WarpRole.GEMM in warps else warps[0]
        others = [w for w in warps if w != hub]
        for w in others:
            self.add(gap, "signal", w, ("come", w))
            self.add(gap, "wait", hub, ("come", w))
        for w in others:
            self.add(gap, "signal", hub, ("go", w))
            self.add(gap, "wait", w, ("go", w))

    def program(self) -> Program:
        """The whole program. Signals with few tokens come first, so that nobody waits for others' tokens."""
        made = insert(self.source, self.additions)
        advance = sorted(self.advance, key=lambda s: self.times[s.label])
        return retype(dataclasses.replace(made, body=replaced((*advance, *made.body), self.repeated)))

    def repeated(self, s: Instruction) -> tuple[Instruction | For]:
        """An instruction, or a loop if it is repeated."""
        times = self.times.get(s.label, 1)
        if times == 1:
            return (s,)
        return (For(f"of_{s.label}", Const(0), Const(times), Const(1), (s,)),)


# Tokens between neighbours


class _Pipeline:
    """Positions of load, product and store in an emitted program."""

    def __init__(self, program: Program):
        places = {s.instruction.label.partition("_")[0]: s for s in spots(program)}
        product, store = places["G"], places["S"]
        self.front = product.gap
        self.back = behind(places.get("GA", product).gap)
        self.store = store.gap
        self.places = {
            warp: places[label].gap for warp, label in ((WarpRole.LOAD_A, "LA"), (WarpRole.LOAD_B, "LB"))
        }
        #: Condition under which the current inner tile exists.
        self.there = store.instruction.when
        self.loops = _loops(product)
        self.steps = math.prod(loop.count for loop in self.loops if loop.name == "k")
        self.parts = math.prod(loop.count for loop in self.loops if loop.name == INNER)
        self.loads = {WarpRole.LOAD_A: _loops(places["LA"]), WarpRole.LOAD_B: _loops(places["LB"])}
        self.stored = [loop for loop in _loops(store) if loop.name != INNER]
        self.halves = self._halves(store.instruction)

    def _halves(self, store: Instruction) -> int:
        """Number of alternating places of the accumulator, seen from two successive tiles."""
        (held,) = (a for a in store.reads if isinstance(a, Region))
        steps = dict.fromkeys((v.name for v in held.box[0].start.variables()), 0)
        last = [loop.name for loop in self.stored[-1:]]
        return len({evaluate(held.box[0].start, steps | dict.fromkeys(last, n)) for n in range(2)})

    def products(self, warp: int) -> int:
        """Number of products that read what one load brings."""
        return math.prod(loop.count for loop in self.loops[len(self.loads[warp]) :])

    def is_last(self, holds: bool) -> Expr | None:
        """Whether the step of k is (or is not) the last; None if there is only one."""
        variable = index(self.loops, "k")
        return variable and apply(Op.EQ if holds else Op.NE, variable, self.steps - 1)

    def is_later(self, holds: bool) -> Expr | None:
        """Whether the step of k is (or is not) after the first; None if there is only one."""
        variable = index(self.loops, "k")
        return variable and apply(Op.NE if holds else Op.EQ, variable, 0)


def _loops(spot: Spot) -> list[Loop]:
    """The loops around an instruction with a known trip count."""
    return [Loop(loop.variable, loop.stop.value) for loop, _ in spot.loops if isinstance(loop.stop, Const)]


def tokens(program: Program, config: MachineConfig) -> Program:
    """The program with a token for each pair of instructions of neighbouring engines that use one tile.

    The warps of loads and of the store follow the loops over products, to give and take a token for each.
    Tokens for free places exist at the start.
    """
    p, draft = _Pipeline(program), _Draft(program)
    full, free = ("full", WarpRole.STORE), ("free", WarpRole.STORE)
    # Signals fire in order, and at the end only the store is awaited.
    draft.add(p.back, "signal", WarpRole.GEMM, full, p.there)
    for warp, loops in p.loads.items():
        draft.add(p.front, "signal", warp, ("full", warp), p.there)
        draft.add(p.front, "wait", WarpRole.GEMM, ("full", warp), p.there)
        if loops:
            draft.add(p.back, "signal", WarpRole.GEMM, ("free", warp))
            draft.add(p.places[warp], "wait", warp, ("free", warp), times=p.products(warp))
            draft.lead(WarpRole.GEMM, ("free", warp), HALVES * p.products(warp))
    if p.steps > 1:
        # A store gives a token for each product: one at once, the others in the next tile's loops.
        draft.add(p.back, "signal", WarpRole.STORE, free, p.is_later(True))
        draft.add(p.back, "wait", WarpRole.STORE, full, both(p.there, p.is_last(False)))
    draft.add(p.store, "wait", WarpRole.STORE, full, p.there)
    draft.add(behind(p.store), "signal", WarpRole.STORE, free)
    draft.add(p.front, "wait", WarpRole.GEMM, free)
    draft.lead(WarpRole.STORE, free, ((p.halves - 1) * p.steps + 1) * p.parts)
    return draft.program()


# A channel for each place


def values(program: Program, config: MachineConfig) -> Program:
    """The program with a full and an empty channel for each place of a tile in a buffer.

    Every product that reads a tile takes its own token and gives one back.
    """
    p, draft = _Pipeline(program), _Draft(program)
    # The store comes first: signals fire in order, and at the end only the store is awaited.
    for place, turn in _turns(p.stored, p.halves):
        for part in range(p.parts):
            variable = index(p.loops, INNER)
            here = both(both(turn, variable and apply(Op.EQ, variable, part)), p.there)
            done, room = ("done", place, part), ("room", place, part)
            draft.add(p.front, "wait", WarpRole.GEMM, room, both(p.is_later(False), here))
            draft.add(p.back, "signal", WarpRole.GEMM, done, both(p.is_last(True), here))
            draft.add(p.store, "wait", WarpRole.STORE, done, here)
            draft.add(behind(p.store), "signal", WarpRole.STORE, room, here)
            draft.lead(WarpRole.STORE, room, 1)
    for warp, loops in p.loads.items():
        for place, when in _turns(loops, HALVES if loops else 1):
            full, free = ("full", warp, place), ("free", warp, place)
            draft.add(p.front, "signal", warp, full, both(when, p.there))
            draft.add(p.front, "wait", WarpRole.GEMM, full, both(when, p.there))
            if loops:
                draft.add(p.back, "signal", WarpRole.GEMM, free, when)
                draft.add(p.places[warp], "wait", warp, free, when, p.products(warp))
                draft.lead(WarpRole.GEMM, free, p.products(warp))
    return draft.program()


def _turns(loops: Sequence[Loop], places: int) -> list[tuple[int, Expr | None]]:
    """Alternating places, each with the condition that it is current; None if there is only one."""
    if places == 1 or not loops:
        return [(0, None)]
    return [(n, apply(Op.EQ, count(loops) % places, n)) for n in range(places)]
