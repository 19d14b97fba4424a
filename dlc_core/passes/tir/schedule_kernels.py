"""Schedule every kernel by the first rule that matches it and the target's description."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import Any, ClassVar

from dlc_core.arith import Analyzer
from dlc_core.decisions import (
    DECISIONS,
    MAX_CANDIDATES,
    SCHEDULE_RULE,
    Candidate,
    Choice,
    Decision,
    one_line,
    scope,
)
from dlc_core.diag import DlcError, PassError, ScheduleError, UnsupportedError
from dlc_core.ir.expr import Var, const_value
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.passes.tir.launchable import check_launches
from dlc_core.passes.tir.workspace import allocations_in_loops, on_stack, size_bound
from dlc_core.schedule import Schedule, Trace
from dlc_core.schedule.rules import RULES, rules_for
from dlc_core.schedule.rules.base import Machine, ScheduleRule
from dlc_core.support.record import record
from dlc_core.target import Target
from dlc_core.tir.functor import buffers_written, replace_scalars
from dlc_core.tir.stmt import PrimFunc

TUNED = "tuned"
"""The rule name of kernels that a tuner scheduled."""
RULE = Decision(
    SCHEDULE_RULE,
    "Which of the schedule rules that match a kernel is tried first; values are names of rules.",
    ("first", "other"),
    has_values=True,
)
_PURPOSE = "The rule for "
"""Docstrings of rules begin with it."""
APPLIED = "applied"
"""The attribute of a kernel with the plans that its rule applied, as text."""
ORIGIN = "origin"
"""The attribute of a kernel that a tuner scheduled with the origin of the schedule, as text."""
TRACES = "traces"
"""The setting of a context that requests the traces of kernels."""


class NoRuleError(UnsupportedError):
    """A kernel that no schedule rule of the target's kind schedules."""


