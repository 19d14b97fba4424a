"""No number that rules choose by changes results: each is halved and doubled, and kernels stay right."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from types import MappingProxyType, ModuleType

import pytest

from dlc_core.op import std
from dlc_core.schedule.rules.cpu import heuristics
from dlc_core.schedule.rules.cpu.register_tile import choose
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
FAMILIES = ("GEMM", "WINDOWS", "LOOPS")
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
QUICK = {"GEMM": "row", "WINDOWS": "pooling", "LOOPS": "map"}


def _of(op, shape):
    x = tensor("x", *shape)
    return kernel_of(op(x), [x])


def _pooling():
    return _of(lambda x: std.max_pool(x, kernel=(3, 3), padding=(1, 1, 1, 1), layout="NXC"), (1, 6, 9, 16))


def scaled(value, factor):
    """A number, or each of several, times a factor; whole numbers stay whole and above zero."""
    if isinstance(value, Mapping):
        return MappingProxyType({name: scaled(each, factor) for name, each in value.items()})
    if isinstance(value, tuple):
        return tuple(scaled(each, factor) for each in value)
    return max(1, int(value * factor)) if isinstance(value, int) else value * factor


def check(kernel: str, machine: Description = MACHINE) -> None:
    func, sizes = KERNELS[kernel]()
    choose.cache_clear()
    try:
        assert check_schedule(func, machine, sizes).attrs["rule"] != "none"
    finally:
        choose.cache_clear()


def numbers_of(module: ModuleType, families: Iterable[str]) -> list[tuple[str, str]]:
    """The numbers of the records of a module, each with the name of its record."""
    return [(family, field.name) for family in families for field in fields(getattr(module, family))]


def change(monkeypatch, heuristics: ModuleType, family: str, name: str, factor: float) -> None:
    """Replace a record by one with another number in every module that uses it."""
    before = getattr(heuristics, family)
    after = replace(before, **{name: scaled(getattr(before, name), factor)})
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("dlc_core.") and vars(module).get(family) is before:
            monkeypatch.setattr(module, family, after)


NUMBERS = numbers_of(heuristics, FAMILIES)


@pytest.mark.parametrize(("family", "name"), NUMBERS, ids=[name for _, name in NUMBERS])
def test_doubled_heuristics(monkeypatch, family, name):
    change(monkeypatch, heuristics, family, name, 2)
    check(QUICK[family])


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.5, 2])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(("family", "name"), NUMBERS, ids=[name for _, name in NUMBERS])
def test_halved_and_doubled_heuristics(monkeypatch, kernel, family, name, factor):
    change(monkeypatch, heuristics, family, name, factor)
    check(kernel)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.5, 2])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("rate", RATES)
def test_halved_and_doubled_facts_of_the_machine(kernel, rate, factor):
    check(kernel, replace(MACHINE, **{rate: scaled(getattr(MACHINE, rate), factor)}))
