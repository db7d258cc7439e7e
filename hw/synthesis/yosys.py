"""Synthesis with Yosys: from Verilog to a netlist of a family's cells, and its resources."""

from __future__ import annotations

import inspect
import json
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hw import cache
from hw.errors import InputError
from hw.synthesis import carry, copies, multipliers, nets
from hw.synthesis.resources import FAMILIES, Resources, by_component, of_cells
from hw.synthesis.tools import Progress, Tool, find, run

#: For each family, the path delay in picoseconds, as estimated by the mapper, up to which LUTs are not spent
#: on speed. If the longest path of a design exceeds it, that path's delay counts instead. Without this limit
#: a part that is synthesised alone is made as fast as possible, and uses up to half more LUTs than within a
#: machine. The estimate knows cells and a flat delay per net.
DELAYS = {"ecp5": 9000, "xilinx": 6000}

#: The steps of `synth_lattice -family ecp5` between its labels `coarse` and `map_ram`, without `share`: that
#: pass asks a solver which operators are never used at once, which takes a quarter of an hour for a machine
#: with a CGRA and changes no cell of its parts.
_ECP5_COARSE = """\
proc -latches error
check
flatten
tribuf -logic
deminout
opt_expr
check
opt_clean
opt -nodffe -nosdff
fsm
opt
wreduce
peepopt
opt_clean
techmap -map +/cmp2lut.v -D LUT_WIDTH=4
opt_expr
opt_clean
techmap -map +/mul2dsp.v -D DSP_A_MAXWIDTH=18 -D DSP_B_MAXWIDTH=18 -D DSP_A_MINWIDTH=2 -D DSP_B_MINWIDTH=2 \
-D DSP_NAME=$__MUL18X18
chtype -set $mul t:$__soft_mul
techmap -map +/lattice/dsp_map_18x18.v
alumacc
opt
memory -nomap
opt_clean
"""
#: Commands with which ABC maps to LUTs: three times, each after a different restructuring of the previous
#: mapping. Compared with ABC's default it uses 1.3 % fewer LUTs for a machine, and takes a third longer.
#: (Keeping the best of the three would keep the fastest, which costs LUTs in a part that is synthesised
#: alone.)
_MAP = "&if {W} {D} {R}"
_AGAIN = "&st; &if -g -K 4"
_ABC = f"&scorr; &sweep; &syn2; {_MAP}; {_AGAIN}; &dch -f; {_MAP}; &mfs; {_AGAIN}; &synch2 -K 4; {_MAP}; &mfs"
#: The steps of `synth_lattice` at its label `map_luts`, with three differences. ABC has commands of its own.
#: A net counts 0.8 ns, not 0.3: this is typical after routing here, and makes a chain of LUTs look as long as
#: it is next to a carry chain. Unused address bits of distributed RAM are moved away from ground.
_ECP5_LUTS = """\
check -latchonly -assert
techmap -map +/lattice/latches_map.v
techmap -map {spread}
opt_clean
abc9 -W 800 -script +{abc}
clean
"""
#: Shallow memories leave address bits of distributed RAM at ground, one net with thousands of pins and the
#: most crowded net of a machine. Another bit of the same address serves as well, if reader and writer both
#: use it. A memory with initial contents is left unchanged.
_SPREAD = """\
(* techmap_celltype = "TRELLIS_DPR16X4" *)
module spread_address (input [3:0] DI, WAD, RAD, input WRE, WCK, output [3:0] DO);
  parameter WCKMUX = "WCK";
  parameter WREMUX = "WRE";
  parameter [63:0] INITVAL = 64'h0;
  parameter [3:0] _TECHMAP_CONSTMSK_WAD_ = 0;
  parameter [3:0] _TECHMAP_CONSTVAL_WAD_ = 0;
  parameter [3:0] _TECHMAP_CONSTMSK_RAD_ = 0;
  parameter [3:0] _TECHMAP_CONSTVAL_RAD_ = 0;
  localparam [3:0] IDLE = _TECHMAP_CONSTMSK_WAD_ & _TECHMAP_CONSTMSK_RAD_;
  wire _TECHMAP_FAIL_ = IDLE == 0 || IDLE[0] || |INITVAL
      || (_TECHMAP_CONSTVAL_WAD_ & IDLE) != (_TECHMAP_CONSTVAL_RAD_ & IDLE);
  TRELLIS_DPR16X4 #(.WCKMUX(WCKMUX), .WREMUX(WREMUX), .INITVAL(INITVAL)) _TECHMAP_REPLACE_ (
    .DI(DI), .WRE(WRE), .WCK(WCK), .DO(DO),
    .WAD((WAD & ~IDLE) | (IDLE & {4{WAD[0]}})),
    .RAD((RAD & ~IDLE) | (IDLE & {4{RAD[0]}})));
endmodule
"""
_ECP5 = (
    ("reading", "synth_ecp5 -top {top} -run begin:coarse"),
    ("flattening and optimising", _ECP5_COARSE),
    ("mapping memories", "synth_ecp5 -top {top} -run map_ram:map_gates"),
    ("mapping arithmetic and registers", "synth_ecp5 -top {top} -run map_gates:map_luts"),
    ("mapping to look-up tables", _ECP5_LUTS),
    ("naming cells", "synth_ecp5 -top {top} -run map_cells:json"),
)
#: `-noiopad`, `-noclkbuf`: the core has more ports than a package has pins, and buffers belong to a board's
#: top.
_XILINX_OPTIONS = "-family xc7 -flatten -noiopad -noclkbuf -top {top}"
#: The steps of `synth_xilinx` at its label `coarse`, without `share`.
_XILINX_COARSE = """\
techmap -map +/cmp2lut.v -map +/cmp2lcu.v -D LUT_WIDTH=6
alumacc
opt
memory -nomap
opt_clean
"""
_XILINX = (
    ("reading", f"synth_xilinx {_XILINX_OPTIONS} -run begin:prepare"),
    ("flattening and optimising", f"synth_xilinx {_XILINX_OPTIONS} -run prepare:coarse\n{_XILINX_COARSE}"),
    ("mapping memories", f"synth_xilinx {_XILINX_OPTIONS} -run map_memory:fine"),
    ("mapping arithmetic and registers", f"synth_xilinx {_XILINX_OPTIONS} -run fine:map_luts"),
    ("mapping to look-up tables", f"synth_xilinx {_XILINX_OPTIONS} -run map_luts:check"),
    ("naming cells", f"autoname\nsynth_xilinx {_XILINX_OPTIONS} -run check:edif"),
)
_STAGES = {"ecp5": _ECP5, "xilinx": _XILINX}
#: Modules that process the ECP5 netlist after Yosys.
_PASSES = (carry, copies, multipliers, nets)
#: Marks the beginning of a stage in the script's output.
_MARK = "@stage "
_SOURCE, _MAP, _NETLIST, _LOG, _ABOUT = "design.v", "spread.v", "netlist.json", "yosys.log", "about.json"


