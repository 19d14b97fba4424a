"""`check`: the same value, if data satisfy a condition; else the call fails.

Frontends import assertions of models by it. The check is part of the kernel that computes the value, so that
exported libraries and C sources have it too.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core import te
from dlc_core.diag import RuntimeFailure
from dlc_core.ir.expr import Expr, const, eq, select
from dlc_core.ir.types import TensorType, Type
from dlc_core.op.declare import ALL, Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, check_dtype, fail, product
from dlc_core.op.lower import compute, widen
from dlc_core.tir.failures import CHECKED, report_index


def _infer(types: Sequence[Type], attrs: Attrs) -> TensorType:
    x, ok = tensor_types(types)
    check_dtype(x.dtype, ALL)
    check_dtype(ok.dtype, ("bool",), "the condition")
    if product(ok.shape) != 1:
        raise fail(f"the condition {ok} is not one bool")
    return x


def _reference(x: NDArray, ok: NDArray, *, what: str) -> NDArray:
    if not ok.item():
        raise RuntimeFailure(f"check {what!r} failed")
    return x


def _lower(type_: TensorType, attrs: Attrs, x: te.Tensor, ok: te.Tensor) -> te.Tensor:
    def failing(*i: Expr) -> Expr:
        return report_index(select(ok[(const(0),) * ok.ndim], const(0), const(1)), const(1))

    flag = te.compute((1,), failing, "check", annotations={CHECKED: attrs["what"]})

    def value(*i: Expr) -> Expr:
        # The other value differs from each x, constants too, so that no pass removes the check.
        other = select(eq(widen(x[i]), 0), const(1, type_.dtype), const(0, type_.dtype))
        return select(eq(flag[const(0)], 0), x[i], other)

    return compute(type_.shape, value, "checked")


CHECK = op(
    "check",
    "the value; a call fails with the message `what` unless the condition, one bool, is true",
    ["x", "ok"],
    [Attr("what", "str", "")],
    kind="broadcast",
    infer=_infer,
    reference=_reference,
    lower=_lower,
    dtypes=ALL,
    samples=(
        Sample((Tensor((2, 3)), Tensor((), [True], "bool")), {"what": "data are valid"}),
        Sample((Tensor((), "special"), Tensor((1, 1), [[True]], "bool"))),
    ),
    error_samples=(
        ErrorSample((Tensor((2,)), Tensor((2,), "bool", "bool")), {}, "not one bool"),
        ErrorSample((Tensor((2,)), Tensor((), 1, "int32")), {}, "dtype"),
    ),
)

OPS = (CHECK,)
