"""The search with lost workers, failing databases, and samplers that must not repeat themselves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from sqlalchemy.exc import OperationalError

from cosim.session.pareto import dominates, hypervolume, vector
from heald.exploration import worker
from heald.exploration.command import Prepared, Request, fingerprints, gathered, prepare
from heald.exploration.evaluate import Evaluation
from heald.exploration.feasible import Rules, decide
from heald.exploration.results import (
    Point,
    State,
    ranked,
)
from heald.exploration.samplers import SAMPLERS, sampler
from heald.exploration.search import ProcessWorkers, Progress, Search
from heald.exploration.study import Kept, distributions, open_study
from heald.exploration.worker import Answer, ClusterLostError, WorkerLostError
from hw.config import MachineConfig
from hw.errors import InputError
from hw.processes import Ended
from hw.synthesis import Resources
from hw.synthesis.tools import ToolError

POINTS, REFUSED = 16, 2


class Here:
    """Workers that answer at once, in this process, with made-up metrics; `lose` says who loses a worker."""

    patience = 3
    queues = False

    def __init__(self, lose: dict[int, int] | None = None, hinder: int = 1 << 30):
        self.lose, self.hinder = lose or {}, hinder
        self.asked: list[tuple[int, int, int, int]] = []

    def count(self) -> int:
        return 2

    def submit(self, config: MachineConfig) -> Future[Answer]:
        future: Future[Answer] = Future()
        self.asked.append((config.rows, config.cols, config.acc_bytes, config.load_a_latency))
        key = config.rows * 100 + config.cols
        if len(self.asked) > self.hinder:
            future.set_result(Answer(hindered="no space left on device"))
        elif self.lose.get(key, 0) > 0:
            self.lose[key] -= 1
            future.set_exception(BrokenProcessPool("killed"))
        else:
            cycles = 10_000 / (config.rows * config.cols) + config.load_a_latency
            metrics = {"cycles": cycles, "luts": float(config.rows * config.cols)}
            future.set_result(Answer(Evaluation(metrics, (), 0.0)))
        return future

    def heard_of(self, task: Future[Answer]) -> str:
        return ""

    def translate(self, error: BaseException) -> BaseException:
        return WorkerLostError(str(error)) if isinstance(error, BrokenProcessPool) else error

    def close(self, *, kill: bool) -> None:
        pass


@pytest.fixture
def prepared(folder: Path) -> Prepared:
    return prepare(Request(Path("space.toml"), (Path("tiny.onnx"),)))


def opened(p: Prepared) -> Kept:
    return open_study(p.storage, p.name, p.space, fingerprints(p))


def searched(
    kept: Kept, p: Prepared, staff: Any, trials: int = 100, name: str = "grid", seed: int = 0
) -> Progress:
    space = p.space
    made = sampler(name, space.feasible, space.values, distributions(space), trials, seed)
    kept.study.sampler = made
    return Search(kept, made, staff, trials).run()


def keys(points: list[Point]) -> set[str]:
    return {json.dumps(dict(p.parameters), sort_keys=True) for p in points}


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_finds_every_point_once(prepared: Prepared, name: str) -> None:
    kept = opened(prepared)
    try:
        searched(kept, prepared, Here(), 7, name)
        assert len(kept.points()) == 7
        searched(kept, prepared, Here(), 100, name, seed=1)
        points = kept.points()
        # Fewer than there are: the share that is told stays at most all of them.
        told = searched(kept, prepared, Here(), 7, name)
        assert (told.known, told.target, told.done) == (POINTS, POINTS, [])
    finally:
        kept.close()
    assert len(points) == len(keys(points)) == POINTS
    assert sum(p.state is State.REFUSED for p in points) == REFUSED
    reasons = {p.reason for p in points if p.state is State.REFUSED}
    assert all(r is not None and r.startswith("acc_bytes must give each of the 2 banks") for r in reasons)


def test_a_point_that_loses_its_worker_is_evaluated_again(prepared: Prepared) -> None:
    kept, staff = opened(prepared), Here({404: 2})
    try:
        searched(kept, prepared, staff)
        points = kept.points()
    finally:
        kept.close()
    assert len(points) == len(keys(points)) == POINTS
    assert not [p for p in points if p.state is State.FAILED]
    assert len(staff.asked) == POINTS - REFUSED + 2


def test_a_point_that_loses_its_worker_thrice_is_kept_as_failed(prepared: Prepared) -> None:
    kept = opened(prepared)
    try:
        searched(kept, prepared, Here({404: 12}))
        points = kept.points()
    finally:
        kept.close()
    failed = [p for p in points if p.state is State.FAILED]
    assert [dict(p.parameters)["rows"] for p in failed] == [4] * 4
    assert all(p.reason == "killed its worker 3 times: killed" for p in failed)
    assert len(points) == len(keys(points)) == POINTS


def test_what_is_no_matter_of_the_point_stops_the_search_and_leaves_it_open(prepared: Prepared) -> None:
    kept = opened(prepared)
    try:
        with pytest.raises(InputError, match="no space left on device; the same command resumes from here"):
            searched(kept, prepared, Here(hinder=5))
        assert 4 <= len(kept.points()) <= 7
        left = kept.unfinished()
        assert len(left) in (1, 2)
        second = Here()
        searched(kept, prepared, second)
        points = kept.points()
    finally:
        kept.close()
    assert len(points) == len(keys(points)) == POINTS
    # What was in flight keeps its number.
    assert {n for n, _ in left} <= {p.number for p in points}
    assert max(p.number for p in points) == POINTS - 1


def test_limits_become_constraints_of_the_study(folder: Path, space: Any) -> None:
    p = prepare(
        Request(
            space('limits = ["luts <= 32"]\n' + (folder / "space.toml").read_text()), (Path("tiny.onnx"),)
        )
    )
    kept = opened(p)
    try:
        searched(kept, p, Here())
        points = kept.points()
        best = {t.number for t in kept.study.best_trials}
        front = set(gathered(p, kept, 0.0).front)
    finally:
        kept.close()
    beyond = [x for x in points if x.state is State.INFEASIBLE]
    assert {dict(x.parameters)["rows"] * dict(x.parameters)["cols"] for x in beyond} == {64}
    assert all(x.reason == "beyond luts <= 32" and x.metrics["luts"] == 64 for x in beyond)
    # Optuna counts points with equal values on the front, we count the first of them.
    assert front <= best
    assert not best & {x.number for x in beyond}


def test_a_point_for_which_a_limit_has_no_value_is_kept_as_infeasible(folder: Path, space: Any) -> None:
    limits = 'limits = ["cycles / (luts - 16) <= 1e9", "luts <= 32"]\n'
    p = prepare(Request(space(limits + (folder / "space.toml").read_text()), (Path("tiny.onnx"),)))
    kept = opened(p)
    try:
        searched(kept, p, Here())
        points = kept.points()
        found = gathered(p, kept, 0.0)
    finally:
        kept.close()
    assert len(points) == len(keys(points)) == POINTS
    reasons = {x.metrics["luts"]: str(x.reason) for x in points if x.state is State.INFEASIBLE}
    assert reasons.keys() == {16, 64}
    assert reasons[64] == "beyond luts <= 32"
    assert reasons[16].startswith("limit 'cycles / (luts - 16) <= 1e9' has no value where cycles = 6")
    assert {x.metrics["luts"] for x in points if x.state is State.COMPLETE} == {32}
    assert all(found.point(number).metrics["luts"] == 32 for number in found.front)


def test_a_point_that_cannot_be_synthesised_is_kept_as_failed(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    def synthesise(text: str, *arguments: Any) -> Any:
        if text == "4 4":
            raise ToolError("yosys", 1, ["ERROR: not this one"])
        return SimpleNamespace(resources=Resources(1, 2, 3, 4))

    class Synthesising(Here):
        def submit(self, config: MachineConfig) -> Future[Answer]:
            future: Future[Answer] = Future()
            future.set_result(worker.run("synthesis", config))
            return future

    monkeypatch.setattr("hw.emit.verilog", lambda config, trace: f"{config.rows} {config.cols}")
    monkeypatch.setattr("hw.synthesis.yosys.synthesise", synthesise)
    worker.load("synthesis", replace(prepared.workload, synthesis=True))
    kept = opened(prepared)
    try:
        searched(kept, prepared, Synthesising())
        points = kept.points()
        assert not kept.unfinished()
    finally:
        kept.close()
    assert len(points) == len(keys(points)) == POINTS
    failed = [p for p in points if p.state is State.FAILED]
    assert [(p.hw["rows"], p.hw["cols"]) for p in failed] == [(4, 4)] * 4
    assert {p.reason for p in failed} == {"yosys failed (exit code 1): ERROR: not this one"}
    assert sum(p.state is State.COMPLETE for p in points) == POINTS - REFUSED - 4


def test_a_study_of_something_else_is_refused(prepared: Prepared, folder: Path) -> None:
    opened(prepared).close()
    (folder / "space.toml").write_text(
        (folder / "space.toml").read_text().replace("[256, 8192]", "[512, 8192]")
    )
    other = prepare(prepared.request)
    changed = r"\(parameters.acc_bytes: \[256, 8192\] there, \[512, 8192\] here\)"
    told = rf"study 'space-tiny' was made with another space {changed}; .* another database with --storage"
    with pytest.raises(InputError, match=told):
        opened(other)
    (folder / "foreign.db").touch()
    optuna.create_study(storage="sqlite:///foreign.db", study_name="space-tiny").ask()
    with pytest.raises(InputError, match="is not one of heald explore"):
        open_study("sqlite:///foreign.db", other.name, other.space, fingerprints(other))


def test_a_database_of_another_optuna_is_told(prepared: Prepared) -> None:
    opened(prepared).close()
    with contextlib.closing(sqlite3.connect("space-tiny.db")) as base:
        base.execute("update alembic_version set version_num = 'v99.0.a'")
        base.commit()
    with pytest.raises(InputError, match=r"--storage sqlite:///space-tiny.db: .* no longer compatible"):
        opened(prepared)


def test_a_study_that_another_program_removes_ends_the_search(prepared: Prepared) -> None:
    kept = opened(prepared)
    try:
        optuna.delete_study(study_name="space-tiny", storage=prepared.storage)
        with pytest.raises(InputError, match=r"space-tiny.db: the study was removed by another program"):
            searched(kept, prepared, Here())
    finally:
        kept.close()


def test_a_database_that_is_gone_when_influences_are_asked_for(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*arguments: Any, **options: Any) -> Any:
        cause = sqlite3.OperationalError("disk I/O error")
        raise OperationalError("select", {}, cause) from cause

    kept = opened(prepared)
    try:
        searched(kept, prepared, Here())
        assert gathered(prepared, kept, 0.0).importance.keys() == {"cycles", "luts"}
        monkeypatch.setattr("optuna.importance.get_param_importances", gone)
        with pytest.raises(InputError, match=r"--storage sqlite:///space-tiny.db: disk I/O error"):
            gathered(prepared, kept, 0.0)
    finally:
        kept.close()


def test_small_values_tell_of_influence_as_large_ones_do(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Alike(Here):
        def submit(self, config: MachineConfig) -> Future[Answer]:
            future: Future[Answer] = Future()
            metrics = {"cycles": float(config.rows), "luts": 1e-5 + 1e-10 * config.rows}
            future.set_result(Answer(Evaluation(metrics, (), 0.0)))
            return future

    def nothing(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("Encountered zero total variance in all trees.")

    kept = opened(prepared)
    try:
        searched(kept, prepared, Alike())
        found = gathered(prepared, kept, 0.0).importance
        assert found["luts"]["rows"] == pytest.approx(found["cycles"]["rows"])
        assert found["luts"]["rows"] > 0.9
        # What optuna raises where no tree sees a difference.
        monkeypatch.setattr("optuna.importance.get_param_importances", nothing)
        assert gathered(prepared, kept, 0.0).importance == {}
    finally:
        kept.close()


def test_one_exploration_at_a_time(prepared: Prepared) -> None:
    kept = opened(prepared)
    try:
        with pytest.raises(InputError, match="another exploration is using study 'space-tiny'"):
            opened(prepared)
    finally:
        kept.close()
    opened(prepared).close()


def test_an_interrupt_here_is_no_lost_worker(prepared: Prepared) -> None:
    class Interrupted(Future[Answer]):
        def result(self, timeout: float | None = None) -> Answer:
            raise Ended(signal.SIGINT)

    class Staff(Here):
        def submit(self, config: MachineConfig) -> Future[Answer]:
            future = Interrupted()
            future.set_result(Answer(refused="nothing"))
            return future

        def translate(self, error: BaseException) -> BaseException:
            return ProcessWorkers("test", prepared.workload, 1).translate(error)

    kept = opened(prepared)
    try:
        with pytest.raises(Ended):
            searched(kept, prepared, Staff())
    finally:
        kept.close()


def test_a_killed_process_is_replaced(prepared: Prepared) -> None:
    """A real pool; its process is killed whenever one of the first two points is on its way."""
    staff = ProcessWorkers("test", prepared.workload, 1)
    kept = opened(prepared)
    space = prepared.space
    made = sampler("grid", space.feasible, space.values, distributions(space), 5, 0)
    kept.study.sampler = made
    killed: list[int] = []

    def kill(progress: Progress) -> None:
        if progress.flying and len(killed) < 2 and len(progress.done) == len(killed) and staff.slots:
            killed.append(staff.slots[-1].pid.result())
            os.kill(killed[-1], (signal.SIGKILL, signal.SIGTERM)[len(killed) - 1])

    try:
        Search(kept, made, staff, 5, kill).run()
        points = kept.points()
    finally:
        staff.close(kill=True)
        kept.close()
    assert len(set(killed)) == 2
    assert len(points) == len(keys(points)) == 5
    assert all(p.state is State.COMPLETE and p.models[0].cycles > 0 for p in points)


def test_a_process_that_cannot_be_started(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> Any:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("heald.exploration.search.ProcessPoolExecutor.submit", full)
    kept, staff = opened(prepared), ProcessWorkers("test", prepared.workload, 7)
    try:
        with pytest.raises(InputError, match=r"--executor: process 1 of 7 cannot be started: .* unavailable"):
            searched(kept, prepared, staff)
        assert len(kept.unfinished()) == 1
    finally:
        staff.close(kill=True)
        kept.close()


def test_a_cluster_that_is_lost_ends_the_search(prepared: Prepared) -> None:
    class Lost(Here):
        def count(self) -> int:
            if len(self.asked) >= 5:
                raise ClusterLostError("the cluster was lost: nobody answers")
            return 1

    kept = opened(prepared)
    try:
        with pytest.raises(InputError, match="nobody answers; the same command resumes from here"):
            searched(kept, prepared, Lost())
        assert 2 <= len(kept.points()) < POINTS
    finally:
        kept.close()


def test_ranks_and_volumes() -> None:
    how = {"cycles": "minimize", "fmax_mhz": "maximize"}
    values = [(10, 50), (20, 70), (20, 60), (30, 80), (10, 50), (40, 40)]
    points = [
        Point(i, {}, State.COMPLETE, metrics={"cycles": c, "fmax_mhz": f}) for i, (c, f) in enumerate(values)
    ]
    points.append(Point(6, {}, State.INFEASIBLE, metrics={"cycles": 1, "fmax_mhz": 99}))
    assert [[p.number for p in rank] for rank in ranked(points, how)] == [[0, 1, 3], [4, 2], [5]]
    assert dominates(vector(points[1].metrics, how), vector(points[2].metrics, how))
    assert hypervolume([(1.0, 3.0), (2.0, 1.0), (9.0, 9.0)], (4.0, 4.0)) == 3 * 1 + 2 * 2
    cube = [(0.0, 0.0, 1.0), (1.0, 1.0, 0.0), (1.5, 1.5, 0.5)]
    assert hypervolume(cube, (2.0, 2.0, 2.0)) == 4 * 1 + 1 * 1


@pytest.mark.parametrize("number", [1, 3])
def test_the_numbers_of_a_grid_depend_on_no_worker(folder: Path, number: int) -> None:
    """All points in their order, after one of each CGRA: different loops are mapped side by side."""

    class Several(Here):
        def count(self) -> int:
            return number

    (folder / "space.toml").write_text(
        'base = "test"\n[parameters]\ncgra = ["none", "small3x3"]\nrows = [4, 8]\nload_a_latency = [6, 20]\n'
    )
    p = prepare(Request(Path("space.toml"), (Path("tiny.onnx"),)))
    kept = opened(p)
    try:
        searched(kept, p, Several())
        points = sorted(kept.points(), key=lambda point: point.number)
    finally:
        kept.close()
    order = [p.space.feasible.point(i) for i in (0, 4, 1, 2, 3, 5, 6, 7)]
    assert [point.parameters for point in points] == order
    assert [point["cgra"] for point in order[:3]] == ["none", "small3x3", "none"]


def test_a_grid_beyond_all_memory_has_a_first_point() -> None:
    values = {f"p{i}": tuple(range(1000)) for i in range(12)}
    space = decide(values, Rules((), {}, {}, {}), "place")
    made = sampler("grid", space, values, {}, 10, 0)
    assert space.size == 10**36
    assert made._any() == dict.fromkeys(values, 0)
