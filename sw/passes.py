"""The pass manager: lists of stages, and passes over tile programs by name.

A stage is a frozen dataclass whose fields are its options, and a pure function from its input to its output;
the first line of its docstring describes it. A pass is a stage from tile program to tile program. `run` is
how the compiler, `heald opt`, `--print-after-all` and the times per stage come about.
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
    """One step of a compilation: a name, and what it makes of its input."""

    name: ClassVar[str]

    def __call__(self, value: Any, /) -> Any:
        """The output of the stage."""


S = TypeVar("S")
#: Sees a stage, what it has made, and the seconds that it took.
After = Callable[[Stage, Any, float], None]

#: The passes by name, as `heald opt` takes them.
PASSES: dict[str, type[Stage]] = {
    made.name: made for made in (Canonicalize, Hoist, StrengthReduce, DeadStore, RedundantLoad)
}


def run(stages: Sequence[Stage], value: Any, after: After | None = None) -> Any:
    """Run stages one after the other; `after` sees what each has made. Programs are typed anew."""
    for stage in stages:
        begin = time.perf_counter()
        value = stage(value)
        if isinstance(value, Program):
            value = retype(value)
        if after is not None:
            after(stage, value, time.perf_counter() - begin)
    return value


def summary(stage: Stage | type[Stage]) -> str:
    """What a stage does, in one line."""
    return (inspect.getdoc(stage) or "").partition("\n")[0]


def named(names: str | Sequence[str], **options: int) -> list[Stage]:
    """The passes of these names (or of a list with commas), with those of the options that they have.

    Raises `InputError` for unknown names.
    """
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",")] if names.strip() else []
    for name in names:
        if name not in PASSES:
            raise InputError(f"pass {name!r} is unknown; valid are {', '.join(PASSES)}")
    return configured([PASSES[name]() for name in names], options)


def configured(stages: Sequence[S], options: Mapping[str, Any]) -> list[S]:
    """Stages with those of the options that are fields of them."""
    made = []
    for stage in stages:
        own = {field.name for field in dataclasses.fields(stage)}  # type: ignore[arg-type]
        made.append(dataclasses.replace(stage, **{k: v for k, v in options.items() if k in own}))  # type: ignore[type-var]
    return made
