"""The columns of a contraction: those along which its result is contiguous, or those of packed weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from dlc_core import te
from dlc_core.decisions import DECISIONS, Choice, forced
from dlc_core.ir.expr import Call, Var, const_value, logical_and, post_order
from dlc_core.schedule.rules.analysis import loads_of
from dlc_core.schedule.rules.cpu.heuristics import LOOPS
from dlc_core.target import Description
from dlc_core.testing.schedules import check_schedule, schedule_for
from dlc_core.tir.functor import block_list, stmts
from dlc_core.tir.intrinsics import if_then_else
from dlc_core.tir.stmt import For, If, PrimFunc

SHUFFLES = frozenset({"vector_shuffle"})
MACHINES = {
    "few registers": Description(vector_bits=128, vector_registers=8, intrinsics=SHUFFLES),
    "usual": Description(vector_bits=256, vector_registers=16, cores=2, intrinsics=SHUFFLES),
    "no shuffles": Description(vector_bits=256, vector_registers=16, cores=2),
    "wide": Description(vector_bits=512, vector_registers=32, cores=4, intrinsics=SHUFFLES),
    "small caches": Description(
        vector_bits=128, vector_registers=16, cores=2, caches=(1 << 10, 1 << 11), intrinsics=SHUFFLES
    ),
}
WAYS = ("contiguous", "transposed")
N, H, W = Var("n"), Var("h"), Var("w")


def conv(
    channels: int,
    filters: int,
    image: tuple[Any, Any],
    window: tuple[int, int],
    stride: int = 1,
    *,
    pad: int = 0,
    batch: Any = None,
    constant: bool = True,
    finish: bool = False,
    dtype: str = "float32",
) -> PrimFunc:
    """A naive convolution in NCHW, or CHW without a batch, with weights in OIHW; `finish` adds a bias and a
    residual."""
    lead = () if batch is None else (batch,)
    rows, columns = image
    x = te.placeholder((*lead, channels, rows, columns), dtype, "x")
    weights = te.placeholder((filters, channels, *window), dtype, "w")
    source = x
    if pad:

        def padded(*index: Any) -> Any:
            *before, i, j = index
            inside = logical_and(i >= pad, i < rows + pad, j >= pad, j < columns + pad)
            return if_then_else(inside, x[(*before, i - pad, j - pad)], te.const(0, dtype))

        source = te.compute((*lead, channels, rows + 2 * pad, columns + 2 * pad), padded, "pad")
    c, y, z = (te.reduce_axis(size, name) for size, name in zip((channels, *window), "cyz", strict=True))
    out = [(size + 2 * pad - taps) // stride + 1 for size, taps in zip(image, window, strict=True)]

    def value(*index: Any) -> Any:
        *before, o, i, j = index
        return te.sum(
            source[(*before, c.var, i * stride + y.var, j * stride + z.var)] * weights[o, c, y, z],
            axis=(c, y, z),
        )

    shape = (*lead, filters, *out)
    sums = te.compute(shape, value, "conv")
    inputs = [x, weights]
    if finish:
        bias, other = te.placeholder((filters,), name="bias"), te.placeholder(shape, name="other")
        inputs += [bias, other]

        def end(*index: Any) -> Any:
            return te.maximum(sums[index] + bias[index[-3]] + other[index], 0.0)

        sums = te.compute(shape, end, "end")
    func = te.create_prim_func(inputs, [sums], "conv")
    constants = (1,) if constant else ()
    return replace(func, attrs=MappingProxyType({**func.attrs, "constants": constants}))


CONVOLUTIONS = {
    "1x1": lambda **options: conv(6, 20, (5, 9), (1, 1), **options),
    "1x1, stride 2": lambda **options: conv(5, 9, (9, 13), (1, 1), 2, **options),
    "3x3": lambda **options: conv(4, 17, (6, 7), (3, 3), pad=1, **options),
    "3x3, stride 2": lambda **options: conv(3, 24, (9, 15), (3, 3), 2, pad=1, **options),
    "7x7, stride 2": lambda **options: conv(2, 10, (9, 11), (7, 7), 2, pad=3, **options),
    "one row": lambda **options: conv(3, 40, (3, 21), (3, 2), **options),
    "one column of pixels": lambda **options: conv(3, 12, (9, 3), (2, 3), **options),
    "few filters": lambda **options: conv(5, 3, (6, 19), (3, 3), pad=1, **options),
    "batch": lambda **options: conv(3, 20, (5, 6), (3, 3), pad=1, batch=2, **options),
}


def columns_of(func: PrimFunc) -> str:
    """The columns that a scheduled kernel has; empty without the decision."""
    assert func.attrs["rule"] == "cpu.contraction", func.attrs["why_not"]
    choices = [Choice.parse(text) for text in func.attrs[DECISIONS]]
    return next((each.alternative for each in choices if each.decision == "gemm.columns"), "")


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("make", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_both_kinds_of_columns_compute_the_same(make, machine):
    for number, way in enumerate(WAYS):
        with forced(f"gemm.columns={way}"):
            found = check_schedule(make(constant=bool(number)), machine, trace=True)
        assert columns_of(found) in (way, ""), way


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "parameter"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [CONVOLUTIONS[name] for name in ("1x1", "3x3, stride 2", "batch")])
def test_the_epilogue_is_in_the_tile(make, way, constant):
    with forced(f"gemm.columns={way}"):
        found = check_schedule(make(finish=True, constant=constant), MACHINES["wide"], trace=True)
    assert columns_of(found) == way


@pytest.mark.parametrize("sizes", [{N: 1, H: 4, W: 5}, {N: 3, H: 7, W: 19}], ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_images_of_symbolic_sizes(way, sizes):
    func = conv(3, 20, (H, W), (3, 3), pad=1, batch=N)
    with forced(f"gemm.columns={way}"):
        assert columns_of(check_schedule(func, MACHINES["usual"], sizes)) == way


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
@pytest.mark.parametrize("way", WAYS)
def test_other_dtypes(way, dtype):
    func = conv(4, 20, (5, 6), (3, 3), dtype=dtype)
    with forced(f"gemm.columns={way}"):
        assert columns_of(check_schedule(func, MACHINES["usual"])) == way


@pytest.mark.parametrize("decisions", ["gemm.k_block=blocked", "gemm.padding=skipped", "gemm.tile=1xN"])
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "parameter"])
def test_other_decisions_with_transposed_tiles(decisions, constant):
    func = conv(8, 40, (7, 7), (3, 3), pad=1, constant=constant)
    with forced(f"gemm.columns=transposed,{decisions}"):
        found = check_schedule(func, MACHINES["usual"], trace=True)
    assert columns_of(found) == "transposed"
    assert any(text.startswith(decisions) for text in found.attrs[DECISIONS]), found.attrs[DECISIONS]


@pytest.mark.parametrize("seed", range(4))
def test_random_decisions(seed):
    with forced(f"*=random:{seed}"):
        check_schedule(conv(5, 19, (7, 9), (3, 3), 2, pad=1, finish=True), MACHINES["usual"])


CHOSEN = {
    "rows of seven pixels": (conv(64, 64, (7, 7), (3, 3), pad=1), "transposed"),
    "rows of 28 pixels": (conv(128, 128, (28, 28), (3, 3), pad=1), "transposed"),
    "strided": (conv(3, 64, (224, 224), (7, 7), 2, pad=3), "transposed"),
    "parameter": (conv(64, 64, (14, 14), (3, 3), pad=1, constant=False), "transposed"),
    "few filters": (conv(64, 3, (112, 112), (3, 3), pad=1), "contiguous"),
    "few channels": (conv(8, 16, (112, 112), (1, 1)), "contiguous"),
    "parameter with padded vectors": (conv(4, 3, (1, 7), (1, 1), batch=2, constant=False), "contiguous"),
    "large weights for a few pixels": (conv(512, 512, (1, 8), (1, 1), constant=False), "contiguous"),
}


@pytest.mark.parametrize(("func", "expected"), CHOSEN.values(), ids=CHOSEN)
def test_the_columns_of_the_fewest_predicted_cycles_are_chosen(func, expected):
    assert columns_of(schedule_for(func, MACHINES["wide"])) == expected


def test_constant_weights_are_packed_when_compiled_and_others_in_the_kernel():
    constant, free = (
        schedule_for(conv(64, 64, (14, 14), (3, 3), pad=1, constant=is_constant), MACHINES["wide"])
        for is_constant in (True, False)
    )
    assert [*constant.attrs["repack"]] == [1]
    assert "repack" not in free.attrs
    (copy,) = [block for block in block_list(free.body) if "w" in block.name]
    assert copy.init is None
    assert not any("w" in block.name for block in block_list(constant.body))


@pytest.mark.parametrize("filters", [20, 64, 70, 200])
def test_copies_of_weights_have_no_tests(filters):
    """Padding of the last panel is a nest of its own, so that shuffles transpose all weights."""
    func = conv(24, filters, (3, 7), (1, 1), constant=False)
    with forced("gemm.columns=transposed"):
        found = check_schedule(func, MACHINES["wide"])
    copies = [block for block in block_list(found.body) if block.name.startswith("w_")]
    loads = [load for block in copies for load in loads_of(block)]
    assert {load.buffer.name for load in loads} == {"w"}
    values = [each for block in copies for each in post_order(block.body.value)]
    assert not any(isinstance(each, Call) and each.name == "if_then_else" for each in values)


def test_rows_of_windows_are_outermost_so_that_one_test_skips_them():
    func = schedule_for(conv(64, 64, (7, 7), (3, 3), pad=1), MACHINES["wide"])
    tests = [s for s in stmts(func.body) if isinstance(s, If)]
    inside = [[s for s in stmts(test.then) if isinstance(s, For) and s.kind == "serial"] for test in tests]
    assert [const_value(loop.extent) for loop in max(inside, key=len)] == [64, 3]


@pytest.mark.parametrize("pixels", [LOOPS.shuffled_lanes, LOOPS.shuffled_lanes - 1])
def test_tiles_of_enough_pixels_are_transposed_by_shuffles(pixels):
    func = conv(16, 32, (4, pixels), (1, 1))
    for name, has_shuffles in (("wide", pixels >= LOOPS.shuffled_lanes), ("no shuffles", False)):
        with forced("gemm.columns=transposed"):
            found = schedule_for(func, MACHINES[name])
        # The copy of the accumulators is what shuffles read.
        assert len(block_list(found.body)) == (4 if has_shuffles else 3)


def names_of(func: PrimFunc, machines: Sequence[Description]) -> set[str]:
    return {columns_of(schedule_for(func, machine)) for machine in machines}


def test_there_is_no_choice_where_columns_are_packed_already_or_vectors_are_missing():
    x, w = te.placeholder((9, 32), name="x"), te.placeholder((32, 40), name="w")
    k = te.reduce_axis(32, "k")
    dense = te.create_prim_func(
        [x, w], [te.compute((9, 40), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), "y")], "dense"
    )
    dense = replace(dense, attrs=MappingProxyType({**dense.attrs, "constants": (1,)}))
    assert names_of(dense, [*MACHINES.values()]) == {""}
    scalar = [Description(vector_bits=0, vector_registers=16), Description(vector_bits=128, short_code=True)]
    assert names_of(conv(4, 17, (6, 7), (3, 3)), scalar) == {""}
