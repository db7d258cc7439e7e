"""Design-space exploration from Python: find the machine to build for given models."""

from __future__ import annotations

import contextlib
import csv
import io
import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from cosim.session.metrics import METRICS
from heald.comparison import Comparison, Side
from heald.exploration import command, search
from heald.exploration.evaluate import CheckError, LoadedModel, predicted
from heald.exploration.results import Confirmation, Exploration, Point, State, front_table, summary
from heald.exploration.samplers import SAMPLERS
from heald.exploration.space import Space, from_values, read
from heald.exploration.study import without_password
from heald.files import write_directory, write_text
from heald.hardware import machine
from heald.progress import Progress, shown
from heald.report.console import plain_table
from heald.session import GraphModel
from hw import processes
from hw.config import MachineConfig, to_toml
from hw.errors import InputError, whole_number
from hw.html import table

#: Maximum number of points in flight that progress mentions.
_MOST_DOING = 4
#: Metrics that the JSON of a front point always has.
_FRONT = ("cycles", "luts", "ffs", "brams", "dsps", "fmax_mhz")
#: Names of files that `export` writes.
_EXPORTED = re.compile(r"point-(?:0|[1-9][0-9]*)\.toml")


@dataclass(frozen=True, repr=False)
class Study:
    """The results of an exploration: all of them in `found`, as lists of rows in the properties.

    `storage` is the database that holds the study.
    """

    found: Exploration
    space: Space
    storage: str
    models: tuple[LoadedModel, ...] = ()

    @property
    def points(self) -> list[dict[str, Any]]:
        """All points as dictionaries: number, state, reason, parameters and metrics (docs/explore.md)."""
        return [_row(point) for point in self.found.points]

    @property
    def front(self) -> list[dict[str, Any]]:
        """The non-dominated points, in the order of the first objective."""
        return [_row(self.found.point(number)) for number in self.found.front]

    def machine(self, number: int) -> Any:
        """The machine of a point; raises `InputError` if there is no point of this number."""
        try:
            point = self.found.point(number)
        except KeyError:
            raise InputError(f"point must be 0 to {len(self.found.points) - 1}, not {number}") from None
        return machine(self.space.machine(point.parameters))

    def compare(self, number: int, beside: int | None = None) -> list[Comparison]:
        """Compare each model on the base machine or another point's (A) and on a point's machine (B).

        The cycle model predicts both. Raises `InputError` if there is no such point, or if a machine cannot
        execute a model.
        """
        a, b = self.space.base if beside is None else self.machine(beside).config, self.machine(number).config
        other = f"{a.name}, the base" if beside is None else f"point {beside}"
        return [Comparison(_side(m, a, other), _side(m, b, f"point {number}")) for m in self.models]

    def report(self, file: str | Path) -> None:
        """Write the report of the exploration (HTML); raises `InputError` if the file cannot be written."""
        from heald.report.explore import page

        grids = (self.space.base.cgra, *self.space.grids.values())
        # With the fabrics, the page can write machines as files.
        write_text(Path(file), page(self.found, {grid.name: grid for grid in grids if grid is not None}))

    def csv(self, file: str | Path) -> None:
        """Write all points as a CSV table; raises `InputError` if the file cannot be written."""
        out = io.StringIO()
        names = [p.name for p in self.found.parameters]
        writer = csv.writer(out)
        writer.writerow(["point", "state", *names, *METRICS, "front", "confirmed", "reason"])
        for p in self.found.points:
            confirmation = self.found.confirmation(p.number)
            confirmed = "" if confirmation is None else "yes" if confirmation.confirmed else "no"
            writer.writerow(
                [p.number, p.state.value]
                + [p.parameters[n] for n in names]
                + [p.metrics.get(n, "") for n in METRICS]
                + ["yes" if p.number in self.found.front else "no", confirmed, p.reason or ""]
            )
        write_text(Path(file), out.getvalue())

    def export(self, directory: str | Path) -> None:
        """Write the non-dominated machines as TOML files for `--hw`, and remove those of other points.

        Raises `InputError` if that is not possible.
        """

        def fill(folder: Path) -> None:
            for number in self.found.front:
                config = self.space.machine(self.found.point(number).parameters)
                text = to_toml(config.replace(name=f"{self.found.name}-{number}"))
                (folder / f"point-{number}.toml").write_text(text, encoding="utf-8")

        write_directory(Path(directory), fill, _EXPORTED.fullmatch)

    def print(self, console: Console) -> None:
        """Print the front, the reasons for refused points, and the importance of parameters."""
        found = self.found
        console.print()
        console.print(Text(summary(found)))
        head, rows = front_table(found)
        table = plain_table(*(f">{title}" for title in head), no_wrap=True)
        for row in rows:
            table.add_row(*row)
        wide = console.options.update(width=1000)
        for column in sorted(table.columns, key=lambda c: -len(str(c.header))):
            if console.measure(table, options=wide).maximum > console.width:
                column.header = str(column.header).replace("_", "_\n")
        # Better lines wrapped by the terminal than numbers that lack digits.
        console.print(table, crop=False, width=1000)
        if found.nearest is not None:
            console.print(Text(str(found.nearest)))
        for confirmation in found.confirmations:
            console.print(Text(str(confirmation)))
        for reason, count in Counter(p.reason for p in found.points if p.reason).most_common(5):
            console.print(Text(f"{count:>5} × {reason}"))
        for objective, shares in found.importance.items():
            order = sorted(shares.items(), key=lambda each: -each[1])
            listed = ", ".join(f"{name} {100 * share:.0f} %" for name, share in order)
            console.print(Text(f"{objective} depends on {listed}"))
        if found.points_per_second:
            console.print(Text(f"{found.points_per_second:.2g} points per second"))

    def as_dict(self) -> dict[str, Any]:
        """The JSON that `heald explore --json` prints."""
        found = self.found
        return {
            "trials": len(found.points),
            "refused": len(found.of(State.REFUSED)),
            "infeasible": len(found.of(State.INFEASIBLE)),
            "failed": len(found.of(State.FAILED)),
            "front": [_front(found, found.point(number)) for number in found.front],
            "points_per_second": found.points_per_second,
            "study": found.name,
            "storage": self.storage,
            "size": found.size,
            "objectives": dict(found.objectives),
            "hypervolume": found.hypervolume,
            "reference": dict(found.reference),
            "importance": {name: dict(shares) for name, shares in found.importance.items()},
            "reasons": [
                {
                    "number": p.number,
                    "state": p.state.value,
                    "parameters": dict(p.parameters),
                    "reason": p.reason,
                }
                for p in found.points
                if p.reason is not None
            ],
            "nearest": None if found.nearest is None else asdict(found.nearest),
            "confirmations": [_confirmation(c) for c in found.confirmations],
        }

    def __repr__(self) -> str:
        return f"<{summary(self.found)}>"

    def _repr_html_(self) -> str:
        names, front = front_table(self.found)
        return f"<p>{summary(self.found)}</p>{table(names, front)}"


