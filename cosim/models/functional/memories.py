"""Memory, buffers and accumulator, and what each engine operation does to them, bit for bit.

Written from docs/machine.md, with NumPy, a whole operation at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from cosim.models.functional.errors import NAMES, OperationError
from cosim.models.functional.launch import CgraLaunches
from hw import isa
from hw.config import BufferShape, MachineConfig
from sw.tile_programs.stated import Stated

MASK = 0xFFFFFFFF

Bytes = npt.NDArray[np.uint8]
Known = npt.NDArray[np.bool_]
Index = npt.NDArray[np.int64]


def _need(holds: bool | np.bool_, found: str, expected: str) -> None:
    if not holds:
        raise OperationError(found, expected)


class Memories:
    """State of a machine's memories; `memory` is changed in place.

    `a` and `b` are columns × lanes bytes, `acc` words × columns int32, `scratch` and `out` bytes. What they
    hold at the start is arbitrary, and with `strict` reading it is an error; what a product leaves beside its
    result in a word of the accumulator is arbitrary too. `macs` and `moved` (bytes by port) count what was
    done.
    """

    def __init__(self, config: MachineConfig, memory: Bytes, *, strict: bool = False):
        d = config.derived
        self.config, self.memory, self.strict = config, memory, strict
        self.a = np.full((d.buffer_a.columns, d.buffer_a.lanes), 0x77, np.uint8)
        self.b = np.full((d.buffer_b.columns, d.buffer_b.lanes), 0x77, np.uint8)
        self.acc = np.full((d.acc_words, config.cols), 0x5A5A5A5A, np.int32)
        self.scratch = np.full(d.scratch.columns, 0x77, np.uint8)
        self.out = np.full(d.out.columns, 0x77, np.uint8)
        self.known = {
            name: np.zeros(getattr(self, name).shape, np.bool_)
            for name in ("a", "b", "acc", "scratch", "out")
        }
        self.cgra = None if config.cgra is None else CgraLaunches(config.cgra)
        #: What a launch of the grid may access.
        self.stated: Stated | None = None
        self.macs = 0
        self.moved: Counter[str] = Counter()

    def perform(self, name: str, operands: Mapping[str, int]) -> None:
        """Execute one operation; `operands` holds its operands and its parameter registers.

        Raises `OperationError` where the machine stops with an error, and if `strict` for what is read before
        it is written. Windows are not known here: any byte of `memory` may be read and written.
        """
        spec = isa.INSTRUCTIONS[name]
        if name in isa.NEEDS_GRID and self.cgra is None:
            raise OperationError(f"{name}, which needs a CGRA grid", "an operation that the machine has")
        p = {o.name: _fit(o.name, operands[o.name], o.bits) for o in spec.operands}
        p |= {x: _fit(x, operands[x], isa.PARAMETERS[x].bits) for x in spec.parameters}
        if name == "load_b_conv":
            self._load_patches(p)
        elif name.startswith("load"):
            self._load(name, p)
        elif name.startswith("gemm"):
            self._gemm(p, add=name == "gemm_acc")
        elif name == "store":
            self._store(p)
        elif name == "cgra":
            assert self.cgra is not None
            self.cgra.launch(self, p)
        else:
            self._store_bytes(p, "scratch" if name == "store_scratch" else "out")

    # Memory

    def _addresses(self, first: int, stride: int, rows: int, size: int) -> Index:
        """Addresses of rows of bytes: rows × size."""
        starts = (first + np.arange(rows, dtype=np.int64) * stride) & MASK
        end = int(starts.max()) + size
        _need(end <= len(self.memory), f"bytes of memory up to {end:#x}", f"up to {len(self.memory):#x}")
        return starts[:, None] + np.arange(size)

    # Loads

    def _load(self, name: str, p: dict[str, int]) -> None:
        """Rows of bytes into a buffer, padding behind them."""
        _need(min(p["outer"], p["inner"]) > 0, f"outer = {p['outer']}, inner = {p['inner']}", "at least 1")
        port, transposed = name.removesuffix("_t"), name.endswith("_t")
        rows = np.full(
            (p["outer"] + p["load_pad_outer"], p["inner"] + p["load_pad_inner"]), p["load_fill"], np.uint8
        )
        at = self._addresses(p["memory"], p["load_stride"], p["outer"], p["inner"])
        rows[: p["outer"], : p["inner"]] = self.memory[at]
        self.moved[port] += at.size
        i, j = np.indices(rows.shape)
        if port == "load_c":
            place = p["target"] + i * p["load_pitch"] + j
            _inside(place, len(self.scratch), "byte of the scratchpad")
            self.scratch[place] = rows
            self.known["scratch"][place] = True
            return
        buffer, shape = self._buffer(port[-1])
        lane, depth = (j, i) if transposed else (i, j)
        if transposed and rows.shape[1] > shape.lanes:
            _suits("load_pitch", p["load_pitch"], shape)
        column = p["target"] + lane // shape.lanes * p["load_pitch"] + depth
        _inside(column, shape.columns, f"column of buffer {port[-1].upper()}")
        buffer[column, lane % shape.lanes] = rows
        self.known[port[-1]][column, lane % shape.lanes] = True

    def _buffer(self, name: str) -> tuple[Bytes, BufferShape]:
        if name == "a":
            return self.a, self.config.derived.buffer_a
        return self.b, self.config.derived.buffer_b

    def _load_patches(self, p: dict[str, int]) -> None:
        """A load_b_conv: the image as the tile covers it, then each kernel element's pixels."""
        shape, width = self.config.derived.buffer_b, self.config.load_b_bytes
        g = {name.removeprefix("conv_"): value for name, value in p.items()}
        sizes = ("outer", "inner", "height", "width", "out_rows", "out_cols")
        steps = tuple(f"{n}_{edge}" for n in ("kernel", "stride", "dilation") for edge in "hw")
        for name in (*sizes, *steps):
            _need(g[name] > 0, f"{name} = 0", "at least 1")
        for name in ("load_stride", "line"):
            _need(g[name] % width == 0, f"{name} = {g[name]}", f"a multiple of {width}")
        _suits("load_pitch", g["load_pitch"], shape)
        depth = g["outer"] * g["kernel_h"] * g["kernel_w"]
        for what, count in (("outputs", g["out_rows"] * g["out_cols"]), ("steps of depth", depth)):
            _need(count < 1 << 16, f"{count} {what}", "less than 65536")
        image = np.full((g["outer"], g["height"], g["width"]), g["load_fill"], np.uint8)
        rows = min(g["rows"], max(0, g["height"] - g["top"]))
        across = min(g["inner"], max(0, g["width"] - g["left"]))
        for channel in range(g["outer"] if rows and across else 0):
            first = g["memory"] + channel * g["load_stride"]
            at = self._addresses(first, g["line"], rows, g["inner"])[:, :across]
            image[channel, g["top"] : g["top"] + rows, g["left"] : g["left"] + across] = self.memory[at]
            self.moved["load_b"] += at.size
        r, c = np.indices((g["out_rows"], g["out_cols"]))
        for i, j in np.ndindex(g["kernel_h"], g["kernel_w"]):
            y, x = r * g["stride_h"] + i * g["dilation_h"], c * g["stride_w"] + j * g["dilation_w"]
            reached = (y < g["height"]) & (x < g["width"])
            place = (r * g["out_cols"] + c)[reached]
            first = g["target"] + place // shape.lanes * g["load_pitch"] + i * g["kernel_w"] + j
            for channel in range(g["outer"]):
                columns = first + channel * g["kernel_h"] * g["kernel_w"]
                _inside(columns, shape.columns, "column of buffer B")
                self.b[columns, place % shape.lanes] = image[channel, y[reached], x[reached]]
                self.known["b"][columns, place % shape.lanes] = True

    # Products

    def _gemm(self, p: dict[str, int], *, add: bool) -> None:
        """A product; its words of the accumulator are written whole."""
        m, n, k = p["gemm_m"], p["gemm_n"], p["k"]
        _need(min(m, n, k) > 0, f"a product of {m} x {k} x {n}", "sizes of at least 1")
        a, known_a = self._operand("a", p["a"], p["gemm_a_pitch"], m, k, p["gemm_signed"] & 1, p)
        b, known_b = self._operand("b", p["b"], p["gemm_b_pitch"], n, k, p["gemm_signed"] >> 1, p)
        cols = self.config.cols
        words = p["c"] + np.arange(m)[:, None] * p["gemm_c_pitch"] + np.arange(-(-n // cols))
        _inside(words, len(self.acc), "word of the accumulator")
        if len(np.unique(words)) < words.size:
            raise OperationError(f"gemm_c_pitch = {p['gemm_c_pitch']}", f"at least {words.shape[1]}")
        # Exact: 2^16 products of 16 bits stay below 2^53.
        product = (a[:m].astype(np.float64) @ b.astype(np.float64).T).astype(np.int64).reshape(m, -1, cols)
        known = np.broadcast_to(known_b, (m, len(known_b))).reshape(m, -1, cols) & known_a[:m, None, None]
        beside = (np.arange(product[0].size) >= n).reshape(-1, cols)
        if add:
            product = product + self.acc[words]
            known = known & self.known["acc"][words]
        if self.strict:
            self.check_known("a", bool(known_a[:m].all()))
            self.check_known("b", bool(known_b[:n].all()))
            self.check_known("acc", bool((known | beside).all()))
        self.acc[words] = (product & MASK).astype(np.uint32).view(np.int32)
        self.known["acc"][words] = known & ~beside
        self.macs += m * n * k

    def _operand(
        self, name: str, first: int, pitch: int, size: int, k: int, signed: int, p: dict[str, int]
    ) -> tuple[npt.NDArray[np.int64], Known]:
        """Lanes × k, zero point subtracted, of all blocks that `size` lanes reach; which lanes are known."""
        buffer, shape = self._buffer(name)
        blocks = -(-size // shape.lanes)
        columns = first + np.arange(blocks)[:, None] * pitch + np.arange(k)
        _inside(columns, shape.columns, f"column of buffer {name.upper()}")
        kind = np.int8 if signed else np.uint8
        zero = int(np.uint8(p[f"gemm_zero_{name}"]).view(kind))
        values = buffer[columns].view(kind).astype(np.int64) - zero
        known = self.known[name][columns].all(axis=1)
        return values.transpose(0, 2, 1).reshape(-1, k), known.reshape(-1)

    def check_known(self, name: str, known: bool) -> None:
        """Raise `OperationError` for a read of a space where something is not known."""
        if not known:
            place = NAMES.get(name, f"buffer {name.upper()}")
            raise OperationError(f"a read of {place} where nothing was written", "a write before")

    # Stores

    def _store(self, p: dict[str, int]) -> None:
        """Rows of the accumulator."""
        bytes_ = self.config.derived.acc_word_bytes
        i = np.arange(max(1, p["rows"]), dtype=np.int64)[:, None]
        j = np.arange(max(1, p["bytes"]))
        word = p["source"] + i * p["store_pitch"] + j // bytes_
        _inside(word, len(self.acc), "word of the accumulator")
        place = (p["source"] + i * p["store_pitch"]) * bytes_ + j
        if self.strict:
            self.check_known("acc", bool(self.known["acc"].reshape(-1)[place // 4].all()))
        self._write(p, self.acc.reshape(-1).view(np.uint8)[place])

    def _store_bytes(self, p: dict[str, int], space: str) -> None:
        """Rows of the scratchpad or the output buffer."""
        held: Bytes = getattr(self, space)
        width = self.config.store_bytes
        for name in ("source", "store_pitch"):
            _need(p[name] % width == 0, f"{name} = {p[name]}", f"a multiple of {width}")
        i = np.arange(max(1, p["rows"]), dtype=np.int64)[:, None]
        place = p["source"] + i * p["store_pitch"] + np.arange(max(1, p["bytes"]))
        _inside(place, len(held), f"byte of {NAMES[space]}")
        if self.strict:
            self.check_known(space, bool(self.known[space][place].all()))
        self._write(p, held[place])

    def _write(self, p: dict[str, int], rows: Bytes) -> None:
        """Rows of bytes to memory."""
        _need(min(p["rows"], p["bytes"]) > 0, f"rows = {p['rows']}, bytes = {p['bytes']}", "at least 1")
        at = self._addresses(p["memory"], p["store_stride"], p["rows"], p["bytes"])
        self.memory[at] = rows
        self.moved["store"] += at.size


def _fit(name: str, value: int, bits: int) -> int:
    value &= MASK
    _need(value < 1 << bits, f"{name} = {value}", f"at most {(1 << bits) - 1}")
    return value


def _suits(name: str, pitch: int, shape: BufferShape) -> None:
    """A pitch between blocks of lanes must leave no two lanes in one bank."""
    wanted = shape.lanes % shape.banks
    _need(pitch % shape.banks == wanted, f"{name} = {pitch}", f"{wanted} modulo {shape.banks}")


def _inside(places: Index, size: int, what: str) -> None:
    if places.size:
        last = int(places.max())
        _need(last < size, f"{what} {last}", f"at most {size - 1}")
