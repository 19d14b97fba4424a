"""The peak of this machine's arithmetic, measured: loops of independent fused multiply-adds."""

from typing import Any

import numpy as np

from dlc_core.driver import build
from dlc_core.runtime.executable import Executable
from dlc_core.script import T

CHAINS = (8, 10, 12)
"""Numbers of independent accumulators that are tried: enough to hide the latency of each."""


def fma_loop(lanes: int, chains: int, steps: int, threads: int = 1) -> Executable:
    """Each of `threads` multiplies `chains` accumulators of `lanes` float32 in registers and adds to them,
    `steps` times.  It takes the factor and the addend, `(lanes,)` each, and gives all accumulators.
    """

    @T.prim_func
    def fma(
        x: T.Buffer((lanes,), "float32"),  # type: ignore[valid-type]
        y: T.Buffer((lanes,), "float32"),  # type: ignore[valid-type]
        z: T.Buffer((threads, chains, lanes), "float32"),  # type: ignore[valid-type]
    ) -> None:
        for part in T.parallel(threads):
            acc = T.alloc_buffer((chains, lanes), "float32", scope="local")
            for c in T.unroll(chains):
                for lane in T.vectorized(lanes):
                    acc[c, lane] = T.float32(0.0)
            for _ in range(steps):
                for c in T.unroll(chains):
                    for lane in T.vectorized(lanes):
                        acc[c, lane] = acc[c, lane] * x[lane] + y[lane]
            for c in T.unroll(chains):
                for lane in T.vectorized(lanes):
                    z[part, c, lane] = acc[c, lane]

    return build(fma, num_threads=threads)


def peak_gflops(vector: int, registers: int, *, threads: int = 1, steps: int = 1 << 16) -> float:
    """The best 10^9 operations a second in float32, over widths of vectors and numbers of chains.

    `vector` is how many elements a vector has, `registers` how many vectors the processor holds: what a
    target's description says as `lanes(32)` and `vector_registers`.
    """
    best = 0.0
    for lanes in {vector, max(1, vector // 2)}:
        for chains in CHAINS:
            if chains + 2 <= registers:
                half: Any = np.full(lanes, 0.5, np.float32)
                loop = fma_loop(lanes, chains, steps, threads)
                seconds = loop.time_evaluator(number=1, repeat=7)(half, half).min
                best = max(best, 2 * lanes * chains * steps * threads / seconds / 1e9)
    return best


def machine_peak(threads: int = 1) -> float:
    """`peak_gflops` of the default target."""
    description = fma_loop(1, 1, 1).target.describe()
    return peak_gflops(description.lanes(32), description.vector_registers, threads=threads)


__all__ = ["fma_loop", "machine_peak", "peak_gflops"]
