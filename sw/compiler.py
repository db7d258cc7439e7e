"""The compiler: named stages from a graph of operators to the words of the warps (docs/compile.md).

Every input takes the same path. A product, a convolution or a problem file becomes a graph of one operator,
and an ONNX file becomes a graph. Consecutive operators on the machine become one tile program, which becomes
the programs of the warps. A hand-written tile program enters at that point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hw.config import MachineConfig
from hw.errors import InputError, UnwritableError
from sw.codegen.generate import ProgramTooLongError
from sw.compile.program import Group, LoweredLoop, most_operands
from sw.compile.refused import OperatorsError
from sw.compile.stages import (
    AssignWarps,
    Canonicalise,
    Compiled,
    Emit,
    Generate,
    Hoist,
    Legalise,
    MachineCode,
    RemoveDeadStores,
    Tile,
    TileProgram,
    WarpPrograms,
    warp_name,
)
from sw.graph.host import HostOperator
from sw.graph.network import Network, Operator
from sw.graph.text import text
from sw.ir.program import Program
from sw.ir.syntax import paused_collector
from sw.kernels.origin import LoopTextError
from sw.passes import Stage, configured, run

#: From a graph to a graph that the machine can execute.
GRAPH_STAGES = (Legalise(),)
#: From consecutive operators to a tile program.
OPERATOR_STAGES = (
    Tile(),  # operators -> tiles, addresses, CGRA loops
    Emit(),  # -> one sequential tile program
)
#: From a tile program to machine code.
PROGRAM_STAGES = (
    RemoveDeadStores(),
    AssignWarps(),  # -> the same with waits and signals
    Canonicalise(),
    Hoist(),  # -> one program per warp
    Generate(),  # -> instruction words
)
PIPELINE = (*GRAPH_STAGES, *OPERATOR_STAGES, *PROGRAM_STAGES)
#: Most alternative blockings of a single product that are tried if the best one's program does not fit.
ALTERNATIVES = 64
#: Instruction words of a warp per operand of its operations, as usual in large networks. If this estimate
#: exceeds the instruction memory `SURELY` times, the program is split without trying.
WORDS_PER_OPERAND, SURELY = 2.5, 2.0

#: Called with each stage's name and its result: the program, or a graph's text.
Observer = Callable[[str, "Program | str"], None]
Step = HostOperator | Compiled


@paused_collector()
def compile_network(
    network: Network, config: MachineConfig, *, after: Observer | None = None, **options: Any
) -> tuple[Step, ...]:
    """Compiles a network into steps: programs of the machine, and host operators between them.

    `after` is called with the result of each stage. `options` are fields of stages: `bandwidth`, `blockings`,
    `memory`, `strategy`, `synchronise`. Raises `OperatorsError` for all operators that the machine cannot
    execute, and `InputError` for resources that it lacks.
    """
    driver = _Driver(after, options)
    legal: Group = driver.run(GRAPH_STAGES, Group(network, network.operators, config))
    steps: list[Step] = []
    refused: list[tuple[Operator, str]] = []
    for operators in groups(legal.network):
        if isinstance(operators[0], HostOperator):
            steps += [o for o in operators if isinstance(o, HostOperator)]
            continue
        group = Group(legal.network, operators, config)
        try:
            # Once an operator is refused, only further refusals matter.
            steps += [] if refused and driver.run(OPERATOR_STAGES[:1], group) else driver.programs(group)
        except OperatorsError as error:
            refused += error.refused
    if refused:
        raise OperatorsError(refused)
    return tuple(steps)


def executes(network: Network, names: Collection[str], config: MachineConfig) -> bool:
    """Whether a machine has the memories and the CGRA for operators of these names (or of nodes)."""
    driver = _Driver(None, {})
    try:
        legal: Group = driver.run(GRAPH_STAGES, Group(network, network.operators, config))
        for operators in groups(legal.network):
            asked = tuple(o for o in operators if not {o.name, *o.nodes}.isdisjoint(names))
            if asked and not isinstance(asked[0], HostOperator):
                driver.run(OPERATOR_STAGES[:1], Group(legal.network, asked, config))
    except UnwritableError:
        raise
    except InputError:
        return False
    return True


@paused_collector()
def compile_tile_program(
    program: Program, config: MachineConfig, *, after: Observer | None = None, **options: Any
) -> MachineCode:
    """Compiles a hand-written tile program; `after` and `options` are as in `compile_network`.

    Raises `InputError` if registers, loop depth, channels or instruction memory are exceeded.
    """
    made: MachineCode = _Driver(after, options).run(PROGRAM_STAGES, TileProgram(config, program, program))
    return made


def groups(network: Network) -> Iterator[tuple[Operator, ...]]:
    """Consecutive operators on the same side, host or machine."""
    group: list[Operator] = []
    for operator in network.operators:
        if group and isinstance(operator, HostOperator) != isinstance(group[-1], HostOperator):
            yield tuple(group)
            group = []
        group.append(operator)
    if group:
        yield tuple(group)


@dataclass
class _Driver:
    """Runs the stages, reports their results, and retries if a program exceeds the machine."""

    after: Observer | None
    options: Mapping[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, stages: tuple[Any, ...], value: Any, **options: Any) -> Any:
        """The results of stages, each with the options that it has."""
        try:
            return run(configured(stages, {**self.options, **options}), value, self._look)
        except LoopTextError as error:
            raise error.error from None

    def programs(self, group: Group) -> list[Compiled]:
        """One program, or several if one exceeds the machine: first in parts, then with smaller tiles."""
        try:
            return [self._program(group)]
        except _TooMuchError as error:
            if len(group.operators) > 1:
                parts = group.parts(min(error.parts, len(group.operators)))
                return [made for part in parts for made in self.programs(part)]
            made = self._with_other_tiles(group)
            if made is None:
                reason = f"{group.operators[0].name}: {error}"
                raise OperatorsError([(group.operators[0], reason)]) from None
            return [made]

    def _with_other_tiles(self, group: Group) -> Compiled | None:
        """One operator with other tiles: the best that fit, found by skipping 1, 2, 4 ... of them."""
        skipped = 1
        while skipped < ALTERNATIVES:
            made = self._attempt(group, skipped)
            if made is not None:
                better = (self._attempt(group, s) for s in range(skipped // 2 + 1, skipped))
                return next((m for m in better if m is not None), made)
            skipped *= 2
        return None

    def _attempt(self, group: Group, skipped: int) -> Compiled | None:
        try:
            return self._program(group, skip=skipped)
        except UnwritableError:
            raise
        except InputError:
            return None

    def _program(self, group: Group, **options: Any) -> Compiled:
        """Runs all stages for operators that become one program."""
        self.seconds = {}
        program: TileProgram = self.run(OPERATOR_STAGES, group, **options)
        tiled = program.tiled
        assert tiled is not None
        try:
            times = WORDS_PER_OPERAND * most_operands(program.program) / group.config.imem_words
            if times > SURELY and len(group.operators) > 1:
                raise ProgramTooLongError("the instruction memory is too small", times)
            code: MachineCode = self.run(PROGRAM_STAGES, program)
        except InputError as error:
            if isinstance(error, ProgramTooLongError):
                raise _TooMuchError(str(error), error.times) from None
            if any(isinstance(part, LoweredLoop) for part in tiled.parts):
                # Unrolling the steps nests one loop less.
                return self._program(group, **options, loops=False)
            raise _TooMuchError(str(error)) from None
        made = code.origin
        return Compiled(
            group.network,
            tuple(part.operator for part in tiled.parts),
            group.config,
            tiled.memory,
            tiled.parts,
            made.source,
            made.program,
            code.programs,
            made.labels,
            code.operator_of,
            self.seconds,
        )

    def _look(self, stage: Stage, made: object, seconds: float) -> None:
        self.seconds[stage.name] = self.seconds.get(stage.name, 0.0) + seconds
        if self.after is None:
            return
        match made:
            case Group(network=network):
                self.after(stage.name, text(network))
            case TileProgram(program=program):
                self.after(stage.name, program)
            case WarpPrograms(programs=programs):
                for warp, program in programs.items():
                    self.after(f"{stage.name}, {warp_name(warp)}", program)


class _TooMuchError(InputError):
    """The machine has too few registers, loops, channels or instruction words for a program.

    It may fit as `parts` programs, or with an instruction memory `times` as large.
    """

    def __init__(self, text: str, times: float = 1.0):
        super().__init__(text)
        self.parts = max(2, math.ceil(times))
