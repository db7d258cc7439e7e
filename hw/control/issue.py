"""From the warps' issue ports to the engines' queues."""

from __future__ import annotations

import functools
from operator import or_
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, fifo, stream
from amaranth.lib.wiring import Component, FlippedInterface, In, Out

from hw import isa
from hw.bits import log2, where
from hw.config import ENGINES, MachineConfig
from hw.control.sequencer import IssuePort
from hw.interfaces import operation


class Issue(Component):
    """Gives each engine the operation of the lowest-numbered warp that asks for it, through a queue.

    **Timing.** An operation that issues in cycle t is at the queue's end in t + 1. A warp's `ready` depends
    only on the engine, the queue's level and warps of lower number.
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
        room = Signal(len(ENGINES))
        for e, name in enumerate(ENGINES):
            shape = self._entry(name)
            queue = fifo.SyncFIFO(width=shape.size, depth=self._config.queue_depth)
            m.submodules[f"queue_{name}"] = queue
            out = getattr(self, name)
            entry, first = Signal(shape, name=f"entry_{name}"), Signal(shape, name=f"first_{name}")
            asks = Signal(len(warps), name=f"asks_{name}")
            m.d.comb += [
                queue.w_en.eq(asks.any()),
                room[e].eq(queue.w_rdy),
                queue.w_data.eq(entry),
                first.eq(queue.r_data),
                *[out.payload[field].eq(first[field]) for field in shape.members],
                out.valid.eq(queue.r_rdy),
                queue.r_en.eq(out.ready),
            ]
            fields: dict[str, list[Value]] = {field: [] for field in shape.members}
            for w, warp in enumerate(warps):
                m.d.comb += asks[w].eq(warp.valid & (warp.engine == e))
                for field, value in self._values(name, warp, w).items():
                    fields[field].append(value)
            for field, values in fields.items():
                m.d.comb += entry[field].eq(self._first(m, f"{name}_{field}", asks, values))
        # Whether two warps mean one engine is known early, whether they ask is not.
        for w, warp in enumerate(warps):
            ahead = [other.valid & (other.engine == warp.engine) for other in warps[:w]]
            m.d.comb += warp.ready.eq(room.bit_select(warp.engine, 1) & ~Cat(*ahead, 0).any())
        return m

    @staticmethod
    def _first(m: Module, name: str, asks: Signal, values: list[Value]) -> Value:
        """The value of the first that asks; any, if none does.

        One of every two, unless one before them asks: cheaper than multiplexers one behind the other.
        """
        pairs = []
        for i in range(0, len(values), 2):
            pair = Signal(len(values[i]), name=f"{name}{i}", attrs={"keep": 1})
            one = values[i] if i + 1 == len(values) else Mux(asks[i], values[i], values[i + 1])
            none_before = ~asks[:i].any() if i else Const(1)
            asked = asks[i : i + 2].any() if i + 2 < len(values) else Const(1)
            m.d.comb += pair.eq(where(none_before & asked, one))
            pairs.append(pair)
        return functools.reduce(or_, pairs)

    def _entry(self, engine: str) -> data.StructLayout:
        """An operation of an engine, with no more bits of warp and pc than the machine has."""
        c = self._config
        narrow = {"warp": max(1, (c.warps - 1).bit_length()), "pc": log2(c.imem_words)}
        members = {name: field.shape for name, field in operation(engine)}
        return data.StructLayout(members | narrow)

    def _values(self, engine: str, warp: FlippedInterface[Any], number: int) -> dict[str, Value]:
        """What a warp puts into the entry of an engine, by field."""
        operands = isa.of_engine(engine)[0].operands
        values = {o.name: warp.values[i][: o.bits] for i, o in enumerate(operands)}
        layout = self._entry(engine)
        parameters = {n: warp.parameters[n] for n in layout.members if n in isa.PARAMETERS}
        own = {
            "variant": warp.variant,
            "warp": Const(number, layout["warp"].width),
            "pc": warp.pc[: layout["pc"].width],
        }
        return values | parameters | own
