"""Proofs about the AXI4 masters: handshakes, bursts inside of 4 KiB, WLAST, nothing that nobody asked for."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib.wiring import Component

from hw.bits import log2
from hw.bus.axi import BOUNDARY, Burst
from hw.bus.reader import ReadMaster
from hw.bus.writer import WriteMaster
from hw.formal.bench import Bench, Sabotage
from hw.formal.proof import Fault, Method, Proof

#: The masters of the proofs: a port as wide as the bus or half of it, bursts of up to four transfers.
WIDTH, BEATS, ID_BITS, IDENTITY = 8, 4, 2, 2
NARROW = 4

_BURST = {
    "address_is_stable": "an address that is offered (AxVALID) stays, unchanged, until AxREADY",
    "burst_in_page": "a burst is INCR, aligned, not too long, and crosses no 4 KiB boundary",
    "bursts_are_requests": "bursts have no more transfers than the port has requested",
}
WRITES = {
    **_BURST,
    "data_is_stable": "data that are offered (WVALID) stay, unchanged, until they are accepted (WREADY)",
    "last_ends_bursts": "WLAST is 1 in the last transfer of a burst and in no other",
    "answers_are_owed": "the port is given no more answers than it has made requests",
}
READS = {
    **_BURST,
    "identity_is_a_port": "ARID is the number of a port, and its transfers are as wide as that port",
}


def _requests(bench: Bench, request: Component, width: int) -> tuple[Value, Value]:
    """Assume a port that keeps its aligned requests; returns the event and the number of requests so far."""
    payload, count = Value.cast(request.payload), Signal(8)
    waits = bench.past(request.valid & ~request.ready, "request_waits")
    bench.assume(~waits | (request.valid & (payload == bench.past(payload, "request_past"))))
    address = payload[:32]
    bench.assume(address[: log2(width)] == 0)
    accepted = bench.value(request.valid & request.ready, "accepted")
    bench.m.d.sync += count.eq(count + accepted)
    bench.assume(count != 255)
    return accepted, count


def _stable(bench: Bench, name: str, channel: Component) -> Value:
    """Whether a channel keeps what it offers."""
    payload = Value.cast(channel.payload)
    held = bench.past(channel.valid & ~channel.ready, f"{name}_held")
    return ~held | (channel.valid & (payload == bench.past(payload, f"{name}_past")))


def _in_page(channel: Component) -> Value:
    """Whether an offered burst is as AXI wants it."""
    burst = channel.payload
    size = Value.cast(1 << burst.size)
    inside = (burst.addr[: log2(BOUNDARY)] + ((burst.len + 1) << burst.size)) <= BOUNDARY
    aligned = (burst.addr[:8] & (size - 1)) == 0
    return ~channel.valid | (inside & aligned & (burst.len < BEATS) & (burst.burst == Burst.INCR))


def build_writes(bench: Bench, port: int) -> None:
    """Any requests of a port, any stalls and answers of a slave that answers what it got.

    AXI lets data come before their address. Assumed is a slave that takes them once the address is offered.
    """
    dut = bench.add(WriteMaster(port, WIDTH, BEATS, ID_BITS, IDENTITY), "dut")
    bus, sync = dut.bus, bench.m.d.sync
    _, requested = _requests(bench, dut.port.request, port)
    bench.require("address_is_stable", _stable(bench, "aw", bus.aw))
    bench.require("data_is_stable", _stable(bench, "w", bus.w))
    bench.require("burst_in_page", _in_page(bus.aw))

    # Transfers of all bursts whose address was offered, this cycle's included, and data that have moved.
    fresh = bench.value(bus.aw.valid & ~bench.past(bus.aw.valid & ~bus.aw.ready, "aw_waits"), "fresh")
    before, moved = Signal(8, name="offered_before"), Signal(8, name="moved")
    offered = bench.value((before + Mux(fresh, bus.aw.payload.len + 1, 0))[:8], "offered")
    moves = bench.value(bus.w.valid & bus.w.ready, "moves")
    sync += [before.eq(offered), moved.eq(moved + moves)]
    bench.require("bursts_are_requests", offered <= requested)
    bench.assume(~bus.w.ready | (moved < offered))

    pick, watching = bench.free(1, "pick"), Signal(name="watching")
    first, end = Signal(8, name="first_transfer"), Signal(8, name="end_transfer")
    picked = bench.value(pick & fresh & ~watching, "picked")
    with bench.m.If(picked):
        sync += [watching.eq(1), first.eq(before), end.eq(offered)]
    start, stop = Mux(picked, before, first), Mux(picked, offered, end)
    mine = (watching | picked) & bus.w.valid & (moved >= start) & (moved < stop)
    bench.require("last_ends_bursts", ~mine | (bus.w.payload.last == (moved + 1 == stop)))

    addresses, lasts, answers = (Signal(8, name=n) for n in ("addresses", "lasts", "answers"))
    sync += [
        addresses.eq(addresses + (bus.aw.valid & bus.aw.ready)),
        lasts.eq(lasts + (moves & bus.w.payload.last)),
        answers.eq(answers + (bus.b.valid & bus.b.ready)),
    ]
    bench.assume(~bus.b.valid | ((answers < addresses) & (answers < lasts)))
    bench.assume(_stable(bench, "b", bus.b))
    given = Signal(8, name="given")
    sync += given.eq(given + (dut.port.response.valid & dut.port.response.ready))
    bench.require("answers_are_owed", ~dut.port.response.valid | (given < requested))


def build_reads(bench: Bench) -> None:
    """Two ports, one of them narrow; any requests and stalls."""
    widths = (NARROW, WIDTH)
    dut = bench.add(ReadMaster(widths, WIDTH, BEATS, ID_BITS), "dut")
    ar, sync = dut.bus.ar, bench.m.d.sync
    bench.require("address_is_stable", _stable(bench, "ar", ar))
    bench.require("burst_in_page", _in_page(ar))
    burst, asked = ar.payload, []
    for i, width in enumerate(widths):
        _, requested = _requests(bench, getattr(dut, f"port{i}").request, width)
        total = Signal(8, name=f"total{i}")
        mine = ar.valid & (burst.id == i)
        with bench.m.If(mine & ar.ready):
            sync += total.eq(total + burst.len + 1)
        asked.append(~mine | (total + burst.len + 1 <= requested))
    bench.require("bursts_are_requests", asked[0] & asked[1])
    fits = ((burst.id == 0) & (burst.size == log2(NARROW))) | ((burst.id == 1) & (burst.size == log2(WIDTH)))
    bench.require("identity_is_a_port", ~ar.valid | fits)


def _blinks(channel: str) -> Sabotage:
    def alter(m: Module, outer: Component, inner: Component) -> None:
        own, other = getattr(outer.bus, channel), getattr(inner.bus, channel)
        waited = Signal()
        m.d.sync += waited.eq(other.valid & ~own.ready & ~waited)
        m.d.comb += own.valid.eq(other.valid & ~waited)

    return Sabotage(alter)


def _longer(channel: str) -> Sabotage:
    def alter(m: Module, outer: Component, inner: Component) -> None:
        own, other = getattr(outer.bus, channel), getattr(inner.bus, channel)
        m.d.comb += own.payload.len.eq(Mux(other.payload.len == 1, 2, other.payload.len))

    return Sabotage(alter)


def _early_last(m: Module, outer: Component, inner: Component) -> None:
    m.d.comb += outer.bus.w.payload.last.eq(inner.bus.w.payload.last | (inner.bus.w.payload.strb == 0))


def _answers_twice(m: Module, outer: Component, inner: Component) -> None:
    again = Signal()
    m.d.sync += again.eq(inner.port.response.valid & outer.port.response.ready & ~again)
    m.d.comb += outer.port.response.valid.eq(inner.port.response.valid | again)


def _swapped_size(m: Module, outer: Component, inner: Component) -> None:
    m.d.comb += outer.bus.ar.payload.size.eq(log2(NARROW))


def _faults(channel: str, side: str) -> tuple[Fault, ...]:
    return (
        Fault(
            "address-blinks",
            "an address that waits vanishes for a cycle",
            "address_is_stable",
            _blinks(channel),
            10,
        ),
        Fault(
            "page-crossed",
            "bursts are cut at 8 KiB",
            "burst_in_page",
            Sabotage(replaced={"hw.bus.gather.BOUNDARY": 2 * BOUNDARY}),
            10,
        ),
        Fault(
            "burst-longer",
            f"{side} bursts of two transfers claim three",
            "bursts_are_requests",
            _longer(channel),
            10,
        ),
    )


def _writes(name: str, port: int, faults: tuple[Fault, ...]) -> Proof:
    return Proof(
        f"axi-write-{name}",
        f"AXI4 write master, {name} port",
        WRITES,
        Method.BOUNDED,
        10,
        lambda bench: build_writes(bench, port),
        faults,
    )


def proofs() -> tuple[Proof, ...]:
    """The proofs for the AXI4 masters, with their faults."""
    write_faults = (
        *_faults("aw", "write"),
        Fault("data-blink", "data that wait vanish for a cycle", "data_is_stable", _blinks("w"), 10),
        Fault(
            "last-early",
            "a transfer without strobes ends its burst",
            "last_ends_bursts",
            Sabotage(_early_last),
            10,
        ),
        Fault(
            "answered-twice",
            "answers are given twice",
            "answers_are_owed",
            Sabotage(_answers_twice),
            10,
        ),
    )
    writes = (_writes("narrow", NARROW, ()), _writes("wide", WIDTH, write_faults))
    reads = Proof(
        "axi-read",
        "AXI4 read master",
        READS,
        Method.BOUNDED,
        10,
        build_reads,
        (
            *_faults("ar", "read"),
            Fault(
                "size-swapped",
                "all ports ask for narrow transfers",
                "identity_is_a_port",
                Sabotage(_swapped_size),
                10,
            ),
        ),
    )
    return (*writes, reads)
