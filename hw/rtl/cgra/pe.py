"""A processing element: operand muxes, units, result register, register file, link registers."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import memory
from amaranth.lib.wiring import Component, In, Out

from hw.config import MachineConfig
from hw.fabric import Fabric, Unit, layout
from hw.fabric.layout import ARRAYS, made
from hw.fabric.operations import LOADS, STORES
from hw.rtl.bits import where
from hw.rtl.cgra.access import ArrayWrite, MemoryPort, access_layout, arrived_layout
from hw.rtl.cgra.across import Across
from hw.rtl.cgra.ahead import Ahead, Choice, Operand, moment_layout
from hw.rtl.cgra.context import ContextMemory, context_bits
from hw.rtl.cgra.table import TableUnit, TableWrite
from hw.rtl.cgra.units import WIDTH, Alu, Multiplier, any_of, spread


class RegisterFile(Component):
    """A register file with one read and one write port.

    `known` marks the registers written since a reset; the caller reads the others as 0.

    **Timing.** A register written in cycle t has its value from t + 1 on; reading is combinational.
    """

    def __init__(self, registers: int, width: int = WIDTH):
        self._registers, self._width = registers, width
        bits = max(1, (registers - 1).bit_length())
        super().__init__(
            {
                "enable": In(1),
                "write_at": In(bits),
                "value": In(width),
                "read_at": In(bits),
                "register": Out(width),
                "known": Out(registers),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        if self._registers == 1:
            m.d.comb += self.known.eq(1)
            with m.If(self.enable):
                m.d.sync += self.register.eq(self.value)
            return m
        m.submodules.words = words = memory.Memory(shape=self._width, depth=self._registers, init=[])
        write, read = words.write_port(), words.read_port(domain="comb")
        m.d.comb += [
            write.en.eq(self.enable),
            write.addr.eq(self.write_at),
            write.data.eq(self.value),
            read.addr.eq(self.read_at),
            self.register.eq(read.data),
        ]
        with m.If(self.enable):
            m.d.sync += self.known.eq(self.known | (1 << self.write_at))
        return m


class ProcessingElement(Component):
    """A PE of a fabric with its context memory.

    `context` is that of the step after the next one, fetched with `read`; `load` latches what the next step
    needs; `moment` describes the next step. `advance` means that a step ends in this cycle, `shows` that no
    access is open (true whenever a step ends), `rests` that no step executes; a pipelined fabric then
    discards pending values. `links_in` and `links_out` are in ascending order of the other PE, each with as
    many lanes as both PEs have. `outside` means that an access of the step is out of range, `waiting` that an
    access of an earlier one has not been served yet.

    **Timing.** All registers load at the end of the cycle in which `advance` is 1, and only then.
    """

    def __init__(self, config: MachineConfig, fabric: Fabric, pe: int):
        self._config, self._fabric, self._pe = config, fabric, pe
        self.kind = fabric.kinds[pe]
        self.layout = layout(fabric, pe)
        self._width = WIDTH * self.kind.lanes
        ins, outs = (
            [WIDTH * fabric.link_lanes(i) for i in links[pe]] for links in (fabric.incoming, fabric.outgoing)
        )
        self._ins, self._outs = ins, outs
        bits = context_bits(fabric)
        ports: dict[str, object] = {
            "write": In(self.layout.words),
            "write_at": In(bits),
            "data": In(WIDTH),
            "context": In(bits),
            "read": In(1),
            "load": In(1),
            "moment": In(moment_layout(fabric)),
            "advance": In(1),
            "shows": In(1),
            "rests": In(1),
            "links_in": In(max(WIDTH, sum(ins))),
            "links_out": Out(max(WIDTH, sum(outs))),
            "outside": Out(1),
        }
        if Unit.TABLE in self.kind.units:
            ports |= {"table_write": In(TableWrite), "table_clear": In(1)}
        if Unit.MEMORY in self.kind.units:
            ports |= {
                "array_write": In(ArrayWrite),
                "arrays": In(range(ARRAYS + 1)),
                "access": Out(access_layout(config)),
                "new": Out(access_layout(config)),
                "open": In(1),
                "waiting": Out(1),
                "fresh": In(1),
                "arrived": In(arrived_layout(fabric.lanes)),
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
        ahead = Ahead(m, self.kind, self.layout, contexts, self.moment, self.load)
        # The values of this step's operations: of the fast units, and of the slow ones.
        values = [Signal(self._width, name=made(latency << self._fabric.pipelined)) for latency in (1, 2)]
        result = Signal(self._width)
        sources: dict[str, Value] = {"result": result} | {value.name: value for value in values}
        for i, width in enumerate(self._ins):
            low = sum(self._ins[:i])
            sources[f"in{i}"] = spread(self.links_in[low : low + width], self.kind.lanes)
        readable: Value | None = None
        if self.kind.registers:
            m.submodules.registers = registers = RegisterFile(self.kind.registers, self._width)
            sources["register"] = registers.register
            write, write_at, read_at, readable = ahead.registers(registers.known, self.advance)
            m.d.comb += [
                registers.enable.eq(self.advance & write.taken),
                registers.value.eq(self._chosen(write, sources)),
                registers.write_at.eq(write_at),
                registers.read_at.eq(read_at),
            ]
        operands, holds = self._operands(m, ahead, sources, readable)
        self._units(m, ahead, operands, holds, values)
        self._take(m, result, ahead.choice("result"), sources)
        outs = [Signal(width, name=f"link{i}") for i, width in enumerate(self._outs)]
        for i, link in enumerate(outs):
            self._take(m, link, ahead.choice(f"out{i}", readable), sources)
        m.d.comb += self.links_out.eq(Cat(*outs))
        return m

    def _operands(
        self, m: Module, ahead: Ahead, sources: dict[str, Value], readable: Value | None
    ) -> tuple[dict[str, Value], Signal]:
        """The data operands, and in which lanes the predicate holds."""
        operands: dict[str, Value] = {}
        lanes = self.kind.lanes
        for name in "abc":
            chosen: Operand = ahead.operand(name, readable)
            operand = Signal(self._width, name=f"operand_{name}")
            selected = [where(select, sources[s]) for s, select in chosen.choice.selects.items()]
            numbers = [spread(number, lanes) for number in chosen.numbers]
            if name == "a" and lanes > 1:
                numbers.append(where(ahead.lane(), Cat(Const(lane, WIDTH) for lane in range(lanes))))
            m.d.comb += operand.eq(any_of([*selected, *numbers]))
            operands[name] = operand
        predicate, negate = ahead.predicate(readable), ahead.held("negate", ahead.fields["negate"])
        # One bit per source and lane is enough.
        holds = Signal(lanes)
        for lane in range(lanes):
            some = {name: sources[name].word_select(lane, WIDTH).any() for name in predicate.choice.selects}
            selects = predicate.choice.selects.items()
            known = any_of([*predicate.numbers, *(select & some[name] for name, select in selects)])
            m.d.comb += holds[lane].eq(known ^ negate)
        return operands, holds

    @staticmethod
    def _chosen(choice: Choice, sources: dict[str, Value]) -> Value:
        """The source that is chosen, or 0."""
        return any_of(where(select, sources[name]) for name, select in choice.selects.items())

    def _take(self, m: Module, register: Signal, choice: Choice, sources: dict[str, Value]) -> None:
        """A register that loads its choice when the step ends, or keeps its value."""
        with m.If(self.advance & choice.taken):
            m.d.sync += register.eq(self._chosen(choice, sources))

    def _units(
        self, m: Module, ahead: Ahead, operands: dict[str, Value], holds: Signal, values: list[Signal]
    ) -> None:
        """Instantiates the units of the kind; drives their values and the range errors of indices."""
        units, pipelined, lanes = self.kind.units, self._fabric.pipelined, range(self.kind.lanes)
        happens = [self.advance & holds[lane] for lane in lanes]
        moves = self.advance | self.rests if pipelined else self.advance
        sooner: list[Value] = []
        later, loaded, outside = self._accesses(m, ahead, operands, happens, moves)
        begins = happens if pipelined else [holds[lane] for lane in lanes]
        if Unit.ALU in units:
            control, parts = ahead.alu(), []
            for lane in lanes:
                m.submodules[self._named("alu", lane)] = alu = Alu(pipelined)
                m.d.comb += [
                    alu.control.eq(control),
                    alu.holds.eq(begins[lane]),
                    alu.advance.eq(moves),
                    *(getattr(alu, x).eq(operands[x].word_select(lane, WIDTH)) for x in "abc"),
                ]
                parts.append(alu.y)
            sooner.append(Cat(*parts))
        if Unit.MULTIPLIER in units:
            ports, parts = ahead.multiplier(), []
            start = ports.pop("start")
            for lane in lanes:
                multiplier = Multiplier(pipelined, Unit.QUANTISER in units, self.kind.adds)
                m.submodules[self._named("multiplier", lane)] = multiplier
                m.d.comb += [
                    multiplier.start.eq(start & begins[lane]),
                    *(getattr(multiplier, port).eq(signal) for port, signal in ports.items()),
                    multiplier.advance.eq(moves),
                    *(getattr(multiplier, x).eq(operands[x].word_select(lane, WIDTH)) for x in "abc"),
                ]
                parts.append(multiplier.y)
            later.append(Cat(*parts))
        if Unit.LANES in units:
            m.submodules.across = across = Across(len(lanes), pipelined)
            ports = ahead.across()
            start = ports.pop("start")
            m.d.comb += [
                across.start.eq(Cat(start & begin for begin in begins)),
                *(getattr(across, port).eq(signal) for port, signal in ports.items()),
                across.advance.eq(moves),
                across.a.eq(operands["a"]),
                across.b.eq(operands["b"]),
                across.by.eq(operands["c"]),
            ]
            later.append(across.y)
        m.d.comb += values[0].eq(any_of(sooner))
        slow = any_of(later)
        if pipelined and later:
            # The path from a table or a rounding to other PEs is too long for one cycle.
            slow = Signal(self._width, name="slow")
            with m.If(moves):
                m.d.sync += slow.eq(any_of(later))
        m.d.comb += values[1].eq(any_of([slow, *loaded]))
        m.d.comb += self.outside.eq(Cat(*outside).any() if outside else 0)

    def _named(self, name: str, lane: int) -> str:
        """The name of a unit in a lane."""
        return f"{name}{lane}" if self.kind.lanes > 1 else name

    def _accesses(
        self, m: Module, ahead: Ahead, operands: dict[str, Value], happens: list[Value], moves: Value
    ) -> tuple[list[Value], list[Value], list[Value]]:
        """Instantiates tables and memory port; returns their values and the range errors of their indices."""
        units, pipelined = self.kind.units, self._fabric.pipelined
        later: list[Value] = []
        loaded: list[Value] = []
        outside: list[Value] = []
        if Unit.TABLE in units:
            active, parts = ahead.active("table"), []
            for lane, own in enumerate(happens):
                m.submodules[self._named("table", lane)] = table = TableUnit(self.kind.table_words, pipelined)
                m.d.comb += [
                    table.write.eq(self.table_write),
                    table.clear.eq(self.table_clear),
                    table.load.eq(self.load),
                    table.const.eq(ahead.const),
                    table.happens.eq(active & own),
                    table.advance.eq(self.advance),
                    table.moves.eq(moves),
                    table.shows.eq(self.shows),
                    table.index.eq(operands["a"].word_select(lane, WIDTH)),
                ]
                parts.append(table.y)
                outside.append(table.outside)
            later.append(Cat(*parts))
        if Unit.MEMORY in units:
            m.submodules.port = port = MemoryPort(self._config, self.kind.lanes, pipelined)
            active = ahead.active(*LOADS, *STORES)
            m.d.comb += [
                port.load.eq(self.load),
                port.store.eq(ahead.stores),
                port.array.eq(ahead.fields["array"]),
                port.happens.eq(Cat(active & own for own in happens)),
                port.index.eq(operands["a"]),
                port.value.eq(operands["b"]),
                port.write.eq(self.array_write),
                port.arrays.eq(self.arrays),
                port.advance.eq(self.advance),
                port.moves.eq(moves),
                port.shows.eq(self.shows),
                port.open.eq(self.open),
                port.fresh.eq(self.fresh),
                port.arrived.eq(self.arrived),
                self.waiting.eq(port.waiting),
                self.access.eq(port.access),
                self.new.eq(port.new),
            ]
            if self.kind.lanes > 1:
                m.d.comb += port.wide.eq(ahead.wide)
            loaded.append(port.y)
            outside.append(port.outside)
        return later, loaded, outside
