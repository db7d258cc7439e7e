"""Pipelines of passes by name, as the command line and the compiler ask for them."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Sequence

from hw.errors import InputError
from sw.passes import Pass

#: Where each pass is: module and class. They are imported when they are asked for.
PASSES = {
    "canonicalize": ("sw.canonical.passes", "Canonicalize"),
    "hoist": ("sw.canonical.passes", "Hoist"),
    "strength-reduce": ("sw.canonical.passes", "StrengthReduce"),
    "dead-store": ("sw.dependence.passes", "DeadStore"),
    "redundant-load": ("sw.dependence.passes", "RedundantLoad"),
}


def names(text: str) -> list[str]:
    """The names in a list with commas; raises `InputError` for those that are unknown."""
    found = [name.strip() for name in text.split(",")] if text.strip() else []
    for name in found:
        if name not in PASSES:
            raise InputError(f"pass {name!r} is unknown; there are {', '.join(PASSES)}")
    return found


def passes(wanted: Sequence[str], **options: int) -> list[Pass]:
    """The passes of these names, each with those of the options that are fields of it.

    Raises `InputError` for unknown names.
    """
    found: list[Pass] = []
    for name in wanted:
        if name not in PASSES:
            raise InputError(f"pass {name!r} is unknown; there are {', '.join(PASSES)}")
        module, kind = PASSES[name]
        constructor = getattr(importlib.import_module(module), kind)
        fields = {field.name for field in dataclasses.fields(constructor)}
        made: Pass = constructor(**{key: value for key, value in options.items() if key in fields})
        found.append(made)
    return found
