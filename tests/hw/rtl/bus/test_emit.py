"""The Verilog of the tops: standard ports, clean for Verilator's linter, the same every time."""

from __future__ import annotations

import re
import subprocess
from functools import lru_cache
from pathlib import Path

import pytest

from cosim.toolchain import find
from hw.config import load
from hw.errors import InputError
from hw.rtl.bus import emit
from hw.rtl.bus.board import load_board
from hw.rtl.bus.protocol import Serial
from tests.hw.latches import latches

#: A machine with little in it: the tops around it are the point here. One port is narrower than the bus.
SMALL = load(
    "test",
    {"cgra": "none", "warps": 1, "imem_words": 32, "loop_depth": 1, "windows": 1, "load_c_bytes": 4},
)
BLACK_BOX = """
module EHXPLLL #(
  parameter CLKFB_DIV = 1, CLKI_DIV = 1, CLKOP_CPHASE = 0, CLKOP_DIV = 1, CLKOP_FPHASE = 0, CLKOS_CPHASE = 0,
  CLKOS_DIV = 1, CLKOS_FPHASE = 0, CLKOP_ENABLE = "", CLKOS_ENABLE = "", DPHASE_SOURCE = "", FEEDBK_PATH = "",
  INTFB_WAKE = "", OUTDIVIDER_MUXA = "", OUTDIVIDER_MUXB = "", PLLRST_ENA = "", STDBY_ENABLE = ""
) (
  input CLKFB, CLKI, ENCLKOP, ENCLKOS, PHASEDIR, PHASELOADREG, PHASESEL0, PHASESEL1, PHASESTEP, PLLWAKESYNC,
  RST, STDBY, output CLKOP, CLKOS, LOCK
);
assign {CLKOP, CLKOS, LOCK} = {CLKI, CLKI, 1'b1};
endmodule
"""
AXI_CHANNELS = {
    "s_axil": {
        "aw": ["addr", "prot"],
        "w": ["data", "strb"],
        "b": ["resp"],
        "ar": ["addr", "prot"],
        "r": ["data", "resp"],
    },
    "m_axi": {
        "aw": ["id", "addr", "len", "size", "burst", "cache", "prot"],
        "w": ["data", "strb", "last"],
        "b": ["id", "resp"],
        "ar": ["id", "addr", "len", "size", "burst", "cache", "prot"],
        "r": ["id", "data", "resp", "last"],
    },
}


@lru_cache
def text(top: str, separate: bool = False) -> str:
    board = load_board("ulx3s")
    return {
        "heald_axi": lambda: emit.axi_verilog(SMALL, separate=separate),
        "heald_ecp5": lambda: emit.board_verilog(SMALL, board, Serial(16384, 60_000_000, 1_000_000)),
    }[top]()


def ports(top: str, separate: bool = False) -> dict[str, str]:
    """Direction and range of each port of a top."""
    body = text(top, separate).split(f"\nmodule {top}(", 1)[1].split("\nendmodule", 1)[0]
    found = re.findall(r"^  (input|output) (\[\d+:0\] )?(\w+) ;$", body.replace(";", " ;"), re.MULTILINE)
    return {name: f"{direction} {width}".strip() for direction, width, name in found}


@pytest.mark.parametrize(
    ("top", "separate"),
    [
        pytest.param("heald_axi", False, marks=pytest.mark.slow),
        ("heald_axi", True),
        pytest.param("heald_ecp5", False, marks=pytest.mark.slow),
    ],
)
def test_the_verilog_passes_lint(top: str, separate: bool, tmp_path: Path) -> None:
    path = tmp_path / "top.v"
    path.write_text(text(top, separate) + BLACK_BOX)
    tools = find()
    command = [str(tools.verilator), "--lint-only", "-Wall", "-Wno-MULTITOP", "-Wno-UNUSEDPARAM"]
    command += ["--quiet", "--top-module", top, str(path)]
    place = {"VERILATOR_ROOT": str(tools.root)}
    done = subprocess.run(command, capture_output=True, text=True, env=place, check=False)
    assert "%" not in done.stdout + done.stderr
    assert latches(text(top, separate)) == []
    assert str(Path.cwd()) not in text(top, separate)


def test_the_axi_top_has_the_standard_ports() -> None:
    found = ports("heald_axi")
    names = {"aclk", "aresetn", "irq"}
    for prefix, channels in AXI_CHANNELS.items():
        for channel, fields in channels.items():
            names |= {f"{prefix}_{channel}{field}" for field in ("valid", "ready", *fields)}
    assert set(found) == names
    assert found["m_axi_wdata"] == "output [63:0]"
    assert found["m_axi_arlen"] == "output [7:0]"
    assert found["m_axi_rready"] == "output"
    assert found["m_axi_bid"] == "input [1:0]"
    assert found["s_axil_awaddr"] == "input [15:0]"
    assert found["s_axil_rdata"] == "output [31:0]"
    assert found["s_axil_bready"] == "input"


def test_separate_masters_have_the_channels_that_they_use() -> None:
    shared, found = ports("heald_axi"), ports("heald_axi", separate=True)
    for port in ("load_a", "load_b", "load_c", "store"):
        channels = {"aw", "w", "b"} if port == "store" else {"ar", "r"}
        fields = AXI_CHANNELS["m_axi"]
        names = {f"{c}{field}" for c in channels for field in ("valid", "ready", *fields[c])}
        prefix = f"m_axi_{port}_"
        assert {name.removeprefix(prefix) for name in found if name.startswith(prefix)} == names
        for name in names - {"rdata", "wdata", "wstrb"}:
            assert found[prefix + name] == shared["m_axi_" + name]
    assert found["m_axi_load_c_rdata"] == "input [31:0]"
    assert found["m_axi_store_wstrb"] == "output [7:0]"


def test_the_board_has_its_pins() -> None:
    found = ports("heald_ecp5")
    assert found == {
        "clk": "input",
        "reset": "input",
        "uart_rx": "input",
        "uart_tx": "output",
        "led": "output [3:0]",
        "wifi_gpio0": "output",
    }


def test_what_cannot_be_built_is_refused() -> None:
    with pytest.raises(InputError, match="transfers of a burst must be 1 to 256, not 0"):
        emit.axi_verilog(SMALL, 0)
    with pytest.raises(InputError, match="multiple of 4096 bytes"):
        emit.uart_verilog(SMALL, Serial(1000, 60_000_000, 1_000_000))
    with pytest.raises(InputError, match="baud rate must be at most"):
        emit.uart_verilog(SMALL, Serial(4096, 60_000_000, 20_000_000))
    with pytest.raises(InputError, match="machine's clock must be"):
        emit.board_verilog(SMALL, load_board("ulx3s"), Serial(4096, 900_000_000, 1_000_000))
