"""Hostile inputs as commands: for each kind of file, the commands that read it (`bench.hostile`)."""

from __future__ import annotations

import contextlib
import io
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import hostile_inputs as inputs
from bench.hostile_inputs import MACHINE, NAMES, NUMBERS, PLACES, RUN, SIM, Case, Good, Maker

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def good_files() -> Good:
    """Valid files for all commands."""
    from cosim.session.network import compile_model
    from heald import bundle
    from heald.sources import OnnxSource
    from heald.testing.models import draw
    from heald.testing.operators import KINDS
    from heald.testing.views import IMAGES, VIEWS
    from hw.config import load, to_toml
    from hw.errors import InputError
    from sw.dfg.json import format_graph

    models, bundles = [], []
    for number in range(24):
        made, _ = draw(f"hostile {number}", {**KINDS, **VIEWS, **IMAGES}, 1, 4)
        models.append(made.SerializeToString())
        if number < 6:
            with contextlib.suppress(InputError):
                source = OnnxSource("model", made, True)
                bundles.append(bundle.files(compile_model(source.network(), load("test")), source))
    programs = [
        (EXAMPLES / place).read_text(encoding="utf-8")
        for place in (
            *("06_tile_programs/phases.py", "06_tile_programs/padded.py"),
            *("07_tile_program_on_rtl/product.py", "07_tile_program_on_rtl/phases.py"),
        )
    ]
    kernels = (EXAMPLES / "08_grid_kernels/kernels.py").read_text(encoding="utf-8")
    graphs = [
        data.decode()
        for b in bundles
        for name, data in b.items()
        if name.endswith(".json") and "ii" not in name
    ]
    arrays = io.BytesIO()
    np.savez(arrays, A=np.ones((4, 4), np.int8), B=np.ones((4, 4), np.int8))
    texts = {
        "program": programs,
        "kernels": [kernels],
        "graph": [t for t in graphs if '"nodes"' in t and '"edges"' in t] or [format_graph(_graph())],
        "machine": [to_toml(load(name)) for name in ("test", "tiny")],
        "fabric": [_said("fabric", "mesh4x4", "--toml")],
        "problem": [(EXAMPLES / "04_tiling/problem.json").read_text(encoding="utf-8")],
        "space": [(EXAMPLES / "11_exploration/small.toml").read_text(encoding="utf-8")],
        "run": [_said("run", "--matmul", "4x4x4", "--hw", "test", *SIM)],
        "programs": [_said("warps", str(EXAMPLES / "06_tile_programs/phases.py"), "--json", code=None)],
    }
    return Good(models, bundles, texts, [arrays.getvalue()])


def _graph() -> Any:
    from heald.testing.graphs import generated

    return generated(8, 1)


def _said(*arguments: str, code: int | None = 0) -> str:
    """Output of a command called in this process, which thus loads the modules that commands need."""
    from heald.cli import call

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        found = call(arguments)
    assert code is None or found == code, arguments
    return out.getvalue()


def _model(r: random.Random, good: Good) -> Case:
    how = r.random()
    if how < 0.15:
        data = inputs.chained_model(r)
    else:
        data = r.choice(good.models)
        data = inputs.damaged_model(r, data) if how < 0.9 else data
    files = {"model.onnx": data, "inputs.npz": inputs.damaged_arrays(r, good.arrays[0])}
    if r.random() < 0.25:
        return Case(
            "model", ["compile", "model.onnx", "--hw", "test", "-o", r.choice(("out", *PLACES))], files
        )
    allowed = ["--allow-host"] if r.random() < 0.5 else []
    extra = inputs.options(r, RUN) if r.random() < 0.3 else []
    return Case("model", ["run", "model.onnx", "--hw", "test", *SIM, *allowed, *extra], files)


def _bundle(r: random.Random, good: Good) -> Case:
    made = inputs.damaged_bundle(r, r.choice(good.bundles))
    files = {f"made/{name}": data for name, data in made.items()}
    if r.random() < 0.1:
        return Case("bundle", ["compare", "made", "made", "--json"], files)
    return Case("bundle", ["run", "made", *SIM], files)


