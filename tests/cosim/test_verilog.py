"""The released Verilog: clean for Verilator's linter, with the documented ports."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from cosim.build import verilog
from cosim.toolchain import find
from hw.config import PORTS, MachineConfig, load
from hw.emit import LINT_OFF, TOP
from hw.package import ports
from tests.budget import sweep
from tests.hw.latches import latches
from tests.machines import TEST, WIDE


def lint(text: str, folder: Path, top: str = TOP) -> str:
    """What Verilator's linter says with all warnings on, those apart that the text itself turns off."""
    tools = find()
    path = folder / "heald.v"
    path.write_text(text)
    command = [str(tools.verilator), "--lint-only", "-Wall", "--quiet", "--top-module", top, str(path)]
    place = {"VERILATOR_ROOT": str(tools.root)}
    done = subprocess.run(command, capture_output=True, text=True, env=place, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("preset", sweep(["test", "tiny"], kept=("test",)))
def test_verilog_of_presets_passes_lint(preset: str, tmp_path: Path) -> None:
    text, _ = verilog(load(preset))
    assert "%" not in lint(text, tmp_path)


def test_the_linter_still_sees_what_matters(tmp_path: Path) -> None:
    """A latch and a signal without a driver are not among the rules that are off."""
    text, _ = verilog(load("test"))
    planted = (
        "\nmodule planted(input e, d, output reg q, output u);\nwire n;\nassign u = n;\n"
        "always @* if (e) q = d;\nendmodule\n"
    )
    # What turns rules off stands before the first module.
    body = text[: text.index("\nmodule ")] + (
        f"\nmodule {TOP}(input clk, rst);\n  planted p(.e(clk), .d(rst), .q(), .u());\nendmodule\n"
    )
    said = lint(body + planted, tmp_path)
    assert "LATCH" in said
    assert "UNDRIVEN" in said
    assert not {"LATCH", "UNDRIVEN", "UNOPTFLAT", "MULTIDRIVEN", "IMPLICIT", "PINMISSING"} & set(LINT_OFF)


def test_no_latch_hides_behind_full_case() -> None:
    """Where only part of a signal is assigned the generator writes no default, and tells linters so."""
    text, _ = verilog(load("test"))
    assert latches(text) == []
    planted = (
        "  always @* begin\n    (* full_case = 32'd1 *)\n    casez (c)\n      1'h1:\n          q[3] = d;\n"
    )
    assert latches(text + planted + "    endcase\n  end\n") == ["q"]
    several = planted.replace("q[3] = d", "{ q[3], p[1:0] } = d")
    assert latches(text + several + "    endcase\n  end\n") == ["q", "p"]
    before = several.replace("begin\n", "begin\n    { q[3:2], p } = 0;\n", 1)
    assert latches(text + before + "    endcase\n  end\n") == []


def documented(config: MachineConfig) -> dict[str, tuple[str, int]]:
    """Direction and width of the ports of the core, as docs/ports.md has them."""
    streams = {"host_request": ("input", 16 + 32 + 1), "host_response": ("output", 32)}
    for port in PORTS:
        width = config.port_bytes(port)
        store = port == "store"
        streams[f"{port}_request"] = "output", 32 + (8 * width + width) * store
        streams[f"{port}_response"] = "input", 1 if store else 8 * width + 1
    found = {"clk": ("input", 1), "rst": ("input", 1)}
    for name, (direction, payload) in streams.items():
        back = "output" if direction == "input" else "input"
        found |= {f"{name}__valid": (direction, 1), f"{name}__ready": (back, 1)}
        found[f"{name}__payload"] = direction, payload
    widths = {"running": 1, "done": 1, "error": 1, "cycle": 48}
    widths |= dict.fromkeys(("trace_issue", "trace_void", "trace_complete", "trace_signal"), config.warps)
    widths["trace_pc"] = 16 * config.warps
    if stores := len(config.store_pes):
        widths["trace_output"] = stores
        widths |= dict.fromkeys(("trace_output_address", "trace_output_value"), 32 * stores)
    return found | {name: ("output", width) for name, width in widths.items()}


@pytest.mark.parametrize("config", [TEST, WIDE], ids=["cgra", "no cgra"])
def test_the_top_has_the_documented_ports(config: MachineConfig) -> None:
    found = ports(verilog(config)[0], TOP)
    assert {p["name"]: (p["direction"], p["width"]) for p in found} == documented(config)
    assert len(found) == len(documented(config))


def test_no_two_wires_of_a_module_have_one_name() -> None:
    text, _ = verilog(TEST)
    assert not re.findall(r"\\\S*\[", text)
    modules = re.split(r"^module ", text, flags=re.MULTILINE)[1:]
    for module in modules:
        names = re.findall(r"^  (?:wire|reg)(?: \[\d+:\d+\])? (\S+?) ?(?:=.*)?;", module, re.MULTILINE)
        assert len(names) == len(set(names)), module.split("(")[0]
    assert len(modules) > 20
