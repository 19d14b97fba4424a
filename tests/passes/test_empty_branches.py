"""empty_branches: NMS behind a branch on its number of boxes. Values stay the same, without boxes too."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.graph.node import Function, const_array, constant, get_item, make_tuple, param, post_order
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.passes import PassContext, Pipeline
from dlc_core.passes.graph import EmptyBranches, LimitNms, Simplify

RNG = np.random.default_rng(7)


def detector(multiple=4, empty=0, compare=std.equal, more=None):
    """NMS by class as exporters write it: a branch on the number of coordinates, and boxes by index.

    `multiple` is that of the number of boxes in the condition, `empty` the rows of the other branch.
    """
    n = Var("n")

    def inputs():
        types = tensor_type((n, 4)), tensor_type((n,)), tensor_type((n,), "int64")
        return [param(name, type_) for name, type_ in zip(("boxes", "scores", "classes"), types, strict=True)]

    boxes, scores, classes = own = inputs()
    width = std.add(std.reduce_max(boxes), constant(1.0, "float32"))
    offsets = std.mul(std.cast(classes, to="float32"), width)
    apart = std.add(boxes, std.unsqueeze(offsets, axes=(1,)))
    rows = std.non_max_suppression(
        std.unsqueeze(apart, axes=(0,)),
        std.unsqueeze(scores, axes=(0, 1)),
        constant([1 << 62], "int64"),
        constant([0.4], "float32"),
        constant([-9.0], "float32"),
        count=Var("kept"),
    )
    kept = std.squeeze(std.gather(rows, constant([2], "int64"), axis=1), axes=(1,))
    nms = Function("nms", tuple(own), make_tuple([kept if more is None else more(kept, boxes)]))
    none = Function("none", tuple(inputs()), make_tuple([constant(np.zeros(empty, np.int64))]))
    outer = inputs()
    size = std.squeeze(std.dims_tensor(dims=(n * multiple,)), axes=(0,))
    branch = std.if_(
        compare(size, constant(0, "int64")),
        *outer,
        then_branch=none,
        else_branch=nms,
        changing=(0, 0),
        sizes=(Var("rows"),),
    )
    best = std.slice(get_item(branch, 0), begins=(0,), ends=(5,), axes=(0,))
    return Function("main", tuple(outer), std.gather(outer[0], best, axis=0))


def after(function, *first):
    module = IRModule({"main": function})
    return Pipeline((*first, EmptyBranches())).run(module, PassContext(opt_level=1))["main"]


def names(function):
    return [n.op.name for n in post_order(function.body)]


@pytest.mark.parametrize("count", [0, 1, 30])
@pytest.mark.parametrize("first", [(), (Simplify(),)], ids=["as written", "simplified"])
def test_nms_behind_a_branch(count, first):
    before = detector()
    function = after(before, *first)
    assert "if_" not in names(function)
    assert "non_max_suppression" in names(function)
    corners = RNG.uniform(0, 9, (count, 2))
    boxes = np.concatenate([corners, corners + RNG.uniform(1, 3, corners.shape)], -1).astype(np.float32)
    feeds = [boxes, RNG.standard_normal(count).astype(np.float32), RNG.integers(0, 3, count)]
    np.testing.assert_array_equal(evaluate(function, feeds), evaluate(before, feeds))


def test_nms_is_limited_to_the_boxes_that_are_kept():
    function = Pipeline((LimitNms(),)).run(IRModule({"main": after(detector())}), PassContext())["main"]
    (nms,) = (n for n in post_order(function.body) if n.op.name == "non_max_suppression")
    assert const_array(nms.args[2]).tolist() == [5]


def two_rows(kept, boxes):
    """The first kept boxes again, by an op that needs a box."""
    return std.concat(kept, std.gather(kept, constant([0], "int64"), axis=0), axis=0)


@pytest.mark.parametrize(
    "function",
    [
        detector(multiple=9),  # not known to be a multiple of the number of boxes
        detector(empty=1),  # the other branch gives a row
        detector(compare=std.not_equal),
        detector(compare=std.less),
        detector(more=two_rows),
        detector(more=lambda kept, boxes: std.flip(kept, axes=(0,))),
    ],
)
def test_other_branches_stay(function):
    assert "if_" in names(after(function))
