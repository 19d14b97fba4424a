"""Limits of models: numbers of nodes, and bytes of tensors, constants and scratch memory.

They are settings (`max_nodes`, `max_bytes`). Their defaults exceed what models need; a model that is beyond
them is a mistake or an attack, and would take all time or memory of the process. `max_bytes` also keeps all
sizes and addresses of generated code far below 2**63.

A compile checks the model. Its result keeps the extent of the model, so that a cached result is refused as
its compile would be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dlc_core.config import config
from dlc_core.diag import LimitError, Span, bytes_text

EXTENT = "extent"
"""The name of a model's extent in the record of its compile: numbers by `NODES` and by what takes bytes."""
NODES = "nodes"


def check_extent(extent: Mapping[str, Any]) -> None:
    """Check the recorded extent of a model. Raises LimitError."""
    for what, number in extent.items():
        if what == NODES:
            check_nodes(number)
        else:
            check_bytes(number, what)


def check_nodes(count: int, spans: Iterable[Span] = ()) -> None:
    """Check the number of nodes of a model. Raises LimitError."""
    most = config.max_nodes
    if count > most:
        raise LimitError(
            f"the model has {count} nodes, and at most {most} are accepted",
            spans=spans,
            hint="if the model is to be trusted, raise the limit: DLC_MAX_NODES, or config.max_nodes",
        )


def check_bytes(size: int, what: str, spans: Iterable[Span] = (), most: int | None = None) -> None:
    """Check the bytes of a part of a model. Raises LimitError."""
    most = config.max_bytes if most is None else most
    if size > most:
        raise LimitError(
            f"{what} takes {bytes_text(size)}, and at most {bytes_text(most)} are accepted",
            spans=spans,
            hint="if the model is to be trusted, raise the limit: DLC_MAX_BYTES, or config.max_bytes",
        )


__all__ = ["EXTENT", "NODES", "check_bytes", "check_extent", "check_nodes"]
