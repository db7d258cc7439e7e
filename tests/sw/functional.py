"""The machine's meaning without its timing: runs programs in a random order that the rules permit.

Warps, engines and signals advance one at a time, picked by a seed, so a program that relies on luck
instead of channels gives a wrong result sooner or later.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from hw import isa
from hw.assembly import Code, decode
from hw.config import BufferShape, MachineConfig
from sw.arrangement import CHANNELS
from sw.convolution import Convolution
from sw.layout import GARBAGE
from sw.lowering import lower
from sw.problem import Product
from sw.tiling.blocking import Blocking

MASK = 0xFFFFFFFF


def signed(value: int) -> int:
    """The 32 bits as a signed number."""
    value &= MASK
    return value - (1 << 32) if value >> 31 else value


BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a // b,
    "rem": lambda a, b: a % b,
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << (b % 32),
    "shr": lambda a, b: a >> (b % 32),
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
}


@dataclass
class Operation:
    """An engine operation that a warp issued."""

    warp: int
    name: str
    operands: dict[str, int]
    parameters: dict[str, int]
    done: bool = False


@dataclass
class Warp:
    """State of one warp."""

    code: list[Code | None]
    pc: int = 0
    registers: list[int] = field(default_factory=lambda: [0] * 32)
    parameters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(isa.PARAMETERS, 0))
    loops: list[list[int]] = field(default_factory=list)
    issued: list[Operation] = field(default_factory=list)
    signals: list[tuple[int, int]] = field(default_factory=list)
    halted: bool = False


class Machine:
    """Registers, buffers and channels; `run` executes the programs to their end."""

    def __init__(
        self, config: MachineConfig, programs: dict[int, list[int]], memory: np.ndarray, seed: int = 0
    ):
        self.config, self.memory = config, memory
        self.pick = random.Random(seed)
        self.warps = {w: Warp([decode(x) for x in words]) for w, words in programs.items()}
        self.queues: dict[str, list[Operation]] = {}
        self.channels = [0] * config.channels
        self.signalled, self.waited = [0] * config.channels, [0] * config.channels
        d = config.derived
        self.buffers = {
            "load_a": self._buffer(d.buffer_a),
            "load_b": self._buffer(d.buffer_b),
        }
        self.acc = np.full((d.acc_words, config.cols), 0x5A5A5A5A, np.int32)
        self.deepest = 0

    @staticmethod
    def _buffer(shape: BufferShape) -> np.ndarray:
        return np.full((shape.columns, shape.lanes), 0x77, np.uint8)

    def run(self, limit: int = 2_000_000) -> None:
        """Execute until all have halted and nothing is outstanding."""
        for _ in range(limit):
            moves = [(self._step, w) for w in self.warps.values() if self._ready(w)]
            moves += [(self._fire, w) for w in self.warps.values() if self._can_fire(w)]
            moves += [(self._execute, q) for q in self.queues.values() if q]  # type: ignore[misc]
            if not moves:
                assert all(w.halted and not w.signals for w in self.warps.values()), "deadlock"
                return
            move, what = self.pick.choice(moves)
            move(what)
        raise AssertionError("the programs do not end")

    def _code(self, warp: Warp) -> Code:
        code = warp.code[warp.pc]
        assert code is not None
        return code

    def _happens(self, warp: Warp, code: Code) -> bool:
        return (warp.registers[code.predicate] != 0) == code.sense

    def _ready(self, warp: Warp) -> bool:
        if warp.halted:
            return False
        code = self._code(warp)
        if not self._happens(warp, code):
            return True
        if code.name == "wait":
            return self.channels[code.fields["channel"]] > 0
        if code.spec.engine:
            queue = self.queues.get(code.spec.engine, [])
            other = any(
                not o.done and isa.INSTRUCTIONS[o.name].engine != code.spec.engine for o in warp.issued
            )
            return len(queue) < self.config.queue_depth and not other
        return code.name != "signal" or len(warp.signals) < isa.TIMING.pending_signals

    def _can_fire(self, warp: Warp) -> bool:
        return bool(warp.signals) and all(o.done for o in warp.issued[: warp.signals[0][1]])

    def _fire(self, warp: Warp) -> None:
        channel, _ = warp.signals.pop(0)
        self.channels[channel] += 1
        self.signalled[channel] += 1
        assert self.channels[channel] <= self.config.channel_depth, f"channel {channel} overflows"

    def _step(self, warp: Warp) -> None:
        code, pc, r = self._code(warp), warp.pc, warp.registers
        warp.pc += 1
        if self._happens(warp, code):
            self._scalar(warp, code, pc, r)
        r[0] = 0
        if warp.loops and pc == warp.loops[-1][1] and warp.pc == pc + 1:
            warp.loops[-1][2] -= 1
            if warp.loops[-1][2]:
                warp.pc = warp.loops[-1][0]
            else:
                warp.loops.pop()

    def _scalar(self, warp: Warp, code: Code, pc: int, r: list[int]) -> None:
        f, name = code.fields, code.name
        plain = name[:-1] if name.endswith("i") and name[:-1] in BINARY else name
        if plain in BINARY:
            right = f["imm"] if "imm" in f else r[f["rs2"]]
            r[f["rd"]] = signed(BINARY[plain](r[f["rs1"]], right))
        elif name == "li":
            r[f["rd"]] = f["imm"]
        elif name == "lih":
            r[f["rd"]] = signed(r[f["rd"]] << 15 | f["imm"] & 0x7FFF)
        elif name == "select":
            r[f["rd"]] = r[f["rs2"]] if r[f["rs1"]] else r[f["rs3"]]
        elif name == "jump":
            warp.pc += f["offset"]
        elif name == "loop":
            if r[f["rs1"]] <= 0:
                warp.pc += f["length"]
            else:
                warp.loops.append([pc + 1, pc + f["length"], r[f["rs1"]]])
                self.deepest = max(self.deepest, len(warp.loops))
        elif name in ("param", "parami"):
            value = f["imm"] if name == "parami" else r[f["rs1"]]
            parameter = isa.BY_PARAMETER[f["parameter"]]
            assert 0 <= value & MASK < 1 << parameter.bits
            warp.parameters[parameter.name] = value & MASK
        elif name == "wait":
            self.channels[f["channel"]] -= 1
            self.waited[f["channel"]] += 1
        elif name == "signal":
            warp.signals.append((f["channel"], len(warp.issued)))
        elif name == "halt":
            warp.halted = True
        elif code.spec.engine:
            names = zip(code.spec.operands, code.spec.fields, strict=True)
            operands = {o.name: r[g.name and f[g.name]] & MASK for o, g in names}
            for o in code.spec.operands:
                assert operands[o.name] < 1 << o.bits
            operation = Operation(next(i for i, w in self.warps.items() if w is warp), name, operands, {})
            operation.parameters = {p: warp.parameters[p] for p in code.spec.parameters}
            warp.issued.append(operation)
            self.queues.setdefault(code.spec.engine, []).append(operation)

    def _execute(self, queue: list[Operation]) -> None:
        operation = queue.pop(0)
        p = operation.operands | operation.parameters
        if operation.name.startswith("load"):
            self._load(operation.name, p)
        elif operation.name.startswith("gemm"):
            self._gemm(operation.name == "gemm_acc", p)
        else:
            self._store(p)
        operation.done = True

    def _load_patches(self, p: dict[str, int]) -> None:
        """A load_b_conv: the image as the tile covers it, then each kernel element's pixels."""
        buffer, shape, width = self.buffers["load_b"], self.config.derived.buffer_b, self.config.load_b_bytes
        g = {name.removeprefix("conv_"): value for name, value in p.items()}
        assert min(g[n] for n in ("outer", "inner", "height", "width", "out_rows", "out_cols")) > 0
        assert min(g[f"{n}_{edge}"] for n in ("kernel", "stride", "dilation") for edge in "hw") > 0
        assert g["load_stride"] % width == g["line"] % width == 0
        assert g["load_pitch"] % shape.banks == shape.lanes % shape.banks
        depth = g["outer"] * g["kernel_h"] * g["kernel_w"]
        assert max(g["out_rows"] * g["out_cols"], depth) < 1 << 16
        image = np.full((g["outer"], g["height"], g["width"]), g["load_fill"], np.uint8)
        for channel in range(g["outer"]):
            for y in range(g["top"], min(g["top"] + g["rows"], g["height"])):
                at = g["memory"] + channel * g["load_stride"] + (y - g["top"]) * g["line"] & MASK
                room = image[channel, y, g["left"] : g["left"] + g["inner"]]
                room[:] = self.memory[at : at + len(room)]
        r, c = np.indices((g["out_rows"], g["out_cols"]))
        for i, j in np.ndindex(g["kernel_h"], g["kernel_w"]):
            y, x = r * g["stride_h"] + i * g["dilation_h"], c * g["stride_w"] + j * g["dilation_w"]
            reached = (y < g["height"]) & (x < g["width"])
            place = (r * g["out_cols"] + c)[reached]
            first = g["target"] + place // shape.lanes * g["load_pitch"] + i * g["kernel_w"] + j
            for channel in range(g["outer"]):
                columns = first + channel * g["kernel_h"] * g["kernel_w"]
                buffer[columns, place % shape.lanes] = image[channel, y[reached], x[reached]]

    def _load(self, name: str, p: dict[str, int]) -> None:
        if name == "load_b_conv":
            self._load_patches(p)
            return
        port, transposed = name.removesuffix("_t"), name.endswith("_t")
        buffer = self.buffers[port]
        shape: BufferShape = getattr(self.config.derived, f"buffer_{port[-1]}")
        lanes = shape.lanes
        assert min(p["outer"], p["inner"]) > 0
        if transposed and p["inner"] > lanes:
            assert p["load_pitch"] % shape.banks == lanes % shape.banks
        for i in range(p["outer"]):
            at = p["memory"] + i * p["load_stride"] & MASK
            row = self.memory[at : at + p["inner"]]
            j = np.arange(p["inner"])
            if transposed:
                buffer[p["target"] + j // lanes * p["load_pitch"] + i, j % lanes] = row
            else:
                buffer[p["target"] + i // lanes * p["load_pitch"] + j, i % lanes] = row

    def _gemm(self, add: bool, p: dict[str, int]) -> None:
        rows, cols = self.config.rows, self.config.cols

        def operand(
            port: str, base: int, pitch: int, size: int, edge: int, kind: int, zero: int
        ) -> np.ndarray:
            blocks = [
                self.buffers[port][base + i * pitch : base + i * pitch + p["k"]]
                for i in range(-(-size // edge))
            ]
            for block in blocks:
                assert len(block) == p["k"]
            whole = np.concatenate(blocks, axis=1)
            dtype = np.int8 if kind else np.uint8
            return whole.view(dtype).astype(np.int64) - int(np.uint8(zero).view(dtype))

        sign = p["gemm_signed"]
        a = operand("load_a", p["a"], p["gemm_a_pitch"], p["gemm_m"], rows, sign & 1, p["gemm_zero_a"])
        b = operand("load_b", p["b"], p["gemm_b_pitch"], p["gemm_n"], cols, sign >> 1, p["gemm_zero_b"])
        c = (a.T @ b)[: p["gemm_m"]].astype(np.int32).reshape(p["gemm_m"], -1, cols)
        words = p["c"] + np.arange(p["gemm_m"])[:, None] * p["gemm_c_pitch"] + np.arange(c.shape[1])
        assert words.max() < len(self.acc)
        self.acc[words] = self.acc[words] + c if add else c

    def _store(self, p: dict[str, int]) -> None:
        for i in range(p["rows"]):
            at = p["memory"] + i * p["store_stride"] & MASK
            first = p["source"] + i * p["store_pitch"]
            words = -(-p["bytes"] // self.config.derived.acc_word_bytes)
            row = self.acc[first : first + words].reshape(-1).view(np.uint8)[: p["bytes"]]
            self.memory[at : at + p["bytes"]] = row


def execute(
    problem: Product | Convolution, config: MachineConfig, seed: int = 0, blocking: Blocking | None = None
) -> tuple[np.ndarray, np.ndarray, Machine]:
    """Result, NumPy's result and the machine after a run in an order drawn from the seed."""
    kernel = lower(problem, config, blocking=blocking)
    a, b = problem.random(np.random.default_rng(seed))
    size = max(last for _, last, _, _ in kernel.windows) + 4097
    memory = np.full(size, GARBAGE, np.uint8)
    for address, data in kernel.memory(a, b):
        memory[address : address + len(data)] = data
    before = memory.copy()
    machine = Machine(config, kernel.programs, memory, seed)
    machine.run()
    places = kernel.blocking.parts if kernel.blocking.single_c else 2
    for (full, free), tokens in zip(CHANNELS.values(), (2, 2, places), strict=True):
        assert machine.channels[full] == 0, "a tile was loaded or made that nobody took"
        assert machine.channels[free] == tokens, "all places are free in the end"
    address, count = kernel.output
    got = kernel.extract(memory[address : address + count])
    before[address : address + count] = memory[address : address + count]
    assert np.array_equal(before, memory), "memory outside the result changed"
    return got, problem.reference(a, b), machine
