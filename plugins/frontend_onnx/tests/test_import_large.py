"""Results larger than memory are errors of the call, which name the node and the bytes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from dlc_frontend_onnx.testing.compare import model_of

import dlc_core as dlc
from dlc_core.config import config
from dlc_core.diag import LimitError, ModelError, RuntimeFailure

SIDE = 1 << 23
"""Elements along an axis. A square of float32 with this side exceeds every address space."""


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


ONE = np.ones((1, 1), np.float32)
IMAGE = np.ones((1, 1, 2, 2), np.float32)

CASES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "RandomNormal": ([], {"shape": [SIDE, SIDE]}),
    "RandomUniform": ([], {"shape": [SIDE, SIDE]}),
    "ConstantOfShape": ([ints(SIDE, SIDE)], {}),
    "Expand": ([ONE, ints(SIDE, SIDE)], {}),
    "Tile": ([ONE, ints(SIDE, SIDE)], {}),
    "Range": ([np.array(0), np.array(SIDE * SIDE), np.array(1)], {}),
    "OneHot": ([ints(0, 1), ints(SIDE * SIDE), np.array([0, 1], np.float32)], {}),
    "Pad": ([ONE, ints(0, 0, SIDE - 1, SIDE - 1)], {}),
    "Resize": ([IMAGE, None, None, ints(1, 1, SIDE, SIDE)], {}),
    "CenterCropPad": ([ONE, ints(SIDE, SIDE)], {}),
    "Multinomial": ([ONE], {"sample_size": SIDE * SIDE}),
}


@pytest.mark.parametrize("op", CASES)
@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize("target", ["reference", "llvm"])
def test_results_larger_than_memory(op: str, fed: bool, target: str) -> None:
    inputs, attributes = CASES[op]
    given = [k for k, array in enumerate(inputs) if array is not None] if fed else []
    model, feeds = model_of(op, inputs, domain="", imported=18, version=18, fed=given, **attributes)
    with config.override(max_bytes=1 << 50):
        exe = dlc.compile(model, target, cache=False)
    begin = time.perf_counter()
    with pytest.raises(RuntimeFailure, match="memory") as caught:
        exe.run(feeds)
    assert time.perf_counter() - begin < 5
    assert "GiB" in str(caught.value)


def test_the_node_is_named() -> None:
    model, feeds = model_of("RandomNormal", [], domain="", imported=18, version=18, shape=[SIDE, SIDE])
    model.graph.node[0].name = "noise"
    for target in ("reference", "llvm"):
        with (
            config.override(max_bytes=1 << 50),
            pytest.raises(RuntimeFailure, match="'noise'") as caught,
        ):
            dlc.compile(model, target, cache=False).run(feeds)
        assert "2.621e+05 GiB" in str(caught.value)


def test_sizes_beyond_the_limit_are_refused() -> None:
    model, _ = model_of("RandomNormal", [], domain="", imported=18, version=18, shape=[SIDE, SIDE])
    model.graph.node[0].name = "noise"
    with pytest.raises(LimitError, match="DLC_MAX_BYTES") as refused:
        dlc.compile(model, "reference", cache=False)
    assert "'noise'" in str(refused.value)


def test_more_elements_than_int64() -> None:
    model, _ = model_of("RandomNormal", [], domain="", imported=18, version=18, shape=[1 << 62, 4])
    with pytest.raises(ModelError, match="more elements than any memory holds"):
        dlc.compile(model, "reference", cache=False)
