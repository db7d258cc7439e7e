"""What the check of a mapping notices, and what the encoder needs to be given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hw.errors import InputError
from hw.fabric import Unit, load
from hw.fabric.bitstream import ArrayEntry, encode
from sw.cgra.check import check
from sw.cgra.encode import configuration
from sw.cgra.mapping import Hop, Mapping, Place
from sw.cgra.search import map_graph
from sw.cgra.verify import verify
from sw.dfg.graph import Edge, Graph, Memory, Node
from sw.dfg.json import load_graph
from tests.sw.cgra.right import right

DFG = Path(__file__).parents[2] / "data" / "dfg"


@pytest.fixture(scope="module")
def mapped() -> Mapping:
    return right(map_graph(load_graph(DFG / "array_add.json"), load("mesh4x4")))


def test_the_check_notices_places_that_are_taken_or_lack_the_unit(mapped: Mapping) -> None:
    first, second = list(mapped.places)[:2]
    both = replace(mapped, places={**mapped.places, first: mapped.places[second]})
    assert any("both on PE" in wrong for wrong in check(both))
    memory = next(n.id for n in mapped.graph.nodes if mapped.graph.operation(n).unit is Unit.MEMORY)
    moved = replace(mapped, places={**mapped.places, memory: Place(15, mapped.places[memory].step)})
    assert any("needs a PE with memory" in wrong for wrong in check(moved))


def test_the_check_notices_every_change_of_a_hop(mapped: Mapping) -> None:
    registers = {hop.register for hops in mapped.routes.values() for hop in hops}
    for number, hops in mapped.routes.items():
        for i, hop in enumerate(hops):
            for other in sorted(registers - {hop.register}, key=str)[::7]:
                changed = (*hops[:i], Hop(other, hop.step), *hops[i + 1 :])
                wrong = check(replace(mapped, routes={**mapped.routes, number: changed}))
                ways = verify_quietly(replace(mapped, routes={**mapped.routes, number: changed}))
                assert wrong or ways == []


def verify_quietly(mapping: Mapping) -> list[str]:
    """What the decoder finds in a mapping that the check accepts: another way of the same value."""
    if check(mapping):
        return []
    return verify(mapping.graph, encode(configuration(mapping)), mapping.fabric, mapping.at)


def test_the_check_notices_a_route_that_is_late(mapped: Mapping) -> None:
    number, hops = next(iter(mapped.routes.items()))
    late = tuple(replace(hop, step=hop.step + 1) for hop in hops)
    assert any("must have hops" in w for w in check(replace(mapped, routes={**mapped.routes, number: late})))


def test_arrays_and_scalars_that_are_missing_are_named(mapped: Mapping) -> None:
    nodes = (Node("c", "const", scalar="v"), Node("s", "store", 0, memory=Memory("y")))
    found = right(map_graph(Graph("g", nodes, (Edge("c", "s", 0, "I2"),)), load("mesh4x4")))
    with pytest.raises(InputError, match="there is no scalar 'v' in this launch"):
        configuration(found)
    with pytest.raises(InputError, match="there is no array 'y' in this launch"):
        configuration(found, {"x": ArrayEntry(1, 0, 0, 4)}, {"v": 0})
