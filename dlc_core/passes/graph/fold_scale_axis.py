"""fold_scale_axis: fold constant scales and shifts of channels into the weights and the bias of their
contraction.

Law: results stay within tolerance, because products round in another order. Only a chain of directly adjacent
linear operations is folded, each of which is used once. Operations after an activation do not commute with
it.

    mul(conv(x, w, b), a)       =>   conv(x, w * a, b * a)         a of one number for each output channel
    add(conv(x, w, b), c)       =>   conv(x, w, b + c)
    conv(mul(x, a), w)          =>   conv(x, w * a)                a of one number for each input channel
    conv(add(x, c), w)          =>   conv(x, w, sum(w * c))        without padding
    mul(matmul(x, w), a)        =>   matmul(x, w * a)
    matmul(mul(x, a), w)        =>   matmul(x, a * w)
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dlc_core.graph.node import CONST, Function, Node, const_array, rewrite, users_of
from dlc_core.op.declare import NDArray
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.weights import Weights
from dlc_core.support.record import record

ADD, SUB, MUL, DIV = (OPS[name] for name in ("add", "sub", "mul", "div"))


@record(frozen=True)
class FoldScaleAxis(GraphPass):
    """Fold scales and shifts of output channels into weights and biases; with `fold_inputs` also those of
    input channels."""

    name: ClassVar[str] = "fold_scale_axis"
    min_level: ClassVar[int] = 1
    exact: ClassVar[bool] = False
    fold_inputs: bool = True

    def run_function(self, function: Function, context: PassContext) -> Function:
        users = users_of(function.body)
        results = {function.body, *function.results}

        def used_once(value: Node) -> bool:
            return len(users[value]) == 1 and value not in results

        def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
            if old.op in (ADD, SUB, MUL, DIV):
                for index, arg in enumerate(old.args):
                    if arg.op is not CONST and used_once(arg):
                        folded = _fold_after(old, args, index)
                        if folded is not None:
                            return folded
            elif self.fold_inputs and Weights.of(old, args) is not None and used_once(old.args[0]):
                return _fold_before(old, args)
            return None

        body = rewrite(function.body, visit)
        return function if body is function.body else function.with_body(body)


def _linear(value: Node, index: int) -> tuple[str, NDArray] | None:
    """Return ("mul" or "add", the constant as float64) of an operation with a constant; None for others."""
    other = const_array(value.args[1 - index])
    if other is None or not value.dtype.is_float:
        return None
    wide = other.astype(np.float64)
    if value.op is MUL or (value.op is DIV and index == 0):
        if value.op is DIV and (wide == 0).any():
            return None
        return "mul", wide if value.op is MUL else 1.0 / wide
    if value.op is ADD or (value.op is SUB and index == 0):
        return "add", wide if value.op is ADD else -wide
    return None


def _per_channel(array: NDArray, rank: int, axis: int, channels: int) -> NDArray | None:
    """Return the constant as one number per channel; None if it varies along another axis."""
    shape = (1,) * (rank - array.ndim) + array.shape
    if len(shape) != rank or any(d != 1 for i, d in enumerate(shape) if i != axis % rank):
        return None
    return np.broadcast_to(array.reshape(-1), (channels,))


def _fold_after(old: Node, args: tuple[Node, ...], index: int) -> Node | None:
    """Fold an operation after a contraction into its weights and bias."""
    linear = _linear(old, index)
    target = args[index]
    weights = Weights.of(target, target.args) if linear is not None else None
    if linear is None or weights is None or old.shape != target.shape:
        return None
    kind, constant_array = linear
    per_channel = _per_channel(constant_array, len(old.shape), weights.result_axis, weights.outputs)
    if per_channel is None:
        return None
    folded = weights.scaled_outputs(per_channel) if kind == "mul" else weights.shifted_outputs(per_channel)
    return _with_spans(folded, target)


def _fold_before(old: Node, args: tuple[Node, ...]) -> Node | None:
    """Fold an operation before a contraction into its weights and bias."""
    source = args[0]
    if source.op not in (ADD, SUB, MUL, DIV):
        return None
    for index, value in enumerate(source.args):
        linear = _linear(source, index) if value.op is not CONST else None
        weights = Weights.of(old, args)
        if linear is None or weights is None or value.shape != source.shape:
            continue
        kind, constant_array = linear
        per_channel = _per_channel(constant_array, len(source.shape), weights.input_axis, weights.inputs)
        if per_channel is None:
            continue
        if kind == "mul":
            folded = weights.scaled_inputs(value, per_channel)
        else:
            folded = weights.shifted_inputs(value, per_channel)
        return _with_spans(folded, source)
    return None


def _with_spans(folded: Node | None, source: Node) -> Node | None:
    if folded is not None:
        folded.add_spans(source.spans)
    return folded
