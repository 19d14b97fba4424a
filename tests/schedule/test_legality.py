"""Every refusal names its reason, shows the program, and leaves it as it was."""

from __future__ import annotations

import pytest

from dlc_core import te
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Var, maximum
from dlc_core.schedule import BlockRV, LoopRV, Schedule
from dlc_core.script import parse

MATMUL, BIAS, RELU = BlockRV("matmul"), BlockRV("bias"), BlockRV("relu")


def refused(sch: Schedule, call, *words: str) -> str:
    """The message of a refused call. Checks that it contains the words."""
    before, steps = sch.func, len(sch.trace.steps)
    with pytest.raises(ScheduleError) as caught:
        call()
    text = str(caught.value)
    for word in words:
        assert word in text, text
    assert sch.func is before
    assert all(step.name.startswith("get") for step in sch.trace.steps[steps:])
    return text


def test_errors_show_the_loop_nest_with_a_mark(sch):
    r = sch.get_loops(MATMUL)[2]
    text = refused(
        sch, lambda: sch.parallel(r), "cannot make loop 'r' parallel", "block 'matmul' accumulates over it"
    )
    assert "      for r in range(16):   <--" in text
    assert "block relu(v_i = i, v_j = j)" in text
    assert "hint: use rfactor" in text


def test_unknown_names_and_stale_handles(sch):
    refused(sch, lambda: sch.get_block("mat"), "no block 'mat'", "matmul, bias, relu")
    i, j = sch.get_loops(RELU)
    sch.fuse(i, j)
    refused(sch, lambda: sch.split(i, [None, 2]), "no loop 'i'", "earlier primitive")
    refused(sch, lambda: sch.split(LoopRV(Var("q")), [None, 2]), "no loop 'q'")


def test_split(sch):
    i = sch.get_loops(RELU)[0]
    refused(sch, lambda: sch.split(i, [None, 5], tail="exact"), "not known to be a multiple of 5")
    refused(sch, lambda: sch.split(i, [None, 0]), "factor 0", "positive")
    refused(sch, lambda: sch.split(i, [3, 5]), "do not cover", "extent 32")
    refused(sch, lambda: sch.split(i, [None, None]), "at most one of them None")
    refused(sch, lambda: sch.split(i, [None, 2], tail="cut"), "unknown tail", "shrink")


def test_partition(sch):
    i = sch.get_loops(RELU)[0]
    refused(sch, lambda: sch.partition(i, [40]), "40 <= 32 is not provable")
    refused(sch, lambda: sch.partition(i, [9, 4]), "9 <= 4 is not provable")


def test_fuse_of_a_reduction_that_may_be_empty():
    m, n = Var("m"), Var("n")
    a, r = te.placeholder((m, n), name="A"), te.reduce_axis(n, "r")
    total = te.compute((m,), lambda i: te.sum(a[i, r], axis=r), name="total")
    sch = Schedule(te.create_prim_func([a], [total]))
    block = sch.get_block("total")
    refused(sch, lambda: sch.fuse(*sch.get_loops(block)), "may have no iterations", "'total'")
    sch.decompose_reduction(block, sch.get_loops(block)[1])
    sch.get_loops(block)


def test_fuse(sch):
    i, _, r = sch.get_loops(MATMUL)
    refused(sch, lambda: sch.fuse(i, r), "must be the only statement in the first")
    refused(sch, lambda: sch.fuse(i), "two loops or more")
    i, _ = sch.get_loops(RELU)
    outer, inner = sch.split(i, [None, 5], tail="shrink")
    refused(sch, lambda: sch.fuse(outer, inner), "depends on i_0")


def test_reorder(sch):
    i, j = sch.get_loops(RELU)
    other = sch.get_loops(BIAS)[0]
    refused(sch, lambda: sch.reorder(i, other), "not nested in each other")
    refused(sch, lambda: sch.reorder(i, i), "twice")
    outer, inner = sch.split(i, [None, 5], tail="shrink")
    refused(sch, lambda: sch.reorder(inner, outer), "depends on that loop")
    sch.compute_at(BIAS, outer)
    refused(sch, lambda: sch.reorder(j, outer), "across other statements")


