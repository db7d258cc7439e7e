"""Proof of instruction issue: each operation goes to its engine once, in order, with its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, memory
from amaranth.lib.wiring import Component, In, Out, Signature

from hw import isa
from hw.config import ENGINES, MachineConfig
from hw.formal.bench import Bench, Sabotage, altered, blinking, past
from hw.formal.proof import Fault, Proof, planted
from hw.rtl.core.issue import Issue
from hw.rtl.core.queue import OperationQueue
from hw.rtl.core.sequencer import VALUE
from hw.rtl.interfaces import operation

STATEMENTS = {
    "room_shown": "`room` shows for each engine whether its queue has room, counting operations that "
    "were issued but have not entered it yet",
    "none_lost_none_doubled": "the queue offers an operation in exactly the cycles in which more were "
    "issued at least three cycles ago than were taken, except for the cycle after one is taken. It "
    "never holds more than its depth",
    "arrives_as_issued": "an operation is offered three cycles after its issue, or two after the one "
    "before it is taken, whichever is later; its operands, variant, warp and pc are those of its "
    "issue",
    "parameters_as_set": "an operation is offered with the parameters that its warp had set last when "
    "it issued, or 0 for those not set since they were cleared, whatever other warps do",
    "offer_is_stable": "an offered operation stays offered, unchanged, until the engine takes it",
}


def build(bench: Bench, config: MachineConfig, engine: str) -> None:
    """Follows an arbitrary operation through the queue of an engine, and an arbitrary parameter of one warp.

    Only the warp that has its turn issues, so no two operations enter a queue in one cycle. Assumptions about
    the sequencer: what it issues names an engine with room or a parameter, a warp, and an address of the
    program memory; while it is cleared it names warp 0 and issues nothing, nor in the previous cycle.
    """
    dut = bench.add(Issue(config), "dut")
    number, specs = ENGINES.index(engine), isa.of_engine(engine)
    parameters = sorted({p for s in specs for p in s.parameters})
    fields = {f: part.shape for f, part in operation(engine) if f not in parameters}
    shape, depth = data.StructLayout(fields), config.queue_depth
    port, out = dut.issue, getattr(dut, engine)
    sync = bench.m.d.sync
    levels = _levels(bench, dut, config)
    waiting = levels[number]
    given = bench.value(port.valid & ~port.sets & (port.engine == number), "given")
    taken = bench.value(out.valid & out.ready, "taken")
    enters = bench.past(given, "enters")  # an operation that waits but cannot be offered yet
    entered = bench.past(enters, "entered")  # another one
    took = bench.past(taken, "took")
    offers = (waiting != enters + entered) & ~took
    bench.require("none_lost_none_doubled", (out.valid == offers) & (waiting <= depth))

    # What the operation must be.
    issued = Signal(shape, name="issued")
    bench.m.d.comb += [
        *[issued[o.name].eq(port.values[k]) for k, o in enumerate(specs[0].operands)],
        *[issued[name].eq(getattr(port, name)) for name in ("variant", "warp", "pc")],
    ]
    pick, watching = bench.free(1, "pick"), Signal(name="watching")
    ahead, watched = Signal(range(depth + 1), name="ahead"), Signal(shape, name="watched")
    turn = bench.value(watching & (ahead == 0), "turn")
    begins = bench.value(~watching & pick & given, "begins")
    fresh = bench.past(begins, "fresh")  # whether the watched operation enters
    with bench.m.If(watching):
        sync += [ahead.eq(ahead - (taken & ~turn)), watching.eq(~(taken & turn))]
    with bench.m.Elif(begins):
        sync += [watching.eq(1), ahead.eq(waiting - taken), watched.eq(issued)]
    arrived = out.valid & Cat(out.payload[f] == watched[f] for f in fields).all()
    young = bench.past(fresh, "young")
    bench.require("arrives_as_issued", ~turn | Mux(fresh | young | took, ~out.valid, arrived))

    one = _Parameter(bench, dut, config, parameters)
    kept_value, kept_known = Signal(32, name="watched_value"), Signal(name="watched_known")
    with bench.m.If(begins):
        sync += [kept_value.eq(one.told), kept_known.eq(one.known)]

    def as_set(entry: Any) -> Value:
        return ~kept_known | (watched.warp != one.owner) | one.is_in(entry, kept_value)

    bench.require("parameters_as_set", ~(turn & out.valid) | as_set(out.payload))

    bench.require("offer_is_stable", bench.keeps(out, "offer"))
    held = bench.past(out.valid & ~out.ready, "held")

    def tied() -> Value:
        inside = [_Inside(bench, dut, name, depth) for name in ENGINES]
        counted = Cat(q.consistent & (q.count == n) for q, n in zip(inside, levels, strict=True))
        # Entries omit the bits of warp and pc that are always 0.
        kept = Signal(dut._entry(engine), name="watched_kept")
        queue = inside[number]
        bench.m.d.comb += Value.cast(kept).eq(
            Mux(fresh, Value.cast(bench.view(dut, f"entry_{engine}")), queue.entry(ahead))
        )
        place = Mux(fresh, ahead + 1 == waiting, ahead < queue.there)
        mine = Cat(kept[f] == watched[f] for f in fields).all() & as_set(kept) & place
        recent = watching & (young | fresh)
        last = ~recent | (ahead + 1 + (young & enters) == waiting)
        gap = out.valid | (queue.waiting == entered) | took
        told = (queue.enters == enters) & (queue.waiting >= entered) & gap & ~(took & out.valid)
        return counted.all() & told & last & (~watching | mine) & (~held | out.valid)

    bench.invariant("queue", tied)
    bench.invariant("parameter", lambda: one.consistent)


def _levels(bench: Bench, dut: Component, config: MachineConfig) -> list[Signal]:
    """Number of operations in each queue or on the way to it; requires that `room` reflects it."""
    port, depth = dut.issue, config.queue_depth
    levels = [Signal(range(depth + 2), name=f"waiting_{name}") for name in ENGINES]
    bench.assume(~port.valid | (port.warp < config.warps))
    bench.assume(~port.valid | (port.pc < config.imem_words))
    named = Mux(
        port.sets,
        port.parameter < len(isa.PARAMETERS),
        (port.engine < len(ENGINES)) & dut.room.bit_select(port.engine, 1),
    )
    bench.assume(~port.valid | named)
    bench.require("room_shown", dut.room == Cat(level != depth for level in levels))
    for e, (name, level) in enumerate(zip(ENGINES, levels, strict=True)):
        entered = port.valid & ~port.sets & (port.engine == e)
        queue = getattr(dut, name)
        bench.m.d.sync += level.eq(level + entered - (queue.valid & queue.ready))
    return levels


class _Parameter:
    """Models an arbitrary parameter of one warp, `owner`, among those that an engine's operations read.

    `told` is the value, with all bits given, that operations issued now must carry. It is valid once `known`:
    set or cleared.
    """

    def __init__(self, bench: Bench, dut: Component, config: MachineConfig, names: Sequence[str]):
        self._bench, self._dut, self._names = bench, dut, names
        port = dut.issue
        self.owner = bench.constant(range(config.warps), "owner")
        self._number = bench.constant(range(len(isa.PARAMETERS)), "parameter")
        self._one_of = [self._number == isa.PARAMETERS[name].index for name in names]
        bench.assume(self.owner < config.warps)
        bench.assume(Cat(*self._one_of).any())
        bench.assume(~dut.clear | ~(port.valid | bench.past(port.valid, "went")))
        bench.assume(~dut.clear | (port.warp == 0))
        self.told, self.known = Signal(32, name="told"), Signal(name="known")
        sets = port.valid & port.sets
        changes = bench.value(
            sets & (port.warp == self.owner) & (port.parameter == self._number), "parameter_changes"
        )
        with bench.m.If(changes):
            bench.m.d.sync += [self.told.eq(port.values[VALUE]), self.known.eq(1)]
        cleared = bench.past(dut.clear, "cleared")
        with bench.m.If(dut.clear & ~cleared):
            bench.m.d.sync += self.known.eq(0)
        with bench.m.Elif(dut.clear & (dut.clear_index[: len(self.owner)] == self.owner)):
            bench.m.d.sync += [self.told.eq(0), self.known.eq(1)]
        self._changed = bench.past(changes, "parameter_changed")
        self._cleared, self._sets = cleared, bench.past(sets, "parameter_set")

    def is_in(self, entry: Any, value: Value) -> Value:
        """Whether an operation carries this value of the parameter."""
        fits = [
            ~this | (entry[name] == value[: isa.PARAMETERS[name].bits])
            for name, this in zip(self._names, self._one_of, strict=True)
        ]
        return Cat(*fits).all()

    @property
    def consistent(self) -> Value:
        """The invariant of the memory and the registers in front of it."""
        bench, dut = self._bench, self._dut
        rows = {name: bench.memory(dut, name)(self.owner) for name in self._names}
        port, sets = dut.issue, bench.register(dut, "sets")
        way = {name: bench.register(dut, f"way_{name}") for name in ("warp", "parameter", f"value{VALUE}")}
        now = {"warp": port.warp, "parameter": port.parameter, f"value{VALUE}": port.values[VALUE]}
        same = Cat(way[name] == bench.past(now[name], f"past_{name}") for name in way).all()
        mine = (way["warp"] == self.owner) & (way["parameter"] == self._number)
        return (
            (sets == self._sets)
            & (~bench.started | same)
            & (self._changed == (sets & mine))
            & (~self._changed | (way[f"value{VALUE}"] == self.told))
            & (~self._cleared | (way["warp"] == 0))
            & (self._changed | ~self.known | self.is_in(rows, self.told))
        )


class _Inside:
    """The registers of an engine's queue, and its waiting entries: one register, or a memory."""

    def __init__(self, bench: Bench, dut: Component, engine: str, depth: int):
        queue, self._depth, self._places = f"queue_{engine}", depth, max(depth - 1, 1)
        self.enters, self.count, self._full, self.waiting, self._some, self._offered = (
            bench.register(dut, f"{queue}/{name}")
            for name in ("enters", "count", "full", "waiting", "some", "offered")
        )
        self._valid = getattr(dut, engine).valid
        if self._places > 1:
            self._free, self._oldest = (bench.register(dut, f"{queue}/{name}") for name in ("free", "oldest"))
            self._row = bench.memory(dut, f"{queue}/storage")
        else:
            self._entry = bench.register(dut, f"{queue}/entry")

    @property
    def there(self) -> Value:
        """Number of entries in the queue, including the offered one but not the one that enters."""
        return Value.cast((self.count - self.enters)[: len(self.count)])

    def entry(self, number: Value) -> Value:
        """The entry with `number` others before it."""
        place = Value.cast(number - self._valid)
        waiting = (
            self._entry
            if self._places == 1
            else self._row(Value.cast((self._oldest + place)[: len(self._oldest)]))
        )
        return Value.cast(Mux(self._valid & (number == 0), self._offered, waiting))

    @property
    def consistent(self) -> Value:
        """The invariant of the queue."""
        counts = (
            (self.count <= self._depth)
            & (self.count >= self.enters)
            & (self._full == (self.count == self._depth))
            & (self._some == (self.waiting != 0))
            & (self.waiting <= self._places)
            & (self.there == self.waiting + self._valid)
        )
        if self._places == 1:
            return Value.cast(counts)
        following = Value.cast(self._oldest + self.waiting)[: len(self._free)]
        return Value.cast(counts & (self._free == following))


