"""The command line: JSON, tables, CSV, configurations, confirmation, mistakes."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cosim.job import Outcome
from cosim.toolchain import check_tools
from heald.exploration import command
from hw.area.measure import has_clock
from hw.config import MachineConfig, load
from hw.errors import InputError
from tests.heald.conftest import Quick
from tests.heald.exploration.conftest import SPACE

FEW = ("explore", "space.toml", "net.onnx", "--executor", "processes:1", "--trials", "5")


@pytest.fixture
def rtl(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes confirmation use the quick simulator; call it to spoil outcomes."""

    def install(spoil: Callable[[Outcome], Outcome] = lambda outcome: outcome) -> None:
        monkeypatch.setattr(
            "heald.exploration.evaluate.simulator", lambda config, name: Quick(config, spoil=spoil)
        )

    monkeypatch.setattr("heald.exploration.command.check_tools", lambda sim: None)
    install()
    return install


def late(outcome: Outcome) -> Outcome:
    """The outcome with its last event a cycle later."""
    events = [*outcome.events[:-1], outcome.events[-1]._replace(cycle=outcome.events[-1].cycle + 1)]
    return replace(outcome, events=events, cycles=outcome.cycles + 1)


def test_everything_that_is_written(heald: Any, folder: Path, rtl: Any) -> None:
    options = ("--confirm", "2", "--csv", "points.csv", "--export", "front", "--json")
    ended = heald(*FEW, *options)
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found["trials"] == 5
    assert found["points_per_second"] > 0
    assert found["objectives"] == {"cycles": "minimize", "luts": "minimize"}
    front = found["front"]
    assert [p["cycles"] for p in front] == sorted(p["cycles"] for p in front)
    assert sum(c["confirmed"] for c in found["confirmations"]) == 2
    assert sum(p["confirmed"] for p in front) == min(2, len(front))
    database, *others = ended.err.splitlines()[-1].removeprefix("written: ").split(", ")
    assert (folder / database).is_file()
    assert others == ["points.csv", f"front ({len(front)} machines)"]
    rows = list(csv.DictReader((folder / "points.csv").read_text().splitlines()))
    assert len(rows) == 5
    assert {r["state"] for r in rows} <= {"complete", "refused"}
    assert [int(r["point"]) for r in rows if r["front"] == "yes"] == sorted(p["number"] for p in front)
    for point in front:
        machine = load(str(folder / f"front/point-{point['number']}.toml"))
        assert machine.rows == point["hw"]["rows"] == point["parameters"]["rows"]
        assert machine.cgra is not None
        assert machine.cgra.name == point["hw"]["cgra"]
    again = heald(*FEW, *options)
    assert json.loads(again.out) == {**found, "points_per_second": 0.0}
    shown = heald(*FEW)
    assert "points per second" not in shown.out  # there was nothing to do
    assert "confirmed" in shown.out
    heads = [line.split() for line in shown.out.splitlines()[2:5]]
    assert "seconds_" in heads[0]
    assert "per_" in heads[1]
    assert heads[2][:3] == ["point", "rows", "cols"]
    for each in found["confirmations"]:
        told = f"point {each['number']} on the RTL: {each['events']:,} of {each['events']:,} events agree"
        assert told in ended.err
        assert told in shown.out


def test_files_of_an_earlier_front_go(heald: Any, folder: Path) -> None:
    (folder / "front").mkdir()
    others = ["point-7.toml.old", "point-07.toml", "point-x.toml", "my-point-7.toml", "notes.txt"]
    for name in ("point-4000.toml", "point-0.toml", *others):
        (folder / "front" / name).write_text("old")
    ended = heald(*FEW[:-1], "2", "--export", "front", "--json")
    assert ended.code == 0, ended.err
    points = [f"point-{p['number']}.toml" for p in json.loads(ended.out)["front"]]
    assert sorted(p.name for p in (folder / "front").iterdir()) == sorted([*points, *others])
    assert all(load(f"front/{name}").rows for name in points)
    assert all((folder / "front" / name).read_text() == "old" for name in others)