def test_values_that_pass_between_iterations():
    a = te.placeholder((8, 9), name="A")
    with te.collect() as made:
        x = te.compute((8, 9), lambda i, j: a[i, j] * 2.0, "x")
        y = te.compute((8, 8), lambda i, j: x[i, j] + x[i, j + 1], "y")
    sch = Schedule(te.create_prim_func([a], [y], producers=made))
    i, j = sch.get_loops(BlockRV("y"))
    sch.compute_at(BlockRV("x"), i)
    sch.compact_buffers()
    sch.parallel(i)
    sch.serial(i)
    x_j = sch.get_loops(BlockRV("x"))[-1]
    sch.parallel(x_j)
    sch.parallel(j)


def test_loop_kinds(sch, matmul):
    i, _, r = sch.get_loops(MATMUL)
    refused(sch, lambda: sch.vectorize(r), "accumulates")
    refused(sch, lambda: sch.bind(r, "block.x"), "accumulates")
    symbolic = matmul(Var("m"))
    i = symbolic.get_loops(RELU)[0]
    refused(symbolic, lambda: symbolic.vectorize(i), "its extent m is not a constant")
    refused(symbolic, lambda: symbolic.unroll(i), "not a constant", "split it")


def test_a_loop_of_one_iteration_is_serial(sch):
    unit = sch.add_unit_loop(sch.get_loops(sch.get_block("bias"))[0])
    sch.parallel(unit)
    assert sch.get_for(unit).kind == "parallel"


def test_repeated_writes_cannot_be_parallel():
    twice = Schedule(
        parse("""
@T.prim_func
def twice(a: T.Buffer((8,), "float32"), bias: T.Buffer((8,), "float32")):
    for again in range(2):
        for i in range(8):
            with T.block("bias"):
                vi = T.axis.spatial(8, i)
                bias[vi] = a[vi] + 1.0
""")
    )
    again = twice.get_loops(BIAS)[0]
    refused(twice, lambda: twice.parallel(again), "writes the same elements of bias")


HALVES = """
@T.prim_func
def halves(a: T.Buffer((6, 48), "float32"), z: T.Buffer((6, 48), "float32")):
    for share in range(2):
        for panel in range(5):
            for i, right, n in T.grid(4, 2, 2):
                with T.block("above"):
                    vi = T.axis.spatial(6, i)
                    vn = T.axis.spatial(48, n + panel * 2 + share * 10 + right * 20)
                    z[vi, vn] = a[vi, vn]
            for i_1, right_1, n_1 in T.grid(4, 2, 2):
                with T.block("below"):
                    vi = T.axis.spatial(6, i_1 + 2)
                    vn = T.axis.spatial(48, n_1 + panel * 2 + share * 10 + right_1 * 20 + OFFSET)
                    z[vi, vn] = a[vi, vn]
"""
"""Two blocks that write the same part of the columns in an iteration, or disjoint parts."""


def test_iterations_identified_by_indices_are_independent():
    for offset, legal in ((0, True), (2, False)):
        sch = Schedule(parse(HALVES.replace("OFFSET", str(offset))))
        share = sch.get_loops(BlockRV("above"))[0]
        if legal:
            sch.parallel(share)
            assert sch.get_for(share).kind == "parallel"
        else:
            refused(sch, lambda sch=sch, loop=share: sch.parallel(loop), "elements of z may pass")


def test_inline(sch):
    refused(sch, lambda: sch.compute_inline(MATMUL), "accumulates, or has several statements")
    refused(sch, lambda: sch.compute_inline(RELU), "relu is a parameter", "reverse_compute_inline")
    refused(
        sch, lambda: sch.reverse_compute_inline(BIAS), "cannot inline block 'bias' into its producer 'matmul'"
    )
    refused(sch, lambda: sch.reverse_compute_inline(MATMUL), "not a single assignment")
    outer, _ = sch.split(sch.get_loops(BIAS)[0], [None, 4])
    sch.partition(outer, [2])
    refused(sch, lambda: sch.compute_inline(BIAS), "other blocks write bias too")


