"""Images that the forward graph saves for the backward graph stay channels last in between."""

import torch
from torch import nn

import dlc_core as dlc


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 6, 3, 2, 1), nn.Flatten(), nn.Linear(6 * 16, 4),
    )  # fmt: skip


def step(run, module, x):
    """The saved images, the gradients, and the running statistics of a step."""
    saved = []

    def keep(tensor):
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = run(x).square().sum()
    loss.backward()
    gradients = [each.grad.clone() for each in module.parameters()] + [
        each.clone() for each in module.buffers()
    ]
    module.zero_grad()
    return [each for each in saved if each.dim() == 4], gradients


def copies(module):
    other = network()
    other.load_state_dict(module.state_dict())
    return module, other


def test_saved_images_are_channels_last():
    torch._dynamo.reset()  # modules compiled before have made its sizes symbolic
    module, other = copies(network())
    run = torch.compile(other, backend="dlc", dynamic=False)
    for _ in range(2):
        x = torch.randn(2, 3, 16, 16)
        _, expected = step(module, module, x)
        saved, found = step(run, other, x)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    computed = [
        each for each in saved if each.shape[1] == 8 and each.is_floating_point() and each.shape[2] > 3
    ]
    assert computed
    assert all(each.is_contiguous(memory_format=torch.channels_last) for each in computed)


def test_sizes_may_change():
    module = nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Conv2d(5, 5, 3), nn.ReLU())
    run = torch.compile(module, backend="dlc", dynamic=True)
    for size in (9, 12, 7):
        x = torch.randn(2, 3, size, size)
        _, expected = step(module, module, x)
        _, found = step(run, module, x)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@torch.library.custom_op("dlc_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x.view(-1).mul(2).view(x.shape)


@twice.register_fake
def _(x):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("dlc_tests::squared", mutates_args=())
def squared(x: torch.Tensor) -> torch.Tensor:
    return x * x


@squared.register_fake
def _(x):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


squared.register_autograd(
    lambda ctx, grad: grad * twice(ctx.saved_tensors[0]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


def test_operators_of_torch_get_plain_images():
    """An operator that dlc lacks views a saved image as one dim, in the backward graph."""
    module = nn.Conv2d(3, 5, 3)
    dlc.torch.reset()
    run = torch.compile(lambda x: squared(module(x).relu()), backend="dlc")
    x = torch.randn(2, 3, 8, 8)
    _, expected = step(lambda x: module(x).relu().square(), module, x)
    _, found = step(run, module, x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert any("twice" in each.op for each in dlc.torch.report().fallbacks)
