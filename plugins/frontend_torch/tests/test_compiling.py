"""torch.compile: autocast, modes of gradients, changed modules, graph breaks, options."""

import copy

import pytest
import torch

import dlc_core as dlc
from dlc_core.op.samples import TOLERANCES


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    dlc.torch.reset()


def network():
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 4)
    )


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype, gradients):
    model, x = (
        torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)),
        torch.randn(4, 32),
    )
    compiled = torch.compile(model, backend="dlc")
    results, found = [], []
    for f in (model, compiled):
        with torch.autocast("cpu", dtype=dtype), torch.set_grad_enabled(gradients):
            results.append(f(x))
        if gradients:
            model.zero_grad()
            results[-1].float().sum().backward()
            found.append([each.grad.clone() for each in model.parameters()])
    assert results[1].dtype is dtype
    rtol, atol = TOLERANCES[str(dtype).removeprefix("torch.")]
    torch.testing.assert_close(results[1], results[0], rtol=rtol, atol=atol)
    for one, other in zip(*found, strict=True) if gradients else ():
        torch.testing.assert_close(other, one, rtol=rtol, atol=atol)
    torch.testing.assert_close(compiled(x), model(x))  # without autocast


def weight_in_place(model):
    with torch.no_grad():
        model[0].weight.mul_(1.5)


def loaded(model, assign=False):
    state = {k: v + 0.25 if v.is_floating_point() else v for k, v in model.state_dict().items()}
    model.load_state_dict(state, assign=assign)


def replaced(model):
    model[3].weight = torch.nn.Parameter(model[3].weight.detach() * 2)


CHANGES = {
    "in_place": weight_in_place,
    "load_state_dict": loaded,
    "assigned": lambda model: loaded(model, assign=True),
    "replaced": replaced,
    "new_data": lambda model: setattr(model[0].weight, "data", torch.randn(16, 8)),
    "requires_grad": lambda model: model[0].weight.requires_grad_(False),
    "train": lambda model: model.train(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_a_module_are_seen(name):
    model = network().eval()
    compiled, x = torch.compile(model, backend="dlc"), torch.randn(5, 8)

    def check():
        for context in (torch.no_grad(), torch.enable_grad(), torch.inference_mode()):
            before = copy.deepcopy(model.state_dict())
            results = []
            for f in (model, compiled):
                model.load_state_dict(before)
                torch.manual_seed(3)
                with context:
                    results.append(f(x))
            torch.testing.assert_close(results[1], results[0])
            assert results[0].requires_grad == results[1].requires_grad

    check()
    CHANGES[name](model)
    check()


BREAKS = {
    "print": lambda x: (print("a graph break"), x * 2)[1] + 1,
    "branch": lambda x: x * 2 if x.sum() > 0 else x * 3,
    "item": lambda x: x * x.sum().item(),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", BREAKS)
def test_graph_breaks(name):
    f = BREAKS[name]
    compiled = torch.compile(f, backend="dlc")
    for sign in (1, -1):
        x = sign * torch.rand(3, 4)
        torch.testing.assert_close(compiled(x), f(x))


def test_errors_inside_of_a_call_leave_the_graph_usable():
    def f(x):
        torch._assert_async((x > 0).all(), "x is positive")
        return x.log()

    compiled = torch.compile(f, backend="dlc", fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.ones(3)), torch.zeros(3))
        with pytest.raises(dlc.diag.RuntimeFailure, match="x is positive"):
            compiled(-torch.ones(3))


WRONG = {
    "option": ({"mode": "x"}, "its options: target"),
    "target": ({"target": "foo"}, "known: .*llvm"),
    "precision": ({"precision": "int3"}, "one of float32"),
    "threads": ({"num_threads": -1}, "at least 1"),
    "flag": ({"freeze": "no"}, "True or False"),
    "setting": ({"config": {"nope": 1}}, "no setting of compiles 'nope'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_options_are_refused(name):
    options, text = WRONG[name]
    with pytest.raises(Exception, match=text):
        torch.compile(lambda x: x + 1, backend="dlc", options=options)(torch.ones(3))


def test_dynamic_sizes_are_compiled_once():
    compiled = torch.compile(lambda x: (x * 2).sum(-1), backend="dlc", dynamic=True, fullgraph=True)
    for size in (3, 5, 9):
        x = torch.randn(4, size)
        torch._dynamo.mark_dynamic(x, 1)
        torch.testing.assert_close(compiled(x), (x * 2).sum(-1))
    assert len(dlc.torch.report().graphs) == 1


def test_a_compiled_module_is_copied():
    model, x = network().eval(), torch.randn(5, 8)
    compiled = torch.compile(model, backend="dlc")
    with torch.no_grad():
        compiled(x)
        other = copy.deepcopy(compiled)
        weight_in_place(other._orig_mod)
        torch.testing.assert_close(compiled(x), model(x))
        assert not torch.allclose(other(x), model(x))
