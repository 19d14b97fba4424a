"""All values of narrow floats are converted correctly, vector math is within its error bounds,
integers wrap.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import te
from dlc_core.ir.expr import const, eq
from dlc_core.target.vmath import FORMULAS
from dlc_core.tir import intrinsics

TARGETS = ("c", "c -vector-bits=256")
ULP = {
    "acos": 1.3, "acosh": 2.5, "asin": 2.5, "asinh": 2.0, "atan": 2.2, "atanh": 2.2, "cosh": 1.6, "erf": 2.6,
    "exp": 1.2, "exp2": 1.2, "expm1": 1.8, "log": 1.0, "log10": 2.0, "log1p": 1.2, "log2": 2.0,
    "sigmoid": 2.5, "sinh": 1.8, "tanh": 2.8,
}  # fmt: skip
"""The error bounds of the formulas with fused multiply-adds. C compilers may or may not fuse."""
UNFUSED = 1.0
"""The factor on errors without fused multiply-adds."""
EXACT = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atanh": np.arctanh, "cosh": np.cosh, "erf": np.vectorize(math.erf), "exp": np.exp, "exp2": np.exp2,
    "expm1": np.expm1, "log": np.log, "log10": np.log10, "log1p": np.log1p, "log2": np.log2,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "sinh": np.sinh, "tanh": np.tanh,
}  # fmt: skip


def computed(target: str, function: Any, *arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Apply an elementwise function by compiled C."""
    inputs = [te.placeholder(a.shape, str(a.dtype), name=f"x{i}") for i, a in enumerate(arrays)]
    out = te.compute(arrays[0].shape, lambda i: function(*(x[i] for x in inputs)), name="out")
    exe = dlc.build([*inputs, out], target)
    found: np.ndarray[Any, Any] = exe(*arrays)
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_narrow_floats_widen_exactly(target, kind):
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16 if kind == "float16" else ml_dtypes.bfloat16)
    found = computed(target, lambda x: x.astype("float32"), values)
    np.testing.assert_array_equal(found, values.astype(np.float32))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_narrowing_floats_rounds_to_nearest(target, kind, source):
    to = np.float16 if kind == "float16" else ml_dtypes.bfloat16
    patterns = np.arange(1 << 16, dtype=np.uint16).view(to)
    with np.errstate(all="ignore"):  # signalling NaNs are included
        exact = patterns[np.isfinite(patterns)].astype(np.float64)
    exact = np.sort(exact)
    middles = (exact[1:] + exact[:-1]) / 2
    tiny = np.abs(middles) * 2.0**-40 + 1e-60
    values = np.concatenate(
        [exact, middles, middles + tiny, middles - tiny, [np.inf, -np.inf, np.nan, 1e6, -1e6]]
    )
    with np.errstate(all="ignore"):
        values = values.astype(source)
        expected = values.astype(to)
    if kind == "bfloat16" and source == "float64":
        # NumPy converts through float32 and rounds twice. Compute the nearest neighbour instead.
        finite = np.isfinite(values) & (np.abs(values) < float(ml_dtypes.finfo(to).max))
        values, expected = values[finite], expected[finite]
        below, above = np.nextafter(expected, to(-np.inf)), np.nextafter(expected, to(np.inf))
        error = np.abs(expected.astype(np.float64) - values)
        for other in (below, above):
            better = np.abs(other.astype(np.float64) - values) < error
            expected = np.where(better, other, expected)
            error = np.minimum(error, np.abs(expected.astype(np.float64) - values))
    found = computed(target, lambda x: x.astype(kind), values)
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_vector_math(name):
    rng = np.random.default_rng(len(name))
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-42, 88.0, -103.0, 3e38]
    wide, nearby, powers = (
        rng.uniform(-9, 9, 20000),
        rng.uniform(-1, 1, 20000),
        2.0 ** rng.uniform(-60, 6, 8000),
    )
    values = np.concatenate([wide, nearby, powers, -powers, special]).astype(np.float32)
    found = computed("c -vector-bits=256", lambda x: intrinsics.intrinsic(name, x), values).astype(np.float64)
    with np.errstate(all="ignore"):
        expected = EXACT[name](values.astype(np.float64))
        rounded = expected.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(rounded))
    infinite = np.isinf(rounded)
    np.testing.assert_array_equal(found[infinite], rounded[infinite])
    finite = np.isfinite(rounded)
    spacing = np.spacing(np.maximum(np.abs(rounded[finite]), np.float32(2.0**-126))).astype(np.float64)
    assert (np.abs(found[finite] - expected[finite]) / spacing).max() <= ULP[name] + UNFUSED


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["int8", "int32", "int64", "uint8", "uint32"])
def test_integers_wrap(target, kind):
    ends = np.iinfo(kind)
    one = np.array([ends.min, ends.min + 1, -1 if ends.min else 1, 0, 1, ends.max - 1, ends.max], kind)
    a, b = (side.ravel().copy() for side in np.meshgrid(one, one))
    for work in (lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y):
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(computed(target, work, a, b), work(a, b))
    if ends.min:
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(computed(target, lambda x: -x, a), -a)


@pytest.mark.parametrize("bits", [0, 64, 128, 256])
@pytest.mark.parametrize("size", [2, 4, 15, 64])
def test_comparisons_are_one_or_zero_in_every_dtype(bits, size):
    # Compilers that extract lanes of a mask may return -1 for true, so vectors of bools are kept whole.
    given = np.random.default_rng(size).random((3, size)) < 0.5
    x = te.placeholder(given.shape, "bool", name="x")
    kinds = ("int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")
    outs = [te.compute(x.shape, lambda *i, k=k: x[i].astype(k), name=k) for k in kinds]
    inverted = te.compute(x.shape, lambda *i: eq(x[i], False), name="turned")
    found = dlc.build([[x], [*outs, inverted]], f"c -vector-bits={bits}")(given)
    for kind, array in zip(kinds, found):
        np.testing.assert_array_equal(array, given.astype(kind))
    np.testing.assert_array_equal(found[-1].view(np.uint8), (~given).astype(np.uint8))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["float32", "float64", "float16"])
@pytest.mark.parametrize("op", ["minimum", "maximum"])
def test_clamping_to_numbers_propagates_nan(target, kind, op):
    """A minimum or maximum with a constant on either side has NumPy's result, also for NaN."""
    x = np.array([np.nan, -np.inf, np.inf, -0.0, 0.0, 0.25, -0.25, 6.0, 6.5] * 3, kind)
    limit, both = getattr(te, op), getattr(np, op)
    for bound in (0.0, 6.0, np.inf, -np.inf):
        fixed = const(bound, kind)
        for function in (lambda v, b=fixed: limit(v, b), lambda v, b=fixed: limit(b, v)):
            np.testing.assert_array_equal(computed(target, function, x), both(x, np.asarray(bound, kind)))


@pytest.mark.parametrize("target", TARGETS)
def test_clamping_to_nan_gives_nan(target):
    x = np.array([1.0, -1.0, np.inf, np.nan] * 4, np.float32)
    found = computed(target, lambda v: te.maximum(v, const(np.nan, "float32")), x)
    assert np.isnan(found).all()
