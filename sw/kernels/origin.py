"""Where the text of a loop stands in the source of its operator, for errors in the text."""

from __future__ import annotations

import linecache
import re
from dataclasses import dataclass
from pathlib import Path

from hw.errors import InputError
from sw.ir.errors import IRError, Location


class LoopTextError(Exception):
    """A mistake in the text of an operator's loop: `error` names file and line of the operator's source.

    It is no `InputError`, because nothing is refused: no other tile, machine or host would help.
    """

    def __init__(self, error: InputError):
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True)
class Origin:
    """The call that made a loop from text: its file and line, and the text of one iteration."""

    file: str
    line: int
    body: str

    def located(self, error: InputError, text: str) -> LoopTextError:
        """An error in the generated `text`, which ends with the body, at its place in the source.

        That is the line of the body, if the source has the body as it is; otherwise the line of the call.
        """
        file, where = self.file, getattr(error, "where", None)
        if Path(file).is_relative_to(Path.cwd()):
            file = str(Path(file).relative_to(Path.cwd()))
        if not isinstance(error, IRError) or where is None:
            return LoopTextError(InputError(f"{file}:{self.line}: {error}"))
        lines = text.splitlines()
        wrong, body = lines[where.line - 1], self.body.strip().splitlines()
        inside, first = where.line - 1 - (len(lines) - len(body)), self._first(body)
        if inside < 0 or first is None:
            here = f"{error.found} in the line {wrong.strip()!r}"
            return LoopTextError(IRError(Location(file, self.line, 1), here, error.expected))
        line = linecache.getline(self.file, first + inside)
        # An f-string has other characters than its text; columns are then those of the line's beginning.
        start = line.find(wrong.strip())
        shift = where.column - 1 - (len(wrong) - len(wrong.lstrip())) if start >= 0 else 0
        column = (start if start >= 0 else len(line) - len(line.lstrip())) + shift + 1
        return LoopTextError(IRError(Location(file, first + inside, column), error.found, error.expected))

    def _first(self, body: list[str]) -> int | None:
        """The line of the source at which the body begins, counted from 1; None if it is not there."""
        source = linecache.getlines(self.file)
        for first in range(len(source) - len(body) + 1):
            lines = source[first : first + len(body)]
            edges = (0, len(body) - 1)
            if all(_says(lines[i], text, edge=i in edges) for i, text in enumerate(body)):
                return first + 1
        return None


def _says(line: str, text: str, edge: bool) -> bool:
    """Whether a line of source stands for a line of text; at the edges there may be quotes around it."""
    if edge and text.strip() in line:
        return True
    # `{...}` of an f-string may be anything.
    parts = re.split(r"\{[^{}]*\}", line.strip())
    return re.fullmatch(".*".join(map(re.escape, parts)), text.strip()) is not None
