"""Elementwise operators."""

from __future__ import annotations

from typing import Any

from dlc_frontend_onnx.dtypes import number_of
from dlc_frontend_onnx.testing.random_models.builder import DTYPES, FLOATS, Builder
from dlc_frontend_onnx.testing.random_models.templates import template


@template("Identity Neg Abs Relu Not BitwiseNot Sign")
def keeping(b: Builder, op: str) -> None:
    b.emit(op, [b.need(b.draw_dtype(op), exact=op == "Sign")], exact=True)


@template("Sigmoid Tanh Exp Erf Softplus Softsign Sin Cos Tan Atan Sinh Cosh Asinh HardSwish Mish", 0.5)
def smooth(b: Builder, op: str) -> None:
    b.emit(op, [b.need(b.draw_dtype(op))])


@template("Log Sqrt Reciprocal Acosh", 0.5)
def of_positive(b: Builder, op: str) -> None:
    dtype = b.draw_dtype(op)
    value = b.emit("Abs", [b.need(dtype)], exact=True)[0]
    b.emit(
        op, b.emit("Add", [value, b.given(b.fill((), dtype) * 0 + value.array.dtype.type(1.25))], exact=True)
    )


@template("Asin Acos Atanh", 0.4)
def of_small(b: Builder, op: str) -> None:
    dtype = b.draw_dtype(op)
    value = b.emit("Tanh", [b.need(dtype)])[0]
    b.emit(op, b.emit("Mul", [value, b.given(b.fill((), dtype) * 0 + value.array.dtype.type(0.75))]))


@template("Floor Ceil Round")
def stepping(b: Builder, op: str) -> None:
    b.emit(op, [b.need(b.draw_dtype(op), exact=True)], exact=True)


@template("IsNaN IsInf", 0.3)
def asking(b: Builder, op: str) -> None:
    b.emit(op, [b.need(b.draw_dtype(op), exact=True)], exact=True)


@template("LeakyRelu Elu Celu ThresholdedRelu", 0.5)
def with_alpha(b: Builder, op: str) -> None:
    exact = op == "ThresholdedRelu"
    attrs: dict[str, Any] = {"alpha": b.rng.choice((0.25, 0.5, 1.0, 1.5))} if b.chance(0.7) else {}
    b.emit(op, [b.need(b.draw_dtype(op), exact=exact)], exact=exact, **attrs)


@template("Selu HardSigmoid", 0.4)
def with_two(b: Builder, op: str) -> None:
    second = "beta" if op == "HardSigmoid" else "gamma"
    attrs: dict[str, Any] = {}
    if b.chance(0.6):
        attrs = {"alpha": b.rng.choice((0.2, 0.5, 1.25)), second: b.rng.choice((0.5, 1.0))}
    b.emit(op, [b.need(b.draw_dtype(op))], **attrs)


@template("Gelu", 0.5)
def gelu(b: Builder, op: str) -> None:
    attrs: dict[str, Any] = {"approximate": b.rng.choice(("none", "tanh"))} if b.chance(0.6) else {}
    b.emit(op, [b.need(b.draw_dtype(op))], **attrs)


@template("Swish", 0.3)
def swish(b: Builder, op: str) -> None:
    attrs: dict[str, Any] = {"alpha": b.rng.choice((0.5, 1.0, 2.0))} if b.chance(0.6) else {}
    b.emit(op, [b.need(b.draw_dtype(op))], **attrs)


@template("Add Sub Mul", 2.5)
def arithmetic(b: Builder, op: str) -> None:
    a = b.need(b.draw_dtype(op))
    c = b.partner(a)
    b.emit(op, [a, c] if b.chance(0.5) else [c, a], exact=True)


@template("Div")
def divide(b: Builder, op: str) -> None:
    dtype = b.draw_dtype(op)
    a = b.need(dtype)
    other = b.fill(b.shape(0, 1) if b.chance(0.2) else a.shape[b.rng.randint(0, a.rank) :], dtype)
    other[other == 0] = 2
    b.emit(op, [a, b.given(other)], exact=dtype not in FLOATS)


@template("Mod", 0.5)
def modulo(b: Builder, op: str) -> None:
    dtype = b.draw_dtype(op)
    a = b.need(dtype, exact=True)
    other = b.fill(a.shape[b.rng.randint(0, a.rank) :], dtype)
    other[other == 0] = 3
    fmod = 1 if dtype in FLOATS else int(b.chance(0.4))
    b.emit(op, [a, b.given(other)], exact=True, fmod=fmod)


