"""The targets of a compile.  This module imports no compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dlc_core.diag import TargetError, UsageError
from dlc_core.plugin.registry import Category, UnknownNameError, registry
from dlc_core.support.record import record
from dlc_core.target import Target

TargetLike = str | Target | Mapping[str, Any]


PLACEMENTS = ("preference", "cost")
"""What decides which target takes a node that several can take: their order, or the predicted time."""


@record(frozen=True)
class Targets:
    """The targets of one compile.

    `others` are in order of preference.  Those in `automatic` take every node that they support; the rest
    take only the nodes of `place`, pairs of a name and a target's text.  `host` takes all other nodes.
    """

    host: Target
    others: tuple[Target, ...] = ()
    automatic: frozenset[str] = frozenset()
    place: tuple[tuple[str, str], ...] = ()
    placement: str = PLACEMENTS[0]
    """What decides if several targets can take a node: one of `PLACEMENTS`."""

    def for_threads(self, count: int | None) -> Targets:
        """These targets, the host with code for so many threads (`Target.for_threads`)."""
        return replace(self, host=self.host.for_threads(count))

    def for_code(self) -> Targets:
        """These targets without what code does not depend on (`Target.for_code`)."""
        texts = {str(one): str(one.for_code()) for one in (*self.others, self.host)}
        return Targets(
            self.host.for_code(),
            tuple(one.for_code() for one in self.others),
            frozenset(texts[text] for text in self.automatic),
            tuple((name, texts[text]) for name, text in self.place),
            self.placement,
        )


def find_target(target: TargetLike | None) -> Target:
    """Return the Target for its text, JSON or tag; None is the best kind that runs on this machine.

    Raises TargetError for options that the kind, or that of the host, cannot describe.
    """
    plugins = registry()
    known = plugins.targets
    if isinstance(target, Target):
        return target
    if target is not None:
        found = Target(target)
        for each in (found, found.host):
            if each is not None:
                each.describe()  # refuse wrong options here, not in the first pass that reads the description
        return found
    for name in _best_first(known):
        kind = known.get(name)
        if kind is not None and kind.problem() is None:
            return Target(kind)
    raise TargetError(
        "no installed target can be the default",
        details=plugins.reasons_for_missing(),
        hint=f"install a backend plugin, or name a target: {', '.join(known)}",
    )


def _best_first(kinds: Category) -> list[str]:
    """The kinds that can be the default target, the best one first."""
    ranks = {}
    for name in tuple(kinds):
        with suppress(UnknownNameError):  # its module fails to import
            ranks[name] = kinds.attribute(name, "host_rank")
    return sorted((name for name, rank in ranks.items() if rank > 0), key=ranks.__getitem__, reverse=True)


def find_targets(
    target: TargetLike | Sequence[TargetLike] | None,
    place: Mapping[str, TargetLike] | None = None,
    placement: str = PLACEMENTS[0],
) -> Targets:
    """Return the targets of a compile for one target or several; the last takes all other nodes.

    A target that takes only some nodes (`takes_all`) is not the last one: the best kind that runs on this
    machine is added after it.  The host of a target is also added, as the last target.  `place` maps names of
    ops, patterns or model nodes to targets.  A target that only `place` names takes only these nodes.
    `placement` is one of `PLACEMENTS`.
    """
    if placement not in PLACEMENTS:
        raise UsageError(f"placement {placement!r}", hint=f"one of {', '.join(PLACEMENTS)}")
    listed = [target] if target is None or isinstance(target, (str, Target, Mapping)) else list(target)
    if not listed:
        raise UsageError("there is no target in the list", hint='for example ["KIND", "KIND2"]')
    found = _with_host([find_target(one) for one in listed])
    texts = [str(one) for one in found]
    if len(set(texts)) < len(texts):
        raise UsageError(f"a target is listed twice: {', '.join(texts)}")
    if not takes_all(found[-1]):
        rest = _any_host()
        if rest in found:
            raise UsageError(
                f"the last target, {found[-1]}, takes only some operations",
                hint=f"list {rest} after it, or another target that takes all others",
            )
        found.append(rest)
    *others, host = found
    automatic = frozenset(map(str, others))
    placed = []
    for name, assigned in (place or {}).items():
        one = _find_among(assigned, (*others, host))
        if one is None:
            one = find_target(assigned)
            others.append(one)
        placed.append((name, str(one)))
    return Targets(host, tuple(others), automatic, tuple(placed), placement)


def takes_all(target: Target) -> bool:
    """Whether a target can take all nodes of a model, so that it can be the last one.

    It cannot without a code generator, if the kind lists its schedule rules, or if the code generator says
    which nodes it supports.  The code generators of kinds that can be the default target take all nodes.
    """
    kind = target.kind
    if not target.codegen or kind.rules is not None:
        return False
    return kind.host_rank > 0 or not hasattr(registry().codegens.get(target.codegen), "supports")


def _with_host(targets: Sequence[Target]) -> list[Target]:
    """The targets without their hosts, and the host as the last of them."""
    hosts = list(dict.fromkeys(one.host for one in targets if one.host is not None))
    found = [replace(one, host=None) for one in targets]
    if len(hosts) > 1:
        texts = ", ".join(map(str, hosts))
        raise UsageError(f"the targets have several hosts: {texts}", hint="one host takes all other nodes")
    if hosts and hosts[0] not in found:
        found.append(hosts[0])
    elif hosts and hosts[0] != found[-1]:
        raise UsageError(f"{hosts[0]} is the host, and not the last of the targets")
    return found


def _any_host() -> Target:
    """The best kind that runs here, else the reference."""
    try:
        return find_target(None)
    except TargetError:
        return find_target("reference")


def _find_among(assigned: TargetLike, known: Sequence[Target]) -> Target | None:
    """Find a target by its text, or by its kind if only one target has this kind."""
    if isinstance(assigned, str):
        of_kind = [one for one in known if one.kind.name == assigned.strip()]
        if len(of_kind) == 1:
            return of_kind[0]
    one = find_target(assigned)
    return one if one in known else None


__all__ = ["PLACEMENTS", "TargetLike", "Targets", "find_target", "find_targets", "takes_all"]
