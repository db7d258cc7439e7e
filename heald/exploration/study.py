"""The database of an exploration: an optuna study, which can be interrupted at any time.

An evaluated point is COMPLETE, with the limits of the space as optuna's constraints. A refused point is
PRUNED, a failed one is FAIL, both with the user attribute `reason`. Points in flight are RUNNING. If an
exploration is killed, they are evaluated under the same number when it resumes, so nothing is lost or
doubled. Metrics are user attributes; everything else about a point is one system attribute.

Metrics do not depend on objectives and limits. When these change, all points are judged again by their
metrics in a second study, which then replaces the first. If this is interrupted, one of the two is complete.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import json
import re
import sqlite3
import warnings
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import filelock
import optuna
import sqlalchemy
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from cosim.session.metrics import model_from
from heald.comparison import brief, differences
from heald.exploration.results import Confirmation, Excess, Nearest, Point, State
from heald.exploration.space import Space, beyond, sides
from heald.exploration.worker import Answer
from hw import processes
from hw.config import NO_GRID, MachineConfig
from hw.errors import InputError

#: Key of Heald's data in the study and in each trial.
_KEY = "heald"
#: Key of the objectives and limits by which the study's points were judged.
_JUDGED_BY = "judged by"
#: Number of points between progress messages of judging.
_TOLD = 200
#: Suffix of a study's name while its points are judged again.
_ANEW = " (judged anew)"
#: Prefix of a limit's text: the system attribute that optuna takes as a constraint.
_LIMIT = "constraints:"
#: Key of the RTL runs; the study holds them, as finished trials cannot change.
_CONFIRMED = "confirmed on the RTL"
#: Seconds after which a database counts as unreachable.
PATIENCE = 5
#: Databases with advisory locks, and the command; closing the connection releases the lock.
_LOCKS = {"postgresql": "select pg_try_advisory_lock({})", "mysql": "select get_lock('heald-{}', 0)"}
_DRIVERS = {"postgresql": "postgresql+psycopg"}
#: Optuna's message for a row that no longer exists.
_GONE = "Record does not exist"
_PASSWORD = re.compile(r"(://[^/@]*?:).*@")

Fingerprints = Mapping[str, Any]


class StorageError(InputError):
    """The database cannot be read or written now; its contents are intact."""


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """The parameters as optuna distributions: even ranges as such, everything else as a list."""
    found: dict[str, BaseDistribution] = {}
    for name, values in space.values.items():
        numbers = [v for v in values if isinstance(v, int)]
        steps = {b - a for a, b in itertools.pairwise(numbers)}
        if len(numbers) == len(values) and len(numbers) > 2 and len(steps) == 1:
            found[name] = IntDistribution(numbers[0], numbers[-1], step=steps.pop())
        else:
            found[name] = CategoricalDistribution(values)
    return found


@dataclass
class Kept:
    """An open study, which is locked for this exploration until it is closed."""

    study: optuna.Study
    storage: optuna.storages.RDBStorage
    space: Space
    where: str
    _lock: contextlib.ExitStack

    def points(self) -> list[Point]:
        """All finished points, by number."""
        with storage_errors(self.where):
            trials = self.study.get_trials(deepcopy=False)
        return [self._point(t) for t in trials if t.state.is_finished() and self._whole(t)]

    def unfinished(self) -> list[tuple[int, dict[str, Any]]]:
        """Points that an interrupted exploration left in flight, by number, with their parameters."""
        with storage_errors(self.where):
            trials = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [(t.number, dict(t.params)) for t in trials if self._whole(t)]

    def _whole(self, trial: FrozenTrial) -> bool:
        """Whether all parameters are set: an exploration may be killed between two of them."""
        return trial.params.keys() == self.space.values.keys()

    def _point(self, trial: FrozenTrial) -> Point:
        states = {TrialState.PRUNED: State.REFUSED, TrialState.FAIL: State.FAILED}
        held = json.loads(trial.system_attrs.get(_KEY, "{}"))
        reason = trial.user_attrs.get("reason")
        state = states.get(trial.state, State.COMPLETE)
        if state is State.COMPLETE and any(v > 0 for v in trial.constraints.values()):
            state = State.INFEASIBLE
        return Point(
            trial.number,
            dict(trial.params),
            state,
            held.get("hw", {}),
            reason,
            held.get("metrics", {}),
            tuple(model_from(m) for m in held.get("models", ())),
            held.get("seconds", 0.0),
        )

    def confirmations(self) -> dict[int, Confirmation]:
        """RTL runs of points, by number."""
        with storage_errors(self.where):
            held = self.study.user_attrs.get(_CONFIRMED, [])
        return {c["point"]: Confirmation(**c) for c in held}

    def confirm(self, found: Confirmation) -> None:
        """Save the RTL run of a point."""
        known = self.confirmations() | {found.point: found}
        with storage_errors(self.where):
            self.study.set_user_attr(_CONFIRMED, [dataclasses.asdict(c) for c in known.values()])

    def ask(self) -> tuple[int, dict[str, Any]]:
        """Ask the study's sampler for a new point."""
        with storage_errors(self.where):
            trial = self.study.ask(distributions(self.space))
            return trial.number, dict(trial.params)

    def keep(self, number: int, config: MachineConfig | None, answer: Answer) -> Point:
        """Save the result of a point: its evaluation, or why it was refused or failed."""
        held: dict[str, Any] = {} if config is None else {"hw": fields_of(config)}
        found, verdict = answer.evaluation, Verdict(reason=answer.refused or answer.failed)
        if answer.refused is not None:
            verdict.state = TrialState.PRUNED
        if found is not None:
            verdict = judged(self.space, found.metrics)
            models = [dataclasses.asdict(m) for m in found.models]
            held |= {"metrics": dict(found.metrics), "models": models, "seconds": found.seconds}
        with storage_errors(self.where):
            study_id = self.storage.get_study_id_from_name(self.study.study_name)
            trial_id = self.storage.get_trial_id_from_study_id_trial_number(study_id, number)
            for name, value in found.metrics.items() if found is not None else ():
                self.storage.set_trial_user_attr(trial_id, name, value)
            # Like `Trial.set_constraint`, which warns if an interrupted exploration had already set it.
            for text, value in verdict.over.items():
                self.storage.set_trial_system_attr(trial_id, _LIMIT + text, value)
            if verdict.reason is not None:
                self.storage.set_trial_user_attr(trial_id, "reason", verdict.reason)
            self.storage.set_trial_system_attr(trial_id, _KEY, json.dumps(held))
            self.study.tell(number, verdict.values, state=verdict.state)
            return self._point(self.storage.get_trial(trial_id))

    def drop_parts(self) -> None:
        """End trials that lack some of their parameters: they are no points."""
        with storage_errors(self.where):
            for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                if not self._whole(trial):
                    self.study.tell(trial.number, state=TrialState.FAIL)

    def close(self) -> None:
        """Release the study."""
        with contextlib.suppress(SQLAlchemyError):
            self._lock.close()


