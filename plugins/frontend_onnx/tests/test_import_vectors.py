"""Support vector machines, compared with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_frontend_onnx.testing.compare import check_runtime

pytest.importorskip("onnxruntime")
R = np.random.default_rng(0)
FEATURES = 3
KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID"]


def numbers(*shape):
    return R.standard_normal(shape).astype(np.float32).reshape(-1).tolist()


def kernel(kind):
    return {"kernel_type": kind, "kernel_params": [0.3, 0.7, 2.0]}


def check(op, outputs, **attributes):
    x = R.standard_normal((7, FEATURES)).astype(np.float32)
    return check_runtime(op, [x], outputs, domain="ai.onnx.ml", rtol=1e-4, atol=1e-5, **attributes)


@pytest.mark.parametrize("kind", KERNELS)
def test_regressions(kind):
    vectors = {"n_supports": 5, "support_vectors": numbers(5, FEATURES), "coefficients": numbers(5)}
    check("SVMRegressor", 1, rho=[0.25], **vectors, **kernel(kind))
    check("SVMRegressor", 1, rho=[0.25], one_class=1, **vectors, **kernel(kind))


def test_a_regression_without_vectors_is_linear():
    check("SVMRegressor", 1, coefficients=numbers(FEATURES), rho=[0.5], **kernel("LINEAR"))


def machine(counts, labels):
    classes, count = len(counts), sum(counts)
    pairs = classes * (classes - 1) // 2
    return {
        "vectors_per_class": counts,
        "support_vectors": numbers(count, FEATURES),
        "coefficients": numbers(classes - 1, count),
        "rho": numbers(pairs),
        **labels,
    }


NAMES = {"classlabels_strings": ["a", "b", "c"]}
INTS = {"classlabels_ints": [4, 7, 9, 11]}


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize(("counts", "labels"), [([2, 3, 1], NAMES), ([1, 2, 2, 3], INTS)])
def test_classes_are_voted_for(kind, counts, labels):
    check("SVMClassifier", 2, **machine(counts, labels), **kernel(kind))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_two_classes(transform):
    check(
        "SVMClassifier", 2, **machine([2, 3], {"classlabels_ints": [5, 6]}), **kernel("RBF"),
        post_transform=transform,
    )  # fmt: skip


@pytest.mark.parametrize("counts", [[2, 3], [2, 3, 1], [1, 2, 2, 3]])
def test_probabilities_of_classes(counts):
    pairs = len(counts) * (len(counts) - 1) // 2
    labels = {"classlabels_ints": list(range(10, 10 + len(counts)))}
    more = {"prob_a": (-np.abs(numbers(pairs))).tolist(), "prob_b": numbers(pairs)}
    check("SVMClassifier", 2, **machine(counts, labels), **kernel("RBF"), **more)


def test_a_classifier_without_vectors_is_linear():
    weights = {"coefficients": numbers(3, FEATURES), "rho": [0.1], "classlabels_ints": [1, 2, 3]}
    check("SVMClassifier", 2, **weights, **kernel("LINEAR"))
