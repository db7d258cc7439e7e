"""Fabrics as short TOML files: presets, a stretchable pattern of kinds, regular and single links.

The format is specified in docs/cgra.md, "Fabrics as TOML".
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hw import toml_text
from hw.errors import InputError
from hw.fabric.fabric import MOST, MOST_LANES, Fabric, Link, PEKind
from hw.fabric.operations import Unit

_NEIGHBOURS = ((0, 1), (1, 0), (0, -1), (-1, 0))
_DIAGONALS = ((1, 1), (1, -1), (-1, 1), (-1, -1))


#: Regular links by name: offsets from a PE, and whether rows and columns wrap around.
STYLES = {
    "mesh": (_NEIGHBOURS, False, False),
    "cylinder": (_NEIGHBOURS, False, True),
    "torus": (_NEIGHBOURS, True, True),
    "diagonal": (_DIAGONALS, False, False),
}


def regular(style: str, rows: int, cols: int) -> set[Link]:
    """The links of a regular style (`STYLES`), in both directions."""
    steps, wrap_rows, wrap_cols = STYLES[style]
    found = set()
    for row, col, (down, right) in itertools.product(range(rows), range(cols), steps):
        to = (
            (row + down) % rows if wrap_rows else row + down,
            (col + right) % cols if wrap_cols else col + right,
        )
        if 0 <= to[0] < rows and 0 <= to[1] < cols and to != (row, col):
            found.add(Link(row * cols + col, to[0] * cols + to[1]))
    return found


def nearest(fabric: Fabric) -> tuple[tuple[str, ...], list[Link], list[Link]]:
    """The regular styles closest to a fabric's links, its additional links, and the missing ones."""
    own = set(fabric.links)
    best: tuple[tuple[str, ...], list[Link], list[Link]] = ((), sorted(own), [])
    around = ("mesh",), ("cylinder",), ("torus",)
    for styles in ((), *around, ("diagonal",), *((*style, "diagonal") for style in around)):
        usual = {link for name in styles for link in regular(name, fabric.rows, fabric.cols)}
        extra, missing = sorted(own - usual), sorted(usual - own)
        if len(extra) + len(missing) < len(best[1]) + len(best[2]):
            best = styles, extra, missing
    return best


_KEYS = (
    "name",
    "rows",
    "cols",
    "contexts",
    "stages",
    "pipelined",
    "lanes",
    "links",
    "grid",
    "kinds",
    "pe",
    "link",
)
_NEEDED = ("rows", "cols", "links", "grid", "kinds")
_KIND_KEYS = ("name", "units", "registers", "table_words", "without", "lanes")
_PE_KEYS = ("at", "kind", *_KIND_KEYS[1:])
_LINK_KEYS = ("from", "to", "both", "remove")
_UNITS = tuple(unit.value for unit in Unit)
#: Repeats the kind or row before it as often as there is room.
_MORE = "..."
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SIZED = re.compile(r"(.*?)(\d{1,4})x(\d{1,4})")


def preset_names() -> list[str]:
    """Names of the fabrics that come with Heald."""
    return list(toml_text.presets("hw.fabric"))


def load(source: str, grid: tuple[int, int] | None = None) -> Fabric:
    """Loads a preset by name or a TOML file by path; `grid` overrides rows and columns.

    Presets exist in all sizes: `mesh8x8` is `mesh4x4` with 8 rows and 8 columns. Raises `InputError` for an
    unknown name, an unreadable file, and anything that does not describe a fabric.
    """
    if not toml_text.path_like(source) and (found := _preset(source)) is not None:
        values, size = found
        return from_values(values, f"preset {source}", grid or size)
    known = ", ".join(preset_names())
    text, place = toml_text.found(
        source, {}, f"a fabric must be a preset ({known}; any size, as mesh8x8) or a TOML file"
    )
    return from_values({"name": Path(source).stem} | toml_text.parsed(text, place), source, grid)


