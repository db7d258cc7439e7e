"""The bench of a proof: a component with free inputs, assumptions, and named statements."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from types import FrameType
from typing import Any
from unittest import mock

from amaranth.back import rtlil
from amaranth.hdl import (
    Array,
    Assert,
    Assume,
    ClockDomain,
    Const,
    Elaboratable,
    EnableInserter,
    Fragment,
    Module,
    Shape,
    ShapeLike,
    Signal,
    Value,
    ValueLike,
)
from amaranth.lib.data import View
from amaranth.lib.wiring import Component, In

from hw.errors import InputError

#: Name of the top module; statements are modules below it.
TOP = "top"
#: Attribute of registers without a reset.
UNRESET = "unreset"

#: Adds statements to a module that stands around the component (second) with the same ports (first).
Alter = Callable[[Module, Component, Component], None]


@dataclass(frozen=True)
class Sabotage:
    """How a fault gets into a component: at its ports, and by replacing names of its module's source.

    `ports` may override what the module around the component connects. `replaced` maps names such as
    `hw.rtl.memory.storer.range_mask` to what stands there while the component is built.
    """

    ports: Alter | None = None
    replaced: dict[str, object] = field(default_factory=dict)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Have the names replaced for as long as this lasts."""
        with contextlib.ExitStack() as stack:
            for target, replacement in self.replaced.items():
                stack.enter_context(mock.patch(target, replacement))
            yield


class _Around(Component):
    """A component with altered ports; everything that is not altered goes straight through."""

    def __init__(self, inner: Component, alter: Alter):
        self._inner, self._alter = inner, alter
        super().__init__(inner.signature)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.inner = inner = self._inner
        own = dict(_leaves(self))
        for path, (flow, port) in _leaves(inner):
            outer = own[path][1]
            m.d.comb += port.eq(outer) if flow == In else outer.eq(port)
        self._alter(m, self, inner)
        return m


class _Elaborated(Elaboratable):
    """A fragment where Amaranth wants something to elaborate."""

    def __init__(self, fragment: Fragment):
        self._fragment = fragment

    def elaborate(self, platform: object) -> Fragment:
        return self._fragment


def _leaves(component: Component) -> Iterator[tuple[tuple[str | int, ...], tuple[object, Value]]]:
    """Path, direction and value of every port of a component."""
    for path, member, value in component.signature.flatten(component):
        yield path, (member.flow, Value.cast(value))


@dataclass(frozen=True)
class Queue:
    """A SyncFIFO inside a component: its registers, and a way to look at its entries."""

    level: Value
    consume: Value
    produce: Value
    depth: int
    entry: Callable[[ValueLike], Value]

    def place(self, ahead: ValueLike) -> Value:
        """Where the entry lies that `ahead` others go before."""
        index = Value.cast(self.consume + ahead)
        return _wrapped(index, self.depth)

    @property
    def consistent(self) -> Value:
        """What its three registers always obey."""
        return (
            (self.level <= self.depth)
            & (self.consume < self.depth)
            & (self.produce == _wrapped(Value.cast(self.consume + self.level), self.depth))
        )


def _wrapped(index: Value, depth: int) -> Value:
    """An index below twice the depth, modulo the depth."""
    result = Array([i % depth for i in range(2 * depth)])[index]
    return Value.cast(result)


def blinking(meaning: str, *streams: str) -> Alter:
    """A fault at streams, named by their paths: an offer that is not accepted vanishes for a cycle."""

    def alter(m: Module, outer: Component, inner: Component) -> None:
        for path in streams:
            own, other = attrgetter(path)(outer), attrgetter(path)(inner)
            waited = Signal()
            m.d.sync += waited.eq(other.valid & ~own.ready & ~waited)
            m.d.comb += own.valid.eq(other.valid & ~waited)

    alter.__doc__ = meaning
    return alter


def past(m: Module, value: ValueLike, name: str | None = None) -> Signal:
    """What a value was in the cycle before; 0 in the first."""
    value = Value.cast(value)
    register = Signal(len(value), name=name)
    m.d.sync += register.eq(value)
    return register


