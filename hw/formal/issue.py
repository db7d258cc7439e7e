"""Proof about the issue of operations: each goes to its engine once, whole and in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component, connect, flipped

from hw import isa
from hw.config import ENGINES, MachineConfig
from hw.control.issue import Issue
from hw.control.queue import OperationQueue
from hw.formal.bench import Bench, Sabotage
from hw.formal.proof import Fault, Method, Proof
from hw.interfaces import operation

STATEMENTS = {
    "lowest_warp_first": "of the warps that ask for an engine whose queue has room the lowest-numbered one "
    "is served, and no other",
    "none_lost_none_doubled": "the queue offers an operation if and only if more were issued than taken, "
    "and holds no more than its depth",
    "arrives_as_issued": "an operation is taken after all that were issued before it, with operands, "
    "parameters, variant, warp and pc as they were at issue",
    "offer_is_stable": "an operation that is offered stays offered, unchanged, until the engine takes it",
}


def build(bench: Bench, config: MachineConfig, engine: str) -> None:
    """Follow one operation, any one, through the queue of an engine.

    Assumed of the sequencers: what they offer names an engine and a place of the program memory, and
    parameters stay for a cycle after an operation has been issued.
    """
    dut = bench.add(Issue(config), "dut")
    number, specs = ENGINES.index(engine), isa.of_engine(engine)
    shape, depth = operation(engine), config.queue_depth
    warps = [dut.warps[w] for w in range(config.warps)]
    out = getattr(dut, engine)
    sync = bench.m.d.sync
    goes, levels = _served(bench, dut, warps, config)
    waiting = levels[number]
    given = [
        bench.value(g & (w.engine == number), f"given{i}")
        for i, (g, w) in enumerate(zip(goes, warps, strict=True))
    ]
    given_any = bench.value(Cat(*given).any(), "given_any")
    taken = bench.value(out.valid & out.ready, "taken")
    bench.require("none_lost_none_doubled", (out.valid == (waiting != 0)) & (waiting <= depth))

    # What the operation must be, put together from the port of the warp that is served.
    issued = Signal(shape, name="issued")
    for i, warp in enumerate(warps):
        with bench.m.If(given[i]):
            bench.m.d.comb += [
                *[issued[o.name].eq(warp.values[k]) for k, o in enumerate(specs[0].operands)],
                *[issued[p].eq(warp.parameters[p]) for p in sorted({p for s in specs for p in s.parameters})],
                issued.variant.eq(warp.variant),
                issued.warp.eq(i),
                issued.pc.eq(warp.pc),
            ]
    pick, watching = bench.free(1, "pick"), Signal(name="watching")
    ahead, watched = Signal(range(depth + 1), name="ahead"), Signal(shape, name="watched")
    turn = bench.value(watching & (ahead == 0), "turn")
    with bench.m.If(watching):
        sync += [ahead.eq(ahead - (taken & ~turn)), watching.eq(~(taken & turn))]
    with bench.m.Elif(pick & given_any):
        sync += [watching.eq(1), ahead.eq(waiting - taken), watched.eq(issued)]
    offered = Value.cast(out.payload)
    arrived = out.valid & (offered == Value.cast(watched))
    bench.require("arrives_as_issued", ~turn | arrived)

    held = bench.past(out.valid & ~out.ready, "held")
    bench.require("offer_is_stable", ~held | (out.valid & (offered == bench.past(offered, "offered_past"))))

    def tied() -> Value:
        inside = [_Inside(bench, dut, name, depth) for name in ENGINES]
        levelled = Cat(q.consistent & (q.level + q.enters == n) for q, n in zip(inside, levels, strict=True))
        # Entries leave out the bits of warp and pc that are always 0.
        kept, passing = (Signal(dut._entry(engine), name=f"watched_{n}") for n in ("kept", "passing"))
        queue = inside[number]
        bench.m.d.comb += [
            Value.cast(kept).eq(queue.entry((queue.consume + ahead)[: len(queue.consume)])),
            passing.eq(bench.view(dut, f"entry_{engine}")),
        ]
        where = Mux(ahead == queue.level, passing, kept)
        entry = data.View(kept.shape(), where)
        mine = Cat(entry[f] == watched[f] for f in kept.shape().members).all() & (ahead < waiting)
        return levelled.all() & (~watching | mine) & (~held | out.valid)

    bench.invariant("queue", tied)


def _served(
    bench: Bench, dut: Component, warps: Sequence[Any], config: MachineConfig
) -> tuple[list[Signal], list[Signal]]:
    """Which warps are served, and how many operations are in each queue or on the way to it."""
    depth = config.queue_depth
    levels = [Signal(range(depth + 2), name=f"waiting_{name}") for name in ENGINES]
    rooms = Cat(level != depth for level in levels)
    goes: list[Signal] = []
    asks: list[Signal] = []
    served: list[Value] = []
    for i, warp in enumerate(warps):
        free = bench.value(rooms.bit_select(warp.engine, 1), f"free{i}")
        before = Value.cast(Cat(*asks).any() if i else 0).bool()
        served.append(~warp.valid | (warp.ready == (free & ~before)))
        asks.append(bench.value(warp.valid & free, f"asks{i}"))
        goes.append(bench.value(warp.valid & warp.ready, f"goes{i}"))
        parameters = Value.cast(warp.parameters)
        same = parameters == bench.past(parameters, f"parameters_past{i}")
        bench.assume(~warp.valid | (warp.engine < len(ENGINES)))
        bench.assume(~warp.valid | (warp.pc < config.imem_words))
        bench.assume(~bench.past(goes[i], f"went{i}") | same)
    bench.require("lowest_warp_first", Cat(*served).all())
    for e, (name, level) in enumerate(zip(ENGINES, levels, strict=True)):
        entered = Cat(g & (w.engine == e) for g, w in zip(goes, warps, strict=True)).any()
        port = getattr(dut, name)
        bench.m.d.sync += level.eq(level + entered - (port.valid & port.ready))
    return goes, levels


class _Inside:
    """The registers of the queue of an engine."""

    def __init__(self, bench: Bench, dut: Component, engine: str, depth: int):
        self.enters, self.stored, self.level, self.consume, self.produce = (
            bench.register(dut, f"queue_{engine}/{n}")
            for n in ("enters", "stored", "level", "consume", "produce")
        )
        self.entry = bench.memory(dut, f"queue_{engine}/storage")
        self._depth = depth

    @property
    def consistent(self) -> Value:
        """What they always obey."""
        places = Value.cast(self.consume + self.level)[: len(self.produce)]
        return (
            (self.level + self.enters <= self._depth)
            & (self.stored == (self.level != 0))
            & (self.produce == places)
        )


class LeakyQueue(OperationQueue):
    """A queue that drops what comes while an entry is taken."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = OperationQueue(self._width, self._depth)
        m.d.comb += [
            inner.coming.eq(self.coming & ~(self.out.valid & self.out.ready)),
            inner.data.eq(self.data),
            self.room.eq(inner.room),
        ]
        connect(m, inner.out, flipped(self.out))
        return m


