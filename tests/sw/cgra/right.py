"""What a mapping that was found must stand, and a small budget."""

from __future__ import annotations

from hw.fabric.bitstream import encode
from sw.cgra.attempt import Effort
from sw.cgra.check import check
from sw.cgra.encode import configuration
from sw.cgra.mapping import Mapping
from sw.cgra.search import Budget, SearchResult
from sw.cgra.verify import verify

SMALL = Budget(((3, Effort(1_500, 12, 6_000)), (3, Effort(6_000, 12, 20_000))))


def right(outcome: SearchResult) -> Mapping:
    """The mapping, checked, encoded, decoded and compared."""
    found = outcome.mapping
    assert found is not None
    assert check(found) == []
    scalars = {name: i % 14 for i, name in enumerate(outcome.graph.scalars)}
    words = encode(configuration(found, scalars=scalars))
    assert verify(outcome.graph, words, found.fabric, found.at, scalars=scalars) == []
    return found
