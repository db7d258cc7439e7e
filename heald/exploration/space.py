"""SPACE.toml: a machine to start from, parameters, derived fields, constraints, objectives, limits.

docs/explore.md describes the format. Every error names file and key, what was found and what is needed.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cosim.session.metrics import MAXIMIZE, METRICS, MINIMIZE
from heald.exploration.expression import Formula, Value, parse
from heald.exploration.feasible import Feasible, Rules, Values, decide
from heald.exploration.results import DEFAULT, Parameter
from hw import config as machines
from hw import toml_text
from hw.config import FIELDS, NO_GRID, MachineConfig
from hw.errors import InputError, unknown
from hw.fabric import Fabric
from hw.fabric import load as load_fabric

_KEYS = ("base", "parameters", "derived", "constraints", "objectives", "limits")
_RANGE_KEYS = ("from", "to", "step", "powers_of_two")
#: Names in formulas besides the machine's fields; all are 0 without a CGRA.
GRID_SIZES = ("cgra_rows", "cgra_cols", "cgra_pes")
#: Fields that are numbers.
_NUMBERS = tuple(name for name in FIELDS if name not in ("name", "cgra"))
#: Maximum number of values of one parameter.
MOST_VALUES = 10_000
#: Maximum length of a limit's text, which is a key in the database.
LONGEST_LIMIT = 400


@dataclass(frozen=True)
class Space:
    """A space to explore: `values` are the parameters with their values, `fixed` the fields with one value.

    All other fields are those of `base`. `grids` are the fabrics that values of `cgra` name.
    """

    name: str
    file: str
    base: MachineConfig
    fixed: Mapping[str, int | str]
    values: Mapping[str, Values]
    grids: Mapping[str, Fabric | None]
    derived: Mapping[str, Formula]
    constraints: tuple[Formula, ...]
    objectives: Mapping[str, str]
    limits: tuple[Formula, ...]

    @cached_property
    def rules(self) -> Rules:
        """Constraints with everything they depend on."""
        sizes = {name: grid_sizes(fabric) for name, fabric in self.grids.items()}
        own = self.base.cgra
        known: dict[str, Value] = {name: getattr(self.base, name) for name in _NUMBERS}
        known |= {"cgra": NO_GRID if own is None else own.name, **grid_sizes(own), **self.fixed}
        known |= sizes.get(str(self.fixed.get("cgra")), {})
        decided = {*self.values, *self.derived, *(GRID_SIZES if "cgra" in self.values else ())}
        known = {name: value for name, value in known.items() if name not in decided}
        return Rules(self.constraints, self.derived, known, sizes)

    @cached_property
    def feasible(self) -> Feasible:
        """The points that satisfy all constraints; raises `InputError` if there are none."""
        return decide(self.values, self.rules, self.file)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters, for users."""
        return tuple(Parameter(n, v, FIELDS[n].metadata["meaning"]) for n, v in self.values.items())

    def machine(self, point: Mapping[str, int | str]) -> MachineConfig:
        """The machine of a point; raises `InputError` if it cannot be built."""
        fields: dict[str, Any] = {**self.fixed, **point}
        if "cgra" in fields:
            fields["cgra"] = self.grids[fields["cgra"]]
        known = self.rules.values(point)
        for name, formula in self.derived.items():
            value = known[name]
            if isinstance(value, str) or not math.isfinite(value) or value != int(value):
                raise InputError(f"{name} = {formula.text} must be a whole number, not {value!r}")
            fields[name] = int(value)
        return self.base.replace(**fields)


def read(path: Path) -> Space:
    """Read a space whose constraints some point satisfies. Raises `InputError`."""
    text = toml_text.read(path, "a space is a TOML file (docs/explore.md)")
    return from_values(toml_text.parsed(text, str(path)), path)


def from_values(values: Mapping[str, Any], path: Path = Path("space")) -> Space:
    """The space from a file's values; files that it names are relative to `path`."""
    place = str(path)
    toml_text.check_keys(values, _KEYS, place)
    base = _base(values.get("base", "default"), path)
    fixed: dict[str, int | str] = {}
    varied: dict[str, Values] = {}
    found_grids: dict[str, Fabric | None] = {}
    for name, given in _table(values, "parameters", place, needed=True).items():
        where = f"{place}: [parameters] {name}"
        found = _values(name, given, where)
        if name == "cgra":
            found_grids |= _grids(found, where, path.parent, base.cgra)
        if isinstance(given, list | dict):
            varied[name] = found
        else:
            fixed[name] = found[0]
    if not varied:
        raise InputError(f"{place}: [parameters]: the space is empty: at least one list or range is needed")
    names = (*_NUMBERS, "cgra", *GRID_SIZES)
    derived = _derived(_table(values, "derived", place), (*varied, *fixed), names, place)
    constraints = tuple(
        parse(c, names, f"{place}: constraints", comparison=True) for c in _list(values, "constraints", place)
    )
    limits = tuple(_limit(c, place) for c in _list(values, "limits", place))
    objectives = _objectives(_table(values, "objectives", place), place)
    space = Space(
        path.stem, place, base, fixed, varied, found_grids, derived, constraints, objectives, limits
    )
    assert space.feasible.size > 0
    return space


