"""Modules of graph functions, tensor programs and te functions that call each other."""
# ruff: noqa: F821, N803, N805

from __future__ import annotations

import sys

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import te
from dlc_core.config import config
from dlc_core.diag import RuntimeFailure, ScriptError, TypeInferenceError, UsageError
from dlc_core.graph import Function, param
from dlc_core.graph.node import CALL_PRIM, node
from dlc_core.ir.module import IRModule
from dlc_core.ir.structural import first_difference
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.std.programs import call_te, call_tir
from dlc_core.schedule import Schedule
from dlc_core.script import G, T, module, parse, to_script

TARGETS = ("reference", "llvm", "c")
X = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)


def shifted(a):
    return te.compute(a.shape, lambda *i: a[i] + 5.0, "shifted")


@module
class Mixed:
    @G.function
    def main(x: G.Tensor((4, 8), "float32")):
        with G.dataflow():
            a = G.relu(x)
            b = G.call_tir(scale, (a,), G.Tensor((4, 8), "float32"))
            c = G.call_tir(cls.scale, (b,), out_sinfo=G.Tensor((4, 8), "float32"))
            d = helper(c)
            G.output(d)
        e = G.call_te(shifted, d)
        return G.add(e, x)

    @T.prim_func
    def scale(A: T.Buffer((n, 8), "float32"), B: T.Buffer((n, 8), "float32"), n: T.int64):
        for i, j in T.grid(n, 8):
            with T.block("scale"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * 2.0

    @G.function
    def helper(x: G.Tensor(("n", "m"), "float32")) -> G.Tensor(("n", 8), "float32"):
        y = G.match_cast(x, G.Tensor(("k", 8), "float32"))
        return G.tanh(y)


def expected(x):
    return np.tanh(np.maximum(x, 0) * 4) + 5 + x


def check(exe, x=X):
    np.testing.assert_allclose(exe(x), expected(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_a_module_of_all_kinds_of_functions(target):
    check(dlc.compile(Mixed, target=target))


def test_its_text_reads_back():
    text, metadata = to_script(Mixed)
    assert "G.call_tir(scale, (v0,))" in text
    assert "helper(v2)" in text
    assert 'G.match_cast(x, G.Tensor(("n", 8), "float32"))' in text
    again = parse(text, metadata)
    assert first_difference(again, Mixed) is None
    check(dlc.compile(again, target="llvm"))


def test_elementwise_programs_are_fused():
    text = dlc.compile(Mixed, target="llvm").source("tir")
    assert (text.count("@T.prim_func"), text.count("    for ")) == (1, 1), text


@pytest.mark.parametrize("target", TARGETS)
def test_a_matched_shape_is_checked(target):
    @G.function
    def main(x: G.Tensor(("n", "m"), "float32")):
        y = G.match_cast(x, G.Tensor(("n", 8), "float32"))
        return G.relu(y)

    exe = dlc.compile(main, target=target)
    np.testing.assert_array_equal(exe(X), np.maximum(X, 0))
    with pytest.raises(UsageError, match="must be equal"):
        exe(X[:, :4].copy())


def test_an_inlined_function_requires_its_shapes():
    @module
    class Square:
        @G.function
        def main(x: G.Tensor(("a", "b"), "float32")):
            return square(x)

        @G.function
        def square(x: G.Tensor(("n", "n"), "float32")) -> G.Tensor(("n", "n"), "float32"):
            return G.matmul(x, x)

    exe = dlc.compile(Square, target="llvm")
    x = np.random.default_rng(2).standard_normal((5, 5)).astype("f4")
    np.testing.assert_allclose(exe(x), x @ x, rtol=1e-5, atol=1e-5)
    with pytest.raises(UsageError, match="must be equal"):
        exe(X)


@module
class Recursive:
    @G.function
    def main(n: G.Tensor((), "int64")):
        return G.add(factorial(n), G.const(1, "int64"))

    @G.function
    def factorial(n: G.Tensor((), "int64")) -> G.Tensor((), "int64"):
        @G.function
        def one(n: G.Tensor((), "int64")):
            return G.const(1, "int64")

        @G.function
        def times(n: G.Tensor((), "int64")):
            rest = factorial(G.sub(n, G.const(1, "int64")))
            return G.mul(n, rest)

        done = G.less_equal(n, G.const(1, "int64"))
        return G.if_(done, n, then_branch=one, else_branch=times)


@pytest.mark.parametrize("target", TARGETS)
def test_recursion(target, tmp_path):
    exe = dlc.compile(Recursive, target=target)
    assert exe(np.array(10)) == 3628801
    with pytest.raises(RuntimeFailure, match="factorial calls itself more than 200 times"):
        exe(np.array(1000))
    assert exe(np.array(10)) == 3628801
    with config.override(max_call_depth=2000):
        exe(np.array(2000))
    exe.save(tmp_path / "m.dlc")
    assert dlc.open(tmp_path / "m.dlc")(np.array(5)) == 121


def test_recursion_leaves_the_limits_of_python_alone():
    """A deep recursion succeeds where a part of the frames is taken."""
    exe = dlc.compile(Recursive, target="llvm")
    before = sys.getrecursionlimit()

    def deep(frames):
        return exe(np.array(150)) if frames == 0 else deep(frames - 1)

    with config.override(max_call_depth=2000):
        exe(np.array(1999))
        deep(300)
    assert sys.getrecursionlimit() == before


def test_recursion_reads_back():
    text, metadata = to_script(Recursive)
    assert first_difference(parse(text, metadata), Recursive) is None


def test_recursion_needs_a_declared_type():
    text = """@module
class M:
    @G.function
    def main(x: G.Tensor((2,), "float32")):
        y = main(x)
        return y
"""
    with pytest.raises(ScriptError, match="has no declared type") as error:
        parse(text)
    assert "write `def main(…) -> G.Tensor(…):`" in str(error.value)
    endless = parse(text.replace("):\n", ') -> G.Tensor((2,), "float32"):\n'))
    with pytest.raises(RuntimeFailure, match="main calls itself"):
        dlc.compile(endless, target="llvm")(np.zeros(2, "f4"))


@pytest.mark.parametrize("target", TARGETS)
def test_recursion_with_shrinking_sizes(target):
    """The sum of a vector by halves: each call has other sizes."""

    @module
    class Halves:
        @G.function
        def main(x: G.Tensor(("n",), "float32")) -> G.Tensor((), "float32"):
            @G.function
            def small(x: G.Tensor(("m",), "float32")):
                return G.reduce_sum(x, axes=(0,))

            @G.function
            def large(x: G.Tensor(("m",), "float32")):
                first = main(G.slice(x, axes=(0,), begins=(0,), ends=(1,)))
                rest = main(G.slice(x, axes=(0,), begins=(1,), ends=(2**31,)))
                return G.add(first, rest)

            size = G.dims_tensor(dims=(n,))
            few = G.less_equal(G.reshape(size, shape=()), G.const(1, "int64"))
            return G.if_(few, x, then_branch=small, else_branch=large)

    exe = dlc.compile(Halves, target=target)
    for n in (1, 2, 7):
        x = np.arange(n, dtype="f4")
        assert exe(x) == x.sum()


@pytest.mark.parametrize("target", TARGETS)
def test_kept_functions(target, tmp_path):
    kept = Mixed.with_function("helper", Mixed["helper"].with_attrs(inline=False))
    exe = dlc.compile(kept, target=target)
    check(exe)
    exe.save(tmp_path / "m.dlc")
    check(dlc.open(tmp_path / "m.dlc"))


def test_functions_are_kept_by_an_option():
    exe = dlc.compile(Mixed, target="llvm", config={"keep_functions": True})
    check(exe)
    assert [row["why"] for row in exe.about["host"]] == ["it calls the function helper"]


@T.prim_func
def sums(A: T.Buffer((n, m), "float32"), R: T.Buffer((n,), "float32"), C: T.Buffer((m,), "float32"),
         n: T.int64, m: T.int64):  # fmt: skip
    for i, j in T.grid(n, m):
        with T.block("rows"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                R[vi] = 0.0
            R[vi] += A[vi, vj]
    for j, i in T.grid(m, n):
        with T.block("columns"):
            wj, wi = T.axis.remap("SR", [j, i])
            with T.init():
                C[wj] = 0.0
            C[wj] += A[wi, wj]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("scheduled", [False, True])
def test_programs_with_several_results_and_symbolic_sizes(target, scheduled):
    func = sums
    if scheduled:
        schedule = Schedule(sums)
        for name in ("rows", "columns"):
            schedule.parallel(schedule.get_loops(schedule.get_block(name))[0])
        func = schedule.func

    @G.function
    def main(x: G.Tensor(("a", "b + 1"), "float32")):
        y = G.relu(x)
        s = G.call_tir(func, (y,), [G.Tensor(("a",), "float32"), G.Tensor(("b + 1",), "float32")])
        return G.exp(s[0]), G.neg(s[1])

    exe = dlc.compile(main, target=target)
    for shape in ((3, 5), (1, 7), (6, 1)):
        x = np.random.default_rng(1).standard_normal(shape).astype("f4")
        rows, columns = exe(x)
        np.testing.assert_allclose(rows, np.exp(np.maximum(x, 0).sum(1)), rtol=1e-5)
        np.testing.assert_allclose(columns, -np.maximum(x, 0).sum(0), rtol=1e-5)


def test_a_schedule_is_kept():
    schedule = Schedule(Mixed["scale"])
    i, _ = schedule.get_loops(schedule.get_block("scale"))
    _, inner = schedule.split(i, [None, 2])
    schedule.unroll(inner)
    exe = dlc.compile(Mixed.with_function("scale", schedule.func), target="llvm")
    check(exe)
    assert "def scale(" in exe.source("tir")


def test_programs_are_called_from_bodies_of_control_flow():
    @module
    class Loop:
        @G.function
        def main(x: G.Tensor((8,), "float32"), n: G.Tensor((), "int64")):
            r = G.while_(x, n, cond=more, body=step)
            return r[0]

        @G.function
        def more(x: G.Tensor((8,), "float32"), n: G.Tensor((), "int64")):
            return G.greater(n, G.const(0, "int64"))

        @G.function
        def step(x: G.Tensor((8,), "float32"), n: G.Tensor((), "int64")):
            y = G.call_tir(double, (x,))
            return y, G.sub(n, G.const(1, "int64"))

        @T.prim_func
        def double(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
            for i in range(8):
                with T.block("double"):
                    vi = T.axis.spatial(8, i)
                    B[vi] = A[vi] * 2.0

    for target in TARGETS:
        exe = dlc.compile(Loop, target=target)
        np.testing.assert_array_equal(exe(X[0], np.array(5)), X[0] * 32)
    text, metadata = to_script(Loop)
    assert first_difference(parse(text, metadata), Loop) is None


def test_names_of_kernels_do_not_collide():
    """A program whose name is that of a fused kernel."""
    text = """@module
class M:
    @G.function
    def main(x: G.Tensor((4, 8), "float32")):
        return only(G.exp(x)), fused_exp_1(x)
    @G.function
    def fused_exp_1(x: G.Tensor((4, 8), "float32")):
        return G.call_tir(fused_exp, (x,))
    @G.function
    def only(x: G.Tensor((4, 8), "float32")):
        return G.call_tir(fused_exp, (x,))
    @T.prim_func
    def fused_exp(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            B[i, j] = A[i, j] + 1.0
"""
    found = parse(text)
    for target in TARGETS:
        first, second = dlc.compile(found, target=target)(X)
        np.testing.assert_allclose(first, np.exp(X) + 1, rtol=1e-5)
        np.testing.assert_allclose(second, X + 1)


def test_calls_from_python():
    x = param("x", tensor_type((4, 8)))
    body = call_te(lambda a, b: te.compute(a.shape, lambda *i: a[i] * b[i]), call_tir(Mixed["scale"], x), x)
    exe = dlc.compile(Function("main", (x,), std.neg(body)), target="llvm")
    np.testing.assert_allclose(exe(X), -2 * X * X, rtol=1e-6)
    with pytest.raises(TypeInferenceError, match="takes 1 inputs, 2 are given"):
        call_tir(Mixed["scale"], x, x)
    with pytest.raises(TypeInferenceError, match="is given"):
        call_tir(Mixed["scale"], param("y", tensor_type((4, 9))))


def in_module(call, kernel="A[vi, vj] + 1.0"):
    return f"""@module
class M:
    @G.function
    def main(x: G.Tensor((4, 8), "float32")):
        y = {call}
        return y
    @G.function
    def other(x: G.Tensor((4, 8), "float32")):
        return G.exp(x)
    @T.prim_func
    def program(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
        for i, j in T.grid(4, 8):
            with T.block("b"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = {kernel}
"""


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        ("G.call_tir(progam, (x,))", "progam is no function defined here", "did you mean program?"),
        ("othr(x)", "othr is no function defined here", "did you mean other?"),
        ("G.call_tir(program, (x, x))", "takes 1 inputs, 2 are given", ""),
        (
            'G.call_tir(program, (x,), G.Tensor((4, 9), "float32"))',
            "gives float32[4, 8], not float32[4, 9]",
            "",
        ),
        ('G.call_tir(program, (x,), G.Tensor((4, 8), "int8"))', "not int8[4, 8]", ""),
        ("program(x)", "program is no graph function", "G.call_tir(program"),
        ("other(x, x)", "other takes 1 arguments, 2 are given", ""),
        ("G.call_tir()", "needs a program", ""),
        ("G.call_te(other, x)", "other is no captured function", "te tensors"),
        ("G.match_cast(x, 3)", "is not a type", ""),
        ('G.match_cast(x, G.Tensor((4, 8), "int8"))', "a value of float32 is not one of int8", "G.cast"),
        ('G.match_cast(x, G.Tensor((4, 9), "float32"))', "must be equal", ""),
    ],
)
def test_wrong_calls_are_explained(call, message, hint):
    with pytest.raises(ScriptError) as error:
        parse(in_module(call))
    assert message in str(error.value)
    assert hint in str(error.value)
    assert "<script>:5:" in str(error.value)


def test_names_of_a_dataflow_block_end_with_it():
    text = in_module("G.exp(x)").replace(
        "        y = G.exp(x)\n",
        "        with G.dataflow():\n            z = G.exp(x)\n            y = G.neg(z)\n"
        "            G.output(y)\n",
    )
    assert parse(text)["main"].body.op.name == "neg"
    with pytest.raises(ScriptError, match="z is no value"):
        parse(
            text.replace(
                "return y\n    @G.function\n    def other", "return z\n    @G.function\n    def other"
            )
        )


def test_a_wrong_declared_result_is_refused():
    text = in_module("G.exp(x)").replace(
        '8), "float32")):\n        y', '8), "float32")) -> G.Tensor((4,), "float32"):\n        y'
    )
    with pytest.raises(ScriptError, match=r"returns float32\[4, 8\], not float32\[4\]"):
        parse(text)


def test_a_call_of_nothing_is_refused_by_the_compiler():
    x = param("x", tensor_type((4, 8)))
    main = Function("main", (x,), node(CALL_PRIM, (x,), {"symbol": "missing"}, x.type))
    with pytest.raises(UsageError, match="calls 'missing', which the module does not have"):
        dlc.compile(main, target="llvm")
    wrong = Function("main", (x,), std.neg(node(CALL_PRIM, (x,), {"symbol": "scale"}, tensor_type((4, 9)))))
    with pytest.raises(UsageError, match="is recorded as float32"):
        dlc.compile(IRModule({"main": wrong, "scale": Mixed["scale"]}), target="llvm")


def test_a_function_is_compiled_with_the_cache_enabled(tmp_path):
    with config.override(cache=True, cache_dir=tmp_path):
        np.testing.assert_array_equal(dlc.compile(Mixed["helper"], "reference")(X), np.tanh(X))


def test_programs_that_update_their_results_are_refused():
    updating = in_module("G.call_tir(program, (x,))", "B[vi, vj] + A[vi, vj]")
    with pytest.raises(UsageError, match="updates its results in place") as error:
        dlc.compile(parse(updating), "llvm")
    assert "block 'b' reads the result 'B' before it is written" in str(error.value)


def test_a_result_that_is_written_twice():
    """The second block overwrites what the first one wrote."""
    text = in_module("G.neg(G.call_tir(program, (x,)))").replace(
        "        for i, j in T.grid(4, 8):\n",
        """        for i, j in T.grid(4, 8):
            with T.block("a"):
                ui, uj = T.axis.remap("SS", [i, j])
                B[ui, uj] = A[ui, uj] * 3.0
        for i, j in T.grid(4, 8):
""",
    )
    for target in TARGETS:
        np.testing.assert_allclose(dlc.compile(parse(text), target)(X), -(X + 1), rtol=1e-6)
