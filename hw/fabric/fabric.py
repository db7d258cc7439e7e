"""The fabric of a CGRA as one object: processing elements, their kinds, links (docs/cgra.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hw.errors import InputError
from hw.fabric.operations import OPERATIONS, PEOperation, Unit

#: Maximum number of rows and of columns.
MOST = 64
#: Maximum number of lanes of a PE.
MOST_LANES = 16
#: Entry of `PEKind.without` for a kind that has no predicate mux.
PREDICATE = "predicate"


@dataclass(frozen=True)
class PEKind:
    """A kind of processing element: its units, number of registers, and size of its table memory.

    `without` names operations that its ALU or multiplier lacks; `predicate` among them means that it executes
    no predicated operation. All its values have `lanes` lanes of 32 bits. Raises `InputError` for values that
    do not fit together.
    """

    name: str
    units: frozenset[Unit]
    registers: int = 4
    table_words: int = 0
    without: frozenset[str] = frozenset()
    lanes: int = 1

    def __post_init__(self) -> None:
        place = f"kind {self.name!r}"
        if not 0 <= self.registers <= 64:
            raise InputError(f"{place}: registers must be 0 to 64, not {self.registers}")
        if (Unit.TABLE in self.units) != (self.table_words > 0):
            raise InputError(
                f"{place}: a table unit needs table_words, and table_words a table unit; units are "
                f"{', '.join(sorted(self.units)) or 'none'}, table_words {self.table_words}"
            )
        if not 0 <= self.table_words <= 1 << 14:
            raise InputError(f"{place}: table_words must be 0 to 16384, not {self.table_words}")
        if not 1 <= self.lanes <= MOST_LANES or self.lanes & (self.lanes - 1):
            raise InputError(f"{place}: lanes must be 1, 2, 4, 8 or {MOST_LANES}, not {self.lanes}")
        if Unit.LANES in self.units and self.lanes == 1:
            raise InputError(f"{place}: the unit 'lanes' needs more than one lane")
        if Unit.QUANTISER in self.units and Unit.MULTIPLIER not in self.units:
            raise InputError(f"{place}: a quantiser needs a multiplier, whose products it reduces to bytes")
        known = {o.name for o in OPERATIONS.values() if o.unit in self.units & {Unit.ALU, Unit.MULTIPLIER}}
        known |= {PREDICATE}
        if not self.without <= known:
            raise InputError(
                f"{place}: without must name operations of its ALU or multiplier, or {PREDICATE}, not "
                f"{', '.join(sorted(self.without - known))}"
            )

    def executes(self, operation: PEOperation) -> bool:
        """Whether a PE of this kind can execute an operation."""
        if operation.of_lanes and self.lanes == 1:
            return False
        return operation.unit is None or (operation.unit in self.units and operation.name not in self.without)

    @property
    def adds(self) -> bool:
        """Whether its quantiser also executes operations that add first."""
        return any(self.executes(o) for o in OPERATIONS.values() if o.constant)

    @property
    def predicated(self) -> bool:
        """Whether it executes predicated operations."""
        return PREDICATE not in self.without

    def as_dict(self) -> dict[str, Any]:
        """The values that `Fabric.hash` depends on."""
        values = {"units": sorted(self.units), "registers": self.registers, "table_words": self.table_words}
        values |= {"without": sorted(self.without)} if self.without else {}
        # Quantisers were built without these operations before, and would give 0 for them.
        values |= {"adds": True} if self.adds else {}
        return values | ({"lanes": self.lanes} if self.lanes > 1 else {})


@dataclass(frozen=True, order=True)
class Link:
    """A register of PE `source` that PE `target` reads."""

    source: int
    target: int


@dataclass(frozen=True)
class Fabric:
    """The processing elements and links of a CGRA. Raises `InputError` if it cannot be built.

    `kinds` holds one kind per PE, row by row; `links` are in ascending order. `contexts` is the largest
    initiation interval, and `stages` the number of iterations that may overlap (a power of two). In a
    `pipelined` fabric every operation takes twice as many steps, for a faster clock. All PEs with several
    lanes have the same number of lanes.
    """

    name: str
    rows: int
    cols: int
    kinds: tuple[PEKind, ...]
    links: tuple[Link, ...]
    contexts: int = 16
    stages: int = 64
    pipelined: bool = False

    def __post_init__(self) -> None:
        place = f"fabric {self.name!r}"
        for what, value, high in (("rows", self.rows, MOST), ("cols", self.cols, MOST)):
            if not 1 <= value <= high:
                raise InputError(f"{place}: {what} must be 1 to {high}, not {value}")
        if not 1 <= self.contexts <= 256:
            raise InputError(f"{place}: contexts must be 1 to 256, not {self.contexts}")
        if not 2 <= self.stages <= 256 or self.stages & (self.stages - 1):
            raise InputError(f"{place}: stages must be a power of two from 2 to 256, not {self.stages}")
        if len(self.kinds) != self.size:
            raise InputError(f"{place}: needs a kind for each of {self.size} PEs, not {len(self.kinds)}")
        if len(several := {kind.lanes for kind in self.kinds} - {1}) > 1:
            found = ", ".join(map(str, sorted(several)))
            raise InputError(f"{place}: PEs must have one lane, or all the same number, not {found}")
        if list(self.links) != sorted(set(self.links)):
            raise InputError(f"{place}: links must be in ascending order, each once")
        for link in self.links:
            if not (0 <= link.source < self.size and 0 <= link.target < self.size):
                raise InputError(
                    f"{place}: link {link.source} to {link.target}: PEs are 0 to {self.size - 1}"
                )
            if link.source == link.target:
                raise InputError(f"{place}: PE {self.at(link.source)} must not have a link to itself")

    @property
    def size(self) -> int:
        """Number of processing elements."""
        return self.rows * self.cols

    @cached_property
    def lanes(self) -> int:
        """The largest number of lanes of any PE."""
        return max(kind.lanes for kind in self.kinds)

    def link_lanes(self, link: int) -> int:
        """Number of lanes of a link: that of the narrower of its two PEs."""
        ends = self.links[link]
        return min(self.kinds[ends.source].lanes, self.kinds[ends.target].lanes)

    def at(self, pe: int) -> tuple[int, int]:
        """Row and column of a PE."""
        return divmod(pe, self.cols)

    @cached_property
    def outgoing(self) -> tuple[tuple[int, ...], ...]:
        """For each PE, the numbers of its outgoing links, in ascending order of their target."""
        return tuple(tuple(i for i, k in enumerate(self.links) if k.source == pe) for pe in range(self.size))

    @cached_property
    def incoming(self) -> tuple[tuple[int, ...], ...]:
        """For each PE, the numbers of its incoming links, in ascending order of their source."""
        return tuple(tuple(i for i, k in enumerate(self.links) if k.target == pe) for pe in range(self.size))

    def latency(self, operation: PEOperation) -> int:
        """Number of steps until the value of an operation can be used."""
        return operation.latency << self.pipelined

    def having(self, unit: Unit) -> tuple[int, ...]:
        """The PEs that have a unit."""
        return tuple(pe for pe, kind in enumerate(self.kinds) if unit in kind.units)

    def as_dict(self) -> Mapping[str, Any]:
        """Everything that the hardware depends on; the names of the fabric and of its kinds are left out."""
        values = {
            "rows": self.rows,
            "cols": self.cols,
            "contexts": self.contexts,
            "stages": self.stages,
            "kinds": [kind.as_dict() for kind in self.kinds],
            "links": [[link.source, link.target] for link in self.links],
        }
        return values | ({"latencies": 2} if self.pipelined else {})

    @cached_property
    def hash(self) -> int:
        """A 32-bit hash that identifies the hardware."""
        text = json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
