"""Losses over classes. Forward losses, and gradients of the other losses, are decomposed by torch."""

from __future__ import annotations

from dlc_core.graph.node import Node
from dlc_core.op import std
from dlc_frontend_torch.call import Call
from dlc_frontend_torch.registry import aten


@aten("nll_loss_backward nll_loss2d_backward")
def nll_loss_backward(
    c: Call, grad: Node, x: Node, target: Node, weight: Node | None, reduction: int, ignore_index: int,
    total_weight: Node,
) -> Node:  # fmt: skip
    """-weight grad at the target class of each sample, 0 elsewhere, without a scatter: so this fuses with the
    gradient of log_softmax. `reduction` is 0 for none, 1 for the mean, 2 for the sum.
    """
    axis = 0 if len(x.shape) == 1 else 1
    if reduction == 1:
        grad = std.div(grad, c.cast(total_weight, grad.dtype))
    places = std.reshape(target, shape=(*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    classes = std.arange(stop=x.shape[axis], dtype=places.dtype)
    shape = tuple(size if place == axis else 1 for place, size in enumerate(x.shape))
    hit = std.logical_and(
        std.equal(places, std.reshape(classes, shape=shape)),
        std.not_equal(places, c.const(ignore_index, places.dtype)),
    )
    each = std.neg(grad)
    if len(each.shape):
        each = std.reshape(each, shape=places.shape)
    if weight is not None:
        each = std.mul(each, std.reshape(weight, shape=shape))
    return std.where(hit, each, c.const(0, x.dtype))
