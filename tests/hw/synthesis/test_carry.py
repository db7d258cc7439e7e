"""Tables in front of carry cells: netlists compute the same without them."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from hw.synthesis import synthesise
from hw.synthesis.carry import merge
from tests.hw.synthesis.cells import outputs, read_by

#: One output per kind of table that an adder may take in, in Verilog and in Python.
SUMS = {
    "chosen": ("a + (s[0] ? b : c)", lambda a, b, c, s: a + (b if s & 1 else c)),
    "gated": ("c - (s[0] ? b : 8'd0)", lambda a, b, c, s: c - (b if s & 1 else 0)),
    "either": ("(s[1] ? a : b) - c", lambda a, b, c, s: (a if s >> 1 & 1 else b) - c),
    "masked": ("(a & b) + (b ^ c)", lambda a, b, c, s: (a & b) + (b ^ c)),
    "down": ("(s[0] ? a : b) - 8'd1", lambda a, b, c, s: (a if s & 1 else b) - 1),
    "below": ("(a | b) < (b & c)", lambda a, b, c, s: (a | b) < (b & c)),
}
WIDTH = 8


@pytest.fixture(scope="module")
def sums() -> dict[str, Any]:
    """The netlist of all of `SUMS`."""
    ports = ", ".join(f"output [{WIDTH - 1}:0] {name}" for name in SUMS)
    body = "\n".join(f"  assign {name} = {text};" for name, (text, _) in SUMS.items())
    inputs = f"input [{WIDTH - 1}:0] a, b, c, input [1:0] s"
    found = synthesise(f"module sums({inputs}, {ports});\n{body}\nendmodule\n", "sums")
    assert found.netlist is not None
    module = json.loads(found.netlist.read_text())["modules"]["sums"]
    module["cells"] = {name: cell for name, cell in module["cells"].items() if cell["type"] != "$scopeinfo"}
    return dict(module)


def test_sums_of_chosen_operands_are_right(sums: dict[str, Any]) -> None:
    rng = random.Random(1)
    for _ in range(100):
        given = {
            "a": rng.getrandbits(8),
            "b": rng.getrandbits(8),
            "c": rng.getrandbits(8),
            "s": rng.getrandbits(2),
        }
        levels = {
            bit: given[name] >> i & 1 for name in given for i, bit in enumerate(sums["ports"][name]["bits"])
        }
        values = outputs(sums["cells"], levels)
        for name, (_, function) in SUMS.items():
            found = sum(values[bit] << i for i, bit in enumerate(sums["ports"][name]["bits"]))
            assert found == int(function(**given)) % (1 << WIDTH), (name, given)


def test_an_adder_takes_in_the_choice_of_its_operand(sums: dict[str, Any]) -> None:
    """No table is left that only carry cells read and that has two inputs: any carry cell does those."""
    tables = {cell["connections"]["Z"][0]: cell for cell in sums["cells"].values() if cell["type"] == "LUT4"}
    assert not any(
        len(set(read_by(tables[bit])) - {"0", "1"}) <= 2 and not _other_readers(sums, bit) for bit in tables
    )
    assert len(tables) <= 2 * WIDTH


def _other_readers(module: Mapping[str, Any], bit: int) -> bool:
    """Whether anything but carry cells reads a net."""
    cells = [cell for cell in module["cells"].values() if cell["type"] != "CCU2C"]
    return any(bit in read_by(cell) for cell in cells) or any(
        bit in port["bits"] for port in module["ports"].values()
    )


def random_module(rng: random.Random) -> dict[str, Any]:
    """Two tables, with any contents, in front of a carry cell of any contents; all nets may be shared."""
    inputs: list[int | str] = [2, 3, 4, 5, "0", "1"]

    def pins(sources: list[int | str], suffix: str = "") -> dict[str, list[int | str]]:
        return {pin + suffix: [rng.choice(sources)] for pin in "ABCD"}

    def cell(
        kind: str, parameters: Mapping[str, str], read: Mapping[str, Any], driven: Mapping[str, Any]
    ) -> Any:
        directions = dict.fromkeys(read, "input") | dict.fromkeys(driven, "output")
        return {
            "type": kind,
            "parameters": dict(parameters),
            "port_directions": directions,
            "connections": {**read, **driven},
        }

    def contents() -> str:
        # Those of an adder half of the time: few others leave room for anything.
        return rng.choice(("1001011010101010", f"{rng.getrandbits(16):016b}"))

    def operands(suffix: str) -> dict[str, list[int | str]]:
        rest = {pin + suffix: [rng.choice(("0", "1", "1", 5))] for pin in "CD"}
        return {"A" + suffix: [rng.choice((2, 10, 11))], "B" + suffix: [rng.choice((3, "1", 10, 11))], **rest}

    table = f"{rng.getrandbits(16):016b}"
    chain = {
        "INIT0": contents(),
        "INIT1": contents(),
        "INJECT1_0": "NO",
        "INJECT1_1": rng.choice(("NO", "NO", "YES")),
    }
    read = {**operands("0"), **operands("1"), "CIN": [6]}
    return {
        "ports": {
            "i": {"direction": "input", "bits": [2, 3, 4, 5, 6]},
            "o": {"direction": "output", "bits": [20, 21, 22]},
        },
        "cells": {
            "first": cell("LUT4", {"INIT": table}, pins(inputs), {"Z": [10]}),
            "second": cell("LUT4", {"INIT": table[::-1]}, pins([*inputs, 10]), {"Z": [11]}),
            "chain": cell("CCU2C", chain, read, {"S0": [20], "S1": [21], "COUT": [22]}),
        },
    }


def test_any_netlist_computes_the_same_when_tables_are_merged() -> None:
    rng = random.Random(2)
    merged = 0
    for _ in range(400):
        before = random_module(rng)
        after = copy.deepcopy(before)
        merged += merge(after)
        for levels in product((0, 1), repeat=5):
            given: dict[int | str, int] = dict(zip((2, 3, 4, 5, 6), levels, strict=True))
            expected, found = outputs(before["cells"], given), outputs(after["cells"], given)
            assert [found[bit] for bit in (20, 21, 22)] == [expected[bit] for bit in (20, 21, 22)], before
    assert merged > 100


def test_a_table_that_something_else_reads_stays() -> None:
    before = random_module(random.Random(3))
    before["cells"]["chain"]["connections"].update({"A0": [2], "B0": [10], "C0": ["0"], "D0": ["1"]})
    before["cells"]["second"]["connections"].update({pin: [2] for pin in "ABCD"})
    before["cells"]["chain"]["parameters"]["INIT0"] = "1001011010101010"
    before["ports"]["o"]["bits"].append(10)
    merge(before)
    assert "first" in before["cells"]
