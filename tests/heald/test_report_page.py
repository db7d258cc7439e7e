"""The report's page: self-contained, verdict at the top, with everything that was measured."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosim.job import MachineError, Outcome
from cosim.session.arguments import arguments
from cosim.session.kernel import base_machine, machine, prepare_kernel
from cosim.session.tile_program import prepare
from cosim.settings import MemorySettings
from heald.loops import run_kernel
from heald.report.html.data import Check, OperatorRow, RunReport, TensorRow
from heald.report.html.memory import memory_map
from heald.report.html.render import SCRIPTS, render, write
from heald.report.html.roofline import points, roofline
from heald.run import run_program
from hw.config import load
from hw.errors import InputError
from hw.fabric import load as load_fabric
from hw.isa import Cause
from sw.dfg.python import parse_kernel
from sw.ir.parse import parse_program
from tests.heald.conftest import Quick
from tests.heald.report_pages import late, report, results

#: Elements without an end.
VOID = {"meta", "link", "input", "img", "br"}
KERNEL = """
def scale(n, x, y, a):
    for i in range(n):
        y[i] = a * x[i] + 1
"""


class Page(HTMLParser):
    """Elements of a page: attributes by name of the element, texts by id of the section around them."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.sections: dict[str, str] = {}
        self.section = "head"
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.elements.append((tag, given))
        if tag == "section":
            self.section = given["id"] or ""
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.sections[self.section] = self.sections.get(self.section, "") + data


def empty(**changes: Any) -> RunReport:
    config = load("test")
    made = RunReport("nothing", config, MemorySettings.of(config), (), (), ())
    return replace(made, **changes)


def stopped(outcome: Outcome) -> Outcome:
    """A machine that stopped with an error."""
    half = outcome.events[: len(outcome.events) // 2]
    return replace(outcome, events=half, error=MachineError(Cause.BUS, 1, 2), cycles=half[-1].cycle + 1)


def wrong(outcome: Outcome) -> Outcome:
    """A wrong byte in the result."""
    outcome.outputs[0][0] ^= 1
    return outcome


def test_the_page_needs_nothing_from_outside() -> None:
    text = render(report())
    page = Page(text)
    for tag, attributes in page.elements:
        assert "src" not in attributes, tag
        assert not any(name.startswith("on") for name in attributes)
        if "href" in attributes:
            assert re.match("#|data:,$", attributes["href"] or "")
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|import)\s*\(", text)
    policies = [a for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in (policies[0]["content"] or "")
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert {a["href"] for tag, a in page.elements if tag == "a"} <= {f"#{name}" for name in ids}


def test_equal_reports_give_equal_pages() -> None:
    made = replace(report(), facts={})
    assert render(made) == render(made)


def test_a_verified_run_says_so_with_counts() -> None:
    made = report()
    assert made.verified
    page = Page(render(made))
    result = page.sections["result"]
    assert "Verified: all that was compared agrees" in result
    assert "DOES NOT HOLD" not in result
    for check in made.checks:
        assert check.name in result
        assert f"{check.count:,} {check.unit}" in result
        assert check.count > 0
    assert made.checks[0].count == 2 * (12 * 20 + 5 * 9)  # left in memory, and outputs
    assert made.checks[1].count == sum(len(run.observed.events) for run in made.runs)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (late, ["Not verified: cycles does not hold", "products: cycle ", "before that, the same warp"]),
        (wrong, ["Not verified: results does not hold", "product_0: 1 of 240 elements differ"]),
        (
            stopped,
            ["Not verified: results, cycles do not hold", "the machine stopped: bus, warp 1, pc 2"],
        ),
    ],
)
def test_what_does_not_hold_is_told_first(spoil: Callable[[Outcome], Outcome], said: list[str]) -> None:
    made = report(spoil)
    assert not made.verified
    page = Page(render(made))
    assert "NOT VERIFIED" in page.sections["head"]
    result = page.sections["result"]
    assert "✗" in result
    for text in said:
        assert text in result
    assert ("✗ wrong" in page.sections["operators"]) == (spoil is wrong)
    assert list(page.sections)[1] == "result"


def test_nothing_compared_is_nothing_verified() -> None:
    page = Page(render(empty()))
    assert "Not verified: nothing was compared" in page.sections["result"]
    assert "memory" not in page.sections


def test_names_are_text_and_never_markup() -> None:
    bad = "<script>alert(1)</script>&\"'"
    made = report()
    operators = tuple(replace(o, name=bad, nodes=(bad,), plan=bad) for o in made.operators)
    tensors = tuple(replace(t, name=bad, kind=bad) for t in made.tensors)
    tilings = tuple(replace(t, title="</script>", operators=("</script>",)) for t in made.tilings)
    checks = (Check(bad, bad, False, 1, bad, bad),)
    text = render(
        replace(made, title=bad, checks=checks, operators=operators, tensors=tensors, tilings=tilings)
    )
    assert "<script>alert" not in text
    page = Page(text)
    scripts = [a for tag, a in page.elements if tag == "script"]
    assert len(scripts) == 3 + len(SCRIPTS)
    drawings = text.split('id="drawings">')[1].split("</script>")[0]
    assert json.loads(drawings)["tilings"][0]["operators"] == ["</script>"]


def test_operators_are_told_with_bounds_and_causes() -> None:
    made = report()
    page = Page(render(made))
    told = page.sections["operators"]
    for operator in made.operators:
        assert operator.name in told
        for number in (
            operator.cycles,
            operator.span,
            operator.bound_cycles,
            *operator.bounds.values(),
            operator.macs,
        ):
            assert f"{number:,}" in told
        assert f"{100 * operator.utilization:.1f} %" in told
        assert str(operator.bottleneck) in told
    stacks = [a["aria-label"] or "" for _, a in page.elements if (a.get("class") or "").startswith("stack")]
    assert len(stacks) == 1 + len(made.operators)
    cycles = [
        sum(int(n.replace(",", "")) for n in re.findall(r": ([\d,]+) cycles", stack)) for stack in stacks
    ]
    assert cycles == [made.cycles, *(o.cycles for o in made.operators)]


