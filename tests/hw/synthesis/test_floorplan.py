"""The floorplan: legal sites, near their connections, and reproducible."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hw.synthesis import find_device, floorplan, place, synthesise
from hw.synthesis.floorplan import DIES, Cells, left_empty, plan
from hw.synthesis.place import _prepare
from hw.synthesis.tools import find, run
from tests.hw.synthesis.designs import SMALL

DIE = DIES[83_640]


def chain(length: int, luts: int = 60) -> Cells:
    """Instances in a row, each a block RAM, a multiplier and look-up tables, with 20 nets to the next one."""
    nets = itertools.count(2)
    cells: dict[str, dict[str, Any]] = {}
    before = [next(nets) for _ in range(20)]
    for i in range(length):
        own = [next(nets) for _ in range(luts)]
        cells[f"part{i}"] = {"type": "$scopeinfo", "connections": {}}
        cells[f"part{i}.memory"] = {"type": "DP16KD", "connections": {"CLKA": [1], "DIA0": own[:20]}}
        cells[f"part{i}.product"] = {"type": "MULT18X18D", "connections": {"A": own[20:40], "P": own[:10]}}
        for k, net in enumerate(own):
            pins = {"A": [before[k % 20]], "B": [own[k - 1]], "C": ["0"], "Z": [net]}
            cells[f"part{i}.lut{k}"] = {"type": "LUT4", "connections": pins}
        before = own[-20:]
    return cells


@pytest.fixture(scope="module", autouse=True)
def short() -> Iterator[None]:
    """Annealings that end soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(floorplan, "_MOVES", 1_000_000)
        patch.setattr(floorplan, "_TRIES", 2)
        yield


@pytest.fixture(scope="module")
def planned() -> dict[str, str]:
    return plan(chain(48), DIE, 1)


def where(planned: dict[str, str], name: str) -> np.ndarray[Any, Any]:
    kind = "DP16KD" if name.endswith("memory") else "MULT18X18D"
    return np.array(DIE.sites[kind][planned[name]])


def test_every_block_ram_and_multiplier_has_a_site_of_its_own(planned: dict[str, str]) -> None:
    assert set(planned) == {f"part{i}.{what}" for i in range(48) for what in ("memory", "product")}
    assert max(Counter(planned.values()).values()) == 1
    assert all(("EBR" in site) == name.endswith("memory") for name, site in planned.items())


def test_neighbours_lie_together(planned: dict[str, str]) -> None:
    places = [where(planned, f"part{i}.memory") for i in range(48)]
    step = np.mean([np.abs(a - b).sum() for a, b in itertools.pairwise(places)])
    any_two = np.mean([np.abs(a - b).sum() for a, b in itertools.combinations(places, 2)])
    assert step < 0.45 * any_two
    together = np.mean([np.abs(p - where(planned, f"part{i}.product")).sum() for i, p in enumerate(places)])
    assert together < 0.45 * any_two


def test_instances_with_multipliers_lie_near_sites_for_them() -> None:
    """Of 48 instances in a row every sixth has multipliers, and the others have nothing special."""
    cells = {n: c for n, c in chain(48).items() if c["type"] == "LUT4" or c["type"] == "$scopeinfo"}
    few = [f"part{i}" for i in range(0, 48, 6)]
    for name in few:
        for k in range(3):
            pins = {"A": cells[f"{name}.lut{k}"]["connections"]["A"] * 40}
            cells[f"{name}.product{k}"] = {"type": "MULT18X18D", "connections": pins}
    owner = floorplan._owners(cells)
    centre = floorplan._annealed(cells, owner, floorplan._ends(cells, owner), DIE, 1)
    rows = np.array(sorted({y for _, y in DIE.sites["MULT18X18D"].values()}))
    away = {name: float(np.abs(rows - place[1]).min()) for name, place in centre.items()}
    others = [away[name] for name in away if name not in few]
    assert len(centre) == 48
    assert np.mean([away[name] for name in few]) < 0.5 * np.mean(others)


def test_equal_arguments_give_equal_plans(planned: dict[str, str]) -> None:
    assert plan(chain(48), DIE, 1) == planned
    assert plan(chain(48), DIE, 2) != planned


