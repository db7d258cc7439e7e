"""The report of an exploration in Chromium: pointing, selecting, sorting, filtering and saving."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from heald.exploration.results import Exploration, Point, State
from heald.exploration.study import fields_of
from heald.report.explore import page
from hw.config import load
from tests.heald.chromium import LIMIT, needed, quiet, saved, show
from tests.heald.explorations import exploration, fabric

pytestmark = needed


@pytest.fixture(scope="module")
def found() -> Exploration:
    return exploration(models=2, confirmed=(True, True, False))


@pytest.fixture
def opened(browser: Any, found: Exploration, tmp_path: Path) -> Any:
    """The browser with the page of an exploration of 256 points."""
    return put(browser, found, tmp_path)


def put(browser: Any, made: Exploration, folder: Path, width: int = 1400) -> Any:
    file = folder / "page.html"
    file.write_text(page(made, {"torus4x4": fabric("torus4x4")}), encoding="utf-8")
    return show(browser, file, width)


def text(browser: Any, name: str) -> str:
    told: str = browser.execute_script("return document.getElementById(arguments[0]).textContent", name)
    return told


def pointed(browser: Any, number: int, kind: str = "pointermove") -> None:
    """Move the pointer to a point of the plot, or press it there."""
    script = """
        const i = Explore.points.place.get(arguments[0]), [x, y] = Explore.plot.place(i);
        const plot = document.getElementById("plot"), box = plot.getBoundingClientRect();
        plot.setPointerCapture = () => {};
        plot.dispatchEvent(new PointerEvent(arguments[1],
            { clientX: box.left + x, clientY: box.top + y, pointerId: 1, bubbles: true }));"""
    browser.execute_script(script, number, kind)


def wait_for(browser: Any, condition: str) -> None:
    """Wait for what the page does when it gets to it."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, LIMIT).until(lambda b: b.execute_script(f"return {condition}"))


def selected(browser: Any) -> int:
    number: int = browser.execute_script("return Explore.points.data.number[Explore.selected]")
    return number


def shown(browser: Any) -> list[int]:
    """The points of the table in its order."""
    numbers: list[int] = browser.execute_script(
        "return Explore.table.order().map(i => Explore.points.data.number[i])"
    )
    return numbers


def filtered(browser: Any, terms: str) -> list[int]:
    script = """
        const field = document.getElementById("filter");
        field.value = arguments[0];
        field.dispatchEvent(new Event("input"));"""
    browser.execute_script(script, terms)
    return shown(browser)


def holding(found: Exploration, test: Callable[[Point], bool]) -> list[int]:
    return [p.number for p in found.points if test(p)]


def test_the_first_of_the_front_is_selected_and_drawn(opened: Any, found: Exploration) -> None:
    assert selected(opened) == found.front[0]
    assert text(opened, "card").startswith(f"Point {found.front[0]}on the front")
    colours = opened.execute_script("""
        const canvas = document.getElementById("plot-base");
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const found = new Set();
        for (let i = 0; i < data.length; i += 4) found.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
        return found.size;""")
    assert colours > 8
    assert "1 of 3 points that ran on the RTL differs" in text(opened, "summary")
    assert quiet(opened)


def test_the_pointer_tells_configuration_and_metrics(opened: Any, found: Exploration) -> None:
    number = found.front[1]
    point = found.point(number)
    pointed(opened, number)
    told = text(opened, "tip").splitlines()
    assert told[0] == f"Point {number}, on the front, confirmed on the RTL"
    assert told[1] == ", ".join(f"{n} {v}" for n, v in point.parameters.items())
    assert f"cycles: {int(point.metrics['cycles']):,}" in told
    assert f"LUTs: {int(point.metrics['luts']):,}" in told
    assert quiet(opened)


