"""Positions of passes that the default pipelines do not name.

A class declares its position by `after` and `before`. In a context, a text can give the position:

    class Mine(GraphPass): after = "simplify"
    PassContext(passes=[("loops", MyPass()), ("before unroll_loops", Other())])

A class names passes, or the begin of its stage (`after = "begin"`), or its end (`before = "end"`). A text is
`before NAME`, `after NAME`, `begin STAGE`, `end STAGE`, or one of the phases of tensor lowering below. Passes
at the same position run in the given order, classes in the order of their names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

from dlc_core.diag import PassError, UsageError, similar
from dlc_core.passes.base import Pass

BEGIN, END = "begin", "end"
"""The ends of a stage in declarations: `after = BEGIN`, `before = END`."""

PHASES: Mapping[str, str] = MappingProxyType(
    {
        "scheduled": "before lower_blocks",
        "loops": "after lower_blocks",
        "flat": "after flatten_buffers",
        "final": "end tir",
    }
)
"""The phases of tensor lowering: scheduled programs of blocks; plain loops over multi-dimensional buffers;
flat buffers, with vectorized and unrolled loops still present; the input of the code generator."""

_WORDS = ("before", "after", BEGIN, END)


def read_position(text: str) -> tuple[str, str]:
    """Parse a position: ("before" or "after", name of a pass) or ("begin" or "end", name of a stage).

    Raises UsageError for a text that is no position.
    """
    word, _, name = PHASES.get(text, text).partition(" ")
    if word not in _WORDS or not name.isidentifier():
        raise UsageError(
            f"{text!r} is no position of a pass",
            hint=f'{_suggestion(text, PHASES)}write "before NAME", "after NAME", "begin STAGE", "end STAGE", '
            f"or a phase: {', '.join(PHASES)}",
        )
    return word, name


def insert_passes(
    stages: Mapping[str, Sequence[Pass]], extra: Iterable[tuple[str, Pass]]
) -> dict[str, list[Pass]]:
    """Insert passes into the stages at the positions that texts name.

    Raises UsageError for a position that names an unknown pass or stage.
    """
    result = {stage: list(passes) for stage, passes in stages.items()}
    positions = [(read_position(where), one) for where, one in extra]
    for (word, name), one in positions:
        if word in ("before", END):
            _insert(result, word, name, one)
    for (word, name), one in reversed(positions):
        if word in ("after", BEGIN):
            _insert(result, word, name, one)
    return result


def _insert(stages: dict[str, list[Pass]], word: str, name: str, one: Pass) -> None:
    if word in (BEGIN, END):
        if name not in stages:
            raise UsageError(
                f"there is no stage {name!r} for pass {one.name!r}", hint=f"stages: {', '.join(stages)}"
            )
        stages[name].insert(0 if word == BEGIN else len(stages[name]), one)
        return
    for passes in stages.values():
        found = [i for i, other in enumerate(passes) if other.name == name]
        if found:
            passes.insert(found[0] if word == "before" else found[-1] + 1, one)
            return
    known = list(dict.fromkeys(p.name for passes in stages.values() for p in passes))
    raise UsageError(
        f"there is no pass {name!r} {word} which {one.name!r} could run",
        hint=f"{_suggestion(name, known)}passes: {', '.join(known)}",
    )


def insert_classes(listed: Sequence[str], classes: Iterable[type[Pass]]) -> list[str]:
    """Insert classes that have `after` or `before` into the list of names; return the new list.

    A class is inserted right after the last pass that it follows, without passing one that it precedes; with
    `before` alone, right before the first pass that it precedes.  Raises PassError for unknown names, cycles
    and contradictions.
    """
    order, followers = list(listed), dict[str, set[str]]()
    named = {cls.name: cls for cls in classes if cls.name not in listed and (cls.after or cls.before)}
    known = {*listed, *named}
    for cls in named.values():
        _check_names(cls, known)
    while named:
        # A class that refers to another pending class is inserted after it.
        ready = sorted(n for n, cls in named.items() if not any(m in named for m in _references(cls)))
        if not ready:
            raise PassError(f"the positions of passes form a cycle: {_cycle(named)}")
        for name in ready:
            cls = named.pop(name)
            index, limit = _range_for(cls, order)
            anchor = order[index - 1] if index else BEGIN
            # Classes that follow the same pass are in the order of their names.
            while index < limit and order[index] in followers.get(anchor, ()):
                index += 1
            order.insert(index, name)
            followers.setdefault(anchor, set()).add(name)
    return order


def position_texts(cls: type[Pass]) -> list[str]:
    """Return the positions of a class: "after NAME", "before NAME", "begin STAGE" or "end STAGE"."""
    after = [f"{BEGIN} {cls.stage}" if n == BEGIN else f"after {n}" for n in _names(cls.after)]
    return after + [f"{END} {cls.stage}" if n == END else f"before {n}" for n in _names(cls.before)]


def class_position(text: str) -> dict[str, str]:
    """Return the class attributes that are equivalent to a position's text."""
    word, name = read_position(text)
    if word in ("before", "after"):
        return {word: name}
    return {"stage": name, **({"after": BEGIN} if word == BEGIN else {"before": END})}


def _names(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _references(cls: type[Pass]) -> tuple[str, ...]:
    return (*_names(cls.after), *_names(cls.before))


def _check_names(cls: type[Pass], known: Collection[str]) -> None:
    for word, edge in (("after", BEGIN), ("before", END)):
        for name in _names(getattr(cls, word)):
            if name != edge and name not in known:
                raise PassError(
                    f"pass {cls.name!r} runs {word} {name!r}, which stage {cls.stage!r} does not have",
                    hint=f"{_suggestion(name, known)}write a pass of that stage, or {edge!r}",
                )


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = similar(name, sorted(known))
    return f"did you mean {close[0]!r}? " if close else ""


def _cycle(named: Mapping[str, type[Pass]]) -> str:
    path = [min(named)]
    while path.count(path[-1]) == 1:
        path.append(next(n for n in _references(named[path[-1]]) if n in named))
    path = path[path.index(path[-1]) :]
    return ", ".join(
        f"{a!r} runs {'after' if b in _names(named[a].after) else 'before'} {b!r}" for a, b in pairwise(path)
    )


def _range_for(cls: type[Pass], order: Sequence[str]) -> tuple[int, int]:
    """Return the first and the last index at which a class may be inserted.

    The passes that it precedes begin at the last index.
    """
    after, before = _names(cls.after), _names(cls.before)
    limit = min((order.index(n) for n in before if n in order), default=len(order))
    missed = [n for n in after if n != BEGIN and n not in order[:limit]]
    if missed:
        raise PassError(
            f"pass {cls.name!r} has no position in the pipeline",
            why=f"it follows {missed[0]!r} and precedes {order[limit]!r}, which comes earlier",
            details=[" | ".join(order)],
        )
    if after:
        return max((i + 1 for i in range(limit) if order[i] in after), default=0), limit
    return limit, limit


__all__ = [
    "PHASES", "class_position", "insert_classes", "insert_passes", "position_texts", "read_position",
]  # fmt: skip
