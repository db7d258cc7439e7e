"""Reads TOML from users, and presets from packages."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from hw.errors import InputError, unknown


def presets(package: str, folder: str = "presets") -> dict[str, Traversable]:
    """The TOML files of a package's folder, by name in ascending order."""
    found = [p for p in (resources.files(package) / folder).iterdir() if p.name.endswith(".toml")]
    return {p.name.removesuffix(".toml"): p for p in sorted(found, key=lambda p: p.name)}


def check_keys(values: Iterable[str], known: Collection[str], place: str, what: str = "key") -> None:
    """Raises `InputError`, which begins with `place`, for an unknown key."""
    for key in values:
        if key not in known:
            raise InputError(f"{place}: {unknown(what, key, known)}")


def read(path: Path, needed: str) -> str:
    """The text of a file; raises `InputError`, with what is `needed`, if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; {needed}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


def found(source: str, known: Mapping[str, Traversable], needed: str) -> tuple[str, str]:
    """The text of a preset by name, or of a file by path, and the name for errors.

    Raises `InputError`, with what is `needed`, if it is neither.
    """
    if source in known:
        return known[source].read_text("utf-8"), f"preset {source}"
    path = Path(source)
    try:
        if path.is_file():
            return path.read_text(encoding="utf-8"), source
        if path_like(source) and not path.is_dir():
            raise InputError(f"{source}: no such file; {needed}")
        raise InputError(f"{needed}, not {source!r}")
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror or error}; {needed}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: cannot be read: {error}") from None


def path_like(source: str) -> bool:
    """Whether this names a file and not a preset."""
    return "/" in source or source.endswith(".toml")


def parsed(text: str, place: str) -> dict[str, Any]:
    """Parses a TOML text; raises `InputError`, which begins with `place`, for invalid TOML."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # tomllib's own error, endless numbers, deep nesting
        raise InputError(f"{place}: not valid TOML: {error}") from None
