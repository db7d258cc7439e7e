"""The page of JSON objects: its tables, and where they differ from real output."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hw.config import FIELDS

#: A row: the path of a key, whether it may be absent, its type, what it means.
_ROW = re.compile(r"^\| `([^`]+)`( \(optional\))? \| (.+?) \| (.+) \|$")
_HEADING = re.compile(r"^##+ (.+)$")
_LINK = re.compile(r"\[[^\]]+\]\(([^)]+)\)")
_KINDS = {bool: "boolean", int: "number", float: "number", str: "string", type(None): "null"}
#: The type of an object with the fields of a machine, which have a page of their own.
MACHINE = "../fields.md"


@dataclass(frozen=True)
class Row:
    """A key: its type is a choice of alternatives."""

    path: str
    optional: bool
    types: tuple[str, ...]


def anchor(title: str) -> str:
    """The name of a section in links."""
    return title.lower().replace("`", "").replace(" ", "-")


def tables(text: str) -> Mapping[str, Mapping[str, Row]]:
    """The rows of every section that has some, by the path of their key."""
    found, section = defaultdict[str, dict[str, Row]](dict), ""
    for line in text.splitlines():
        if (heading := _HEADING.match(line)) is not None:
            section = anchor(heading[1])
        elif (row := _ROW.match(line)) is not None:
            path, optional, types, meaning = row.groups()
            plain = re.sub(r"\[\]|\{\}", "", path)
            assert plain not in found[section], f"{section}: {plain} stands twice"
            assert meaning.strip(), f"{section}: {plain} has no meaning"
            found[section][plain] = Row(plain, bool(optional), tuple(types.split(" or ")))
    return found


class Compared:
    """Real output beside the tables; `problems` says what differs."""

    def __init__(self, sections: Mapping[str, Mapping[str, Row]]) -> None:
        self.sections = sections
        self.problems: set[str] = set()
        #: By section and path: alternatives that were seen, and whether the key was there and was not.
        self._types = defaultdict[tuple[str, str], set[str]](set)
        self._present = defaultdict[tuple[str, str], set[bool]](set)

    def add(self, section: str, value: Mapping[str, Any]) -> None:
        """An object that a section describes."""
        assert section in self.sections, f"the page has no table for {section}"
        self._object(section, "", value)

    def _object(self, section: str, path: str, value: Mapping[str, Any]) -> None:
        rows, start = self.sections[section], f"{path}." if path else ""
        below = {p for p in rows if p.startswith(start) and "." not in p[len(start) :]}
        for key in value:
            if start + key not in below:
                self.problems.add(f"{section}: {start}{key} is not on the page")
        for inner in below:
            key = inner[len(start) :]
            self._present[section, inner].add(key in value)
            if key in value:
                self._value(section, rows[inner], value[key])

    def _value(self, section: str, row: Row, value: Any) -> None:
        chosen = [kind for kind in row.types if self._tried(section, row.path, kind, value)]
        kind = (*chosen, *row.types)[0]
        if self._fits(section, row.path, kind, value):
            self._types[section, row.path].add(kind)
        else:
            self.problems.add(f"{section}: {row.path} is {' or '.join(row.types)}, not {str(value)[:60]}")

    def _tried(self, section: str, path: str, kind: str, value: Any) -> bool:
        """Whether a value has this type and nothing in it differs."""
        trial = Compared(self.sections)
        return trial._fits(section, path, kind, value) and not trial.problems

    def _fits(self, section: str, path: str, kind: str, value: Any) -> bool:
        """Whether a value has this type; what is inside of it is compared too."""
        if kind.startswith("list of "):
            inner = kind.removeprefix("list of ")
            return isinstance(value, list) and all(self._fits(section, path, inner, v) for v in value)
        if kind.startswith("map of "):
            inner = kind.removeprefix("map of ")
            return isinstance(value, dict) and all(
                self._fits(section, path, inner, v) for v in value.values()
            )
        if (link := _LINK.match(kind)) is not None:
            if not isinstance(value, dict):
                return False
            if link[1] == MACHINE:
                return set(value) == set(FIELDS)
            self.add(link[1].removeprefix("#"), value)
            return True
        if kind == "object":
            if isinstance(value, dict):
                self._object(section, path, value)
            return isinstance(value, dict)
        return kind == "any" or _KINDS.get(type(value)) == kind

    def missing(self, chosen: Sequence[str]) -> Iterator[str]:
        """What the tables of these sections say and no output had."""
        for section in chosen:
            for path, row in self.sections[section].items():
                present = self._present[section, path]
                if True not in present:
                    yield f"{section}: {path} was never there"
                    continue
                if row.optional != (False in present):
                    yield f"{section}: {path} is {'always' if row.optional else 'not always'} there"
                for kind in set(row.types) - self._types[section, path]:
                    yield f"{section}: {path} was never {kind}"


def read(page: Path) -> Mapping[str, Mapping[str, Row]]:
    """The tables of a page."""
    return tables(page.read_text(encoding="utf-8"))