def _preset(name: str) -> tuple[dict[str, Any], tuple[int, int] | None] | None:
    """The values of a preset, and the size if the name asks for a different one."""
    for preset, file in toml_text.presets("hw.fabric").items():
        sized, own = _SIZED.fullmatch(name), _SIZED.fullmatch(preset)
        other = sized and own and sized[1] == own[1]
        if name == preset or other:
            values = toml_text.parsed(file.read_text("utf-8"), f"preset {preset}")
            values.setdefault("name", preset)
            size = (int(sized[2]), int(sized[3])) if sized and other and name != preset else None
            return values, size
    return None


def from_values(
    given: Mapping[str, Any], place: str = "fabric", grid: tuple[int, int] | None = None
) -> Fabric:
    """Builds the fabric that the values of a TOML file or table describe; `place` begins every error.

    Raises `InputError` with the key, what was found, and what is needed.
    """
    values = _based(given, place)
    toml_text.check_keys(values, _KEYS, place)
    for key in _NEEDED:
        if key not in values:
            raise InputError(f"{place}: needs the key {key!r}")
    name = values.get("name", place)
    if not isinstance(name, str):
        raise InputError(f"{place}: name must be text, not {name!r}")
    own = tuple(_number(values, key, place, 1, MOST) for key in ("rows", "cols"))
    rows, cols = own if grid is None else grid
    for what, value in (("rows", rows), ("columns", cols)):
        if not 1 <= value <= MOST:
            raise InputError(f"{place}: {what} must be 1 to {MOST}, not {value}")
    if (rows, cols) != own:
        sized = _SIZED.fullmatch(name)
        stem = sized[1] if sized and (int(sized[2]), int(sized[3])) == own else f"{name}-"
        name = f"{stem}{rows}x{cols}"
    lanes = _number(values, "lanes", place, 1, MOST_LANES) if "lanes" in values else 1
    known = _kinds(values["kinds"], lanes, place)
    kinds = _pattern(values["grid"], known, rows, cols, place)
    kinds = _other_kinds(values, kinds, known, (rows, cols), place)
    links = _links(values, (rows, cols), place)
    settings = {key: _number(values, key, place, 1, 256) for key in ("contexts", "stages") if key in values}
    pipelined = _flag(values, "pipelined", place)
    try:
        return Fabric(name, rows, cols, tuple(kinds), tuple(sorted(links)), **settings, pipelined=pipelined)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def _based(given: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The values, completed from the preset that they name; their kinds are added to the preset's."""
    if "preset" not in given:
        return dict(given)
    values = dict(given)
    name = values.pop("preset")
    found = _preset(name) if isinstance(name, str) else None
    if found is None:
        raise InputError(f"{place}: preset must be one of {', '.join(preset_names())}, not {name!r}")
    base, size = found
    base = _based(base, place) | {"name": name}
    if size is not None:
        base |= {"rows": size[0], "cols": size[1]}
    if isinstance(values.get("kinds"), dict):
        values["kinds"] = base["kinds"] | values["kinds"]
    return base | values


def _number(values: Mapping[str, Any], key: str, place: str, low: int, high: int) -> int:
    value = values[key]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InputError(f"{place}: {key} must be a whole number from {low} to {high}, not {value!r}")
    return value


def _flag(values: Mapping[str, Any], key: str, place: str) -> bool:
    value = values.get(key, False)
    if not isinstance(value, bool):
        raise InputError(f"{place}: {key} must be true or false, not {value!r}")
    return value


def _tables(values: Mapping[str, Any], key: str, place: str) -> list[tuple[str, Mapping[str, Any]]]:
    """The tables of a list, each with its place for errors."""
    given = values.get(key, [])
    if not isinstance(given, list) or not all(isinstance(table, dict) for table in given):
        raise InputError(f"{place}: {key} must be tables, as [[{key}]], not {given!r}")
    return [(f"{place}: {key} number {i}", table) for i, table in enumerate(given, start=1)]


def _kinds(given: Any, lanes: int, place: str) -> dict[str, PEKind]:
    """The kinds by their names in the pattern; `lanes` is the default for kinds that do not set it."""
    if not isinstance(given, dict) or not given:
        raise InputError(f"{place}: kinds must be tables, as [kinds.NAME], not {given!r}")
    kinds = {}
    for key, values in given.items():
        where = f"{place}: kinds.{key}"
        if not key or _MORE in key or key.split() != [key]:
            raise InputError(f"{where}: the name of a kind must be one word without {_MORE}, not {key!r}")
        if not isinstance(values, dict):
            raise InputError(f"{where}: must be a table, not {values!r}")
        toml_text.check_keys(values, _KIND_KEYS, where)
        if "units" not in values:
            raise InputError(f"{where}: needs the key 'units'")
        kinds[key] = _kind({"lanes": lanes} | values, PEKind(key, frozenset()), where)
    return kinds


def _kind(values: Mapping[str, Any], base: PEKind, place: str) -> PEKind:
    """A kind with some of its values changed."""
    name = values.get("name", base.name)
    if not isinstance(name, str):
        raise InputError(f"{place}: name must be text, not {name!r}")
    units = values.get("units", sorted(base.units))
    if not isinstance(units, list) or not all(unit in _UNITS for unit in units):
        raise InputError(f"{place}: units must be a list of {', '.join(_UNITS)}, not {units!r}")
    numbers = {
        key: _number(values, key, place, 0, 1 << 14) if key in values else getattr(base, key)
        for key in ("registers", "table_words", "lanes")
    }
    without = values.get("without", sorted(base.without))
    if not isinstance(without, list) or not all(isinstance(operation, str) for operation in without):
        raise InputError(f"{place}: without must be a list of operations, not {without!r}")
    try:
        return PEKind(name, frozenset(map(Unit, units)), **numbers, without=frozenset(without))
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def _pattern(given: Any, kinds: Mapping[str, PEKind], rows: int, cols: int, place: str) -> list[PEKind]:
    """The kinds of all PEs, row by row."""
    if not isinstance(given, list) or not given or not all(isinstance(row, str) for row in given):
        raise InputError(f"{place}: grid must be a list of rows, each the names of kinds, not {given!r}")
    found: list[PEKind] = []
    for row in _stretched(given, rows, f"{place}: grid", "rows"):
        where = f"{place}: grid row {row!r}"
        # `kind...` means `kind ...`: one or more, or none if there is no room.
        words = row.replace(_MORE, f" {_MORE} ").split()
        for word in _stretched(words, cols, where, "columns"):
            if word not in kinds:
                raise InputError(f"{where}: kinds are {', '.join(kinds)}, not {word!r}")
            found.append(kinds[word])
    return found


def _stretched(given: Sequence[str], size: int, place: str, what: str) -> list[str]:
    """`size` items: the item before `...` is repeated as often as there is room, possibly never."""
    items = [item.strip() for item in given]
    count = items.count(_MORE)
    if count > 1 or items[:1] == [_MORE]:
        raise InputError(f"{place}: {_MORE} must come once, after what it repeats, not {' '.join(items)!r}")
    if count:
        at = items.index(_MORE)
        fixed = len(items) - 2
        if fixed <= size:
            return [*items[: at - 1], *[items[at - 1]] * (size - fixed), *items[at + 1 :]]
        raise InputError(f"{place}: needs at least {fixed} {what}, the grid has {size}")
    if len(items) != size:
        raise InputError(f"{place}: has {len(items)} {what} and no {_MORE} to stretch, the grid has {size}")
    return items


def _pe(values: Mapping[str, Any], key: str, size: tuple[int, int], place: str) -> int:
    """The number of the PE at `[row, column]`."""
    at = values.get(key)
    if (
        not isinstance(at, list)
        or len(at) != 2
        or any(isinstance(n, bool) or not isinstance(n, int) for n in at)
        or not all(0 <= n < most for n, most in zip(at, size, strict=True))
    ):
        needed = f"[row, column] of a grid of {size[0]} rows and {size[1]} columns"
        raise InputError(f"{place}: {key} must be {needed}, not {at!r}")
    return int(at[0] * size[1] + at[1])


def _other_kinds(
    values: Mapping[str, Any],
    kinds: Sequence[PEKind],
    known: Mapping[str, PEKind],
    size: tuple[int, int],
    place: str,
) -> list[PEKind]:
    """The kinds, after changes to single PEs."""
    found = list(kinds)
    for where, table in _tables(values, "pe", place):
        toml_text.check_keys(table, _PE_KEYS, where)
        pe = _pe(table, "at", size, where)
        base = table.get("kind")
        if base is not None and (not isinstance(base, str) or base not in known):
            raise InputError(f"{where}: kind must be one of {', '.join(known)}, not {base!r}")
        kind = found[pe] if base is None else known[base]
        changed = _kind({k: v for k, v in table.items() if k in _KIND_KEYS}, kind, where)
        if changed != kind:
            row, col = divmod(pe, size[1])
            changed = dataclasses.replace(changed, name=f"{kind.name}@{row},{col}")
        found[pe] = changed
    return found


def _links(values: Mapping[str, Any], size: tuple[int, int], place: str) -> set[Link]:
    """The regular links, with single links added or removed."""
    given = values["links"]
    if not isinstance(given, list) or not all(isinstance(name, str) and name in STYLES for name in given):
        raise InputError(f"{place}: links must be a list of {', '.join(STYLES)}, not {given!r}")
    found = {link for name in given for link in regular(name, *size)}
    for where, table in _tables(values, "link", place):
        toml_text.check_keys(table, _LINK_KEYS, where)
        source, target = (_pe(table, key, size, where) for key in ("from", "to"))
        remove = _flag(table, "remove", where)
        if source == target:
            raise InputError(f"{where}: from and to must differ, both are {table['from']}")
        pairs = [Link(source, target)]
        if _flag(table, "both", where):
            pairs.append(Link(target, source))
        for link in pairs:
            if (link in found) != remove:
                ends = f"from {list(divmod(link.source, size[1]))} to {list(divmod(link.target, size[1]))}"
                there, needed = (
                    ("no", "one that is there") if remove else ("a", "remove = true, or a new link")
                )
                raise InputError(f"{where}: there is {there} link {ends}; needs {needed}")
        found = found - set(pairs) if remove else found | set(pairs)
    return found


def to_toml(fabric: Fabric) -> str:
    """The fabric as TOML text that `load` reads back to an equal object."""
    words = _words(fabric)
    styles, extra, missing = nearest(fabric)
    lines = [f"name = {_text(fabric.name)}"]
    lines += [f"{key} = {getattr(fabric, key)}" for key in ("rows", "cols", "contexts", "stages")]
    lines += ["pipelined = true"] * fabric.pipelined
    lines += [f"links = [{', '.join(map(_text, styles))}]", "grid = ["]
    wide = max(len(word) for word in words.values())
    for row in range(fabric.rows):
        kinds = fabric.kinds[row * fabric.cols : (row + 1) * fabric.cols]
        lines.append(f"    {_text(' '.join(words[kind].ljust(wide) for kind in kinds).rstrip())},")
    lines.append("]")
    for kind, word in words.items():
        lines += ["", f"[kinds.{word if _BARE.fullmatch(word) else _text(word)}]"]
        if word != kind.name:
            lines.append(f"name = {_text(kind.name)}")
        lines.append(f"units = [{', '.join(_text(unit) for unit in _UNITS if unit in kind.units)}]")
        lines += [f"registers = {kind.registers}", f"table_words = {kind.table_words}"]
        lines += [f"lanes = {kind.lanes}"] * (kind.lanes > 1)
        if kind.without:
            lines.append(f"without = [{', '.join(map(_text, sorted(kind.without)))}]")
    for link, remove in [*((k, False) for k in extra), *((k, True) for k in missing)]:
        ends = [list(fabric.at(pe)) for pe in (link.source, link.target)]
        lines += ["", "[[link]]", f"from = {ends[0]}", f"to = {ends[1]}", *(["remove = true"] * remove)]
    return "\n".join(lines) + "\n"


def _words(fabric: Fabric) -> dict[PEKind, str]:
    """A one-word name for every kind in the pattern; its own name if that is one word."""
    words: dict[PEKind, str] = {}
    for kind in fabric.kinds:
        if kind in words:
            continue
        plain = re.fullmatch(r"[\w@,-]+", kind.name, re.ASCII)
        choices = itertools.chain([kind.name] * bool(plain), (f"kind-{i}" for i in itertools.count()))
        words[kind] = next(word for word in choices if word not in words.values())
    return words


def _text(text: str) -> str:
    """A TOML basic string; its escapes are those of JSON, plus DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
