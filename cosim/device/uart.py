"""A machine at the other end of a serial line: the host's side of `hw.rtl.bus.protocol`."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from typing import Any, Protocol

from cosim.device.bus import BusError, UncertainError, check_range
from hw.rtl.bus import protocol
from hw.rtl.bus.protocol import Identity, Operation, Reply, Request, Status

BAUD = 115_200
#: Attempts before a request is given up.
ATTEMPTS = 12
#: Bits of a byte on the line.
_FRAME_BITS = 10
#: Answers that mean: not executed, ask again.
_AGAIN = {Status.BAD_CRC, Status.TIMEOUT, Status.LOST}


class Line(Protocol):
    """What is used of `serial.Serial`."""

    timeout: float | None

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes, fewer after `timeout` seconds."""

    def write(self, data: bytes, /) -> int | None:
        """Send bytes."""

    def close(self) -> None:
        """Give the line free."""


class Clock(Protocol):
    """What is used of the module `time`."""

    def monotonic(self) -> float:
        """Seconds since some moment."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


def open_line(port: str, baud: int) -> Line:
    """Open a serial port, for this process alone; raises `BusError` when that cannot be."""
    try:
        import serial  # only who has a serial line needs it
    except ImportError:
        raise BusError("pyserial must be installed for serial ports: pip install pyserial") from None
    try:
        line: Line = serial.serial_for_url(port, baudrate=baud, exclusive=True)
    except (OSError, ValueError) as error:
        raise BusError(f"{port}: the serial port cannot be opened at {baud} baud: {error}") from None
    return line


class UartBus:
    """A `cosim.device.Bus` over a serial line.

    `port` is a path, a URL of pyserial, or a line that is open; `patience` the seconds by which an answer may
    come later than the bytes take on the line, by `clock`. Requests are repeated after errors, up to
    `ATTEMPTS` times, unless they might have been executed and must not be twice (`UncertainError`). Raises
    `BusError` when the port cannot be opened or what is there does not answer. `repeats` counts what had to
    be repeated.
    """

    def __init__(self, port: str | Line, baud: int = BAUD, patience: float = 0.5, clock: Clock = time):
        if baud <= 0:
            raise BusError(f"the baud rate must be positive, not {baud}")
        self._name = port if isinstance(port, str) else "the line"
        self._line = open_line(port, baud) if isinstance(port, str) else port
        self._byte_seconds = _FRAME_BITS / baud
        self._patience = patience
        self._clock = clock
        self._baud = baud
        self._tag = 0
        self._rest = b""
        self.repeats = 0
        try:
            self.identity = self._connect()
        except BaseException:
            self._line.close()
            raise
        self.memory_bytes = self.identity.memory_bytes
        self.base = 0

    def read_csr(self, offset: int, count: int = 1) -> list[int]:
        """See `Bus`."""
        return self._read(Operation.READ_CSR, offset, count)

    def write_csr(self, offset: int, words: Sequence[int]) -> None:
        """See `Bus`."""
        for at in range(0, len(words), protocol.MAX_WORDS):
            part = tuple(words[at : at + protocol.MAX_WORDS])
            self._request(Operation.WRITE_CSR_FIXED, offset, part)

    def read_memory(self, address: int, size: int) -> bytes:
        """See `Bus`."""
        check_range(self, address, size)
        first = address // 4
        words = self._read(Operation.READ_MEMORY, 4 * first, (address + size + 3) // 4 - first)
        data = struct.pack(f"<{len(words)}I", *words)
        return data[address - 4 * first :][:size]

    def write_memory(self, address: int, data: bytes) -> None:
        """See `Bus`."""
        check_range(self, address, len(data))
        before, after = address % 4, -(address + len(data)) % 4
        if before:
            data = self.read_memory(address - before, before) + data
        if after:
            data += self.read_memory(address - before + len(data), after)
        words = struct.unpack(f"<{len(data) // 4}I", data)
        for at in range(0, len(words), protocol.MAX_WORDS):
            part = words[at : at + protocol.MAX_WORDS]
            self._request(Operation.WRITE_MEMORY, address - before + 4 * at, part)

    def reset(self) -> None:
        """Reset machine and buses; the memory keeps its contents."""
        self._request(Operation.RESET, 0)

    def idle(self) -> None:
        """See `Bus`; nothing to do, as asking takes time enough."""

    def close(self) -> None:
        """See `Bus`."""
        self._line.close()

    def _read(self, operation: Operation, address: int, count: int) -> list[int]:
        words: list[int] = []
        while len(words) < count:
            part = min(count - len(words), protocol.MAX_WORDS)
            words += self._request(operation, address + 4 * len(words), count=part)
        return words

    def _request(
        self, operation: Operation, address: int, words: tuple[int, ...] = (), count: int = 0
    ) -> tuple[int, ...]:
        """The words of the answer to a request that is repeated until it is answered."""
        expected = len(words) if operation.carries_data else count
        for attempt in range(ATTEMPTS):
            if attempt:
                self.repeats += 1
                self._connect()
            reply = self._exchange(operation, address, words, count)
            again = reply is None or reply.status in _AGAIN
            if again and operation is Operation.WRITE_CSR_FIXED:
                self.repeats += 1
                self._connect()
                raise UncertainError(
                    f"{self._name}: no answer to a write of {expected} words to {address:#x}: whether they "
                    "were taken is not known"
                )
            if reply is None or again:
                continue
            if reply.status == Status.OK:
                return reply.words
            raise self._refused(operation, address, reply)
        raise BusError(f"{self._name}: {operation.name} at {address:#x} failed {ATTEMPTS} times")

    def _refused(self, operation: Operation, address: int, reply: Reply) -> BusError:
        name = Status(reply.status).name if reply.status in set(Status) else f"status {reply.status}"
        at = reply.words[0] if reply.words else address
        return BusError(f"{self._name}: {operation.name} at {at:#x} was answered with {name}")

    def _exchange(
        self, operation: Operation, address: int, words: tuple[int, ...] = (), count: int = 0
    ) -> Reply | None:
        """The answer to one request; None when none came that is whole."""
        self._tag = (self._tag + 1) % 256
        frame = protocol.encode_request(Request(operation, self._tag, address, words, count))
        answer = protocol.encode_reply(Reply(0, 0, (0,) * (count or len(Identity._fields))))
        seconds = (len(frame) + len(answer)) * self._byte_seconds + self._patience
        self._send(frame)
        end = self._clock.monotonic() + seconds
        while (left := end - self._clock.monotonic()) > 0:
            replies, self._rest = protocol.decode_replies(self._rest + self._receive(left))
            for reply in replies:
                if reply.tag == self._tag and self._fits(operation, count, reply):
                    return reply
                if reply.status in _AGAIN and operation is not Operation.IDENTIFY:
                    return reply  # its tag may be wrong; what it answers was not executed
        self._rest = b""
        return None

    @staticmethod
    def _fits(operation: Operation, count: int, reply: Reply) -> bool:
        """Whether an answer has as many words as was asked for."""
        if reply.status != Status.OK:
            return True
        return len(reply.words) == (len(Identity._fields) if operation is Operation.IDENTIFY else count)

    def _connect(self) -> Identity:
        """Bring both ends to the start of a request, and learn what is there."""
        for attempt in range(ATTEMPTS):
            self.repeats += attempt > 0
            if attempt > 1:
                # A lost byte is made good by the first attempt; this ends whatever request the device is in.
                self._send(bytes(protocol.MAX_REQUEST_BYTES))
                self._clock.sleep(protocol.MAX_REQUEST_BYTES * self._byte_seconds)
                self._drain()
            reply = self._exchange(Operation.IDENTIFY, 0)
            if reply is not None and reply.status == Status.OK:
                identity = Identity(*reply.words)
                if identity.protocol != protocol.PROTOCOL:
                    raise BusError(
                        f"{self._name}: the protocol must be {protocol.PROTOCOL:#010x}, "
                        f"not {identity.protocol:#010x}"
                    )
                return identity
        raise BusError(
            f"{self._name}: no machine answers at {self._baud} baud: check port, baud rate and cable, and "
            "that the board holds the top with the UART"
        )

    def _drain(self) -> None:
        """Forget all that comes until the line is silent."""
        end = self._clock.monotonic() + 4 * self._patience
        while self._receive(self._patience / 10) and self._clock.monotonic() < end:
            pass
        self._rest = b""

    def _send(self, data: bytes) -> None:
        try:
            self._line.write(data)
        except OSError as error:
            raise self._gone(error) from None

    def _receive(self, seconds: float) -> bytes:
        """Some bytes, or none after so many seconds."""
        try:
            self._line.timeout = seconds
            first = self._line.read(1)
            waiting: Any = getattr(self._line, "in_waiting", 0)
            return first + self._line.read(waiting) if first and waiting else first
        except OSError as error:
            raise self._gone(error) from None

    def _gone(self, error: OSError) -> BusError:
        return BusError(f"{self._name}: the serial port failed: {error}")
