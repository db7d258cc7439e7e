"""`heald compare` and `Run.compare`: what differs between two runs, operator by operator."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import heald as hd
from heald.comparison import Comparison, Side
from tests.heald.conftest import Ended
from tests.heald.network_models import perceptron, save
from tests.heald.report_pages import results
from tests.heald.test_report_page import Page

Heald = Callable[..., Ended]
SHAPE = ("--matmul", "8x64x16", "--hw", "test", "--json")


@pytest.fixture
def files(heald: Heald, quick: object, tmp_path: Path) -> tuple[Path, Path]:
    """JSON of one product on two machines."""
    made = []
    for name, changes in (("a", ()), ("b", ("--set", "cols=8", "--bandwidth", "load_b=1"))):
        ended = heald("run", *SHAPE, *changes)
        assert ended.code == 0
        made.append(tmp_path / f"{name}.json")
        made[-1].write_text(ended.out)
    return made[0], made[1]


def entry(name: str, op: str, cycles: int, cause: str = "gemm") -> dict[str, Any]:
    """An operator of a run."""
    figures = {"bound": "gemm", "bound_cycles": cycles // 2, "utilization": 0.5, "where": "machine"}
    bottleneck = {"cause": cause, "share": 1.0} if cycles else None
    causes = {cause: cycles} if cycles else {}
    return {"name": name, "op": op, "cycles": cycles, **figures, "bottleneck": bottleneck, "causes": causes}


def run(*operators: dict[str, Any], **machine: Any) -> dict[str, Any]:
    """The JSON of a run."""
    cycles = sum(o["cycles"] for o in operators)
    memories = {"bandwidth": {"load_a": 8}, "stall_seed": 0}
    return {"cycles": cycles, "machine": machine, "memories": memories, "operators": list(operators)}


def compared(a: dict[str, Any], b: dict[str, Any]) -> Comparison:
    return Comparison(Side.of(a, "a.json"), Side.of(b, "b.json"))


def test_runs_of_two_machines(heald: Heald, files: tuple[Path, Path]) -> None:
    ended = heald("compare", *files, "--json")
    found = json.loads(ended.out)
    a, b = (json.loads(file.read_text()) for file in files)
    assert (ended.code, ended.err) == (0, "")
    assert {"field": "cols", "a": "4", "b": "8"} in found["configuration"]
    assert {"field": "memories.bandwidth.load_b", "a": "8", "b": "1"} in found["configuration"]
    (pair,) = found["operators"]
    for side, given in (("a", a), ("b", b)):
        (operator,) = given["operators"]
        assert pair[side]["cycles"] == operator["cycles"] == found["total"][side]["cycles"] == given["cycles"]
        for key in ("bound", "bound_cycles", "utilization", "bottleneck"):
            assert pair[side][key] == operator[key]
    assert pair["b"]["bottleneck"]["cause"] == "load_b"
    assert pair["delta"] == b["cycles"] - a["cycles"] != 0
    assert pair["ratio"] == b["cycles"] / a["cycles"]


def test_the_table_for_people(heald: Heald, files: tuple[Path, Path]) -> None:
    told = heald("compare", *files).out
    a, b = (json.loads(file.read_text())["cycles"] for file in files)
    line = next(x for x in told.splitlines() if x.startswith("total")).split()
    assert line[1:5] == [f"{a:,}", f"{b:,}", f"{b - a:+,}", f"{b / a:.3f}"]
    assert "memories.bandwidth.load_b 8 1" in " ".join(told.split())
    assert line[-4:-2] == ["load", "B"]
    assert " ".join(told.split()) == " ".join(str(hd.compare(*files)).split())


def test_equal_runs_differ_in_nothing(heald: Heald, files: tuple[Path, Path]) -> None:
    ended = heald("compare", files[0], files[0], "--json")
    found = json.loads(ended.out)
    assert ended.code == 0
    assert found["configuration"] == []
    assert [o["delta"] for o in (*found["operators"], found["total"])] == [0, 0]
    assert "one configuration" in heald("compare", files[0], files[0]).out


def test_the_page_needs_nothing_else_and_shows_every_figure(
    heald: Heald, files: tuple[Path, Path], tmp_path: Path
) -> None:
    assert heald("compare", *files, "--report", tmp_path / "c.html").code == 0
    page, found = (tmp_path / "c.html").read_text(), hd.compare(*files)
    assert "src=" not in page
    assert page.count('<svg class="pair" ') == 1
    for pair in (*found.operators, found.total):
        assert all(f">{text}</td>" in page for text in pair.texts if text)
    assert set(Page(page).sections) >= {"configuration", "cycles", "operators"}
    assert "<!DOCTYPE" not in found._repr_html_()
    assert all(f">{text}</td>" in found._repr_html_() for text in found.total.texts if text)


def test_the_chart_has_two_bars_for_each_operator_to_scale() -> None:
    a, b = run(entry("x", "Gemm", 100), entry("y<&", "Gemm", 40)), run(entry("x", "Gemm", 50))
    root = ElementTree.fromstring(compared(a, b).svg())
    bars = [e for e in root.iter("{http://www.w3.org/2000/svg}rect") if len(e)]
    assert [e.get("class") for e in bars] == ["a", "b", "a"]
    widths = [float(e.get("width", 0)) for e in bars]
    assert widths == pytest.approx([widths[0], widths[0] / 2, 0.4 * widths[0]], abs=0.1)


def test_operators_are_matched_by_name_then_by_kind() -> None:
    a = run(
        entry("first", "Gemm", 10),
        entry("old_1", "Conv", 20),
        entry("old_2", "Conv", 30),
        entry("gone", "Add", 4),
    )
    b = run(
        entry("new_1", "Conv", 21),
        entry("first", "MatMul", 9),
        entry("new_2", "Conv", 33),
        entry("more", "Relu", 7),
    )
    pairs = compared(a, b).operators
    names = [(p.a and p.a.name, p.b and p.b.name, p.delta) for p in pairs]
    assert names == [
        ("first", "first", -1),
        ("old_1", "new_1", 1),
        ("old_2", "new_2", 3),
        ("gone", None, None),
        (None, "more", None),
    ]
    assert [p.ratio for p in pairs] == [0.9, 1.05, 1.1, None, None]
    assert pairs[3].texts[2:6] == ("4", "–", "", "")
    assert str(compared(a, b))


def test_an_operator_without_cycles_has_no_ratio() -> None:
    (pair,) = compared(run(entry("x", "Add", 0)), run(entry("x", "Add", 5))).operators
    assert (pair.delta, pair.ratio) == (5, None)


def test_fabrics_and_fields_that_one_machine_lacks() -> None:
    mesh, torus = {"name": "mesh", "rows": 4}, {"name": "torus", "rows": 4}
    nothing, other = run(cgra=None), run(cgra=mesh, new=3)
    assert compared(nothing, other).settings == [("cgra", "none", "mesh"), ("new", "none", "3")]
    assert compared(run(cgra=mesh), run(cgra=torus)).settings == [("cgra", "mesh", "torus")]
    assert compared(run(cgra=mesh), run(cgra=mesh | {"rows": 5})).settings == [("cgra.rows", "4", "5")]


def test_runs_and_predictions_in_python(tmp_path: Path) -> None:
    slow = hd.compile(save(tmp_path, perceptron(20, 40, 24), "m.onnx"), hd.machine("test"))
    fast = hd.compile(tmp_path / "m.onnx", hd.machine("test", rows=8, cols=8))
    ones, others = slow.predict(), fast.predict(stall=3)
    found = hd.compare(ones, others)
    assert {name for name, *_ in found.settings} >= {"rows", "cols", "memories.stall_rate"}
    assert found.total.delta is not None
    assert found.total.delta < 0
    for pair, one, other in zip(
        found.operators, slow.predict().operators, fast.predict(stall=3).operators, strict=True
    ):
        assert pair.a is not None
        assert pair.b is not None
        assert (pair.a.cycles, pair.b.cycles) == (one.cycles, other.cycles)
        assert pair.a.bottleneck == one.bottleneck
    slow.save(tmp_path / "dir")
    assert hd.compare(tmp_path / "dir", slow.predict()).total.delta == 0


def test_a_run_compares_itself() -> None:
    one, other = results(), results(shapes=((12, 16, 20), (5, 80, 9)))
    found = one.compare(other)
    assert [p.name for p in found.operators] == [o.name for o in one.operators]
    deltas = [o.cycles - s.cycles for s, o in zip(one.operators, other.operators, strict=True)]
    assert [p.delta for p in found.operators] == deltas
    assert deltas[1] > 0
    assert {p.delta for p in one.compare(results()).operators} == {0}
    assert found.as_dict()["a"] == one.title
    with pytest.raises(hd.InputError, match="a run or a prediction is needed, not int"):
        one.compare(3)


def test_a_prediction_of_a_tile_program() -> None:
    model = hd.compile(Path("examples/07_tile_program_on_rtl/product.py"), hd.machine("test"))
    found = hd.compare(model.predict(), model.predict(bandwidth={"store": 1}))
    assert found.total.delta is not None
    assert found.total.delta > 0
    assert found.operators[0].b is not None
    assert found.operators[0].b.cause in {f"store {n} %" for n in range(101)}


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda d: d.pop("operators"), "no 'operators'"),
        (lambda d: d.pop("machine"), "no 'machine'"),
        (lambda d: d.update(cycles="many"), "invalid literal"),
        (lambda d: d["operators"][0].pop("bottleneck"), "no 'bottleneck'"),
        (lambda d: d["operators"][0]["causes"].update(luck=1), "no 'luck'"),
        (lambda d: d.update(operators=3), "not iterable"),
    ],
)
def test_json_of_something_else_is_told_in_one_line(
    heald: Heald, tmp_path: Path, spoil: Callable[[dict[str, Any]], object], said: str
) -> None:
    good = run(entry("x", "Gemm", 10))
    bad = copy.deepcopy(good)
    spoil(bad)
    for name, value in (("good", good), ("bad", bad)):
        (tmp_path / name).write_text(json.dumps(value))
    ended = heald("compare", tmp_path / "good", tmp_path / "bad")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith(f"heald: {tmp_path / 'bad'}: must be the JSON of heald run on a simulator: ")
    assert said in ended.err


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "must be JSON"), ("[]", "must be the JSON of heald run"), (None, "cannot be read")],
)
def test_files_that_are_no_json(heald: Heald, tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "bad").write_text(text)
    ended = heald("compare", tmp_path / "bad", tmp_path / "bad")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert said in ended.err


def test_a_directory_that_is_no_compiled_model(heald: Heald, tmp_path: Path) -> None:
    ended = heald("compare", tmp_path, tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert str(tmp_path) in ended.err.splitlines()[-1]


def test_a_page_that_cannot_be_written(heald: Heald, tmp_path: Path) -> None:
    ended = heald("compare", "a", "b", "--report", tmp_path / "nowhere" / "c.html")
    assert ended.code == 2
    assert "nowhere does not exist" in ended.err
