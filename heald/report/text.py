"""Texts from templates: pages of Markdown, a C header, descriptions for other tools."""

from __future__ import annotations

import functools
import json
from typing import Any

import jinja2


@functools.cache
def _environment() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("heald.report", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters |= {
        "count": lambda value: f"{value:,}",
        # A bar would end the cell of a table, this a comment of C.
        "cell": lambda text: text.replace("|", "\\|"),
        "comment": lambda text: text.replace("*/", "* /").replace("\n", " "),
        # Strings and lists of YAML may be those of JSON.
        "quoted": json.dumps,
    }
    return found


def filled(template: str, **values: Any) -> str:
    """A template of `templates/` with the values that it names."""
    return _environment().get_template(template).render(**values)