def _base(given: object, path: Path) -> MachineConfig:
    if isinstance(given, MachineConfig):
        return given
    if not isinstance(given, str):
        raise InputError(f"{path}: base must be a preset or the path of a TOML file, not {given!r}")
    source = str(path.parent / given) if "/" in given or given.endswith(".toml") else given
    try:
        return machines.load(source)
    except InputError as error:
        raise InputError(f"{path}: base: {str(error).replace('--hw', 'it')}") from None


def _table(values: Mapping[str, Any], key: str, place: str, *, needed: bool = False) -> Mapping[str, Any]:
    found = values.get(key)
    if found is None and not needed:
        return {}
    if not isinstance(found, dict):
        was = "none" if found is None else repr(found)
        raise InputError(f"{place}: needs a table [{key}], not {was}")
    return found


def _list(values: Mapping[str, Any], key: str, place: str) -> list[Any]:
    found = values.get(key, [])
    if not isinstance(found, list):
        raise InputError(f"{place}: {key} must be a list of formulas, not {found!r}")
    return found


def _values(name: str, given: Any, place: str) -> Values:
    """The values of a parameter; numbers are sorted."""
    if name not in FIELDS or name == "name":
        raise InputError(f"{place}: {machines.unknown_field(name, (*_NUMBERS, 'cgra'))}")
    if isinstance(given, dict):
        given = _range(name, given, place)
    listed = given if isinstance(given, list) else [given]
    if not listed:
        raise InputError(f"{place}: the list is empty: at least one value is needed")
    if len(listed) > MOST_VALUES:
        raise InputError(f"{place}: must have at most {MOST_VALUES:,} values, not {len(listed):,}")
    for value in listed:
        if name == "cgra":
            if not isinstance(value, str):
                raise InputError(f'{place}: must hold names of fabrics or "none", not {value!r}')
        else:
            _check_number(name, value, place)
    if len(set(listed)) < len(listed):
        twice = next(v for i, v in enumerate(listed) if v in listed[:i])
        raise InputError(f"{place}: {twice!r} appears twice")
    return tuple(listed) if name == "cgra" else tuple(sorted(listed))


def _grids(names: Values, place: str, folder: Path, base: Fabric | None) -> dict[str, Fabric | None]:
    """The fabrics of values; results use the fabrics' own names, so these must differ."""
    try:
        found = {str(name): _grid(str(name), folder) for name in names}
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    known: dict[str, tuple[str, Fabric | None]] = {NO_GRID: (f'"{NO_GRID}"', None)}
    if base is not None:
        known[base.name] = ("the fabric of the base", base)
    for name, fabric in found.items():
        own = NO_GRID if fabric is None else fabric.name
        other, same = known.setdefault(own, (f'"{name}"', fabric))
        if same != fabric:
            raise InputError(
                f'{place}: "{name}" and {other} are different fabrics named {own!r}: each needs its own'
            )
    return found


def _grid(name: str, folder: Path) -> Fabric | None:
    """Load the fabric with a name, or a file relative to a folder; None for `none`; raises `InputError`."""
    if name == NO_GRID:
        return None
    return load_fabric(str(folder / name) if "/" in name or name.endswith(".toml") else name)


def grid_sizes(fabric: Fabric | None) -> dict[str, int]:
    """Rows, columns and PEs of a fabric."""
    rows, cols = (fabric.rows, fabric.cols) if fabric is not None else (0, 0)
    return dict(zip(GRID_SIZES, (rows, cols, rows * cols), strict=True))


def _check_number(name: str, value: Any, place: str) -> None:
    limits, switch = FIELDS[name].metadata, isinstance(FIELDS[name].default, bool)
    kind = "a power of two" if limits["power_of_two"] else "a whole number"
    needed = "true or false" if switch else f"{kind} from {limits['low']} to {limits['high']}"
    good = isinstance(value, int) and isinstance(value, bool) == switch
    good = good and limits["low"] <= value <= limits["high"]
    if not good or (limits["power_of_two"] and value & (value - 1)):
        raise InputError(f"{place}: must be {needed}, not {value!r}")


