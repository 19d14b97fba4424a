"""Limits of models: numbers of nodes, and bytes of tensors, constants and scratch memory.

They are settings (`max_nodes`, `max_bytes`). Their defaults exceed what models need; a model that is beyond
them is a mistake or an attack, and would take all time or memory of the process. `max_bytes` also keeps all
sizes and addresses of generated code far below 2**63.
"""

from __future__ import annotations

from collections.abc import Iterable

from dlc_core.config import config
from dlc_core.diag import LimitError, Span, bytes_text
from dlc_core.graph.node import CONST, Array, Function, nodes_of
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import static_bytes


def check_limits(module: IRModule) -> None:
    """Check the nodes, tensors and constants of the graphs of a module. Raises LimitError."""
    most, count, constants = config.max_bytes, 0, 0
    seen: set[int] = set()
    for n in nodes_of(*module.of_kind(Function).values()):
        count += 1
        if n.op is CONST:
            array = n.attrs["value"]
            if isinstance(array, Array) and id(array) not in seen:
                seen.add(id(array))
                constants += 0 if not any(array.data.strides) else array.data.nbytes
        check_bytes(static_bytes(n.type) or 0, "a tensor", n.spans, most)
    check_nodes(count)
    check_bytes(constants, "the constants of the model", most=most)


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


__all__ = ["check_bytes", "check_limits", "check_nodes"]
