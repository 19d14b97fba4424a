"""Arithmetic of emitted code: extreme integers, NaN, all narrow floats, odd numbers of lanes."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import dtype
from dlc_core.ir.expr import Expr, Var, binary, broadcast, cast_to, const, load, ramp, select
from dlc_core.tir import interpreter
from dlc_core.tir.intrinsics import intrinsic, power, reinterpret, vector_reduce
from dlc_core.tir.stmt import For, PrimFunc, Stmt, Store, seq

Array = np.ndarray[Any, Any]
N = 16


def loop(extent: Any, body: Callable[[Var], Stmt], kind: str = "serial", begin: int = 0) -> For:
    var = Var("i")
    size = const(extent) if isinstance(extent, int) else extent
    return For(var, const(begin), size, body(var), kind)


def ints(count: int = N, low: int = -50, high: int = 50, type_: str = "int32") -> Array:
    return np.random.default_rng(3).integers(low, high, count).astype(type_)


@pytest.mark.parametrize("type_", ["int8", "uint8", "int32", "uint16", "int64", "uint64"])
@pytest.mark.parametrize(
    "op", ["floordiv", "floormod", "truncdiv", "truncmod", "shl", "shr", "min", "max", "lt", "ge"]
)
def test_integer_operations(agree: Any, type_: str, op: str) -> None:
    """Extreme values of both signs, in scalars and vectors."""
    low, high = dtype(type_).int_range()
    edge = [
        low,
        low + 1,
        max(low, -7),
        max(low, -1),
        0,
        1,
        2,
        3,
        7,
        8,
        31,
        63,
        100,
        high // 2,
        high - 1,
        high,
    ]
    a, b = (m.reshape(-1) for m in np.meshgrid(np.array(edge, type_), np.array(edge, type_)))
    if "div" in op or "mod" in op:
        allowed = (b != 0) & ~((a == low) & (b == a.dtype.type(-1 if low else 1)))
        a, b = a[allowed], b[allowed]
    size = a.size // 8 * 8
    x, y = Buffer("x", (size,), type_), Buffer("y", (size,), type_)
    result = "bool" if op in ("lt", "ge") else type_
    out, vectors = Buffer("out", (size,), result), Buffer("vectors", (size,), result)
    body = seq(
        loop(size, lambda i: Store(out, (i,), binary(op, x[i], y[i]))),
        loop(
            size // 8,
            lambda i: Store(
                vectors,
                (ramp(i * 8, 1, 8),),
                binary(op, load(x, (ramp(i * 8, 1, 8),)), load(y, (ramp(i * 8, 1, 8),))),
            ),
        ),
    )
    arrays = [a[:size], b[:size], np.zeros(size, result), np.zeros(size, result)]
    done = agree(PrimFunc("f", (x, y, out, vectors), body), arrays)
    np.testing.assert_array_equal(done[2], done[3])


@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("type_", ["float32", "float64", "float16", "bfloat16"])
def test_min_and_max_propagate_nan(native: Any, op: str, type_: str) -> None:
    """Operands include literals on either side, for which less code is emitted."""
    kind = dtype(type_)
    values = np.array([np.nan, -np.inf, -1.0, -0.0, 0.0, 2.0, np.inf, np.nan]).astype(kind.numpy)
    a, b = np.repeat(values, 8), np.tile(values, 8)
    x, y, out = Buffer("x", (64,), type_), Buffer("y", (64,), type_), Buffer("out", (5, 64), type_)

    def body(i: Var) -> Stmt:
        sides = ((x[i], y[i]), (x[i], const(0.5, type_)), (const(0.5, type_), x[i]))
        nans = ((const(float("nan"), type_), x[i]), (x[i], const(float("nan"), type_)))
        return seq(*(Store(out, (const(k), i), binary(op, p, q)) for k, (p, q) in enumerate((*sides, *nans))))

    func = PrimFunc("f", (x, y, out), loop(64, body))
    found = np.zeros((5, 64), kind.numpy)
    native(func)("f", [a, b, found])
    pick = np.minimum if op == "min" else np.maximum
    half, nan = kind.numpy.type(0.5), kind.numpy.type(np.nan)
    for have, other in zip(found, (b, half, half, nan, nan), strict=True):
        np.testing.assert_array_equal(
            have.astype(float), pick(a.astype(float), np.asarray(other).astype(float))
        )


NARROW_TARGETS = ("llvm", "llvm -mcpu=x86-64")


@pytest.mark.parametrize("type_", ["float16", "bfloat16"])
@pytest.mark.parametrize("target", NARROW_TARGETS)
def test_narrow_floats_of_every_bit_pattern(native: Any, type_: str, target: str) -> None:
    """Conversion to float32 and back, and x * x + x with rounding after each operation."""
    _only_where_it_runs(target)
    kind = dtype(type_).numpy
    size = 1 << 16
    x, wide = Buffer("x", (size,), type_), Buffer("wide", (size,), "float32")
    back, squared = Buffer("back", (size,), type_), Buffer("squared", (size,), type_)

    def body(i: Var) -> Stmt:
        v = load(x, (ramp(i * 8, 1, 8),))
        w = load(wide, (ramp(i * 8, 1, 8),))
        index = (ramp(i * 8, 1, 8),)
        return seq(
            Store(wide, index, cast_to("float32x8", v)),
            Store(back, index, cast_to(f"{type_}x8", w)),
            Store(squared, index, v * v + v),
        )

    arrays = [np.arange(size, dtype=np.uint16).view(kind), np.zeros(size, np.float32)]
    arrays += [np.zeros(size, kind), np.zeros(size, kind)]
    native(PrimFunc("f", (x, wide, back, squared), loop(size // 8, body)), target=target)("f", arrays)
    given = arrays[0]
    with np.errstate(all="ignore"):
        same(arrays[1], given.astype(np.float32))
        same(arrays[2], given)
        product = (given.astype(np.float32) * given.astype(np.float32)).astype(kind)
        same(arrays[3], (product.astype(np.float32) + given.astype(np.float32)).astype(kind))


@pytest.mark.parametrize("type_", ["float16", "bfloat16"])
@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("target", NARROW_TARGETS)
def test_rounding_to_narrow_floats(native: Any, type_: str, source: str, target: str) -> None:
    """Values close to the midpoints of neighbours, for which double rounding would be wrong."""
    _only_where_it_runs(target)
    kind = dtype(type_).numpy
    with np.errstate(all="ignore"):
        finite = np.arange(0, 1 << 16, 7, dtype=np.uint16).view(kind).astype(np.float64)
        finite = finite[np.isfinite(finite)]
        nudged = [finite * (1 + k * 2.0**-e) for e in (9, 12, 24, 40) for k in (-1, 1)]
        values = np.concatenate([finite, *nudged, [np.inf, -np.inf, np.nan, 65519.99, 65520.0, 1e39]]).astype(
            source
        )
    values = np.resize(values, -(-values.size // 8) * 8)
    x, out = Buffer("x", (values.size,), source), Buffer("out", (values.size,), type_)
    lanes = 8

    def body(i: Var) -> Stmt:
        index = (ramp(i * lanes, 1, lanes),)
        return Store(out, index, cast_to(f"{type_}x8", load(x, index)))

    found = np.zeros(values.size, kind)
    native(PrimFunc("f", (x, out), loop(values.size // lanes, body)), target=target)("f", [values, found])
    with np.errstate(all="ignore"):
        same(found, _nearest(values, kind))


def _nearest(values: Array, kind: Any) -> Array:
    """Round once to nearest, ties to even: the best of the neighbours of NumPy's result."""
    guess = values.astype(kind)
    bits = guess.view(np.uint16).astype(np.int32)
    best, least = guess.copy(), np.abs(guess.astype(np.float64) - values.astype(np.float64))
    for step in (-1, 1):
        other = (bits + step).astype(np.uint16).view(kind)
        distance = np.abs(other.astype(np.float64) - values.astype(np.float64))
        even = (other.view(np.uint16) & 1) == 0
        better = np.isfinite(guess.astype(np.float64)) & np.isfinite(other.astype(np.float64))
        better &= (distance < least) | ((distance == least) & even)
        best[better] = other[better]
        least[better] = distance[better]
    return best


