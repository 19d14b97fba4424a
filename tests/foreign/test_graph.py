"""Graphs that call foreign functions: types, sizes, targets, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import ArtifactError, ScriptError, TypeInferenceError, UsageError
from dlc_core.foreign import ForeignFunction, PythonCallable, unregister_foreign
from dlc_core.graph import Function, Node, constant, get_item, make_tuple, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.script import parse, script, to_script
from tests.foreign.functions import CL_TWICE, PY_TWICE, TWICE
from tests.foreign.test_targets import A, usable

GEMM = (
    "(float32 alpha=2, in float32 x[m, k], in float32 w[k, n], out float32 y[m, n],"
    " int64 m, int64 n, int32 lda=k, int64 k)"
)
W = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)


def gemm(alpha: float, x: Any, w: Any, y: Any, m: int, n: int, lda: int, k: int) -> None:
    assert (alpha, lda, x.shape, w.shape) == (2, k, (m, k), (k, n))
    y[:] = alpha * (x @ w)


@pytest.fixture
def known(register: Any) -> None:
    """Functions whose signatures have defaults, several results, any number of dims, and free sizes."""

    def split(x: Any, y: Any, z: Any, n: int) -> None:
        y[:], z[:] = np.floor(x), x - np.floor(x)

    def count(y: Any, n: int, first: int) -> None:
        y[:] = np.arange(first, first + n)

    both = "(in float32 x[*n], out float32 y[*n], out float32 z[*n], int64 n)"
    register(ForeignFunction("test.gemm", GEMM, [PythonCallable(gemm)]))
    register(ForeignFunction("test.split", both, [PythonCallable(split)]))
    register(
        ForeignFunction("test.count", "(out int32 y[n], int64 n, int32 first=7)", [PythonCallable(count)])
    )
    register(ForeignFunction("test.inplace", "(inout float32 x[n], int64 n)", [PythonCallable(count)]))
    register(ForeignFunction("test.nothing", "(in float32 x[n], int64 n)", [PythonCallable(count)]))


def network(rows: Any = 3) -> tuple[IRModule, Any]:
    """relu, the function, exp; and what it computes."""
    x = param("x", tensor_type((rows, 8)))
    y = std.call_dps(std.relu(x), constant(W), function="test.gemm")
    module = IRModule({"main": Function("main", (x,), std.exp(y))})
    return module, lambda a: np.exp(2 * (np.maximum(a, 0) @ W))


TARGETS = pytest.mark.parametrize("target", ["reference", "reference -level=tir", "llvm", "c"])


@TARGETS
@pytest.mark.usefixtures("known")
def test_between_other_ops(target: str) -> None:
    module, expected = network()
    np.testing.assert_allclose(dlc.compile(module, usable(target))(X), expected(X), rtol=1e-5)


@TARGETS
@pytest.mark.usefixtures("known")
def test_symbolic_sizes_are_passed_as_integers(target: str) -> None:
    module, expected = network(Var("rows"))
    exe = dlc.compile(module, usable(target))
    for rows in (3, 1, 0, 7):
        x = np.resize(X, (rows, 8))
        np.testing.assert_allclose(exe(x), expected(x), rtol=1e-5)


@TARGETS
@pytest.mark.usefixtures("known")
def test_several_results_of_any_rank(target: str) -> None:
    x = param("x", tensor_type((2, 3, 4)))
    parts = std.call_dps(x, function="test.split")
    module = IRModule({"main": Function("main", (x,), make_tuple([get_item(parts, i) for i in (1, 0)]))})
    a = np.random.default_rng(2).standard_normal((2, 3, 4)).astype(np.float32)
    fraction, whole = dlc.compile(module, usable(target))(a)
    np.testing.assert_array_equal(whole, np.floor(a))
    np.testing.assert_allclose(fraction, a - np.floor(a))


@TARGETS
@pytest.mark.usefixtures("known")
def test_sizes_by_name(target: str) -> None:
    rows = Var("rows")
    x = param("x", tensor_type((rows,), "int32"))
    numbers = std.call_dps(function="test.count", names=("n",), values=(rows,))
    module = IRModule({"main": Function("main", (x,), std.add(x, numbers))})
    a = np.full(5, 100, np.int32)
    np.testing.assert_array_equal(dlc.compile(module, usable(target))(a), 100 + np.arange(7, 12))


@pytest.mark.parametrize("target", ["reference", "reference -level=tir", "llvm", "c"])
@pytest.mark.parametrize("type_", ["float16", "bfloat16", "bool", "int8", "uint64", "float64"])
def test_elements_of_every_kind(target: str, type_: str, register: Any) -> None:
    seen: set[Any] = set()

    def reverse(x: Any, y: Any, n: int) -> None:
        seen.update((x.dtype, y.dtype))
        y[:] = x[::-1]

    signature = f"(in {type_} x[*n], out {type_} y[*n], int64 n)"
    register(ForeignFunction("test.reverse", signature, [PythonCallable(reverse)]))
    x = param("x", tensor_type((2, 3), type_))
    module = IRModule({"main": Function("main", (x,), std.call_dps(x, function="test.reverse"))})
    a = np.array([[1, 0, 1], [1, 0, 0]]).astype(x.dtype.numpy)
    np.testing.assert_array_equal(dlc.compile(module, usable(target))(a), a.reshape(-1)[::-1].reshape(2, 3))
    assert seen == {x.dtype.numpy}


@pytest.mark.parametrize("target", ["opencl_simulated", "cuda_simulated", "wasm32"])
@pytest.mark.usefixtures("known")
def test_devices_leave_functions_of_the_host_to_it(target: str, tmp_path: Path) -> None:
    module, expected = network(Var("rows"))
    exe = dlc.compile(module, usable(target))
    np.testing.assert_allclose(exe(X), expected(X), rtol=1e-5)
    assert "call_dps_on_host" in str(exe.explain().refusals())
    exe.save(tmp_path / "net.dlc")
    np.testing.assert_allclose(dlc.open(tmp_path / "net.dlc")(X), expected(X), rtol=1e-5)
    unregister_foreign("test.gemm")
    with pytest.raises(ArtifactError, match="calls a foreign function that is not known here"):
        dlc.open(tmp_path / "net.dlc")


def test_devices_run_texts_in_their_language(register: Any) -> None:
    register(ForeignFunction("test.twice", TWICE, [PY_TWICE, CL_TWICE]))
    x = param("x", tensor_type((64,)))
    module = IRModule({"main": Function("main", (x,), std.call_dps(x, function="test.twice"))})
    exe = dlc.compile(module, usable("opencl_simulated"))
    np.testing.assert_array_equal(exe(A), A * 2)
    assert "twice(" in exe.source("cl")


@pytest.mark.usefixtures("known")
def test_text_and_pinned_shapes() -> None:
    module, expected = network(Var("rows"))
    assert 'function="test.gemm"' in script(module)
    assert script(parse(*to_script(module))) == script(module)
    short = """@G.function
