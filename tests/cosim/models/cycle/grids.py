"""Random fabrics, configurations and jobs of the CGRA, with storer and array in its way.

Values are tame: operations, constants and memory give only 0 to 63, and arrays are longer than that, so
launches do not fail. `wild` configurations are anything that an encoder can write.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from cosim import texts
from cosim.job import Job, Window
from cosim.settings import MemorySettings
from hw.config import PORTS, MachineConfig
from hw.fabric import OPERATIONS, Fabric, Link, PEKind, Unit, layout
from hw.fabric.bitstream import (
    HEADER_WORDS,
    ArrayEntry,
    Configuration,
    Entry,
    Patch,
    check_word,
    encode,
    to_bytes,
)
from hw.fabric.operations import LOADS, STORES
from hw.semantics import quantisation
from sw.ir.intrinsics import KEEP

Change = Callable[[random.Random, list[int]], list[int]]

#: Elements that arrays have at least: one more than the greatest tame value.
TAME = 64
_UNITS = (Unit.ALU, Unit.MULTIPLIER, Unit.TABLE, Unit.MEMORY)
_ALU = ("and", "or", "xor", "min", "max", "select", "mov", "abs", "clz", "shr", "lt", "ne", "ge", "const")
#: Where things lie: bytes of the scratchpad and of memory, rows of the accumulator.
WORDS, BYTES, STREAMS = 0, 384, 512
SPARE = 64  # at the end of the scratchpad
SCRATCH_AT, A_AT, B_AT, STORE_AT = 0x8000, 0x4000, 0x6000, 0x20000


def random_fabric(r: random.Random, rows: int = 0, cols: int = 0, lanes: int = 1) -> Fabric:
    """A fabric of at most 3 x 3 PEs of random kinds; the first has a memory port and an ALU.

    Where there are several `lanes`, the first PE and most others have them.
    """
    rows, cols = rows or r.randint(1, 3), cols or r.randint(1, 3)
    kinds = []
    for pe in range(rows * cols):
        units = {unit for unit in _UNITS if r.random() < 0.6}
        units |= {Unit.ALU, Unit.MEMORY} if pe == 0 else set()
        words = r.choice([64, 70, 80]) if Unit.TABLE in units else 0
        own = 1
        if lanes > 1 and (pe == 0 or r.random() < 0.7):
            own = lanes
            units |= {Unit.LANES, *({Unit.QUANTISER} if Unit.MULTIPLIER in units else ())}
        whole = PEKind(f"k{pe}", frozenset(units), r.choice([0, 1, 2, 3, 4]), words, lanes=own)
        lacked = [
            n for n in ("and", "clz", "select", "mul") if whole.executes(OPERATIONS[n]) and r.random() < 0.2
        ]
        kinds.append(replace(whole, without=frozenset(lacked)))
    pairs = [Link(a, b) for a in range(len(kinds)) for b in range(len(kinds)) if a != b]
    links = [link for link in pairs if r.random() < 0.5]
    return Fabric(
        "random", rows, cols, tuple(kinds), tuple(links), r.choice([2, 3, 4, 5]), r.choice([2, 4, 8])
    )


def corrupted(r: random.Random, words: list[int]) -> list[int]:
    """A bitstream with a few bits flipped, often in the header; the check word is mostly mended."""
    words, reach = list(words), len(words) if r.random() < 0.5 else HEADER_WORDS
    for _ in range(r.choice([1, 1, 2, 5])):
        words[r.randrange(reach)] ^= 1 << r.randrange(32)
    return [*words[:-1], check_word(words[:-1])] if r.random() < 0.7 else words


def fill(fabric: Fabric, words: int) -> Configuration:
    """A configuration of the first PE that sets words of the output buffer to 0, one per iteration."""
    shape = layout(fabric, 0).sources
    result, const = shape["a"].index("result"), shape["a"].index("const")
    count = {"op": OPERATIONS["add"].number, "a": result, "b": const, "initial": 1, "first": 1, "result": 1}
    store = {"op": OPERATIONS["store"].number, "a": result, "b": shape["b"].index("zero")}
    entries = {(0, 0): Entry(count, 1, 0xFFFFFFFF), (0, 1): Entry(store)}
    return Configuration(fabric, 2, 2, entries, (ArrayEntry(2, 0, 0, words),))


def random_arrays(r: random.Random, config: MachineConfig, *, wild: bool = False) -> tuple[ArrayEntry, ...]:
    """Arrays of all spaces; the last one lies in the output buffer. Wild ones may lie outside."""
    half, row = config.out_bytes // 2, config.derived.acc_word_bytes
    lanes = config.cgra.lanes if config.cgra is not None else 1
    rows = config.derived.acc_words // 4  # to three times that: where no product writes
    found = []
    for space in [*(r.choice([0, 0, 1, 2, 2]) for _ in range(r.randint(0, 5))), 2]:
        element, length = r.choice([0, 0, 1, 2]), r.randint(TAME, TAME + 8)
        size = 4 if element == 0 else 1
        if space == 0:
            base = r.randint(rows * row, 3 * rows * row - size * length) // 4 * 4
        elif space == 1:
            base = WORDS + 4 * r.randint(0, 20) if element == 0 else BYTES + r.randint(0, 40)
        else:
            room = half - size * length
            base = 4 * r.randint(0, room // 4) if element == 0 else half + r.randint(0, room)
        found.append(ArrayEntry(space, element, base - base % (size * lanes), length))
        if wild and r.random() < 0.1:
            bad = (
                r.randrange(4),
                r.randrange(4),
                r.randrange(1 << 24),
                r.choice([0, 1, r.randrange(1 << 32)]),
            )
            found[-1] = ArrayEntry(*bad)
    return tuple(found)


def random_configuration(
    r: random.Random, fabric: Fabric, config: MachineConfig, *, wild: bool = False
) -> Configuration:
    """Random muxes, operations, arrays, tables and patches."""
    ii = r.randint(1, fabric.contexts)
    arrays = random_arrays(r, config, wild=wild)
    entries, fixed = {}, set()
    busy = r.choice([0.5, 0.9])
    for pe in range(fabric.size):
        for context in range(ii):
            if r.random() < busy:
                entries[pe, context], patchable = _entry(r, fabric, pe, arrays, wild)
                if not patchable:
                    fixed.add((pe, context))
    patches = []
    for _ in range(r.choice([0, 0, 1, 3])):
        what, at = r.randrange(2), (r.randrange(fabric.size), r.randrange(ii))
        if wild or what == 1 or at not in fixed:
            patches.append(Patch(what, r.randrange(14), *at))
    tables = {
        pe: tuple(r.randrange(TAME) for _ in range(kind.table_words))
        for pe, kind in enumerate(fabric.kinds)
        if kind.table_words
    }
    depth = r.randint(1, ii * fabric.stages)
    return Configuration(fabric, ii, depth, entries, arrays, tuple(patches), tables)


def _entry(
    r: random.Random, fabric: Fabric, pe: int, arrays: tuple[ArrayEntry, ...], wild: bool
) -> tuple[Entry, bool]:
    """An entry, and whether its constant may become any tame number."""
    shape, kind = layout(fabric, pe), fabric.kinds[pe]
    fields = {f.name: r.randrange(1 << f.width) for f in shape.fields if f.name != "op"}
    if wild:
        fields["op"] = (
            r.choice([o.number for o in OPERATIONS.values() if fabric.lanes > 1 or not o.of_lanes])
            if r.random() < 0.9
            else r.randrange(64)
        )
        return Entry(fields, r.choice([r.randrange(99), r.randrange(1 << 32)]), r.randrange(1 << 32)), True
    if r.random() < 0.5:
        fields |= {"p": 0, "negate": 0, "initial": fields["initial"] & 7}
    names = [*(_ALU if Unit.ALU in kind.units else ()), "opaque"]
    names += ["mul", "mul_shift_round", "mul_shift_round_even"] * (2 * (Unit.MULTIPLIER in kind.units))
    names += ["table"] * (3 * (Unit.TABLE in kind.units))
    names += ["load", "store"] * (6 * (Unit.MEMORY in kind.units))
    if kind.lanes > 1:
        names += ["load_lanes", "store_lanes"] * (8 * (Unit.MEMORY in kind.units))
        names += ["lane"] * (Unit.ALU in kind.units)
        names += ["max_lanes", "shift_lanes", "even_lanes", "odd_lanes"] * (Unit.LANES in kind.units)
        names += ["requantise", "requantise_even"] * (2 * (Unit.QUANTISER in kind.units))
        names += ["requantise_sum", "requantise_sum_even"] * (2 * kind.adds)
    name = r.choice(names)
    fields["op"] = OPERATIONS[name].number
    const, source = r.randrange(TAME), shape.sources["a"].index("const")
    if name in STORES:
        fields["array"] = r.choice([i for i, array in enumerate(arrays) if array.space == 2])
    elif name in LOADS:
        fields["array"] = r.randrange(len(arrays))
    elif name.startswith("requantise_sum"):
        const = quantisation(r.randint(6, 40), r.randrange(20), 0, TAME - 1)
    elif name.startswith("requantise"):
        fields |= {"c": source, "initial": fields["initial"] & ~4}
        const = quantisation(r.randint(6, 40), r.randrange(20), 0, TAME - 1)
    elif name == "mul":
        fields |= {"b": source, "initial": fields["initial"] & ~2}
        const = r.randrange(2)
    elif name.startswith("mul"):
        fields |= {"c": source, "initial": fields["initial"] & ~4}
        const = r.randint(6, TAME - 1)
    elif name == "table":
        const = TAME << 16 | r.randint(0, kind.table_words - TAME)
        if fields["a"] == source:
            fields["a"] = shape.sources["a"].index("result")
    if name in ("load_lanes", "store_lanes"):
        fields |= {"a": source, "initial": fields["initial"] & ~1}
        const -= const % kind.lanes
    fixed = name.startswith(("mul", "table", "requantise")) or name.endswith("_lanes")
    return Entry(fields, const, r.randrange(TAME)), not fixed


def _number(register: int, value: int) -> list[str]:
    """Instructions that put a number of 30 bits into a register."""
    low = (value & 0x7FFF ^ 0x4000) - 0x4000
    return [f"li r{register}, {value >> 15}", f"lih r{register}, {low}"]


def launch_job(
    config: MachineConfig, configuration: Configuration, iterations: int, addresses: tuple[int, ...] = (0,)
) -> Job:
    """Launches of a configuration at byte 0 of the scratchpad, by the operand `bitstream` of each."""
    words = encode(configuration)
    scratch = np.zeros(config.scratch_bytes, np.uint8)
    scratch[: 4 * len(words)] = np.frombuffer(to_bytes(words), np.uint8)
    lines = operation("load_c", [0, 0, len(scratch) // 64, 64], load_stride=64, load_pitch=64)
    for address, before in zip(addresses, (None, *addresses), strict=False):
        launch = operation("cgra", [address, iterations, 7, 9])
        lines += launch[-1:] if address == before else launch
    text, windows = "\n".join([*lines, "halt"]), (Window(0, (1 << 20) - 1),)
    return texts.job(config, {0: text}, memory=((0, scratch),), windows=windows)


class GridJob:
    """Launches of random configurations by one warp; storer, array and loader work in others meanwhile.

    `streams` are the bitstreams by address in the scratchpad; `change` replaces words of all but the first.
    """

    def __init__(self, seed: int, config: MachineConfig, *, wild: float = 0.0, change: Change | None = None):
        r = self.random = random.Random(seed)
        self.config = config
        assert config.cgra is not None
        self.streams: dict[int, list[int]] = {}
        at = STREAMS
        wanted = [fill(config.cgra, config.out_bytes // 4)]
        for _ in range(r.randint(1, 4)):
            wanted.append(random_configuration(r, config.cgra, config, wild=r.random() < wild))
        for number, configuration in enumerate(wanted):
            words = encode(configuration)
            if change is not None and number:
                words = change(r, words)
            if at + 4 * len(words) <= config.scratch_bytes - SPARE:
                self.streams[at] = words
                at += -(-4 * len(words) // 16) * 16
        settings: dict[str, Any] = {"latency": {p: r.randint(1, 20) for p in PORTS}}
        if r.random() < 0.4:
            settings["bandwidth"] = {p: r.randint(1, config.port_bytes(p)) for p in PORTS}
        if r.random() < 0.4:
            settings |= {"stall_seed": r.randrange(1 << 32), "stall_rate": r.choice([20, 64, 150])}
        parts = [self._launches(), self._stores(), self._products(), self._loads()]
        self.job = texts.job(
            config,
            {warp: "\n".join(lines) for warp, lines in enumerate(parts)},
            memory=self._memory(),
            settings=MemorySettings.of(config, **settings),
            windows=(Window(0, (1 << 20) - 1),),
            watchdog=20_000,
            name=f"seed {seed}",
        )

    def _memory(self) -> tuple[tuple[int, np.ndarray], ...]:
        scratch = np.zeros(self.config.scratch_bytes, np.uint8)
        draw = np.random.default_rng(self.random.randrange(1 << 32))
        scratch[WORDS:BYTES].view("<u4")[:] = draw.integers(0, TAME, (BYTES - WORDS) // 4)
        scratch[BYTES:STREAMS] = draw.integers(0, TAME, STREAMS - BYTES)
        for at, words in self.streams.items():
            scratch[at : at + 4 * len(words)] = np.frombuffer(to_bytes(words), np.uint8)
        # Sums of two products of 0 to 5 are tame.
        operands = ((at, draw.integers(0, 6, 1 << 10).astype(np.uint8)) for at in (A_AT, B_AT))
        return (SCRATCH_AT, scratch), *operands

    def _launches(self) -> list[str]:
        """All buffers get something tame, the others are let go, then launches."""
        r, c = self.random, self.config
        rows = c.derived.acc_words // 4  # as rows of four blocks
        lines = [
            *operation("load_c", [SCRATCH_AT, 0, c.scratch_bytes // 64, 64], load_stride=64, load_pitch=64),
            *operation("load_a_t", [A_AT, 0, 2, rows], load_stride=rows, load_pitch=c.rows),
            *operation("load_b_t", [B_AT, 0, 2, 4 * c.cols], load_stride=4 * c.cols, load_pitch=c.cols),
        ]
        pitches = {"gemm_a_pitch": c.rows, "gemm_b_pitch": c.cols, "gemm_c_pitch": 4}
        lines += operation("gemm", [0, 0, 0, 2], gemm_m=rows, gemm_n=4 * c.cols, **pitches)
        first, *others = self.streams
        lines += operation("cgra", [first // 16, c.out_bytes // 4, 0, 0])
        lines += ["signal 1", "signal 2", "signal 3"]
        for _ in range(r.randint(2, 6) if others else 0):
            at = r.choice([*others, *others, KEEP * 16])
            scalars = {f"cgra_{r.randrange(12)}": r.randrange(TAME) for _ in range(2)}
            count = r.choice([0, 1, 2, 7, 20, 40, 60])
            lines += operation("cgra", [at // 16, count, r.randrange(TAME), r.randrange(TAME)], **scalars)
        return [*lines, "halt"]

    def _stores(self) -> list[str]:
        r, width, lines = self.random, self.config.store_bytes, ["wait 1"]
        derived = self.config.derived
        for _ in range(r.randint(0, 6)):
            name = r.choice(["store", "store_scratch", "store_out"])
            unit = 1 if name == "store" else width
            pitch, rows, size = unit * r.randint(0, 5), r.randint(1, 40), r.choice([r.randint(1, 70), 64])
            source = unit * r.randrange(16)
            if name == "store":
                last = derived.acc_words - pitch * rows - size // derived.acc_word_bytes - 1
                source = min(source + r.randrange(4) * derived.acc_bank_words // 2, last)
            else:
                rows = min(rows, (self.config.out_bytes - source - 80) // max(pitch, 1))
            stride = r.choice([8, 16, 32, r.randint(0, 99)])
            lines += operation(name, [STORE_AT, source, rows, size], store_pitch=pitch, store_stride=stride)
            lines += r.choice([[], [], [f"li r8, {r.randint(1, 60)}", "loop r8, 1", "nop"]])
        return [*lines, "halt"]

    def _products(self) -> list[str]:
        """Into the first quarter of the accumulator, and the last, which no array reaches."""
        r, lines, words = self.random, ["wait 2"], self.config.derived.acc_words
        for _ in range(r.randint(0, 8)):
            place = r.choice([0, 3 * words // 4]) + r.randint(0, 7)
            m, n = r.randint(1, 12), r.randint(1, 3 * self.config.cols)
            pitches = {"gemm_a_pitch": 20, "gemm_b_pitch": 20, "gemm_c_pitch": 4}
            depth = r.choice([1, 2, 5, 20])
            lines += operation("gemm", [0, 0, place, depth], gemm_m=m, gemm_n=n, **pitches)
        return [*lines, "halt"]

    def _loads(self) -> list[str]:
        lines, at = ["wait 3"], self.config.scratch_bytes - SPARE
        for _ in range(self.random.randint(0, 3)):
            lines += operation("load_c", [A_AT, at, 2, SPARE // 2], load_stride=64, load_pitch=SPARE // 2)
        if self.random.random() < 0.15:  # an error that stops the machine somewhere
            lines += [f"li r8, {self.random.randint(1, 1500)}", "loop r8, 1", "nop"]
            lines += [f"li r8, {self.config.channel_depth + 1}", "loop r8, 1", "signal 4"]
        return [*lines, "halt"]


def operation(name: str, operands: list[int], **parameters: int) -> list[str]:
    """Instructions that set parameters and operands, and issue an operation."""
    lines = [line for p, value in parameters.items() for line in (*_number(5, value), f"param {p}, r5")]
    lines += [line for i, value in enumerate(operands, 1) for line in _number(i, value)]
    return [*lines, f"{name} r1, r2, r3, r4"]
