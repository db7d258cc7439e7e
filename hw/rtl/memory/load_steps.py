"""The interface between the two halves of a loader: operations, and their steps."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Shape, Signal, signed
from amaranth.lib import data, memory, stream
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import BufferShape, MachineConfig
from hw.rtl.bits import log2, place_bits
from hw.rtl.interfaces import PC_BITS, WARP_BITS
from hw.rtl.memory.buffer import NO_COLLISIONS

#: Steps that the requests may be ahead of the writer. Memory that answers within `MOST_LATENCY` leaves some.
STEPS = 512


def forms_patches(config: MachineConfig, port: str) -> bool:
    """Whether a loader has the hardware of `load_b_conv`."""
    return port == "load_b" and config.convolutions


def loader_target(config: MachineConfig, port: str) -> BufferShape:
    """The buffer that a loader writes."""
    d = config.derived
    return {"load_a": d.buffer_a, "load_b": d.buffer_b, "load_c": d.scratch}[port]


def block_bits(shape: BufferShape, width: int) -> int:
    """Bits of a block's column with which no block that a beat can touch wraps back into the buffer."""
    return place_bits(shape.columns) + 2 + log2(max(1, width // shape.lanes))


def start_bits(shape: BufferShape, width: int) -> int:
    """Bits of the place of a beat's byte 0, seen from its block: a beat may begin that far before its row."""
    return max(log2(width), log2(shape.banks)) + 1


def lane_bits(shape: BufferShape) -> int:
    """Bits of the number of a lane, 1 at least."""
    return max(1, log2(shape.lanes))


def operation_layout(config: MachineConfig, port: str) -> data.StructLayout:
    """What the writer of a loader needs of an operation besides its steps.

    A pitch beyond the buffer is known as such (`hw.rtl.bits.place`). With `lanes_first` the bytes of a beat
    are successive lanes: the `_t` form and patches. Of every step's bytes each `stride`-th is written.
    """
    members = {
        "pitch": place_bits(loader_target(config, port).columns),
        "fill": 8,
        "lanes_first": 1,
        "warp": WARP_BITS,
        "pc": PC_BITS,
    }
    return data.StructLayout(members | ({"stride": isa.KERNEL_BITS} if forms_patches(config, port) else {}))


def step_layout(config: MachineConfig, port: str) -> data.StructLayout:
    """What the writer does in a step: it places the bytes of a beat, or of its patches some.

    Bytes from `write_from` to before `write_to` are written. Byte 0 lies `start` columns, or lanes if these
    come first, behind the first of those that begin in column `block`; in `lane`, or in lane 0. A step that
    `reads` awaits a word of memory; without patches, any other is filled.

    Of patches bytes from `read_from` to before `read_to` are of memory, others are filled; from `used_to` on
    they are of no pixel. Of the rest every stride-th from `skip` on is kept, and of these, as numbered then,
    some are written. A step that does not read has the word of the last one that did.
    """
    shape, width = loader_target(config, port), config.port_bytes(port)
    count = log2(width) + 1
    members = {
        "last": Shape(1),
        "reads": Shape(1),
        "write_from": Shape(count),
        "write_to": Shape(count),
        "start": signed(start_bits(shape, width)),
        "block": Shape(block_bits(shape, width)),
        "lane": Shape(lane_bits(shape)),
    }
    if forms_patches(config, port):
        numbers = dict.fromkeys(("read_from", "read_to", "used_to", "skip"), Shape(count))
        members |= numbers
    return data.StructLayout(members)


class StepQueue(Component):
    """Steps that the requests have made, in order, for the writer: a block RAM.

    **Timing.** What `enters` in cycle t is offered from t + 2 on. `room` is 0 while few places are left, so
    that it may be asked up to three cycles before.
    """

    def __init__(self, width: int):
        self._width = width
        super().__init__(
            {"enters": In(1), "data": In(width), "room": Out(1, init=1), "out": Out(stream.Signature(width))}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.storage = storage = memory.Memory(
            shape=self._width, depth=STEPS, init=[], attrs=NO_COLLISIONS
        )
        writer, reader = storage.write_port(), storage.read_port()
        # `behind` follows `front`, so that whether something leaves, which is known late, chooses only.
        front, behind = Signal(range(STEPS)), Signal(range(STEPS), init=1)
        leaves, entered, filled = Signal(), Signal(), Signal(range(STEPS))
        m.d.comb += [
            leaves.eq(self.out.valid & self.out.ready),
            writer.en.eq(1),  # what does not stay is written over
            writer.data.eq(self.data),
            reader.addr.eq(Mux(leaves, behind, front)),
            filled.eq(writer.addr - front),
            self.out.payload.eq(reader.data),
        ]
        m.d.sync += [
            writer.addr.eq(writer.addr + self.enters),
            front.eq(reader.addr),
            entered.eq(self.enters),
            self.out.valid.eq(Mux(leaves, behind != writer.addr, self.out.valid | entered)),
            self.room.eq(~filled[3:].all()),
        ]
        with m.If(leaves):
            m.d.sync += behind.eq(behind + 1)
        return m
