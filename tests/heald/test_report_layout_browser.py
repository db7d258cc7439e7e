"""Pages of runs in Chromium at three widths, light and dark: labels, tables, saved pictures."""

from __future__ import annotations

import functools
import itertools
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cosim.advice import Advice, Change
from cosim.session.arguments import arguments
from cosim.session.kernel import base_machine, machine, prepare_kernel
from heald.comparison import Comparison, Side
from heald.loops import run_kernel
from heald.report.html.data import OperatorRow, RunReport, TensorRow
from heald.report.html.render import write
from hw.fabric import load as load_fabric
from sw.dfg.python import from_function
from tests.heald import page_layout
from tests.heald.chromium import needed, quiet, saved, show
from tests.heald.conftest import Quick
from tests.heald.report_pages import late, report
from tests.heald.test_compare import entry, run
from tests.sw.dfg.reference import KERNELS

pytestmark = needed


@functools.cache
def crowded(divergent: bool = False) -> RunReport:
    """A page with 40 operators of long names, many at one place of the roofline, and a CGRA."""
    made = report(late) if divergent else report()
    each = made.cycles // 40
    operators = [replace(o, start=0, end=(i + 1) * each, cycles=each) for i, o in enumerate(made.operators)]
    for i in range(2, 40):
        array = i % 3 > 0
        operators.append(
            OperatorRow(
                name=f"/encoder/layer.{i}/attention/output/dense/MatMulAddFusion_{i}",
                op="MatMulInteger" if array else "LayerNormalization",
                start=(i - 2) * each,
                end=(i + 1) * each,
                cycles=each,
                shape="1×512×1024×4096",
                where="array" if array else "grid",
                macs=(40 + i % 4) * 12 * array,
                operations=(1 - array) * (60 + i),
                bounds={
                    "gemm": 30,
                    "cgra": 25,
                    "load_a": 1_234_567_890,
                    "load_b": 3,
                    "load_c": 4,
                    "store": 5,
                },
                moved={"load_a": 30 + i % 5, "store": 60},
                causes={"gemm": 5, "cgra": 4},
                utilization=0.123,
                fill={"buffer_a": 100 * i, "scratchpad": 17},
            )
        )
    tensors = tuple(
        TensorRow(
            f"/encoder/layer.{i}/attention/self/query/MatMul_output_0_quantized",
            4096 * (i + 1),
            3000 + i,
            i,
            i + 1,
        )
        for i in range(38)
    )
    changes = (
        Change("an array of 8 x 4 instead of 4 x 4", "gemm", 300),
        Change(
            "a CGRA of 2 lanes instead of 1",
            "cgra",
            None,
            "cols must be at least 8, as many as cgra has lanes, not 4: set more columns",
        ),
    )
    return replace(
        made,
        operators=tuple(operators),
        tensors=tensors,
        kernels=kernel().kernels,
        advice=Advice(made.cycles, {"gemm": 300, "cgra": 148}, changes),
        fill={"buffer_a": 3900, "scratchpad": 17},
    )


@functools.cache
def kernel() -> RunReport:
    """A loop on the CGRA."""
    made = from_function(KERNELS, "iir")
    prepared = prepare_kernel(
        made, arguments(made, {}, 20, 0), machine(base_machine(), load_fabric("mesh4x4"))
    )
    return run_kernel(prepared, lambda: Quick(prepared.prediction.config)).page()


def opened(browser: Any, made: RunReport, folder: Path, width: int) -> Any:
    file = folder / "page.html"
    write(made, file)
    return show(browser, file, width)


def test_no_label_lies_on_another_one_or_leaves_its_picture(browser: Any, tmp_path: Path, look: int) -> None:
    opened(browser, crowded(), tmp_path, look)
    assert page_layout.texts(browser) == []
    assert page_layout.contrast(browser) == []
    for change in ("Timeline.draw()", "Timeline.view.to = 60; Timeline.draw()"):
        assert page_layout.canvas_texts(browser, change) == []
    wide = page_layout.tables(browser)
    assert wide == [] or (look < 1280 and not any(text.startswith("the page") for text in wide))
    assert quiet(browser)


