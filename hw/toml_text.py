"""TOML that comes from a user."""

from __future__ import annotations

import tomllib
from typing import Any

from hw.errors import InputError


def parsed(text: str, place: str) -> dict[str, Any]:
    """The values of a TOML text; raises `InputError`, which begins with `place`, for what is no TOML."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # tomllib's own error, endless numbers, deep nesting
        raise InputError(f"{place}: not valid TOML: {error}") from None
