"""Hand-written scripts with alternative words, and their meaning."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import ScriptError
from dlc_core.ir.structural import first_difference
from dlc_core.script import T, parse, script
from dlc_core.testing.programs import random_prim_func
from dlc_core.tir.functor import block_list
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.verify import verify_func

HEAD = 'X: T.Buffer((8, 8), "float32"), H: T.Buffer((8,), "int32"), i: T.int64, n: T.int64, p: T.bool'


def written(*lines: str, head: str = HEAD) -> PrimFunc:
    text = f"@T.prim_func\ndef main({head}):\n" + "".join(f"    {line}\n" for line in lines)
    func = parse(text, verify=True)
    assert isinstance(func, PrimFunc)
    again = parse(script(func))
    assert first_difference(func, again) is None
    assert script(again) == script(func)
    return func


def body_of(func: PrimFunc) -> list[str]:
    lines = script(func).splitlines()
    start = next(k for k, line in enumerate(lines) if line.endswith("):"))
    return [line[4:] for line in lines[start + 1 :]]


EXPRESSIONS = [
    ("X[i, 0]", "X[i, 0]"),
    ("X[i + 1 - 1, 0] * 2", "X[i + 1 - 1, 0] * T.float32(2.0)"),
    ("2 * X[0, 0] + 0.5", "T.float32(2.0) * X[0, 0] + T.float32(0.5)"),
    ("-X[0, 0]", "-X[0, 0]"),
    ("+X[0, 0]", "X[0, 0]"),
    ("X[0, 0] ** 2", "T.pow(X[0, 0], T.float32(2.0))"),
    ("X[0, 0] if p else 0.0", "T.if_then_else(p, X[0, 0], T.float32(0.0))"),
    ("T.Select(p, X[0, 0], 0.0)", "T.select(p, X[0, 0], T.float32(0.0))"),
    ("T.Select(0 <= i < n, 1.0, 0)", "T.select(0 <= i and i < n, T.float32(1.0), T.float32(0.0))"),
    ("T.if_then_else(i < n and p, X[0, 0], 1)", "T.if_then_else(i < n and p, X[0, 0], T.float32(1.0))"),
    ("T.Cast('float32', i)", 'T.cast(i, "float32")'),
    ("T.cast(i, 'float32')", 'T.cast(i, "float32")'),
    ("T.cast(i, dtype=X.dtype)", 'T.cast(i, "float32")'),
    ("T.float32(i)", 'T.cast(i, "float32")'),
    ("i.astype('float32')", 'T.cast(i, "float32")'),
    ("float(i)", 'T.cast(i, "float32")'),
    ("T.float32(1)", "T.float32(1.0)"),
    ("T.float32('inf')", "T.float32(T.inf)"),
    ("T.float32('-inf')", "T.float32(-T.inf)"),
    ("-T.infinity('float32')", "T.float32(-T.inf)"),
    ("T.min_value('float32')", "T.float32(-3.4028235e+38)"),
    ("T.max(X[0, 0], 0)", "T.max(X[0, 0], T.float32(0.0))"),
    ("max(X[0, 0], X[0, 1], 0.0)", "T.max(T.max(X[0, 0], X[0, 1]), T.float32(0.0))"),
    ("abs(X[0, 0])", "T.abs(X[0, 0])"),
    ("T.fabs(X[0, 0])", "T.abs(X[0, 0])"),
    ("T.power(X[0, 0], 2.0)", "T.pow(X[0, 0], T.float32(2.0))"),
    ("T.nearbyint(X[0, 0])", "T.round(X[0, 0])"),
    ("T.exp(T.sqrt(X[0, 0]))", "T.exp(T.sqrt(X[0, 0]))"),
    ("T.Add(X[0, 0], T.Mul(X[0, 1], 2.0))", "X[0, 0] + X[0, 1] * T.float32(2.0)"),
    ("T.Div(X[0, 0], 2.0)", "X[0, 0] / T.float32(2.0)"),
    ("T.exp(1)", "T.exp(T.float32(1.0))"),
    ("X[i, 0] * (1 / 4)", "X[i, 0] * T.float32(0.25)"),
    ("T.call_extern('float32', 'f', i)", 'T.call_extern("f", i, dtype="float32")'),
    ("T.call_pure_extern('float32', 'f', i)", 'T.call_pure_extern("f", i, dtype="float32")'),
]
INDICES = [
    ("T.floordiv(i, 4)", "i // 4"),
    ("T.floormod(i, 4)", "i % 4"),
    ("T.FloorDiv(i, 4) + T.indexmod(i, 2)", "i // 4 + i % 2"),
    ("T.truncdiv(i, 4)", "T.truncdiv(i, 4)"),
    ("T.Mod(i, 4)", "T.truncmod(i, 4)"),
    ("T.ceildiv(n, 4)", "(n + 3) // 4"),
    ("T.shift_left(i, 2)", "i << 2"),
    ("T.bitwise_and(i, 7)", "i & 7"),
    ("T.bitwise_not(i)", "~i"),
    ("T.int64(3) + i", "3 + i"),
    ("2 ** 3 // 2 + i", "4 + i"),
    ("min(3, 2) + i", "2 + i"),
    ("X.shape[0] - 1 - i", "7 - i"),
    ("H.ndim + i", "1 + i"),
    ("T.cast(H[i], 'int64')", 'T.cast(H[i], "int64")'),
    ("int(H[i])", 'T.cast(H[i], "int64")'),
    ("T.max_value('int8') + i", None),
]
CONDITIONS = [
    ("i < n", "i < n"),
    ("0 <= i < n < 8", "0 <= i and i < n and n < 8"),
    ("T.And(i < n, T.Not(p))", "i < n and not p"),
    ("T.Or(p, T.EQ(i, n))", "p or i == n"),
    ("T.logical_and(p, T.LE(i, n))", "p and i <= n"),
    ("T.all(i < n, p, n < 3)", "i < n and p and n < 3"),
    ("T.any(i < n, p)", "i < n or p"),
    ("T.likely(i < n)", "i < n"),
    ("p & (i < n) | ~p", "p and i < n or not p"),
    ("p and True", "p"),
    ("T.NE(i, 0)", "i != 0"),
    ("i != n or p", "i != n or p"),
]


@pytest.mark.parametrize(("given", "printed"), EXPRESSIONS, ids=[e[0] for e in EXPRESSIONS])
def test_expressions(given: str, printed: str) -> None:
    assert body_of(written(f"X[0, 0] = {given}")) == [f"X[0, 0] = {printed}"]


@pytest.mark.parametrize(("given", "printed"), INDICES, ids=[e[0] for e in INDICES])
def test_indices(given: str, printed: str | None) -> None:
    if printed is None:
        with pytest.raises(ScriptError, match="add of int8 and int64"):
            written(f"H[{given}] = 1")
    else:
        assert body_of(written(f"H[{given}] = 1")) == [f"H[{printed}] = T.int32(1)"]


@pytest.mark.parametrize(("given", "printed"), CONDITIONS, ids=[e[0] for e in CONDITIONS])
def test_conditions(given: str, printed: str) -> None:
    assert body_of(written(f"if {given}:", "    H[0] = 1"))[0] == f"if {printed}:"


STATEMENTS = [
    (
        ["H[0] += 1", "H[0] *= H[1]", "H[i] //= 2"],
        ["H[0] = H[0] + T.int32(1)", "H[0] = H[0] * H[1]", "H[i] = H[i] // T.int32(2)"],
    ),
    (["x = H[0] + 1", "H[1] = x"], ["x = T.let(H[0] + T.int32(1))", "H[1] = x"]),
    (["x: T.int32 = 3", "H[1] = x"], ["x = T.let(T.int32(3))", "H[1] = x"]),
    (["x = T.Let(H[0])", "H[1] = x"], ["x = T.let(H[0])", "H[1] = x"]),
    (["with T.LetStmt(H[0]) as x:", "    H[1] = x"], ["x = T.let(H[0])", "H[1] = x"]),
    (
        ["x = n + 1", "x = x * 2", "H[x] = 1"],
        ["x = T.let(n + 1)", "x_1 = T.let(x * 2)", "H[x_1] = T.int32(1)"],
    ),
    (["k = 3", "H[k] = k + 1"], ["H[3] = T.int32(4)"]),
    (["k, l = 3, 'x'", "H[k] = len(l)"], ["H[3] = T.int32(1)"]),
    (["k, l = X.shape", "H[k - l] = 1"], ["H[0] = T.int32(1)"]),
    (["a, b = H[0], H[1]", "H[0] = b"], ["a = T.let(H[0])", "b = T.let(H[1])", "H[0] = b"]),
    (["x = T.meta_var(H[0] + 1)", "H[1] = x"], ["H[1] = H[0] + T.int32(1)"]),
    (["T.evaluate(T.check(n < 4, T.int32(1)))"], ["T.evaluate(T.check(n < 4, T.int32(1)))"]),
    (
        ["S = T.alloc_buffer((4,), 'float32', 'local')", "S[0] = 1.0"],
        ['S = T.alloc_buffer((4,), "float32", scope="local")', "S[0] = T.float32(1.0)"],
    ),
    (
        ["S = T.alloc_buffer([n, 4])", "S[0, 0] = 1.0"],
        ['S = T.alloc_buffer((n, 4), "float32")', "S[0, 0] = T.float32(1.0)"],
    ),
    (
        ["S = T.decl_buffer(X.shape, X.dtype)", "S[0, 0] = 1.0"],
        ['S = T.alloc_buffer((8, 8), "float32")', "S[0, 0] = T.float32(1.0)"],
    ),
    (
        ["W = T.match_buffer(X[2:4, 4:8], (2, 4), 'float32')", "W[0, 0] = 1.0"],
        ['W = T.view(X, (2, 4), "float32", strides=(8, 1), offset=20)', "W[0, 0] = T.float32(1.0)"],
    ),
    (["for k in T.serial(4):", "    H[k] = 1"], ["for k in range(4):", "    H[k] = T.int32(1)"]),
    (
        ["for k in T.serial(1, 4):", "    H[k] = 1"],
        ["for k in T.serial(1, extent=3):", "    H[k] = T.int32(1)"],
    ),
    (["for k in T.vectorize(4):", "    H[k] = 1"], ["for k in T.vectorized(4):", "    H[k] = T.int32(1)"]),
    (["for k in T.unroll(4):", "    H[k] = 1"], ["for k in T.unroll(4):", "    H[k] = T.int32(1)"]),
    (
        ["for k in T.thread_binding(0, 4, thread='x'):", "    H[k] = 1"],
        ['for k in T.thread_binding(4, thread="x"):', "    H[k] = T.int32(1)"],
    ),
    (["for a, b in T.grid(2, n):", "    H[a] = 1"], ["for a, b in T.grid(2, n):", "    H[a] = T.int32(1)"]),
    (["for k in T.grid(2):", "    H[k] = 1"], ["for k in range(2):", "    H[k] = T.int32(1)"]),
    (["for k in (1, 3):", "    H[k] = k"], ["H[1] = T.int32(1)", "H[3] = T.int32(3)"]),
    (["for k, v in ((0, 5), (2, 6)):", "    H[k] = v"], ["H[0] = T.int32(5)", "H[2] = T.int32(6)"]),
    (["if p:", "    H[0] = 1", "elif n < 3:", "    H[0] = 2", "else:", "    H[0] = 3"], None),
    (
        ["while H[0] < 3:", "    H[0] = H[0] + 1"],
        ["while H[0] < T.int32(3):", "    H[0] = H[0] + T.int32(1)"],
    ),
    (["'a comment'", "H[0] = 1"], ["H[0] = T.int32(1)"]),
]


@pytest.mark.parametrize(("given", "printed"), STATEMENTS, ids=[" ".join(s[0])[:50] for s in STATEMENTS])
def test_statements(given: list[str], printed: list[str] | None) -> None:
    func = written(*given)
    if printed is not None:
        assert body_of(func) == printed


def test_a_program_in_another_dialect() -> None:
    func = parse(
        '''
from elsewhere.script import tir as T

@T.prim_func(private=True)
def matmul(var_a: T.handle, var_b: T.handle, c: T.handle) -> None:
    """C = A @ B"""
    T.func_attr({"global_symbol": "matmul", "tir.noalias": True})
    n = T.int64()
    m, k = 8, 4
    A = T.match_buffer(var_a, (n, k), "float32")
    B = T.match_buffer(var_b, [k, m], "float32", strides=[m, 1], elem_offset=0)
    C = T.match_buffer(c, (n, m), "float32")
    for i, j, l in T.grid(n, m, k):
        with T.sblock("C"):
            vi = T.axis.S(n, i)
            vj, vl = T.axis.remap("SR", [j, l])
            T.reads([A[vi, vl], B[vl, vj]])
            T.writes([C[vi, vj]])
            T.sblock_attr({"tile": 1})
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] += A[vi, vl] * B[vl, vj]
''',
        verify=True,
    )
    assert isinstance(func, PrimFunc)
    assert [p.name for p in func.params] == ["A", "B", "C", "n"]
    assert func.attrs["global_symbol"] == "matmul"
    a, b = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)
    a, b = np.ascontiguousarray(a[:, :4]), np.ascontiguousarray(b[:4])
    c = np.zeros((5, 8), np.float32)
    run(func, a, b.ravel(), c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    assert first_difference(func, parse(script(func))) is None


def test_old_annotations_of_buffers() -> None:
    func = written("A[0] = 1.0", head='A: T.Buffer[(4,), "float32"], B: T.Buffer(4, dtype="int8")')
    assert [str(b) for b in func.buffers] == ["A: float32[4]", "B: int8[4]"]


SHAPE, DTYPE, CONFIG = (4, 8), "float32", SimpleNamespace(tile=4, names=("x", "y"))
TABLE = {"scale": 2.0}


def test_values_of_the_surrounding_python() -> None:
    rows = SHAPE[0]

    @T.prim_func
    def main(a: T.Buffer(SHAPE, DTYPE), b: T.Buffer((SHAPE[0] * len(SHAPE)), DTYPE)):
        for i in T.parallel(rows):
            for j in T.vectorized(CONFIG.tile * 2):
                a[i, j] = a[i, j] * TABLE["scale"] + math.pi
        for k in T.unroll(len(CONFIG.names)):
            b[k] = T.cast(k if rows == 4 else 0, DTYPE)

    assert isinstance(main, PrimFunc)


def test_omitted_regions_are_inferred() -> None:
    def regions(*lines: str) -> list[str]:
        func = written(
            "for i0, j0 in T.grid(8, 8):", '    with T.block("b"):', *(f"        {s}" for s in lines)
        )
        verify_func(func, level=2)
        return [s.strip() for s in script(func).splitlines() if "T.reads" in s or "T.writes" in s]

    axes = 'vi, vj = T.axis.remap("SS", [i0, j0])'
    assert regions(axes, "X[vi, vj] = 1.0") == ["T.reads()", "T.writes(X[vi, vj])"]
    both = "T.min(vi, vj):T.min(vi, vj) + (T.max(vi, vj) + 1 - T.min(vi, vj))"
    assert regions(axes, "X[vi, vj] = X[vi, vj] + X[vj, vi]") == [
        f"T.reads(X[{both}, {both}])",
        "T.writes(X[vi, vj])",
    ]
    assert regions(axes, "for k in range(8):", "    X[vi, k] = T.cast(H[k], 'float32')") == [
        "T.reads(H[0:8])",
        "T.writes(X[vi, 0:8])",
    ]
    assert regions(axes, "for k in range(2):", "    H[vi // 2 * 2 + k] = 1") == [
        "T.reads()",
        "T.writes(H[vi // 2 * 2:vi // 2 * 2 + 2])",
    ]
    assert regions(axes, "X[T.cast(H[vi], 'int64'), vj] = 1.0") == ["T.reads(H[vi])", "T.writes(X[0:8, vj])"]
    assert regions(axes, "H[T.ramp(vi // 4 * 4, 1, 4)] = 1") == [
        "T.reads()",
        "T.writes(H[vi // 4 * 4:vi // 4 * 4 + 4])",
    ]
    assert regions(axes, "S = T.alloc_buffer((8,), 'float32')", "S[vi] = X[vi, vj]", "X[vi, vj] = S[vi]") == [
        "T.reads()",
        "T.writes(X[vi, vj])",
    ]
    assert regions(axes, "T.reads()", "X[vi, vj] = 1.0") == ["T.reads()", "T.writes(X[vi, vj])"]


def test_inferred_regions_equal_those_of_te() -> None:
    a, b = te.placeholder((8, 16), name="A"), te.placeholder((16, 4), name="B")
    k = te.reduce_axis(16, "k")
    c = te.compute((8, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    func = te.create_prim_func([a, b], [te.compute((8, 4), lambda i, j: c[i, j] * 2.0, name="D")])
    text = script(func)
    without = "\n".join(s for s in text.splitlines() if "T.reads" not in s and "T.writes" not in s)
    assert first_difference(func, parse(without)) is None


@pytest.mark.parametrize("seed", range(30))
def test_inferred_regions_cover_every_access(seed: int) -> None:
    """Random programs without their regions: the inferred ones pass the verifier."""
    func = random_prim_func(seed)
    if not block_list(func.body):
        return
    without = "\n".join(
        s for s in script(func).splitlines() if not s.strip().startswith(("T.reads", "T.writes"))
    )
    again = parse(without)
    assert isinstance(again, PrimFunc)
    verify_func(again, level=2)
