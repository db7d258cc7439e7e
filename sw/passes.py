"""The pass manager: lists of stages, and passes over tile programs by name.

A stage is a frozen dataclass whose fields are its options, and a pure function from its input to its output;
the first line of its docstring describes it. A pass is a stage from tile program to tile program. `run`
serves the compiler, `heald opt`, `--print-after-all` and the timing of stages.
"""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from hw.errors import InputError
from sw.canonical.passes import Canonicalize, Hoist, StrengthReduce
from sw.dependence.passes import DeadStore, RedundantLoad
from sw.ir.program import Program
from sw.ir.scope import retype


@runtime_checkable
class Stage(Protocol):
    """One step of a compilation: a name, and a function from input to output."""

    name: ClassVar[str]

    def __call__(self, value: Any, /) -> Any:
        """Returns the output of the stage."""


S = TypeVar("S")
#: Called with a stage, its output and the seconds it took.
After = Callable[[Stage, Any, float], None]

#: The passes by name, as `heald opt` takes them.
PASSES: dict[str, type[Stage]] = {
    made.name: made for made in (Canonicalize, Hoist, StrengthReduce, DeadStore, RedundantLoad)
}


def run(stages: Sequence[Stage], value: Any, after: After | None = None) -> Any:
    """Runs stages in sequence; `after` is called with each output. Types of programs are recomputed."""
    for stage in stages:
        begin = time.perf_counter()
        value = stage(value)
        if isinstance(value, Program):
            value = retype(value)
        if after is not None:
            after(stage, value, time.perf_counter() - begin)
    return value


def summary(stage: Stage | type[Stage]) -> str:
    """A one-line description of a stage."""
    return (inspect.getdoc(stage) or "").partition("\n")[0]


def named(names: str | Sequence[str], **options: int) -> list[Stage]:
    """Makes passes from their names (or a comma-separated list), with the options that apply to each.

    Raises `InputError` for unknown names.
    """
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")] if names.strip() else []
    for name in names:
        if name not in PASSES:
            raise InputError(f"pass {name!r} is unknown; valid are {', '.join(PASSES)}")
    return configured([PASSES[name]() for name in names], options)


def configured(stages: Sequence[S], options: Mapping[str, Any]) -> list[S]:
    """Sets those options of stages that are fields of theirs."""
    made = []
    for stage in stages:
        own = {field.name for field in dataclasses.fields(stage)}  # type: ignore[arg-type]
        made.append(dataclasses.replace(stage, **{k: v for k, v in options.items() if k in own}))  # type: ignore[type-var]
    return made
