"""Matrix products with their tiles, and the loops of their epilogues."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hw.config import MachineConfig
from sw.arrangement import HALVES, Nest, extent_of
from sw.compile.launches import Area, Grid
from sw.compile.limits import LONGEST
from sw.compile.matrices import batches, matrices, nest, problem_of
from sw.compile.memory import Home
from sw.compile.operands import Source, Tiles, fetches, longest, records, room, source
from sw.compile.product_emitter import ProductEmitter
from sw.compile.products import Shape, shape_of, tiles_of
from sw.compile.tile_launches import Batches, Launches
from sw.compile.tiled import Choices, tiled
from sw.compile.writer import Writer
from sw.graph.network import MatrixProduct, Tensor, View
from sw.ir.program import Statement
from sw.kernels.access import TileAccess
from sw.kernels.choose import Chosen, choose
from sw.kernels.configuration import Configured
from sw.problem import Product
from sw.tiling.blocking import Blocking, Extent

Homes = Mapping[str, Home]


@dataclass(frozen=True)
class ProductPart:
    """A matrix product."""

    operator: MatrixProduct
    problem: Product
    nest: Nest
    views: Mapping[str, View]
    batches: Batches
    shape: Shape
    sources: Mapping[int, Source]
    chosen: Chosen | None
    records: Mapping[str, Tensor]

    @property
    def configured(self) -> tuple[Configured, ...]:
        """That of the epilogue."""
        return (self.chosen.configured,) if self.chosen else ()

    @property
    def blobs(self) -> tuple[Tensor, ...]:
        """Records of constants."""
        return tuple(self.records.values())

    @property
    def tiles(self) -> Tiles:
        """How the result is cut."""
        return tiles_of(self.nest, self.shape)

    @property
    def extent(self) -> Extent:
        """What was tiled."""
        return self.nest.extent

    def emit(self, writer: Writer, grid: Grid, scratch: Area, out: Area) -> list[Statement]:
        """Loads, products, launches and stores of all tiles."""
        launches = None
        if self.chosen is not None:
            found = fetches(self.sources, writer.memory.homes, self.records, self.tiles, scratch)
            size = writer.home(self.views["c"].tensor).itemsize
            base = out.take(HALVES * self.shape.rows * self.shape.width * size)
            launches = Launches(writer, grid, self.chosen, found, base)
        emitter = ProductEmitter(self.nest, writer, self.views, self.batches, self.shape, launches)
        return emitter.body()


def product_part(
    operator: MatrixProduct,
    homes: Homes,
    config: MachineConfig,
    room_bytes: int,
    allowed: Choices = Choices(),  # noqa: B008
) -> ProductPart:
    """Tiles of a product, and the loop of its epilogue.

    Raises `InputError` for operands that are contiguous along no axis, and where no tile fits.
    """
    m = matrices(operator)
    problem = problem_of(operator, m, homes)
    views = {"a": m.a, "b": m.b, "c": m.c}
    size = homes[m.c.tensor].itemsize
    unit = config.store_bytes // size if operator.epilogue else 1
    sources = {k + 1: source(v, homes[v.tensor], any(v.strides[:-2])) for k, v in enumerate(m.rest)}
    keys: list[int | str] = ["a", "b", "c", *sources]
    moves: dict[int | str, dict[str, int]] = {key: {} for key in keys}
    for i, (_, elements, _) in enumerate(batches(m, homes)):
        for key, step in zip(keys, elements, strict=True):
            moves[key][f"batch{i}"] = step
    chosen, own = None, {}
    if operator.epilogue is not None:
        operands = [TileAccess("acc", "int32"), *(sources[k].access for k in sorted(sources))]
        result = TileAccess("out", homes[m.c.tensor].tensor.element)
        every = math.lcm(unit, config.cols)
        chosen = choose(operator.epilogue.value, operands, result, config, multiple=every, name="epilogue")

    def suits(made: Nest, shape: Shape) -> bool:
        """Whether tiles of results and operands fit the buffers of the grid, twice."""
        if chosen is None:
            return True
        tiles = tiles_of(made, shape)
        counted = max(shape.width * size, longest(sources, homes, tiles)) <= LONGEST
        inside = HALVES * shape.words * config.cols * size <= config.out_bytes
        return counted and inside and room(sources, homes, tiles) <= room_bytes

    def nested(t: Blocking) -> tuple[Nest, Shape]:
        made = nest(operator, m, problem, t, homes, config)
        return made, shape_of(made, unit)

    per_element = chosen.cycles_per_element if chosen else None
    made, shape = tiled(operator, extent_of(problem), config, nested, suits, per_element, allowed)
    if chosen is not None:
        own = records(operator.name, chosen.elementwise, sources, homes, tiles_of(made, shape))
    return ProductPart(operator, problem, made, views, moves, shape, sources, chosen, own)
