"""Sentences are short enough to be read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.sentences import prose, sentences
from tests.docs.test_site import PAGES, ROOT

MOST_WORDS = 35


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_are_short(page: Path) -> None:
    assert [s for s in sentences(prose(page)) if len(s.split()) > MOST_WORDS] == []


def test_a_long_sentence_is_found() -> None:
    assert max(len(s.split()) for s in sentences("One two. " + "word " * 36 + "end.\n\n- Three.")) == 37