def test_missing_simulators_are_told_before_the_search(
    heald: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Any:
        raise InputError("Verilator must be installed")

    monkeypatch.setattr("cosim.toolchain.find", missing)
    before = sorted(folder.iterdir())
    for sim in ("verilator", "cpp"):
        ended = heald(*FEW, "--confirm", "1", "--sim", sim)
        assert (ended.code, ended.err) == (2, "heald: Verilator must be installed\n")
    monkeypatch.setattr("cosim.toolchain.find", lambda: None)
    monkeypatch.setattr("find_libpython.find_libpython", lambda: None)
    ended = heald(*FEW, "--confirm", "1")
    assert ended.code == 2
    assert "--sim verilator needs Python as a shared library" in ended.err
    assert sorted(folder.iterdir()) == before
    check_tools("cpp")
    check_tools("amaranth")


def test_a_missing_yosys_is_told_before_the_search(
    heald: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEALD_YOSYS", "no-such-program")
    before = sorted(folder.iterdir())
    ended = heald(*FEW, "--synth", "--json")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "heald: HEALD_YOSYS must name a program, not 'no-such-program'\n"
    assert sorted(folder.iterdir()) == before


def test_a_build_that_fails_is_told_with_the_point(
    heald: Any, folder: Path, rtl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(config: MachineConfig, sim: str) -> Any:
        assert config.name == "point 0"  # as progress names what is built
        raise RuntimeError("g++ failed with code 1, see log:\nno space")

    monkeypatch.setattr("heald.exploration.evaluate.simulator", failing)
    ended = heald(*FEW[:-1], "1", "--confirm", "1")
    assert ended.code == 2
    assert ended.err.splitlines()[-1] == (
        "heald: --confirm: the RTL of point 0 cannot be built: g++ failed with code 1, see log: no space"
    )


def test_any_seed_is_taken(heald: Any, folder: Path) -> None:
    for sampler in ("nsga2", "tpe"):
        line = ("explore", "space.toml", "tiny.onnx", "--executor", "processes:1", "--trials", "1")
        ended = heald(
            *line, "--sampler", sampler, "--seed", str(10**20), "--storage", f"sqlite:///{sampler}.db"
        )
        assert ended.code == 0, ended.err


def test_a_difference_on_the_rtl_is_exit_code_1(heald: Any, folder: Path, rtl: Any) -> None:
    rtl(late)
    ended = heald(*FEW[:-1], "1", "--confirm", "1", "--json")
    assert ended.code == 1, ended.err
    found = json.loads(ended.out)
    assert found["front"][0]["confirmed"] is False
    assert "cycle" in found["front"][0]["difference"]
    assert "point 0 differs on the RTL: net.onnx: " in ended.err


def test_a_run_on_the_rtl_that_breaks_off_is_told_and_tried_again(heald: Any, folder: Path, rtl: Any) -> None:
    def broken(outcome: Outcome) -> Outcome:
        raise RuntimeError("the simulation ended with code 1 after 0 of 1 jobs")

    rtl(broken)
    command = (*FEW[:-1], "1", "--confirm", "1", "--json", "--csv", "points.csv")
    ended = heald(*command)
    assert ended.code == 1, ended.err
    assert json.loads(ended.out)["front"][0]["difference"] == (
        "net.onnx: the run broke off: the simulation ended with code 1 after 0 of 1 jobs"
    )
    assert Path("points.csv").is_file()
    rtl()
    ended = heald(*command)
    assert (ended.code, json.loads(ended.out)["front"][0]["confirmed"]) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nowhere.toml", "net.onnx"), "nowhere.toml: no such file; a space is a TOML file"),
        (("space.toml", "nowhere.onnx"), "nowhere.onnx: no such file; a model is an ONNX file"),
        (("space.toml", "space.toml"), "space.toml: not a valid ONNX model"),
        (("space.toml",), "Missing argument 'MODEL.onnx...'"),
        (("space.toml", "net.onnx", "--sampler", "best"), "'best' is not one of"),
        (("space.toml", "net.onnx", "--trials", "0"), "--trials"),
        (("space.toml", "net.onnx", "--csv", "no/points.csv"), "no/points.csv: directory no does not exist"),
        (("space.toml", "net.onnx", "--export", "space.toml"), "space.toml: must be a directory, not a file"),
        (("space.toml", "net.onnx", "--export", "/proc/front"), "/proc/front: directory cannot be made or"),
        (("space.toml", "net.onnx", "--export", "a" * 300), "cannot be made or written: File name too long"),
        (("space.toml", "net.onnx", "--export", "a" * 300 + "/b"), "cannot be made or written: File name"),
        (("space.toml", "net.onnx", "--csv", "a" * 300), "cannot be written: File name too long"),
        (("space.toml", "a" * 300), "a: cannot be read: File name too long"),
        (("a" * 300, "net.onnx"), "cannot be read: [Errno 36] File name too long"),
        (("space.toml", "n\udcffet.onnx"), "'n\\udcffet.onnx': the name of a file must be UTF-8 here"),
        (("space.toml", "net.onnx", "--energy", "no.toml"), "no.toml: no such file; --energy must be"),
        (("space.toml", "net.onnx", "--executor", "dask://127.0.0.1:9"), "no dask scheduler at"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(
    heald: Any, folder: Path, arguments: tuple[str, ...], told: str
) -> None:
    before = sorted(folder.iterdir())
    ended = heald("explore", *arguments)
    assert ended.code == 2
    assert told in ended.err.strip().splitlines()[-1]
    assert sorted(folder.iterdir()) == before


def test_a_grid_too_large_is_refused(folder: Path, heald: Any) -> None:
    (folder / "space.toml").write_text(
        SPACE + "load_b_latency = { from = 1, to = 500 }\nload_c_latency = { from = 1, to = 500 }\n"
    )
    ended = heald("explore", "space.toml", "net.onnx")
    assert ended.code == 2
    assert (
        "the grid has 4,000,000 points: --trials, another --sampler or fewer values are needed" in ended.err
    )


def test_a_family_without_a_model_needs_synthesis(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hw.area.model.is_fitted", lambda family: False)
    request = command.Request(Path("space.toml"), (Path("net.onnx"),), family="xilinx")
    with pytest.raises(InputError, match="--family xilinx has no area model: --synth is needed"):
        command.prepare(request)
    assert command.prepare(replace(request, synthesis=True)).workload.synthesis


def test_a_family_without_a_clock_is_told_without_going_through_the_space(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def built(*arguments: Any) -> Any:
        raise AssertionError("no machine needs to be built")

    monkeypatch.setattr("heald.exploration.space.Space.machine", built)
    monkeypatch.setattr("heald.exploration.command.has_clock", lambda family: family == "ecp5")
    for more in ('limits = ["fmax_mhz > 50"]\n' + SPACE, SPACE + '[objectives]\nfmax_mhz = "maximize"\n'):
        (folder / "space.toml").write_text(more)
        request = command.Request(Path("space.toml"), (Path("net.onnx"),))
        command.prepare(request)
        with pytest.raises(InputError, match="fmax_mhz needs a clock, which is not known for family xilinx"):
            command.prepare(replace(request, family="xilinx"))


def test_which_families_have_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for clock in ({}, {"one": 2.0}):
        monkeypatch.setattr("hw.area.model.load", lambda family, clock=clock: SimpleNamespace(clock=clock))
        assert has_clock("ecp5") == bool(clock)
    monkeypatch.setattr("hw.area.model.is_fitted", lambda family: False)
    assert not has_clock("ecp5")


def test_fingerprints_tell_what_points_depend_on(folder: Path) -> None:
    def found(**changes: Any) -> dict[str, str]:
        request = command.Request(Path("space.toml"), (Path("net.onnx"),), **changes)
        return dict(command.fingerprints(command.prepare(request)))

    first = found()
    assert found(seed=3, sampler="tpe", trials=4, confirm=2) == first
    changed = found(family="xilinx", synthesis=True)
    assert [k for k in first if first[k] != changed[k]] == ["family or way of measuring"]
    (folder / "space.toml").write_text(SPACE.replace("14 }", "7 }"))
    changed = found()
    assert [k for k in first if first[k] != changed[k]] == ["space"]
