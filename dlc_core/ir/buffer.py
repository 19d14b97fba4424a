"""Buffers: typed, shaped regions of memory that loads and stores address."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.ir.dtype import INDEX, DType, DTypeLike, dtype
from dlc_core.ir.expr import Expr, ExprLike, Load, as_expr, const, const_value, load

DEFAULT_ALIGN = 64
_ZERO, _ONE = const(0), const(1)


class Buffer:
    """A region of memory, compared by identity.

    `shape` and `strides` are index expressions in elements; no strides means row-major. `scope` is the memory
    scope: "global" (the caller's or arena memory), "local" (registers or stack of one thread), "shared", or a
    scope of the target. `offset` is the element offset of index zero from the pointer. `align` is the
    pointer's alignment in bytes.
    """

    __slots__ = ("__weakref__", "_steps", "align", "dtype", "name", "offset", "scope", "shape", "strides")

    def __init__(
        self,
        name: str,
        shape: Sequence[ExprLike],
        dtype_: DTypeLike = "float32",
        *,
        strides: Sequence[ExprLike] | None = None,
        scope: str = "global",
        offset: ExprLike = 0,
        align: int = 0,
    ) -> None:
        self.name = name
        self.shape: tuple[Expr, ...] = tuple(as_expr(dim) for dim in shape)
        self.dtype: DType = dtype(dtype_)
        self.strides: tuple[Expr, ...] | None = (
            None if strides is None else tuple(as_expr(s) for s in strides)
        )
        self.scope = scope
        self.offset: Expr = as_expr(offset)
        self.align = align or min(DEFAULT_ALIGN, self.dtype.itemsize)
        self._steps: tuple[Expr, ...] | None = self.strides

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Load:
        expr = load(self, indices if isinstance(indices, tuple) else (indices,))
        assert isinstance(expr, Load)
        return expr

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def element_strides(self) -> tuple[Expr, ...]:
        """Strides in elements; row-major strides if none are given."""
        if self._steps is None:
            strides: list[Expr] = []
            step: Expr = const(1)
            for dim in reversed(self.shape):
                strides.append(step)
                step = dim * step
            self._steps = tuple(reversed(strides))
        return self._steps

    def linear_index(self, indices: Sequence[Expr]) -> Expr:
        """Element offset of `buffer[indices]` from the pointer."""
        total = self.offset
        for index, stride in zip(indices, self.element_strides(), strict=True):
            if index.dtype.scalar is not INDEX:
                index = index.astype(INDEX.with_lanes(index.dtype.lanes))
            term = index if stride is _ONE and index.dtype is INDEX else index * stride
            total = term if total is _ZERO and term.dtype is INDEX else term + total
        return total

    def num_elements(self) -> Expr:
        """Product of the shape."""
        total: Expr = const(1)
        for dim in self.shape:
            total = total * dim
        return total

    def static_shape(self) -> tuple[int, ...] | None:
        """The shape as ints, or None when a dim is symbolic."""
        values = [const_value(dim) for dim in self.shape]
        return None if any(v is None for v in values) else tuple(v for v in values if v is not None)

    def like(
        self, name: str | None = None, *, shape: Sequence[ExprLike] | None = None, scope: str | None = None
    ) -> Buffer:
        """A new compact buffer of the same dtype."""
        return Buffer(
            name or self.name, self.shape if shape is None else shape, self.dtype, scope=scope or self.scope
        )

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"
