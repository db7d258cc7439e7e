"""Executes the sequential tile programs of a network on memories that initially hold garbage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cosim.models.functional import Memories, execute
from hw.config import MachineConfig
from sw.compile.legal import legal
from sw.compile.memory import Kind, MemoryPlan
from sw.compile.program import Group
from sw.compile.stages import Emit, Tile
from sw.compile.writer import ACCUMULATOR, OUT, SCRATCH
from sw.compiler import Step as CompiledStep
from sw.compiler import groups
from sw.graph.host import HostOperator
from sw.graph.network import Network
from sw.ir.program import Program
from sw.tile_programs.places import Place
from sw.tile_programs.stated import Launches

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Sequential:
    """The sequential program of a run of operators."""

    source: Program
    memory: MemoryPlan
    config: MachineConfig


Step = HostOperator | Sequential


def emitted(network: Network, config: MachineConfig) -> list[Step]:
    """The steps of a network, each run of operators of the machine being one program."""
    network = legal(network, config)
    steps: list[Step] = []
    for run in groups(network):
        hosted = [o for o in run if isinstance(o, HostOperator)]
        steps += hosted
        if not hosted:
            made = Emit()(Tile()(Group(network, run, config)))
            steps.append(Sequential(made.source, made.tiled.memory, config))
    return steps


def steps_of(steps: Sequence[CompiledStep]) -> list[Step]:
    """The same of what the compiler made."""
    return [s if isinstance(s, HostOperator) else Sequential(s.source, s.memory, s.config) for s in steps]


@dataclass(frozen=True)
class Left:
    """What a program leaves in memory."""

    step: Sequential
    before: np.ndarray
    memory: np.ndarray

    def tensor(self, name: str) -> np.ndarray:
        """A tensor that stays to the end."""
        home = self.step.memory.homes[name]
        return home.extract(self.memory[home.address : home.address + home.size])

    def strayed(self) -> np.ndarray:
        """Addresses that changed although no tensor that the program computes lies there."""
        own = np.zeros(self.memory.shape, np.bool_)
        for home in self.step.memory.homes.values():
            if home.kind in (Kind.ACTIVATION, Kind.OUTPUT):
                own[home.address : home.address + home.size] = True
        return np.flatnonzero((self.memory != self.before) & ~own)


def results(network: Network, steps: Sequence[Step], inputs: Arrays, seed: int = 0) -> Arrays:
    """The outputs of a network; memories hold something else for every seed."""
    arrays = {n: t.constant for n, t in network.tensors.items() if t.constant is not None} | dict(inputs)
    rng = np.random.default_rng(seed)
    for step in steps:
        if isinstance(step, HostOperator):
            tensor = network.tensors[step.output.tensor]
            array = np.array(arrays.get(tensor.name, np.zeros(tensor.shape, tensor.element)))
            step.output.write(array, step.reference([v.of(arrays[v.tensor]) for v in step.inputs]))
            arrays[tensor.name] = array
            continue
        left = executed(step, arrays, rng)
        assert not left.strayed().size
        arrays |= {n: left.tensor(n) for n, h in step.memory.homes.items() if h.kind is Kind.OUTPUT}
    return {name: arrays[name] for name in network.outputs}


def executed(step: Sequential, arrays: Arrays, rng: np.random.Generator) -> Left:
    """A program after its sequential execution; launches touch nothing that they do not state."""
    memory = rng.integers(0, 256, step.memory.end).astype(np.uint8)
    for name, home in step.memory.homes.items():
        given = arrays.get(name) if home.kind in (Kind.INPUT, Kind.OUTPUT) else home.tensor.constant
        if given is not None:
            memory[home.address : home.address + home.size] = home.image(given)
    state = Memories(step.config, memory.copy())
    for held in (state.a, state.b, state.acc, state.scratch, state.out):
        held.view(np.uint8)[...] = rng.integers(0, 256, held.view(np.uint8).shape)
    stated = Launches(_places(step.source, step.config), step.config)
    execute(step.source, state, stated=stated.stated)
    return Left(step, memory, state.memory)


def _places(program: Program, config: MachineConfig) -> dict[str, Place]:
    """The memories of the chip that launches access, whole."""
    d, made = config.derived, {}
    for b in program.buffers:
        if b.name == ACCUMULATOR:
            made[b.name] = Place(b, (d.acc_words, config.cols), "acc", 0, (1, 1), config.cols)
        elif b.name in (SCRATCH, OUT):
            size = config.scratch_bytes if b.name == SCRATCH else config.out_bytes
            made[b.name] = Place(b, (size,), "scratch" if b.name == SCRATCH else "out", 0, (1,))
    return made
