"""Tensor programs on the card: a product and a convolution, tensorised by dlc's schedules."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_backend_vta.config import Config
from dlc_backend_vta.device import VtaDevice, run_arrays
from dlc_backend_vta.hazards import check
from dlc_backend_vta.intrinsics import GEMM, LOAD_INP, LOAD_WGT, STORE, ZERO, intrinsics
from dlc_backend_vta.plugin import KIND
from dlc_backend_vta.program import read_program
from dlc_backend_vta.tensor import compile_schedule
from helpers import convolved, drawn, flat

from dlc_core import te
from dlc_core.diag import UnsupportedError
from dlc_core.plugin.registry import registry
from dlc_core.schedule import Schedule
from dlc_core.target import Target
from dlc_core.testing.intrins import check_intrin
from dlc_core.tir.interpreter import run

SMALL = Config(batch=2, block_in=8, block_out=4)


@pytest.mark.parametrize("config", [Config(), SMALL])
def test_intrinsics_compute_their_descriptions(config):
    for intrin in intrinsics(config).values():
        check_intrin(intrin)


def test_the_plugin_provides_intrinsics_of_the_default_machine():
    assert "vta_gemm.1x16x16" in registry().tensor_intrins


def tensorised(schedule: Schedule, block, caches, init, config: Config) -> Schedule:
    """Replace every block by its intrinsic. `caches` are the copies of inputs, weights and results."""
    known = intrinsics(config)
    for each, name, inner in (
        (block, GEMM, 3),
        (init, ZERO, 2),
        *((copy, name, 2) for copy, name in zip(caches, (LOAD_INP, LOAD_WGT, STORE))),
    ):
        schedule.tensorize(schedule.get_loops(each)[-inner], known[name])
    return schedule


def product(m: int, n: int, k: int, tile: tuple[int, int, int], config: Config) -> Schedule:
    """A product of matrices in blocks, with tiles of blocks on the chip."""
    x = te.placeholder((m, k, config.batch, config.block_in), "int8", name="x")
    w = te.placeholder((n, k, config.block_out, config.block_in), "int8", name="w")
    ko, ki = te.reduce_axis(k, "ko"), te.reduce_axis(config.block_in, "ki")
    z = te.compute(
        (m, n, config.batch, config.block_out),
        lambda i, j, b, o: te.sum(
            x[i, ko, b, ki].astype("int32") * w[j, ko, o, ki].astype("int32"), axis=[ko, ki]
        ),
        name="z",
    )
    s = Schedule(te.create_prim_func([x, w], [z], name="product"))
    block = s.get_block("z")
    i, j, b, o, kk, ki_loop = s.get_loops(block)
    (i0, i1), (j0, j1), (k0, k1) = (
        s.split(loop, [None, size]) for loop, size in zip((i, j, kk), tile, strict=True)
    )
    s.reorder(i0, j0, k0, i1, j1, k1, b, o, ki_loop)
    out = s.cache_write(block, 0, "acc")
    copies = [s.cache_read(block, number, scope) for number, scope in enumerate(("inp", "wgt"))]
    for copy in copies:
        s.compute_at(copy, k0)
    s.reverse_compute_at(out, j0)
    init = s.decompose_reduction(block, k0)
    s.compact_buffers()
    return tensorised(s, block, [*copies, out], init, config)


def convolution(size: int, inputs: int, outputs: int, kernel: int, rows: int, config: Config) -> Schedule:
    """A convolution of an image in blocks of channels, with tiles of rows on the chip."""
    out = size - kernel + 1
    x = te.placeholder((inputs, size, size, config.batch, config.block_in), "int8", name="x")
    w = te.placeholder((outputs, inputs, kernel, kernel, config.block_out, config.block_in), "int8", name="w")
    ko, dy, dx = (te.reduce_axis(n, name) for n, name in ((inputs, "ko"), (kernel, "dy"), (kernel, "dx")))
    ki = te.reduce_axis(config.block_in, "ki")
    z = te.compute(
        (outputs, out, out, config.batch, config.block_out),
        lambda c, i, j, b, o: te.sum(
            x[ko, i + dy, j + dx, b, ki].astype("int32") * w[c, ko, dy, dx, o, ki].astype("int32"),
            axis=[ko, dy, dx, ki],
        ),
        name="z",
    )
    s = Schedule(te.create_prim_func([x, w], [z], name="convolution"))
    block = s.get_block("z")
    c, i, j, b, o, kk, dy_loop, dx_loop, ki_loop = s.get_loops(block)
    i0, i1 = s.split(i, [None, rows])
    s.reorder(c, i0, kk, i1, j, dy_loop, dx_loop, b, o, ki_loop)
    result = s.cache_write(block, 0, "acc")
    copies = [s.cache_read(block, number, scope) for number, scope in enumerate(("inp", "wgt"))]
    for copy in copies:
        s.compute_at(copy, kk)
    s.reverse_compute_at(result, i0)
    init = s.decompose_reduction(block, kk)
    s.compact_buffers()
    return tensorised(s, block, [*copies, result], init, config)


def on_card(schedule: Schedule, config: Config, *arrays):
    """Check the results and tokens of a program on the card. Returns its time."""
    options = {name: getattr(config, name) for name in ("batch", "block_in", "block_out", "inp_kb", "acc_kb")}
    artifact = compile_schedule(schedule, Target(KIND).with_options(**options))
    expected = [array.copy() for array in arrays]
    run(schedule.func, *expected, externs=schedule.externs)
    program = read_program(artifact)
    constants, scratch = np.frombuffer(program.constants, np.uint8), np.zeros(0, np.uint8)
    check(program.instructions, config, [flat(constants), scratch, *map(flat, arrays)])
    report = run_arrays(VtaDevice(), artifact, *arrays)
    for have, want in zip(arrays, expected):
        np.testing.assert_array_equal(have, want)
    return report


@pytest.mark.parametrize("config", [Config(), SMALL])
def test_a_product(config):
    rng = np.random.default_rng(0)
    m, n, k = 8, 4, 6
    x = drawn(rng, m, k, config.batch, config.block_in)
    w = drawn(rng, n, k, config.block_out, config.block_in)
    z = np.zeros((m, n, config.batch, config.block_out), np.int32)
    report = on_card(product(m, n, k, (4, 2, 3), config), config, x, w, z)
    left = x.transpose(0, 2, 1, 3).reshape(m * config.batch, -1).astype(np.int32)
    right = w.transpose(0, 2, 1, 3).reshape(n * config.block_out, -1).astype(np.int32)
    np.testing.assert_array_equal(z.transpose(0, 2, 1, 3).reshape(left.shape[0], -1), left @ right.T)
    # 8 iterations of two loads and a product, 4 of zeros and a store: calls become few instructions.
    assert report.instructions <= 1 + 8 * 3 + 4 * 2


def test_a_convolution():
    rng = np.random.default_rng(1)
    size, inputs, outputs, kernel = 8, 2, 2, 3
    x, w = drawn(rng, 1, inputs * 16, size, size), drawn(rng, outputs * 16, inputs * 16, kernel, kernel)
    blocks = np.ascontiguousarray(x[0].reshape(inputs, 1, 16, size, size).transpose(0, 3, 4, 1, 2))
    kernels = w.reshape(outputs, 16, inputs, 16, kernel, kernel).transpose(0, 2, 4, 5, 1, 3)
    z = np.zeros((outputs, 6, 6, 1, 16), np.int32)
    on_card(convolution(size, inputs, outputs, kernel, 3, Config()), Config(), blocks, kernels.copy(), z)
    expected = convolved(x, w, (1, 1), (0, 0, 0, 0), (1, 1), 0)
    np.testing.assert_array_equal(z[..., 0, :].transpose(0, 3, 1, 2).reshape(1, 32, 6, 6), expected)


def test_iterations_overlap_if_two_tiles_fit():
    m, n, k = 64, 2, 6

    def time(config: Config) -> int:
        arrays = [np.zeros(shape, np.int8) for shape in ((m, k, 1, 16), (n, k, 16, 16))]
        return on_card(
            product(m, n, k, (64, 2, 2), config), config, *arrays, np.zeros((m, n, 1, 16), np.int32)
        ).cycles

    assert time(Config(inp_kb=4)) < 0.8 * time(Config(inp_kb=2))


def test_unsupported_programs_are_refused():
    target = Target(KIND)
    s = Schedule(product(8, 4, 6, (4, 2, 3), Config()).func)
    assert compile_schedule(s, target).symbols == ("product",)
    with pytest.raises(UnsupportedError, match="of inp at once"):
        compile_schedule(product(128, 1, 16, (128, 1, 16), Config()), target.with_options(inp_kb=1))
    x = te.placeholder((4, 4), "int8", name="x")
    plain = Schedule(te.create_prim_func([x], [te.compute((4, 4), lambda i, j: x[i, j], name="y")]))
    with pytest.raises(UnsupportedError, match="stores to y by itself"):
        compile_schedule(plain, target)
