"""Positions of users' passes in the default pipelines, named by texts.

    PassContext(passes=[("loops", MyPass()), ("before unroll_loops", Other())])

A position is `before NAME` or `after NAME` of a pass, `begin STAGE` or `end STAGE`, or one of the phases of
the tensor level below.  Several passes at one position run in the given order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from dlc_core.diag import UsageError, similar
from dlc_core.passes.base import Pass

PHASES: Mapping[str, str] = MappingProxyType(
    {
        "scheduled": "before lower_blocks",
        "loops": "after lower_blocks",
        "flat": "after flatten_buffers",
        "final": "end tir",
    }
)
"""The phases of tensor lowering: programs of blocks that are scheduled; plain loops over buffers of several
dims; flat buffers, with vectorized and unrolled loops still loops; what the code generator gets."""

_WORDS = ("before", "after", "begin", "end")


def read_place(text: str) -> tuple[str, str]:
    """("before" or "after", name of a pass) or ("begin" or "end", name of a stage).

    Raises UsageError for a text that is no place.
    """
    word, _, name = PHASES.get(text, text).partition(" ")
    if word not in _WORDS or not name.isidentifier():
        close = similar(text, PHASES)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UsageError(
            f"{text!r} is no place of a pass",
            hint=f'{hint}write "before NAME", "after NAME", "begin STAGE", "end STAGE", '
            f"or a phase: {', '.join(PHASES)}",
        )
    return word, name


def insert_passes(
    stages: Mapping[str, Sequence[Pass]], extra: Iterable[tuple[str, Pass]]
) -> dict[str, list[Pass]]:
    """Insert passes into the stages at named positions.

    Raises UsageError for a position that names an unknown pass or stage.
    """
    result = {stage: list(passes) for stage, passes in stages.items()}
    places = [(read_place(where), one) for where, one in extra]
    for (word, name), one in places:
        if word in ("before", "end"):
            _insert(result, word, name, one)
    for (word, name), one in reversed(places):
        if word in ("after", "begin"):
            _insert(result, word, name, one)
    return result


def _insert(stages: dict[str, list[Pass]], word: str, name: str, one: Pass) -> None:
    if word in ("begin", "end"):
        if name not in stages:
            raise UsageError(
                f"there is no stage {name!r} for pass {one.name!r}", hint=f"stages: {', '.join(stages)}"
            )
        stages[name].insert(0 if word == "begin" else len(stages[name]), one)
        return
    for passes in stages.values():
        found = [i for i, other in enumerate(passes) if other.name == name]
        if found:
            passes.insert(found[0] if word == "before" else found[-1] + 1, one)
            return
    known = ", ".join(dict.fromkeys(p.name for passes in stages.values() for p in passes))
    raise UsageError(
        f"there is no pass {name!r} {word} which {one.name!r} could stand", hint=f"passes: {known}"
    )


__all__ = ["PHASES", "insert_passes", "read_place"]
