"""The tuner that `dlc.tune` calls.

import dlc_core as dlc

result = dlc.tune("model.onnx", seconds=60)          a model: budget over all of its kernels
result = dlc.tune(prim_func, "llvm", trials=64)      a single kernel
result = dlc.tune(prim_func, space=my_template)      in a space of one's own
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from dlc_core.config import config
from dlc_core.diag import UsageError
from dlc_core.driver import find_target, find_targets
from dlc_core.plugin.registry import registry
from dlc_core.runtime.machine.cores import usable_cores
from dlc_core.schedule import Schedule
from dlc_core.target import Target
from dlc_core.tir.stmt import PrimFunc
from dlc_tune.graph_search import GraphSearch
from dlc_tune.measuring.job import Measurer
from dlc_tune.measuring.local import LocalMeasurer
from dlc_tune.model import BATCH, KEPT_BACK, ModelTuner
from dlc_tune.model_result import Line, ModelResult, Progress
from dlc_tune.records.database import Database
from dlc_tune.search import KernelSearch, Result
from dlc_tune.space import Space
from dlc_tune.store import NoStore, Store
from dlc_tune.strategy import Strategy
from dlc_tune.task import Task
from dlc_tune.tasks import tasks_of

SPACES = ("decisions", "sketches", "mutations")
"""The spaces that are searched if none is named."""
STRATEGY = "evolutionary"
SECONDS = 60.0
GRAPH_SECONDS = 10.0
"""The least budget with which decisions of graph passes are searched: their part of a smaller one (`GRAPH`)
ends before the model is compiled once."""
TRIALS = 64
MAX_BUILDERS = 4

DatabaseLike = Store | str | Path | None
"""A database, its URL or its path; None is that of the setting `records`."""
SpaceLike = Space | str


def tune(
    subject: Any,
    target: Any = None,
    *,
    seconds: float | None = None,
    trials: int | None = None,
    space: SpaceLike | Sequence[SpaceLike] = SPACES,
    strategy: Strategy | str = STRATEGY,
    database: DatabaseLike = None,
    measurer: Measurer | None = None,
    cluster: str | None = None,
    tls_ca: str | Path | None = None,
    tls_cert: str | Path | None = None,
    tls_key: str | Path | None = None,
    batch: int = BATCH,
    seed: int = 0,
    keep: bool = True,
    graph: bool = True,
    progress: Callable[[Progress], None] = lambda _: None,
    inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    sizes: Mapping[str, Any] | None = None,
    **options: Any,
) -> ModelResult | Result:
    """Search for faster schedules of a model or of a single kernel, and keep what was found.

    `subject` is a PrimFunc or an unscheduled `Schedule` of one, or a model as `compile` takes it; `options`
    are those of `compile`. `seconds` is the budget, for a model 60 by default; `trials` limits the measured
    candidates of each kernel, for a single kernel 64 by default.

    `graph`: decisions of graph passes are searched too, such as the algorithm of a convolution, unless the
    budget is less than 10 seconds.

    `space` and `strategy` are values or names (`dlc tune --list`). Spaces are searched in order.

    Results go to `database`: a path, a URL of SQLAlchemy, or None for the usual one. `keep=False` keeps
    nothing. Compiles use a schedule only if it was faster than the default beyond the noise, with the same
    results.

    `measurer` builds and runs candidates; by default processes of their own on this machine, or with
    `cluster` the workers of a Dask scheduler, `"tcp://host:8786"`. An address `"tls://..."` needs files: the
    certificate of the authority (`tls_ca`), and a certificate and key of the tuner (`tls_cert`, `tls_key`).

    `inputs` of a model are what its kernels are weighed with; `sizes` are values of symbolic dims.
    """
    spaces = [_space(each) for each in _listed(space)]
    chosen_strategy = _strategy(strategy)
    _check_budget(seconds, trials, batch)
    files = [None if file is None else Path(file) for file in (tls_ca, tls_cert, tls_key)]
    _check_cluster(cluster, measurer, files)
    with (
        _store(database, keep) as store,
        _measurer(measurer, cluster, files, lambda: _places(subject, target, options)) as found,
    ):
        if isinstance(subject, (PrimFunc, Schedule)):
            func = subject.func if isinstance(subject, Schedule) else subject
            task = Task(func, find_target(target), func.name, settings=dict(options.get("config") or {}))
            search = KernelSearch(task, spaces, chosen_strategy, found, store, seed)
            return _tune_kernel(search, seconds, trials, batch, progress)
        budget = SECONDS if seconds is None else seconds
        searches_graph = graph and budget >= GRAPH_SECONDS
        decides = GraphSearch(subject, target, inputs, sizes, options) if searches_graph else None
        make_tasks = partial(
            tasks_of,
            subject,
            target,
            inputs=inputs,
            sizes=sizes,
            decider=None if decides is None else decides.decide,
            **options,
        )
        tuner = ModelTuner(
            make_tasks,
            spaces,
            chosen_strategy,
            found,
            store,
            graph=decides,
            seed=seed,
            batch=batch,
            max_trials=trials,
            progress=progress,
        )
        return tuner.run(budget)


def _tune_kernel(
    search: KernelSearch,
    seconds: float | None,
    trials: int | None,
    batch: int,
    progress: Callable[[Progress], None],
) -> Result:
    start = time.monotonic()
    end = start + (float("inf") if seconds is None else seconds * (1 - KEPT_BACK))
    most = TRIALS if seconds is None and trials is None else trials

    def report(now: str) -> None:
        passed = time.monotonic() - start
        left = 0.0 if seconds is None else max(0.0, seconds - passed)
        default = search.measure_default().best or 0.0
        best = search.best_seconds or default
        line = Line(search.task.name, 1e3 * default, 1e3 * best, search.trials, "searched")
        progress(Progress((line,), passed, left, now))

    with suppress(KeyboardInterrupt):
        while time.monotonic() < end and (most is None or search.trials < most):
            count = batch if most is None else min(batch, most - search.trials)
            if not search.go_on(count):
                break
            report(f"searching {search.task.name}")
    return search.conclude()


def _listed(space: SpaceLike | Sequence[SpaceLike]) -> Sequence[SpaceLike]:
    return space if isinstance(space, Sequence) and not isinstance(space, str) else [space]


def _space(space: SpaceLike) -> Space:
    found: Space = registry().search_spaces[space] if isinstance(space, str) else space
    if not all(hasattr(found, each) for each in ("name", "generate", "fits")):
        raise UsageError(
            f"a {type(found).__name__} is no search space",
            hint="a space has `name`, `about`, `fits(task)` and `generate(schedule, choose, task)`",
        )
    return found


def _strategy(strategy: Strategy | str) -> Strategy:
    found: Strategy = registry().search_strategies[strategy] if isinstance(strategy, str) else strategy
    if not hasattr(found, "start"):
        raise UsageError(
            f"a {type(found).__name__} is no search strategy",
            hint="a strategy has `name`, `about` and `start(task, space, seed)`",
        )
    return found


def _check_budget(seconds: float | None, trials: int | None, batch: int) -> None:
    if seconds is not None and not seconds > 0:
        raise UsageError(f"seconds={seconds} is no budget", hint="more than 0")
    for what, value in (("trials", trials), ("batch", batch)):
        if value is not None and not value >= 1:
            raise UsageError(f"{what}={value} is no budget", hint="at least 1")


@contextmanager
def _store(database: DatabaseLike, keep: bool) -> Iterator[Store]:
    """The database, which is closed at the end if it is opened here. Raises DatabaseError if no record can be
    written to it.
    """
    if not keep:
        yield NoStore()
    elif database is None or isinstance(database, (str, Path)):
        with Database(database) as opened:
            opened.check_writable()
            yield opened
    else:
        yield database


def _check_cluster(cluster: str | None, measurer: Measurer | None, files: Sequence[Path | None]) -> None:
    if cluster is not None and measurer is not None:
        raise UsageError("both `measurer` and `cluster` are given", hint="give one of them")
    if cluster is None and any(files):
        raise UsageError("certificates without a cluster", hint="name its scheduler: tls://HOST:PORT")


def _places(subject: Any, target: Any, options: Mapping[str, Any]) -> list[Target]:
    """The targets whose kernels are measured."""
    if isinstance(subject, (PrimFunc, Schedule)):
        return [find_target(target)]
    given = options.get("targets")
    found = find_targets(target if given is None else given, options.get("place"))
    found = found.for_threads(options.get("num_threads") or config.num_threads)
    return [*found.others, found.host]


@contextmanager
def _measurer(
    measurer: Measurer | None,
    cluster: str | None,
    files: Sequence[Path | None],
    places: Callable[[], Sequence[Target]],
) -> Iterator[Measurer]:
    """The measurer, which is closed at the end if it is made here. Raises UsageError without a scheduler, and
    TargetError if no worker of the cluster runs one of the targets.
    """
    if measurer is not None:
        yield measurer
        return
    if cluster is None:
        made: Measurer = LocalMeasurer(builders=min(usable_cores(), MAX_BUILDERS))
    else:
        ca, cert, key = files
        connect = import_module("dlc_tune.measuring.cluster").measurer_for
        made = connect(cluster, *places(), tls_ca=ca, tls_cert=cert, tls_key=key)
    try:
        yield made
    finally:
        made.close()


class Tuner:
    """The declaration of the tuner."""

    name = "tune"
    tune = staticmethod(tune)


TUNER = Tuner()

__all__ = ["SPACES", "STRATEGY", "TUNER", "Tuner", "tune"]
