"""The database of records, and the records that compiles use."""

from __future__ import annotations

import json
import os
import stat
import threading
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dlc_tune import plugin
from dlc_tune.choices import replay
from dlc_tune.records.database import Database
from dlc_tune.records.errors import RecordsWarning
from dlc_tune.records.family import distance, family_of
from dlc_tune.records.locations import RECORDS
from dlc_tune.records.nearest import expected_ratio
from dlc_tune.records.record import CHOSEN, TRIED, Record
from dlc_tune.records.samples import TARGET, by_hand, double, record_of
from dlc_tune.space import candidate
from dlc_tune.task import Task

import dlc_core as dlc
from dlc_core import te
from dlc_core.config import config
from dlc_core.hooks import hookimpl
from dlc_core.plugin.registry import fresh_registry


def test_records_are_kept_and_found(records_path):
    tried = record_of(double(), state=TRIED, seconds=3e-6)
    chosen = record_of(double())
    better = record_of(double(), seconds=1e-6, notes={"ratios": [0.5, 0.51]})
    with Database() as database:
        assert [database.add(one) for one in (tried, chosen, better, chosen)] == [True, True, True, False]
    with Database(records_path) as database:
        assert database.of_kernel(tried.kernel) == [tried, chosen, better]
        assert database.best(tried.kernel, TARGET) == better
        assert database.best(tried.kernel, "llvm") is None
        assert database.counts("state") == [{"state": CHOSEN, "count": 2}, {"state": TRIED, "count": 1}]
        assert database.forget(state=CHOSEN) == 2
        assert database.best(tried.kernel, TARGET) is None


def test_only_the_user_can_read_the_file(records_path):
    Database().close()
    assert stat.S_IMODE(records_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(records_path.parent.stat().st_mode) == 0o700


def test_the_state_changes_with_chosen_records_only(records_path):
    with Database() as database:
        first = database.state()
        database.add(record_of(double(), state=TRIED))
        assert database.state() == first
        database.add(record_of(double()))
        second = database.state()
        assert second != first
        database.forget(state=CHOSEN)
        assert database.state() not in (first, second)


def test_threads_write_at_the_same_time(records_path):
    with Database() as database:

        def write(thread: int) -> None:
            for number in range(20):
                database.add(record_of(double(), state=TRIED, time=float(100 * thread + number)))

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert database.counts() == [{"count": 80}]


def test_compiles_use_the_best_chosen_record_and_say_so(records_path):
    with Database() as database:
        database.add(record_of(double(), trace=by_hand(double(), 4).to_json()))
        database.add(record_of(double(), seconds=1e-6))
    exe = dlc.build(double(), TARGET)
    np.testing.assert_array_equal(exe(np.ones(24, np.float32)), 2)
    (kernel,) = exe.explain().kernels
    assert kernel.rule == "tuned"
    origin = "records.db: 1 µs, default 2 µs, space by hand, 2023-11-14"
    assert kernel.origin == origin
    assert f"from {origin}" in str(exe.explain())
    assert json.loads(exe.explain().to_json())["kernels"][0]["origin"] == origin
    assert dlc.build(double(25), TARGET).explain().kernels[0].rule == "cpu.map"
    with config.override({RECORDS: "off"}):
        assert dlc.build(double(), TARGET).explain().kernels[0].rule == "cpu.map"


@pytest.mark.parametrize(
    "other",
    [
        {"processor": "another"},
        {"machine": "64 cores"},
        {"threads": 64},
        {"compiler": "0.0.1"},
        {"target": "llvm"},
        {"state": TRIED},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_records_of_other_machines_are_no_exact_match(records_path, other):
    with Database() as database, config.override({RECORDS: "exact"}):
        database.add(record_of(double(), **other))
        assert dlc.build(double(), TARGET).explain().kernels[0].rule == "cpu.map"


def test_a_refused_record_leaves_the_choice_to_the_rules(records_path):
    with Database() as database:
        database.add(record_of(double(), trace=by_hand(double()).to_json().replace('"y"', '"z"')))
    (kernel,) = dlc.build(double(), TARGET).explain().kernels
    assert kernel.rule == "cpu.map"
    assert kernel.refused[0].startswith("tuned: records.db: the program has no block 'z'")


def test_the_next_record_is_used_if_the_best_one_is_refused(records_path):
    with Database() as database:
        database.add(record_of(double()))
        database.add(record_of(double(), trace="{}", seconds=1e-9))
    (kernel,) = dlc.build(double(), TARGET).explain().kernels
    assert (kernel.rule, kernel.origin[:18]) == ("tuned", "records.db: 1.5 µs")
    assert kernel.refused[0].startswith("tuned: records.db: this is no trace of a schedule")


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


def test_without_a_database_no_library_of_databases_is_imported(tmp_path):
    import subprocess
    import sys

    code = (
        "import sys; from dlc_core.plugin.registry import registry; "
        "assert registry().has_tuner and 'tune: ' in registry().schedule_state(); "
        "assert registry().schedule(None, None) is None; "
        "print([m for m in sys.modules if m in ('sqlalchemy', 'sqlite3', 'dlc_tune.records.lookup')])"
    )
    environment = {**os.environ, "DLC_RECORDS_URL": str(tmp_path / "none.db")}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert run.stdout == "[]\n", run.stderr


def test_a_changed_record_is_seen_at_once(records_path):
    with Database() as database:
        for factor in (2, 3, 4, 6):
            time = float(factor)
            trace = by_hand(double(), factor).to_json()
            database.add(record_of(double(), trace=trace, seconds=1e-6 / factor, time=time))
            origin = dlc.build(double(), TARGET).explain().kernels[0].origin
            assert f"{1e3 / factor:.3g} ns" in origin or "1 µs" in origin


def test_records_are_immutable_values():
    one = record_of(double())
    assert replace(one, name="other") != one
    assert one.gain == pytest.approx(0.75)


def test_forced_decisions_come_before_records(records_path):
    with Database() as database:
        database.add(record_of(double()))
    forced = dlc.build(double(), TARGET, config={"decisions": "schedule.rule=cpu.map"})
    assert forced.explain().kernels[0].rule == "cpu.map"
    assert dlc.build(double(), TARGET).explain().kernels[0].rule == "tuned"


def test_a_damaged_database_leaves_the_choice_to_the_rules_with_a_warning(records_path):
    records_path.parent.mkdir()
    records_path.write_bytes(b"no database" * 1000)
    with pytest.warns(RecordsWarning, match="the records of records.db are not used: .*not a database"):
        assert dlc.build(double(), TARGET).explain().kernels[0].rule == "cpu.map"
    with warnings.catch_warnings():  # once is enough
        warnings.simplefilter("error")
        assert dlc.build(double(25), TARGET).explain().kernels[0].rule == "cpu.map"


def test_an_empty_file_has_no_records(records_path):
    records_path.parent.mkdir()
    records_path.touch()
    assert dlc.build(double(), TARGET).explain().kernels[0].rule == "cpu.map"
    with Database() as database:
        database.add(record_of(double()))
    assert dlc.build(double(), TARGET).explain().kernels[0].rule == "tuned"
