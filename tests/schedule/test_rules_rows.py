"""Rules for reductions: softmax, normalisations, sums, pools, over any axes and on machines of every kind."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pytest

from dlc_core import te
from dlc_core.decisions import DECISIONS, Choice, forced
from dlc_core.graph.node import Node, param
from dlc_core.heuristics import overridden
from dlc_core.ir.expr import Binary, Var, const_value, post_order
from dlc_core.ir.types import Dim, tensor_type
from dlc_core.op import std
from dlc_core.passes.lower.costs import operations
from dlc_core.target import Description
from dlc_core.testing.schedules import check_schedule, kernel_of, schedule_for
from dlc_core.tir.functor import block_list, stmts
from dlc_core.tir.stmt import Alloc, For, PrimFunc

MACHINES = {
    "scalar": Description(vector_bits=0, vector_registers=16, cores=2),
    "narrow": Description(vector_bits=128, vector_registers=8, parallel=False),
    "usual": Description(vector_bits=256, vector_registers=16, cores=2),
    "wide": Description(vector_bits=512, vector_registers=32, cores=8),
}
USUAL = MACHINES["usual"]
machines = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
M, N, B = Var("m"), Var("n"), Var("b")
SHAPES = [(1,), (37,), (3, 1), (4, 5), (3, 37), (2, 3, 19)]


def tensor(*shape: object, dtype: str = "float32", name: str = "x") -> Node:
    return param(name, tensor_type(shape, dtype))


def reduction(op, shape, axes, *, keepdims=False, dtype="float32", around=False) -> PrimFunc:
    """A reduction. With `around`, its input is computed, and subtracted from its result."""
    x = tensor(*shape, dtype=dtype)
    y = op(std.exp(std.mul(x, x)) if around else x, axes=axes, keepdims=keepdims or around)
    return kernel_of(std.sub(y, x) if around else y)


def norm(shape, axis=-1, *, residual=False) -> PrimFunc:
    x, scale, shift = tensor(*shape), tensor(*shape[axis:], name="s"), tensor(*shape[axis:], name="b")
    y = std.layer_norm(x, scale, shift, axis=axis)
    return kernel_of(std.gelu(std.add(y, x)) if residual else y, [x, scale, shift])


def is_scheduled(scheduled: PrimFunc, *rules: str) -> None:
    assert scheduled.attrs["why_not"] == ()
    assert scheduled.attrs["rule"] in (rules or ("cpu.rows", "cpu.lanes"))


def loops(func: PrimFunc) -> list[For]:
    return [s for s in stmts(func.body) if isinstance(s, For)]


def axes_of(shape):
    return [axes for r in range(1, len(shape) + 1) for axes in combinations(range(len(shape)), r)]


@machines
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_softmax_over_every_axis(shape, machine):
    for axis in range(len(shape)):
        is_scheduled(check_schedule(kernel_of(std.softmax(tensor(*shape), axis=axis)), machine), "cpu.rows")
    is_scheduled(check_schedule(kernel_of(std.log_softmax(tensor(*shape), axis=-1)), machine), "cpu.rows")


@machines
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_over_any_axes(shape, machine):
    for axes in axes_of(shape):
        is_scheduled(check_schedule(reduction(std.reduce_sum, shape, axes), machine))
    is_scheduled(check_schedule(reduction(std.reduce_mean, shape, (0,), around=True), machine))


@pytest.mark.parametrize("shape", [(4, 5), (2, 3, 4, 9)], ids=str)
@pytest.mark.parametrize("op", [std.reduce_max, std.reduce_prod, std.reduce_logsumexp, std.reduce_l2])
def test_other_reductions(op, shape):
    for axes in axes_of(shape):
        is_scheduled(check_schedule(reduction(op, shape, axes), USUAL))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8"])
def test_reductions_of_every_dtype(dtype):
    for axes in ((0,), (1,), (0, 1)):
        for op in (std.reduce_sum, std.reduce_max):
            is_scheduled(check_schedule(reduction(op, (5, 21), axes, dtype=dtype), USUAL))
    if "float" in dtype:
        is_scheduled(check_schedule(kernel_of(std.softmax(tensor(5, 21, dtype=dtype))), USUAL))


@machines
def test_normalisations(machine):
    is_scheduled(check_schedule(norm((3, 37)), machine), "cpu.rows")
    is_scheduled(check_schedule(norm((2, 3, 16), residual=True), machine), "cpu.rows")
    is_scheduled(check_schedule(norm((2, 3, 4, 9), axis=-2), machine), "cpu.rows")
    is_scheduled(check_schedule(norm((3, 1)), machine), "cpu.rows")


SYMBOLIC = {
    "softmax of known rows": lambda: kernel_of(std.softmax(tensor(M, 9))),
    "softmax of symbolic rows": lambda: kernel_of(std.softmax(tensor(4, N))),
    "softmax": lambda: kernel_of(std.softmax(tensor(B, M, N))),
    "softmax in the middle": lambda: kernel_of(std.softmax(tensor(B, M, N), axis=1)),
    "softmax outside": lambda: kernel_of(std.softmax(tensor(B, M, N), axis=0)),
    "norm of known rows": lambda: norm((B, M, 10)),
    "norm": lambda: norm((B, M, N), residual=True),
}
SIZES = [{M: 1, N: 1, B: 2}, {M: 5, N: 37, B: 3}, {M: 0, N: 5, B: 1}, {M: 4, N: 0, B: 1}]


@pytest.mark.parametrize("machine", [MACHINES["scalar"], USUAL], ids=["scalar", "usual"])
@pytest.mark.parametrize("make", SYMBOLIC.values(), ids=SYMBOLIC)
def test_symbolic_rows(make, machine):
    func = make()
    for sizes in SIZES:
        is_scheduled(check_schedule(func, machine, sizes), "cpu.rows")


@pytest.mark.parametrize("axes", axes_of((B, M, N)), ids=str)
def test_symbolic_sums_over_any_axes(axes):
    for op in (std.reduce_sum, std.reduce_max):
        func = reduction(op, (B, M, N), axes)
        for sizes in SIZES:
            is_scheduled(check_schedule(func, USUAL, sizes))


@machines
def test_pools(machine):
    for layout, shape in (("NCX", (1, 3, 9, 8)), ("NXC", (1, 9, 8, 11)), ("NXC", (2, 7, 40))):
        rank = len(shape) - 2
        for op in (std.max_pool, std.avg_pool):
            window = {"kernel": (3, 2)[:rank], "strides": (2, 1)[:rank], "padding": (1,) * (2 * rank)}
            is_scheduled(check_schedule(kernel_of(op(tensor(*shape), layout=layout, **window)), machine))


@pytest.mark.parametrize("axis", [0, 1])
def test_every_row_is_reduced_once(axis):
    """Axes are matched by what is read: a square shape does not make rows of columns."""
    func = kernel_of(std.softmax(tensor(64, 64), axis=axis))
    before, after = operations(func), operations(schedule_for(func, USUAL))
    assert before is not None
    assert after is not None
    assert after <= 2 * before


def test_rows_are_distributed_by_their_work():
    def outermost(func):
        return loops(schedule_for(func, USUAL))[0].kind

    # Few results of much work each.
    assert outermost(reduction(std.reduce_sum, (64, 5000), (1,))) == "parallel"
    assert outermost(kernel_of(std.softmax(tensor(128, 512)))) == "parallel"
    assert outermost(kernel_of(std.softmax(tensor(1, 21, 64, 64), axis=1))) == "parallel"
    assert outermost(kernel_of(std.softmax(tensor(4, 16)))) == "serial"


def test_long_rows_are_not_held_in_registers():
    short = check_schedule(kernel_of(std.softmax(tensor(2, 50))), USUAL)
    with overridden("loops.row_bytes=64"):
        long = check_schedule(kernel_of(std.softmax(tensor(2, 50))), USUAL)

    def kept(func):
        return max(const_value(s.buffer.num_elements()) for s in stmts(func.body) if isinstance(s, Alloc))

    assert kept(short) == 50
    assert kept(long) < 50


@pytest.mark.slow
def test_rows_longer_than_the_stack():
    is_scheduled(check_schedule(kernel_of(std.softmax(tensor(2, 20_000))), USUAL), "cpu.rows")
    is_scheduled(check_schedule(kernel_of(std.softmax(tensor(3, 5, 9000), axis=1)), USUAL), "cpu.rows")
    is_scheduled(check_schedule(norm((2, 20_001)), USUAL), "cpu.rows")


def index_of(op: Callable[..., te.tensor.Reduction], rows: Dim, columns: Dim, axis: int) -> PrimFunc:
    """The indices of the extremes along an axis, together with the extremes: a reduction of pairs."""
    x, k = te.placeholder((rows, columns), name="x"), te.reduce_axis((rows, columns)[axis], "k")
    _, place = te.compute(
        ((rows, columns)[1 - axis],), lambda i: op(x[(i, k) if axis else (k, i)], axis=k), "extreme"
    )
    return te.create_prim_func([x, place])


def test_reductions_of_pairs_have_a_fallback():
    for axis in (0, 1):
        for op in (te.argmax, te.argmin):
            is_scheduled(check_schedule(index_of(op, 5, 7, axis), USUAL), "cpu.loops")
    is_scheduled(check_schedule(index_of(te.argmax, M, N, 1), USUAL, {M: 4, N: 6}), "cpu.loops")
    assert loops(schedule_for(index_of(te.argmax, 64, 500, 1), USUAL))[0].kind == "parallel"


def test_argmax_is_a_reduction_of_rows():
    for axis in (0, 1):
        for op in (std.argmax, std.argmin):
            is_scheduled(check_schedule(kernel_of(op(tensor(5, 7), axis=axis)), USUAL))
    is_scheduled(check_schedule(kernel_of(std.argmax(tensor(M, N), axis=1)), USUAL, {M: 4, N: 6}))
    assert loops(schedule_for(kernel_of(std.argmax(tensor(64, 500), axis=1)), USUAL))[0].kind == "parallel"


def test_kernels_without_results_are_left_alone():
    for body in (std.matmul(tensor(0, 4), tensor(4, 3)), std.relu(tensor(3, 0))):
        scheduled = schedule_for(kernel_of(body), USUAL)
        assert (scheduled.attrs["rule"], scheduled.attrs["why_not"]) == ("none", ())


@pytest.mark.parametrize(("length", "chains"), [(24, 1), (32, 2), (48, 2), (64, 4), (96, 4), (100, None)])
def test_long_rows_have_several_partial_results(length, chains):
    """Only if their vectors are whole, and two for each result."""
    scheduled = check_schedule(reduction(std.reduce_max, (3, length), (1,)), USUAL)
    made = [Choice.parse(text) for text in scheduled.attrs[DECISIONS]]
    assert [one.value for one in made if one.decision == "rows.chains"] == ([str(chains)] if chains else [])


@pytest.mark.parametrize("chains", [1, 2, 4])
def test_forced_partial_results(chains):
    for op in (std.reduce_sum, std.reduce_max, std.reduce_prod):
        with forced(f"rows.chains={chains}"):
            scheduled = check_schedule(reduction(op, (2, 3, 64), (1, 2), around=True), USUAL)
        assert f"rows.chains={'several' if chains > 1 else 'one'} {chains}" in " ".join(
            map(str, scheduled.attrs[DECISIONS])
        )


def test_lanes_are_reduced_by_halves():
    """Eight lanes take a vector of four, one of two, and two elements: no chain of eight operations."""
    scheduled = check_schedule(reduction(std.reduce_sum, (3, 64), (1,)), USUAL)
    sizes = {
        const_value(stmt.buffer.num_elements()) for stmt in stmts(scheduled.body) if isinstance(stmt, Alloc)
    }
    assert {2, 4, 8} <= sizes


@pytest.mark.parametrize("op", [std.softmax, std.layer_norm, std.rms_norm])
def test_elements_of_a_row_are_multiplied_and_not_divided(op):
    last = block_list(kernel_of(op(tensor(3, 32))).body)[-1]
    assert not any(isinstance(e, Binary) and e.op == "div" for e in post_order(last.body.value))
