"""Proof about the issue of operations: each goes to its engine once, whole and in order."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import Component

from hw import isa
from hw.config import ENGINES, MachineConfig
from hw.control.issue import Issue
from hw.formal.bench import Bench, Sabotage
from hw.formal.proof import Fault, Method, Proof
from hw.formal.signals import LastInFirstOut
from hw.interfaces import operation

STATEMENTS = {
    "lowest_warp_first": "of the warps that ask for an engine the lowest-numbered one is served, if the "
    "queue has room, and no other",
    "none_lost_none_doubled": "the queue offers an operation if and only if more were issued than taken, "
    "and holds no more than its depth",
    "arrives_as_issued": "an operation is taken after all that were issued before it, with operands, "
    "parameters, variant, warp and pc as they were at issue",
    "offer_is_stable": "an operation that is offered stays offered, unchanged, until the engine takes it",
}


def build(bench: Bench, config: MachineConfig, engine: str) -> None:
    """Follow one operation, any one, through the queue of an engine.

    Assumed of the sequencers: what they offer names an engine and a place of the program memory.
    """
    dut = bench.add(Issue(config), "dut")
    number, specs = ENGINES.index(engine), isa.of_engine(engine)
    shape, depth = operation(engine), config.queue_depth
    warps = [dut.warps[w] for w in range(config.warps)]
    out = getattr(dut, engine)
    sync = bench.m.d.sync
    for warp in warps:
        bench.assume(~warp.valid | (warp.engine < len(ENGINES)))
        bench.assume(~warp.valid | (warp.pc < config.imem_words))
    asks = [bench.value(w.valid & (w.engine == number), f"asks{i}") for i, w in enumerate(warps)]
    given = [bench.value(a & w.ready, f"given{i}") for i, (a, w) in enumerate(zip(asks, warps, strict=True))]
    given_any = bench.value(Cat(*given).any(), "given_any")
    taken = bench.value(out.valid & out.ready, "taken")
    waiting = Signal(range(depth + 2), name="waiting")
    sync += waiting.eq(waiting + given_any - taken)

    served = []
    for i, (a, w) in enumerate(zip(asks, warps, strict=True)):
        before = Cat(*asks[:i]).any() if i else 0
        served.append(~a | (w.ready == ((waiting != depth) & ~Value.cast(before).bool())))
    bench.require("lowest_warp_first", Cat(*served).all())
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
        queue = bench.queue(dut, f"queue_{engine}", depth)
        # Entries leave out the bits of warp and pc that are always 0.
        entry = Signal(dut._entry(engine), name="watched_entry")
        bench.m.d.comb += Value.cast(entry).eq(queue.entry(queue.place(ahead)))
        mine = Cat(entry[f] == watched[f] for f in entry.shape().members).all() & (ahead < waiting)
        return queue.consistent & (queue.level == waiting) & (~watching | mine) & (~held | out.valid)

    bench.invariant("queue", tied)


class LeakyQueue(SyncFIFO):
    """A queue that drops what comes while it is being read."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = SyncFIFO(width=self.width, depth=self.depth)
        m.d.comb += [
            inner.w_data.eq(self.w_data),
            inner.w_en.eq(self.w_en & ~(inner.r_rdy & self.r_en)),
            inner.r_en.eq(self.r_en),
            self.w_rdy.eq(inner.w_rdy),
            self.r_rdy.eq(inner.r_rdy),
            self.r_data.eq(inner.r_data),
            self.level.eq(inner.level),
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
            Sabotage(replaced={"hw.control.issue.fifo.SyncFIFO": LeakyQueue}),
            6,
        ),
        Fault(
            "overtaken",
            "the younger of two operations leaves first",
            "arrives_as_issued",
            Sabotage(replaced={"hw.control.issue.fifo.SyncFIFO": LastInFirstOut}),
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
