"""How a tuner on a cluster scales, by a discrete-event model: `python -m benchmarks.tuning_cluster`.

It measures the costs of this machine (builds, runs, proposals, the scheduler's and the client's overheads),
simulates clusters of up to 1,000 workers, and prints the trials per second, the busy parts, and the least
batch that reaches nearly the greatest throughput. `--validate` compares the model with real runs here.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks import tuning_cluster_measures as measures
from benchmarks.tuning_cluster_model import Cluster, Costs, Result, simulate
from dlc_core.cli.tables import markdown_table

WORKERS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
BATCHES = (1, 2, 4, 8)
"""Jobs under way for each worker."""
NEARLY = 0.95
LEAST_TRIALS, TRIALS_EACH = 400, 12
TYPICAL = Costs(
    builds=(0.1, 0.3, 0.4, 0.5, 0.6),
    runs=(0.05, 0.06, 0.08, 0.11, 0.15),
    propose=0.23,
    learn=0.07,
    client=1.9e-3,
    schedule=1.3e-3,
)
"""Costs that were measured on two cores of a server, for tests and for a quick look (`--typical`)."""


@dataclass(frozen=True)
class Row:
    """The throughput of a cluster with the least batch that nearly reaches the greatest one."""

    cluster: Cluster
    batch: int
    streaming: Result
    generations: Result
    """With the same batch."""
    ideal: float

    @property
    def bottleneck(self) -> str:
        """The part that is busy all the time, or the reason why none is."""
        shares = self.streaming.shares(self.cluster)
        name = max(shares, key=lambda part: shares[part])
        return name if shares[name] > 0.85 else "waiting"


def rows(costs: Costs, counts: Sequence[int], trials_each: int = TRIALS_EACH, **cluster: float) -> list[Row]:
    """Simulate clusters with these numbers of workers."""
    found = []
    for count in counts:
        made = replace(Cluster(count), **cluster)
        trials = max(LEAST_TRIALS, trials_each * count)
        results = {each * count: simulate(costs, made, each * count, True, trials) for each in BATCHES}
        most = max(result.throughput for result in results.values())
        batch = min(batch for batch, result in results.items() if result.throughput >= NEARLY * most)
        generations = simulate(costs, made, batch, False, trials)
        found.append(Row(made, batch, results[batch], generations, made.ideal(costs)))
    return found


def table(found: Sequence[Row]) -> str:
    """The rows as Markdown."""
    titles = ["workers", "batch", "trials/s", "of ideal", "in generations", "tuner", "scheduler", "machines"]
    lines = []
    for row in found:
        shares = row.streaming.shares(row.cluster)
        lines.append(
            [
                str(row.cluster.workers),
                str(row.batch),
                f"{row.streaming.throughput:.1f}",
                f"{row.streaming.throughput / row.ideal:.0%}",
                f"{row.generations.throughput:.1f}",
                *(f"{share:.0%}" for share in shares.values()),
                row.bottleneck,
            ]
        )
    return markdown_table([*titles, "limit"], lines)


def costs_text(costs: Costs) -> str:
    """The costs, one line."""
    build, run = costs.service
    return (
        f"build {build:.2f} s, run {run:.2f} s, proposal {costs.propose * 1e3:.1f} ms a candidate and "
        f"{costs.learn * 1e3:.0f} ms a batch, client {costs.client * 1e3:.1f} ms a job, scheduler "
        f"{costs.schedule * 1e3:.1f} ms a task"
    )


def validation(costs: Costs, count: int) -> str:
    """The model against real runs: workers that wait 0.1 s and 0.06 s, and real workers."""
    lines = []
    waiting = replace(costs, builds=(0.1,), runs=(0.06,), propose=0.0, learn=0.0)
    for workers in (1, 2, 4):
        real = measures.waiting_throughput(workers, 0.1, 0.06, count * workers)
        made = Cluster(workers, exclusive=False)
        model = simulate(waiting, made, count * workers, True, count * workers).throughput
        lines.append([f"{workers} that wait", f"{real:.2f}", f"{model:.2f}", f"{model / real - 1:+.0%}"])
    for workers in (1, 2):
        outcomes, real = measures.service_times(count, workers)
        builds, runs = (
            tuple(getattr(o, name) for o in outcomes) for name in ("build_seconds", "run_seconds")
        )
        own = replace(costs, builds=builds, runs=runs, propose=0.0, learn=0.0)
        model = simulate(own, Cluster(workers, exclusive=False), count, True, count).throughput
        lines.append([f"{workers} that build", f"{real:.2f}", f"{model:.2f}", f"{model / real - 1:+.0%}"])
    return markdown_table(["workers", "measured trials/s", "model", "difference"], lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning_cluster", description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=list(WORKERS), help="numbers of workers")
    parser.add_argument("--jobs", type=int, default=40, help="real jobs whose times are measured")
    parser.add_argument("--typical", action="store_true", help="measure nothing; take typical costs")
    parser.add_argument("--propose", type=float, help="seconds of a proposal, for a candidate")
    parser.add_argument("--failures", type=float, default=float("inf"), help="seconds between two failures")
    parser.add_argument("--exclusive", action="store_true", help="machines build nothing while they run")
    parser.add_argument("--validate", action="store_true", help="compare the model with real runs")
    given = parser.parse_args(arguments)
    costs = TYPICAL if given.typical else measures.measured(given.jobs)
    if given.propose is not None:
        costs = replace(costs, propose=given.propose, learn=0.0)
    print(costs_text(costs))
    options = {"between_failures": given.failures, "exclusive": given.exclusive}
    print(table(rows(costs, given.workers, **options)))
    if given.validate:
        print(validation(costs, given.jobs))


if __name__ == "__main__":
    main()
