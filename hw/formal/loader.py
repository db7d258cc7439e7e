"""Proofs about the loaders: they ask only for words of their windows, and complete when all is answered."""

from __future__ import annotations

import dataclasses
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
    "reads_stay_in_windows": "a word that is requested holds at least one byte of a window open for reading "
    "(words are read whole; what lies outside of the row is not kept)",
    "addresses_aligned": "every address is a multiple of the port's width",
    **engines.REQUESTS,
}


def build_requests(bench: Bench, config: MachineConfig, port: str, *, patches: bool = False) -> None:
    """Any operations, any windows that stay as they are, any stalls; with `patches`, only `load_b_conv`."""
    dut = bench.add(Loader(config, port), "dut")
    control, request = dut.control, dut.memory.request
    ran = engines.surroundings(bench, control, dut.windows)
    _only(bench, control, port, patches)
    owed = engines.requests(bench, control, dut.memory)
    width = config.port_bytes(port)
    shift = log2(width)

    def permitted(address: Value) -> Value:
        """Whether a word has a byte in a window open for reading."""
        return Cat(
            w.read & (w.last >= w.first) & (address + (width - 1) >= w.first) & (address <= w.last)
            for w in dut.windows
        ).any()

    bench.require("reads_stay_in_windows", ~request.valid | permitted(request.payload))
    bench.require("addresses_aligned", request.payload[:shift] == 0)

    def walks() -> Value:
        names = ("first", "span", "stride", "valid", "is_fill", "address")
        first, span, stride, valid, is_fill, address = (bench.register(dut, f"requests/{n}") for n in names)
        walk = rows.Walk(bench, dut, "requests/walker", width)
        last = Value.cast(first + span)
        inside = (
            ~last[32] & Cat((first >= w.first) & (last[:32] <= w.last) & w.read for w in dut.windows).any()
        )
        # A row that is not permitted is walked on, but the machine stops: the run is over.
        over = ran & control.stop
        row = rows.fits(walk, first, span, stride, address + 1, width) & (
            walk.first_of_row | ~walk.in_memory | inside
        )
        asking = valid & ~is_fill
        return (~walk.active | (ran & (over | row))) & (~asking | permitted(address << shift))

    bench.invariant("row", walks)
    if port == "load_b" and not patches:
        bench.invariant("no_patches", lambda: ~bench.register(dut, "requests/patches/active"))
    bench.invariant("answers", lambda: bench.register(dut, "outstanding") == owed)


COMPLETION = {
    **engines.COMMON,
    "completes_after_answers": "an operation completes only when all its memory beats, and those of all "
    "earlier operations, are answered (operations of up to two rows of eight bytes)",
    "answers_within_operations": "no more beats are requested than the operations that were taken have",
}


def build_completion(bench: Bench, config: MachineConfig, port: str) -> None:
    """Count the memory beats that operations must have, and the answers; operations are small."""
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
    """Assume operations of the kind that a proof is about."""
    operation = control.operation
    if port == "load_b":
        is_patches = operation.payload.variant == VARIANT
        bench.assume(~operation.valid | (is_patches if patches else ~is_patches))


def _writes_suffice(m: Module, outer: Component, inner: Component) -> None:
    """Windows for writing serve as well."""
    for own, port in zip(outer.windows, inner.windows, strict=True):
        m.d.comb += port.read.eq(own.write | own.read)


def _unaligned(m: Module, outer: Component, inner: Component) -> None:
    """A request names an odd address."""
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
        """A window's last byte is taken one word too far."""
        width = config.port_bytes(port)
        for own, other in zip(outer.windows, inner.windows, strict=True):
            m.d.comb += other.last.eq(Mux(own.last < 0xFFFFFFFF - width, own.last + width, own.last))

    return (
        planted("window-too-long", "reads_stay_in_windows", last_off_by_word, 8),
        planted("permission-ignored", "reads_stay_in_windows", _writes_suffice, 8),
        planted("address-odd", "addresses_aligned", _unaligned, 8),
        *REQUEST_FAULTS,
    )


def proofs(config: MachineConfig, port: str) -> tuple[Proof, ...]:
    """The proofs for one loader, with their faults."""
    name = port.replace("_", "-")
    asks = partial(build_requests, config=config, port=port)
    completes = partial(build_completion, config=config, port=port)
    completing = (
        planted("answer-not-awaited", "completes_after_answers", _completes_early, 8),
        planted("asked-twice", "answers_within_operations", _asks_again, 8),
        *COMMON_FAULTS,
    )
    return (
        Proof(name, f"{port}: windows and requests", REQUESTS, asks, _asking_faults(config, port), 2, 12),
        Proof(f"{name}-completion", f"{port}: operations", COMPLETION, completes, completing, bounded=10),
    )


def patches_proof(config: MachineConfig) -> Proof:
    """The proof for `load_b_conv`, with its faults."""
    return Proof(
        "load-b-conv",
        "load_b_conv: windows and requests, one window",
        REQUESTS,
        lambda bench: build_requests(bench, config, "load_b", patches=True),
        tuple(dataclasses.replace(fault, depth=17) for fault in _asking_faults(config, "load_b")),
        bounded=17,
    )
