"""Complex tensors: operators that move, choose and add elements do so with both parts; products; norms."""

from __future__ import annotations

from functools import partial
from typing import Any

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.aten import complex_arithmetic as arithmetic
from dlc_frontend_torch.aten import reduction
from dlc_frontend_torch.aten.complex_numbers import abs_, pair, rounded
from dlc_frontend_torch.aten.promotion import opmath
from dlc_frontend_torch.aten.slicing import elements, sliced
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.complex_value import Complex
from dlc_frontend_torch.registry import CONVERTERS, complex_aten

# Operators that are linear in the values, by the positions of these. Such an operator is done with the real
# parts, and with the imaginary parts, as for real numbers.
LINEAR: dict[int | tuple[int, ...], str] = {
    0: "view reshape _unsafe_view unsqueeze squeeze squeeze.dim squeeze.dims view_copy _reshape_alias "
    "unsqueeze_copy squeeze_copy squeeze_copy.dim squeeze_copy.dims expand expand_copy permute permute_copy "
    "t t_copy transpose.int transpose_copy.int cat stack as_strided as_strided_copy slice.Tensor "
    "slice_copy.Tensor narrow narrow_copy select.int select_copy.int split_with_sizes split_with_sizes_copy "
    "split.sizes split.Tensor split_copy.Tensor unbind.int unbind_copy.int flip roll repeat diagonal "
    "diagonal_copy unfold unfold_copy tril triu index.Tensor _unsafe_index.Tensor index_select gather take "
    "masked_select zeros zeros_like new_zeros zero empty.memory_format empty_like empty_strided "
    "empty_permuted new_empty new_empty_strided reflection_pad1d reflection_pad2d reflection_pad3d "
    "replication_pad1d replication_pad2d replication_pad3d sum sum.dim_IntList mean mean.dim cumsum "
    "scalar_tensor",
    (0, 1): "slice_scatter select_scatter diagonal_scatter as_strided_scatter copy full_like new_full "
    "fill.Scalar fill.Tensor",
    1: "full",
    (0, 2): "constant_pad_nd index_put _unsafe_index_put masked_fill.Scalar masked_fill.Tensor put "
    "masked_scatter",
    (1, 2): "where.self where.ScalarOther where.ScalarSelf where.Scalar",
    (0, 3): "scatter.src scatter.value scatter_add index_add index_copy index_fill.int_Scalar "
    "index_fill.int_Tensor",
}  # fmt: skip
NAMED = ("value", "fill_value")
"""Values that are given by name."""


def _part(c: Call, x: Any, real: bool) -> Any:
    """The real or the imaginary part of a value, or of a list of them."""
    if isinstance(x, Complex):
        return x.real if real else x.imaginary
    if isinstance(x, tuple):
        return tuple(_part(c, each, real) for each in x)
    if isinstance(x, complex):
        return x.real if real else x.imag
    if real or x is None:
        return x
    return c.full(x.shape, 0, x.dtype) if isinstance(x, Node) else 0


def _add_linear(name: str, positions: tuple[int, ...]) -> None:
    @complex_aten(name)
    def both(c: Call, *args: Any, **kwargs: Any) -> Any:
        convert = CONVERTERS[c.op]
        if kwargs.get("reduce") is not None:
            raise c.unsupported("a reduction of complex numbers")
        made = []
        for real in (True, False):
            given = [_part(c, x, real) if i in positions else x for i, x in enumerate(args)]
            named = {key: _part(c, x, real) if key in NAMED else x for key, x in kwargs.items()}
            made.append(convert(c, *given, **named))
        if isinstance(made[0], Node):
            return Complex(made[0], made[1])
        return tuple(Complex(real, imaginary) for real, imaginary in zip(*made, strict=True))


for _positions, _names in LINEAR.items():
    for _name in _names.split():
        _add_linear(_name, _positions if isinstance(_positions, tuple) else (_positions,))


