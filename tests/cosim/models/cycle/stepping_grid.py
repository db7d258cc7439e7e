"""The CGRA of the slow machine (`stepping`): handles every word, patch and open access in its cycle."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator, Sequence

import numpy as np

from cosim.images import filled
from cosim.job import Job, MachineError, Output
from cosim.models.functional import Memories
from cosim.models.functional.cgra import patched
from hw.config import MachineConfig
from hw.errors import InputError
from hw.fabric.bitstream import ELEMENT_BYTES, ArrayEntry, parse
from hw.isa import INSTRUCTIONS, Cause
from tests.cosim.models.cycle.stepping_loader import Base, Op
from tests.cosim.models.stepping_cgra import CgraAccess, CgraState

KEEP = 65535
TYPES = ("<i4", "<i1", "<u1")


class Spaces:
    """The three spaces in bytes, as the reference of the grid's meaning wants them."""

    def __init__(self, memories: Memories):
        self.bytes = [memories.acc.reshape(-1).view(np.uint8), memories.scratch, memories.out]

    def size(self, space: int) -> int:
        return len(self.bytes[space])

    def load(self, array: ArrayEntry, index: int) -> int:
        return int(np.frombuffer(self.bytes[array.space], TYPES[array.element], 1, self.at(array, index))[0])

    def store(self, array: ArrayEntry, index: int, value: int) -> None:
        size, at = ELEMENT_BYTES[array.element], self.at(array, index)
        self.bytes[array.space][at : at + size] = list((value & 0xFFFFFFFF).to_bytes(4, "little")[:size])

    @staticmethod
    def at(array: ArrayEntry, index: int) -> int:
        return array.base + index * ELEMENT_BYTES[array.element]


