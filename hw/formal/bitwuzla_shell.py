"""A command-line Bitwuzla for yosys-smtbmc: SMT-LIB on standard input, answers on standard output.

Bitwuzla's PyPI package is a library without a program. This program answers each command as soon as it is
complete, as an interactive session needs.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

#: Text whose parentheses are not syntax: quoted symbols, strings, comments.
_QUOTED = re.compile(r'\|[^|]*\||"[^"]*"|;.*')

_LEVELS = re.compile(r"\s*\(\s*(?P<what>push|pop)\s+(?P<number>\d+)\s*\)\s*")

HELP = "usage: bitwuzla --lang smt2 (reads SMT-LIB from the standard input)"


def install(folder: Path) -> Path:
    """Writes a program `bitwuzla` that runs this module with the current Python.

    Its folder below `folder` has a unique name for each Python and module, and appears atomically. Returns
    the path of the program. Raises OSError if it cannot be written.
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
    """The commands of a script, each as soon as its last parenthesis arrives."""
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
    """An interactive session with Bitwuzla, one command at a time.

    Its parser forgets assertion levels between texts (`(pop 1)` is refused, version 0.9.1), so this class
    keeps them: after a `(pop n)`, a new solver gets all assertions that still hold.
    """

    def __init__(self) -> None:
        self._levels: list[list[str]] = [[]]
        self._parser: Any = None

    def tell(self, command: str) -> None:
        """Executes a command; answers go to standard output.

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
    import bitwuzla  # may be missing if another solver is used

    options = bitwuzla.Options()
    options.set(bitwuzla.Option.PRODUCE_MODELS, value=True)
    return bitwuzla.Parser(bitwuzla.TermManager(), options)


def main() -> None:
    """Answers commands until `(exit)` or the end of input; reports errors in SMT-LIB form."""
    if "--help" in sys.argv:
        print(HELP)
        return
    conversation = Conversation()
    for command in commands(sys.stdin):
        if command.strip() == "(exit)":
            return
        try:
            conversation.tell(command)
        except Exception as error:  # errors of a library that is not imported here
            text = str(error).replace('"', "'")
            print(f'(error "{text}")', flush=True)


if __name__ == "__main__":
    main()
