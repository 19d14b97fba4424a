"""The measured peak of this machine's dot products of narrow elements, by loops of independent dot
products."""

import numpy as np

from dlc_core.driver import build, find_target
from dlc_core.ir.dtype import dtype
from dlc_core.runtime.executable import Executable
from dlc_core.script import T
from dlc_core.target import Dot
from dlc_core.testing.peak import CHAINS, machine_peak


def dot_loop(dot: Dot, chains: int, steps: int, threads: int = 1) -> Executable:
    """A program in which each of `threads` adds a dot product to each of `chains` accumulators, `steps`
    times.

    Its inputs are a group of `dot.a`, and a group of `dot.b` for each lane. The output is all accumulators.
    """
    lanes, group = dot.lanes, dot.group

    @T.prim_func
    def dots(
        x: T.Buffer((group,), dot.a),  # type: ignore[valid-type]
        y: T.Buffer((lanes * group,), dot.b),  # type: ignore[valid-type]
        z: T.Buffer((threads, chains, lanes), dot.acc),  # type: ignore[valid-type]
    ) -> None:
        for part in T.parallel(threads):
            acc = T.alloc_buffer((chains, lanes), dot.acc, scope="local")
            for c in T.unroll(chains):
                for lane in T.vectorized(lanes):
                    acc[c, lane] = T.cast(0, dot.acc)
            for _ in range(steps):
                for c in T.unroll(chains):
                    acc[c, T.ramp(0, 1, lanes)] = T.vector_dot(
                        acc[c, T.ramp(0, 1, lanes)], x[T.ramp(0, 1, group)], y[T.ramp(0, 1, lanes * group)]
                    )
            for c in T.unroll(chains):
                for lane in T.vectorized(lanes):
                    z[part, c, lane] = acc[c, lane]

    return build(dots, num_threads=threads)


def dot_gops(dot: Dot, registers: int, *, threads: int = 1, steps: int = 1 << 16) -> float:
    """The best rate of a dot product over numbers of chains, in 10^9 operations per second (see
    `peak_gflops`).
    """
    best = 0.0
    x, y = np.ones(dot.group, dtype(dot.a).numpy), np.ones(dot.lanes * dot.group, dtype(dot.b).numpy)
    for chains in CHAINS:
        if chains + 2 <= registers:
            seconds = dot_loop(dot, chains, steps, threads).time_evaluator(number=1, repeat=7)(x, y).min
            best = max(best, 2 * dot.lanes * dot.group * chains * steps * threads / seconds / 1e9)
    return best


def product_peak(threads: int = 1, a: str = "float32", b: str = "") -> float:
    """The peak of the default target for products of these dtypes, in 10^9 operations per second. `b` is `a`
    by default. Without an instruction for them, the peak of float32.
    """
    description = find_target(None).describe()
    found = next((dot for dot in description.dots if (dot.a, dot.b) == (a, b or a)), None)
    if found is None:
        return machine_peak(threads)
    return dot_gops(found, description.vector_registers, threads=threads)


__all__ = ["dot_gops", "dot_loop", "product_peak"]
