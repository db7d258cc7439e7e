"""Explorations from Python: which machine to build for given models."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from heald.exploration import command, output, search
from heald.exploration.results import Exploration, Point, State, front_table
from heald.exploration.samplers import SAMPLERS
from heald.exploration.space import Space, from_values, read
from heald.exploration.study import without_password
from heald.hardware import machine
from heald.progress import Progress, shown
from heald.session import GraphModel
from hw.errors import InputError, whole_number
from hw.html import table


@dataclass(frozen=True, repr=False)
class Study:
    """What an exploration found; `found` has everything, the properties are lists for a table.

    `storage` is the database in which it was kept.
    """

    found: Exploration
    space: Space
    storage: str

    @property
    def points(self) -> list[dict[str, Any]]:
        """All points: number, state, reason, parameters and metrics by name (docs/explore.md)."""
        return [_row(point) for point in self.found.points]

    @property
    def front(self) -> list[dict[str, Any]]:
        """The non-dominated points, in the order of the first objective."""
        return [_row(self.found.point(number)) for number in self.found.front]

    def machine(self, number: int) -> Any:
        """The machine of a point; raises `InputError` for a number that is no point."""
        try:
            point = self.found.point(number)
        except KeyError:
            raise InputError(f"point must be 0 to {len(self.found.points) - 1}, not {number}") from None
        return machine(self.space.machine(point.parameters))

    def report(self, file: str | Path) -> None:
        """Write the page of the exploration (HTML); raises `InputError` for a file that cannot be written."""
        output.report(Path(file), self.found, self.space)

    def csv(self, file: str | Path) -> None:
        """Write all points as a table; raises `InputError` for a file that cannot be written."""
        output.write_csv(Path(file), self.found)

    def export(self, directory: str | Path) -> None:
        """Write the machines of the front as TOML files; raises `InputError` where that is not possible."""
        output.export(Path(directory), self.found, self.space)

    def as_dict(self) -> dict[str, Any]:
        """The JSON that `heald explore --json` prints."""
        return output.as_dict(self.found, self.storage)

    def __repr__(self) -> str:
        return f"<{output.summary(self.found)}>"

    def _repr_html_(self) -> str:
        names, front = front_table(self.found)
        return f"<p>{output.summary(self.found)}</p>{table(names, front)}"


def _row(point: Point) -> dict[str, Any]:
    told = {"number": point.number, "state": point.state.value, "reason": point.reason}
    return told | dict(point.parameters) | dict(point.metrics)


def explore(
    space: Mapping[str, Any] | str | Path,
    models: Any,
    *,
    base: Any = None,
    storage: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Study:
    """Explore machines for models: cycles, resources, clock and energy of each (docs/explore.md).

    `space` is the path of a SPACE.toml, its contents, or only the parameters with their values. `base` is the
    machine whose other fields all points have. `models` is a list of what `compile` takes (but no tile
    programs), or one of them. `storage` keeps the study, so that the same call goes on where an earlier one
    ended; without it nothing is kept. `options` are `sampler`, `trials`, `executor`, `confirm`, `family`,
    `synthesis`, `seed`, `energy`, `allow_host` and `sim`, as of the command. Points are evaluated by other
    processes, so a script must call this under `if __name__ == "__main__":`. Raises `InputError` for what
    does not make sense.
    """
    unknown = sorted(options.keys() - command.Request.__dataclass_fields__.keys())
    if unknown:
        raise InputError(f"unknown option {unknown[0]!r} of an exploration")
    if options.get("sampler", "grid") not in SAMPLERS:
        raise InputError(f"sampler must be one of {', '.join(SAMPLERS)}, not {options['sampler']!r}")
    whole_number("seed", options.get("seed", 0), 0)
    if options.get("trials") is not None:
        whole_number("trials", options["trials"], 1)
    several = list(models) if isinstance(models, list | tuple) else [models]
    if not several:
        raise InputError("an exploration needs at least one model")
    given = [m.source if isinstance(m, GraphModel) else m for m in several]
    paths = tuple(Path(m) if isinstance(m, str) else m for m in given)
    with tempfile.TemporaryDirectory(prefix="heald-") as folder, shown(progress) as say:
        where = storage or f"sqlite:///{folder}/study.db"
        request = command.Request(_space(space, base), paths, storage=where, **options)
        return study_of(request, say, say)


def study_of(request: command.Request, say: Progress, tell: Progress) -> Study:
    """Explore as a request asks; `tell` hears of every point that is done, `say` of the rest.

    After an interrupt it says what there is, and how to go on. Raises `InputError` for what makes no sense.
    """
    prepared = command.prepare(request)
    storage = without_password(prepared.storage)
    say(f"{prepared.space.feasible.size:,} points satisfy the constraints; study {storage}")
    try:
        found = command.explore(prepared, lambda state: tell(_told(state)), say)
    except KeyboardInterrupt:
        with contextlib.suppress(InputError):
            say(output.summary(command.kept_so_far(prepared)))
        say(f"all of it is in {storage}: the same command goes on from here")
        raise
    return Study(found, prepared.space, storage)


def _told(state: search.Progress) -> str:
    refused = sum(p.state is State.REFUSED for p in state.done)
    done = state.known + len(state.done)
    text = f"{done} of {state.target} points, {state.rate:.2f} points/s"
    text += f", {refused} refused" if refused else ""
    return text if state.left is None else f"{text}, about {timedelta(seconds=round(state.left))} left"


def _space(space: Mapping[str, Any] | str | Path, base: Any) -> Space:
    if not isinstance(space, Mapping | str | Path):
        raise InputError(f"a space must be parameters with their values or a TOML file, not {space!r}")
    if not isinstance(space, Mapping):
        if base is not None:
            raise InputError(f"{space}: names its own base")
        return read(Path(space))
    values: dict[str, Any] = dict(space)
    if "parameters" not in space:
        values = {"parameters": {name: _values(given) for name, given in space.items()}}
    if base is not None:
        values["base"] = machine(base).config
    return from_values(values)


def _values(given: Any) -> Any:
    """The values of a parameter as a list, which may be any sequence or array of one dimension."""
    if not isinstance(given, list | tuple | range | np.ndarray):
        return given
    return [value.item() if isinstance(value, np.generic) else value for value in given]
