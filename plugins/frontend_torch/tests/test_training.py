"""Training through torch.compile: each way gives eager's losses, gradients, parameters and statistics."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import dlc_core as dlc
from dlc_core.op.samples import TOLERANCES

F = nn.functional
# torch warns about its own code while it traces.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def fresh():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch._dynamo.reset()
    dlc.torch.reset()
    yield
    torch.set_num_threads(threads)


class Shared(nn.Module):
    """One weight in two layers, as in tied embeddings."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        rows = (x.abs() * 5).long() % 11
        return F.linear(self.inner(self.table(rows)).tanh(), self.table.weight).mean(1)


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
        self.base.requires_grad_(False)

    def forward(self, x):
        return self.head(self.base(x).relu())


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        y = self.first(x).relu_()
        y = self.norm(y).mul_(2).add_(1)
        y[:, 0] = 0
        return self.last(y)


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6))
        self.last = nn.Linear(6, 3)

    def forward(self, x):
        return self.last(checkpoint(self.inner, x, use_reentrant=False))


class Clipped(torch.autograd.Function):
    """The identity with a gradient of its own."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad.clamp(-0.1, 0.1) * (x > 0)


class OwnFunction(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(Clipped.apply(self.first(x)))


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(F.dropout(F.dropout(self.first(x), 0.3), 0.5))


class Hooked(nn.Module):
    """A hook on a tensor inside of the graph."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        y = self.first(x)
        if y.requires_grad:
            y.register_hook(lambda grad: grad * 0.5)
        return self.last(y.relu())


MODELS = {
    "shared": Shared,
    "frozen": Frozen,
    "in place": InPlace,
    "checkpoint": Checkpointed,
    "own function": OwnFunction,
    "dropout": Dropped,
    "hook": Hooked,
}
OPTIMIZERS = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True),
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=0.01, foreach=False),
    "adamw foreach": lambda ps: torch.optim.AdamW(ps, lr=0.01, foreach=True),
    "sgd foreach": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.01, foreach=True),
    "rmsprop": lambda ps: torch.optim.RMSprop(ps, lr=0.01, momentum=0.9, centered=True, foreach=True),
    "adagrad": lambda ps: torch.optim.Adagrad(ps, lr=0.1, foreach=True),
}


def trained(model, call, optimizer=OPTIMIZERS["sgd"], steps=3, accumulated=1, step=None):
    """The losses of steps. The parameters and buffers of the model are changed."""
    torch.manual_seed(5)
    made = optimizer([each for each in model.parameters() if each.requires_grad])
    losses = []
    for _ in range(steps):
        made.zero_grad()
        for _ in range(accumulated):
            loss = call(torch.randn(7, 6)).square().mean()
            loss.backward()
        losses.append(loss.detach())
        (made.step if step is None else step(made))()
    return torch.stack(losses)


def assert_same_training(model, compile_=None, **options):
    """Train copies of a model in eager and compiled, and compare losses, parameters and buffers."""
    mine, theirs = copy.deepcopy(model), copy.deepcopy(model)
    compiled = torch.compile(mine, backend="dlc") if compile_ is None else compile_(mine)
    torch.testing.assert_close(trained(mine, compiled, **options), trained(theirs, theirs, **options))
    for (name, one), other in zip(mine.state_dict().items(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("name", MODELS)
def test_models_train_as_in_eager(name):
    assert_same_training(MODELS[name]())
    kinds = {graph.kind for graph in dlc.torch.report().graphs}
    assert {"forward", "backward"} <= kinds
    assert not dlc.torch.report().fallbacks


def test_gradients_accumulate():
    assert_same_training(Frozen(), accumulated=3)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_compiled_optimizers_are_those_of_eager(name):
    model = Frozen()
    mine, theirs = copy.deepcopy(model), copy.deepcopy(model)
    compiled_step = lambda made: torch.compile(made.step, backend="dlc")  # noqa: E731
    own = trained(mine, mine, OPTIMIZERS[name], step=compiled_step)
    torch.testing.assert_close(own, trained(theirs, theirs, OPTIMIZERS[name]))
    torch.testing.assert_close(mine.state_dict(), theirs.state_dict())
    assert dlc.torch.report().graphs
    assert not dlc.torch.report().fallbacks


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mixed_precision_with_a_scaler_is_that_of_eager(dtype):
    def run(model, call):
        torch.manual_seed(5)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype):
                made = call(torch.randn(7, 6))
            assert made.dtype == dtype
            loss = made.float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
        return torch.stack(losses), [each.grad for each in model.parameters()]

    model = Dropped()
    mine, theirs = copy.deepcopy(model), copy.deepcopy(model)
    own, expected = run(mine, torch.compile(mine, backend="dlc")), run(theirs, theirs)
    rtol, atol = TOLERANCES[str(dtype).removeprefix("torch.")]
    torch.testing.assert_close(own, expected, rtol=rtol, atol=atol)
    assert not dlc.torch.report().fallbacks


def test_a_graph_is_kept_for_a_second_backward():
    def run(f):
        x = torch.linspace(-1, 1, 6).requires_grad_()
        y = f(x).sum()
        first = torch.autograd.grad(y, x, retain_graph=True)[0]
        return first, torch.autograd.grad(y, x)[0]

    def f(x):
        return (x.sin() * x).exp()

    torch.testing.assert_close(run(torch.compile(f, backend="dlc")), run(f))


def test_double_backward_is_refused_as_by_other_backends():
    def f(x):
        return x.sin() * x

    def twice(backend):
        torch._dynamo.reset()
        x = torch.ones(3, requires_grad=True)
        (grad,) = torch.autograd.grad(torch.compile(f, backend=backend)(x).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError) as caught:
            grad.sum().backward()
        return str(caught.value)

    assert "double backward" in twice("dlc")
    assert twice("dlc") == twice("aot_eager")


FUNCTIONS = {
    "grad": lambda x: torch.func.grad(lambda y: (y.sin() * y).sum())(x),
    "grad of grad": lambda x: torch.func.grad(lambda y: torch.func.grad(torch.sum)(y.pow(3)).mul(y).sum())(x),
    "vmap": lambda x: torch.func.vmap(lambda row: row.softmax(0).cumsum(0))(x),
    "vmap of grad": lambda x: torch.func.vmap(torch.func.grad(lambda row: row.tanh().prod()))(x),
    "jvp": lambda x: torch.func.jvp(lambda y: y.exp().sin(), (x,), (x.cos(),)),
    "jacrev": lambda x: torch.func.jacrev(lambda row: row.sin() * row.sum())(x[0]),
    "jacfwd": lambda x: torch.func.jacfwd(lambda row: row.sin() * row.sum())(x[0]),
    "hessian": lambda x: torch.func.hessian(lambda row: row.pow(3).sum() * row[0])(x[0]),
    "vjp": lambda x: torch.func.vjp(lambda y: y.logsumexp(1), x)[1](x[:, 0]),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_transforms_of_functions_are_those_of_eager(name):
    x = torch.randn(4, 5)
    found = torch.compile(FUNCTIONS[name], backend="dlc", fullgraph=True)(x)
    torch.testing.assert_close(found, FUNCTIONS[name](x))
    assert dlc.torch.report().graphs
    assert not dlc.torch.report().fallbacks
