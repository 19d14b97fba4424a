"""Changes of index arithmetic are noticed, and the code as it is passes what they have to pass."""

from __future__ import annotations

import pytest

from tests.mutation.equivalent import COSTS, EQUIVALENT
from tests.mutation.mutants import MODULES, Probes, all_mutants, drawn, mutants_of
from tests.mutation.run import SURVIVED, all_checks, evaluated, facts_of, verdicts

pytest.importorskip("dlc_backend_llvm", reason="kernels run in guard mode on the backend for this machine")

FEW = ("schedule/1", "schedule/4", "schedule/8", "op/concat/0/end", "op/max_pool/0/end")
"""Checks of some kinds, of a few seconds in all."""


def test_mutants_are_noticed_and_the_code_as_it_is_passes():
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


def test_lists_name_what_there_is():
    """An entry for a function or a change that is gone would hide another one some day."""
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
    """The functions of a module that have mutants, those that only weigh costs too."""
    return {".".join(m.function) for m in mutants_of(module, costs=True)}


def test_probes_say_what_is_evaluated():
    mutants = list(mutants_of("dlc_core.schedule.regions"))
    assert Probes([m.place for m in mutants]).codes
    checks = [c for c in all_checks() if c.name == "schedule/8"]
    (facts,) = facts_of(checks, mutants, 1)
    assert facts.nodes
    assert facts.nodes < {m.place for m in mutants}


@pytest.mark.slow
def test_a_sample_of_mutants_is_noticed():
    """Twenty of all; CONTRIBUTING.md says how many are noticed of more."""
    mutants = all_mutants()
    chosen = drawn(evaluated(mutants, facts_of(all_checks(), mutants, 2)), 20)
    survivors = [
        str(chosen[number][0])
        for number, verdict in verdicts(*zip(*chosen, strict=True), 2)
        if verdict.said == SURVIVED
    ]
    assert not survivors
