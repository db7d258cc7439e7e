"""The tutorials are correct: files are saved, commands are run, and outputs are compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import test_architecture as architecture
from tests.docs.blocks import ROOT, blocks
from tests.docs.reader import Reader, missing
from tests.docs.sentences import prose

TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_does_what_it_says(reader: Reader, page: Path) -> None:
    found = reader.follow(page, slow=False)
    assert found["run"] > 0
    assert found["exempt"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [p for p in TUTORIALS if any(b.slow for b in blocks(p))], ids=lambda page: page.stem
)
def test_a_tutorial_does_what_it_says_slow_commands_too(reader: Reader, page: Path) -> None:
    assert reader.follow(page, slow=True)["slow"] == 0


def test_there_are_six_and_each_has_commands_and_output() -> None:
    assert len(TUTORIALS) == 6
    for page in TUTORIALS:
        assert {"bash", "text"} <= {block.language for block in blocks(page)}, page


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ("a b\nd", None),
        ("a   b", None),
        ("…\nc …", None),
        ("d\na b", "a b"),
        ("a", "a"),
        ("a …\nc e", "c e"),
    ],
)
def test_output_that_a_page_shows_is_found_in_what_is_printed(shown: str, found: str | None) -> None:
    assert missing(shown, "a b\nc d e\nd\n") == found


def test_tutorials_name_only_files_and_functions_that_exist() -> None:
    texts = {page.stem: prose(page) for page in TUTORIALS}
    assert len(architecture.mentions(texts["engine"])) >= 20
    assert {name: found for name, text in texts.items() if (found := architecture.missing(text))} == {}


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_tutorials_take_minutes_to_read(page: Path) -> None:
    assert 600 <= len(prose(page).split()) <= 1200
