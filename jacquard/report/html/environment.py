"""What all pages are made with: templates, files of a package as they are, JSON inside a page."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from jacquard.report.page import bytes_text

#: What a page may load: nothing from anywhere; its own pictures are made in it.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)


def file(package: str, name: str) -> Markup:
    """A file of a package as it is."""
    return Markup(resources.files(package).joinpath(name).read_text(encoding="utf-8"))


def as_json(value: Any) -> Markup:
    """A value as JSON that cannot end the script element that it stands in."""
    words = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Markup(words.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


@functools.cache
def template(package: str) -> jinja2.Template:
    """`template.html` of a package; everything that is filled in is escaped unless it is `Markup`."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters |= {
        "items": lambda value, unit: f"{value:,} {unit.removesuffix('s') if value == 1 else unit}",
        "count": lambda value: f"{value:,}",
        "percent": lambda share: f"{100 * share:.1f} %",
        "bytes": bytes_text,
        "address": lambda value: f"{value:#010x}",
    }
    return environment.from_string(file(package, "template.html"))
