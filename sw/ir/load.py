"""Reads input files: tile programs, other text, and JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hw.errors import InputError
from sw.ir.check import check
from sw.ir.errors import IRError, Location
from sw.ir.parse import parse_program
from sw.ir.program import Program

STDIN = "-"
#: Most digits of an integer in JSON; Python's own limit is 4300.
_LONGEST = 4000


def named(path: str | Path) -> str:
    """What errors call a file; `-` is standard input."""
    return "standard input" if str(path) == STDIN else str(path) or "''"


def load_program(path: str | Path) -> Program:
    """Reads and checks a program file; `-` is standard input.

    Raises `InputError` if the file cannot be read, and `IRError` with the location if the program is
    malformed.
    """
    name = named(path)
    program = parse_program(read_text(path, name), name)
    check(program)
    return program


def read_text(path: str | Path, name: str) -> str:
    """Reads a text file; `name` is how errors refer to it.

    Raises `InputError` if the file cannot be read, `IRError` with the location if it is not valid UTF-8.
    """
    try:
        return read_bytes(path, name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Skip the byte-order mark that UTF-8 may start with.
        read, start = error.object, error.start
        before = read[read.rfind(b"\n", 0, start) + 1 : start].decode("utf-8")
        place = Location(name, read.count(b"\n", 0, start) + 1, len(before) + 1)
        found = f"the byte 0x{read[start]:02x} ({error.reason})"
        raise IRError(place, found, "text in UTF-8") from None


def read_bytes(path: str | Path, name: str) -> bytes:
    """Reads a file's bytes. Raises `InputError`, which refers to the file as `name`, if that fails."""
    try:
        return sys.stdin.buffer.read() if str(path) == STDIN else Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        # The path contains a null character.
        raise InputError(f"{name!r}: cannot be read: {error}") from None
    except AttributeError:
        # Standard input is closed, so Python has no object for it.
        raise InputError(f"{name}: cannot be read: it is closed") from None


def load_object(path: str | Path, what: str, shown: Callable[[str], str] = repr) -> dict[str, Any]:
    """The JSON object in a file, of `what`; `-` is standard input.

    Raises `InputError` for a file that cannot be read, and for what is no such object.
    """
    name = named(path)
    data = read_bytes(path, name)
    try:
        value = parse_json(data.decode("utf-8-sig"), shown)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: must hold JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{name}: must hold a JSON object of {what}, not {type(value).__name__}")
    return value


def parse_json(text: str, shown: Callable[[str], str], **options: Any) -> Any:
    """Parses JSON. `options` are those of `json.loads`, and the same exceptions are raised.

    A number too long for Python to convert becomes infinity, which every reader rejects. Raises `InputError`
    if an object has a name twice (Python would keep the last one); `shown` formats the name for the message.
    """

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value in pairs:
            if name in values:
                raise InputError(f"{shown(name)} must be given once, it appears twice")
            values[name] = value
        return values

    def whole(digits: str) -> float:
        return int(digits) if len(digits) < _LONGEST else math.inf

    return json.loads(text, object_pairs_hook=distinct, parse_int=whole, **options)
