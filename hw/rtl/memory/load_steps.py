"""The interface between the two halves of a loader: operations and their steps."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Shape, Signal, signed
from amaranth.lib import data, memory, stream
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import BufferShape, MachineConfig
from hw.rtl.bits import log2, place_bits
from hw.rtl.interfaces import PC_BITS, WARP_BITS
from hw.rtl.memory.buffer import NO_COLLISIONS

#: Number of steps by which the requests may be ahead of the writer. Memory that answers within `MOST_LATENCY`
#: cycles never fills the queue.
STEPS = 512


def forms_patches(config: MachineConfig, port: str) -> bool:
    """Whether a loader has the hardware of `load_b_conv`."""
    return port == "load_b" and config.convolutions


def loader_target(config: MachineConfig, port: str) -> BufferShape:
    """The buffer that a loader writes."""
    d = config.derived
    return {"load_a": d.buffer_a, "load_b": d.buffer_b, "load_c": d.scratch}[port]


def block_bits(shape: BufferShape, width: int) -> int:
    """Width of a block's column, wide enough that no block that a beat can touch wraps into the buffer."""
    return place_bits(shape.columns) + 2 + log2(max(1, width // shape.lanes))


def start_bits(shape: BufferShape, width: int) -> int:
    """Width of the position of byte 0 of a beat relative to its block; it may lie before the row."""
    return max(log2(width), log2(shape.banks)) + 1


def lane_bits(shape: BufferShape) -> int:
    """Width of a lane number, at least 1."""
    return max(1, log2(shape.lanes))


def operation_layout(config: MachineConfig, port: str) -> data.StructLayout:
    """Fields of an operation that the writer of a loader needs besides its steps.

    A pitch beyond the buffer is only marked as such (`hw.rtl.bits.place`). With `lanes_first` the bytes of a
    beat go to successive lanes: the `_t` form and patches. Of each step's bytes, every `stride`-th is
    written.
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
    """What the writer does in a step: it places the bytes of a beat, or some of them for patches.

    Bytes `write_from` <= i < `write_to` are written. With `lanes_first`, byte 0 lies `start` lanes after lane
    0 of column `block`. Otherwise it lies in lane `lane`, `start` columns after the first of the group of
    columns that contains `block` (see `RowPlaces`). A step that `reads` waits for a word of memory; without
    patches, any other step is a fill beat.

    For patches, bytes `read_from` <= i < `read_to` come from memory and the others are fill; bytes from
    `used_to` on are not pixels. From the rest, every stride-th byte starting at `skip` is selected;
    `write_from` and `write_to` then count the selected bytes. A step that does not read reuses the word of
    the last one that did.
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
    """The steps from the requests to the writer, in order: a FIFO in block RAM.

    **Timing.** A step that `enters` in cycle t is offered from t + 2 on. `room` becomes 0 while a few places
    are still free, so it may be sampled up to three cycles ahead.
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
        # `behind` is `front` + 1, so the late signal `leaves` only selects between them.
        front, behind = Signal(range(STEPS)), Signal(range(STEPS), init=1)
        leaves, entered, filled = Signal(), Signal(), Signal(range(STEPS))
        m.d.comb += [
            leaves.eq(self.out.valid & self.out.ready),
            writer.en.eq(1),  # always on: an entry that does not stay is overwritten
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
