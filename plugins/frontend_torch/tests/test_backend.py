"""torch.compile(backend="dlc"): inference, training, changed parameters, operators that stay in torch."""

import pytest
import torch

import dlc_core as dlc


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    dlc.torch.reset()


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def test_inference_is_right_for_all_batches():
    model = mlp()
    compiled = torch.compile(model, backend="dlc")
    with torch.no_grad():
        for batch in (5, 7, 9, 1):
            x = torch.randn(batch, 8)
            torch.testing.assert_close(compiled(x), model(x))
    assert all(graph.compiled == graph.nodes for graph in dlc.torch.report().graphs)


def test_changed_parameters_are_seen():
    model = mlp()
    compiled = torch.compile(model, backend="dlc")
    x = torch.randn(5, 8)
    with torch.no_grad():
        for _ in range(6):  # more often than they are packed again
            torch.testing.assert_close(compiled(x), model(x))
            model[0].weight.add_(0.25)


def test_gradients_are_those_of_eager():
    model = mlp()
    compiled = torch.compile(model, backend="dlc")
    x = torch.randn(5, 8)
    compiled(x).square().sum().backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).square().sum().backward()
    for gradient, p in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(gradient, p.grad)
    assert {graph.kind for graph in dlc.torch.report().graphs} == {"forward", "backward"}


def test_what_dlc_lacks_runs_in_torch():
    def f(x):
        return torch.linalg.eigvalsh(x @ x.T).relu() + 1

    x = torch.randn(4, 4)
    torch.testing.assert_close(torch.compile(f, backend="dlc")(x), f(x), rtol=1e-4, atol=1e-4)
    (fallback,) = dlc.torch.report().fallbacks
    assert "eigh" in fallback.op
    assert "test_backend.py" in fallback.where
    with pytest.raises(Exception, match="_linalg_eigh"):
        torch.compile(f, backend="dlc", options={"fallback": False})(x)


def test_unknown_options_are_refused():
    with pytest.raises(Exception, match="no option 'taget'"):
        torch.compile(mlp(), backend="dlc", options={"taget": "llvm"})(torch.randn(1, 8))


def test_sizes_that_no_input_has():
    def f(x, n):
        y = torch.nn.functional.conv1d(x, torch.ones(1, 1, 3), stride=2)
        return torch.linalg.eigvalsh(y[0] @ y[0].T).relu() + y.relu().sum() + n * y.shape[2]

    compiled = torch.compile(f, backend="dlc", dynamic=True)
    for size, n in ((9, 2), (12, 3), (33, 5)):
        x = torch.randn(1, 1, size)
        torch.testing.assert_close(compiled(x, n), f(x, n), rtol=1e-4, atol=1e-4)
    assert len(dlc.torch.report().graphs) == 1
