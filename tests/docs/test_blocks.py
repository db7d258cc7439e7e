"""Every block of every page is run, or checked, or says why not; every command in the text is one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks, indented
from tests.docs.lines import check, inline, unknown
from tests.docs.reader import Reader, checked
from tests.docs.test_json import PAGE as JSON_PAGE
from tests.docs.test_site import PAGES
from tests.docs.test_tutorials import TUTORIALS

#: Pages with blocks; tests of their own follow the tutorials and the page of JSON.
READ = [p for p in PAGES if p not in (*TUTORIALS, JSON_PAGE) and any(blocks(p))]
#: The number of blocks that nothing runs and nothing checks whole. It may only become smaller.
EXEMPT = {
    "CONTRIBUTING.md": 2,
    "docs/area.md": 2,
    "docs/bus.md": 1,
    "docs/ir.md": 1,
    "docs/machine.md": 3,
    "docs/operators.md": 1,
    "docs/ports.md": 1,
    "docs/tiling.md": 1,
    "docs/waves.md": 1,
    "examples/README.md": 1,
}

#: Lines that no command takes.
WRONG = (
    *("heald run a b", "heald run --no-such", "heald tile --hw", "heald warps a.py --reduce most"),
    *("heald nothing", "heald deps", "make nothing", "python -m bench.nothing"),
    *("python -m bench.sync --no-such", "python -m bench.zoo --no-such", "python -m bench.verilog a"),
)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", READ, ids=name)
def test_a_page_does_what_it_says(reader: Reader, quick: None, page: Path) -> None:
    assert sum(reader.follow(page, slow=False).values()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in READ if any(b.slow for b in blocks(p))], ids=name)
def test_a_page_does_what_it_says_slow_commands_too(reader: Reader, page: Path) -> None:
    assert reader.follow(page, slow=True)["slow"] == 0


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_have_fences(page: Path) -> None:
    assert indented(page) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_in_the_text_have_these_options(page: Path) -> None:
    assert {line: found for line in inline(page) if (found := unknown(line))} == {}


def test_few_blocks_are_neither_run_nor_checked() -> None:
    found = Counter(
        name(page)
        for page in PAGES
        for block in blocks(page)
        if block.why is not None and not checked(block, f"{name(page)}:{block.line}")
    )
    assert found == EXEMPT


def test_a_wrong_block_is_found(reader: Reader) -> None:
    """Lines, a snippet, descriptions, and output that does not come."""
    for line in ("heald run a b", "heald run --no-such", "heald tile --hw", "heald warps a.py --reduce most"):
        with pytest.raises(AssertionError):
            check(line, "page:1")
    for line in (
        "make nothing",
        "python -m bench.nothing",
        "python -m bench.sync --no-such",
        "python -m bench.zoo --no-such",
    ):
        with pytest.raises(AssertionError):
            check(line, "page:1")
    assert check("heald map GRAPH.json|FILE.py:FUNCTION [--grid RxC] [--json]", "page:1")
    assert check("python -m bench.zoo [MODEL ...] --rtl  # hours", "page:1")
    assert not check("gtkwave run.gtkw", "page:1")
    page = Path("page.md").resolve()
    for text in (
        "python\n1 / 0",
        "toml\npreset = 'no-such'",
        "c\nint f() { return x; }",
        "json\n{",
        "text\nno",
    ):
        page.write_text(f"```{text}\n```\n", encoding="utf-8")
        with pytest.raises(Exception):  # noqa: B017, PT011
            reader.follow(page, slow=False)


def test_a_mark_away_from_its_block_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- slow -->\n\n```text\na\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="before its block"):
        list(blocks(page))


def test_a_block_without_a_fence_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "A\n\n    heald run\n\n- item\n\n    more of it\n\n```text\n    a\n\n    b\n```\n", encoding="utf-8"
    )
    assert indented(page) == [3]
