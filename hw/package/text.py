"""Renders templates: pages of Markdown, a C header, descriptions for other tools."""

from __future__ import annotations

import functools
import json
from typing import Any

import jinja2


@functools.cache
def _environment(package: str) -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
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


def filled(template: str, package: str = "hw.package", **values: Any) -> str:
    """A template of a package's folder `templates` with the values that it names."""
    return _environment(package).get_template(template).render(**values)
