"""Kernels that together use all features of a kernel language, for golden files and for checks of a device.

LANGUAGE["symbolic"]()          a result and its parameters
check_transposition("npu")      checks vectors and shared memory
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import RuntimeFailure
from dlc_core.driver import build
from dlc_core.driver import compile as compile_model
from dlc_core.graph.node import Node, constant, param
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.samples import TOLERANCES
from dlc_core.passes import PassContext
from dlc_core.script import parse
from dlc_core.testing.cases import module_of
from dlc_core.testing.networks import cifar
from dlc_core.tir.intrinsics import INTRINSICS, intrinsic

Built = tuple[Node, list[Node]]


def _chain() -> Built:
    x, y = param("x", tensor_type((32, 8))), param("y", tensor_type((8,)))
    return std.tanh(std.add(x, y)), [x, y]


def _symbolic() -> Built:
    x = param("x", tensor_type((Var("n"),)))
    return std.mul(x, x), [x]


def _halves() -> Built:
    x, y = (param(name, tensor_type((64,), "float16")) for name in "xy")
    return std.add(x, y), [x, y]


def _doubles() -> Built:
    x = param("x", tensor_type((64,), "float64"))
    return std.exp(x), [x]


def _bytes_and_bools() -> Built:
    x, y = param("x", tensor_type((19,), "int8")), param("y", tensor_type((19,), "bool"))
    return std.logical_and(std.less(x, constant(np.int8(3))), y), [x, y]


def _large() -> Built:
    x = param("x", tensor_type((1 << 16, 1 << 15), "uint8"))
    return std.bitwise_not(x), [x]


LANGUAGE: dict[str, Callable[[], Built]] = {
    "chain": _chain,
    "symbolic": _symbolic,
    "halves": _halves,
    "doubles": _doubles,
    "bytes_and_bools": _bytes_and_bools,
    "large": _large,
}
"""Graphs of one kernel each, by name."""

SHUFFLES = """
@T.prim_func
def main(A: T.Buffer((4, 32), "float32"), B: T.Buffer((4, 32), "float32")):
    for g in T.thread_binding(4, thread="block.x"):
        for t in T.thread_binding(32, thread="thread.x"):
            B[g, t] = (T.subgroup_shuffle_down(A[g, t], 3, 8) + T.subgroup_shuffle_xor(A[g, t], 5, 16)
                       + T.subgroup_shuffle(A[g, t], 2, 32))
