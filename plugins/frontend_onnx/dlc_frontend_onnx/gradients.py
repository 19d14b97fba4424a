"""Reverse-mode differentiation of graphs, for the operator Gradient.

A rule takes a node and the derivative of the loss with respect to its result. It returns the derivatives with
respect to its arguments (None if there is none). Composites without a rule are expanded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dlc_core.graph.node import Node, constant, post_order, rewrite
from dlc_core.ir.types import TensorType
from dlc_core.op import std
from dlc_core.op.declare import OpDecl

Rule = Callable[..., "Sequence[Node | None]"]


class NoDerivative(Exception):
    """An op has no rule; the message is its name."""


def _number(value: float, like: Node) -> Node:
    return constant(np.asarray(value, like.dtype.numpy))


def _summed(gradient: Node, shape: Sequence[Any]) -> Node:
    """The gradient summed over the axes along which a tensor of this shape was broadcast."""
    extra = len(gradient.shape) - len(shape)
    spread = [i for i, d in enumerate(shape) if d == 1 and gradient.shape[i + extra] != 1]
    axes = (*range(extra), *(i + extra for i in spread))
    if not axes:
        return gradient
    made = std.reduce_sum(gradient, axes=axes, keepdims=True)
    return std.reshape(made, shape=tuple(shape))


def _both(f: Callable[[Node, Node, Node, Node], tuple[Node, Node]]) -> Rule:
    """A rule of a binary op with broadcasting."""

    def rule(node: Node, g: Node, a: Node, b: Node) -> list[Node]:
        return [_summed(part, x.shape) for part, x in zip(f(node, g, a, b), (a, b), strict=True)]

    return rule


def _unary(f: Callable[[Node, Node], Node]) -> Rule:
    """A rule from the derivative as a function of the result and the argument."""
    return lambda node, g, x: [std.mul(g, f(node, x))]


def _reshaped(node: Node, g: Node, x: Node) -> list[Node]:
    return [std.reshape(g, shape=x.shape)]


def _transposed(node: Node, g: Node, x: Node) -> list[Node]:
    axes = node.attrs["axes"] or tuple(reversed(range(len(x.shape))))
    return [std.transpose(g, axes=tuple(int(i) for i in np.argsort([axis % len(axes) for axis in axes])))]


def _reduced(node: Node, g: Node, x: Node) -> list[Node]:
    rank = len(x.shape)
    axes = {axis % rank for axis in (range(rank) if node.attrs["axes"] is None else node.attrs["axes"])}
    kept = tuple(1 if i in axes else d for i, d in enumerate(x.shape))
    spread = std.broadcast_to(std.reshape(g, shape=kept), shape=x.shape)
    if node.op.name == "reduce_sum":
        return [spread]
    sizes = [x.shape[i] for i in axes]
    if not all(isinstance(d, int) for d in sizes):
        raise NoDerivative("reduce_mean over a symbolic dim")
    return [std.div(spread, _number(math.prod(int(d) for d in sizes), g))]


def _product(node: Node, g: Node, a: Node, b: Node) -> list[Node]:
    if node.attrs["transpose_a"] or node.attrs["transpose_b"] or min(len(a.shape), len(b.shape)) < 2:
        raise NoDerivative("matmul of vectors or transposed matrices")
    made = std.matmul(g, b, transpose_b=True), std.matmul(a, g, transpose_a=True)
    return [_summed(part, x.shape) for part, x in zip(made, (a, b), strict=True)]


def _chosen(node: Node, g: Node, cond: Node, a: Node, b: Node) -> list[Node | None]:
    zero = _number(0, g)
    parts = std.where(cond, g, zero), std.where(cond, zero, g)
    return [None, *(_summed(part, x.shape) for part, x in zip(parts, (a, b), strict=True))]


def _extreme(compare: str) -> Rule:
    def parts(node: Node, g: Node, a: Node, b: Node) -> tuple[Node, Node]:
        first = getattr(std, compare)(a, b)
        zero = _number(0, g)
        return std.where(first, g, zero), std.where(first, zero, g)

    return _both(parts)


def _softmax(node: Node, g: Node, x: Node) -> list[Node]:
    total = std.reduce_sum(std.mul(g, node), axes=(node.attrs["axis"],), keepdims=True)
    return [std.mul(node, std.sub(g, total))]


def _joined(node: Node, g: Node, *xs: Node) -> list[Node]:
    axis, made, begin = node.attrs["axis"] % len(g.shape), [], 0
    for x in xs:
        end = begin + x.shape[axis]
        made.append(std.slice(g, begins=(begin,), ends=(end,), axes=(axis,)))
        begin = end
    return made


def _cast(node: Node, g: Node, x: Node) -> list[Node | None]:
    return [std.cast(g, to=x.dtype) if x.dtype.is_float else None]


_RULES: Mapping[str, Rule] = {
    "add": _both(lambda node, g, a, b: (g, g)),
    "sub": _both(lambda node, g, a, b: (g, std.neg(g))),
    "mul": _both(lambda node, g, a, b: (std.mul(g, b), std.mul(g, a))),
    "div": _both(lambda node, g, a, b: (std.div(g, b), std.neg(std.div(std.mul(g, node), b)))),
    "pow": _both(
        lambda node, g, a, b: (
            std.mul(g, std.mul(b, std.pow(a, std.sub(b, _number(1, b))))),
            std.mul(g, std.mul(node, std.log(a))),
        )
    ),
    "maximum": _extreme("greater_equal"),
    "minimum": _extreme("less_equal"),
    "matmul": _product,
    "where": _chosen,
    "neg": lambda node, g, x: [std.neg(g)],
    "identity": lambda node, g, x: [g],
    "exp": _unary(lambda y, x: y),
    "log": _unary(lambda y, x: std.reciprocal(x)),
    "sqrt": _unary(lambda y, x: std.div(_number(0.5, x), y)),
    "reciprocal": _unary(lambda y, x: std.neg(std.mul(y, y))),
    "tanh": _unary(lambda y, x: std.sub(_number(1, x), std.mul(y, y))),
    "sigmoid": _unary(lambda y, x: std.mul(y, std.sub(_number(1, x), y))),
    "softplus": _unary(lambda y, x: std.sigmoid(x)),
    "relu": _unary(lambda y, x: std.cast(std.greater(x, _number(0, x)), to=x.dtype)),
    "abs": _unary(lambda y, x: std.sign(x)),
    "sin": _unary(lambda y, x: std.cos(x)),
    "cos": _unary(lambda y, x: std.neg(std.sin(x))),
    "erf": _unary(lambda y, x: std.mul(_number(2 / math.sqrt(math.pi), x), std.exp(std.neg(std.mul(x, x))))),
    "reshape": _reshaped,
    "squeeze": _reshaped,
    "unsqueeze": _reshaped,
    "transpose": _transposed,
    "broadcast_to": lambda node, g, x: [_summed(g, x.shape)],
    "reduce_sum": _reduced,
    "reduce_mean": _reduced,
    "softmax": _softmax,
    "concat": _joined,
    "cast": _cast,
}


def _expanded(y: Node, known: Mapping[Node, Node]) -> Node:
    """The graph of y with nodes replaced as `known` says, and with composites without a rule expanded."""

    def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
        decl = old.op
        if not isinstance(decl, OpDecl) or decl.compose is None or decl.name in _RULES:
            return None
        return _expanded(decl.expand(args, old.attrs), {arg: arg for arg in args})

    return rewrite(y, visit, dict(known))


def gradients(y: Node, at: Mapping[Node, Node], xs: Sequence[Node]) -> list[Node]:
    """The derivatives of the sum of y's elements with respect to `xs`. `at` replaces nodes by given values.

    Raises NoDerivative if an op between `xs` and y has no rule.
    """
    whole = _expanded(y, at)
    points = [at[x] for x in xs]
    order = list(post_order(whole))
    reached = set(points)
    for current in order:
        if any(arg in reached for arg in current.args):
            reached.add(current)
    found: dict[Node, Node] = {whole: std.full(shape=whole.shape, value=1.0, dtype=whole.dtype)}
    for current in reversed(order):
        g = found.get(current)
        if g is None or current not in reached or current in points:
            continue
        rule = _RULES.get(current.op.name)
        if rule is None or not isinstance(current.type, TensorType):
            raise NoDerivative(current.op.name)
        for arg, part in zip(current.args, rule(current, g, *current.args), strict=True):
            if part is not None and arg in reached:
                found[arg] = std.add(found[arg], part) if arg in found else part
    return [found.get(x) or std.full(shape=x.shape, value=0.0, dtype=x.dtype) for x in points]


__all__ = ["NoDerivative", "gradients"]
