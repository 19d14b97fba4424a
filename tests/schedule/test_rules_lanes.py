"""The rule for reductions with a contiguous spatial axis: pooling, depthwise convolution, sums over outer
axes.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc_core.decisions import forced
from dlc_core.graph.node import Node, param
from dlc_core.ir.expr import Call, Load, Var, const, const_value, post_order
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.schedule.rules.cpu.edges import Edges, strips_between
from dlc_core.target import Description
from dlc_core.testing.schedules import check_schedule, kernel_of, lower_kernel
from dlc_core.tir.functor import stmts
from dlc_core.tir.stmt import Alloc, For, PrimFunc, Seq, Store

MACHINES = {
    "scalar": Description(vector_bits=0, vector_registers=16, cores=2),
    "narrow": Description(vector_bits=128, vector_registers=8, cores=1, parallel=False),
    "small cache": Description(vector_bits=256, cores=2, caches=(1 << 10, 1 << 13)),
    "wide": Description(vector_bits=512, vector_registers=32, cores=8),
}
machines = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
H, W, B = Var("h"), Var("w"), Var("b")
LAST = {"layout": "NXC"}


def tensor(name: str, *shape: object) -> Node:
    return param(name, tensor_type(shape))


def depthwise(*shape: object, kernel: int = 3, multiplier: int = 1, **attrs: object) -> PrimFunc:
    """A depthwise convolution with a bias and a relu."""
    channels = shape[-1]
    outputs = channels * multiplier
    params = [
        tensor("x", *shape),
        tensor("w", *(kernel,) * (len(shape) - 2), 1, outputs),
        tensor("b", outputs),
    ]
    y = std.conv(*params, groups=channels, kernel_layout="XIO", **LAST, **attrs)
    return kernel_of(std.relu(y), params, constants=(1,))


def pool(op: str, *shape: object, **attrs: object) -> PrimFunc:
    x = tensor("x", *shape)
    return kernel_of(getattr(std, op)(x, **LAST, **attrs), [x])


def scheduled(func: PrimFunc, machine: Description, **sizes: int) -> PrimFunc:
    made = check_schedule(func, machine, {v: sizes[v.name] for v in func.scalars})
    assert made.attrs["why_not"] == ()
    assert made.attrs["rule"] == "cpu.lanes"
    return made


CASES = {
    "border": lambda: depthwise(1, 8, 8, 16, padding=(1, 1, 1, 1)),
    "strides": lambda: depthwise(1, 9, 9, 4, padding=(1, 1, 1, 1), strides=(2, 2)),
    "odd sizes": lambda: depthwise(1, 5, 11, 19, padding=(0, 1, 2, 1)),
    "dilation": lambda: depthwise(1, 8, 8, 5, padding=(2, 2, 2, 2), dilation=(2, 2)),
    "images": lambda: depthwise(2, 4, 9, 8, padding=(1, 1, 1, 1)),
    "one dim": lambda: depthwise(1, 17, 8, padding=(1, 1)),
    "two results per channel": lambda: depthwise(1, 8, 8, 16, multiplier=2, padding=(1, 1, 1, 1)),
    "eight results per channel": lambda: depthwise(1, 9, 7, 3, multiplier=8, padding=(1, 1, 1, 1)),
    "three results per channel, no padding": lambda: depthwise(2, 9, 7, 5, multiplier=3, strides=(2, 2)),
    "seven taps": lambda: depthwise(1, 11, 15, 4, kernel=7, padding=(3, 3, 3, 3)),
    "border beyond the window": lambda: depthwise(1, 4, 5, 4, padding=(4, 1, 5, 6), strides=(2, 1)),
    "one tap over the edge": lambda: pool(
        "avg_pool", 1, 7, 9, 5, kernel=(1, 3), strides=(1, 1), padding=(1, 0, 1, 0), count_include_pad=True
    ),
    "large window": lambda: depthwise(1, 12, 4, 3, kernel=9, padding=(4, 4, 4, 4)),
    "one column": lambda: depthwise(1, 9, 1, 8, padding=(1, 1, 1, 1)),
    "max pool": lambda: pool("max_pool", 1, 9, 9, 18, kernel=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1)),
    "average pool": lambda: pool("avg_pool", 1, 8, 6, 7, kernel=(2, 2), strides=(2, 2)),
}


@machines
@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_windows(make, machine):
    scheduled(make(), machine)


@machines
def test_sums_over_outer_axes(machine):
    x = tensor("x", 5, 7, 33)
    scheduled(kernel_of(std.reduce_sum(x, axes=(0,)), [x]), machine)


@pytest.mark.parametrize("machine", [MACHINES["narrow"], MACHINES["wide"]], ids=["narrow", "wide"])
@pytest.mark.parametrize("sizes", [{"b": 1, "h": 5, "w": 6}, {"b": 2, "h": 9, "w": 3}], ids=str)
def test_symbolic_sizes(sizes, machine):
    scheduled(depthwise(B, H, W, 8, padding=(1, 1, 1, 1)), machine, **sizes)


def temporaries(made: PrimFunc) -> tuple[list[str], list[int | None]]:
    """The temporaries outside of the parallel loop, and the shape of the padded input inside."""
    top = [s for s in stmts(made.body) if isinstance(s, For) and s.kind == "parallel"]
    within = {b for loop in top for b in stmts(loop) if isinstance(b, Alloc)}
    allocs = [s for s in stmts(made.body) if isinstance(s, Alloc)]
    outside = [s.buffer.name for s in allocs if s not in within]
    inside = [s.buffer for s in allocs if s in within and s.buffer.name == "pad"]
    return outside, [const_value(size) for b in inside for size in b.shape]


@pytest.mark.parametrize("name", ["border", "strides", "images", "max pool"])
def test_padded_windows_need_no_copy_of_the_input(name):
    for machine in (MACHINES["small cache"], MACHINES["wide"]):
        made = scheduled(CASES[name](), machine)
        assert "pad" not in {s.buffer.name for s in stmts(made.body) if isinstance(s, Alloc)}


def test_tiles_at_the_edges_are_separate_loops():
    edges = Edges((), 1, 26, None, const(0), const(0))
    assert edges.cuts(28, 4) == [1, 3]
    assert edges.cuts(14, 2) == [1]
    assert edges.cuts(27, 4) == [1, 3]
    assert Edges((), 9, 20, None, const(0), const(0)).cuts(30, 5) == [1, 2, 3, 4]
    assert Edges((), 19, 20, None, const(0), const(0)).cuts(40, 8) == [4]


def test_borders_are_filled_in_parts():
    """In bands of rows if these fit the cache, at least one for each thread; else in strips of channels."""
    wide = {"kernel": 9, "padding": (4, 4, 4, 4)}
    func = depthwise(1, 16, 8, 64, **wide)
    roomy = Description(vector_bits=256, cores=2, caches=(1 << 10, 1 << 18))
    assert temporaries(scheduled(func, roomy)) == ([], [1, 16, 16, 64])
    assert temporaries(scheduled(func, MACHINES["small cache"])) == ([], [1, 24, 16, 32])
    few = depthwise(1, 5, 32, 64, **wide)
    assert temporaries(scheduled(few, roomy)) == ([], [1, 13, 40, 32])
    symbolic = depthwise(1, H, W, 64, padding=(1, 1, 1, 1))
    assert temporaries(scheduled(symbolic, roomy, h=12, w=12))[0] == ["pad"]


def around(func: PrimFunc) -> list[int | None]:
    """The extents of the outer loops, up to the first with several statements."""
    extents, body = [], func.body
    while not isinstance(body, Seq):
        if isinstance(body, For):
            extents.append(const_value(body.extent))
        body = body.body
    return extents


def test_channels_are_tiled_for_l1():
    """Eight strips of eight channels, of which two have three rows of eight pixels in 4 KiB."""
    one = Description(vector_bits=256, cores=1, parallel=False, caches=(1 << 12, 1 << 16))
    case = {"padding": (1, 1, 1, 1)}
    alone = scheduled(depthwise(1, 6, 8, 64, **case), one)
    assert around(alone)[:3] == [1, 4, 6]
    several = replace(one, cores=2, parallel=True)
    assert around(scheduled(depthwise(1, 6, 8, 64, **case), several))[:4] == [1, 2, 4, 3]
    # Rows that cannot be distributed evenly are distributed one by one.
    assert around(scheduled(depthwise(1, 7, 8, 64, **case), several))[:2] == [1, 7]
    large = replace(one, caches=(1 << 16, 1 << 20))
    assert around(scheduled(depthwise(1, 6, 8, 64, **case), large))[:2] == [1, 6]


def test_windows_without_padding_are_read_in_the_order_of_memory():
    """All strips of channels of a tile before the next tile."""
    machine = replace(MACHINES["wide"], cores=1, parallel=False)
    made = scheduled(pool("max_pool", 1, 8, 56, 64, kernel=(2, 2), strides=(2, 2)), machine)
    assert around(made) == [1, 4, 4, 4]  # images, rows, tiles of seven results, strips


@pytest.mark.parametrize("units", [1, 2])
def test_axes_of_one_element_after_the_contiguous_one_do_not_count(units):
    """The windows of a grey image are computed in vectors along its rows."""
    x = param("x", tensor_type((2, 9, 37, *[1] * units), "float32"))
    y = std.max_pool(
        x, kernel=(3, 3, 1)[: 1 + units], padding=(1, 0, 1, 0) if units == 1 else (1, 1, 0, 0, 1, 0), **LAST
    )
    scheduled = check_schedule(kernel_of(std.relu(y)), Description(vector_bits=256))
    assert scheduled.attrs["rule"] == "cpu.lanes"
    assert any(loop.kind == "vectorized" for loop in stmts(scheduled.body) if isinstance(loop, For))


def is_update(store: Store) -> bool:
    """Whether a store adds to what it writes."""
    return any(isinstance(e, Load) and e.buffer is store.buffer for e in post_order(store.value))


def response_norm(channels: int, size: int = 5, images: int = 1) -> PrimFunc:
    x = tensor("x", images, 3, 2, channels)
    return kernel_of(std.lrn(x, size=size, axis=-1, beta=0.5), [x])


@machines
@pytest.mark.parametrize("channels", [3, 16, 17, 40, 64, 100])
@pytest.mark.parametrize("size", [1, 2, 5, 70])
def test_windows_along_channels(channels, size, machine):
    scheduled(response_norm(channels, size), machine)


@pytest.mark.parametrize("vectors", [1, 2, 4])
def test_only_strips_at_the_ends_of_the_channels_test_their_windows(vectors):
    with forced(f"window.vectors={vectors}"):
        made = lower_kernel(scheduled(response_norm(256), MACHINES["wide"]))
    sums = [each for each in stmts(made.body) if isinstance(each, Store) and is_update(each)]
    tested = [
        any(isinstance(e, Call) and e.name == "if_then_else" for e in post_order(s.value)) for s in sums
    ]
    assert tested == [True] * vectors + [False] * vectors + [True] * vectors


def test_windows_along_channels_have_strips_of_one_vector():
    made = scheduled(response_norm(256), MACHINES["wide"])
    local = [s.buffer for s in stmts(made.body) if isinstance(s, Alloc) and s.buffer.scope == "local"]
    assert {b.static_shape()[-1] for b in local} == {16}


def test_the_strips_between_those_at_the_ends():
    assert strips_between((2, 189), 64, 192) == [1, 2]
    assert strips_between((2, 189), 16, 192) == [1, 11]
    assert strips_between((2, 29), 32, 32) == []
    assert strips_between((0, 61), 16, 64) == [3]
    assert strips_between((2, 29), 16, None) == []
