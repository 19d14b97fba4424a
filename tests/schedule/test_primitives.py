"""Primitives on loop nests, and their results."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core import te
from dlc_core.diag import ScheduleError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var, as_expr, const, const_value, free_vars, logical_and, substitute
from dlc_core.passes.tir import flatten_and_simplify, lower_blocks, unroll_loops, vectorize_loops
from dlc_core.passes.tir.prefetch import inject_prefetches
from dlc_core.schedule import BlockRV, IndexMap, LoopRV, Schedule
from dlc_core.tir.axes import IterVar, Range, Region
from dlc_core.tir.functor import loads_in, stmts
from dlc_core.tir.interpreter import run
from dlc_core.tir.intrinsics import if_then_else
from dlc_core.tir.stmt import Alloc, Block, Eval, For, If, PrimFunc, Store
from dlc_core.tir.verify import verify_func


def extents(sch: Schedule, block: BlockRV) -> list[int | None]:
    return [const_value(sch.extent(loop)) for loop in sch.get_loops(block)]


def test_blocks_and_loops_are_found(sch):
    assert sch.get_blocks() == [BlockRV("matmul"), BlockRV("bias"), BlockRV("relu")]
    assert [loop.name for loop in sch.get_loops(BlockRV("matmul"))] == ["i", "j", "r"]
    assert sch.get_producers(BlockRV("bias")) == [BlockRV("matmul")]
    assert sch.get_consumers(BlockRV("bias")) == [BlockRV("relu")]
    assert sch.get_output_blocks() == [BlockRV("relu")]
    loops = sch.get_loops(BlockRV("matmul"))
    assert sch.get_child_blocks(loops[0]) == [BlockRV("matmul")]
    assert const_value(sch.extent(loops[2])) == 16


def test_show_numbers_nested_variables_of_the_same_name():
    a = Buffer("A", (4, 8))
    loops, axes = (Var("i"), Var("i")), (Var("v"), Var("v"))
    domains = [Range(const(0), const(extent)) for extent in (4, 8)]
    block = Block(
        "fill",
        tuple(map(IterVar, axes, domains)),
        (loops[0], loops[1] + loops[0]),
        (),
        (Region.point(a, axes),),
        Store(a, axes, const(1.0, "float32")),
        predicate=loops[0] < loops[1],
    )
    inner = For(loops[1], const(0), loops[0] + 1, block)
    program = PrimFunc("main", (a,), For(loops[0], const(0), const(4), inner))
    assert Schedule(program).show().split("\n") == [
        "  for i in range(4):",
        "    for i_1 in range(i + 1):",
        "      block fill(v = i, v_1 = i_1 + i) where i < i_1",
    ]


def test_duplicate_block_names_get_numbers():
    a = te.placeholder((4,), name="A")
    with te.collect() as made:
        x = te.compute((4,), lambda i: a[i] + 1.0, "x")
        y = te.compute((4,), lambda i: x[i] + 1.0, "x")
    sch = Schedule(te.create_prim_func([a], [y], producers=made))
    assert [b.name for b in sch.get_blocks()] == ["x", "x_1"]


def test_split_makes_loops_outer_to_inner(sch):
    block = sch.get_block("relu")
    i, _ = sch.get_loops(block)
    loops = sch.split(i, [None, 4, 2])
    assert loops.tail is None
    assert [const_value(sch.extent(x)) for x in loops] == [4, 4, 2]
    assert sch.get_loops(block)[:3] == list(loops)
    assert const_value(sch.get(block).predicate) == 1


def test_a_predicate_guards_the_tail(sch):
    i, _ = sch.get_loops(BlockRV("relu"))
    outer, inner = sch.split(i, [None, 5])
    assert [const_value(sch.extent(x)) for x in (outer, inner)] == [7, 5]
    assert const_value(sch.get(BlockRV("relu")).predicate) is None


def test_shrunk_tiles_become_constant_by_partition(sch):
    block = sch.get_block("relu")
    i, _ = sch.get_loops(block)
    outer, inner = sch.split(i, [None, 5], tail="shrink")
    assert const_value(sch.extent(inner)) is None
    full, rest = sch.partition(outer, [6])
    assert full.loop == outer
    assert [const_value(sch.extent(c[inner])) for c in (full, rest)] == [5, 2]
    assert rest[block] == BlockRV("relu_1")
    assert full[block] == block


def test_a_partitioned_tail_is_a_separate_loop(matmul):
    n = Var("n")
    sch = matmul(n)
    block = sch.get_block("relu")
    loops = sch.split(sch.get_loops(block)[0], [None, 5], tail="partition")
    assert str(sch.extent(loops[0])) == "n // 5"
    assert loops.tail is not None
    assert str(sch.extent(loops.tail.loop)) == "n % 5"
    assert loops.tail[block] == BlockRV("relu_1")


def test_fuse_and_reorder_keep_valid_handles(sch):
    block = sch.get_block("matmul")
    i, j, r = sch.get_loops(block)
    sch.reorder(r, i)
    assert sch.get_loops(block) == [r, j, i]
    sch.reorder(i, j)
    assert sch.get_loops(block) == [r, i, j]
    fused = sch.fuse(i, j)
    assert sch.get_loops(block) == [r, fused]
    assert const_value(sch.extent(fused)) == 32 * 48


def test_kinds_and_annotations(sch):
    block = sch.get_block("relu")
    i, j = sch.get_loops(block)
    sch.parallel(i)
    sch.vectorize(j)
    sch.annotate(i, "grain", 4)
    assert (sch.get_for(i).kind, sch.get_for(j).kind) == ("parallel", "vectorized")
    assert sch.get_for(i).annotations == {"grain": 4}
    sch.annotate(i, "grain", None)
    assert not sch.get_for(i).annotations
    sch.bind(i, "block.x")
    assert (sch.get_for(i).kind, sch.get_for(i).thread) == ("thread", "block.x")
    unit = sch.add_unit_loop(block)
    assert sch.get_loops(block) == [i, j, unit]


def test_inlining_removes_block_and_buffer(sch):
    sch.compute_inline(sch.get_block("bias"))
    assert [b.name for b in sch.get_blocks()] == ["matmul", "relu"]
    assert [s.buffer.name for s in stmts(sch.func.body) if isinstance(s, Alloc)] == ["matmul"]
    assert [r.buffer.name for r in sch.get(BlockRV("relu")).reads] == ["matmul", "C"]


def test_reverse_inlining_keeps_the_name_of_the_consumer(sch):
    sch.reverse_compute_inline(sch.get_block("relu"))
    assert [b.name for b in sch.get_blocks()] == ["matmul", "relu"]
    assert sch.get_output_blocks() == [BlockRV("relu")]


def tiled(sch: Schedule) -> tuple[BlockRV, list[LoopRV]]:
    """The nest of a contraction: panels, tiles, reduction, registers."""
    matmul, relu = sch.get_block("matmul"), sch.get_block("relu")
    sch.compute_inline(sch.get_block("bias"))
    i, j = sch.get_loops(relu)
    i0, i1 = sch.split(i, [None, 6], tail="shrink")
    j0, j1 = sch.split(j, [None, 32], tail="shrink")
    sch.reorder(j0, i0, i1, j1)
    sch.compute_at(matmul, i0)
    sch.set_scope(matmul, "matmul", "local")
    ci, cj, r = sch.get_loops(matmul)[-3:]
    sch.reorder(r, ci, cj)
    init = sch.decompose_reduction(matmul, r)
    sch.parallel(j0)
    for panel in sch.partition(j0, [48 // 32]):
        for tile in sch.partition(panel[i0], [32 // 6]):
            for loop in (i1, ci, sch.get_loops(tile[panel[init]])[-2]):
                sch.unroll(tile[panel[loop]])
            for loop in (j1, cj, sch.get_loops(tile[panel[init]])[-1]):
                sch.vectorize(tile[panel[loop]])
    sch.compact_buffers()
    return matmul, [r, ci, cj]


def test_a_contraction_becomes_vectors_and_registers(sch):
    func = sch.func
    matmul, _ = tiled(sch)
    verify_func(sch.func, level=2)
    assert extents(sch, matmul) == [1, 5, 16, 6, 32]
    accumulators = [s.buffer for s in stmts(sch.func.body) if isinstance(s, Alloc)]
    assert [b.static_shape() for b in accumulators] == [(6, 32), (2, 32), (6, 16), (2, 16)]
    assert {b.scope for b in accumulators} == {"local"}
    lowered = unroll_loops(vectorize_loops(flatten_and_simplify(lower_blocks(sch.func))))
    verify_func(lowered)
    kinds = [s.kind for s in stmts(lowered.body) if isinstance(s, For)]
    assert not {"vectorized", "unrolled"} & set(kinds)
    assert not [s for s in stmts(lowered.body) if isinstance(s, (Block, If))]
    widths = {s.value.dtype.lanes for s in stmts(lowered.body) if isinstance(s, Store)}
    assert widths == {16, 32}
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, b.static_shape()).astype("float32") for b in func.buffers]
    expected = np.maximum(arrays[0] @ arrays[1] + arrays[2], 0)
    run(sch.func, *arrays, check=True)
    assert np.array_equal(arrays[-1], expected)
    arrays[-1][...] = 0
    run(lowered, *(a.reshape(-1) for a in arrays), check=True)
    assert np.array_equal(arrays[-1], expected)


def test_replaying_a_trace_gives_the_same_program(sch, matmul):
    tiled(sch)
    again = matmul()
    sch.trace.replay(again)
    assert again.show() == sch.show()
    assert again.trace.as_python() == sch.trace.as_python()


def test_a_trace_reads_as_python(sch):
    block = sch.get_block("relu")
    i, _ = sch.get_loops(block)
    sch.split(i, [None, 4])
    sch.set_scope(sch.get_block("bias"), 0, "local")
    assert sch.trace.as_python() == (
        "from dlc_core.schedule import flat\n"
        "b0 = sch.get_block('relu')\n"
        "l0, l1 = flat(sch.get_loops(b0))\n"
        "l2, l3 = flat(sch.split(l0, [None, 4]))\n"
        "b1 = sch.get_block('bias')\n"
        "sch.set_scope(b1, 0, 'local')"
    )


def test_a_copy_is_independent(sch):
    other = sch.copy()
    other.compute_inline(BlockRV("bias"))
    assert len(sch.get_blocks()) == 3
    assert len(other.get_blocks()) == 2


def test_compute_at_computes_only_the_needed_region(matmul):
    sch = matmul(Var("m"))
    relu, bias = sch.get_block("relu"), sch.get_block("bias")
    i, j = sch.get_loops(relu)
    j0, _ = sch.split(j, [None, 12])
    sch.compute_at(bias, j0)
    assert extents(sch, bias) == [None, 4, 1, 12]
    sch.compact_buffers()
    bias_buffer = sch.get(bias).writes[0].buffer
    assert bias_buffer.static_shape() == (1, 12)
    assert sch.get_loops(bias)[:2] == [i, j0]


def test_results_of_a_loop_may_be_read_after_it():
    """The loop of the first reader computes the whole buffer, which is allocated around both readers."""
    a = te.placeholder((8, 4), name="A")
    with te.collect() as made:
        x = te.compute((8, 4), lambda i, j: a[i, j] * 2.0, "x")
        y = te.compute((8, 4), lambda i, j: x[i, j] + 1.0, "y")
        z = te.compute((6, 4), lambda i, j: x[i, j] - y[i, j], "z")
    sch = Schedule(te.create_prim_func([a], [y, z], producers=made))
    x_block, y_block, z_block = (BlockRV(name) for name in "xyz")
    i, _ = sch.get_loops(y_block)
    sch.compute_at(x_block, i)
    sch.compact_buffers()
    verify_func(sch.func, level=2)
    assert sch.get_loops(x_block)[0] == i
    assert sch.get(x_block).writes[0].buffer.static_shape() == (8, 4)
    assert sch.get_consumers(x_block) == [y_block, z_block]
    source = np.arange(32, dtype=np.float32).reshape(8, 4)
    first, second = np.zeros((8, 4), np.float32), np.zeros((6, 4), np.float32)
    run(sch.func, source, first, second)
    np.testing.assert_array_equal(first, source * 2 + 1)
    np.testing.assert_array_equal(second, np.full((6, 4), -1, np.float32))


def test_prefetch_at_inserts_a_hint_for_any_index():
    """It reads nothing and does not change results."""
    a = te.placeholder((8, 4), name="A")
    with te.collect() as made:
        y = te.compute((8, 4), lambda i, j: a[i, j] + 1.0, "y")
    sch = Schedule(te.create_prim_func([a], [y], producers=made))
    i, j = sch.get_loops(BlockRV("y"))
    sch.prefetch_at(j, "A", [i, j], lambda i, j: ((i + 1) % 8, j))
    verify_func(sch.func, level=2)
    hints = [str(e) for s in stmts(lower_blocks(sch.func).body) if isinstance(s, Eval) for e in [s.value]]
    assert len(hints) == 1
    assert hints[0].startswith("prefetch(")
    assert "A[(i + 1) % 8, j]" in hints[0]
    source, out = np.ones((8, 4), np.float32), np.zeros((8, 4), np.float32)
    run(sch.func, source, out)
    np.testing.assert_array_equal(out, source + 1)


def test_iterations_that_read_the_same_data_share_prefetches():
    """Three tiles of rows read 8 rows of 4 cache lines: each prefetches a third of the next data."""
    a, b = te.placeholder((5, 8), name="A"), te.placeholder((8, 64), name="B")
    r = te.reduce_axis(8, "r")
    with te.collect() as made:
        y = te.compute((5, 64), lambda i, j: te.sum(a[i, r] * b[r, j], r), "y")
    sch = Schedule(te.create_prim_func([a, b], [y], producers=made))
    i, j, steps = sch.get_loops(BlockRV("y"))
    tiles, row = sch.split(i, [None, 2])
    vectors, lane = sch.split(j, [None, 16])
    sch.reorder(tiles, steps, row, vectors, lane)
    sch.decompose_reduction(BlockRV("y"), steps)
    sch.unroll(vectors)
    sch.vectorize(lane)
    first, rest = sch.partition(tiles, [1])
    for copy in (first, rest):
        with pytest.raises(ScheduleError, match="known to stay within 0 iterations"):
            sch.prefetch(copy[steps], "B", 512, [copy.loop], [0])
        with pytest.raises(ScheduleError, match="1 loops have 2 extents"):
            sch.prefetch(copy[steps], "B", 512, [copy.loop], [3, 1])
        with pytest.raises(ScheduleError, match="not around it"):
            sch.prefetch(copy[steps], "B", 512, [copy[row]], [2])
        sch.prefetch(copy[steps], "B", 512, [copy.loop], [3])
    func = flatten_and_simplify(vectorize_loops(unroll_loops(lower_blocks(sch.func))))
    hints = [s.value for s in stmts(inject_prefetches(func, 64).body) if isinstance(s, Eval)]
    prefetched = []
    for place in (e.indices[0] for hint in hints for e in loads_in(hint)):
        names = {v.name: v for v in free_vars(place)}
        for tile in (1, 2) if "i_0" in names else (0,):
            for k in range(8):
                at = substitute(place, {v: as_expr({"i_0": tile, "r": k}[name]) for name, v in names.items()})
                prefetched.append((tile, (const_value(at) - 512) // 16))
    for tile in range(3):
        own = {line for which, line in prefetched if which == tile}
        assert 10 <= len(own) <= 13
        assert own == set(range(min(own), max(own) + 1))
    assert set(range(32)) <= {line for _, line in prefetched} <= set(range(33))


def test_overlapping_windows_are_clipped_to_the_buffer():
    a = te.placeholder((20,), name="A")
    with te.collect() as made:
        x = te.compute((20,), lambda i: a[i] * 2.0, "x")
        y = te.compute((18,), lambda i: x[i] + x[i + 1] + x[i + 2], "y")
    sch = Schedule(te.create_prim_func([a], [y], producers=made))
    outer, _ = sch.split(sch.get_loops(BlockRV("y"))[0], [None, 6])
    sch.compute_at(BlockRV("x"), outer)
    sch.compact_buffers()
    assert extents(sch, BlockRV("x")) == [3, 8]
    assert sch.get(BlockRV("x")).writes[0].buffer.static_shape() == (8,)


def test_caches_contain_the_accessed_region(sch):
    matmul = sch.get_block("matmul")
    reading = sch.cache_read(matmul, "B", "shared")
    writing = sch.cache_write(matmul, 0, "local")
    assert (reading.name, writing.name) == ("B_shared", "matmul_local")
    i, j, _ = sch.get_loops(matmul)
    sch.reverse_compute_at(writing, j)
    sch.compute_at(reading, i)
    sch.compact_buffers()
    scopes = {s.buffer.name: s.buffer.scope for s in stmts(sch.func.body) if isinstance(s, Alloc)}
    assert scopes["B_shared"] == "shared"
    assert sch.get(writing).reads[0].buffer.static_shape() == (1, 1)


def test_rfactor_makes_partial_results(sch):
    matmul = sch.get_block("matmul")
    r0, r1 = sch.split(sch.get_loops(matmul)[2], [None, 4])
    partial = sch.rfactor(r1, 0)
    assert partial.name == "matmul_rf"
    assert sch.get(partial).writes[0].buffer.static_shape() == (4, 32, 48)
    assert extents(sch, partial) == [32, 48, 4, 4]
    assert extents(sch, matmul) == [32, 48, 4]
    assert sch.get_loops(partial)[2:] == [r0, r1]


def test_a_parameter_in_another_layout(sch):
    sch.transform_layout(sch.get_block("matmul"), "B", lambda k, n: (n // 32, k, n % 32))
    b = sch.func.buffers[1]
    assert b.static_shape() == (2, 16, 32)
    layout = sch.func.attrs["repack"][1]
    assert str(layout) == "(k, n) -> (n // 32, k, n % 32)"
    rng = np.random.default_rng(1)
    arrays = [rng.integers(-3, 4, s).astype("float32") for s in ((32, 16), (16, 48), (48,), (32, 48))]
    packed = layout.apply_numpy(arrays[1])
    assert np.array_equal(packed[1, :, :16], arrays[1][:, 32:])
    assert not packed[1, :, 16:].any()
    run(sch.func, arrays[0], packed, arrays[2], arrays[3])
    assert np.array_equal(arrays[3], np.maximum(arrays[0] @ arrays[1] + arrays[2], 0))


def test_an_intermediate_buffer_in_another_layout(sch):
    bias = sch.get_block("bias")
    sch.transform_layout(bias, ("write", 0), lambda i, j: (j // 20, i, j % 20), pad_value=0)
    assert sch.get(bias).writes[0].buffer.static_shape() == (3, 32, 20)
    assert extents(sch, bias) == [3, 32, 20]
    loads = [
        e for s in stmts(sch.get(BlockRV("relu")).body) if isinstance(s, Store) for e in loads_in(s.value)
    ]
    assert [str(i) for i in loads[0].indices] == ["v_j // 20", "v_i", "v_j % 20"]


@pytest.mark.parametrize(
    ("function", "rank", "shape"),
    [
        (lambda o, i, h, w: (o // 8, h, w, i, o % 8), None, (20, 3, 5, 2)),
        (lambda *i: i[::-1], 3, (2, 3, 4)),
        (lambda i, j: (i * 7 + j,), None, (5, 7)),
        (lambda i, j: (i // 6, (i // 2) % 3, j, i % 2), None, (13, 3)),
    ],
)
def test_layouts_move_every_element(function, rank, shape):
    layout = IndexMap.of(function, rank)
    array = np.arange(1, np.prod(shape) + 1, dtype="int32").reshape(shape)
    moved = layout.apply_numpy(array, pad_value=0)
    assert moved.shape == layout.output_shape(shape)
    for place in np.ndindex(shape):
        there = tuple(const_value(e) for e in layout(*map(int, place)))
        assert moved[there] == array[place]
    assert (moved != 0).sum() == array.size
    if layout.is_bijective:
        back = layout.inverse()
        for place in np.ndindex(shape):
            there = layout(*map(int, place))
            assert tuple(const_value(e) for e in back(*there)) == place


def test_padding_is_decomposed_into_fills_and_a_copy():
    a = te.placeholder((5, 6), name="A")
    with te.collect() as made:
        x = te.compute(
            (7, 8),
            lambda i, j: if_then_else(logical_and(i >= 1, i < 6, j >= 1, j < 7), a[i - 1, j - 1], 0.0),
            "pad",
        )
    sch = Schedule(te.create_prim_func([a], [x], producers=made))
    pad = sch.get_block("pad")
    *borders, inner = sch.decompose_padding(pad, sch.get_loops(pad)[0])
    assert inner == pad
    assert [extents(sch, b) for b in borders] == [[1, 8], [1, 8], [5, 1], [5, 1]]
    assert extents(sch, pad) == [5, 6]
    values = np.arange(30, dtype="float32").reshape(5, 6)
    out = np.full((7, 8), 9, "float32")
    run(sch.func, values, out, check=True)
    assert np.array_equal(out, np.pad(values, 1))


@pytest.mark.parametrize(("before", "size"), [(1, 7), (3, 4), (6, 4), (9, 4)])
def test_padding_with_an_empty_interior(before, size):
    """The interior may begin after the end. Then there is only a border, and nothing is written after it."""
    a = te.placeholder((5,), name="A")
    with te.collect() as made:
        inside = lambda i: logical_and(i >= before, i < before + 5)  # noqa: E731
        x = te.compute((size,), lambda i: if_then_else(inside(i), a[i - before], 0.0), "pad")
    sch = Schedule(te.create_prim_func([a], [x], producers=made))
    pad = sch.get_block("pad")
    sch.decompose_padding(pad, sch.get_loops(pad)[0])
    values, out = np.arange(1, 6, dtype="float32"), np.full(size, 9, "float32")
    run(sch.func, values, out, check=True)
    assert np.array_equal(out, np.pad(values, (before, 4))[:size])


def test_duplicates_have_their_own_readers():
    a = te.placeholder((8,), name="A")
    with te.collect() as made:
        x = te.compute((8,), lambda i: a[i] * 2.0, "x")
        y = te.compute((8,), lambda i: x[i] + 1.0, "y")
        z = te.compute((8,), lambda i: x[i] + y[i], "z")
    sch = Schedule(te.create_prim_func([a], [z], producers=made))
    twin = sch.duplicate(BlockRV("x"), [BlockRV("z")])
    assert sch.get_consumers(BlockRV("x")) == [BlockRV("y")]
    assert sch.get_consumers(twin) == [BlockRV("z")]
    sch.compute_at(twin, sch.get_loops(BlockRV("z"))[0])
    sch.compute_inline(BlockRV("x"))
    verify_func(sch.func, level=2)
