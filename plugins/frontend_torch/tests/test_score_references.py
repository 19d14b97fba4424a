"""Runs of eager torch that the score compares with: stable sorts, equal random numbers, random roundings."""

from types import SimpleNamespace

import pytest
import torch
from dlc_frontend_torch.registry import CONVERTERS
from dlc_frontend_torch.score import gradients
from dlc_frontend_torch.score.comparing import difference
from dlc_frontend_torch.score.judging import Options
from dlc_frontend_torch.score.references import NumbersOf, RandomRounding, StableSorts
from dlc_frontend_torch.score.samples import operators

pytestmark = pytest.mark.usefixtures("one_thread")


def statuses(name, dtype, limit):
    found = gradients.outcomes(operators()[name], Options((dtype,), limit=limit), lambda dtype, index: None)
    return [each.status for each in found]


@pytest.mark.parametrize("descending", [False, True])
def test_sorts_keep_the_order_of_equal_elements(descending):
    x = torch.arange(600, dtype=torch.float16).remainder(7).reshape(3, 200).requires_grad_()
    wanted = x.sort(dim=1, stable=True, descending=descending)
    with StableSorts():
        found = torch.sort(x, 1, descending)
        (given,) = torch.autograd.grad(found.values[:, :5].sum(), x)
    assert torch.equal(found.indices, wanted.indices)
    assert torch.equal(given.nonzero()[:, 1].reshape(3, 5), wanted.indices[:, :5].sort().values)


def test_gradients_of_equal_elements_are_those_of_stable_sorts():
    """bfloat16 samples of 8000 numbers have many equal ones."""
    assert statuses("msort", "bfloat16", 1) == ["right"]


def test_exact_runs_draw_the_numbers_of_the_dtype():
    mean, deviation = torch.full((40,), 1.0), torch.full((40,), 1e-4)
    torch.manual_seed(0)
    drawn = torch.randn(40, dtype=torch.bfloat16)
    uniform = torch.empty(40, dtype=torch.bfloat16).uniform_()
    torch.manual_seed(0)
    with NumbersOf(torch.bfloat16):
        found = torch.normal(mean.double(), deviation.double())
        assert torch.equal(torch.empty(40, dtype=torch.float64).uniform_(), uniform.double())
    # The arithmetic on the numbers is exact: bfloat16 has no 1 + 1e-4.
    torch.testing.assert_close(found, 1 + 1e-4 * drawn.double(), rtol=1e-8, atol=0)
    torch.manual_seed(0)
    assert not torch.equal(torch.randn(40, dtype=torch.float64), drawn.double())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_results_are_rounded_up_or_down(dtype):
    def third(seed):
        with RandomRounding(dtype, seed):
            return torch.ones(2, dtype=torch.float64) / 3

    found = {number for seed in range(20) for number in third(seed).tolist()}
    assert len(found) == 2
    low, high = sorted(found)
    assert low < 1 / 3 < high
    neighbours = torch.tensor([low, high], dtype=dtype)
    assert neighbours.double().tolist() == [low, high]
    assert high - low == torch.finfo(dtype).eps / 4


def test_numbers_of_the_dtype_stay():
    limits = torch.finfo(torch.float16)
    x = torch.tensor(
        [0.0, 1.5, -limits.tiny, limits.smallest_normal / 1024, limits.max, torch.inf, torch.nan]
    )
    with RandomRounding(torch.float16, 1):
        moved = x.double().expand(2, 7).clone().t()[:]
    torch.testing.assert_close(moved, x.double().expand(2, 7).t(), rtol=0, atol=0, equal_nan=True)


def test_other_roundings_say_how_far_an_element_may_be():
    info = SimpleNamespace(decorators=[])
    exact, eager = [torch.zeros(2, dtype=torch.float64)], torch.zeros(2)
    rounded = [[torch.tensor([0.01, 0.0], dtype=torch.float64)], [torch.tensor([-0.02, 0.0]).double()]]
    near, far, other = (torch.tensor(each) for each in ([0.02, 0.0], [0.03, 0.0], [0.0, 0.01]))
    assert difference(near, eager, info, exact) is not None
    assert difference(near, eager, info, exact, rounded=rounded) is None
    assert difference(far, eager, info, exact, rounded=rounded) is not None
    assert difference(other, eager, info, exact, rounded=rounded) is not None


def test_gradients_whose_terms_cancel():
    """Batch statistics are saved in bfloat16, and the terms of this gradient are larger than their sum."""
    assert statuses("nn.functional.instance_norm", "bfloat16", 1) == ["right"]


def test_a_wrong_gradient_is_no_rounding(monkeypatch):
    monkeypatch.setitem(CONVERTERS, "aten.cos.default", CONVERTERS["aten.sin.default"])
    assert statuses("sin", "bfloat16", 1) == ["wrong"]
