"""Run conformance cases on a target and record the outcome of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pytest

from dlc_core.diag import DlcError, UnsupportedError
from dlc_core.driver import find_target
from dlc_core.graph.node import Function, functions_of, post_order
from dlc_core.ir.module import IRModule
from dlc_core.op.declare import OpDecl
from dlc_core.plugin.registry import registry
from dlc_core.runtime.executable import Executable
from dlc_core.target import STAGES, Target
from dlc_core.testing.batch import Compiled, compile_all
from dlc_core.testing.cases import Case, difference, outputs_of
from dlc_core.testing.expectations import Expectations, ExpectedFailure, Unsupported
from dlc_core.testing.running import report

PASSED, FAILED, UNSUPPORTED, EXPECTED = "passed", "failed", "unsupported", "fails as expected"
NOT_RUN = "not run"
STATUSES = (FAILED, EXPECTED, PASSED, UNSUPPORTED, NOT_RUN)
"""The statuses of a case, in the order of precedence when several are combined."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case, and the reason."""

    case: str
    status: str
    why: str = ""


@lru_cache(maxsize=8)
def expectations_of(kind: str) -> Expectations:
    """The exemptions of plugins for a target kind."""
    return Expectations(registry().expectations.values(), kind)


def kind_of(text: str) -> str:
    """The name of the target kind in the text of a target."""
    return Target.parse(text, registry().targets).kind.name


@lru_cache(maxsize=32)
def usable_target(text: str) -> Target:
    """The target. If this machine cannot run it, the test is skipped with the reason."""
    kind = Target.parse(text, registry().targets).kind
    problem = kind.problem()  # checked first, because a missing device cannot be described
    if problem is not None:
        pytest.skip(f"{kind.name}: {problem}")
    return find_target(text)


def run_cases(
    cases: Iterable[Case],
    target: Target,
    *,
    opt_level: int = 3,
    num_threads: int | None = 2,
    make: Callable[[IRModule], Executable] | None = None,
) -> list[Outcome]:
    """Compile and run all cases that are not `Unsupported`. `make`, if given, compiles each module."""
    expectations = expectations_of(target.kind.name)
    outcomes: list[Outcome] = []
    to_run: list[Case] = []
    for case in cases:
        expected = expectations.of(case.name)
        if isinstance(expected, Unsupported):
            outcomes.append(Outcome(case.name, UNSUPPORTED, expected.reason))
        else:
            to_run.append(case)
    modules = [c.module for c in to_run]
    if make is None:
        compiled = compile_all(modules, target, opt_level=opt_level, num_threads=num_threads)
    else:
        compiled = [_compile(make, module) for module in modules]
    for case, result in zip(to_run, compiled, strict=True):
        outcome = _outcome(case, result, target)
        expected = expectations.of(case.name)
        if isinstance(expected, ExpectedFailure):
            outcome = _strict(outcome, expected.reason)
        outcomes.append(outcome)
    return outcomes


def _compile(make: Callable[[IRModule], Executable], module: IRModule) -> Compiled:
    try:
        return make(module)
    except DlcError as error:
        return error


def _strict(outcome: Outcome, reason: str) -> Outcome:
    if outcome.status == FAILED:
        return Outcome(outcome.case, EXPECTED, reason)
    return Outcome(outcome.case, FAILED, f"passes, though it is expected to fail: {reason}")


def _outcome(case: Case, compiled: Compiled, target: Target) -> Outcome:
    if isinstance(compiled, DlcError):
        lacking = _without_lowering(case) if target.stages == STAGES else ""
        if lacking and isinstance(compiled, UnsupportedError):
            return Outcome(
                case.name, UNSUPPORTED, f"{lacking}: no tensor lowering; the host runs its reference"
            )
        return Outcome(case.name, FAILED, str(compiled))
    report(case.name, compiled)
    try:
        for number, trial in enumerate(case.trials):
            found = outputs_of(compiled(*trial.inputs))
            wrong = difference(found, trial.expected, case.tolerances)
            if wrong is not None:
                shapes = ", ".join(str(a.shape) for a in trial.inputs)
                return Outcome(case.name, FAILED, f"{wrong} (trial {number}, inputs {shapes})")
    except DlcError as error:
        return Outcome(case.name, FAILED, str(error))
    return Outcome(case.name, PASSED)


def _without_lowering(case: Case) -> str:
    """The ops of a case without a tensor lowering, separated by commas."""
    names: set[str] = set()
    pending: list[Any] = [case.module[case.module.entry]]
    while pending:
        function: Function = pending.pop()
        for node in post_order(function.body):
            pending += functions_of(node)
            if isinstance(node.op, OpDecl) and node.op.lower is None and not node.op.is_composite:
                names.add(node.op.name)
    return ", ".join(sorted(names))


def check_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Fail the test and name all failed cases; skip it if no case was run."""
    wrong = [o for o in outcomes if o.status == FAILED]
    if wrong:
        shown = [f"{o.case}: {o.why}" for o in wrong[:20]]
        more = [f"and {len(wrong) - 20} more"] if len(wrong) > 20 else []
        pytest.fail("\n".join([f"{len(wrong)} of {len(outcomes)} cases fail", *shown, *more]), pytrace=False)
    if outcomes and not any(o.status == PASSED for o in outcomes):
        reasons = Counter(f"{o.status}: {o.why}" for o in outcomes)
        pytest.skip("; ".join(reasons))


__all__ = [
    "EXPECTED",
    "FAILED",
    "NOT_RUN",
    "PASSED",
    "STATUSES",
    "UNSUPPORTED",
    "Outcome",
    "check_outcomes",
    "expectations_of",
    "kind_of",
    "run_cases",
    "usable_target",
]
