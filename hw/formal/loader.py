"""Proofs of the loaders: they request only words of their windows, and complete when all are answered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component

from hw.config import MachineConfig
from hw.formal import engines, rows
from hw.formal.bench import Bench, past
from hw.formal.proof import Fault, Proof, planted
from hw.formal.storer import COMMON_FAULTS, REQUEST_FAULTS
from hw.rtl.bits import log2
from hw.rtl.memory.loader import Loader
from hw.rtl.memory.patch_requests import VARIANT

REQUESTS = {
    "reads_stay_in_windows": "every requested word holds at least one byte of a window open for reading "
    "(words are read whole; bytes outside the row are discarded)",
    "addresses_aligned": "every address is a multiple of the port's width",
    **engines.REQUESTS,
}


def build_requests(bench: Bench, config: MachineConfig, port: str, *, patches: bool = False) -> None:
    """Any operations, any fixed windows, any stalls; with `patches`, only `load_b_conv`."""
    dut = bench.add(Loader(config, port), "dut")
    control, request = dut.control, dut.memory.request
    ran = engines.surroundings(bench, control, dut.windows)
    _only(bench, control, port, patches)
    owed = engines.requests(bench, control, dut.memory)
    width = config.port_bytes(port)
    shift = log2(width)

    def permitted(address: Value) -> Value:
        """Whether a word has a byte in a window that permits reading."""
        return Cat(
            w.read & (w.last >= w.first) & (address + (width - 1) >= w.first) & (address <= w.last)
            for w in dut.windows
        ).any()

    bench.require("reads_stay_in_windows", ~request.valid | permitted(request.payload))
    bench.require("addresses_aligned", request.payload[:shift] == 0)

    bench.invariants(lambda: stages(bench, dut, ran, permitted, port == "load_b" and not patches))

    def outstanding() -> Value:
        counted, asked, answered = (
            bench.register(dut, name) for name in ("outstanding", "was_asked", "was_answered")
        )
        return counted + asked - answered == owed

    def few() -> Value:
        counted, none, one = (bench.register(dut, name) for name in ("outstanding", "none", "one"))
        return (none == (counted == 0)) & (one == (counted == 1))

    bench.invariant("answers", outstanding)
    bench.invariant("few", few)


def stages(
    bench: Bench, dut: Loader, ran: Value, permitted: Callable[[Value], Value], without_patches: bool
) -> dict[str, Value]:
    """Invariants of the request stages: each holds a part of a row; after the comparison, it is in a window.

    A row that is not permitted is walked for two more beats, but nothing of it is requested.
    """
    names = ("begin", "middle", "present", "wrong", "empty", "asks", "address")
    begin, middle, present, wrong, empty, asks, address = (
        bench.register(dut, f"requests/{n}") for n in names
    )
    op = bench.view(dut, "requests/op")
    shift = log2(len(dut.memory.response.payload.data) // 8)
    walk = rows.LoadWalk(bench, dut, "requests/walker", op, 1 << shift)
    starts_empty = (op.outer == 0) | (op.inner == 0)
    later = walk.active | middle | present
    of_rows = _rows_in_stages(bench, dut, walk, op, shift)
    held = {
        "operation": ~(begin | later) | (ran & ~(begin & later)),
        "empty": (~later | (empty == starts_empty)) & (~(middle | present) | ~starts_empty | wrong),
        **{name: starts_empty | value for name, value in of_rows.items()},
        "requested": ~asks | permitted(address << shift),
    }
    if without_patches:
        of_patches = (begin | later) & (op.variant == VARIANT)
        held["no_patches"] = ~(of_patches | _patches_under_way(bench, dut))
    return held


def _rows_in_stages(
    bench: Bench, dut: Loader, walk: rows.LoadWalk, op: Value, shift: int
) -> dict[str, Value]:
    """Each stage holds a beat of a row, and beats in successive stages belong to the same row."""
    names = ("middle", "present", "over", "moves", "first", "inside", "word", "address", "row", "row_last")
    middle, present, over, moves, first, inside, word, address, row, row_last = (
        bench.register(dut, f"requests/{n}") for n in names
    )
    m, f = (bench.view(dut, f"requests/{n}") for n in ("middle_step", "last_step"))

    def ends(first: Value) -> Value:
        return Value.cast(first + (op.inner - 1)[:16])

    # The rows in the first stages and in the last one, and the words of the last two stages' beats.
    walked, second = rows.MemoryRow(first, ends(first)), rows.MemoryRow(row, row_last)
    third = rows.MemoryRow(Signal(32, name="ghost_first"), Signal(33, name="ghost_last"))
    second_word, third_word = (Signal(32 - shift, name=f"ghost_word{i}") for i in (2, 3))
    with bench.m.If(moves):
        bench.m.d.sync += [
            third.first.eq(second.first),
            third.last.eq(second.last),
            second_word.eq(Mux(walk.first_of_row, first[shift:], second_word + 1)),
            third_word.eq(second_word),
        ]
    follows = middle & m.reads & second.is_same(walked)
    in_first = walk.fits(walked, second_word + 1) & (walk.first_of_row | ~walk.in_memory | follows)
    follows = present & f.reads & third.is_same(second) & (second_word == (third_word + 1)[: 32 - shift])
    in_second = ~m.reads | (
        (second.last == ends(second.first))
        & (m.checks == m.starts)
        & second.holds(m.starts, second_word, shift)
        & (m.starts | follows)
    )
    within = [(third.first >= w.first) & (third.last[:32] <= w.last) & w.read for w in dut.windows]
    follows = (over | inside) & (third_word == (address + 1)[: 32 - shift])
    in_third = ~f.reads | (
        (inside == (Cat(within).any() & ~third.last[32]))
        & (f.checks == f.starts)
        & (third.last == ends(third.first))
        & third.holds(f.starts, third_word, shift)
        & Mux(f.starts, word == third.first[shift:], follows)
    )
    return {
        "walked": ~walk.active | in_first,
        "computed": ~middle | in_second,
        "compared": ~present | in_third,
    }


def _patches_under_way(bench: Bench, dut: Loader) -> Value:
    """Whether the patch walker is active."""
    names = ("preparing", "scanning", "settling", "deciding", "placing")
    return Cat(bench.register(dut, f"requests/patches/walker/{n}") for n in names).any()


COMPLETION = {
    **engines.COMMON,
    "completes_after_answers": "an operation completes only when its memory beats and those of all "
    "earlier operations are answered (operations of up to two rows of eight bytes)",
    "answers_within_operations": "no more beats are requested than the taken operations have",
}


def build_completion(bench: Bench, config: MachineConfig, port: str) -> None:
    """Counts the memory beats that operations must have, and the answers; operations are small."""
    dut = bench.add(Loader(config, port), "dut")
    control, op, sync = dut.control, dut.control.operation.payload, bench.m.d.sync
    request, response = dut.memory.request, dut.memory.response
    engines.surroundings(bench, control, dut.windows)
    _only(bench, control, port, patches=False)
    known = engines.operations(bench, control)
    owed = Signal(8, name="owed_answers")
    answered = bench.value(response.valid & response.ready, "answered")
    sync += owed.eq(owed + (request.valid & request.ready) - answered)
    bench.assume(~response.valid | (owed != 0))
    bench.assume(~control.operation.valid | ((op.outer <= engines.ROWS) & (op.inner <= engines.BYTES)))
    beats = engines.beats(bench, op.outer, op.inner, op.memory, op.load_stride, config.port_bytes(port))
    total, target, answers, asked = (Signal(8, name=n) for n in ("total", "target", "answers", "asked"))
    sync += [answers.eq(answers + answered), asked.eq(asked + (request.valid & request.ready))]
    with bench.m.If(known.taken):
        sync += total.eq(total + beats)
    with bench.m.If(known.picked):
        sync += target.eq(total + beats)
    bench.require("completes_after_answers", ~known.turn | (answers >= target))
    bench.require("answers_within_operations", asked + request.valid <= total)


def _only(bench: Bench, control: Component, port: str, patches: bool) -> None:
    """Assumes operations of the kind that a proof covers."""
    operation = control.operation
    if port == "load_b":
        is_patches = operation.payload.variant == VARIANT
        bench.assume(~operation.valid | (is_patches if patches else ~is_patches))


def _writes_suffice(m: Module, outer: Component, inner: Component) -> None:
    """Windows for writing are accepted too."""
    for own, port in zip(outer.windows, inner.windows, strict=True):
        m.d.comb += port.read.eq(own.write | own.read)


def _unaligned(m: Module, outer: Component, inner: Component) -> None:
    """A request has an odd address."""
    request = inner.memory.request
    m.d.comb += outer.memory.request.payload.eq(request.payload | past(m, request.valid))


def _completes_early(m: Module, outer: Component, inner: Component) -> None:
    """An operation completes before its answers."""
    # Every operation completes three cycles after it is taken.
    taken = outer.control.operation.valid & inner.control.operation.ready
    m.d.comb += outer.control.complete.eq(past(m, past(m, past(m, taken))))


def _asks_again(m: Module, outer: Component, inner: Component) -> None:
    """Requests are presented twice."""
    own, port = outer.memory.request, inner.memory.request
    again, address = Signal(), Signal(32)
    m.d.sync += [again.eq(port.valid & own.ready & ~again), address.eq(port.payload)]
    with m.If(again):
        m.d.comb += [own.valid.eq(1), own.payload.eq(address), port.ready.eq(0)]


def _asking_faults(config: MachineConfig, port: str) -> tuple[Fault, ...]:
    def last_off_by_word(m: Module, outer: Component, inner: Component) -> None:
        """A window is one word too long."""
        width = config.port_bytes(port)
        for own, other in zip(outer.windows, inner.windows, strict=True):
            m.d.comb += other.last.eq(Mux(own.last < 0xFFFFFFFF - width, own.last + width, own.last))

    return (
        planted("window-too-long", "reads_stay_in_windows", last_off_by_word, 11),
        planted("permission-ignored", "reads_stay_in_windows", _writes_suffice, 11),
        planted("address-odd", "addresses_aligned", _unaligned, 11),
        *_later(REQUEST_FAULTS, 3),
    )


def _later(faults: tuple[Fault, ...], cycles: int) -> tuple[Fault, ...]:
    """The same faults, with this many more cycles until they are noticed."""
    return tuple(dataclasses.replace(fault, depth=fault.depth + cycles) for fault in faults)


def proofs(config: MachineConfig, port: str) -> tuple[Proof, ...]:
    """The proofs for one loader, with their faults."""
    name = port.replace("_", "-")
    asks = partial(build_requests, config=config, port=port)
    completes = partial(build_completion, config=config, port=port)
    completing = (
        planted("answer-not-awaited", "completes_after_answers", _completes_early, 8),
        planted("asked-twice", "answers_within_operations", _asks_again, 11),
        *_later(COMMON_FAULTS, 4),
    )
    return (
        Proof(name, f"{port}: windows and requests", REQUESTS, asks, _asking_faults(config, port), 2, 12),
        Proof(f"{name}-completion", f"{port}: operations", COMPLETION, completes, completing, bounded=14),
    )


def patches_proof(config: MachineConfig) -> Proof:
    """The proof for `load_b_conv`, with its faults."""
    return Proof(
        "load-b-conv",
        "load_b_conv: windows and requests, one window",
        REQUESTS,
        lambda bench: build_requests(bench, config, "load_b", patches=True),
        tuple(dataclasses.replace(fault, depth=22) for fault in _asking_faults(config, "load_b")),
        bounded=22,
    )
