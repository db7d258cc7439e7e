"""The report of an exploration as data: columns, packed operators, causes, texts of the page."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from dataclasses import replace

import pytest

from heald.exploration.results import Confirmation, Exploration, Point, State
from heald.report.explore import page
from heald.report.explore.data import GROUP, causes, columns, packed, shown
from hw.config import NO_GRID
from tests.heald.explorations import exploration, fabric


@pytest.fixture(scope="module")
def found() -> Exploration:
    return exploration()


def inflated(text: str) -> object:
    return json.loads(zlib.decompress(base64.b64decode(text)))


def element(text: str, name: str) -> str:
    """What the script element of a name holds."""
    match = re.search(rf'<script type="text/plain" id="{name}">(.*?)</script>', text)
    assert match is not None
    return match[1]


def test_columns_hold_every_point(found: Exploration) -> None:
    made = columns(found, causes(found), [], {})
    json.dumps(made, allow_nan=False)
    rows = {name: i for i, name in enumerate(made["number"])}
    assert set(rows) == {p.number for p in found.points}
    for point in found.points:
        i = rows[point.number]
        assert made["states"][made["state"][i]] == point.state.value
        assert {n: values[i] for n, values in made["parameter"].items()} == point.parameters
        metrics = {n: values[i] for n, values in made["metric"].items() if values[i] is not None}
        assert metrics == point.metrics
        machine = made["fixed"] | {n: values[i] for n, values in made["varying"].items()}
        assert {n: v for n, v in machine.items() if v is not None} == {
            n: v for n, v in point.hw.items() if n != "name"
        }
        reason = made["reason"][i]
        assert (None if reason is None else made["reasons"][reason]) == point.reason


def test_objectives_come_first_among_metrics(found: Exploration) -> None:
    other = replace(found, objectives={"fmax_mhz": "minimize", "luts": "minimize"})
    metrics = shown(other)
    assert list(metrics)[:2] == ["fmax_mhz", "luts"]
    assert metrics["fmax_mhz"].direction == "minimize"
    assert metrics.keys() == {name for p in found.points for name in p.metrics}


def test_values_that_json_has_not_are_not_known(found: Exploration) -> None:
    point = found.points[-1]
    endless = replace(point, metrics={**point.metrics, "energy_pj": float("inf")})
    made = columns(replace(found, points=(endless,)), [], [], {})
    assert made["metric"]["energy_pj"] == [None]


def test_operators_come_back_from_their_groups(found: Exploration) -> None:
    lists, groups = packed(found)
    assert len(groups) == -(-len(found.points) // GROUP)
    models = [models for group in groups for models in inflated(group)]  # type: ignore[attr-defined]
    assert len(models) == len(found.points)
    for point, held in zip(found.points, models, strict=True):
        for model, columns_ in zip(point.models, held, strict=True):
            names = [name for name, _, _ in lists[columns_["operators"]]]
            assert names == [o.name for o in model.operators]
            for i, o in enumerate(model.operators):
                assert (columns_["start"][i], columns_["end"][i], columns_["own"][i]) == (
                    o.start,
                    o.end,
                    o.cycles,
                )
                assert columns_["macs"][i] == o.macs
                assert {n: v[i] for n, v in columns_["bounds"].items() if v[i]} == o.bounds
                assert {n: v[i] for n, v in columns_["moved"].items() if v[i]} == o.moved


def test_reasons_that_differ_in_numbers_are_one_cause(found: Exploration) -> None:
    first, *_ = found.points
    texts = ["needs 1,024 bytes, not 512", "needs 2,048 bytes, not 512", "no program", "needs 1 byte"]
    points = [Point(i, first.parameters, State.REFUSED, {}, text) for i, text in enumerate(texts)]
    points.append(Point(9, first.parameters, State.FAILED, {}, "no program"))
    made = causes(replace(found, points=tuple(points)))
    assert [(c.state, c.example, c.numbers, c.differing) for c in made] == [
        (State.REFUSED, "needs 1,024 bytes, not 512", (0, 1), True),
        (State.REFUSED, "no program", (2,), False),
        (State.REFUSED, "needs 1 byte", (3,), False),
        (State.FAILED, "no program", (9,), False),
    ]


def test_grids_are_whole_named_or_unknown(found: Exploration) -> None:
    machines = [{**found.points[-1].hw, "cgra": name} for name in ("torus4x4", "mine", "mesh4x4", NO_GRID)]
    points = tuple(replace(found.points[-1], number=i, hw=hw) for i, hw in enumerate(machines))
    grids = columns(replace(found, points=points), [], [], {"mesh4x4": fabric("mesh4x4")})["grids"]
    assert grids["torus4x4"] == {"name": "torus4x4"}
    assert grids["mine"] == {"unknown": "mine"}
    assert "rows = 4" in grids["mesh4x4"]["toml"]
    assert NO_GRID not in grids


def test_the_page_is_whole_and_loads_nothing(found: Exploration) -> None:
    text = page(found)
    assert not re.search(r"(?:src|href)=\"(?!#|data:)", text)
    assert "default-src 'none'" in html.unescape(text)
    held = inflated(element(text, "data"))
    assert isinstance(held, dict)
    assert held["front"] == list(found.front)
    assert element(text, "group-1")
    assert "Confirmed on the RTL: 2 points, no differences" in text
    assert "228 complete, 4 infeasible, 8 refused, 16 failed" in text
    # What people wrote is text on the page, whatever it holds.
    assert "&lt;signal 9&gt; &amp; more" in text
    assert "<signal 9>" not in text


def test_the_page_says_what_differs_on_the_rtl(found: Exploration) -> None:
    wrong = Confirmation(found.front[1], False, 10, 20, "cycle 7: <expected>")
    text = page(replace(found, confirmations=(*found.confirmations[:1], wrong)))
    assert "1 of 2 points that ran on the RTL differs" in text
    assert "cycle 7: &lt;expected&gt;" in text
    assert "No point was run on the RTL" in page(replace(found, confirmations=()))


def test_a_page_without_figures(found: Exploration) -> None:
    refused = tuple(p for p in found.points if p.state is State.REFUSED)
    text = page(replace(found, points=refused, front=(), confirmations=(), importance={}))
    assert "8 refused" in text
    held = inflated(element(text, "data"))
    assert isinstance(held, dict)
    assert held["metrics"] == []
    assert "No point was run on the RTL" in page(
        replace(found, points=(), front=(), confirmations=(), importance={})
    )