@record(frozen=True)
class ScheduleKernels(PrimFuncPass):
    """Schedule each kernel by the tuner's trace if there is one, else by schedule rules. `rules` names the
    allowed rules; empty means all. If the target's kind lists its rules (`TargetKind.rules`), only these are
    tried, and a kernel without a schedule raises NoRuleError. At optimization level 0 only kernels of such
    kinds are scheduled: the others can run without a schedule.

    A tuner returns a Trace or its JSON, or an object whose attribute `trace` is one or None. The attribute
    `refused` of the object has reasons against other schedules, as lines. A kernel that a tuner schedules has
    the attribute `rule` "tuned", and `origin` with the text of this attribute of the object.
    If `config["traces"]` of the context is true, the attribute `trace` of a kernel has the steps that
    made it, as Python that runs on a schedule `sch` of the unscheduled kernel.  The attribute `decisions` has
    the choices that the schedule was made with, as text, and `applied` the plans that follow from them.
    """

    name: ClassVar[str] = "schedule_kernels"
    settings: ClassVar[tuple[str, ...]] = (TRACES,)
    exact: ClassVar[bool] = False
    rules: tuple[str, ...] = ()

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        if context.target is None or func.attrs.get("scheduled"):
            return func
        if context.opt_level < 1 and context.target.kind.rules is None:
            return func
        if _writes_nothing(func):
            return _with_attrs(func, rule="none", why_not=())
        description = context.target.describe()
        machine = Machine(description, description.cores)
        refused: list[str] = []
        unmatched: list[ScheduleRule] = []
        answer = None if context.tuner is None else context.tuner(func, context.target)
        origin = one_line(str(getattr(answer, ORIGIN, "")))
        refused += [f"{TUNED}: {reason}" for reason in getattr(answer, "refused", ())]
        with scope(func.name) as rule_choices:
            for name, apply in self._attempts(func, context, machine, unmatched, answer):
                try:
                    with scope(func.name) as choices:
                        made, trace = _scheduled(func, apply, context)
                except ScheduleError as error:
                    refused.append(f"{name}: {error}")
                    continue
                kept_choices = [
                    _rule_choice(choice, refused, unmatched) if choice.decision == RULE.name else choice
                    for choice in rule_choices
                    if choice.decision != RULE.name or choice.value == name
                ]
                kept_choices += [choice for choice in choices if choice not in kept_choices]
                facts: dict[str, object] = {"rule": name, "why_not": tuple(refused)}
                if name == TUNED and origin:
                    facts[ORIGIN] = origin
                facts[DECISIONS] = tuple(choice.full() for choice in kept_choices)
                if context.config.get(TRACES):
                    facts["trace"] = trace.tidied().as_python()
                return _with_attrs(made, **facts)
        _check_allowed(func, context, refused)
        return _with_attrs(func, rule="none", why_not=tuple(refused))

    def _attempts(
        self,
        func: PrimFunc,
        context: PassContext,
        machine: Machine,
        unmatched: list[ScheduleRule],
        answer: Any,
    ) -> Iterator[tuple[str, Callable[[Schedule], None]]]:
        """Yield the candidates for the schedule of a kernel with their names, the preferred first.

        Rules that do not match the kernel are added to `unmatched`. `answer` is that of the tuner.
        """
        answer = getattr(answer, "trace", answer)
        if answer is not None:
            yield TUNED, lambda schedule: _as_trace(answer).replay(schedule)

        def matching() -> Iterator[ScheduleRule]:
            for rule in self.candidates(context, machine):
                with _errors_of(rule, func):
                    found = rule.matches(func, machine)
                if found:
                    yield rule
                else:
                    unmatched.append(rule)

        matches = matching()
        first = next(matches, None)
        if first is None:
            return
        known = [first]

        def all_matches() -> list[ScheduleRule]:
            known.extend(matches)
            return known

        chosen = RULE.pick(
            first, all_matches, lambda rule: "first" if rule is first else "other", lambda rule: rule.name
        )
        for rule in chain([chosen], (one for one in chain(known, matches) if one is not chosen)):

            def apply(schedule: Schedule, rule: ScheduleRule = rule) -> None:
                with _errors_of(rule, func):
                    rule.apply(schedule, machine)
                schedule.compact_buffers()

            yield rule.name, apply

    def candidates(self, context: PassContext, machine: Machine) -> list[ScheduleRule]:
        """The rules that may schedule kernels of a context's target, the preferred first."""
        own = rules_for(machine.description)
        found = [*(r for r in context.schedule_rules if r not in RULES), *own]
        assert context.target is not None
        target: Target = context.target
        allowed = [
            r
            for r in found
            if (not self.rules or r.name in self.rules)
            and not context.leaves_out(r.name)
            and target.kind.allows_rule(r.name)
            and set(getattr(r, "keys", ())).issubset(target.keys)
        ]
        return sorted(allowed, key=lambda rule: -rule.priority)


def _check_allowed(func: PrimFunc, context: PassContext, refused: Sequence[str]) -> None:
    """Raise NoRuleError for a kernel without a schedule, if the kind of the target lists its rules."""
    assert context.target is not None
    kind = context.target.kind
    if kind.rules is None:
        return
    found = "all that match refuse it" if refused else "none of them matches"
    raise NoRuleError(
        f"no schedule rule of the target kind {kind.name!r} schedules the kernel {func.name!r}",
        spans=func.spans,
        details=refused,
        why=f"its rules are {', '.join(kind.rules)}, and {found}",
        hint="assign its nodes to another target by `place`, or add a rule to the plugin",
    )


@contextmanager
def _errors_of(rule: ScheduleRule, func: PrimFunc) -> Iterator[None]:
    """Within this context, exceptions that a rule should not raise become errors with its name."""
    try:
        yield
    except DlcError:
        raise
    except Exception as error:
        raise PassError(
            f"schedule rule {rule.name!r} failed on the kernel {func.name!r}",
            spans=func.spans,
            why=f"{type(error).__name__}: {error}",
            hint=f"this is a defect of {type(rule).__module__}.{type(rule).__qualname__}; a rule raises "
            "ScheduleError to refuse a kernel, and `disabled` leaves the rule out",
        ) from error


