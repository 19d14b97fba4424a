"""Distinct elements and slices are those of eager, compiled by dlc."""

import pytest
import torch

NAN = float("nan")
NUMBERS = torch.tensor([[3, 1, 3], [2, 1, 7]])
ROWS = torch.tensor([[1, 2], [0, 5], [1, 2]])
CASES = {
    "elements": (torch.unique, NUMBERS),
    "all results": (lambda x: torch.unique(x, return_inverse=True, return_counts=True), NUMBERS),
    "counts": (lambda x: torch.unique(x, return_counts=True), torch.tensor([1.0, NAN, 0.0, -0.0, NAN, 1.0])),
    "inverse": (lambda x: torch._unique(x, False, True), NUMBERS),
    "rows": (lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True), ROWS),
    "columns": (lambda x: torch.unique(x, dim=-1, return_counts=True), ROWS),
    "one number": (lambda x: torch.unique(x, return_inverse=True), torch.tensor(4)),
    "no numbers": (torch.unique, NUMBERS[:0]),
}


@pytest.mark.parametrize("name", CASES)
def test_distinct_elements_are_those_of_eager(name):
    torch._dynamo.reset()
    function, x = CASES[name]
    compiled = torch.compile(function, backend="dlc", fullgraph=True, options={"fallback": False})
    torch.testing.assert_close(compiled(x), function(x), equal_nan=True)


def test_gradients_of_filled_slices_sum_over_distinct_indices(same_as_eager):
    at = torch.tensor([2, 0, 2])
    same_as_eager(lambda x, value: x.index_fill(0, at, value), torch.randn(4, 3), torch.tensor(1.5))
