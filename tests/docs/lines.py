"""Command lines of pages, compared with what commands take, without running them."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click

from heald.cli import cli
from tests.docs.blocks import ROOT

_TARGETS = frozenset(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
#: Stands for a value: capitals, or dots.
_PLACEHOLDER = re.compile(r"[A-Z]|\.\.\.")
_INLINE = re.compile(r"`((?:heald|python -m) [^`]+)`")


class ParsedError(Exception):
    """What a parser of arguments took."""


def check(line: str, place: str) -> bool:
    """Whether a line is of a kind that can be checked; AssertionError if its command does not take it.

    Brackets around what may be left out do not count, and alternatives are separated by `|`.
    """
    words = spelled(line)
    try:
        match words:
            case ["heald", *rest]:
                take(*named(cli, rest))
            case ["cd", _]:
                pass
            case ["make", target]:
                assert target in _TARGETS, "no such target"
            case ["python", "-m", module, *rest] if (ROOT / module.partition(".")[0]).is_dir():
                take_module(module, rest)
            case ["python", file, *_] if file.startswith("examples/"):
                assert (ROOT / file).is_file(), "no such file"
            case _:
                return False
    except (click.ClickException, SystemExit, AssertionError) as error:
        raise AssertionError(f"{place}: {line}: {error}") from error
    return True


def spelled(line: str) -> list[str]:
    """The words of a line, without its comment, where its output goes, and brackets."""
    words = shlex.split(re.sub(r"[][]", " ", line), comments=True)
    words = words[: words.index(">")] if ">" in words else words
    return [word for before, word in pairwise(["", *words]) if word != "..." or before.startswith("-")]


def named(command: click.Command, words: Sequence[str]) -> tuple[click.Command, list[str]]:
    """The command that the first words name, and the other words."""
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"no command {rest[0]}"
        command = command.commands[rest.pop(0)]
    return command, rest


def take(command: click.Command, words: Sequence[str]) -> None:
    """Parse the arguments of a command: options, their values, and the number of arguments."""
    context = click.Context(command, info_name=command.name)
    given, left, _ = command.make_parser(context).parse_args(list(words))
    assert not left, f"too many arguments: {' '.join(left)}"
    for parameter in command.params:
        value = given.get(str(parameter.name))
        assert value not in (None, ()) or not parameter.required, f"no {parameter.human_readable_name}"
        texts = [text for text in strings(value) if not _PLACEHOLDER.search(text)]
        for text in texts:
            for one in text.split("|") if isinstance(parameter.type, click.Choice) else [text]:
                if not isinstance(parameter.type, click.Tuple | click.Path):
                    parameter.type.convert(one, parameter, context)


def strings(value: Any) -> Iterator[str]:
    """The texts of a value that was parsed."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from strings(one)


def take_module(name: str, words: Sequence[str]) -> None:
    """Parse the arguments of `python -m NAME`, which has a `main` that is a command or makes its parser."""
    assert importlib.util.find_spec(name), f"no module {name}"
    module = importlib.import_module(name)
    if not hasattr(module, "main"):
        inner = f"{name}.__main__" if hasattr(module, "__path__") else name.replace("bench.", "tests.fuzz.")
        module = importlib.import_module(inner)
    if isinstance(module.main, click.Command):
        take(module.main, words)
    elif any(word for word in words):
        take_argparse(module.main, words)


def take_argparse(main: Any, words: Sequence[str]) -> None:
    """Let `main` parse words, and stop there."""
    parse = argparse.ArgumentParser.parse_args

    def parsed(parser: argparse.ArgumentParser, *_: object) -> None:
        parse(parser, [word for word in words if not _PLACEHOLDER.search(word)])
        raise ParsedError

    with patch.object(argparse.ArgumentParser, "parse_args", parsed):
        try:
            main()
        except ParsedError:
            return
    raise AssertionError("it takes no arguments")


def inline(page: Path) -> Iterator[str]:
    """The commands in the text of a page, which may leave out what they need."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    yield from (re.sub(r"\\(.)", r"\1", " ".join(found.split())) for found in _INLINE.findall(text))


def unknown(line: str) -> list[str]:
    """The options of a line that its command does not have; [line] where there is no such command."""
    words = spelled(line.partition("|")[0] if " | " in line else line)
    if words[0] == "python":
        return [] if words[2].endswith("NAME") else unknown_of_module(words)
    if words[1:2] == ["COMMAND"]:
        return []
    try:
        command, rest = named(cli, words[1:])
    except AssertionError:
        return [line]
    known = {name for p in command.params for name in (*p.opts, *p.secondary_opts)} | {"-h", "--help"}
    return [
        word for word in rest if word.startswith("-") and word != "-" and word.partition("=")[0] not in known
    ]


def unknown_of_module(words: Sequence[str]) -> list[str]:
    """The same of `python -m MODULE OPTIONS`."""
    try:
        check(" ".join(words), "text")
    except AssertionError as error:
        return [str(error)]
    return []
