"""Generate an AI accelerator, compile models for it and verify runs of its RTL, from Python (docs/api.md).

    import heald as hd

    hw = hd.machine("tiny", rows=16)
    model = hd.compile("model.onnx", hw)
    run = model.run()
    run.correct, run.cycles, run.divergence

Names are imported on first use, so `import heald` itself is fast.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

#: Module of each name of the interface.
_HOMES = {
    "cosim.waves": ("Waves",),
    "hw.errors": ("InputError",),
    "heald.hardware": ("Machine", "machine"),
    "heald.loops": ("map_loop",),
    "heald.operands": ("Column", "Row", "Scalar", "Tile"),
    "heald.problems": ("Problem", "conv", "epilogue", "matmul"),
    "heald.session": ("Model", "compare", "compile", "load"),
    "heald.studies": ("explore",),
}
__all__ = [name for names in _HOMES.values() for name in names]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
