"""Inputs that are updated in place, in native code: random programs, and all kinds of calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import UnsupportedError, UsageError
from dlc_core.graph.node import Function, make_tuple, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.testing.update_programs import update_inputs, update_program

ROWS = 6


def cache_module(rows: object = ROWS) -> IRModule:
    """A cache gets a new row, and its rows are summed."""
    cache, at, row = (
        param("cache", tensor_type((2, rows, 4))),
        param("at", tensor_type((1,), "int64")),
        param("row", tensor_type((2, 1, 4))),
    )
    new = std.scatter_slices(cache, at, row, axis=1)
    attrs = {"inputs": ("cache", "at", "row"), "outputs": ("sum", "cache.new")}
    body = make_tuple([std.reduce_sum(new, axes=(1,)), new])
    return IRModule({"main": Function("main", (cache, at, row), body).with_attrs(**attrs)})


def compiled(rows: object = ROWS, target: str = "llvm") -> dlc.Executable:
    return dlc.compile(cache_module(rows), target, num_threads=1, donate={"cache": None})


def inputs() -> list[np.ndarray]:
    return [np.zeros((2, ROWS, 4), np.float32), np.array([3]), np.ones((2, 1, 4), np.float32)]


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("threads", [1, 2])
def test_random_programs(target: str, threads: int) -> None:
    for seed in range(6):
        module, arrays = update_program(seed), update_inputs(seed)
        expected = evaluate(module["main"], [array.copy() for array in arrays])
        exe = dlc.compile(module, target, donate={"s*": None}, num_threads=threads)
        found = exe(*arrays)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        for source, output in exe.signature.updates:
            assert found[output] is arrays[source]


@pytest.mark.parametrize("opened", [False, True])
def test_steps_write_into_the_callers_array(tmp_path: Path, opened: bool) -> None:
    exe = compiled()
    if opened:
        exe.save(tmp_path / "cache.dlc")
        exe = dlc.open(tmp_path / "cache.dlc")
    cache, at, row = inputs()
    for step in range(ROWS):
        at[0] = step
        total, new = exe(cache, at, row * step)
        assert new is cache
        np.testing.assert_array_equal(total, np.full((2, 4), sum(range(step + 1))))
    np.testing.assert_array_equal(cache[:, :, 0], [range(ROWS)] * 2)


def test_symbolic_sizes() -> None:
    exe = compiled(Var("rows"))
    for rows in (4, 9):
        cache = np.zeros((2, rows, 4), np.float32)
        exe(cache, np.array([2]), np.ones((2, 1, 4), np.float32))
        assert cache.sum() == 8


def test_arrays_that_cannot_be_written_are_copied() -> None:
    exe = compiled()
    cache, at, row = inputs()
    fixed = cache.copy()
    fixed.flags.writeable = False
    strided = np.zeros((2, ROWS, 8), np.float32)[:, :, ::2]
    for given in (fixed, strided):
        total, new = exe(given, at, row)
        assert not given.any()
        assert new.sum() == total.sum() == 8


def test_overlapping_inputs_keep_their_values() -> None:
    exe = compiled()
    memory = np.arange(2 * ROWS * 4 + 8, dtype=np.float32)
    cache, row = memory[: 2 * ROWS * 4].reshape(2, ROWS, 4), memory[4:12].reshape(2, 1, 4)
    expected = evaluate(cache_module()["main"], [cache.copy(), np.array([0]), row.copy()])
    before = memory.copy()
    for one, other in zip(exe(cache, np.array([0]), row), expected, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(memory, before)
    with pytest.raises(UsageError, match="cannot be bound"):
        exe.bind([cache, np.array([0]), row])


def test_bound_calls_and_destinations() -> None:
    exe = compiled()
    cache, at, row = inputs()
    call = exe.bind([cache, at, row])
    call()
    assert call.outputs[1] is cache
    assert cache[:, 3].sum() == 8
    total, other = np.empty((2, 4), np.float32), np.empty_like(cache)
    exe(cache, at, 2 * row, out=[total, cache])
    assert total.sum() == cache.sum() == 16
    exe(cache, at, 3 * row, out=[total, other])
    np.testing.assert_array_equal(other, cache)
    with pytest.raises(UsageError, match="overlaps"):
        exe(cache, at, row, out=[cache[0, :2], cache])


def test_profiles_and_refusals(tmp_path: Path) -> None:
    exe = compiled()
    kernels = [row.kernel for row in exe.profile(inputs(), runs=1).rows]
    assert "fused_scatter_slices_in_place" in kernels
    with pytest.raises(UnsupportedError, match="memory of its own"):
        exe.export(tmp_path / "cache.so")
