"""The choices of 3 × 3 convolutions, and their cost model: direct or by Winograd tiles, and their grouping.

All figures are cycles of one core. Most loads overlap arithmetic. Tiles are computed in groups of whole tile
rows: larger groups read the transformed weights less often, smaller groups keep the values between the stages
in the cache. The numbers of the model are in `heuristics.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from dlc_core.algorithms.minimal_filtering.choice import choose_tile
from dlc_core.algorithms.minimal_filtering.tiles import GROUP
from dlc_core.algorithms.winograd.heuristics import WINOGRAD
from dlc_core.algorithms.winograd.op import points_of
from dlc_core.decisions import Decision
from dlc_core.diag import Span
from dlc_core.heuristics import cached
from dlc_core.schedule.rules.cpu.core import FLOAT, L2, Core
from dlc_core.schedule.rules.cpu.register_tile import Tile, choose, domain_cycles, fits
from dlc_core.support.record import record

TILES = (2, 4)
"""Rows of results of a tile."""
FORM = Decision(
    "winograd.tile",
    "Whether a 3 × 3 convolution is computed by tiles, and the rows and columns of results of a tile.",
    ("direct", "tiles"),
    has_values=True,
    recordable=True,
)
PLANES = Decision(
    "conv.planes",
    "Whether the planes that a window of a volume spans become channels of images.",
    ("volume", "images"),
)
GROUPS = Decision(
    "winograd.group",
    "The distribution of tiles over threads, and the rows of tiles per group: groups of all channels, each "
    "stage for all images, or parts of the output channels.",
    ("groups", "phases", "parts"),
    has_values=True,
)


@record(frozen=True)
class Layer:
    """The sizes of a 3 × 3 convolution."""

    batch: int
    height: int
    width: int
    inputs: int
    outputs: int
    """Rows and columns of the result, and channels."""
    stride: int = 1


@record(frozen=True)
class Plan:
    """A tile size and its grouping: `group` rows of tiles at a time; `cycles` are those of all threads
    together.

    With `phases`, each stage runs for all images, in parallel, before the next; the values between must fit
    the LLC. With several `parts`, each thread computes a part of the output channels and transforms all
    inputs itself.
    """

    tile: tuple[int, int]
    group: int
    phases: bool
    cycles: float
    parts: int = 1

    @property
    def kind(self) -> str:
        """The alternative of `winograd.group` for this plan."""
        return "phases" if self.phases else "parts" if self.parts > 1 else "groups"

    def __str__(self) -> str:
        how = {"phases": "stage by stage", "parts": f"{self.parts} parts of the channels"}
        rows, columns = self.tile
        return f"tiles {rows}x{columns}, {self.group} rows of them at a time, {how.get(self.kind, 'groups')}"


def tiles_of(rows: int, stride: int) -> list[tuple[int, int]]:
    """Return the tile sizes with this many rows: square tiles, and those with half as many columns."""
    return [tile for tile in ((rows, rows), (rows, rows // 2)) if (*tile, stride) in WINOGRAD.input_steps]


def choose_form(
    layer: Layer,
    images: Layer,
    tiles: Sequence[int],
    core: Core,
    growth: Callable[[tuple[int, int]], float],
    *,
    extra_cycles: float = 0.0,
    where: object = "",
    spans: Iterable[Span] = (),
) -> tuple[int, int] | None:
    """Choose the rows and columns of results of a tile; None for the direct convolution.

    `tiles` are the candidates for rows, `growth` is the rounding error of a tile (see
    `minimal_filtering.choice`), and `beside` the cycles of copies that only tiles need.  Tiles are of
    `images`: those of single phases if the windows of `layer` are dilated, else `layer` itself.
    """
    shapes = [shape for rows in tiles for shape in tiles_of(rows, layer.stride)]
    costs = {shape: plan(images, shape, core).cycles + extra_cycles for shape in shapes}
    return choose_tile(
        FORM,
        direct_cycles(layer, core),
        costs,
        growth,
        lambda tile: "{}x{}".format(*tile),
        where=where,
        spans=spans,
    )


def choose_group(layer: Layer, tile: tuple[int, int], core: Core) -> Plan:
    """Choose the plan of a kernel with tiles of one size."""
    return GROUPS.pick(
        plan(layer, tile, core),
        lambda: list(plans(layer, tile, core)),
        lambda one: one.kind,
        lambda one: str(one.group),
        cost=lambda one: one.cycles,
    )


def _bytes_per_cycle(size: float, core: Core) -> float | None:
    """Bytes per cycle of repeated reads of `size` bytes; None if L2 holds them."""
    if size <= core.l2_bytes * WINOGRAD.l2_fraction:
        return None
    if len(core.caches) > L2 + 1 and size > core.caches[-1] * WINOGRAD.llc_fraction:
        return core.memory_bandwidth
    return core.bandwidth_beyond_l2


def _traffic(size: float, times: float, core: Core) -> float:
    rate = _bytes_per_cycle(size, core)
    return 0.0 if rate is None else times * size / rate


def _overlapped(cycles: float, load_cycles: float) -> float:
    """Cycles of overlapping arithmetic and loads."""
    return max(cycles, load_cycles) + WINOGRAD.exposed * min(cycles, load_cycles)


def direct_cycles(layer: Layer, core: Core) -> float:
    """Cycles of the direct convolution on all threads together."""
    vectors = -(-layer.outputs // core.lanes)
    tile = choose(layer.width, layer.outputs, core.lanes, core.registers, rates=core.rates)
    rows = (
        layer.batch * layer.height * domain_cycles(layer.width, vectors, tile.rows, tile.vectors, core.rates)
    )
    load_cycles = 9 * FLOAT * layer.inputs * layer.outputs / core.memory_bandwidth
    return _overlapped(core.products(rows * 9 * layer.inputs), load_cycles)


@cached(maxsize=1024)
def part_tile(rows: int, columns: int, core: Core) -> Tile:
    """Return the cheapest register tile whose width divides the columns; the columns are whole vectors."""
    vectors = columns // core.lanes
    found = [
        Tile(height, width)
        for width in range(1, vectors + 1)
        for height in range(1, rows + 1)
        if vectors % width == 0 and fits(height, width, core.registers)
    ]
    return min(found, key=lambda tile: domain_cycles(rows, vectors, tile.rows, tile.vectors, core.rates))


@cached(maxsize=1024)
def plan(layer: Layer, tile: tuple[int, int], core: Core) -> Plan:
    """Return the cheapest grouping of tiles of one size."""
    return min(plans(layer, tile, core), key=lambda found: found.cycles)


def plans(layer: Layer, tile: tuple[int, int], core: Core) -> Iterator[Plan]:
    """Yield all groupings of tiles of one size."""
    down, across = -(-layer.height // tile[0]), -(-layer.width // tile[1])
    points = points_of(tile[0], layer.stride) * points_of(tile[1], layer.stride)
    tiles = layer.batch * down * across
    pixels = layer.height * layer.width * layer.stride**2
    ins, outs = -(-layer.inputs // core.lanes), -(-layer.outputs // core.lanes)
    kind = (*tile, layer.stride)
    input_transforms, result_transforms = (
        tiles * ins * WINOGRAD.input_steps[kind],
        tiles * outs * WINOGRAD.result_steps[kind],
    )
    transforms = input_transforms + result_transforms
    weights = float(points * FLOAT * layer.inputs * layer.outputs)
    between = float(points * FLOAT * (layer.inputs + layer.outputs) * across)
    for group in range(1, down + 1):
        if down % group:
            continue
        groups = layer.batch * (down // group)
        shape = choose(group * across, layer.outputs, core.lanes, core.registers, rates=core.rates)
        products = domain_cycles(group * across, outs, shape.rows, shape.vectors, core.rates)
        cycles = transforms + core.products(groups * points * layer.inputs * products)
        values = between * group
        first_groups = min(groups, core.threads)
        # Other kernels may have evicted the values between the stages, so they come from memory too.
        load_cycles = first_groups * (weights + values) / core.single_core_memory_bandwidth
        load_cycles += _traffic(weights + values, groups - first_groups, core) + 2 * _traffic(
            values, groups, core
        )
        uneven = -(-groups // core.threads) * core.threads / groups
        yield Plan(tile, group, False, _overlapped(cycles, load_cycles) * uneven)
        if core.threads > 1 and layer.outputs % (core.threads * max(core.lanes, GROUP)) == 0:
            parts = core.threads
            shape = part_tile(group * across, layer.outputs // parts, core)
            products = parts * domain_cycles(
                group * across, outs // parts, shape.rows, shape.vectors, core.rates
            )
            cycles = (
                input_transforms * parts
                + result_transforms
                + core.products(groups * points * layer.inputs * products)
            )
            values = float(points * FLOAT * (layer.inputs + layer.outputs // parts) * across * group)
            load_cycles = weights / core.memory_bandwidth
            load_cycles += parts * _traffic(weights / parts + values, groups - 1, core)
            load_cycles += 2 * parts * _traffic(values, groups, core)
            read = float(layer.batch * pixels * layer.inputs * FLOAT)
            exchanged = read * (parts - 1) / WINOGRAD.input_bytes_per_cycle
            yield Plan(tile, group, False, _overlapped(cycles, load_cycles) + exchanged, parts)
        shared, all_values = core.threads, between * down * layer.batch
        if shared > 1 and group == down and all_values <= core.caches[-1]:
            load_cycles = weights / core.memory_bandwidth
            load_cycles += _traffic(weights / shared, shared * (layer.batch - 1), core)
            load_cycles += 2 * _traffic(all_values / shared, shared, core)
            exchanged = all_values * (shared - 1) / shared / WINOGRAD.exchanged_bytes_per_cycle
            yield Plan(
                tile,
                group,
                True,
                _overlapped(cycles, load_cycles) + exchanged + WINOGRAD.barrier_cycles * shared,
            )


__all__ = [
    "FORM", "GROUPS", "PLANES", "TILES", "Layer", "Plan", "choose_form", "choose_group", "direct_cycles",
    "part_tile", "plan", "plans", "tiles_of",
]  # fmt: skip
