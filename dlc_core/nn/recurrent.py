"""Recurrent layers: RNN, LSTM and GRU over sequences, and their cells for single steps.

The inputs of all steps are multiplied with their weights in one GEMM before the recurrence, which contains
only what depends on the state. Gates have PyTorch's order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any, ClassVar

from dlc_core.diag import UsageError
from dlc_core.graph.node import Function, make_tuple, param
from dlc_core.ir.types import tensor_type
from dlc_core.nn.checks import expect
from dlc_core.nn.module import Module, Parameter
from dlc_core.nn.tensor import Tensor, call, call_many, concat, matmul, relu, sigmoid, split, tanh, type_text

Step = Callable[[Tensor, Tensor, Sequence[Tensor]], tuple[Tensor, ...]]
"""(products of the input, products of the hidden state, state) -> new state, the hidden state first."""


def lstm_step(given: Tensor, recurrent: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The new hidden and cell state; gates: input, forget, cell, output (Hochreiter, Schmidhuber, 1997)."""
    into, forget, cell, out = _gates(given + recurrent, 4)
    memory = sigmoid(forget) * state[1] + sigmoid(into) * tanh(cell)
    return sigmoid(out) * tanh(memory), memory


def gru_step(given: Tensor, recurrent: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The new hidden state; gates are reset, update, new (arXiv:1406.1078, reset after the product)."""
    give_reset, give_update, give_new = _gates(given, 3)
    own_reset, own_update, own_new = _gates(recurrent, 3)
    update = sigmoid(give_update + own_update)
    new = tanh(give_new + sigmoid(give_reset + own_reset) * own_new)
    return ((1 - update) * new + update * state[0],)


def rnn_step(activation: Callable[[Tensor], Tensor]) -> Step:
    """activation(given + recurrent)"""
    return lambda given, recurrent, state: (activation(given + recurrent),)


def _gates(joined: Tensor, count: int) -> tuple[Tensor, ...]:
    size = joined.shape[-1] // count
    return split(joined, (size,) * count, axis=-1)


def _nonlinearity(name: str) -> Step:
    known = {"tanh": tanh, "relu": relu}
    if name not in known:
        raise UsageError(f"nonlinearity {name!r}", hint="tanh or relu")
    return rnn_step(known[name])


class _Cell(Module):
    """One step: `weight_ih` (gates hidden, in), `weight_hh` (gates hidden, hidden), and two biases."""

    gates: ClassVar[int]
    states: ClassVar[int] = 1

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, dtype: str = "float32") -> None:
        self.input_size, self.hidden_size = input_size, hidden_size
        for name, value in _weights(self.gates, input_size, hidden_size, bias, dtype).items():
            setattr(self, name, value)

    def _step(self) -> Step:
        raise NotImplementedError(f"{type(self).__name__}._step")

    def forward(self, x: Tensor, state: Any = None) -> Any:
        """The new state from the input (n, input_size) and the state, by default zeros."""
        expect(x, -1, self.input_size)
        if x.ndim != 2:
            raise UsageError("the cell needs (n, features)", why=f"the input is {type_text(x)}")
        before = _states(state, self.states) or [_zeros((x.shape[0], self.hidden_size), x)] * self.states
        given = _affine(x, self._parameters["weight_ih"], self._parameters.get("bias_ih"))
        recurrent = _affine(before[0], self._parameters["weight_hh"], self._parameters.get("bias_hh"))
        after = self._step()(given, recurrent, before)
        return after if self.states > 1 else after[0]

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


class LSTMCell(_Cell):
    """One step of an LSTM: the new (h, c) of (n, hidden_size) from the input (n, input_size) and (h, c).

    cell = nn.LSTMCell(16, 32)
    h, c = cell(x, (h, c))        # in forward
    """

    gates, states = 4, 2

    def _step(self) -> Step:
        return lstm_step


class GRUCell(_Cell):
    """One step of a GRU: the new h (n, hidden_size) from the input (n, input_size) and h."""

    gates = 3

    def _step(self) -> Step:
        return gru_step


class RNNCell(_Cell):
    """One step of a plain recurrent network: tanh or relu of the sum of both products."""

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        dtype: str = "float32",
    ) -> None:
        super().__init__(input_size, hidden_size, bias, dtype)
        self._activation = _nonlinearity(nonlinearity)

    def _step(self) -> Step:
        return self._activation


class _Recurrent(Module):
    """Layers of a recurrence over sequences; the parameters of layer k have the suffix `_lk`."""

    gates: ClassVar[int]
    states: ClassVar[int] = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: str = "float32",
    ) -> None:
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.batch_first, self.dropout, self.bidirectional = batch_first, dropout, bidirectional
        self.directions = 2 if bidirectional else 1
        for layer in range(num_layers):
            features = input_size if layer == 0 else hidden_size * self.directions
            for direction in range(self.directions):
                made = _weights(self.gates, features, hidden_size, bias, dtype)
                for name, value in made.items():
                    setattr(self, name + _suffix(layer, direction), value)

    def _step(self) -> Step:
        raise NotImplementedError(f"{type(self).__name__}._step")

    def forward(self, x: Tensor, state: Any = None) -> Any:
        """The outputs of all steps, and the last state: (output, h), or (output, (h, c)) for an LSTM.

        `x` is (steps, n, input_size), or (n, steps, input_size) with `batch_first`. States are
        (layers directions, n, hidden_size), by default zeros. The output has the layout of `x`.
        """
        if x.ndim != 3:
            raise UsageError("the layer needs (steps, n, features)", why=f"the input is {type_text(x)}")
        expect(x, -1, self.input_size)
        steps = x.transpose(1, 0, 2) if self.batch_first else x
        starts = _states(state, self.states)
        finals: list[Sequence[Tensor]] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(self.directions):
                number = layer * self.directions + direction
                before = [_row(s, number) for s in starts] or [self._start(steps)] * self.states
                output, after = self._sequence(steps, before, _suffix(layer, direction), direction == 1)
                outputs.append(output)
                finals.append(after)
            steps = outputs[0] if len(outputs) == 1 else concat(outputs, axis=-1)
        last = tuple(call("stack", *column, axis=0) for column in zip(*finals, strict=True))
        result = steps.transpose(1, 0, 2) if self.batch_first else steps
        return result, last if self.states > 1 else last[0]

    def _start(self, steps: Tensor) -> Tensor:
        return _zeros((steps.shape[1], self.hidden_size), steps)

    def _sequence(
        self, x: Tensor, state: Sequence[Tensor], suffix: str, backwards: bool
    ) -> tuple[Tensor, list[Tensor]]:
        """The outputs (steps, n, hidden_size) of one direction, and its last state."""
        own = self._parameters
        given = _affine(x, own[f"weight_ih{suffix}"], own.get(f"bias_ih{suffix}"))
        if backwards:
            given = call("flip", given, axes=(0,))
        fixed = [own[f"weight_hh{suffix}"], *([own[f"bias_hh{suffix}"]] if f"bias_hh{suffix}" in own else [])]
        body = _body(self._step(), given, state, fixed)
        made = call_many("scan", *state, *fixed, given, num_state=len(state) + len(fixed), body=body)
        output = call("flip", made[-1], axes=(0,)) if backwards else made[-1]
        return output, list(made[: len(state)])

    def extra_repr(self) -> str:
        layers = f", num_layers={self.num_layers}" if self.num_layers > 1 else ""
        return f"{self.input_size}, {self.hidden_size}{layers}" + (
            ", bidirectional=True" if self.bidirectional else ""
        )


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997) over sequences, of one or several layers.

        lstm = nn.LSTM(64, 128, num_layers=2, batch_first=True)
        output, (h, c) = lstm(x)                    # in forward; x (n, steps, 64), output (n, steps, 128)
        output, (h, c) = lstm(x, (h, c))            # h and c (2, n, 128)

    Parameters: `weight_ih_l0` (4 hidden, in), `weight_hh_l0` (4 hidden, hidden), `bias_ih_l0`, `bias_hh_l0`,
    those of further layers and, with the suffix `_reverse`, of the other direction. `dropout` does nothing.
    """

    gates, states = 4, 2

    def _step(self) -> Step:
        return lstm_step


class GRU(_Recurrent):
    """Gated recurrent units (arXiv:1406.1078) over sequences; see `LSTM`.

        output, h = nn.GRU(64, 128)(x)              # x (steps, n, 64), output (steps, n, 128)

    The parameters have 3 gates: reset, update, new.
    """

    gates = 3

    def _step(self) -> Step:
        return gru_step


class RNN(_Recurrent):
    """A plain recurrent network: h = tanh(W x + b + U h + c), or relu by `nonlinearity`; see `LSTM`."""

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: str = "float32",
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, dtype
        )
        self._activation = _nonlinearity(nonlinearity)

    def _step(self) -> Step:
        return self._activation


