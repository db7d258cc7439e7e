"""From the warps' issue ports to the engines' queues, and the parameters of all warps."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from operator import or_

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import data, memory, stream
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import ENGINES, MachineConfig
from hw.rtl.bits import log2, where
from hw.rtl.core.queue import OperationQueue
from hw.rtl.core.sequencer import CLEAR_BITS, VALUE, IssuePort
from hw.rtl.interfaces import operation


class Issue(Component):
    """Gives one operation per cycle to its engine's queue, or sets a parameter, for the first warp that can.

    Warps come in the order of their numbers; one that finds its queue full holds nobody up. All share one way
    to the queues: one for every engine would cost several times as many look-up tables and wires. What is
    issued goes that way in the cycle after, when registers say whose it is. As no more than one warp a cycle
    sets a parameter, and none while another operation issues, each parameter is one small memory with a word
    for every warp: an operation takes those of its warp along when it enters its queue.

    While `clear` is 1, and was 1 in the cycle before, the parameters of the warp `clear_index` become 0: it
    must name all of them.

    **Timing.** An operation that issues in cycle t enters its queue in t + 1 and is offered from t + 2 on. A
    parameter that is set in t is what operations find that issue from t + 1 on. A warp's `ready` depends only
    on queues and warps of lower number; without `valid` it means nothing.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        super().__init__(
            {
                "clear": In(1),
                "clear_index": In(CLEAR_BITS),
                "warps": In(IssuePort()).array(config.warps),
                **{name: Out(stream.Signature(operation(name))) for name in ENGINES},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        warps = [self.warps[w] for w in range(self._config.warps)]
        room = Signal(len(ENGINES))
        # What engine a warp means, and whether there is room, is known early; whether it asks is not.
        asks, given, sent = Signal(len(warps)), Signal(len(warps)), Signal(len(warps))
        m.d.sync += sent.eq(given)
        for w, warp in enumerate(warps):
            first = ~asks[:w].any() if w else Const(1)
            free = Signal(name=f"free{w}")
            m.d.comb += [
                free.eq(warp.sets | room.bit_select(warp.engine, 1)),
                asks[w].eq(warp.valid & free),
                given[w].eq(asks[w] & first),
                warp.ready.eq(free & first),
            ]
        way = self._way(m, sent)
        way |= self._parameters(m, way)
        for e, name in enumerate(ENGINES):
            shape = self._entry(name)
            m.submodules[f"queue_{name}"] = queue = OperationQueue(shape.size, self._config.queue_depth)
            out = getattr(self, name)
            entry, offered = Signal(shape, name=f"entry_{name}"), Signal(shape, name=f"offered_{name}")
            sources = {o.name: f"value{i}" for i, o in enumerate(isa.of_engine(name)[0].operands)}
            m.d.comb += [
                queue.coming.eq(
                    Cat(g & ~w.sets & (w.engine == e) for g, w in zip(given, warps, strict=True)).any()
                ),
                room[e].eq(queue.room),
                *[entry[f].eq(way[sources.get(f, f)][: len(entry[f])]) for f in shape.members],
                queue.data.eq(entry),
                offered.eq(queue.out.payload),
                *[out.payload[field].eq(offered[field]) for field in shape.members],
                out.valid.eq(queue.out.valid),
                queue.out.ready.eq(out.ready),
            ]
        return m

    def _way(self, m: Module, sent: Signal) -> dict[str, Value]:
        """What was issued in the cycle before, and by which warp; 0 if nothing was."""
        operands = [isa.of_engine(name)[0].operands for name in ENGINES]
        widths = [max(o[i].bits for o in operands) for i in range(len(operands[0]))]
        widths[VALUE] = max(p.bits for p in isa.PARAMETERS.values())
        own = self._entry(ENGINES[0])
        fields: dict[str, list[Value]] = {}
        for w in range(self._config.warps):
            warp = self.warps[w]
            kept = {
                **{f"value{i}": warp.values[i][:bits] for i, bits in enumerate(widths)},
                "sets": warp.sets,
                "parameter": warp.parameter,
                "variant": warp.variant,
                "pc": warp.pc[: own["pc"].width],
            }
            for name, value in kept.items():
                register = Signal(len(value), name=f"{name}_{w}", reset_less=True)
                m.d.sync += register.eq(value)
                fields.setdefault(name, []).append(register)
            fields.setdefault("warp", []).append(Const(w, own["warp"].width))
        way = {name: Signal(len(values[0]), name=f"way_{name}") for name, values in fields.items()}
        for name, values in fields.items():
            chosen = [where(s, value) for s, value in zip(sent, values, strict=True)]
            m.d.comb += way[name].eq(functools.reduce(or_, chosen))
        return way

    def _parameters(self, m: Module, way: Mapping[str, Value]) -> dict[str, Value]:
        """The parameters of the warp of what was issued; the new value of one is written."""
        found: dict[str, Value] = {}
        index = Signal(len(way["warp"]), name="parameters_of")
        m.d.comb += index.eq(way["warp"] | where(self.clear, self.clear_index))
        for name, p in isa.PARAMETERS.items():
            m.submodules[name] = kept = memory.Memory(
                shape=p.bits, depth=1 << len(index), init=[], attrs={"ram_style": "distributed"}
            )
            write, read = kept.write_port(), kept.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(self.clear | (way["sets"] & (way["parameter"] == p.index))),
                write.addr.eq(index),
                write.data.eq(way[f"value{VALUE}"]),
                read.addr.eq(way["warp"]),
            ]
            found[name] = read.data
        return found

    def _entry(self, engine: str) -> data.StructLayout:
        """An operation of an engine, with no more bits of warp and pc than the machine has."""
        c = self._config
        narrow = {"warp": max(1, (c.warps - 1).bit_length()), "pc": log2(c.imem_words)}
        members = {name: field.shape for name, field in operation(engine)}
        return data.StructLayout(members | narrow)
