"""The choices of a compile: those of graph passes attached to kernels, and the check of what was forced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dlc_core.config import config as settings
from dlc_core.decisions import AT, CHOICES, DECISIONS, Candidate, Choice, Forced, parse_forced
from dlc_core.diag import UsageError, first_names, similar
from dlc_core.ir.module import IRModule
from dlc_core.tir.stmt import PrimFunc

ScopedChoice = tuple[str, Choice]
"""A choice with the kernel or function that it was made in."""
_SHOWN = 6


def choices_of_kernels(module: IRModule) -> list[ScopedChoice]:
    """The choices that are attached to the kernels of a module."""
    kernels: dict[str, PrimFunc] = module.of_kind(PrimFunc)
    texts = ((name, text) for name, func in kernels.items() for text in func.attrs.get(DECISIONS, ()))
    return [(name, Choice.parse(text)) for name, text in texts]


def with_graph_choices(sites: Sequence[Mapping[str, Any]], choices: Iterable[Choice]) -> list[dict[str, Any]]:
    """The sites of kernel calls, each with the choices of graph passes about its model nodes."""
    texts: list[str] = []
    by_node: dict[str, list[int]] = {}
    for number, each in enumerate(each for each in choices if each.nodes):
        texts.append(each.full())
        for name in dict.fromkeys(each.nodes):
            by_node.setdefault(name, []).append(number)

    def about(nodes: Iterable[str]) -> list[str]:
        numbers = {number for name in nodes for number in by_node.get(name, ())}
        return list(dict.fromkeys(texts[number] for number in sorted(numbers)))

    return [{**site, CHOICES: about(site.get("nodes", ()))} for site in sites]


def choice_record(choices: Sequence[Choice]) -> dict[str, Any]:
    """The choices of a region's compiler as `explain` reads them, and how many of them a tuner made."""
    by_tuner = [each.decision for each in choices if each.is_tuned]
    found: dict[str, Any] = {DECISIONS: [each.full() for each in choices]}
    if by_tuner:
        names = ", ".join(dict.fromkeys(by_tuner))
        found["origin"] = f"{len(by_tuner)} of {len(choices)} choices are a tuner's ({names})"
    return found


def check_forced(forced: Forced, scoped_choices: Sequence[ScopedChoice], kernels: Iterable[str]) -> None:
    """Raise `UsageError` for a forced value that no kernel and no graph pass has as a candidate.

    What `DLC_DECISIONS` forces is for all compiles of a process, and may fit none of the kernels of one.
    """
    from_environment = parse_forced(settings.decisions).values
    for name, value in forced.values.items():
        if from_environment.get(name) == value:
            continue
        decision, _, where = name.partition(AT)
        matching = [
            choice
            for scope, choice in scoped_choices
            if choice.decision == decision and (not where or where == scope or where in choice.nodes)
        ]
        if not any(choice.matches(value) for choice in matching):
            names = {*kernels, *(scope for scope, _ in scoped_choices)}
            names.update(node for _, choice in scoped_choices for node in choice.nodes)
            raise _unused_forcing_error(decision, value, where, matching, names)


def _unused_forcing_error(
    decision: str, value: str, where: str, matching: Sequence[Choice], names: Iterable[str]
) -> UsageError:
    if where and where not in names:
        close = similar(where, list(names))
        hint = f"did you mean {close[0]!r}?" if close else "`dlc explain` lists the kernels"
        return UsageError(f"{decision}{AT}{where}={value}: there is no kernel {where!r}", hint=hint)
    in_kernel = f" in {where}" if where else ""
    if not matching:
        return UsageError(
            f"{decision}={value} forces nothing{in_kernel}",
            why="no kernel makes this decision" if not in_kernel else "the kernel does not make it",
            hint="`dlc explain --why` lists the decisions of each kernel",
        )
    chosen = [Candidate(choice.alternative, choice.value) for choice in matching]
    candidates = (*chosen, *(each for choice in matching for each in choice.candidates))
    texts = list(dict.fromkeys(each.value or each.alternative for each in candidates))
    return UsageError(
        f"{decision}={value} is no candidate{in_kernel or ' of any kernel'}",
        why="; ".join(dict.fromkeys(choice.why() for choice in matching[:1])),
        hint=f"candidates: {first_names(texts, _SHOWN)}",
    )


__all__ = ["ScopedChoice", "check_forced", "choice_record", "choices_of_kernels", "with_graph_choices"]
