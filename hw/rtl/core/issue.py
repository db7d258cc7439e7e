"""Issue: from the sequencer to the engine queues, with the parameter registers of all warps."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Signal, Value
from amaranth.lib import data, memory, stream
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import ENGINES, MachineConfig
from hw.rtl.bits import log2, where
from hw.rtl.core.queue import OperationQueue
from hw.rtl.core.registers import register_words
from hw.rtl.core.sequencer import VALUE, IssuePort
from hw.rtl.interfaces import operation


class Issue(Component):
    """Enters issued operations into the engine queues and holds the parameters of all warps.

    An issued operation is registered for one cycle. It then enters its queue together with the parameters of
    its warp; `room` must have allowed it. Each parameter is one small memory with a word per warp.

    While `clear` is 1, and was 1 in the previous cycle, the parameters of warp `clear_index`, modulo the
    maximum number of warps, become 0. `clear_index` must address all of them.

    **Timing.** An operation that issues in cycle t enters its queue in t + 1 and is offered from t + 3 on. A
    parameter that is set in t applies to operations that issue from t + 1 on. `room` is a register.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        super().__init__(
            {
                "clear": In(1),
                "clear_index": In(range(register_words(config))),
                "issue": In(IssuePort(config)),
                "room": Out(len(ENGINES)),
                **{name: Out(stream.Signature(operation(name))) for name in ENGINES},
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        port = self.issue
        kept = {f"value{i}": port.values[i] for i in range(len(port.values))}
        kept |= {name: getattr(port, name) for name in ("parameter", "variant", "warp", "pc")}
        way: dict[str, Value] = {}
        for name, value in kept.items():
            register = Signal(len(value), name=f"way_{name}", reset_less=True)
            m.d.sync += register.eq(value)
            way[name] = register
        sets = Signal()
        m.d.sync += sets.eq(port.valid & port.sets)
        way |= self._parameters(m, way, sets)
        for e, name in enumerate(ENGINES):
            shape = self._entry(name)
            m.submodules[f"queue_{name}"] = queue = OperationQueue(shape.size, self._config.queue_depth)
            out = getattr(self, name)
            entry, offered = Signal(shape, name=f"entry_{name}"), Signal(shape, name=f"offered_{name}")
            sources = {o.name: f"value{i}" for i, o in enumerate(isa.of_engine(name)[0].operands)}
            m.d.comb += [
                queue.coming.eq(port.valid & ~port.sets & (port.engine == e)),
                self.room[e].eq(queue.room),
                *[entry[f].eq(way[sources.get(f, f)][: len(entry[f])]) for f in shape.members],
                queue.data.eq(entry),
                offered.eq(queue.out.payload),
                *[out.payload[field].eq(offered[field]) for field in shape.members],
                out.valid.eq(queue.out.valid),
                queue.out.ready.eq(out.ready),
            ]
        return m

    def _parameters(self, m: Module, way: dict[str, Value], sets: Signal) -> dict[str, Value]:
        """The parameters of the issuing warp; also writes the new value that `param` sets."""
        found: dict[str, Value] = {}
        bits = len(way["warp"])
        index = Signal(bits, name="parameters_of")
        m.d.comb += index.eq(way["warp"] | where(self.clear, self.clear_index[:bits]))
        used = {n for i in isa.INSTRUCTIONS.values() if not self._config.lacks(i.name) for n in i.parameters}
        for name, p in isa.PARAMETERS.items():
            if name not in used:  # no instruction of this machine uses it
                found[name] = Const(0, p.bits)
                continue
            m.submodules[name] = kept = memory.Memory(
                shape=p.bits, depth=1 << bits, init=[], attrs={"ram_style": "distributed"}
            )
            write, read = kept.write_port(), kept.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(self.clear | (sets & (way["parameter"] == p.index))),
                write.addr.eq(index),
                write.data.eq(where(~self.clear, way[f"value{VALUE}"])),
                read.addr.eq(way["warp"]),
            ]
            found[name] = read.data
        return found

    def _entry(self, engine: str) -> data.StructLayout:
        """Layout of a queue entry, with warp and pc as narrow as this machine allows."""
        c = self._config
        narrow = {"warp": max(1, (c.warps - 1).bit_length()), "pc": log2(c.imem_words)}
        members = {name: field.shape for name, field in operation(engine)}
        return data.StructLayout(members | narrow)