@template("Pow", 0.6)
def power(b: Builder, op: str) -> None:
    dtype = b.draw_dtype(op)
    a = b.need(dtype)
    same = b.opset < 12 or b.only is not None or (b.chance(0.6) and dtype in b.dtypes(op, 1))
    kind = dtype if same else b.draw_dtype(op, DTYPES, 1)
    exponent = (
        b.rng.choice((0, 1, 2, 2, 3))
        if kind not in FLOATS or b.chance(0.6)
        else b.rng.choice((0.5, -1.0, -0.5))
    )
    shape = () if b.chance(0.6) else a.shape[b.rng.randint(0, a.rank) :]
    numbers = b.fill(shape, kind)
    numbers[...] = exponent
    b.emit(op, [a, b.given(numbers)], exact=exponent in (0, 1, 2) and kind == dtype)


@template("PRelu", 0.5)
def prelu(b: Builder, op: str) -> None:
    a = b.need(b.draw_dtype(op))
    slope = [d if b.chance(0.5) else 1 for d in a.shape][b.rng.randint(0, a.rank) :]
    b.emit(op, [a, b.given(b.fill(slope, a.dtype))], exact=True)


@template("And Or Xor BitwiseAnd BitwiseOr BitwiseXor")
def logical(b: Builder, op: str) -> None:
    a = b.need(b.draw_dtype(op))
    b.emit(op, [a, b.partner(a)], exact=True)


@template("Equal Less Greater LessOrEqual GreaterOrEqual")
def comparing(b: Builder, op: str) -> None:
    a = b.need(b.draw_dtype(op), exact=True)
    b.emit(op, [a, b.partner(a, exact=True)], exact=True)


@template("BitShift", 0.4)
def shift(b: Builder, op: str) -> None:
    a = b.need(b.draw_dtype(op))
    amount = b.fill(a.shape[b.rng.randint(0, a.rank) :], a.dtype) % 4
    b.emit(
        op, [a, b.given(amount.astype(a.array.dtype))], exact=True, direction=b.rng.choice(("LEFT", "RIGHT"))
    )


@template("Max Min Sum Mean")
def variadic(b: Builder, op: str) -> None:
    first = b.need(b.draw_dtype(op))
    values = [first] + [b.partner(first) for _ in range(b.rng.randint(0, 2))]
    b.emit(op, values, exact=op != "Mean")


@template("Where")
def where(b: Builder, op: str) -> None:
    a = b.need(b.draw_dtype(op, index=1))
    b.emit(op, [b.partner(a, "bool"), a, b.partner(a)], exact=True)


@template("Clip")
def clip(b: Builder, op: str) -> None:
    a = b.need(b.draw_dtype(op))
    low, high = sorted(b.rng.sample(range(0 if a.dtype.startswith("u") else -3, 6), 2))
    if b.has_attribute(op, "min"):
        b.emit(op, [a], exact=True, min=float(low), max=float(high))
        return
    bounds = [
        b.given(b.fill((), a.dtype) * 0 + a.array.dtype.type(n)) if b.chance(0.8) else None
        for n in (low, high)
    ]
    b.emit(op, [a, *bounds], exact=True)


@template("Cast", 2.0)
def cast(b: Builder, op: str) -> None:
    dtype = b.draw_dtype(op)
    to = b.rng.choice(DTYPES)
    # An inexact float may be on either side of an integer.
    a = b.need(dtype, exact=to not in FLOATS)
    if to.startswith("u") and a.array.size and a.dtype != "bool" and a.array.astype("float64").min() < 0:
        to = "int32"
    b.emit(op, [a], exact=to not in ("bfloat16", "float16"), to=number_of(to))


@template("CastLike", 0.5)
def cast_like(b: Builder, op: str) -> None:
    a = b.need(b.draw_dtype(op), exact=True)
    like = b.need(b.rng.choice(("float32", "float64", "int32", "int64")))
    b.emit(op, [a, like], exact=True)


@template("Dropout", 0.3)
def dropout(b: Builder, op: str) -> None:
    b.emit(op, [b.need(b.draw_dtype(op))], exact=True)