class _LateMemory(Component):
    """A parameter memory in which a new value appears one cycle late."""

    def __init__(self, *, shape: int, depth: int, **_: object):
        self._shape, self._depth, bits = shape, depth, (depth - 1).bit_length()
        super().__init__(
            {
                "write": Out(Signature({"en": In(1), "addr": In(bits), "data": In(shape)})),
                "read": Out(Signature({"addr": In(bits), "data": Out(shape)})),
            }
        )

    def write_port(self) -> Any:
        return self.write

    def read_port(self, *, domain: str) -> Any:
        return self.read

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = memory.Memory(shape=self._shape, depth=self._depth, init=[])
        write, read = inner.write_port(), inner.read_port(domain="comb")
        m.d.sync += [getattr(write, name).eq(getattr(self.write, name)) for name in ("en", "addr", "data")]
        m.d.comb += [read.addr.eq(self.read.addr), self.read.data.eq(read.data)]
        return m


def _leaks(m: Module, outer: Component, inner: Component) -> None:
    """An operation is lost when another one is taken."""
    m.d.comb += inner.coming.eq(outer.coming & ~(outer.out.valid & outer.out.ready))


def _hurries(m: Module, outer: Component, inner: Component) -> None:
    """The younger of two operations leaves first."""
    m.d.comb += outer.out.payload.eq(Mux(past(m, outer.coming), outer.data, inner.out.payload))


