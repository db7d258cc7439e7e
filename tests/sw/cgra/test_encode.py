"""Configurations of mappings: every fault of a mapping is found, and the encoder's required inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hw.errors import InputError
from hw.fabric import Unit, load
from hw.fabric.bitstream import ArrayEntry
from hw.fabric.decode import decode
from sw.cgra.encode import configuration, differences
from sw.cgra.mapping import Hop, Mapping, Place
from sw.cgra.search import map_graph
from sw.dfg.graph import Edge, Graph, Memory, Node
from sw.dfg.json import load_graph
from tests.hw.fabric.flows import flows
from tests.sw.cgra.right import right

DFG = Path(__file__).parents[2] / "data" / "dfg"


@pytest.fixture(scope="module")
def mapped() -> Mapping:
    return right(map_graph(load_graph(DFG / "array_add.json"), load("mesh4x4")))


def test_places_that_are_taken_or_lack_the_unit_are_faults(mapped: Mapping) -> None:
    first, second = list(mapped.places)[:2]
    assert differences(replace(mapped, places={**mapped.places, first: mapped.places[second]}))
    memory = next(n.id for n in mapped.graph.nodes if mapped.graph.operation(n).unit is Unit.MEMORY)
    assert differences(
        replace(mapped, places={**mapped.places, memory: Place(15, mapped.places[memory].step)})
    )


def test_every_change_of_a_hop_is_a_fault_or_another_way_of_the_same_value(mapped: Mapping) -> None:
    registers = {hop.register for hops in mapped.routes.values() for hop in hops}
    same = flows(decode(configuration(mapped)))
    faults = 0
    for number, hops in mapped.routes.items():
        for i, hop in enumerate(hops):
            for other in sorted(registers - {hop.register}, key=str)[::7]:
                changed = (*hops[:i], Hop(other, hop.step), *hops[i + 1 :])
                made = replace(mapped, routes={**mapped.routes, number: changed})
                wrong = differences(made)
                assert wrong or flows(decode(configuration(made))) == same
                faults += bool(wrong)
    assert faults > 0


def test_a_route_that_is_late_is_a_fault(mapped: Mapping) -> None:
    number, hops = next(iter(mapped.routes.items()))
    late = tuple(replace(hop, step=hop.step + 1) for hop in hops)
    assert differences(replace(mapped, routes={**mapped.routes, number: late}))
    without = {key: hops for key, hops in mapped.routes.items() if key != number}
    assert differences(replace(mapped, routes=without))


def test_a_mapping_that_is_too_late_for_the_stages_is_a_fault() -> None:
    fabric = replace(load("mesh4x4", (2, 2)), stages=2)
    nodes, edges = (Node("a", "add", const=1),), (Edge("a", "a", 1, "I1", initial=(0,)),)
    found = right(map_graph(Graph("g", nodes, edges), fabric))
    place = found.places["a"]
    moved = {n: tuple(replace(h, step=h.step + found.ii) for h in hops) for n, hops in found.routes.items()}
    later = replace(found, places={"a": Place(place.pe, place.step + found.ii)}, routes=moved)
    assert any("its stage and first iterations must be below 2" in wrong for wrong in differences(later))


def test_arrays_and_scalars_that_are_missing_are_named() -> None:
    nodes = (Node("c", "const", scalar="v"), Node("s", "store", 0, memory=Memory("y")))
    found = right(map_graph(Graph("g", nodes, (Edge("c", "s", 0, "I2"),)), load("mesh4x4")))
    with pytest.raises(InputError, match="there is no scalar 'v' in this launch"):
        configuration(found)
    with pytest.raises(InputError, match="there is no array 'y' in this launch"):
        configuration(found, {"x": ArrayEntry(1, 0, 0, 4)}, {"v": 0})
