"""Tile programs around an elementwise launch: products and loads before it, a store after it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hw.config import MachineConfig
from sw.cgra.launcher import SCALARS
from sw.graph.expression import Expression, evaluate
from sw.ir.builder import BufferValue, ProgramBuilder
from sw.ir.intrinsics import KEEP
from sw.ir.program import Program
from sw.kernels.choose import Chosen
from sw.kernels.indices import Key, record_operands
from sw.tile_programs import bind

#: Depth of the products that fill the accumulator.
DEPTH = 24

#: Keys among the bases of the records' first words.
RECORDS = {"column": "columns", "row": "rows"}


@dataclass(frozen=True)
class ElementwiseProgram:
    """A program, its buffers in memory, and the expected contents of buffer `y` at the end."""

    program: Program
    inputs: dict[str, np.ndarray]
    expected: np.ndarray


def build(
    value: Expression,
    chosen: Chosen,
    config: MachineConfig,
    rows: int,
    width: int,
    *,
    seed: int = 0,
    launches: int = 1,
) -> ElementwiseProgram:
    """A program for a tile of rows x width elements; a separate launch loads the configuration."""
    writer = _Writer(value, chosen, config, rows, width, np.random.default_rng(seed), launches)
    first = writer.program({})
    bound = bind(first, config)
    bases: dict[Key, int] = {}
    for key, name in writer.held.items():
        place = bound.places[name]
        bases[key] = place.base * config.cols if place.space == "acc" else place.base // place.element_bytes
    return ElementwiseProgram(writer.program(bases), writer.inputs, writer.expected())


class _Writer:
    """Draws operand values, then writes the program twice: without and then with their addresses."""

    def __init__(
        self,
        value: Expression,
        chosen: Chosen,
        config: MachineConfig,
        rows: int,
        width: int,
        rng: np.random.Generator,
        launches: int,
    ):
        self.value, self.made, self.config = value, chosen.elementwise, config
        self.rows, self.width, self.rng, self.launches = rows, width, rng, launches
        words = np.array(chosen.configured.words, np.uint32)
        self.inputs: dict[str, np.ndarray] = {"words": words}
        self.operands: list[np.ndarray] = []
        self.held: dict[Key, str] = {}
        parameters: dict[int, np.ndarray] = {}
        for k, access in enumerate(self.made.operands):
            shape = {"full": (rows, width), "row": (rows, 1), "column": (1, width), "scalar": (1, 1)}
            if access.space == "acc":
                a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((rows, DEPTH), (DEPTH, width)))
                self.inputs |= {f"a{k}": a, f"b{k}": b}
                self.operands.append(a.astype(np.int32) @ b.astype(np.int32))
                continue
            low, high = (-(1 << 20), 1 << 20) if access.element == "int32" else (0, 256)
            drawn = rng.integers(low, high, shape[access.follows]).astype(access.element)
            self.operands.append(drawn)
            if access.record:
                parameters[k] = drawn
            else:
                self.inputs[f"x{k}"] = drawn.reshape(-1)
        for follows, name in RECORDS.items():
            if wanted := record_operands(self.made.operands, follows):
                self.inputs[name] = self.made.records(follows, {k: parameters[k] for k in wanted})

    def expected(self) -> np.ndarray:
        """The expected result of the launch."""
        element = self.made.result.element
        return evaluate(self.value, self.operands).astype(element).reshape(-1)

    def program(self, bases: dict[Key, int]) -> Program:
        """The whole program."""
        self.b = b = ProgramBuilder("elementwise")
        memory = {
            name: b.buffer(name, *array.shape, element=str(array.dtype), space="memory")
            for name, array in self.inputs.items()
        }
        count = self.rows * self.width
        y = b.buffer("y", count, element=self.made.result.element, space="memory")
        out = b.buffer("held_y", count, element=self.made.result.element, space="out")
        self.held["result"] = "held_y"
        grid = b.buffer("grid", 1, space="grid")
        read: list[BufferValue] = []
        for name, source in memory.items():
            array = self.inputs[name]
            if name[0] not in "ab":
                target = b.buffer(f"held_{name}", *array.shape, element=str(array.dtype), space="scratch")
                b.instruction("load_c", memory=source, target=target, label=f"load_{name}")
                key: Key = int(name[1:]) if name[0] == "x" else name
                if name == "words":
                    words = target
                    continue
                self.held[key] = f"held_{name}"
                read.append(target)
        read += [self.product(k, memory) for k, a in enumerate(self.made.operands) if a.space == "acc"]
        given = dict.fromkeys([*range(len(self.made.operands)), "result", *RECORDS.values()], 0) | bases
        scalars = dict(zip(SCALARS, self.made.scalars(given, self.width).values(), strict=False))
        scalars = dict.fromkeys(("live0", "live1"), 0) | scalars
        b.instruction("cgra", bitstream=words, iterations=0, live0=0, live1=0, write=grid, label="bring")
        iterations = self.made.iterations(self.rows, self.width)
        for i in range(self.launches):
            b.instruction(
                "cgra", bitstream=KEEP, iterations=iterations, **scalars, read=[*read, grid], write=[out],
                label=f"launch{i}",
            )  # fmt: skip
        b.instruction("store_out", source=out, memory=y, label="store")
        return b.build()

    def product(self, k: int, memory: dict[str, BufferValue]) -> BufferValue:
        """Sums in the accumulator."""
        b = self.b
        left = b.buffer(f"left{k}", self.rows, DEPTH, element="int8", space="A")
        right = b.buffer(f"right{k}", DEPTH, self.width, element="int8", space="B")
        sums = b.buffer(f"held_x{k}", self.rows, self.width, element="int32", space="acc")
        b.instruction("load", memory=memory[f"a{k}"], target=left, label=f"load_a{k}")
        b.instruction("load", memory=memory[f"b{k}"], target=right, label=f"load_b{k}")
        b.instruction("gemm", a=left, b=right, c=sums, label=f"gemm{k}")
        self.held[k] = f"held_x{k}"
        return sums
