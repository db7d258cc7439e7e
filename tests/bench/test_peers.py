"""The referee: layers of known networks, machines in the tools' YAML, the tools' answers, and the table."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

from bench.peers import anchors, asking, machines, ours
from bench.peers.__main__ import main
from bench.peers.asking import Answer, ask, kept, stored
from bench.peers.layers import Layer, layers
from bench.peers.table import Row, markdown, sentences, summary, table
from bench.peers.tools import TOOLS, packed
from hw.config import MachineConfig, load, preset_names
from hw.errors import InputError
from sw.convolution import Convolution
from sw.patches import Axis

SAMPLES = Path(__file__).parents[1] / "data" / "peers"
#: What the tools' YAML says of a machine; AccelForge has no latencies.
SAID = ("rows", "cols", "buffer_a_bytes", "buffer_b_bytes", "acc_bytes")
SAID += ("load_a_bytes", "load_b_bytes", "store_bytes")


def layer(title: str) -> Layer:
    return next(one for one in layers() if one.title == title)


def test_networks_have_their_published_multiply_accumulates() -> None:
    """BERT's by its formula; those of the other two are torchvision's `_ops` (4.089 and 0.301 G)."""
    found = Counter[str]()
    for one in layers():
        found[one.network] += one.count * one.problem.macs

    def bert(depth: int, hidden: int, s: int) -> int:
        each = 4 * s * hidden**2 + 2 * s * hidden * 4 * hidden + 2 * s * s * hidden
        return depth * each + hidden**2

    assert found == {
        "bert-base": bert(12, 768, 128),
        "bert-large": bert(24, 1024, 128),
        "resnet-50": 4_089_184_256,
        "mobilenet-v2": 300_774_272,
    }


def test_networks_have_all_their_layers_and_no_shape_twice() -> None:
    counts = Counter[str]()
    for one in layers():
        counts[one.network] += one.count
    # Convolutions and the last product: 53 and 1, 52 and 1.
    assert counts["resnet-50"] == 54
    assert counts["mobilenet-v2"] == 53
    shapes = [one.shape for one in layers()]
    assert len(set(shapes)) == len(shapes) >= 60


@pytest.mark.parametrize("preset", preset_names())
@pytest.mark.parametrize("tool", machines.EXPORTERS)
def test_machines_come_back_from_yaml(tool: str, preset: str, tmp_path: Path) -> None:
    config = load(preset)
    path = tmp_path / f"{preset}.yaml"
    path.write_text(machines.export(tool, config), "utf-8")
    back, notes = machines.read(path)
    assert notes == []
    assert {f: getattr(back, f) for f in SAID} == {f: getattr(config, f) for f in SAID}


def test_zigzag_yaml_follows_the_fields() -> None:
    config = load("lean", {"store_bytes": 16, "load_b_latency": 77})
    described = yaml.safe_load(machines.export("zigzag", config))
    assert described["operational_array"]["sizes"] == [8, 16]
    memories = described["memories"]
    assert next(iter(memories)) == "cell"
    assert list(memories)[-1] == "memory"
    assert memories["buffer_b"]["size"] == 8 * config.buffer_b_bytes
    assert memories["memory"]["latency"] == 77
    width = {use: p["bandwidth_max"] for p in memories["memory"]["ports"] for use in p["allocation"]}
    assert (width["I1, tl"], width["I2, tl"], width["O, fl"]) == (8 * 4, 8 * 32, 8 * 16)


def test_latencies_come_back_from_zigzag(tmp_path: Path) -> None:
    path = tmp_path / "slow.yaml"
    path.write_text(machines.export("zigzag", load("tiny", {"load_a_latency": 99})), "utf-8")
    back, _ = machines.read(path)
    assert back.load_a_latency == 99


def test_accelforge_yaml_follows_the_fields() -> None:
    text = machines.export("accelforge", load("lean"))
    assert "!Memory" in text
    nodes = {n["name"]: n for n in yaml.load(text, machines._Loader)["arch"]["nodes"]}
    assert [(s["fanout"], s["reuse"]) for s in nodes["Array"]["spatial"]] == [(8, "b"), (16, "a")]
    assert nodes["BufferA"]["size"] == 8 * 8192
    assert nodes["MemoryB"]["actions"][0] == {"name": "read", "energy": 0, "throughput": 256}


#: A machine as others write it: 12 x 32, one memory for two operands, one port for all.
FOREIGN = """
operational_array: {dimensions: [D1, D2], sizes: [12, 32]}
memories:
  register: {size: 32, operands: [O], ports: [], served_dimensions: []}
  shared:
    {size: 4194304, operands: [I1, I2], ports: [], served_dimensions: [D1, D2]}
  sums: {size: 1048576, operands: [O], ports: [], served_dimensions: [D1, D2]}
  dram:
    size: 80000000
    latency: 7
    operands: [I1, I2, O]
    ports: [{bandwidth_max: 384, allocation: ["I1, tl", "I2, tl", "O, fl", "O, th"]}]
    served_dimensions: [D1, D2]
