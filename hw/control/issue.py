"""From the warps' issue ports to the engines' queues."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import fifo, stream
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import ENGINES, MachineConfig
from hw.control.sequencer import IssuePort
from hw.interfaces import operation


class Issue(Component):
    """Gives each engine the operation of the lowest-numbered warp that asks for it, through a queue.

    **Timing.** An operation that issues in cycle t is at the queue's end in t + 1. A warp's `ready` depends
    only on the queue's level and on warps of lower number.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        super().__init__(
            {
                "warps": In(IssuePort()).array(config.warps),
                **{name: Out(stream.Signature(operation(name))) for name in ENGINES},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        warps = [self.warps[w] for w in range(self._config.warps)]
        granted = [Signal(len(ENGINES), name=f"granted{w}") for w in range(len(warps))]
        for e, name in enumerate(ENGINES):
            shape = operation(name)
            queue = fifo.SyncFIFO(width=shape.size, depth=self._config.queue_depth)
            m.submodules[f"queue_{name}"] = queue
            out = getattr(self, name)
            entry = Signal(shape, name=f"entry_{name}")
            m.d.comb += [
                queue.w_data.eq(entry),
                out.valid.eq(queue.r_rdy),
                out.payload.eq(queue.r_data),
                queue.r_en.eq(out.ready),
            ]
            specs = isa.of_engine(name)
            parameters = {p for spec in specs for p in spec.parameters}
            asks = [warp.valid & (warp.engine == e) for warp in warps]
            m.d.comb += queue.w_en.eq(Cat(*asks).any())
            for w in reversed(range(len(warps))):
                warp = warps[w]
                with m.If(asks[w]):
                    m.d.comb += [
                        *[entry[o.name].eq(warp.values[i]) for i, o in enumerate(specs[0].operands)],
                        *[entry[p].eq(warp.parameters[p]) for p in sorted(parameters)],
                        entry.variant.eq(warp.variant),
                        entry.warp.eq(w),
                        entry.pc.eq(warp.pc),
                    ]
                before = Cat(*asks[:w]).any() if w else 0
                m.d.comb += granted[w][e].eq(asks[w] & queue.w_rdy & ~Mux(before, 1, 0)[0])
        for w, warp in enumerate(warps):
            m.d.comb += warp.ready.eq(granted[w].any())
        return m
