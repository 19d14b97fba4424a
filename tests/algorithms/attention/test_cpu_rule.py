"""The rule for attention on machines of every kind: sizes with tails, symbolic lengths, masks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc_core.algorithms.attention.choice import Sizes, dots_for, tiled_for
from dlc_core.algorithms.attention.cpu_rule import panel_width
from dlc_core.algorithms.attention.plan import Tiled, TiledDots
from dlc_core.decisions import forced
from dlc_core.graph.node import param
from dlc_core.ir.expr import Call, Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.schedule.rules.cpu.register_tile import fits
from dlc_core.schedule.rules.cpu.vector import vectors_of
from dlc_core.target import Description
from dlc_core.target.description import Dot
from dlc_core.testing.schedules import check_schedule, kernel_of, schedule_for
from dlc_core.tir.functor import stmts
from dlc_core.tir.stmt import Alloc, For, Store

MACHINES = {
    "narrow": Description(vector_bits=128, vector_registers=8, parallel=False),
    "usual": Description(vector_bits=256, vector_registers=16, cores=2),
    "wide": Description(vector_bits=512, vector_registers=32, cores=8),
}
USUAL = MACHINES["usual"]
DOTS = Description(
    vector_bits=256, vector_registers=32, cores=2, dots=(Dot("bfloat16", "bfloat16", "float32", 2, 8),)
)
machines = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
B, N, M = Var("b"), Var("n"), Var("m")


def kernel(
    n, m, d=8, e=0, *, batch=1, heads=2, groups=0, lanes=8, rows=4, mask=(), dtype="float32", dots=0, **attrs
):
    """Attention whose operands and result are transposed from and to [batch, tokens, heads, size]."""
    shapes = {"q": (n, heads, d), "k": (m, groups or heads, d), "v": (m, groups or heads, e or d)}
    params = [param(name, tensor_type((batch, *shape), dtype)) for name, shape in shapes.items()]
    args = [std.transpose(p, axes=(0, 2, 1, 3)) for p in params]
    if mask:
        params.append(param("mask", tensor_type(*mask)))
        args.append(params[-1])
    plan = Tiled(1, 1) if n == 1 else Tiled(rows, lanes)
    if dots:
        plan = TiledDots(rows, dots * lanes, "bfloat16", 2, lanes)
    return kernel_of(std.transpose(std.attention(*args, plan=plan, **attrs), axes=(0, 2, 1, 3)), params)


def check(func, machine=USUAL, sizes=None):
    made = check_schedule(func, machine, sizes or {})
    assert made.attrs["why_not"] == ()
    assert made.attrs["rule"] == "cpu.attention"
    return made


@machines
@pytest.mark.parametrize(
    ("n", "m", "d", "e"), [(9, 13, 20, 12), (4, 16, 8, 72), (1, 7, 5, 9), (7, 3, 80, 80)]
)
def test_sizes_with_tails(n, m, d, e, machine):
    check(kernel(n, m, d, e, lanes=machine.lanes(32)), machine)


@machines
@pytest.mark.parametrize("parallel", ["heads", "tiles"])
@pytest.mark.parametrize(("heads", "batch"), [(1, 1), (3, 1), (1, 2)])
def test_loops_of_one_iteration_and_tiles_on_all_threads(heads, batch, parallel, machine):
    func = kernel(45, 21, 20, heads=heads, batch=batch, lanes=machine.lanes(32))
    with forced(f"loops.threads=all,attention.parallel={parallel}"):
        made = check(func, machine)
    loops = [s for s in stmts(made.body) if isinstance(s, For) and s.kind == "parallel"]
    assert len(loops) == (0 if not machine.parallel else 1 if parallel == "heads" else 2)


@pytest.mark.parametrize(("heads", "parallel"), [(1, "tiles"), (3, "tiles"), (4, "heads"), (12, "heads")])
def test_tiles_are_distributed_if_there_are_too_few_heads(heads, parallel):
    shapes = [param(name, tensor_type((1, heads, 1024, 32))) for name in "qkv"]
    scheduled = schedule_for(kernel_of(std.attention(*shapes, plan=Tiled(4, 8)), shapes), USUAL)
    assert any(text.startswith(f"attention.parallel={parallel}") for text in scheduled.attrs["decisions"])


@machines
def test_symbolic_lengths(machine):
    for n, m in ((1, 1), (3, 40), (23, 9)):
        check(kernel(N, M, lanes=machine.lanes(32)), machine, {N: n, M: m})


@pytest.mark.parametrize("n", [1, 2, 13])
def test_symbolic_batches(n):
    mask = ((B, 1, 1, N), "float32")
    check(kernel(N, N, batch=B, mask=mask), sizes={B: 2, N: n})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats(dtype):
    check(kernel(5, 9, dtype=dtype, mask=((1, 2, 5, 9), dtype)))


@pytest.mark.parametrize("n", [1, 6])
def test_masks_of_bools(n):
    check(kernel(n, 11, batch=2, mask=((n, 11), "bool")))


@pytest.mark.parametrize(("n", "m", "past"), [(9, 9, 0), (5, 21, 16), (1, 6, 5), (9, 4, 0)])
def test_causal(n, m, past):
    check(kernel(n, m, causal=True, past=past))


def test_causal_over_a_symbolic_number_of_keys():
    for n, m in ((1, 8), (6, 19)):
        check(kernel(N, M, causal=True, past=M - N), sizes={N: n, M: m})


@pytest.mark.parametrize("n", [1, 5])
def test_heads_that_share_keys(n):
    check(kernel(n, 9, heads=6, groups=2, batch=2))


def test_heads_are_distributed_over_threads():
    made = check(kernel(24, 64, d=32, heads=3, batch=2))
    (parallel,) = (s for s in stmts(made.body) if isinstance(s, For) and s.kind == "parallel")
    assert parallel.extent.value == 6


@pytest.mark.parametrize("machine", [MACHINES["usual"], MACHINES["wide"]], ids=["usual", "wide"])
@pytest.mark.parametrize("queries", [3, 49, 4096, None])
def test_accumulators_of_every_head_size_fit_in_the_registers(queries, machine):
    lanes, registers = machine.lanes(32), machine.usable_registers
    for features in range(4, 260, 4):
        plan = tiled_for(queries, features, machine, None)
        width = panel_width(plan.rows, features, lanes, registers)
        most = max(vectors_of(size, lanes) for size in (width, features % width))
        # A tail of one vector's features may take several narrower vectors; its few sums may be spilled.
        assert width <= lanes or fits(plan.rows, most, registers), (features, plan, width)
        if features <= lanes:
            assert fits(plan.rows, vectors_of(features, lanes), registers), (features, plan)


@pytest.mark.parametrize("keys", [16, 64, 100, 128])
def test_rows_of_scores_are_an_odd_number_of_cache_lines_apart(keys):
    """Otherwise all rows of a tile would be in one set of the L1 cache for 1024 keys."""
    made = check(kernel(8, keys, rows=8))
    line = USUAL.cache_line // 4
    pitches = [
        s.buffer.element_strides()[-3].value
        for s in stmts(made.body)
        if isinstance(s, Alloc) and s.buffer.name in ("attention_scores", "attention_weights")
    ]
    assert len(pitches) == 2
    assert all(pitch % (2 * line) == line for pitch in pitches)


def check_dots(func, sizes=None):
    """Scores and results are computed by dot products."""
    made = check(func, DOTS, sizes)
    into = {
        s.buffer.name
        for s in stmts(made.body)
        if isinstance(s, Store) and isinstance(s.value, Call) and s.value.name == "vector_dot"
    }
    assert into == {"attention_products", "attention_weighted"}
    return made


@pytest.mark.parametrize("dots", [1, 2])
@pytest.mark.parametrize(
    ("n", "m", "d", "e"), [(9, 13, 20, 12), (4, 32, 8, 72), (1, 7, 5, 9), (7, 3, 13, 13), (2, 17, 1, 1)]
)
def test_dot_products_of_sizes_with_tails(n, m, d, e, dots):
    check_dots(kernel(n, m, d, e, dots=dots))


def test_dot_products_of_symbolic_lengths():
    for n, m in ((1, 1), (3, 40), (23, 9)):
        check_dots(kernel(N, M, dots=2), {N: n, M: m})


@pytest.mark.parametrize(("n", "m", "past"), [(9, 9, 0), (5, 37, 32), (9, 4, 0)])
def test_dot_products_of_visible_keys(n, m, past):
    check_dots(kernel(n, m, dots=2, causal=True, past=past))


@pytest.mark.parametrize("dtype", ["bool", "float32"])
def test_dot_products_of_shared_keys_with_masks(dtype):
    check_dots(kernel(5, 11, heads=6, groups=2, batch=2, dots=1, mask=((2, 1, 5, 11), dtype)))


def test_a_padded_head_size_takes_whole_vectors():
    made = check_dots(kernel(4, 16, 13, 13, dots=1))
    dots = [s.value for s in stmts(made.body) if isinstance(s, Store) and isinstance(s.value, Call)]
    assert {value.dtype.lanes for value in dots if value.name == "vector_dot"} == {8}


def test_a_machine_with_other_dot_products_does_not_match():
    other = replace(DOTS, dots=(Dot("bfloat16", "bfloat16", "float32", 4, 8),))
    assert schedule_for(kernel(4, 16, dots=1), other).attrs["rule"] != "cpu.attention"


@pytest.mark.parametrize(("keys", "vectors"), [(8, 1), (16, 2), (1024, 4), (None, 4)])
def test_panels_of_dot_products_have_little_padding(keys, vectors):
    plan = dots_for(Tiled(6, 8), Sizes(64, keys, 64, 64), "bfloat16", DOTS)
    assert plan == TiledDots(6, 8 * vectors, "bfloat16", 2, 8)


def test_tiles_of_one_query_and_machines_without_dot_products_keep_their_plan():
    sizes = Sizes(1, 64, 64, 64)
    assert dots_for(Tiled(1, 1), sizes, "bfloat16", DOTS) == Tiled(1, 1)
    assert dots_for(Tiled(6, 8), sizes, "bfloat16", USUAL) == Tiled(6, 8)
