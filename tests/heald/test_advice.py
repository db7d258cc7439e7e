"""Runs, their pages and `heald explain` say what bounds a model and what would help most."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import heald as hd
from tests.heald.conftest import Ended
from tests.heald.network_models import perceptron, save
from tests.heald.test_report_page import Page

Heald = Callable[..., Ended]
PROGRAM = Path("examples/07_tile_program_on_rtl/product.py")


def test_page_and_json_of_a_run_say_what_explain_says(heald: Heald, quick: object, tmp_path: Path) -> None:
    model, page = save(tmp_path, perceptron()), tmp_path / "r.html"
    ended = heald("run", model, "--hw", "test", "--report", page, "--json")
    assert ended.code == 0
    found = json.loads(ended.out)["advice"]
    told = " ".join(Page(page.read_text(encoding="utf-8")).sections["result"].split())
    assert found["text"] in told
    assert found["model_cycles"] == json.loads(ended.out)["cycles"]
    cycles = {change["what"]: change["cycles"] for change in found["changes"]}
    for what in cycles:
        assert what in told
        assert f"advice: the cycle model predicts {what}" in ended.err
    explained = heald("explain", model, "--hw", "test", "--advise")
    assert explained.code == 0
    assert " ".join(explained.out.splitlines()[-2:]) == found["text"]
    # The reader who does what it says gets what it said.
    wider = hd.compile(model, hd.machine("test", load_c_bytes=16)).predict()
    quicker = hd.compile(model, hd.machine("test", load_c_latency=3)).predict()
    assert cycles["16 bytes per cycle for load C instead of 8"] == wider.cycles < found["model_cycles"]
    assert cycles["a latency of 3 cycles for load C instead of 6"] == quicker.cycles


def test_a_run_without_a_page_asks_for_nothing(heald: Heald, quick: object, tmp_path: Path) -> None:
    ended = heald("run", "--matmul", "8x8x8", "--hw", "test", "--json")
    assert "advice" not in json.loads(ended.out)
    assert "advice" not in ended.err


def test_a_tile_program_has_advice_too(heald: Heald, quick: object, tmp_path: Path) -> None:
    page = tmp_path / "p.html"
    assert heald("run", PROGRAM, "--hw", "test", "--report", page).code == 0
    told = " ".join(Page(page.read_text(encoding="utf-8")).sections["result"].split())
    assert "The bottleneck of these" in told
