"""The UART bridge on a line: registers and memory behind it, bytes lost on the way."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

from amaranth.hdl import Module
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped
from amaranth.sim import Simulator

from hw import csr
from hw.config import load
from hw.rtl.bus.bridge import UartBridge
from hw.rtl.bus.lite import LiteSlave
from hw.rtl.bus.protocol import (
    PROTOCOL,
    RECEIVE_BYTES,
    Identity,
    Operation,
    Reply,
    Request,
    Status,
    decode_replies,
    encode_request,
)
from hw.rtl.bus.ram import AxiRam
from hw.rtl.interfaces import HostRequest
from tests.hw.rtl.bus.bench import plain, put

CONFIG = load("test")
CYCLES, SIZE, WIDTH = 4, 4096, 16
IDENTITY = Identity(PROTOCOL, SIZE, 4_000_000, 1_000_000, 100, RECEIVE_BYTES)


class Board(Component):
    """A bridge with memory and registers."""

    def __init__(self) -> None:
        super().__init__(
            {
                "rx": In(1, init=1),
                "tx": Out(1),
                "lost": Out(1),
                "request": Out(stream.Signature(HostRequest)),
                "response": In(stream.Signature(32)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.bridge = bridge = UartBridge(WIDTH, 2, CYCLES, IDENTITY)
        m.submodules.lite = lite = LiteSlave(CONFIG)
        m.submodules.ram = ram = AxiRam(SIZE, WIDTH, 2)
        connect(m, bridge.csr, lite.bus)
        connect(m, bridge.memory, ram.bus)
        connect(m, lite.request, flipped(self.request))
        connect(m, flipped(self.response), lite.response)
        m.d.comb += [bridge.uart_rx.eq(self.rx), self.tx.eq(bridge.uart_tx), self.lost.eq(bridge.lost)]
        return m


Send = Callable[[bytes], Awaitable[None]]


def drive(body: Callable[[Any, Send, Board], Awaitable[None]]) -> tuple[list[Reply], list[dict[str, int]]]:
    """Run a body that sends bytes; returns the replies and the writes of registers."""
    board, line, writes = Board(), [1], []

    async def host(ctx: Any) -> None:
        while True:
            ctx.set(board.request.ready, 1)
            _, _, valid, payload = await ctx.tick().sample(board.request.valid, board.request.payload)
            ctx.set(board.request.ready, 0)
            if valid:
                request = plain(payload)
                if request["write"]:
                    writes.append(request)
                await put(ctx, board.response, request["address"] ^ 0x12345678)

    async def watch(ctx: Any) -> None:
        while True:
            _, _, level = await ctx.tick().sample(board.tx)
            line.append(int(level))

    async def bench(ctx: Any) -> None:
        async def send(data: bytes) -> None:
            for byte in data:
                for level in (0, *(byte >> i & 1 for i in range(8)), 1):
                    ctx.set(board.rx, level)
                    for _ in range(CYCLES):
                        await ctx.tick()

        await body(ctx, send, board)
        quiet = 0
        while quiet < 40 * CYCLES:
            await ctx.tick()
            quiet = quiet + 1 if line[-1] else 0

    simulator = Simulator(board)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    for background in (host, watch):
        simulator.add_testbench(background, background=True)
    simulator.run()
    replies, rest = decode_replies(levels_to_bytes(line))
    assert rest == b""
    return replies, writes


def levels_to_bytes(line: list[int]) -> bytes:
    out, at = bytearray(), 0
    while 0 in line[at:]:
        at = line.index(0, at)
        bits = [line[at + CYCLES * i + CYCLES // 2] for i in range(10)]
        assert (bits[0], bits[9]) == (0, 1)
        out.append(sum(bit << i for i, bit in enumerate(bits[1:9])))
        at += CYCLES * 10 - CYCLES // 2
    return bytes(out)


def test_requests_without_a_wait_between_them_reach_registers_and_memory() -> None:
    """Writes longer than their replies follow each other without a pause; then everything is read back."""
    r = random.Random(7)
    words = tuple(r.getrandbits(32) for _ in range(9))
    program = tuple(r.getrandbits(32) for _ in range(12))
    requests = [
        Request(Operation.IDENTIFY, 1),
        Request(Operation.WRITE_MEMORY, 2, 0x104, words),
        Request(Operation.WRITE_CSR_FIXED, 3, csr.offset(CONFIG, "PROGRAM_DATA"), program),
        Request(Operation.WRITE_CSR, 4, csr.offset(CONFIG, "WINDOW0_FIRST"), (1, 2, 3)),
        Request(Operation.WRITE_MEMORY, 5, SIZE - 4, (11, 12)),
        Request(Operation.WRITE_CSR, 6, 0x0F00, (5,)),
        Request(Operation.WRITE_CSR, 7, 0x10010, (5,)),
        Request(Operation.READ_MEMORY, 8, 0x100, count=11),
    ]

    async def body(ctx: Any, send: Send, board: Board) -> None:
        for request in requests:
            await send(encode_request(request))
        for _ in range(80 * 10 * CYCLES):
            await ctx.tick()
        await send(encode_request(Request(Operation.READ_CSR, 9, 0, count=2)))

    replies, writes = drive(body)
    assert replies == [
        Reply(Status.OK, 1, tuple(IDENTITY)),
        *(Reply(Status.OK, tag) for tag in (2, 3, 4)),
        Reply(Status.DECERR, 5, (SIZE,)),
        Reply(Status.DECERR, 6, (0x0F00,)),
        Reply(Status.DECERR, 7, (0x10010,)),
        Reply(Status.OK, 8, (0, *words, 0)),
        Reply(Status.OK, 9, (0x12345678, 0x1234567C)),
    ]
    at = csr.offset(CONFIG, "WINDOW0_FIRST")
    assert [(w["address"], w["data"]) for w in writes] == [
        *((csr.offset(CONFIG, "PROGRAM_DATA"), word) for word in program),
        *((at + 4 * i, i + 1) for i in range(3)),
    ]


def test_a_framing_error_and_a_missing_byte_are_noticed() -> None:
    write = encode_request(Request(Operation.WRITE_MEMORY, 2, 0x10, (1, 2)))

    async def body(ctx: Any, send: Send, board: Board) -> None:
        await send(encode_request(Request(Operation.IDENTIFY, 1)))
        await send(write[:9] + write[10:] + write)  # the second one comes too early: not executed
        for _ in range(200 * CYCLES):
            await ctx.tick()
        assert ctx.get(board.lost)
        await send(bytes(40) + encode_request(Request(Operation.IDENTIFY, 3)))
        for _ in range(400 * CYCLES):
            await ctx.tick()
        assert not ctx.get(board.lost)
        ctx.set(board.rx, 0)  # the line breaks for a while
        for _ in range(30 * CYCLES):
            await ctx.tick()
        ctx.set(board.rx, 1)
        for _ in range(2 * CYCLES):
            await ctx.tick()
        assert ctx.get(board.lost)
        await send(write)

    replies, _ = drive(body)
    assert replies[0] == Reply(Status.OK, 1, tuple(IDENTITY))
    assert replies[-2:] == [Reply(Status.OK, 3, tuple(IDENTITY)), Reply(Status.LOST, 2)]
    assert {reply.status for reply in replies[1:-2]} <= {Status.BAD_CRC, Status.TIMEOUT}
    assert len(replies) > 3
