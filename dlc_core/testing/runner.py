"""Run conformance cases on a target and record the outcome of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pytest

from dlc_core.diag import DlcError, UnsupportedError, first_names
from dlc_core.driver import find_target
from dlc_core.graph.node import Function, functions_of, post_order
from dlc_core.ir.module import IRModule
from dlc_core.op.declare import OpDecl
from dlc_core.plugin.registry import registry
from dlc_core.runtime.executable import Executable
from dlc_core.target import STAGES, Target
from dlc_core.testing.batch import Compiled, compile_all
from dlc_core.testing.capability import is_partial, taken
from dlc_core.testing.cases import Case, difference, outputs_of, with_constants
from dlc_core.testing.expectations import Expectations, ExpectedFailure, Unsupported
from dlc_core.testing.limits import CaseTooLong, limited
from dlc_core.testing.running import report
from dlc_core.testing.where import Where, where_of, work_of

PASSED, FAILED, UNSUPPORTED, EXPECTED = "passed", "failed", "unsupported", "fails as expected"
ON_HOST, NOT_RUN = "on host", "not run"
STATUSES = (FAILED, EXPECTED, PASSED, ON_HOST, UNSUPPORTED, NOT_RUN)
"""The statuses of a case, in the order of precedence when several are combined. A case is `on host` if the
target takes none of its nodes: it shows nothing about the target."""


SHOWN = 6
"""The maximum number of reasons of a skipped test."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case, the reason, and where the case ran; None if it did not run."""

    case: str
    status: str
    why: str = ""
    where: Where | None = None

    def record(self) -> list[Any]:
        """As JSON data."""
        return [self.case, self.status, self.why, None if self.where is None else self.where.record()]

    @staticmethod
    def of_record(data: Sequence[Any]) -> Outcome:
        """The value of `record()`."""
        case, status, why, where = data
        return Outcome(case, status, why, Where.of_record(where))


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
    """Compile and run all cases that are not `Unsupported`. `make`, if given, compiles each module.

    A case that a partial target does not take is tried with constants in place of all inputs but the first.
    Of the cases that it takes nothing of, only the first is run: it tests the host.
    """
    expectations = expectations_of(target.kind.name)
    partial = make is None and is_partial(target)
    outcomes: list[Outcome] = []
    to_run: list[tuple[Case, Where | None]] = []
    host_tested = False
    for case in cases:
        expected = expectations.of(case.name)
        if isinstance(expected, Unsupported):
            outcomes.append(Outcome(case.name, UNSUPPORTED, expected.reason))
            continue
        where = taken(case.module, target, opt_level) if partial else None
        if where is not None and not where.on and (weighted := with_constants(case)) is not None:
            found = taken(weighted.module, target, opt_level)
            if found is not None and found.on:  # it takes the op with constant weights
                case, where = weighted, found
        if where is not None and not where.on:
            if host_tested:
                where = replace(where, work=work_of(case.module))
                outcomes.append(Outcome(case.name, ON_HOST, where.why, where))
                continue
            host_tested = True
        to_run.append((case, where))
    modules = [case.module for case, _ in to_run]
    compiled = _compiler(modules, target, opt_level, num_threads, make, partial)
    for index, (case, predicted) in enumerate(to_run):
        try:
            with limited(case.name, case.name.partition("/")[0]):
                outcome = _outcome(case, compiled(index), target, predicted)
        except CaseTooLong as error:
            outcome = Outcome(case.name, FAILED, str(error))
        expected = expectations.of(case.name)
        if isinstance(expected, ExpectedFailure) and outcome.status != ON_HOST:
            outcome = _strict(outcome, expected.reason)
        outcomes.append(outcome)
    return outcomes


def _compiler(
    modules: Sequence[IRModule],
    target: Target,
    opt_level: int,
    num_threads: int | None,
    make: Callable[[IRModule], Executable] | None,
    partial: bool,
) -> Callable[[int], Compiled]:
    """A function that returns the executable of a module by its index. Modules of a whole target are compiled
    in groups, others when they are requested.
    """
    if make is not None:
        return lambda index: _compile(make, modules[index])
    options: dict[str, Any] = {"opt_level": opt_level, "num_threads": num_threads}
    if partial:
        return lambda index: compile_all(modules[index : index + 1], target, **options)[0]
    return compile_all(modules, target, **options).__getitem__


def _compile(make: Callable[[IRModule], Executable], module: IRModule) -> Compiled:
    try:
        return make(module)
    except DlcError as error:
        return error


def _strict(outcome: Outcome, reason: str) -> Outcome:
    if outcome.status == FAILED:
        return replace(outcome, status=EXPECTED, why=reason)
    return replace(outcome, status=FAILED, why=f"passes, though it is expected to fail: {reason}")


def _outcome(case: Case, compiled: Compiled, target: Target, predicted: Where | None) -> Outcome:
    """Run a case. `predicted` is where it runs by the target's declarations, if that is known."""
    if isinstance(compiled, DlcError):
        lacking = _without_lowering(case) if target.stages == STAGES else ""
        if lacking and isinstance(compiled, UnsupportedError):
            return Outcome(
                case.name, UNSUPPORTED, f"{lacking}: no tensor lowering; the host runs its reference"
            )
        return Outcome(case.name, FAILED, str(compiled))
    report(case.name, compiled)
    where = where_of(compiled, target, case.module)
    if predicted is not None and not where.on and not predicted.on:
        # It knows which declarations exclude the case.
        where = replace(predicted, work=where.work)
    try:
        for number, trial in enumerate(case.trials):
            found = outputs_of(compiled(*trial.inputs))
            wrong = difference(found, trial.expected, case.tolerances)
            if wrong is not None:
                shapes = ", ".join(str(a.shape) for a in trial.inputs)
                why = f"{wrong} (trial {number}, inputs {shapes})"
                return Outcome(case.name, FAILED, why if where.on else f"on the host: {why}", where)
    except DlcError as error:
        return Outcome(case.name, FAILED, str(error), where)
    if not where.on:
        return Outcome(case.name, ON_HOST, where.why, where)
    return Outcome(case.name, PASSED, where=where)


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
        pytest.skip(first_names([reason for reason, _ in reasons.most_common()], SHOWN))


__all__ = [
    "EXPECTED",
    "FAILED",
    "NOT_RUN",
    "ON_HOST",
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
