"""Ops with a data-dependent number of results in native code, with an upper bound of their memory."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import UnsupportedError
from dlc_core.graph import Function, param
from dlc_core.graph.node import constant, make_tuple
from dlc_core.ir.expr import Var, const, minimum
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate


def module_of(body, *params):
    return IRModule({"main": Function("main", params, body)})


def check(module, *arrays):
    exe = dlc.compile(module, target="llvm")
    found, expected = exe(*arrays), evaluate(module["main"], list(arrays))
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)
    return exe


def boxes_model(limits, images=2, kinds=3, count=40, center=False):
    boxes = param("boxes", tensor_type((images, count, 4), "float32"))
    scores = param("scores", tensor_type((images, kinds, count), "float32"))
    values = [constant(np.array([v], t)) for v, t in zip(limits, ("int64", "float32", "float32"))]
    made = std.non_max_suppression(boxes, scores, *values, count=Var("kept"), center=center)
    return module_of(made, boxes, scores)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize(
    "limits", [(5, 0.4, 0.2), (100, 0.7, -1.0), (0, 0.5, 0.0), (7, 0.0, 0.5), (1, 0.5, 2.0)]
)
def test_overlapping_boxes_are_suppressed(limits, center):
    module = boxes_model(limits, center=center)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        boxes = rng.random((2, 40, 4), np.float32)
        # Few different scores, so that many are equal.
        scores = rng.integers(0, 8, (2, 3, 40)).astype(np.float32) / 8
        scores[0, 0, ::7] = np.nan
        exe = check(module, boxes, scores)
    assert [entry["op"] for entry in exe.about["host"]] == ["first_of"]
    assert exe.about["host"][0]["why"] == "the number of its results is data-dependent"


@pytest.mark.parametrize("most", [(1 << 63) - 1, 1 << 61])
def test_large_limits_are_unlimited(tmp_path, most):
    n = Var("n")
    boxes, scores = param("b", tensor_type((1, n, 4))), param("s", tensor_type((1, 1, n)))
    limits = constant([most], "int64"), constant([0.3], "float32"), constant([0.1], "float32")
    made = std.non_max_suppression(boxes, scores, *limits, count=Var("kept"))
    rng = np.random.default_rng(0)
    given = [rng.random((1, 30, 4), np.float32), rng.random((1, 1, 30), np.float32)]
    module = module_of(made, boxes, scores)
    check(module, *given).save(tmp_path / "boxes.dlc")
    found = dlc.open(tmp_path / "boxes.dlc")(*given)
    np.testing.assert_array_equal(found, evaluate(module["main"], given))


def test_limits_may_be_inputs():
    n = Var("n")
    boxes, scores = param("b", tensor_type((1, n, 4))), param("s", tensor_type((1, 1, n)))
    most = param("m", tensor_type((1,), "int64"))
    overlap, least = param("o", tensor_type((1,))), param("l", tensor_type((1,)))
    made = std.non_max_suppression(boxes, scores, most, overlap, least, count=Var("kept"))
    module = module_of(made, boxes, scores, most, overlap, least)
    exe = dlc.compile(module, target="llvm")
    rng = np.random.default_rng(0)
    for size, limit in ((0, 3), (1, 3), (30, 4), (30, 99), (9, -1)):
        given = [
            rng.random((1, size, 4), np.float32),
            rng.random((1, 1, size), np.float32),
            np.array([limit]),
            np.array([0.3], np.float32),
            np.array([0.1], np.float32),
        ]
        np.testing.assert_array_equal(exe(*given), evaluate(module["main"], given))


@pytest.mark.parametrize("dtype", ["float32", "bool", "int8", "float16"])
@pytest.mark.parametrize("shape", [(), (7,), (5, 6), (2, 3, 4), (0, 3)])
def test_indices_of_nonzero_elements(shape, dtype):
    x = param("x", tensor_type(shape, dtype))
    values = np.random.default_rng(1).integers(0, 2, shape)
    check(module_of(std.nonzero(x, count=Var("found")), x), np.asarray(values).astype(dtype))


def test_ops_after_a_data_dependent_one_are_native():
    n = Var("n")
    x, mask = param("x", tensor_type((n, 4))), param("mask", tensor_type((n,), "bool"))
    indices = std.squeeze(std.nonzero(mask, count=Var("chosen")), axes=(0,))
    exe = dlc.compile(module_of(std.relu(std.gather(x, indices, axis=0)), x, mask), target="llvm")
    assert [entry["op"] for entry in exe.about["host"]] == ["first_of"]
    rng = np.random.default_rng(2)
    for size in (0, 1, 9):
        rows, chosen = rng.standard_normal((size, 4)).astype(np.float32), rng.random(size) > 0.5
        np.testing.assert_array_equal(exe(rows, chosen), np.maximum(rows[chosen], 0))


def test_a_dim_that_a_clamped_size_does_not_determine_is_still_computed():
    mask = param("mask", tensor_type((20,), "bool"))
    x = param("x", tensor_type((20, 4)))
    indices = std.squeeze(std.nonzero(mask, count=Var("chosen")), axes=(0,))
    (chosen,) = indices.shape
    first_five = minimum(chosen, const(5, "int64"))
    rows = std.slice(std.gather(x, indices, axis=0), begins=(0,), ends=(first_five,), axes=(0,))
    above = std.greater(std.reduce_sum(rows, axes=(1,)), constant(np.float32(0)))
    positive = std.squeeze(std.nonzero(above, count=Var("kept")), axes=(0,))
    wide = std.add(std.reduce_sum(std.gather(rows, positive, axis=0)), std.reduce_sum(std.exp(rows)))
    module = module_of(wide, x, mask)
    exe = dlc.compile(module, target="llvm")
    rng = np.random.default_rng(3)
    for share in (0.2, 0.9):
        given = [rng.standard_normal((20, 4)).astype(np.float32), rng.random(20) < share]
        np.testing.assert_allclose(exe(*given), evaluate(module["main"], given), rtol=1e-5)


BOUNDED = {"bounded_results": True}


def cut(whole, count, axis=0):
    return np.take(whole, range(int(count[0])), axis)


def largest(x):
    """Nonzero elements, transposed, with the rows that they select."""
    found = std.transpose(std.nonzero(x, count=Var("n")), axes=(1, 0))
    return std.add(std.cast(found, to="int32"), constant(0, "int32")), std.neg(x)


def test_nonzero_is_exported_with_its_number(tmp_path):
    x = param("x", tensor_type((4, 5)))
    module = IRModule.of(Function("main", (x,), make_tuple(largest(x))))
    with pytest.raises(UnsupportedError, match="on the host") as error:
        dlc.compile(module, "llvm").export(tmp_path / "m.so")
    assert "bounded_results" in str(error.value)
    value = np.random.default_rng(0).standard_normal((4, 5)).astype("f4").clip(0)
    for target, name in (("llvm", "m.so"), ("c", "m.c")):
        exe = dlc.compile(module, target, config=BOUNDED)
        assert [str(o) for o in exe.outputs][2] == "output0_count: int64[1]"
        assert not exe.about.get("host")
        whole, negated, count = exe(value)
        assert whole.shape == (20, 2)
        np.testing.assert_array_equal(cut(whole, count), np.argwhere(value))
        np.testing.assert_array_equal(negated, -value)
        assert (tmp_path / name) in exe.export(tmp_path / name)
    opened = dlc.load_library(tmp_path / "m.so")
    np.testing.assert_array_equal(cut(opened(value)[0], opened(value)[2]), np.argwhere(value))


def test_boxes_that_are_kept_are_exported(tmp_path):
    """The end of a detector: boxes, gathered by the indices of a suppression."""
    boxes, scores = param("boxes", tensor_type((1, 30, 4))), param("scores", tensor_type((1, 2, 30)))
    limits = constant([10], "int64"), constant([0.5], "float32"), constant([0.1], "float32")
    kept = std.non_max_suppression(boxes, scores, *limits, count=Var("kept"))
    rows = std.squeeze(std.gather(kept, constant([2], "int64"), axis=1), axes=(1,))
    picked = std.gather(std.squeeze(boxes, axes=(0,)), rows, axis=0)
    module = IRModule.of(Function("main", (boxes, scores), make_tuple((kept, picked))))
    exe = dlc.compile(module, "llvm", config=BOUNDED)
    rng = np.random.default_rng(1)
    given = rng.random((1, 30, 4), np.float32), rng.random((1, 2, 30), np.float32)
    want_kept, want_picked = evaluate(module["main"], list(given))
    exe.export(tmp_path / "m.so")
    for run in (exe, dlc.load_library(tmp_path / "m.so")):
        found, selected, count = run(*given)
        np.testing.assert_array_equal(cut(found, count), want_kept)
        np.testing.assert_array_equal(cut(selected, count), want_picked)


def test_unique_is_exported(tmp_path):
    x = param("x", tensor_type((12,), "int64"))
    made = std.unique(x, count=Var("u"))
    module = IRModule.of(Function("main", (x,), made))
    exe = dlc.compile(module, "llvm", config=BOUNDED)
    exe.export(tmp_path / "m.so")
    value = np.random.default_rng(2).integers(0, 5, 12)
    expected = evaluate(module["main"], [value])
    *found, count = exe(value)
    for whole, want in zip(found, expected, strict=True):
        np.testing.assert_array_equal(whole if len(want) == 12 else cut(whole, count), want)


def test_other_uses_stay_on_the_host():
    x = param("x", tensor_type((6,)))
    found = std.nonzero(x, count=Var("n"))
    module = IRModule.of(Function("main", (x,), std.reduce_sum(found, axes=(1,))))
    exe = dlc.compile(module, "llvm", config=BOUNDED)
    assert exe.about["host"]
    np.testing.assert_array_equal(exe(np.array([0, 1, 0, 1, 1, 0], "f4")), [1 + 3 + 4])


def test_slices_of_different_buffers_are_not_combined():
    x, y = param("x", tensor_type((6,))), param("y", tensor_type((8,)))
    n = Var("n")
    first = std.nonzero(x, count=n)
    picked = std.gather(y, std.reshape(first, shape=(n,)), axis=0)
    module = IRModule.of(Function("main", (x, y), std.add(picked, picked)))
    values = np.array([0, 1, 0, 1, 1, 0], "f4"), np.arange(8, dtype="f4")
    whole, count = dlc.compile(module, "llvm", config=BOUNDED)(*values)
    np.testing.assert_array_equal(cut(whole, count), [2, 6, 8])
