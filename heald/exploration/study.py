"""What an exploration keeps: an optuna study in a database, which can be interrupted at any time.

States: a point that was evaluated is COMPLETE, with the limits of the space as optuna's constraints; one that
is refused is PRUNED, one that failed is FAIL, both with the user attribute `reason`. Points in flight are
RUNNING; those that a killed exploration left are evaluated under their own number when it goes on, so that
nothing is lost and nothing doubled. Metrics are user attributes, everything else of a point one system
attribute.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import re
import sqlite3
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import optuna
import sqlalchemy
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from heald.exploration.expression import Formula
from heald.exploration.results import Confirmation, Point, State, model_from
from heald.exploration.space import Space, beyond
from heald.exploration.worker import Answer
from hw import processes
from hw.config import NO_GRID, MachineConfig
from hw.errors import InputError

#: Key of what belongs to Heald, of the study and of each trial.
_KEY = "heald"
#: Key of what the RTL said: finished trials cannot be changed, so the study has it.
_CONFIRMED = "confirmed on the RTL"
#: Seconds until a database counts as unreachable.
PATIENCE = 5
#: Databases that lock by a number, and how; the lock goes with the connection.
_LOCKS = {"postgresql": "select pg_try_advisory_lock({})", "mysql": "select get_lock('heald-{}', 0)"}
_DRIVERS = {"postgresql": "postgresql+psycopg"}
#: What optuna says of a row that is not there any more.
_GONE = "Record does not exist"
_PASSWORD = re.compile(r"(://[^/@]*?:).*@")

Fingerprints = Mapping[str, str]


class StorageError(InputError):
    """The database cannot be read or written now; what it holds is whole."""


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """The parameters as optuna knows them: even ranges as such, everything else as a list."""
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
    """A study that is open, and belongs to this exploration alone until it is closed."""

    study: optuna.Study
    storage: optuna.storages.RDBStorage
    space: Space
    where: str
    _lock: contextlib.ExitStack

    def points(self) -> list[Point]:
        """All points that are finished, by number."""
        with storage_errors(self.where):
            trials = self.study.get_trials(deepcopy=False)
        return [self._point(t) for t in trials if t.state.is_finished() and self._whole(t)]

    def unfinished(self) -> list[tuple[int, dict[str, Any]]]:
        """Points that an interrupted exploration left in flight, by number, with their parameters."""
        with storage_errors(self.where):
            trials = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        return [(t.number, dict(t.params)) for t in trials if self._whole(t)]

    def _whole(self, trial: FrozenTrial) -> bool:
        """Whether all parameters are there: an exploration may be killed between two of them."""
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
        """What the RTL said of points, by number."""
        with storage_errors(self.where):
            held = self.study.user_attrs.get(_CONFIRMED, [])
        return {c["point"]: Confirmation(**c) for c in held}

    def confirm(self, found: Confirmation) -> None:
        """Keep what the RTL said of a point."""
        known = self.confirmations() | {found.point: found}
        with storage_errors(self.where):
            self.study.set_user_attr(_CONFIRMED, [dataclasses.asdict(c) for c in known.values()])

    def ask(self) -> tuple[int, dict[str, Any]]:
        """A new point, by the study's sampler."""
        with storage_errors(self.where):
            trial = self.study.ask(distributions(self.space))
            return trial.number, dict(trial.params)

    def keep(self, number: int, config: MachineConfig | None, answer: Answer) -> Point:
        """Keep what came of a point: its evaluation, or why it is refused or failed."""
        held: dict[str, Any] = {} if config is None else {"hw": fields_of(config)}
        found, values, reason = answer.evaluation, None, answer.refused or answer.failed
        over: dict[str, float] = {}
        state = TrialState.FAIL if answer.refused is None else TrialState.PRUNED
        if found is not None:
            over, reason = judged(self.space.limits, found.metrics)
            values, state = [found.metrics[name] for name in self.space.objectives], TrialState.COMPLETE
            models = [dataclasses.asdict(m) for m in found.models]
            held |= {"metrics": dict(found.metrics), "models": models, "seconds": found.seconds}
        with storage_errors(self.where):
            study_id = self.storage.get_study_id_from_name(self.study.study_name)
            trial_id = self.storage.get_trial_id_from_study_id_trial_number(study_id, number)
            for name, value in found.metrics.items() if found is not None else ():
                self.storage.set_trial_user_attr(trial_id, name, value)
            # As `Trial.set_constraint`, which warns where an interrupted exploration came so far before.
            for text, value in over.items():
                self.storage.set_trial_system_attr(trial_id, f"constraints:{text}", value)
            if reason is not None:
                self.storage.set_trial_user_attr(trial_id, "reason", reason)
            self.storage.set_trial_system_attr(trial_id, _KEY, json.dumps(held))
            self.study.tell(number, values, state=state)
            return self._point(self.storage.get_trial(trial_id))

    def drop_parts(self) -> None:
        """Give up trials that were left without all their parameters: they are no points."""
        with storage_errors(self.where):
            for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                if not self._whole(trial):
                    self.study.tell(trial.number, state=TrialState.FAIL)

    def close(self) -> None:
        """Let others have the study."""
        with contextlib.suppress(SQLAlchemyError):
            self._lock.close()


