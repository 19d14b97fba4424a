"""Unique elements and slices in native code, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import dlc_core as dlc
from dlc_core.graph.node import Function, get_item, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate

MADE = {}


def compiled(rank, dtype, axis, ordered):
    """A model with symbolic dims."""
    key = rank, dtype, axis, ordered
    if key not in MADE:
        x = param("x", tensor_type([Var(f"n{k}") for k in range(rank)], dtype))
        made = std.unique(x, count=Var("count"), axis=axis, ordered=ordered)
        module = IRModule({"main": Function("main", (x,), made)})
        MADE[key] = module, dlc.compile(module, "llvm")
    return MADE[key]


def check(x, axis=None, ordered=True):
    module, exe = compiled(x.ndim, x.dtype.name, axis, ordered)
    assert {entry["op"] for entry in exe.about["host"]} == {"first_of"}
    for found, expected in zip(exe(x), evaluate(module["main"], [x]), strict=True):
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found, expected)


FLOATS = st.sampled_from([0.0, -0.0, 1.0, -1.5, 3e-39, np.inf, -np.inf, np.nan])
VALUES = {"float32": FLOATS, "int64": st.integers(-3, 3), "uint64": st.integers(2**64 - 3, 2**64 - 1)}


@settings(max_examples=50, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(sorted(VALUES)), ordered=st.booleans())
def test_any_elements(data, dtype, ordered):
    shape = data.draw(arrays.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=40))
    check(data.draw(arrays.arrays(dtype, shape, elements=VALUES[dtype], fill=st.nothing())), None, ordered)


@settings(max_examples=50, deadline=None)
@given(
    data=st.data(),
    dtype=st.sampled_from(["float32", "int8", "bool"]),
    axis=st.integers(0, 2),
    ordered=st.booleans(),
)
def test_any_slices(data, dtype, axis, ordered):
    shape = data.draw(arrays.array_shapes(min_dims=3, max_dims=3, min_side=1, max_side=7))
    values = {"float32": FLOATS, "int8": st.integers(-1, 1), "bool": st.booleans()}[dtype]
    check(data.draw(arrays.arrays(dtype, shape, elements=values, fill=st.nothing())), axis, ordered)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "uint8", "bool"])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 127, 128, 129, 5000])
def test_sizes_around_the_run_length(dtype, size):
    x = np.random.default_rng(size).integers(-40, 40, size)
    check((x > 0) if dtype == "bool" else x.astype(dtype))


def test_ops_after_a_data_dependent_one_are_native():
    x = param("x", tensor_type((Var("n"),), "int64"))
    made = std.unique(x, count=Var("count"))
    doubled = std.mul(get_item(made, 0), get_item(made, 3))
    exe = dlc.compile(IRModule({"main": Function("main", (x,), doubled)}), "llvm")
    assert {entry["op"] for entry in exe.about["host"]} == {"first_of"}
    np.testing.assert_array_equal(exe(np.array([4, 1, 4, 4])), [1, 12])
