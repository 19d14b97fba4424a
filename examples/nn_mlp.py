"""A perceptron for digits, 784-256-10, as a Python class: its graph, compiled, run with parameters.

The parameters are inputs of the graph, by their paths.  `params=` makes constants of them, which are repacked
for the kernels while they are compiled; without it they are passed with each call.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import dlc_core as dlc
from dlc_core import nn


class Perceptron(nn.Module):
    def __init__(self) -> None:
        self.fc1 = nn.Linear(784, 256)
        self.relu = nn.ReLU()
        self.fc2 = nn.Linear(256, 10)

    def forward(self, x: nn.Tensor) -> Any:
        return self.fc2(self.relu(self.fc1(x)))


model = Perceptron().init(seed=0)
print(model, "\n")
module = model.to_module({"x": ("batch", 784)})
module.show()

state = model.state_dict()
bound = dlc.compile(module, params=state)
passed = dlc.compile(module)
print(bound)
print(passed, "\n")

x = np.random.default_rng(1).standard_normal((32, 784), np.float32)
hidden = np.maximum(x @ state["fc1.weight"].T + state["fc1.bias"], 0)
expected = hidden @ state["fc2.weight"].T + state["fc2.bias"]
np.testing.assert_allclose(bound(x), expected, rtol=1e-4, atol=1e-5)
np.testing.assert_allclose(passed.run({"x": x, **state})["output"], expected, rtol=1e-4, atol=1e-5)
print("both are equal to NumPy")
print("bound  ", bound.time_evaluator(min_repeat_ms=5)(x[:1]))
print("passed ", passed.time_evaluator(min_repeat_ms=5)(x[:1], *state.values()))

# Other parameters, as they come from a file.
with tempfile.TemporaryDirectory() as folder:
    np.savez(Path(folder, "trained.npz"), **Perceptron().init(seed=1).state_dict())
    other = Perceptron().load_state_dict(nn.read_state(Path(folder, "trained.npz")))
    y = dlc.compile(module, params=other.state_dict())(x)
assert not np.allclose(y, expected)

try:
    model.to_module({"x": ("batch", 28, 28)})
except dlc.DlcError as error:
    print(f"\nrefused: {error}")