def _rule_choice(choice: Choice, refused: Sequence[str], unmatched: Sequence[ScheduleRule]) -> Choice:
    """Return the choice of a rule, with the rules that were tried before it and why they were refused."""
    found = [Candidate(choice.alternative, choice.value)]
    for reason in refused:
        name, _, why = reason.partition(": ")
        found.append(Candidate("other", name, refused=one_line(why)))
    for rule in reversed(unmatched[-MAX_CANDIDATES:]):  # closest priority first
        what = one_line((type(rule).__doc__ or "").partition("\n\n")[0].partition(";")[0].rstrip("."))
        purpose = what.removeprefix(_PURPOSE)
        why = f"does not match: is for {purpose}" if purpose != what else "does not match"
        found.append(Candidate("other", rule.name, refused=why))
    return replace(choice, candidates=tuple(found))


def _scheduled(
    func: PrimFunc, apply: Callable[[Schedule], None], context: PassContext
) -> tuple[PrimFunc, Trace]:
    """Apply a schedule to a kernel. Raises ScheduleError if the schedule is not legal.

    Simplification by the bounds of dims may produce a form that primitives do not support. The kernel is then
    scheduled without these bounds.
    """
    try:
        return _applied(func, apply, context)
    except ScheduleError:
        if all(scalar.bounds is None for scalar in func.scalars):
            raise
        free = {scalar: Var(scalar.name, scalar.dtype) for scalar in func.scalars}
        with suppress(ScheduleError):
            made, trace = _applied(replace_scalars(func, free), apply, context)
            return replace_scalars(made, {other: scalar for scalar, other in free.items()}), trace
        raise


def _applied(
    func: PrimFunc, apply: Callable[[Schedule], None], context: PassContext
) -> tuple[PrimFunc, Trace]:
    schedule = Schedule(func, intrins=context.tensor_intrins)
    apply(schedule)
    _check_sizes(schedule.func)
    description = None if context.target is None else context.target.describe()
    if description is not None and description.thread_axes:
        check_launches(schedule.func, description)
    plans = "; ".join(dict.fromkeys(map(str, schedule.plans)))
    return _with_attrs(schedule.func, **({APPLIED: plans} if plans else {})), schedule.trace


def _as_trace(answer: Any) -> Trace:
    """Convert a tuner's answer to a trace. Raises ScheduleError if it is none."""
    if isinstance(answer, Trace):
        return answer
    try:
        if isinstance(answer, str):
            return Trace.from_json(answer)
    except DlcError as error:
        raise ScheduleError(error.what, why=error.why) from error
    raise ScheduleError(f"the tuner gave a {type(answer).__name__}", hint="give a Trace, its JSON, or None")


def _check_sizes(func: PrimFunc) -> None:
    """Check that temporaries in loops have a size or a bound that is known before the program runs."""
    analyzer = Analyzer()
    for scalar in func.scalars:
        analyzer.declare_dim(scalar, low=0)
    for buffer, loops in allocations_in_loops(func.body):
        if not on_stack(buffer) and size_bound(buffer.num_elements(), loops, analyzer) is None:
            raise ScheduleError(f"the size of the temporary {buffer.name} has no bound outside of its loops")


def _writes_nothing(func: PrimFunc) -> bool:
    """Whether all results are known to be empty."""
    written = set(buffers_written(func.body))
    results = [b for b in func.buffers if b in written]
    return bool(results) and all(const_value(b.num_elements()) == 0 for b in results)


def _with_attrs(func: PrimFunc, **facts: object) -> PrimFunc:
    """Add facts about the schedule to the attributes of a program."""
    return replace(func, attrs=MappingProxyType({**func.attrs, **facts}))
