"""Lowering of products and convolutions, step by step (docs/lowering.md)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hw.config import MachineConfig
from hw.errors import InputError
from sw.arrangement import Nest, extent_of, make_nest
from sw.canonical.hoist import Strategy, optimise
from sw.canonical.passes import Canonicalize
from sw.codegen import generate
from sw.convolution import Convolution
from sw.dependence.passes import DeadStore
from sw.ir.program import Program
from sw.ir.roles import WarpRole
from sw.ir.scope import retype
from sw.kernel import Kernel
from sw.layout import MEMORY_BYTES
from sw.problem import Product
from sw.tiled.emit import emit
from sw.tiled.split import share, warps
from sw.tiling.blocking import Blocking
from sw.tiling.machine import array_sets_pace, best
from sw.warps.convert import convert

#: Blockings that are tried where a machine cannot hold the programs of the best one.
ALTERNATIVES = 64

#: Sees the program after a step: its name, and the program.
Observer = Callable[[str, Program], None]
#: Puts waits and signals into the sequential program of a machine.
Synchroniser = Callable[[Program, MachineConfig], Program]


def _nothing(step: str, program: Program) -> None:
    """Looks at no step."""


@dataclass(frozen=True)
class Options:
    """How programs are made: what is kept in registers, who looks at each step, who orders the warps.

    `bandwidth` is that of ports that are slower than their width.
    """

    strategy: Strategy = Strategy.BUDGET
    after: Observer = _nothing
    synchronise: Synchroniser | None = None
    bandwidth: Mapping[str, int] | None = None


def lower(
    problem: Product | Convolution,
    config: MachineConfig,
    *,
    name: str = "matmul",
    bandwidth: Mapping[str, int] | None = None,
    memory_bytes: int = MEMORY_BYTES,
    blocking: Blocking | None = None,
    strategy: Strategy = Strategy.BUDGET,
    after: Observer = _nothing,
    synchronise: Synchroniser | None = None,
) -> Kernel:
    """Compile a product or convolution for a machine.

    `bandwidth` (bytes per cycle by port) tells of ports that will be slower than their width; it only
    guides the choice of tiles, which `blocking` sets instead. Where registers, loops or instruction memory do
    not suffice for the best tiles, the next best are tried. `after` sees the tile program after each step.
    `synchronise` puts in waits and signals in place of those of `sw.warps`, for comparison.
    Raises `InputError` when the machine lacks warps, channels, registers, loops, windows, buffer or memory
    for it.
    """
    options = Options(strategy, after, synchronise, bandwidth)
    try:
        plan = make_nest(problem, config, bandwidth, memory_bytes, blocking)
        try:
            programs = compiled(plan, options)
        except InputError as error:
            if blocking is not None:
                raise
            plan, programs = _simpler(plan, bandwidth, memory_bytes, options, error)
    except InputError as error:
        raise InputError(f"{name} ({problem}) on {config.name}: {error}") from None
    source = retype(emit(plan))
    return Kernel(name, problem, config, programs, plan.places, extent_of(problem), plan.blocking, source)


def compiled(plan: Nest, options: Options) -> dict[int, list[int]]:
    """The words of every warp of an arranged problem."""
    program = retype(emit(plan))
    options.after("emit", program)
    program = retype(DeadStore()(program))
    options.after("dead-store", program)
    program = _ordered(program, plan, options)
    options.after("convert to warps", program)
    program = retype(Canonicalize()(program))
    options.after("canonicalize", program)
    words = {}
    for warp in warps(program):
        own = optimise(share(program, warp), plan.config.registers, options.strategy, uniform=True)
        own = retype(own)
        options.after(f"optimise warp {WarpRole(warp).title}", own)
        words[warp] = generate(own, plan.config, f"warp {WarpRole(warp).title}", uniform=True)
    return words


def _ordered(program: Program, plan: Nest, options: Options) -> Program:
    """The program with waits and signals."""
    if options.synchronise is not None:
        return options.synchronise(program, plan.config)
    early = array_sets_pace(plan.extent, plan.config, plan.blocking, options.bandwidth)
    return convert(program, plan.config, early=early).program


def _simpler(
    plan: Nest,
    bandwidth: Mapping[str, int] | None,
    memory_bytes: int,
    options: Options,
    error: InputError,
) -> tuple[Nest, dict[int, list[int]]]:
    """The best blocking whose programs the machine can hold; raises the first error if there is none."""
    for choice in best(extent_of(plan.problem), plan.config, bandwidth, ALTERNATIVES)[1:]:
        other = make_nest(plan.problem, plan.config, bandwidth, memory_bytes, choice.blocking)
        with contextlib.suppress(InputError):
            return other, compiled(other, options)
    raise error
