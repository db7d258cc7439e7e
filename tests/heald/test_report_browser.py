"""The report's page in Chromium: it draws, moves, sorts, and shows what is under the pointer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cosim.session.arguments import arguments
from cosim.session.kernel import base_machine, machine, prepare_kernel
from heald.loops import run_kernel
from heald.report.html.data import RunReport
from heald.report.html.render import write
from hw.fabric import load as load_fabric
from sw.dfg.python import from_function
from tests.heald.chromium import needed, quiet, show
from tests.heald.conftest import Quick
from tests.heald.report_pages import late, report
from tests.sw.dfg.reference import KERNELS

pytestmark = needed


def opened(browser: Any, made: RunReport, folder: Path, width: int = 1400) -> Any:
    """The browser with the page of a report, all drawn."""
    file = folder / "page.html"
    write(made, file)
    return show(browser, file, width)


def view(browser: Any) -> tuple[float, float]:
    low, high = browser.execute_script("return [Timeline.view.from, Timeline.view.to]")
    return low, high


def keys(browser: Any, text: str) -> None:
    browser.find_element("id", "canvas").send_keys(text)


def selected(browser: Any) -> str:
    found: str = browser.find_element("id", "selected").text
    return found


def wheel(browser: Any, amount: int, share: float, shift: bool = False) -> bool:
    """Turn the wheel over the timeline; returns whether it was for the timeline, not for the page."""
    script = """
        const canvas = document.getElementById("canvas"), box = canvas.getBoundingClientRect();
        const x = box.left + 92 + arguments[1] * (box.width - 92);
        const event = new WheelEvent("wheel", { deltaY: arguments[0], clientX: x, clientY: box.top + 60,
            shiftKey: arguments[2], cancelable: true, bubbles: true });
        return !canvas.dispatchEvent(event);"""
    taken: bool = browser.execute_script(script, amount, share, shift)
    return taken


def test_the_timeline_is_drawn_and_moves(browser: Any, tmp_path: Path) -> None:
    made = report()
    opened(browser, made, tmp_path)
    assert view(browser) == (0, made.cycles)
    colours = browser.execute_script("""
        const canvas = document.getElementById("canvas");
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const found = new Set();
        for (let i = 0; i < data.length; i += 4) found.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
        return found.size;""")
    assert colours > 5
    assert not wheel(browser, 300, 0.5)  # the whole run gets no smaller: the page scrolls
    assert wheel(browser, -300, 0.25)
    low, high = view(browser)
    assert 0 < low < high < made.cycles
    # What lies under the pointer stays there.
    assert low + 0.25 * (high - low) == pytest.approx(0.25 * made.cycles, rel=0.01)
    assert wheel(browser, 100, 0.5, shift=True)
    assert view(browser)[0] > low
    keys(browser, "0")
    assert view(browser) == (0, made.cycles)
    keys(browser, "++")
    assert view(browser)[1] - view(browser)[0] == pytest.approx(made.cycles / 4)
    browser.find_element("id", "view-whole").click()
    assert view(browser) == (0, made.cycles)
    assert not browser.find_element("id", "view-divergence").is_enabled()
    assert quiet(browser)


def test_dragging_moves_the_timeline(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver import ActionChains

    opened(browser, report(), tmp_path)
    keys(browser, "++")
    low, high = view(browser)
    canvas = browser.find_element("id", "canvas")
    width = canvas.size["width"] - 92
    ActionChains(browser).move_to_element(canvas).click_and_hold().move_by_offset(-100, 0).release().perform()
    moved = view(browser)
    assert moved[0] - low == pytest.approx(100 / width * (high - low), rel=0.05)
    assert moved[1] - moved[0] == pytest.approx(high - low)
    assert quiet(browser)


def test_entries_are_told_by_keys_with_operator_instruction_and_operands(
    browser: Any, tmp_path: Path
) -> None:
    from selenium.webdriver import Keys

    made = report()
    opened(browser, made, tmp_path)
    names = browser.execute_script("return Timeline.state().rows.map(row => row.lane.name)")
    for _ in range(names.index("gemm")):
        keys(browser, Keys.ARROW_DOWN)
    assert selected(browser).startswith("gemm: ")
    keys(browser, "n")
    first = selected(browser)
    assert "gemm r" in first
    assert "operator product_0, warp " in first
    # The first product is one of 12 x 16 x 20.
    assert "k 16" in first
    assert "gemm_m 12" in first
    keys(browser, "n")
    assert selected(browser) != first
    keys(browser, "p")
    assert selected(browser) == first
    assert quiet(browser)


def test_the_pointer_is_told_what_it_rests_on(browser: Any, tmp_path: Path) -> None:
    opened(browser, report(), tmp_path)
    script = """
        const { rows } = Timeline.state(), row = rows.find(r => r.lane.name === "gemm"), side = row.lane.rtl;
        const canvas = document.getElementById("canvas"), box = canvas.getBoundingClientRect();
        const v = Timeline.view, t = (side.start[1] + side.end[1]) / 2;
        const x = 92 + (t - v.from) / (v.to - v.from) * (box.width - 92);
        canvas.dispatchEvent(new PointerEvent("pointermove",
            { clientX: box.left + x, clientY: box.top + row.y + 15, pointerId: 1 }));
        const tip = document.getElementById("tip");
        return [tip.hidden, tip.textContent, side.start[1]];"""
    hidden, text, start = browser.execute_script(script)
    assert not hidden
    assert "gemm" in text
    assert f"at work from {start:,.0f}" in text
    assert quiet(browser)


def test_a_divergence_is_one_button_away(browser: Any, tmp_path: Path) -> None:
    made = report(late)
    opened(browser, made, tmp_path)
    browser.find_element("id", "view-divergence").click()
    divergence = made.runs[0].divergence
    assert divergence is not None
    assert divergence.cycle is not None
    at = made.starts[0] + divergence.cycle
    low, high = view(browser)
    assert low < at < high
    assert high - low < 200
    assert str(divergence).splitlines()[0] in selected(browser)
    differing = browser.execute_script(
        "return Timeline.state().lanes.filter(lane => lane.differences).map(lane => "
        "[lane.different, lane.differences[lane.differences.length - 1]])"
    )
    assert differing
    # Counted here as by the compiler of the page.
    assert all(told == counted for told, counted in differing)
    assert quiet(browser)


def test_tables_sort_and_show_their_operator(browser: Any, tmp_path: Path) -> None:
    made = report()
    opened(browser, made, tmp_path)
    cells = (
        "return [...document.querySelectorAll('#operator-table tbody tr')].map(r => r.cells[3].dataset.value)"
    )
    heads = browser.find_elements("css selector", "#operator-table th button")
    (cycles,) = [head for head in heads if head.text == "Cycles"]
    cycles.click()
    down = [int(value) for value in browser.execute_script(cells)]
    assert down == sorted((o.cycles for o in made.operators), reverse=True)
    cycles.click()
    assert [int(value) for value in browser.execute_script(cells)] == down[::-1]
    sort = "return [...document.querySelectorAll('#operator-table th')].map(h => h.ariaSort)[3]"
    assert browser.execute_script(sort) == "ascending"
    browser.execute_script("document.querySelector(\"button.show[data-operator='1']\").click()")
    low, high = view(browser)
    assert made.operators[1].start - low < 0.1 * made.operators[1].cycles
    assert high == made.cycles
    assert quiet(browser)


def test_steps_of_a_mapping(browser: Any, tmp_path: Path) -> None:
    kernel = from_function(KERNELS, "iir")
    prepared = prepare_kernel(
        kernel, arguments(kernel, {}, 20, 0), machine(base_machine(), load_fabric("mesh4x4"))
    )
    made = run_kernel(prepared, lambda: Quick(prepared.prediction.config)).page()
    opened(browser, made, tmp_path)
    ii = made.kernels[0].mapping.ii
    assert ii > 1
    drawing = "return document.querySelector('.drawing').shadowRoot.querySelector('.title').textContent"
    assert browser.execute_script(drawing) == f"iir.1, context 0 of {ii}"
    move = (
        "const s = document.querySelector('.stepper input'); s.value = 1; s.dispatchEvent(new Event('input'))"
    )
    browser.execute_script(move)
    assert browser.execute_script(drawing) == f"iir.1, context 1 of {ii}"
    lanes = browser.execute_script(
        "return Timeline.state().lanes.filter(lane => lane.kind === 'grid').length"
    )
    assert lanes > 0
    assert quiet(browser)


@pytest.mark.parametrize("width", [420, 1400])
def test_no_page_is_wider_than_its_window(browser: Any, tmp_path: Path, width: int) -> None:
    long = "encoder.layer.0/attention/self/query/" * 8
    made = report(late)
    operators = tuple(replace(o, name=long) for o in made.operators)
    opened(browser, replace(made, title=long, operators=operators), tmp_path, width)
    inner, needed = browser.execute_script("return [innerWidth, document.documentElement.scrollWidth]")
    assert needed <= inner
    pictures = (
        "return [...document.querySelectorAll('.tiling[open] img')].map(i => i.src.startsWith('blob:'))"
    )
    assert browser.execute_script(pictures) == [True]
    assert quiet(browser)
