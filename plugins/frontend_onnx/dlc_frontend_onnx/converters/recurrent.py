"""RNN, GRU, LSTM: one `scan` over the time steps per direction.

The inputs of all steps are multiplied with their weights in one GEMM before the scan. The scan contains only
what depends on the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dlc_core.graph.node import Node, get_item, param
from dlc_core.ir.types import TensorType
from dlc_core.op import std
from dlc_frontend_onnx.closures import close
from dlc_frontend_onnx.converters.base import MICROSOFT, Call, converter
from dlc_frontend_onnx.converters.quantize import dequantized, dynamic_quantize_linear, shaped

Activation = Callable[[Node], Node]


@dataclass(frozen=True)
class Cell:
    """The weights of one direction, in the layout of the operator without the axis of directions."""

    c: Call
    hidden: int
    weights: Node
    recurrent: Node
    bias: Node | None
    peepholes: Node | None
    activations: Sequence[Activation]
    rounded: Activation
    """Quantizes and dequantizes the left factor of the products with the weights."""

    def gates(self, count: int, joined: Node) -> list[Node]:
        """The `count` slices of a tensor [..., count * hidden]."""
        parts = std.split(joined, sizes=(self.hidden,) * count, axis=-1)
        return [get_item(parts, index) for index in range(count)]

    def limited(self, value: Node) -> Node:
        """The value clamped by the attribute `clip`."""
        clip = self.c.real("clip", None)
        return value if clip is None else std.clip(value, min=-clip, max=clip)


Step = Callable[[Cell, Node, Sequence[Node]], Sequence[Node]]
"""(cell, input products of this step, state) -> the new state, whose first tensor is the output."""


def _activations(c: Call, count: int, directions: int, defaults: Sequence[str]) -> list[list[Activation]]:
    given: Sequence[str] = c.texts("activations", None) or (*defaults,) * directions
    names = [name.lower() for name in given]
    alphas, betas = list(c.reals("activation_alpha", ()) or ()), list(c.reals("activation_beta", ()) or ())
    if len(names) != count * directions:
        raise c.error(f"{len(names)} activations, {count * directions} are needed")
    made = [_activation(c, name, alphas, betas) for name in names]
    return [made[index * count : (index + 1) * count] for index in range(directions)]


def _activation(c: Call, name: str, alphas: list[float], betas: list[float]) -> Activation:
    """An activation by name. Parameterised ones consume the next entries of the lists."""

    def take(values: list[float], default: float) -> float:
        return values.pop(0) if values else default

    plain: dict[str, Activation] = {
        "relu": std.relu,
        "tanh": std.tanh,
        "sigmoid": std.sigmoid,
        "softsign": std.softsign,
        "softplus": std.softplus,
    }
    if name in plain:
        return plain[name]
    if name == "leakyrelu":
        alpha = take(alphas, 0.01)
        return lambda x: std.leaky_relu(x, alpha=alpha)
    if name == "elu":
        alpha = take(alphas, 1.0)
        return lambda x: std.elu(x, alpha=alpha)
    if name == "thresholdedrelu":
        alpha = take(alphas, 1.0)
        return lambda x: std.thresholded_relu(x, alpha=alpha)
    if name == "hardsigmoid":
        alpha, beta = take(alphas, 0.2), take(betas, 0.5)
        return lambda x: std.hard_sigmoid(x, alpha=alpha, beta=beta)
    if name == "affine":
        alpha, beta = take(alphas, 1.0), take(betas, 0.0)
        return lambda x: std.add(std.mul(x, c.const(alpha, x.dtype)), c.const(beta, x.dtype))
    if name == "scaledtanh":
        alpha, beta = take(alphas, 1.0), take(betas, 1.0)
        return lambda x: std.mul(std.tanh(std.mul(x, c.const(beta, x.dtype))), c.const(alpha, x.dtype))
    raise c.error(f"the activation {name!r} is not one of the standard")


def _lstm_step(cell: Cell, given: Node, state: Sequence[Node]) -> Sequence[Node]:
    hidden, memory = state
    first, second, third = cell.activations
    total = std.add(given, std.matmul(cell.rounded(hidden), cell.recurrent, transpose_b=True))
    if cell.bias is not None:
        total = std.add(total, cell.bias)
    into, out, forget, update = cell.gates(4, total)
    if cell.peepholes is not None:
        see_in, see_out, see_forget = cell.gates(3, cell.peepholes)
        into, forget = std.add(into, std.mul(see_in, memory)), std.add(forget, std.mul(see_forget, memory))
    into = first(cell.limited(into))
    forget = (
        std.sub(cell.c.const(1, into.dtype), into)
        if cell.c.flag("input_forget")
        else first(cell.limited(forget))
    )
    after = std.add(std.mul(forget, memory), std.mul(into, second(cell.limited(update))))
    if cell.peepholes is not None:
        out = std.add(out, std.mul(see_out, after))
    return [std.mul(first(cell.limited(out)), third(after)), after]


def _gru_step(cell: Cell, given: Node, state: Sequence[Node]) -> Sequence[Node]:
    (hidden,) = state
    first, second = cell.activations
    give_update, give_reset, give_new = cell.gates(3, given)
    weights = std.split(cell.recurrent, sizes=(2 * cell.hidden, cell.hidden), axis=0)
    both, own = get_item(weights, 0), get_item(weights, 1)
    gates = std.matmul(hidden, both, transpose_b=True)
    give = std.concat(give_update, give_reset, axis=-1)
    bias_new = None
    if cell.bias is not None:
        parts = std.split(cell.bias, sizes=(2 * cell.hidden, cell.hidden), axis=0)
        gates, bias_new = std.add(gates, get_item(parts, 0)), get_item(parts, 1)
    update, reset = cell.gates(2, std.add(give, gates))
    update, reset = first(cell.limited(update)), first(cell.limited(reset))
    if cell.c.flag("linear_before_reset"):
        inner = std.matmul(hidden, own, transpose_b=True)
        inner = std.mul(reset, inner if bias_new is None else std.add(inner, bias_new))
    else:
        inner = std.matmul(std.mul(reset, hidden), own, transpose_b=True)
        inner = inner if bias_new is None else std.add(inner, bias_new)
    new = second(cell.limited(std.add(give_new, inner)))
    kept = std.sub(cell.c.const(1, update.dtype), update)
    return [std.add(std.mul(kept, new), std.mul(update, hidden))]


def _rnn_step(cell: Cell, given: Node, state: Sequence[Node]) -> Sequence[Node]:
    (hidden,) = state
    total = std.add(given, std.matmul(cell.rounded(hidden), cell.recurrent, transpose_b=True))
    if cell.bias is not None:
        total = std.add(total, cell.bias)
    return [cell.activations[0](cell.limited(total))]


@converter("RNN", 7)
def rnn(
    c: Call,
    x: Node,
    w: Node,
    r: Node,
    bias: Node | None = None,
    lengths: Node | None = None,
    hidden: Node | None = None,
) -> Sequence[Node]:
    return _recurrent(c, (x, w, r, bias, lengths), [hidden], None, 1, _rnn_step, ("Tanh",))


@converter("GRU", 7)
def gru(
    c: Call,
    x: Node,
    w: Node,
    r: Node,
    bias: Node | None = None,
    lengths: Node | None = None,
    hidden: Node | None = None,
) -> Sequence[Node]:
    c.ignore("linear_before_reset")
    return _recurrent(c, (x, w, r, bias, lengths), [hidden], None, 3, _gru_step, ("Sigmoid", "Tanh"))


@converter("LSTM", 7)
def lstm(
    c: Call,
    x: Node,
    w: Node,
    r: Node,
    bias: Node | None = None,
    lengths: Node | None = None,
    hidden: Node | None = None,
    memory: Node | None = None,
    peepholes: Node | None = None,
) -> Sequence[Node]:
    c.ignore("input_forget")
    defaults = ("Sigmoid", "Tanh", "Tanh")
    return _recurrent(c, (x, w, r, bias, lengths), [hidden, memory], peepholes, 4, _lstm_step, defaults)


@converter("DynamicQuantizeLSTM", 1, MICROSOFT)
def dynamic_quantize_lstm(
    c: Call,
    x: Node,
    w: Node,
    r: Node,
    bias: Node | None,
    lengths: Node | None,
    hidden: Node | None,
    memory: Node | None,
    peepholes: Node | None,
    w_scale: Node,
    w_zero: Node | None,
    r_scale: Node,
    r_zero: Node | None,
) -> Sequence[Node]:
    """The inputs, and in each step the state, are quantized by their own ranges. The weights [directions,
    rows, columns] have a scale per direction or per column.
    """
    weights = []
    for value, scale, zero in ((w, w_scale, w_zero), (r, r_scale, r_zero)):
        shape = (value.shape[0], 1, scale.shape[1] if len(scale.shape) == 2 else 1)
        point = None if zero is None else shaped(zero, shape)
        whole = dequantized(c, value, shaped(scale, shape), point)
        weights.append(std.transpose(whole, axes=(0, 2, 1)))
    c.ignore("input_forget")
    defaults = ("Sigmoid", "Tanh", "Tanh")
    inputs = (x, weights[0], weights[1], bias, lengths)

    def rounded(value: Node) -> Node:
        return dequantized(c, *dynamic_quantize_linear(c, value))

    return _recurrent(c, inputs, [hidden, memory], peepholes, 4, _lstm_step, defaults, rounded)


def _recurrent(
    c: Call,
    inputs: tuple[Node, Node, Node, Node | None, Node | None],
    starts: Sequence[Node | None],
    peepholes: Node | None,
    gates: int,
    step: Step,
    defaults: tuple[str, ...],
    rounded: Activation = lambda x: x,
) -> Sequence[Node]:
    x, w, r, bias, lengths = inputs
    direction = c.choice("direction", "forward", ("forward", "reverse", "bidirectional"))
    directions = 2 if direction == "bidirectional" else 1
    batch_first = c.integer("layout", 0) == 1
    if not all(len(value.shape) == 3 for value in (x, w, r)):
        raise c.error(f"x, w and r need three dims, not {x.type}, {w.type}, {r.type}")
    hidden = c.integer("hidden_size", r.shape[2])
    if not isinstance(hidden, int):
        raise c.unsupported(f"the weights are {r.type}", hint="pin the dims with shapes={...}")
    c.equal(r.shape[2], hidden, "the weights are of hidden_size")
    activations = _activations(c, len(defaults), directions, defaults)
    c.ignore("clip", "output_sequence")
    if batch_first:
        x = std.transpose(x, axes=(1, 0, 2))
        starts = [None if s is None else std.transpose(s, axes=(1, 0, 2)) for s in starts]
    outputs, finals = [], []
    for index in range(directions):
        cell = Cell(
            c,
            hidden,
            _direction(w, index),
            _direction(r, index),
            None if bias is None else _direction(bias, index),
            None if peepholes is None else _direction(peepholes, index),
            activations[index],
            rounded,
        )
        state = [_start(x, s, index, hidden) for s in starts]
        backwards = direction == "reverse" or index == 1
        sequence, last = _one_direction(cell, gates, step, x, lengths, state, backwards)
        outputs.append(sequence)
        finals.append(last)
    made = std.stack(*outputs, axis=1)
    last_states = [std.stack(*column, axis=0) for column in zip(*finals)]
    if batch_first:
        made = std.transpose(made, axes=(2, 0, 1, 3))
        last_states = [std.transpose(value, axes=(1, 0, 2)) for value in last_states]
    return [made, *last_states]


def _direction(value: Node, index: int) -> Node:
    part = std.slice(value, begins=(index,), ends=(index + 1,), axes=(0,))
    return std.squeeze(part, axes=(0,))


def _start(x: Node, given: Node | None, index: int, hidden: int) -> Node:
    if given is not None:
        return _direction(given, index)
    return std.full(shape=(x.shape[1], hidden), value=0.0, dtype=x.dtype)


def _one_direction(
    cell: Cell,
    gates: int,
    step: Step,
    x: Node,
    lengths: Node | None,
    state: list[Node],
    backwards: bool,
) -> tuple[Node, list[Node]]:
    """The outputs of all steps, and the last state."""
    c = cell.c
    given = std.matmul(cell.rounded(x), cell.weights, transpose_b=True)
    if cell.bias is not None:
        biases = std.split(cell.bias, sizes=(gates * cell.hidden,) * 2, axis=0)
        given = std.add(given, get_item(biases, 0))
        cell = replace(cell, bias=get_item(biases, 1))
    rounds = std.arange(stop=x.shape[0], dtype="int64")
    if backwards:
        given, rounds = std.flip(given, axes=(0,)), std.flip(rounds, axes=(0,))
    own = [param("state", value.type) for value in state]
    now = param("given", TensorType(given.shape[1:], given.dtype))
    number = param("step", TensorType((), rounds.dtype))
    fixed = [v for v in (cell.recurrent, cell.bias, cell.peepholes) if v is not None]
    after = list(step(cell, now, own))
    output = after[0]
    if lengths is not None:
        limit = std.unsqueeze(c.cast(lengths, "int64"), axes=(1,))
        inside = std.less(number, limit)
        output = std.where(inside, output, c.const(0, output.dtype))
        after = [std.where(inside, new, old) for new, old in zip(after, own)]
        fixed.append(limit)
    scanned = [given, rounds] if lengths is not None else [given]
    items = [now, number] if lengths is not None else [now]
    body, outer = close("step", (*own, *items), [*after, output], fixed, c.scope.session.holders)
    inner = body.params[len(own) + len(items) :]
    order = (*own, *inner, *items)
    results = [*body.results[: len(own)], *inner, *body.results[len(own) :]]
    whole, _ = close("step", order, results, (), {}, always_tuple=True)
    made = std.scan(*state, *outer, *scanned, num_state=len(own) + len(outer), body=whole)
    sequence = get_item(made, len(own) + len(outer))
    finals = [get_item(made, index) for index in range(len(own))]
    return (std.flip(sequence, axes=(0,)) if backwards else sequence), finals
