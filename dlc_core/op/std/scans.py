"""Running reductions along an axis: sums, products, extremes, logarithms of sums of exponentials.

Floats of 16 bits accumulate in float32; integers keep their dtype and wrap around.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dlc_core import te
from dlc_core.ir.expr import Expr, binary, const, maximum, minimum, select
from dlc_core.ir.types import TensorType
from dlc_core.op.declare import FLOATS, NUMBERS, Attr, ErrorSample, NDArray, OpDecl, Sample, Tensor, op
from dlc_core.op.infer import Attrs, axis_of, of_input
from dlc_core.op.lower import compute, compute_type, narrow, widen
from dlc_core.op.samples import wrong_dtype
from dlc_core.tir.intrinsics import intrinsic

_AXIS = Attr("axis", "int")


def _infer(x: TensorType, attrs: Attrs) -> TensorType:
    axis_of(attrs["axis"], x.ndim)
    return x


def _scan(
    type_: TensorType,
    attrs: Attrs,
    x: te.Tensor,
    identity: Callable[[str], Expr],
    combine: Callable[[Expr, Expr], Expr],
    name: str,
) -> te.Tensor:
    """A scan. State t combines the first t elements; state 0 is the identity."""
    axis = axis_of(attrs["axis"], x.ndim)
    reverse, exclusive = attrs.get("reverse", False), attrs.get("exclusive", False)
    steps = x.shape[axis]
    shape = (steps + 1, *x.shape[:axis], *x.shape[axis + 1 :])

    def element(t: Expr, rest: Sequence[Expr]) -> Expr:
        index = (*rest[:axis], steps - 1 - t if reverse else t, *rest[axis:])
        return widen(x[index])

    def longer(t: Expr, *rest: Expr) -> Expr:
        before = (t - 1, *rest)
        return combine(state[before], element(t - 1, rest))

    wide = compute_type(x.dtype)
    state = te.placeholder(shape, wide, "state")
    start = compute((1, *shape[1:]), lambda *i: identity(wide.name), "start")
    total = te.scan(start, compute(shape, longer, "step"), state, inputs=[x], name=name)

    def ended(*i: Expr) -> Expr:
        before = steps - 1 - i[axis] if reverse else i[axis]
        count = before if exclusive else before + 1
        index = (count, *i[:axis], *i[axis + 1 :])
        return narrow(total[index], type_.dtype)

    return compute(x.shape, ended, f"{name}_end")


def _running(
    name: str,
    doc: str,
    reference: Callable[[NDArray, int], Any],
    identity: Callable[[str], Expr],
    combine: Callable[[Expr, Expr], Expr],
    *,
    dtypes: Sequence[str] = NUMBERS,
    values: str = "normal",
    special: bool = True,
) -> OpDecl:
    def lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
        return _scan(type_, attrs, x, identity, combine, name)

    some = [Sample((Tensor((3, 6), values),), {"axis": axis}) for axis in (1, 0, -1)]
    some.append(Sample((Tensor((2, 3, 4), values),), {"axis": 1}))
    if special:
        some.append(Sample((Tensor((2, 12), "special"),), {"axis": 1}))
    return op(
        name, doc, ["x"], [_AXIS], kind="reduction", infer=of_input(_infer, dtypes),
        reference=lambda x, *, axis: np.asarray(reference(x, axis)), lower=lower, dtypes=dtypes, samples=some,
        error_samples=[
            ErrorSample((Tensor((2,)),), {"axis": 1}, "out of range"),
            wrong_dtype("bool", attrs={"axis": 0}),
        ],
    )  # fmt: skip


def _cumsum_reference(x: NDArray, *, axis: int, exclusive: bool, reverse: bool) -> NDArray:
    given = np.flip(x, axis) if reverse else x
    total = np.cumsum(given, axis, dtype=x.dtype)
    if exclusive:
        total = np.roll(total, 1, axis)
        total[(slice(None),) * (axis % x.ndim) + (slice(0, 1),)] = 0
    return np.flip(total, axis) if reverse else total


def _cumsum_lower(type_: TensorType, attrs: Attrs, x: te.Tensor) -> te.Tensor:
    return _scan(type_, attrs, x, lambda kind: const(0, kind), lambda old, new: old + new, "cumsum")


CUMSUM = op(
    "cumsum",
    "running sums along an axis; `exclusive` leaves out the element itself, `reverse` runs from the end",
    ["x"],
    [_AXIS, Attr("exclusive", "bool", False), Attr("reverse", "bool", False)],
    kind="reduction",
    infer=of_input(_infer, NUMBERS),
    reference=_cumsum_reference,
    lower=_cumsum_lower,
    dtypes=NUMBERS,
    samples=tuple(
        Sample((Tensor((3, 6)),), {"axis": axis, "exclusive": exclusive, "reverse": reverse})
        for axis, exclusive, reverse in (
            (1, False, False),
            (0, True, False),
            (-1, False, True),
            (1, True, True),
        )
    ),
    error_samples=[
        ErrorSample((Tensor((2,)),), {"axis": 1}, "out of range"),
        wrong_dtype("bool", attrs={"axis": 0}),
    ],
)


def _log_add_exp(a: Expr, b: Expr) -> Expr:
    """log(exp(a) + exp(b)) by the larger one and the difference, which is NaN for equal infinities."""
    larger, smaller = maximum(a, b), minimum(a, b)
    equal = binary("eq", a, b)
    gap = select(equal, const(0, a.dtype), smaller - larger)
    grown = larger + intrinsic("log1p", intrinsic("exp", gap))
    return select(intrinsic("isinf", larger), larger, grown)


CUMPROD = _running(
    "cumprod",
    "running products along an axis",
    lambda x, axis: np.cumprod(x, axis, dtype=x.dtype),
    lambda kind: const(1, kind),
    lambda old, new: old * new,
    values="uniform:1:2",
)
CUMMAX = _running(
    "cummax", "the largest element so far along an axis; NaN from the first NaN on", np.maximum.accumulate,
    te.min_value, maximum,
)  # fmt: skip
CUMMIN = _running(
    "cummin", "the smallest element so far along an axis; NaN from the first NaN on", np.minimum.accumulate,
    te.max_value, minimum,
)  # fmt: skip
CUMLOGSUMEXP = _running(
    "cumlogsumexp",
    "running logarithms of the sum of exponentials along an axis, without overflow",
    np.logaddexp.accumulate,
    te.min_value,
    _log_add_exp,
    dtypes=FLOATS,
)

OPS = (CUMSUM, CUMPROD, CUMMAX, CUMMIN, CUMLOGSUMEXP)
