"""The columns of a contraction: the axis of the result along which register tiles have vectors.

Usually it is the axis along which the result is contiguous. In a convolution in NCHW these are the pixels of
a row, which are strided in the input or no multiple of a vector. Filters are the other possibility:

    for panel of filters (parallel):
      for row, tile of pixels:
        accumulators = 0                          pixels × vectors of filters, in registers
        for row of the window:                    outermost: one test skips a row outside of the input
          for channel, column of the window:
            accumulators += broadcast(image) * vector(packed weights)
        the tile is transposed by shuffles; epilogue and stores in vectors of pixels

Constant weights are packed at compile time. Weights that are a parameter are packed in the kernel, by tiled
transposition.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from dlc_core.ir.expr import const_value, free_vars
from dlc_core.schedule.handles import BlockRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.rules.analysis import Contraction, bytes_of, contraction_of, extent_of, with_columns
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.cpu.core import L2, Core
from dlc_core.schedule.rules.cpu.dots import has_plain_indices, is_constant
from dlc_core.schedule.rules.cpu.gemm_decisions import COLUMNS
from dlc_core.schedule.rules.cpu.heuristics import GEMM, LOOPS
from dlc_core.schedule.rules.cpu.maps import schedule_map
from dlc_core.schedule.rules.cpu.panels import NestHandles
from dlc_core.schedule.rules.cpu.register_tile import choose, step_cycles
from dlc_core.schedule.rules.cpu.transpose import SHUFFLE
from dlc_core.schedule.rules.cpu.transposed_rhs import is_transposed
from dlc_core.schedule.rules.cpu.vector import vectorize_columns, vectors_of
from dlc_core.schedule.schedule import Schedule
from dlc_core.tir.stmt import IterVar, PrimFunc, Store

CONTIGUOUS, TRANSPOSED = COLUMNS.alternatives


def choose_columns(func: PrimFunc, found: Contraction, machine: Machine, lanes: int) -> Contraction:
    """Return the contraction with the columns of the fewest predicted cycles: `found`, or one whose result is
    stored transposed.
    """
    others = _others(func, found, machine, lanes)
    if not others:
        return found
    costs = [_cycles(func, each, machine, lanes, packed=True) for each in others]
    cycles = {CONTIGUOUS: _cycles(func, found, machine, lanes, packed=False), TRANSPOSED: min(costs)}
    preferred = TRANSPOSED if cycles[TRANSPOSED] < cycles[CONTIGUOUS] else CONTIGUOUS
    chosen = COLUMNS.choose(preferred, cost=cycles.__getitem__)
    return found if chosen == CONTIGUOUS else others[costs.index(min(costs))]


def _others(func: PrimFunc, found: Contraction, machine: Machine, lanes: int) -> list[Contraction]:
    """Return the contraction with each other axis as columns whose operand can be packed.

    There are none if the right-hand side is packed, or copied anyway.
    """
    body, axes = found.block.body, {a.var for a in found.block.axes}
    assert isinstance(body, Store)
    if lanes < 2 or machine.short_code or found.lhs.other_factors or found.rhs.other_factors:
        return []
    if is_constant(func, found) or is_transposed(func, found, machine):
        return []
    if any(index not in axes and const_value(index) is None for index in body.indices):
        return []
    several = (a for a in found.m if (extent_of(a) or 1) > 1 and a.var in body.indices)
    moved = [each for a in several if (each := with_columns(found, a)) is not None]
    return [each for each in moved if _can_be_packed(func, each)]


def _can_be_packed(func: PrimFunc, found: Contraction) -> bool:
    buffer = found.rhs.load.buffer
    known = const_value(buffer.num_elements()) is not None
    return known and buffer in func.params and has_plain_indices(found)


def _cycles(func: PrimFunc, found: Contraction, machine: Machine, lanes: int, packed: bool) -> float:
    """Predict the cycles on one thread: products, and a copy of `packed` weights that are not constant, and
    results that are transposed.
    """
    facts = machine.description
    core, rates = Core.of(facts, 1), facts.rates
    rows = next((_size(a) for a in reversed(found.m) if extent_of(a) != 1), 1)
    columns = _size(found.n)
    points = math.prod(_size(a) for a in found.block.axes if a.kind != "reduce")
    tile = choose(rows, columns, lanes, machine.registers, rates=rates)
    strided = not packed and const_value(found.rhs.factors[found.n.var]) != 1
    # Units may be narrower than registers.
    unit = facts.vector_units / facts.fma_per_cycle
    cycles, moves = 0.0, 0.0
    for count, height in _parts(rows, tile.rows):
        moves += count * columns * _transposition(height, lanes, machine)
        for number, vectors, share in _panels(columns, tile.vectors, lanes, unit, packed):
            spilled = max(0, (height + 1) * vectors + 1 - machine.registers)
            # The elements of a strided vector are loaded and inserted one by one.
            inserted = lanes * unit * share if strided else 0.0
            cycles += count * number * step_cycles(height, share, rates, inserted + 2 * spilled, inserted)
    cycles *= points / (rows * columns) * math.prod(map(_size, found.k))
    if packed:
        cycles += points / (rows * columns) * moves / rates.loads_per_cycle
    if packed and not is_constant(func, found):
        return core.products(cycles) + _copy_cycles(found, lanes, machine)
    return core.products(cycles)


def _copy_cycles(found: Contraction, lanes: int, machine: Machine) -> float:
    """Predict the cycles of packing the right-hand side in the kernel, which writes it and reads it again."""
    core = Core.of(machine.description, 1)
    buffer, columns = found.rhs.load.buffer, _size(found.n)
    elements, size = const_value(buffer.num_elements()) or 0, bytes_of(buffer) or 0
    instructions = elements / columns * _transposition(columns, lanes, machine)
    fits = 2 * size <= core.l2_bytes
    bandwidth = core.bytes_per_cycle[L2] if fits else core.single_core_memory_bandwidth
    return core.products(instructions / core.rates.loads_per_cycle) + 2 * size / bandwidth


def _size(axis: IterVar) -> int:
    return extent_of(axis) or GEMM.unknown_extent


def _parts(extent: int, most: int) -> Iterator[tuple[int, int]]:
    """Split an extent evenly into parts of at most `most`: yield their number and their size."""
    parts = -(-extent // most)
    low, larger = divmod(extent, parts)
    yield from ((count, size) for count, size in ((larger, low + 1), (parts - larger, low)) if count)


def _powers(number: int) -> Iterator[int]:
    """Yield the powers of two that sum up to a number."""
    yield from (1 << bit for bit in range(number.bit_length()) if number >> bit & 1)


def _panels(
    columns: int, vectors: int, lanes: int, unit: float, packed: bool
) -> Iterator[tuple[int, int, float]]:
    """Yield the number of panels of each width, their vectors, and the whole vectors that take as long.

    A tail of packed columns has whole vectors, another one has narrower ones. A vector takes at least the
    part of a register that a `unit` computes at once.
    """
    full, rest = divmod(columns, vectors * lanes)
    if full:
        yield full, vectors, vectors
    if rest and packed:
        yield 1, -(-rest // lanes), -(-rest // lanes)
    elif rest:
        yield 1, vectors_of(rest, lanes), _whole_vectors(rest, lanes, unit)


def _whole_vectors(columns: int, lanes: int, unit: float) -> float:
    """The whole vectors that take as long as those of `vectorize_columns`, which become narrower."""
    return columns // lanes + sum(max(unit, size / lanes) for size in _powers(columns % lanes))


def _transposition(rows: int, lanes: int, machine: Machine) -> float:
    """The instructions for each column of a tile that is stored transposed: for each vector of rows a load, a
    store and its share of the shuffles; for fewer rows than a vector needs, two for each element.
    """
    pieces = [lanes] * (rows // lanes) + [*_powers(rows % lanes)]
    return sum(2 + math.log2(n) if _in_vectors(n, machine) else 2 * n for n in pieces)


def _in_vectors(rows: int, machine: Machine) -> bool:
    """Whether tiles of so many rows are transposed by shuffles."""
    return rows >= LOOPS.shuffled_lanes and SHUFFLE in machine.description.intrinsics


def move_columns(s: Schedule, block: BlockRV, found: Contraction, keep_order: bool) -> Contraction:
    """Move the columns of a contraction to the end of its accumulators and of its spatial axes.

    Rows of windows become the outermost reduction axes, unless `keep_order` is set. Returns the contraction
    of the changed block. Another block must store the results.
    """
    before = s.get(block)
    body = before.body
    assert isinstance(body, Store)
    numbers = {axis.var: number for number, axis in enumerate(found.block.axes)}
    column = numbers[found.n.var]
    at, rank = body.indices.index(before.axes[column].var), body.buffer.ndim
    dims = [*(i for i in range(rank) if i != at), at]
    moved = IndexMap.of(lambda *indices: tuple(indices[i] for i in dims), rank)
    s.transform_layout(block, ("write", 0), moved)
    first = [] if keep_order else _rows_of_windows(found)
    steps = [*first, *(axis for axis in found.k if axis not in first)]
    spatial = [n for n, axis in enumerate(before.axes) if axis.kind != "reduce" and n != column]
    s.reorder_block_axes(block, [*spatial, column, *(numbers[axis.var] for axis in steps)])
    after = contraction_of(s.get(block))
    assert after is not None
    return after


def _rows_of_windows(found: Contraction) -> list[IterVar]:
    """Return the reduction axes that move windows across rows: they share a dim with rows of the left-hand
    side, which is not contiguous along them.
    """
    rows = {axis.var for axis in found.m}
    shared = [free_vars(index) for index in found.lhs.load.indices]
    across = {var for used in shared if rows.intersection(used) for var in used}
    return [a for a in found.k if a.var in across and const_value(found.lhs.factors[a.var]) != 1]


def schedule_packing(s: Schedule, copy: BlockRV, panel: int, columns: int, machine: Machine) -> None:
    """Schedule the copy of a right-hand side into panels; `panel` is the dim of panels, the last dim has
    their columns.

    The last panel and its padding are nests of their own if there is padding. No nest then has tests, so that
    shuffles transpose the elements.
    """
    order = s.get_loops(copy)
    width = const_value(s.extent(order[-1])) or 1
    full, rest = divmod(columns, width)
    nests = [(copy, order)]
    if rest:
        others = [loop for loop in order[:-1] if loop != order[panel]]
        if full:
            s.reorder(order[panel], order[-1], *others)
            end = s.partition(order[panel], [full])[1]
            s.decide(order[panel])
            nests.append((end[copy], [end[loop] for loop in order]))
        block, loops = nests[-1]
        s.reorder(loops[-1], loops[panel], *(loop for loop in loops[:-1] if loop != loops[panel]))
        padding = s.partition(loops[-1], [rest])[1]
        for loop in (loops[-1], padding.loop):
            s.decide(loop)
        zeros = [padding[loop] for loop in loops]
        s.reorder(*zeros)
        vectorize_columns(s, zeros[-1], machine.lanes(s.get(block).writes[0].buffer.dtype.bits))
    for block, loops in nests:
        s.reorder(*loops)
        schedule_map(s, block, machine)


def store_transposed(s: Schedule, names: NestHandles, machine: Machine, lanes: int) -> bool:
    """Store a tile of accumulators in vectors of rows, which are read from a copy of the tile.

    Strided reads would keep the accumulators themselves in memory. Returns False and changes nothing if there
    are too few rows.
    """
    rows = 1 if names.row is None else const_value(s.extent(names.row))
    if names.row is None or rows is None or not _in_vectors(rows, machine):
        return False
    copy = s.cache_read(names.out, s.get(names.block).writes[0].buffer.name, "local")
    *outer, column = s.get_loops(copy)[-len(s.get(copy).axes) :]
    for loop in outer:
        s.unroll(loop)
    vectorize_columns(s, column, lanes)
    s.reorder(names.column, names.row)
    s.unroll(names.column)
    vectorize_columns(s, names.row, lanes)
    return True


__all__ = ["choose_columns", "move_columns", "schedule_packing", "store_transposed"]
