"""Every figure of an operator is the same number on the terminal, in the page and in JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from cosim.backends import simulator
from cosim.causes import CAUSES, CriticalPath
from cosim.session.network import CompiledModel, compile_model, draw_inputs, predict_model
from cosim.settings import MemorySettings
from heald.model_run import ModelRun, run_model
from heald.report.html.render import render
from heald.report.table import print_report
from hw.config import load
from sw.frontend.network import import_model
from tests.heald.network_models import perceptron

CONFIG = load("test")
SETTINGS = MemorySettings.of(CONFIG)
Figures = dict[str, tuple[str, ...]]


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    """A model of several operators."""
    return compile_model(import_model(perceptron(20, 40, 24)), CONFIG)


@pytest.fixture(scope="module")
def report(model: CompiledModel) -> ModelRun:
    """Its run on the RTL."""
    inputs = draw_inputs(model.network, 0)
    return run_model(model, inputs, SETTINGS, lambda: simulator(CONFIG, "cpp", None))


def told(operator: Mapping[str, Any]) -> tuple[str, ...]:
    """Cycles, lower bound, bottleneck and use of the array in the JSON, as tables write them."""
    bottleneck = operator["bottleneck"]
    cause = f"{CAUSES[bottleneck['cause']][0]} {100 * bottleneck['share']:.0f} %"
    busy = f"{100 * operator['utilization']:.1f} %"
    return f"{operator['cycles']:,}", f"{operator['bound_cycles']:,}", cause, busy


def in_json(report: ModelRun) -> Figures:
    return {o["name"]: told(o) for o in report.as_dict()["operators"] if o["where"] == "machine"}


def in_terminal(report: ModelRun) -> Figures:
    written = StringIO()
    print_report(report, Console(file=written, width=200))
    lines = written.getvalue().splitlines()
    head = next(line for line in lines if line.startswith("operator"))
    columns = [head.index(name) for name in ("kind", "bound by", "bottleneck", "array busy", "result")]
    found = {}
    for operator in report.operators:
        line = next(x for x in lines if x.startswith(f"{operator.name} "))
        if operator.where == "machine":
            _, cycles, bound = line[columns[0] : columns[1]].rsplit(maxsplit=2)
            cause, busy = line[columns[2] : columns[3]].strip(), line[columns[3] : columns[4]]
            share = re.match(r" *([\d.]+ %)", busy)
            found[operator.name] = (cycles, bound, cause, share[1] if share else "0.0 %")
    return found


def in_page(report: ModelRun) -> Figures:
    page = render(report.page())
    (table,) = re.findall(r'id="operator-table">(.*?)</table>', page, re.DOTALL)
    heads = [re.sub("<.*?>", "", head) for head in re.findall("<th scope=.col.*?</th>", table)]
    found = {}
    for row in re.findall(r"<tr class=.*?</tr>", table, re.DOTALL):
        cells = dict(zip(heads, re.findall(r"<t[dh].*?>(.*?)</t[dh]>", row, re.DOTALL), strict=True))
        figures = (cells[name] for name in ("Cycles", "Lower bound", "Bottleneck", "Array busy"))
        found[cells["Operator"]] = tuple(figures)
    return {o.name: found[o.name] for o in report.operators if o.where == "machine"}


def in_notebook(report: ModelRun) -> Figures:
    rows = re.findall("<tr>(.*?)</tr>", report._repr_html_())
    cells = [re.findall("<td.*?>(.*?)</td>", row) for row in rows]
    wanted = {o.name for o in report.operators if o.where == "machine"}
    return {row[0]: tuple(row[2:]) for row in cells if row and row[0] in wanted}


def test_terminal_page_and_json_tell_the_same_figures(report: ModelRun) -> None:
    figures = in_json(report)
    assert len(figures) > 1
    assert len({cycles for cycles, *_ in figures.values()}) > 1
    assert in_terminal(report) == figures
    assert in_page(report) == figures
    assert in_notebook(report) == figures


def test_cycles_add_up_and_so_do_causes(report: ModelRun) -> None:
    operators = [o for o in report.operators if o.where == "machine"]
    assert sum(o.cycles for o in operators) == report.cycles
    for operator in operators:
        assert sum(operator.causes.values()) == operator.cycles
        assert operator.bound_cycles <= operator.span == operator.end - operator.start
    assert any(o.span != o.cycles for o in operators)


def test_causes_are_the_same_on_model_and_rtl(model: CompiledModel, report: ModelRun) -> None:
    predicted = predict_model(model, draw_inputs(model.network, 0), SETTINGS)
    assert [o.causes for o in predicted.operators] == [o.causes for o in report.operators]
    (result,) = report.results
    path = CriticalPath(result.config, result.job, result.observed, result.predicted)
    assert path.causes(0, report.cycles) == result.causes == predicted.programs[0].causes
