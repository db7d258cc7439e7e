"""A command-line Bitwuzla for yosys-smtbmc: SMT-LIB on standard input, answers on standard output.

Bitwuzla's package on PyPI is a library and has no program. This one answers each command as soon as it is
whole, as a conversation needs.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

#: What may hold parentheses that are not of the syntax: quoted symbols, strings, comments.
_QUOTED = re.compile(r'\|[^|]*\||"[^"]*"|;.*')

_LEVELS = re.compile(r"\s*\(\s*(?P<what>push|pop)\s+(?P<number>\d+)\s*\)\s*")

HELP = "usage: bitwuzla --lang smt2 (reads SMT-LIB from the standard input)"


def install(folder: Path) -> Path:
    """Write a program `bitwuzla` that calls this module with the present Python.

    Its folder below `folder` has a name of its own, one for each Python and module; others see all of it or
    nothing. Returns the program. Raises OSError if it cannot be written.
    """
    text = f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$@"\n'
    program = folder / hashlib.sha256(text.encode()).hexdigest()[:24] / "bitwuzla"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        partial = program.with_name(f"{os.getpid()}.partial")
        partial.write_text(text, encoding="utf-8")
        partial.chmod(0o755)
        partial.replace(program)
    return program


def commands(lines: Iterable[str]) -> Iterator[str]:
    """Commands of a script, each as soon as its last parenthesis has come."""
    parts: list[str] = []
    depth = 0
    for line in lines:
        parts.append(line)
        bare = _QUOTED.sub("", line)
        depth += bare.count("(") - bare.count(")")
        if depth == 0:
            text = "".join(parts)
            parts.clear()
            if text.strip():
                yield text


class Conversation:
    """Bitwuzla, one command at a time.

    Its parser forgets levels from one text to the next (`(pop 1)` is refused, version 0.9.1), so levels are
    kept here: after a `(pop n)` another solver is told what still holds.
    """

    def __init__(self) -> None:
        self._levels: list[list[str]] = [[]]
        self._parser: Any = None

    def tell(self, command: str) -> None:
        """Do what a command says; answers go to the standard output.

        Raises `bitwuzla.BitwuzlaException` if it is refused.
        """
        if found := _LEVELS.fullmatch(command):
            number = int(found["number"])
            if found["what"] == "push":
                self._levels += [[] for _ in range(number)]
            else:
                del self._levels[len(self._levels) - number :]
                self._parser = None
            return
        if self._parser is None:
            self._parser = _parser()
            self._parse("".join(kept for level in self._levels for kept in level))
        self._parse(command)
        if not command.lstrip().startswith(("(check-sat", "(get-")):
            self._levels[-1].append(command)

    def _parse(self, text: str) -> None:
        if text:
            self._parser.parse(text, parse_only=False, parse_file=False)


def _parser() -> Any:
    import bitwuzla  # may be missing where another solver is used

    options = bitwuzla.Options()
    options.set(bitwuzla.Option.PRODUCE_MODELS, value=True)
    return bitwuzla.Parser(bitwuzla.TermManager(), options)


def main() -> None:
    """Answer commands until `(exit)` or the end of the input; an error is answered as SMT-LIB wants it."""
    if "--help" in sys.argv:
        print(HELP)
        return
    conversation = Conversation()
    for command in commands(sys.stdin):
        if command.strip() == "(exit)":
            return
        try:
            conversation.tell(command)
        except Exception as error:  # those of a library that is not imported here
            text = str(error).replace('"', "'")
            print(f'(error "{text}")', flush=True)


if __name__ == "__main__":
    main()
