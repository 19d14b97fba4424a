"""The signature of an executable: names, types, symbolic dims and sizes. It is data and saved in
artefacts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dlc_core.diag import RuntimeFailure, UsageError
from dlc_core.ir.bounds import Bounds
from dlc_core.ir.conditions import Condition, check_conditions
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, Var, as_expr, const, const_value, free_vars, substitute
from dlc_core.ir.fold import number_of
from dlc_core.ir.types import Dim, TensorType
from dlc_core.runtime.guard.failures import Site
from dlc_core.runtime.guard.mode import Guard
from dlc_core.support.lazy import lazy
from dlc_core.support.record import record

if TYPE_CHECKING:
    from dlc_core import arith
else:
    arith = lazy("dlc_core.arith")

Shape = tuple[int, ...]


@record(frozen=True)
class Value:
    """An input or output: its name and its type, whose dims may be expressions over symbolic dims."""

    name: str
    type: TensorType

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"

    def __repr__(self) -> str:
        return f"<{self}>"


@record(frozen=True)
class Donation:
    """An input, by its index, whose memory an output takes over. The output has the input's elements,
    followed by more along `axis`. The memory has space for `capacity` elements along that axis.
    """

    input: int
    output: int
    axis: int
    capacity: int


@record(frozen=True)
class Plan:
    """The resources of a call with certain input shapes."""

    scalars: tuple[int, ...]
    outputs: tuple[Shape, ...]
    arena: int
    """Bytes of scratch memory."""
    sites: tuple[Site, ...] = ()
    """The calls of kernels with checks (see `Signature.sites`)."""


def _conversion(to: DType) -> str:
    """How a caller converts an array to a dtype."""
    if to.decl is None:
        return f'convert it with .astype("{to}")'
    return f'convert it with dlc_core.ir.convert.convert(array, "{to}"), or give its codes as {to.decl.codes}'


@record(frozen=True)
class Signature:
    """A signature. An entry point gets buffers in the order inputs, outputs, weights, arena, followed by the
    values of the symbols.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    symbols: tuple[Var, ...]
    arena_size: Expr
    """The bytes of scratch memory of one call."""
    weights_size: int
    donated: tuple[Donation, ...] = ()
    updates: tuple[tuple[int, int], ...] = ()
    """Inputs whose memory an output takes over: pairs (input, output). The output has the input's type."""
    conditions: tuple[Condition, ...] = ()
    """Conditions on the dims of the inputs and on host-computed dims."""
    elements: tuple[tuple[Var, int, int], ...] = ()
    """Variables that are elements of inputs: the variable, the input's index, and the element's row-major
    index. If the variable is an integer, floats are truncated.
    """
    data_dims: tuple[tuple[Var, Expr, str], ...] = ()
    """Symbols that are expressions over dims of inputs, elements and earlier symbols, in this order, each
    with the error message for a negative value."""
    sites: tuple[Site, ...] = ()
    """Calls of kernels with checks. If there are any, the scratch memory begins with the record of failed
    checks."""
    guard: Guard | None = None
    """The memory layout of guard mode, if it was compiled in guard mode."""
    arguments: tuple[int, ...] = ()
    """The parameters of a single operator in the order in which it was written, as indices into inputs and
    outputs: the order of a call that passes arrays for the outputs too. A model has none."""

    def __str__(self) -> str:
        text = f"({', '.join(map(str, self.inputs))}) -> ({', '.join(map(str, self.outputs))})"
        shown = dict.fromkeys(v for value in (*self.inputs, *self.outputs) for v in value.type.symbols())
        bounds = [f"{v.name} in {v.bounds}" for v in shown if v.bounds]
        return f"{text}, {', '.join(bounds)}" if bounds else text

    @property
    def dims(self) -> tuple[Var, ...]:
        """All symbolic dims of a call: those of the inputs' shapes, and host-computed dims."""
        shown = (v for value in self.inputs for v in value.type.symbols())
        return tuple(dict.fromkeys((*shown, *(var for var, _, _ in self.data_dims))))

    @property
    def is_static(self) -> bool:
        """Whether all shapes are constant."""
        return not self.symbols and all(v.type.is_static for v in (*self.inputs, *self.outputs))

    def check(self, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        """Check the number, dtypes and ranks of the inputs. Raises UsageError that says what is expected."""
        self.check_count(len(arrays))
        for value, array in zip(self.inputs, arrays, strict=True):
            self.check_input(value, array)

    def check_input(self, value: Value, array: np.ndarray[Any, Any]) -> None:
        """Check the dtype and the rank of one input."""
        if array.dtype != value.type.dtype.numpy:
            raise UsageError(
                f"input {value.name!r} is {array.dtype}, {value.type.dtype} is needed",
                hint=_conversion(value.type.dtype),
            )
        if array.ndim != value.type.ndim:
            raise self._mismatch(value, array.shape, f"it has {array.ndim} dims, not {value.type.ndim}")

    def check_count(self, count: int) -> None:
        if count != len(self.inputs):
            hint = "a call that writes to given arrays takes " if self.arguments else ""
            values = (*self.inputs, *self.outputs)
            raise UsageError(
                f"{count} input{'s' * (count != 1)} given, {len(self.inputs)} needed",
                details=[str(value) for value in self.inputs],
                hint=hint and hint + ", ".join(values[index].name for index in self.arguments),
            )

    def with_destinations(self, arrays: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any] | None]:
        """The inputs and the destinations among the positional arrays of a call. Their number decides whether
        there are destinations: an operator takes arrays for all of `arguments`, or for its inputs only.
        """
        if not self.arguments or len(arrays) != len(self.arguments):
            return arrays, None
        placed = dict(zip(self.arguments, arrays, strict=True))
        count = len(self.inputs)
        return [placed[i] for i in range(count)], [placed[i] for i in range(count, len(placed))]

    def call_sizes(self, arrays: Sequence[np.ndarray[Any, Any]]) -> tuple[Shape, ...]:
        """The sizes that a call's plan depends on: the inputs' shapes, and the elements of `elements`."""
        shapes = tuple([array.shape for array in arrays])
        if not self.elements:
            return shapes
        try:
            values = [number_of(arrays[index].item(at), v.dtype) for v, index, at in self.elements]
            return (*shapes, tuple(values))
        except IndexError:  # an array of a wrong shape, for which `bind_symbols` raises an error
            return (*shapes, (0,) * len(self.elements))
        except (ValueError, OverflowError) as error:
            raise UsageError(
                "the inputs do not fit the model", why=f"a size is not a number: {error}"
            ) from None

    def plan(self, sizes: Sequence[Shape]) -> Plan:
        """The plan of a call with these sizes (see `call_sizes`). Raises UsageError if they violate a
        condition.
        """
        symbols = self.bind_symbols(sizes)
        values = tuple(symbols[v] for v in self.symbols)
        computed = self._output_sizes(*values)
        outputs, position = [], 0
        for value in self.outputs:
            shape = computed[position : position + value.type.ndim]
            position += value.type.ndim
            if any(size < 0 for size in shape):
                given = ", ".join(f"{v.name}={symbols[v]}" for v in self.symbols)
                raise UsageError(
                    f"output {value.name!r} would have the shape {shape}", why=f"dims are {given}"
                )
            outputs.append(shape)
        arena = computed[position]
        if arena < 0:
            raise RuntimeFailure(f"the scratch memory of this call would be {arena} bytes")
        return Plan(values, tuple(outputs), arena, self.sites)

    @cached_property
    def _output_sizes(self) -> Callable[..., tuple[int, ...]]:
        """All dims of the outputs and the arena's bytes, as a function of the symbols."""
        exprs = [*(as_expr(d) for v in self.outputs for d in v.type.shape), self.arena_size]
        known = tuple(k for e in exprs if (k := const_value(e)) is not None)
        if len(known) == len(exprs):
            return lambda *values: known
        unknown = [v.name for v in free_vars(*exprs) if v not in self.symbols]
        if unknown:
            raise UsageError(
                f"the sizes of this call depend on {', '.join(unknown)}, which are only known after it",
                details=[str(v) for v in self.outputs],
            )
        try:
            return arith.compile_exprs(exprs, self.symbols)
        except UsageError:  # an expression with narrow integers
            return lambda *values: tuple(
                arith.eval_expr(e, dict(zip(self.symbols, values, strict=True))) for e in exprs
            )

    def bind_symbols(self, sizes: Sequence[Shape]) -> dict[Var, int]:
        """The values of the symbolic dims from the sizes of a call (see `call_sizes`). Raises UsageError if
        the sizes contradict the signature.
        """
        known: dict[Var, int] = {}
        shapes = sizes[: len(self.inputs)]
        deferred: list[tuple[Value, Shape, int, Expr]] = []
        for value, shape in zip(self.inputs, shapes, strict=True):
            if len(shape) != value.type.ndim:
                raise self._mismatch(value, shape, f"it has {len(shape)} dims, not {value.type.ndim}")
            for axis, (dim, size) in enumerate(zip(value.type.shape, shape, strict=True)):
                if isinstance(dim, int):
                    if dim != size:
                        raise self._mismatch(value, shape, f"dim {axis} is {size}, not {dim}")
                elif isinstance(dim, Var) and dim not in known:
                    known[dim] = size
                else:
                    deferred.append((value, shape, axis, dim))
        for value, shape, axis, dim in deferred:
            size = shape[axis]
            rest = substitute(dim, {v: const(known[v]) for v in free_vars(dim) if v in known})
            free = free_vars(rest)
            if len(free) == 1 and (solved := arith.solve_dim(rest, size, free[0])) is not None:
                known[free[0]] = solved
            elif free:
                raise self._mismatch(
                    value, shape, f"dim {axis} is {size}, which is not a possible value of {dim}"
                )
            elif (expected := arith.eval_expr(rest, {})) != size:
                raise self._mismatch(value, shape, f"dim {axis} is {size}, but {dim} is {expected}")
        for elements in sizes[len(self.inputs) :]:
            known.update((var, number) for (var, _, _), number in zip(self.elements, elements, strict=True))
        for var, operands, size_of, what in self._data_dims:
            known[var] = size_of(*[known[v] for v in operands])[0]
            if known[var] < 0:
                given = ", ".join(f"{v.name}={known[v]}" for v in operands)
                raise UsageError("the inputs do not fit the model", why=f"{what}, where {given}")
        for var, size in known.items():
            if var.bounds is not None and not var.bounds.admits(size):
                raise self._outside(var, var.bounds, size, shapes)
        # Only conditions with other terms than dims need the integer analysis, so that starts from the cache
        # are fast.
        check_conditions(self.conditions, known, lambda e, dims: arith.eval_expr(e, dims), self._described)
        return known

    def _described(self, var: Var) -> str:
        """A symbolic dim, with the input that determines it, as text."""
        for value in self.inputs:
            if var in value.type.shape:
                return f"dim {value.type.shape.index(var)} ({var.name}) of input {value.name!r}"
        return f"dim {var.name}"

    @cached_property
    def _data_dims(self) -> tuple[tuple[Var, list[Var], Callable[..., tuple[int, ...]], str], ...]:
        """The host-computed symbols, each with its operands and the function that computes it."""
        return tuple(
            (var, operands, arith.compile_exprs([expr], operands), what)
            for var, expr, what in self.data_dims
            for operands in [free_vars(expr)]
        )

    def _outside(self, var: Var, bounds: Bounds, size: int, shapes: Sequence[Shape]) -> UsageError:
        """The error for a dim outside of its bounds, which names the input that determines it."""
        why = "it is computed from elements of the inputs"
        for value, shape in zip(reversed(self.inputs), reversed(shapes), strict=True):
            for axis, dim in enumerate(value.type.shape):
                if isinstance(dim, Expr) and var in free_vars(dim):
                    why = f"input {value.name!r} has shape {shape}, and is {value.type}: dim {axis} is {dim}"
        return bounds.violation(var.name, size, why)

    def _mismatch(self, value: Value, shape: Shape, why: str) -> UsageError:
        return UsageError(f"input {value.name!r} has shape {shape}, {value.type} is needed", why=why)


__all__ = ["Plan", "Signature", "Value"]
