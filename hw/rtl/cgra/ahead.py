"""Decodes an entry one step ahead, so that a step starts from registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data

from hw.fabric import Fabric, Layout, PEKind, Unit
from hw.fabric.layout import FIRST
from hw.fabric.operations import OPERATIONS, STORES, WIDE, PEOperation
from hw.rtl.bits import where
from hw.rtl.cgra.context import ContextMemory
from hw.rtl.cgra.units import AluControl, alu_control, is_operation


def moment_layout(fabric: Fabric) -> data.StructLayout:
    """Where a step lies in a launch: its newest iteration k, relative to 0 and to the number N of iterations.

    `ahead` is k, saturated; `over` says whether k >= N; `beyond` is then k - N, saturated.
    """
    return data.StructLayout(
        {
            "ahead": (fabric.stages + FIRST).bit_length(),
            "over": 1,
            "beyond": (fabric.stages - 1).bit_length(),
        }
    )


@dataclass(frozen=True)
class Choice:
    """The decoded select of a mux: one bit per source, at most one of them 1.

    `taken`: the register behind the mux loads.
    """

    selects: dict[str, Signal]
    taken: Signal


@dataclass(frozen=True)
class Operand:
    """A decoded operand: the OR of `numbers` and the chosen source; at most one of them is not 0."""

    numbers: tuple[Signal, ...]
    choice: Choice


class Ahead:
    """Decodes the entry of the next step into registers, which load when `load` is 1.

    `const` and `fields` are not registered here: they are those of the next step.
    """

    def __init__(
        self,
        m: Module,
        kind: PEKind,
        layout: Layout,
        contexts: ContextMemory,
        moment: data.View[data.StructLayout],
        load: Value,
    ):
        self._m, self._kind, self._layout, self._load = m, kind, layout, load
        self.fields = {f.name: contexts.fields[f.low : f.low + f.width] for f in layout.fields}
        self.const, self._init = contexts.const, contexts.init
        # In the first iterations some operands are replaced by `init`.
        self._early, self._active = Signal(), Signal()
        stage = self.fields["stage"]
        m.d.comb += [
            self._early.eq(moment.ahead < contexts.bound),
            self._active.eq((moment.ahead >= stage) & ~(moment.over & (moment.beyond >= stage))),
        ]

    def held(self, name: str, value: Value) -> Signal:
        """A value of the next step, registered for use in that step."""
        register = Signal(len(value), name=f"step_{name}", reset_less=True)
        with self._m.If(self._load):
            self._m.d.sync += register.eq(value)
        return register

    def active(self, *operations: str) -> Signal:
        """Whether the step executes one of these operations, for an iteration that exists."""
        return self.held(f"active_{operations[0]}", self._is(*operations) & self._active)

    @property
    def stores(self) -> Value:
        """Whether the next step executes a store."""
        return self._is(*STORES)

    @property
    def wide(self) -> Value:
        """Whether the next step has an access of all lanes."""
        return self._is(*WIDE)

    def lane(self) -> Signal:
        """Whether operand A is the lane number."""
        return self.held("lane", self._is("lane"))

    def across(self) -> dict[str, Signal]:
        """Controls of the unit across lanes, by port; `start` says whether it executes an operation."""
        executed = {
            "start": [o.name for o in OPERATIONS.values() if o.unit is Unit.LANES],
            "greatest": ["max_lanes"],
            "moves": ["shift_lanes", "even_lanes", "odd_lanes"],
            "halves": ["even_lanes", "odd_lanes"],
            "odd": ["odd_lanes"],
        }
        return {port: self.held(f"across_{port}", self._is(*names)) for port, names in executed.items()}

    def alu(self) -> data.View[data.StructLayout]:
        """Controls of the ALU."""
        control = Signal(AluControl, name="step_alu", reset_less=True)
        with self._m.If(self._load):
            self._m.d.sync += [
                control[name].eq(value) for name, value in alu_control(self.fields["op"], self._kind).items()
            ]
        return control

    def multiplier(self) -> dict[str, Signal]:
        """Control of the multiplier by its ports."""
        products = [o for o in OPERATIONS.values() if o.unit in (Unit.MULTIPLIER, Unit.QUANTISER)]

        def held(name: str, which: Callable[[PEOperation], bool]) -> Signal:
            return self.held(name, self._is(*(o.name for o in products if which(o))))

        ports = {
            "start": held("multiplies", lambda o: True),
            "shifted": held("shifted", lambda o: o.name != "mul"),
            "even": held("even", lambda o: o.name.endswith("even")),
        }
        if Unit.QUANTISER in self._kind.units:
            ports["quantise"] = held("quantises", lambda o: o.unit is Unit.QUANTISER)
        if self._kind.adds:
            ports["adds"] = held("adds", lambda o: o.constant)
            ports["packed"] = self.held("packed", self.const)
        return ports

    def operand(self, name: str, readable: Value | None) -> Operand:
        """Decodes a data operand; `abs` reads its operand as B, a constant is a copy of operand A."""
        bits = dict(zip("abc", self.fields["initial"], strict=False))
        select, initial = self.fields[name], self._early & bits[name]
        nothing: Value | None = None
        const = select == self._layout.sources[name].index("const")
        if Unit.ALU in self._kind.units:
            if name == "a":
                nothing = self._is("abs", "const", "lane")
                const = self._is("const") | (const & ~self._is("abs", "lane") & ~initial)
            elif name == "b":
                absolute = self._is("abs")
                select = Mux(absolute, self.fields["a"], select)
                initial = self._early & Mux(absolute, bits["a"], bits["b"])
                const = select == self._layout.sources[name].index("const")
        begins = initial if nothing is None else initial & ~nothing
        usual = ~initial if nothing is None else ~initial & ~nothing
        if name != "a" or nothing is None:
            const = const & ~initial
        # Two registers with a reset each, which FPGAs provide; a multiplexer in front would take a LUT per
        # bit.
        numbers = (
            self.held(f"const_{name}", where(const, self.const)),
            self.held(f"init_{name}", where(begins, self._init)),
        )
        return Operand(numbers, self._choice(name, select, usual, readable))

    def predicate(self, readable: Value | None) -> Operand:
        """Decodes the predicate as one bit: whether its value is not 0."""
        initial = self._early & self.fields["initial"][3]
        select, sources = self.fields.get("p", Const(0, 1)), self._layout.sources["p"]
        always = (select == 0) | (select >= len(sources))
        number = self.held("number_p", Mux(initial, self._init.any(), always))
        return Operand((number,), self._choice("p", select, ~initial, readable))

    def choice(self, name: str, readable: Value | None = None) -> Choice:
        """Decodes what a register loads."""
        return self._choice(name, self.fields[name], None, readable)

    def registers(self, known: Value, advance: Value) -> tuple[Choice, Value, Value, Signal]:
        """Decodes the register file; returns (write choice, write address, read address, readable).

        `readable` says whether the register that the next step reads has been written.
        """
        write = self.choice("write")
        places = {
            name: self._within(self.fields[name]) for name in ("write_at", "read_at") if name in self.fields
        }
        held = {name: self.held(name, place) for name, place in places.items()}
        readable = Signal()
        if places:
            same = held["write_at"] == places["read_at"]
            self._m.d.comb += readable.eq(
                known.bit_select(places["read_at"], 1) | (advance & write.taken & same)
            )
        else:
            self._m.d.comb += readable.eq(1)
        return write, held.get("write_at", Signal()), held.get("read_at", Signal()), readable

    def _within(self, number: Value) -> Value:
        """The number of a register; a number beyond the last one counts as 0."""
        if self._kind.registers == 1 << len(number):
            return number
        return Mux(number < self._kind.registers, number, 0)

    def _is(self, *operations: str) -> Value:
        return is_operation(self.fields["op"], self._kind, *operations)

    def _choice(self, name: str, select: Value, usual: Value | None, readable: Value | None) -> Choice:
        """One bit per source, gated by `usual`; a `register` source that is not `readable` gives 0."""
        sources = self._layout.sources[name]
        selects = {}
        for number, source in enumerate(sources):
            if source in ("zero", "always", "const", "keep", "none"):
                continue
            chosen = select == number
            if usual is not None:
                chosen = chosen & usual
            if source == "register" and readable is not None:
                chosen = chosen & readable
            selects[source] = self.held(f"{name}_{source}", chosen)
        taken = self.held(f"{name}_taken", (select != 0) & (select < len(sources)))
        return Choice(selects, taken)
