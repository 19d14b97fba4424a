"""Any value of the IR as JSON and back, both levels and modules of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlc_core.graph.json import graph_kinds
from dlc_core.graph.node import GraphContext, Op, using_context
from dlc_core.ir.json import EXPR_KINDS, decode, encode
from dlc_core.tir.json import tir_kinds


def to_json(value: Any, arrays: list[np.ndarray[Any, Any]] | None = None) -> dict[str, Any]:
    """Return JSON data for a value; array data is appended to `arrays` if given, else it is part of the JSON.

    Raises UsageError for values that are not IR (a foreign object among a module's attributes).
    """
    return encode(value, (*EXPR_KINDS, *tir_kinds(), *graph_kinds()), arrays)


def from_json(
    data: Any, ops: Mapping[str, Op] | None = None, arrays: Sequence[np.ndarray[Any, Any]] = ()
) -> Any:
    """The value that `to_json` wrote, structurally equal. `data` is not trusted, and nothing in it is
    executed.

    `ops` finds declared ops by name; without it ops are bare names, enough to print and to compare.
    Raises ArtifactError for malformed data, and for an unknown op.
    """
    with using_context(GraphContext()):
        return decode(data, (*EXPR_KINDS, *tir_kinds(), *graph_kinds(ops)), arrays)
