"""Launches of skinny GEMM: columns are streamed once, with split-K over threads and groups."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dlc_core.graph.node import Node
from dlc_core.ir.expr import Var
from dlc_core.op import std
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.gpu.grid import Grid
from dlc_core.schedule.rules.gpu.skinny_gemm import plan_for
from dlc_core.schedule.rules.gpu.tile import Problem
from dlc_core.testing.launches import Launched, check_launches, launch_for
from dlc_core.testing.schedules import kernel_of
from tests.schedule.rules.gpu.machines import QUICK, SMALL, USUAL
from tests.schedule.rules.gpu.test_contraction import product, tensor

N, K = Var("n"), Var("k")
LARGE = replace(USUAL, cores=132, unit_shared_bytes=228 << 10)


def streams(launched: Launched, launches: int = 1) -> Launched:
    assert launched.scheduled.attrs["why_not"] == ()
    assert launched.rule == "gpu.skinny_gemm"
    assert len(launched.kernels) == launches
    return launched


def transposed(m: int, n: object, k: object, *batch: int, dtype: str = "float32") -> Node:
    """A product whose columns are contiguous along K."""
    w = tensor(*batch, n, k, name="w", dtype=dtype)
    order = (*range(len(batch)), len(batch) + 1, len(batch))
    return std.matmul(tensor(*batch, m, k, dtype=dtype), std.transpose(w, axes=order))


@pytest.mark.parametrize("made", [product, transposed])
@settings(max_examples=3, phases=[Phase.generate], deadline=None)
@given(m=st.integers(1, 8), n=st.integers(3, 21), k=st.integers(16, 70), seed=st.integers(0, 9))
def test_any_sizes(made, m, n, k, seed):
    func = kernel_of(std.relu(std.add(made(m, n, k), tensor(n, name="b"))))
    streams(check_launches(func, QUICK, seed=seed))


@pytest.mark.parametrize("made", [product, transposed])
@pytest.mark.parametrize("machine", [SMALL, USUAL], ids=["small", "usual"])
def test_machines(made, machine):
    streams(check_launches(kernel_of(made(1, 40, 64)), machine))


@pytest.mark.parametrize("made", [product, transposed])
def test_symbolic_sizes(made):
    for n, k, sizes in (
        (N, 32, {N: 13}),
        (N, 32, {N: 0}),
        (12, K, {K: 19}),
        (12, K, {K: 0}),
        (N, K, {N: 9, K: 33}),
    ):
        streams(check_launches(kernel_of(std.relu(made(2, n, k))), QUICK, sizes))


@pytest.mark.parametrize("made", [product, transposed])
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_dtypes(made, dtype):
    streams(check_launches(kernel_of(made(3, 24, 32, dtype=dtype)), QUICK))


@pytest.mark.parametrize("made", [product, transposed])
def test_batches(made):
    streams(check_launches(kernel_of(made(1, 12, 32, 3)), QUICK))


@pytest.mark.parametrize("size", [1, 3])
def test_convolutions_to_a_single_pixel(size):
    x, w = tensor(1, size, size, 16), tensor(size, size, 16, 12, name="w")
    made = std.conv(x, w, layout="NXC", kernel_layout="XIO")
    streams(check_launches(kernel_of(std.relu(made)), QUICK))


def test_split_k_of_few_columns():
    many = replace(QUICK, cores=64)
    streams(check_launches(kernel_of(std.relu(product(2, 8, 2048))), many), 2)


def test_columns_are_read_as_vectors():
    assert 4 in streams(launch_for(kernel_of(transposed(1, 512, 512)), LARGE)).vectors(shared=False)
    assert 8 in streams(launch_for(kernel_of(transposed(8, 512, 512, dtype="float16")), LARGE)).vectors(
        shared=False
    )
    few = replace(LARGE, cores=2)
    assert 4 in streams(launch_for(kernel_of(product(1, 4096, 512)), few)).vectors(shared=False)


@pytest.mark.parametrize("made", [product, transposed])
def test_other_contractions_are_refused(made):
    assert launch_for(kernel_of(made(9, 64, 64)), USUAL).rule == "gpu.contraction"
    assert launch_for(kernel_of(made(1, 64, 8)), USUAL).rule == "gpu.contraction"
    assert launch_for(kernel_of(made(Var("m"), 64, 64)), USUAL).rule == "gpu.contraction"


@given(
    along=st.booleans(), n=st.none() | st.integers(1, 9999), k=st.none() | st.integers(16, 9999),
    m=st.integers(1, 8), bits=st.sampled_from([8, 16, 32]),
)  # fmt: skip
@pytest.mark.parametrize("machine", [LARGE, SMALL, QUICK], ids=["large", "small", "quick"])
def test_plans_fit(machine, along, n, k, m, bits):
    facts = Machine(machine, machine.cores)
    grid = Grid.of(facts)
    plan = plan_for(Problem(1, m, n, k, bits, 32, k or 1), along, k if along else n, bits, facts, grid)
    assert plan is not None
    assert plan.threads * plan.thread_rows <= grid.group_threads
    assert plan.threads <= grid.max_threads
    assert plan.thread_rows <= grid.max_rows
    assert ((k if along else n) or 1) % plan.lanes == 0
    assert (k or 1) % plan.splits == 0