class SlowGrid(Base):
    """The grid: `outputs` are the stores that were served."""

    def __init__(self, config: MachineConfig, job: Job, storer, gemm):
        super().__init__(config)
        assert config.cgra is not None
        self.fabric, self.storer, self.gemm = config.cgra, storer, gemm
        self.memories = Memories(config, filled(job.memory, job.end))
        for name in ("a", "b", "acc", "scratch", "out"):
            getattr(self.memories, name)[:] = 0
        self.grid = CgraState(self.fabric)
        self.life: Iterator[None] | None = None  # of the operation that was taken; goes on once per cycle
        self.t = 0
        self.outputs: list[Output] = []
        self.error: MachineError | None = None

    def perform(self, op: Op) -> None:
        """What a complete operation of another engine did to memory."""
        spec = INSTRUCTIONS[op.name]
        values = dict(zip((o.name for o in spec.operands), op.operands, strict=True))
        self.memories.perform(op.name, values | {name: op.params[name] for name in spec.parameters})

    def step(self, t: int) -> None:
        self.t = t
        # An operation is taken in the cycle behind the completion of the one before.
        if self.life is None and self.offered(t) and all(op.done < t for op in self.taken):
            op = self.queue.popleft()
            op.start = t
            self.taken.append(op)
            self.life = self.launch(op)
        if self.life is not None and next(self.life, "end") == "end":
            self.life = None

    def launch(self, op: Op) -> Iterator[None]:
        """A launch from the cycle in which it is taken on; `yield` is the end of a cycle."""
        right = True
        if op.operands[0] != KEEP:
            self.grid.configuration = None
            right = yield from self.load(16 * op.operands[0])
        configuration = self.grid.configuration
        if configuration is None or not right:
            self.fail(op, Cause.BITSTREAM)
            return
        scalars = [*op.operands[2:], *(op.params[f"cgra_{i}"] for i in range(12))]
        arrays = patched(configuration, scalars).arrays
        steps: list[list[CgraAccess]] = []
        error = self.grid.launch(
            op.operands[1], scalars, Spaces(self.memories), lambda _, found: steps.append(list(found))
        )
        late = int(self.fabric.pipelined)
        for _ in range(len(configuration.patches) + late):
            yield
        for number in range(len(arrays)):
            yield
            if error is not None and error.cause == "operand" and error.where == number:
                yield
                self.fail(op, Cause.OPERAND)
                return
        for _ in range(min(0, len(arrays) - 3), late):
            yield
        for accesses in steps:
            yield
            yield from self.serve(accesses, arrays)
        if error is not None:
            yield
            yield
            self.fail(op, Cause.GRID_RANGE)
            return
        op.done = self.t + 1
        self.busy += op.done - op.start

    def fail(self, op: Op, cause: Cause) -> None:
        self.error = self.error or MachineError(cause, op.warp, op.pc)

    # Loading

    def load(self, address: int) -> Generator[None, None, bool]:
        """Words arrive in the cycle behind their request; returns whether they are a configuration."""
        words: list[int] = []
        requested = 0
        while len(words) < 3 or len(words) < words[2]:
            yield
            if requested > len(words):
                at = address + 4 * len(words)
                words.append(int.from_bytes(self.memories.scratch[at : at + 4].tobytes(), "little"))
                if not self.header(words, self.config.scratch_bytes - address):
                    yield from [None] * (1 + self.fabric.pipelined)
                    return False
            if (len(words) < 3 or requested < words[2]) and not self.reads(1, 0):
                requested += 1
        yield from [None] * (1 + self.fabric.pipelined)
        try:
            if zlib.crc32(b"".join(w.to_bytes(4, "little") for w in words[:-1])) == words[-1]:
                self.grid.load(parse(words, self.fabric))
        except InputError:
            return False
        return self.grid.configuration is not None

    def header(self, words: list[int], room: int) -> bool:
        """Whether the word that arrived last can be."""
        number, word = len(words) - 1, words[-1]
        ii = words[3] >> 20 if number >= 3 else 0
        match number:
            case 0:
                return room > 0 and word == 0x48430200
            case 1:
                return word == self.fabric.hash
            case 2:
                return 7 <= word <= room // 4
            case 3:
                return 1 <= ii <= self.fabric.contexts and (word >> 12) % 256 <= 16 and word % 4096 <= 64
            case 4:
                return 1 <= word <= ii * self.fabric.stages
        return True

    # Running

    def serve(self, accesses: Sequence[CgraAccess], arrays: Sequence[ArrayEntry]) -> Iterator[None]:
        """The cycles of a step, from its first on; does not wait for the end of the last one."""
        open_ = [(access, *self.place(arrays[access.array], access.index)) for access in accesses]
        while True:
            read: dict[tuple[int, int], int] = {}
            served = []
            for entry in open_:
                access, space, bank, line = entry
                free = not access.stores and not self.reads(space, bank if space == 0 else 0)
                if free and read.setdefault((space, bank), line) == line:
                    served.append(entry)
            waits = {line for access, space, _, line in open_ if not access.stores and space == 2}
            written = set()
            for entry in open_:
                access, _, bank, line = entry
                first = access.stores and bank not in written
                if access.stores:
                    written.add(bank)
                if first and line not in waits:
                    served.append(entry)
                    array = arrays[access.array]
                    mask = 0xFFFFFFFF if array.element == 0 else 0xFF
                    self.outputs.append(
                        Output(self.t, access.pe, Spaces.at(array, access.index), access.value & mask)
                    )
            open_ = [entry for entry in open_ if entry not in served]
            if not open_:
                return
            self.stall_bank += 1
            yield

    def reads(self, space: int, bank: int) -> bool:
        """Whether storer or array read a buffer, or a bank of the accumulator, in this cycle."""
        return (self.t, space, bank) in self.storer.reads or (
            space == 0 and (self.t, bank) in self.gemm.reads
        )

    def place(self, array: ArrayEntry, index: int) -> tuple[int, int, int]:
        """Space, bank, and what the bank can serve at once."""
        word = Spaces.at(array, index) // 4
        if array.space == 0:
            row = word // self.config.cols
            return 0, row // self.config.derived.acc_bank_words, row
        shape = self.config.derived.scratch if array.space == 1 else self.config.derived.out
        return array.space, word % max(1, shape.banks // 4), word
