"""Random programs of tensor expressions, for tests of schedules and of later passes.

A program is a graph of pointwise maps, broadcasts, transposes, slices, paddings, reductions, GEMMs and
windows over small tensors, some of whose dims are symbolic. Values are small integers, so that all orders of
a sum have the same bits. The program is determined by the state of the generator.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dlc_core import te
from dlc_core.arith import eval_expr
from dlc_core.ir.convert import convert
from dlc_core.ir.expr import Expr, Var, logical_and
from dlc_core.te import Tensor
from dlc_core.tir.interpreter import run
from dlc_core.tir.intrinsics import if_then_else
from dlc_core.tir.stmt import PrimFunc

Array = np.ndarray[Any, Any]
Dim = int | Var
LIMIT = 1 << 18
"""Values are clipped to this magnitude, so that their sums are exact in float32."""
MAX_POINTS = 240
"""The maximum number of elements of a tensor, and of iterations of a block."""


@dataclass(frozen=True)
class TeProgram:
    """A program and the values of its symbolic dims."""

    func: PrimFunc
    sizes: Mapping[Var, int]

    def arrays(self, rng: np.random.Generator) -> list[Array]:
        """Arrays for all buffers: small integers."""
        return arrays_for(self.func, self.sizes, rng)


def arrays_for(func: PrimFunc, sizes: Mapping[Var, int], rng: np.random.Generator) -> list[Array]:
    """An array of small integers for each buffer of a program. Values of integer buffers may be used as
    indices."""
    shapes = [[eval_expr(d, sizes) for d in b.shape] for b in func.buffers]
    low = [0 if b.dtype.is_int else -3 for b in func.buffers]
    high = [2 if b.dtype.is_int else 4 for b in func.buffers]
    drawn = [rng.integers(*ends) for ends in zip(low, high, shapes, strict=True)]
    return [convert(a, b.dtype) for a, b in zip(drawn, func.buffers, strict=True)]


def results_of(
    func: PrimFunc,
    given: Sequence[Array],
    sizes: Mapping[Var, int],
    *,
    check: bool = False,
    externs: Mapping[str, Callable[..., Any]] | None = None,
) -> list[Array]:
    """Run a program on copies of the arrays, and return all buffers."""
    arrays = [a.copy() for a in given]
    for position, layout in func.attrs.get("repack", {}).items():
        arrays[position] = layout.apply_numpy(arrays[position])
    flat = [a.reshape(-1) if b.ndim == 1 else a for a, b in zip(arrays, func.buffers, strict=True)]
    run(func, *flat, *(sizes[v] for v in func.scalars), check=check, externs=externs)
    return arrays


@dataclass(frozen=True)
class _Value:
    """A tensor, the sizes of its dims, and an upper bound of its magnitudes."""

    tensor: Tensor
    dims: tuple[Dim, ...]
    extents: tuple[int, ...]
    bound: int

    @property
    def points(self) -> int:
        return int(np.prod(self.extents, dtype=np.int64)) if self.extents else 1


@dataclass
class TeMaker:
    """Makes a program by choices of `rng`."""

    rng: random.Random
    dtype: str = "float32"
    sizes: dict[Var, int] = field(default_factory=dict)
    inputs: list[Tensor] = field(default_factory=list)
    values: list[_Value] = field(default_factory=list)

    def program(self, ops: int) -> TeProgram:
        """A program of about `ops` computations."""
        for _ in range(self.rng.randint(1, 2)):
            self.placeholder([self.dim() for _ in range(self.rng.randint(1, 3))])
        while len(self.values) - len(self.inputs) < ops:
            self.op()
        computed = [t.tensor for t in self.values if t.tensor not in self.inputs]
        outputs = [computed[-1]]
        if len(computed) > 2 and self.rng.random() < 0.2:
            outputs.append(self.rng.choice(computed[:-1]))
        func = te.create_prim_func(te.inputs_of(outputs), outputs)
        return TeProgram(func, {v: size for v, size in self.sizes.items() if v in func.scalars})

    # Tensors.

    def dim(self) -> Dim:
        value = self.rng.choice((1, 2, 3, 4, 5, 6, 8))
        if self.rng.random() < 0.8:
            return value
        var = Var(f"n{len(self.sizes)}")
        self.sizes[var] = value
        return var

    def value(self, dim: Dim) -> int:
        return self.sizes[dim] if isinstance(dim, Var) else dim

    def placeholder(self, dims: Sequence[Dim]) -> _Value:
        while np.prod([self.value(d) for d in dims]) > MAX_POINTS:
            dims = dims[1:]
        tensor = te.placeholder(tuple(dims), self.dtype, name=f"A{len(self.inputs)}")
        self.inputs.append(tensor)
        return self.add(tensor, dims, 3)

    def add(self, tensor: Tensor, dims: Sequence[Dim], bound: int) -> _Value:
        made = _Value(tensor, tuple(dims), tuple(self.value(d) for d in dims), bound)
        self.values.append(made)
        return made

    def compute(self, dims: Sequence[Dim], body: Callable[..., Any], bound: int) -> _Value:
        name = f"t{len(self.values)}"
        tensor = te.compute(tuple(dims), body, name)
        made = self.add(tensor, dims, bound)
        if bound <= LIMIT:
            return made
        clipped = te.compute(
            tuple(dims),
            lambda *i: te.minimum(te.maximum(tensor[i], -9), 9).astype(self.dtype),
            f"{name}_clip",
        )
        return self.add(clipped, dims, 9)

    def source(self) -> _Value:
        """A random tensor. Later ones are more likely."""
        return self.values[max(self.rng.randrange(len(self.values)) for _ in range(2))]

    def op(self) -> None:
        kinds = ("unary", "binary", "binary", "broadcast", "transpose", "slice", "pad", "reduce", "argmax",
                 "gemm", "window", "choice")  # fmt: skip
        getattr(self, f"_{self.rng.choice(kinds)}")(self.source())

    # Computations.

    def _unary(self, a: _Value) -> None:
        make, factor = self.rng.randrange(4), self.rng.choice((2, 3, -1))
        t = a.tensor
        bodies: list[Callable[..., Expr]] = [
            lambda *i: t[i] * factor,
            lambda *i: te.maximum(t[i], 0),
            lambda *i: t[i] + 1,
            lambda *i: te.select(t[i] > 1, t[i], 2 - t[i]),
        ]
        self.compute(a.dims, bodies[make], a.bound * 3 + 2)

    def _binary(self, a: _Value) -> None:
        same = [b for b in self.values if b.dims == a.dims]
        b = self.rng.choice(same)
        make = self.rng.randrange(4)
        x, y = a.tensor, b.tensor
        bodies: list[Callable[..., Expr]] = [
            lambda *i: x[i] + y[i],
            lambda *i: x[i] - y[i],
            lambda *i: te.minimum(x[i], y[i]),
            lambda *i: x[i] * y[i],
        ]
        self.compute(a.dims, bodies[make], a.bound * b.bound if make == 3 else a.bound + b.bound)

    def _broadcast(self, a: _Value) -> None:
        chosen = sorted(self.rng.sample(range(len(a.dims)), self.rng.randint(0, len(a.dims))))
        dims = tuple(a.dims[d] for d in chosen)
        fitting = [b for b in self.values if b.dims == dims]
        b = self.rng.choice(fitting) if fitting and self.rng.random() < 0.7 else self.placeholder(dims)
        if len(b.dims) != len(chosen):
            return
        x, y = a.tensor, b.tensor
        self.compute(a.dims, lambda *i: x[i] + y[tuple(i[d] for d in chosen)], a.bound + b.bound)

    def _transpose(self, a: _Value) -> None:
        order = list(range(len(a.dims)))
        self.rng.shuffle(order)
        t = a.tensor

        def body(*i: Var) -> Expr:
            inverse = {d: i[n] for n, d in enumerate(order)}
            return t[tuple(inverse[d] for d in range(len(order)))]

        self.compute([a.dims[d] for d in order], body, a.bound)

    def _slice(self, a: _Value) -> None:
        divisible = [d for d, dim in enumerate(a.dims) if isinstance(dim, int) and dim > 2]
        if not divisible:
            return
        dim = self.rng.choice(divisible)
        size, t = a.extents[dim], a.tensor
        step = self.rng.choice((1, 2))
        count = self.rng.randint(1, (size + step - 1) // step)
        first = self.rng.randint(0, size - 1 - (count - 1) * step)
        dims = [*a.dims[:dim], count, *a.dims[dim + 1 :]]
        self.compute(dims, lambda *i: t[_replaced(i, dim, i[dim] * step + first)], a.bound)

    def _pad(self, a: _Value) -> None:
        dim = self.rng.randrange(len(a.dims)) if a.dims else 0
        if not a.dims or isinstance(a.dims[dim], Var) or a.points * 2 > MAX_POINTS:
            return
        size, t = a.extents[dim], a.tensor
        before, after = self.rng.randint(0, 2), self.rng.randint(0, 2)
        dims = [*a.dims[:dim], size + before + after, *a.dims[dim + 1 :]]

        def body(*i: Var) -> Expr:
            inside = logical_and(i[dim] >= before, i[dim] < size + before)
            return if_then_else(inside, t[_replaced(i, dim, i[dim] - before)], 0)

        self.compute(dims, body, a.bound)

    def _reduce(self, a: _Value) -> None:
        if not a.dims:
            return
        reduced = sorted(self.rng.sample(range(len(a.dims)), self.rng.randint(1, len(a.dims))))
        axes = {d: te.reduce_axis(a.dims[d], f"r{d}") for d in reduced}
        kept = [d for d in range(len(a.dims)) if d not in axes]
        make, t = self.rng.choice((te.sum, te.sum, te.max, te.min)), a.tensor
        limit = self.rng.choice((None, None, 2)) if make is te.sum else None
        first = axes[reduced[0]]

        def body(*i: Var) -> Any:
            indices = {**{d: axis.var for d, axis in axes.items()}, **dict(zip(kept, i, strict=True))}
            value = t[tuple(indices[d] for d in range(len(a.dims)))]
            where = None if limit is None else first.var < limit
            return make(value, tuple(axes.values()), where)

        count = int(np.prod([a.extents[d] for d in reduced]))
        self.compute([a.dims[d] for d in kept], body, a.bound * count)

    def _argmax(self, a: _Value) -> None:
        """The index of the greatest element along a dim, or that element."""
        if not a.dims:
            return
        dim = self.rng.randrange(len(a.dims))
        axis, t = te.reduce_axis(a.dims[dim], "r"), a.tensor
        kept = [*a.dims[:dim], *a.dims[dim + 1 :]]
        name = f"p{len(self.values)}"
        found = te.compute(tuple(kept), lambda *i: te.argmax(t[_inserted(i, dim, axis.var)], axis), name)
        part = found[self.rng.randrange(2)]
        self.compute(kept, lambda *i: part[i].astype(self.dtype), max(a.bound, 8))

    def _gemm(self, a: _Value) -> None:
        if not a.dims:
            return
        n = self.rng.choice((1, 2, 4, 5))
        if a.points * n > MAX_POINTS:
            return
        b = self.placeholder([a.dims[-1], n])
        if len(b.dims) != 2:
            return
        axis, x, y = te.reduce_axis(a.dims[-1], "r"), a.tensor, b.tensor
        self.compute(
            [*a.dims[:-1], n],
            lambda *i: te.sum(x[_replaced(i, len(i) - 1, axis.var)] * y[axis.var, i[-1]], axis),
            a.bound * 3 * a.extents[-1],
        )

    def _window(self, a: _Value) -> None:
        long = [d for d, dim in enumerate(a.dims) if isinstance(dim, int) and dim > 2]
        if not long:
            return
        dim, size = self.rng.choice(long), self.rng.randint(2, 3)
        weights = self.placeholder([size])
        axis, x, w = te.reduce_axis(size, "k"), a.tensor, weights.tensor
        dims = [*a.dims[:dim], a.extents[dim] - size + 1, *a.dims[dim + 1 :]]
        self.compute(
            dims,
            lambda *i: te.sum(x[_replaced(i, dim, i[dim] + axis.var)] * w[axis.var], axis),
            a.bound * 3 * size,
        )

    def _choice(self, a: _Value) -> None:
        """Different formulas before and after an index of one dim."""
        if not a.dims:
            return
        dim, t = self.rng.randrange(len(a.dims)), a.tensor
        bound = self.rng.randint(0, max(a.extents))
        choose = self.rng.choice((te.select, if_then_else))
        self.compute(a.dims, lambda *i: choose(i[dim] < bound, t[i], t[i] * 2 + 1), a.bound * 2 + 1)


def _replaced(indices: Sequence[Expr], dim: int, value: Expr) -> tuple[Expr, ...]:
    """Indices with the index of one dim replaced."""
    return (*indices[:dim], value, *indices[dim + 1 :])


def _inserted(indices: Sequence[Expr], dim: int, value: Expr) -> tuple[Expr, ...]:
    """Indices with another one inserted before a dim."""
    return (*indices[:dim], value, *indices[dim:])


def random_te_program(rng: random.Random) -> TeProgram:
    """A random program of one to six computations."""
    dtype = "int32" if rng.random() < 0.15 else "float32"
    return TeMaker(rng, dtype).program(rng.randint(1, 6))


__all__ = ["TeMaker", "TeProgram", "arrays_for", "random_te_program", "results_of"]
