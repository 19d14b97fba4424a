from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import DlcError, RuntimeFailure, UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import dtype
from dlc_core.ir.expr import Expr, ExprLike, Var, as_expr, binary, broadcast, const, eq, ramp, select
from dlc_core.ir.module import IRModule
from dlc_core.tir.interpreter import run
from dlc_core.tir.intrinsics import (
    address_of,
    call_kernel,
    if_then_else,
    intrinsic,
    vector_concat,
    vector_shuffle,
)
from dlc_core.tir.stmt import (
    Alloc,
    Block,
    Eval,
    If,
    IterVar,
    Let,
    PrimFunc,
    Range,
    Stmt,
    View,
    While,
    loop,
    seq,
    store,
)

F32 = np.float32


def func(body: Stmt, *params: Buffer | Var) -> PrimFunc:
    return PrimFunc("main", params, body)


def test_matmul_with_a_symbolic_dim() -> None:
    n = Var("n")
    a = te.placeholder((n, 6), name="A")
    b = te.placeholder((6, 5), name="B")
    k = te.reduce_axis(6, "k")
    c = te.compute((n, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((n, 5), lambda i, j: c[i, j] + 1.0, name="D")
    program = te.create_prim_func([a, b], [d], producers=[c])
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((7, 6), dtype=F32), rng.standard_normal((6, 5), dtype=F32)
    for options in ({}, {"check": True}, {"reverse": True}):
        out = np.empty((7, 5), F32)
        run(program, x, y, out, **options)
        np.testing.assert_allclose(out, x @ y + 1, rtol=1e-5)
    out = np.empty((7, 5), F32)
    run(program, x, y, out, 7)
    np.testing.assert_allclose(out, x @ y + 1, rtol=1e-5)


def test_init_runs_on_the_first_step_of_each_point_only() -> None:
    a, c, i, k = Buffer("A", (4, 3)), Buffer("C", (4,)), Var("i"), Var("k")
    vi, vk = Var("vi"), Var("vk")
    axes = (IterVar(vi, Range(const(0), const(4))), IterVar(vk, Range(const(0), const(3)), "reduce"))
    block = Block(
        "sum",
        axes,
        (i, k),
        (),
        (),
        store(c, (vi,), c[vi] + a[vi, vk]),
        store(c, (vi,), 100.0),
        predicate=i < 3,
    )
    program = func(loop(i, 4, loop(k, 3, block)), a, c)
    x, out = np.ones((4, 3), F32), np.full(4, -1, F32)
    run(program, x, out)
    assert out.tolist() == [103, 103, 103, -1]


def test_a_block_axis_outside_its_domain_is_an_error() -> None:
    c, i, vi = Buffer("C", (8,)), Var("i"), Var("vi")
    block = Block("B", (IterVar(vi, Range(const(0), const(4))),), (i,), (), (), store(c, (vi,), 0.0))
    with pytest.raises(RuntimeFailure, match="vi = 4 is outside its domain"):
        run(func(loop(i, 8, block), c), np.zeros(8, F32))


def out_of_bounds_by(index: Callable[[Var], ExprLike]) -> str:
    a, i = Buffer("A", (4,)), Var("i")
    with pytest.raises(RuntimeFailure) as caught:
        run(func(loop(i, 4, store(a, (index(i),), 0.0)), a), np.zeros(4, F32))
    return str(caught.value)


def test_out_of_bounds_names_buffer_index_statement_and_variables() -> None:
    text = out_of_bounds_by(lambda i: i + 1)
    assert "A[4]" in text
    assert "shape (4)" in text
    assert "i = 3" in text
    assert "A[i + 1] = " in text
    assert "A[-1]" in out_of_bounds_by(lambda i: i - 1)


def test_integer_divisions_by_zero_give_zero() -> None:
    a, i = Buffer("A", (4,), "int64"), Var("i")
    for op in ("floordiv", "floormod", "truncdiv", "truncmod", "div"):
        values = np.full(4, 9, np.int64)
        run(func(loop(i, 4, store(a, (i,), binary(op, const(8), i))), a), values)
        assert values[0] == 0
        assert values[3] == 2  # the quotient and the remainder of 8 by 3


def test_failed_checks_are_errors() -> None:
    i = Var("i")
    with pytest.raises(RuntimeFailure, match="check 7"):
        run(func(loop(i, 4, Eval(intrinsic("check", i < 2, const(7, "int32"))))))


def test_if_then_else_guards_and_select_does_not() -> None:
    a, b, i = Buffer("A", (4,)), Buffer("B", (6,)), Var("i")
    x = np.arange(4, dtype=F32)
    out = np.zeros(6, F32)
    run(func(loop(i, 6, store(b, (i,), if_then_else(i < 4, a[i], -1.0))), a, b), x, out)
    assert out.tolist() == [0, 1, 2, 3, -1, -1]
    with pytest.raises(RuntimeFailure, match=r"A\[4\]"):
        run(func(loop(i, 6, store(b, (i,), select(i < 4, a[i], as_expr(-1.0)))), a, b), x, out)


def test_guarded_sides_share_no_temporaries() -> None:
    a, b, i = Buffer("A", (4,)), Buffer("B", (6,)), Var("i")
    shared = a[i] * 2.0
    value = if_then_else(i < 4, shared + shared, if_then_else(i < 5, as_expr(7.0), a[i - 2] * 3.0))
    out = np.zeros(6, F32)
    run(func(loop(i, 6, store(b, (i,), value)), a, b), np.arange(4, dtype=F32), out)
    assert out.tolist() == [0, 4, 8, 12, 7, 9]


def test_vectors() -> None:
    a, b, i, v = Buffer("A", (16,)), Buffer("B", (16,)), Var("i"), Var("v", "float32x4")
    at = ramp(i * 4, 1, 4)
    x = np.arange(16, dtype=F32)
    out = np.zeros(16, F32)
    run(func(loop(i, 4, Let(v, a[at], store(b, (at,), v * v + broadcast(as_expr(1.0), 4)))), a, b), x, out)
    np.testing.assert_array_equal(out, x * x + 1)
    reverse = vector_shuffle(a[ramp(0, 1, 4)], [3, 2, 1, 0])
    run(func(store(b, (ramp(0, 2, 4),), reverse), a, b), x, out)
    assert out[:8:2].tolist() == [3, 2, 1, 0]
    both = vector_concat(a[ramp(0, 1, 2)], a[ramp(8, 1, 2)])
    run(func(store(b, (ramp(0, 1, 4),), both), a, b), x, out)
    assert out[:4].tolist() == [0, 1, 8, 9]
    for name, expected in (("add", 28.0), ("max", 7.0), ("min", 0.0)):
        run(func(store(b, (0,), intrinsic(f"vector_reduce_{name}", a[ramp(0, 1, 8)])), a, b), x, out)
        assert out[0] == expected


def test_a_vector_store_reads_everything_before_it_writes() -> None:
    a = Buffer("A", (8,))
    x = np.arange(8, dtype=F32)
    run(func(store(a, (ramp(1, 1, 7),), a[ramp(0, 1, 7)]), a), x)
    assert x.tolist() == [0, 0, 1, 2, 3, 4, 5, 6]


def test_masked_vector_loads() -> None:
    a, b = Buffer("A", (6,)), Buffer("B", (8,))
    lane = ramp(0, 1, 8)
    value = if_then_else(lane < broadcast(const(6), 8), a[lane], broadcast(as_expr(-1.0), 8))
    out = np.zeros(8, F32)
    run(func(store(b, (lane,), value), a, b), np.arange(6, dtype=F32), out)
    assert out.tolist() == [0, 1, 2, 3, 4, 5, -1, -1]


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float32", "float64"])
def test_floats_round_after_each_operation(name: str) -> None:
    kind = dtype(name).numpy
    a, b, c, i = Buffer("A", (64,), name), Buffer("B", (64,), name), Buffer("C", (64,), name), Var("i")
    rng = np.random.default_rng(1)
    x, y = (rng.uniform(0.5, 4, 64).astype(kind) for _ in range(2))
    out = np.zeros(64, kind)
    run(func(loop(i, 64, store(c, (i,), (a[i] * b[i] + a[i]) / b[i] - a[i])), a, b, c), x, y, out)
    np.testing.assert_array_equal(out, (x * y + x) / y - x)


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_integers_wrap(name: str) -> None:
    kind = dtype(name)
    low, high = kind.int_range()
    a, b, c, i = Buffer("A", (6,), name), Buffer("B", (6,), name), Buffer("C", (5, 6), name), Var("i")
    x = np.array([low, high, high, 3, low, 100], kind.numpy)
    y = np.array([1, high, 2, 5, high, 100], kind.numpy)
    out = np.zeros((5, 6), kind.numpy)
    values = (a[i] + b[i], a[i] * b[i], a[i] - b[i], -a[i], ~a[i] ^ (b[i] << 3))
    body = loop(i, 6, seq(*(store(c, (k, i), value) for k, value in enumerate(values))))
    run(func(body, a, b, c), x, y, out)
    with np.errstate(over="ignore"):
        expected = [x + y, x * y, x - y, (~x + kind.numpy.type(1)), ~x ^ (y << kind.numpy.type(3))]
    np.testing.assert_array_equal(out, np.array(expected))


def test_rounding_of_each_division() -> None:
    a, b, c, i = (
        Buffer("A", (4,), "int32"),
        Buffer("B", (4,), "int32"),
        Buffer("C", (5, 4), "int32"),
        Var("i"),
    )
    x, y = np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)
    out = np.zeros((5, 4), np.int32)
    ops = ("floordiv", "floormod", "truncdiv", "truncmod", "div")
    body = loop(i, 4, seq(*(store(c, (k, i), binary(op, a[i], b[i])) for k, op in enumerate(ops))))
    run(func(body, a, b, c), x, y, out)
    trunc = np.array([3, -3, -3, 3])
    assert out.tolist() == [
        (x // y).tolist(),
        (x % y).tolist(),
        trunc.tolist(),
        np.fmod(x, y).tolist(),
        trunc.tolist(),
    ]


def test_casts() -> None:
    f, i8, u8, b = (
        Buffer("F", (6,)),
        Buffer("I", (6,), "int8"),
        Buffer("U", (6,), "uint8"),
        Buffer("B", (6,), "bool"),
    )
    i = Var("i")
    x = np.array([1.9, -1.9, 0.0, 100.5, 0.5, -0.0], F32)
    body = loop(
        i,
        6,
        seq(
            store(i8, (i,), f[i].astype("int8")),
            store(u8, (i,), i8[i].astype("uint8")),
            store(b, (i,), f[i].astype("bool")),
            store(f, (i,), b[i].astype("float32")),
        ),
    )
    ints, unsigned, bools = np.zeros(6, np.int8), np.zeros(6, np.uint8), np.zeros(6, np.bool_)
    run(func(body, f, i8, u8, b), x, ints, unsigned, bools)
    assert ints.tolist() == [1, -1, 0, 100, 0, 0]
    assert unsigned.tolist() == [1, 255, 0, 100, 0, 0]
    assert bools.tolist() == x.astype(bool).tolist() == [True, True, False, True, True, False]
    big = Buffer("G", (1,), "int64")
    out = np.zeros(1, F32)
    run(
        func(store(f2 := Buffer("F", (1,)), (0,), big[0].astype("float32")), big, f2),
        np.array([2**60 + 2**36 + 1]),
        out,
    )
    assert out[0] == F32(2**60 + 2**37)


def test_min_and_max_propagate_nan() -> None:
    a, b, c, i = Buffer("A", (4,)), Buffer("B", (4,)), Buffer("C", (2, 4)), Var("i")
    x, y = np.array([1, np.nan, 2, -np.inf], F32), np.array([np.nan, 1, 1, 0], F32)
    out = np.zeros((2, 4), F32)
    body = loop(
        i, 4, seq(store(c, (0, i), binary("min", a[i], b[i])), store(c, (1, i), binary("max", a[i], b[i])))
    )
    run(func(body, a, b, c), x, y, out)
    np.testing.assert_array_equal(out, [np.minimum(x, y), np.maximum(x, y)])


def test_fresh_memory_is_poison_and_checked_runs_say_so() -> None:
    a, s = Buffer("A", (1,)), Buffer("S", (4,), scope="local")
    program = func(Alloc(s, store(a, (0,), s[2])), a)
    out = np.zeros(1, F32)
    run(program, out)
    assert np.isnan(out[0])
    with pytest.raises(RuntimeFailure, match=r"S\[2\] is read before it is written"):
        run(program, out, check=True)


def test_views_reinterpret_the_same_bytes() -> None:
    base, out = Buffer("base", (8,), "int8"), Buffer("out", (2,))
    words = Buffer("words", (2,), "float32")
    shifted = Buffer("shifted", (4,), "int8", offset=4)
    body = Alloc(base, View(words, base, View(shifted, base, seq(
        store(words, (0,), 1.5), store(words, (1,), 2.5),
        store(shifted, (0,), 0), store(shifted, (1,), 0), store(shifted, (2,), 0), store(shifted, (3,), 0),
        store(out, (0,), words[0]), store(out, (1,), words[1]),
    ))))  # fmt: skip
    x = np.zeros(2, F32)
    run(func(body, out), x)
    assert x.tolist() == [1.5, 0.0]


def test_strided_buffers_are_passed_as_flat_memory() -> None:
    n = Var("n")
    a = Buffer("A", (2, 3), strides=(1, n), offset=1)
    c, i, j = Buffer("C", (2, 3)), Var("i"), Var("j")
    x, out = np.arange(10, dtype=F32), np.zeros((2, 3), F32)
    run(func(loop(i, 2, loop(j, 3, store(c, (i, j), a[i, j]))), a, c, n), x, out, 3)
    assert out.tolist() == [[1, 4, 7], [2, 5, 8]]


def test_while_let_if() -> None:
    a, x = Buffer("A", (2,), "int64"), Var("x")
    step = Let(
        x,
        a[0],
        seq(store(a, (0,), x - 1), If(eq(x % 2, 0), store(a, (1,), a[1] + x), store(a, (1,), a[1] - 1))),
    )
    out = np.array([6, 0])
    run(func(While(a[0] > 0, step), a), out)
    assert out.tolist() == [0, 6 + 4 + 2 - 3]


def test_kernels_of_the_module_and_externs() -> None:
    p, q, i, scale = Buffer("P", (4,)), Buffer("Q", (4,)), Var("i"), Var("scale", "float32")
    kernel = PrimFunc("double", (p, q, scale), loop(i, 4, store(q, (i,), p[i] * scale)))
    a, b = Buffer("A", (8,)), Buffer("B", (8,))
    main = func(
        seq(
            Eval(call_kernel("double", address_of(a, 4), b, as_expr(2.0))),
            Eval(call_kernel("double", a, address_of(b, 4), as_expr(3.0))),
        ),
        a,
        b,
    )
    x, out = np.arange(8, dtype=F32), np.zeros(8, F32)
    run(main, x, out, module=IRModule({"double": kernel, "main": main}))
    assert out.tolist() == [8, 10, 12, 14, 0, 3, 6, 9]
    with pytest.raises(UsageError, match="'double'"):
        run(main, x, out)
    from dlc_core.ir.expr import call

    outside = func(Eval(call("extern.negate", (address_of(a, 6), const(2)), "int32")), a)

    def negate(memory: Any, count: int) -> None:
        memory[:count] *= -1

    run(outside, x, externs={"negate": negate})
    assert x.tolist() == [0, 1, 2, 3, 4, 5, -6, -7]


def racy(kind: str) -> PrimFunc:
    a, i = Buffer("A", (8,)), Var("i")
    return func(loop(i, 7, store(a, (i + 1,), a[i]), kind), a)


@pytest.mark.parametrize("kind", ["parallel", "vectorized"])
def test_races_are_found(kind: str) -> None:
    with pytest.raises(RuntimeFailure, match=r"race: A\[1\] is written and read") as caught:
        run(racy(kind), np.zeros(8, F32), check=True)
    assert f"iterations 0 and 1 of the loop i ({kind})" in str(caught.value)
    run(racy("serial"), np.zeros(8, F32), check=True)


def test_a_reader_of_one_iteration_races_with_a_writer_of_another() -> None:
    a, b, i, j = Buffer("A", (4,)), Buffer("B", (4,)), Var("i"), Var("j")
    body = loop(j, 2, loop(i, 4, seq(store(b, (i,), a[0]), If(eq(i, 3), store(a, (0,), 1.0))), "parallel"))
    with pytest.raises(RuntimeFailure, match=r"A\[0\] is read and written"):
        run(func(body, a, b), np.zeros(4, F32), np.zeros(4, F32), check=True)


def test_parallel_loops_without_conflicts_pass_the_checks() -> None:
    a, i, j, s = Buffer("A", (4, 4)), Var("i"), Var("j"), Buffer("S", (1,), scope="local")
    private = Alloc(s, seq(store(s, (0,), a[i, 0]), loop(j, 4, store(a, (i, j), s[0] + 1.0), "vectorized")))
    x = np.zeros((4, 4), F32)
    run(
        func(seq(loop(i, 4, private, "parallel"), loop(Var("k"), 1, private, "serial")), a, i),
        x,
        0,
        check=True,
    )
    assert x[1].tolist() == [1, 1, 1, 1]


def test_deep_loops_and_big_expressions() -> None:
    a = Buffer("A", (1,), "int64")
    variables = [Var(f"i{k}") for k in range(24)]
    total: Expr = const(1)
    for var in variables:
        total = total + var
    body: Stmt = store(a, (0,), a[0] + total)
    for var in reversed(variables):
        body = loop(var, 1, body)
    out = np.zeros(1, np.int64)
    run(func(body, a), out)
    assert out[0] == 1
    x = Var("x", "float32")
    deep: Expr = x
    for _ in range(400):
        deep = deep * 0.5 + x
    shared: Expr = x
    for _ in range(60):
        shared = shared * 0.25 + shared * 0.75
    b = Buffer("B", (2,))
    result = np.zeros(2, F32)
    run(func(seq(store(b, (0,), deep), store(b, (1,), shared)), b, x), result, 1.0)
    assert result.tolist() == [2.0, 1.0]


def test_arguments_are_checked_before_anything_runs() -> None:
    n = Var("n")
    a, b = Buffer("A", (n, 2)), Buffer("B", (n * 2,))
    program = func(store(a, (0, 0), b[0]), a, b, n)
    good_a, good_b = np.zeros((3, 2), F32), np.zeros(6, F32)
    run(program, good_a, good_b)
    bad: list[tuple[tuple[Any, ...], str]] = [
        ((good_a, np.zeros(5, F32)), r"B has shape \(5,\), not \(6,\)"),
        ((good_a.astype(np.float64), good_b), "dtype float64"),
        ((good_a, good_b.tolist()), "takes an array"),
        ((np.zeros(6, F32), good_b), "1 dims, not 2"),
        ((good_a, good_b, 4), r"\(3, 2\), not \(4, 2\)"),
        ((good_a, good_b, "3"), "takes a number"),
        ((good_a,), "lacks values for B"),
        ((good_a, good_b, 3, 3), "takes 3 arguments"),
    ]
    for args, message in bad:
        with pytest.raises(UsageError, match=message):
            run(program, *args)


def test_read_only_and_non_contiguous_arrays() -> None:
    a, b, i = Buffer("A", (4,)), Buffer("B", (4,)), Var("i")
    program = func(loop(i, 4, store(b, (i,), a[i])), a, b)
    x = np.arange(4, dtype=F32)
    x.flags.writeable = False
    wide = np.zeros(8, F32)
    run(program, x, wide[::2])
    assert wide.tolist() == [0, 0, 1, 0, 2, 0, 3, 0]
    with pytest.raises(DlcError, match="read-only"):
        run(program, wide[:4], x)


def test_zero_dims_and_empty_arrays() -> None:
    a, b, i, n = Buffer("A", ()), Buffer("B", (Var("n"),)), Var("i"), Var("n")
    b = Buffer("B", (n,))
    program = func(seq(store(a, (), 2.0), loop(i, n, store(b, (i,), a[()]))), a, b, n)
    x = np.zeros((), F32)
    run(program, x, np.zeros(0, F32))
    assert x == 2.0


def test_loops_become_python_code(counted) -> None:
    """Statements make no calls, which would be many times slower."""
    a, b, c = Buffer("A", (64, 64)), Buffer("B", (64, 64)), Buffer("C", (64, 64))
    i, j, k = Var("i"), Var("j"), Var("k")
    body = loop(i, 64, loop(j, 64, loop(k, 64, store(c, (i, j), c[i, j] + a[i, k] * b[k, j]))))
    x = np.ones((64, 64), F32)
    out = np.zeros((64, 64), F32)
    _, calls = counted(lambda: run(func(body, a, b, c), x, x, out))
    assert out[0, 0] == 64
    assert calls < 64**2


def test_barriers_synchronise_threads() -> None:
    a, b = Buffer("A", (2, 4)), Buffer("B", (2, 4))
    group, x, k = Var("group"), Var("x"), Var("k")
    shared = Buffer("S", (4,), scope="shared")
    wait = Eval(intrinsic("barrier"))
    body = loop(
        x,
        4,
        seq(
            store(shared, (x,), a[group, x]),
            wait,
            loop(
                k,
                2,
                seq(store(b, (group, x), shared[3 - x]), wait, store(shared, (x,), b[group, x] * 2.0), wait),
            ),
        ),
        "thread",
        thread="thread.x",
    )
    program = func(loop(group, 2, Alloc(shared, body), "thread", thread="block.x"), a, b)
    memory, out = np.arange(8, dtype=F32).reshape(2, 4), np.zeros((2, 4), F32)
    run(program, memory, out)
    np.testing.assert_array_equal(out, memory * 2)


def test_a_barrier_that_not_all_threads_reach_is_an_error() -> None:
    x = Var("x")
    body = If(x < 2, Eval(intrinsic("barrier")))
    with pytest.raises(RuntimeFailure, match="2 of 4 threads wait at a barrier"):
        run(func(loop(x, 4, body, "thread", thread="thread.x")))
