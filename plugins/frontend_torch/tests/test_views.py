"""Outputs that are views of inputs, or of other outputs: values, memory and gradients."""

import pytest
import torch

FUNCTIONS = {
    "slice": lambda x: (x[1:], x[:, 2:]),
    "transpose": lambda x: (x.T, x * 2),
    "of_an_output": lambda x: (y := x * 2, y.T, y[1:, 1:]),
    "of_a_view": lambda x: (x.T[1:].reshape(-1, 1, x.shape[0]), x.relu()),
    "split": lambda x: (*x.split(2, 1), x + 1),
    "expand": lambda x: (x[:, :1].expand(-1, 7), x.sum()),
    "select": lambda x: (x[2], x.diagonal()),
}


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_views_are_right(name, dynamic):
    f = FUNCTIONS[name]
    compiled = torch.compile(f, backend="dlc", dynamic=dynamic)
    for rows in (5, 6) if dynamic else (5,):
        x = torch.randn(rows, 4)
        for one, other in zip(compiled(x), f(x), strict=True):
            torch.testing.assert_close(one, other)
            assert one._is_view() == other._is_view() or not other._is_view()
        leaves = [x.clone().requires_grad_() for _ in range(2)]
        for leaf, g in zip(leaves, (f, compiled), strict=True):
            torch.manual_seed(0)
            sum((each * torch.rand_like(each)).sum() for each in g(leaf)).backward()
        torch.testing.assert_close(leaves[1].grad, leaves[0].grad)


def test_a_view_shares_the_memory_of_its_input():
    x = torch.zeros(4, 3)
    row = torch.compile(lambda x: x[2], backend="dlc", dynamic=True)(x)
    row.fill_(1)
    assert x.sum() == 3


def test_inputs_in_another_order_of_dims():
    def f(x, w):
        return torch.nn.functional.linear(x, w) + 1

    x, w = torch.randn(2, 3, 4).permute(0, 2, 1), torch.randn(3, 5).T
    torch.testing.assert_close(torch.compile(f, backend="dlc")(x, w), f(x, w))


MUTATED = {
    "first_row": lambda x: (y := x * 2, y[0]),
    "same_output": lambda x: (y := x * 2, y.view(-1), y),
    "equal_values": lambda x: (x * 2, x * 2),
    "clones": lambda x: (x.clone(), x.clone(), x),
    "views_of_one_base": lambda x: ((y := x + 1).view(-1), y[0]),
    "zeros": lambda x: (x.new_zeros(3), x.new_zeros(3)),
}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", MUTATED)
def test_outputs_share_memory_as_in_eager(name, gradients):
    f, x = MUTATED[name], torch.randn(3, 4, requires_grad=gradients)
    found = []
    for g in (f, torch.compile(f, backend="dlc")):
        results = [each.detach() for each in g(x.detach().clone().requires_grad_(gradients))]
        results[-1].zero_()
        found.append(results)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one.ne(0), other.ne(0))


@pytest.mark.parametrize("dynamic", [False, True])
def test_saved_results_and_views_of_them_may_be_transposed(dynamic):
    """A saved result of attention lies in memory as torch has it, because a view of it is saved too."""
    torch._dynamo.reset()
    project = torch.nn.Linear(8, 8)

    def f(x, y):
        heads = x.view(*x.shape[:2], 2, 4).transpose(1, 2)
        found = torch.nn.functional.scaled_dot_product_attention(heads, heads * y, heads)
        return project(found.transpose(1, 2).reshape(x.shape))

    run = torch.compile(f, backend="dlc", dynamic=dynamic, options={"fallback": False})
    for length in (5, 6) if dynamic else (5,):
        results = []
        for each in (f, run):
            x, y = torch.linspace(-1, 1, 16 * length).view(2, length, 8).requires_grad_(), torch.ones(())
            each(x, y).square().sum().backward()
            results.append([x.grad, project.weight.grad])
            project.zero_grad()
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)