def _offers_early(m: Module, outer: Component, inner: Component) -> None:
    """An operation is offered in the second cycle after its issue if none waits."""
    entered, dropped, waits = past(m, past(m, outer.coming)), Signal(), Signal()
    m.d.sync += dropped.eq(entered & ~waits & outer.out.ready)
    m.d.comb += [
        waits.eq(inner.out.valid & ~dropped),
        outer.out.valid.eq(waits | entered),
        outer.out.payload.eq(Mux(waits, inner.out.payload, past(m, outer.data))),
        inner.out.ready.eq(outer.out.ready | dropped),
    ]


class OvertakingQueue(OperationQueue):
    """The entries of the queue are read in another order than they are written."""

    def _reads(self, oldest: Signal) -> Value:
        return ~oldest


def _port_faults(engine: str, depth: int) -> tuple[Fault, ...]:
    """The faults at the ports. A queue of one has no room anyway while it offers an operation."""

    def unbounded(m: Module, outer: Component, inner: Component) -> None:
        """A full queue shows room."""
        m.d.comb += outer.room.eq(-1)

    def hidden(m: Module, outer: Component, inner: Component) -> None:
        """A queue shows no room while it offers an operation."""
        m.d.comb += outer.room.eq(inner.room & ~Cat(getattr(inner, name).valid for name in ENGINES))

    def other_warp(m: Module, outer: Component, inner: Component) -> None:
        """Operations of warp 2 are labelled as those of warp 1."""
        port, own = getattr(inner, engine), getattr(outer, engine)
        m.d.comb += own.payload.warp.eq(Mux(port.payload.warp == 2, 1, port.payload.warp))

    def late(m: Module, outer: Component, inner: Component) -> None:
        """An operation is offered a cycle late if none was offered before."""
        # Only the first cycle of an offer is hidden; after that it stays visible until it is taken.
        port, own = getattr(inner, engine), getattr(outer, engine)
        shown = past(m, port.valid)
        m.d.comb += [own.valid.eq(port.valid & shown), port.ready.eq(own.ready & shown)]

    def misplaced(m: Module, outer: Component, inner: Component) -> None:
        """Warp 1 sets the parameter with the next number."""
        m.d.comb += inner.issue.parameter.eq(outer.issue.parameter ^ (outer.issue.warp == 1))

    def shared(m: Module, outer: Component, inner: Component) -> None:
        """Warp 1 sets the parameters of warp 0."""
        m.d.comb += inner.issue.warp.eq(outer.issue.warp & ~outer.issue.sets)

    def uncleared(m: Module, outer: Component, inner: Component) -> None:
        """The parameters of warp 0 are not cleared."""
        m.d.comb += inner.clear_index.eq(outer.clear_index | 1)

    gives_up = blinking("An operation that is not taken at once disappears for a cycle.", engine)
    rooms = [planted("room-hidden", "room_shown", hidden, 6)] if depth > 1 else []
    return (
        planted("parameter-misplaced", "parameters_as_set", misplaced, 6),
        planted("parameter-stays", "parameters_as_set", uncleared, 8),
        planted("parameter-shared", "parameters_as_set", shared, 8),
        planted("room-unbounded", "room_shown", unbounded, 8),
        *rooms,
        planted("late", "none_lost_none_doubled", late, 6),
        planted("wrong-warp", "arrives_as_issued", other_warp, 6),
        planted("offer-withdrawn", "offer_is_stable", gives_up, 6),
    )


