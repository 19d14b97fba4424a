"""The contraction rule: matrix products and convolutions on machines of every kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlc_core.decisions import forced
from dlc_core.graph.node import Node, param
from dlc_core.ir.expr import Var, const_value
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.schedule.rules.cpu.register_tile import Distribution, Tile, choose, domain_cycles, fits
from dlc_core.target import Description
from dlc_core.testing.schedules import check_schedule, kernel_of, schedule_for
from dlc_core.tir.functor import block_list, stmts
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import Alloc, Block, For, PrimFunc

MACHINES = {
    "scalar": Description(vector_bits=0, vector_registers=16, cores=2),
    "narrow": Description(vector_bits=128, vector_registers=8, cores=1, parallel=False),
    "usual": Description(vector_bits=256, vector_registers=16, cores=2),
    "wide": Description(vector_bits=512, vector_registers=32, cores=8),
}
machines = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
M, N, K, B = Var("m"), Var("n"), Var("k"), Var("b")


def tensor(name: str, *shape: object, dtype: str = "float32") -> Node:
    return param(name, tensor_type(shape, dtype))


def matmul(
    a: tuple, b: tuple, dtype: str = "float32", *, finish: bool = False, constants=(), **attrs
) -> PrimFunc:
    """A product, with a bias and a gelu if `finish` is set."""
    params = [tensor("a", *a, dtype=dtype), tensor("b", *b, dtype=dtype)]
    y = std.matmul(*params, **attrs)
    if finish:
        params.append(tensor("bias", y.shape[-1], dtype=dtype))
        y = std.gelu(std.add(y, params[-1]))
    return kernel_of(y, params, constants=constants)


def is_contraction(scheduled: PrimFunc) -> None:
    assert scheduled.attrs["why_not"] == ()
    assert scheduled.attrs["rule"] == "cpu.contraction"


MATMULS = {
    "row": lambda: matmul((1, 5), (5, 7)),
    "column": lambda: matmul((7, 5), (5, 1)),
    "outer": lambda: matmul((6, 1), (1, 11)),
    "primes": lambda: matmul((13, 7), (7, 37)),
    "larger than tiles": lambda: matmul((40, 3), (3, 70), finish=True, constants=(1,)),
    "constant": lambda: matmul((13, 6), (6, 37), constants=(1,)),
    "constant transposed": lambda: matmul((13, 6), (37, 6), transpose_b=True, constants=(1,)),
    "both constant": lambda: matmul((9, 6), (6, 21), constants=(0, 1)),
    "transposed": lambda: matmul((6, 13), (17, 6), transpose_a=True, transpose_b=True),
    "batched": lambda: matmul((2, 3, 5, 4), (2, 3, 4, 17)),
    "broadcast batch": lambda: matmul((2, 1, 5, 4), (3, 4, 9), finish=True),
    "one matrix for all rows": lambda: matmul((2, 3, 5, 6), (6, 17), constants=(1,), finish=True),
    "rows in digits of tiles": lambda: matmul((2, 7, 7, 3), (3, 8)),
}


@pytest.mark.parametrize("columns", [10, 16, 32, 512])
def test_panels_of_machines_without_vectors_have_little_padding(columns):
    width = choose(1, columns, 1, 16).vectors
    assert width >= 4
    assert -columns % width * 32 <= columns


@machines
@pytest.mark.parametrize("make", MATMULS.values(), ids=MATMULS)
def test_products(make, machine):
    is_contraction(check_schedule(make(), machine))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize("machine", [MACHINES["narrow"], MACHINES["wide"]], ids=["narrow", "wide"])
def test_products_of_every_dtype(dtype, machine):
    is_contraction(check_schedule(matmul((9, 6), (6, 37), dtype, constants=(1,)), machine))


SYMBOLIC = {
    "m": lambda: matmul((M, 6), (6, 20), constants=(1,), finish=True),
    "n": lambda: matmul((7, 6), (6, N)),
    "k": lambda: matmul((7, K), (K, 20)),
    "m n k": lambda: matmul((M, K), (K, N)),
    "b m": lambda: matmul((B, M, 6), (18, 6), transpose_b=True, constants=(1,)),
}
SIZES = {
    "ones": {M: 1, N: 1, K: 1, B: 1},
    "some": {M: 7, N: 19, K: 5, B: 2},
    "no results": {M: 0, N: 0, K: 2, B: 0},
    "empty sums": {M: 3, N: 5, K: 0, B: 1},
    "fewer than a tile": {M: 2, N: 3, K: 9, B: 1},
}


@pytest.mark.parametrize("machine", [MACHINES["scalar"], MACHINES["usual"]], ids=["scalar", "usual"])
@pytest.mark.parametrize("make", SYMBOLIC.values(), ids=SYMBOLIC)
def test_symbolic_products(make, machine):
    func = make()
    for sizes in SIZES.values():
        is_contraction(check_schedule(func, machine, sizes))


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 17])
def test_symbolic_rows_are_full_tiles_short_tiles_and_single_rows(rows):
    func = check_schedule(matmul((M, 6), (6, 16), constants=(1,)), MACHINES["usual"], {M: rows})
    extent = [str(s.extent) for s in stmts(func.body) if isinstance(s, For) and s.kind == "parallel"]
    assert extent == ["m // 6", "m % 6 // 4", "m % 6 % 4"]


def test_tails_of_two_rows_are_single_rows():
    func = check_schedule(matmul((M, 2, 6), (6, 16), constants=(1,)), MACHINES["usual"], {M: 3})
    is_contraction(func)


@pytest.mark.slow
@machines
@pytest.mark.parametrize("sizes", [*SIZES.values(), {M: 30, N: 70, K: 2, B: 3}], ids=[*SIZES, "large"])
def test_more_symbolic_products(machine, sizes):
    for func in (
        matmul((B, M, K), (B, K, N)),
        matmul((B, M, K), (B, N, K), transpose_b=True),
        matmul((B, M, 6), (6, 18), finish=True),
        matmul((M, 9), (9, N), finish=True),
    ):
        is_contraction(check_schedule(func, machine, sizes))


def conv(
    channels: int,
    size: tuple[int, ...],
    outputs: int,
    window: tuple[int, ...],
    *,
    batch: int = 1,
    groups: int = 1,
    layout: str = "NXC",
    dtype: str = "float32",
    finish: bool = True,
    **attrs,
) -> PrimFunc:
    """A convolution with constant weights, with bias and relu unless `finish` is false."""
    last = layout == "NXC"
    x = tensor("x", batch, *((*size, channels) if last else (channels, *size)), dtype=dtype)
    inner = (channels // groups, outputs)
    w = tensor("w", *((*window, *inner) if last else (*reversed(inner), *window)), dtype=dtype)
    params = [x, w, *([tensor("b", outputs, dtype=dtype)] if finish else [])]
    kernel_layout = "XIO" if last else "OIX"
    y = std.conv(*params, groups=groups, layout=layout, kernel_layout=kernel_layout, **attrs)
    return kernel_of(std.relu(y) if finish else y, params, constants=range(1, len(params)))


SAME = (1, 1, 1, 1)
CONVS = {
    "padded": lambda **k: conv(3, (6, 5), 20, (3, 3), padding=SAME, **k),
    "strides": lambda **k: conv(2, (7, 6), 9, (3, 2), batch=2, padding=(1, 0, 1, 1), strides=(2, 2), **k),
    "dilation": lambda **k: conv(2, (8, 6), 17, (3, 3), dilation=(2, 1), **k),
    "point": lambda **k: conv(5, (7, 8), 33, (1, 1), **k),
    "point with stride": lambda **k: conv(5, (7, 8), 33, (1, 1), strides=(2, 2), **k),
    "point of a batch": lambda **k: conv(2, (7, 7), 16, (1, 1), batch=2, **k),
    "whole image": lambda **k: conv(2, (4, 4), 13, (4, 4), batch=2, **k),
    "1d": lambda **k: conv(3, (19,), 10, (3,), batch=2, padding=(1, 1), **k),
    "3d": lambda **k: conv(2, (3, 4, 4), 9, (2, 3, 3), padding=(1, 1, 1, 0, 1, 1), **k),
    "plain": lambda **k: conv(3, (6, 5), 12, (3, 3), finish=False, **k),
    "int32": lambda **k: conv(3, (5, 5), 12, (3, 3), dtype="int32", **k),
    "float64": lambda **k: conv(3, (5, 5), 12, (3, 3), dtype="float64", **k),
}
GROUPED = {
    "groups": lambda **k: conv(4, (5, 6), 6, (3, 3), groups=2, padding=SAME, **k),
    "wide groups": lambda **k: conv(6, (4, 4), 48, (3, 3), groups=3, padding=SAME, **k),
    "point groups": lambda **k: conv(12, (5, 7), 60, (1, 1), groups=4, batch=2, **k),
    "int32 groups": lambda **k: conv(6, (5, 5), 22, (3, 2), groups=2, dtype="int32", **k),
}


@pytest.mark.parametrize("make", [*CONVS.values(), *GROUPED.values()], ids=[*CONVS, *GROUPED])
def test_convolutions(make):
    for machine in (MACHINES["scalar"], MACHINES["usual"]):
        is_contraction(check_schedule(make(), machine))


@pytest.mark.slow
@pytest.mark.parametrize("make", [*CONVS.values(), *GROUPED.values()], ids=[*CONVS, *GROUPED])
@pytest.mark.parametrize("layout", ["NXC", "NCX"])
@machines
def test_convolutions_on_every_machine(machine, layout, make):
    if layout == "NXC" or make in CONVS.values():
        is_contraction(check_schedule(make(layout=layout), machine))


@pytest.mark.parametrize("make", CONVS.values(), ids=CONVS)
def test_convolutions_with_channels_first(make):
    is_contraction(check_schedule(make(layout="NCX"), MACHINES["usual"]))


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("size", [(7, 7), (14, 14), (12, 20), (13, 26), (15, 10)])
@machines
def test_point_convolutions_of_every_size_are_tiled(machine, size, batch):
    for outputs in (48, 64, 100):
        is_contraction(schedule_for(conv(16, size, outputs, (1, 1), batch=batch), machine))


def test_depthwise_convolutions_take_lanes_over_channels():
    for channels in (11, 40):
        func = conv(channels, (5, 6), channels, (3, 3), groups=channels, padding=SAME)
        scheduled = check_schedule(func, MACHINES["usual"])
        assert (scheduled.attrs["rule"], scheduled.attrs["why_not"]) == ("cpu.lanes", ())


def test_constant_weights_are_repacked_in_panels():
    scheduled = check_schedule(matmul((13, 6), (6, 37), constants=(1,)), MACHINES["usual"])
    ((position, layout),) = scheduled.attrs["repack"].items()
    assert position == 1
    panels, k, width = scheduled.buffers[1].static_shape()
    assert k == 6
    assert width % 8 == 0
    assert panels * width >= 37
    weights = np.arange(6 * 37, dtype="float32").reshape(6, 37)
    packed = layout.apply_numpy(weights)
    columns = np.moveaxis(packed, 1, 0).reshape(6, -1)
    np.testing.assert_array_equal(columns[:, :37], weights)
    assert not columns[:, 37:].any()
    assert "repack" not in check_schedule(matmul((13, 6), (6, 37)), MACHINES["usual"]).attrs


def test_weights_of_point_convolutions_are_repacked():
    func = schedule_for(conv(64, (7, 7), 96, (1, 1)), MACHINES["wide"])
    assert func.buffers[1].static_shape() == (1, 1, 6, 64, 16)


@pytest.mark.parametrize(("window", "groups", "outputs"), [((1, 1), 4, 136), ((3, 3), 2, 40)])
def test_weights_of_groups_are_repacked_in_panels_of_each_group(window, groups, outputs):
    func = check_schedule(conv(4 * groups, (6, 6), outputs, window, groups=groups), MACHINES["wide"])
    ((position, layout),) = func.attrs["repack"].items()
    width = func.buffers[position].static_shape()[-1]
    assert width % MACHINES["wide"].lanes(32) == 0
    weights = np.arange(np.prod(window) * 4 * outputs, dtype="float32").reshape(*window, 4, outputs)
    packed = layout.apply_numpy(weights).reshape(groups, -1, *window, 4, width)
    for group in range(groups):
        columns = np.moveaxis(packed[group], 0, -2).reshape(*window, 4, -1)
        size = outputs // groups
        np.testing.assert_array_equal(columns[..., :size], weights[..., group * size : (group + 1) * size])
        assert not columns[..., size:].any()


def test_weights_of_groups_that_are_no_constants_are_read_in_place():
    x, w = tensor("x", 1, 5, 5, 6), tensor("w", 1, 1, 3, 40)
    y = std.conv(x, w, groups=2, layout="NXC", kernel_layout="XIO")
    func = check_schedule(kernel_of(y, [x, w]), MACHINES["wide"])
    is_contraction(func)
    assert "repack" not in func.attrs


@pytest.mark.parametrize(("inner", "expected"), [(64, False), (256, True)])
def test_weights_larger_than_l2_are_prefetched(inner, expected):
    machine = replace(MACHINES["wide"], caches=(32 << 10, 512 << 10))
    func = check_schedule(matmul((28, inner), (inner, 96), constants=(1,)), machine)
    noted = [s.annotations["prefetch"] for s in stmts(func.body) if isinstance(s, For) and s.annotations]
    assert noted == [("p1", (512 << 10) // 8 // 4)] * expected


def test_symbolic_windows_need_no_test_of_the_first_row():
    """There is no test for rows before the first one, and accumulators stay in registers."""
    x, w = tensor("x", 1, M, N, 3), tensor("w", 2, 2, 3, 8)
    made = std.conv(x, w, layout="NXC", kernel_layout="XIO")
    func = check_schedule(kernel_of(made, [x, w], constants=(1,)), MACHINES["usual"], {M: 4, N: 21})
    is_contraction(func)
    places = [str(value) for block in block_list(func.body) for value in block.values]
    assert not any("max" in place for place in places)


def test_skinny_gemm_relies_on_hardware_prefetching():
    machine = replace(MACHINES["wide"], caches=(32 << 10, 512 << 10))
    func = check_schedule(matmul((1, 256), (256, 96), constants=(1,)), machine)
    assert not any(isinstance(s, For) and s.annotations for s in stmts(func.body))


@pytest.mark.parametrize(("columns", "shared"), [(384, True), (336, False)])
def test_tiles_of_rows_share_prefetches_of_the_next_panels(columns, shared):
    """The first panel is not prefetched: with few panels, one is too large."""
    machine = replace(MACHINES["wide"], cores=1, caches=(32 << 10, 512 << 10))
    func = schedule_for(matmul((49, 256), (256, columns), constants=(1,)), machine)
    is_contraction(func)
    loops = [s for s in stmts(func.body) if isinstance(s, For)]
    noted = [s.annotations["prefetch"] for s in loops if "prefetch" in s.annotations]
    ahead = 2 * 48 * 256
    assert set(noted) == {("p1", ahead, 6, 0) if shared else ("p1", (512 << 10) // 8 // 4)}
    assert sum("prefetch_part" in s.annotations for s in loops) == shared


@pytest.mark.parametrize(
    ("rows", "inner", "steps"),
    [(1, 2048, 128), (1, 300, 100), (1, 128, 0), (2, 2048, 0), (1, 257, 0)],
)
def test_long_sums_of_single_rows_use_blocked_summation(rows, inner, steps):
    func = schedule_for(matmul((rows, inner), (inner, 96), constants=(1,)), MACHINES["wide"])
    is_contraction(func)
    loops = [const_value(s.extent) for s in stmts(func.body) if isinstance(s, For) and s.kind == "serial"]
    assert (steps in loops and inner // steps in loops) if steps else inner in loops


def test_blocked_summation_has_smaller_errors():
    rng = np.random.default_rng(3)
    a, b = rng.random((1, 1024), np.float32), rng.standard_normal((1024, 32), np.float32)
    func = check_schedule(matmul((1, 1024), (1024, 32)), MACHINES["wide"])
    made = np.zeros((1, 32), np.float32)
    run(func, a, b, made)
    exact = a.astype(np.float64) @ b
    in_order = np.cumsum(a.T * b, axis=0, dtype=np.float32)[-1]
    assert np.square(made - exact).sum() < np.square(in_order - exact).sum() / 3


@machines
@pytest.mark.parametrize("columns", [48, 49, 100])
@pytest.mark.parametrize("rows", [29, 100, 512])
def test_tiles_at_all_edges_are_in_registers(machine, rows, columns):
    func = schedule_for(matmul((rows, 16), (16, columns), constants=(1,)), machine)
    is_contraction(func)
    assert not [
        block.name for block in stmts(func.body) if isinstance(block, Block) and block.init is not None
    ]


@pytest.mark.parametrize(("inner", "extent"), [(64, 28), (1000, 6)])
def test_rows_are_distributed_if_weights_fit_l2(inner, extent):
    """A thread computes all panels of a tile of rows if weights fit L2, else all rows of a panel if that
    fits.
    """
    machine = replace(MACHINES["wide"], caches=(32 << 10, 512 << 10), cores=2)
    func = schedule_for(conv(inner, (28, 14), 192, (1, 1)), machine)
    parallel = [s for s in stmts(func.body) if isinstance(s, For) and s.kind == "parallel"]
    assert const_value(parallel[-1].extent) == extent


def test_only_large_kernels_are_parallel():
    def kinds(func):
        return {s.kind for s in stmts(schedule_for(func, MACHINES["usual"]).body) if isinstance(s, For)}

    assert "parallel" not in kinds(matmul((8, 8), (8, 8)))
    assert "parallel" in kinds(matmul((128, 128), (128, 128)))
    assert "parallel" in kinds(matmul((1, 512), (512, 512)))
    serial = schedule_for(matmul((128, 128), (128, 128)), MACHINES["narrow"])
    assert not any(isinstance(s, For) and s.kind == "parallel" for s in stmts(serial.body))


extents = st.one_of(st.none(), st.integers(0, 300))


@given(extents, extents, st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 33))
def test_tiles_fit_and_are_the_cheapest(rows, columns, lanes, registers):
    tile = choose(rows, columns, lanes, registers)
    assert tile.rows >= 1
    assert tile.vectors >= 1
    assert fits(tile.rows, tile.vectors, registers) or tile == Tile(1, 1)
    if not rows or not columns:
        return
    assert tile.rows <= rows
    needed = -(-columns // lanes)
    assert tile.vectors <= needed
    best = domain_cycles(rows, needed, tile.rows, tile.vectors)
    for height in range(1, min(rows, 8) + 1):
        for width in range(1, min(needed, 8) + 1):
            if fits(height, width, registers):
                assert best <= domain_cycles(rows, needed, height, width)


def test_tiles_of_common_machines():
    # Six rows of two vectors leave 4 of 16 registers for the vectors of a step and a broadcast.
    assert choose(960, 960, 8, 16) == Tile(6, 2)
    assert choose(1, 1024, 8, 16).rows == 1
    assert choose(None, None, 8, 16).vectors == 1


def test_power_of_two_row_strides_are_padded():
    """Rows of a tall tile would share a set of L1, so a copy pads them."""
    machine = replace(MACHINES["wide"], caches=(1 << 10, 1 << 16))

    def strides(func: PrimFunc, m: int = 1) -> list[object]:
        scheduled = check_schedule(func, machine, {M: m})
        is_contraction(scheduled)
        buffers = [s.buffer for s in stmts(scheduled.body) if isinstance(s, Alloc)]
        return [const_value(b.strides[-2]) for b in buffers if b.strides is not None]

    assert strides(matmul((20, 32), (32, 128), constants=(1,))) == [], "a tile has fewer rows instead"
    with forced("gemm.tile=8x2"):
        assert strides(matmul((8, 32), (32, 128), constants=(1,))) == [48]
        assert strides(matmul((M, 32), (32, 128), constants=(1,)), m=15) == [48]
        assert strides(matmul((8, 40), (40, 128), constants=(1,))) == []
        assert strides(matmul((8, 32), (32, 64), constants=(1,))) == [], "a copy costs more than it saves"


@pytest.mark.parametrize("name", ["padded", "strides", "1d", "3d"])
def test_row_strides_of_padded_copies_are_odd_cache_lines(name):
    """Several blocks write the copy, its borders and its interior."""
    machine = replace(MACHINES["usual"], caches=(1 << 11, 1 << 14), cache_ways=2)
    func = check_schedule(CONVS[name](), machine)
    is_contraction(func)
    assert any(s.buffer.strides is not None for s in stmts(func.body) if isinstance(s, Alloc))


def test_panels_are_distributed_evenly():
    """Five panels would leave one of two threads idle for a third of the time."""
    assert choose(49, 160, 16, 32).vectors == 2
    evenly = choose(49, 160, 16, 32, Distribution(2))
    assert -(-160 // 16 // evenly.vectors) % 2 == 0
    assert choose(49, 160, 16, 32, Distribution(2, panels=False)).vectors == 2
    many = choose(4096, 4096, 16, 32)
    assert choose(4096, 4096, 16, 32, Distribution(8)) == many


@pytest.mark.parametrize(("rows", "columns"), [(196, 408), (30, 100)])
def test_tiles_of_a_last_narrow_panel_are_distributed(rows, columns):
    """The last panel is outside of the loop over panels, so one thread would compute it while others wait."""
    machine = replace(MACHINES["wide"], cores=2)
    func = schedule_for(matmul((rows, 64), (64, columns), constants=(1,)), machine)
    is_contraction(func)
    shared = {id(s) for each in parallel_loops(func) for s in stmts(each)}
    products = [b for b in block_list(func.body) if b.name.startswith("matmul") and b.init is None]
    assert products
    assert all(id(block) in shared for block in products)
    assert len(parallel_loops(func)) > 1


def parallel_loops(func: PrimFunc) -> list[For]:
    return [s for s in stmts(func.body) if isinstance(s, For) and s.kind == "parallel"]


def test_partial_panels_count_for_balance():
    for rows, columns in ((196, 408), (196, 912), (49, 408)):
        panels = -(-columns // 16) // choose(rows, columns, 16, 32, Distribution(2)).vectors
        assert panels % 2 == 0 or panels > 8


ACROSS = {
    "tiles": lambda: matmul((13, 9), (37, 9), transpose_b=True, finish=True),
    "batched": lambda: matmul((2, 3, 17, 20), (2, 3, 33, 20), transpose_b=True),
    "broadcast batch": lambda: matmul((2, 1, 5, 16), (3, 16, 16), transpose_b=True),
}


@machines
@pytest.mark.parametrize("make", ACROSS.values(), ids=ACROSS)
def test_computed_weights_contiguous_along_k_are_packed(make, machine):
    scheduled = check_schedule(make(), replace(machine, intrinsics=frozenset({"vector_shuffle"})))
    is_contraction(scheduled)
    assert any(isinstance(s, Alloc) and s.buffer.scope == "global" for s in stmts(scheduled.body))


@machines
@pytest.mark.parametrize("rows", [1, 2])
def test_skinny_gemm_reduces_along_rows_of_computed_weights(rows, machine):
    machine = replace(machine, intrinsics=frozenset({"vector_shuffle"}))
    scheduled = check_schedule(matmul((rows, 21), (35, 21), transpose_b=True, finish=True), machine)
    assert scheduled.attrs["rule"] == "cpu.rows"
    is_contraction(check_schedule(matmul((rows, 21), (35, 21), transpose_b=True, constants=(1,)), machine))


@pytest.mark.parametrize("window", [{}, {"padding": SAME}, {"strides": (2, 2)}, {"dilation": (1, 2)}])
def test_one_output_channel_is_a_reduction_along_channels(window):
    machine = replace(MACHINES["usual"], intrinsics=frozenset({"vector_shuffle"}))
    scheduled = check_schedule(conv(24, (6, 7), 1, (3, 3), **window), machine)
    assert scheduled.attrs["rule"] == "cpu.rows"


OTHERS = {
    "two channels": lambda: conv(24, (6, 7), 2, (3, 3)),
    "fewer channels than lanes": lambda: conv(3, (6, 7), 1, (3, 3)),
    "channels first": lambda: conv(24, (6, 7), 1, (3, 3), layout="NCX"),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_other_windows_are_tiled(make):
    machine = replace(MACHINES["usual"], intrinsics=frozenset({"vector_shuffle"}))
    is_contraction(check_schedule(make(), machine))
