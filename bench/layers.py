"""Whole layers on the RTL: cycles of every operator against its lower bound, and where the rest goes.

A layer of BERT-large (sequence 128) and a bottleneck block of ResNet-50 (56 x 56, 256 channels), quantised by
onnxruntime. Exit code 1: a result or a cycle differs, or the bounds add up to less than 0.85 of the cycles.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import numpy as np
import onnxruntime
from rich.console import Console
from rich.table import Table

from cosim.backends import simulator
from cosim.session.network import compile_model, draw_inputs
from cosim.settings import MemorySettings
from heald.model_run import ModelRun, run_model
from hw.config import load
from sw.frontend.network import import_model

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
#: Smallest acceptable fraction of the cycles that the bounds add up to.
LEAST = 0.85


def example(name: str) -> ModuleType:
    """The program that makes an example's model."""
    path = EXAMPLES / name / "make_model.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bert_large(path: Path) -> None:
    """A layer of BERT-large, sequence 128."""
    example("09_bert_encoder").write(path, 128, 1024, 16, 4096, 0)


def bert_small(path: Path) -> None:
    """The layer of the demo."""
    example("09_bert_encoder").write(path, 64, 256, 4, 1024, 0)


def bottleneck(path: Path) -> None:
    """A bottleneck block of ResNet-50."""
    module = example("10_resnet_bottleneck")
    module.quantise(module.block(56, 256, 64, 0), path, 0, True)


LAYERS: dict[str, Callable[[Path], None]] = {
    "bert": bert_small,
    "bert-large": bert_large,
    "bottleneck": bottleneck,
}


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layers", nargs="*", help=", ".join(LAYERS))
    parser.add_argument("--hw", default="default")
    parser.add_argument("--sim", default="verilator")
    given = parser.parse_args()
    config = load(given.hw)
    good = True
    for name in given.layers or ("bert-large", "bottleneck"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.onnx"
            LAYERS[name](path)
            network = import_model(path)
            inputs = draw_inputs(network, 0)
            theirs = onnxruntime_results(path, inputs)
        report = run_model(
            compile_model(network, config),
            inputs,
            MemorySettings.of(config),
            lambda: simulator(config, given.sim),
            progress=lambda text: print(text, file=sys.stderr),
        )
        good &= told(name, report)
        for output, array in theirs.items():
            compared(name, report.found[output], array)
    return 0 if good else 1


def onnxruntime_results(path: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The results of onnxruntime for the unchanged graph."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def compared(name: str, ours: np.ndarray, theirs: np.ndarray) -> None:
    """Print how far a layer's results are from onnxruntime's, in steps of the last quantisation."""
    values = np.unique(theirs)
    unit = np.diff(values).min() if len(values) > 1 else 1
    apart = np.rint(np.abs(ours.astype(np.float64) - theirs) / unit).astype(int)
    counts = ", ".join(f"{n} by {d}" for d, n in enumerate(np.bincount(apart.reshape(-1))) if d and n)
    print(f"{name}: {apart.size:,} results, from onnxruntime's differ {counts or 'none'}")


def told(name: str, report: ModelRun) -> bool:
    """Print the table of a layer; returns whether all checks passed."""
    table = Table(title=name)
    for column in ("operator", "kind", "cycles", "bound", "by", "bound/cycles", "lost", "of all lost"):
        table.add_column(column, justify="left" if column in ("operator", "kind", "by") else "right")
    rows = [o for o in report.operators if o.where == "machine"]
    bounds = sum(o.bound_cycles for o in rows)
    lost = max(1, report.cycles - bounds)
    for o in rows:
        own = o.cycles - o.bound_cycles
        table.add_row(
            o.name.split("/")[0],
            o.op,
            f"{o.cycles:,}",
            f"{o.bound_cycles:,}",
            o.bound,
            f"{o.bound_cycles / max(1, o.cycles):.3f}",
            f"{own:,}",
            f"{own / lost:.1%}",
        )
    Console(width=130).print(table)
    share = bounds / report.cycles
    proof = "bit-exact, cycle-exact" if report.verified else "NOT VERIFIED"
    print(f"{name}: {report.cycles:,} cycles, bounds {bounds:,}, {share:.3f} of the cycles; {proof}")
    return report.verified and share >= LEAST


if __name__ == "__main__":
    sys.exit(main())
