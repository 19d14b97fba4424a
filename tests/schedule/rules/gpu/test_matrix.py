"""Launches of GEMM by matrix units. The unit is small, so that interpretation is fast; its fragments are laid
out like those of large units.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dlc_core.ir.expr import Var
from dlc_core.op import std
from dlc_core.schedule.rules.base import Machine
from dlc_core.schedule.rules.gpu.grid import Grid
from dlc_core.schedule.rules.gpu.matrix_tile import choose_matrix
from dlc_core.schedule.rules.gpu.tile import Problem
from dlc_core.testing.launches import Launched, check_launches, launch_for
from dlc_core.testing.schedules import kernel_of
from dlc_core.tir.functor import allocations
from dlc_core.tir.matrix import Fragment, MatrixUnit, products
from tests.schedule.rules.gpu.machines import USUAL
from tests.schedule.rules.gpu.test_contraction import barriers, product, tensor

M = Var("m")
ROWS = Fragment(4, 4, ((2, 2), (4, 2)), ((1, 2), (8, 2)))
COLUMNS = Fragment(4, 4, ((8, 2), (1, 2)), ((4, 2), (2, 2)))


def unit(a: str, acc: str, transposable: bool = True) -> MatrixUnit:
    return MatrixUnit(a, a, acc, ROWS, COLUMNS, ROWS, transposable=transposable)


TINY = replace(
    USUAL,
    thread_axes={"block.x": (1 << 31) - 1, "thread.x": 16, "thread.y": 4},
    group_threads=16,
    subgroup=4,
    shared_bytes=4096,
    cores=2,
    matrix_units=(unit("float16", "float32"), unit("int8", "int32", transposable=False)),
)
WIDE = MatrixUnit(
    "float16",
    "float16",
    "float32",
    Fragment(16, 16, ((2, 4), (16, 8)), ((1, 2), (128, 2), (8, 2))),
    Fragment(16, 8, ((16, 4), (1, 8)), ((8, 2), (64, 2))),
    Fragment(16, 8, ((2, 4), (8, 8)), ((1, 2), (64, 2))),
    transposable=True,
)
LARGE = replace(USUAL, matrix_units=(WIDE,))


WHOLE = MatrixUnit(
    "float16",
    "float16",
    "float32",
    Fragment.distributed(4, 4, 8),
    Fragment.distributed(4, 64, 8),
    Fragment(4, 64, ((1, 2), (64, 4)), ((2, 32),)),
    transposable=True,
    in_place=True,
)
PLACES = replace(
    TINY, shared_bytes=1 << 15, matrix_units=(WHOLE,), memory_scopes=(*TINY.memory_scopes, "shared.swizzled")
)


def half(*shape: object, name: str = "x") -> object:
    return tensor(*shape, name=name, dtype="float16")


def by_units(launched: Launched, launches: int = 1) -> Launched:
    assert launched.scheduled.attrs["why_not"] == ()
    assert launched.rule == "gpu.matrix"
    assert len(launched.kernels) == launches
    assert products(launched.kernels[0].body)
    return launched


@settings(max_examples=2, phases=[Phase.generate])
@given(m=st.integers(2, 11), n=st.integers(3, 11), k=st.integers(2, 11), seed=st.integers(0, 9))
def test_any_sizes(m, n, k, seed):
    func = kernel_of(std.relu(std.add(product(m, n, k, dtype="float16"), half(n, name="b"))))
    by_units(check_launches(func, TINY, seed=seed))


def test_operands_in_any_order():
    x, w = half(4, 5), half(6, 5, name="w")
    by_units(check_launches(kernel_of(std.matmul(x, std.transpose(w, axes=(1, 0)))), TINY))
    y, v = half(5, 4), half(5, 6, name="w")
    by_units(check_launches(kernel_of(std.matmul(std.transpose(y, axes=(1, 0)), v)), TINY))


def test_units_that_cannot_transpose_operands():
    x, w = tensor(4, 5, dtype="int8"), tensor(5, 6, name="w", dtype="int8")
    by_units(check_launches(kernel_of(std.matmul(x, w, out_dtype="int32")), TINY))


def test_batches_and_symbolic_rows():
    by_units(check_launches(kernel_of(product(3, 4, 4, 2, dtype="float16")), TINY))
    func = kernel_of(std.relu(product(M, 6, 8, dtype="float16")))
    by_units(check_launches(func, TINY, {M: 7}))


def test_split_k():
    by_units(check_launches(kernel_of(std.relu(product(9, 4, 256, dtype="float16"))), TINY), 2)


@pytest.mark.parametrize("columns", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_units_that_read_operands_in_place(columns):
    x = half(9, 34)
    w = half(34, 60, name="w") if columns else std.transpose(half(60, 34, name="w"), axes=(1, 0))
    launched = by_units(check_launches(kernel_of(std.relu(std.matmul(x, w))), PLACES))
    scopes = {buffer.scope for kernel in launched.kernels for buffer in allocations(kernel.body)}
    assert "shared.swizzled" in scopes
    assert "shared" not in scopes


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 5))
def test_elements_are_distributed_over_any_number_of_threads(rows, columns, width):
    fragment = Fragment.distributed(1 << rows, 1 << columns, 1 << min(width, rows + columns))
    assert fragment.width == 1 << min(width, rows + columns)


def test_windows():
    x, w = half(1, 4, 5, 4), half(3, 3, 4, 6, name="w")
    made = std.conv(x, w, strides=(2, 1), padding=(1, 2, 1, 2), layout="NXC", kernel_layout="XIO")
    by_units(check_launches(kernel_of(std.relu(std.add(made, half(6, name="b")))), TINY))


def test_tiles_are_software_pipelined():
    (kernel,) = by_units(launch_for(kernel_of(product(256, 256, 256, dtype="float16")), LARGE)).kernels
    assert barriers(kernel) == 2
    assert kernel.attrs["shared_bytes"] <= LARGE.shared_bytes


def test_dtypes_without_a_unit_use_threads():
    for func in (product(8, 8, 8), product(1, 8, 8, dtype="float16"), product(8, 8, 1, dtype="float16")):
        assert launch_for(kernel_of(func), TINY).rule != "gpu.matrix"
    others = replace(TINY, subgroup=8)
    assert launch_for(kernel_of(product(8, 8, 8, dtype="float16")), others).rule == "gpu.contraction"


@pytest.mark.parametrize("transposed", [False, True])
def test_copies_and_stores_are_contiguous(transposed):
    x = half(512, 512)
    w = std.transpose(half(512, 512, name="w"), axes=(1, 0)) if transposed else half(512, 512, name="w")
    made = by_units(launch_for(kernel_of(std.matmul(x, w)), LARGE))
    assert made.vectors(shared=False) == {2, 8}


@given(m=st.none() | st.integers(1, 5000), n=st.integers(1, 5000), k=st.integers(1, 5000))
def test_tiles_fit(m, n, k):
    machine = Machine(LARGE, LARGE.cores)
    tile = choose_matrix([WIDE], Problem(1, m, n, k, 16, 32, k), machine, Grid.of(machine))
    assert (tile is None) is (min(n / 8, (m or 16) / 16, k / 16) < 0.5)
    if tile is not None:
        assert tile.shared_bytes(16, tile.buffers(k)) <= LARGE.shared_bytes
        assert tile.subgroups * WIDE.width <= LARGE.group_threads
        assert k % tile.splits == 0


def best_tile(unit, registers=255, **contiguity):
    machine = Machine(replace(LARGE, matrix_units=(unit,), thread_registers=registers), LARGE.cores)
    problem = Problem(1, 4096, 4096, 4096, 8, 32, 4096, **contiguity)
    return choose_matrix([unit], problem, machine, Grid.of(machine)), problem


def test_widened_operands_take_registers():
    """The tile then has fewer accumulators."""
    unit = replace(WIDE, a="int8", b="int8", acc="int32")
    (plain, problem), (less, _) = best_tile(unit, 200), best_tile(replace(unit, widened=16), 200)
    assert less.registers(problem, LARGE) <= 200 < replace(plain, unit=less.unit).registers(problem, LARGE)
    assert less.down * less.across < plain.down * plain.across


@pytest.mark.parametrize("contiguity", [(True, 4095), (False, 4096)])
def test_copies_by_threads_take_registers(contiguity):
    """If elements are not whole words, or if the elements of a word are stored separately."""
    plain, problem = best_tile(replace(WIDE, transposable=False))
    found, other = best_tile(replace(WIDE, transposable=False), contiguity=(contiguity, contiguity))
    assert plain.copied(problem, LARGE) == 0 < plain.copied(other, LARGE)
    assert found.registers(other, LARGE) <= 255
    turning = replace(plain, unit=replace(plain.unit, transposable=True))
    assert (turning.copied(other, LARGE) == 0) is (contiguity == (False, 4096))