def judged(limits: Sequence[Formula], metrics: Mapping[str, float]) -> tuple[dict[str, float], str | None]:
    """By how much metrics are beyond limits, by their texts, and what is wrong; None where all hold.

    A limit that has no value does not hold.
    """
    over: dict[str, float] = {}
    broken, without = list[str](), list[str]()
    for limit in limits:
        try:
            over[limit.text] = beyond(limit, metrics)
        except InputError as error:
            over[limit.text] = 1.0
            without.append(f"limit {error}")
            continue
        if over[limit.text] > 0:
            broken.append(limit.text)
    return over, "; ".join(["beyond " + ", ".join(broken)] * bool(broken) + without) or None


def fields_of(config: MachineConfig) -> dict[str, Any]:
    """All fields of a machine, its grid by name."""
    values = config.as_dict()
    del values["name"]
    return values | {"cgra": NO_GRID if config.cgra is None else config.cgra.name}


def without_password(url: str) -> str:
    """A URL as it may be shown, whether or not it is one."""
    return _PASSWORD.sub(r"\1***@", url)


def open_study(url: str, name: str, space: Space, made_from: Fingerprints) -> Kept:
    """The study of a name in a database, made if it is not there.

    `made_from` are fingerprints of all that points depend on. Raises `InputError` for a database that cannot
    be reached, a study that was made from something else, and one that another exploration is using.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    parsed = _url(url)
    shown = parsed.render_as_string(hide_password=True)
    lock = contextlib.ExitStack()
    try:
        storage = _storage(parsed, shown)
        lock.callback(storage.engine.dispose)
        lock.callback(storage.remove_session)
        _take(lock, storage, parsed, name, shown)
        with storage_errors(shown):
            study = optuna.create_study(
                storage=storage,
                study_name=name,
                load_if_exists=True,
                directions=[optuna.study.StudyDirection[how.upper()] for how in space.objectives.values()],
            )
            _compare(study, made_from, shown)
            with warnings.catch_warnings():
                # The dashboard shows these names; optuna calls that experimental since 3.2.
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                study.set_metric_names(list(space.objectives))
        kept = Kept(study, storage, space, shown, lock)
        kept.drop_parts()
    except BaseException:
        lock.close()
        raise
    return kept


def _url(url: str) -> sqlalchemy.URL:
    try:
        parsed = make_url(url)
        url.encode()
    except (SQLAlchemyError, ValueError):  # a port that is no number, text that is no Unicode
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
        # A database of another version of optuna, and options in the URL that the driver does not take.
        raise InputError(f"--storage {shown}: {error}") from None


def _take(
    lock: contextlib.ExitStack,
    storage: optuna.storages.RDBStorage,
    url: sqlalchemy.URL,
    name: str,
    shown: str,
) -> None:
    """Keep all others from the study until the lock is closed, or this process ends in whatever way."""
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
        raise InputError(
            f"--storage {shown}: study {study.study_name!r} was made with another "
            f"{' and another '.join(other)}; its points cannot be compared with new ones: another --storage "
            "is needed, or remove it"
        )


@contextlib.contextmanager
def storage_errors(shown: str) -> Iterator[None]:
    """Errors of a database as `StorageError`; a signal waits until the database has answered."""
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