def test_compute_at(sch):
    i, j = sch.get_loops(RELU)
    refused(sch, lambda: sch.compute_at(RELU, i), "it is there already")
    refused(sch, lambda: sch.compute_at(RELU, sch.get_loops(BIAS)[0]), "relu is a parameter")
    refused(sch, lambda: sch.compute_at(MATMUL, i), "reads its result outside of that loop", "duplicate")
    sch.vectorize(j)
    refused(sch, lambda: sch.compute_at(BIAS, j), "loop 'j' is vectorized")


def read_twice(first: int, second: int) -> Schedule:
    """A block that reads rows of x up to an index, and a second reader."""
    a = te.placeholder((8, 4), name="A")
    with te.collect() as made:
        x = te.compute((8, 4), lambda i, j: a[i, j] * 2.0, "x")
        y = te.compute((first, 4), lambda i, j: x[i, j] + 1.0, "y")
        z = te.compute((second, 4), lambda i, j: x[i, j] - 1.0, "z")
    return Schedule(te.create_prim_func([a], [y, z], producers=made))


@pytest.mark.parametrize(("sizes", "reader"), [((8, 8), "z"), ((5, 8), "y")], ids=["before", "a part"])
def test_a_block_read_outside_of_a_loop_cannot_move_into_it(sizes, reader):
    sch = read_twice(*sizes)
    loop = sch.get_loops(sch.get_block(reader))[0]
    refused(sch, lambda: sch.compute_at(sch.get_block("x"), loop), "reads its result outside of that loop")


def test_reverse_compute_at(sch):
    i, j, r = sch.get_loops(MATMUL)
    refused(sch, lambda: sch.reverse_compute_at(BIAS, r), "still accumulates over loop 'r'")
    refused(sch, lambda: sch.reverse_compute_at(RELU, i), "no block under that loop computes what it reads")
    sch.reorder(r, i, j)
    refused(sch, lambda: sch.reverse_compute_at(BIAS, j), "still accumulates over loop 'r'")


def test_partial_reductions_cannot_be_consumed():
    a = te.placeholder((8, 8), name="A")
    r = te.reduce_axis(8, "r")
    with te.collect() as made:
        x = te.compute((8, 8), lambda i, j: a[i, j] * 2.0, "x")
        y = te.compute((8,), lambda i: te.sum(x[i, r], axis=r), "y")
    sch = Schedule(te.create_prim_func([a], [y], producers=made))
    i, j = sch.get_loops(BlockRV("x"))
    refused(sch, lambda: sch.reverse_compute_at(BlockRV("y"), j), "only a part of what 'v_r' accumulates")
    sch.reverse_compute_at(BlockRV("y"), i)


def test_compacted_blocks_cannot_move(sch):
    i, j = sch.get_loops(RELU)
    sch.compute_at(BIAS, i)
    sch.compact_buffers()
    refused(sch, lambda: sch.compute_at(BIAS, j), "depend on each other", "compact buffers after")


def test_decompose_reduction(sch):
    i, j, r = sch.get_loops(MATMUL)
    refused(sch, lambda: sch.decompose_reduction(RELU, i), "no initialisation")
    refused(sch, lambda: sch.decompose_reduction(MATMUL, sch.get_loops(RELU)[0]), "not around the block")
    sch.reorder(r, i, j)
    refused(sch, lambda: sch.decompose_reduction(MATMUL, i), "loop 'r' outside of it accumulates too")
    sch.partition(r, [8])
    tail = sch.get_loops(BlockRV("matmul_1"))
    refused(sch, lambda: sch.decompose_reduction(BlockRV("matmul_1"), tail[0]), "does not start at 0")
    fused = sch.fuse(*sch.get_loops(MATMUL)[:2])
    refused(sch, lambda: sch.decompose_reduction(MATMUL, fused), "moves spatial axes and accumulates at once")


def test_rfactor(sch):
    i, _, r = sch.get_loops(MATMUL)
    refused(sch, lambda: sch.rfactor(i, 0), "does not accumulate over it alone")
    refused(sch, lambda: sch.rfactor(r, 3), "axis is 0 … 2")
    a = te.placeholder((8,), name="A")
    k = te.reduce_axis(8, "k")
    last = te.Combiner("last", lambda x, y: (y[0],), lambda d: (maximum(a[0], a[0]),))
    with te.collect() as made:
        x = te.compute((1,), lambda i: te.reduce(last, (a[k],), k), "x")
    odd = Schedule(te.create_prim_func([a], [x], producers=made))
    refused(
        odd, lambda: odd.rfactor(odd.get_loops(BlockRV("x"))[1], 0), "is not a function of its values alone"
    )


