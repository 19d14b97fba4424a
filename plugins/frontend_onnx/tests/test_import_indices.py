"""Data-dependent indices, and lengths that limit each other: values out of range are errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dlc_frontend_onnx.testing.compare import model_of, parse, run

import dlc_core as dlc
from dlc_core.diag import ModelError, RuntimeFailure, UsageError

X = np.arange(12, dtype=np.float32).reshape(3, 4)
IMAGES = np.arange(2 * 3 * 8 * 8, dtype=np.float32).reshape(2, 3, 8, 8)
ROIS = np.array([[0, 0, 4, 4], [1, 1, 5, 6]], np.float32)
CACHE, NEW = np.zeros((2, 5, 3), np.float32), np.ones((2, 2, 3), np.float32)
POOLED = np.ones((1, 1, 2, 2), np.float32)
ROI: dict[str, Any] = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
UNPOOL: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
LOSS = {"reduction": "none"}


def ints(*values: Any) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("Gather", [X, ints(0, 3)], {}),
    ("Gather", [X, ints(0, -4)], {}),
    ("GatherElements", [X, ints([3, 0, 0, 0])], {}),
    ("GatherND", [X, ints([2, 4])], {}),
    ("GatherND", [IMAGES, ints([2], [3])], {"batch_dims": 1}),
    ("ScatterElements", [X, ints([3, 0, 0, 0]), X[:1]], {}),
    ("ScatterElements", [X, ints([-4, 0, 0, 0]), X[:1]], {"reduction": "add"}),
    ("ScatterND", [X, ints([3, 0]), X[0, :1]], {}),
    ("ScatterND", [X, ints([0, -5]), X[0, :1]], {}),
    ("TensorScatter", [CACHE, NEW, ints(0, 4)], {"axis": 1}),
    ("TensorScatter", [CACHE, NEW, ints(0, -1)], {"axis": 1}),
    ("TensorScatter", [CACHE, NEW, ints(0, -1)], {"axis": 1, "mode": "circular"}),
    ("RoiAlign", [IMAGES, ROIS, ints(0, 2)], ROI),
    ("RoiAlign", [IMAGES, ROIS, ints(0, -1)], ROI),
    ("RoiAlign", [IMAGES, ROIS, ints(0, 2)], {**ROI, "mode": "max"}),
    ("RoiAlign", [IMAGES, ROIS, ints(0, -1)], {**ROI, "mode": "max"}),
    ("MaxRoiPool", [IMAGES, np.array([[2, 0, 0, 4, 4]], np.float32)], {"pooled_shape": [2, 2]}),
    ("MaxRoiPool", [IMAGES, np.array([[-1, 0, 0, 4, 4]], np.float32)], {"pooled_shape": [2, 2]}),
    ("MaxRoiPool", [IMAGES, np.array([[np.nan, 0, 0, 4, 4]], np.float32)], {"pooled_shape": [2, 2]}),
    ("MaxUnpool", [POOLED, ints([[[0, 5], [10, 16]]])], UNPOOL),
    ("MaxUnpool", [POOLED, ints([[[0, 5], [10, -1]]])], UNPOOL),
    ("ReverseSequence", [X, ints(1, 2, 3, 4)], {}),
    ("ReverseSequence", [X, ints(1, 2, -1, 3)], {}),
    ("NegativeLogLikelihoodLoss", [X, ints(0, 4, 1)], LOSS),
    ("NegativeLogLikelihoodLoss", [X, ints(0, 4, 7)], {**LOSS, "ignore_index": 7}),
    ("SoftmaxCrossEntropyLoss", [X, ints(0, 1, 9)], LOSS),
    ("SoftmaxCrossEntropyLoss", [X, ints(0, 1, -5), X[0]], {**LOSS, "ignore_index": -1}),
]
"""An operator, its inputs with an out-of-range index, and attributes."""


def _model(op: str, inputs: list[Any], attributes: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    fed = list(range(len(inputs)))
    return model_of(op, inputs, domain="", imported=24, version=24, fed=fed, **attributes)


@pytest.mark.parametrize(("op", "inputs", "attributes"), CASES)
@pytest.mark.parametrize("target", ["reference", "llvm"])
def test_out_of_range_indices_fail(
    op: str, inputs: list[Any], attributes: dict[str, Any], target: str
) -> None:
    model, feeds = _model(op, inputs, attributes)
    with pytest.raises(RuntimeFailure, match="index"):
        dlc.compile(model, target, cache=False).run(feeds)


@pytest.mark.slow
@pytest.mark.parametrize(("op", "inputs", "attributes"), CASES)
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_out_of_range_indices_fail_at_any_opt_level(
    op: str, inputs: list[Any], attributes: dict[str, Any], target: str, level: int
) -> None:
    model, feeds = _model(op, inputs, attributes)
    with pytest.raises(RuntimeFailure, match="index"):
        dlc.compile(model, target, opt_level=level, cache=False).run(feeds)


def test_negative_indices_count_from_the_end() -> None:
    model, feeds = _model("Gather", [X, ints(-1, -3)], {})
    np.testing.assert_array_equal(run(model, feeds)[0], X[[-1, -3]])
    model, feeds = _model("ScatterND", [X, ints([-1, -4]), np.array([50], np.float32)], {})
    assert run(model, feeds)[0][2, 0] == 50


def test_ignored_labels_of_a_loss_may_be_out_of_range() -> None:
    model, feeds = _model("NegativeLogLikelihoodLoss", [X, ints(0, 70, 1)], {**LOSS, "ignore_index": 70})
    np.testing.assert_array_equal(run(model, feeds)[0], [-0.0, 0.0, -9.0])


COMPRESS = "g (float[3,4] x, bool[{}] c) => (float[n,4] y) {{ y = Compress <axis = 0> (x, c) }}"


def test_a_condition_longer_than_its_axis_is_refused() -> None:
    with pytest.raises(ModelError, match="a condition of 5 is longer than the axis, 3"):
        run(parse(COMPRESS.format(5)), {"x": X, "c": np.ones(5, bool)})
    flat = "g (float[3,4] x, bool[13] c) => (float[n] y) { y = Compress (x, c) }"
    with pytest.raises(ModelError, match="a condition of 13 is longer than the axis, 12"):
        run(parse(flat), {"x": X, "c": np.ones(13, bool)})
    found = run(parse(COMPRESS.format(2)), {"x": X, "c": np.array([False, True])})
    np.testing.assert_array_equal(found[0], X[1:2])
    exe = dlc.compile(parse(COMPRESS.format("k")), "reference", cache=False)
    with pytest.raises(UsageError, match="is longer than the axis"):
        exe.run({"x": X, "c": np.ones(5, bool)})
    np.testing.assert_array_equal(exe.run({"x": X, "c": np.array([True])})["y"], X[:1])


def test_negative_pads_larger_than_the_dim_are_refused() -> None:
    model, feeds = _model("Pad", [X, ints(-2, 0, -2, 0)], {})
    with pytest.raises(UsageError, match="borders crop more than the dim 3"):
        dlc.compile(model, "reference", cache=False).run(feeds)


@pytest.mark.parametrize("scores", [(1, 2, 6), (2, 2, 5)])
def test_boxes_and_scores_must_match(scores: tuple[int, ...]) -> None:
    text = "g (float[1,5,4] b, float[{}] s) => (int64[n,3] y) {{ y = NonMaxSuppression (b, s) }}"
    with pytest.raises(ModelError, match="boxes and scores"):
        run(parse(text.format(",".join(map(str, scores)))), {})


@pytest.mark.parametrize("k", [100, -100, 2**62, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("upper", [0, 1])
def test_triangles_by_distant_diagonals(k: int, upper: int) -> None:
    model, feeds = model_of(
        "Trilu", [X, np.array(k)], domain="", imported=18, version=18, fed=[0], upper=upper
    )
    expected = X if (k < 0) == bool(upper) else np.zeros_like(X)
    for target in ("reference", "llvm"):
        found = dlc.compile(model, target, cache=False).run(feeds)
        np.testing.assert_array_equal(next(iter(found.values())), expected)
    model, feeds = model_of("EyeLike", [X], domain="", imported=18, version=18, fed=[0], k=k)
    for target in ("reference", "llvm"):
        found = dlc.compile(model, target, cache=False).run(feeds)
        np.testing.assert_array_equal(next(iter(found.values())), np.zeros_like(X))