def test_a_click_selects_and_shows_timeline_and_roofline(opened: Any, found: Exploration) -> None:
    number = found.front[-1]
    point = found.point(number)
    pointed(opened, number, "pointerdown")
    pointed(opened, number, "pointerup")
    assert selected(opened) == number
    operators = point.models[0].operators
    wait_for(opened, f"document.getElementById('point-number').textContent === '{number}'")
    wait_for(opened, f"document.querySelectorAll('#timeline .operator').length === {len(operators)}")
    tips = opened.execute_script(
        "return [...document.querySelectorAll('#timeline .operator > title')].map(t => t.textContent)"
    )
    for o, tip in zip(operators, tips, strict=True):
        assert f"{o.name} ({o.op}, " in tip
        assert f"{o.cycles:,} cycles; a span of {o.end - o.start:,}, from {o.start:,} to {o.end:,}" in tip
    marks = opened.execute_script("return document.querySelectorAll('#roofline circle.mark').length")
    assert marks == sum(bool(o.macs and o.moved) for o in operators)
    peak = point.hw["rows"] * point.hw["cols"]
    assert f"array: {peak:,} MACs per cycle" in text(opened, "roofline")
    assert quiet(opened)


def test_a_model_is_chosen(opened: Any, found: Exploration) -> None:
    wait_for(opened, "document.getElementById('model').options.length === 2")
    opened.execute_script("""
        const model = document.getElementById("model");
        model.selectedIndex = 1;
        model.dispatchEvent(new Event("change"));""")
    assert text(opened, "point-told").startswith("encoder_1.onnx: ")
    assert quiet(opened)


def test_keys_go_along_the_front_and_select(opened: Any, found: Exploration) -> None:
    from selenium.webdriver import Keys

    plot = opened.find_element("id", "plot")
    line = opened.execute_script("return Explore.plot.line().map(i => Explore.points.data.number[i])")
    assert sorted(line) == sorted(found.front)
    plot.send_keys("ppp" + Keys.ENTER)
    # The selected one is that with the least cycles and the most LUTs: the last of the line.
    assert selected(opened) == line[-4]
    assert text(opened, "told").startswith(f"Point {line[-4]}")
    plot.send_keys("n" + Keys.ENTER)
    assert selected(opened) == line[-3]
    plot.send_keys(Keys.ARROW_LEFT + Keys.ENTER)
    x = "return Explore.plot.place(Explore.points.place.get(arguments[0]))[0]"
    assert opened.execute_script(x, selected(opened)) <= opened.execute_script(x, line[-3])
    assert quiet(opened)


def test_axes_change_with_their_front(opened: Any, found: Exploration) -> None:
    opened.execute_script("""
        const axis = document.getElementById("axis-x");
        axis.value = "fmax_mhz";
        axis.dispatchEvent(new Event("change"));""")
    line = opened.execute_script("return Explore.plot.line().map(i => Explore.points.data.number[i])")
    done = [p for p in found.points if p.state is State.COMPLETE]

    def beats(p: Point, q: Point) -> bool:
        a, b = ((r.metrics["cycles"], -r.metrics["fmax_mhz"]) for r in (p, q))
        return a != b and a[0] <= b[0] and a[1] <= b[1]

    best = {(p.metrics["cycles"], p.metrics["fmax_mhz"]) for p in done if not any(beats(q, p) for q in done)}
    by_number = {p.number: p for p in found.points}
    got = [(by_number[n].metrics["cycles"], by_number[n].metrics["fmax_mhz"]) for n in line]
    assert set(got) == best
    assert len(got) == len(best)
    assert quiet(opened)


def test_dragging_zooms_and_the_button_shows_all(opened: Any) -> None:
    from selenium.webdriver import ActionChains

    button = opened.find_element("id", "zoom-out")
    assert not button.is_enabled()
    plot = opened.find_element("id", "plot")
    ActionChains(opened).move_to_element(plot).click_and_hold().move_by_offset(120, 90).release().perform()
    zoom = opened.execute_script("return Explore.plot.view.zoom")
    assert zoom["x"][0] < zoom["x"][1]
    assert button.is_enabled()
    button.click()
    assert opened.execute_script("return Explore.plot.view.zoom") is None
    assert quiet(opened)


