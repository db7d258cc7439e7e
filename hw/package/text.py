"""Renders templates: Markdown pages, a C header, descriptions for other tools."""

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
        # A bar would end a table cell, `*/` a C comment.
        "cell": lambda text: text.replace("|", "\\|"),
        "comment": lambda text: text.replace("*/", "* /").replace("\n", " "),
        # Strings and lists of JSON are valid YAML.
        "quoted": json.dumps,
    }
    return found


def filled(template: str, package: str = "hw.package", **values: Any) -> str:
    """Renders a template of a package's folder `templates` with the values that it names."""
    return _environment(package).get_template(template).render(**values)
