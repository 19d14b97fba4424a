"""The measured limits of this machine: fused multiply-adds, cache bandwidth and memory bandwidth.

machine_peak() -> float             10^9 operations per second
measured_machine() -> Machine       for the cost model; cached on disk
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dlc_core.disk_cache import disk_cached
from dlc_core.driver import build, find_target
from dlc_core.driver.digests import code_stamp
from dlc_core.runtime.executable import Executable
from dlc_core.script import T
from dlc_core.target.cost import Machine

CHAINS = (8, 10, 12)
"""The numbers of independent accumulators that are tried. They are enough to hide the latency of an FMA."""


def fma_loop(lanes: int, chains: int, steps: int, threads: int = 1) -> Executable:
    """A program in which each of `threads` does `steps` FMAs on `chains` accumulators of `lanes` float32 in
    registers. Its inputs are the factor and the addend, of shape [lanes]. The output is all accumulators.
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
    """The best rate in float32 over vector widths and numbers of chains, in 10^9 operations per second.

    `vector` is the number of elements of a vector and `registers` the number of vector registers. They are
    `lanes(32)` and `vector_registers` of a target's description.
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
    description = find_target(None).describe()
    return peak_gflops(description.lanes(32), description.vector_registers, threads=threads)


def read_loop(lanes: int, chains: int, blocks: int, times: int, threads: int = 1) -> Executable:
    """A program in which each of `threads` sums its own `blocks * chains` vectors of `lanes` float32, `times`
    times.
    """

    @T.prim_func
    def read(
        x: T.Buffer((threads, blocks, chains, lanes), "float32"),  # type: ignore[valid-type]
        z: T.Buffer((threads, chains, lanes), "float32"),  # type: ignore[valid-type]
    ) -> None:
        for part in T.parallel(threads):
            acc = T.alloc_buffer((chains, lanes), "float32", scope="local")
            for c in T.unroll(chains):
                for lane in T.vectorized(lanes):
                    acc[c, lane] = T.float32(0.0)
            for _ in range(times):
                for b in range(blocks):
                    for c in T.unroll(chains):
                        for lane in T.vectorized(lanes):
                            acc[c, lane] = acc[c, lane] + x[part, b, c, lane]
            for c in T.unroll(chains):
                for lane in T.vectorized(lanes):
                    z[part, c, lane] = acc[c, lane]

    return build(read, num_threads=threads)


def read_bandwidth(size: int, lanes: int, *, threads: int = 1) -> float:
    """The bandwidth in bytes per second of `threads` threads that repeatedly read `size` bytes each."""
    chains = 8
    blocks = max(1, size // (4 * lanes * chains))
    nbytes = 4 * lanes * chains * blocks
    times = max(1, (1 << 24) // nbytes)
    loop = read_loop(lanes, chains, blocks, times, threads)
    # Not zeros, because the system may map all pages of zeros to one page.
    x: Any = np.ones((threads, blocks, chains, lanes), np.float32)
    seconds = loop.time_evaluator(number=1, repeat=5)(x).min
    return nbytes * times * threads / seconds


MEMORY_BYTES = 1 << 27
"""The maximum number of bytes that are read to measure memory."""


def measure_machine() -> Machine:
    """Measure the limits of this machine with its default target. It takes seconds."""
    description = find_target(None).describe()
    lanes = description.lanes(32)
    caches = description.caches
    uncached = min(max(4 * caches[-1], 1 << 25), MEMORY_BYTES)
    cached = [read_bandwidth(size // 2, lanes) for size in caches]
    by_all_cores = read_bandwidth(uncached // description.cores, lanes, threads=description.cores)
    described, flops = Machine.of(description), 1e9 * peak_gflops(lanes, description.vector_registers)
    return Machine(
        flops,
        (*cached, read_bandwidth(uncached, lanes)),
        caches,
        by_all_cores,
        measured=True,
        fork_seconds=description.fork_cycles / description.frequency,
        call_seconds=description.call_seconds,
        frequency=description.frequency * flops / described.flops,
    )


def measured_machine() -> Machine:
    """Like `measure_machine`, but cached on disk by processor and version of the compiler."""
    target = find_target(None)
    key = "\n".join((target.identity, repr(target.describe()), code_stamp(str(Path(__file__)))))
    record = json.loads(disk_cached("machine", key, lambda: json.dumps(asdict(measure_machine())).encode()))
    record |= {name: tuple(record[name]) for name in ("bandwidths", "caches")}
    return Machine(**record)


__all__ = ["fma_loop", "machine_peak", "measure_machine", "measured_machine", "peak_gflops", "read_bandwidth"]
