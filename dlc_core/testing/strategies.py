"""Random graphs, and Hypothesis strategies of them.

random_graph(random.Random(7), "float32")         a deterministic random graph
@given(graphs())                                  a strategy for Hypothesis, which shrinks failing graphs
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dlc_core.graph.node import Function, Node, constant, get_item, make_tuple, param
from dlc_core.ir.convert import convert
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Var
from dlc_core.ir.types import Dim, tensor_type
from dlc_core.op import std
from dlc_core.op.declare import NDArray
from dlc_core.op.infer import product, simplify
from dlc_core.op.reference import evaluate_dim

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33)
DTYPES = ("float32", "float64", "int32")
LIMIT = 20_000
"""The maximum number of elements of a value."""


@dataclass(frozen=True)
class RandomGraph:
    """A graph, and sizes of its symbolic dims."""

    function: Function
    sizes: Sequence[Mapping[Var, int]]
    """Assignments of sizes to all symbols. If all dims are constant, there is one empty assignment."""
    dtype: str

    def feeds(self, sizes: Mapping[Var, int], seed: int = 0) -> list[NDArray]:
        """Inputs for these sizes: floats in [-1, 1], small integers, bools."""
        rng = np.random.default_rng(seed)
        made: list[NDArray] = []
        for own in self.function.params:
            shape = [evaluate_dim(d, sizes) for d in own.shape]
            made.append(_values(rng, shape, own.dtype))
        return made


def _values(rng: np.random.Generator, shape: Sequence[int], type_: DType) -> NDArray:
    if type_.is_bool:
        return rng.integers(0, 2, shape).astype(bool)
    if type_.is_int:
        return convert(rng.integers(-9, 9, shape, endpoint=True), type_)
    return convert(rng.uniform(-1, 1, shape), type_)


class _Maker:
    """Builds a graph from random ops."""

    def __init__(self, rng: random.Random, dtype: str, symbolic: bool) -> None:
        self.rng = rng
        self.type = DType(dtype)
        self.params: list[Node] = []
        self.values: list[Node] = []
        chosen = [n for n in SIZES if symbolic and n > 2 and rng.random() < 0.5]
        self.symbols = {n: Var(f"n{n}") for n in chosen}

    @property
    def smaller_sizes(self) -> dict[Var, int]:
        return {var: n for n, var in self.symbols.items()}

    def size(self, value: Node) -> int:
        return evaluate_dim(product(value.shape), self.smaller_sizes)

    def input(self, shape: Sequence[Dim], type_: DType | None = None) -> Node:
        made = param(f"x{len(self.params)}", tensor_type(shape, type_ or self.type))
        self.params.append(made)
        return made

    def weight(self, shape: Sequence[int]) -> Node:
        rng = np.random.default_rng(self.rng.randrange(1 << 30))
        return constant(_values(rng, shape, self.type))

    def shape(self) -> list[Dim]:
        rank = self.rng.choice((0, 1, 2, 2, 3, 3, 4, 4))
        dims: list[Dim] = []
        total = 1
        for _ in range(rank):
            n = self.rng.choice([n for n in SIZES if n * total <= LIMIT // 20])
            total *= n
            dims.append(self.symbols.get(n, n))
        return dims

    def pick(self, accept: Callable[[Node], bool]) -> Node | None:
        fitting = [v for v in self.values if accept(v)]
        return self.rng.choice(fitting) if fitting else None

    def step(self) -> None:
        makers = _FLOAT_STEPS if self.type.is_float else _STEPS
        made = self.rng.choice(makers)(self)
        if made is not None and self.size(made) <= LIMIT:
            self.values.append(made)

    # One method for each kind of step. It returns None if no value matches.

    def unary(self) -> Node | None:
        names = ["neg", "abs", "relu"]
        if self.type.is_float:
            names += ["tanh", "sigmoid", "erf", "silu", "gelu", "sin", "leaky_relu"]
        return std.BY_NAME[self.rng.choice(names)].build(self.rng.choice(self.values))

    def binary(self) -> Node | None:
        a = self.rng.choice(self.values)
        b = self.pick(lambda v: v is not a and v.shape == a.shape)
        if b is None or self.rng.random() < 0.6:
            shape = [1 if self.rng.random() < 0.3 else d for d in a.shape]
            b = self.input(shape[self.rng.randint(0, len(shape)) :])
        sides = (a, b) if self.rng.random() < 0.5 else (b, a)
        return std.BY_NAME[self.rng.choice(["add", "sub", "mul", "minimum", "maximum"])].build(*sides)

    def where(self) -> Node | None:
        a = self.rng.choice(self.values)
        return std.where(self.input(a.shape, DType("bool")), a, self.input(()))

    def reduce(self) -> Node | None:
        a = self.pick(lambda v: len(v.shape) > 0)
        if a is None:
            return None
        names = ["reduce_sum", "reduce_max", "reduce_min"] + ["reduce_mean"] * self.type.is_float
        axes = [i for i in range(len(a.shape)) if self.rng.random() < 0.5] or [len(a.shape) - 1]
        made = std.BY_NAME[self.rng.choice(names)].build(a, axes=axes, keepdims=self.rng.random() < 0.5)
        return std.tanh(made) if self.type.is_float else made

    def softmax(self) -> Node | None:
        a = self.pick(lambda v: len(v.shape) > 0)
        return None if a is None else std.softmax(a, axis=self.rng.randrange(len(a.shape)))

    def layer_norm(self) -> Node | None:
        a = self.pick(lambda v: len(v.shape) > 0 and self.extent(v, -1) > 2)
        return None if a is None else std.layer_norm(a, axis=len(a.shape) - 1, eps=0.1)

    def matmul(self) -> Node | None:
        a = self.pick(lambda v: len(v.shape) > 1)
        if a is None:
            return None
        columns = self.rng.choice(SIZES)
        inner = a.shape[-1]
        weight = isinstance(inner, int) and self.rng.random() < 0.6
        b = self.weight((inner, columns)) if weight else self.input((inner, columns))
        made = std.matmul(a, b)
        return std.tanh(made) if self.type.is_float else made

    def conv(self) -> Node | None:
        a = self.pick(lambda v: len(v.shape) == 4 and isinstance(v.shape[1], int) and v.shape[1] <= 9)
        if a is None:
            return None
        kernel = self.rng.choice((1, 3))
        stride = self.rng.choice((1, 1, 2))
        w = self.weight((self.rng.choice((1, 3, 8)), a.shape[1], kernel, kernel))
        made = std.conv(a, w, strides=(stride, stride), padding=(kernel // 2,) * 4)
        return std.tanh(made)

    def transpose(self) -> Node | None:
        a = self.pick(lambda v: len(v.shape) > 1)
        if a is None:
            return None
        axes = list(range(len(a.shape)))
        self.rng.shuffle(axes)
        return std.transpose(a, axes=axes)

    def reshape(self) -> Node | None:
        """Fuse two neighbouring dims, or insert a dim of size 1."""
        a = self.rng.choice(self.values)
        shape = list(a.shape)
        if len(shape) > 1 and self.rng.random() < 0.7:
            at = self.rng.randrange(len(shape) - 1)
            shape[at : at + 2] = [simplify(product(shape[at : at + 2]))]
        elif len(shape) < 5:
            shape.insert(self.rng.randint(0, len(shape)), 1)
        return std.reshape(a, shape=shape)

    def concat(self) -> Node | None:
        a = self.pick(lambda v: len(v.shape) > 0)
        if a is None:
            return None
        b = self.pick(lambda v: v.shape == a.shape) or a
        return std.concat(a, b, axis=self.rng.randrange(len(a.shape)))

    def slice(self) -> Node | None:
        a = self.pick(lambda v: any(self.extent(v, i) > 2 for i in range(len(v.shape))))
        if a is None:
            return None
        axis = self.rng.choice([i for i in range(len(a.shape)) if self.extent(a, i) > 2])
        begin = self.rng.choice((0, 1))
        end = a.shape[axis] - self.rng.choice((0, 1))
        stride = self.rng.choice((1, 1, 2))
        return std.slice(a, begins=(begin,), ends=(end,), strides=(stride,), axes=(axis,))

    def split(self) -> Node | None:
        a = self.pick(lambda v: len(v.shape) > 0 and isinstance(v.shape[0], int) and v.shape[0] > 1)
        if a is None:
            return None
        first = self.rng.randint(1, a.shape[0] - 1)
        parts = std.split(a, sizes=(first, a.shape[0] - first), axis=0)
        self.values.append(get_item(parts, 0))
        return get_item(parts, 1)

    def pad(self) -> Node | None:
        a = self.pick(lambda v: len(v.shape) > 0)
        if a is None:
            return None
        pads = [self.rng.choice((0, 0, 1, 2)) for _ in range(2 * len(a.shape))]
        return std.pad(a, pads=pads, value=1.0)

    def broadcast(self) -> Node | None:
        a = self.rng.choice(self.values)
        return std.broadcast_to(a, shape=(self.rng.choice((2, 3)), *a.shape)) if len(a.shape) < 4 else None

    def gather(self) -> Node | None:
        a = self.pick(lambda v: len(v.shape) > 0)
        if a is None:
            return None
        axis = self.rng.randrange(len(a.shape))
        count = self.rng.choice((1, 3, 8))
        smallest = self.extent(a, axis)
        indices = [self.rng.randrange(-smallest, smallest) for _ in range(count)]
        return std.gather(a, constant(np.array(indices, np.int64)), axis=axis)

    def extent(self, value: Node, axis: int) -> int:
        """The size of a dim in the trial with the smaller sizes."""
        return evaluate_dim(value.shape[axis], self.smaller_sizes)


_STEPS: Sequence[Callable[[_Maker], Node | None]] = (
    *(_Maker.unary, _Maker.unary, _Maker.binary, _Maker.binary, _Maker.binary, _Maker.where),
    *(_Maker.reduce, _Maker.reduce, _Maker.matmul, _Maker.transpose, _Maker.reshape, _Maker.concat),
    *(_Maker.slice, _Maker.split, _Maker.pad, _Maker.broadcast, _Maker.gather),
)
_FLOAT_STEPS = (*_STEPS, _Maker.softmax, _Maker.layer_norm, _Maker.conv, _Maker.conv, _Maker.matmul)


def random_graph(
    rng: random.Random, dtype: str = "float32", *, symbolic: bool = False, steps: int = 10
) -> RandomGraph:
    """A graph of up to `steps` ops over values of one dtype, with one or several results.

    Values stay small, so that results with different orders of evaluation can be compared.
    """
    maker = _Maker(rng, dtype, symbolic)
    maker.values = [maker.input(maker.shape()) for _ in range(rng.randint(1, 2))]
    for _ in range(rng.randint(1, steps)):
        maker.step()
    last = maker.values[-1]
    others = [v for v in maker.values[:-1] if rng.random() < 0.15]
    body = make_tuple([last, *others]) if others else last
    smaller = maker.smaller_sizes
    sizes = [smaller, {var: n + 3 for var, n in smaller.items()}] if smaller else [{}]
    return RandomGraph(Function("main", tuple(maker.params), body), sizes, dtype)


def graphs(
    dtypes: Sequence[str] = DTYPES, *, symbolic: bool | None = None, steps: int = 10
) -> st.SearchStrategy[RandomGraph]:
    """Random graphs. If `symbolic` is None, some have symbolic dims."""

    def made(rng: random.Random, dtype: str, dims: bool) -> RandomGraph:
        return random_graph(rng, dtype, symbolic=dims, steps=steps)

    symbolic_dims: Any = st.booleans() if symbolic is None else st.just(symbolic)
    return st.builds(made, st.randoms(use_true_random=False), st.sampled_from(list(dtypes)), symbolic_dims)


__all__ = ["DTYPES", "RandomGraph", "graphs", "random_graph"]