@dataclass(frozen=True)
class Synthesis:
    """The result of synthesising a design.

    `components` holds the resources of each instance's own cells by its hierarchical path (`warp0.multiply`),
    without those of its inner instances; cells of the top have the path "". `resources` is their sum. `cells`
    are numbers by type. `netlist` is Yosys' JSON, or None if it was not requested. `key` identifies design,
    options and tool. `seconds` is the time that the tool took, in this call or in the one that filled the
    cache.
    """

    top: str
    family: str
    resources: Resources
    components: Mapping[str, Resources]
    cells: Mapping[str, int]
    netlist: Path | None
    key: str
    tool: str
    seconds: float


def synthesise(
    verilog: str,
    top: str,
    family: str = "ecp5",
    *,
    netlist: bool = True,
    progress: Progress | None = None,
) -> Synthesis:
    """Synthesises Verilog for a family of FPGAs, or finds the result in the cache.

    With `netlist=False` the JSON, tens of megabytes for a machine, is not written. Raises `InputError` if the
    family is unknown, Yosys is missing or refuses the design.
    """
    if family not in FAMILIES:
        raise InputError(f"the family must be one of {', '.join(FAMILIES)}, not {family!r}")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", top):
        raise InputError(f"the top must be the name of a module, not {top!r}")
    tool = find("yosys")
    text = script(top, family)
    key = cache.fingerprint(
        [verilog, text, _SPREAD, *map(inspect.getsource, _PASSES), tool.version, "netlist" * netlist]
    )

    def make(folder: Path, _log: Path) -> None:
        found = _run(tool, text, verilog, top, family, folder, progress)
        for path in folder.iterdir():
            if path.name != _NETLIST or not netlist:
                path.unlink()
        (folder / _ABOUT).write_text(json.dumps(found), encoding="utf-8")

    folder, _ = cache.cached("synthesis", key, make)
    return _read(folder / _ABOUT, folder / _NETLIST if netlist else None, key)


