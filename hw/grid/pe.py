"""A processing element: operand muxes, units, result register, register file, link registers."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, memory
from amaranth.lib.wiring import Component, In, Out

from hw.config import MachineConfig
from hw.fabric import Fabric, Unit, layout
from hw.fabric.layout import ARRAYS, FIRST
from hw.fabric.operations import OPERATIONS
from hw.grid.access import ArrayWrite, MemoryPort, access_layout
from hw.grid.context import ContextMemory, context_bits
from hw.grid.units import WIDTH, Alu, Multiplier, is_operation


def moment_layout(fabric: Fabric) -> data.StructLayout:
    """What PEs need to know of the number k of a step's newest iteration and the number N of iterations.

    `ahead` is k or its largest useful value, `over` whether k is at least N, `beyond` then k - N or its
    largest useful value.
    """
    return data.StructLayout(
        {
            "ahead": (fabric.stages + FIRST).bit_length(),
            "over": 1,
            "beyond": (fabric.stages - 1).bit_length(),
        }
    )


#: A write into a table memory; `words` says how many words the table gets, from word 0 on.
TableWrite = data.StructLayout({"begin": 1, "enable": 1, "address": 14, "data": WIDTH})


class TableUnit(Component):
    """A table memory; `outside` where the word does not exist. `clear` leaves no words.

    **Timing.** The word of a step that ends (`advance`) in cycle t is `y2` from t + 1 on, until the next
    step has ended.
    """

    def __init__(self, words: int):
        self._words = words
        super().__init__(
            {
                "write": In(TableWrite),
                "clear": In(1),
                "happens": In(1),
                "advance": In(1),
                "index": In(WIDTH),
                "const": In(WIDTH),
                "outside": Out(1),
                "y2": Out(WIDTH),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = words = memory.Memory(shape=WIDTH, depth=max(2, self._words), init=[])
        write, read = words.write_port(), words.read_port()
        length, valid = Signal(range(self._words + 1)), Signal()
        first, count = self.const[:16], self.const[16:]
        place = Signal(17)
        m.d.comb += [
            place.eq(first + self.index[:16]),
            self.outside.eq(
                self.happens & (self.index[16:].any() | (self.index[:16] >= count) | (place >= length))
            ),
            write.en.eq(self.write.enable),
            write.addr.eq(self.write.address),
            write.data.eq(self.write.data),
            read.en.eq(self.advance),
            read.addr.eq(place),
            self.y2.eq(Mux(valid, read.data, 0)),
        ]
        with m.If(self.advance):
            m.d.sync += valid.eq(self.happens)
        with m.If(self.clear):
            m.d.sync += length.eq(0)
        with m.Elif(self.write.begin):
            m.d.sync += length.eq(self.write.data)
        return m


class RegisterFile(Component):
    """Registers with one read and one write port; 0 until they are written after a reset.

    **Timing.** A register written in cycle t has its value from t + 1 on; reading is combinational.
    """

    def __init__(self, registers: int):
        self._registers = registers
        bits = max(1, (registers - 1).bit_length())
        super().__init__(
            {
                "enable": In(1),
                "write_at": In(bits),
                "value": In(WIDTH),
                "read_at": In(bits),
                "register": Out(WIDTH),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self._registers == 1:
            with m.If(self.enable):
                m.d.sync += self.register.eq(self.value)
            return m
        m.submodules.words = words = memory.Memory(shape=WIDTH, depth=self._registers, init=[])
        write, read = words.write_port(), words.read_port(domain="comb")
        known = Signal(self._registers)
        write_at, read_at = self._within(self.write_at), self._within(self.read_at)
        m.d.comb += [
            write.en.eq(self.enable),
            write.addr.eq(write_at),
            write.data.eq(self.value),
            read.addr.eq(read_at),
            self.register.eq(Mux(known.bit_select(read_at, 1), read.data, 0)),
        ]
        with m.If(self.enable):
            m.d.sync += known.eq(known | (1 << write_at))
        return m

    def _within(self, number: Value) -> Value:
        """A number beyond the last counts as 0."""
        if self._registers == 1 << len(number):
            return number
        return Mux(number < self._registers, number, 0)


class ProcessingElement(Component):
    """A PE of a fabric with its context memory.

    `context` is what the next step executes, read with `read`; `running` says that a step executes, `advance`
    that it ends in this cycle. `links_in` and `links_out` are in ascending order of the other PE. `outside`
    says that the step has an access that must not be.

    **Timing.** All registers take their next values at the end of the cycle in which `advance` is 1, and only
    then.
    """

    def __init__(self, config: MachineConfig, fabric: Fabric, pe: int):
        self._config, self._fabric, self._pe = config, fabric, pe
        self.kind = fabric.kinds[pe]
        self.layout = layout(fabric, pe)
        bits = context_bits(fabric)
        ports: dict[str, object] = {
            "write": In(self.layout.words),
            "write_at": In(bits),
            "data": In(WIDTH),
            "context": In(bits),
            "read": In(1),
            "moment": In(moment_layout(fabric)),
            "running": In(1),
            "advance": In(1),
            "links_in": In(WIDTH * max(1, len(fabric.incoming[pe]))),
            "links_out": Out(WIDTH * max(1, len(fabric.outgoing[pe]))),
            "outside": Out(1),
        }
        if Unit.TABLE in self.kind.units:
            ports |= {"table_write": In(TableWrite), "table_clear": In(1)}
        if Unit.MEMORY in self.kind.units:
            ports |= {
                "array_write": In(ArrayWrite),
                "arrays": In(range(ARRAYS + 1)),
                "access": Out(access_layout(config)),
                "fresh": In(1),
                "arrived": In(WIDTH),
            }
        super().__init__(ports)  # type: ignore[arg-type]

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.contexts = contexts = ContextMemory(self._fabric, self._pe)
        m.d.comb += [
            contexts.write.eq(self.write),
            contexts.at.eq(self.write_at),
            contexts.data.eq(self.data),
            contexts.context.eq(self.context),
            contexts.read.eq(self.read),
        ]
        fields = {f.name: contexts.fields[f.low : f.low + f.width] for f in self.layout.fields}
        result, y, y2 = Signal(WIDTH), Signal(WIDTH), Signal(WIDTH)
        sources: dict[str, Value] = {
            "zero": Const(0, WIDTH),
            "always": Const(1, WIDTH),
            "const": contexts.const,
            "result": result,
            "y": y,
            "y2": y2,
        }
        for i in range(len(self._fabric.incoming[self._pe])):
            sources[f"in{i}"] = self.links_in.word_select(i, WIDTH)
        if self.kind.registers:
            m.submodules.registers = registers = RegisterFile(self.kind.registers)
            sources["register"] = registers.register

        # In the first iterations some operands are others.
        moment = self.moment
        stage = fields["stage"]
        started, ended, early = Signal(), Signal(), Signal()
        m.d.comb += [
            started.eq(moment.ahead >= stage),
            ended.eq(moment.over & (moment.beyond >= stage)),
            early.eq(moment.ahead < stage + fields["first"]),
        ]
        operands = {}
        for bit, name in enumerate(("a", "b", "c", "p")):
            chosen = self._choose(m, name, fields[name], [sources[s] for s in self.layout.sources[name]])
            operand = Signal(WIDTH, name=f"operand_{name}")
            m.d.comb += operand.eq(Mux(early & fields["initial"][bit], contexts.init, chosen))
            operands[name] = operand
        holds, happens = Signal(), Signal()
        m.d.comb += [
            holds.eq((operands["p"] != 0) ^ fields["negate"]),
            happens.eq(self.running & started & ~ended & holds),
        ]
        self._units(m, contexts, fields, operands, holds, happens, y, y2)

        # Registers.
        taken = {
            name: [sources[s] for s in names[1:]]
            for name, names in self.layout.sources.items()
            if name not in operands
        }
        self._take(m, result, fields["result"], taken["result"])
        outs = [Signal(WIDTH, name=f"link{i}") for i in range(len(self._fabric.outgoing[self._pe]))]
        for i, link in enumerate(outs):
            self._take(m, link, fields[f"out{i}"], taken[f"out{i}"])
        m.d.comb += self.links_out.eq(Cat(*outs))
        if self.kind.registers:
            select, values = fields["write"], taken["write"]
            m.d.comb += [
                registers.enable.eq(self.advance & (select != 0) & (select <= len(values))),
                registers.value.eq(self._choose(m, "write", select, [Const(0, WIDTH), *values])),
                registers.write_at.eq(fields.get("write_at", 0)),
                registers.read_at.eq(fields.get("read_at", 0)),
            ]
        return m

    def _take(self, m: Module, register: Signal, select: Value, sources: Sequence[Value]) -> None:
        """A register that takes one of these, numbered from 1, when the step ends; or keeps its value."""
        with m.If(self.advance), m.Switch(select):
            for i, source in enumerate(sources, start=1):
                with m.Case(i):
                    m.d.sync += register.eq(source)

    @staticmethod
    def _choose(m: Module, name: str, select: Value, sources: Sequence[Value]) -> Value:
        """A mux; a number beyond the last counts as 0."""
        out = Signal(WIDTH, name=f"mux_{name}")
        with m.Switch(select):
            for i, source in enumerate(sources[1:], start=1):
                with m.Case(i):
                    m.d.comb += out.eq(source)
            with m.Default():
                m.d.comb += out.eq(sources[0])
        return out

    def _units(
        self,
        m: Module,
        contexts: ContextMemory,
        fields: dict[str, Value],
        operands: dict[str, Value],
        holds: Value,
        happens: Value,
        y: Signal,
        y2: Signal,
    ) -> None:
        """The units of the kind, what they give, and whether an index is wrong."""
        op, units = fields["op"], self.kind.units
        later: list[Value] = []
        outside: list[Value] = []
        if Unit.ALU in units:
            m.submodules.alu = alu = Alu()
            m.d.comb += [
                alu.op.eq(op),
                *(getattr(alu, x).eq(operands[x]) for x in "abc"),
                alu.const.eq(contexts.const),
                y.eq(Mux(holds, alu.y, 0)),
            ]
        if Unit.MULTIPLIER in units:
            m.submodules.multiplier = multiplier = Multiplier()
            names = [o.name for o in OPERATIONS.values() if o.unit is Unit.MULTIPLIER]
            m.d.comb += [
                multiplier.op.eq(op),
                multiplier.start.eq(is_operation(op, *names) & holds),
                multiplier.advance.eq(self.advance),
                *(getattr(multiplier, x).eq(operands[x]) for x in "abc"),
            ]
            later.append(multiplier.y2)
        if Unit.TABLE in units:
            m.submodules.table = table = TableUnit(self.kind.table_words)
            m.d.comb += [
                table.write.eq(self.table_write),
                table.clear.eq(self.table_clear),
                table.happens.eq(is_operation(op, "table") & happens),
                table.advance.eq(self.advance),
                table.index.eq(operands["a"]),
                table.const.eq(contexts.const),
            ]
            later.append(table.y2)
            outside.append(table.outside)
        if Unit.MEMORY in units:
            m.submodules.port = port = MemoryPort(self._config)
            m.d.comb += [
                port.happens.eq(is_operation(op, "load", "store") & happens),
                port.store.eq(is_operation(op, "store")),
                port.array.eq(fields["array"]),
                port.index.eq(operands["a"]),
                port.value.eq(operands["b"]),
                port.write.eq(self.array_write),
                port.arrays.eq(self.arrays),
                port.advance.eq(self.advance),
                port.fresh.eq(self.fresh),
                port.arrived.eq(self.arrived),
                self.access.eq(port.access),
            ]
            later.append(port.y2)
            outside.append(port.outside)
        if later:
            combined = later[0]
            for value in later[1:]:
                combined = combined | value
            m.d.comb += y2.eq(combined)
        m.d.comb += self.outside.eq(Cat(*outside).any() if outside else 0)
