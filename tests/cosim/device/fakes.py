"""A machine that only has registers and memory, and a line to it that speaks the UART protocol."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence

from cosim.device.bus import check_range
from hw import csr
from hw.config import MachineConfig
from hw.rtl.bus import protocol
from hw.rtl.bus.protocol import Identity, Operation, Reply, Request, Status


def decode_request(frame: bytes) -> Request | None:
    """The request that these bytes are; None if they are not one whole request with the right CRC."""
    head, check = protocol._REQUEST, protocol._CRC
    if len(frame) < head.size + check.size or frame[0] != protocol.SYNC_REQUEST:
        return None
    _, operation, tag, count, address = head.unpack_from(frame)
    end = head.size + (4 * count if operation & 1 else 0)
    if len(frame) != end + check.size or check.unpack_from(frame, end)[0] != zlib.crc32(frame[:end]):
        return None
    words = struct.unpack_from(f"<{count}I", frame, head.size) if operation & 1 else ()
    return Request(operation, tag, address, words, count)


class FakeBus:
    """A `Bus` on plain memory; `done` is what STATUS says after a start. `log` holds all writes."""

    def __init__(self, config: MachineConfig, memory_bytes: int = 1 << 16, done: int = 0b10010):
        self.registers = {r.offset: 0 for r in csr.registers(config)}
        self.at = {r.name: r.offset for r in csr.registers(config)}
        self.memory = bytearray(b"\xee" * memory_bytes)
        self.log: list[tuple[str, int]] = []
        self.set("ID", csr.IDENTIFICATION)
        self.set("VERSION", csr.VERSION)
        self.set("HASH_LOW", int(config.hash[8:], 16))
        self.set("HASH_HIGH", int(config.hash[:8], 16))
        for name, value in csr.capabilities(config).items():
            self.set(f"CONFIG_{name.upper()}", value)
        self._done = done
        self.idles = 0
        self.base = 0

    def set(self, name: str, value: int) -> None:
        self.registers[self.at[name]] = value

    @property
    def memory_bytes(self) -> int:
        return len(self.memory)

    def read_csr(self, offset: int, count: int = 1) -> list[int]:
        return [self.registers[offset + 4 * i] for i in range(count)]

    def write_csr(self, offset: int, words: Sequence[int]) -> None:
        name = next(n for n, o in self.at.items() if o == offset)
        for word in words:
            self.log.append((name, word))
            self.registers[offset] = word
            if name == "CONTROL":
                self.set("STATUS", self._done if word == 1 << csr.START else 0b10000)

    def read_memory(self, address: int, size: int) -> bytes:
        check_range(self, address, size)
        return bytes(self.memory[address : address + size])

    def write_memory(self, address: int, data: bytes) -> None:
        check_range(self, address, len(data))
        self.memory[address : address + len(data)] = data

    def idle(self) -> None:
        self.idles += 1

    def close(self) -> None:
        self.log.append(("closed", 0))


class FakeLine:
    """A serial line to a `FakeBus`; `down` and `up` may change the bytes of each write and of each answer.

    It is its own clock: time passes when nothing comes.
    """

    timeout: float | None = None

    def __init__(
        self,
        bus: FakeBus,
        down: Callable[[bytes], bytes] = lambda data: data,
        up: Callable[[bytes], bytes] = lambda data: data,
    ):
        self.bus, self._down, self._up = bus, down, up
        self._received = b""
        self._answers = b""
        self._seconds = 0.0
        self.requests: list[protocol.Request] = []
        self.closed = False

    @property
    def in_waiting(self) -> int:
        return len(self._answers)

    def write(self, data: bytes) -> int:
        self._received += self._down(data)
        while (reply := self._next()) is not None:
            self._answers += self._up(protocol.encode_reply(reply))
        return len(data)

    def monotonic(self) -> float:
        return self._seconds

    def sleep(self, seconds: float) -> None:
        self._seconds += seconds

    def read(self, size: int) -> bytes:
        if not self._answers:
            self.sleep(self.timeout or 0.0)
        data, self._answers = self._answers[:size], self._answers[size:]
        return data

    def close(self) -> None:
        self.closed = True

    def _next(self) -> Reply | None:
        """The answer to the next request that is whole, as the device gives it."""
        self._received = self._received.lstrip(b"\0")
        if len(self._received) < 8:
            return None
        carries, count = self._received[1] & 1, self._received[3]
        size = 12 + 4 * count * carries
        if len(self._received) < size:
            return None
        frame, self._received = self._received[:size], self._received[size:]
        request = decode_request(frame)
        if request is None:
            return Reply(Status.BAD_CRC, frame[2])
        self.requests.append(request)
        return self._execute(request)

    def _execute(self, r: protocol.Request) -> Reply:
        words: list[int] = []
        match r.operation:
            case Operation.IDENTIFY:
                words += Identity(protocol.PROTOCOL, self.bus.memory_bytes, 1, 1, 1, 64)
            case Operation.READ_CSR if any(
                r.address + 4 * i not in self.bus.registers for i in range(r.count)
            ):
                return Reply(Status.DECERR, r.tag, (r.address,))
            case Operation.READ_CSR:
                words += self.bus.read_csr(r.address, r.count)
            case Operation.WRITE_CSR_FIXED:
                self.bus.write_csr(r.address, r.words)
            case Operation.READ_MEMORY:
                data = self.bus.read_memory(r.address, 4 * r.count)
                words += [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]
            case Operation.WRITE_MEMORY:
                self.bus.write_memory(r.address, b"".join(w.to_bytes(4, "little") for w in r.words))
        return Reply(Status.OK, r.tag, tuple(words))
