"""Level `graphs`: random graphs, optimised and not, have the results of the reference."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dlc_core import driver
from dlc_core.driver import find_target
from dlc_core.graph.node import STRUCTURAL, post_order
from dlc_core.ir.module import IRModule
from dlc_core.op.reference import evaluate
from dlc_core.runtime.executable import Executable
from dlc_core.script import script
from dlc_core.target import Target
from dlc_core.testing.around_cases import around_cases
from dlc_core.testing.capability import is_partial, taken
from dlc_core.testing.cases import Case, Tolerance, Trial, outputs_of
from dlc_core.testing.levels.base import Level, Parameters, Record, Settings
from dlc_core.testing.mixed_modules import mixed_module
from dlc_core.testing.runner import FAILED, check_outcomes, run_cases
from dlc_core.testing.strategies import DTYPES, RandomGraph, graphs, random_graph

TOLERANCES: dict[str, Tolerance] = {"float32": (2e-4, 2e-5), "float64": (1e-11, 1e-12)}
"""(rtol, atol). Values have magnitudes below ten, and a dozen ops depend on each other."""

GROUP = 20
"""The number of graphs of a test."""


def graph_case(graph: RandomGraph, name: str) -> Case:
    """The case of a graph: one trial for each choice of sizes."""
    module = IRModule({"main": graph.function})
    trials = []
    for number, sizes in enumerate(graph.sizes):
        feeds = graph.feeds(sizes, seed=number)
        with np.errstate(all="ignore"):
            trials.append(Trial(feeds, outputs_of(evaluate(graph.function, feeds))))
    return Case(name, module, trials, TOLERANCES)


def _seeded(seeds: range) -> Iterator[Case]:
    for seed in seeds:
        rng = random.Random(seed)
        dtype, symbolic = DTYPES[seed % len(DTYPES)], seed % 4 == 3
        yield graph_case(random_graph(rng, dtype, symbolic=symbolic), f"graphs/{seed}")


def _mixed(seeds: range) -> Iterator[Case]:
    for seed in seeds:
        rng = random.Random(seed)
        graph = random_graph(rng, DTYPES[seed % len(DTYPES)], symbolic=seed % 4 == 3)
        yield replace(graph_case(graph, f"graphs/mixed/{seed}"), module=mixed_module(graph.function, rng))


def _groups(settings: Settings) -> Sequence[Any]:
    """Ranges of seeds, ten times as many as the fast tests run; the others are slow tests."""
    made = []
    for start in range(0, 10 * settings.graphs, GROUP):
        marks = [pytest.mark.slow] if start >= settings.graphs else []
        made.append(pytest.param(range(start, start + GROUP), id=str(start), marks=marks))
    return made


def _small_groups(settings: Settings) -> Sequence[Any]:
    """Fewer ranges of seeds, because a graph for two devices is compiled in several parts."""
    made = []
    for start in range(0, settings.graphs, 4):
        marks = [pytest.mark.slow] if start else []
        made.append(pytest.param(range(start, start + 4), id=str(start), marks=marks))
    return made


def on_two_devices(module: IRModule, target: Target) -> Executable:
    """Compile a model for a target and the reference, which gets every second op (by name)."""
    order = post_order(module[module.entry].body)
    names = sorted({n.op.name for n in order if n.op.name not in STRUCTURAL})
    other = find_target("reference" if str(target) != "reference" else "reference -level=tir")
    placement = dict.fromkeys(names[::2], other)
    return driver.compile(module, targets=[target, other], place=placement, num_threads=2, cache=False)


class GraphsLevel(Level):
    """Graphs of elementwise ops, broadcasts, reductions, contractions, views and gathers."""

    level: ClassVar[str] = "graphs"
    parameters: ClassVar[dict[str, Parameters]] = {"seeds": _groups, "few_seeds": _small_groups}

    def test_optimised(self, seeds: range, target: Target, record: Record) -> None:
        check_outcomes(record(run_cases(_seeded(seeds), target)))

    def test_unoptimised(self, seeds: range, target: Target, record: Record) -> None:
        check_outcomes(record(run_cases(_seeded(seeds), target, opt_level=0)))

    def test_mixed_devices(self, few_seeds: range, target: Target, record: Record) -> None:
        check_outcomes(
            record(run_cases(_seeded(few_seeds), target, make=lambda module: on_two_devices(module, target)))
        )

    def test_mixed_modules(self, few_seeds: range, target: Target, record: Record) -> None:
        """Modules of graph functions and tensor programs that call each other."""
        check_outcomes(record(run_cases(_mixed(few_seeds), target)))

    def test_around_operations_that_the_target_takes(self, target: Target, record: Record) -> None:
        """Graphs in which values pass between a partial target and the host."""
        if not is_partial(target):
            pytest.skip("the target takes whole models")
        check_outcomes(record(run_cases(around_cases(target), target)))

    @pytest.mark.slow
    def test_shrinking(self, target: Target) -> None:
        """Search for failing graphs, and modules that they are divided into, by Hypothesis, which shrinks
        them.
        """

        @hypothesis_settings(
            max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
        )
        @given(graphs(), st.integers(0, 1 << 16))
        def search(graph: RandomGraph, seed: int) -> None:
            whole = graph_case(graph, "graphs/drawn")
            divided = replace(whole, module=mixed_module(graph.function, random.Random(seed)))
            for case in (whole, divided):
                where = taken(case.module, target) if is_partial(target) else None
                if where is not None and not where.on:
                    continue  # it would test the host
                for level in (3, 0):
                    for outcome in run_cases([case], target, opt_level=level):
                        assert outcome.status != FAILED, (
                            f"{outcome.why}\nopt_level={level}\n{script(case.module)}"
                        )

        search()


__all__ = ["GraphsLevel", "graph_case", "on_two_devices"]
