"""Index maps: layouts as functions from the indices of one buffer to those of another."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc_core.arith.analyzer import Analyzer
from dlc_core.arith.evaluate import compile_exprs
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import (
    Binary,
    Const,
    Expr,
    ExprLike,
    Var,
    as_expr,
    const,
    const_value,
    free_vars,
    substitute,
)
from dlc_core.support.record import record

Array = np.ndarray[Any, Any]


@record(frozen=True)
class Digit:
    """The digit (axis // lower) % extent of an axis; with `extent` None it is axis // lower."""

    axis: int
    lower: int
    extent: int | None


@record(frozen=True, eq=False)
class IndexMap:
    """A map between layouts: element [inputs] of the old layout is element [outputs] of the new one.

    `outputs` are expressions over the variables `inputs`.

    >>> panels = IndexMap.of(lambda k, n: (n // 32, k, n % 32))
    >>> print(panels)
    (k, n) -> (n // 32, k, n % 32)
    >>> panels.output_shape((64, 100))
    (4, 64, 32)
    """

    inputs: tuple[Var, ...]
    outputs: tuple[Expr, ...]
    parts: tuple[IndexMap, ...] = ()
    """The maps from which `then` composed this one; each may add padding."""

    @staticmethod
    def of(function: Callable[..., ExprLike | Sequence[ExprLike]], rank: int | None = None) -> IndexMap:
        """Make a map from a Python function of the indices; a function of `*indices` needs the `rank`."""
        if rank is None:
            names = list(inspect.signature(function).parameters)
        else:
            names = [f"i{d}" for d in range(rank)]
        inputs = tuple(Var(name) for name in names)
        outputs = function(*inputs)
        listed = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        return IndexMap(inputs, tuple(as_expr(o) for o in listed if not isinstance(o, (tuple, list))))

    def __call__(self, *indices: ExprLike) -> tuple[Expr, ...]:
        """The indices in the new layout."""
        if len(indices) != len(self.inputs):
            raise ScheduleError(f"the layout {self} maps {len(self.inputs)} indices, not {len(indices)}")
        env = {var: as_expr(i) for var, i in zip(self.inputs, indices, strict=True)}
        return tuple(substitute(o, env) for o in self.outputs)

    def __repr__(self) -> str:
        outputs = ", ".join(map(str, self.outputs)) + ("," if len(self.outputs) == 1 else "")
        return f"IndexMap.of(lambda {', '.join(v.name for v in self.inputs)}: ({outputs}))"

    def __str__(self) -> str:
        return f"({', '.join(v.name for v in self.inputs)}) -> ({', '.join(map(str, self.outputs))})"

    def then(self, other: IndexMap) -> IndexMap:
        """This map followed by another one."""
        analyzer = Analyzer()
        outputs = tuple(analyzer.simplify(o) for o in other(*self.outputs))
        return IndexMap(self.inputs, outputs, (*(self.parts or (self,)), *(other.parts or (other,))))

    def output_exprs(self, shape: Sequence[ExprLike]) -> tuple[Expr, ...]:
        """The shape for all mapped elements of a buffer of `shape`; a remainder by c has extent c."""
        if self.parts:
            for part in self.parts:
                shape = part.output_exprs(shape)
            return tuple(as_expr(size) for size in shape)
        analyzer = Analyzer()
        for dim in free_vars(*(as_expr(s) for s in shape)):
            analyzer.declare_dim(dim)
        for var, size in zip(self.inputs, shape, strict=True):
            analyzer.bind(var, 0, size)
        result: list[Expr] = []
        for output in self.outputs:
            if isinstance(output, Binary) and output.op == "floormod" and isinstance(output.b, Const):
                result.append(output.b)
                continue
            found = analyzer.bounds(output, self.inputs)
            if found is not None and analyzer.prove(found[0] >= 0):
                result.append(analyzer.simplify(found[1] + 1))
                continue
            radix = self._radix_size(output, shape, analyzer)
            if radix is None:
                raise ScheduleError(
                    f"the layout {self} has no known bounds over the shape ({', '.join(map(str, shape))})"
                )
            result.append(radix)
        return tuple(result)

    def _radix_size(self, output: Expr, shape: Sequence[ExprLike], analyzer: Analyzer) -> Expr | None:
        """The number of values of an output whose digits are inputs (mixed radix); None for other outputs."""
        used = free_vars(output)
        sizes = {v: as_expr(size) for v, size in zip(self.inputs, shape, strict=True) if v in used}
        left = {v: size for v, size in sizes.items() if const_value(size) != 1}
        step: Expr = const(1)
        total: Expr = const(0)
        while left:
            factors = {v: analyzer.coefficient_of(output, v) for v in left}
            lowest = next(
                (v for v, f in factors.items() if f is not None and analyzer.prove_equal(f, step)), None
            )
            if lowest is None:
                return None
            total = total + lowest * step
            step = analyzer.simplify(step * left.pop(lowest))
        return step if analyzer.prove_equal(output, total) else None

    def output_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """`output_exprs` of a static shape."""
        return tuple(int(v) for e in self.output_exprs(shape) if (v := const_value(e)) is not None)

    def digits(self) -> tuple[Digit, ...] | None:
        """Each output as a digit of one input, if all outputs are digits."""
        position = {var: i for i, var in enumerate(self.inputs)}
        found: list[Digit] = []
        for output in self.outputs:
            lower, extent, rest = 1, None, output
            if isinstance(rest, Binary) and rest.op == "floormod" and (value := const_value(rest.b)):
                extent, rest = value, rest.a
            if isinstance(rest, Binary) and rest.op == "floordiv" and (value := const_value(rest.b)):
                lower, rest = value, rest.a
            if not isinstance(rest, Var):
                return None
            found.append(Digit(position[rest], lower, extent))
        return tuple(found)

    def _columns(self) -> list[list[int]] | None:
        """The outputs that are digits of each input, highest first; None if digits have gaps or overlap."""
        digits = self.digits()
        if digits is None:
            return None
        columns: list[list[int]] = []
        for axis in range(len(self.inputs)):
            own = sorted((o for o, d in enumerate(digits) if d.axis == axis), key=lambda o: digits[o].lower)
            step = 1
            for number, output in enumerate(own):
                digit = digits[output]
                if digit.lower != step or (digit.extent is None) != (number == len(own) - 1):
                    return None
                step *= digit.extent or 1
            if not own:
                return None
            columns.append(own[::-1])
        return columns

    def inverse(self) -> IndexMap:
        """The inverse map.  ScheduleError unless every output is a digit of a single input."""
        columns, digits = self._columns(), self.digits()
        if columns is None or digits is None:
            raise ScheduleError(
                f"the layout {self} has no inverse that is known",
                why="each output must be a digit (i // a) % b of one input, all digits of an input there",
            )
        names = [Var(f"o{i}") for i in range(len(self.outputs))]
        back: list[Expr] = []
        for own in columns:
            total: Expr = const(0)
            for output in own:
                total = names[output] * digits[output].lower + total
            back.append(total)
        return IndexMap(tuple(names), tuple(back))

    @property
    def is_bijective(self) -> bool:
        """Whether `inverse` exists, up to padding of the last tile."""
        return self._columns() is not None

    def apply_numpy(self, array: Array, pad_value: float = 0, out: Array | None = None) -> Array:
        """Return the array in the new layout, C-contiguous.  Elements without a source are `pad_value`.

        The result is written to `out`, if given, which must have its shape and dtype.
        """
        if array.ndim != len(self.inputs):
            raise ScheduleError(f"the layout {self} maps {len(self.inputs)} dims, the array has {array.ndim}")
        if self.parts:
            for part in self.parts[:-1]:
                array = part.apply_numpy(array, pad_value)
            return self.parts[-1].apply_numpy(array, pad_value, out)
        result = np.empty(self.output_shape(array.shape), array.dtype) if out is None else out
        columns, digits = self._columns(), self.digits()
        if columns is not None and digits is not None:
            self._transpose(array, result, columns, pad_value)
            return result
        result.fill(pad_value)
        if array.size:
            grid = np.ogrid[tuple(slice(0, size) for size in array.shape)]
            source_indices = compile_exprs(list(self.outputs), self.inputs)(*grid)
            result[tuple(np.broadcast_to(np.asarray(p), array.shape) for p in source_indices)] = array
        return result

    @staticmethod
    def _transpose(array: Array, result: Array, columns: list[list[int]], pad_value: float) -> None:
        shape = result.shape
        full = [int(np.prod([shape[o] for o in own])) for own in columns]
        if tuple(full) != array.shape:
            margins = [(0, whole - size) for whole, size in zip(full, array.shape, strict=True)]
            array = np.pad(array, margins, constant_values=pad_value)
        order = [o for own in columns for o in own]
        split = array.reshape([shape[o] for o in order])
        np.copyto(result, split.transpose(np.argsort(order)))
