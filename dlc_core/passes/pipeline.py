"""Pipelines: passes in order, written as text, run under watchers.

Pipeline.parse("simplify | fuse{max_ops=64}", PASSES).run(module)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dlc_core.cancel import checkpoint
from dlc_core.decisions import DECISIONS, forced
from dlc_core.diag import (
    CancelledError,
    DlcError,
    ForeignError,
    LimitError,
    PassError,
    UnsupportedError,
)
from dlc_core.graph.node import Function, context_of, using_context
from dlc_core.heuristics import HEURISTICS, overridden
from dlc_core.ir.module import IRModule
from dlc_core.passes.base import Pass, PassContext, format_pass
from dlc_core.passes.reproducer import REPRODUCERS, write_reproducer
from dlc_core.passes.syntax import parse_passes
from dlc_core.support.record import record


@record(frozen=True)
class Pipeline:
    """A sequence of passes; `str` gives the text that parses back to an equal one."""

    passes: tuple[Pass, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "passes", tuple(self.passes))

    @staticmethod
    def parse(text: str, known: Mapping[str, type[Pass]] | Iterable[type[Pass]]) -> Pipeline:
        """Parse a pipeline. `known` are the pass classes, by name or in any order."""
        return Pipeline(parse_passes(text, by_name(known)))

    def __str__(self) -> str:
        return " | ".join(map(format_pass, self.passes))

    def __iter__(self) -> Iterator[Pass]:
        return iter(self.passes)

    def __len__(self) -> int:
        return len(self.passes)

    def __add__(self, other: Pipeline) -> Pipeline:
        return Pipeline((*self.passes, *other.passes))

    def active(self, context: PassContext) -> Pipeline:
        """Return the passes that run under a context: of its level, and not disabled."""
        return Pipeline(
            tuple(
                p for p in self.passes if p.min_level <= context.opt_level and not context.leaves_out(p.name)
            )
        )

    def run(self, module: IRModule, context: PassContext | None = None) -> IRModule:
        """Run all active passes; `context` is by default the current one. Return the new module.

        Raises PassError, which names the pass, for whatever a pass or watcher raises but UnsupportedError.
        """
        context = PassContext.current() if context is None else context
        passes = self.active(context).passes
        entry = module.functions.get(module.entry)
        graph_context = context_of(entry) if isinstance(entry, Function) else None
        numbers = overridden(context.config.get(HEURISTICS, ""))
        with context, using_context(graph_context), forced(str(context.config.get(DECISIONS, ""))), numbers:
            for index, one in enumerate(passes):
                module = _run_one(one, module, context, passes[index:])
        return module


def _run_one(one: Pass, module: IRModule, context: PassContext, rest: Sequence[Pass]) -> IRModule:
    try:
        checkpoint()
        for watcher in context.watchers:
            watcher.before(one, module, context)
        result = one.run(module, context)
        for watcher in context.watchers:
            watcher.after(one, result, context)
    except PassError as error:
        if error.details and error.details[0].startswith("pipeline: "):
            raise
        raise _failed(one, module, context, rest, error) from error
    except (UnsupportedError, ForeignError, CancelledError, LimitError):
        raise  # not a defect of the pass: the model needs something unsupported or missing
    except Exception as error:
        if one.checks_model and isinstance(error, DlcError):
            raise
        raise _failed(one, module, context, rest, error) from error
    return result


def _failed(
    one: Pass, module: IRModule, context: PassContext, rest: Sequence[Pass], error: Exception
) -> PassError:
    text = str(Pipeline(tuple(rest)))
    details = [f"pipeline: {text}"]
    if isinstance(error, DlcError):
        what, spans, why, hint = error.what, error.spans, error.why, error.hint
        details += error.details
    else:
        what, spans, why = str(error) or type(error).__name__, (), f"{type(error).__name__} in the pass"
        hint = "this is a defect of the pass; `disabled` leaves it out"
    folder = context.config.get(REPRODUCERS)
    if folder:
        details.append(f"reproducer: {write_reproducer(folder, one, module, context, text, error)}")
    return PassError(f"pass {one.name!r} failed: {what}", spans=spans, why=why, hint=hint, details=details)


def by_name(known: Mapping[str, type[Pass]] | Iterable[type[Pass]]) -> Mapping[str, type[Pass]]:
    """Return pass classes by name."""
    return known if isinstance(known, Mapping) else {cls.name: cls for cls in known}