def test_a_design_that_needs_no_plan_or_has_none() -> None:
    without = {name: cell for name, cell in chain(3).items() if cell["type"] == "LUT4"}
    assert plan(without, DIE, 1) == {}
    assert plan(chain(157), DIE, 1) == {}, "multipliers"
    flat = {name.replace(".", "_"): cell for name, cell in chain(3).items() if "." in name}
    assert plan(flat, DIE, 1) == {}, "all in the top"


def test_a_block_ram_without_pins_is_placed_too() -> None:
    cells = {**chain(3), "idle": {"type": "$scopeinfo", "connections": {}}}
    found = plan({**cells, "idle.memory": {"type": "DP16KD", "connections": {"CLKA": [1]}}}, DIE, 1)
    assert "idle.memory" in found
    assert len(set(found.values())) == 7


def test_one_large_instance_is_told_by_its_own() -> None:
    inside = {f"top.{name}": cell for name, cell in chain(30).items()}
    found = plan({"top": {"type": "$scopeinfo", "connections": {}}, **inside}, DIE, 1)
    assert {name.removeprefix("top."): site for name, site in found.items()} == plan(chain(30), DIE, 1)


def test_rows_stay_empty_where_a_die_has_room() -> None:
    """Whole rows without special sites, spread over the die, until what is left is nearly half full."""
    empty = [re.fullmatch(r"X(\d+)/Y(\d+)/SLICE[A-D]\.K[01]", site) for site in left_empty(DIE, 27_000)]
    rows = Counter(int(match[2]) for match in empty if match)
    assert len(rows) * 123 * 8 == len(empty)
    assert not rows.keys() & {y for sites in DIE.sites.values() for _, y in sites.values()}
    gaps = [b - a for a, b in itertools.pairwise(sorted(rows))]
    assert 2 <= min(gaps) <= max(gaps) <= 6
    assert 0.4 < 27_000 / (83_640 - len(empty)) < 0.5
    assert len(left_empty(DIE, 20_000)) > len(empty)
    assert left_empty(DIE, 45_000) == []


@pytest.mark.slow
def test_all_sites_exist_and_there_are_no_others(tmp_path: Path) -> None:
    """Cells without pins at all of them: nextpnr knows every one."""
    cells = {
        f"{kind}_{i}": {
            "type": kind,
            "parameters": {},
            "attributes": {"BEL": site},
            "port_directions": {},
            "connections": {},
        }
        for kind, sites in DIE.sites.items()
        for i, site in enumerate(sites)
    }
    cells |= {f"table_{i}": place._table(site) for i, site in enumerate(left_empty(DIE, 0))}
    top = {"attributes": {"top": "1"}, "ports": {}, "cells": cells, "netnames": {}}
    (tmp_path / "sites.json").write_text(json.dumps({"creator": "test", "modules": {"top": top}}))
    device = find_device("85k")
    options = ["--85k", "--package", device.package, "--json", "sites.json", "--no-route", "-q", "-l", "log"]
    run(find("nextpnr-ecp5"), options, tmp_path, "log")
    said = (tmp_path / "log").read_text()
    for kind, held in (("DP16KD", device.holds.brams), ("MULT18X18D", device.holds.dsps)):
        assert re.search(rf"{kind}: *{held}/ *{held} ", said), kind


@pytest.mark.slow
def test_a_large_design_is_placed_with_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "_LARGE", 0.0)
    small, device = synthesise(SMALL, "small"), find_device("85k")
    prepared = _prepare(small, device, 1, True, tmp_path / "netlist.json")
    module = json.loads((tmp_path / "netlist.json").read_text())["modules"]["small"]
    empty = left_empty(DIE, small.resources.luts)
    assert prepared == {"paths": ["memory", "multiply"], "empty": len(empty), "clocks": ["clk"]}
    assert list(module["ports"]) == ["clk"]
    sites = {name: cell["attributes"].get("BEL") for name, cell in module["cells"].items()}
    planned = {name: site for name, site in sites.items() if site and not name.startswith("$empty")}
    assert set(planned.values()) == set(plan(module["cells"], DIE, 1).values())
    assert [site for name, site in sites.items() if name.startswith("$empty")] == empty
    monkeypatch.undo()
    _prepare(small, device, 1, True, tmp_path / "netlist.json")
    assert "BEL" not in (tmp_path / "netlist.json").read_text(), "a small one is not"
    assert small.netlist is not None
    kept = json.loads(small.netlist.read_text())["modules"]["small"]["cells"].values()
    assert not any("BEL" in cell["attributes"] for cell in kept), "the cache keeps the netlist as it was"
