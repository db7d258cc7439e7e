"""The page of an exploration in Chromium at three widths, light and dark: labels, tables, pictures."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from heald.exploration.results import Exploration
from heald.report.explore import page
from tests.heald import page_layout
from tests.heald.chromium import needed, quiet, saved, show
from tests.heald.explorations import exploration

pytestmark = needed


@pytest.fixture(scope="module")
def found() -> Exploration:
    """An exploration whose operators have long names."""
    made = exploration(models=2, confirmed=(True, True, False))
    return replace(
        made,
        points=tuple(
            replace(
                p,
                models=tuple(
                    replace(
                        m,
                        operators=tuple(
                            replace(o, name=f"/encoder/layer.{i}/attention/output/dense/{o.name}")
                            for i, o in enumerate(m.operators)
                        ),
                    )
                    for m in p.models
                ),
            )
            for p in made.points
        ),
    )


def opened(browser: Any, made: Exploration, folder: Path, width: int) -> Any:
    """The browser with the page, and all that it draws when it gets to it."""
    from selenium.webdriver.support.ui import WebDriverWait

    file = folder / "page.html"
    file.write_text(page(made), encoding="utf-8")
    show(browser, file, width)
    drawn = "return ['#multiples figure', '#roofline svg'].every(name => document.querySelector(name))"
    WebDriverWait(browser, 60).until(lambda b: b.execute_script(drawn))
    return browser


def test_no_label_lies_on_another_one_or_leaves_its_picture(
    browser: Any, found: Exploration, tmp_path: Path, look: int
) -> None:
    opened(browser, found, tmp_path, look)
    assert page_layout.texts(browser) == []
    assert page_layout.contrast(browser) == []
    assert page_layout.canvas_texts(browser, "Explore.plot.draw()") == []
    # The table of all points has a column for everything: it scrolls.
    wide = page_layout.tables(browser, "#table")
    assert wide == [] or (look < 1280 and not any(text.startswith("the page") for text in wide))
    assert quiet(browser)


@pytest.mark.slow
def test_every_picture_is_saved_as_svg_and_png(browser: Any, found: Exploration, tmp_path: Path) -> None:
    opened(browser, found, tmp_path, 1280)
    buttons = browser.find_elements("css selector", ".save button")
    stems = {"front": 10, "timeline": 10, "roofline": 10, "cycles-by-rows": 5}
    for stem, least in stems.items():
        svg, png = (b for b in buttons if f"Save {stem.replace('-', ' ')} " in b.get_attribute("aria-label"))
        root = ElementTree.fromstring(saved(browser, svg, tmp_path, f"{stem}.svg"))
        assert sum(element.tag.endswith("}text") for element in root.iter()) >= least
        data = saved(browser, png, tmp_path, f"{stem}.png")
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        (width,) = struct.unpack(">I", data[16:20])
        assert width == pytest.approx(2 * float(root.get("viewBox", "").split()[2]), abs=2)
    assert quiet(browser)
