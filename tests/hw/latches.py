"""Finds latches in generated Verilog: bits that a combinational block assigns on some paths only.

Linters trust the generator's `full_case`; this does not, unless all cases are present.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_BLOCK = re.compile(r"^  always @\*\s*begin\n(.*?)^  end$", re.DOTALL | re.MULTILINE)
#: A signal or some bits of it; an assignment goes to one, or to several in braces.
_PLACE = re.compile(r"(\\\S+|\w+)\s*(?:\[(\d+)(?::(\d+))?\])?")
_ASSIGN = re.compile(rf"^(\{{.*?\}}|{_PLACE.pattern})\s*=(?!=)")
_SIGNAL = re.compile(r"^  reg (?:\[(\d+):0\] )?(\\\S+|\w+)\s*[;=]", re.MULTILINE)
_LABEL = re.compile(r"(\d+)'[hb][0-9a-f]*(\?*)")
#: The bits of a name that is assigned whole.
_WHOLE = frozenset(range(4096))

Bits = dict[str, frozenset[int]]


@dataclass
class _Paths:
    """Bits assigned on every path through some statements, and on any."""

    always: Bits = field(default_factory=dict)
    ever: Bits = field(default_factory=dict)

    def then(self, other: _Paths) -> None:
        """What follows."""
        for mine, theirs in ((self.always, other.always), (self.ever, other.ever)):
            for name, bits in theirs.items():
                mine[name] = mine.get(name, frozenset()) | bits


def latches(text: str) -> list[str]:
    """Names of which a bit keeps its value on some path through a combinational block."""
    found = []
    for module in text.split("\nendmodule"):
        there = {name: range(int(high or 0) + 1) for high, name in _SIGNAL.findall(module)}
        for block in _BLOCK.findall(module):
            paths, _ = _statements(iter([line.strip() for line in block.splitlines()]))
            for name, bits in paths.ever.items():
                if bits.intersection(there.get(name, _WHOLE)) - paths.always.get(name, frozenset()):
                    found.append(name)
    return found


def _statements(lines: Iterator[str]) -> tuple[_Paths, str]:
    """The paths up to the line that ends them, and that line."""
    paths = _Paths()
    for line in lines:
        if line.startswith(("end", "default")) or _LABEL.match(line):
            return paths, line
        if assign := _ASSIGN.match(line):
            for name, high, low in _PLACE.findall(assign[1]):
                bits = frozenset(range(int(low or high), int(high) + 1)) if high else _WHOLE
                paths.then(_Paths({name: bits}, {name: bits}))
        elif line.startswith("if ") and line.endswith("begin"):
            paths.then(_chain(lines))
        elif line.startswith("casez "):
            paths.then(_cases(lines))
    return paths, ""


def _chain(lines: Iterator[str]) -> _Paths:
    """An if with its else branches, from behind its first line."""
    branches, line = [], "else"
    complete = False
    while "else" in line:
        complete = "if " not in line and bool(branches)
        branch, line = _statements(lines)
        branches.append(branch)
    return _joined(branches, complete)


def _cases(lines: Iterator[str]) -> _Paths:
    """A casez, from behind its first line."""
    branches: list[_Paths] = []
    covered, default, width = 0, False, 0
    _, line = _statements(lines)
    while not line.startswith("endcase"):
        default |= line.startswith("default")
        for size, wild in _LABEL.findall(line):
            width, covered = int(size), covered + 2 ** len(wild)
        branch, line = _statements(lines)
        while line == "end":  # a branch of several statements stands between begin and end
            more, line = _statements(lines)
            branch.then(more)
        branches.append(branch)
    return _joined(branches, default or covered >= 2**width)


def _joined(branches: list[_Paths], complete: bool) -> _Paths:
    """What one of the branches does."""
    joined = _Paths()
    for branch in branches:
        joined.then(_Paths({}, branch.ever))
    if complete and branches:
        names = set.intersection(*(set(b.always) for b in branches))
        joined.always = {n: frozenset.intersection(*(b.always[n] for b in branches)) for n in names}
    return joined