@complex_aten("ones ones_like new_ones")
def ones(c: Call, *_: Any, **__: Any) -> Complex:
    return Complex(c.full(c.shape, 1), c.full(c.shape, 0))


@complex_aten("eye eye.m")
def eye(c: Call, rows: Any, columns: Any = None, **_: Any) -> Complex:
    made = std.eye(rows=rows, columns=rows if columns is None else columns, dtype=c.dtype)
    return Complex(made, c.full(c.shape, 0))


# Products. Those of narrow parts are summed in float32.


def _product(c: Call, x: Complex, y: Complex) -> Complex:
    """The matrix product in the opmath dtype."""
    kind = opmath(c.dtype)
    columns = len(y.shape) == 1
    a, b = pair(c, x, kind), pair(c, y, kind)
    if columns:
        b = b.map(lambda part: std.unsqueeze(part, axes=(1,)))
    made = arithmetic.times(a, b, std.matmul)
    return made.map(lambda part: std.squeeze(part, axes=(len(part.shape) - 1,))) if columns else made


@complex_aten("mm bmm matmul mv")
def matmul(c: Call, x: Complex, y: Complex) -> Complex:
    return rounded(c, _product(c, x, y))


@complex_aten("dot")
def dot(c: Call, x: Complex, y: Complex) -> Complex:
    return rounded(c, arithmetic.times(x, y).map(std.reduce_sum))


@complex_aten("vdot")
def vdot(c: Call, x: Complex, y: Complex) -> Complex:
    return dot(c, arithmetic.conjugate(x), y)


@complex_aten("addmm baddbmm addmv")
def addmm(c: Call, bias: Complex, x: Complex, y: Complex, *, beta: Any = 1, alpha: Any = 1) -> Complex:
    kind = opmath(c.dtype)
    made = _product(c, x, y)
    made = made if alpha == 1 else arithmetic.times(made, pair(c, alpha, kind))
    if beta != 0:
        own = pair(c, bias, kind)
        made = arithmetic.plus(made, own if beta == 1 else arithmetic.times(own, pair(c, beta, kind)))
    return rounded(c, made)


@complex_aten("prod prod.dim_int")
def prod(c: Call, x: Complex, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Complex:
    """Products of halves, until one element is left."""
    rank = len(x.shape)
    made = pair(c, x, opmath(c.dtype))
    if dim is None:
        made, axis = made.map(lambda part: c.reshape(part, (elements(x.shape),))), 0
    elif rank:
        axis = c.axis(dim, rank)
    else:
        return rounded(c, made)
    count = c.number(made.shape[axis], "a product of complex numbers with a size")
    if count == 0:
        return Complex(c.full(c.shape, 1), c.full(c.shape, 0))
    while count > 1:
        half = count // 2
        first, second, rest = (
            made.map(partial(sliced, axis=axis, begin=begin, end=end))
            for begin, end in ((0, half), (half, 2 * half), (2 * half, count))
        )
        joined = arithmetic.times(first, second)
        if count % 2:
            joined = Complex(
                std.concat(joined.real, rest.real, axis=axis),
                std.concat(joined.imaginary, rest.imaginary, axis=axis),
            )
        made, count = joined, half + count % 2
    return rounded(c, made.map(lambda part: c.reshape(part, c.shape)))


@complex_aten("linalg_vector_norm")
def vector_norm(c: Call, x: Complex, *args: Any, **kwargs: Any) -> Node:
    return reduction.vector_norm(c, abs_(c, x), *args, **kwargs)


@complex_aten("var.correction")
def var(c: Call, x: Complex, *args: Any, **kwargs: Any) -> Node:
    """The sum of the variances of both parts."""
    return std.add(*(reduction.var(c, part, *args, **kwargs) for part in (x.real, x.imaginary)))


@complex_aten("std.correction")
def std_(c: Call, x: Complex, *args: Any, **kwargs: Any) -> Node:
    return std.sqrt(var(c, x, *args, **kwargs))
