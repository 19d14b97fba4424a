"""LSTM, GRU and RNN layers: one `scan` over the time steps for each layer and direction.

The inputs of all steps are multiplied with their weights in one GEMM before the scan. The scan contains only
the products with the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc_core.graph.node import CONST, Function, Node, get_item, make_tuple, param
from dlc_core.ir.types import TensorType
from dlc_core.op import std
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten

Step = Callable[[Node, Sequence[Node], Sequence[Node]], Sequence[Node]]
"""(input products of this step, state, weights that the step needs) -> the new state, the output first."""


class _Cell:
    """A kind of layer: the products of one step, and its number of gates and of state tensors.

    `own_bias`: the bias of the state's product is added inside of the step, not to the input products.
    """

    def __init__(self, step: Step, gates: int, states: int, own_bias: bool = False) -> None:
        self.step, self.gates, self.states, self.own_bias = step, gates, states, own_bias


def _parts(joined: Node, count: int) -> list[Node]:
    """The `count` equal slices along the last axis, whose size is known."""
    width = joined.shape[-1]
    assert isinstance(width, int)
    split = std.split(joined, sizes=(width // count,) * count, axis=-1)
    return [get_item(split, index) for index in range(count)]


def _lstm_step(given: Node, state: Sequence[Node], weights: Sequence[Node]) -> Sequence[Node]:
    hidden, memory = state
    own, *projection = weights
    into, forget, update, out = _parts(std.add(given, std.matmul(hidden, own, transpose_b=True)), 4)
    kept = std.mul(std.sigmoid(forget), memory)
    after = std.add(kept, std.mul(std.sigmoid(into), std.tanh(update)))
    made = std.mul(std.sigmoid(out), std.tanh(after))
    for each in projection:
        made = std.matmul(made, each, transpose_b=True)
    return [made, after]


def _gru_step(given: Node, state: Sequence[Node], weights: Sequence[Node]) -> Sequence[Node]:
    (hidden,) = state
    own, *bias = weights
    products = std.matmul(hidden, own, transpose_b=True)
    for each in bias:
        products = std.add(products, each)
    give_reset, give_update, give_new = _parts(given, 3)
    own_reset, own_update, own_new = _parts(products, 3)
    reset = std.sigmoid(std.add(give_reset, own_reset))
    update = std.sigmoid(std.add(give_update, own_update))
    new = std.tanh(std.add(give_new, std.mul(reset, own_new)))
    return [std.add(new, std.mul(update, std.sub(hidden, new)))]


def _plain_step(activation: Callable[[Node], Node]) -> Step:
    def step(given: Node, state: Sequence[Node], weights: Sequence[Node]) -> Sequence[Node]:
        (hidden,) = state
        return [activation(std.add(given, std.matmul(hidden, weights[0], transpose_b=True)))]

    return step


LSTM, GRU = _Cell(_lstm_step, 4, 2), _Cell(_gru_step, 3, 1, own_bias=True)
TANH, RELU = _Cell(_plain_step(std.tanh), 1, 1), _Cell(_plain_step(std.relu), 1, 1)


def _direction(
    cell: _Cell, x: Node, state: Sequence[Node], params: Sequence[Node], biased: bool, backwards: bool
) -> tuple[Node, list[Node]]:
    """The outputs [time, batch, hidden] of one layer in one direction, and its last state [batch, hidden].

    `params` are the weights of the input and of the state, their biases if `biased`, and the weights of the
    projection, if there are more.
    """
    of_input, of_state = params[:2]
    given = std.matmul(x, of_input, transpose_b=True)
    weights = [of_state]
    if biased:
        given = std.add(given, params[2])
        if cell.own_bias:
            weights.append(params[3])
        else:
            given = std.add(given, params[3])
    weights += params[4 if biased else 2 :]
    if backwards:
        given = std.flip(given, axes=(0,))
    begin = [std.identity(each) if each.op is CONST else each for each in state]
    kept = [each for each in weights if each.op is not CONST]
    own = [param(f"state{index}", each.type) for index, each in enumerate(begin)]
    fixed = [param(f"weight{index}", each.type) for index, each in enumerate(kept)]
    now = param("given", TensorType(given.shape[1:], given.dtype))
    inner = iter(fixed)
    after = cell.step(now, own, [each if each.op is CONST else next(inner) for each in weights])
    body = Function("step", (*own, *fixed, now), make_tuple([*after, *fixed, after[0]]))
    made = std.scan(*begin, *kept, given, num_state=len(own) + len(fixed), body=body)
    outputs = get_item(made, len(own) + len(fixed))
    return (
        std.flip(outputs, axes=(0,)) if backwards else outputs,
        [get_item(made, index) for index in range(len(own))],
    )


def _row(value: Node, index: int) -> Node:
    return std.squeeze(std.slice(value, begins=(index,), ends=(index + 1,), axes=(0,)), axes=(0,))


def _layers(
    c: Call,
    cell: _Cell,
    x: Node,
    starts: Sequence[Node],
    params: Sequence[Node],
    biased: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Node, ...]:
    """All layers: the outputs of the last one, and the last states [layers * directions, batch, hidden]."""
    if train and dropout != 0 and layers > 1:
        raise c.unsupported("dropout between the layers outside of inference")
    directions = 2 if bidirectional else 1
    each = len(params) // (layers * directions)
    if batch_first:
        x = std.transpose(x, axes=(1, 0, 2))
    last: list[list[Node]] = []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            number = layer * directions + direction
            state = [_row(start, number) for start in starts]
            own = params[number * each : (number + 1) * each]
            made, final = _direction(cell, x, state, own, biased, backwards=direction == 1)
            outputs.append(made)
            last.append(final)
        x = std.concat(*outputs, axis=-1) if directions == 2 else outputs[0]
    finals = [std.stack(*column, axis=0) for column in zip(*last, strict=True)]
    return (std.transpose(x, axes=(1, 0, 2)) if batch_first else x, *finals)


@aten("lstm.input")
def lstm(c: Call, x: Node, hx: Sequence[Node], params: Sequence[Node], *options: object) -> tuple[Node, ...]:
    out, *states = c.value
    if states[0].ndim == 4:  # torch before 2.10 infers [layers, 1, batch, hidden], and computes three dims
        c.value = (out, *(each.squeeze(1) for each in states))
    return _layers(c, LSTM, x, hx, params, *options)  # type: ignore[arg-type]


@aten("gru.input")
def gru(c: Call, x: Node, hx: Node, params: Sequence[Node], *options: object) -> tuple[Node, ...]:
    return _layers(c, GRU, x, (hx,), params, *options)  # type: ignore[arg-type]


@aten("rnn_tanh.input")
def rnn_tanh(c: Call, x: Node, hx: Node, params: Sequence[Node], *options: object) -> tuple[Node, ...]:
    return _layers(c, TANH, x, (hx,), params, *options)  # type: ignore[arg-type]


@aten("rnn_relu.input")
def rnn_relu(c: Call, x: Node, hx: Node, params: Sequence[Node], *options: object) -> tuple[Node, ...]:
    return _layers(c, RELU, x, (hx,), params, *options)  # type: ignore[arg-type]


@aten("mkldnn_rnn_layer")
def mkldnn_rnn_layer(
    c: Call,
    x: Node,
    of_input: Node,
    of_state: Node,
    input_bias: Node,
    state_bias: Node,
    hidden: Node,
    memory: Node,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> tuple[Node, ...]:
    """One layer of an LSTM in one direction, which torch makes of `lstm` outside of training."""
    if mode != 2 or num_layers != 1 or bidirectional or batch_sizes or train:
        raise c.unsupported("a layer of oneDNN that is no LSTM in one direction, or one in training")
    params = [of_input, of_state, *([input_bias, state_bias] if has_biases else [])]
    rows = [c.reshape(each, each.shape[-2:]) for each in (hidden, memory)]
    # The time steps are the first dim here: torch transposes inputs and outputs around this operator.
    made, final = _direction(LSTM, x, rows, params, has_biases, reverse)
    last = [c.reshape(each, c.symbols.shape(c.value[1 + i].shape)) for i, each in enumerate(final)]
    workspace = c.symbols.shape(c.value[3].shape)
    return (made, *last, std.full(shape=workspace, value=0, dtype=c.dtype_of(c.value[3])))


__all__ = ["gru", "lstm", "mkldnn_rnn_layer", "rnn_relu", "rnn_tanh"]
