"""Errors in program text, with their location."""

from __future__ import annotations

from dataclasses import dataclass

from hw.errors import InputError


@dataclass(frozen=True)
class Location:
    """A position in program text; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class IRError(InputError):
    """A malformed program. The message has file, line, column, what was found and what was expected."""

    def __init__(self, where: Location | None, found: str, expected: str):
        self.where, self.found, self.expected = where, found, expected
        place = f"{where}: " if where else ""
        super().__init__(f"{place}found {found}, expected {expected}")


class LimitError(IRError):
    """A program that is well formed, but larger than can be compiled."""
