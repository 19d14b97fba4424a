"""Gradients of operators that torch does not decompose: they are those of eager, and none runs in torch."""

import pytest
import torch

import dlc_core as dlc

F = torch.nn.functional


RANDOM = torch.Generator().manual_seed(0)


def floats(*shape):
    return torch.randn(*shape, generator=RANDOM)


def grid(*shape):
    return torch.rand(*shape, generator=RANDOM) * 3 - 1.5  # some points are outside


INDICES = torch.tensor([1, 4, 4, 2, 0, 3, 1])
OFFSETS = torch.tensor([0, 3, 3, 5])
MASK = torch.tensor([[True, False, True], [False, True, False]])


def bags(**options):
    return lambda table: F.embedding_bag(INDICES, table, OFFSETS, **options)


def sampled(mode, padding, corners):
    return lambda x, at: F.grid_sample(x, at, mode, padding, align_corners=corners)


CASES = {
    **{f"cdist-{p}": (lambda x, y, p=p: torch.cdist(x, y, p), floats(2, 5, 3), floats(4, 3))
       for p in (0.5, 1.0, 1.5, 2.0, 3.0, float("inf"))},
    **{f"pdist-{p}": (lambda x, p=p: F.pdist(x, p), floats(6, 4)) for p in (1.0, 2.0, 3.5, float("inf"))},
    "cdist of equal vectors": (lambda x: torch.cdist(x, x.detach()), floats(3, 2)),
    "bags-sum": (bags(), floats(5, 3)),
    "bags-mean": (bags(mode="mean"), floats(5, 3)),
    "bags-max": (bags(mode="max"), floats(5, 3)),
    "bags-padding": (bags(mode="mean", padding_idx=4), floats(5, 3)),
    "bags-weights": (lambda table, w: bags(per_sample_weights=w, mode="sum")(table), floats(5, 3), floats(7)),
    "bags-last offset": (lambda table: F.embedding_bag(INDICES, table, torch.tensor([0, 3, 7]),
                                                       include_last_offset=True), floats(5, 3)),
    **{f"grid 2d-{mode}-{padding}-{corners}": (
        sampled(mode, padding, corners), floats(2, 3, 5, 4), grid(2, 3, 6, 2))
       for mode, padding, corners in (
           ("bilinear", "border", True), ("bilinear", "reflection", False), ("nearest", "zeros", True))},
    **{f"grid 3d-{mode}-{padding}": (
        sampled(mode, padding, False), floats(2, 3, 5, 4, 3), grid(2, 2, 3, 4, 3))
       for mode, padding in (("bilinear", "zeros"), ("nearest", "border"))},
    "masked_scatter": (lambda x, source: x.masked_scatter(MASK, source), floats(2, 3), floats(5)),
    "mode": (lambda x: torch.mode(x.round(), 1)[0] + x.mode(0).values.sum(), floats(6, 7)),
    "bilinear": (F.bilinear, floats(5, 3), floats(5, 4), floats(2, 3, 4)),
    "logcumsumexp": (lambda x: torch.logcumsumexp(x * 3000, 0), floats(5, 4)),
    "fractional pool": (lambda x: F.fractional_max_pool2d(
        x, 2, output_size=(5, 4), _random_samples=torch.full((2, 3, 2), 0.3)), floats(2, 3, 9, 8)),
    "rrelu": (lambda x: F.rrelu(x, 0.1, 0.5), floats(4, 5)),
    "sgn": (lambda x: torch.sgn(x), floats(4, 5)),
    "joined parts without elements": (lambda x: F.glu(x.sin(), 2), floats(0, 3, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_eager(name, same_as_eager):
    function, *arguments = CASES[name]
    same_as_eager(function, *arguments)


@pytest.mark.slow
@pytest.mark.parametrize("padding", ["zeros", "reflection"])
def test_gradients_of_cubic_grids_are_those_of_eager(padding, same_as_eager):
    same_as_eager(sampled("bicubic", padding, False), floats(2, 3, 5, 4), grid(2, 3, 6, 2))


def test_random_slopes_are_those_of_torch():
    def run(function):
        torch.manual_seed(4)
        x = torch.linspace(-2, 1, 12).requires_grad_()
        made = function(x)
        return made.detach(), torch.autograd.grad(made.sum(), x)[0]

    def rrelu(x):
        return F.rrelu(x, 0.1, 0.9, training=True) * 2

    dlc.torch.reset()
    found = run(torch.compile(rrelu, backend="dlc", fullgraph=True))
    torch.testing.assert_close(found, run(rrelu))
    assert [each.op for each in dlc.torch.report().fallbacks] == ["aten.rrelu_with_noise_functional.default"]


def test_sizes_that_data_decide_cross_from_the_forward_to_the_backward_graph():
    def f(x):
        return torch.masked_select(x, x > 4.5).exp2()

    compiled = torch.compile(f, backend="dlc", fullgraph=True, options={"fallback": False})
    for factor in (1.0, 0.5, 0.4):
        found, wanted = (torch.arange(12.0).mul(factor).requires_grad_() for _ in range(2))
        made, expected = compiled(found), f(wanted)
        torch.testing.assert_close(made, expected)
        made.cumsum(0).sum().backward()
        expected.cumsum(0).sum().backward()
        torch.testing.assert_close(found.grad, wanted.grad)


def test_attention_with_large_scores_is_as_precise_as_eager():
    def run(function, dtype=torch.float32):
        torch.manual_seed(3)
        given = [(torch.rand(2, 4, 16, 8) * 18 - 9).to(dtype).requires_grad_() for _ in range(3)]
        made = function(*given)
        return [made, *torch.autograd.grad(made.sum(), given)]

    attention = F.scaled_dot_product_attention
    exact = run(attention, torch.float64)
    own, eager = run(torch.compile(attention, backend="dlc")), run(attention)
    for mine, theirs, true in zip(own, eager, exact, strict=True):
        limit = 3 * (theirs - true).abs().mean() + 1e-7
        assert (mine - true).abs().mean() <= limit
