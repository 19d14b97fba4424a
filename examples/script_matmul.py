"""A matrix product in script, made fast step by step by schedule primitives, against the peak of a core.

    python examples/script_matmul.py [--size 1024]

Each step continues the one before and prints the speed on one thread. The peak is that of a loop of
independent fused multiply-adds, measured in the same run. Tile sizes follow from the target's description:
the length of vectors and the number of vector registers.
"""

from __future__ import annotations

import argparse

import numpy as np

import dlc_core as dlc
from dlc_core.schedule import Schedule
from dlc_core.script import T
from dlc_core.testing.peak import peak_gflops

options = argparse.ArgumentParser(description="A matrix product, step by step.")
options.add_argument("--size", type=int, default=128, help="rows, columns and the length of a dot product")
N = options.parse_args().size


@T.prim_func
def matmul(a: T.Buffer((N, N), "float32"), b: T.Buffer((N, N), "float32"), c: T.Buffer((N, N), "float32")):
    for i, j, k in T.grid(N, N, N):
        with T.block("product"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                c[vi, vj] = T.float32(0.0)
            c[vi, vj] = c[vi, vj] + a[vi, vk] * b[vk, vj]


def register_tile(size: int, lanes: int, registers: int) -> tuple[int, int]:
    """Rows and vectors of a tile of accumulators: the tile with the most work per loaded operand.

    The accumulators, the vectors of one step and an element of the other matrix are in registers at once.
    """
    fitting = [
        (rows, vectors)
        for rows in range(1, registers)
        for vectors in range(1, registers)
        if rows * vectors + vectors + 1 <= registers and size % rows == 0 and size % (vectors * lanes) == 0
    ]
    if not fitting:
        raise SystemExit(f"--size must be a multiple of {lanes}, the elements of a vector here")
    return max(fitting, key=lambda tile: (tile[0] * tile[1] / (tile[0] + tile[1]), tile[0]))


rng = np.random.default_rng(0)
x, y = rng.standard_normal((2, N, N), np.float32)
expected = x @ y


def report(step: str, schedule: Schedule, threads: int = 1, repeat: int = 7) -> float:
    """Build the schedule, check its result, print and return its GFLOP/s."""
    last = schedule.copy()
    last.compact_buffers()  # the last step of every schedule: temporaries shrink to the size of one tile
    exe = dlc.build(last, num_threads=threads)
    np.testing.assert_allclose(exe(x, y), expected, rtol=1e-3, atol=1e-3)
    timing = exe.time_evaluator(number=1, repeat=repeat, min_repeat_ms=2, warmup=0)(x, y)
    gflops = 2 * N**3 / timing.min / 1e9
    print(f"{step:44} {gflops:8.1f} GFLOP/s")
    return gflops


s = Schedule(matmul)
print(s.show())
block = s.get_block("product")
machine = dlc.build(s).target.describe()
lanes, registers = machine.lanes(32), machine.vector_registers
rows, vectors = register_tile(N, lanes, registers)
core = peak_gflops(lanes, registers)
print(f"\n{N}³ in float32, a vector is {lanes} elements, the tile is {rows} rows × {vectors} vectors")
print(f"{'peak of a core: independent multiply-adds':44} {core:8.1f} GFLOP/s")
report("three loops", s, repeat=1)

i, j, k = s.get_loops(block)
j_outer, j_inner = s.split(j, [None, vectors * lanes])
i_outer, i_inner = s.split(i, [None, rows])
s.reorder(j_outer, i_outer, k, i_inner, j_inner)
report("tiled", s, repeat=1)

vector, lane = s.split(j_inner, [None, lanes])
s.vectorize(lane)
report("vectorised", s)

# Each panel of b is copied once, so that the inner loop reads it in order.
panel = vectors * lanes
packed = s.cache_read(block, "b", "global")
s.transform_layout(block, "b_global", lambda k, j: (j // panel, k, j % panel))
s.compute_at(packed, j_outer)
part, lane_of_part = s.split(s.get_loops(packed)[-1], [None, lanes])
s.unroll(part)
s.vectorize(lane_of_part)
report("b packed into panels", s)

# The tile's accumulators stay in registers over the whole reduction and are stored once.
stored = s.cache_write(block, 0, "local")
s.reverse_compute_at(stored, i_outer)
s.unroll(i_inner)
s.unroll(vector)
s.decompose_reduction(block, k)
row, column = s.get_loops(stored)[-2:]
s.unroll(row)
part, lane_of_part = s.split(column, [None, lanes])
s.unroll(part)
s.vectorize(lane_of_part)
single = report("accumulators in registers", s, repeat=30)

s.parallel(j_outer)
report(f"panels on {machine.cores} threads", s, machine.cores)

s.compact_buffers()
print(f"\none thread reaches {single / core:.0%} of the measured peak; the nest is now\n")
print(s.show())