def same(found: Array, expected: Array) -> None:
    """Check that values are equal, also the signs of zeros. NaN equals NaN."""
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))
    real = ~np.isnan(expected.astype(np.float64))
    np.testing.assert_array_equal(
        np.signbit(found[real].astype(float)), np.signbit(expected[real].astype(float))
    )


def _only_where_it_runs(target: str) -> None:
    if "x86" in target and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("another architecture")


@pytest.mark.parametrize("lanes", [2, 3, 5, 6, 7, 12])
@pytest.mark.parametrize("type_", ["float32", "float16", "int32", "bool"])
def test_any_number_of_lanes(agree: Any, lanes: int, type_: str) -> None:
    x, out = Buffer("x", (lanes,), type_), Buffer("out", (lanes,), type_)
    total = Buffer("total", (3,), type_)
    index = (ramp(const(0), 1, lanes),)
    v = load(x, index)
    if type_ == "bool":
        value: Expr = binary("or", v, broadcast(x[1], lanes))
        sums: list[Stmt] = []
    else:
        one = broadcast(const(1, type_), lanes)
        value = select(binary("gt", v, one), intrinsic("floor", v + one) if type_ != "int32" else v * v, -v)
        sums = [Store(total, (const(k),), vector_reduce(op, v)) for k, op in enumerate(("add", "max", "min"))]
    func = PrimFunc("f", (x, out, total), seq(Store(out, index, value), *sums))
    values = ints(lanes, 0, 9).astype(dtype(type_).numpy)
    agree(func, [values, np.zeros_like(values), np.zeros(3, values.dtype)])