def _program(r: random.Random, good: Good) -> Case:
    text = r.choice(good.texts["program"])
    how = r.random()
    text = inputs.chained_program(r) if how < 0.2 else inputs.damaged_text(r, text) if how < 0.95 else text
    files = {"p.py": text.encode(errors="surrogateescape")}
    if r.random() < 0.05:
        files["p.py"] = inputs.damaged_bytes(r, files["p.py"])
    command = r.choice(("deps", "deps", "opt", "opt", "warps", "warps", "check", "run"))
    arguments = [command, "p.py"]
    if command == "deps" and r.random() < 0.3:
        arguments += ["--explain", r.choice(("P", "C", "L", "nope", ""))]
    if command == "opt":
        passes = ("canonicalize", "hoist", "dead-store", "redundant-load", "nope", "canonicalize,hoist")
        arguments += [
            "-p",
            r.choice(passes),
            *inputs.options(r, {"--registers": NUMBERS, "--emit": ("mlir", "x")}),
        ]
    if command in ("warps", "check"):
        files["programs.json"] = inputs.damaged_json(r, good.texts["programs"][0]).encode(errors="replace")
        arguments += ["programs.json"] if command == "check" else inputs.options(r, _WARPS)
    if command == "run":
        arguments += ["--hw", "test", *SIM]
    return Case("tile program", [*arguments, *(["--json"] if r.random() < 0.5 else [])], files)


_WARPS = {
    "--reduce": ("none", "full", "x"),
    "--channels": ("fifo", "x"),
    "--unroll": (),
    "--dot": PLACES,
    "--svg": PLACES,
    "--samples-suffice": (),
}


def _check(r: random.Random, good: Good) -> Case:
    files = {
        "p.py": good.texts["program"][0].encode(),
        "programs.json": inputs.damaged_json(r, good.texts["programs"][0]).encode(errors="replace"),
    }
    if r.random() < 0.5:
        held = json.loads(good.texts["programs"][0])["programs"]
        warp = r.choice(list(held))
        held[warp] = inputs.damaged_text(r, held[warp])
        files["programs.json"] = json.dumps(held).encode()
    return Case("warp programs", ["check", "p.py", "programs.json"], files)


def _loop(r: random.Random, good: Good) -> Case:
    limits = ["--timeout", "5"] if r.random() < 0.9 else ["--timeout", r.choice(("0", "-1", "x", "nan"))]
    extra = inputs.options(
        r, {"--grid": ("2x2", "0x0", "999x999", "x"), "--unroll": NUMBERS, "--seed": NUMBERS}
    )
    files = {"fabric.toml": inputs.damaged_text(r, good.texts["fabric"][0]).encode(errors="replace")}
    extra += ["--fabric", "fabric.toml"] if r.random() < 0.3 else []
    if r.random() < 0.5:
        files["g.json"] = inputs.damaged_json(r, r.choice(good.texts["graph"])).encode(errors="replace")
        return Case("loop", ["map", "g.json", *limits, *extra], files)
    files["k.py"] = inputs.damaged_text(r, good.texts["kernels"][0]).encode(errors="surrogateescape")
    name = r.choice(("fir", "fir", "dot", "nope", "", "relu"))
    return Case("loop", ["map", f"k.py:{name}", *limits, *extra, "-o", r.choice(PLACES)], files)


def _machine(r: random.Random, good: Good) -> Case:
    files = {"machine.toml": inputs.damaged_text(r, r.choice(good.texts["machine"])).encode(errors="replace")}
    files["model.onnx"] = r.choice(good.models)
    command = r.choice(
        (
            ["config", "check", "machine.toml"],
            ["config", "show", "machine.toml", "--json"],
            ["tile", "--matmul", "64x64x64", "--hw", "machine.toml"],
            ["compile", "model.onnx", "--hw", "machine.toml", "-o", "out", "--allow-host"],
        )
    )
    return Case("machine", command, files)


def _fabric(r: random.Random, good: Good) -> Case:
    files = {"fabric.toml": inputs.damaged_text(r, good.texts["fabric"][0]).encode(errors="replace")}
    extra = inputs.options(r, {"--grid": ("2x2", "0x0", "100x100", "x"), "--svg": PLACES, "--toml": ()})
    return Case("fabric", ["fabric", r.choice(("fabric.toml", "fabric.toml", *NAMES)), *extra], files)


def _tile(r: random.Random, good: Good) -> Case:
    if r.random() < 0.6:
        files = {"problem.json": inputs.damaged_json(r, good.texts["problem"][0]).encode(errors="replace")}
        return Case(
            "problem", ["tile", "problem.json", *inputs.options(r, {"--plot": PLACES, "--json": ()})], files
        )
    shape = "x".join(str(r.choice((*inputs.WHOLE, 64, 512))) for _ in range(r.choice((2, 3, 3, 3, 4))))
    return Case(
        "problem", ["tile", "--matmul", shape, *inputs.options(r, MACHINE)], {"machine.toml": b"rows=2"}
    )


