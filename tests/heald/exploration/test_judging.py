"""Objectives and limits may change: metrics stay, and points are judged again, despite any interruption."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from rich.console import Console

from heald.exploration.command import Prepared, Request, prepare
from heald.exploration.results import Confirmation, Excess, Nearest, Point, State
from heald.exploration.search import Progress
from heald.exploration.space import from_values
from heald.exploration.study import Kept, nearest
from heald.report.explore import page
from heald.studies import Study
from hw.errors import InputError
from tests.heald.exploration.conftest import SPACE
from tests.heald.exploration.test_search import POINTS, REFUSED, Here, opened, searched
from tests.heald.explorations import exploration
from tests.heald.network_models import integers

#: Of four sizes of the array, 16, 32 (twice) and 64 LUTs in `Here`, the last is beyond this limit.
LIMITED = 'limits = ["luts <= 32"]\n' + SPACE
#: None is within these.
NARROW = 'limits = ["luts <= 10", "cycles <= 100"]\n' + SPACE
OTHER = SPACE + '\n[objectives]\nluts = "maximize"\n'


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Point]]:
    """A study in which all points are evaluated, and these."""
    where = tmp_path_factory.mktemp("evaluated")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        (where / "tiny.onnx").write_bytes(integers().SerializeToString())
        with study(SPACE) as (p, kept):
            searched(kept, p, Here())
            return where / "space-tiny.db", kept.points()


@pytest.fixture
def first(folder: Path, evaluated: tuple[Path, list[Point]]) -> list[Point]:
    """The points of a study in the folder, all of which are evaluated."""
    shutil.copy(evaluated[0], folder)
    return evaluated[1]


@contextlib.contextmanager
def study(text: str) -> Iterator[tuple[Prepared, Kept]]:
    """The study of a space in the folder."""
    (space := Path("space.toml")).write_text(text, encoding="utf-8")
    p = prepare(Request(space, (Path("tiny.onnx"),)))
    kept = opened(p)
    try:
        yield p, kept
    finally:
        kept.close()


def judged_by(text: str) -> list[Point]:
    """The points of a study by the objectives and limits of a space."""
    with study(text) as (_, kept):
        return kept.points()


def facts(points: list[Point]) -> list[Any]:
    """What no objective changes."""
    return [(p.number, p.parameters, p.metrics, p.hw) for p in points]


@pytest.mark.parametrize("text", [LIMITED, OTHER])
def test_other_objectives_and_limits_judge_the_same_points(first: list[Point], text: str) -> None:
    with study(SPACE) as (_, kept):
        kept.confirm(Confirmation(3, True, 5, 6))
    with study(text) as (p, kept):
        staff = Here()
        searched(kept, p, staff)
        points = kept.points()
        assert not staff.asked
        assert kept.confirmations() == {3: Confirmation(3, True, 5, 6)}
        trials = {t.number: t for t in kept.study.trials}
        assert [d.name.lower() for d in kept.study.directions] == list(p.space.objectives.values())
        assert kept.study.metric_names == list(p.space.objectives)
    assert facts(points) == facts(first)
    for point in points:
        outside = [x.text for x in p.space.limits if point.metrics and not x.value(point.metrics)]
        state = State.REFUSED if not point.metrics else State.INFEASIBLE if outside else State.COMPLETE
        assert point.state is state
        if point.metrics:
            assert point.reason == (f"beyond {', '.join(outside)}" if outside else None)
            assert trials[point.number].values == [point.metrics[n] for n in p.space.objectives]
            assert [k for k, v in trials[point.number].constraints.items() if v > 0] == sorted(outside)
    assert judged_by(SPACE) == first


def test_points_in_flight_keep_their_numbers(folder: Path) -> None:
    with study(LIMITED) as (p, kept):
        with pytest.raises(InputError, match="no space left"):
            searched(kept, p, Here(hinder=5))
        done, left = kept.points(), kept.unfinished()
    with study(OTHER) as (p, kept):
        assert facts(kept.points()) == facts(done)
        assert kept.unfinished() == left != []
        searched(kept, p, Here())
        points = kept.points()
    assert {n for n, _ in left} <= {x.number for x in points}
    assert len(points) == POINTS
    assert sum(x.state is State.COMPLETE for x in points) == POINTS - REFUSED


@pytest.mark.parametrize("after", ["some points", "all points", "the old study"])
def test_judging_that_is_interrupted_loses_nothing(
    folder: Path, first: list[Point], monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    delete, add = optuna.delete_study, optuna.Study.add_trial

    def interrupted(work: Callable[..., None], when: Callable[[], bool]) -> Callable[..., None]:
        def run(*arguments: Any, **options: Any) -> None:
            if when():
                raise KeyboardInterrupt
            work(*arguments, **options)
            if after == "the old study":
                raise KeyboardInterrupt

        return run

    if after == "some points":
        count = iter(range(100))
        monkeypatch.setattr(optuna.Study, "add_trial", interrupted(add, lambda: next(count) == 7))
    else:
        monkeypatch.setattr(optuna, "delete_study", interrupted(delete, lambda: after == "all points"))
    with pytest.raises(KeyboardInterrupt), study(OTHER):
        pass
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    with study(OTHER) as (p, kept):
        assert facts(kept.points()) == facts(first)
        assert kept.study.study_name == p.name
        assert optuna.get_all_study_names(kept.storage) == [p.name]
        assert kept.study.metric_names == ["luts"]


def test_points_without_a_value_of_an_objective_come_back_with_another(first: list[Point]) -> None:
    points = judged_by(SPACE + '[objectives]\nenergy_pj = "minimize"\n')
    reasons = {p.reason for p in points if p.state is State.FAILED}
    assert reasons == {"has no value of the objective energy_pj"}
    assert sum(p.state is State.FAILED for p in points) == POINTS - REFUSED
    assert judged_by(SPACE) == first


def test_where_all_are_infeasible_the_nearest_point_is_told(first: list[Point]) -> None:
    with study(NARROW) as (p, kept):
        points = kept.points()
        found = nearest(points, p.space)
    assert found is not None
    over = {
        x.number: max(0, 1 - 10 / x.metrics["luts"]) + max(0, 1 - 100 / x.metrics["cycles"])
        for x in points
        if x.metrics
    }
    assert found.point == min(over, key=lambda n: (over[n], n))
    metrics = next(x.metrics for x in points if x.number == found.point)
    assert [e.limit for e in found.excesses] == [x.text for x in p.space.limits if not x.value(metrics)]
    assert all(e.value == metrics[e.limit.split()[0]] for e in found.excesses)
    with study(LIMITED) as (p, kept):
        assert nearest(kept.points(), p.space) is None


def test_a_limit_without_a_value_is_wholly_exceeded(first: list[Point]) -> None:
    with study('limits = ["luts / (luts - luts) <= 1", "energy_pj <= 1"]\n' + SPACE) as (p, kept):
        found = nearest(kept.points(), p.space)
    assert found is not None
    assert found.excesses == (Excess("luts / (luts - luts) <= 1"), Excess("energy_pj <= 1"))


def test_the_nearest_point_is_printed_and_on_the_page() -> None:
    told = Nearest(200, (Excess("luts <= 10", 25, 10),))
    found = replace(exploration(), front=(), nearest=told)
    assert "<b>No point is within all limits.</b> Point 200 is nearest:" in page(found)
    assert "<li>luts &lt;= 10: 25 is 15 (150.0 %) above the limit</li>" in page(found)
    assert "No point is within all limits" not in page(exploration())
    out = io.StringIO()
    Study(found, from_values({"parameters": {"rows": [4, 8]}}), "").print(Console(file=out, width=200))
    assert "point 200 is nearest: luts <= 10: 25 is 15 (150.0 %) above the limit" in out.getvalue()
    assert re.search(r"^ *200 ", out.getvalue(), re.MULTILINE)


def test_an_excess_in_words() -> None:
    assert (
        str(Excess("luts <= 80000", 90_000, 80_000))
        == "luts <= 80000: 90,000 is 10,000 (12.5 %) above the limit"
    )
    assert str(Excess("fmax_mhz >= 50", 45.5, 50)) == "fmax_mhz >= 50: 45.5 is 4.5 (9.0 %) below the limit"
    assert str(Excess("luts - 40 <= 0", 7, 0)) == "luts - 40 <= 0: 7 is 7 above the limit"
    assert str(Excess("1 / luts <= 1")) == "1 / luts <= 1: has no value"


def test_progress_says_what_remains() -> None:
    assert Progress(16, 0).outlook == "0 of 16 points, 16 left"
    # Earlier points took 2 seconds each.
    assert Progress(16, 6, 2.0).outlook == "6 of 16 points, 10 left in about 0:00:20"
    done = [Point(i, {}, State.COMPLETE) for i in range(4)]
    assert Progress(16, 6, 2.0, done, 20.0).outlook == "10 of 16 points, 6 left in about 0:00:30"
    assert Progress(16, 12, 2.0, done, 20.0).outlook == "16 of 16 points, 0 left"


def test_the_command_goes_on_with_other_limits_and_compares(heald: Any, space: Any) -> None:
    given = 'limits = ["luts <= 100"]\n' + SPACE.replace("[256, 8192]", "8192")
    command = ("explore", "other.toml", "net.onnx", "--executor", "processes:1", "--trials", "1")
    space(given)
    ended = heald(*command, "--json")
    assert ended.code == 0, ended.err
    assert "0 of 1 points, 1 left" in ended.err
    found = json.loads(ended.out)
    assert (found["front"], found["nearest"]["point"]) == ([], 0)
    (excess,) = found["nearest"]["excesses"]
    assert excess["value"] > excess["bound"] == 100
    space(given.replace("100", "900000"))
    ended = heald(*command, "--compare", "0", "--json")
    assert ended.code == 0, ended.err
    assert "judging kept points anew, 0 of 1" in ended.err
    found = json.loads(ended.out)
    assert found["nearest"] is None
    (compared,) = found["comparisons"]
    assert (compared["a"], compared["b"]) == ("net.onnx on test, the base", "net.onnx on point 0")
    assert compared["total"]["b"]["cycles"] == found["front"][0]["cycles"]
    assert {"field": "acc_bytes", "a": "4096", "b": "8192"} in compared["configuration"]
    ended = heald(*command, "--compare", "7")
    told = "point 7 is not among the 1 finished points of study 'other-net' in sqlite:///other-net.db"
    assert (ended.code, ended.err.splitlines()[-1]) == (2, f"heald: --compare: {told}")


def test_points_are_compared_with_each_other_and_none_is_evaluated(heald: Any, folder: Path) -> None:
    command = ("explore", "space.toml", "net.onnx", "--executor", "processes:1")
    before = sorted(folder.iterdir())
    ended = heald(*command, "--compare", "3,2")
    told = (
        "sqlite:///space-net.db has no study 'space-net': give the database of the exploration with --storage"
    )
    assert (ended.code, ended.err.splitlines()[-1]) == (2, f"heald: --compare: {told}")
    assert sorted(folder.iterdir()) == before
    assert heald(*command, "--compare", "3,x").err == (
        "heald: --compare must be a point, or two with a comma, not '3,x' (for example 5,0)\n"
    )
    assert heald(*command, "--trials", "4").code == 0
    ended = heald(*command, "--compare", "3,2", "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert (found["trials"], found["points_per_second"]) == (4, 0.0)
    (compared,) = found["comparisons"]
    assert (compared["a"], compared["b"]) == ("net.onnx on point 2", "net.onnx on point 3")
    assert {"field": "load_a_latency", "a": "6", "b": "20"} in compared["configuration"]
