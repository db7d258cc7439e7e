"""The exception for input that a user can mend."""

from __future__ import annotations

import operator


class InputError(ValueError):
    """Something that the user gave is wrong: the text says where, what was found and what is needed.

    The command line turns it into one line on stderr and exit code 2.
    """


def whole_number(name: str, value: object, least: int | None = None) -> int:
    """A whole number that somebody gave; raises `InputError` with its name for anything else."""
    try:
        found = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        found = None
    if found is None or isinstance(value, bool) or (least is not None and found < least):
        limit = "" if least is None else f" of at least {least}"
        raise InputError(f"{name} must be a whole number{limit}, not {value!r}")
    return found
