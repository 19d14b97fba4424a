"""Tests of the PyTorch frontend need torch (`make .venv/.ready-torch`); else test_installed.py says so."""

from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

import pytest


def is_installed() -> bool:
    """Whether torch and this package are installed."""
    try:
        distribution("dlc-frontend-torch")
    except PackageNotFoundError:
        return False
    return find_spec("torch") is not None


FILES = {path.name for path in Path(__file__).parent.glob("test_*.py")}
collect_ignore = [] if is_installed() else sorted(FILES - {"test_installed.py"})


@pytest.fixture
def same_as_eager():
    """A check: a function of tensors gives the results and gradients of eager, all of it compiled by dlc.

    `check(f, *args, gradients=True)`: gradients are compared for all floats among the arguments.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()

    def run(f, args, gradients):
        given = [
            each.detach().clone().requires_grad_(gradients and each.is_floating_point())
            if isinstance(each, torch.Tensor)
            else each
            for each in args
        ]
        made = f(*given)
        results = list(made) if isinstance(made, (tuple, list)) else [made]
        if not gradients:
            return results
        torch.manual_seed(1)
        roots = [each for each in results if each.requires_grad]
        leaves = [each for each in given if isinstance(each, torch.Tensor) and each.requires_grad]
        seeds = [torch.randn_like(each) for each in roots]
        return results + list(torch.autograd.grad(roots, leaves, seeds))

    def check(f, *args, gradients=True, **tolerances):
        compiled = torch.compile(f, backend="dlc", options={"fallback": False}, dynamic=False)
        with torch.set_grad_enabled(gradients):
            found, wanted = (run(each, args, gradients) for each in (compiled, f))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, equal_nan=True, **tolerances)

    yield check
    torch.set_num_threads(threads)


@pytest.fixture
def one_thread():
    """torch computes with one thread, because others use the cores."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
