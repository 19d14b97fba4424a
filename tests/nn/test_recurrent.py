"""Recurrent layers and their cells against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import nn
from dlc_core.diag import DlcError

RNG = np.random.default_rng(5)


def data(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def run(model, *arrays, specs=None, target="reference"):
    shapes = specs or [nn.Spec(a.shape, str(a.dtype)) for a in arrays]
    module = model.init(1).to_module({f"x{i}": shape for i, shape in enumerate(shapes)})
    found = dlc.compile(module, target, params=model.state_dict())(*arrays)
    return found if isinstance(found, tuple) else (found,)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(given, own, state):
    into, forget, cell, out = np.split(given + own, 4, -1)
    memory = sigmoid(forget) * state[1] + sigmoid(into) * np.tanh(cell)
    return sigmoid(out) * np.tanh(memory), memory


def gru(given, own, state):
    (give_r, give_z, give_n), (own_r, own_z, own_n) = np.split(given, 3, -1), np.split(own, 3, -1)
    update = sigmoid(give_z + own_z)
    new = np.tanh(give_n + sigmoid(give_r + own_r) * own_n)
    return ((1 - update) * new + update * state[0],)


STEPS = {
    nn.LSTM: lstm,
    nn.GRU: gru,
    nn.RNN: lambda given, own, state: (np.tanh(given + own),),
}
CELLS = {nn.LSTM: nn.LSTMCell, nn.GRU: nn.GRUCell, nn.RNN: nn.RNNCell}


def sequence(step, x, state, weights):
    """The outputs (steps, n, hidden) and the last state of one direction."""
    outputs = []
    for row in x:
        given = row @ weights["weight_ih"].T + weights.get("bias_ih", 0)
        own = state[0] @ weights["weight_hh"].T + weights.get("bias_hh", 0)
        state = step(given, own, state)
        outputs.append(state[0])
    return np.stack(outputs), state


def expected(layer, x, starts):
    """The output and the last states of a layer, in its layout."""
    values, step = layer.state_dict(), STEPS[type(layer)]
    finals = []
    for number in range(layer.num_layers):
        outputs = []
        for direction in range(layer.directions):
            suffix = f"_l{number}" + ("_reverse" if direction else "")
            weights = {n.removesuffix(suffix): v for n, v in values.items() if n.endswith(f"h{suffix}")}
            row = number * layer.directions + direction
            made, last = sequence(step, x[::-1] if direction else x, [s[row] for s in starts], weights)
            outputs.append(made[::-1] if direction else made)
            finals.append(last)
        x = np.concatenate(outputs, -1)
    return x, [np.stack(column) for column in zip(*finals, strict=True)]


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize(
    "options",
    [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}, {"batch_first": True, "num_layers": 2}],
    ids=["plain", "two layers, both directions", "without biases", "batch first"],
)
def test_sequences(kind, options):
    layer, x = kind(4, 3, **options), data(6, 2, 4)
    rows = layer.num_layers * layer.directions
    for starts in ((), [data(rows, 2, 3) for _ in range(2 if kind is nn.LSTM else 1)]):
        first = x.transpose(1, 0, 2) if layer.batch_first else x

        class WithState(nn.Module):
            def __init__(self):
                self.layer = layer

            def forward(self, x, *state):
                return self.layer(x, (state if len(state) > 1 else state[0]) if state else None)

        output, *finals = run(WithState(), first, *starts)
        zeros = [np.zeros((rows, 2, 3), np.float32)] * (2 if kind is nn.LSTM else 1)
        made, states = expected(layer, x, starts or zeros)
        close(output, made.transpose(1, 0, 2) if layer.batch_first else made)
        for found, wanted in zip(finals, states, strict=True):
            close(found, wanted)


@pytest.mark.parametrize("kind", STEPS)
def test_parameters_have_the_usual_names_and_shapes(kind):
    layer = kind(4, 3, num_layers=2, bidirectional=True)
    gates = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}[kind]
    shapes = {name: value.type.static_shape() for name, value in layer.named_parameters()}
    assert shapes["weight_ih_l0"] == (gates * 3, 4)
    assert shapes["weight_hh_l0_reverse"] == (gates * 3, 3)
    assert shapes["weight_ih_l1"] == (gates * 3, 6)
    assert shapes["bias_hh_l1_reverse"] == (gates * 3,)
    assert len(shapes) == 16
    assert repr(layer) == f"{kind.__name__}(4, 3, num_layers=2, bidirectional=True)"


@pytest.mark.parametrize("kind", STEPS)
def test_cells(kind):
    cell, x = CELLS[kind](4, 3).init(2), data(2, 4)
    states = [data(2, 3) for _ in range(2 if kind is nn.LSTM else 1)]

    class Pair(nn.Module):
        def __init__(self):
            self.cell = cell

        def forward(self, x, *state):
            return self.cell(x, state if len(state) > 1 else state[0])

    found = run(Pair(), x, *states)
    weights = cell.state_dict()
    assert list(weights) == ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]
    _, wanted = sequence(STEPS[kind], x[None], states, weights)
    for one, other in zip(found, wanted, strict=True):
        close(one, other)
    zeros = [np.zeros_like(s) for s in states]
    for one, other in zip(run(cell, x), sequence(STEPS[kind], x[None], zeros, weights)[1], strict=True):
        close(one, other)


def test_relu_is_a_nonlinearity():
    cell, x = nn.RNNCell(4, 3, nonlinearity="relu").init(1), data(2, 4)
    w = cell.state_dict()
    close(run(cell, x)[0], np.maximum(x @ w["weight_ih"].T + w["bias_ih"] + w["bias_hh"], 0))
    with pytest.raises(DlcError, match="nonlinearity 'sigmoid'"):
        nn.RNN(4, 3, nonlinearity="sigmoid")


class Tagger(nn.Module):
    def __init__(self):
        self.words = nn.Embedding(20, 6)
        self.lstm = nn.LSTM(6, 5, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(10, 4)

    def forward(self, words):
        hidden, _ = self.lstm(self.words(words))
        return nn.softmax(self.tags(hidden))


def test_sequences_of_any_length_are_native():
    model = Tagger().init(0)
    module = model.to_module({"words": nn.Spec(("batch", "steps"), "int64")})
    native = dlc.compile(module, "llvm", params=model.state_dict())
    plain = dlc.compile(module, "reference", params=model.state_dict())
    for shape in ((1, 1), (3, 7)):
        words = RNG.integers(0, 20, shape)
        close(native(words), plain(words))


@pytest.mark.parametrize(
    ("layer", "shapes", "said"),
    [
        (nn.LSTM(4, 3), [(2, 4)], "needs \\(steps, n, features\\)"),
        (nn.GRU(4, 3), [(2, 2, 5)], "needs 4 in dim -1"),
        (nn.LSTMCell(4, 3), [(2, 2, 4)], "the cell needs \\(n, features\\)"),
        (nn.LSTM(4, 3), [(2, 2, 4), (1, 2, 3)], "the state has 1 tensors"),
        (nn.GRUCell(4, 3), [(2, 5)], "needs 4 in dim -1"),
    ],
)
def test_wrong_inputs_are_refused(layer, shapes, said):
    with pytest.raises(DlcError, match=said):
        layer.to_module({f"x{i}": shape for i, shape in enumerate(shapes)})
