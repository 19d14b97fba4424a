"""Signatures as JSON data.  What is decoded is not trusted: anything unexpected is an ArtifactError.

Dims are ints, or indices into one table of expressions in which operands come before what uses them; so
shared parts stay shared, and decoding needs no recursion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace
from typing import Any, NoReturn

from dlc_core.diag import ArtifactError, DlcError, UnsupportedError
from dlc_core.ir.dtype import BOOL, INDEX, dtype
from dlc_core.ir.expr import (
    ARITH,
    COMPARE,
    Binary,
    Const,
    Expr,
    Select,
    Unary,
    Var,
    as_expr,
    binary,
    const,
    post_order,
    select,
    unary,
)
from dlc_core.ir.types import Dim, tensor_type
from dlc_core.runtime.signature import Donation, Signature, Value

_BINARY = (ARITH | COMPARE | {"and", "or"}) - {"div"}
_UNARY = frozenset({"neg", "not"})
_LIMIT = 1 << 62
_MOST = 1 << 20
"""Entries of a list that is read; no model has as many inputs, dims or terms."""


class Table:
    """Expressions as rows `[op, operand row, …]`, `["const", value]`, `["var", name]`."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self._index: dict[Expr, int] = {}

    def add(self, root: Expr) -> int:
        """The row of an expression; UnsupportedError for one that is not integer arithmetic on dims."""
        for e in post_order(root):
            if e not in self._index:
                self._index[e] = len(self.rows)
                self.rows.append(self._row(e))
        return self._index[root]

    def _row(self, e: Expr) -> list[Any]:
        operands = [self._index[c] for c in e.children]
        if isinstance(e, Const):
            return ["const", int(e.value)] if not e.dtype.is_bool else ["bool", bool(e.value)]
        if isinstance(e, Var) and e.dtype is INDEX:
            return ["var", e.name]
        if isinstance(e, Binary) and e.op in _BINARY and (e.dtype is INDEX or e.dtype.is_bool):
            return [e.op, *operands]
        if isinstance(e, Unary) and e.op in _UNARY:
            return [e.op, *operands]
        if isinstance(e, Select) and e.dtype is INDEX:
            return ["select", *operands]
        raise UnsupportedError(f"the dim expression {e} cannot be saved")


def encode_signature(signature: Signature) -> dict[str, Any]:
    """The signature as JSON data."""
    table = Table()

    def dim(value: Dim) -> Any:
        return value if isinstance(value, int) else {"expr": table.add(as_expr(value))}

    def values(given: Sequence[Value]) -> list[dict[str, Any]]:
        return [
            {"name": v.name, "dtype": str(v.type.dtype), "shape": [dim(d) for d in v.type.shape]}
            for v in given
        ]

    return {
        "inputs": values(signature.inputs),
        "outputs": values(signature.outputs),
        "symbols": [table.add(v) for v in signature.symbols],
        "arena": table.add(signature.arena_size),
        "weights": signature.weights_size,
        "exprs": table.rows,
        **({"donated": [list(astuple(d)) for d in signature.donated]} if signature.donated else {}),
    }


def decode_signature(data: Any) -> Signature:
    """The signature that `encode_signature` wrote; ArtifactError for anything else."""
    try:
        return _decode(data)
    except DlcError as error:
        if isinstance(error, ArtifactError):
            raise
        raise ArtifactError("the signature in the artefact is malformed", why=error.what) from None
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ArtifactError("the signature in the artefact is malformed", why=why) from None


def _decode(data: Any) -> Signature:
    exprs = decode_expressions(data["exprs"])

    def at(index: Any) -> Expr:
        return exprs[_int(index, 0, len(exprs) - 1)]

    def dim(item: Any) -> Dim:
        return at(item["expr"]) if isinstance(item, dict) else _int(item)

    def values(items: Any) -> tuple[Value, ...]:
        return tuple(
            Value(
                _text(v["name"]), tensor_type([dim(d) for d in _list(v["shape"])], dtype(_text(v["dtype"])))
            )
            for v in _list(items)
        )

    symbols = []
    for index in _list(data["symbols"]):
        symbol = at(index)
        if not isinstance(symbol, Var):
            _bad("a symbol is no variable")
        symbols.append(symbol)
    arena = at(data["arena"])
    if arena.dtype is not INDEX:
        _bad("the arena's size is no integer")
    weights = _int(data["weights"])
    made = Signature(values(data["inputs"]), values(data["outputs"]), tuple(symbols), arena, weights)
    donated = _list(data.get("donated", []))
    made = replace(made, donated=tuple(_donation(_list(row), made) for row in donated))
    for value in (*made.inputs, *made.outputs):
        if any(isinstance(d, Expr) and d.dtype is not INDEX for d in value.type.shape):
            _bad(f"a dim of {value.name!r} is no integer")
        if value.type.dtype.lanes != 1 or value.type.dtype.kind == "handle":
            _bad(f"{value.name!r} has the dtype {value.type.dtype}")
    return made


def decode_expressions(rows: Any) -> list[Expr]:
    """The expressions of a `Table`'s rows; raises what malformed data gives rise to, as `decode_signature`
    expects it.
    """
    exprs: list[Expr] = []
    for row in _list(rows):
        exprs.append(_expression(_list(row), exprs))
    return exprs


def _donation(row: list[Any], signature: Signature) -> Donation:
    """A donation whose input and output are there and of one kind."""
    given, taken, axis, capacity = row
    source = signature.inputs[_int(given, 0, len(signature.inputs) - 1)]
    result = signature.outputs[_int(taken, 0, len(signature.outputs) - 1)]
    if source.type.ndim != result.type.ndim or source.dtype is not result.dtype:
        _bad(f"{result.name!r} cannot continue {source.name!r}")
    return Donation(given, taken, _int(axis, 0, source.type.ndim - 1), _int(capacity, 1, _LIMIT))


def _expression(row: list[Any], before: list[Expr]) -> Expr:
    op, operands = row[0], row[1:]
    if op == "const":
        return const(_int(operands[0], -_LIMIT, _LIMIT))
    if op == "bool":
        return const(bool(operands[0]), BOOL)
    if op == "var":
        return Var(_text(operands[0]))
    args = [before[_int(i, 0, len(before) - 1)] for i in operands]
    made: Expr
    if op == "select" and len(args) == 3:
        made = select(*args)
    elif op in _BINARY and len(args) == 2:
        made = binary(op, *args)
    elif op in _UNARY and len(args) == 1:
        made = unary(op, *args)
    else:
        _bad(f"unknown operation {op!r} of {len(args)} operands")
    return made


def _bad(why: str) -> NoReturn:
    raise ArtifactError("the signature in the artefact is malformed", why=why)


def _int(value: Any, low: int = 0, high: int = _LIMIT) -> int:
    if type(value) is not int or not low <= value <= high:
        _bad(f"{value!r} is not an integer from {low} to {high}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        _bad(f"{value!r} is not text")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > _MOST:
        _bad("a list is expected")
    return value


__all__ = ["Table", "decode_expressions", "decode_signature", "encode_signature"]
