"""Run-time failures of generated code: the record of its checks (see `tir/failures.py`) as an error."""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.diag import RuntimeFailure, first_names
from dlc_core.support.record import record

RECORD_BYTES = 32
"""The bytes of the record of a call: four int64 at the beginning of its scratch memory, zero at first."""
_CODES = 1 << 16
_SHOWN_NODES = 4
"""The maximum number of nodes that a message names."""


@record(frozen=True)
class Site:
    """A call of a kernel with checks: the model nodes that it computes, and the subject of each check."""

    kernel: str
    nodes: tuple[str, ...]
    checks: tuple[str, ...]
    """The subjects in the order of their codes, which begin with 1."""


def node_names(nodes: Sequence[str]) -> str:
    """The names of the first nodes, and the number of the others, as text."""
    return first_names([repr(name) for name in nodes], _SHOWN_NODES)


def recorded_failure(found: Sequence[int], sites: Sequence[Site]) -> RuntimeFailure | None:
    """The error in a record; None if no check has failed."""
    where, index, extent = found[:3]
    if not where:
        return None
    number, code = divmod(where, _CODES)
    if not (0 < number <= len(sites) and 0 < code <= len(sites[number - 1].checks)):
        return RuntimeFailure("a check failed while the model ran", why=f"its record is {list(found)}")
    site = sites[number - 1]
    kind, _, about = site.checks[code - 1].partition(": ")
    nodes = f" in {node_names(site.nodes)}" if site.nodes else ""
    details = [f"in kernel {site.kernel}"]
    if kind == "access":
        why = f"its index is {index}, the extent {extent}"
        return RuntimeFailure(f"access out of bounds{nodes}: {about}", why=why, details=details)
    if kind == "check":
        return RuntimeFailure(f"check {about} failed{nodes}", details=details)
    valid = f"valid are {-extent} to {extent - 1}" if extent else "there are no elements"
    return RuntimeFailure(f"index {index} is out of range{nodes}", why=f"{about}: {valid}", details=details)


def status_failure(symbol: str, status: int) -> RuntimeFailure:
    """The error of an entry point that returned a status other than 0."""
    return RuntimeFailure(f"{symbol} failed while running", why=f"its status is {status}")


__all__ = ["RECORD_BYTES", "Site", "node_names", "recorded_failure", "status_failure"]