@dataclass
class Verdict:
    """A point as optuna sees it: objectives, excess over each limit, and what is wrong."""

    state: TrialState = TrialState.FAIL
    values: list[float] | None = None
    over: dict[str, float] = field(default_factory=dict)
    reason: str | None = None
    excesses: list[Excess] = field(default_factory=list)


def judged(space: Space, metrics: Mapping[str, float]) -> Verdict:
    """Judge metrics by the objectives and limits of a space; an undefined limit counts as exceeded."""
    if missing := [name for name in space.objectives if name not in metrics]:
        return Verdict(reason=f"has no value of the objective {', '.join(missing)}")
    found = Verdict(TrialState.COMPLETE, [metrics[name] for name in space.objectives])
    without = []
    for limit in space.limits:
        try:
            found.over[limit.text] = beyond(limit, metrics)
            if found.over[limit.text] > 0:
                found.excesses.append(Excess(limit.text, *sides(limit, metrics)))
        except InputError as error:
            found.over[limit.text] = 1.0
            found.excesses.append(Excess(limit.text))
            without.append(f"limit {error}")
    broken = [e.limit for e in found.excesses if e.value is not None]
    found.reason = "; ".join(["beyond " + ", ".join(broken)] * bool(broken) + without) or None
    return found


def nearest(points: list[Point], space: Space) -> Nearest | None:
    """The point with the least total excess over limits, as fractions; None if a point is within all."""
    verdicts = {p.number: judged(space, p.metrics) for p in points if p.state is State.INFEASIBLE}
    if not verdicts or any(p.state is State.COMPLETE for p in points):
        return None
    number = min(verdicts, key=lambda n: (sum(max(0.0, v) for v in verdicts[n].over.values()), n))
    return Nearest(number, tuple(verdicts[number].excesses))


def fields_of(config: MachineConfig) -> dict[str, Any]:
    """All fields of a machine, with its fabric by name."""
    values = config.as_dict()
    del values["name"]
    return values | {"cgra": NO_GRID if config.cgra is None else config.cgra.name}


def without_password(url: str) -> str:
    """A URL that is safe to show, whether or not it is valid."""
    return _PASSWORD.sub(r"\1***@", url)