def _side(model: LoadedModel, config: MachineConfig, name: str) -> Side:
    try:
        return Side.of(predicted(model, config).as_dict(), f"{model.name} on {name}")
    except (InputError, CheckError) as error:
        raise InputError(f"{name}, cannot be compared: {error}") from None


def _confirmation(confirmation: Confirmation) -> dict[str, Any]:
    held = asdict(confirmation)
    return {"number": held.pop("point"), **held}


def _front(found: Exploration, point: Point) -> dict[str, Any]:
    confirmation = found.confirmation(point.number)
    return {
        "number": point.number,
        "parameters": dict(point.parameters),
        "hw": dict(point.hw),
        **{name: point.metrics.get(name) for name in _FRONT},
        **point.metrics,
        "confirmed": confirmation is not None and confirmation.confirmed,
        "difference": None if confirmation is None else confirmation.difference,
    }


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
    """Search a design space for the machine to build for some models (docs/explore.md).

    `space` is the path of a SPACE.toml, its contents, or only the parameters with their values. `base` is the
    machine that supplies all other fields. `models` is one source of `compile` or a list of them, except tile
    programs. `storage` is the database of the study, with which the same call resumes an interrupted search;
    by default nothing is kept. `options` are those of `heald explore`: `sampler`, `trials`, `executor`,
    `confirm`, `family`, `synthesis`, `seed`, `energy`, `allow_host`, `dims`, `fixed_point` and `sim`. Points
    are evaluated in other processes, so a script must call this under `if __name__ == "__main__":`. Raises
    `InputError` for invalid arguments.
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
    """Run the exploration of a request; `tell` reports finished points, `say` everything else.

    An interrupt reports what was found and how to resume. Raises `InputError` for an invalid request.
    """
    prepared = command.prepare(request)
    storage = without_password(prepared.storage)
    say(f"{prepared.space.feasible.size:,} points satisfy the constraints; study {storage}")
    try:
        found = command.explore(prepared, lambda state: tell(_told(state)), say, tell)
    except KeyboardInterrupt:
        processes.heard()
        with contextlib.suppress(InputError):
            say(summary(command.kept_so_far(prepared)))
        say(f"all points are in {storage}: the same command resumes from here")
        raise
    return Study(found, prepared.space, storage, prepared.loaded)


def _told(state: search.Progress) -> str:
    refused = sum(p.state is State.REFUSED for p in state.done)
    text = f"{state.outlook}, {state.rate:.2f} points/s" if state.rate else state.outlook
    text += f", {refused} refused" if refused else ""
    return "; ".join([text, *state.doing[:_MOST_DOING]])


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
    """The values of a parameter as a list, from any sequence or one-dimensional array."""
    if not isinstance(given, list | tuple | range | np.ndarray):
        return given
    return [value.item() if isinstance(value, np.generic) else value for value in given]
