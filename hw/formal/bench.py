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

#: Name of the top module; the statements are submodules.
TOP = "top"
#: Attribute of registers without a reset.
UNRESET = "unreset"

#: Changes the module around a component: gets that module, and the outer and inner component with equal
#: ports.
Alter = Callable[[Module, Component, Component], None]


@dataclass(frozen=True)
class Sabotage:
    """How a fault enters a component: at its ports, or by replacing names in its module.

    `ports` may override the connections of the module around the component. `replaced` maps names such as
    `hw.rtl.memory.storer.range_mask` to their replacements while the component is built.
    """

    ports: Alter | None = None
    replaced: dict[str, object] = field(default_factory=dict)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Replaces the names within the context."""
        with contextlib.ExitStack() as stack:
            for target, replacement in self.replaced.items():
                stack.enter_context(mock.patch(target, replacement))
            yield


class _Around(Component):
    """A component with altered ports; all others pass straight through."""

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
    """Wraps a fragment for places where Amaranth wants an `Elaboratable`."""

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
    """A SyncFIFO inside a component: its registers, and access to its entries."""

    level: Value
    consume: Value
    produce: Value
    depth: int
    entry: Callable[[ValueLike], Value]

    def place(self, ahead: ValueLike) -> Value:
        """The index of the entry with `ahead` others before it."""
        index = Value.cast(self.consume + ahead)
        return _wrapped(index, self.depth)

    @property
    def consistent(self) -> Value:
        """The invariant of its three registers."""
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
    """A fault at streams, given by path: an offer that is not accepted disappears for one cycle."""

    def alter(m: Module, outer: Component, inner: Component) -> None:
        for path in streams:
            own, other = attrgetter(path)(outer), attrgetter(path)(inner)
            waited = Signal()
            m.d.sync += waited.eq(other.valid & ~own.ready & ~waited)
            m.d.comb += own.valid.eq(other.valid & ~waited)

    alter.__doc__ = meaning
    return alter


def past(m: Module, value: ValueLike, name: str | None = None) -> Signal:
    """The value of the previous cycle; 0 in the first cycle."""
    value = Value.cast(value)
    register = Signal(len(value), name=name)
    m.d.sync += register.eq(value)
    return register


def altered(component: Callable[..., Component], alter: Alter) -> Callable[..., Component]:
    """Wraps a component class so that its instances have altered ports."""

    @functools.wraps(alter)
    def made(*arguments: Any) -> Component:
        return _Around(component(*arguments), alter)

    return made


def _one_bit(condition: ValueLike) -> Value:
    """Checks that a condition has one bit: `~` of a wider value is almost never 0."""
    value = Value.cast(condition)
    if len(value) != 1:
        raise ValueError(f"a condition must have one bit, not {len(value)}: {value!r}")
    return value


def _mark_unreset(fragment: Fragment) -> None:
    """Marks the registers that no reset reaches (`UNRESET`): a run may begin with any value in them."""
    for domain, statements in fragment.statements.items():
        for signal in statements._lhs_signals():
            if domain != "comb" and signal.reset_less:
                signal.attrs[UNRESET] = 1
    for inner, _, _ in fragment.subfragments:
        _mark_unreset(inner)


class Bench:
    """Collects a component, free inputs, assumptions and statements into one module to be proved.

    With `induction`, the proof also includes invariants, which tie registers of the component to the bench's
    model. `only` keeps one statement and drops the others and all invariants.
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
        #: Whether this searches for a planted fault: one statement, no invariants, a bounded number of
        #: cycles.
        self.seeks_fault = sabotage is not None
        self.statements: list[str] = []
        self.started = Signal(name="started")  # 0 in the very first cycle
        self.m.d.sync += self.started.eq(1)

    def add(self, component: Component, name: str) -> Component:
        """Puts a component under proof, with free inputs. Returns the component as seen at its ports."""
        alter = self._sabotage.ports if self._sabotage else None
        if alter is not None:
            component = _Around(component, alter)
        self._place(component, component, name)
        self._free += [value for _, (flow, value) in _leaves(component) if flow == In]
        return component

    def beside(self, component: Component, name: str, enable: Value) -> None:
        """Adds a second component that only advances with `enable`; its inputs are not free."""
        self._place(component, EnableInserter(enable)(component), name)

    def _place(self, component: Component, elaborated: Elaboratable, name: str) -> None:
        with self._watched():
            fragment = Fragment.get(elaborated, None)
        _mark_unreset(fragment)
        self._fragments[id(component)] = fragment
        self.m.submodules[name] = _Elaborated(fragment)

    def free(self, shape: ShapeLike, name: str) -> Signal:
        """An input that may have any value in every cycle."""
        signal = Signal(shape, name=name)
        self._free.append(Value.cast(signal))
        return signal

    def constant(self, shape: ShapeLike, name: str) -> Signal:
        """An input that may have any value but never changes."""
        signal = self.free(shape, name)
        self.assume(~self.started | (Value.cast(signal) == self.past(signal, f"{name}_past")))
        return signal

    def past(self, value: ValueLike, name: str) -> Signal:
        """The value of the previous cycle; 0 in the first cycle."""
        return past(self.m, value, name)

    def keeps(self, stream: Component, name: str) -> Value:
        """Whether a stream still offers, unchanged, what was not accepted in the previous cycle."""
        payload = Value.cast(stream.payload)
        held = self.past(stream.valid & ~stream.ready, f"{name}_held")
        return ~held | (stream.valid & (payload == self.past(payload, f"{name}_past")))

    def value(self, value: ValueLike, name: str) -> Signal:
        """Names a value, so that it appears in traces and is computed once."""
        value = Value.cast(value)
        signal = Signal(value.shape(), name=name)
        self.m.d.comb += signal.eq(value)
        return signal

    def assume(self, condition: ValueLike) -> None:
        """Restricts the inputs."""
        self.m.d.comb += Assume(_one_bit(condition))

    def require(self, name: str, condition: ValueLike) -> None:
        """States a property that must hold in every cycle."""
        self.statements.append(name)
        if self._only in (None, name):
            self._assert(name, condition)

    def invariant(self, name: str, condition: Callable[[], ValueLike]) -> None:
        """States an invariant for an induction; `condition` is only called if there is one."""
        if self._induction:
            self._assert(f"invariant_{name}", condition())

    def invariants(self, conditions: Callable[[], dict[str, Value]]) -> None:
        """As `invariant`, for several by name."""
        for name, condition in conditions().items() if self._induction else ():
            self._assert(f"invariant_{name}", condition)

    def _assert(self, name: str, condition: ValueLike) -> None:
        holds = self.value(_one_bit(condition), f"{name}_holds")
        check = Module()
        check.d.comb += Assert(holds)
        self.m.submodules[name] = check

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Records the local variables of `elaborate` methods, which are the only names of most registers."""

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
        """A register inside a component, by `submodule/.../name`; for invariants only.

        The name is that of the signal, or of the variable that holds it. Raises `InputError` if there is
        none.
        """
        *way, name = path.split("/")
        for origin in self._inside(component, way).origins or ():
            if name in (known := self._variables.get(id(origin), (origin, {}))[1]):
                return known[name]
        return self.signal(component, path)

    def signal(self, component: Component, path: str) -> Signal:
        """As `view`, but only by the name of the signal: several variables may have the same name."""
        *way, name = path.split("/")
        for statements in self._inside(component, way).statements.values():
            for signal in statements._lhs_signals():
                if signal.name == name:
                    return signal
        raise InputError(
            f"hw.formal: {type(component).__name__} has no register {path!r} (any more), which an invariant "
            "names: adapt the invariants to the new source"
        )

    def memory(self, component: Component, path: str) -> Callable[[ValueLike], Value]:
        """The memory `path` inside a component, as a function from row to content; for invariants only."""
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
                    "an invariant names: adapt the invariants to the new source"
                ) from None
        return fragment

    def rtlil(self) -> str:
        """The whole bench as RTLIL, top module `TOP`."""
        ports = [self._domain.clk, *self._free]
        text: str = rtlil.convert(self.m, name=TOP, ports=ports)
        return text
