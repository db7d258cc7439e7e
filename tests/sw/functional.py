"""The machine's meaning without its timing: runs programs in a random order that the rules permit.

Warps, engines and signals advance one at a time, picked by a seed, so a program that relies on luck instead
of channels gives a wrong result sooner or later.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from cosim.models.functional.memories import MASK, Memories
from heald.testing.problems import compile_problem
from hw import isa
from hw.assembly import Code, decode
from hw.config import MachineConfig
from sw.compile.images import convolution_problem
from sw.compile.legal import layouts, legal
from sw.compile.matrices import product_problem
from sw.compile.memory import plan_memory
from sw.convolution import Convolution
from sw.graph.network import ImageConvolution, MatrixProduct
from sw.graph.problems import network_of
from sw.layout import GARBAGE
from sw.problem import Product
from sw.tiling.blocking import Blocking, Extent
from sw.tiling.candidates import candidates, inner_cuts


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
    #: So many of the operations that were issued first are done.
    finished: int = 0
    signals: list[tuple[int, int]] = field(default_factory=list)
    halted: bool = False


class Machine:
    """Registers and channels; `run` executes the programs to their end.

    `memories` are buffers as an earlier run left them.
    """

    def __init__(
        self,
        config: MachineConfig,
        programs: dict[int, list[int]],
        memory: np.ndarray,
        seed: int = 0,
        memories: Memories | None = None,
    ):
        self.config = config
        self.pick = random.Random(seed)
        self.warps = {w: Warp([decode(x) for x in words]) for w, words in programs.items()}
        self.queues: dict[str, list[Operation]] = {}
        self.channels = [0] * config.channels
        #: Operations that were executed, by name.
        self.performed: Counter[str] = Counter()
        self.memories = memories or Memories(config, memory)
        self.memories.memory = memory
        self.deepest = 0

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
                not o.done and isa.INSTRUCTIONS[o.name].engine != code.spec.engine
                for o in self._unfinished(warp)
            )
            return len(queue) < self.config.queue_depth and not other
        return code.name != "signal" or len(warp.signals) < isa.TIMING.pending_signals

    def _can_fire(self, warp: Warp) -> bool:
        if not warp.signals:
            return False
        unfinished = self._unfinished(warp)
        return all(o.done for o in unfinished[: max(0, warp.signals[0][1] - warp.finished)])

    @staticmethod
    def _unfinished(warp: Warp) -> list[Operation]:
        """The operations of a warp from the first on that is not done."""
        while warp.finished < len(warp.issued) and warp.issued[warp.finished].done:
            warp.finished += 1
        return warp.issued[warp.finished :]

    def _fire(self, warp: Warp) -> None:
        channel, _ = warp.signals.pop(0)
        self.channels[channel] += 1
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
        if code.spec.semantics is not None:
            values = (f[s] if s == "imm" else r[f[s]] for s in code.spec.sources)
            r[f["rd"]] = code.spec.semantics.value(*values)
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
        self.memories.perform(operation.name, operation.operands | operation.parameters)
        self.performed[operation.name] += 1
        operation.done = True


def extent_of(problem: Product | Convolution, config: MachineConfig) -> Extent:
    """What is tiled of a problem."""
    network = legal(network_of(problem), config)
    homes = plan_memory(network, network.operators, layouts(network, config), config).homes
    operator = next(o for o in network.operators if o.output.tensor == "C")
    if isinstance(operator, ImageConvolution):
        return convolution_problem(operator, homes, config).extent
    assert isinstance(operator, MatrixProduct)
    return product_problem(operator, homes, config).extent


def random_blocking(problem: Product | Convolution, config: MachineConfig, r: random.Random) -> Blocking:
    """Any blocking of a problem; those of few are as likely as those of many that keep and order alike."""
    extent = extent_of(problem, config)
    every = [t for single in (False, True) for t in candidates(extent, config, single=single)]
    across = max(t.out_cols for t in every)
    kinds: dict[str, list[Blocking]] = {}
    for t in every:
        kind = (t.resident_a, t.resident_b, t.m_outermost, t.single_c, t.out_cols == across)
        kinds.setdefault(str(kind), []).append(t)
    t = r.choice(kinds[r.choice(sorted(kinds))])
    return r.choice([t, *inner_cuts(config, t)])


def execute(
    problem: Product | Convolution, config: MachineConfig, seed: int = 0, blocking: Blocking | None = None
) -> tuple[np.ndarray, np.ndarray, Machine]:
    """Result, NumPy's result and the machine after a run in an order drawn from the seed."""
    kernel = compile_problem(problem, config, blocking=blocking)
    a, b = problem.random(np.random.default_rng(seed))
    size = max(last for _, last, _, _ in kernel.memory.windows) + 4097
    memory = np.full(size, GARBAGE, np.uint8)
    for name, operand in (("A", a), ("B", b)):
        home = kernel.inputs[name]
        memory[home.address : home.address + home.size] = home.image(operand)
    before = memory.copy()
    machine = Machine(config, kernel.programs, memory, seed)
    machine.run()
    home = kernel.outputs["C"]
    result = slice(home.address, home.address + home.size)
    got = home.extract(memory[result])
    before[result] = memory[result]
    assert np.array_equal(before, memory), "memory outside the result changed"
    return got, problem.reference(a, b), machine
