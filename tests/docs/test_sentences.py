"""Sentences are short enough to be read once, in README.md, the tutorials, and nearly all other pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.sentences import prose, sentences
from tests.docs.test_site import PAGES, ROOT

MOST_WORDS = 35
#: Pages that have longer sentences. The list may only become shorter.
LONG = {
    "CHANGELOG.md",
    "bench/README.md",
    "docs/canonical.md",
    "docs/cli.md",
    "docs/compile.md",
    "docs/fpga.md",
    "docs/ir.md",
    "docs/map.md",
    "docs/network.md",
    "docs/operators.md",
    "examples/05_convolutions/README.md",
    "examples/08_grid_kernels/README.md",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_are_short(page: Path) -> None:
    long = [s for s in sentences(prose(page)) if len(s.split()) > MOST_WORDS]
    assert not long or page.relative_to(ROOT).as_posix() in LONG


def test_a_long_sentence_is_found() -> None:
    assert max(len(s.split()) for s in sentences("One two. " + "word " * 36 + "end.\n\n- Three.")) == 37


def test_the_first_page_and_the_tutorials_are_no_exceptions() -> None:
    assert not [page for page in LONG if page == "README.md" or page.startswith("docs/tutorials/")]
