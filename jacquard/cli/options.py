"""Options that several commands share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from hw.config import MachineConfig, load, parse_setting

F = TypeVar("F", bound=Callable[..., Any])


def hardware(function: F) -> F:
    """`--hw` and `--set`; the command gets them as `hw` and `settings` and calls `machine`."""
    function = click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change one field of the machine; repeatable.",
    )(function)
    return click.option(
        "--hw", default="default", show_default=True, metavar="PRESET|FILE.toml", help="The machine."
    )(function)


def machine(hw: str, settings: tuple[str, ...]) -> MachineConfig:
    """The machine that `--hw` and `--set` describe."""
    return load(hw, dict(parse_setting(text) for text in settings))


def as_json(function: F) -> F:
    """`--json`."""
    return click.option("--json", "json_", is_flag=True, help="Print one JSON object on stdout.")(function)


def print_json(value: Any) -> None:
    """One JSON object on stdout."""
    click.echo(json.dumps(value, indent=2))


def note(text: str) -> None:
    """A line of progress on stderr."""
    click.echo(text, err=True)