"""


def test_machines_of_others_are_read_with_notes(tmp_path: Path) -> None:
    path = tmp_path / "foreign.yaml"
    path.write_text(FOREIGN, "utf-8")
    config, notes = machines.read(path)
    assert (config.rows, config.cols, config.store_latency) == (8, 32, 7)
    assert config.buffer_a_bytes == config.buffer_b_bytes == 262144
    assert config.load_a_bytes == config.store_bytes == 16
    assert "rows = 8: the file says 12, which the machine cannot be built with" in notes
    assert "shared is shared by 2 operands: each is given an equal part" in notes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "must be YAML"),
        ("memories: {}", "must describe a machine for ZigZag"),
        ("operational_array: {dimensions: [D1], sizes: [4]}", "must have two dimensions"),
        ("operational_array: {dimensions: [D1, D2], sizes: [4, 4]}", "operand I1 must have a buffer"),
        ("arch: {nodes: []}", "must have a node with two spatial dimensions"),
        ("operational_array: 3", "must describe a machine for ZigZag"),
        ("arch: {nodes: [1]}", "must describe a machine for ZigZag"),
        ("[" * 3000, "must be YAML"),
        (FOREIGN.replace("sizes: [12, 32]", "sizes: [12, x]"), "each of its type, but: "),
        (
            FOREIGN.replace("dimensions: [D1, D2], sizes", "dimensions: [D1], sizes"),
            "each of its type, but: ",
        ),
        (FOREIGN.replace("latency: 7", "latency: soon"), "each of its type, but: ValueError"),
        (FOREIGN.replace("bandwidth_max: 384", "bandwidth: 384"), "but: KeyError: 'bandwidth_max'"),
    ],
)
def test_files_that_are_no_machine_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match=message):
        machines.read(path)


def test_sizes_may_be_arithmetic_but_nothing_else() -> None:
    assert machines._number("1024*64*8", "x") == 524288
    with pytest.raises(InputError, match=r"x: must be a number or arithmetic of numbers"):
        machines._number("open('f')", "x")


def test_answers_of_the_real_tools_are_read() -> None:
    """The samples are their answers about 12 products of 128 x 64 x 128 (BERT-base's scores) on `default`."""
    found = {t.name: t.cycles((SAMPLES / f"{t.name}.json").read_text(), SCORES) for t in TOOLS.values()}
    # SCALE-Sim is asked about one of the twelve heads, which follow each other.
    assert found == {"zigzag": 49808, "stream": 49688, "accelforge": 49152, "scalesim": 12 * 6015}


SCORES = layer("bert-base scores")


def test_our_cycles_are_above_the_bound_of_the_array() -> None:
    config = load("default")
    found = ours.predicted(config, SCORES)
    assert found.failed is None
    assert SCORES.problem.macs <= config.macs_per_cycle * (found.cycles or 0)


def test_weights_are_constants_so_that_the_compiler_may_arrange_them() -> None:
    """With one row of the array for each output channel, 3,136 pixels of 32 channels would take 56,448."""
    small = Axis(56, 3, 1, 1, 1)
    one = Layer("n", "depthwise", 1, Convolution(1, 32, small, small, 32, groups=32))
    found = ours.predicted(load("default"), one)
    assert one.problem.macs / 256 < (found.cycles or 0) < 56_448 / 2
    assert (ours.weights(one), ours.weights(SCORES)) == ("A", None)
    assert ours.weights(layer("bert-base projection")) == "B"


@pytest.mark.parametrize("tool", TOOLS)
def test_every_layer_can_be_described_to_every_tool(tool: str) -> None:
    config = load("default")
    names = {kept(TOOLS[tool], config, one).name for one in layers()}
    # To some tools layers of other shapes are one product.
    assert len(names) >= 60
    assert kept(TOOLS[tool], load("tiny"), SCORES) != kept(TOOLS[tool], config, SCORES)


def test_zigzag_is_told_convolutions_as_they_are() -> None:
    files = TOOLS["zigzag"].describe(load("default"), layer("resnet-50 conv3.3x3 first"))
    (work,) = yaml.safe_load(files["workload.yaml"])
    sizes = dict(zip(work["loop_dims"], work["loop_sizes"], strict=True))
    assert sizes == {"G": 1, "K": 128, "C": 128, "OY": 28, "OX": 28, "FY": 3, "FX": 3}
    assert work["dimension_relations"] == ["ix=2*ox+1*fx", "iy=2*oy+1*fy"]
    (mapping,) = yaml.safe_load(files["mapping.yaml"])
    assert mapping["spatial_mapping"] == {"D1": ["K, 16"], "D2": ["OX, 4", "OY, 4"]}


@pytest.mark.parametrize(
    ("rows", "cols", "lanes", "shape"),
    [(56, 56, 16, (2, 8)), (7, 7, 16, (2, 7)), (112, 112, 16, (1, 16)), (1, 1, 16, (16, 1))],
)
def test_outputs_are_packed_into_the_columns(
    rows: int, cols: int, lanes: int, shape: tuple[int, int]
) -> None:
    assert packed(rows, cols, lanes) == shape


def test_scalesim_is_told_padded_images_and_words_of_four_bytes() -> None:
    files = TOOLS["scalesim"].describe(load("default"), layer("resnet-50 conv1"))
    assert files["layer.csv"].splitlines()[1] == "layer,230,230,7,7,3,64,2,1:1,"
    assert "OfmapSramSzkB = 16\n" in files["machine.cfg"]
    assert "Bandwidth = 8\n" in files["machine.cfg"]


def rows() -> list[Row]:
    """Three layers: tools right, twice as much, and failed."""
    found = []
    for title, cycles, theirs in (
        ("bert-base scores", 100, Answer(101, 2.0)),
        ("resnet-50 conv1", 1000, Answer(2000, 3.0)),
        ("bert-base pooler", 10, Answer(None, 60.0, "ValueError: no mapping")),
    ):
        found.append(Row(layer(title), Answer(cycles, 0.1), {"zigzag": theirs}))
    return found


def test_summary_says_how_far_and_where() -> None:
    found = summary("zigzag", rows())
    assert (found.layers, found.answered, found.worst, found.worst_layer) == (3, 2, 2.0, "resnet-50 conv1")
    assert found.median == pytest.approx(1.505)
    assert found.off == {"convolution 7x7 with stride": (2.0, 1)}
    assert found.failed == {"ValueError: no mapping": 1}
    assert sentences(found)[-1] == "  1 failed: ValueError: no mapping"
    assert json.dumps(found.as_dict())


def test_a_tool_without_any_answer_is_summarised() -> None:
    found = summary("zigzag", rows()[2:])
    assert sentences(found)[0] == "ZigZag: no layer of 1."


def test_tables_have_every_layer() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table(rows(), ["zigzag"]))
    text = console.export_text()
    assert "2,000" in text
    assert "failed" in text
    lines = markdown(rows(), ["zigzag"]).splitlines()
    assert len(lines) == 5
    assert lines[2] == ("| bert-base | scores | 12 | 12·(128x64x128) | 100 | 0.1 s | 101 | 1.010 | 2.0 s |")


