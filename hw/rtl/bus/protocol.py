"""The frames between a host and a machine behind a UART (docs/bus.md, "UART protocol"), as data.

Eight data bits, no parity, one stop bit, low bit first; numbers are little-endian.

    request: SYNC_REQUEST, operation, tag, count, address (4 bytes), data (4 * count bytes or none), CRC-32
    reply:   SYNC_REPLY,   status,    tag, count,                    data (4 * count bytes),         CRC-32

`count` is a number of words (0 to 255). A request carries `count` words if bit 0 of its operation is 1. The
CRC is that of zlib over all previous bytes. The device executes a request only when it has all of it with the
right CRC. It replies to every request once, in order; the reply has the tag of the request.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

SYNC_REQUEST = 0xA5
SYNC_REPLY = 0x5A
#: First word of the reply to IDENTIFY: "HD", version of the protocol.
PROTOCOL = 0x4844_0002
#: Maximum number of words in a request or reply.
MAX_WORDS = 255
#: Number of bytes that the device buffers while it executes a request and replies.
RECEIVE_BYTES = 64
#: An incomplete request is dropped after this many bit times without a byte.
TIMEOUT_BITS = 1 << 16

_REQUEST = struct.Struct("<BBBBI")
_REPLY = struct.Struct("<BBBB")
_CRC = struct.Struct("<I")
#: Maximum length of a request in bytes. This many zero bytes always bring the device to the start of a
#: request.
MAX_REQUEST_BYTES = _REQUEST.size + 4 * MAX_WORDS + _CRC.size


@dataclass(frozen=True)
class Serial:
    """Parameters of a top with a UART: bytes of memory, clock in Hz, bits per second.

    The device drops a request that is incomplete when `timeout_bits` bit times have passed without a byte.
    """

    memory_bytes: int
    clock_hz: int
    baud: int
    timeout_bits: int = TIMEOUT_BITS


class Operation(enum.IntEnum):
    """The operation of a request; bit 0: the request carries `count` words.

    `IDENTIFY` returns the words of `Identity` and ends the state `LOST`. `RESET` resets machine and buses;
    memory keeps its contents. `*_CSR` and `*_MEMORY` access `count` words at successive addresses;
    `WRITE_CSR_FIXED` writes all words to one register. Words of memory are written whole.
    """

    IDENTIFY = 0x02
    RESET = 0x04
    READ_CSR = 0x10
    WRITE_CSR = 0x11
    WRITE_CSR_FIXED = 0x13
    READ_MEMORY = 0x20
    WRITE_MEMORY = 0x21

    @property
    def carries_data(self) -> bool:
        """Whether the request has words after the address."""
        return bool(self & 1)


class Status(enum.IntEnum):
    """The status of a request.

    The words of the reply are: for `OK`, the data read (none for writes and `RESET`); for `SLVERR` and
    `DECERR`, the address of the word that failed (the words before it are done, those after it are not);
    otherwise none. The tag of `BAD_CRC` and `TIMEOUT` is the one received and may be wrong.
    """

    OK = 0
    SLVERR = 1  # the bus refused the access
    DECERR = 2  # the bus has nothing at this address
    BAD_REQUEST = 3  # unknown operation, count 0, or an address that is not a multiple of 4
    BAD_CRC = 4
    TIMEOUT = 5  # the request was not complete in time
    LOST = 6  # not executed, because earlier bytes were lost; IDENTIFY ends this


class Identity(NamedTuple):
    """The words of the reply to IDENTIFY."""

    protocol: int
    memory_bytes: int
    clock_hz: int
    baud: int
    timeout_bits: int
    receive_bytes: int


@dataclass(frozen=True)
class Request:
    """A request from the host. `count` is used for reads; a write has as many words as `words`."""

    operation: int
    tag: int = 0
    address: int = 0
    words: tuple[int, ...] = ()
    count: int = 0


@dataclass(frozen=True)
class Reply:
    """A reply from the device."""

    status: int
    tag: int = 0
    words: tuple[int, ...] = ()


def encode_request(request: Request) -> bytes:
    """Encodes a request as bytes; raises `ValueError` if a field does not fit."""
    count = len(request.words) if request.operation & 1 else request.count
    if not 0 <= count <= MAX_WORDS:
        raise ValueError(f"a request must have at most {MAX_WORDS} words, not {count}")
    head = _REQUEST.pack(SYNC_REQUEST, request.operation, request.tag, count, request.address)
    return _with_crc(head + (_words(request.words) if request.operation & 1 else b""))


def encode_reply(reply: Reply) -> bytes:
    """Encodes a reply as bytes."""
    return _with_crc(_REPLY.pack(SYNC_REPLY, reply.status, reply.tag, len(reply.words)) + _words(reply.words))


def decode_replies(received: bytes) -> tuple[list[Reply], bytes]:
    """The replies in a stream of bytes, and the remaining bytes of an incomplete one.

    Skips bytes that belong to no reply with a correct CRC.
    """
    replies: list[Reply] = []
    at = 0
    while (at := received.find(SYNC_REPLY, at)) >= 0:
        if len(received) < at + _REPLY.size:
            return replies, received[at:]
        _, status, tag, count = _REPLY.unpack_from(received, at)
        end = at + _REPLY.size + 4 * count
        if len(received) < end + _CRC.size:
            return replies, received[at:]
        if _CRC.unpack_from(received, end)[0] != zlib.crc32(received[at:end]):
            at += 1
            continue
        replies.append(Reply(status, tag, struct.unpack_from(f"<{count}I", received, at + _REPLY.size)))
        at = end + _CRC.size
    return replies, b""


def _words(words: Iterable[int]) -> bytes:
    return b"".join(_CRC.pack(word) for word in words)


def _with_crc(body: bytes) -> bytes:
    return body + _CRC.pack(zlib.crc32(body))