def altered(component: Callable[..., Component], alter: Alter) -> Callable[..., Component]:
    """What makes a component with altered ports where `component` makes it without."""

    @functools.wraps(alter)
    def made(*arguments: Any) -> Component:
        return _Around(component(*arguments), alter)

    return made


def _one_bit(condition: ValueLike) -> Value:
    """A condition, which must have one bit: `~` of a longer number is hardly ever 0."""
    value = Value.cast(condition)
    if len(value) != 1:
        raise ValueError(f"a condition must have one bit, not {len(value)}: {value!r}")
    return value


def _mark_unreset(fragment: Fragment) -> None:
    """Mark the registers that no reset reaches (`UNRESET`): they may hold anything when a run begins."""
    for domain, statements in fragment.statements.items():
        for signal in statements._lhs_signals():
            if domain != "comb" and signal.reset_less:
                signal.attrs[UNRESET] = 1
    for inner, _, _ in fragment.subfragments:
        _mark_unreset(inner)


class Bench:
    """Collects a component, free inputs, assumptions and statements into one module to be proved.

    With `induction`, invariants that tie registers of the component to the bench's own model are added to
    what is proved. `only` keeps one statement and leaves out the others, and with them all invariants.
    """

    def __init__(
        self, *, induction: bool = False, only: str | None = None, sabotage: Sabotage | None = None
    ) -> None:
        self.m = Module()
        self._domain = ClockDomain("sync", reset_less=True)
        self.m.domains += self._domain
        self._free: list[Value] = []
        self._fragments: dict[int, Fragment] = {}
        self._variables: dict[int, tuple[Elaboratable, dict[str, Signal | View]]] = {}
        self._induction, self._only = induction and only is None, only
        self._sabotage = sabotage
        #: Whether a planted fault is looked for: one statement, without invariants, in some cycles.
        self.seeks_fault = sabotage is not None
        self.statements: list[str] = []
        self.started = Signal(name="started")  # 0 in the first cycle of all
        self.m.d.sync += self.started.eq(1)

    def add(self, component: Component, name: str) -> Component:
        """Put a component under proof: every input is free. Returns what stands at its ports."""
        alter = self._sabotage.ports if self._sabotage else None
        if alter is not None:
            component = _Around(component, alter)
        self._place(component, component, name)
        self._free += [value for _, (flow, value) in _leaves(component) if flow == In]
        return component

    def beside(self, component: Component, name: str, enable: Value) -> None:
        """Put another component beside it, which stands still without `enable`; its inputs are not free."""
        self._place(component, EnableInserter(enable)(component), name)

    def _place(self, component: Component, elaborated: Elaboratable, name: str) -> None:
        with self._watched():
            fragment = Fragment.get(elaborated, None)
        _mark_unreset(fragment)
        self._fragments[id(component)] = fragment
        self.m.submodules[name] = _Elaborated(fragment)

    def free(self, shape: ShapeLike, name: str) -> Signal:
        """An input that may be anything in every cycle."""
        signal = Signal(shape, name=name)
        self._free.append(Value.cast(signal))
        return signal

    def constant(self, shape: ShapeLike, name: str) -> Signal:
        """A number that may be anything but stays what it is."""
        signal = self.free(shape, name)
        self.assume(~self.started | (Value.cast(signal) == self.past(signal, f"{name}_past")))
        return signal

    def past(self, value: ValueLike, name: str) -> Signal:
        """What a value was in the cycle before; 0 in the first."""
        return past(self.m, value, name)

    def keeps(self, stream: Component, name: str) -> Value:
        """Whether a stream still offers, unchanged, what was not accepted in the cycle before."""
        payload = Value.cast(stream.payload)
        held = self.past(stream.valid & ~stream.ready, f"{name}_held")
        return ~held | (stream.valid & (payload == self.past(payload, f"{name}_past")))

    def value(self, value: ValueLike, name: str) -> Signal:
        """A name for a value, to be seen in traces, computed once."""
        value = Value.cast(value)
        signal = Signal(value.shape(), name=name)
        self.m.d.comb += signal.eq(value)
        return signal

    def assume(self, condition: ValueLike) -> None:
        """Restrict what the inputs may be."""
        self.m.d.comb += Assume(_one_bit(condition))

    def require(self, name: str, condition: ValueLike) -> None:
        """State what must hold in every cycle."""
        self.statements.append(name)
        if self._only in (None, name):
            self._assert(name, condition)

    def invariant(self, name: str, condition: Callable[[], ValueLike]) -> None:
        """State what an induction needs; `condition` is called only if there is one."""
        if self._induction:
            self._assert(f"invariant_{name}", condition())

    def invariants(self, conditions: Callable[[], dict[str, Value]]) -> None:
        """As `invariant`, several by name."""
        for name, condition in conditions().items() if self._induction else ():
            self._assert(f"invariant_{name}", condition)

    def _assert(self, name: str, condition: ValueLike) -> None:
        holds = self.value(_one_bit(condition), f"{name}_holds")
        check = Module()
        check.d.comb += Assert(holds)
        self.m.submodules[name] = check

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Note the local variables with which components are elaborated, the only names of most registers."""

        def note(frame: FrameType, event: str, _: object) -> None:
            owner = frame.f_locals.get("self") if event == "return" else None
            if isinstance(owner, Elaboratable):
                found = {n: v for n, v in frame.f_locals.items() if isinstance(v, Signal | View)}
                _, known = self._variables.setdefault(id(owner), (owner, {}))
                known.update(found)

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            yield
        finally:
            sys.setprofile(before)

    def register(self, component: Component, path: str) -> Value:
        """As `view`, cast to a plain value."""
        return Value.cast(self.view(component, path))

    def view(self, component: Component, path: str) -> Signal | View:
        """A register inside a component by `submodule/.../name`; for invariants only.

        The name is that of the signal or of the variable that holds it. Raises `InputError` if there is none.
        """
        *way, name = path.split("/")
        for origin in self._inside(component, way).origins or ():
            if name in (known := self._variables.get(id(origin), (origin, {}))[1]):
                return known[name]
        return self.signal(component, path)

    def signal(self, component: Component, path: str) -> Signal:
        """As `view`, by the name of the signal only: several variables may have the same."""
        *way, name = path.split("/")
        for statements in self._inside(component, way).statements.values():
            for signal in statements._lhs_signals():
                if signal.name == name:
                    return signal
        raise InputError(
            f"hw.formal: {type(component).__name__} has no register {path!r} (any more), which an invariant "
            "names: adapt the invariants to what stands there now"
        )

    def memory(self, component: Component, path: str) -> Callable[[ValueLike], Value]:
        """The memory `path` inside a component: what stands in a row of it; for invariants only."""
        memory = self._inside(component, path.split("/"))
        shape = Shape.cast(memory._data.shape)
        bits = (memory._data.depth - 1).bit_length()

        def row(number: ValueLike) -> Value:
            index = f"{path.replace('/', '_')}_{len(memory._read_ports)}"
            address, data = Signal(bits, name=f"look_at_{index}"), Signal(shape.width, name=f"look_{index}")
            self.m.d.comb += address.eq(number)
            memory.read_port(domain="comb", addr=address, data=data, en=Const(1), transparent_for=())
            return data

        return row

    def queue(self, component: Component, path: str, depth: int) -> Queue:
        """The SyncFIFO `path` inside a component, opened for invariants."""
        level, consume, produce = (
            self.register(component, f"{path}/{name}") for name in ("level", "consume", "produce")
        )
        return Queue(level, consume, produce, depth, self.memory(component, f"{path}/storage"))

    def _inside(self, component: Component, way: list[str]) -> Fragment:
        fragment = self._fragments[id(component)]
        for name in way:
            try:
                fragment = fragment.find_subfragment(name)
            except NameError:
                raise InputError(
                    f"hw.formal: {type(component).__name__} has no part {'/'.join(way)!r} (any more), which "
                    "an invariant names: adapt the invariants to what stands there now"
                ) from None
        return fragment

    def rtlil(self) -> str:
        """The whole as RTLIL, top module `TOP`."""
        ports = [self._domain.clk, *self._free]
        text: str = rtlil.convert(self.m, name=TOP, ports=ports)
        return text
