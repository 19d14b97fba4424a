"""Plans of attention: each lowers every sample of the op to what the reference computes."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.algorithms.attention.plan import PLANS, AttentionPlan, Online, Tiled, TiledDots, TwoPass
from dlc_core.diag import UsageError
from dlc_core.graph.node import param
from dlc_core.ir.dtype import DType
from dlc_core.ir.types import tensor_type
from dlc_core.op.declare import Sample
from dlc_core.op.lower import lower_node
from dlc_core.op.reference import evaluate
from dlc_core.op.samples import make_inputs, sample_dtypes, tolerance
from dlc_core.op.std import BY_NAME
from dlc_core.plugin.registry import registry
from dlc_core.testing.cases import symbolic_node
from dlc_core.tir.interpreter import run

ATTENTION = BY_NAME["attention"]
CHOSEN = (Tiled(1, 1), Tiled(1, 2), Tiled(2, 4), Tiled(4, 5), TwoPass(2, 4, 1, 2), TwoPass(3, 2, 1, 1))
DOTS = (TiledDots(2, 4, "float32", 2, 4), TiledDots(3, 12, "float32", 3, 2))
"""Plans whose operands are packed, in groups that divide few of the sizes of the samples."""
ROUNDED = (Online(2, 4, "", 1, 2, 1, False), Online(4, 4, "", 2, 2, 2, True))
"""Plans whose weights are rounded to the dtype of the values."""


def check(sample: Sample, dtype: str, plan: AttentionPlan, symbolic: bool = False) -> None:
    arrays = make_inputs(sample, dtype)
    params = [param(f"x{i}", tensor_type(a.shape, a.dtype)) for i, a in enumerate(arrays)]
    node = ATTENTION.build(*params, **sample.attrs)
    expected = evaluate(node, dict(zip(params, arrays, strict=True)))
    assert isinstance(expected, np.ndarray)
    found = np.zeros_like(expected)
    if symbolic:
        built = symbolic_node(ATTENTION, sample, arrays)
        assert built is not None
        node = built[0]
    planned = ATTENTION.build(*node.args, **node.attrs, plan=plan)
    run(lower_node(planned), *arrays, found, check=True)
    wide = found.astype(np.float64), expected.astype(np.float64)
    rtol, atol = tolerance(ATTENTION, DType.of(expected.dtype))
    np.testing.assert_allclose(*wide, rtol, atol)


@pytest.mark.parametrize("plan", [*CHOSEN, *DOTS, *ROUNDED], ids=str)
@pytest.mark.parametrize("number", range(len(ATTENTION.samples)))
def test_every_sample(plan: AttentionPlan, number: int) -> None:
    sample = ATTENTION.samples[number]
    for dtype in sample_dtypes(ATTENTION, sample):
        if dtype != "float64" or plan not in DOTS:  # their operands are rounded to float32
            check(sample, dtype, plan)


@pytest.mark.parametrize(
    "plan", [Tiled(1, 1), Tiled(2, 4), TwoPass(2, 4, 1, 2), DOTS[0], ROUNDED[0]], ids=str
)
@pytest.mark.parametrize("number", [0, 3, 6, 10])
def test_symbolic_sizes(plan: AttentionPlan, number: int) -> None:
    sample = ATTENTION.samples[number]
    check(sample, "float32", plan, symbolic=True)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Tiled(0, 1),
        lambda: Tiled(2, -1),
        lambda: TiledDots(2, 4, "bfloat16", 0, 4),
        lambda: TwoPass(2, 4, 0, 1),
        lambda: Online(2, 4, "", 1, 0, 1, True),
    ],
)
def test_sizes_are_positive(wrong) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        wrong()


def test_the_registry_finds_them_by_name() -> None:
    known = registry().plans
    assert [known[plan.name] for plan in PLANS] == list(PLANS)