def script(top: str, family: str) -> str:
    """The Yosys script that reads `design.v` and writes `netlist.json`."""
    lines = [f"read_verilog -sv {_SOURCE}", f"scratchpad -set abc9.D {DELAYS[family]}"]
    # Source locations would only make the netlist larger: cells are named after signals of the source.
    stages = (*_STAGES[family], ("writing the netlist", f"setattr -unset src *\nwrite_json {_NETLIST}"))
    for i, (name, commands) in enumerate(stages, start=1):
        lines += [
            f"log {_MARK}{i}/{len(stages)}: {name}",
            commands.format(top=top, spread=_MAP, abc=_ABC.replace(" ", ",")).rstrip("\n"),
        ]
    return "\n".join(lines) + "\n"


def _run(
    tool: Tool, text: str, verilog: str, top: str, family: str, work: Path, progress: Progress | None
) -> dict[str, Any]:
    """Runs the script in `work`; returns the contents of a cached result."""

    def line(said: str) -> None:
        if progress is not None and said.startswith(_MARK):
            progress(f"synthesis {said.removeprefix(_MARK)}")

    (work / _SOURCE).write_text(verilog, encoding="utf-8")
    (work / _MAP).write_text(_SPREAD, encoding="utf-8")
    (work / "script.ys").write_text(text, encoding="utf-8")
    begin = time.perf_counter()
    run(tool, ["-Q", "-T", "-q", "-l", _LOG, "-s", "script.ys"], work, _LOG, line)
    netlist = json.loads((work / _NETLIST).read_text(encoding="utf-8"))
    module = netlist["modules"][top]
    if family == "ecp5":
        carry.merge(module)
        multipliers.absorb(module)
        copies.spread(module)
        (work / _NETLIST).write_text(json.dumps(netlist), encoding="utf-8")
    components = by_component(module["cells"])
    return {
        "top": top,
        "family": family,
        "tool": tool.version,
        "seconds": round(time.perf_counter() - begin, 1),
        "components": {path: dict(cells) for path, cells in sorted(components.items())},
    }


def _read(about: Path, netlist: Path | None, key: str) -> Synthesis:
    """Reads a result from the cache."""
    found = json.loads(about.read_text(encoding="utf-8"))
    total = sum((Counter(cells) for cells in found["components"].values()), Counter[str]())
    return Synthesis(
        top=found["top"],
        family=found["family"],
        resources=of_cells(total, found["family"]),
        components={path: of_cells(cells, found["family"]) for path, cells in found["components"].items()},
        cells=dict(sorted(total.items())),
        netlist=netlist,
        key=key,
        tool=found["tool"],
        seconds=found["seconds"],
    )
