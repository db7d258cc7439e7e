"""Proofs of the AXI4 masters: handshakes, bursts within 4 KiB, WLAST, one answer per request."""

from __future__ import annotations

from functools import partial
from unittest import mock

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component

from hw.formal.bench import Bench, Sabotage, blinking
from hw.formal.proof import Fault, Proof, planted
from hw.rtl.bits import log2
from hw.rtl.bus.axi import BOUNDARY, Burst, Resp
from hw.rtl.bus.reader import ReadMaster
from hw.rtl.bus.writer import WriteMaster

#: Sizes of the masters: ports as wide as the bus or half as wide, bursts of up to four transfers.
WIDTH, BEATS, ID_BITS, IDENTITY = 8, 4, 2, 2
NARROW = 4
#: Length of the proofs in cycles.
DEPTH = 11
#: Depths of the queues, small enough to fill up; maximum number of bursts in a bounded proof.
PLACES, MOST_BURSTS = {"DATA_DEPTH": 4, "BURSTS": 2, "NARROW_BURSTS": 2}, 8

_BURST = {
    "address_is_stable": "an offered address (AxVALID) stays unchanged until AxREADY",
    "burst_in_page": "every burst is INCR, aligned and short enough, and does not cross a 4 KiB boundary",
    "bursts_are_requests": "bursts have no more transfers than the port has requested",
    "answer_is_stable": "an answer stays unchanged until the port takes it",
}
WRITES = {
    **_BURST,
    "data_is_stable": "offered data (WVALID) stays unchanged until it is accepted (WREADY)",
    "last_ends_bursts": "WLAST is 1 in the last transfer of each burst and in no other",
    "answers_match_bursts": "the port gets exactly one answer for each transfer of an answered burst, "
    "with the burst's error",
}
READS = {
    **_BURST,
    "identity_is_a_port": "ARID is the number of a port, and the transfers are as wide as that port",
    "answers_match_transfers": "a port gets exactly one answer for each of its transfers that has arrived",
    "answers_match_requests": "the n-th answer to a port carries the error of its n-th transfer and the "
    "bytes that its n-th request named",
}


def _requests(bench: Bench, request: Component, width: int) -> tuple[Value, Value]:
    """Assumes a port with stable, aligned requests; returns the accept event and the requests so far."""
    count = Signal(8)
    bench.assume(bench.keeps(request, "request"))
    bench.assume(Value.cast(request.payload)[: log2(width)] == 0)
    accepted = bench.value(request.valid & request.ready, "accepted")
    bench.m.d.sync += count.eq(count + accepted)
    bench.assume(count != 255)
    return accepted, count


def _in_page(channel: Component) -> Value:
    """Whether an offered burst satisfies the rules of AXI."""
    burst = channel.payload
    size = Value.cast(1 << burst.size)
    inside = (burst.addr[: log2(BOUNDARY)] + ((burst.len + 1) << burst.size)) <= BOUNDARY
    aligned = (burst.addr[:8] & (size - 1)) == 0
    return ~channel.valid | (inside & aligned & (burst.len < BEATS) & (burst.burst == Burst.INCR))


def build_writes(bench: Bench, port: int) -> None:
    """Any requests of a port, any stalls, and any slave that answers the bursts it received.

    AXI lets a slave accept data before their address. Here it is assumed to accept them only once the address
    is offered.
    """
    with mock.patch.multiple("hw.rtl.bus.writer", DATA_DEPTH=PLACES["DATA_DEPTH"], BURSTS=PLACES["BURSTS"]):
        dut = bench.add(WriteMaster(port, WIDTH, BEATS, ID_BITS, IDENTITY), "dut")
    bus, sync = dut.bus, bench.m.d.sync
    _, requested = _requests(bench, dut.port.request, port)
    bench.require("address_is_stable", bench.keeps(bus.aw, "aw"))
    bench.require("data_is_stable", bench.keeps(bus.w, "w"))
    bench.require("burst_in_page", _in_page(bus.aw))

    # Transfers of all bursts whose address has been offered, including this cycle, and data transferred.
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
    bench.assume(bench.keeps(bus.b, "b"))
    _write_answers(bench, dut, fresh, answers)


