"""Launches of GEMM and convolutions: sizes, orders of operands, batches, epilogues, windows, legal tiles."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dlc_core import te
from dlc_core.arith import eval_expr
from dlc_core.graph.node import Node, param
from dlc_core.ir.expr import Call, Expr, Load, Ramp, Var, free_vars, post_order
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.gpu.grid import Grid
from dlc_core.schedule.rules.gpu.tile import Problem, choose, shared_bytes
from dlc_core.target.description import Dot
from dlc_core.testing.launches import Launched, check_launches, launch_for
from dlc_core.testing.schedules import kernel_of
from dlc_core.tir.functor import exprs_of, stmts
from dlc_core.tir.stmt import Eval, For, PrimFunc, Store
from dlc_core.tir.threads import is_shared
from tests.schedule.rules.gpu.machines import SMALL, USUAL

M, N = Var("m"), Var("n")
TINY = replace(
    USUAL,
    thread_axes={"block.x": (1 << 31) - 1, "thread.x": 16},
    group_threads=16,
    subgroup=4,
    shared_bytes=2048,
    cores=2,
)
"""So few threads that interpretation is fast."""


def tensor(*shape: object, name: str = "x", dtype: str = "float32") -> Node:
    return param(name, tensor_type(shape, dtype))


def product(m: object, n: int, k: int, *batch: int, dtype: str = "float32") -> Node:
    return std.matmul(tensor(*batch, m, k, dtype=dtype), tensor(*batch, k, n, name="w", dtype=dtype))


def is_contraction(launched: Launched, launches: int = 1) -> Launched:
    assert launched.scheduled.attrs["why_not"] == ()
    assert launched.rule == "gpu.contraction"
    assert len(launched.kernels) == launches
    return launched


def bytes_product(m: int, n: int, k: int, *, transposed: bool = False) -> PrimFunc:
    a, b = te.placeholder((m, k), "int8", name="a"), te.placeholder((n, k) if transposed else (k, n), "int8")
    r = te.reduce_axis((0, k), "r")

    def element(i: Expr, j: Expr) -> Expr:
        right = b[j, r] if transposed else b[r, j]
        return te.sum(a[i, r].astype("int32") * right.astype("int32"), axis=r)

    return te.create_prim_func([a, b, te.compute((m, n), element, "c")])


@pytest.mark.parametrize("transposed", [False, True])
def test_bytes_use_dot_products_if_the_machine_has_them(transposed):
    machine = replace(TINY, dots=(Dot("int8", "int8", "int32", 4, 4),))
    func = bytes_product(9, 9, 16 if transposed else 13, transposed=transposed)
    launched = is_contraction(check_launches(func, machine))
    values = [e for s in stmts(launched.kernels[0].body) for e in post_order(*exprs_of(s))]
    assert any(isinstance(e, Call) and e.name == "vector_dot" for e in values)
    if transposed:
        # elements that are contiguous along K are copied in groups
        stores = [s for s in stmts(launched.kernels[0].body) if isinstance(s, Store) and is_shared(s.buffer)]
        assert any(s.value.dtype.lanes == 4 for s in stores)


@settings(max_examples=4, phases=[Phase.generate])
@given(m=st.integers(4, 12), n=st.integers(4, 12), k=st.integers(1, 12), seed=st.integers(0, 9))
def test_any_sizes(m, n, k, seed):
    func = kernel_of(std.relu(std.add(product(m, n, k), tensor(n, name="b"))))
    is_contraction(check_launches(func, TINY, seed=seed))


def test_an_operand_of_a_single_element_is_refused():
    launched = check_launches(kernel_of(std.tanh(product(1, 33, 1))), USUAL)
    assert "a tile of an operand is a single element" in launched.scheduled.attrs["why_not"][0]


def test_operands_in_any_order():
    x, w = tensor(6, 9), tensor(10, 9, name="w")
    is_contraction(check_launches(kernel_of(std.matmul(x, std.transpose(w, axes=(1, 0)))), TINY))
    y, v = tensor(9, 6), tensor(9, 10, name="w")
    is_contraction(check_launches(kernel_of(std.matmul(std.transpose(y, axes=(1, 0)), v)), TINY))


def test_batches():
    is_contraction(check_launches(kernel_of(product(5, 6, 7, 2)), TINY))
    is_contraction(
        check_launches(kernel_of(std.mul(product(3, 6, 4, 2, 2), tensor(2, 2, 3, 6, name="r"))), TINY)
    )


def test_symbolic_rows():
    func = kernel_of(std.relu(product(M, 10, 8)))
    for rows in (11, 0):
        is_contraction(check_launches(func, TINY, {M: rows}))


def test_rows_of_a_symbolic_number_of_images():
    w, bias = tensor(8, 12, name="w"), tensor(12, name="b")
    func = kernel_of(std.add(std.matmul(tensor(M, N, 8), w), bias))
    for sizes in ({M: 2, N: 3}, {M: 0, N: 3}, {M: 3, N: 0}):
        is_contraction(check_launches(func, TINY, sizes))


def test_windows_over_images_of_symbolic_sizes():
    made = std.conv(
        tensor(1, M, N, 3), tensor(3, 2, 3, 8, name="w"), strides=(2, 1), layout="NXC", kernel_layout="XIO"
    )
    is_contraction(check_launches(kernel_of(std.relu(made)), TINY, {M: 5, N: 4}))
    is_contraction(launch_for(kernel_of(std.relu(made)), USUAL))


def test_windows_over_images_of_symbolic_sizes_with_scalar_stores():
    made = std.conv(
        tensor(1, M, N, 8), tensor(3, 3, 8, 16, name="w"), strides=(2, 1), layout="NXC", kernel_layout="XIO"
    )
    is_contraction(launch_for(kernel_of(std.relu(made)), replace(USUAL, cores=132)))


@pytest.mark.parametrize("dtype", ["float16", "float64", pytest.param("int8", marks=pytest.mark.slow)])
def test_every_dtype(dtype):
    is_contraction(check_launches(kernel_of(product(7, 9, 8, dtype=dtype)), TINY))


@pytest.mark.parametrize(
    ("strides", "dilation", "groups"),
    [
        ((2, 1), (1, 1), 1),
        pytest.param((1, 1), (1, 1), 1, marks=pytest.mark.slow),
        ((1, 1), (2, 2), 2),
    ],
)
def test_windows(strides, dilation, groups):
    x, w = tensor(1, 5, 6, 4), tensor(3, 3, 4 // groups, 8, name="w")
    made = std.conv(
        x, w, strides=strides, dilation=dilation, groups=groups, padding=(1, 2, 1, 2), layout="NXC",
        kernel_layout="XIO",
    )  # fmt: skip
    is_contraction(check_launches(kernel_of(std.relu(std.add(made, tensor(8, name="b")))), TINY))


def test_rows_of_several_images_are_one_gemm():
    w, bias = tensor(8, 12, name="w"), tensor(12, name="b")
    is_contraction(check_launches(kernel_of(std.relu(std.add(std.matmul(tensor(2, 3, 8), w), bias))), TINY))
    summed = std.add(std.matmul(tensor(1, 7, 8), w), tensor(1, 7, 12, name="r"))
    is_contraction(check_launches(kernel_of(summed), TINY))
    x, narrow = tensor(2, 3, 8, dtype="float16"), tensor(8, 12, name="w", dtype="float16")
    is_contraction(check_launches(kernel_of(std.matmul(x, narrow)), TINY))
    shared = std.relu(std.matmul(tensor(3, 3, 256), tensor(256, 8, name="w")))
    is_contraction(check_launches(kernel_of(shared), TINY), 2)


def convolution(shape: tuple[int, ...], kernel: tuple[int, ...], **attrs: object) -> Node:
    return std.conv(tensor(*shape), tensor(*kernel, name="w"), layout="NXC", kernel_layout="XIO", **attrs)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(lambda: convolution((2, 4, 3, 8), (1, 1, 8, 8)), id="points"),
        pytest.param(lambda: convolution((1, 5, 6, 6), (1, 1, 2, 9), groups=3), id="points in groups"),
        pytest.param(lambda: convolution((2, 9, 4), (3, 4, 8), strides=(2,)), id="1D"),
        pytest.param(lambda: convolution((1, 3, 4, 3, 4), (2, 2, 2, 4, 8)), id="3D"),
        pytest.param(
            lambda: std.conv_transpose(
                tensor(1, 3, 4, 4), tensor(3, 3, 4, 8, name="w"), strides=(2, 2), layout="NXC",
                kernel_layout="XIO",
            ),
            id="transposed",
        ),
    ],
)  # fmt: skip
def test_convolutions_of_every_kind(made):
    node = made()
    bias = tensor(node.shape[-1], name="b")
    is_contraction(check_launches(kernel_of(std.relu(std.add(node, bias))), TINY))


def test_split_k():
    made = is_contraction(check_launches(kernel_of(std.relu(product(9, 8, 256))), TINY), 2)
    assert made.host.attrs["workspaces"] == 1


def barriers(kernel: PrimFunc) -> int:
    return sum(isinstance(s, Eval) for s in stmts(kernel.body))


def test_tiles_are_software_pipelined():
    func = kernel_of(product(9, 10, 20))
    (twice,) = is_contraction(check_launches(func, replace(TINY, shared_bytes=4096))).kernels
    # One barrier in each step, and one before the last step.
    assert barriers(twice) == 2
    wide = is_contraction(launch_for(kernel_of(product(512, 512, 512)), USUAL))
    assert wide.shared_bytes > 2 * 8 * 128 * 4 * 2


def test_tiles_are_read_and_stored_as_vectors():
    made = is_contraction(launch_for(kernel_of(std.relu(product(512, 512, 512))), USUAL))
    assert made.vectors(shared=False) == {4}
    assert 4 in made.vectors(shared=True)
    assert 0 < made.shared_bytes <= USUAL.shared_bytes
    # Also if the last tiles are partial.
    assert 4 in launch_for(kernel_of(product(500, 500, 500)), USUAL).vectors(shared=False)


def bank_conflicts(kernel: PrimFunc, banks: int = 32, subgroup: int = 32) -> int:
    """The maximum number of words of one bank of shared memory that a subgroup accesses at once."""
    (thread,) = [s.var for s in stmts(kernel.body) if isinstance(s, For) and s.thread == "thread.x"]
    accesses = []
    for s in stmts(kernel.body):
        accesses += [(e.buffer, e.indices[0]) for e in post_order(*exprs_of(s)) if isinstance(e, Load)]
        accesses += [(s.buffer, s.indices[0])] if isinstance(s, Store) else []
    worst = 0
    for buffer, index in accesses:
        if not is_shared(buffer):
            continue
        base, lanes, stride = (
            (index.base, index.lanes, index.stride) if isinstance(index, Ramp) else (index, 1, 1)
        )
        step = eval_expr(stride, {})
        others = {v: 0 for v in free_vars(base) if v is not thread}
        starts = [eval_expr(base, {**others, thread: t}) for t in range(subgroup)]
        # Adjacent elements are one access of 16 bytes, by a quarter of the threads at a time.
        together = subgroup // lanes if step == 1 else subgroup
        for first in range(0, subgroup, together):
            for one in [range(lanes)] if step == 1 else [[lane] for lane in range(lanes)]:
                words = {starts[t] + lane * step for t in range(first, first + together) for lane in one}
                worst = max(worst, *Counter(word % banks for word in words).values())
    return worst


@pytest.mark.parametrize("transposed", [False, True])
def test_threads_of_a_subgroup_use_different_banks(transposed):
    x = tensor(512, 512)
    w = std.transpose(tensor(512, 512, name="w"), axes=(1, 0)) if transposed else tensor(512, 512, name="w")
    (kernel,) = is_contraction(launch_for(kernel_of(std.matmul(x, w)), USUAL)).kernels
    assert bank_conflicts(kernel) <= 2


@pytest.mark.parametrize("machine", [USUAL, SMALL, TINY], ids=["usual", "small", "tiny"])
@given(
    m=st.none() | st.integers(1, 5000), n=st.integers(1, 5000), k=st.integers(1, 5000), b=st.integers(1, 50)
)
def test_tiles_fit(machine, m, n, k, b):
    grid = Grid.of(Machine(machine, machine.cores))
    problem = Problem(b, m, n, k, 32, 32, k)
    tile = choose(problem, Machine(machine, machine.cores), grid)
    assert tile is not None or min(n, m or 5000) < 8
    if tile is not None:
        assert tile.threads <= machine.group_threads
        assert shared_bytes(tile, 32) <= machine.shared_bytes
        assert k % tile.splits == 0
        assert tile.rows % tile.own_rows == tile.columns % tile.own_columns == 0
