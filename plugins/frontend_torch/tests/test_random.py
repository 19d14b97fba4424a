"""Random numbers are those that eager draws."""

import pytest
import torch

import dlc_core as dlc


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    dlc.torch.reset()


def both(f, *args):
    """The results of eager and of the compiled function from the same seed, and the generators after them."""
    compiled = torch.compile(f, backend="dlc")
    found = []
    for each in (f, compiled, compiled):
        torch.manual_seed(3)
        found.append((each(*args), torch.get_rng_state()))
    return found


@pytest.mark.parametrize(
    "f",
    [
        lambda x: torch.nn.functional.dropout(x, 0.3),
        lambda x: torch.nn.functional.dropout(x.T, 0.3) + torch.rand(4),
        lambda x: x + torch.randn_like(x) * torch.rand(4, 1),
        lambda x: x.bernoulli() + x,
    ],
)
def test_numbers_are_those_of_eager(f):
    eager, *others = both(f, torch.rand(4, 2))
    for found in others:
        torch.testing.assert_close(found[0], eager[0])
        assert torch.equal(found[1], eager[1])


def test_dropout_in_training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))
    x = torch.randn(6, 4)
    found = []
    for each in (model, torch.compile(model, backend="dlc")):
        torch.manual_seed(1)
        each(x).square().sum().backward()
        found.append([p.grad.clone() for p in model.parameters()])
        model.zero_grad()
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
