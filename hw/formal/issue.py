"""Proof about the issue of operations: each goes to its engine once, whole and in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
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
    "none_lost_none_doubled": "the queue offers an operation in exactly the cycles in which more were issued "
    "two or more cycles before than were taken, and holds no more than its depth",
    "arrives_as_issued": "an operation is offered from the second cycle after its issue on, not before, when "
    "all that were issued before it are taken, with operands, parameters, variant, warp and pc as they were "
    "at issue",
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
    enters = bench.past(given_any, "enters")  # one that waits but cannot be offered yet
    bench.require("none_lost_none_doubled", (out.valid == (waiting != enters)) & (waiting <= depth))

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
    begins = bench.value(~watching & pick & given_any, "begins")
    fresh = bench.past(begins, "fresh")  # whether the one that is watched enters
    with bench.m.If(watching):
        sync += [ahead.eq(ahead - (taken & ~turn)), watching.eq(~(taken & turn))]
    with bench.m.Elif(begins):
        sync += [watching.eq(1), ahead.eq(waiting - taken), watched.eq(issued)]
    offered = Value.cast(out.payload)
    arrived = out.valid & (offered == Value.cast(watched))
    bench.require("arrives_as_issued", ~turn | Mux(fresh, ~out.valid, arrived))

    held = bench.past(out.valid & ~out.ready, "held")
    bench.require("offer_is_stable", ~held | (out.valid & (offered == bench.past(offered, "offered_past"))))

    def tied() -> Value:
        inside = [_Inside(bench, dut, name, depth) for name in ENGINES]
        counted = Cat(q.consistent & (q.count == n) for q, n in zip(inside, levels, strict=True))
        # Entries leave out the bits of warp and pc that are always 0.
        kept = Signal(dut._entry(engine), name="watched_kept")
        queue = inside[number]
        bench.m.d.comb += Value.cast(kept).eq(
            Mux(fresh, Value.cast(bench.view(dut, f"entry_{engine}")), queue.entry(ahead))
        )
        place = Mux(fresh, ahead + 1 == waiting, ahead < queue.there)
        mine = Cat(kept[f] == watched[f] for f in kept.shape().members).all() & place
        return counted.all() & (queue.enters == enters) & (~watching | mine) & (~held | out.valid)

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
    """The registers of the queue of an engine: one in front, and a register or a memory behind it."""

    def __init__(self, bench: Bench, dut: Component, engine: str, depth: int):
        queue, self._depth, self._places = f"queue_{engine}", depth, depth - 1
        self.enters, self.count, self._full, self._front = (
            bench.register(dut, f"{queue}/{name}") for name in ("enters", "count", "full", "front")
        )
        self._valid = getattr(dut, engine).valid
        self._stored = bench.register(dut, f"{queue}/stored") if self._places else Const(0, 1)
        self._level = self._stored
        if self._places == 1:
            self._behind = bench.register(dut, f"{queue}/behind")
        elif self._places > 1:
            registers = ("level", "reader__addr", "writer__addr")
            self._level, self._consume, self._produce = (
                bench.register(dut, f"{queue}/{name}") for name in registers
            )
            self._row = bench.memory(dut, f"{queue}/storage")

    @property
    def there(self) -> Value:
        """How many are there, the one in front included, not counting what enters."""
        return Value.cast(self._valid + self._level)

    def entry(self, place: Value) -> Value:
        """The entry that `place` others go before."""
        if not self._places:
            return self._front
        if self._places == 1:
            return Value.cast(Mux(place == 0, self._front, self._behind))
        row = self._row((self._consume + place - 1)[: len(self._consume)])
        return Value.cast(Mux(place == 0, self._front, row))

    @property
    def consistent(self) -> Value:
        """What they always obey."""
        counts = (
            (self.count <= self._depth)
            & (self.count == self.there + self.enters)
            & (self._full == (self.count == self._depth))
            & (self._level <= self._places)
            & (self._stored == (self._level != 0))
            & (self._valid | ~self._stored)
        )
        if self._places < 2:
            return Value.cast(counts)
        places = Value.cast(self._consume + self._level)[: len(self._produce)]
        return Value.cast(counts & (self._produce == places))


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
    """A queue that shows an entry, in the cycle in which it enters, instead of the one in front."""

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


class OvertakingQueue(OperationQueue):
    """A queue in which what enters goes to the front, if that is free, before those that wait behind it."""

    def _behind(self, m: Module, enters: Signal, moves: Signal) -> tuple[Value, Value]:
        goes_behind, advances = Signal(), Signal()
        stored, behind = super()._behind(m, goes_behind, advances)
        m.d.comb += [goes_behind.eq(enters & ~moves), advances.eq(moves & ~enters)]
        return stored & ~enters, behind


class EarlyQueue(OperationQueue):
    """A queue that offers what enters at once if nothing waits, and drops it later if it was taken so."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = OperationQueue(self._width, self._depth)
        enters, dropped, waits = Signal(), Signal(), Signal()
        m.d.sync += [enters.eq(self.coming), dropped.eq(enters & ~waits & self.out.ready)]
        m.d.comb += [
            inner.coming.eq(self.coming),
            inner.data.eq(self.data),
            self.room.eq(inner.room),
            waits.eq(inner.out.valid & ~dropped),
            self.out.valid.eq(waits | enters),
            self.out.payload.eq(Mux(waits, inner.out.payload, self.data)),
            inner.out.ready.eq(self.out.ready | dropped),
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

    def late(m: Module, outer: Component, inner: Component) -> None:
        # Nothing else is wrong: an operation that was shown stays so until it is taken.
        port, own, shown = getattr(inner, engine), getattr(outer, engine), Signal()
        m.d.sync += shown.eq(port.valid)
        m.d.comb += [own.valid.eq(port.valid & shown), port.ready.eq(own.ready & shown)]

    return {
        "highest": Sabotage(highest),
        "gives_up": Sabotage(gives_up),
        "other_warp": Sabotage(other_warp),
        "late": Sabotage(late),
    }


def _queue(instead: type[OperationQueue]) -> Sabotage:
    return Sabotage(replaced={"hw.control.issue.OperationQueue": instead})


def _faults(engine: str, depth: int) -> tuple[Fault, ...]:
    """The faults of a queue of this depth: some want a second entry, or two behind the one in front."""
    at = _ports(engine)
    lost = Fault(
        "dropped",
        "an operation is lost when another one is taken",
        "none_lost_none_doubled",
        _queue(LeakyQueue),
        6,
    )
    replaced = Fault(
        "overtaken",
        "the younger of two operations leaves first",
        "arrives_as_issued",
        _queue(HastyQueue),
        6,
    )
    overtaken = Fault(
        "overtaken-behind",
        "an operation goes before those that wait behind the one in front",
        "arrives_as_issued",
        _queue(OvertakingQueue),
        6,
    )
    return (
        Fault("starved", "warp 0 waits for warp 1", "lowest_warp_first", at["highest"], 6),
        *((lost, replaced) if depth > 1 else ()),
        *((overtaken,) if depth > 2 else ()),
        Fault(
            "early",
            "an operation is offered in the cycle after its issue if none waits",
            "none_lost_none_doubled",
            _queue(EarlyQueue),
            6,
        ),
        Fault(
            "late",
            "an operation is offered a cycle late if none was offered before it",
            "none_lost_none_doubled",
            at["late"],
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


def proof(config: MachineConfig, engine: str, *, depth: int | None = None) -> Proof:
    """The proof for the queue of an engine, with its faults; one for another `depth` has that in its name."""
    name, title = f"issue-{engine.replace('_', '-')}", f"issue to {engine}"
    if depth is not None:
        config = config.replace(queue_depth=depth)
        name, title = f"{name}-{depth}", f"{title}, queue of {depth}"
    return Proof(
        name,
        title,
        STATEMENTS,
        Method.INDUCTION,
        2,
        lambda bench: build(bench, config, engine),
        _faults(engine, config.queue_depth),
        bounded_depth=10,
    )
