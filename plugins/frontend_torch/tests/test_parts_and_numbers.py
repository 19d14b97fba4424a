"""Strided views of parts, average pools of integers, and numbers of tensors, against eager."""

import pytest
import torch
from dlc_frontend_torch.score.judging import Options, outcomes
from dlc_frontend_torch.score.samples import operators
from torch.nn import functional as fn

import dlc_core as dlc


def test_strided_views(same_as_eager):
    def f(x):
        part = x[1:3, ::2]
        return (
            part.as_strided((2, 2), (8, 2), 8),
            x.as_strided((3, 3), (1, 2)),
            x.t().as_strided((2,), (5,), 1),
        )

    same_as_eager(f, torch.arange(32.0).reshape(4, 8), gradients=False)


def test_elements_that_a_view_does_not_have_are_refused():
    def f(x):
        return x.as_strided((2, 2), (1, 2), 0)

    x = torch.arange(20.0)[5:15]
    dlc.torch.reset()
    torch._dynamo.reset()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(f, backend="dlc")(x), f(x))
    (found,) = dlc.torch.report().fallbacks
    assert "elements that its operand does not have" in found.why


@pytest.mark.parametrize(
    "options",
    [{}, {"padding": 1}, {"padding": 1, "count_include_pad": False}, {"stride": 2, "ceil_mode": True}],
)
def test_average_pools_of_integers(same_as_eager, options):
    x = torch.randint(-50, 50, (2, 3, 7, 6))
    same_as_eager(lambda x: fn.avg_pool2d(x, 3, **options), x, gradients=False)
    same_as_eager(lambda x: fn.avg_pool2d(x, 2, divisor_override=3), x, gradients=False)


def test_numbers_of_tensors():
    found = outcomes(operators()["item"], Options(("float32", "int64", "bool"), limit=2), lambda *_: None)
    assert {each.status for each in found} == {"right"}
