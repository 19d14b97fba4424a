"""How an executable is called: names, types, symbolic dims, sizes.  Plain data, saved in artefacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc_core.arith import eval_expr, solve_dim
from dlc_core.diag import UsageError
from dlc_core.ir.expr import Expr, Var, free_vars
from dlc_core.ir.types import TensorType


@dataclass(frozen=True)
class Value:
    """One input or output: public name and type (dims may be expressions over the signature's symbols)."""

    name: str
    type: TensorType

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


@dataclass(frozen=True)
class Signature:
    """Buffers are passed in the order inputs, outputs, weights, arena; then the symbols by value."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    symbols: tuple[Var, ...]
    arena_size: Expr
    """Bytes of scratch memory of one call."""
    weights_size: int

    def check(self, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        """Count, dtypes and ranks of the inputs; raises UsageError that says what is expected."""
        if len(arrays) != len(self.inputs):
            raise UsageError(
                f"{len(arrays)} inputs given, {len(self.inputs)} needed",
                details=[str(value) for value in self.inputs],
            )
        for value, array in zip(self.inputs, arrays, strict=True):
            if array.dtype != value.type.dtype.numpy:
                raise UsageError(
                    f"input {value.name!r} is {array.dtype}, {value.type.dtype} is needed",
                    hint=f'convert it with .astype("{value.type.dtype}")',
                )
            if array.ndim != value.type.ndim:
                raise UsageError(f"input {value.name!r} has shape {array.shape}, {value.type} is needed")

    def bind_symbols(self, shapes: Sequence[tuple[int, ...]]) -> dict[Var, int]:
        """Values of the symbolic dims from the inputs' shapes; raises UsageError where shapes do not fit."""
        known: dict[Var, int] = {}
        later: list[tuple[Value, int, Expr, int]] = []
        for value, shape in zip(self.inputs, shapes, strict=True):
            for axis, (dim, size) in enumerate(zip(value.type.shape, shape, strict=True)):
                if isinstance(dim, int):
                    if dim != size:
                        raise self._mismatch(value, shape, f"dim {axis} is {size}, not {dim}")
                elif isinstance(dim, Var) and dim not in known:
                    known[dim] = size
                else:
                    later.append((value, axis, dim, size))
        for value, axis, dim, size in later:
            free = [v for v in free_vars(dim) if v not in known]
            if len(free) == 1 and (solved := solve_dim(dim, size, free[0])) is not None:
                found = eval_expr(solved, known) if isinstance(solved, Expr) else solved
                known[free[0]] = found
            elif free or eval_expr(dim, known) != size:
                wanted = "undetermined" if free else eval_expr(dim, known)
                shape = shapes[self.inputs.index(value)]
                raise self._mismatch(value, shape, f"dim {axis} is {size}, but {dim} is {wanted}")
        return known

    def _mismatch(self, value: Value, shape: tuple[int, ...], why: str) -> UsageError:
        return UsageError(f"input {value.name!r} has shape {shape}, {value.type} is needed", why=why)

    def output_shapes(self, symbols: Mapping[Var, int]) -> list[tuple[int, ...]]:
        """Shapes of the outputs for given symbol values."""
        return [
            tuple(d if isinstance(d, int) else eval_expr(d, symbols) for d in value.type.shape)
            for value in self.outputs
        ]

    @property
    def is_static(self) -> bool:
        return not self.symbols and all(v.type.is_static for v in (*self.inputs, *self.outputs))


