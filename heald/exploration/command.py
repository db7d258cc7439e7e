"""An exploration from space and models to its results, as `heald explore` runs it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial

from cosim import energy
from cosim.session.metrics import CLOCKED, MINIMIZE
from cosim.session.pareto import dominated, extremes, vector
from cosim.toolchain import check_tools
from heald.exploration import worker
from heald.exploration.evaluate import LoadedModel, Workload, chosen, confirm, load_model
from heald.exploration.results import Exploration, Point, State, ranked
from heald.exploration.samplers import sampler
from heald.exploration.search import Progress, Search, Workers, workers
from heald.exploration.space import Space, read
from heald.exploration.study import Fingerprints, Kept, distributions, nearest, open_study, storage_errors
from heald.sources import GraphSource, read_source
from hw.area.measure import has_clock
from hw.config import FIELDS
from hw.errors import InputError
from hw.fabric import Fabric
from sw import plugins
from sw.ir.program import Program

#: Default number of trials of a search that is not a grid.
TRIALS = 100
#: A grid with more points than this is evaluated only on request.
LARGE_GRID = 100_000
#: Finished points needed to estimate the influence of parameters.
ENOUGH = 8


@dataclass(frozen=True)
class Request:
    """What the user asked for: a space or its file, and models for `heald.sources.read_source`."""

    space: Path | Space
    models: tuple[Any, ...]
    sampler: str = "grid"
    trials: int | None = None
    storage: str | None = None
    executor: str = "processes"
    confirm: int = 0
    #: Points that the study must already have; nothing is evaluated.
    compare: tuple[int, ...] = ()
    family: str = "ecp5"
    synthesis: bool = False
    seed: int = 0
    energy: Path | None = None
    allow_host: bool = False
    dims: Mapping[str, int] = field(default_factory=dict)
    fixed_point: bool = False
    sim: str = "verilator"


@dataclass(frozen=True)
class Prepared:
    """A request that was read and is valid."""

    request: Request
    space: Space
    workload: Workload
    loaded: tuple[LoadedModel, ...]
    trials: int
    name: str
    storage: str


def prepare(request: Request) -> Prepared:
    """Read everything; raises `InputError` for invalid input, before anything is written."""
    for path in (request.space, *request.models):
        _check_name(path)
    space = request.space if isinstance(request.space, Space) else read(request.space)
    models = tuple(_model(model, request) for model in request.models)
    table = energy.read(request.energy)
    workload = Workload(models, request.family, request.synthesis, table, tuple(plugins.LOADED))
    loaded = tuple(map(load_model, models))
    _check_area(space, workload)
    if request.synthesis and request.executor.startswith("processes"):
        from hw.synthesis.tools import find

        find("yosys")
    if request.confirm:
        check_tools(request.sim)
    size = space.feasible.size
    trials = request.trials
    if trials is None:
        if request.sampler == "grid" and size > LARGE_GRID:
            raise InputError(
                f"{space.file}: the grid has {size:,} points: --trials, another --sampler or fewer values "
                "are needed"
            )
        trials = size if request.sampler == "grid" else min(TRIALS, size)
    name = "-".join([space.name, *(Path(model.title).stem for model in models)])
    storage = request.storage or f"sqlite:///{name}.db"
    return Prepared(request, space, workload, loaded, trials, name, storage)


def _model(model: Any, request: Request) -> GraphSource:
    try:
        missing = isinstance(model, Path) and not model.is_file()
    except OSError as error:
        raise InputError(f"{model}: cannot be read: {error.strerror}") from None
    if missing:
        raise InputError(f"{model}: no such file; a model is an ONNX file")
    options = {"dims": request.dims, "fixed_point": request.fixed_point}
    source = read_source(model, allow_host=request.allow_host, **options)
    if isinstance(source, Program):
        raise InputError(f"{source.name}: is a tile program; a model or a problem is needed")
    return source


def _check_name(path: object) -> None:
    """Raise `InputError` for a name that a database cannot store as text."""
    if not isinstance(path, str | Path):
        return
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise InputError(f"{str(path)!a}: the name of a file must be UTF-8 here") from None


def _check_area(space: Space, workload: Workload) -> None:
    """Raise `InputError` if resources, or a clock that objectives and limits need, are not available."""
    from hw.area.model import is_fitted

    if not is_fitted(workload.family) and not workload.synthesis:
        raise InputError(f"--family {workload.family} has no area model: --synth is needed")
    needed = {*space.objectives, *(name for limit in space.limits for name in limit.names)} & {*CLOCKED}
    if needed and not has_clock(workload.family):
        name = min(needed)
        raise InputError(
            f"{space.file}: {name} needs a clock, which is not known for family {workload.family}"
        )


def fingerprints(prepared: Prepared) -> Fingerprints:
    """What the metrics of a study's points depend on: the parts of the space, and hashes of the rest."""
    space, workload = prepared.space, prepared.workload
    meaning = {
        "base": {name: _text(getattr(space.base, name)) for name in FIELDS if name != "name"},
        "parameters": {**space.fixed, **{name: list(values) for name, values in space.values.items()}},
        "fabrics": {name: _text(grid) for name, grid in space.grids.items()},
        "derived": {name: formula.text for name, formula in space.derived.items()},
        "constraints": [c.text for c in space.constraints],
    }
    found = {
        "list of models": json.dumps(
            [
                [Path(m.title).name, {n: hashlib.sha256(d).hexdigest() for n, d in sorted(m.files().items())}]
                for m in workload.models
            ]
            + [getattr(m, "allow_host", False) for m in workload.models]
        ),
        "family or way of measuring": f"{workload.family} {workload.synthesis}",
        "energy table": repr(workload.table),
        "version of the compiler": "".join((worker.compiler(), *plugins.LOADED.values())),
    }
    return {"space": meaning, **{name: _digits(text) for name, text in found.items()}}


