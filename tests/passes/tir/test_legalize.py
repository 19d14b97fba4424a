"""Narrow dtypes computed in wider ones have the same bits, for every value."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import UnsupportedError
from dlc_core.ir.dtype import dtype
from dlc_core.op.narrow_floats import FORMATS
from dlc_core.passes.tir.legalize import SMALL_INTS, LegalizeDtypes
from dlc_core.script import parse, script
from dlc_core.testing.prim_passes import make_arguments, parse_func, run_func
from dlc_core.testing.programs import random_prim_func
from dlc_core.tir.functor import exprs_of, stmts
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.verify import verify_func

NATIVE = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
)
ONE = LegalizeDtypes(native=NATIVE)


def legal(func: PrimFunc) -> PrimFunc:
    after = ONE(func)
    verify_func(after, level=2)
    names = {b.dtype.name for b in after.buffers} | {
        e.dtype.scalar.name for s in stmts(after.body) for e in exprs_of(s)
    }
    assert names <= {*NATIVE, "handle"}
    return after


def bytes_of(array: np.ndarray) -> np.ndarray:
    plain = array.dtype.kind in "biu" or array.dtype in (np.float32, np.float64)
    return array if plain else array.view(f"u{array.dtype.itemsize}")


def same(func: PrimFunc, given: list) -> None:
    """Check that a program and its legal form have the same results. NaN equals NaN."""
    expected = run_func(func, given)
    found = run_func(legal(func), [bytes_of(a) if isinstance(a, np.ndarray) else a for a in given])
    for old, new in zip(expected, found, strict=True):
        same_values(new.view(old.dtype), old)


@np.errstate(all="ignore")
def same_values(new: np.ndarray, old: np.ndarray) -> None:
    """Check that numbers are equal. NaN equals NaN, signalling or not."""
    wide = np.int64 if old.dtype.kind in "biu" else np.float64
    np.testing.assert_array_equal(new.astype(wide), old.astype(wide))


def codes(name: str) -> np.ndarray:
    """Every bit pattern of a type, or many of them."""
    type_ = dtype(name)
    patterns = np.arange(1 << type_.bits, dtype=f"u{type_.itemsize}")
    return patterns[:: 1 if type_.bits < 16 else 13].view(type_.numpy)


@pytest.mark.parametrize("name", FORMATS)
def test_every_value_is_read(name):
    values = codes(name)
    func = parse_func(f"""
        @T.prim_func
        def f(A: T.Buffer(({values.size},), "{name}"), B: T.Buffer(({values.size},), "float32")):
            for i in range({values.size}):
                B[i] = T.cast(A[i], "float32")
    """)
    same(func, [values, np.zeros(values.size, "float32")])


@np.errstate(all="ignore")
def values_around(name: str) -> np.ndarray:
    """float32 values halfway between two of a type, next to these, beyond the greatest one, and others."""
    known = codes(name).astype(np.float32)
    finite = np.unique(known[np.isfinite(known)])
    near = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    rng = np.random.default_rng(0)
    drawn = np.exp(rng.uniform(-30, 30, 300)) * rng.choice([-1, 1], 300)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e38, -1e38, 1e-40, -1e-40]
    top = finite[-1] * np.array([1.0, 1.01, 1.03, 1.0624, 1.0626, 1.1, 1.2, 1.25, 1.26, 2.0])
    next_above = np.nextafter(near, np.float32(9e9))
    values = np.concatenate([near, next_above, drawn, special, top]).astype(np.float32)
    return values[:: max(1, values.size // 3000)]


@pytest.mark.parametrize("name", FORMATS)
def test_every_value_is_rounded_to_the_nearest(name):
    values = values_around(name)
    func = parse_func(f"""
        @T.prim_func
        def f(A: T.Buffer(({values.size},), "float32"), B: T.Buffer(({values.size},), "{name}")):
            for i in range({values.size}):
                B[i] = T.cast(A[i], "{name}")
    """)
    same(func, [values, np.zeros(values.size, dtype(name).numpy)])


@pytest.mark.parametrize("name", SMALL_INTS)
def test_small_integers_wrap(name):
    low, high = dtype(name).int_range()
    values = np.arange(low, high + 1).astype(dtype(name).numpy)
    n = values.size
    func = parse_func(f"""
        @T.prim_func
        def f(A: T.Buffer(({n},), "{name}"), B: T.Buffer(({n}, {n}), "{name}"),
              C: T.Buffer(({n}, {n}), "int32")):
            for i, j in T.grid({n}, {n}):
                x = T.let(A[i] * A[j] + A[i])
                B[i, j] = T.max(x, A[j]) - (A[i] ^ A[j])
                C[i, j] = T.cast(x, "int32") + T.cast(A[i] < A[j], "int32")
                C[i, j] = C[i, j] + T.cast(-A[i] << T.{name}(1), "int32")
    """)
    same(func, [values, np.zeros((n, n), values.dtype), np.zeros((n, n), "int32")])


@pytest.mark.parametrize("seed", range(12))
def test_results_of_random_programs_stay(seed):
    func = random_prim_func(seed, dtypes=("float32", "float16", "int32", "bool"))
    same(func, make_arguments(func))


def test_vectors_and_temporaries_and_windows():
    func = parse_func("""
        @T.prim_func
        def f(A: T.Buffer((8,), "bfloat16"), B: T.Buffer((8,), "bfloat16"), C: T.Buffer((8,), "uint16")):
            t = T.alloc_buffer((8,), "bfloat16")
            w = T.view(t, (8,), "uint16")
            x = T.let(A[T.ramp(0, 1, 8)] * A[T.ramp(0, 1, 8)])
            t[T.ramp(0, 1, 8)] = T.exp(x) + T.broadcast(A[1], 8)
            for i in range(8):
                B[i] = T.if_then_else(i > 2, t[i] / T.bfloat16(3.0), T.reinterpret(C[i], "bfloat16"))
                C[i] = w[i] + T.reinterpret(t[i], "uint16")
    """)
    values = np.linspace(-3, 3, 8).astype(dtype("bfloat16").numpy)
    same(func, [values, values, np.arange(8, dtype="uint16")])


def test_programs_in_native_dtypes_stay():
    func = random_prim_func(3, dtypes=("float32", "int32"))
    assert ONE(func) is func
    assert LegalizeDtypes()(random_prim_func(3)) is not None


def test_scalars_of_narrow_dtypes_are_refused():
    func = parse_func("""
        @T.prim_func
        def f(A: T.Buffer((8,), "float16"), x: T.float16):
            A[0] = x
    """)
    with pytest.raises(UnsupportedError, match="x of float16 by value"):
        ONE(func)
    run(func, np.zeros(8, "float16"), 1.5)


def test_copies_move_bits():
    func = parse_func("""
        @T.prim_func
        def f(A: T.Buffer((8,), "float16"), B: T.Buffer((10,), "float16")):
            for i in range(10):
                B[i] = T.if_then_else(i < 8, A[T.min(i, 7)], T.float16(0.0))
    """)
    assert "reinterpret" not in script(legal(func))
    given = np.array([1, -2, np.inf, 0, -0.0, 1e-7, 3, 4], "float16")
    same(func, [given, np.ones(10, "float16")])
    assert "reinterpret" in script(legal(parse(script(func).replace("T.float16(0.0)", "T.float16(1.0)"))))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "int4", "uint2"])
def test_native_code_computes_in_them(name):
    func = parse_func(f"""
        @T.prim_func
        def f(A: T.Buffer((64,), "{name}"), B: T.Buffer((64,), "{name}")):
            for i in range(64):
                B[i] = A[i] * A[63 - i] + A[i]
    """)
    values = np.resize(codes(name), 64)
    found = np.asarray(dlc.build(func)(values)).view(values.dtype)
    (_, expected) = run_func(func, [values, np.zeros_like(values)])
    same_values(found, expected)
