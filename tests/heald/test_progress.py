"""Long work repeats its last message during silence."""

from __future__ import annotations

import io
import re
import threading

import pytest

from heald import progress


def test_silent_work_repeats_its_last_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SILENCE", 0.01)
    said: list[str] = []
    enough = threading.Event()

    def hear(text: str) -> None:
        if said or text == "building":  # a slow start is told as well
            said.append(text)
        if len(said) == 3:
            enough.set()

    with progress.shown(hear) as say, progress.shown(say) as inner:
        inner("building")
        enough.wait()
    assert said[0] == "building"
    assert all(re.fullmatch(r"building \(\d+ s\)", text) for text in said[1:])


def test_nothing_is_said_after_the_end_or_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    before = threading.active_count()
    with progress.shown(print) as say:
        say("one")
    assert threading.active_count() == before
    with progress.shown() as say:
        say("two")
    captured = capsys.readouterr()
    assert captured.out == "one\n"
    assert captured.err == ""


@pytest.mark.parametrize(("silence", "again"), [(1e9, []), (0.0, ["routing, round 2"])])
def test_stages_are_told_once_and_again_when_they_last(
    monkeypatch: pytest.MonkeyPatch, silence: float, again: list[str]
) -> None:
    monkeypatch.setattr(progress, "SILENCE", silence)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    said: list[str] = []
    say = progress.stages(said.append)
    assert say is not None
    for text in ("routing, round 1", "routing, round 2", "packing"):
        say(text)
    assert said == ["routing", *again, "packing"]
