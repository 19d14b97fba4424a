"""Tensor intrinsics for the matrix units of a target's description.

    C[threads…, i, j, own…] += A[row, k] * B[k, column]       row and column of tile (i, j), that value of C

A subgroup multiplies `down` x `across` tiles at once. Operands are in shared memory. Results are in
thread-local memory, whose index consists of the digits of the thread followed by those of the value's number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, reduce
from itertools import product

import numpy as np

from dlc_core.arith import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import dtype
from dlc_core.ir.expr import Expr, ExprLike, Var, as_expr, cast_to, const, load
from dlc_core.schedule.intrin import Array, TensorIntrin, over_its_axes
from dlc_core.support.record import record
from dlc_core.tir.intrinsics import vector_concat, vector_shuffle
from dlc_core.tir.matrix import Fragment, MatrixUnit, matrix_product
from dlc_core.tir.stmt import Block, IterVar, Let, PrimFunc, Range, Region, Stmt, Store, loop, seq
from dlc_core.tir.threads import SWIZZLED, SWIZZLED_ROW


@record(frozen=True)
class Tiles:
    """The tiles that a subgroup multiplies at once: `down` x `across` tiles of a unit.

    `axis` is the axis of threads.  With `a_transposed` the first operand is [k, m], with `b_transposed` the
    second is [n, k].  If the unit reads operands in place, an operand with k outermost is [parts, k, part],
    where a part is a row of memory.  With `a_held` the threads hold the first operand in the layout of the
    unit's results: adjacent tiles of results form one tile of the operand (see `chain_of`).
    """

    unit: MatrixUnit
    down: int
    across: int
    axis: str
    a_transposed: bool = False
    b_transposed: bool = False
    a_held: bool = False

    @property
    def rows(self) -> int:
        return self.down * self.unit.m

    @property
    def columns(self) -> int:
        return self.across * self.unit.n

    @property
    def name(self) -> str:
        options = "at" * self.a_transposed + "bt" * self.b_transposed + "held" * self.a_held
        return f"matrix.{self.unit.name}.{self.down}x{self.across}.{self.axis}{options}"


@record(frozen=True)
class Digit:
    """A digit of a row or column index in a tile: its dim, its step along that dim, and its extent."""

    dim: int
    step: int
    extent: int


def digits_of(fragment: Fragment) -> tuple[list[Digit], list[Digit]]:
    """The digits of the thread's index, and those of the indices of its values, highest first."""
    found = [
        [Digit(*fragment.along(step), extent) for step, extent in reversed(part)]
        for part in (fragment.threads, fragment.values)
    ]
    return found[0], found[1]


