"""`Call`: one node of an FX graph while it is converted, with what converters need to know about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NoReturn, Protocol

import numpy as np
import torch

from dlc_core.diag import DlcError, ModelError, UnsupportedError
from dlc_core.graph.node import Node, constant
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.expr import Expr
from dlc_core.ir.types import Dim, TensorType
from dlc_core.op import std
from dlc_frontend_torch.complex_value import Complex, part_of
from dlc_frontend_torch.dtypes import name_of, of_torch
from dlc_frontend_torch.locating import op_name, span_of
from dlc_frontend_torch.symbols import Symbols

Operand = Any
"""A tensor (`Node`), a dim (int or `Expr`), or a Python number."""


class Scope(Protocol):
    """The graph that a node belongs to, while it is converted."""

    @property
    def symbols(self) -> Symbols: ...

    def draw(self, call: Call, type_: TensorType) -> Node:
        """The numbers that torch draws for a random operator, as a tensor of this type."""
        ...

    def require_dims(self, call: Call, cond: Expr, text: str) -> None:
        """Refuse calls whose sizes do not satisfy a condition over dims."""
        ...

    def require_data(self, ok: Node, text: str) -> None:
        """Let calls fail if a scalar of bool is false."""
        ...

    def number(self, call: Call, x: Node) -> Dim:
        """An integer of data as a dim, which must not be negative."""
        ...

    def inline(self, module: Any, inputs: Sequence[Any]) -> Any:
        """Convert a subgraph on values of its placeholders. Returns the value of its output."""
        ...

    def trace(self, function: Callable[..., Any], examples: Sequence[torch.Tensor]) -> Any:
        """The graph module of a function of tensors, of operators that have converters."""
        ...


class Call:
    """A node under conversion. `value` is the fake tensor (or the tuple of them) that torch expects of it.

    `is_complex`: the node has complex operands or results. Then the dtype of a complex tensor is that of its
    parts.
    """

    def __init__(self, node: Any, scope: Scope, is_complex: bool = False) -> None:
        self.node = node
        self.scope = scope
        self.is_complex = is_complex
        self.value: Any = node.meta.get("val")

    @property
    def symbols(self) -> Symbols:
        return self.scope.symbols

    @cached_property
    def op(self) -> str:
        """The name of the operator, such as "aten.add.Tensor"."""
        return op_name(self.node)

    # The expected result.

    @property
    def dtype(self) -> DType:
        """The dtype of the result. Raises UnsupportedError if dlc has none that is equal."""
        return self.dtype_of(self.value)

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The shape of the result."""
        return self.symbols.shape(self.value.shape)

    def dtype_of(self, value: torch.Tensor) -> DType:
        """The dtype of a fake tensor."""
        return self.to_dtype(value.dtype)

    def to_dtype(self, of: torch.dtype) -> DType:
        """dlc's dtype for a dtype of torch."""
        found = part_of(of) if self.is_complex else of_torch(of)
        if found is None:
            raise self.unsupported(f"the dtype {name_of(of)}")
        return found

    # Operands.

    def cast(self, x: Node, to: DType | str) -> Node:
        """The tensor in another dtype, by the rules of C."""
        wanted = dtype(to)
        return x if x.dtype is wanted else std.cast(x, to=wanted)

    def tensor(self, x: Operand, to: DType | str | None = None) -> Node:
        """An operand as a tensor of a dtype, by default that of the result. Numbers and dims become
        scalars.
        """
        wanted = self.dtype if to is None else dtype(to)
        if isinstance(x, Node):
            return self.cast(x, wanted)
        if isinstance(x, Expr):
            return self.cast(std.reshape(std.dims_tensor(dims=(x,)), shape=()), wanted)
        if isinstance(x, complex):
            raise self.unsupported("a complex number")
        return constant(np.asarray(x).astype(wanted.numpy))

    def const(self, value: Any, to: DType | str) -> Node:
        """A constant tensor."""
        return constant(np.asarray(value).astype(dtype(to).numpy))

    def full(self, shape: Sequence[Dim], value: Any, to: DType | str | None = None) -> Node:
        """A tensor of equal elements: a number, a dim or a tensor of one element."""
        return self.broadcast(self.tensor(value, to), shape)

    def broadcast(self, x: Node, shape: Sequence[Dim]) -> Node:
        """The tensor in a shape that it can be broadcast to."""
        return x if tuple(x.shape) == tuple(shape) else std.broadcast_to(x, shape=tuple(shape))

    def reshape(self, x: Node, shape: Sequence[Dim]) -> Node:
        """The elements in another shape."""
        return x if tuple(x.shape) == tuple(shape) else std.reshape(x, shape=tuple(shape))

    def numbers(self, values: Any, what: str) -> tuple[int, ...]:
        """Plain ints. Raises UnsupportedError if one of them depends on a symbolic size."""
        found = tuple(values) if isinstance(values, (tuple, list)) else (values,)
        for each in found:
            if not isinstance(each, int):
                raise self.unsupported(f"{what} that depends on a symbolic size ({each})")
        return found

    def number(self, value: Any, what: str) -> int:
        """A plain int. Raises UnsupportedError if it depends on a symbolic size."""
        return self.numbers((value,), what)[0]

    def axis(self, axis: int, rank: int) -> int:
        """A dimension counted from 0. torch takes 0 and -1 for tensors without dims too."""
        return axis % max(rank, 1)

    def axes(self, axes: Any, rank: int) -> tuple[int, ...]:
        """Dimensions counted from 0; None and () are all of them."""
        if axes is None or (isinstance(axes, (tuple, list)) and not axes):
            return tuple(range(rank))
        given = axes if isinstance(axes, (tuple, list)) else (axes,)
        return tuple(sorted(self.axis(each, rank) for each in given)) if rank else ()

    # Errors.

    def unsupported(self, what: str, hint: str = "") -> UnsupportedError:
        """An error that names the operator and the user's line."""
        return UnsupportedError(f"{self.op}: {what} is not supported", spans=[span_of(self.node)], hint=hint)

    def fail(self, error: DlcError) -> NoReturn:
        """Raise the error with the user's line."""
        raise error.at([span_of(self.node)])

    def check(self, made: Node | Complex, expected: torch.Tensor) -> Node | Complex:
        """Check a result against the type that torch expects. A difference is a defect of a converter."""
        if expected.is_complex() != isinstance(made, Complex):
            raise self._defect("a complex tensor" if isinstance(made, Complex) else "a real tensor", expected)
        if isinstance(made, Complex):
            made.map(lambda part: self._checked(part, expected))
            return made
        return self._checked(made, expected)

    def _checked(self, made: Node, expected: torch.Tensor) -> Node:
        wanted = self.symbols.shape(expected.shape)
        pairs = zip(made.shape, wanted)
        differs = len(made.shape) != len(wanted) or any(
            isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs
        )
        if differs or made.dtype is not self.dtype_of(expected):
            raise self._defect(str(made.type), expected)
        return made

    def _defect(self, made: str, expected: torch.Tensor) -> ModelError:
        wanted = f"{name_of(expected.dtype)}{list(self.symbols.shape(expected.shape))}"
        return ModelError(
            f"{self.op}: dlc infers {made}, torch expects {wanted}",
            spans=[span_of(self.node)],
            hint="this is a defect of dlc's converter of the operator: please report it",
        )


__all__ = ["Call", "Operand", "Scope"]