def open_study(
    url: str,
    name: str,
    space: Space,
    made_from: Fingerprints,
    note: Callable[[str], None] = lambda text: None,
    needed: Collection[int] = (),
) -> Kept:
    """Open the named study, created if missing, and judged again if objectives or limits changed.

    `made_from` are fingerprints of everything that metrics depend on; `needed` are points that must exist.
    Raises `InputError` if the database cannot be reached, if the study was made from something else or lacks
    these points, and if another exploration uses it.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    parsed = _url(url)
    shown = parsed.render_as_string(hide_password=True)
    missing = InputError(
        f"--compare: {shown} has no study {name!r}: give the database of the exploration with --storage"
    )
    if needed and parsed.get_backend_name() == "sqlite" and not Path(str(parsed.database)).exists():
        raise missing
    lock = contextlib.ExitStack()
    try:
        storage = _storage(parsed, shown)
        lock.callback(storage.engine.dispose)
        lock.callback(storage.remove_session)
        _take(lock, storage, parsed, name, shown)
        with storage_errors(shown):
            _finish_exchange(storage, name)
            if name not in optuna.get_all_study_names(storage):
                if needed:
                    raise missing
                _created(storage, name, space)
            study = optuna.load_study(study_name=name, storage=storage)
            _compare(study, made_from, shown)
            if study.user_attrs.get(_JUDGED_BY) != _judged_by(space):
                study = _judged_anew(study, storage, space, note)
        kept = Kept(study, storage, space, shown, lock)
        kept.drop_parts()
        there = {p.number for p in kept.points()} if needed else set()
        if lacking := {*needed} - there:
            raise InputError(
                f"--compare: point {min(lacking)} is not among the {len(there):,} finished points of study "
                f"{name!r} in {shown}"
            )
    except BaseException:
        lock.close()
        raise
    return kept


def _url(url: str) -> sqlalchemy.URL:
    try:
        parsed = make_url(url)
        url.encode()
    except (SQLAlchemyError, ValueError):  # a port that is no number, text that is not Unicode
        raise InputError(
            "--storage must be a URL such as sqlite:///study.db or postgresql://user@host/base, "
            f"not {without_password(url)!a}"
        ) from None
    if parsed.get_backend_name() == "sqlite" and parsed.database not in (None, "", ":memory:"):
        folder = Path(str(parsed.database)).absolute().parent
        try:
            there = folder.is_dir()
        except OSError as error:
            raise InputError(f"--storage {url}: {folder} cannot be read: {error.strerror}") from None
        if not there:
            raise InputError(f"--storage {url}: directory {folder} does not exist")
    elif parsed.get_backend_name() == "sqlite":
        raise InputError(f"--storage {url}: must name a file, as sqlite:///study.db does")
    return parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername))


def _storage(url: sqlalchemy.URL, shown: str) -> optuna.storages.RDBStorage:
    waits = {"sqlite": {"timeout": 30}, "postgresql": {"connect_timeout": PATIENCE}}
    arguments = {"connect_args": waits.get(url.get_backend_name(), {})}
    try:
        with storage_errors(shown):
            return optuna.storages.RDBStorage(url.render_as_string(hide_password=False), arguments)
    except ImportError:
        driver = url.get_driver_name()
        package = "'heald[postgresql]'" if driver == "psycopg" else driver
        raise InputError(
            f"--storage {shown}: its driver {driver} is not installed: pip install {package}"
        ) from None
    except StorageError:
        raise
    except (RuntimeError, TypeError, ValueError) as error:
        # A database of another optuna version, or URL options that the driver does not accept.
        raise InputError(f"--storage {shown}: {error}") from None


def _take(
    lock: contextlib.ExitStack,
    storage: optuna.storages.RDBStorage,
    url: sqlalchemy.URL,
    name: str,
    shown: str,
) -> None:
    """Lock the study until `lock` is closed or this process ends in any way."""
    used = InputError(f"--storage {shown}: another exploration is using study {name!r}")
    kind = url.get_backend_name()
    if kind == "sqlite":
        file = filelock.FileLock(f"{url.database}.lock", timeout=0)
        try:
            lock.enter_context(file)
        except filelock.Timeout:
            raise used from None
        except OSError as error:
            raise InputError(f"--storage {shown}: cannot be locked: {error.strerror}") from None
    elif kind in _LOCKS:
        with storage_errors(shown):
            connection = lock.enter_context(storage.engine.connect())
            number = zlib.crc32(f"heald {name}".encode())
            if not connection.execute(sqlalchemy.text(_LOCKS[kind].format(number))).scalar():
                raise used


def _compare(study: optuna.Study, made_from: Fingerprints, shown: str) -> None:
    held = study.user_attrs.get(_KEY)
    if not isinstance(held, dict):
        if held is not None or study.get_trials(deepcopy=False):
            raise InputError(f"--storage {shown}: study {study.study_name!r} is not one of heald explore")
        study.set_user_attr(_KEY, dict(made_from))
        return
    other = [key for key, value in made_from.items() if held.get(key) != value]
    if other:
        changes = differences(held.get("space"), made_from["space"])
        listed = "; ".join(f"{name}: {brief(a)} there, {brief(b)} here" for name, a, b in changes if name)
        raise InputError(
            f"--storage {shown}: study {study.study_name!r} was made with another "
            f"{' and another '.join(other)}{f' ({listed})' * bool(listed)}; only limits and objectives may "
            "change: name another database with --storage"
        )


def _judged_by(space: Space) -> list[Any]:
    """Objectives, whose order matters, and limits."""
    return [[list(each) for each in space.objectives.items()], [limit.text for limit in space.limits]]


def _created(storage: optuna.storages.RDBStorage, name: str, space: Space) -> optuna.Study:
    directions = [optuna.study.StudyDirection[how.upper()] for how in space.objectives.values()]
    study = optuna.create_study(storage=storage, study_name=name, directions=directions)
    with warnings.catch_warnings():
        # The dashboard shows these names; optuna calls them experimental since 3.2.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.set_metric_names(list(space.objectives))
    study.set_user_attr(_JUDGED_BY, _judged_by(space))
    return study


def _judged_anew(
    study: optuna.Study, storage: optuna.storages.RDBStorage, space: Space, note: Callable[[str], None]
) -> optuna.Study:
    """Judge all points of a study by other objectives and limits, and replace the study."""
    trials = study.get_trials()
    made = _created(storage, study.study_name + _ANEW, space)
    for key, value in study.user_attrs.items():
        if key != _JUDGED_BY:
            made.set_user_attr(key, value)
    for i, trial in enumerate(trials):
        if i % _TOLD == 0:
            note(f"limits or objectives changed: judging kept points anew, {i:,} of {len(trials):,}")
        made.add_trial(_trial_judged_anew(trial, space))
    optuna.delete_study(study_name=study.study_name, storage=storage)
    _finish_exchange(storage, study.study_name)
    return optuna.load_study(study_name=study.study_name, storage=storage)


def _trial_judged_anew(trial: FrozenTrial, space: Space) -> FrozenTrial:
    held = json.loads(trial.system_attrs.get(_KEY, "{}"))
    if trial.state.is_finished() and "metrics" not in held:
        return trial  # refused or failed under any limits
    made = copy.copy(trial)
    made.system_attrs = {k: v for k, v in trial.system_attrs.items() if not k.startswith(_LIMIT)}
    made.user_attrs = {k: v for k, v in trial.user_attrs.items() if k != "reason"}
    if trial.state.is_finished():
        verdict = judged(space, held["metrics"])
        made.state, made.values = verdict.state, verdict.values
        made.system_attrs |= {_LIMIT + text: value for text, value in verdict.over.items()}
        made.user_attrs |= {} if verdict.reason is None else {"reason": verdict.reason}
    return made


def _finish_exchange(storage: optuna.storages.RDBStorage, name: str) -> None:
    """Give a study that was judged again its final name; drop one whose judging was interrupted.

    The old study is deleted only once the new one is complete. So while both exist, the new one is not.
    """
    names = optuna.get_all_study_names(storage)
    if name + _ANEW in names and name in names:
        optuna.delete_study(study_name=name + _ANEW, storage=storage)
    elif name + _ANEW in names:
        # Optuna has no call for this.
        rename = sqlalchemy.text("update studies set study_name = :new where study_name = :old")
        with storage.engine.begin() as connection:
            connection.execute(rename, {"old": name + _ANEW, "new": name})


@contextlib.contextmanager
def storage_errors(shown: str) -> Iterator[None]:
    """Turn database errors into `StorageError`; a signal waits until the database has answered."""
    try:
        with processes.held():
            yield
    except KeyError as error:
        if _GONE not in str(error):
            raise
        raise StorageError(f"--storage {shown}: the study was removed by another program") from None
    except (SQLAlchemyError, optuna.exceptions.OptunaError, sqlite3.Error, OSError) as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        text = " ".join(str(cause).split()) or type(cause).__name__
        raise StorageError(f"--storage {shown}: {text[:300]}") from None
