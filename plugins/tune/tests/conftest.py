"""Kernels that the tests of the tuner search schedules for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dlc_tune.records.locations import RECORDS_URL
from dlc_tune.task import Task

import dlc_core as dlc
from dlc_core import te
from dlc_core.config import config
from dlc_core.tir.stmt import PrimFunc

MACHINE = "c -mcpu=cortex-a72"
"""A target whose description does not depend on this machine."""


def product(m: int = 32, n: int = 48, k: int = 40, name: str = "product") -> PrimFunc:
    """A GEMM with a bias and relu."""
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    bias = te.placeholder((n,), name="bias")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), "c")
    d = te.compute((m, n), lambda i, j: te.maximum(c[i, j] + bias[j], 0.0), "d")
    return te.create_prim_func([a, b, bias], [d], name)


@pytest.fixture
def task() -> Task:
    """A GEMM on a machine with known registers."""
    return Task(product(), dlc.Target(MACHINE), "product")


@pytest.fixture
def llvm_task() -> Task:
    """The same GEMM on this machine."""
    return Task(product(), dlc.Target("llvm"), "product")


@pytest.fixture
def records_path(tmp_path: Path) -> Iterator[Path]:
    """The file of the user's database of records within a test."""
    file = tmp_path / "data" / "records.db"
    with config.override({RECORDS_URL: str(file)}):
        yield file
