"""The frame engine, byte by byte, against a model of the protocol."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from amaranth.sim import Simulator

from hw.rtl.bus.axi import Resp
from hw.rtl.bus.frames import FrameEngine
from hw.rtl.bus.protocol import (
    MAX_REQUEST_BYTES,
    MAX_WORDS,
    PROTOCOL,
    SYNC_REQUEST,
    Identity,
    Operation,
    Reply,
    Request,
    Status,
    decode_replies,
    encode_reply,
    encode_request,
)
from tests.cosim.device.fakes import decode_request
from tests.hw.rtl.bus.bench import Pauses, plain, put, sink

IDENTITY = Identity(PROTOCOL, 1 << 16, 50_000_000, 1_000_000, 200, 64)


def resp(address: int) -> Resp:
    """The fourth KiB refuses, there is nothing from the eighth on."""
    if address >= 0x2000:
        return Resp.DECERR
    return Resp.SLVERR if 0x1000 <= address < 0x1400 else Resp.OKAY


@dataclass
class Device:
    """What a device does with requests: the model."""

    words: dict[tuple[bool, int], int] = field(default_factory=dict)
    lost: bool = False
    resets: int = 0

    def access(self, memory: bool, address: int, value: int | None) -> tuple[int, Resp]:
        answer = resp(address)
        if answer == Resp.OKAY and value is not None:
            # A register counts what it is given, so that order and number of writes to one address show.
            old = 0 if memory else self.words.get((memory, address), 0) * 3
            self.words[memory, address] = (old + value) % (1 << 32)
        return (self.words.get((memory, address), address) if answer == Resp.OKAY else 0), answer

    def execute(self, request: Request) -> Reply:
        operation, count = request.operation, request.count
        if operation == Operation.IDENTIFY:
            self.lost = False
            return Reply(Status.OK, request.tag, tuple(IDENTITY))
        if self.lost:
            return Reply(Status.LOST, request.tag)
        if operation == Operation.RESET:
            self.resets += 1
            return Reply(Status.OK, request.tag)
        if operation not in list(Operation) or count == 0 or request.address % 4:
            return Reply(Status.BAD_REQUEST, request.tag)
        memory = operation in (Operation.READ_MEMORY, Operation.WRITE_MEMORY)
        read, step = [], 0 if operation == Operation.WRITE_CSR_FIXED else 4
        for i in range(count):
            address = (request.address + i * step) % (1 << 32)
            value, answer = self.access(memory, address, request.words[i] if operation & 1 else None)
            if answer != Resp.OKAY:
                status = Status.DECERR if answer == Resp.DECERR else Status.SLVERR
                return Reply(status, request.tag, (address,))
            read.append(value)
        return Reply(Status.OK, request.tag, () if operation & 1 else tuple(read))


class Line:
    """A frame engine in simulation: bytes go in, replies come out."""

    def __init__(self, seed: int = 0, chance: float = 0.0):
        self.engine = engine = FrameEngine(IDENTITY)
        self.device = Device()
        self.pauses = Pauses(seed, chance)
        self.sent = bytearray()
        self.resets = 0
        self.simulator = Simulator(engine)
        self.simulator.add_clock(1e-6)

        async def accesses(ctx: Any) -> None:
            while True:
                while self.pauses():
                    await ctx.tick()
                ctx.set(engine.access.ready, 1)
                _, _, valid, payload = await ctx.tick().sample(engine.access.valid, engine.access.payload)
                ctx.set(engine.access.ready, 0)
                if valid:
                    p = plain(payload)
                    value = p["data"] if p["write"] else None
                    data, answer = self.device.access(bool(p["memory"]), p["address"], value)
                    while self.pauses():
                        await ctx.tick()
                    await put(ctx, engine.answer, {"data": data, "resp": answer})

        async def replies(ctx: Any) -> None:
            await sink(ctx, engine.sent, Pauses(seed + 1, chance), self.sent.append)

        async def resets(ctx: Any) -> None:
            before = 0
            while True:
                _, _, now = await ctx.tick().sample(engine.reset)
                self.resets += int(now and not before)
                before = now

        for bench in (accesses, replies, resets):
            self.simulator.add_testbench(bench, background=True)

    def run(self, body: Any) -> list[Reply]:
        async def bench(ctx: Any) -> None:
            ctx.set(self.engine.tick, 1)
            await body(ctx)

        self.simulator.add_testbench(bench)
        self.simulator.run()
        replies, rest = decode_replies(bytes(self.sent))
        assert rest == b""
        assert b"".join(encode_reply(r) for r in replies) == bytes(self.sent), "nothing but replies"
        return replies

    async def send(self, ctx: Any, data: bytes) -> None:
        for byte in data:
            while self.pauses():
                await ctx.tick()
            await put(ctx, self.engine.received, byte)

    async def settle(self, ctx: Any, cycles: int = 100) -> None:
        """Until nothing has been sent for some cycles."""
        seen, quiet = -1, 0
        while quiet < cycles:
            await ctx.tick()
            quiet = quiet + 1 if len(self.sent) == seen else 0
            seen = len(self.sent)


def some_request(r: random.Random, tag: int) -> Request:
    operation = r.choice([*Operation, *Operation, 0x41, 0x33, 0x00, 0x21])
    count = r.choice([0, 1, 2, 5, r.randrange(12)])
    address = r.choice([r.randrange(0, 0x1000, 4), 0x1000 - 8, 0x2000 - 12, r.randrange(1 << 32), 0xFFFFFFF8])
    words = tuple(r.choice([r.getrandbits(32), 0xA5A5A5A5]) for _ in range(count)) if operation & 1 else ()
    return Request(operation, tag, address, words, count)


@pytest.mark.parametrize(("seed", "chance"), [(1, 0.0), (2, 0.3), (3, 0.7)])
def test_random_requests_are_executed_and_answered_as_the_model_says(seed: int, chance: float) -> None:
    r = random.Random(seed)
    requests = [some_request(r, i) for i in range(40)]
    line, model = Line(seed, chance), Device()

    async def body(ctx: Any) -> None:
        await line.send(ctx, b"".join(map(encode_request, requests)))
        await line.settle(ctx)

    assert line.run(body) == [model.execute(request) for request in requests]
    assert line.device.words == model.words
    assert line.resets == model.resets > 0


def test_the_longest_requests_and_replies() -> None:
    r = random.Random(5)
    words = tuple(r.getrandbits(32) for _ in range(MAX_WORDS))
    line = Line()

    async def body(ctx: Any) -> None:
        await line.send(ctx, encode_request(Request(Operation.WRITE_MEMORY, 1, 0x100, words)))
        await line.send(ctx, encode_request(Request(Operation.READ_MEMORY, 2, 0x100, count=MAX_WORDS)))
        await line.settle(ctx, 2000)

    assert line.run(body) == [Reply(Status.OK, 1), Reply(Status.OK, 2, words)]


def test_after_a_loss_nothing_is_executed_before_identify() -> None:
    """A changed byte, a byte too many: what follows is refused, not executed."""
    write = encode_request(Request(Operation.WRITE_MEMORY, 9, 0x40, (1, 2)))
    identify = encode_request(Request(Operation.IDENTIFY, 7))
    broken = bytearray(write)
    broken[9] ^= 4
    for first, statuses in ((bytes(broken), [Status.BAD_CRC]), (b"\x00", [])):
        line = Line()

        async def body(ctx: Any, line: Line = line, first: bytes = first) -> None:
            await line.send(ctx, first + write + identify)
            await line.settle(ctx)
            assert line.device.words == {}
            await line.send(ctx, write)
            await line.settle(ctx)

        got = line.run(body)
        assert [reply.status for reply in got] == [*statuses, Status.LOST, Status.OK, Status.OK]
        assert line.device.words == {(True, 0x40): 1, (True, 0x44): 2}


def test_a_dropped_byte_refuses_what_follows() -> None:
    line = Line()

    async def body(ctx: Any) -> None:
        ctx.set(line.engine.dropped, 1)
        await ctx.tick()
        ctx.set(line.engine.dropped, 0)
        await line.send(ctx, encode_request(Request(Operation.READ_CSR, 1, 0, count=1)))
        await line.settle(ctx)

    assert line.run(body) == [Reply(Status.LOST, 1)]


@pytest.mark.parametrize("cut", [1, 2, 7, 8, 9, 14, 19])
def test_part_of_a_request_times_out(cut: int) -> None:
    whole = encode_request(Request(Operation.WRITE_MEMORY, 3, 0x40, (1, 2)))
    line = Line()

    async def body(ctx: Any) -> None:
        await line.send(ctx, whole[:cut])
        for _ in range(IDENTITY.timeout_bits - 10):
            await ctx.tick()
        assert not line.sent
        await line.settle(ctx)
        await line.send(ctx, encode_request(Request(Operation.IDENTIFY, 4)) + whole)
        await line.settle(ctx)

    timeout, *others = line.run(body)
    assert (timeout.status, timeout.words) == (Status.TIMEOUT, ())
    assert others == [Reply(Status.OK, 4, tuple(IDENTITY)), Reply(Status.OK, 3)]


def test_zeros_bring_the_device_to_the_start_of_a_request() -> None:
    """Whatever it waits for, the most bytes of a request as zeros end it, without a time-out."""
    r = random.Random(11)
    for _ in range(2):
        garbage = bytes([SYNC_REQUEST, *r.randbytes(r.randrange(30))])
        line = Line()

        async def body(ctx: Any, line: Line = line, garbage: bytes = garbage) -> None:
            await line.send(ctx, garbage + bytes(MAX_REQUEST_BYTES))
            await line.send(ctx, encode_request(Request(Operation.IDENTIFY, 77)))
            await line.settle(ctx)

        got = line.run(body)
        assert got[-1] == Reply(Status.OK, 77, tuple(IDENTITY))
        assert all(reply.status == Status.BAD_CRC for reply in got[:-1])


def test_requests_and_replies_are_read_back_from_their_bytes() -> None:
    r = random.Random(3)
    for tag in range(50):
        request = some_request(r, tag)
        frame = encode_request(request)
        assert decode_request(frame) == request
        assert decode_request(frame[:-1]) is None
        assert decode_request(bytes([*frame[:5], frame[5] ^ 1, *frame[6:]])) is None
    replies = [
        Reply(Status.OK, i, tuple(r.getrandbits(32) for _ in range(r.randrange(9)))) for i in range(20)
    ]
    noise = [r.choice([b"", b"\x00", b"\x5a\x00\x00\x00\x00\x00\x00\x00"]) for _ in replies]
    stream = b"".join(n + encode_reply(reply) for n, reply in zip(noise, replies, strict=True))
    for cut in (0, 3, len(stream) // 2, len(stream) - 1):
        first, rest = decode_replies(stream[:cut])
        second, end = decode_replies(rest + stream[cut:])
        assert first + second == replies
        assert end == b""
    with pytest.raises(ValueError, match="at most 255 words, not 256"):
        encode_request(Request(Operation.WRITE_MEMORY, 0, 0, (0,) * 256))
