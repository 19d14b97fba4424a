"""Mutants of index arithmetic are detected, and the unmodified code passes the checks."""

from __future__ import annotations

import pytest

from tests.mutation.equivalent import COSTS, EQUIVALENT
from tests.mutation.mutants import MODULES, Probes, all_mutants, drawn, mutants_of
from tests.mutation.run import SURVIVED, all_checks, evaluated, facts_of, verdicts

pytest.importorskip("dlc_backend_llvm", reason="kernels run in guard mode on the backend for this machine")

FEW = ("schedule/1", "schedule/4", "schedule/8", "op/concat/0/end", "op/max_pool/0/end")
"""Checks of several kinds, which take a few seconds."""


def test_mutants_are_detected_and_the_unmodified_code_passes():
    mutants = [
        m
        for m in all_mutants()
        if (m.module, m.function[-1], m.kind)
        in {
            ("dlc_core.op.std.pool", "_window_reduction", "o * s: another operator"),
            ("dlc_core.op.std.slicing", "_concat_infer", "shape[i] + other.shape[i]: another operator"),
            ("dlc_core.schedule.loops", "split", "var * step + value: another operator"),
        }
    ]
    assert len(mutants) == 3
    checks = [c for c in all_checks() if c.name in FEW]
    chosen = evaluated(mutants, facts_of(checks, mutants, 1))
    assert len(chosen) == 3
    found = dict(verdicts(*zip(*chosen, strict=True), 1))
    assert all(verdict.said != SURVIVED for verdict in found.values()), found


def test_lists_name_existing_mutants():
    """An entry of a removed function or change could hide another mutant."""
    for module, functions in {**COSTS, **EQUIVALENT}.items():
        assert module in MODULES
        assert functions
    for module, own in EQUIVALENT.items():
        kinds = {(".".join(m.function), m.kind) for m in mutants_of(module)}
        listed = {(function, kind) for function, some in own.items() for kind in some}
        assert listed <= kinds, listed - kinds
    for module, functions in COSTS.items():
        assert set(functions) <= functions_of(module), set(functions) - functions_of(module)


def functions_of(module: str) -> set[str]:
    """The functions of a module that have mutants, including those that only compare costs."""
    return {".".join(m.function) for m in mutants_of(module, costs=True)}


def test_probes_record_evaluated_nodes():
    mutants = list(mutants_of("dlc_core.schedule.regions"))
    assert Probes([m.place for m in mutants]).codes
    checks = [c for c in all_checks() if c.name == "schedule/8"]
    (facts,) = facts_of(checks, mutants, 1)
    assert facts.nodes
    assert facts.nodes < {m.place for m in mutants}


@pytest.mark.slow
def test_a_sample_of_mutants_is_detected():
    """Twenty of all mutants; CONTRIBUTING.md has the results of larger samples."""
    mutants = all_mutants()
    chosen = drawn(evaluated(mutants, facts_of(all_checks(), mutants, 2)), 20)
    survivors = [
        str(chosen[number][0])
        for number, verdict in verdicts(*zip(*chosen, strict=True), 2)
        if verdict.said == SURVIVED
    ]
    assert not survivors
