"""Waves: their signals beside the machine's own, windows, scopes, files for viewers."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pywellen import Waveform

from cosim import observe, wave_files
from cosim.build import EXPLAINED, build, verilog
from cosim.compare import Divergence
from cosim.cpp import CppSimulator
from cosim.job import Event, EventKind, Job, Outcome, Window
from cosim.session import waves as session_waves
from cosim.session.operators import OperatorResult
from cosim.settings import MemorySettings
from cosim.waves import OPEN, Waves, chosen, scopes_of
from hw.assembly import assemble
from hw.config import MachineConfig
from hw.errors import InputError
from tests.machines import TEST

FAKE = Path(__file__).parent / "fake_machine.v"
#: Events for the fake machine: warp 0 issues every 8 cycles, every fourth time with a false predicate. The
#: first instruction of each four completes 5 cycles later. Its pc counts from 0 to 3.
EVENTS = """
    wire counts = running && cycle < watchdog;
    assign trace_issue = {5'b0, counts && cycle[2:0] == 3'd4};
    assign trace_void = {5'b0, counts && cycle[4:0] == 5'd28};
    assign trace_complete = {5'b0, counts && cycle > 8 && cycle[2:0] == 3'd1 && cycle[4:0] == 5'd9};
    assign trace_signal = 6'b0;
    assign trace_pc = {94'b0, cycle[4:3]};
"""
PROGRAM = "load_a r1, r2, r3, r4\nli r1, 8\nparam load_stride, r2\n@!r3 li r5, 1\n"
CYCLES = 64


def eventful() -> str:
    """The fake machine with events of its own."""
    text = re.sub(r"    assign trace_(issue|complete|signal|pc) = [^;]*;\n", "", FAKE.read_text())
    return text.replace("    always @(posedge clk) begin", f"{EVENTS}\n    always @(posedge clk) begin", 1)


def job_of(small: MachineConfig, predicted: Outcome | None = None) -> Job:
    return Job(
        programs={0: assemble(PROGRAM)},
        settings=MemorySettings.of(small),
        windows=(Window(0, 0), Window(1 << 20, 1 << 20)),
        watchdog=CYCLES,
        predicted=predicted,
    )


class Recorded:
    """A wave file, by cycles of the machine while it runs."""

    def __init__(self, file: Path):
        self.signals = {v.full_name: v for v in Waveform(str(file)).all_vars()}
        changes = list(self.signals["harness.view.cycle"].tv)
        # The counter changes once in a cycle; it goes on from 0 when the machine starts.
        self.times = {cycle: time for time, cycle in changes}

    def at(self, name: str, cycle: int) -> int:
        """The value of a signal of `view` in a cycle."""
        return int(self.signals[f"harness.view.{name}"].tv.value_at(self.times[cycle]))

    def text_at(self, name: str, cycle: int) -> str:
        """The text of a signal of `view` in a cycle."""
        return self.at(name, cycle).to_bytes(32, "big").decode("ascii").rstrip()


@pytest.fixture(scope="module")
def traced(small: MachineConfig) -> Any:
    """The executables of the eventful fake machine, for FST."""
    return build(small, text=eventful(), waves="x.fst")


@pytest.fixture(scope="module")
def events(small: MachineConfig, traced: Any) -> list[Event]:
    """What its warp does."""
    (outcome,) = CppSimulator(small, traced).run([job_of(small)])
    assert len([e for e in outcome.events if e.kind is EventKind.ISSUE]) == 6
    assert len([e for e in outcome.events if e.kind is EventKind.VOID]) == 2
    return outcome.events


def record(small: MachineConfig, traced: Any, waves: Waves, events: list[Event], *scopes: str) -> Recorded:
    predicted = Outcome(events=events, cycles=0)
    CppSimulator(small, traced, waves, scopes).run([job_of(small, predicted)])
    return Recorded(waves.file)


def test_waves_show_the_events_of_rtl_and_model_side_by_side(
    small: MachineConfig, traced: Any, events: list[Event], tmp_path: Path
) -> None:
    moved = next(e for e in events if e.cycle == 20)
    predicted = sorted([e._replace(cycle=22) if e is moved else e for e in events])
    seen = record(small, traced, Waves(tmp_path / "a.fst"), predicted)
    names = {EventKind.ISSUE: "issue", EventKind.VOID: "void_issue", EventKind.COMPLETE: "complete"}
    for side, expected in (("rtl", events), ("model", predicted)):
        for kind, name in names.items():
            found = [c for c in range(CYCLES) if seen.at(f"{side}.warp[0].{name}", c)]
            assert found == [e.cycle for e in expected if e.kind is kind], (side, name)
    assert [c for c in range(CYCLES) if seen.at("differs", c)] == [20, 22]
    assert [seen.at("diverged", c) for c in (0, 20, 21, CYCLES - 1)] == [0, 0, 1, 1]


def test_instructions_and_operations_are_text(
    small: MachineConfig, traced: Any, events: list[Event], tmp_path: Path
) -> None:
    seen = record(small, traced, Waves(tmp_path / "a.fst"), events)
    for side in ("rtl", "model"):
        told = [seen.text_at(f"{side}.warp[0].instruction", c) for c in (3, 4, 11, 12, 20, 28, 36)]
        load, *others = PROGRAM.splitlines()
        assert told == ["", load, load, *others, load]
        # The load that issues in cycle 4 completes in cycle 9.
        assert [seen.at(f"{side}.load_a.issue", c) for c in (3, 4, 5)] == [0, 1, 0]
        assert [seen.at(f"{side}.load_a.complete", c) for c in (8, 9, 10)] == [0, 1, 0]
        assert [seen.text_at(f"{side}.load_a.operation", c) for c in (4, 5, 9, 10)] == ["", load, load, ""]
        assert [seen.at(f"{side}.load_a.operations", c) for c in (4, 5, 9, 10)] == [0, 1, 1, 0]


def test_files_are_compressed_once_more(
    small: MachineConfig, traced: Any, events: list[Event], tmp_path: Path
) -> None:
    plain = record(small, traced, Waves(tmp_path / "a.fst"), events)
    size = (tmp_path / "a.fst").stat().st_size
    wave_files.shrink(tmp_path / "a.fst")
    packed = Recorded(tmp_path / "a.fst")
    assert (tmp_path / "a.fst").stat().st_size < size
    assert [p.name for p in tmp_path.iterdir()] == ["a.fst"]
    changes = [{n: list(v.tv) for n, v in seen.signals.items()} for seen in (plain, packed)]
    assert changes[0] == changes[1]


def test_a_window_and_scopes_record_no_more_than_they_say(
    small: MachineConfig, traced: Any, events: list[Event], tmp_path: Path
) -> None:
    whole = record(small, traced, Waves(tmp_path / "a.fst"), events)
    assert set(range(CYCLES)) < set(whole.times)
    assert "harness.machine.enable" in whole.signals
    part = record(small, traced, Waves(tmp_path / "b.fst", 10, 20), events, "nothing")
    assert sorted(part.times) == list(range(10, 21))
    assert not [name for name in part.signals if not name.startswith("harness.view.")]
    assert part.at("rtl.warp[0].issue", 12) == 1


def test_a_window_may_end_beyond_all_cycles() -> None:
    assert Waves(Path("a.fst"), last=10**26).window == (0, OPEN)


def test_jobs_without_prediction_are_in_no_window(
    small: MachineConfig, traced: Any, events: list[Event], tmp_path: Path
) -> None:
    waves = Waves(tmp_path / "a.fst", 10, 20)
    predicted = Outcome(events=events, cycles=0)
    CppSimulator(small, traced, waves).run([job_of(small), job_of(small, predicted), job_of(small)])
    changes = [cycle for _, cycle in Recorded(waves.file).signals["harness.view.cycle"].tv]
    assert changes == list(range(10, 21))


def test_viewers_are_told_signals_that_exist(
    small: MachineConfig, traced: Any, events: list[Event], tmp_path: Path
) -> None:
    waves, job = Waves(tmp_path / "a.fst"), job_of(small)
    seen = record(small, traced, waves, events)
    widths = {name: variable.bitwidth for name, variable in seen.signals.items()}
    save = wave_files.gtkwave_save(waves.file, job)
    found = re.findall(r"^\+\{[^}]*\} (harness\.\S+?)(?:\[(\d+):0\])?$", save, re.MULTILINE)
    assert {name: int(high or 0) + 1 for name, high in found}.items() <= widths.items()
    assert f'[dumpfile] "{waves.file}"' in save
    commands = wave_files.surfer_commands(waves.file, job).splitlines()
    assert commands[0] == f"load_file {waves.file}"
    assert [c.removeprefix("variable_add ") for c in commands if "variable_add" in c] == [n for n, _ in found]
    # An item is called by the place that it has when it is added.
    added = [c for c in commands if c.startswith(("variable_add", "divider_add"))]
    focused = [(i, c.split()[1]) for i, c in enumerate(commands) if c.startswith("item_focus")]
    for line, letters in focused:
        place = int("".join(f"{ord(x) - ord('a'):x}" for x in letters), 16)
        assert added[place] == commands[line - 1]
        kind = "ASCII" if re.search(r"(instruction|operation)$", added[place]) else "Unsigned"
        assert commands[line + 1] == f"item_set_format {kind}"
    assert {added[0], "divider_add warp 0", "divider_add load_a"} <= set(commands)
    assert "divider_add gemm" not in commands  # the program never uses it


def test_predicted_events_have_the_form_of_the_recorders() -> None:
    given = [
        Event(3, 0, EventKind.ISSUE, 7),
        Event(3, 1, EventKind.VOID, 65535),
        Event(3, 5, EventKind.COMPLETE, 2),
        Event((1 << 40) + 1, 4, EventKind.ISSUE, 9),
        Event((1 << 40) + 1, 4, EventKind.SIGNAL, 1),
    ]
    data = wave_files._records(TEST.replace(warps=6), Outcome(events=given, cycles=0))
    rows = np.frombuffer(data, ">u4").reshape(2, 7)[:, ::-1]
    found = observe.parse_records(rows.astype("<u4").tobytes(), 6)
    assert found.cycle.tolist() == [3, (1 << 40) + 1]
    assert found.pc.tolist() == [[7, 65535, 0, 0, 0, 0], [0, 0, 0, 0, 9, 0]]
    masks = (found.issue, found.void, found.complete, found.signal)
    assert [mask.tolist() for mask in masks] == [[1, 16], [2, 0], [32, 0], [0, 16]]


def decompressed(block: bytes) -> bytes:
    """An LZ4 block read as its description says: literals, then a copy of what came before, and again."""
    out, at = bytearray(), 0

    def length(total: int) -> int:
        nonlocal at
        more = total == 15
        while more:
            total, more, at = total + block[at], block[at] == 255, at + 1
        return total

    while True:
        token, at = block[at], at + 1
        count = length(token >> 4)
        out += block[at : at + count]
        at += count
        if at == len(block):
            return bytes(out)
        distance, at = block[at] | block[at + 1] << 8, at + 2
        for _ in range(length(token & 15) + 4):
            out.append(out[-distance])


def test_compressed_blocks_are_lz4(tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(
        """#include "lz4.h"
        #include <cstdio>
        int main() {
            int size;
            while (std::fread(&size, 4, 1, stdin) == 1) {
                std::vector<char> in(size + 1), out(LZ4_compressBound(size));
                if (size && !std::fread(in.data(), size, 1, stdin)) return 1;
                const int made = LZ4_compress_default(in.data(), out.data(), size, out.size());
                std::fwrite(&made, 4, 1, stdout);
                std::fwrite(out.data(), made, 1, stdout);
            }
        }""",
        encoding="utf-8",
    )
    compiler = shutil.which("g++") or shutil.which("c++") or "clang++"
    program = tmp_path / "main"
    subprocess.run([compiler, f"-I{EXPLAINED}", tmp_path / "main.cpp", "-o", program], check=True)
    draw = np.random.default_rng(28)
    blocks = [b"", bytes(100_000), bytes(range(256)) * 300]
    for size in (*range(30), 300, 5000, 70_000):
        letters = draw.integers(0, draw.choice([2, 5, 256]), size).astype(np.uint8).tobytes()
        blocks += [letters, letters[: size // 3] * 3, letters + bytes(70_000) + letters]
    given = b"".join(struct.pack("<i", len(block)) + block for block in blocks)
    made = subprocess.run([program], input=given, capture_output=True, check=True).stdout
    at = 0
    for block in blocks:
        (size,) = struct.unpack_from("<i", made, at)
        assert decompressed(made[at + 4 : at + 4 + size]) == block
        assert len(block) < 50_000 or size < len(block) * 0.99 or len(set(block)) == 256
        at += 4 + size
    assert at == len(made)
    assert struct.unpack_from("<i", made, 4 + 1)[0] < 500  # 100,000 zeros


def test_scopes_are_those_of_the_verilog() -> None:
    text = "module heald (clk);\n  \\heald.a  a (\n  );\n  \\heald.b  \\table  (\nendmodule\n"
    text += "module \\heald.a (clk);\n  \\heald.a.x$7  \\x$7  (\n  other thing (\nendmodule\n"
    assert scopes_of(text) == ["a", "a.x$7", "table"]
    scopes = scopes_of(verilog(TEST, gated=True)[0])
    assert {"gemm", "gemm.array", "warps", "cgra.pe15", "load_a", "store"} <= set(scopes)


def test_patterns_choose_scopes_and_nothing_twice() -> None:
    scopes = ["cgra", "cgra.pe1", "cgra.pe1.alu", "cgra.pe10", "gemm", "gemm.array"]
    assert chosen(["cgra.pe1"], scopes) == ["cgra.pe1"]
    assert chosen(["cgra.pe*"], scopes) == ["cgra.pe1", "cgra.pe10"]
    assert chosen(["gemm*", "cgra", "*.alu", "gemm"], scopes) == ["gemm", "cgra"]
    with pytest.raises(InputError, match=r"part of the machine \(cgra, gemm\), not 'pe1'$"):
        chosen(["gemm", "pe1"], scopes)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (Waves(Path("a.txt")), r"must end in \.fst or \.vcd, not 'a\.txt'"),
        (Waves(Path("/dev/null")), r"must end in \.fst or \.vcd, not '/dev/null'"),
        (Waves(Path("a.fst"), -1), r"first cycle of waves \(--waves-from\) must be .*, not -1"),
        (Waves(Path("a.fst"), 5, 4), r"last cycle of waves \(--waves-to\) must be 5 or later, not 4"),
        (Waves(Path("a.fst"), 5, around="x"), r"--waves-around, not both"),
    ],
)
def test_waves_that_make_no_sense_are_refused(asked: Waves, text: str) -> None:
    with pytest.raises(InputError, match=text):
        Waves.of(asked)


def test_options_need_a_file_and_a_name_gets_an_ending(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("waves", "waves_from", "waves_to", "waves_around"), None)
    assert Waves.asked(**nothing, waves_scope=()) is None
    with pytest.raises(InputError, match=r"^--waves-to goes with --waves FILE, which is missing$"):
        Waves.asked(**nothing | {"waves_to": 0}, waves_scope=())
    made = Waves.asked(**nothing | {"waves": tmp_path / "run", "waves_from": 0}, waves_scope=("gemm",))
    assert made == Waves(tmp_path / "run.fst", first=0, scopes=("gemm",))
    assert made.window == (0, OPEN)
    (tmp_path / "run").mkdir()
    with pytest.raises(InputError, match=r"must end in"):
        Waves.of(tmp_path / "run")


@dataclasses.dataclass
class Prediction:
    """Operators and cycles of a run."""

    operators: list[OperatorResult]
    cycles: int = 1000


OPERATORS = [
    OperatorResult(name, "Gemm", (node,), where, name, (), start, end)
    for name, node, where, start, end in (
        ("in", "quantise", "edge", 0, 0),
        ("first", "n1", "machine", 5, 300),
        ("second", "n2", "machine", 250, 900),
    )
]


@pytest.mark.parametrize(
    ("asked", "window"),
    [
        ({"around": "second"}, (230, 920)),
        ({"around": "n1"}, (0, 320)),
        ({"first": 999}, (999, OPEN)),
        ({"last": 7}, (0, 7)),
    ],
)
def test_windows_are_around_operators(asked: dict[str, Any], window: tuple[int, int]) -> None:
    prediction: Any = Prediction(OPERATORS)
    assert session_waves.located(Waves(Path("a.fst"), **asked), prediction).window == window


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (
            {"around": "secnd"},
            r"must be an operator on the machine \(second.*\) or 'divergence', not 'secnd'",
        ),
        ({"around": "in"}, r"or 'divergence', not 'in'"),
        ({"first": 1000}, r"must be below the run's 1,000, not 1,000"),
    ],
)
def test_windows_that_a_run_does_not_have(asked: dict[str, Any], text: str) -> None:
    prediction: Any = Prediction(OPERATORS)
    with pytest.raises(InputError, match=text):
        session_waves.located(Waves(Path("a.fst"), **asked), prediction)


@dataclasses.dataclass
class Ran:
    """What became of a run."""

    results: list[Any]
    first_divergence: tuple[Any, Divergence] | None
    sim: str = "cpp"
    waves: Path | None = None


@contextlib.contextmanager
def plain(path: Path) -> Iterator[Path]:
    yield path


@pytest.mark.parametrize(("cycle", "window"), [(4321, (3321, 4521)), (100, (0, 300)), (None, (8000, 9200))])
def test_waves_around_a_divergence_come_of_a_second_run(
    small: MachineConfig, tmp_path: Path, cycle: int | None, window: tuple[int, int]
) -> None:
    asked, told = list[Waves | None](), list[str]()
    result = dataclasses.make_dataclass("R", ["job", "observed"])(job_of(small), Outcome([], 9000))

    def simulate(waves: Waves | None) -> Ran:
        asked.append(waves)
        if waves is not None:
            waves.file.write_bytes(bytes(1500))
        return Ran([result], (result, Divergence("issue", 1, 2, cycle)))

    waves = Waves(tmp_path / "a.fst", around="divergence", scopes=("gemm",))
    run = session_waves.recorded(waves, simulate, lambda: pytest.fail("no use"), plain, told.append)
    assert run.waves == waves.file
    assert asked[0] is None
    assert asked[1] is not None
    assert (asked[1].window, asked[1].scopes) == (window, ("gemm",))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.fst", "a.gtkw", "a.sucl"]
    assert "a.gtkw and a.sucl show them" in told[-1]


def test_waves_of_amaranth_have_no_files_beside_them(small: MachineConfig, tmp_path: Path) -> None:
    waves = Waves(tmp_path / "a.vcd")

    def simulate(asked: Waves | None) -> Ran:
        waves.file.write_bytes(b"")
        return Ran([], None, sim="amaranth")

    session_waves.recorded(waves, simulate, lambda: pytest.fail("no use"), plain, lambda text: None)
    assert [p.name for p in tmp_path.iterdir()] == ["a.vcd"]


def test_only_waves_without_a_window_show_the_host(small: MachineConfig, tmp_path: Path) -> None:
    job, found = job_of(small, Outcome([], 0)), []
    for waves in (Waves(Path("a.fst")), Waves(Path("a.fst"), first=0), Waves(Path("a.fst"), last=5)):
        wave_files.write_inputs(tmp_path, small, job, waves)
        found.append([int(line, 16) for line in (tmp_path / "window.hex").read_text().split()])
    assert found == [[0, (1 << 64) - 1], [0, OPEN], [0, 5]]


def test_what_a_user_saved_in_gtkwave_stays(small: MachineConfig, tmp_path: Path) -> None:
    waves, save = Waves(tmp_path / "a.fst"), tmp_path / "a.gtkw"
    result = dataclasses.make_dataclass("R", ["job"])(job_of(small))

    def simulate(asked: Waves | None) -> Ran:
        waves.file.write_bytes(b"")
        return Ran([result], None)

    def run() -> str:
        session_waves.recorded(waves, simulate, lambda: pytest.fail("no use"), plain, lambda text: None)
        return save.read_text(encoding="utf-8")

    assert "warp 0" in run()
    save.write_text("[*] Made by heald run\n", encoding="utf-8")
    assert "warp 0" in run()
    mine = "[*] GTKWave Analyzer v3.3.118\n"
    save.write_text(mine, encoding="utf-8")
    assert run() == mine


def test_a_run_without_divergence_leaves_no_waves(tmp_path: Path) -> None:
    told = list[str]()
    waves = Waves(tmp_path / "a.fst", around="divergence")
    run = session_waves.recorded(
        waves, lambda asked: Ran([], None), lambda: pytest.fail("no use"), plain, told.append
    )
    assert (run.waves, list(tmp_path.iterdir())) == (None, [])
    assert told == [f"model and RTL agree: {waves.file} is not written"]
