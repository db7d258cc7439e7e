"""The compiler: named stages from a graph of operators to the words of the warps (docs/compile.md).

Every input takes the same road. A product, a convolution or a problem file becomes a graph of one operator;
an ONNX file becomes a graph; operators that follow each other on the machine become one tile program, and
that the programs of the warps.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hw.config import MachineConfig
from hw.errors import InputError
from sw.compile.stages import (
    AssignWarps,
    Canonicalise,
    Compiled,
    Emit,
    Generate,
    Group,
    Hoist,
    Legalise,
    RemoveDeadStores,
    Tile,
    TileProgram,
    WarpPrograms,
)
from sw.graph.host import HostOperator
from sw.graph.network import Network, Operator
from sw.graph.text import text
from sw.ir.program import Program
from sw.ir.roles import WarpRole

#: From a graph to a graph that the machine can execute.
GRAPH_STAGES = (Legalise(),)
#: From operators that follow each other to a program of the machine.
PROGRAM_STAGES = (
    Tile(),  # operators -> tiles, addresses, loops of the CGRA
    Emit(),  # -> one sequential tile program
    RemoveDeadStores(),
    AssignWarps(),  # -> the same with waits and signals
    Canonicalise(),
    Hoist(),  # -> one program per warp
    Generate(),  # -> instruction words
)
PIPELINE = (*GRAPH_STAGES, *PROGRAM_STAGES)
#: Blockings of a single product that are tried where the machine cannot hold the program of the best one.
ALTERNATIVES = 64

#: Sees what a stage made: its name, and the program, or a graph's text.
Observer = Callable[[str, "Program | str"], None]
Step = HostOperator | Compiled


def compile_network(
    network: Network, config: MachineConfig, *, after: Observer | None = None, **options: Any
) -> tuple[Step, ...]:
    """The steps of a network: programs of the machine, and operators of the host between them.

    `after` sees what each stage makes. `options` are fields of stages: `bandwidth`, `blockings`,
    `memory_bytes`, `strategy`, `synchronise`. Raises `InputError` for what the machine cannot do or does not
    have, with the operator.
    """
    driver = _Driver(config, after, options)
    for stage in GRAPH_STAGES:
        network = driver.graph(stage, network)
    steps: list[Step] = []
    for operators in groups(network):
        if isinstance(operators[0], HostOperator):
            steps += [o for o in operators if isinstance(o, HostOperator)]
        else:
            steps += driver.programs(Group(network, operators, config))
    return tuple(steps)


def groups(network: Network) -> Iterator[tuple[Operator, ...]]:
    """Operators that follow each other on the same side, host or machine."""
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
    """Runs stages, tells who looks on, and tries again where a program is too much for the machine."""

    config: MachineConfig
    after: Observer | None
    options: Mapping[str, Any]
    seconds: dict[str, float] = field(default_factory=dict)

    def graph(self, stage: Legalise, network: Network) -> Network:
        """The graph after a stage."""
        made: Network = self._timed(stage.name, lambda: stage(network, self.config))
        self._told(stage.name, made)
        return made

    def programs(self, group: Group) -> list[Compiled]:
        """One program, or several where one is too much for the machine: halves, then smaller tiles."""
        try:
            return [self._program(group)]
        except _TooMuchError as error:
            if len(group.operators) > 1:
                return [made for half in group.halves for made in self.programs(half)]
            for skipped in range(1, ALTERNATIVES):
                try:
                    return [self._program(group, skip=skipped)]
                except _TooMuchError:
                    continue
                except InputError:
                    break
            raise InputError(f"{group.operators[0].name}: {error}") from None

    def _program(self, group: Group, **options: Any) -> Compiled:
        """All stages for operators that become one program."""
        self.seconds = {}
        made: Any = group
        for stage in _with(PROGRAM_STAGES, {**self.options, **options}):
            try:
                made = self._timed(stage.name, lambda stage=stage, made=made: stage(made))  # type: ignore[misc]
            except InputError as error:
                if isinstance(stage, Tile | Emit):
                    raise
                raise _TooMuchError(str(error)) from None
            self._told(stage.name, made)
        assert isinstance(made, Compiled)
        return dataclasses.replace(made, seconds=self.seconds)

    def _timed(self, name: str, work: Callable[[], Any]) -> Any:
        begin = time.perf_counter()
        made = work()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin
        return made

    def _told(self, name: str, made: object) -> None:
        if self.after is None:
            return
        match made:
            case Network():
                self.after(name, text(made))
            case TileProgram(program=program):
                self.after(name, program)
            case WarpPrograms(programs=programs):
                for warp, program in programs.items():
                    self.after(f"{name}, warp {WarpRole(warp).title}", program)


class _TooMuchError(InputError):
    """A machine that lacks registers, loops, channels or instruction memory for a program."""


def _with(stages: Sequence[Any], options: Mapping[str, Any]) -> list[Any]:
    """Stages with those of the options that are fields of them."""
    made = []
    for stage in stages:
        own = {f.name for f in dataclasses.fields(stage)}
        made.append(dataclasses.replace(stage, **{k: v for k, v in options.items() if k in own}))
    return made
