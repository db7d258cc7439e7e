"""Published models, quantised as users do: what runs where, cycles, agreement with onnxruntime.

    python -m bench.zoo [MODEL ...] [--form FORM ...] [--hw PRESET] [--read] [--rtl] [--json FILE]

Each row is a separate process. Results are those of the network's reference, with which every run on the RTL
is compared bit for bit; `--rtl` runs the models there too, `--read` does not compile them. Exit code 1: a
tensor differs from onnxruntime's by more than docs/network.md explains, a run differs, or fewer than ten
architectures have 95 % of their multiply-accumulates on the machine.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from rich.console import Console
from rich.table import Table

import heald as hd
from bench.zoo_models import ENTRIES, FIXED, FORMS, Entry, Inputs, prepared, quantised
from cosim.session.onnxruntime_comparison import compare_model
from heald.sources import OnnxSource
from hw.errors import InputError
from sw.graph import reference
from sw.graph.host import HostOperator
from sw.graph.network import Network

#: Required fraction of multiply-accumulates on the machine, and for how many architectures.
LEAST_SHARE, LEAST_MODELS = 0.95, 10
#: Limits of a row in seconds and bytes.
SECONDS, BYTES = 1800, 10 << 30


def multiply_accumulates(model: onnx.ModelProto) -> dict[str, int]:
    """Multiply-accumulates of each node of a model with fixed shapes, by the node's name."""
    shaped = onnx.shape_inference.infer_shapes(model)
    graph = shaped.graph
    shapes = {t.name: tuple(t.dims) for t in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        shapes[value.name] = tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
    found = {}
    for node in graph.node:
        made = math.prod(shapes[node.output[0]]) if node.output[0] in shapes else 0
        weights = shapes.get(node.input[1], ()) if len(node.input) > 1 else ()
        if node.op_type == "Conv":
            found[node.name] = made * math.prod(weights[1:])
        elif node.op_type == "ConvTranspose":
            found[node.name] = math.prod(shapes[node.input[0]]) * math.prod(weights[1:])
        elif node.op_type in ("MatMul", "Gemm"):
            found[node.name] = made * shapes[node.input[0]][-1]
        elif node.op_type == "LSTM":
            steps, batch, width = shapes[node.input[0]]
            hidden = shapes[node.input[2]][-1]
            found[node.name] = steps * batch * 4 * hidden * (width + hidden)
    return found


def share_on_machine(counts: Mapping[str, int], names: set[str]) -> float:
    """Fraction of the multiply-accumulates in nodes that an operator of the machine implements."""
    whole = {name.removesuffix("_quant").removesuffix("_MatMul") for name in names}
    return sum(n for name, n in counts.items() if name in whole) / (sum(counts.values()) or 1)


def read(entry: Entry, form: str) -> dict[str, Any]:
    """Facts about one model in one form, without compiling it."""
    counts, model = multiply_accumulates(prepared(entry)), quantised(entry, form)
    begin = time.process_time()
    source = OnnxSource(entry.name, model, allow_host=True)
    network = source.network()
    machine = [o for o in network.operators if not isinstance(o, HostOperator)]
    hosted = [o for o in network.operators if isinstance(o, HostOperator) and not o.edge]
    said = {"model": entry.name, "form": form, "macs": sum(counts.values()), "on_machine": len(machine)}
    said["share"] = share_on_machine(counts, {n for o in machine for n in o.nodes})
    said["on_host"] = dict(Counter(o.op for o in hosted))
    said["compile_seconds"] = round(time.process_time() - begin, 1)
    inputs = {n: v for n, v in entry.samples(entry, 0).items() if n in network.inputs}
    return {**said, **agreement(model, source, network, inputs)}


def agreement(model: onnx.ModelProto, source: OnnxSource, network: Network, inputs: Inputs) -> dict[str, Any]:
    """How the reference of a model's graph compares with onnxruntime."""
    arrays = reference.run(network, inputs, everything=True)
    compared = compare_model(model, source.network(fuse=False), inputs, arrays)
    cosine = min((t.cosine for t in compared.tensors if t.name in network.outputs), default=1.0)
    said = {"agrees": compared.ok, "agreement": compared.summary, "tensors": len(compared.tensors)}
    return {**said, "cosine": cosine}


def row(entry: Entry, form: str, hw: str, rtl: bool) -> dict[str, Any]:
    """Facts about one model in one form."""
    counts = multiply_accumulates(prepared(entry))
    model = quantised(entry, form)
    said: dict[str, Any] = {"model": entry.name, "form": form, "macs": sum(counts.values())}
    begin = time.process_time()
    try:
        compiled = hd.compile(model, hw, allow_host=True, fixed_point=form == FIXED)
    except InputError as error:
        return {**said, "missing": str(error)}
    said["compile_seconds"] = round(time.process_time() - begin, 1)
    network = compiled.compiled.network
    machine = [o for p in compiled.compiled.programs for o in p.operators]
    said["share"] = share_on_machine(counts, {n for o in machine for n in o.nodes})
    hosted = [s for s in compiled.compiled.steps if not hasattr(s, "programs") and not s.edge]
    said |= {"on_machine": len(machine), "on_host": dict(Counter(s.op for s in hosted))}
    said["programs"] = len(compiled.compiled.programs)
    ends = [h.end for p in compiled.compiled.programs for h in p.homes.values()]
    said["memory_bytes"] = max(ends, default=0)
    inputs = {n: v for n, v in entry.samples(entry, 0).items() if n in network.inputs}
    begin = time.perf_counter()
    predicted = compiled.predict(inputs)
    said |= {"cycles": predicted.cycles, "predict_seconds": round(time.perf_counter() - begin, 1)}
    config = compiled.machine.config
    done = sum(o.macs for o in predicted.operators)
    said["utilization"] = done / (predicted.cycles * config.rows * config.cols) if predicted.cycles else 0.0
    said |= agreement(model, compiled.source, network, inputs)
    if rtl:
        run = compiled.run(inputs)
        said |= {"correct": run.correct, "rtl_cycles": run.cycles}
    return said


def isolated(entry: Entry, form: str, hw: str, *options: str) -> dict[str, Any]:
    """A row from a process of its own, which may fail, hang or grow without ending the others."""
    command = [sys.executable, "-m", "bench.zoo", entry.name, "--form", form, "--hw", hw, "--one"]
    command += options
    said = {"model": entry.name, "form": form}
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {**said, "missing": f"not done in {SECONDS} s"}
    if ended.returncode:
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        return {**said, "missing": f"code {ended.returncode}: {lines[-1][:300] if lines else 'nothing said'}"}
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def cells(found: Mapping[str, Any]) -> list[str]:
    """A row of the table."""
    if "share" not in found:
        return [found["model"], found["form"], *[""] * 7, found["missing"]]
    hosted = ", ".join(f"{op} {n}" for op, n in sorted(found["on_host"].items(), key=lambda pair: -pair[1]))
    agrees = {True: "yes", False: "NO: " + found["agreement"]}[found["agrees"]]
    compiled = [str(found["on_machine"]), "", "", ""]
    if "cycles" in found:
        compiled = [
            f"{found['on_machine']} in {found['programs']}",
            f"{found['cycles']:,}",
            f"{100 * found['utilization']:.0f} %",
            f"{found['memory_bytes'] / 1e6:.1f}",
        ]
    return [
        found["model"],
        found["form"],
        f"{100 * found['share']:.1f} %",
        *compiled,
        f"{found['compile_seconds']:.0f}",
        f"{agrees} ({found['cosine']:.4f})",
        hosted or "nothing",
    ]


def verdict(rows: Sequence[Mapping[str, Any]]) -> tuple[str, bool]:
    """The last line, and whether everything is as required."""
    ran = [r for r in rows if "share" in r]
    good = {r["model"] for r in ran if r["share"] >= LEAST_SHARE and r["agrees"]}
    wrong = [f"{r['model']}.{r['form']}" for r in ran if not (r["agrees"] and r.get("correct", True))]
    models = len({r["model"] for r in rows})
    differ = f"{len(wrong)} differ" + (f": {', '.join(wrong)}" if wrong else "")
    line = (
        f"{len(good)} of {models} architectures have {LEAST_SHARE:.0%} of their multiply-accumulates on the "
        f"machine and agree; {len(ran)} of {len(rows)} forms run, {differ}"
    )
    return line, not wrong and len(good) >= min(models, LEAST_MODELS)


def main() -> int:
    """Command line; returns 1 if something differs or too little is on the machine."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(e.name for e in ENTRIES))
    parser.add_argument("--form", action="append", choices=(*FORMS, FIXED))
    parser.add_argument("--hw", default="default")
    parser.add_argument("--rtl", action="store_true", help="run on the RTL as well")
    parser.add_argument("--read", action="store_true", help="read and compare only, without compiling")
    parser.add_argument("--json", type=Path, help="write all rows to this file")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    unknown = set(given.models) - {e.name for e in ENTRIES}
    if unknown:
        parser.error(f"unknown models: {', '.join(sorted(unknown))}")
    entries = [e for e in ENTRIES if not given.models or e.name in given.models]
    if given.read and FIXED in (given.form or ()):
        parser.error(f"{FIXED} is chosen by the compiler, which --read leaves out")
    if given.one:
        resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
        warnings.simplefilter("ignore")
        form = given.form[0]
        found = read(entries[0], form) if given.read else row(entries[0], form, given.hw, given.rtl)
        print(json.dumps(found, default=float))
        return 0
    table = Table("model", "form", "MACs there", "operators", "cycles", "array", "MB", "CPU s", "agrees")
    table.add_column("on the host, or missing")
    rows, options = [], [*["--read"] * given.read, *["--rtl"] * given.rtl]
    for entry in entries:
        for form in given.form or FORMS:
            rows.append(isolated(entry, form, given.hw, *options))
            table.add_row(*cells(rows[-1]))
            print(" | ".join(cells(rows[-1])), file=sys.stderr, flush=True)
            if given.json:
                given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    Console(width=200).print(table)
    line, good = verdict(rows)
    print(line)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
