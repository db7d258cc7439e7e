"""Exports a compiled model as a plain SystemVerilog test bench that runs without this project.

It has the machine with its own memories, and for each program the files that `harness/testbench.sv` reads.
The expected contents of memory and registers come from the reference and the cycle model, for memories that
accept a request in every cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

import numpy as np

from cosim import host, images
from cosim.build import verilog
from cosim.job import Job, Outcome
from cosim.session.network import CompiledModel, predict_model
from cosim.session.operators import ModelProgramPrediction
from cosim.settings import MemorySettings
from hw import csr
from hw.config import MachineConfig
from hw.errors import InputError
from sw.compile.memory import Allocation
from sw.graph import reference

#: Largest memory of a test bench in bytes; a simulator holds all of it.
MOST = 1 << 30
#: Register STATUS after a run without errors: done, all programs checked, nothing outstanding.
_STATUS = 1 << csr.DONE | 1 << csr.PROGRAM_OK | 1 << csr.QUIET
#: The memory starts at a multiple of this: a word of the widest port.
_ALIGNMENT = 128

_README = """\
A model compiled for the machine {name}, as a test bench in SystemVerilog. Each of its programs is simulated
with the tensors that the reference has before it, and must leave those that the reference has behind it, in
the predicted cycles.

    iverilog -g2012 -o testbench heald.v testbench.sv
    verilator --binary --timing -Wno-fatal --top-module testbench -o ../testbench heald.v testbench.sv

Verilator takes about a minute. Then

{runs}
Each prints a line that begins with PASS or FAIL; after FAIL the simulator ends with an exit code other than
0. With +base=80000000 (hexadecimal, a multiple of 1000) the program's memory lies there.
"""


def files(model: CompiledModel, inputs: Mapping[str, np.ndarray]) -> dict[str, bytes]:
    """The files of the test bench of a model with its inputs.

    Raises `InputError` for a program that needs more than `MOST` bytes of memory.
    """
    config = model.config
    tensors = reference.run(model.network, inputs, everything=True)
    predicted = predict_model(model, inputs, MemorySettings.of(config), tensors).programs
    programs = [made for made in predicted if isinstance(made, ModelProgramPrediction)]
    folders = [f"program{i}" for i in range(len(programs))]
    found: dict[str, bytes] = {}
    first = min((_first(made.job) for made in programs), default=0)
    sizes = {"SCRIPT": 1, "RESULTS": 1, "EXPECTED": 1, "WORDS": 1}
    for folder, made in zip(folders, programs, strict=True):
        own, numbers = _program(config, made, tensors, first)
        found |= {f"{folder}.{name}": data for name, data in own.items()}
        sizes = {key: max(value, numbers[key]) for key, value in sizes.items()}
    runs = "\n".join(f"    ./testbench +program={folder}" for folder in folders)
    text = resources.files("cosim.harness").joinpath("testbench.sv").read_text(encoding="utf-8")
    return found | {
        "heald.v": verilog(config)[0].encode(),
        "testbench.sv": text.replace(
            "// @PARAMETERS@", _parameters(config, sizes | {"FIRST": first})
        ).encode(),
        "README.txt": _README.format(name=config.name, runs=f"{runs}\n").encode(),
    }


def _first(job: Job) -> int:
    """The first word of memory that a job can touch."""
    first = min((w.first for w in job.windows), default=0)
    return (first - first % _ALIGNMENT) // 4


def _parameters(config: MachineConfig, sizes: Mapping[str, int]) -> str:
    ports = {"A": "load_a", "B": "load_b", "C": "load_c", "STORE": "store"}
    values = {**sizes, "BASE_REGISTER": csr.offset(config, "BASE")}
    for name, port in ports.items():
        values |= {f"WIDTH_{name}": config.port_bytes(port), f"LATENCY_{name}": config.port_latency(port)}
    return "\n    ".join(f"parameter {name} = {value};" for name, value in values.items())


def _program(
    config: MachineConfig, made: ModelProgramPrediction, tensors: Mapping[str, np.ndarray], first: int
) -> tuple[dict[str, bytes], dict[str, int]]:
    """The files of a program, and the number of words of each kind that it needs."""
    job = made.job
    words = (job.end + _ALIGNMENT) // 4 - first
    if 4 * words > MOST:
        raise InputError(
            f"{job.name}: a test bench keeps all of the memory, {MOST >> 20:,} MiB at most; this program "
            f"needs {4 * words >> 20:,} MiB"
        )
    script = np.array([entry.word() for entry in host.script(config, job)], np.uint64)
    results = np.array(_results(config, made.predicted), np.uint32)
    expected, mask = _regions(made, tensors)
    found = {
        "script.hex": images.hex_lines(script),
        "memory.hex": _image(job, first),
        "results.hex": images.hex_lines(results),
        "expected.hex": images.hex_lines(expected),
        "mask.hex": images.hex_lines(mask),
    }
    return found, {
        "SCRIPT": len(script),
        "RESULTS": len(results),
        "EXPECTED": max(1, len(expected)),
        "WORDS": words,
    }


def _image(job: Job, start: int) -> bytes:
    """The initial memory, as `$readmemh` reads it into words from `start` on."""
    parts = []
    for first, words in images.segments(job.memory):
        parts += [f"@{first - start:x}\n".encode(), images.hex_lines(words.astype(np.uint32))]
    return b"".join(parts)


def _results(config: MachineConfig, predicted: Outcome) -> list[int]:
    """Expected values of the registers read after the run, in the order of `cosim.host.steps`."""
    cycles = predicted.cycles
    found = {"STATUS": _STATUS, "ERROR": 0, "CYCLES_LOW": cycles & 0xFFFFFFFF, "CYCLES_HIGH": cycles >> 32}
    found |= predicted.counters
    return [found[name] for name in (*host.RESULTS, *host.counter_names(config))]


def _regions(
    made: ModelProgramPrediction, tensors: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The words of all regions that a program leaves, and a mask of the bits that belong to a tensor."""
    images_, masks = [np.zeros(0, np.uint32)], [np.zeros(0, np.uint32)]
    for name, home in made.program.kept().items():
        value = tensors.get(name)
        first, number = host.region_words(made.job.outputs[len(images_) - 1])
        image, mask = (np.zeros(4 * number, np.uint8) for _ in range(2))
        if value is not None:
            at = home.address - 4 * first
            image[at : at + home.size] = home.image(value)
            mask[at : at + home.size] = _of_tensor(home, value)
        images_.append(image.view("<u4").astype(np.uint32))
        masks.append(mask.view("<u4").astype(np.uint32))
    return np.concatenate(images_), np.concatenate(masks)


def _of_tensor(home: Allocation, value: np.ndarray) -> np.ndarray:
    """The bits of a tensor's allocation that are not padding."""
    zeros = np.zeros(value.shape, value.dtype)
    ones = np.frombuffer(b"\xff" * zeros.nbytes, value.dtype).reshape(value.shape)
    found: np.ndarray = home.image(zeros) ^ home.image(ones)
    return found