def fake(tmp_path: Path, program: str) -> Any:
    """A tool whose program is this one, in place of ZigZag's."""
    worker = tmp_path / "worker.py"
    worker.write_text(program, "utf-8")

    @dataclass(frozen=True)
    class Fake:
        name: str = "fake"
        title: str = "Fake"
        requirements: Path = TOOLS["zigzag"].requirements
        worker: Path = tmp_path / "worker.py"
        answer: str = "answer.json"

        def describe(self, config: MachineConfig, one: Layer) -> Mapping[str, str]:
            return {"asked": one.shape}

        def cycles(self, text: str, one: Layer) -> float:
            return float(json.loads(text)["cycles"])

    return Fake()


@pytest.mark.parametrize(
    ("program", "answer"),
    [
        ("open('answer.json', 'w').write('{\"cycles\": 7}')", (7.0, None)),
        ("raise ValueError('no mapping')", (None, "ValueError: no mapping")),
        ("pass", (None, "no cycles in answer.json")),
        ("open('answer.json', 'w').write('{}')", (None, "no cycles in answer.json: KeyError('cycles')")),
    ],
)
def test_a_tool_that_crashes_is_an_answer_too(
    program: str, answer: tuple[float | None, str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEALD_CACHE", str(tmp_path / "cache"))
    tool, config = fake(tmp_path, program), load("test")
    found = ask(tool, Path(sys.executable), config, SCORES, 60)
    assert found.cycles == answer[0]
    assert (found.failed or "").startswith(answer[1] or "")
    assert stored(kept(tool, config, SCORES)) == found


def test_what_takes_too_long_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEALD_CACHE", str(tmp_path / "cache"))
    tool, config = fake(tmp_path, "import time; time.sleep(60)"), load("test")
    found = ask(tool, Path(sys.executable), config, SCORES, 0.2)
    assert found.failed == "no answer in 0.2 s"
    assert stored(kept(tool, config, SCORES)) is None


def test_the_command_writes_and_reads_machines(tmp_path: Path) -> None:
    made = CliRunner().invoke(main, ["--export", "zigzag", "--machine", "tiny"])
    assert made.exit_code == 0
    path = tmp_path / "t.yaml"
    path.write_text(made.stdout, "utf-8")
    back = CliRunner().invoke(main, ["--import", str(path)])
    assert back.exit_code == 0
    assert load("given", text=back.stdout).buffer_a_bytes == load("tiny").buffer_a_bytes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tools", "timeloop"], "--tools must name some of zigzag, stream, accelforge, scalesim"),
        (["--layers", "("], "--layers must be a regular expression"),
        (["--layers", "alexnet"], "matches none"),
        (["--import", "missing.yaml"], "missing.yaml: must be a file that can be read"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str) -> None:
    found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 2
    assert message in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_anchors_have_their_source_and_an_array_of_the_same_size() -> None:
    found = anchors.anchors()
    assert all(one.source.startswith("https://") and one.not_comparable for one in found)
    assert {one.config.macs_per_cycle for one in found} == {256}
    # Each says cycles, utilization, or both; both together must fit the layers that it names.
    assert all(one.cycles or one.utilization for one in found)
    both = [one for one in found if one.cycles and one.utilization]
    assert both
    assert [one.busy(one.cycles or 0) for one in both] == pytest.approx(
        [one.utilization for one in both], abs=0.02
    )


def test_anchors_are_rerun_on_our_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two short layers of an anchor: their cycles by the command, four images of them."""
    (given, *_) = anchors.anchors()
    short = dataclasses.replace(given, layers="conv2.reduce first|fc", cycles=10**6, utilization=None)
    monkeypatch.setattr(anchors, "anchors", lambda: [short])
    found = CliRunner().invoke(main, ["--anchors", "--json"])
    assert found.exit_code == 0
    (made,) = json.loads(found.stdout)["anchors"]
    each = [ours.predicted(short.config, one).cycles or 0 for one in short.workload]
    assert len(each) == 2
    assert made["our_cycles"] == 4 * sum(each)
    assert made["our_utilization"] == made["macs"] / 256 / made["our_cycles"]
    assert made["published_utilization"] == made["macs"] / 256 / 10**6
    shown = CliRunner().invoke(main, ["--anchors"]).stdout
    assert f"{made['our_cycles']:,}" in shown
    assert all(text in shown for text in (short.source, *short.not_comparable))


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_answers_in_its_environment(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored samples are what the tools say today; needs PyPI where there is no environment yet."""
    monkeypatch.setattr(asking, "stored", lambda path: None)
    found = CliRunner().invoke(main, ["--tools", tool, "--layers", "bert-base scores", "--json"])
    assert found.exit_code == 0, found.stderr
    (row,) = json.loads(found.stdout)["layers"]
    sample = TOOLS[tool].cycles((SAMPLES / f"{tool}.json").read_text(), SCORES)
    assert row[tool]["cycles"] == pytest.approx(sample, rel=0.01)


@pytest.mark.slow
def test_our_cycles_are_those_of_the_rtl() -> None:
    options = ["--tools", "scalesim", "--layers", "mobilenet-v2 fc", "--machine", "test", "--rtl", "1"]
    found = CliRunner().invoke(main, options)
    assert found.exit_code == 0, found.stderr
    assert "as predicted, bit-exact" in found.stderr