def _suffix(layer: int, direction: int) -> str:
    return f"_l{layer}{'_reverse' if direction else ''}"


def _weights(gates: int, inputs: int, hidden: int, bias: bool, dtype: str) -> dict[str, Parameter]:
    bound = 1 / sqrt(max(1, hidden))
    shapes: dict[str, tuple[int, ...]] = {
        "weight_ih": (gates * hidden, inputs),
        "weight_hh": (gates * hidden, hidden),
    }
    if bias:
        shapes |= {"bias_ih": (gates * hidden,), "bias_hh": (gates * hidden,)}
    return {name: Parameter(shape, dtype, bound) for name, shape in shapes.items()}


def _affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product = matmul(x, weight, transpose_b=True)
    return product if bias is None else product + bias


def _states(state: Any, count: int) -> list[Tensor]:
    """The tensors of a given state; none if it is None."""
    if state is None:
        return []
    given = list(state) if isinstance(state, (tuple, list)) else [state]
    if len(given) != count or not all(isinstance(s, Tensor) for s in given):
        raise UsageError(
            f"the state has {len(given)} tensors", hint="(h, c)" if count > 1 else "one tensor, h"
        )
    return given


def _row(states: Tensor, number: int) -> Tensor:
    part = call("slice", states, begins=(number,), ends=(number + 1,), axes=(0,))
    return call("squeeze", part, axes=(0,))


def _zeros(shape: Sequence[Any], like: Tensor) -> Tensor:
    return call("full", shape=tuple(shape), value=0.0, dtype=like.dtype)


def _body(step: Step, given: Tensor, state: Sequence[Tensor], fixed: Sequence[Tensor]) -> Function:
    """One iteration: the state and the weights, which stay, then the products of this step's input."""
    own = [Tensor(param(f"state{i}", value.node.tensor_type)) for i, value in enumerate(state)]
    kept = [Tensor(param(f"weight{i}", value.node.tensor_type)) for i, value in enumerate(fixed)]
    now = Tensor(param("given", tensor_type(given.shape[1:], given.dtype)))
    after = step(now, _affine(own[0], kept[0], kept[1] if len(kept) > 1 else None), own)
    results = [value.node for value in (*after, *kept, after[0])]
    return Function("step", tuple(t.node for t in (*own, *kept, now)), make_tuple(results))


__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]
