"""The domain ai.onnx.preview.training: gradients, and optimizers that update many tensors in one step."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_onnx.converters.base import Call, converter
from dlc_frontend_onnx.gradients import NoDerivative, gradients
from dlc_frontend_onnx.location import quoted

TRAINING = "ai.onnx.preview.training"


def _groups(c: Call, tensors: Sequence[Node], kinds: int) -> list[tuple[Node, ...]]:
    """The inputs of each optimized tensor. The operator takes all values, then all gradients, and so on."""
    if not tensors or len(tensors) % kinds:
        raise c.error(f"{len(tensors)} inputs are not {kinds} for each optimized tensor")
    count = len(tensors) // kinds
    return [tuple(tensors[index::count]) for index in range(count)]


def _by_kind(made: Sequence[tuple[Node, ...]]) -> list[Node]:
    return [part for kind in zip(*made) for part in kind]


def _gradient(c: Call, x: Node, gradient: Node) -> Node:
    """The gradient including the regularization."""
    norm = c.real("norm_coefficient", 0.0)
    return gradient if norm == 0 else std.add(std.mul(x, c.const(norm, x.dtype)), gradient)


def _started(step: Node) -> Node:
    """Whether this is not the first step."""
    return std.greater(step, std.full(shape=step.shape, value=0.0, dtype=step.dtype))


@converter("Momentum", 1, TRAINING)
def momentum(c: Call, rate: Node, step: Node, *tensors: Node) -> Sequence[Node]:
    mode = c.choice("mode", "standard", ("standard", "nesterov"))
    alpha, beta = c.real("alpha"), c.real("beta")
    made = []
    for x, given, velocity in _groups(c, tensors, 3):
        gradient = _gradient(c, x, given)
        weight = std.where(_started(step), c.const(beta, x.dtype), c.const(1, x.dtype))
        moved = std.add(std.mul(velocity, c.const(alpha, x.dtype)), std.mul(gradient, weight))
        ahead = moved
        if mode == "nesterov":
            ahead = std.add(gradient, std.mul(moved, c.const(alpha, x.dtype)))
        made.append((std.sub(x, std.mul(ahead, c.cast(rate, x.dtype))), moved))
    return _by_kind(made)


@converter("Adagrad", 1, TRAINING)
def adagrad(c: Call, rate: Node, step: Node, *tensors: Node) -> Sequence[Node]:
    decay, epsilon = c.real("decay_factor", 0.0), c.real("epsilon", 1e-6)
    made = []
    for x, given, squares in _groups(c, tensors, 3):
        gradient = _gradient(c, x, given)
        slower = std.add(std.mul(c.cast(step, x.dtype), c.const(decay, x.dtype)), c.const(1, x.dtype))
        pace = std.div(c.cast(rate, x.dtype), slower)
        total = std.add(squares, std.mul(gradient, gradient))
        below = std.add(std.sqrt(total), c.const(epsilon, x.dtype))
        made.append((std.sub(x, std.div(std.mul(gradient, pace), below)), total))
    return _by_kind(made)


@converter("Adam", 1, TRAINING)
def adam(c: Call, rate: Node, step: Node, *tensors: Node) -> Sequence[Node]:
    alpha, beta = c.real("alpha", 0.9), c.real("beta", 0.999)
    epsilon, after = c.real("epsilon", 1e-6), c.real("norm_coefficient_post", 0.0)
    pace = _unbiased(c, rate, step, alpha, beta)
    made = []
    for x, given, mean, squares in _groups(c, tensors, 4):
        gradient = _gradient(c, x, given)
        mean_after = _mixed(c, alpha, mean, gradient)
        squares_after = _mixed(c, beta, squares, std.mul(gradient, gradient))
        below = std.add(std.sqrt(squares_after), c.const(epsilon, x.dtype))
        moved = std.sub(x, std.mul(std.div(mean_after, below), c.cast(pace, x.dtype)))
        if after:
            moved = std.mul(moved, c.const(1 - after, x.dtype))
        made.append((moved, mean_after, squares_after))
    return _by_kind(made)


def _mixed(c: Call, share: float, old: Node, new: Node) -> Node:
    return std.add(std.mul(old, c.const(share, old.dtype)), std.mul(new, c.const(1 - share, new.dtype)))


def _unbiased(c: Call, rate: Node, step: Node, alpha: float, beta: float) -> Node:
    """The rate corrected for running means that start at zero, in float64 because powers are close to 1."""
    count, wide = c.cast(step, "float64"), c.cast(rate, "float64")

    def missing(share: float) -> Node:
        return std.sub(c.const(1, "float64"), std.pow(c.const(share, "float64"), count))

    corrected = std.div(std.mul(wide, std.sqrt(missing(beta))), missing(alpha))
    return std.where(_started(step), corrected, wide)


@converter("Gradient", 1, TRAINING)
def gradient(c: Call, *values: Node) -> Sequence[Node]:
    """The derivatives of a tensor with respect to `xs`, at the given values of `xs` and `zs`."""
    xs, zs = c.texts("xs"), c.texts("zs", None) or ()
    if len(values) != len(xs) + len(zs):
        raise c.error(f"{len(values)} values for {len(xs) + len(zs)} tensors")
    around = [c.scope.find(name) for name in (*xs, *zs, c.text("y"))]
    tensors = [value for value in around if isinstance(value, Node)]
    if len(tensors) < len(around):
        raise c.unsupported("a derivative whose operands are not tensors")
    *points, y = tensors
    for name, point, value in zip((*xs, *zs), points, values):
        if point.type != value.type:
            raise c.error(f"{quoted(name)} is {point.type}, its value {value.type}")
    try:
        return gradients(y, dict(zip(points, values)), points[: len(xs)])
    except NoDerivative as error:
        raise c.unsupported(f"the derivative of the op {error}") from None
