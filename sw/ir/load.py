"""Reads files: tile programs, and text or JSON of other inputs."""

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
#: Digits of a whole number in JSON; Python itself stops at 4300.
_LONGEST = 4000


def load_program(path: str | Path) -> Program:
    """Read and check the program in a file; `-` is standard input.

    Raises `InputError` for a file that cannot be read, and `IRError` with the place for a program that is not
    well formed.
    """
    name = "standard input" if str(path) == STDIN else str(path) or "''"
    program = parse_program(read_text(path, name), name)
    check(program)
    return program


def read_text(path: str | Path, name: str) -> str:
    """The text of a file; `name` is what errors call it.

    Raises `InputError` for a file that cannot be read, `IRError` with the place where it is no UTF-8.
    """
    try:
        return read_bytes(path, name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # Without the mark at the beginning that UTF-8 may have.
        read, start = error.object, error.start
        before = read[read.rfind(b"\n", 0, start) + 1 : start].decode("utf-8")
        place = Location(name, read.count(b"\n", 0, start) + 1, len(before) + 1)
        found = f"the byte 0x{read[start]:02x} ({error.reason})"
        raise IRError(place, found, "text in UTF-8") from None


def read_bytes(path: str | Path, name: str) -> bytes:
    """What a file holds; raises `InputError`, which calls it `name`, for a file that cannot be read."""
    try:
        return sys.stdin.buffer.read() if str(path) == STDIN else Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        # A path with a null character.
        raise InputError(f"{name!r}: cannot be read: {error}") from None
    except AttributeError:
        # Python has no standard input when it is closed.
        raise InputError(f"{name}: cannot be read: it is closed") from None


def parse_json(text: str, shown: Callable[[str], str], **options: Any) -> Any:
    """What JSON says; `options` are those of `json.loads`, which raises what this does.

    A number longer than Python converts is infinite, which every place refuses. Raises `InputError` for a
    name that an object has twice, which is told as `shown` writes it; Python would keep the last one.
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