def _write_answers(bench: Bench, dut: Component, fresh: Value, answers: Value) -> None:
    """Requires one answer per transfer; `fresh` is 1 when a burst is first offered, `answers` counts B."""
    bus, response, sync = dut.bus, dut.port.response, bench.m.d.sync
    lengths = Array(Signal(8, name=f"length{i}") for i in range(MOST_BURSTS))
    errors = Array(Signal(name=f"error{i}") for i in range(MOST_BURSTS))
    bursts, present, given = (Signal(8, name=n) for n in ("bursts", "present_burst", "given"))
    with bench.m.If(fresh):
        sync += [lengths[bursts].eq(bus.aw.payload.len), bursts.eq(bursts + 1)]
    with bench.m.If(bus.b.valid & bus.b.ready):
        sync += errors[answers].eq(bus.b.payload.resp != Resp.OKAY)
    with bench.m.If(response.valid & response.ready):
        ends = given == lengths[present]
        sync += [given.eq(Mux(ends, 0, given + 1)), present.eq(present + ends)]
    error = ~response.valid | (response.payload.error == errors[present])
    bench.require("answers_match_bursts", (response.valid == (present != answers)) & error)
    bench.require("answer_is_stable", bench.keeps(response, "answer"))


def build_reads(bench: Bench) -> None:
    """Two ports, one narrow; any requests and stalls, any slave that answers what it was asked."""
    widths = (NARROW, WIDTH)
    with mock.patch("hw.rtl.bus.reader.NARROW_BURSTS", PLACES["NARROW_BURSTS"]):
        dut = bench.add(ReadMaster(widths, WIDTH, BEATS, ID_BITS), "dut")
    ar, r, sync = dut.bus.ar, dut.bus.r, bench.m.d.sync
    bench.require("address_is_stable", bench.keeps(ar, "ar"))
    bench.require("burst_in_page", _in_page(ar))
    bench.assume(bench.keeps(r, "r"))
    bench.assume(~r.valid | (r.payload.id < len(widths)))
    burst, asked, waiting, right, stable = ar.payload, [], [], [], []
    for i, width in enumerate(widths):
        port = getattr(dut, f"port{i}")
        accepted, requested = _requests(bench, port.request, width)
        total, arrived, ends = Signal(8, name=f"total{i}"), Signal(8, name=f"arrived{i}"), Signal(64)
        mine, comes = ar.valid & (burst.id == i), r.valid & (r.payload.id == i)
        with bench.m.If(mine & ar.ready):
            sync += [
                total.eq(total + burst.len + 1),
                ends.eq(ends | Value.cast(Const(1, 1) << (total + burst.len)[:6])),
            ]
        asked.append(~mine | (total + burst.len + 1 <= requested))
        bench.assume(~comes | ((arrived < total) & (r.payload.last == ends.bit_select(arrived, 1))))
        given = Signal(8, name=f"given{i}")
        sync += [arrived.eq(arrived + (comes & r.ready)), given.eq(given + _moves(port.response))]
        waiting.append(arrived - given)
        numbers = (requested, arrived, given)
        right.append(
            _follow(bench, i, port, r, (accepted, bench.value(comes & r.ready, f"moves{i}")), numbers)
        )
        stable.append(bench.keeps(port.response, f"answer{i}"))
    bench.require("bursts_are_requests", asked[0] & asked[1])
    answers = [getattr(dut, f"port{i}").response.valid for i in range(len(widths))]
    none_lost = Cat(*answers).any() == (waiting[0] + waiting[1] != 0)
    owed = Cat(~a | (w > 0) for a, w in zip(answers, waiting, strict=True)).all()
    bench.require("answers_match_transfers", none_lost & owed)
    bench.require("answers_match_requests", Cat(*right).all())
    bench.require("answer_is_stable", Cat(*stable).all())
    fits = ((burst.id == 0) & (burst.size == log2(NARROW))) | ((burst.id == 1) & (burst.size == log2(WIDTH)))
    bench.require("identity_is_a_port", ~ar.valid | fits)


def _moves(channel: Component) -> Value:
    return Value.cast(channel.valid & channel.ready)