def main(a: G.Tensor(("m", "k"), "float32"), b: G.Tensor(("k", "n"), "float32")):
    return G.call_dps("test.gemm", (a, b), out=G.Tensor(("m", "n"), "float32"))
"""
    assert parse(short).body.attrs["function"] == "test.gemm"
    with pytest.raises(ScriptError, match="not int8"):
        parse(short.replace('("m", "n"), "float32"', '("m", "n"), "int8"'))
    exe = dlc.compile(module, "reference", shapes={"rows": 3})
    np.testing.assert_allclose(exe(X), expected(X), rtol=1e-5)


@pytest.mark.usefixtures("known")
def test_functions_are_not_called_while_compiling(register: Any) -> None:
    def never(x: Any, y: Any, n: int) -> None:
        raise AssertionError

    signature = "(in float32 x[n], out float32 y[n], int64 n)"
    register(ForeignFunction("test.never", signature, [PythonCallable(never)]))
    x = param("x", tensor_type((4,)))
    y = std.call_dps(constant(np.zeros(4, np.float32)), function="test.never")
    dlc.compile(IRModule({"main": Function("main", (x,), std.add(x, y))}), usable("llvm"))


def tensor(*shape: Any, dtype: str = "float32") -> Node:
    return param("x", tensor_type(shape, dtype))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: std.call_dps(tensor(2), function="test.gem"), "there is no foreign function 'test.gem'"),
        (lambda: std.call_dps(tensor(2), function="test.gemm"), "1 arguments, and test.gemm reads 2"),
        (lambda: std.call_dps(tensor(2, 8), tensor(8), function="test.gemm"), "1 dims does not fit"),
        (
            lambda: std.call_dps(tensor(2, 8), tensor(7, 5), function="test.gemm"),
            "must be equal, not 8 and 7",
        ),
        (
            lambda: std.call_dps(tensor(2, 8, dtype="float64"), tensor(8, 5), function="test.gemm"),
            "x of test.gemm is float32, not float64",
        ),
        (
            lambda: std.call_dps(function="test.count"),
            "the value n of test.count is not known",
        ),
        (
            lambda: std.call_dps(function="test.count", names=("m",), values=(3,)),
            "test.count has no size 'm'",
        ),
        (lambda: std.call_dps(function="test.count", names=("n",)), "`names` and `values` differ in number"),
        (lambda: std.call_dps(tensor(2), function="test.inplace"), "values of graphs do not change"),
        (lambda: std.call_dps(tensor(2), function="test.nothing"), "test.nothing writes no result"),
    ],
)
@pytest.mark.usefixtures("known")
def test_wrong_calls_are_refused(make: Any, message: str) -> None:
    with pytest.raises(TypeInferenceError) as caught:
        make()
    assert message in str(caught.value)
    assert str(caught.value).startswith("call_dps: ")


@pytest.mark.usefixtures("known")
def test_sizes_that_differ_in_a_call_are_refused() -> None:
    rows, x = Var("rows"), param("x", tensor_type((3, Var("columns"))))
    w = param("w", tensor_type((rows, 5)))
    module = IRModule({"main": Function("main", (x, w), std.call_dps(x, w, function="test.gemm"))})
    exe = dlc.compile(module, usable("llvm"))
    np.testing.assert_allclose(exe(X, W), 2 * (X @ W), rtol=1e-5)
    with pytest.raises(UsageError, match="must be equal"):
        exe(X, W[:7])
