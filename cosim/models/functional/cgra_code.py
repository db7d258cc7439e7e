"""Translates a configuration of the CGRA into a Python function that executes its steps.

A configuration fixes the choice of every mux, so it is looked up once and written as text. A launch of
thousands of steps then executes only what moves a value. What differs between launches (patched constants,
arrays, iterations) is an argument. The meaning is that of docs/cgra.md, "Configuration of a PE" and
"Running".

If only cycles are needed, values that no address and no condition depends on are left out.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hw.fabric import BY_NUMBER, Fabric, PEOperation, Unit, layout
from hw.fabric.bitstream import NOTHING, OUT, PATCHED, Configuration, Entry
from hw.fabric.operations import LOADS, STORES, WIDE
from hw.semantics import SEMANTICS, wrap

#: Names of values in the text: results of operations in a step, and registers.
_VALUES = re.compile(r"\b(?:[ye]\d+|[rdpqsl]\d+|f\d+_\d+)(?:v\d+)?\b")
#: Reductions over all lanes, from the texts of the lanes' values.
_REDUCTIONS: dict[str, Callable[[Sequence[str]], str]] = {
    "sum_lanes": lambda values: functools.reduce(SEMANTICS["add"].text, values),
    "max_lanes": lambda values: f"max({', '.join(values)})",
}


#: By PE: the names of its operation's results in every lane.
Made = dict[int, tuple[str, ...]]


class DataError(Exception):
    """Addresses or conditions depend on loaded data, so cycles cannot be computed without values."""


class AccessSite(NamedTuple):
    """A load or store in a configuration: its PE, in one context, accesses `lanes` adjacent elements."""

    pe: int
    array: int
    stores: bool
    lanes: int = 1


@dataclass(frozen=True)
class Code:
    """The result of `code_of`.

    `run(state, steps, iterations, numbers, arrays, tables, indices, values)` executes `steps` steps. It
    returns None, or the step with an error and the PE. `state` holds the registers in the order of
    `registers`, and is updated. `numbers` holds the values of `constants`. `arrays` holds for each array a
    view of its space, the offset of its first element, and its length. `tables` holds the words of tables by
    PE.

    `indices` and `values` hold the `append` method of one list per site. Each access appends `step << 32 |
    element` to its `indices`; a store also appends the stored value to its `values`. For an access of several
    lanes, `element` is that of lane 0, and `values` first gets a number whose bits say which lanes load or
    store; a store then adds the values, lane by lane.
    """

    run: Callable[..., tuple[int, int] | None]
    sites: tuple[AccessSite, ...]
    constants: tuple[tuple[str, int, int], ...]


def registers(fabric: Fabric) -> list[str]:
    """Names of all registers: results, values of latency 2 (`d`), of 4 (`p`, `q`, then `s`), files, links."""
    kinds = fabric.kinds
    found = [(f"{kind}{pe}", kinds[pe].lanes) for pe in range(fabric.size) for kind in "rd"]
    found += [(f"{kind}{pe}", kinds[pe].lanes) for pe in _slow(fabric) for kind in "pqs"]
    found += [(f"f{pe}_{i}", kind.lanes) for pe, kind in enumerate(kinds) for i in range(kind.registers)]
    found += [(f"l{link}", fabric.link_lanes(link)) for link in range(len(fabric.links))]
    return [_lane(name, lane) for name, lanes in found for lane in range(lanes)]


def _lane(name: str, lane: int) -> str:
    """The name of a value in a lane."""
    return f"{name}v{lane}" if lane else name


def _slow(fabric: Fabric) -> tuple[int, ...]:
    """The PEs with operations of latency 4."""
    return tuple(pe for pe, kind in enumerate(fabric.kinds) if fabric.pipelined and kind.units - {Unit.ALU})


def code_of(configuration: Configuration, values: bool = True) -> Code:
    """Generate the function of a configuration.

    Without `values`, the function records the same accesses but stores nothing. This is valid if registers
    that earlier launches wrote do not matter and no index leaves its table. Raises `DataError` if accesses
    depend on data.
    """
    return _CodeWriter(configuration, values).code()


class _Operands(NamedTuple):
    """Texts of an operation's operands in a lane; `condition` is None if its predicate always holds.

    `active` says whether the operation acts: in a valid iteration, with a true predicate.
    """

    data: list[str]
    condition: str | None
    active: str

    def chosen(self, value: str) -> str:
        """The value if the predicate holds, else 0."""
        return value if self.condition is None else f"{value} if {self.condition} else 0"


class _CodeWriter:
    """Writes the text of a function, context by context.

    For each context it records the texts of the step's `values` (None for loaded ones), the texts that
    registers take at its end, and in `roots` the texts that accesses depend on.
    """

    def __init__(self, configuration: Configuration, values: bool):
        self.configuration, self.fabric, self.data = configuration, configuration.fabric, values
        self.values: list[dict[str, str | None]] = [{} for _ in range(configuration.ii)]
        self.taken: list[dict[str, str]] = [{} for _ in range(configuration.ii)]
        self.roots: list[list[str]] = [[] for _ in range(configuration.ii)]
        self.slow = set(_slow(self.fabric))
        self.layouts = [layout(self.fabric, pe) for pe in range(self.fabric.size)]
        self.sites: list[AccessSite] = []
        self.stages: set[int] = set()
        patched = {(PATCHED[p.what], p.pe, p.at) for p in configuration.patches if p.what < 2}
        self.constants = {key: f"k{i}" for i, key in enumerate(sorted(patched))}

    def code(self) -> Code:
        """Generate the whole function."""
        contexts = range(self.configuration.ii)
        written = [list(self._step(context)) for context in contexts]
        wanted = None if self.data else self._wanted()
        steps = [line for context in contexts for line in self._lines(context, written[context], wanted)]
        arrays = range(len(self.configuration.arrays))
        names = registers(self.fabric)
        lines = ["def run(state, steps, iterations, numbers, arrays, tables, indices, values):"]
        body = [f"[{', '.join(names)}] = state"]
        if self.fabric.pipelined:
            # No operation of an earlier launch is still in progress.
            body.append(" = ".join([*(n for n in names if n[0] in "dpqs"), "0"]))
        body += _unpack(self.constants.values(), "numbers")
        body += _unpack([f"v{i}, o{i}, n{i}" for i in arrays], "arrays")
        body += _unpack([f"g{i}" for i in range(len(self.sites))], "indices")
        body += _unpack([f"h{i}" for i in range(len(self.sites))], "values")
        body += [f"m{stage} = iterations + {stage}" for stage in sorted(self.stages)]
        body += ["t = k = 0", "while True:", *(f"    {line}" for line in steps), "    k += 1"]
        body += [f"state[:] = [{', '.join(names)}]", "return None"]
        lines += [f"    {line}" for line in body]
        space: dict[str, Any] = {}
        exec(compile("\n".join(lines), "<configuration>", "exec"), space)
        return Code(space["run"], tuple(self.sites), tuple(self.constants))

    def _lines(
        self, context: int, written: Sequence[str], wanted: set[tuple[int, str]] | None
    ) -> Iterator[str]:
        """The lines of a context, restricted to the wanted values and registers (None: all)."""
        yield "if t == steps:"
        yield "    break"
        for line in written:
            name = line.partition(" = ")[0]
            if wanted is None or name not in self.values[context] or (context, name) in wanted:
                yield line
        after = (context + 1) % self.configuration.ii
        taken = {n: v for n, v in self.taken[context].items() if wanted is None or (after, n) in wanted}
        if taken:
            comma = "," if len(taken) == 1 else ""
            yield f"{', '.join(taken)}{comma} = {', '.join(taken.values())}{comma}"
        yield "t += 1"

    def _wanted(self) -> set[tuple[int, str]]:
        """Values that accesses depend on, by context; registers are those at its beginning."""
        contexts = range(self.configuration.ii)
        waiting = [(c, name) for c in contexts for text in self.roots[c] for name in _VALUES.findall(text)]
        found = set(waiting)
        while waiting:
            context, name = waiting.pop()
            if name[0] in "ye":
                text = self.values[context].get(name)
                if text is None:
                    raise DataError(name)
                new = {(context, n) for n in _VALUES.findall(text)}
            else:
                before = (context - 1) % self.configuration.ii
                text = self.taken[before].get(name)
                new = {(before, n) for n in ([name] if text is None else _VALUES.findall(text))}
            waiting += new - found
            found |= new
        return found

    def _step(self, context: int) -> Iterator[str]:
        """The lines of a context: error checks come before all accesses, loads before stores."""
        y: Made = {}
        started: Made = {}
        loads: list[str] = []
        stores: list[str] = []
        for pe in range(self.fabric.size):
            entry = self._entry(pe, context)
            operation = self._operation(pe, entry)
            if operation is None:
                continue
            lanes = range(self.fabric.kinds[pe].lanes)
            operands = [self._operands(pe, context, operation, lane) for lane in lanes]
            if operands[0].condition == "0":
                continue
            if operation.name in (*LOADS, *STORES):
                yield from self._access(pe, context, operation, operands, loads, stores)
                if operation.name in LOADS:
                    wide = operation.name in WIDE
                    started[pe] = tuple(_lane(f"e{pe}", lane * wide) for lane in lanes)
            elif operation.unit is Unit.TABLE:
                yield from self._table(pe, context, operands) if self.data else ()
                started[pe] = self._named(context, f"e{pe}", [None for _ in lanes])
            elif not operation.opaque:
                values = self._lanes(pe, context, operation, operands)
                now = self.fabric.latency(operation) == 1
                made = self._named(context, f"{'y' if now else 'e'}{pe}", values)
                (y if now else started)[pe] = made
                yield from (f"{name} = {value}" for name, value in zip(made, values, strict=True))
        yield from loads
        yield from stores
        self._clock(context, y, started)

    def _named(self, context: int, name: str, values: Sequence[str | None]) -> tuple[str, ...]:
        """Name the values of all lanes; `values` are their texts, None for loaded ones."""
        names = tuple(_lane(name, lane) for lane in range(len(values)))
        self.values[context].update(zip(names, values, strict=True))
        return names

    def _entry(self, pe: int, context: int) -> Entry:
        return self.configuration.entries.get((pe, context), NOTHING)

    def _operation(self, pe: int, entry: Entry) -> PEOperation | None:
        operation = BY_NUMBER.get(entry.fields.get("op", 0))
        return operation if operation is not None and self.fabric.kinds[pe].executes(operation) else None

    def _latency(self, pe: int, context: int) -> int:
        """The latency of the operation that a PE starts in a context; 0 if it starts none."""
        operation = self._operation(pe, self._entry(pe, context))
        return self.fabric.latency(operation) if operation is not None else 0

    def _number(self, which: str, pe: int, context: int) -> str:
        """`const` or `init` of an entry: a number, or the name of a patched one."""
        name = self.constants.get((which, pe, context))
        return name or str(wrap(getattr(self._entry(pe, context), which)))

    def _source(self, pe: int, context: int, field: str, lane: int, y: Made | None = None) -> str:
        """The source that a mux selects in a lane; empty for a register that keeps its value."""
        entry, sources = self._entry(pe, context), self.layouts[pe].sources[field]
        number = entry.fields.get(field, 0)
        source = sources[number if number < len(sources) else 0]
        if source.startswith("in"):
            link = self.fabric.incoming[pe][int(source[2:])]
            # A PE with one lane sends the same value to all lanes.
            return _lane(f"l{link}", min(lane, self.fabric.link_lanes(link) - 1))
        if source == "register":
            at, count = entry.fields.get("read_at", 0), self.fabric.kinds[pe].registers
            return _lane(f"f{pe}_{at if at < count else 0}", lane)
        if source == "const":
            return self._number("const", pe, context)
        if source == "y":
            return y[pe][lane] if y is not None and pe in y else "0"
        own = {"zero": "0", "always": "1", "keep": "", "none": "", "result": _lane(f"r{pe}", lane)}
        own |= {"y2": _lane(f"d{pe}", lane), "y4": _lane(f"s{pe}", lane) if pe in self.slow else "0"}
        return own[source]

    def _operands(self, pe: int, context: int, operation: PEOperation, lane: int) -> _Operands:
        fields = self._entry(pe, context).fields
        stage, first = fields.get("stage", 0), fields.get("first", 0)
        self.stages.add(stage)

        def operand(bit: int, name: str) -> str:
            value = self._source(pe, context, name, lane)
            if not fields.get("initial", 0) >> bit & 1 or not first + stage:
                return value
            # Also in the iterations before the first.
            return f"({self._number('init', pe, context)} if k < {first + stage} else {value})"

        predicate, negate = operand(3, "p"), fields.get("negate", 0)
        if predicate in ("0", "1"):
            condition = None if int(predicate) != negate else "0"
        else:
            condition = f"{predicate} {'==' if negate else '!='} 0"
        data = [operand(bit, name) for bit, name in enumerate("abc"[: operation.operands])]
        return _Operands(
            data, condition, f"{stage} <= k < m{stage}" + (f" and {condition}" if condition else "")
        )

    def _lanes(
        self, pe: int, context: int, operation: PEOperation, operands: Sequence[_Operands]
    ) -> list[str]:
        """The value, in every lane, of an operation without memory access."""
        name, count = operation.name, len(operands)
        if name == "const":
            values = [self._number("const", pe, context)] * count
        elif name == "lane":
            values = [str(lane) for lane in range(count)]
        elif operation.unit is Unit.LANES:
            all_lanes = [o.data[0] for o in operands]
            if name in _REDUCTIONS:
                values = [_REDUCTIONS[name](all_lanes)] * count
            else:
                both = [*all_lanes, *(o.data[1] for o in operands)]
                values = both[int(name == "odd_lanes") :: 2]
                if name == "shift_lanes":
                    by = f"({operands[0].data[2]} & {count - 1})"
                    values = [f"({', '.join(both[i : i + count])})[{by}]" for i in range(count)]
        else:
            more = [self._number("const", pe, context)] * operation.constant
            values = [SEMANTICS[name].text(*o.data, *more) for o in operands]
        return [o.chosen(value) for o, value in zip(operands, values, strict=True)]

    def _access(
        self,
        pe: int,
        context: int,
        operation: PEOperation,
        operands: Sequence[_Operands],
        loads: list[str],
        stores: list[str],
    ) -> Iterator[str]:
        """Yield the check of a load or store; the access itself is appended to `loads` or `stores`."""
        lanes = len(operands) if operation.name in WIDE else 1
        operands, names = operands[:lanes], [_lane(f"e{pe}", lane) for lane in range(lanes)]
        number, arrays = self._entry(pe, context).fields.get("array", 0), self.configuration.arrays
        stored, index = operation.name in STORES, operands[0].data[0]
        self.roots[context] += [*(o.active for o in operands), index]
        if not stored:
            self.values[context].update(dict.fromkeys(names))
        yield f"x{pe} = -1"
        yield f"if {' or '.join(dict.fromkeys(o.active for o in operands))}:"
        if number >= len(arrays) or (stored and arrays[number].space != OUT):
            yield f"    return t, {pe}"
            loads += [] if stored else [f"{name} = 0" for name in names]
            return
        yield f"    x{pe} = {index}"
        apart = f" or (x{pe} | o{number}) & {lanes - 1}" if lanes > 1 else ""
        yield f"    if not 0 <= x{pe} < n{number}{f' - {lanes - 1}' if lanes > 1 else ''}{apart}:"
        yield f"        return t, {pe}"
        site = len(self.sites)
        self.sites.append(AccessSite(pe, number, stored, lanes))
        if not self.data:
            (stores if stored else loads).extend([f"if x{pe} >= 0:", f"    g{site}(t << 32 | x{pe})"])
        elif stored:
            form = {1: "({0} + 128 & 255) - 128", 2: "{0} & 255"}.get(arrays[number].element, "{0}")
            stores.append(f"if x{pe} >= 0:")
            stores += [f"    {line}" for line in _stored(f"x{pe}", number, site, form, operands)]
        else:
            loads += [*(f"{name} = 0" for name in names), f"if x{pe} >= 0:"]
            for lane, name in enumerate(names):
                value = f"v{number}[o{number} + x{pe}{f' + {lane}' if lane else ''}]"
                loads.append(f"    {name} = {operands[lane].chosen(value) if lanes > 1 else value}")
            loads.append(f"    g{site}(t << 32 | x{pe})")
            loads += [f"    h{site}({_mask(operands)})"] * (lanes > 1)

    def _table(self, pe: int, context: int, operands: Sequence[_Operands]) -> Iterator[str]:
        const, words = self._number("const", pe, context), len(self.configuration.tables.get(pe, ()))
        for lane, own in enumerate(operands):
            name = _lane(f"e{pe}", lane)
            yield f"{name} = 0"
            yield f"if {own.active}:"
            yield f"    x{pe} = {own.data[0]}"
            yield f"    if not 0 <= x{pe} < min({const} >> 16 & 65535, {words} - ({const} & 65535)):"
            yield f"        return t, {pe}"
            yield f"    {name} = tables[{pe}][({const} & 65535) + x{pe}]"

    def _clock(self, context: int, y: Made, started: Made) -> None:
        """Set the next values of all registers, which change at once."""
        taken = self.taken[context]

        def take(target: str, lane: int, value: str) -> None:
            if value:
                taken[_lane(target, lane)] = value

        for pe, kind in enumerate(self.fabric.kinds):
            entry = self._entry(pe, context)
            latency, before = self._latency(pe, context), self._latency(pe, context - 1) if context else 0
            at = entry.fields.get("write_at", 0)
            for lane in range(kind.lanes):
                take(f"r{pe}", lane, self._source(pe, context, "result", lane, y))
                if kind.registers:
                    value = self._source(pe, context, "write", lane, y)
                    take(f"f{pe}_{at if at < kind.registers else 0}", lane, value)
                for i, link in enumerate(self.fabric.outgoing[pe]):
                    if lane < self.fabric.link_lanes(link):
                        take(f"l{link}", lane, self._source(pe, context, f"out{i}", lane, y))
                slow = pe in self.slow
                if slow:
                    take(f"q{pe}", lane, _lane(f"p{pe}", lane))
                    take(f"s{pe}", lane, _lane(f"q{pe}", lane))
                for name, own in (("d", 2), *[("p", 4)] * slow):
                    # Context 0 may follow an earlier launch's value; elsewhere 0 stays 0.
                    if context == 0 or own in (latency, before):
                        there = latency == own and pe in started
                        take(f"{name}{pe}", lane, started[pe][lane] if there else "0")


def _mask(operands: Sequence[_Operands]) -> str:
    """An expression whose bits say in which lanes the predicate holds."""
    return " | ".join(f"({own.condition or True}) << {lane}" for lane, own in enumerate(operands))


def _stored(index: str, number: int, site: int, form: str, operands: Sequence[_Operands]) -> Iterator[str]:
    """Lines that store into an array from `index` on, and record the values (`form` cuts them to size)."""
    if len(operands) == 1:
        yield f"w = v{number}[o{number} + {index}] = {form.format(operands[0].data[1])}"
        yield f"g{site}(t << 32 | {index})"
        yield f"h{site}(w)"
        return
    yield f"g{site}(t << 32 | {index})"
    yield f"h{site}({_mask(operands)})"
    for lane, own in enumerate(operands):
        yield "w = 0"
        yield f"if {own.condition or True}:"
        yield f"    w = v{number}[o{number} + {index} + {lane}] = {form.format(own.data[1])}"
        yield f"h{site}(w)"


def _unpack(names: Sequence[str] | Any, source: str) -> list[str]:
    """A line that unpacks a sequence into names, if there are any."""
    return [f"[{', '.join(names)}] = {source}"] if names else []
