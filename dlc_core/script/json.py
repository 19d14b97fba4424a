"""Any value of the IR as JSON and back, both levels and modules of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.graph.json import graph_kinds
from dlc_core.graph.node import GraphContext, Op, using_context
from dlc_core.ir.json import EXPR_KINDS, Kind, decode, encode
from dlc_core.support.package import public
from dlc_core.tir.json import tir_kinds


def to_json(
    value: Any, arrays: list[np.ndarray[Any, Any]] | None = None, more: Sequence[Kind] = ()
) -> dict[str, Any]:
    """Return JSON data for a value; array data is appended to `arrays` if given, else it is part of the JSON.
    `more` are kinds of values in addition to the IR.

    Raises UsageError for values of other kinds (a foreign object among a module's attributes).
    """
    return encode(value, (*EXPR_KINDS, *tir_kinds(), *graph_kinds(), *more), arrays)


def from_json(
    data: Any,
    ops: Mapping[str, Op] | None = None,
    arrays: Sequence[np.ndarray[Any, Any]] = (),
    more: Sequence[Kind] = (),
) -> Any:
    """The value that `to_json` wrote, structurally equal. `data` is not trusted, and nothing in it is
    executed.

    `ops` finds declared ops by name; without it ops are bare names, enough to print and to compare.
    Raises ArtifactError for malformed data, and for an unknown op.
    """
    with using_context(GraphContext()):
        return decode(data, (*EXPR_KINDS, *tir_kinds(), *graph_kinds(ops), *more), arrays)


Restored = tuple[Callable[..., Any], tuple[Any, ...]]


def reduced(value: Any) -> Restored:
    """The function and the arguments from which `pickle` makes a value of the IR again."""
    return restored, picklable(value, type(value).__name__)


def picklable(
    value: Any, name: str, more: Sequence[Kind] = ()
) -> tuple[dict[str, Any], list[np.ndarray[Any, Any]]]:
    """The JSON data of a value, and its arrays, which pickle by themselves.

    Raises UsageError, which calls the value `name`, for values of other kinds than the IR and `more`.
    """
    arrays: list[np.ndarray[Any, Any]] = []
    try:
        data = to_json(value, arrays, more)
    except UsageError as error:
        hint = "only IR is pickled: take other attributes out"
        raise UsageError(f"this {name} cannot be pickled", why=error.what, hint=hint) from None
    return data, [np.asarray(array) for array in arrays]


def restored(data: Any, arrays: Sequence[np.ndarray[Any, Any]], more: Sequence[Kind] = ()) -> Any:
    """The value of `picklable`. Raises ArtifactError for an op that no plugin of this process declares."""
    return from_json(data, public("ops")(), arrays, more)
