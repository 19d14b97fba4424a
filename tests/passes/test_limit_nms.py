"""limit_nms: NMS nodes that get a smaller limit of boxes. Values stay the same."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.graph.node import Function, const_array, constant, make_tuple, param, post_order
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.passes import PassContext, Pipeline
from dlc_core.passes.graph import LimitNms

RNG = np.random.default_rng(5)
COUNT = 40
BOXES, SCORES = param("boxes", tensor_type((1, COUNT, 4))), param("scores", tensor_type((1, 2, COUNT)))


ALL = constant([1 << 62], "int64")


def suppressed(most=ALL):
    """The rows of an NMS that keeps nearly all boxes."""
    limits = constant([0.8], "float32"), constant([-9.0], "float32")
    return std.non_max_suppression(BOXES, SCORES, most, *limits, count=Var("kept"))


def first(x, count, **attrs):
    return std.slice(x, begins=(0,), ends=(count,), axes=(0,), **attrs)


def columns(rows):
    """The column of boxes, as exporters write it."""
    return std.squeeze(std.gather(rows, constant([2], "int64"), axis=1), axes=(1,))


def limit_after(body, *params, given=()):
    """The maximum number of boxes of the NMS after the pass. Checks that values stay the same."""
    before = Function("main", (BOXES, SCORES, *params), body)
    after = Pipeline((LimitNms(),)).run(IRModule({"main": before}), PassContext(opt_level=1))["main"]
    corners = RNG.uniform(0, 9, (1, COUNT, 2))
    boxes = np.concatenate([corners, corners + RNG.uniform(1, 3, corners.shape)], -1).astype(np.float32)
    arrays = [boxes, RNG.standard_normal((1, 2, COUNT)).astype(np.float32), *given]
    found = [evaluate(f, arrays) for f in (before, after)]
    for old, new in zip(*(f if isinstance(f, tuple) else (f,) for f in found), strict=True):
        np.testing.assert_array_equal(old, new)
    (boxes_node,) = [n for n in post_order(after.body) if n.op.name == "non_max_suppression"]
    return boxes_node.args[2]


def known(body):
    return const_array(limit_after(body)).tolist()


def test_limits_nms_to_the_rows_of_a_slice():
    assert known(first(suppressed(), 5)) == [5]
    assert known(first(columns(suppressed()), 7, strides=(1,))) == [7]


def test_allows_any_reader_after_the_slice():
    places = first(columns(suppressed()), 6)
    x = std.gather(std.reshape(BOXES, shape=(COUNT, 4)), places, axis=0)
    assert known(make_tuple([std.exp(x), std.reduce_sum(x), std.concat(x, x, axis=0)])) == [6]


def test_takes_the_largest_of_several_slices():
    rows = suppressed()
    assert known(make_tuple([first(rows, 3), first(columns(rows), 8)])) == [8]


def test_a_smaller_limit_stays():
    assert known(first(suppressed(constant([2], "int64")), 5)) == [2]


def test_lowers_a_limit_that_is_an_input_at_run_time():
    most = param("most", tensor_type((1,), "int64"))
    for number in (2, 30):
        made = limit_after(first(suppressed(most), 5), most, given=[np.array([number])])
        assert made.op.name == "minimum"


ROWS = suppressed()


@pytest.mark.parametrize(
    "body",
    [
        ROWS,
        make_tuple([first(ROWS, 5), ROWS]),
        make_tuple([first(ROWS, 5), std.reduce_sum(ROWS, axes=(0,))]),
        std.slice(ROWS, begins=(1,), ends=(5,), axes=(0,)),
        std.slice(ROWS, begins=(0,), ends=(9,), axes=(0,), strides=(2,)),
        std.slice(ROWS, begins=(0,), ends=(-1,), axes=(0,)),
        std.slice(ROWS, begins=(0,), ends=(2,), axes=(1,)),
        first(std.flip(ROWS, axes=(0,)), 5),
        std.gather(ROWS, constant([2], "int64"), axis=0),
        first(std.reshape(ROWS, shape=(-1,)), 5),
        make_tuple([first(ROWS, 5), std.arange(stop=ROWS.shape[0])]),
        make_tuple([first(ROWS, 5), std.full(shape=(ROWS.shape[0],), value=1.0, dtype="float32")]),
    ],
    ids=str,
)
def test_keeps_rows_and_dims_that_are_read(body):
    assert known(body) == [1 << 62]
