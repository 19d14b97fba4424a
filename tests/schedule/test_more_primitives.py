"""Blocks of blocks, padded products, buffers in a block's order, strides, axes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dlc_core import te
from dlc_core.arith import eval_expr
from dlc_core.diag import ScheduleError
from dlc_core.ir.expr import Var, const_value, loads_in, select
from dlc_core.ir.structural import first_difference
from dlc_core.passes.tir import flatten_and_simplify, lower_blocks
from dlc_core.schedule import BlockRV, IndexMap, Schedule
from dlc_core.script import parse, to_script
from dlc_core.tir.functor import stmts
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import Alloc, PrimFunc
from dlc_core.tir.verify import verify_func

MATMUL, BIAS, RELU = BlockRV("matmul"), BlockRV("bias"), BlockRV("relu")


def same(sch: Schedule, func: PrimFunc, *sizes: int) -> None:
    """Check that the scheduled program computes the same as the plain one: directly, parsed back, and
    lowered.
    """
    rng = np.random.default_rng(0)
    env = dict(zip(func.scalars, sizes, strict=True))
    shapes = [[int(eval_expr(d, env)) for d in b.shape] for b in func.buffers]
    arrays = [rng.integers(-3, 4, shape).astype(b.dtype.numpy) for shape, b in zip(shapes, func.buffers)]
    expected = [a.copy() for a in arrays]
    run(func, *expected, *sizes)
    verify_func(sch.func, level=2)
    found = [a.copy() for a in arrays]
    run(sch.func, *found, *sizes, check=True)
    assert np.array_equal(found[-1], expected[-1])
    assert first_difference(parse(*to_script(sch.func)), sch.func) is None
    lowered = flatten_and_simplify(lower_blocks(sch.func))
    verify_func(lowered)
    found = [a.copy().reshape(-1) for a in arrays]
    run(lowered, *found, *sizes, check=True)
    assert np.array_equal(found[-1], expected[-1].reshape(-1))


def refused(sch: Schedule, call, *words: str) -> None:
    before, steps = sch.func, len(sch.trace.steps)
    with pytest.raises(ScheduleError) as caught:
        call()
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert sch.func is before
    assert all(step.name.startswith("get") for step in sch.trace.steps[steps:])


def allocated(sch: Schedule, name: str):
    return next(s.buffer for s in stmts(sch.func.body) if isinstance(s, Alloc) and s.buffer.name == name)


# Blocks of blocks.


@pytest.mark.parametrize("sizes", [(32, 48, 16), (30, 41, 13)], ids=["whole tiles", "cut tiles"])
def test_tiles_are_blockized(matmul, sizes):
    sch = matmul(*sizes)
    func = sch.func
    i, j, k = sch.get_loops(MATMUL)
    tiles = [sch.split(loop, [None, n]) for loop, n in ((i, 8), (j, 16), (k, 4))]
    sch.reorder(*(t[0] for t in tiles), *(t[1] for t in tiles))
    outer = sch.blockize(tiles[0][1])
    assert outer == BlockRV("matmul_o")
    block = sch.get(outer)
    assert [a.kind for a in block.axes] == ["spatial", "spatial", "reduce"]
    assert block.init is not None
    assert sch.get(MATMUL).init is None
    assert sch.get_loops(MATMUL) == [t[1] for t in tiles]
    assert sch.get_child_blocks(outer) == [BlockRV("matmul_init"), MATMUL]
    assert sch.get_producers(BIAS) == [outer]
    same(sch, func)
    sch.parallel(tiles[0][0])
    sch.vectorize(tiles[1][1])
    same(sch, func)


def test_a_complete_reduction_inside_keeps_its_initialisation(sch):
    func = sch.func
    sch.split(sch.get_loops(MATMUL)[1], [None, 8])
    outer = sch.blockize(sch.get_loops(MATMUL)[2])
    assert sch.get(outer).init is None
    assert sch.get(MATMUL).init is not None
    sch.decompose_reduction(MATMUL, sch.get_loops(MATMUL)[-1])
    same(sch, func)


def test_blockize_nested_blocks(sch):
    func = sch.func
    i, j, k = sch.get_loops(MATMUL)
    inner = [sch.split(loop, [None, 2, 4]) for loop in (i, j, k)]
    sch.reorder(*(t[n] for n in range(3) for t in inner))
    small = sch.blockize(inner[0][2])
    large = sch.blockize(inner[0][1])
    assert [sch.get_child_blocks(large)[-1], sch.get_child_blocks(small)[-1]] == [small, MATMUL]
    same(sch, func)


def test_blockize_without_loops(sch):
    func = sch.func
    outer = sch.blockize(RELU)
    assert sch.get_loops(RELU) == []
    assert len(sch.get_loops(outer)) == 2
    same(sch, func)


def test_blockize_symbolic_tiles(matmul):
    m = Var("m")
    sch = matmul(m * 8, 48, 16)
    func = sch.func
    i, j, k = sch.get_loops(MATMUL)
    i0, i1 = sch.split(i, [None, 8])
    sch.reorder(i0, j, k, i1)
    sch.blockize(i1)
    verify_func(sch.func, level=2)
    assert first_difference(parse(*to_script(sch.func)), sch.func) is None
    assert "matmul_o" in sch.show()
    assert func is not sch.func


def test_blocks_of_blocks_are_scheduled_as_one(sch):
    func = sch.func
    i0, i1 = sch.split(sch.get_loops(MATMUL)[0], [None, 8])
    outer = sch.blockize(i1)
    refused(sch, lambda: sch.compute_at(MATMUL, sch.get_loops(BIAS)[0]), "blocks inside other blocks")
    refused(sch, lambda: sch.compute_inline(MATMUL), "accumulates")
    refused(sch, lambda: sch.reverse_compute_inline(BIAS), "cannot inline")
    sch.reverse_compute_at(BIAS, i0)
    sch.compute_inline(BIAS)
    same(sch, func)
    assert sch.get_consumers(outer) == [RELU]


def test_blockize_refusals(sch):
    fused = sch.fuse(*sch.get_loops(MATMUL)[:2])
    a, b = sch.split(fused, [None, 7])
    refused(sch, lambda: sch.blockize(b), "is no sum of a part of the loops outside")
    outer, inner = sch.split(sch.get_loops(RELU)[0], [None, 5], tail="shrink")
    refused(sch, lambda: sch.blockize(inner), "depends on i_0 outside")
    refused(sch, lambda: sch.blockize(a), "do not run over a box")
    sch.compute_at(BIAS, outer)
    refused(sch, lambda: sch.blockize(outer), "they must contain one block and nothing else")


# Padded products.


@pytest.mark.parametrize("padding", [[16, 16, 16], [1, 16, 1], [1, 1, 8], [4, 1, 5]], ids=str)
def test_pad_einsum_pads_operands_and_result(matmul, padding):
    sch = matmul(30, 41, 13)
    func = sch.func
    made = sch.pad_einsum(MATMUL, padding)
    extents = [const_value(sch.extent(loop)) for loop in sch.get_loops(MATMUL)]
    assert extents == [-(-n // p) * p for n, p in zip((30, 41, 13), padding)]
    assert [b.name for b in made] == [b.name for b in sch.get_blocks() if b.name.endswith(("pad", "cut"))]
    same(sch, func)
    for block in made:
        if block.name.endswith("pad"):
            sch.compute_inline(block)
    same(sch, func)


def test_pad_einsum_without_padding(sch):
    before = sch.func
    assert sch.pad_einsum(MATMUL, [8, 16, 4]) == []
    assert sch.func is before


def test_symbolic_products_are_padded(matmul):
    m = Var("m")
    sch = matmul(m, 20, 6)
    func = sch.func
    sch.pad_einsum(MATMUL, [8, 8, 4])
    same(sch, func, 13)


def test_pad_einsum_refusals(sch):
    refused(sch, lambda: sch.pad_einsum(RELU, [8, 8]), "no sum from 0")
    refused(sch, lambda: sch.pad_einsum(MATMUL, [8, 8]), "3 positive numbers")
    refused(sch, lambda: sch.pad_einsum(MATMUL, [8, 0, 8]), "3 positive numbers")
    other = sch.copy()
    other.split(other.get_loops(MATMUL)[0], [None, 4])
    refused(other, lambda: other.pad_einsum(MATMUL, [64, 1, 1]), "not one loop each")
    a, b = te.placeholder((5, 6), name="A"), te.placeholder((5,), name="B")
    r = te.reduce_axis(6, "r")
    x = te.compute((5,), lambda i: te.sum(a[i, r.var] * b[i], axis=r), "x")
    partly = Schedule(te.create_prim_func([a, b], [x]))
    refused(partly, lambda: partly.pad_einsum(BlockRV("x"), [1, 4]), "zero times infinity")
    partly.pad_einsum(BlockRV("x"), [4, 1])
    same(partly, te.create_prim_func([a, b], [x]))
    y = te.compute((4,), lambda i: te.sum(a[i + 1, r.var] * a[i, r.var], axis=r), "y")
    shifted = Schedule(te.create_prim_func([a], [y]))
    refused(shifted, lambda: shifted.pad_einsum(BlockRV("y"), [8, 1]), "are not axes, each once")


# Buffers in a block's own order.


def conv():
    x, f = te.placeholder((12, 5), name="X"), te.placeholder((3, 5, 7), name="F")
    k, c = te.reduce_axis(3, "k"), te.reduce_axis(5, "c")
    y = te.compute((10, 7), lambda i, o: te.sum(x[i + k.var, c.var] * f[k.var, c.var, o], axis=(k, c)), "y")
    return te.create_prim_func([x, f], [y])


def test_reindex_reads_in_the_order_of_the_block():
    func = conv()
    sch = Schedule(func)
    block = BlockRV("y")
    sch.reorder_block_axes(block, [1, 0, 2, 3])
    copy = sch.reindex(block, "X")
    assert copy == BlockRV("X_reindex")
    assert allocated(sch, "X_reindex").static_shape() == (10, 3, 5)
    assert [r.buffer.name for r in sch.get(block).reads] == ["X_reindex", "F"]
    same(sch, func)
    assert sch.reindex(block, ("read", 1)) == BlockRV("F_reindex")
    assert allocated(sch, "F_reindex").static_shape() == (7, 3, 5)
    written = sch.reindex(block, ("write", 0))
    assert written == BlockRV("y_reindex")
    assert allocated(sch, "y_reindex").static_shape() == (7, 10)
    same(sch, func)
    sch.compute_at(copy, sch.get_loops(block)[0])
    sch.compact_buffers()
    same(sch, func)


def test_reindex_inside_shared_loops(sch):
    func = sch.func
    i, _ = sch.get_loops(RELU)
    sch.compute_at(BIAS, i)
    sch.reindex(BIAS, "matmul")
    sch.reindex(BIAS, ("write", 0))
    same(sch, func)


def test_reindex_refusals(sch):
    refused(sch, lambda: sch.reindex(BIAS, "Q"), "no one buffer 'Q'")
    a = te.placeholder((8,), name="A")
    with te.collect() as made:
        x = te.compute((8,), lambda i: select(i > 0, a[i - 1 + (i < 1).astype("int64")], 0.0), "x")
        y = te.compute((8,), lambda i: x[i] + x[7 - i], "y")
    odd = Schedule(te.create_prim_func([a], [y], producers=made))
    refused(odd, lambda: odd.reindex(BlockRV("x"), "A"), "may leave A")
    refused(odd, lambda: odd.reindex(BlockRV("y"), "x"), "accesses x at 2 indices")
    i, j, r = sch.get_loops(MATMUL)
    sch.reorder(r, i, j)
    other = sch.copy()
    other.decompose_reduction(MATMUL, r)
    refused(other, lambda: other.reindex(MATMUL, ("write", 0)), "other blocks write matmul too")


# Strides.


def test_storage_align_pads_rows(sch):
    func = sch.func
    sch.storage_align(BIAS, 0, -2, 32, 8)
    assert [const_value(s) for s in allocated(sch, "bias").strides] == [72, 1]
    same(sch, func)
    sch.storage_align(BIAS, "bias", 1, 2)
    assert [const_value(s) for s in allocated(sch, "bias").strides] == [104, 2]
    same(sch, func)
    sch.compute_at(BIAS, sch.split(sch.get_loops(RELU)[0], [None, 4])[0])
    sch.compact_buffers()
    small = allocated(sch, "bias")
    assert small.static_shape() == (4, 48)
    assert [const_value(s) for s in small.strides] == [104, 2]
    same(sch, func)
    sch.set_scope(BIAS, 0, "local")
    assert allocated(sch, "bias").strides is not None
    same(sch, func)


def test_storage_align_of_symbolic_rows(matmul):
    n = Var("n")
    sch = matmul(6, n, 4)
    func = sch.func
    sch.storage_align(MATMUL, 0, 0, 16, 1)
    same(sch, func, 21)
    sch.decompose_reduction(MATMUL, sch.get_loops(MATMUL)[2])
    sch.storage_align(BlockRV("matmul_init"), 0, 0, 8, 0)
    assert not sch.get(MATMUL).annotations
    same(sch, func, 21)


def test_alignment_refusals(sch):
    refused(sch, lambda: sch.storage_align(RELU, 0, 0, 32), "it is a parameter")
    refused(sch, lambda: sch.storage_align(BIAS, 0, 2, 32), "has 2 dims")
    refused(sch, lambda: sch.storage_align(BIAS, 0, 0, 0), "multiple of 0")
    refused(sch, lambda: sch.storage_align(BIAS, 0, 0, 4, 4), "offset < factor")
    refused(sch, lambda: sch.storage_align(BIAS, 1, 0, 4), "no such write")


# Axes.


def test_reorder_block_axes(sch):
    func = sch.func
    sch.reorder_block_axes(BIAS, [1, 0])
    sch.compute_at(BIAS, sch.add_unit_loop(sch.get_loops(RELU)[0]))
    assert [const_value(sch.extent(loop)) for loop in sch.get_loops(BIAS)] == [1, 48, 32]
    same(sch, func)
    for order in ([0], [0, 0], [1, 2], [0, -1]):
        refused(sch, lambda order=order: sch.reorder_block_axes(BIAS, order), "each of their numbers once")


def test_transform_block_layout(sch):
    func = sch.func
    sch.transform_block_layout(BIAS, lambda i, j: (j // 12, i, j % 12))
    assert [const_value(sch.extent(loop)) for loop in sch.get_loops(BIAS)] == [4, 32, 12]
    same(sch, func)
    sch.transform_block_layout(MATMUL, lambda i, j, k: (k // 4, j, i, k % 4))
    assert [a.kind for a in sch.get(MATMUL).axes] == ["reduce", "spatial", "spatial", "reduce"]
    same(sch, func)
    sch.decompose_reduction(MATMUL, sch.get_loops(MATMUL)[0])
    same(sch, func)


def test_fuse_block_axes(sch):
    func = sch.func
    sch.fuse_block_axes(BIAS, 0, 2)
    assert [const_value(sch.extent(loop)) for loop in sch.get_loops(BIAS)] == [32 * 48]
    same(sch, func)
    sch.fuse_block_axes(MATMUL, 0, 2)
    assert [a.kind for a in sch.get(MATMUL).axes] == ["spatial", "reduce"]
    same(sch, func)
    refused(sch, lambda: sch.fuse_block_axes(MATMUL, 0, 2), "of both kinds")
    refused(sch, lambda: sch.fuse_block_axes(RELU, 1, 2), "it has 2 axes")
    sch.split(sch.get_loops(RELU)[0], [None, 5])
    refused(sch, lambda: sch.fuse_block_axes(RELU, 0, 2), "not one loop each")


@pytest.mark.parametrize(("first", "count"), [(0, 3), (0, 2), (1, 2), (1, 1)])
def test_fuse_some_block_axes(first, count):
    a = te.placeholder((3, 6, 4), name="A")
    y = te.compute((3, 6, 4), lambda i, j, k: a[i, j, k] * 2.0 + a[2 - i, j, 3 - k], "y")
    func = te.create_prim_func([a], [y])
    sch = Schedule(func)
    sch.fuse_block_axes(BlockRV("y"), first, count)
    sizes = [3, 6, 4]
    fused = [*sizes[:first], math.prod(sizes[first : first + count]), *sizes[first + count :]]
    assert [const_value(sch.extent(loop)) for loop in sch.get_loops(BlockRV("y"))] == fused
    same(sch, func)


def test_fuse_block_axes_of_symbolic_rows():
    """Indices `n * i + j` and `2 * (n * i + j) + 1` are simplified to indices of the fused axis."""
    n = Var("n")
    a = te.placeholder((n * 8 + 1,), name="A")
    y = te.compute((4, n), lambda i, j: a[i * n + j] + a[i * n * 2 + j * 2 + 1] * 3.0, "y")
    func = te.create_prim_func([a], [y])
    sch = Schedule(func)
    sch.fuse_block_axes(BlockRV("y"), 0, 2)
    block = sch.get(BlockRV("y"))
    (axis,) = block.axes
    assert {str(e.indices[0]) for e in loads_in(block.body.value)} == {f"{axis.var}", f"{axis.var} * 2 + 1"}
    same(sch, func, 5)
    same(sch, func, 0)


def test_refusals_of_primitives_on_block_axes(sch):
    refused(sch, lambda: sch.transform_block_layout(BIAS, lambda i: (i,)), "it has 2 axes")
    refused(sch, lambda: sch.transform_block_layout(BIAS, lambda i, j: (i + j, j)), "must be a digit")
    refused(sch, lambda: sch.transform_block_layout(BIAS, lambda i, j: (i,)), "must be a digit")
    cut = IndexMap.of(lambda i, j: (i // 5, j, i % 5))
    refused(sch, lambda: sch.transform_block_layout(BIAS, cut), "would be cut")
    sch.split(sch.get_loops(BIAS)[0], [None, 5])
    layout = IndexMap.of(lambda i, j: (j, i))
    refused(sch, lambda: sch.transform_block_layout(BIAS, layout), "not one loop each")


# Options of moving.


def test_unit_loops_may_be_omitted(sch):
    func = sch.func
    i = sch.get_loops(RELU)[0]
    other = sch.copy()
    sch.compute_at(BIAS, i)
    other.compute_at(BIAS, i, preserve_unit_loops=False)
    assert len(sch.get_loops(BIAS)) == 3
    assert len(other.get_loops(BIAS)) == 2
    same(other, func)


def test_compute_at_index(sch):
    func = sch.func
    cached = sch.cache_read(BIAS, "C", "global")
    i, _ = sch.get_loops(RELU)
    sch.compute_at(BIAS, i)
    other = sch.copy()
    sch.compute_at(MATMUL, i, index=0)
    assert [b.name for b in sch.get_child_blocks(i)] == ["matmul", "bias", "relu"]
    refused(sch, lambda: sch.compute_at(cached, i, index=2), "0 … 1 are possible")
    sch.compute_at(cached, i, index=0)
    assert [b.name for b in sch.get_child_blocks(i)] == ["C_global", "matmul", "bias", "relu"]
    same(sch, func)
    refused(other, lambda: other.compute_at(MATMUL, i, index=-1), "0 … 0 are possible")
    k = sch.get_loops(MATMUL)[0]
    assert k == i


def test_reverse_compute_at_index(sch):
    func = sch.func
    i, _ = sch.get_loops(BIAS)
    refused(sch, lambda: sch.reverse_compute_at(RELU, i, index=0), "1 … 1 are possible")
    sch.reverse_compute_at(RELU, i, index=1)
    same(sch, func)
