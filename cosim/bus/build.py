"""Programs that simulate the tops with buses, built when the cache does not hold them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cosim import build as machine
from cosim import cache, toolchain
from cosim.toolchain import Toolchain

HARNESS = Path(__file__).parent / "harness"
#: The program around a simulation that cocotb controls.
COCOTB = HARNESS / "cocotb.cpp"
LIBRARY = "libVharness.a"
OPTIONS = (*machine.VERILATOR_OPTIONS, "--x-initial", "unique", "--top-module", "harness")


@dataclass(frozen=True)
class Program:
    """An executable; `seconds` is the time that making it took now."""

    path: Path
    seconds: float


def program(
    text: str, harness: Path, parameters: Sequence[str] = (), *, main: Path = COCOTB, vpi: bool = True
) -> Program:
    """The executable of Verilog `text` in the SystemVerilog of a folder, whose top is `harness`.

    `parameters` are options of Verilator, `main` is the C++ around it; `vpi`: cocotb can control it. Raises
    `InputError` for missing tools, `RuntimeError` with the end of the log when one fails.
    """
    tools = toolchain.find()
    runtime, took = machine._runtime(tools, None)
    model, made = _model(tools, text, harness, [*OPTIONS, *parameters], vpi)
    parts = [model.name, runtime.name, main.read_text(encoding="utf-8"), *tools.identity()]

    def make(target: Path, log: Path) -> None:
        log.write_text("", encoding="utf-8")
        command = [tools.compiler, "-O2", *machine._flags(tools, None), f"-I{model}", str(main)]
        command += ["-o", str(target / "program"), str(model / LIBRARY)]
        command += [*sorted(map(str, runtime.glob("*.o"))), "-pthread"]
        if vpi:
            libraries = tools.cocotb_libraries
            command += [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lcocotbvpi_verilator"]
        machine._run(command, tools, target, log)

    found, seconds = cache.cached("build", cache.fingerprint(parts), make)
    return Program(found / "program", took + made + seconds)


def _model(tools: Toolchain, text: str, harness: Path, options: list[str], vpi: bool) -> tuple[Path, float]:
    """The verilated model as a library with its headers, and the seconds that it took now."""
    if not vpi:
        options.remove("--vpi")
    parts = [text, *options, *machine.OPTIMISE, *machine.FLAGS, *tools.identity()]
    sources = [*sorted(harness.glob("*.vlt")), *sorted(harness.glob("*.sv"))]
    for path in sources:
        parts += [path.name, path.read_text(encoding="utf-8")]

    def make(target: Path, log: Path) -> None:
        log.write_text("", encoding="utf-8")
        model = target / "model"
        (target / "top.v").write_text(text, encoding="utf-8")
        command = [str(tools.verilator), *options, "--prefix", "Vharness", "--Mdir", str(model)]
        command += ["-CFLAGS", "-DVL_TIME_CONTEXT", *map(str, sources), str(target / "top.v")]
        machine._run(command, tools, target, log)
        command = [tools.make, "-C", str(model), "-f", "Vharness.mk", f"-j{machine.JOBS}"]
        machine._run([*command, *tools.make_variables, *machine.OPTIMISE, LIBRARY], tools, target, log)
        for path in (model / LIBRARY, *model.glob("*.h")):
            path.rename(target / path.name)
        shutil.rmtree(model)  # many times as large

    return cache.cached("model", cache.fingerprint(parts), make)
