"""Waves of the real RTL: `heald run --waves` from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pywellen import Waveform

import heald as hd
from cosim.job import EventKind

MATMUL = ("run", "--matmul", "40x32x24", "--hw", "test", "--seed", 3)


def signals_of(file: Path) -> dict[str, Any]:
    return {variable.full_name: variable for variable in Waveform(str(file)).all_vars()}


@pytest.mark.slow
def test_waves_of_a_product_show_what_was_predicted(heald: Any, tmp_path: Path) -> None:
    whole, part = tmp_path / "whole.fst", tmp_path / "part.fst"
    assert heald(*MATMUL, "--waves", whole).code == 0
    seen = signals_of(whole)
    assert [value for _, value in seen["harness.view.differs"].tv] == [0]
    times = {cycle: time for time, cycle in seen["harness.view.cycle"].tv}
    times[0] = times[1] - 2  # the counter is 0 before the machine starts, too
    events = hd.compile(hd.matmul(40, 32, 24), "test").predict(seed=3).events
    for side in ("rtl", "model"):
        for kind, name in ((EventKind.ISSUE, "issue"), (EventKind.COMPLETE, "complete")):
            for warp in range(4):
                tv = seen[f"harness.view.{side}.warp[{warp}].{name}"].tv
                found = [cycle for cycle, time in sorted(times.items()) if tv.value_at(time) == 1]
                assert found == [e.cycle for e in events if e.warp == warp and e.kind is kind]
    gemm = {int(value).to_bytes(32, "big").decode().split()[0] for _, value in operations(seen, "gemm")}
    assert gemm in ({"gemm"}, {"gemm", "gemm_acc"})
    assert not [name for name in seen if name.split(".")[-1].startswith(("$", "_"))]

    options = ("--waves-from", 100, "--waves-to", 140, "--waves-scope", "gemm", "--waves-scope", "load_*")
    assert heald(*MATMUL, "--waves", part, *options).code == 0
    seen = signals_of(part)
    assert [value for _, value in seen["harness.view.cycle"].tv] == list(range(100, 141))
    inside = {name.split(".")[2] for name in seen if name.startswith("harness.machine.")}
    assert inside == {name for name in inside if name == "gemm" or name.startswith("load_")}
    assert {"gemm", "load_a", "load_b"} <= inside
    assert part.stat().st_size < whole.stat().st_size / 2

    ended = heald(*MATMUL, "--waves", tmp_path / "none.fst", "--waves-scope", "nothing")
    assert (ended.code, ended.out) == (2, "")
    assert "must be a part of the machine (" in ended.err
    assert heald(*MATMUL, "--waves", tmp_path / "none.fst", "--waves-around", "divergence").code == 0
    assert not (tmp_path / "none.fst").exists()


def operations(seen: dict[str, Any], engine: str) -> list[tuple[int, int]]:
    """What an engine worked on."""
    blank = int.from_bytes(b" " * 32, "big")
    return [(t, v) for t, v in seen[f"harness.view.rtl.{engine}.operation"].tv if v != blank]