"""
"""All exchanges of values between threads of a subgroup."""

TILES = """
@T.prim_func
def main(a: T.Buffer((64, 64), "float32"), b: T.Buffer((64, 64), "float32")):
    for g in T.thread_binding(16, thread="block.x"):
        tile = T.alloc_buffer((16, 16), "float32", scope="shared")
        for y in T.thread_binding(16, thread="thread.y"):
            for x in T.thread_binding(4, thread="thread.x"):
                for v in T.vectorized(4):
                    tile[y, x * 4 + v] = a[g // 4 * 16 + y, g % 4 * 16 + x * 4 + v]
                for v in T.vectorized(4):
                    b[g % 4 * 16 + y, g // 4 * 16 + x * 4 + v] = tile[x * 4 + v, y]
"""
"""A transposition through shared memory, by vectors."""


def numbers(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Small integers as float32, whose sums and products are exact."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def check_transposition(target: str) -> Any:
    """Run `TILES` and check the result. Returns the executable."""
    exe = build(parse(TILES), target)
    np.testing.assert_array_equal(exe(numbers(64, 64)), numbers(64, 64).T)
    return exe


def check_shuffles(target: str) -> Any:
    """Run `SHUFFLES` and check the result. Returns the executable."""
    exe = build(parse(SHUFFLES), target)
    x, lane = numbers(4, 32), np.arange(32)
    down = np.where(lane % 8 + 3 < 8, lane + 3, lane)
    np.testing.assert_array_equal(exe(x), x[:, down] + x[:, lane ^ 5] + x[:, [2] * 32])
    return exe


def check_narrow_floats(target: str, dtype: str) -> None:
    """Check the squares of all values of float16 or bfloat16: they are computed in float32, and rounded to
    nearest even.
    """
    numpy_dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    a = te.placeholder((1 << 16,), dtype, name="a")
    exe = build([a, te.compute((1 << 16,), lambda i: a[i] * a[i], "b")], target)
    x = np.arange(1 << 16, dtype=np.uint16).view(numpy_dtype)
    with np.errstate(all="ignore"):
        want = (x.astype(np.float32) ** 2).astype(numpy_dtype)
    have = exe(x)
    same = (have.view(np.uint16) == want.view(np.uint16)) | (np.isnan(have) & np.isnan(want))
    assert same.all(), x[~same][:5]


def check_math(target: str, dtype: str) -> None:
    """Check the functions of one and two floats in float32 or float64, on numbers of either sign, large
    numbers, zeros, infinities and NaN.
    """
    special = [0.0, -0.0, 1.0, -1.0, 15.0, -25.0, np.inf, -np.inf, np.nan]
    x = np.concatenate([np.linspace(-3, 3, 23), special]).astype(dtype)
    y = np.concatenate([special, np.linspace(0.1, 2.1, 23)]).astype(dtype)
    a, b = (te.placeholder(x.shape, dtype, name=name) for name in "ab")
    results, expected = [], {}
    for name, entry in INTRINSICS.items():
        if entry.reference is None or "float" not in entry.kinds or entry.result != "same":
            continue
        if entry.arity not in (1, 2):
            continue
        results.append(_of_each(name, [a, b][: entry.arity]))
        with np.errstate(all="ignore"):
            wide = entry.reference(*(given.astype(np.float64) for given in (x, y)[: entry.arity]))
            expected[name] = wide.astype(dtype)
    assert "tanh" in expected
    found = build([a, b, *results], target)(x, y)
    for (name, want), have in zip(expected.items(), found, strict=True):
        np.testing.assert_allclose(have, want, *TOLERANCES[dtype], err_msg=name)


def _of_each(name: str, tensors: Sequence[te.Tensor]) -> te.Tensor:
    """The function of the elements of tensors."""
    made: te.Tensor = te.compute(tensors[0].shape, lambda i: intrinsic(name, *(t[i] for t in tensors)), name)
    return made


def check_dots(target: str, a: str, b: str) -> Any:
    """Check that products of int8 and uint8 are exact. Returns the executable of the largest product."""
    random = np.random.default_rng(0)
    for m, n, k in ((1, 16, 64), (7, 9, 31), (64, 32, 64)):
        given = [param("a", tensor_type((m, k), a)), param("b", tensor_type((k, n), b))]
        module = module_of(std.integer_matmul(*given), given)
        exe = compile_model(module, target, cache=False)
        x, y = (random.integers(0, 256, each.shape).astype(np.uint8).view(each.dtype.numpy) for each in given)
        np.testing.assert_array_equal(exe(x, y), x.astype(np.int32) @ y.astype(np.int32))
    return exe


def check_skinny_gemm(target: str, dtype: str) -> None:
    """Check skinny GEMMs of three rows and a symbolic number of columns, in both layouts. They must be one
    launch with split-K over threads. Values are small, so that sums are exact in all dtypes.
    """
    random = np.random.default_rng(0)
    x = param("x", tensor_type((3, 64), dtype))
    for w in (param("w", tensor_type((64, Var("n")), dtype)), param("w", tensor_type((Var("n"), 64), dtype))):
        transposed = w.shape[1] == 64
        product = std.integer_matmul if dtype == "int8" else std.matmul
        module = module_of(product(x, std.transpose(w, axes=(1, 0)) if transposed else w), [x, w])
        exe = compile_model(module, target, cache=False)
        assert [kernel.rule for kernel in exe.explain().kernels] == ["gpu.skinny_gemm"]
        a, b = (random.integers(-2, 3, shape) for shape in ((3, 64), (64, 21)))
        given = (b.T if transposed else b).astype(dtype)
        np.testing.assert_array_equal(exe(a.astype(dtype), np.ascontiguousarray(given)), a @ b)


def check_missing_barrier(target: str) -> None:
    """Check that `TILES` without its barrier raises an error that names the memory. The target must check
    accesses.
    """
    with PassContext(disabled=("thread_sync",)):
        exe = build(parse(TILES), target)
    with pytest.raises(RuntimeFailure, match=r"race: byte \d+ of shared_tile"):
        exe(numbers(64, 64))


def check_network(target: str) -> None:
    """Check that a small network of convolutions has the results of the reference."""
    picture = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    expected = compile_model(cifar(), "reference")(picture)
    np.testing.assert_allclose(compile_model(cifar(), target)(picture), expected, 1e-4, 1e-6)


__all__ = [
    "LANGUAGE",
    "SHUFFLES",
    "TILES",
    "check_dots",
    "check_math",
    "check_missing_barrier",
    "check_narrow_floats",
    "check_network",
    "check_shuffles",
    "check_skinny_gemm",
    "check_transposition",
    "numbers",
]
