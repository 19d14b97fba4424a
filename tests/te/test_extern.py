"""Tensors computed by statements, by tensor programs, and by functions outside the program."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import const
from dlc_core.schedule.schedule import Schedule
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import Alloc, Block, IterVar, PrimFunc, Range, Region, Seq, loop, seq, store

RNG = np.random.default_rng(0)


def prefix_sums(ins, outs):
    """Statements that no compute can express: each element depends on the one before it."""
    (a,), (b,) = ins, outs
    n, i = a.shape[0], te.var("i")
    return [store(b, (0,), a[0]), loop(i, n - 1, store(b, (i,), b[i - 1] + a[i]), begin=1)]


def test_statements(evaluate):
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    sums = te.extern((n,), [a], prefix_sums, "sums")
    out = te.compute((n,), lambda i: sums[i] * 2.0, "out")
    func = te.create_prim_func([a, out])
    block = block_list(func.body)[0]
    assert (block.name, block.axes) == ("sums", ())
    assert [str(r.ranges[0]) for r in (*block.reads, *block.writes)] == ["0:n", "0:n"]
    x = RNG.standard_normal(7).astype("f4")
    np.testing.assert_allclose(evaluate(func, x, outputs=[((7,), "f4")]), 2 * np.cumsum(x), rtol=1e-5)


def test_extern_of_blocks(evaluate):
    """Schedules find the blocks, and can compute their operands inside their loops."""
    a = te.placeholder((4,), name="A")
    twice = te.compute((4,), lambda i: a[i] * 2.0, "twice")

    def body(ins, outs):
        i, v = te.var("i"), te.var("v_i")
        point = (Range(v, const(1)),)
        reads, writes = (Region(ins[0], point),), (Region(outs[0], point),)
        axes = (IterVar(v, Range(const(0), const(4))),)
        return loop(i, 4, Block("more", axes, (i,), reads, writes, store(outs[0], (v,), ins[0][v] + 1.0)))

    schedule = Schedule(te.create_prim_func([a, te.extern((4,), [twice], body, "more", blocks=True)]))
    assert [block.name for block in schedule.get_blocks()] == ["twice", "more"]
    schedule.compute_inline(schedule.get_block("twice"))
    x = RNG.standard_normal(4).astype("f4")
    np.testing.assert_allclose(evaluate(schedule.func, x, outputs=[((4,), "f4")]), 2 * x + 1)


def test_statements_are_fresh_in_each_use(evaluate):
    """Variables and memory of the statements are fresh in every program and at every use."""
    inner = Buffer("inner", (1,))
    i = te.var("i")

    def body(ins, outs):
        once = seq(store(inner, (0,), ins[0][i]), store(outs[0], (i,), inner[0] + 1.0))
        return loop(i, 4, Alloc(inner, once))

    a = te.placeholder((4,), name="A")
    b = te.extern((4,), [a], body, "b")
    c = te.extern((4,), [b], body, "c")
    x = RNG.standard_normal(4).astype("f4")
    for _ in range(2):
        found = evaluate(te.create_prim_func([a, c]), x, outputs=[((4,), "f4")])
        np.testing.assert_array_equal(found, x + 1 + 1)


def test_several_results(evaluate):
    a = te.placeholder((4, 3), "int32", "A")
    i, j = te.var("i"), te.var("j")

    def body(ins, outs):
        low = store(outs[0], (j, i), ins[0][i, j])
        high = store(outs[1], (i, j), ins[0][i, j].astype("int64") * 10)
        return loop(i, 4, loop(j, 3, Seq((low, high))))

    transposed, wide = te.extern([(3, 4), (4, 3)], [a], body, dtype_=["int32", "int64"])
    x = RNG.integers(0, 9, (4, 3)).astype("int32")
    found = evaluate(te.create_prim_func([a, transposed, wide]), x, outputs=[((3, 4), "i4"), ((4, 3), "i8")])
    np.testing.assert_array_equal(found[0], x.T)
    np.testing.assert_array_equal(found[1], 10 * x.astype("int64"))


def test_functions_by_symbol(evaluate):
    n = te.var("n")
    a = te.placeholder((n, 3), name="A")
    b = te.compute((n, 3), lambda i, j: a[i, j] + 1.0, "B")
    c = te.extern((n, 3), [b], lambda ins, outs: te.call_extern("twice", ins[0], outs[0], n * 3), "C")
    d = te.compute((n, 3), lambda i, j: c[i, j] - 1.0, "D")

    def twice(source, target, count):
        assert len(source) == count
        target[:] = source * 2

    x = RNG.standard_normal((4, 3)).astype("f4")
    func = te.create_prim_func([a, d])
    found = evaluate(func, x, outputs=[(x.shape, "f4")], externs={"twice": twice})
    np.testing.assert_allclose(found, (x + 1) * 2 - 1, rtol=1e-5)


def test_tensor_programs(evaluate):
    rows, columns = te.var("rows"), te.var("columns")
    a = te.placeholder((rows, columns), name="A")
    k = te.reduce_axis(columns, "k")
    total = te.compute((rows,), lambda i: te.sum(a[i, k], axis=k), "total")
    func = te.create_prim_func([a, total], name="row_sums")
    x = te.placeholder((4, 6), name="X")
    sums = te.extern_primfunc([x], func)
    assert [d.value for d in sums.shape] == [4]
    out = te.compute((4,), lambda i: sums[i] / 6.0, "mean")
    values = RNG.standard_normal((4, 6)).astype("f4")
    found = evaluate(te.create_prim_func([x, out]), values, outputs=[((4,), "f4")])
    np.testing.assert_allclose(found, values.mean(1), rtol=1e-5)
    with pytest.raises(UsageError, match="takes 1 inputs, 2 are given"):
        te.extern_primfunc([x, x], func)
    with pytest.raises(UsageError, match=r"input .A. of program"):
        te.extern_primfunc([te.placeholder((4, 6), "int32")], func)
    scale = te.var("scale", "float32")
    scaled = te.create_prim_func([a, te.compute((rows,), lambda i: a[i, 0] * scale)])
    with pytest.raises(UsageError, match="needs values of by-value parameters: scale"):
        te.extern_primfunc([x], scaled)


A, B = te.placeholder((4,), name="A"), te.placeholder((4,), "int32", "B")
STRANGE = Buffer("strange", (4,))


def with_body(body, inputs=(A,), **options):
    return te.extern((4,), list(inputs), body, "mine", **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: with_body(lambda i, o: 3), "the body of extern 'mine' is 3"),
        (lambda: with_body(lambda i, o: i[0][0]), "the body of extern 'mine' is A[0]"),
        (lambda: with_body(lambda i, o: Seq(())), "writes nothing to mine"),
        (lambda: with_body(lambda i, o: store(o[0], (0,), 1.0)), "does not read A"),
        (lambda: with_body(lambda i, o: store(o[0], (0,), STRANGE[0])), "accesses strange"),
        (lambda: with_body(lambda i, o: store(i[0], (0,), i[0][1])), "writes its input A"),
        (lambda: with_body(lambda i, o: i[0], inputs=(A, B)), "give dtype_"),
        (lambda: with_body(lambda i, o: i[0], dtype_=["int8", "int8"]), "1 results and 2 dtypes"),
        (lambda: te.extern_primfunc([], PrimFunc("empty", (), Seq(()))), "writes none of its buffers"),
    ],
)
def test_refuses_invalid_externs(make, message):
    with pytest.raises(UsageError) as error:
        make()
    assert message in str(error.value)
