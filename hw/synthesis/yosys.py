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

#: Picoseconds that a path may take in the mapper's estimate before look-up tables are spent to shorten it, by
#: family. Where the longest path of a design takes more, that one's delay counts. Without such a limit a part
#: that is synthesised alone is made as quick as it can be, and takes up to half more tables than in a
#: machine. The estimate knows cells and a flat delay per net.
DELAYS = {"ecp5": 9000, "xilinx": 6000}

#: What `synth_lattice -family ecp5` does between its labels `coarse` and `map_ram`, without `share`: that
#: pass asks a solver which operators are never used at once, which takes a quarter of an hour for a machine
#: with a grid and changes no cell of its parts.
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
#: Commands of ABC that map to look-up tables: three times, each time after another restructuring of what the
#: mapping before made. Beside ABC's own way it takes 1.3 % fewer tables for a machine, and a third longer.
#: (To keep the best of the three would keep the quickest, which costs a part that is synthesised alone.)
_MAP = "&if {W} {D} {R}"
_AGAIN = "&st; &if -g -K 4"
_ABC = f"&scorr; &sweep; &syn2; {_MAP}; {_AGAIN}; &dch -f; {_MAP}; &mfs; {_AGAIN}; &synch2 -K 4; {_MAP}; &mfs"
#: What `synth_lattice` does at its label `map_luts`, with three differences. ABC has commands of its own. A
#: net counts 0.8 ns, not 0.3: that is what routing makes of it here, and a chain of tables looks as long as
#: it is beside one of carries. Address bits of distributed RAM that nothing uses are led away from ground.
_ECP5_LUTS = """\
check -latchonly -assert
techmap -map +/lattice/latches_map.v
techmap -map {spread}
opt_clean
abc9 -W 800 -script +{abc}
clean
"""
#: Shallow memories leave address bits of distributed RAM at ground, which is one net that goes to all of
#: them: thousands of pins, and the most crowded net of a machine. Another bit of the same address serves as
#: well, if reader and writer both take it. A memory with contents stays as it is.
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
#: What `synth_xilinx` does at its label `coarse`, without `share`.
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
#: What works on the netlist of ECP5 after Yosys.
_PASSES = (carry, copies, multipliers, nets)
#: How the script says which stage begins.
_MARK = "@stage "
_SOURCE, _MAP, _NETLIST, _LOG, _ABOUT = "design.v", "spread.v", "netlist.json", "yosys.log", "about.json"


@dataclass(frozen=True)
class Synthesis:
    """What synthesis made of a design.

    `resources` is the sum of `components`, which holds what the cells of each instance take by its path in
    the hierarchy (`warp0.multiply`), those of its own instances not counted; cells of the top have the path
    "". `cells` are numbers by type. `netlist` is Yosys' JSON, None where it was not asked for. `key` stands
    for design, options and tool. `seconds` is the time the tool took, in this call or the one that filled the
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
    """Synthesise Verilog for a family of FPGAs, or find that in the cache.

    `netlist=False` does without the JSON, which takes tens of megabytes for a machine. Raises `InputError`
    when the family is unknown, Yosys is missing or refuses the design.
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
    """The script for Yosys that reads `design.v` and writes `netlist.json`."""
    lines = [f"read_verilog -sv {_SOURCE}", f"scratchpad -set abc9.D {DELAYS[family]}"]
    # Places in the source would only make the netlist larger: cells are named after its signals.
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
    """Run the script in `work`; gives what a cached result says."""

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
    """A result of the cache."""
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