def test_labels_of_a_run_that_diverges(browser: Any, tmp_path: Path, look: int) -> None:
    opened(browser, crowded(divergent=True), tmp_path, look)
    assert page_layout.canvas_texts(browser, "Timeline.draw()") == []
    browser.find_element("id", "view-divergence").click()
    assert page_layout.canvas_texts(browser, "Timeline.draw()") == []
    assert quiet(browser)


def test_a_comparison(browser: Any, tmp_path: Path, look: int) -> None:
    names = [f"/encoder/layer.{i}/attention/output/dense/MatMulAddFusion_{i}" for i in range(30)]
    a = run(*(entry(name, "LayerNormalization", 10**9 + i) for i, name in enumerate(names)), rows=16)
    b = run(
        *(entry(name, "LayerNormalization", 9 * 10**8 + 7 * i, "load_a") for i, name in enumerate(names)),
        rows=32,
    )
    file = tmp_path / "c.html"
    Comparison(Side.of(a, "a" * 90), Side.of(b, "b.json")).report(file)
    show(browser, file, look)
    assert page_layout.texts(browser) == []
    assert page_layout.contrast(browser) == []
    wide = page_layout.tables(browser)
    assert wide == [] or (look < 1280 and not any(text.startswith("the page") for text in wide))
    stacks = browser.execute_script("return [...document.querySelectorAll('.stack')].map(s => s.offsetWidth)")
    assert stacks[0] > stacks[1] > 0.88 * stacks[0]
    assert quiet(browser)


def test_engines_come_first_and_warps_and_channels_are_folded(browser: Any, tmp_path: Path) -> None:
    opened(browser, crowded(), tmp_path, 1280)
    kinds = "return Timeline.state().rows.map(row => row.lane.kind)"
    assert set(browser.execute_script(kinds)) == {"engine"}
    browser.execute_script("document.getElementById('inner').open = true")
    found = browser.execute_async_script(f"setTimeout(() => arguments[0]((() => {{ {kinds} }})()), 50)")
    assert [kind for kind, _ in itertools.groupby(found)] == ["engine", "warp", "channel"]
    summary = browser.execute_script("return document.querySelector('#inner summary').textContent")
    assert summary == f"Warps and sync channels ({found.count('warp')} and {found.count('channel')})"
    # What differs is not hidden.
    opened(browser, crowded(divergent=True), tmp_path, 1280)
    assert browser.execute_script("return document.getElementById('inner').open")
    assert quiet(browser)


def test_names_are_on_the_roofline_and_operators_of_the_cgra_too(browser: Any, tmp_path: Path) -> None:
    opened(browser, crowded(), tmp_path, 1280)
    picture = "return [...document.querySelectorAll('#roofline svg {}')].map(e => e.textContent)"
    labels = browser.execute_script(picture.format("text"))
    assert sum("/encoder/layer." in label for label in labels) >= 3
    assert any("product_" in label for label in labels)
    assert len(browser.execute_script(picture.format("path.mark.grid"))) == 13


@pytest.mark.slow
def test_every_picture_is_saved_as_svg_and_png(browser: Any, tmp_path: Path) -> None:
    opened(browser, crowded(), tmp_path, 1280)
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    buttons = browser.find_elements("css selector", ".save button")
    names = {button.get_attribute("aria-label") for button in buttons}
    assert {
        f"Save {name} as {kind}"
        for name in ("timeline", "roofline", "memory-map", "product_0", "iir.1")
        for kind in ("SVG", "PNG")
    } <= names
    for stem, least in (
        ("timeline", 20),
        ("roofline", 20),
        ("memory-map", 30),
        ("product_0", 10),
        ("iir.1", 10),
    ):
        svg, png = (b for b in buttons if f"Save {stem} " in b.get_attribute("aria-label"))
        root = ElementTree.fromstring(saved(browser, svg, tmp_path, f"{stem}.svg"))
        assert sum(element.tag.endswith("}text") for element in root.iter()) >= least
        data = saved(browser, png, tmp_path, f"{stem}.png")
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", data[16:24])
        assert width == pytest.approx(2 * float(root.get("viewBox", "").split()[2]), abs=2)
        assert height > 100
    assert quiet(browser)
