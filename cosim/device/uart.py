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
#: Attempts before a request is abandoned.
ATTEMPTS = 12
#: Bits on the line per byte.
_FRAME_BITS = 10
#: Replies that mean: not executed, send again.
_AGAIN = {Status.BAD_CRC, Status.TIMEOUT, Status.LOST}


class Line(Protocol):
    """The part of `serial.Serial` that is used."""

    timeout: float | None

    def read(self, size: int, /) -> bytes:
        """Read at most `size` bytes, fewer after `timeout` seconds."""

    def write(self, data: bytes, /) -> int | None:
        """Send bytes."""

    def close(self) -> None:
        """Close the line."""


class Clock(Protocol):
    """The part of the module `time` that is used."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


def open_line(port: str, baud: int) -> Line:
    """Open a serial port for exclusive use; raises `BusError` if that fails."""
    try:
        import serial  # only needed for a serial line
    except ImportError:
        raise BusError("pyserial must be installed for serial ports: pip install pyserial") from None
    try:
        line: Line = serial.serial_for_url(port, baudrate=baud, exclusive=True)
    except (OSError, ValueError) as error:
        raise BusError(f"{port}: the serial port cannot be opened at {baud} baud: {error}") from None
    return line


class UartBus:
    """A `cosim.device.Bus` over a serial line.

    `port` is a path, a pyserial URL, or an open line. `patience` is how many seconds a reply may come later
    than the line's transfer time, as measured by `clock`. Failed requests are repeated up to `ATTEMPTS`
    times, except one that must not be executed twice and may have been executed already (`UncertainError`).
    Raises `BusError` if the port cannot be opened or no machine answers. `repeats` counts the repetitions.
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
        """See `Bus`; does nothing, as polling over the line is slow enough."""

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
        """Send a request until it is answered; returns the words of the reply."""
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
        """Send a request once; returns its reply, or None if no intact reply came."""
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
                    return reply  # its tag may be corrupt; the request was not executed
        self._rest = b""
        return None

    @staticmethod
    def _fits(operation: Operation, count: int, reply: Reply) -> bool:
        """Whether a reply has as many words as the request asked for."""
        if reply.status != Status.OK:
            return True
        return len(reply.words) == (len(Identity._fields) if operation is Operation.IDENTIFY else count)

    def _connect(self) -> Identity:
        """Bring both ends to the start of a request, and identify the device."""
        for attempt in range(ATTEMPTS):
            self.repeats += attempt > 0
            if attempt > 1:
                # The first attempt recovers from a lost byte; this ends any request that the device is still
                # in.
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
        """Discard all input until the line is silent."""
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
        """Some bytes, or none after `seconds` seconds."""
        try:
            self._line.timeout = seconds
            first = self._line.read(1)
            waiting: Any = getattr(self._line, "in_waiting", 0)
            return first + self._line.read(waiting) if first and waiting else first
        except OSError as error:
            raise self._gone(error) from None

    def _gone(self, error: OSError) -> BusError:
        return BusError(f"{self._name}: the serial port failed: {error}")
