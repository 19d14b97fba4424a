"""The choices of a compile: those of graph passes attached to kernels, and the check of what was forced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dlc_core.config import config as settings
from dlc_core.decisions import AT, CHOICES, DECISIONS, Candidate, Choice, Forced, parse_forced
from dlc_core.diag import UsageError, similar
from dlc_core.ir.module import IRModule
from dlc_core.tir.stmt import PrimFunc

Asked = tuple[str, Choice]
"""A choice with the kernel or function that it was made in."""
_SHOWN = 6


def choices_of_kernels(module: IRModule) -> list[Asked]:
    """The choices that the kernels of a module keep."""
    kernels: dict[str, PrimFunc] = module.of_kind(PrimFunc)
    texts = ((name, text) for name, func in kernels.items() for text in func.attrs.get(DECISIONS, ()))
    return [(name, Choice.parse(text)) for name, text in texts]


def with_graph_choices(sites: Sequence[Mapping[str, Any]], choices: Iterable[Choice]) -> list[dict[str, Any]]:
    """The sites of kernel calls, each with the choices of graph passes about its model nodes."""
    known = [(frozenset(one.nodes), one.full()) for one in choices if one.nodes]

    def about(nodes: Iterable[str]) -> list[str]:
        return list(dict.fromkeys(text for names, text in known if not names.isdisjoint(nodes)))

    return [{**site, CHOICES: about(site.get("nodes", ()))} for site in sites]


def check_forced(forced: Forced, asked: Sequence[Asked], kernels: Iterable[str]) -> None:
    """Raise `UsageError` for a forced value that no kernel and no graph pass has as a candidate.

    What `DLC_DECISIONS` forces is for all compiles of a process, and may fit none of the kernels of one.
    """
    always = parse_forced(settings.decisions).values
    for name, value in forced.values.items():
        if always.get(name) == value:
            continue
        decision, _, where = name.partition(AT)
        mine = [
            choice
            for scope, choice in asked
            if choice.decision == decision and (not where or where == scope or where in choice.nodes)
        ]
        if not any(choice.matches(value) for choice in mine):
            names = {*kernels, *(scope for scope, _ in asked)}
            names.update(node for _, choice in asked for node in choice.nodes)
            raise _nothing_forced(decision, value, where, mine, names)


def _nothing_forced(
    decision: str, value: str, where: str, mine: Sequence[Choice], names: Iterable[str]
) -> UsageError:
    if where and where not in names:
        close = similar(where, list(names))
        hint = f"did you mean {close[0]!r}?" if close else "`dlc explain` lists the kernels"
        return UsageError(f"{decision}{AT}{where}={value}: there is no kernel {where!r}", hint=hint)
    place = f" in {where}" if where else ""
    if not mine:
        return UsageError(
            f"{decision}={value} forces nothing{place}",
            why="no kernel asks for this decision" if not place else "the kernel does not ask for it",
            hint="`dlc explain --why` lists the decisions of each kernel",
        )
    chosen = [Candidate(choice.alternative, choice.value) for choice in mine]
    known = (*chosen, *(one for choice in mine for one in choice.candidates))
    texts = list(dict.fromkeys(one.value or one.alternative for one in known))
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return UsageError(
        f"{decision}={value} is no candidate{place or ' of any kernel'}",
        why="; ".join(dict.fromkeys(choice.why() for choice in mine[:1])),
        hint=f"candidates: {', '.join(texts[:_SHOWN])}{more}",
    )


__all__ = ["Asked", "check_forced", "choices_of_kernels", "with_graph_choices"]
