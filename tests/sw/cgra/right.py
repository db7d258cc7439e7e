"""Checks that every mapping must pass, and a small budget."""

from __future__ import annotations

from sw.cgra.attempt import Effort
from sw.cgra.encode import differences
from sw.cgra.mapping import Mapping
from sw.cgra.search import SearchResult

SMALL = ((3, Effort(1_500, 12, 6_000)), (3, Effort(6_000, 12, 20_000)))


def right(outcome: SearchResult) -> Mapping:
    """The mapping, encoded, decoded and compared; it begins in step 0."""
    found = outcome.mapping
    assert found is not None
    assert differences(found) == ()
    assert min((place.step for place in found.places.values()), default=0) == 0
    return found