def _faults(engine: str, depth: int) -> tuple[Fault, ...]:
    """The faults for a queue of this depth: some need a second or third entry."""
    queue = "hw.rtl.core.issue.OperationQueue"
    meaning = "an operation right after a parameter gets the old value"
    late = Sabotage(replaced={"hw.rtl.core.issue.memory": SimpleNamespace(Memory=_LateMemory)})
    found = [
        *_port_faults(engine, depth),
        Fault("parameter-late", meaning, "parameters_as_set", late, 6),
        planted("early", "none_lost_none_doubled", altered(OperationQueue, _offers_early), 6, queue),
    ]
    if depth > 1:
        leaky, hasty = altered(OperationQueue, _leaks), altered(OperationQueue, _hurries)
        found.append(planted("dropped", "none_lost_none_doubled", leaky, 9, queue))
        found.append(planted("overtaken", "arrives_as_issued", hasty, 6, queue))
    if depth > 2:
        found.append(planted("misread", "arrives_as_issued", OvertakingQueue, 6, queue))
    return tuple(found)


def proof(config: MachineConfig, engine: str, *, depth: int | None = None) -> Proof:
    """The proof for the queue of an engine, with its faults; a different `depth` becomes part of its name."""
    name, title = f"issue-{engine.replace('_', '-')}", f"issue to {engine}"
    if depth is not None:
        config = config.replace(queue_depth=depth)
        name, title = f"{name}-{depth}", f"{title}, queue of {depth}"
    builds = partial(build, config=config, engine=engine)
    # Yices does not finish on a fault in the parameters of launches, which are the most numerous.
    solver = "bitwuzla" if engine == "cgra" else ""
    return Proof(name, title, STATEMENTS, builds, _faults(engine, config.queue_depth), 2, 10, solver)
