"""Which targets take part in a compile; finding out imports no compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from dlc_core.diag import TargetError, UsageError
from dlc_core.plugin.registry import Category, UnknownNameError, registry
from dlc_core.support.record import record
from dlc_core.target import Target

TargetLike = str | Target | Mapping[str, Any]


@record(frozen=True)
class Targets:
    """The targets of one compile.

    `others` are in order of preference; those in `automatic` take what they can, the rest only what `place`
    says: pairs of names and the texts of targets.  What nobody takes is for `host`.
    """

    host: Target
    others: tuple[Target, ...] = ()
    automatic: frozenset[str] = frozenset()
    place: tuple[tuple[str, str], ...] = ()


def find_target(target: TargetLike | None) -> Target:
    """A Target of its text, of JSON, or of None: the best kind that runs on this machine.

    Raises TargetError for options of which its kind makes no description.
    """
    here = registry()
    known = here.targets
    if isinstance(target, Target):
        return target
    if target is not None:
        found = Target.parse(target, known)
        found.describe()  # so that options are refused here, not by the first pass that asks
        return found
    for name in _best_first(known):
        kind = known.get(name)
        if kind is not None and kind.problem() is None:
            return Target(kind)
    raise TargetError(
        "no installed target is one for models that name none",
        details=here.missing(),
        hint=f"install a backend plugin, or name a target: {', '.join(known)}",
    )


def _best_first(kinds: Category) -> list[str]:
    """The kinds that may run on the machine that compiles."""
    ranks = {}
    for name in tuple(kinds):
        with suppress(UnknownNameError):  # its module cannot be imported
            ranks[name] = kinds.known(name, "host_rank")
    return sorted((name for name, rank in ranks.items() if rank > 0), key=ranks.__getitem__, reverse=True)


def find_targets(
    target: TargetLike | Sequence[TargetLike] | None, place: Mapping[str, TargetLike] | None = None
) -> Targets:
    """The targets of a compile for one target, or for several, of which the last has what no other takes.

    A kind without a code generator only takes what its partitioners do: behind it comes the best kind that
    runs on this machine.  `place` maps names of ops, patterns or model nodes to targets; one that is not
    among the others takes part too, for these alone.
    """
    listed = [target] if target is None or isinstance(target, (str, Target, Mapping)) else list(target)
    if not listed:
        raise UsageError("there is no target in the list", hint='for example ["KIND", "KIND2"]')
    found = [find_target(one) for one in listed]
    if not found[-1].kind.codegen:
        found.append(_any_host())
    texts = [str(one) for one in found]
    if len(set(texts)) < len(texts):
        raise UsageError(f"a target occurs twice: {', '.join(texts)}")
    *others, host = found
    automatic = frozenset(map(str, others))
    placed = []
    for name, wanted in (place or {}).items():
        one = _among(wanted, (*others, host))
        if one is None:
            one = find_target(wanted)
            others.append(one)
        placed.append((name, str(one)))
    return Targets(host, tuple(others), automatic, tuple(placed))


def _any_host() -> Target:
    """The best kind that runs here, or that which always does."""
    try:
        return find_target(None)
    except TargetError:
        return find_target("reference")


def _among(wanted: TargetLike, known: Sequence[Target]) -> Target | None:
    """The target that is meant among those that take part: by its text, or by its kind where one has it."""
    if isinstance(wanted, str):
        of_kind = [one for one in known if one.kind.name == wanted.strip()]
        if len(of_kind) == 1:
            return of_kind[0]
    one = find_target(wanted)
    return one if one in known else None


__all__ = ["TargetLike", "Targets", "find_target", "find_targets"]