def _range(name: str, given: Mapping[str, Any], place: str) -> list[int]:
    """The values of { from, to, step | powers_of_two }."""
    toml_text.check_keys(given, _RANGE_KEYS, place, "range key")
    for key in ("from", "to"):
        if key not in given:
            raise InputError(f"{place}: a range needs {key!r}")
    for key in ("from", "to", "step"):
        if key in given and (isinstance(given[key], bool) or not isinstance(given[key], int)):
            raise InputError(f"{place}: {key} must be a whole number, not {given[key]!r}")
    power = FIELDS[name].metadata.get("power_of_two", False) and "step" not in given
    power = given.get("powers_of_two", power)
    if not isinstance(power, bool):
        raise InputError(f"{place}: powers_of_two must be true or false, not {power!r}")
    if power and "step" in given:
        raise InputError(f"{place}: a range has a step or powers of two, not both")
    first, last, step = given["from"], given["to"], given.get("step", 1)
    if step < 1:
        raise InputError(f"{place}: step must be 1 or more, not {step}")
    if first > last:
        raise InputError(f"{place}: the range is empty: from {first} to {last}")
    if power:
        found = [1 << i for i in range(64) if first <= 1 << i <= last]
        if not found:
            raise InputError(f"{place}: the range is empty: no power of two from {first} to {last}")
        return found
    if (last - first) // step >= MOST_VALUES:
        raise InputError(
            f"{place}: must have at most {MOST_VALUES:,} values, not {(last - first) // step + 1:,}"
        )
    return list(range(first, last + 1, step))


def _derived(
    table: Mapping[str, Any], taken: tuple[str, ...], names: tuple[str, ...], place: str
) -> dict[str, Formula]:
    """Derived fields, ordered so that each depends only on earlier ones."""
    found: dict[str, Formula] = {}
    for name, text in table.items():
        where = f"{place}: [derived] {name}"
        if name not in _NUMBERS:
            raise InputError(f"{where}: {machines.unknown_field(name, _NUMBERS)}")
        if name in taken:
            raise InputError(f"{where}: is also a parameter; it must be only one of them")
        found[name] = parse(text, names, where)
    ordered: dict[str, Formula] = {}
    while len(ordered) < len(found):
        ready = [
            n for n, f in found.items() if n not in ordered and not f.names & (found.keys() - ordered.keys())
        ]
        if not ready:
            circle = ", ".join(n for n in found if n not in ordered)
            raise InputError(f"{place}: [derived]: {circle} depend on each other in a cycle")
        ordered |= {n: found[n] for n in ready}
    return ordered


def _objectives(table: Mapping[str, Any], place: str) -> dict[str, str]:
    for name, direction in table.items():
        if name not in METRICS:
            raise InputError(f"{place}: [objectives]: {unknown('metric', name, METRICS)}")
        if direction not in (MINIMIZE, MAXIMIZE):
            raise InputError(
                f'{place}: [objectives] {name}: must be "{MINIMIZE}" or "{MAXIMIZE}", not {direction!r}'
            )
    return dict(table) or {name: METRICS[name].direction for name in DEFAULT}


def _limit(text: object, place: str) -> Formula:
    formula = parse(text, tuple(METRICS), f"{place}: limits", comparison=True)
    if len(formula.text) > LONGEST_LIMIT:
        raise InputError(
            f"{place}: limits: must have at most {LONGEST_LIMIT} characters, not {len(formula.text)}"
        )
    for part in ast.walk(formula.tree):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            raise InputError(
                f"{place}: limits: must compare numbers, not the text {part.value!r} in {formula.text!r}"
            )
    tree = formula.tree
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1 or isinstance(tree.ops[0], ast.Eq | ast.NotEq):
        raise InputError(f'{place}: limits: must be one comparison as "luts <= 80000", not {formula.text!r}')
    return formula


def sides(limit: Formula, metrics: Mapping[str, float]) -> tuple[float, float]:
    """The two values that a limit compares; raises `InputError` if it is undefined."""
    if missing := sorted(limit.names - metrics.keys()):
        raise InputError(f"{limit.text!r} has no value without {', '.join(missing)}")
    assert isinstance(limit.tree, ast.Compare)
    left, right = (
        Formula(limit.text, limit.names, x).value(metrics)
        for x in (limit.tree.left, limit.tree.comparators[0])
    )
    assert not isinstance(left, str)
    assert not isinstance(right, str)
    return left, right


def beyond(limit: Formula, metrics: Mapping[str, float]) -> float:
    """By how much metrics exceed a limit, as a fraction of its larger side; 0 or less if within it.

    Raises `InputError` for an undefined limit.
    """
    left, right = sides(limit, metrics)
    assert isinstance(limit.tree, ast.Compare)
    upper = isinstance(limit.tree.ops[0], ast.Lt | ast.LtE)
    over = (left - right if upper else right - left) / max(abs(left), abs(right), 1e-300)
    holds = bool(limit.value(metrics))
    return min(over, 0.0) if holds else max(over, 1e-12)
