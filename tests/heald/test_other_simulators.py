"""Exported test benches in other simulators: Icarus Verilog and Debian's Verilator.

Each must say PASS: every tensor, counter and number of cycles is as reference and cycle model predict.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import heald as hd
from heald.testing.models import draw
from heald.testing.operators import KINDS
from heald.testing.views import IMAGES, VIEWS
from hw.errors import InputError
from tests.heald.network_models import perceptron

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
#: Examples in sizes that Icarus can simulate: a layer of BERT, a block of ResNet.
EXAMPLES = {
    "09_bert_encoder": "--sequence 6 --hidden 8 --heads 2 --feed-forward 16",
    "10_resnet_bottleneck": "--size 5 --channels 8 --inner 4",
}
#: Random models of each machine, and the cycles that one may take: Icarus makes some hundred in a second.
RANDOM, MOST_CYCLES = 20, 3000
#: Where Debian installs programs: those of a virtual environment are not meant.
DEBIAN = "/usr/local/bin:/usr/bin:/bin"
#: An address above 2 GiB.
HIGH = "+base=9abcd000"
#: Memories, and what else has no first value, hold random bits at first.
RANDOM_BITS = "+verilator+rand+reset+2"


@dataclass(frozen=True)
class Bench:
    """Test benches of a machine with room for each of its programs; `programs` are what `+program=` takes."""

    folder: Path
    sizes: dict[str, int]
    programs: dict[str, list[Path]]
    kernels: int


def program_of(name: str) -> str:
    """A program that Debian installs; skips the test where it is not there."""
    found = shutil.which(name, path=DEBIAN)
    if found is None:
        pytest.skip(f"{name} is not installed in {DEBIAN} (Debian: apt-get install {name})")
    return found


def models(machine: Any, hw: str, folder: Path) -> Iterator[tuple[str, Any]]:
    """Compiled models by name: three that are given, and random ones that are short."""
    yield "perceptron", hd.compile(perceptron(13, 40, 21), machine, allow_host=True)
    for name, options in EXAMPLES.items():
        file = folder / f"{name}.onnx"
        script = ROOT / f"examples/{name}/make_model.py"
        subprocess.run([sys.executable, script, "--output", file, *options.split()], check=True)
        yield name, hd.compile(file, machine)
    found, seed = 0, 0
    while found < RANDOM:
        seed += 1
        proto, kinds = draw(f"{hw} {seed}", {**KINDS, **VIEWS, **IMAGES}, 1, 4)
        try:
            made = hd.compile(proto, machine, allow_host=True)
        except InputError:
            continue
        if 0 < made.predict().cycles <= MOST_CYCLES:
            found += 1
            yield f"{seed}: {', '.join(kinds)}", made


@pytest.fixture(scope="module", params=["test", "tiny"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    hw: str = request.param
    sizes: dict[str, int] = {}
    programs: dict[str, list[Path]] = {}
    verilog, kernels = set(), 0
    for number, (name, model) in enumerate(models(hd.machine(hw), hw, tmp_path_factory.mktemp(hw))):
        folder = tmp_path_factory.mktemp(f"model{number}")
        model.save(folder, export=True)
        kernels += len(list(folder.glob("program*/k*.bin")))
        folder /= "testbench"
        own = re.findall(r"parameter (\w+) = (\d+);", (folder / "testbench.sv").read_text(encoding="utf-8"))
        for key, value in own:
            sizes[key] = max(int(value), sizes.get(key, 0))
        assert sizes["FIRST"] == int(dict(own)["FIRST"]), "memories begin alike"
        programs[name] = [p.parent / p.name.split(".")[0] for p in sorted(folder.glob("*.script.hex"))]
        verilog.add((folder / "heald.v").read_text(encoding="utf-8"))
    assert len(verilog) == 1
    return Bench(folder, sizes, programs, kernels)


def check(bench: Bench, run: Callable[[str], list[str]]) -> None:
    """Run all programs; each must pass."""
    said = {
        f"{name} ({program.name})": run(f"+program={program}")
        for name, own in bench.programs.items()
        for program in own
    }
    failed = {name: lines for name, lines in said.items() if not any(x.startswith("PASS: ") for x in lines)}
    assert not failed
    assert len(bench.programs) == RANDOM + 3
    assert bench.kernels > RANDOM, "most of them use the CGRA"


def output(command: list[str], folder: Path) -> list[str]:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=1200)
    return [*ended.stdout.splitlines(), *ended.stderr.splitlines()[-5:]]


def test_icarus_passes_every_program(bench: Bench) -> None:
    """With X in all memories, and the program's above 2 GiB."""
    compiler, player = program_of("iverilog"), program_of("vvp")
    sizes = [f"-Ptestbench.{name}={value}" for name, value in bench.sizes.items()]
    command = [compiler, "-g2012", *sizes, "-o", "icarus", "heald.v", "testbench.sv"]
    subprocess.run(command, cwd=bench.folder, check=True, timeout=600)
    check(bench, lambda which: output([player, "icarus", which, HIGH, "+unknown"], bench.folder))


def test_verilator_of_debian_passes_every_program(bench: Bench) -> None:
    """At two bases, and with random bits in the machine's memories."""
    compiler = program_of("verilator")
    sizes = [f"-G{name}={value}" for name, value in bench.sizes.items()]
    options = ["--binary", "--timing", "-Wno-fatal", "--x-initial", "unique", "--top-module", "testbench"]
    command = [compiler, *options, *sizes, "heald.v", "testbench.sv"]
    built = subprocess.run(
        command, cwd=bench.folder, capture_output=True, text=True, check=False, timeout=3000
    )
    assert built.returncode == 0, built.stderr[-2000:]
    program = str(bench.folder / "obj_dir/Vtestbench")
    for seed, base in ((1, "+base=0"), (2, "+base=38000000"), (3, HIGH)):
        start = [program, base, RANDOM_BITS, f"+verilator+seed+{seed}"]
        check(bench, lambda which, start=start: output([*start, which], bench.folder))