def test_buffers(sch):
    refused(sch, lambda: sch.set_scope(RELU, 0, "local"), "it is a parameter", "cache_write")
    refused(sch, lambda: sch.set_scope(BIAS, 2, "local"), "no such write", "0: bias")
    refused(sch, lambda: sch.cache_read(BIAS, "Q", "local"), "no such read", "0: matmul, 1: C")
    sch.decompose_reduction(MATMUL, sch.get_loops(MATMUL)[2])
    refused(sch, lambda: sch.cache_write(MATMUL, 0, "local"), "other blocks write matmul too", "decomposing")


def test_layouts(sch):
    refused(sch, lambda: sch.transform_layout(RELU, "relu", lambda i, j: (j, i)), "it is an output")
    refused(sch, lambda: sch.transform_layout(MATMUL, "B", lambda i: (i,)), "B has 2 dims")
    refused(sch, lambda: sch.transform_layout(MATMUL, "Q", lambda i: (i,)), "no one buffer 'Q'")
    refused(
        sch,
        lambda: sch.transform_layout(MATMUL, ("write", 0), lambda i, j: (i // 5, j, i % 5), pad_value=0),
        "cannot fill the padding",
    )


def test_padding(sch):
    refused(sch, lambda: sch.decompose_padding(BIAS, sch.get_loops(BIAS)[0]), "no choice between an element")
    refused(sch, lambda: sch.decompose_padding(MATMUL, sch.get_loops(MATMUL)[0]), "not a single assignment")


def test_duplicate(sch):
    refused(sch, lambda: sch.duplicate(RELU, []), "relu is a parameter")
    refused(sch, lambda: sch.duplicate(BIAS, [MATMUL]), "matmul does not read it")


def test_binding_to_hardware_axes(sch):
    block = sch.get_block("relu")
    i, j = sch.get_loops(block)
    outer, inner = sch.split(j, [None, 16])
    sch.bind(outer, "thread.x")
    refused(sch, lambda: sch.bind(inner, "thread.x"), "extents 3 and 16", "used once in a nest")
    refused(sch, lambda: sch.bind(inner, "block.x"), "inside an axis of threads")
    refused(sch, lambda: sch.bind(inner, ""), "without a name")
    sch.bind(i, "block.x")
    sch.bind(inner, "vthread")
    middle, _ = sch.split(i, [None, 3])
    refused(sch, lambda: sch.bind(middle, "thread.x"), "extents 11 and 3")
    k = sch.get_loops(sch.get_block("bias"))[0]
    refused(sch, lambda: sch.swizzle(k, middle, 2), "only statement")


def test_group_axes_must_be_outside_thread_axes(sch):
    i, j = sch.get_loops(sch.get_block("relu"))
    sch.bind(i, "block.x")
    sch.bind(j, "thread.x")
    refused(sch, lambda: sch.reorder(j, i), "cannot reorder", "stands inside the axis thread.x of threads")


def test_a_repeated_axis_needs_equal_extents_and_no_dependence(sch):
    i, j = sch.get_loops(sch.get_block("relu"))
    a, b = sch.split(i, [None, 4])
    c, d = sch.split(j, [None, 8])
    sch.reorder(c, a, b, d)
    sch.bind(a, "thread.x")
    refused(sch, lambda: sch.bind(d, "thread.x"), "depends on 'i_0'")


def test_cross_thread_reductions(sch):
    r = sch.get_loops(sch.get_block("matmul"))[-1]
    outer, inner = sch.split(r, [None, 4])
    refused(sch, lambda: sch.bind(inner, "block.x"), "accumulates over it", "rfactor")
    refused(sch, lambda: sch.bind(inner, "thread.x"), "accumulates over it")
    refused(sch, lambda: sch.parallel(outer), "accumulates over it")
    sch.reorder(inner, outer)
    sch.bind(inner, "thread.x")
