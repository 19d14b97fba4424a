"""A 16×16 matrix unit: described, tensorised into a product, run by a Python reference and as native code.

A tensor intrinsic has a description of the machine's computation (`desc`, in the script), its implementation
in programs (`impl`), and the reference of both in NumPy (`reference`). Here are two for one description:
`mma_unit` calls a function that this machine does not have, so the interpreter runs its reference;
`mma_native` is written in the script, and compiled.
"""

from __future__ import annotations

import numpy as np

import dlc_core as dlc
from dlc_core import te
from dlc_core.schedule import Schedule, TensorIntrin
from dlc_core.script import T
from dlc_core.tir.interpreter import run

TILE = 16
M, N, K = 64, 96, 128


@T.prim_func
def description(
    a: T.Buffer((TILE, TILE), "float32"),
    b: T.Buffer((TILE, TILE), "float32"),
    c: T.Buffer((TILE, TILE), "float32"),
):
    """c += a @ b"""
    for i, j, k in T.grid(TILE, TILE, TILE):
        with T.block("update"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]


@T.prim_func
def unit(
    a: T.Buffer((TILE, TILE), "float32", strides=(a_step, 1)),  # noqa: F821  (parameters of the program)
    b: T.Buffer((TILE, TILE), "float32", strides=(b_step, 1)),  # noqa: F821
    c: T.Buffer((TILE, TILE), "float32", strides=(c_step, 1)),  # noqa: F821
    a_step: T.int64,
    b_step: T.int64,
    c_step: T.int64,
):
    """A call of the machine's function with the addresses of the tiles and the strides of their rows."""
    T.evaluate(
        T.call_extern(
            "unit_mma",
            T.address_of(c[0, 0]),
            T.address_of(a[0, 0]),
            T.address_of(b[0, 0]),
            c_step,
            a_step,
            b_step,
            dtype="int32",
        )
    )


@T.prim_func
def native(
    a: T.Buffer((TILE, TILE), "float32"),
    b: T.Buffer((TILE, TILE), "float32"),
    c: T.Buffer((TILE, TILE), "float32"),
):
    """Rows of the tile stay in registers while the products are summed."""
    rows = T.alloc_buffer((TILE, TILE), "float32", scope="local")
    for i in T.unroll(TILE):
        for j in T.vectorized(TILE):
            rows[i, j] = c[i, j]
    for k in range(TILE):
        for i in T.unroll(TILE):
            for j in T.vectorized(TILE):
                rows[i, j] = rows[i, j] + a[i, k] * b[k, j]
    for i in T.unroll(TILE):
        for j in T.vectorized(TILE):
            c[i, j] = rows[i, j]


def reference(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """The computation of both."""
    c += a @ b


MMA_UNIT = TensorIntrin("mma_unit", description, unit, reference)
MMA_NATIVE = TensorIntrin("mma_native", description, native, reference)


def tensorised(intrin: TensorIntrin) -> Schedule:
    """A product of matrices in tiles that the intrinsic computes."""
    x, y = te.placeholder((M, K), name="x"), te.placeholder((K, N), name="y")
    k = te.reduce_axis(K, "k")
    z = te.compute((M, N), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="z")
    s = Schedule(te.create_prim_func([x, y], [z], name="product"))
    block = s.get_block("z")
    tiles = [s.split(loop, [None, TILE]) for loop in s.get_loops(block)]
    s.reorder(*(outer for outer, _ in tiles), *(inner for _, inner in tiles))
    s.decompose_reduction(block, tiles[2][0])
    s.tensorize(tiles[0][1], intrin)
    s.parallel(tiles[0][0])
    return s


rng = np.random.default_rng(0)
left, right = rng.standard_normal((M, K), np.float32), rng.standard_normal((K, N), np.float32)

by_unit = tensorised(MMA_UNIT)
print(by_unit.func.script())
result = np.empty((M, N), np.float32)
run(by_unit.func, left, right, result, externs=by_unit.externs)
np.testing.assert_allclose(result, left @ right, rtol=1e-3, atol=1e-4)
print("by calls of the unit, run by the reference: equal to NumPy")

exe = dlc.build(tensorised(MMA_NATIVE), num_threads=1)
np.testing.assert_allclose(exe(left, right), left @ right, rtol=1e-3, atol=1e-4)
timing = exe.time_evaluator(repeat=5, min_repeat_ms=2)(left, right)
print(f"as native code: equal to NumPy, {2 * M * N * K / timing.min / 1e9:.1f} GFLOP/s")

p, q = te.placeholder((M, N), name="p"), te.placeholder((M, N), name="q")
other = Schedule(te.create_prim_func([p, q], [te.compute((M, N), lambda i, j: p[i, j] - q[i, j], name="r")]))
try:
    other.tensorize(other.get_loops(other.get_block("r"))[0], MMA_UNIT)
except dlc.DlcError as error:
    print(f"\nrefused: {error}")