def test_operators_of_a_program_are_on_one_axis() -> None:
    made = report()
    first, second = made.operators
    assert 0 <= first.start < first.end
    assert first.start < second.start < second.end
    assert made.cycles == made.runs[0].observed.cycles
    # What is left is that the warps halt, each in its turn.
    assert second.end < made.cycles <= second.end + 2 * made.config.derived.period


def test_points_of_the_roofline_are_work_per_byte_and_cycle() -> None:
    operators = (
        OperatorRow("a", "matmul", 0, 100, macs=800, bounds={"gemm": 50}, moved={"load_a": 40, "store": 60}),
        OperatorRow("b", "softmax", 100, 150, where="grid", operations=200, moved={"load_c": 20}),
        OperatorRow("c", "copy", 150, 160),
    )
    made = empty(operators=operators)
    a, b = points(made)
    assert (a.number, a.x, a.y, a.most, a.shape) == (1, 8, 8, 16, "circle")
    assert (b.number, b.x, b.y, b.most, b.shape) == (2, 10, 4, 0, "diamond")
    svg = roofline(made)
    assert svg.count("<circle") == 1
    assert "all ports together: 32 bytes per cycle" in svg
    assert "load A or load B or load C or store alone: 8 bytes per cycle" in svg
    grid = replace(made, config=made.config.replace(cgra=load_fabric("torus4x4")))
    assert "CGRA: 16 operations per cycle" in roofline(grid)


def test_the_memory_map_shows_every_tensor_over_its_operators() -> None:
    tensors = (
        TensorRow("weights", 4096, 1 << 24, 0, 9, "weights"),
        TensorRow("small", 1 << 25, 1, 2, 3, "activation"),
        TensorRow("later", 1 << 25, 64, 5, 5, "activation"),
        TensorRow("nothing", 1 << 26, 0, 5, 5, "activation"),
    )
    svg = memory_map(empty(tensors=tensors))
    boxes = re.findall(
        r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" class="tensor', svg
    )
    strip, bars = boxes[:4], [[float(v) for v in box] for box in boxes[4:]]
    assert len(strip) == len(bars) == 4
    weights, small, later, _ = bars
    assert weights[2] > 9 * small[2] / 2
    assert small[0] < later[0]
    assert small[1] == later[1] > weights[1] + weights[3] - 1
    assert min(small[3], later[3]) >= 1.5
    assert "small: activation, 1 byte from 0x2000000 on, operators 3 to 4" in svg
    assert memory_map(empty()) == ""


def test_tilings_are_drawn_once_for_equal_products() -> None:
    made = report()
    assert [tiling.operators for tiling in made.tilings] == [("product_0",), ("product_1",)]
    page = Page(render(made))
    assert made.tilings[0].plan.reason in " ".join(page.sections["tilings"].split())


def test_a_kernel_of_the_grid(tmp_path: Path) -> None:
    kernel = parse_kernel(KERNEL, "scale")
    given = arguments(kernel, {}, 20, 0)
    prepared = prepare_kernel(kernel, given, machine(base_machine(), load_fabric("torus4x4")))
    made = run_kernel(prepared, lambda: Quick(prepared.prediction.config)).page()
    assert made.verified
    assert [check.name for check in made.checks] == ["results", "cycles", "warps", "configurations"]
    file = tmp_path / "page.html"
    write(made, file)
    page = Page(file.read_text())
    told = " ".join(page.sections["grid"].split())
    mapping = made.kernels[0].mapping
    assert f"II {mapping.ii}, MII {made.kernels[0].bound.mii}, depth {mapping.depth}" in told
    assert "The bitstream, decoded, is the graph." in told
    assert "20 stores of the CGRA" in page.sections["result"]
    assert "torus4x4" in page.sections["machine"]


def test_a_tile_program() -> None:
    config = load("test")
    settings = MemorySettings.of(config)
    program = parse_program(Path("examples/07_tile_program_on_rtl/phases.py").read_text(encoding="utf-8"))
    prepared = prepare(program, config, settings, {"last": np.array(7)})
    made = run_program(prepared, lambda: Quick(config)).page()
    assert made.verified
    page = Page(render(made))
    assert "the sequential execution" in page.sections["result"]
    assert made.tensors
    assert not made.tilings


def test_the_page_of_a_run_is_a_file(tmp_path: Path) -> None:
    results().report(tmp_path / "page.html")
    assert "Verified" in Page((tmp_path / "page.html").read_text()).sections["result"]


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        write(empty(), tmp_path / "no" / "page.html")


@pytest.mark.parametrize("count", [0, 1, 300])
def test_any_number_of_operators(count: int) -> None:
    rng = np.random.default_rng(count)
    sizes = rng.integers(1, 1 << 40, (count, 3)).tolist()
    operators = tuple(
        OperatorRow(f"o{i}", "matmul", i, i + 1, macs=m, bounds={"gemm": b}, moved={"store": s})
        for i, (m, b, s) in enumerate(sizes)
    )
    tensors = tuple(TensorRow(f"t{i}", 4096 + i, s, i, i, "t") for i, (_, _, s) in enumerate(sizes))
    page = Page(render(empty(operators=operators, tensors=tensors)))
    assert sum(tag == "circle" for tag, _ in page.elements) <= count
    rows = sum((a.get("class") or "") == "show" for tag, a in page.elements if tag == "button")
    assert rows == count