def _follow(
    bench: Bench,
    i: int,
    port: Component,
    r: Component,
    events: tuple[Value, Value],
    numbers: tuple[Value, Value, Value],
) -> Value:
    """Follows an arbitrary request of a port; returns whether its answer is the transfer of its number.

    `events` are the acceptance of a request and the arrival of a transfer; `numbers` count the requests,
    transfers and answers so far.
    """
    (accepted, comes), (requested, arrived, given), sync = events, numbers, bench.m.d.sync
    data, width = port.response.payload.data, len(port.response.payload.data)
    lanes = 8 * WIDTH // width
    watching, index = Signal(name=f"watching{i}"), Signal(8, name=f"watched{i}")
    lane = Signal(range(max(2, lanes)), name=f"watched_lane{i}")
    word, error = Signal(width, name=f"watched_word{i}"), Signal(name=f"watched_error{i}")
    with bench.m.If(accepted & bench.free(1, f"pick{i}") & ~watching):
        address = Value.cast(port.request.payload)
        sync += [watching.eq(1), index.eq(requested), lane.eq((address >> log2(width // 8)) % lanes)]
    with bench.m.If(comes & watching & (arrived == index)):
        sync += [word.eq(r.payload.data.word_select(lane, width)), error.eq(r.payload.resp != Resp.OKAY)]
    same = (data == word) & (port.response.payload.error == error)
    return Value.cast(~(port.response.valid & watching & (given == index)) | same)


def _longer(channel: str) -> Sabotage:
    def alter(m: Module, outer: Component, inner: Component) -> None:
        own, other = getattr(outer.bus, channel), getattr(inner.bus, channel)
        m.d.comb += own.payload.len.eq(Mux(other.payload.len == 1, 2, other.payload.len))

    return Sabotage(alter)


def _early_last(m: Module, outer: Component, inner: Component) -> None:
    """A transfer without strobes ends its burst."""
    m.d.comb += outer.bus.w.payload.last.eq(inner.bus.w.payload.last | (inner.bus.w.payload.strb == 0))


def _answers_twice(m: Module, outer: Component, inner: Component) -> None:
    """Answers are given twice."""
    again = Signal()
    m.d.sync += again.eq(inner.port.response.valid & outer.port.response.ready & ~again)
    m.d.comb += outer.port.response.valid.eq(inner.port.response.valid | again)


def _errors_lost(m: Module, outer: Component, inner: Component) -> None:
    """Answers with an error are lost."""
    m.d.comb += inner.bus.b.valid.eq(outer.bus.b.valid & (outer.bus.b.payload.resp == Resp.OKAY))


def _transfer_lost(m: Module, outer: Component, inner: Component) -> None:
    """Transfers with an error are lost."""
    m.d.comb += inner.bus.r.valid.eq(outer.bus.r.valid & (outer.bus.r.payload.resp == Resp.OKAY))


def _lowest_lane(m: Module, outer: Component, inner: Component) -> None:
    """The narrow port always gets the lowest bytes of the bus."""
    data = outer.bus.r.payload.data
    m.d.comb += outer.port0.response.payload.data.eq(data[: 8 * NARROW])


def _swapped_size(m: Module, outer: Component, inner: Component) -> None:
    """All ports request narrow transfers."""
    m.d.comb += outer.bus.ar.payload.size.eq(log2(NARROW))


def _faults(channel: str, side: str, *answers: str) -> tuple[Fault, ...]:
    address_blinks = blinking("A waiting address disappears for a cycle.", f"bus.{channel}")
    answer_blinks = blinking("An answer that is not taken disappears for a cycle.", *answers)
    claim = f"{side} bursts of two transfers announce three"
    later = Sabotage(replaced={"hw.rtl.bus.gather.BOUNDARY": 2 * BOUNDARY})
    return (
        planted("address-blinks", "address_is_stable", address_blinks, DEPTH),
        Fault("page-crossed", "bursts are cut at 8 KiB", "burst_in_page", later, DEPTH),
        Fault("burst-longer", claim, "bursts_are_requests", _longer(channel), DEPTH),
        planted("answer-blinks", "answer_is_stable", answer_blinks, DEPTH),
    )


def _writes(name: str, port: int, faults: tuple[Fault, ...]) -> Proof:
    title, build = f"AXI4 write master, {name} port", partial(build_writes, port=port)
    return Proof(f"axi-write-{name}", title, WRITES, build, faults, bounded=DEPTH)


def proofs() -> tuple[Proof, ...]:
    """The proofs for the AXI4 masters, with their faults."""
    data_blinks = blinking("Waiting data disappears for a cycle.", "bus.w")
    write_faults = (
        *_faults("aw", "write", "port.response"),
        planted("data-blink", "data_is_stable", data_blinks, DEPTH),
        planted("last-early", "last_ends_bursts", _early_last, DEPTH),
        planted("answered-twice", "answers_match_bursts", _answers_twice, DEPTH),
        planted("error-lost", "answers_match_bursts", _errors_lost, DEPTH),
    )
    writes = (_writes("narrow", NARROW, write_faults), _writes("wide", WIDTH, write_faults))
    faults = (
        *_faults("ar", "read", "port0.response", "port1.response"),
        planted("size-swapped", "identity_is_a_port", _swapped_size, DEPTH),
        planted("transfer-lost", "answers_match_transfers", _transfer_lost, DEPTH),
        planted("lane-fixed", "answers_match_requests", _lowest_lane, DEPTH),
    )
    reads = Proof("axi-read", "AXI4 read master", READS, build_reads, faults, bounded=DEPTH)
    return (*writes, reads)
