"""Heuristics of schedule rules do not change results: each is halved and doubled."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from dlc_core.heuristics import declared, overridden, scaled
from dlc_core.op import std
from dlc_core.target import Description
from dlc_core.testing.schedules import check_schedule, kernel_of
from tests.schedule.test_rules_contraction import SAME, K, M, N, conv, matmul, tensor

MACHINE = Description(
    vector_bits=256,
    vector_registers=16,
    cores=2,
    fork_cycles=64,
    caches=(2 << 10, 8 << 10, 64 << 10),
    cache_bandwidths=(64.0, 32.0, 8.0),
)
RATES = (
    "caches", "cache_bandwidths", "cache_line", "cache_ways", "vector_units", "frequency", "fork_cycles",
    "memory_bandwidth", "memory_scaling", "call_seconds", "cores", "vector_registers", "fma_per_cycle",
    "loads_per_cycle", "fma_latency",
)  # fmt: skip
KERNELS = {
    "tall": lambda: (matmul((37, 48), (48, 19), constants=(1,), finish=True), {}),
    "deep": lambda: (matmul((9, 240), (240, 40), constants=(1,)), {}),
    "row": lambda: (matmul((1, 256), (256, 24), constants=(1,)), {}),
    "computed": lambda: (matmul((6, 12), (33, 12), transpose_b=True), {}),
    "symbolic": lambda: (matmul((M, K), (K, N)), {M: 11, K: 6, N: 13}),
    "convolution": lambda: (conv(12, (5, 7), 40, (3, 3), padding=SAME), {}),
    "pooling": lambda: (_pooling(), {}),
    "softmax": lambda: (_of(std.softmax, (5, 37)), {}),
    "map": lambda: (_of(std.gelu, (9, 35)), {}),
    "transpose": lambda: (_of(lambda x: std.transpose(x, axes=(1, 0)), (19, 21)), {}),
}
QUICK = {"gemm": "row", "windows": "pooling", "loops": "map"}


def _of(op, shape):
    x = tensor("x", *shape)
    return kernel_of(op(x), [x])


def _pooling():
    return _of(lambda x: std.max_pool(x, kernel=(3, 3), padding=(1, 1, 1, 1), layout="NXC"), (1, 6, 9, 16))


def check(kernel: str, machine: Description = MACHINE) -> None:
    func, sizes = KERNELS[kernel]()
    assert check_schedule(func, machine, sizes).attrs["rule"] != "none"


def family_of(name: str) -> str:
    return name.rpartition(".")[0]


def changed(name: str, factor: float) -> AbstractContextManager[None]:
    """A context in which a heuristic is multiplied by a factor."""
    return overridden({name: scaled(declared()[name].default, factor)})


NUMBERS = [name for name in declared() if family_of(name) in QUICK]


@pytest.mark.parametrize("name", NUMBERS)
def test_doubled_heuristics(name):
    with changed(name, 2):
        check(QUICK[family_of(name)])


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.5, 2])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", NUMBERS)
def test_halved_and_doubled_heuristics(kernel, name, factor):
    with changed(name, factor):
        check(kernel)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.5, 2])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("rate", RATES)
def test_halved_and_doubled_facts_of_the_machine(kernel, rate, factor):
    check(kernel, replace(MACHINE, **{rate: scaled(getattr(MACHINE, rate), factor)}))