def _product(r: random.Random, good: Good) -> Case:
    shape = "x".join(str(r.choice((0, 1, 2, 5, 17, 40, 2**31, -3))) for _ in range(3))
    if r.random() < 0.5:
        shape = "4x4x4"
    more = {
        **RUN,
        "--type-a": ("uint8", "x"),
        "--zero-a": NUMBERS,
        "--batch": ("2", "2x2", "0", "x", "9" * 30),
    }
    files = {"inputs.npz": inputs.damaged_arrays(r, good.arrays[0]), "model.onnx": b"x"}
    files["k.py"] = good.texts["kernels"][0].encode()
    extra = inputs.options(r, more, 1)
    extra += (
        ["--epilogue", r.choice(("k.py:fir", "k.py:nope", "nope.py:f", "k.py"))] if r.random() < 0.1 else []
    )
    return Case("options", ["run", "--matmul", shape, "--hw", "test", *SIM, *extra], files)


def _compare(r: random.Random, good: Good) -> Case:
    text = good.texts["run"][0]
    files = {"a.json": text.encode(), "b.json": inputs.damaged_json(r, text).encode(errors="replace")}
    return Case(
        "run", ["compare", "a.json", "b.json", *inputs.options(r, {"--report": PLACES, "--json": ()})], files
    )


def _words(r: random.Random, good: Good) -> Case:
    data = next(d for name, d in good.bundles[0].items() if name.endswith(".bin") and "warp" in name)
    data = inputs.damaged_bytes(r, data) if r.random() < 0.8 else r.randbytes(r.randrange(4000))
    if r.random() < 0.4:
        data = inputs.damaged_text(r, "\n".join(f"{b:08x}" for b in data[:400])).encode(errors="replace")
    return Case(
        "words",
        ["disasm", "w", *inputs.options(r, {"--format": ("bin", "hex", "x"), "--json": ()})],
        {"w": data},
    )


def _space(r: random.Random, good: Good) -> Case:
    files = {
        "space.toml": inputs.damaged_text(r, good.texts["space"][0]).encode(errors="replace"),
        # Workers take seconds to start; those of good models have their own tests.
        "model.onnx": inputs.damaged_bytes(r, r.choice(good.models))[:-1],
    }
    extra = {
        "--storage": ("sqlite:///x.db", "sqlite:////dev/null", "nope://x", "x", ""),
        "--sampler": ("random", "x"),
        "--csv": PLACES,
        "--export": PLACES,
        "--executor": ("processes:0", "dask://x", "processes:99999", "x"),
    }
    arguments = ["explore", "space.toml", "model.onnx", "--trials", "1", "--executor", "processes:1"]
    return Case("space", [*arguments, *inputs.options(r, extra)], files)


def _others(r: random.Random, good: Good) -> Case:
    command = r.choice(("isa", "csr", "verilog", "fpga", "config", "cgra", "nope", "--nope", *NAMES))
    pairs = {
        **MACHINE,
        "--json": (),
        "--help": (),
        "-o": PLACES,
        "--device": ("12k", "x"),
        "--top": ("core", "x"),
    }
    if command == "fpga":
        pairs = {k: ("nope",) if k == "--hw" else v for k, v in pairs.items() if k != "--set"}
        return Case("options", [command, "--hw", "nope", *inputs.options(r, pairs)])
    return Case("options", [command, *inputs.options(r, pairs)], {"machine.toml": b"rows = 4"})


#: Makers of inputs with their weights.
MAKERS: Mapping[Maker, int] = {
    _model: 28,
    _bundle: 22,
    _program: 20,
    _check: 5,
    _loop: 8,
    _machine: 6,
    _fabric: 3,
    _tile: 6,
    _product: 6,
    _compare: 3,
    _words: 3,
    _space: 1,
    _others: 4,
}


def makers_of(kinds: Sequence[str]) -> dict[Maker, int]:
    """The makers of some kinds (by default all), with their weights."""
    return {make: share for make, share in MAKERS.items() if not kinds or make.__name__[1:] in kinds}


def case(seed: int, number: int, good: Good, makers: Mapping[Maker, int]) -> Case:
    """One input; the same for the same numbers and makers."""
    r = random.Random(f"{seed}/{number}")
    made = r.choices(list(makers), list(makers.values()))[0](r, good)
    # Program arguments cannot contain null characters.
    made.arguments = [a.replace("\0", "") for a in made.arguments]
    made.stdout = r.choice(("full", "closed", "reader gone")) if r.random() < 0.03 else "file"
    return made