class HastyQueue(OperationQueue):
    """A queue in which the latest entry goes before those that are stored."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = OperationQueue(self._width, self._depth)
        enters = Signal()
        m.d.sync += enters.eq(self.coming)
        m.d.comb += [
            inner.coming.eq(self.coming),
            inner.data.eq(self.data),
            self.room.eq(inner.room),
            self.out.valid.eq(inner.out.valid),
            self.out.payload.eq(Mux(enters, self.data, inner.out.payload)),
            inner.out.ready.eq(self.out.ready),
        ]
        return m


def _ports(engine: str) -> dict[str, Sabotage]:
    def highest(m: Module, outer: Component, inner: Component) -> None:
        # Nobody is told to wait for warp 0.
        m.d.comb += outer.warps[0].ready.eq(inner.warps[0].ready & ~outer.warps[1].valid)

    def gives_up(m: Module, outer: Component, inner: Component) -> None:
        port, own = getattr(inner, engine), getattr(outer, engine)
        waited = Signal()
        m.d.sync += waited.eq(port.valid & ~own.ready & ~waited)
        m.d.comb += own.valid.eq(port.valid & ~waited)

    def other_warp(m: Module, outer: Component, inner: Component) -> None:
        port, own = getattr(inner, engine), getattr(outer, engine)
        m.d.comb += own.payload.warp.eq(Mux(port.payload.warp == 2, 1, port.payload.warp))

    return {"highest": Sabotage(highest), "gives_up": Sabotage(gives_up), "other_warp": Sabotage(other_warp)}


def _faults(engine: str) -> tuple[Fault, ...]:
    at = _ports(engine)
    return (
        Fault("starved", "warp 0 waits for warp 1", "lowest_warp_first", at["highest"], 6),
        Fault(
            "dropped",
            "an operation is lost when another one is taken",
            "none_lost_none_doubled",
            Sabotage(replaced={"hw.control.issue.OperationQueue": LeakyQueue}),
            6,
        ),
        Fault(
            "overtaken",
            "the younger of two operations leaves first",
            "arrives_as_issued",
            Sabotage(replaced={"hw.control.issue.OperationQueue": HastyQueue}),
            6,
        ),
        Fault(
            "wrong-warp",
            "operations of warp 2 are marked as warp 1's",
            "arrives_as_issued",
            at["other_warp"],
            6,
        ),
        Fault(
            "offer-withdrawn",
            "an operation that is not taken at once vanishes for a cycle",
            "offer_is_stable",
            at["gives_up"],
            6,
        ),
    )


def proof(config: MachineConfig, engine: str) -> Proof:
    """The proof for the queue of an engine, with its faults."""
    return Proof(
        f"issue-{engine.replace('_', '-')}",
        f"issue to {engine}",
        STATEMENTS,
        Method.INDUCTION,
        2,
        lambda bench: build(bench, config, engine),
        _faults(engine),
        bounded_depth=10,
    )
