"""Assembles `product.asm`, runs it on model and RTL of the `test` machine, and compares both.

One warp does all: it loads A (4 x 8, depth contiguous) from 4096 and B (8 x 4, stored transposed) from 8192,
multiplies, and stores C (4 x 4, int32) to 12288. No channels are needed, because an operation waits for
the warp's earlier operations on other engines.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from cosim.backends import BACKENDS, simulator
from cosim.compare import compare
from cosim.job import Job, Region, Window
from cosim.models.cycle import predict
from cosim.settings import MemorySettings
from hw.assembly import assemble, disassemble_words
from hw.config import load

PROGRAM = Path(__file__).with_name("product.asm")


def main() -> int:
    """Run it; returns 1 when anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sim", choices=BACKENDS, default="verilator")
    sim = parser.parse_args().sim

    config = load("test")
    words = assemble(PROGRAM.read_text(), PROGRAM.name)
    rng = np.random.default_rng(3)
    a = rng.integers(-128, 128, (4, 8)).astype(np.int8)
    b = rng.integers(-128, 128, (8, 4)).astype(np.int8)
    job = Job(
        programs={0: words},
        settings=MemorySettings.of(config),
        windows=(Window(4096, 12287, write=False), Window(12288, 12288 + 63, read=False)),
        memory=(
            (4096, a.view(np.uint8).reshape(-1)),
            (8192, np.ascontiguousarray(b.T).view(np.uint8).reshape(-1)),
        ),
        outputs=(Region(12288, 64),),
    )
    predicted = predict(config, job)
    (observed,) = simulator(config, sim).run([job])

    text = disassemble_words(words)
    print("cycle  event     instruction")
    for event in observed.events:
        print(f"{event.cycle:5}  {event.kind.name.lower():8}  {event.pc:2}: {text[event.pc]}")
    c = observed.outputs[0].view("<i4").reshape(4, 4)
    right = np.array_equal(c, a.astype(np.int32) @ b.astype(np.int32))
    divergence = compare(config, job, predicted, observed)
    print(f"result {'equals' if right else 'DIFFERS FROM'} NumPy's")
    print(divergence or f"model and RTL agree on all {len(observed.events)} events")
    return int(not right or divergence is not None)


if __name__ == "__main__":
    sys.exit(main())
