"""Memory, buffers and accumulator, and the effect of each engine operation on them, bit for bit.

Written from docs/machine.md, with NumPy, one whole operation at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from cosim.models.functional.cgra import Launched, Loaded, array_fault, launch, loaded, patched
from cosim.models.functional.cgra_code import AccessSite, registers
from hw import isa
from hw.config import BufferShape, MachineConfig
from hw.errors import InputError
from hw.fabric import Fabric
from hw.fabric.bitstream import ACC, ELEMENT_BYTES, OUT, SCRATCH, ArrayEntry
from hw.semantics import MASK
from sw.ir.intrinsics import KEEP
from sw.tile_programs.stated import Stated

Bytes = npt.NDArray[np.uint8]
Known = npt.NDArray[np.bool_]
Index = npt.NDArray[np.int64]
#: Names of the CGRA's spaces, by number.
_SPACES = ("acc", "scratch", "out")
#: Names of the spaces in messages.
NAMES = {"acc": "the accumulator", "scratch": "the scratchpad", "out": "the output buffer"}


class OperationError(InputError):
    """An operation that the machine refuses, or that reads what nothing has written."""

    def __init__(self, found: str, expected: str):
        self.found, self.expected = found, expected
        super().__init__(f"found {found}, expected {expected}")


def _need(holds: bool | np.bool_, found: str, expected: str) -> None:
    if not holds:
        raise OperationError(found, expected)


class Memories:
    """State of a machine's memories; `memory` is changed in place.

    `a` and `b` are columns × lanes bytes, `acc` is words × columns int32, `scratch` and `out` are bytes.
    Their initial contents are arbitrary, and so is what a GEMM leaves beside its result in an accumulator
    word; with `strict`, reading these is an error. `macs` and `moved` (bytes by port) count the work done.
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
        #: The three spaces of the CGRA as bytes, by number.
        self.spaces = {
            ACC: self.acc.reshape(-1).view(np.uint8).data,
            SCRATCH: self.scratch.data,
            OUT: self.out.data,
        }
        self._registers = [] if config.cgra is None else [0] * len(registers(config.cgra))
        self._configuration: Loaded | None = None
        #: What the current launch of the CGRA may access.
        self.stated: Stated | None = None
        self.macs = 0
        self.moved: Counter[str] = Counter()

    def perform(self, name: str, operands: Mapping[str, int]) -> None:
        """Execute one operation; `operands` holds its operands and its parameter registers.

        Raises `OperationError` if the machine would stop with an error, and with `strict` also for a read
        before a write. Windows are not modelled: any byte of `memory` may be read and written.
        """
        spec = isa.INSTRUCTIONS[name]
        if needed := self.config.lacks(name):
            raise OperationError(f"{name}, which needs {needed}", "an operation that the machine has")
        p = {o.name: _fit(o.name, operands[o.name], o.bits) for o in spec.operands}
        p |= {x: _fit(x, operands[x], isa.PARAMETERS[x].bits) for x in spec.parameters}
        if name == "load_b_conv":
            self._load_patches(p)
        elif name.startswith("load"):
            self._load(name, p)
        elif name.startswith("gemm"):
            self._gemm(p, add=name == "gemm_acc")
        elif name == "cgra":
            self._launch(p)
        else:
            self._store(p, {"store": "acc", "store_scratch": "scratch", "store_out": "out"}[name])

    def _launch(self, p: dict[str, int]) -> None:
        """Execute one launch."""
        fabric = self.config.cgra
        assert fabric is not None
        if p["bitstream"] != KEEP:
            self._configure(fabric, p["bitstream"] * 16)
        if self._configuration is None:
            raise OperationError("a launch that keeps a configuration", "an earlier launch with one")
        scalars = [p[name] for name in ("live0", "live1", *(f"cgra_{i}" for i in range(12)))]
        configuration, code = patched(self._configuration.configuration, scalars), self._configuration.code
        wrong = array_fault(configuration.arrays, self.config)
        if wrong is not None:
            array = configuration.arrays[wrong]
            raise OperationError(
                f"array {wrong} of a launch, {array.length} elements from byte {array.base} on of "
                f"space {array.space}",
                "one inside of its space",
            )
        done = launch(configuration, code, self._registers, self.spaces, p["iterations"])
        self._check_accesses(configuration.arrays, code.sites, done)
        if done.failed is not None:
            row, column = fabric.at(done.failed)
            raise OperationError(
                f"an access outside of its array or table by PE ({row}, {column}) in step {done.steps}",
                "indices below the length, and stores to the output buffer only",
            )

    def _configure(self, fabric: Fabric, address: int) -> None:
        """Load the bitstream at an address of the scratchpad."""
        self._configuration = None
        data = self._bitstream(address, 3)
        data = self._bitstream(address, int.from_bytes(data[8:], "little"))
        try:
            self._configuration = loaded(data, fabric)
        except InputError as error:
            found = f"a bitstream at {address:#x} of the scratchpad that is refused ({error})"
            raise OperationError(found, "one for this CGRA") from None

    def _bitstream(self, address: int, count: int) -> bytes:
        """The first `count` words of a bitstream."""
        held = self.scratch[address : address + 4 * count]
        if held.size < 4 * count:
            found = f"a bitstream of {count} words at {address:#x} of the scratchpad"
            raise OperationError(found, f"one inside of its {self.scratch.size} bytes")
        if self.strict and not self.known["scratch"][address : address + 4 * count].all():
            raise OperationError("a bitstream where nothing was written", "a load before")
        return held.tobytes()

    def _check_accesses(
        self, arrays: Sequence[ArrayEntry], sites: Sequence[AccessSite], done: Launched
    ) -> None:
        """Raise `OperationError` for a launch's first access outside the regions that it states.

        If `strict`, also for a load of data that nothing has written.
        """
        found: list[tuple[tuple[int, bool, int], OperationError]] = []
        written = np.full(self.out.size, done.steps, np.int64)
        accesses = []
        for number, site in enumerate(sites):
            array, index = arrays[site.array], np.array(done.indices[number], np.int64)
            size = ELEMENT_BYTES[array.element]
            each = np.arange(site.lanes * size)
            steps, at = index >> 32, array.base + (index & MASK)[:, None] * size + each
            idle = ~(done.masks(number, site)[:, None] >> each // size) & 1 != 0
            accesses.append((site, _SPACES[array.space], steps, at, idle))
            if site.stores:
                np.minimum.at(written, at[~idle], np.broadcast_to(steps[:, None], at.shape)[~idle])
        for site, space, steps, at, idle in accesses:
            stated = self.stated
            masks = None if stated is None else stated.writes if site.stores else stated.reads
            if masks is not None and len(wrong := np.argwhere(~(masks[space][at] | idle))):
                (n, byte), what = wrong[0], "write" if site.stores else "read"
                error = OperationError(
                    f"a {what} of byte {at[n, byte]} of {NAMES[space]}, which is in no region of {what}=,",
                    "regions that hold all that a launch accesses: warps are ordered by them",
                )
                found.append(((steps[n], site.stores, site.pe), error))
            if self.strict and not site.stores:
                # `known` has one flag per element of the accumulator.
                known = self.known[space].reshape(-1)[at // 4 if space == "acc" else at]
                known = known | (written[at] < steps[:, None]) if space == "out" else known
                if len(wrong := np.argwhere(~(known | idle))):
                    found.append(((steps[wrong[0, 0]], False, site.pe), self._unknown(space)))
        if found:
            raise min(found, key=lambda one: one[0])[1]
        self.known["out"] |= written < done.steps

    def _addresses(self, first: int, stride: int, rows: int, size: int) -> Index:
        """Addresses of rows of bytes: rows × size."""
        starts = (first + np.arange(rows, dtype=np.int64) * stride) & MASK
        end = int(starts.max()) + size
        _need(end <= len(self.memory), f"bytes of memory up to {end:#x}", f"up to {len(self.memory):#x}")
        return starts[:, None] + np.arange(size)

    def _load(self, name: str, p: dict[str, int]) -> None:
        """Load rows of bytes, with padding, into a buffer."""
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
        """Execute load_b_conv: gather the tile's part of the image, then write kernel element by element."""
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

    def _gemm(self, p: dict[str, int], *, add: bool) -> None:
        """Execute a GEMM; it overwrites whole words of the accumulator."""
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
        """Operands less zero point (lanes × k), of all blocks that `size` lanes need; and known lanes."""
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
        """Raise `OperationError` for a read of a space that includes unknown data."""
        if not known:
            raise self._unknown(name)

    @staticmethod
    def _unknown(name: str) -> OperationError:
        place = NAMES.get(name, f"buffer {name.upper()}")
        return OperationError(f"a read of {place} where nothing was written", "a write before")

    def _store(self, p: dict[str, int], space: str) -> None:
        """Store rows of the accumulator, in words, or of the scratchpad or output buffer, in bytes."""
        held: Bytes = getattr(self, space).reshape(-1).view(np.uint8)
        unit, what, width = 1, "byte", self.config.store_bytes
        if space == "acc":
            unit, what = self.config.derived.acc_word_bytes, "word"
        for name in ("source", "store_pitch") if space != "acc" else ():
            _need(p[name] % width == 0, f"{name} = {p[name]}", f"a multiple of {width}")
        i = np.arange(max(1, p["rows"]), dtype=np.int64)[:, None]
        place = (p["source"] + i * p["store_pitch"]) * unit + np.arange(max(1, p["bytes"]))
        _inside(place // unit, held.size // unit, f"{what} of {NAMES[space]}")
        if self.strict:
            # `known` has one flag per element of the accumulator.
            known = self.known[space].reshape(-1)[place // 4 if space == "acc" else place]
            self.check_known(space, bool(known.all()))
        self._write(p, held[place])

    def _write(self, p: dict[str, int], rows: Bytes) -> None:
        """Write rows of bytes to memory."""
        _need(min(p["rows"], p["bytes"]) > 0, f"rows = {p['rows']}, bytes = {p['bytes']}", "at least 1")
        at = self._addresses(p["memory"], p["store_stride"], p["rows"], p["bytes"])
        self.memory[at] = rows
        self.moved["store"] += at.size


def _fit(name: str, value: int, bits: int) -> int:
    value &= MASK
    _need(value < 1 << bits, f"{name} = {value}", f"at most {(1 << bits) - 1}")
    return value


def _suits(name: str, pitch: int, shape: BufferShape) -> None:
    """Require that a pitch between blocks puts no two lanes into one bank."""
    wanted = shape.lanes % shape.banks
    _need(pitch % shape.banks == wanted, f"{name} = {pitch}", f"{wanted} modulo {shape.banks}")


def _inside(places: Index, size: int, what: str) -> None:
    if places.size:
        last = int(places.max())
        _need(last < size, f"{what} {last}", f"at most {size - 1}")
