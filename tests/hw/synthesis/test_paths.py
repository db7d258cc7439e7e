"""The longest paths of a netlist whose delays can be added up by hand."""

from __future__ import annotations

import json
from pathlib import Path as File
from typing import Any

import pytest

from hw.synthesis.multipliers import REGISTERED
from hw.synthesis.paths import NET, longest


def cell(kind: str, inputs: dict[str, list[Any]], outputs: dict[str, list[Any]]) -> dict[str, Any]:
    ways = dict.fromkeys(inputs, "input") | dict.fromkeys(outputs, "output")
    return {"type": kind, "port_directions": ways, "connections": inputs | outputs}


def flip_flop(source: int, output: int) -> dict[str, Any]:
    return cell("TRELLIS_FF", {"CLK": [1], "DI": [source]}, {"Q": [output]})


def carry(a: list[int], into: list[Any], out: dict[str, int]) -> dict[str, Any]:
    inputs = {"A0": [a[0]], "A1": [a[1]], "CIN": into}
    return cell("CCU2C", inputs, {pin: [bit] for pin, bit in out.items()})


def test_paths_go_through_tables_chains_and_muxes_from_one_register_to_another(tmp_path: File) -> None:
    cells = {
        "one": cell("$scopeinfo", {}, {}),
        "two": cell("$scopeinfo", {}, {}),
        "one.a_TRELLIS_FF_Q": flip_flop(30, 10),
        "one.x_LUT4_Z": cell("LUT4", {"A": [10], "B": ["0"]}, {"Z": [11]}),
        "one.y_LUT4_Z": cell("LUT4", {"A": [99]}, {"Z": [12]}),
        "one.m_PFUMX_Z": cell("PFUMX", {"ALUT": [11], "BLUT": [12], "C0": [10]}, {"Z": [13]}),
        "two.low_CCU2C": carry([13, 10], ["0"], {"S0": 20, "S1": 21, "COUT": 22}),
        "two.high_CCU2C": carry([10, 10], [22], {"S0": 23, "S1": 24, "COUT": 25}),
        "two.b_TRELLIS_FF_Q": flip_flop(24, 26),
        "memory_DP16KD": cell("DP16KD", {"CLKA": [1], "ADA0": [99]}, {"DOA0": [30]}),
    }
    netlist = tmp_path / "netlist.json"
    netlist.write_text(json.dumps({"modules": {"top": {"cells": cells}}}))
    found = longest(netlist, "top")
    # The table, the mux beside it without a net, into the chain, along one cell and out of it.
    assert found["two"].delay == pytest.approx(
        0.5 + (NET + 0.24) + 0.2 + (NET + 0.45) + 0.44 + NET, abs=0.006
    )
    assert (found["two"].start, found["two"].end) == ("one.a_TRELLIS_FF_Q", "two.b_TRELLIS_FF_Q")
    assert found["one"].delay == pytest.approx(3.6 + NET, abs=0.006)
    assert found["one"].start == "memory_DP16KD"
    # Nothing but a port decides what the memory's address is.
    assert set(found) == {"one", "two"}


def test_a_distributed_memory_is_passed_by_its_address_and_ends_paths_to_what_is_written(
    tmp_path: File,
) -> None:
    memory = cell(
        "TRELLIS_DPR16X4", {"RAD": [10], "DI": [11], "WRE": [10], "WCK": [1], "WAD": [10]}, {"DO": [12]}
    )
    cells = {
        "a_TRELLIS_FF_Q": flip_flop(12, 10),
        "words_TRELLIS_DPR16X4": memory,
        "p_LUT4_Z": cell("LUT4", {"A": [10]}, {"Z": [14]}),
        "q_LUT4_Z": cell("LUT4", {"A": [14]}, {"Z": [11]}),
    }
    netlist = tmp_path / "netlist.json"
    netlist.write_text(json.dumps({"modules": {"top": {"cells": cells}}}))
    found = longest(netlist, "top")
    assert found[""].delay == pytest.approx(0.5 + 2 * (NET + 0.24) + NET, abs=0.006)
    assert found[""].end == "words_TRELLIS_DPR16X4"


def test_a_multiplier_with_registers_ends_paths_and_begins_others(tmp_path: File) -> None:
    product = cell("MULT18X18D", {"CLK0": [1], "A0": [10], "CE0": [11]}, {"P0": [12]})
    cells = {
        "a_TRELLIS_FF_Q": flip_flop(13, 10),
        "x_LUT4_Z": cell("LUT4", {"A": [12]}, {"Z": [13]}),
        "one": cell("$scopeinfo", {}, {}),
        "one.product_MULT18X18D": product | {"parameters": {REGISTERED: "CLK0"}},
    }
    netlist = tmp_path / "netlist.json"
    netlist.write_text(json.dumps({"modules": {"top": {"cells": cells}}}))
    found = longest(netlist, "top")
    assert found["one"].delay == pytest.approx(0.5 + NET + 2.6, abs=0.006)
    assert found[""].delay == pytest.approx(0.6 + (NET + 0.24) + NET, abs=0.006)
    assert found[""].start == "one.product_MULT18X18D"
