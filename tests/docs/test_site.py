"""The site: every page is in its navigation, every link has a target, its generated pages are up to date."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from heald.cli import COMMANDS
from hw.config import FIELDS
from hw.package import fields_page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GLOSSARY = DOCS / "glossary.md"
#: Pages of the tree that are in the site, README.md as its first one.
PAGES = sorted(
    {
        *DOCS.rglob("*.md"),
        *(ROOT / "examples").rglob("README.md"),
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "bench/README.md")),
    }
)
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)")
#: What the site must not load: anything from the network. Links to click on are no loads.
LOADS = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml; objects of Python in it are left out."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def entries(part: Any) -> Iterator[str]:
    """The pages of a part of the navigation."""
    if isinstance(part, str):
        yield part
    else:
        for inner in part if isinstance(part, list) else part.values():
            yield from entries(inner)


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page, as GitHub and the site make them of its headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", t) for t in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    ]
    return frozenset(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles)


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    found = []
    for path, anchor in LINK.findall(text):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            found.append(f"{path}#{anchor}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `a-b` (c)\n[x](no.md) [y](#no) [z](page.md#one-a-b-c) [w](https://no.where)\n")
    assert broken(page) == ["no.md#", "#no"]


def test_every_page_is_in_the_navigation_once() -> None:
    config = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)
    listed = list(entries(config["nav"]))
    assert len(listed) == len(set(listed))
    places = {p.relative_to(DOCS if DOCS in p.parents else ROOT).as_posix() for p in PAGES}
    assert set(listed) == places - {"README.md"} | {"index.md"}


def test_the_page_of_fields_is_of_today() -> None:
    page = (DOCS / "fields.md").read_text(encoding="utf-8")
    assert page == fields_page(), "make docs"
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(FIELDS)


def test_terms_of_the_glossary_have_two_sentences_and_are_linked_from_other_pages() -> None:
    text = GLOSSARY.read_text(encoding="utf-8")
    terms = re.findall(r"^### (.*)\n\n((?:.+\n)+)", text, re.MULTILINE)
    assert len(terms) == text.count("\n### ")
    assert [t.lower() for t, _ in terms] == sorted(t.lower() for t, _ in terms)
    assert [t for t, meaning in terms if len(re.findall(r"[.!?](?:\s|$)", meaning)) != 2] == []
    others = "".join(p.read_text(encoding="utf-8") for p in DOCS.rglob("*.md") if p != GLOSSARY)
    assert anchors(GLOSSARY) - set(re.findall(r"glossary\.md#([\w-]+)", others)) == {"glossary"}


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_the_network(tmp_path: Path) -> None:
    """`--strict`, by the packages of this folder; with the help of all commands and all names of Python."""
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    pages = {
        p.relative_to(tmp_path).as_posix(): p.read_text(encoding="utf-8") for p in tmp_path.rglob("*.html")
    }
    assert all(f">heald {name}" in pages["reference/commands.html"] for name in COMMANDS)
    assert 'id="heald.session.compile"' in pages["reference/python.html"]
    assert {name: LOADS.findall(page) for name, page in pages.items() if LOADS.search(page)} == {}
