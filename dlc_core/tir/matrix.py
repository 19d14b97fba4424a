"""Products of small matrices whose elements are distributed over the threads of a subgroup: the matrix units
of a machine, and the intrinsic for them.

    acc = T.subgroup_matrix(acc, a, b, …)          for every thread of the subgroup: its values of acc + a @ b

Each thread holds some elements of each matrix, as a `Fragment` defines. The call has the unit's shape and
fragments as numeric arguments, so it is self-contained.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import gcd, prod
from typing import Any

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.ir.dtype import dtype
from dlc_core.ir.expr import Call, Expr, Var, call, const_value
from dlc_core.support.record import record
from dlc_core.tir.functor import exprs_of, stmts, stmts_of
from dlc_core.tir.stmt import Let, Stmt

MATRIX = "subgroup_matrix"
"""The intrinsic's name."""
Digits = tuple[tuple[int, int], ...]
Array = np.ndarray[Any, Any]


@record(frozen=True)
class Fragment:
    """The distribution of a matrix of `rows` x `columns` over the threads of a subgroup.

    `threads` and `values` are lists of (step, extent), lowest digit first. `threads` splits the thread index
    into digits of these extents, `values` the index of a value within its thread. The row-major index of an
    element is the sum of all digits times their steps. Raises UsageError unless each element belongs to
    exactly one thread.
    """

    rows: int
    columns: int
    threads: Digits
    values: Digits

    def __post_init__(self) -> None:
        sizes = all(extent > 0 for _, extent in self.digits)
        every = sorted(self.element(t, i) for t in range(self.width) for i in range(self.count) if sizes)
        inside = all(step % self.columns == 0 or step < self.columns for step, _ in self.digits)
        if every != list(range(self.rows * self.columns)) or not inside:
            raise UsageError(
                f"{self} is not a distribution of a matrix of {self.rows} x {self.columns}",
                why="each element must belong to one thread, and each digit must step along rows or columns",
            )

    @staticmethod
    def distributed(rows: int, columns: int, width: int) -> Fragment:
        """A fragment that distributes the elements evenly over `width` threads. It describes operands that a
        unit reads in place, for which only the shape and the number of threads matter.
        """
        across = gcd(columns, width)
        down, height = width // across, rows * across // width
        threads = ((1, across), (columns * height, down))
        values = ((columns, height), (across, columns // across))
        return Fragment(rows, columns, _nontrivial(threads), _nontrivial(values))

    @property
    def digits(self) -> Digits:
        """The digits of the thread index, then the digits of the value index."""
        return (*self.threads, *self.values)

    @property
    def width(self) -> int:
        """The number of threads."""
        return prod(extent for _, extent in self.threads)

    @property
    def count(self) -> int:
        """The number of values per thread."""
        return prod(extent for _, extent in self.values)

    def element(self, thread: int, number: int) -> int:
        """The row-major index of a thread's value `number`."""
        total = 0
        for value, digits in ((thread, self.threads), (number, self.values)):
            for step, extent in digits:
                total += value % extent * step
                value //= extent
        return total

    def position(self, thread: Expr, number: int) -> tuple[Expr | int, Expr | int]:
        """Row and column of a thread's value `number`."""
        at: list[Expr | int] = [0, 0]
        below, last = 1, len(self.threads) - 1
        for number_of_digit, (step, extent) in enumerate(self.threads):
            digit = thread // below
            along, factor = self.along(step)
            at[along] = at[along] + (digit if number_of_digit == last else digit % extent) * factor
            below *= extent
        for step, extent in self.values:
            along, factor = self.along(step)
            at[along] = at[along] + number % extent * factor
            number //= extent
        return at[0], at[1]

    def along(self, step: int) -> tuple[int, int]:
        """The dim along which a digit with this step moves, and the number of elements that it moves."""
        return (0, step // self.columns) if step % self.columns == 0 else (1, step)

    @cached_property
    def numbers(self) -> Array:
        """The row-major index of each value, as an array [thread, value]."""
        return np.array([[self.element(t, i) for i in range(self.count)] for t in range(self.width)])

    def assemble(self, parts: Array) -> Array:
        """Assemble the matrix from the fragments of all threads."""
        matrix = np.empty(self.rows * self.columns, parts.dtype)
        matrix[self.numbers] = parts
        return matrix.reshape(self.rows, self.columns)

    def literals(self) -> tuple[int, ...]:
        """The digits as a flat list: the number of digits, then the step and extent of each. Digits of
        threads come before digits of values.
        """
        return tuple(
            n for part in (self.threads, self.values) for n in (len(part), *(x for d in part for x in d))
        )


def _nontrivial(digits: Digits) -> Digits:
    return tuple(digit for digit in digits if digit[1] > 1)


@record(frozen=True)
class MatrixUnit:
    """An instruction that multiplies fragments of a subgroup: `acc` [m, n] += `a` [m, k] @ `b` [k, n].

    `a`, `b` and `acc` are dtypes. The order and the rounding of the sum are unspecified. If `mantissa` is
    given, operands are rounded to this number of mantissa bits before the multiplication.
    """

    a: str
    b: str
    acc: str
    of_a: Fragment
    of_b: Fragment
    of_acc: Fragment
    mantissa: int = 0
    transposable: bool = False
    """Whether operands whose other dim is contiguous (transposed operands) load as fast."""
    products: int = 0
    """The multiply-adds per cycle of all of a processor's units of this kind; 0 if unknown."""
    in_place: bool = False
    """Whether the unit reads its operands asynchronously from shared memory of scope `SWIZZLED`.

    Several subgroups then drive it together, and no thread holds values of an operand. Rows of that memory
    are along K, or along the other dim if the unit is `transposable`.
    """
    widened: int = 0
    """Bits of an operand's element during multiplication, if the machine first widens elements in additional
    registers; 0 if it does not."""

    def __post_init__(self) -> None:
        sizes = (self.of_acc.rows, self.of_acc.columns, self.of_a.columns)
        fit = sizes == (self.of_a.rows, self.of_b.columns, self.of_b.rows)
        if not fit or not self.of_a.width == self.of_b.width == self.of_acc.width:
            raise UsageError(
                f"a unit for {self.a} and {self.b}: the shapes or widths of its fragments do not match"
            )

    @property
    def m(self) -> int:
        return self.of_acc.rows

    @property
    def n(self) -> int:
        return self.of_acc.columns

    @property
    def k(self) -> int:
        return self.of_a.columns

    @property
    def width(self) -> int:
        """The number of threads of the subgroup."""
        return self.of_acc.width

    @property
    def name(self) -> str:
        """A short name: dtypes and sizes."""
        return f"{self.a}_{self.b}_{self.acc}_{self.m}x{self.n}x{self.k}"

    def product(self, acc: Array, a: Array, b: Array) -> Array:
        """Compute each thread's results from each thread's operands. Arrays are indexed by thread and value
        number.
        """
        kind = dtype(self.acc)
        wide = np.float64 if kind.is_float else np.int64
        left, right, total = (
            fragment.assemble(np.asarray(part).astype(wide))
            for fragment, part in ((self.of_a, a), (self.of_b, b), (self.of_acc, acc))
        )
        if self.mantissa:
            left, right = (_cut(side, self.mantissa) for side in (left, right))
        made: Array = (total + left @ right).reshape(-1)[self.of_acc.numbers]
        return made.astype(kind.numpy)


def tile_unit(
    a: str, b: str, acc: str, sizes: tuple[int, int, int], products: int = 0, group: int = 0
) -> MatrixUnit:
    """A tile unit, whose matrices belong to one thread, with `sizes` (m, n, k). `a` and `acc` are row-major.
    `b` has rows of groups along K, one group for each column. By default a group is as wide as an
    accumulator.
    """
    m, n, k = sizes
    group = group or dtype(acc).bits // dtype(a).bits
    groups = _nontrivial(((n, group), (1, n), (n * group, k // group)))
    of_a, of_acc = (Fragment(m, width, (), _nontrivial(((1, width), (width, m)))) for width in (k, n))
    return MatrixUnit(a, b, acc, of_a, Fragment(k, n, (), groups), of_acc, products=products)


def _cut(values: Array, bits: int) -> Array:
    """Round values to a number of mantissa bits after the point."""
    part, power = np.frexp(values)
    scale = 2.0 ** (bits + 1)
    rounded: Array = np.ldexp(np.rint(part * scale) / scale, power)
    return rounded


def matrix_product(unit: MatrixUnit, acc: Expr, a: Expr, b: Expr) -> Expr:
    """A call of the matrix unit. Raises UsageError if the operands do not match the unit's fragments."""
    numbers = (unit.m, unit.n, unit.k, unit.mantissa)
    layouts = (n for f in (unit.of_acc, unit.of_a, unit.of_b) for n in f.literals())
    made = call(MATRIX, (acc, a, b, *numbers, *layouts), acc.dtype)
    assert isinstance(made, Call)
    problem = matrix_problem(made)
    if problem:
        raise UsageError(problem)
    return made


def unit_of(expr: Call) -> MatrixUnit:
    """The unit of a call. Raises UsageError if the call's numbers do not describe a unit."""
    values = [const_value(arg) for arg in expr.args[3:]]
    numbers = [int(v) for v in values if v is not None]
    if len(expr.args) < 7 or len(numbers) < len(values):
        raise UsageError(
            f"{MATRIX} takes three operands, and literals that describe the unit and its fragments"
        )
    m, n, k, mantissa, *rest = numbers
    acc, a, b = (arg.dtype.scalar.name for arg in expr.args[:3])
    fragments = []
    for rows, columns in ((m, n), (m, k), (k, n)):
        threads, rest = _digits(rest)
        own, rest = _digits(rest)
        fragments.append(Fragment(rows, columns, threads, own))
    if rest:
        raise UsageError(f"{MATRIX} has {len(rest)} literals too many")
    return MatrixUnit(a, b, acc, fragments[1], fragments[2], fragments[0], mantissa)


def products(root: Stmt) -> list[Call]:
    """The matrix products in a program."""
    found = (e for s in stmts(root) for e in exprs_of(s))
    return [e for e in found if isinstance(e, Call) and e.name == MATRIX]


def strip_reinterpret(operand: Expr) -> Expr:
    """The variable with an operand's values: the operand itself, or the one whose bits it reinterprets."""
    is_bits = isinstance(operand, Call) and operand.name == "reinterpret"
    return operand.args[0] if is_bits and isinstance(operand, Call) else operand


def operands(root: Stmt) -> dict[Var, Expr]:
    """The operands of matrix products: variables with their values."""
    used = {strip_reinterpret(arg) for call in products(root) for arg in call.args[1:3]}
    return {s.var: s.value for s in stmts_of(root, Let) if s.var in used}


def _digits(numbers: Sequence[int]) -> tuple[Digits, list[int]]:
    count = numbers[0] if numbers else -1
    if not 0 <= 2 * count <= len(numbers) - 1:
        raise UsageError(f"{MATRIX}: its literals do not describe fragments")
    pairs = tuple((numbers[1 + 2 * i], numbers[2 + 2 * i]) for i in range(count))
    return pairs, list(numbers[1 + 2 * count :])


def matrix_problem(expr: Call) -> str | None:
    """Return the error of a call, or None."""
    try:
        unit = unit_of(expr)
    except UsageError as error:
        return error.what
    expected = (unit.of_acc.count, unit.of_a.count, unit.of_b.count)
    lanes = tuple(arg.dtype.lanes for arg in expr.args[:3])
    if lanes != expected:
        return f"{MATRIX} has operands of {lanes} values; its fragments have {expected} values per thread"
    if expr.dtype is not expr.args[0].dtype:
        return f"{MATRIX} with accumulators of {expr.args[0].dtype} has that dtype, not {expr.dtype}"
    kinds = {"float" if dtype(t).is_float else "int" for t in (unit.a, unit.b, unit.acc)}
    return (
        None
        if len(kinds) == 1
        else f"{MATRIX} of {unit.a}, {unit.b} and {unit.acc}: all must be floats, or all integers"
    )


__all__ = [
    "MATRIX",
    "Fragment",
    "MatrixUnit",
    "matrix_problem",
    "matrix_product",
    "operands",
    "products",
    "strip_reinterpret",
    "tile_unit",
    "unit_of",
]
