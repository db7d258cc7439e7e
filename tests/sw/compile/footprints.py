"""The bytes that operations of a model's tile program touch, against the regions that they state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hw.config import MachineConfig
from hw.semantics import wrap
from sw.check.trace import Boxes, columns_of, trace
from sw.compile.memory import Allocation
from sw.ir.program import Program

Touched = dict[str, np.ndarray]

#: Executions of an instruction that are looked at: the first, the last, and some between them.
SAMPLES = 12


@dataclass(frozen=True)
class Footprints:
    """Looks at operations; `homes` in the order in which the program calls its buffers t0, t1, ..."""

    program: Program
    config: MachineConfig
    homes: Mapping[str, Allocation]

    def executions(self) -> int:
        """How many operations there are."""
        return trace(self.program).count

    def wrong(self) -> Iterator[str]:
        """Executions that touch what no region of theirs states; launches are left to the grid's meaning."""
        for rows in trace(self.program).rows:
            spec, number = rows.instruction.name, len(rows.time)
            for n in sorted({*np.linspace(0, number - 1, SAMPLES).astype(int).tolist()} if number else ()):
                values = dict(zip(columns_of(spec), map(wrap, rows.operands[:, n].tolist()), strict=True))
                reads, writes = touched(spec, values, self.config)
                for what, own, stated in (("read", reads, rows.reads), ("write", writes, rows.writes)):
                    known = self._stated(stated, n)
                    for space, places in own.items():
                        missed = np.setdiff1d(places, known.get(space, np.empty(0, np.int64)))
                        if missed.size:
                            found = f"{missed.size} of {np.unique(places).size} places"
                            at = f"{rows.instruction.label}, execution {n}"
                            yield f"{at}: {what} of {space} not stated: {found}, first {missed[0]}; {values}"

    def _stated(self, accesses: tuple[Boxes | None, ...], number: int) -> Touched:
        found: dict[str, list[np.ndarray]] = {}
        for access in accesses:
            assert access is not None
            space, places = self._places(access, number)
            found.setdefault(space, []).append(places.reshape(-1))
        return {space: np.unique(np.concatenate(parts)) for space, parts in found.items()}

    def _places(self, access: Boxes, number: int) -> tuple[str, np.ndarray]:
        axes = [np.arange(a, b) for a, b in zip(access.start[:, number], access.stop[:, number], strict=True)]
        if access.buffer in ("scratchpad", "output_buffer", "configuration"):
            return access.buffer, axes[0]
        if access.buffer in ("buffer_a", "buffer_b", "accumulator"):
            # Columns or words; all lanes of them are stated together.
            return access.buffer, axes[0]
        home = list(self.homes.values())[int(access.buffer[1:])]
        # Padding behind a row belongs to who has all of the row.
        size = home.pitch if len(axes[1]) == home.row else len(axes[1]) * home.itemsize
        first = home.address + axes[0] * home.pitch + int(access.start[1, number]) * home.itemsize
        return "memory", first[:, None] + np.arange(size)


def touched(name: str, p: Mapping[str, int], config: MachineConfig) -> tuple[Touched, Touched]:
    """What an operation other than a launch reads and writes, as docs/machine.md says: places by space."""
    if name == "cgra":
        return {}, {}
    if name.startswith("gemm"):
        return _product(p, config, add=name == "gemm_acc")
    if name.startswith("store"):
        i, j = np.arange(p["rows"])[:, None], np.arange(p["bytes"])
        stored = {"memory": p["memory"] + i * p["store_stride"] + j}
        if name == "store":
            words = p["source"] + i * p["store_pitch"] + j // config.derived.acc_word_bytes
            return {"accumulator": words}, stored
        space = {"store_out": "output_buffer", "store_scratch": "scratchpad"}[name]
        return {space: p["source"] + i * p["store_pitch"] + j}, stored
    if name == "load_b_conv":
        return _patches(p, config)
    i, j = np.arange(p["outer"])[:, None], np.arange(p["inner"])
    memory = {"memory": p["memory"] + i * p["load_stride"] + j}
    i = np.arange(p["outer"] + p["load_pad_outer"])[:, None]
    j = np.arange(p["inner"] + p["load_pad_inner"])
    if name == "load_c":
        return memory, {"scratchpad": p["target"] + i * p["load_pitch"] + j}
    side = name.removesuffix("_t")[-1]
    lane, depth = (j, i) if name.endswith("_t") else (i, j)
    columns = p["target"] + lane // _lanes(side, config) * p["load_pitch"] + depth
    return memory, {f"buffer_{side}": columns}


def _lanes(side: str, config: MachineConfig) -> int:
    return (config.derived.buffer_a if side == "a" else config.derived.buffer_b).lanes


def _product(p: Mapping[str, int], config: MachineConfig, *, add: bool) -> tuple[Touched, Touched]:
    reads: Touched = {}
    for side, size in (("a", p["gemm_m"]), ("b", p["gemm_n"])):
        blocks = np.arange(-(-size // _lanes(side, config)))[:, None]
        reads[f"buffer_{side}"] = p[side] + blocks * p[f"gemm_{side}_pitch"] + np.arange(p["k"])
    across = np.arange(-(-p["gemm_n"] // config.cols))
    words = {"accumulator": p["c"] + np.arange(p["gemm_m"])[:, None] * p["gemm_c_pitch"] + across}
    return reads | (words if add else {}), words


def _patches(p: Mapping[str, int], config: MachineConfig) -> tuple[Touched, Touched]:
    rows = min(p["conv_rows"], max(0, p["conv_height"] - p["conv_top"]))
    across = min(p["inner"], max(0, p["conv_width"] - p["conv_left"]))
    channel, row = np.arange(p["outer"])[:, None, None], np.arange(rows)[:, None]
    pixels = p["memory"] + channel * p["load_stride"] + row * p["conv_line"] + np.arange(across)
    places = np.arange(p["conv_out_rows"] * p["conv_out_cols"])[:, None]
    depth = np.arange(p["outer"] * p["conv_kernel_h"] * p["conv_kernel_w"])
    columns = p["target"] + places // _lanes("b", config) * p["load_pitch"] + depth
    return {"memory": pixels}, {"buffer_b": columns}
