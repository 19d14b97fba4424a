"""The score as text: a table of OpInfos, one of Core ATen operators, and the totals."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache

import torch

from dlc_frontend_torch.score.results import (
    COUNTED,
    CRASHED,
    FALLBACK,
    RANDOM,
    REFUSED,
    RIGHT,
    WRONG,
    Score,
    total,
)

REASONS = 3
"""The number of reasons that are named for an operator."""


@cache
def core_operators() -> tuple[str, ...]:
    """The overloads of Core ATen."""
    found = []
    # `dir(torch.ops.aten)` has only operators that something has used before.
    registered = (
        each.removeprefix("aten::") for each in torch._C._dispatch_get_all_op_names() if "aten::" in each
    )
    for name in sorted({each.partition(".")[0] for each in registered}):
        packet = getattr(torch.ops.aten, name, None)
        if isinstance(packet, torch._ops.OpOverloadPacket):
            for overload in packet.overloads():
                operator = getattr(packet, overload)
                if torch.Tag.core in operator.tags:
                    found.append(str(operator))
    return tuple(sorted(found))


def _columns(gradients: bool) -> tuple[str, ...]:
    return COUNTED if gradients else tuple(each for each in COUNTED if each != FALLBACK)


def opinfo_table(scores: Sequence[Score], gradients: bool = False) -> list[str]:
    """A line for each OpInfo, as a table of Markdown."""
    columns = _columns(gradients)
    lines = [f"| OpInfo | {' | '.join(columns)} | why |", f"|---|{'---|' * len(columns)}---|"]
    for score in sorted(scores, key=lambda each: each.op):
        if not score.counted:
            continue
        reasons = [
            why.replace("|", "\\|")
            for status in (WRONG, CRASHED, REFUSED, FALLBACK)
            for why, _ in score.reasons(status)[:REASONS]
        ]
        counts = " | ".join(str(score.count(status)) for status in columns)
        lines.append(f"| {score.op} | {counts} | {'; '.join(reasons)} |")
    return lines


def core_table(scores: Sequence[Score], gradients: bool = False) -> list[str]:
    """A line for each Core ATen operator with the samples that went through it."""
    columns = _columns(gradients)
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for score in scores:
        for outcome in score.outcomes:
            for name in outcome.called:
                found[name][outcome.status] += 1
    lines = [f"| operator | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for name in core_operators():
        counts = found[name]
        if any(counts[status] for status in COUNTED):
            lines.append(f"| {name} | {' | '.join(str(counts[status]) for status in columns)} |")
    without = [name for name in core_operators() if not any(found[name][status] for status in COUNTED)]
    return [*lines, "", f"Core ATen operators without a sample: {', '.join(without)}"]


def totals(scores: Sequence[Score], gradients: bool = False) -> list[str]:
    """The shares of all samples, of samples that call no operators but those of Core ATen, and of samples
    that call one of them. The last share is judged.
    """
    columns = _columns(gradients)
    lines = [_shares("all samples", Counter({s: total(scores, s) for s in (*COUNTED, RANDOM)}), columns)]
    core = set(core_operators())
    some: Counter[str] = Counter()
    only: Counter[str] = Counter()
    for score in scores:
        for outcome in score.outcomes:
            some[outcome.status] += not core.isdisjoint(outcome.called)
            only[outcome.status] += bool(outcome.called) and core.issuperset(outcome.called)
    lines.append(_shares("samples of Core ATen alone", only, columns))
    lines.append(_shares("samples that call Core ATen (judged)", some, columns))
    reached, right = (
        {name for s in scores for o in s.outcomes if o.status in wanted for name in o.called} & core
        for wanted in (COUNTED, (RIGHT,))
    )
    lines.append(
        f"Core ATen operators with a right sample: {len(right)} of {len(core)}; {len(reached)} have samples"
    )
    return lines


def _shares(what: str, counts: Counter[str], columns: Sequence[str]) -> str:
    whole = sum(counts[status] for status in columns)
    shares = ", ".join(
        f"{counts[status]} {status} ({counts[status] / max(whole, 1):.2%})" for status in columns
    )
    return f"{what}: {whole}: {shares}; {counts[RANDOM]} draw random numbers"


__all__ = ["core_operators", "core_table", "opinfo_table", "totals"]