def test_columns_sort_both_ways_and_values_that_are_not_known_come_last(
    opened: Any, found: Exploration
) -> None:
    head = "//div[@id='table']//th/button[text()='cycles']"
    opened.find_element("xpath", head).click()
    known = {p.number: p.metrics["cycles"] for p in found.points if "cycles" in p.metrics}
    up = shown(opened)
    assert [known[n] for n in up[: len(known)]] == sorted(known.values())
    assert not set(up[len(known) :]) & known.keys()
    opened.find_element("xpath", head).click()
    down = shown(opened)
    assert [known[n] for n in down[: len(known)]] == sorted(known.values(), reverse=True)
    assert not set(down[len(known) :]) & known.keys()
    sort = "return document.evaluate(arguments[0], document).iterateNext().parentElement.ariaSort"
    assert opened.execute_script(sort, head) == "descending"
    # The best rows are in sight at once.
    first = "return document.querySelector('#table tbody tr').cells[0].textContent"
    assert opened.execute_script(first) == str(down[0])
    assert quiet(opened)


def test_filters(opened: Any, found: Exploration) -> None:
    def metric(name: str) -> Callable[[Point], float]:
        return lambda p: p.metrics.get(name, float("nan"))

    luts, time, energy = metric("luts"), metric("seconds_per_inference"), metric("energy_pj")
    expected: dict[str, Callable[[Point], bool]] = {
        "luts<30000 rows=8": lambda p: luts(p) < 30000 and p.parameters["rows"] == 8,
        "luts < 30k": lambda p: luts(p) < 30000,
        "rows=8,16 cols=8..16": lambda p: p.parameters["rows"] in (8, 16) and p.parameters["cols"] in (8, 16),
        "time<=20ms": lambda p: time(p) <= 0.02,
        "energy>=300uJ": lambda p: energy(p) >= 300e6,
        "rows<cols": lambda p: int(p.parameters["rows"]) < int(p.parameters["cols"]),
        "cgra!=none state=complete": lambda p: p.parameters["cgra"] != "none" and p.state is State.COMPLETE,
        "front=yes": lambda p: p.number in found.front,
        "confirmed=no": lambda p: any(c.point == p.number and not c.confirmed for c in found.confirmations),
        'reason~"SIGNAL 9"': lambda p: "signal 9" in (p.reason or ""),
        "refused": lambda p: p.state is State.REFUSED,
        "utilization>80%": lambda p: metric("utilization")(p) > 0.8,
    }
    for terms, test in expected.items():
        numbers = holding(found, test)
        assert numbers, terms
        assert filtered(opened, terms) == numbers, terms
        assert text(opened, "filter-told") == f"{len(numbers)} of {len(found.points)} points"
    kept = filtered(opened, "rows=8")
    assert filtered(opened, "rows=8 nonsense<3") == kept
    assert "there is no nonsense" in text(opened, "filter-told")
    filtered(opened, "rows<")
    assert "The filter is not used" in text(opened, "filter-told")
    opened.find_element("id", "clear").click()
    assert len(shown(opened)) == len(found.points)
    opened.find_element("id", "filter").send_keys("rows=4")
    assert shown(opened) == holding(found, lambda p: p.parameters["rows"] == 4)
    assert quiet(opened)


def test_states_causes_and_boxes_filter_too(opened: Any, found: Exploration) -> None:
    opened.execute_script("document.querySelector('#state-choice input').click()")
    assert shown(opened) == holding(found, lambda p: p.state is not State.COMPLETE)
    opened.execute_script("document.querySelector('button[data-cause]').click()")
    assert shown(opened) == holding(found, lambda p: p.state is State.REFUSED)
    opened.find_element("id", "clear").click()
    wait_for(opened, "document.querySelectorAll('#multiples figure').length === 6")
    opened.execute_script(
        "document.querySelector('#multiples .box').dispatchEvent(new MouseEvent('click', { bubbles: true }))"
    )
    assert shown(opened) == holding(found, lambda p: p.parameters["rows"] == 4)
    assert quiet(opened)


def test_boxes_hold_the_middle_half(opened: Any, found: Exploration) -> None:
    wait_for(opened, "document.querySelectorAll('#multiples figure').length === 6")
    title = "return document.querySelector('#multiples figure .box title').textContent"
    cycles = sorted(p.metrics["cycles"] for p in found.points if p.metrics and p.parameters["rows"] == 4)
    told = opened.execute_script(title)
    assert told.startswith(f"4: {len(cycles)} points, ")
    assert told.endswith(f"all {int(cycles[0]):,} to {int(cycles[-1]):,}")
    assert quiet(opened)