@pytest.mark.parametrize("lanes", [1, 3, 8])
def test_transcendental_functions_of_any_lanes(native: Any, lanes: int) -> None:
    names = ("exp", "tanh", "log10", "sin", "erf", "fmod")
    x, out = Buffer("x", (lanes,)), Buffer("out", (len(names), lanes))
    index = ramp(const(0), 1, lanes) if lanes > 1 else const(0)
    v = load(x, (index,))
    args = {"fmod": (v, v * 0.3 + 1.0)}
    stores = [Store(out, (const(k), index), intrinsic(n, *args.get(n, (v,)))) for k, n in enumerate(names)]
    func = PrimFunc("f", (x, out), seq(*stores))
    arrays = [np.linspace(0.1, 4, lanes, dtype=np.float32), np.zeros((len(names), lanes), np.float32)]
    expected = [a.copy() for a in arrays]
    interpreter.run(func, *expected)
    native(func)("f", arrays)
    np.testing.assert_allclose(arrays[1], expected[1], rtol=1e-6)


def test_powers_of_integers(agree: Any) -> None:
    x, y, out = (Buffer(n, (N,), "int32") for n in ("x", "y", "out"))
    index = (ramp(const(0), 1, N),)
    body = Store(out, index, power(load(x, index), load(y, index)))
    bases = np.array([0, 1, -1, 2, -2, 3, 7, -5, 0, 1, -1, -1, 2, 10, 46341, 3], np.int32)
    exponents = np.array([0, 5, 3, 31, 33, 20, 1, 13, -1, -7, -3, -4, -1, 9, 2, 40], np.int32)
    agree(PrimFunc("f", (x, y, out), body), [bases, exponents, np.zeros(N, np.int32)])


def test_reinterpreting_bits(agree: Any) -> None:
    x, out, back = Buffer("x", (N,), "float32"), Buffer("out", (N,), "int32"), Buffer("back", (N,), "float32")
    body = loop(
        N,
        lambda i: seq(
            Store(out, (i,), reinterpret("int32", x[i]) ^ 1),
            Store(back, (i,), reinterpret("float32", out[i])),
        ),
    )
    arrays = [ints().astype(np.float32), np.zeros(N, np.int32), np.zeros(N, np.float32)]
    agree(PrimFunc("f", (x, out, back), body), arrays)


def test_casts_of_out_of_range_floats_do_not_trap(native: Any) -> None:
    """Values out of range have unspecified results, but other lanes are correct."""
    x, out = Buffer("x", (N,), "float32"), Buffer("out", (N,), "int32")
    index = (ramp(const(0), 1, N),)
    values = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 2.0**31] + [1.9, -1.9] * 5, np.float32)
    found = np.zeros(N, np.int32)
    native(PrimFunc("f", (x, out), Store(out, index, cast_to("int32x16", load(x, index)))))(
        "f", [values, found]
    )
    np.testing.assert_array_equal(found[6:], [1, -1] * 5)


def test_literals_keep_every_bit(native: Any) -> None:
    numbers = [0.1, -0.0, 5e-324, 1.7976931348623157e308, float("inf"), float("nan"), 2.0**-149, 1 / 3]
    for type_ in ("float64", "float32"):
        out = Buffer("out", (len(numbers),), type_)
        kept = np.array(numbers).astype(type_) if type_ == "float64" else _singles(numbers)
        stores = [Store(out, (const(k),), const(float(v), type_)) for k, v in enumerate(kept)]
        found = np.zeros(len(numbers), type_)
        native(PrimFunc("f", (out,), seq(*stores)))("f", [found])
        np.testing.assert_array_equal(
            found.view("u8" if type_ == "float64" else "u4")[:5],
            kept.view("u8" if type_ == "float64" else "u4")[:5],
        )
        np.testing.assert_array_equal(found, kept)


def _singles(numbers: Sequence[float]) -> Array:
    with np.errstate(over="ignore"):
        return np.array(numbers).astype(np.float32)
