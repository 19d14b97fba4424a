"""A 2D convolution: as an expression, with a custom schedule, and with the one that the rules choose."""

from __future__ import annotations

from typing import Any

import numpy as np

import dlc_core as dlc
from dlc_core import te
from dlc_core.schedule import Schedule

CHANNELS, HEIGHT, WIDTH, FILTERS, WINDOW, PAD = 16, 28, 28, 32, 3, 1

x = te.placeholder((HEIGHT, WIDTH, CHANNELS), name="x")
w = te.placeholder((WINDOW, WINDOW, CHANNELS, FILTERS), name="w")


def inside(i: Any, j: Any) -> Any:
    """Whether a point of the padded image is one of the image."""
    return (i >= PAD) & (i < HEIGHT + PAD) & (j >= PAD) & (j < WIDTH + PAD)


padded = te.compute(
    (HEIGHT + 2 * PAD, WIDTH + 2 * PAD, CHANNELS),
    lambda i, j, c: te.if_then_else(inside(i, j), x[i - PAD, j - PAD, c], 0.0),
    name="padded",
)
di, dj = te.reduce_axis(WINDOW, "di"), te.reduce_axis(WINDOW, "dj")
c = te.reduce_axis(CHANNELS, "c")
conv = te.compute(
    (HEIGHT, WIDTH, FILTERS),
    lambda i, j, f: te.sum(padded[i + di, j + dj, c] * w[di, dj, c, f], axis=(di, dj, c)),
    name="conv",
)
func = te.create_prim_func([x, w], [conv], name="conv2d")

# The border is filled apart from the copy of the image; four points × all filters are summed in registers.
s = Schedule(func)
fills = s.decompose_padding(s.get_block("padded"), s.get_loops(s.get_block("padded"))[0])
block = s.get_block("conv")
lanes = max(1, dlc.build(s).target.describe().lanes(32))
stored = s.cache_write(block, 0, "local")
i, j, f = s.get_loops(stored)
j_outer, j_inner = s.split(j, [None, 4])
s.compute_at(block, j_outer)
row, column, f_inner, *window = s.get_loops(block)[-6:]
s.reorder(*window, row, column, f_inner)
init = s.decompose_reduction(block, window[0])
for part in (block, init, stored):
    *points, filters = s.get_loops(part)[-2:]
    s.unroll(points[0])
    vector, lane = s.split(filters, [None, min(lanes, FILTERS)])
    s.unroll(vector)
    s.vectorize(lane)
s.parallel(i)
s.compact_buffers()
print(s.show())


def convolve(image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The convolution in NumPy: a sum of shifted images."""
    bordered = np.pad(image, ((PAD, PAD), (PAD, PAD), (0, 0)))
    shifted = [
        bordered[a : a + HEIGHT, b : b + WIDTH] @ kernel[a, b] for a in range(WINDOW) for b in range(WINDOW)
    ]
    return np.sum(shifted, axis=0)


rng = np.random.default_rng(0)
image = rng.standard_normal((HEIGHT, WIDTH, CHANNELS), np.float32)
kernel = rng.standard_normal((WINDOW, WINDOW, CHANNELS, FILTERS), np.float32)
work = 2 * HEIGHT * WIDTH * FILTERS * WINDOW * WINDOW * CHANNELS
print()
for name, subject in (("this schedule", s), ("the rules' choice", func)):
    exe = dlc.build(subject, num_threads=1)
    np.testing.assert_allclose(exe(image, kernel), convolve(image, kernel), rtol=1e-3, atol=1e-3)
    timing = exe.time_evaluator(repeat=5, min_repeat_ms=2)(image, kernel)
    print(f"{name:18} {work / timing.min / 1e9:6.1f} GFLOP/s, equal to NumPy")
