"""The workers of a cluster that fit a target, and the reasons why others do not."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from dlc_core.diag import TargetError
from dlc_core.support.lazy import lazy
from dlc_core.support.record import record
from dlc_core.target import Target
from dlc_tune.measuring.announced import Meaning, Place, compiler_parts, differences
from dlc_tune.measuring.cluster_tasks import Offers, offers

if TYPE_CHECKING:
    import distributed
else:
    distributed = lazy("distributed")

Answers = Mapping[str, Offers | Exception | None]
"""The answers of workers by address."""
PAUSE = 0.2
"""Seconds between two questions to workers while none fits."""
LISTED = 12
"""The number of workers that an error lists."""


@record(frozen=True)
class Site:
    """Where jobs of a target run: the machine and the resources of runs and builds there."""

    machine: str
    place: Place
    meaning: Meaning


def find_site(client: distributed.Client, text: str, machine: str = "", wait: float = 0.0) -> Site:
    """The workers that run a target: all on machines of one kind, whose name contains `machine`.

    Asks the workers again for `wait` seconds if none fits. Raises TargetError with what each one announced
    then, and at once if workers on different machines fit: their times cannot be compared.
    """
    meaning = Meaning.of(Target(text))
    end = time.monotonic() + wait
    while True:
        answers = client.run(offers, text, on_error="return")
        found = {site.place.stamp: site for site in _sites(answers, meaning, machine)}
        if len(found) > 1:
            raise _ambiguous(text, [site.machine for site in found.values()])
        if found:
            return next(iter(found.values()))
        if time.monotonic() >= end:
            raise _none(text, meaning, answers, machine)
        time.sleep(PAUSE)


def _sites(answers: Answers, meaning: Meaning, machine: str) -> Iterator[Site]:
    for answer in answers.values():
        if not isinstance(answer, Offers) or answer.announced.compiler != compiler_parts():
            continue
        for offer in answer.offers:
            if offer.meaning == meaning and machine in answer.announced.machine:
                yield Site(answer.announced.machine, offer.place, meaning)


def _ambiguous(text: str, machines: list[str]) -> TargetError:
    return TargetError(
        f"different machines of the cluster run the target {text}",
        details=sorted(machines),
        why="their times cannot be compared",
        hint="choose one by a part of its name (`machine`), or let workers announce `-model=NAME` with the "
        "target, and tune for that",
    )


def _none(text: str, meaning: Meaning, answers: Answers, machine: str) -> TargetError:
    lines = [f"{address}: {_reason(each, meaning, machine)}" for address, each in sorted(answers.items())]
    more = [f"and {len(lines) - LISTED} more"] if len(lines) > LISTED else []
    return TargetError(
        f"no worker of the cluster runs the target {text}",
        details=[*lines[:LISTED], *more] or ["the cluster has no workers"],
        hint=f'start one on such a machine: `dlc worker ADDRESS --target "{text}"`',
    )


def _reason(answer: Offers | Exception | None, meaning: Meaning, machine: str) -> str:
    """Why a worker does not run a target."""
    if answer is None:
        return "a Dask worker that `dlc worker` has not started"
    if isinstance(answer, Exception):
        return f"it did not answer: {type(answer).__name__}: {answer}"
    other = differences(compiler_parts(), answer.announced.compiler)
    if other:
        return f"refused, since it has another compiler: {'; '.join(other)}"
    if answer.why:
        return f"refused: {answer.why}"
    if not answer.offers:
        return str(answer.announced)
    if machine not in answer.announced.machine:
        return f"its machine is {answer.announced.machine}, not {machine}"
    there = answer.offers[0].meaning
    if there.identity != meaning.identity:
        return f"refused: the target means {meaning.identity} here, and {there.identity} there"
    return "refused: the target has another description there; name all its options, such as -num-threads"


__all__ = ["Site", "find_site"]
