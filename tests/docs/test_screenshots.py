"""The site's screenshots: light and dark in Chromium; without a browser the site is built all the same."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.blocks import ROOT
from tests.heald.chromium import CHROMIUM, needed

MARK = "<!-- screenshot report: What it shows -->"


def module(name: str) -> ModuleType:
    """A module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@needed
def test_a_page_is_shot_light_and_dark(tmp_path: Path) -> None:
    screenshots = module("screenshots")
    page = tmp_path / "page.html"
    page.write_text(
        "<style>body { background: white } "
        "@media (prefers-color-scheme: dark) { body { background: black } }</style>",
        encoding="utf-8",
    )
    found = {}
    for scheme in ("light", "dark"):
        target = tmp_path / f"{scheme}.png"
        assert screenshots.shoot(CHROMIUM, page, target, scheme) == ""
        found[scheme] = target.read_bytes()
        assert struct.unpack(">II", found[scheme][16:24]) == (screenshots.WIDTH, screenshots.HEIGHT)
    assert found["light"] != found["dark"]


def test_a_browser_that_does_not_run_is_told(tmp_path: Path) -> None:
    told = module("screenshots").shoot("/bin/false", tmp_path / "page.html", tmp_path / "p.png", "dark")
    assert told == "exit code 1"


def test_without_a_browser_a_line_says_so_and_nothing_old_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screenshots = module("screenshots")
    (tmp_path / "shots").mkdir()
    monkeypatch.setattr(screenshots, "FOLDER", tmp_path / "shots")
    monkeypatch.setattr(screenshots.shutil, "which", lambda name: None)
    assert screenshots.main() == 0
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "shots").exists()


def test_a_page_shows_both_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = module("hooks")
    monkeypatch.setattr(hooks, "SCREENSHOTS", tmp_path)
    assert hooks.pictured(f"a\n{MARK}\nb", "report.md") == "a\n\nb"
    for scheme in ("light", "dark"):
        (tmp_path / f"report-{scheme}.png").touch()
    assert hooks.pictured(MARK, "tutorials/x.md") == (
        "![What it shows](../screenshots/report-light.png#only-light)"
        "![What it shows](../screenshots/report-dark.png#only-dark)"
    )


def test_both_pages_have_one() -> None:
    """Their names are those of the pages that are shot."""
    screenshots, hooks = module("screenshots"), module("hooks")
    shot = {Path(line.split()[-1]).stem for line in screenshots.COMMANDS if "--report" in line}
    marks = {
        name: hooks.SCREENSHOT.findall((ROOT / f"docs/{name}.md").read_text(encoding="utf-8"))
        for name in ("report", "explore_report")
    }
    assert [len(found) for found in marks.values()] == [1, 1]
    assert {found[0][0] for found in marks.values()} == shot