def test_the_table_selects_by_click_and_key_and_holds_few_rows(opened: Any, found: Exploration) -> None:
    from selenium.webdriver import Keys

    rows = "return document.querySelectorAll('#table tbody tr').length"
    assert opened.execute_script(rows) < 80 < len(found.points)
    table = opened.find_element("id", "table")
    opened.execute_script("arguments[0].focus()", table)
    table.send_keys(Keys.END)
    assert selected(opened) == found.points[-1].number
    last = opened.execute_script(
        "return document.querySelector('#table tr[aria-selected=true]').cells[0].textContent"
    )
    assert last == str(found.points[-1].number)
    table.send_keys(Keys.HOME)
    table.send_keys(Keys.ARROW_DOWN)
    assert selected(opened) == found.points[1].number
    opened.execute_script("document.querySelectorAll('#table tr[data-point]')[3].cells[2].click()")
    assert selected(opened) == found.points[3].number
    assert text(opened, "card").startswith(f"Point {found.points[3].number}")
    assert quiet(opened)


def test_what_is_shown_is_saved_as_csv(opened: Any, found: Exploration, tmp_path: Path) -> None:
    numbers = filtered(opened, "rows=8,32")
    button = opened.find_element("id", "csv")
    data = saved(opened, button, tmp_path, f"{found.name}.csv")
    rows = list(csv.DictReader(io.StringIO(data.decode())))
    assert [int(row["point"]) for row in rows] == numbers
    by_number = {p.number: p for p in found.points}
    for row in rows:
        point = by_number[int(row["point"])]
        assert row["state"] == point.state.value
        assert row["cgra"] == point.parameters["cgra"]
        assert row["reason"] == (point.reason or "")
        assert row["front"] == ("yes" if point.number in found.front else "no")
        told = {n: float(row[n]) for n in ("cycles", "luts", "energy_pj", "utilization") if row[n]}
        assert told == {n: point.metrics[n] for n in told}
        assert bool(told) == bool(point.metrics)
    assert quiet(opened)


@pytest.mark.parametrize("cgra", ["none", "torus4x4"])
def test_a_configuration_is_saved_as_toml(opened: Any, found: Exploration, tmp_path: Path, cgra: str) -> None:
    point = next(p for p in found.points if p.state is State.COMPLETE and p.parameters["cgra"] == cgra)
    opened.execute_script("Explore.select(Explore.points.place.get(arguments[0]))", point.number)
    name = f"{found.name}-{point.number}.toml"
    saved(opened, opened.find_element("id", "toml"), tmp_path, name)
    config = load(str(tmp_path / name))
    assert fields_of(config) == point.hw
    assert config.cgra == (None if cgra == "none" else fabric(cgra))
    assert quiet(opened)


@pytest.mark.parametrize("width", [420, 1280])
def test_no_page_is_wider_than_its_window(
    browser: Any, found: Exploration, tmp_path: Path, width: int
) -> None:
    long = "models/a-very-long-path/" * 12
    put(browser, replace(found, name=long.replace("/", "-"), models=(long,)), tmp_path, width)
    inner, wide = browser.execute_script("return [innerWidth, document.documentElement.scrollWidth]")
    assert wide <= inner
    assert quiet(browser)


def test_a_page_without_figures_says_why(browser: Any, found: Exploration, tmp_path: Path) -> None:
    refused = tuple(p for p in found.points if p.state is State.REFUSED)
    put(browser, replace(found, points=refused, front=(), confirmations=(), importance={}), tmp_path)
    assert len(shown(browser)) == len(refused)
    assert not browser.find_element("id", "plot").is_displayed()
    browser.execute_script("Explore.select(0)")
    assert refused[0].reason is not None
    assert refused[0].reason in text(browser, "card")
    assert browser.find_elements("id", "toml") == []
    assert quiet(browser)