def chain_of(unit: MatrixUnit) -> list[tuple[int, int]] | None:
    """Map each value of the first operand that a thread holds to (tile of adjacent results, index there).

    None if another thread holds one of these results, so that products cannot be chained in registers.
    """
    acc = {unit.of_acc.element(t, i): (t, i) for t in range(unit.width) for i in range(unit.of_acc.count)}
    found = []
    for number in range(unit.of_a.count):
        sources = set()
        for thread in range(unit.width):
            row, column = divmod(unit.of_a.element(thread, number), unit.k)
            owner, own = acc[row * unit.n + column % unit.n]
            sources.add((column // unit.n, own) if owner == thread else None)
        if len(sources) > 1 or None in sources:
            return None
        found += [source for source in sources if source is not None]
    return found if unit.k % unit.n == 0 else None


@cache
def matrix_intrin(tiles: Tiles) -> TensorIntrin:
    """The intrinsic for the products of the tiles, with one call of the unit for each."""
    unit = tiles.unit
    return TensorIntrin(
        tiles.name,
        _description(tiles),
        _implementation(tiles),
        _Reference(tiles),
        doc=f"{tiles.rows} x {tiles.columns} += products of {unit.a} and {unit.b}, {unit.k} deep",
    )


DOWN, ACROSS = (1, 2, 4), (1, 2, 4, 8)
"""Adjacent tiles of a unit that a subgroup computes."""
WIDEST = 32
"""The maximum number of adjacent tiles of chained products."""


def matrix_tiles(unit: MatrixUnit, axis: str) -> Iterator[Tiles]:
    """Yield all tiles that rules use for a unit and an axis of threads."""
    for down, across, a_transposed, b_transposed in product(DOWN, ACROSS, (False, True), (False, True)):
        yield Tiles(unit, down, across, axis, a_transposed, b_transposed)
    for across, held in product(range(1, WIDEST + 1), (False, True)):
        if held or across not in ACROSS:
            yield Tiles(unit, 1, across, axis, b_transposed=not held, a_held=held)


def operand_scope(unit: MatrixUnit) -> str:
    """The memory scope from which a unit reads its operands."""
    return SWIZZLED if unit.in_place else "shared"


def row_of(unit: MatrixUnit, of: str) -> int:
    """Elements per row of the memory from which a unit reads operands of a dtype in place."""
    return SWIZZLED_ROW // dtype(of).itemsize


def _buffers(tiles: Tiles) -> tuple[Buffer, Buffer, Buffer]:
    unit = tiles.unit
    threads, own = digits_of(unit.of_acc)
    shape = [d.extent for d in threads] + [tiles.down, tiles.across] + [d.extent for d in own]
    operands = []
    for name, of, size, k_outer in (
        ("A", unit.a, tiles.rows, tiles.a_transposed),
        ("B", unit.b, tiles.columns, not tiles.b_transposed),
    ):
        row = row_of(unit, of)
        parts = (size // row, unit.k, row) if unit.in_place else (unit.k, size)
        dims = parts if k_outer else (size, unit.k)
        if tiles.a_held and name == "A":
            held = [d.extent for d in threads] + [tiles.down, unit.k // unit.n] + [d.extent for d in own]
            operands.append(Buffer(name, tuple(held), of, scope="local"))
        else:
            operands.append(Buffer(name, dims, of, scope=operand_scope(unit)))
    return operands[0], operands[1], Buffer("C", tuple(shape), unit.acc, scope="local")


def _operand_indices(
    tiles: Tiles, buffer: Buffer, step: ExprLike, tile: ExprLike, inner: ExprLike
) -> list[Expr]:
    """The indices of an operand's element for a K step and a row or column `inner` of a tile."""
    of_a, unit = buffer.name == "A", tiles.unit
    size = unit.m if of_a else unit.n
    step, tile, inner = as_expr(step), as_expr(tile), as_expr(inner)
    if not (tiles.a_transposed if of_a else not tiles.b_transposed):
        return [tile * size + inner, step]
    if not unit.in_place:
        return [step, tile * size + inner]
    row = row_of(unit, buffer.dtype.name)
    if size == row:
        return [tile, step, inner]
    return [tile * (size // row) + inner // row, step, inner % row]


def _description(tiles: Tiles) -> PrimFunc:
    unit = tiles.unit
    a, b, c = _buffers(tiles)
    threads, own = digits_of(unit.of_acc)
    names = [*(f"t{i}" for i in range(len(threads))), "i", "j", *(f"o{i}" for i in range(len(own)))]
    axes_of_c = [Var(f"v{name}") for name in names]
    k = Var("vk")
    at: list[Expr] = [const(0), const(0)]
    digits = zip((*threads, *own), _without_tile(axes_of_c, len(threads)), strict=True)
    for digit, index in digits:
        at[digit.dim] = at[digit.dim] + index * digit.step
    i, j = axes_of_c[len(threads) : len(threads) + 2]
    left, right = _operand_indices(tiles, a, k, i, at[0]), _operand_indices(tiles, b, k, j, at[1])
    if tiles.a_held:
        analyzer = Analyzer()
        analyzer.bind(k, 0, unit.k)
        inner = k % unit.n
        own_of = [
            index if digit.dim == 0 else analyzer.simplify(inner // digit.step % digit.extent)
            for digit, index in zip((*threads, *own), _without_tile(axes_of_c, len(threads)), strict=True)
        ]
        left = [*own_of[: len(threads)], i, analyzer.simplify(k // unit.n), *own_of[len(threads) :]]
    sum_, one, other = load(c, axes_of_c), load(a, left), load(b, right)
    value = sum_ + cast_to(c.dtype, one) * cast_to(c.dtype, other)
    reads = tuple(
        Region.point(buffer, indices) for buffer, indices in ((a, left), (b, right), (c, axes_of_c))
    )
    sizes = c.static_shape() or ()
    axes = [IterVar(v, Range(const(0), const(size))) for v, size in zip(axes_of_c, sizes, strict=True)]
    axes.append(IterVar(k, Range(const(0), const(unit.k)), "reduce"))
    loops = [Var(name) for name in (*names, "k")]
    body = Block("product", tuple(axes), tuple(loops), reads, reads[2:], Store(c, tuple(axes_of_c), value))
    return PrimFunc("product", (a, b, c), over_its_axes(body))


def _without_tile(indices: Sequence[Var], threads: int) -> list[Var]:
    """The indices of a result without those of its tile, which follow the first `threads` indices."""
    return [*indices[:threads], *indices[threads + 2 :]]


def _implementation(tiles: Tiles) -> PrimFunc:
    unit = tiles.unit
    a, b, c = _buffers(tiles)
    threads, own = digits_of(unit.of_acc)
    thread = Var("lane")
    lets: list[tuple[Var, Expr]] = []

    def held(buffer: Buffer, fragment: Fragment, dim: int, tile: int) -> Expr:
        parts = []
        for number in range(fragment.count):
            at = fragment.position(thread, number)
            parts.append(load(buffer, _operand_indices(tiles, buffer, at[1 - dim], tile, at[dim])))
        var = Var(f"{buffer.name.lower()}{tile}", buffer.dtype.with_lanes(fragment.count))
        lets.append((var, vector_concat(*parts) if len(parts) > 1 else parts[0]))
        return var

    def in_threads(tile: int) -> Expr:
        parts = [
            load(a, (*first, as_expr(tile), as_expr(part), *map(as_expr, _number(number, own))))
            for part, number in chain_of(unit) or ()
        ]
        var = Var(f"a{tile}", a.dtype.with_lanes(len(parts)))
        lets.append((var, vector_concat(*parts) if len(parts) > 1 else parts[0]))
        return var

    first = [_digit(thread, [d.extent for d in threads], number) for number in range(len(threads))]
    left = [in_threads(i) if tiles.a_held else held(a, unit.of_a, 0, i) for i in range(tiles.down)]
    right = [held(b, unit.of_b, 1, j) for j in range(tiles.across)]
    steps = []
    for i in range(tiles.down):
        for j in range(tiles.across):
            elements = [
                (*first, as_expr(i), as_expr(j), *map(as_expr, _number(number, own)))
                for number in range(unit.of_acc.count)
            ]
            steps.append(_step(unit, c, elements, left[i], right[j]))
    body: Stmt = seq(*steps)
    for var, value in reversed(lets):
        body = Let(var, value, body)
    return PrimFunc("product", (a, b, c), loop(thread, unit.width, body, "thread", thread=tiles.axis))


def _step(unit: MatrixUnit, c: Buffer, elements: Sequence[Sequence[ExprLike]], a: Expr, b: Expr) -> Stmt:
    """One call of the unit, which updates the accumulators at these indices."""
    parts = [load(c, indices) for indices in elements]
    made = Var("sum", c.dtype.with_lanes(len(parts)))
    acc = vector_concat(*parts) if len(parts) > 1 else parts[0]
    stores = [
        Store(c, tuple(map(as_expr, indices)), vector_shuffle(made, [lane]) if len(parts) > 1 else made)
        for lane, indices in enumerate(elements)
    ]
    return Let(made, matrix_product(unit, acc, a, b), seq(*stores))


def _digit(value: Expr, extents: Sequence[int], number: int) -> Expr:
    """Digit `number` of a value in a mixed radix; `extents` are those of the digits, highest first."""
    below = reduce(lambda x, y: x * y, extents[number + 1 :], 1)
    digit = value // below if below > 1 else value
    return digit % extents[number] if number else digit


def _number(number: int, digits: Sequence[Digit]) -> list[int]:
    """The digits of a number, highest first."""
    found = []
    for digit in reversed(digits):
        found.append(number % digit.extent)
        number //= digit.extent
    return found[::-1]


def _with_k_innermost(operand: Array, k_outer: bool) -> Array:
    """Return an operand with K innermost."""
    rows = operand.transpose(1, 0, 2).reshape(operand.shape[1], -1) if operand.ndim > 2 else operand
    return rows.T if k_outer else rows


@record(frozen=True)
class _Reference:
    tiles: Tiles

    def __call__(self, a: Array, b: Array, c: Array) -> None:
        unit = self.tiles.unit
        left = self._held(a) if self.tiles.a_held else _with_k_innermost(a, self.tiles.a_transposed)
        right = _with_k_innermost(b, not self.tiles.b_transposed)
        made = left.astype(c.dtype) @ right.astype(c.dtype).T
        threads, own = digits_of(unit.of_acc)
        for index in np.ndindex(*c.shape):
            digits, (i, j), values = (
                index[: len(threads)],
                index[len(threads) :][:2],
                index[len(threads) + 2 :],
            )
            at = [i * unit.m, j * unit.n]
            for digit, value in zip((*threads, *own), (*digits, *values), strict=True):
                at[digit.dim] += value * digit.step
            c[index] += made[at[0], at[1]]

    def _held(self, a: Array) -> Array:
        """Assemble the first operand from the values that the threads hold."""
        unit, down = self.tiles.unit, self.tiles.down
        operand = np.empty((down, unit.m, unit.k), a.dtype)
        threads, own = digits_of(unit.of_acc)
        for index in np.ndindex(*a.shape):
            digits = (*index[: len(threads)], *index[len(threads) + 2 :])
            tile, part = index[len(threads) : len(threads) + 2]
            at = [0, part * unit.n]
            for digit, value in zip((*threads, *own), digits, strict=True):
                at[digit.dim] += value * digit.step
            operand[tile, at[0], at[1]] = a[index]
        return operand.reshape(down * unit.m, unit.k)


__all__ = [
    "ACROSS",
    "DOWN",
    "Digit",
    "Tiles",
    "chain_of",
    "digits_of",
    "matrix_intrin",
    "matrix_tiles",
    "operand_scope",
    "row_of",
]
