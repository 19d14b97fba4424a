"""The predicted times of a placement by cost: of the choice, of its copies, and of other placements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dlc_core.diag import bytes_text, seconds_text
from dlc_core.support.record import record

SHOWN_COPIES = 8


@record(frozen=True)
class Copy:
    """A copy of a value between the memories of two targets, or of a target and the host."""

    value: str
    begin: str
    end: str
    bytes: int | None
    seconds: float


@record(frozen=True)
class PlacementCosts:
    """The predicted seconds of one function, nodes and copies one after another."""

    seconds: float
    """Of the choice."""
    copy_seconds: float
    """The part of it that copies take."""
    copies: tuple[Copy, ...]
    preference: float
    """Of the placement by the order of targets."""
    alone: Mapping[str, float]
    """By target: if it gets all that it can take, and the host the rest."""

    @staticmethod
    def of_record(data: Mapping[str, Any]) -> PlacementCosts:
        """The costs of a report of the pass `partition`."""
        copies = tuple(
            Copy(one["value"], one["from"], one["to"], one["bytes"], one["seconds"]) for one in data["copies"]
        )
        return PlacementCosts(
            data["seconds"], data["copy_seconds"], copies, data["preference"], dict(data["alone"])
        )

    def lines(self) -> list[str]:
        """The costs as text."""
        *others, (host, host_seconds) = self.alone.items()
        total, copies = seconds_text(self.seconds), seconds_text(self.copy_seconds)
        lines = [
            f"placed   by cost: predicted {total}, of which copies take {copies}",
            f"         by preference it would take {seconds_text(self.preference)}",
            *(f"         {text}, and {host} for the rest: {seconds_text(time)}" for text, time in others),
            f"         {host} alone: {seconds_text(host_seconds)}",
        ]
        for one in sorted(self.copies, key=lambda copy: -copy.seconds)[:SHOWN_COPIES]:
            size = "bytes that depend on dims" if one.bytes is None else bytes_text(one.bytes)
            lines.append(
                f"copy     {one.value} from {one.begin} to {one.end}: {size}, {seconds_text(one.seconds)}"
            )
        rest = len(self.copies) - SHOWN_COPIES
        return [*lines, *([f"         and {rest} more copies"] if rest > 0 else [])]


def costs_of(reports: Iterable[Mapping[str, Any]]) -> Sequence[PlacementCosts]:
    """The costs of all functions, that of the model first."""
    return tuple(map(PlacementCosts.of_record, reports))


__all__ = ["Copy", "PlacementCosts", "costs_of"]
