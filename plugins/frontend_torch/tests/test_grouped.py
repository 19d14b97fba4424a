"""Products of groups of rows with matrices, as experts of a mixture have them."""

import pytest
import torch

import dlc_core as dlc

pytest.importorskip("transformers", reason="transformers is not installed: it declares the operator")

import transformers.integrations.moe  # noqa: F401  (declares the operator)


class Grouped(torch.nn.Module):
    def __init__(self, groups, k=8, n=16, dtype=torch.float32):
        super().__init__()
        random = torch.Generator().manual_seed(0)
        self.weights = torch.nn.Parameter(torch.randn(groups, k, n, generator=random).to(dtype))

    def forward(self, x, ends):
        return torch.ops.transformers.grouped_mm_fallback(x, self.weights, ends)


def drawn(rows):
    return torch.randn(rows, 8, generator=torch.Generator().manual_seed(rows))


def compared(exe, module, x, ends):
    found = exe.run({"x": x, "ends": ends})
    expected = module(x, ends).detach()
    torch.testing.assert_close(torch.from_numpy(next(iter(found.values()))), expected)


@pytest.mark.parametrize(
    ("rows", "ends"),
    [
        (40, [10, 20, 30, 40]),
        (40, [0, 40, 40, 40]),  # groups without rows
        (40, [1, 1, 18, 35]),  # rows of no group, and groups that are longer than a block
        (40, [0, 0, 0, 0]),
        (3, [1, 1, 2, 3]),  # fewer rows than groups
        (1, [0, 0, 0, 1]),
        (300, [299, 299, 300, 300]),
        (40, [40]),
    ],
)
def test_rows_of_groups_are_multiplied_with_their_matrix(rows, ends):
    module = Grouped(len(ends))
    x, ends = drawn(rows), torch.tensor(ends, dtype=torch.int32)
    exe = dlc.compile(torch.export.export(module, (x, ends)), num_threads=1)
    compared(exe, module, x, ends)


def test_one_program_has_any_ends_and_numbers_of_rows():
    module = Grouped(3)
    shapes = {"x": {0: torch.export.Dim("rows")}, "ends": None}
    example = (drawn(40), torch.tensor([10, 20, 40]))
    exe = dlc.compile(torch.export.export(module, example, dynamic_shapes=shapes), num_threads=1)
    for rows, ends in [
        (40, [10, 20, 40]),
        (2, [0, 1, 2]),
        (1, [1, 1, 1]),
        (97, [33, 66, 96]),
        (64, [0, 64, 64]),
    ]:
        compared(exe, module, drawn(rows), torch.tensor(ends))


def test_groups_of_narrow_floats():
    module = Grouped(4, dtype=torch.bfloat16)

    def call(x, ends):
        return torch._grouped_mm(x, module.weights, offs=ends)

    x, ends = drawn(40).to(torch.bfloat16), torch.tensor([3, 20, 20, 40], dtype=torch.int32)
    dlc.torch.reset()
    with torch.no_grad():
        found = torch.compile(call, backend="dlc")(x, ends)
    assert dlc.torch.report().graphs
    assert not dlc.torch.report().fallbacks
    torch.testing.assert_close(found, call(x, ends).detach())


def test_gradients_of_groups():
    module = Grouped(4)
    x, ends = drawn(40).requires_grad_(), torch.tensor([3, 20, 20, 38])
    dlc.torch.reset()
    given = (x, module.weights)
    found = torch.autograd.grad(torch.compile(module, backend="dlc")(x, ends).square().sum(), given)
    expected = torch.autograd.grad(module(x, ends).square().sum(), given)
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other)
