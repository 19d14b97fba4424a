# ruff: noqa: N803
"""Blocks computed by tensor intrinsics: matches, replacement, results."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import ScheduleError, UsageError
from dlc_core.ir.expr import Var
from dlc_core.ir.structural import first_difference
from dlc_core.passes.tir import flatten_and_simplify, lower_blocks
from dlc_core.schedule import BlockRV, Schedule, TensorIntrin, Trace
from dlc_core.script import T, parse, to_script
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.verify import verify_func
from tests.schedule.products import EXTERN, SCRIPTED, desc, loops, product

both = pytest.mark.parametrize("intrin", [SCRIPTED, EXTERN], ids=["script", "extern"])


def matmul(m, n, k, *, transposed=False, swapped=False) -> PrimFunc:
    a = te.placeholder((m, k), name="A")
    b = te.placeholder((n, k) if transposed else (k, n), name="B")
    r = te.reduce_axis(k, "r")

    def factor(i, j):
        pair = a[i, r.var], b[j, r.var] if transposed else b[r.var, j]
        return pair[1] * pair[0] if swapped else pair[0] * pair[1]

    with te.collect() as made:
        c = te.compute((m, n), lambda i, j: te.sum(factor(i, j), axis=r), "C")
        d = te.compute((m, n), lambda i, j: c[i, j] + 1.0, "D")
    return te.create_prim_func([a, b], [d], producers=made)


def check(sch: Schedule, m, n, k, *, transposed=False) -> None:
    """Check that the scheduled program and the lowered one compute the product."""
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (m, k)).astype("float32")
    b = rng.integers(-3, 4, (n, k) if transposed else (k, n)).astype("float32")
    expected = a @ (b.T if transposed else b) + 1
    verify_func(sch.func, level=2)
    out = np.full((m, n), 99, "float32")
    run(sch.func, a, b, out, check=m * n * k < 50_000, externs=sch.externs)
    assert np.array_equal(out, expected)
    lowered = flatten_and_simplify(lower_blocks(sch.func))
    verify_func(lowered)
    if m * n * k < 50_000:
        out = np.full(m * n, 99, "float32")
        run(lowered, a.reshape(-1), b.reshape(-1), out, check=True, externs=sch.externs)
        assert np.array_equal(out.reshape(m, n), expected)
    text, metadata = to_script(sch.func)
    assert first_difference(parse(text, metadata), sch.func) is None


def tiled(func: PrimFunc, **options) -> tuple[Schedule, list, list]:
    sch = Schedule(func, **options)
    i, j, k = sch.get_loops(sch.get_block("C"))
    tiles = [sch.split(loop, [None, 16]) for loop in (i, j, k)]
    outer, inner = [t[0] for t in tiles], [t[1] for t in tiles]
    sch.reorder(*outer, *inner)
    return sch, outer, inner


def cache(sch: Schedule, block: BlockRV, outer: list) -> None:
    """Tiles of operands and of the result in separate buffers."""
    out = sch.cache_write(block, 0, "global")
    for copy in [sch.cache_read(block, number, "global") for number in (0, 1)]:
        sch.compute_at(copy, outer[2])
    sch.reverse_compute_at(out, outer[1])


@both
@pytest.mark.parametrize("sizes", [(64, 64, 64), (128, 96, 64), (16, 16, 16), (32, 16, 48)], ids=str)
def test_a_product_by_tiles(intrin, sizes):
    sch, _, inner = tiled(matmul(*sizes))
    block = sch.tensorize(inner[0], intrin)
    assert sch.get(block).annotations == {"tensor_intrin": intrin.name}
    check(sch, *sizes)


@both
def test_the_initialisation_may_be_decomposed(intrin):
    sch, outer, inner = tiled(matmul(32, 48, 32))
    sch.decompose_reduction(BlockRV("C"), outer[2])
    sch.tensorize(inner[0], intrin)
    sch.parallel(outer[0])
    check(sch, 32, 48, 32)


@both
def test_windows_on_caches(intrin):
    sch, outer, inner = tiled(matmul(32, 48, 32))
    block = BlockRV("C")
    cache(sch, block, outer)
    sch.compact_buffers()
    sch.tensorize(inner[0], intrin)
    check(sch, 32, 48, 32)
    sch.compact_buffers()
    check(sch, 32, 48, 32)


def test_operands_and_loops_in_another_order():
    sch, _, inner = tiled(matmul(32, 32, 32, swapped=True))
    sch.reorder(inner[2], inner[1], inner[0])
    sch.tensorize(inner[2], SCRIPTED)
    check(sch, 32, 32, 32)


def test_a_blockized_block():
    sch, _, inner = tiled(matmul(32, 32, 32))
    outer = sch.blockize(inner[0])
    assert sch.tensorize(outer, SCRIPTED) == outer
    check(sch, 32, 32, 32)


def test_dims_with_constant_indices():
    a, b = te.placeholder((3, 32, 32), name="A"), te.placeholder((32, 3, 32), name="B")
    r = te.reduce_axis(32, "r")
    c = te.compute((3, 32, 32), lambda q, i, j: te.sum(a[q, i, r.var] * b[r.var, q, j], axis=r), "C")
    func = te.create_prim_func([a, b], [c])
    for intrin in (SCRIPTED, EXTERN):
        sch = Schedule(func)
        _, i, j, k = sch.get_loops(BlockRV("C"))
        tiles = [sch.split(loop, [None, 16]) for loop in (i, j, k)]
        sch.reorder(*(t[0] for t in tiles), *(t[1] for t in tiles))
        sch.tensorize(tiles[0][1], intrin)
        rng = np.random.default_rng(0)
        x = rng.integers(-3, 4, (3, 32, 32)).astype("float32")
        y = rng.integers(-3, 4, (32, 3, 32)).astype("float32")
        out = np.zeros((3, 32, 32), "float32")
        run(sch.func, x, y, out, externs=sch.externs)
        assert np.array_equal(out, np.einsum("qik,kqj->qij", x, y))


def refused(sch: Schedule, loop, intrin, *words: str) -> None:
    before = sch.func
    with pytest.raises(ScheduleError) as caught:
        sch.tensorize(loop, intrin)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert sch.func is before
    assert not sch.externs


def test_mismatches_are_refused():
    sch, _, inner = tiled(matmul(64, 64, 64, transposed=True))
    refused(sch, inner[0], SCRIPTED, "first difference is in body", "described v", "the program:", "<--")
    sch, _, inner = tiled(matmul(40, 64, 64))
    refused(sch, inner[0], SCRIPTED, "cut by the condition", "pad_einsum")
    sch, outer, inner = tiled(matmul(64, 64, 64))
    refused(sch, inner[1], SCRIPTED, "axes: described (spatial 16, spatial 16, reduce 16)")
    refused(sch, outer[2], SCRIPTED, "axes: described")
    refused(sch, sch.get_loops(BlockRV("D"))[0], SCRIPTED, "axes: described")
    loop = sch.get_loops(BlockRV("D"))[0]
    sch.compute_at(BlockRV("C"), loop)
    refused(sch, loop, SCRIPTED, "contain one block and nothing else")


def test_the_first_difference_is_shown():
    a, b = te.placeholder((16, 16), name="A"), te.placeholder((16, 16), name="B")
    r = te.reduce_axis(16, "r")
    c = te.compute((16, 16), lambda i, j: te.sum(a[i, r.var] - b[r.var, j], axis=r), "C")
    sch = Schedule(te.create_prim_func([a, b], [c]))
    refused(
        sch, sch.get_loops(BlockRV("C"))[0], SCRIPTED, "body: described A[vi, vk] * B[vk, vj], there is A["
    )
    c = te.compute((16, 16), lambda i, j: te.sum(a[i, r.var] * a[r.var, j], axis=r), "C")
    sch = Schedule(te.create_prim_func([a], [c]))
    sch.tensorize(sch.get_loops(BlockRV("C"))[0], SCRIPTED)
    d = te.placeholder((16, 16), "float64", name="A")
    c = te.compute((16, 16), lambda i, j: te.sum(d[i, r.var] * d[r.var, j], axis=r), "C")
    sch = Schedule(te.create_prim_func([d], [c]))
    refused(sch, sch.get_loops(BlockRV("C"))[0], SCRIPTED, "of float32 in global, there is C of float64")


def test_an_implementation_that_needs_contiguous_rows():
    @T.prim_func
    def packed(
        A: T.Buffer((16, 16), "float32"),
        B: T.Buffer((16, 16), "float32"),
        C: T.Buffer((16, 16), "float32"),
    ):
        T.evaluate(
            T.call_extern(
                "packed", T.address_of(A[0, 0]), T.address_of(B[0, 0]), T.address_of(C[0, 0]), dtype="int32"
            )
        )

    intrin = TensorIntrin("packed", desc, packed, product)
    sch, _, inner = tiled(matmul(32, 32, 32))
    refused(sch, inner[0], intrin, "dim 0 of A has the stride 32, the implementation needs 16")
    sch, outer, inner = tiled(matmul(32, 32, 32))
    cache(sch, BlockRV("C"), outer)
    sch.compact_buffers()
    sch.tensorize(inner[0], intrin)
    check(sch, 32, 32, 32)


def test_layouts_cannot_change_after_addresses_were_taken():
    sch, _, inner = tiled(matmul(32, 32, 32))
    sch.tensorize(inner[0], EXTERN)
    block = BlockRV("C_o")
    for change in (
        lambda: sch.transform_layout(block, "A", lambda i, j: (j, i)),
        lambda: sch.cache_read(block, "A", "global"),
        lambda: sch.set_scope(block, 0, "local"),
    ):
        with pytest.raises(ScheduleError, match="has the address of"):
            change()
    sch.compact_buffers()
    check(sch, 32, 32, 32)


def test_consumers_move_into_tensorized_loops():
    for intrin in (SCRIPTED, EXTERN):
        sch, outer, inner = tiled(matmul(48, 32, 16))
        sch.tensorize(inner[0], intrin)
        sch.reverse_compute_at(BlockRV("D"), outer[1])
        check(sch, 48, 32, 16)


def test_names_and_traces():
    sch, _, inner = tiled(matmul(32, 32, 32), intrins={"mma_loops": SCRIPTED})
    sch.tensorize(inner[0], "mma_loops")
    for again in (Schedule(matmul(32, 32, 32)), sch.copy()):
        if not again.trace.steps:
            sch.trace.replay(again)
        assert first_difference(again.func, sch.func) is None
        assert again.trace.as_python() == sch.trace.as_python()
    assert "sch.tensorize(l4, 'mma_loops')" in sch.trace.as_python()
    known = {"mma_loops": SCRIPTED}
    for replay in (
        Trace.from_json(sch.trace.to_json()).replay,
        lambda other: exec(sch.trace.as_python(), {"sch": other}),  # noqa: S102
    ):
        other = Schedule(matmul(32, 32, 32), intrins=known)
        replay(other)
        assert first_difference(other.func, sch.func) is None
    with pytest.raises(ScheduleError, match="no intrinsic 'mma_loops'"):
        Trace.from_json(sch.trace.to_json()).replay(Schedule(matmul(32, 32, 32)))
    with pytest.raises(ScheduleError, match="another intrinsic"):
        sch.tensorize(BlockRV("D"), TensorIntrin("mma_loops", desc, loops, product))


def test_declarations_are_checked():
    @T.prim_func
    def narrow(A: T.Buffer((16, 8), "float32"), B: T.Buffer((16, 16), "float32")):
        A[0, 0] = B[0, 0]

    with pytest.raises(UsageError, match="desc has 3 buffers, impl 2"):
        TensorIntrin("x", desc, narrow, product)
    with pytest.raises(UsageError, match="without a name"):
        TensorIntrin("", desc, loops, product)
    with pytest.raises(UsageError, match="not a function"):
        TensorIntrin("x", desc, loops, None)
    n = Var("n")
    with pytest.raises(UsageError, match="constant shape"):
        TensorIntrin("x", matmul(n, 16, 16), matmul(n, 16, 16), product)

    @T.prim_func
    def unknown(
        A: T.Buffer((16, 16), "float32"),
        B: T.Buffer((16, 16), "float32"),
        C: T.Buffer((16, 16), "float32"),
        s: T.int64,
    ):
        C[0, 0] = A[s, 0] + B[0, 0]

    with pytest.raises(UsageError, match="parameter s of impl"):
        TensorIntrin("x", desc, unknown, product)
