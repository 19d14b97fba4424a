"""The model of a tuner on a cluster: what must hold for every queueing system, and its command."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks import tuning_cluster, tuning_cluster_measures
from benchmarks.tuning_cluster import TYPICAL, rows, table
from benchmarks.tuning_cluster_model import Cluster, simulate
from dlc_core.diag import UsageError

pytest.importorskip("simpy", reason="the model needs the package simpy")

FAST = replace(TYPICAL, propose=1e-3, learn=0.0)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("workers", [1, 8])
def test_littles_law(workers, streaming):
    found = simulate(FAST, Cluster(workers), 4 * workers, streaming, 200)
    assert found.in_system == pytest.approx(found.throughput * found.time, rel=1e-6)
    assert found.in_system <= 4 * workers
    assert found.ended == 200
    assert all(0 < share <= 1 + 1e-9 for share in found.shares(Cluster(workers)).values())


def test_throughput_grows_until_a_part_is_busy():
    counts = (1, 2, 4, 8, 16, 64, 256)
    throughputs = [simulate(FAST, Cluster(n), 4 * n, True, 100 + 20 * n).throughput for n in counts]
    assert all(later >= 0.97 * earlier for earlier, later in pairwise(throughputs))
    assert throughputs[2] > 3 * throughputs[0]
    least = 1 / max(2 * FAST.schedule, FAST.propose + FAST.client)
    assert 0.8 * least < throughputs[-1] <= 1.01 * least
    assert throughputs[0] == pytest.approx(Cluster(1).ideal(FAST), rel=0.05)


def test_nothing_is_lost_when_machines_fail():
    whole = simulate(FAST, Cluster(4), 16, True, 200)
    failing = Cluster(4, between_failures=5.0, repair=1.0)
    found = simulate(FAST, failing, 16, True, 200)
    assert found.ended == 200
    assert found.restarts > 3
    assert found.throughput < whole.throughput


def test_streams_do_not_wait_for_the_last_job():
    cluster = Cluster(8, exclusive=False)
    streaming, waiting = (simulate(FAST, cluster, 16, stream, 400).throughput for stream in (True, False))
    assert streaming > 1.05 * waiting


def test_equal_seeds_give_equal_results():
    first, again, other = (simulate(FAST, Cluster(3), 6, True, 100, seed).seconds for seed in (0, 0, 1))
    assert first == again != other


def test_the_table(capsys):
    (row,) = rows(FAST, [4], exclusive=False)
    assert row.batch in (4, 8, 16, 32)
    assert row.bottleneck == "machines"
    assert "| 4 |" in table([row])
    tuning_cluster.main(["--typical", "--workers", "1", "100", "--propose", "0.1"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("| 100 |")
    assert last.endswith("| tuner |")


def test_the_model_agrees_with_workers_that_wait():
    """Real schedulers and workers, which build for 0.2 s and run for 0.1 s."""
    pytest.importorskip("distributed", reason="clusters need the package distributed")
    real = tuning_cluster_measures.waiting_throughput(2, 0.2, 0.1, 12)
    costs = replace(TYPICAL, builds=(0.2,), runs=(0.1,), propose=0.0, learn=0.0)
    model = simulate(costs, Cluster(2, exclusive=False), 12, True, 12).throughput
    assert 0.4 * model < real < 1.2 * model


def test_simpy_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "simpy", None)
    with pytest.raises(UsageError, match="the model needs the package simpy"):
        simulate(TYPICAL, Cluster(1), 1, True, 1)
