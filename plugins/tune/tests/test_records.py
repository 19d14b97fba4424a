"""The database of records, and the records that compiles use."""

from __future__ import annotations

import json
import os
import stat
import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest
from dlc_tune.records.database import Database
from dlc_tune.records.errors import RecordsWarning
from dlc_tune.records.locations import RECORDS
from dlc_tune.records.record import CHOSEN, TRIED
from dlc_tune.records.samples import TARGET, by_hand, double, record_of

import dlc_core as dlc
from dlc_core.config import config


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
