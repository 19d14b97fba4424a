"""phases: transposed convolutions become convolutions of their input, with the same results."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc_core.diag import DlcError
from dlc_core.graph.node import Function, constant, param, post_order
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.passes import PassContext
from dlc_core.passes.graph import Phases
from dlc_core.target import Description, Target, TargetKind

RNG = np.random.default_rng(8)


def target(**facts):
    record = Description(**{"vector_bits": 512, "vector_registers": 32, "cores": 2, **facts})
    return Target(TargetKind("machine", "a test", "none", "none", describe=lambda options: record))


def layer(sizes, inputs, outputs, kernel, groups=1, bias=True, batch=2, **attrs):
    x = param("x", tensor_type((batch, *sizes, inputs)))
    w = constant(RNG.standard_normal((*kernel, inputs, outputs // groups)), "float32")
    more = [constant(RNG.standard_normal(outputs), "float32")] if bias else []
    attrs = {"layout": "NXC", "kernel_layout": "XIO", "groups": groups, **attrs}
    return Function("main", (x,), std.conv_transpose(x, w, *more, **attrs))


def computed(sizes, kernel, inputs=4, outputs=6, groups=1, **attrs):
    x, w = param("x", tensor_type((2, *sizes, inputs))), param("w", tensor_type((*kernel, inputs, outputs)))
    attrs = {"layout": "NXC", "kernel_layout": "XIO", "groups": groups, **attrs}
    return Function("main", (x, w), std.conv_transpose(x, w, **attrs))


def after(function, **facts):
    return Phases().run(IRModule({"main": function}), PassContext(target=target(**facts)))["main"]


def ops(function):
    return [n.op.name for n in post_order(function.body) if n.args]


def same(before, found, x):
    (old,), (new,) = (np.atleast_1d([evaluate(f, [x])]) for f in (before, found))
    assert old.shape == new.shape
    np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-5 * np.abs(old).max())


@st.composite
def layers(draw):
    rank = draw(st.integers(1, 3))

    def some(least, most):
        return tuple(draw(st.integers(least, most)) for _ in range(rank))

    steps = some(1, 3)
    groups = draw(st.sampled_from((1, 2)))
    gaps = tuple(draw(st.integers(1, 2)) if step == 1 else 1 for step in steps)
    return (
        some(2, 4),
        groups * draw(st.integers(1, 2)),
        groups * draw(st.integers(1, 3)),
        some(1, 4),
        groups,
        draw(st.booleans()),
    ), {
        "strides": steps,
        "dilation": gaps,
        "padding": tuple(draw(st.integers(0, 3)) for _ in range(2 * rank)),
        "output_padding": some(0, 2),
    }


@given(layers())
@settings(max_examples=60, deadline=None)
def test_results_are_the_same(case):
    try:
        before = layer(*case[0], **case[1])
    except DlcError:
        return  # nothing is left after cropping
    found = after(before)
    assert "conv_transpose" not in ops(found)
    same(before, found, RNG.standard_normal(before.params[0].tensor_type.shape, np.float32))


def test_a_stride_makes_channels_and_no_zeros():
    found = after(layer((32, 32), 4, 6, (4, 4), strides=(2, 2), padding=(1, 1, 1, 1)))
    assert ops(found) == ["conv", "reshape", "transpose", "reshape", "slice"]
    (conv,) = [n for n in post_order(found.body) if n.op.name == "conv"]
    assert conv.args[1].shape == (2, 2, 4, 24)
    assert conv.shape == (2, 33, 33, 24)


@pytest.mark.parametrize("bias", [True, False])
def test_phases_of_small_images_are_convolutions_of_their_own(bias):
    before = layer((4, 4), 4, 6, (4, 4), bias=bias, strides=(2, 2), padding=(1, 1, 1, 1))
    found = after(before)
    assert ops(found) == [*["conv"] * 4, "concat", "reshape", "transpose", "reshape"]
    convs = [n for n in post_order(found.body) if n.op.name == "conv"]
    assert [conv.shape for conv in convs] == [(2, 4, 4, 6)] * 4
    assert sorted(conv.attrs["padding"] for conv in convs) == [
        (0, 0, 1, 1), (0, 1, 1, 0), (1, 0, 0, 1), (1, 1, 0, 0),
    ]  # fmt: skip
    same(before, found, RNG.standard_normal((2, 4, 4, 4), np.float32))


def test_phases_of_odd_windows_have_no_taps_of_zeros():
    """For images of any size, they have nine taps instead of sixteen."""
    before = layer((64, 64), 2, 3, (3, 3), strides=(2, 2), padding=(1, 1, 1, 1), output_padding=(1, 1))
    found = after(before)
    convs = [n for n in post_order(found.body) if n.op.name == "conv"]
    assert sorted(conv.args[1].shape[:2] for conv in convs) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    same(before, found, RNG.standard_normal((2, 64, 64, 2), np.float32))


@pytest.mark.parametrize(
    ("kernel", "attrs", "windows"),
    [
        ((3, 3), {"padding": (1, 1, 1, 1), "output_padding": (1, 1)}, [(1, 1), (1, 2), (2, 1), (2, 2)]),
        ((1, 1), {"output_padding": (1, 1)}, [(1, 1)]),
        ((7, 1), {"padding": (3, 0, 3, 0), "output_padding": (1, 1)}, [(3, 1), (4, 1)]),
    ],
)
def test_computed_weights_are_sliced(kernel, attrs, windows):
    """As for the input gradient of a strided convolution. No tap reaches some of the phases."""
    before = computed((5, 6), kernel, strides=(2, 2), **attrs)
    found = after(before)
    convs = [n for n in post_order(found.body) if n.op.name == "conv"]
    assert sorted(conv.args[1].shape[:2] for conv in convs) == windows
    given = [RNG.standard_normal(each.tensor_type.shape, np.float32) for each in before.params]
    np.testing.assert_allclose(evaluate(found, given), evaluate(before, given), rtol=1e-5, atol=1e-5)


def test_computed_weights_without_strides_stay():
    assert ops(after(computed((8, 8), (3, 3), padding=(1, 1, 1, 1)))) == ["conv_transpose"]


def test_many_phases_stay_together():
    found = after(layer((4, 4), 4, 6, (8, 8), strides=(4, 4), padding=(2, 2, 2, 2)))
    assert ops(found).count("conv") == 1


def test_windows_without_overlap_need_no_transpose_in_one_dim():
    assert ops(after(layer((8,), 4, 6, (4,), strides=(4,)))) == ["conv", "reshape", "reshape"]


def test_a_stride_of_one_is_a_convolution():
    assert ops(after(layer((8, 8), 4, 6, (3, 3), padding=(1, 1, 1, 1)))) == ["conv"]


def test_symbolic_lengths():
    n, batch = Var("n"), Var("batch")
    before = layer((n,), 3, 2, (8,), batch=batch, strides=(4,), padding=(2, 2))
    found = after(before)
    assert "conv_transpose" not in ops(found)
    for length in (1, 5):
        same(before, found, RNG.standard_normal((2, length, 3), np.float32))


@pytest.mark.parametrize("case", ["gaps", "weights", "threads", "first"])
def test_keeps_transposed_convolutions_without_phases(case):
    facts = {"thread_axes": {"threadIdx.x": 1024}} if case == "threads" else {}
    if case == "gaps":
        before = layer((8,), 4, 6, (3,), strides=(2,), dilation=(2,))
    elif case == "weights":
        before = computed((8,), (4,), groups=2, strides=(2,))
    elif case == "first":
        x, w = param("x", tensor_type((1, 4, 8))), constant(np.ones((4, 6, 2)), "float32")
        before = Function("main", (x,), std.conv_transpose(x, w, strides=(2,)))
    else:
        before = layer((8,), 4, 6, (4,), strides=(2,))
    assert after(before, **facts) is before
