"""The names of all cases of the conformance kit, for exemptions and for the list of tests that were not
run."""

from __future__ import annotations

from collections.abc import Iterator

from dlc_core.op.samples import sample_dtypes
from dlc_core.plugin.registry import registry
from dlc_core.testing.expectations import Expectation, Expectations
from dlc_core.testing.levels.base import case_of, tests_of
from dlc_core.testing.levels.device import DeviceLevel
from dlc_core.testing.levels.hostile import HostileLevel
from dlc_core.testing.levels.speed import SpeedLevel
from dlc_core.testing.models import all_models

SYMBOLIC = "symbolic"
"""Replaces the dtype in the names of cases with symbolic dims."""

GRAPHS = 1000
"""The number of seeds of graphs that exemptions may name. Suites run different numbers of them."""

BY_TEST = (DeviceLevel, HostileLevel, SpeedLevel)


def case_names() -> Iterator[str]:
    """The names of all cases that an exemption may match, including ops of installed plugins. Models are
    listed as groups, because creating all cases of a group may take long.
    """
    yield from op_case_names()
    for decl in registry().ops.values():
        for number in range(len(decl.samples)):
            yield f"ops/{decl.name}/{number}/{SYMBOLIC}"
    yield from (f"graphs/{seed}" for seed in range(GRAPHS))
    yield from (f"models/{name}" for name in all_models())
    yield from cases_by_test()


def unused_exemptions(expectations: Expectations) -> list[Expectation]:
    """The exemptions that match no case. The cases of a group of models are created only if a pattern begins
    with its name.
    """
    unused = expectations.unused(case_names())
    groups = all_models()
    named = {name: [e for e in unused if e.pattern.startswith(f"models/{name}/")] for name in groups}
    found = {name: [case.name for case in groups[name].named()] for name, entries in named.items() if entries}
    used = [e for name, cases in found.items() for e in named[name] if any(map(e.covers, cases))]
    return [e for e in unused if e not in used]


def op_case_names() -> Iterator[str]:
    """The cases of ops with constant dims: all samples in all dtypes."""
    for decl in registry().ops.values():
        for number, sample in enumerate(decl.samples):
            for dtype in sample_dtypes(decl, sample):
                yield f"ops/{decl.name}/{number}/{dtype}"


def cases_by_test() -> Iterator[str]:
    """The cases of levels in which each test is a case."""
    for level in BY_TEST:
        yield from (case_of(level, name) for name in tests_of(level))


__all__ = ["SYMBOLIC", "case_names", "cases_by_test", "op_case_names", "unused_exemptions"]
