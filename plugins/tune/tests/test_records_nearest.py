"""Schedules for kernels that were not tuned, from records of their family."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dlc_tune import plugin
from dlc_tune.choices import replay
from dlc_tune.records.database import Database
from dlc_tune.records.family import distance, family_of
from dlc_tune.records.locations import RECORDS
from dlc_tune.records.nearest import expected_ratio
from dlc_tune.records.record import Record
from dlc_tune.records.samples import double, record_of
from dlc_tune.space import candidate
from dlc_tune.task import Task

import dlc_core as dlc
from dlc_core import te
from dlc_core.config import config
from dlc_core.hooks import hookimpl
from dlc_core.plugin.registry import fresh_registry


class SlowRule:
    """Leaves kernels as they are."""

    name, priority = "test.slow", 1000

    def matches(self, func, machine):
        return True

    def apply(self, schedule, machine):
        pass


class Vectors:
    """One vector loop, unrolled or not."""

    name, about = "test.vectors", "A vectorised loop."

    def fits(self, task):
        return ""

    def generate(self, schedule, choose, task):
        (loop,) = schedule.get_loops(schedule.get_blocks()[-1])
        _, inner = schedule.split(loop, [None, choose("lanes", [1, 8, 16])])
        schedule.vectorize(inner)


@pytest.fixture
def slow_rules():
    """Rules whose schedules are slow, and a space with faster ones."""

    class Plugin:
        DLC_API = "0.1"

        @hookimpl
        def dlc_schedule_rules(self):
            return [SlowRule()]

        @hookimpl
        def dlc_search_spaces(self):
            return [Vectors()]

    llvm = pytest.importorskip("dlc_backend_llvm.plugin", reason="the package dlc-backend-llvm is missing")
    with fresh_registry({"slow": Plugin(), "tune": plugin, "llvm": llvm}):
        yield


def near_record(size: int, lanes: int, target: str = "llvm", **fields) -> Record:
    func = double(size)
    made = candidate(Vectors(), Task(func, dlc.Target(target)), replay({"lanes": str(lanes)}))
    family, extents = family_of(func)
    known = {"family": family, "extents": extents, "space": Vectors.name, "name": "double"}
    return record_of(func, target, **{**known, "point": made.point, "trace": made.trace.to_json(), **fields})


@pytest.mark.parametrize(
    ("size", "lanes", "seconds", "mode", "rule"),
    [
        (4096, 16, 2e-6, "nearest", "tuned"),
        (2048, 16, 2e-6, "nearest", "tuned"),
        (1024, 16, 2e-6, "nearest", "test.slow"),
        (4096, 16, 2e-6, "exact", "test.slow"),
        (4096, 1, 2e-6, "nearest", "test.slow"),
        (4096, 1, 1e-6, "nearest", "tuned"),
    ],
    ids=["the same size", "near", "far", "exact only", "not predicted faster", "measured to be faster"],
)
def test_kernels_take_near_records_that_are_predicted_faster(
    records_path, slow_rules, size, lanes, seconds, mode, rule
):
    with Database() as database, config.override({RECORDS: mode}):
        database.add(near_record(4096, lanes, seconds=seconds, compiler="0.0.1"))
        exe = dlc.build(double(size), "llvm")
    (kernel,) = exe.explain().kernels
    assert kernel.rule == rule
    np.testing.assert_array_equal(exe(np.ones(size, np.float32)), 2)
    if rule == "tuned":
        what = "measured by dlc 0.0.1" if size == 4096 else "nearest record, double 4096"
        assert what in kernel.origin
        assert "predicted" in kernel.origin


def product(m: int, n: int, k: Any, dtype: str = "float32"):
    a, b = te.placeholder((m, k), dtype, name="a"), te.placeholder((k, n), dtype, name="b")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), "c")
    return te.create_prim_func([a, b], [c], f"product_{m}")


def test_kernels_that_differ_in_sizes_only_are_of_one_family():
    family, extents = family_of(product(32, 48, 40))
    assert extents == (32, 48, 40)
    assert family_of(product(64, 48, 40)) == (family, (64, 48, 40))
    others = [product(32, 48, 40, "float64"), product(32, 48, te.var("k")), double(32)]
    assert len({family, *(family_of(other)[0] for other in others)}) == 4
    assert family_of(others[1])[1] == (32, 48, 0)


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ((32, 48), (32, 48), 0.0),
        ((32, 48), (64, 48), 1.0),
        ((32, 48), (8, 96), 2.0),
        ((32, 0), (64, 0), 1.0),
        ((32, 0), (32, 48), float("inf")),
        ((32,), (32, 48), float("inf")),
    ],
)
def test_the_distance_of_kernels_is_the_largest_ratio_of_sizes(one, other, apart):
    assert distance(one, other) == distance(other, one) == pytest.approx(apart, abs=1e-5)


@pytest.mark.parametrize(
    ("predicted", "measured", "far", "expected"),
    [
        (0.81, 1.0, 0.0, 0.9),
        (1.0, 0.81, 0.0, 0.9),
        (1.0, 0.5, 1.0, 1.0),
        (0.7, 0.1, 2.0, 0.7),
        (1.0, 1e-9, 0.0, 0.5**0.5),
        (float("nan"), 0.5, 0.0, float("inf")),
    ],
)
def test_expected_times_weigh_the_prediction_by_the_distance(predicted, measured, far, expected):
    assert expected_ratio(predicted, measured, far) == pytest.approx(expected)
