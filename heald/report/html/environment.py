"""What all pages share: templates, files of a package, JSON inside a page."""

from __future__ import annotations

import base64
import functools
import json
import zlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup
from rich.filesize import decimal

#: A page may load nothing from elsewhere, only pictures that it makes itself.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


def file(package: str, name: str) -> Markup:
    """A file of a package, unescaped."""
    return Markup(resources.files(package).joinpath(name).read_text(encoding="utf-8"))


def compact(value: Any) -> str:
    """A value as JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def as_json(value: Any) -> Markup:
    """A value as JSON that cannot close the script element around it."""
    words = compact(value)
    return Markup(words.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


@functools.cache
def template(package: str, name: str = "template.html") -> jinja2.Template:
    """A template of a package, which may include those of this one (`head.html`).

    Everything that is filled in is escaped unless it is `Markup`.
    """
    folders = [jinja2.PackageLoader(where, "") for where in dict.fromkeys((package, __package__))]
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(folders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    environment.filters |= {
        "items": lambda value, unit: f"{value:,} {unit.removesuffix('s') if value == 1 else unit}",
        "count": lambda value: f"{value:,}",
        "percent": lambda share: f"{100 * share:.1f} %",
        "bytes": decimal,
        "address": lambda value: f"{value:#010x}",
    }
    return environment.get_template(name)


_LEVEL = 9


def pack(columns: Sequence[np.ndarray]) -> str:
    """Columns as base64 of deflate (zlib).

    For each column, the lowest bytes of all numbers come first, then the next, four times in all. Numbers are
    taken modulo 2^32. The browser inflates them with `DecompressionStream("deflate")`.
    """
    planes = [_planes(column) for column in columns]
    return text(b"".join(planes))


def text(data: bytes) -> str:
    """Bytes as base64 of deflate (zlib)."""
    return base64.b64encode(zlib.compress(data, _LEVEL)).decode("ascii")


def _planes(column: np.ndarray) -> bytes:
    words = (column.astype(np.int64) & 0xFFFFFFFF).astype("<u4")
    return np.ascontiguousarray(words.view(np.uint8).reshape(len(words), 4).T).tobytes()


def differences(values: np.ndarray) -> np.ndarray:
    """The first value, then the difference of each value from the one before."""
    return np.diff(values, prepend=np.zeros(1, values.dtype))
