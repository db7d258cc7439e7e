"""docs/architecture.md names only files, folders and functions that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
#: `folder/`, `folder/file.py`, or `folder/file.py:name`, where a name may be `Class.method`.
NAMED = re.compile(r"`((?:hw|sw|cosim|heald|tests|bench|examples|docs)/[\w./-]*)(?::([\w.]+))?`")


def mentions(text: str) -> list[tuple[str, str]]:
    """Every path in a page, with the name behind its colon or an empty one."""
    return [(m[1], m[2] or "") for m in NAMED.finditer(text)]


def defined(path: Path) -> set[str]:
    """The names that a module defines at its top, and `Class.member` of its classes."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        names = _names(node)
        found |= names
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{member}" for inner in node.body for member in _names(inner)}
    return found


def _names(node: ast.stmt) -> set[str]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return {node.name}
        case ast.Assign():
            return {t.id for t in node.targets if isinstance(t, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def missing(text: str) -> list[str]:
    """What a page names and the tree does not have."""
    found = []
    for path, name in mentions(text):
        place = ROOT / path
        if not place.exists():
            found.append(path)
        elif name and (place.suffix != ".py" or name not in defined(place)):
            found.append(f"{path}:{name}")
    return found


def test_everything_that_the_page_names_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(mentions(text)) >= 20
    assert missing(text) == []


@pytest.mark.parametrize(
    "text", ["`sw/nowhere.py`", "`sw/passes.py:no_such_name`", "`hw/config.py:MachineConfig.no_such_field`"]
)
def test_a_name_that_does_not_exist_is_found(text: str) -> None:
    assert missing(text) == [text.strip("`")]


def test_links_lead_to_pages_that_exist() -> None:
    text = PAGE.read_text(encoding="utf-8")
    targets = [t for t in re.findall(r"\]\(([^)#]+)[^)]*\)", text) if "://" not in t]
    assert targets
    assert [t for t in targets if not (PAGE.parent / t).exists()] == []