def _text(value: object) -> object:
    return _digits(json.dumps(value.as_dict(), sort_keys=True)) if isinstance(value, Fabric) else value


def _digits(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def explore(
    prepared: Prepared,
    report: Callable[[Progress], None],
    note: Callable[[str], None],
    tell: Callable[[str], None] = lambda text: None,
) -> Exploration:
    """Search, confirm and gather; raises `InputError` if it cannot go on, with all finished points saved.

    `tell` is called with the progress of confirmations. An interrupt leaves the study intact and is passed
    on.
    """
    made_from = fingerprints(prepared)
    identity = _digits(json.dumps(made_from, sort_keys=True))
    staff = workers(prepared.request.executor, identity, prepared.workload)
    killed = True
    try:
        with contextlib.closing(_open(prepared, made_from, note)) as kept:
            rate = 0.0 if prepared.request.compare else _search(prepared, kept, staff, report, note).rate
            staff.close(kill=False)
            killed = False
            _confirm(prepared, kept, note, tell)
            return gathered(prepared, kept, rate)
    finally:
        if killed:
            staff.close(kill=True)


def kept_so_far(prepared: Prepared) -> Exploration:
    """The results that a study holds, without any evaluation."""
    with contextlib.closing(_open(prepared, fingerprints(prepared), lambda text: None)) as kept:
        return gathered(prepared, kept, 0.0)


def _open(prepared: Prepared, made_from: Fingerprints, note: Callable[[str], None]) -> Kept:
    needed = prepared.request.compare
    return open_study(prepared.storage, prepared.name, prepared.space, made_from, note, needed)


def _search(
    prepared: Prepared,
    kept: Kept,
    staff: Workers,
    report: Callable[[Progress], None],
    note: Callable[[str], None],
) -> Progress:
    request, space = prepared.request, prepared.space
    relative = distributions(space)
    # A resumed search must not draw the same points again.
    seed = (request.seed + 7919 * len(kept.points())) % (1 << 32)
    made = sampler(request.sampler, space.feasible, space.values, relative, prepared.trials, seed)
    kept.study.sampler = made
    return Search(kept, made, staff, prepared.trials, report, note).run()


def _confirm(
    prepared: Prepared, kept: Kept, note: Callable[[str], None], tell: Callable[[str], None]
) -> None:
    """Run the best points on the RTL, except those already confirmed."""
    known = kept.confirmations()
    ranks = ranked(kept.points(), prepared.space.objectives)
    best = chosen(ranks, prepared.request.confirm)
    for i, point in enumerate(best):
        if point.number in known and known[point.number].confirmed:
            continue
        note(f"confirming point {point.number} on the RTL ({i + 1} of {len(best)})")
        config = prepared.space.machine(point.parameters).replace(name=f"point {point.number}")
        found = confirm(point, config, prepared.loaded, prepared.request.sim, tell)
        note(str(found))
        kept.confirm(found)


def gathered(prepared: Prepared, kept: Kept, rate: float) -> Exploration:
    """All results of a study."""
    space, request = prepared.space, prepared.request
    # Refused points get their machine's fields too, as far as they have any.
    points = [p if p.hw else replace(p, hw={**space.fixed, **p.parameters}) for p in kept.points()]
    ranks = ranked(points, space.objectives)
    front = ranks[0] if ranks else []
    complete = [vector(p.metrics, space.objectives) for p in points if p.state is State.COMPLETE]
    best, worst = extremes(complete, len(space.objectives))
    objectives = space.objectives.items()
    volume = dominated([vector(p.metrics, space.objectives) for p in front], best, worst)
    return Exploration(
        name=prepared.name,
        base=space.base.name,
        models=tuple(model.title for model in prepared.workload.models),
        parameters=space.parameters,
        derived={name: formula.text for name, formula in space.derived.items()},
        constraints=tuple(c.text for c in space.constraints),
        limits=tuple(limit.text for limit in space.limits),
        objectives=dict(space.objectives),
        size=space.feasible.size,
        sampler=request.sampler,
        family=request.family,
        measured=request.synthesis,
        energy_table=prepared.workload.table.source,
        points=tuple(points),
        front=tuple(p.number for p in front),
        confirmations=tuple(kept.confirmations().values()),
        importance=importance(kept, points),
        hypervolume=volume,
        # The worst values, in the metrics' own signs.
        reference={
            n: abs(w) if how == MINIMIZE else -w for (n, how), w in zip(objectives, worst, strict=True)
        },
        points_per_second=rate,
        nearest=nearest(points, space),
    )


def _value(objective: int, least: float, spread: float, trial: FrozenTrial) -> float:
    """An objective scaled to 0..1: the trees treat differences below 1e-8 as none."""
    assert trial.values is not None
    return (float(trial.values[objective]) - least) / spread


def importance(kept: Kept, points: list[Point]) -> dict[str, dict[str, float]]:
    """The influence of each parameter on each objective by fANOVA; empty if there are too few points."""
    done = [p for p in points if p.state in (State.COMPLETE, State.INFEASIBLE)]
    if len(done) < ENOUGH:
        return {}
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances  # takes seconds

    found: dict[str, dict[str, float]] = {}
    for i, name in enumerate(kept.space.objectives):
        values = [p.metrics[name] for p in done]
        if min(values) == max(values):
            continue
        target = functools.partial(_value, i, min(values), max(values) - min(values))
        evaluator = FanovaImportanceEvaluator(seed=0)
        try:
            with storage_errors(kept.where):
                shares = get_param_importances(kept.study, evaluator=evaluator, target=target)
        except RuntimeError:
            continue  # no tree sees a difference
        found[name] = {parameter: float(share) for parameter, share in shares.items()}
    return found
