"""Signatures as JSON data. Decoded data is not trusted: anything unexpected raises ArtifactError.

Dims are ints, or indices into a table of expressions, in which operands precede the expressions that use
them. So common subexpressions stay shared, and decoding needs no recursion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import astuple, replace
from typing import Any

from dlc_core.diag import UnsupportedError
from dlc_core.ir.bounds import Bounds
from dlc_core.ir.conditions import EQUAL, KINDS, Condition
from dlc_core.ir.dtype import BOOL, INDEX, DType, dtype
from dlc_core.ir.expr import (
    ARITH,
    COMPARE,
    Binary,
    Cast,
    Const,
    Expr,
    Select,
    Unary,
    Var,
    as_expr,
    binary,
    cast_to,
    const,
    free_vars,
    post_order,
    select,
    unary,
)
from dlc_core.ir.types import Dim, tensor_type
from dlc_core.runtime.guard.failures import Site
from dlc_core.runtime.guard.mode import MODES, Guard, Slot
from dlc_core.runtime.interface.signature import Donation, Signature, Value
from dlc_core.runtime.interface.untrusted import LIMIT, decoding, integer, items, malformed, number, text

_BINARY = ARITH | COMPARE | {"and", "or"}
_UNARY = frozenset({"neg", "not"})
_FLOATS = ("float32", "float64")


class Table:
    """Expressions as rows `[op, operand row, …]`, `["const", value]`, `["var", name]`, `["var", name, low,
    high]` with bounds; of floats `["cast", dtype, operand row]`, `["float", dtype, value]`, `["real", name,
    dtype]`.
    """

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self._index: dict[Expr, int] = {}

    def add(self, root: Expr) -> int:
        """The row of an expression. Raises UnsupportedError if it is not arithmetic on dims."""
        for e in post_order(root):
            if e not in self._index:
                self._index[e] = len(self.rows)
                self.rows.append(self._row(e))
        return self._index[root]

    def _row(self, e: Expr) -> list[Any]:
        operands = [self._index[c] for c in e.children]
        if isinstance(e, Const):
            if e.dtype.name in _FLOATS:
                return ["float", e.dtype.name, float(e.value)]
            return ["const", int(e.value)] if not e.dtype.is_bool else ["bool", bool(e.value)]
        if isinstance(e, Var) and e.dtype is INDEX:
            return ["var", e.name, *([e.bounds.low, e.bounds.high] if e.bounds else ())]
        if isinstance(e, Var) and e.dtype.name in _FLOATS:
            return ["real", e.name, e.dtype.name]
        if e.dtype is INDEX or e.dtype.is_bool or e.dtype.name in _FLOATS:
            if isinstance(e, Binary) and e.op in _BINARY:
                return [e.op, *operands]
            if isinstance(e, Unary) and e.op in _UNARY:
                return [e.op, *operands]
            if isinstance(e, Select):
                return ["select", *operands]
            if isinstance(e, Cast):
                return ["cast", e.dtype.name, *operands]
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

    conditions = [
        [c.kind, table.add(c.left), table.add(c.right), c.why, c.where] for c in signature.conditions
    ]
    elements = [[table.add(var), index, position] for var, index, position in signature.elements]
    data_dims = [[table.add(var), table.add(expr), what] for var, expr, what in signature.data_dims]
    return {
        "inputs": values(signature.inputs),
        "outputs": values(signature.outputs),
        "symbols": [table.add(v) for v in signature.symbols],
        "arena": table.add(signature.arena_size),
        "weights": signature.weights_size,
        "exprs": table.rows,
        **({"needs": conditions} if conditions else {}),
        **({"data_dims": data_dims, "elements": elements} if data_dims else {}),
        **({"donated": [list(astuple(d)) for d in signature.donated]} if signature.donated else {}),
        **({"updates": [list(pair) for pair in signature.updates]} if signature.updates else {}),
        **({"sites": [list(astuple(site)) for site in signature.sites]} if signature.sites else {}),
        **({"guard": _guard_data(signature.guard, table)} if signature.guard else {}),
        **({"arguments": list(signature.arguments)} if signature.arguments else {}),
    }


def _guard_data(guard: Guard, table: Table) -> dict[str, Any]:
    def slots(given: Sequence[Slot]) -> list[list[Any]]:
        return [[s.name, table.add(s.offset), table.add(s.size), s.fill] for s in given]

    return {
        "mode": guard.mode,
        "page": guard.page,
        "align": guard.align,
        "arena": slots(guard.arena),
        "weights": slots(guard.weights),
        "calls": [list(astuple(call)) for call in guard.calls],
    }


def decode_signature(data: Any) -> Signature:
    """Decode the result of `encode_signature`. Raises ArtifactError for malformed data."""
    with decoding("the signature"):
        return _decode(data)


def _decode(data: Any) -> Signature:
    exprs = decode_expressions(data["exprs"])

    def at(index: Any) -> Expr:
        return exprs[integer(index, 0, len(exprs) - 1)]

    def dim(item: Any) -> Dim:
        return at(item["expr"]) if isinstance(item, dict) else integer(item)

    def values(found: Any) -> tuple[Value, ...]:
        return tuple(
            Value(text(v["name"]), tensor_type([dim(d) for d in items(v["shape"])], dtype(text(v["dtype"]))))
            for v in items(found)
        )

    symbols = []
    for index in items(data["symbols"]):
        symbol = at(index)
        if not isinstance(symbol, Var):
            malformed("a symbol is not a variable")
        symbols.append(symbol)
    arena = at(data["arena"])
    if arena.dtype is not INDEX:
        malformed("the arena's size is not an integer")
    weights = integer(data["weights"])
    made = Signature(values(data["inputs"]), values(data["outputs"]), tuple(symbols), arena, weights)
    elements = tuple(_element(items(row), at, made) for row in items(data.get("elements", [])))
    made = replace(
        made,
        elements=elements,
        data_dims=_data_dims(items(data.get("data_dims", [])), at, replace(made, elements=elements)),
    )
    conditions = tuple(_condition(items(row), at, made) for row in items(data.get("needs", [])))
    donated = tuple(_donation(items(row), made) for row in items(data.get("donated", [])))
    updates = tuple(_update(items(row), made) for row in items(data.get("updates", [])))
    sites = tuple(_site(items(row)) for row in items(data.get("sites", [])))
    made = replace(made, donated=donated, updates=updates, conditions=conditions, sites=sites)
    if "guard" in data:
        made = replace(made, guard=_guard(data["guard"], at, made))
    if "arguments" in data:
        made = replace(made, arguments=_arguments(items(data["arguments"]), made))
    for value in (*made.inputs, *made.outputs):
        if any(isinstance(d, Expr) and d.dtype is not INDEX for d in value.type.shape):
            malformed(f"a dim of {value.name!r} is not an integer")
        if value.type.dtype.lanes != 1 or value.type.dtype.kind == "handle":
            malformed(f"{value.name!r} has the dtype {value.type.dtype}")
    return made


def _site(row: list[Any]) -> Site:
    kernel, nodes, checks = row
    return Site(text(kernel), tuple(map(text, items(nodes))), tuple(map(text, items(checks))))


def _guard(data: Any, at: Callable[[Any], Expr], signature: Signature) -> Guard:
    """The slots of values, over the dims of a call."""
    if data["mode"] not in MODES:
        malformed(f"there is no guard mode {data['mode']!r}")

    def slots(rows: Any, known: Container[Var]) -> tuple[Slot, ...]:
        found = []
        for row in items(rows):
            name, offset_row, size_row, fill = items(row)
            offset, size = at(offset_row), at(size_row)
            if not all(e.dtype is INDEX and all(v in known for v in free_vars(e)) for e in (offset, size)):
                malformed(f"the offset of {name} is not known")
            found.append(Slot(text(name), offset, size, integer(fill, 0, 255)))
        return tuple(found)

    return Guard(
        data["mode"],
        integer(data["page"], 1),
        integer(data["align"], 1),
        slots(data["arena"], signature.symbols),
        slots(data["weights"], ()),
        tuple(_site(items(row)) for row in items(data["calls"])),
    )


def decode_expressions(rows: Any) -> list[Expr]:
    """The expressions of a `Table`'s rows, within `decoding`."""
    exprs: list[Expr] = []
    for row in items(rows):
        exprs.append(_expression(items(row), exprs))
    return exprs


def _element(row: list[Any], at: Callable[[Any], Expr], signature: Signature) -> tuple[Var, int, int]:
    """A variable that is an element of an input of numbers whose shape is fixed."""
    var, index, position = at(row[0]), integer(row[1], 0, len(signature.inputs) - 1), row[2]
    type_ = signature.inputs[index].type
    shape = type_.static_shape()
    if not isinstance(var, Var) or shape is None or type_.dtype.kind not in ("int", "uint", "bool", "float"):
        malformed("an element is not in an input")
    return var, index, integer(position, 0, math.prod(shape) - 1)


def _data_dims(
    rows: list[Any], at: Callable[[Any], Expr], signature: Signature
) -> tuple[tuple[Var, Expr, str], ...]:
    """Decode host-computed dims, each from those before it."""
    known = {v for value in signature.inputs for v in value.type.symbols()}
    known.update(var for var, _, _ in signature.elements)
    found: list[tuple[Var, Expr, str]] = []
    for row in rows:
        var_row, expr_row, what = items(row)
        var, expr = at(var_row), at(expr_row)
        if not isinstance(var, Var) or var in known or expr.dtype is not INDEX:
            malformed("a data-dependent dim is not a symbol")
        if not set(free_vars(expr)) <= known:
            malformed(f"an operand of {var.name} is not known")
        known.add(var)
        found.append((var, expr, text(what)))
    return tuple(found)


def _condition(row: list[Any], at: Callable[[Any], Expr], signature: Signature) -> Condition:
    """A condition on the symbols. Files of version 0.1 have only equalities."""
    kind, left, right, why, where = row if len(row) != 3 else (EQUAL, *row, "")
    sides = at(left), at(right)
    if kind not in KINDS:
        malformed(f"there is no condition {kind!r}")
    known = {v for value in signature.inputs for v in value.type.symbols()}
    known.update(var for var, _, _ in signature.data_dims)
    if any(side.dtype is not INDEX for side in sides) or not set(free_vars(*sides)) <= known:
        malformed("a condition has other variables than dims of the inputs")
    return Condition(kind, *sides, text(why), text(where))


def _donation(row: list[Any], signature: Signature) -> Donation:
    """Decode a donation. Its input and output must exist and have the same dtype and rank."""
    input_, output, axis, capacity = row
    source = signature.inputs[integer(input_, 0, len(signature.inputs) - 1)]
    result = signature.outputs[integer(output, 0, len(signature.outputs) - 1)]
    if source.type.ndim != result.type.ndim or source.dtype is not result.dtype:
        malformed(f"{result.name!r} cannot extend {source.name!r}")
    return Donation(input_, output, integer(axis, 0, source.type.ndim - 1), integer(capacity, 1, LIMIT))


def _update(row: list[Any], signature: Signature) -> tuple[int, int]:
    """Decode an update. Its input and output must exist and have the same type."""
    input_, output = row
    source = signature.inputs[integer(input_, 0, len(signature.inputs) - 1)]
    result = signature.outputs[integer(output, 0, len(signature.outputs) - 1)]
    if source.type != result.type:
        malformed(f"{result.name!r} cannot replace {source.name!r}")
    return input_, output


def _arguments(indices: list[Any], signature: Signature) -> tuple[int, ...]:
    """The order of an operator's parameters: each input and output once."""
    count = len(signature.inputs) + len(signature.outputs)
    found = tuple(integer(index, 0, count - 1) for index in indices)
    if len(found) != count or len({*found}) != count:
        malformed("the arguments are not each input and output once")
    return found


def _float(name: Any) -> DType:
    if name not in _FLOATS:
        malformed(f"{name!r} is not a dtype of an operand of a dim")
    return dtype(name)


def _expression(row: list[Any], before: list[Expr]) -> Expr:
    op, operands = row[0], row[1:]
    if op == "const":
        return const(integer(operands[0], -LIMIT, LIMIT))
    if op == "bool":
        return const(bool(operands[0]), BOOL)
    if op == "var":
        name, *bounds = operands
        return Var(text(name), INDEX, Bounds(*bounds) if bounds else None)
    if op == "real":
        return Var(text(operands[0]), _float(operands[1]))
    if op == "float":
        return const(number(operands[1]), _float(operands[0]))
    if op == "cast":
        name, index = operands
        to = INDEX if name == INDEX.name else BOOL if name == BOOL.name else _float(name)
        return cast_to(to, before[integer(index, 0, len(before) - 1)])
    args = [before[integer(i, 0, len(before) - 1)] for i in operands]
    made: Expr
    if op == "select" and len(args) == 3:
        made = select(*args)
    elif op in _BINARY and len(args) == 2:
        made = binary(op, *args)
    elif op in _UNARY and len(args) == 1:
        made = unary(op, *args)
    else:
        malformed(f"unknown operation {op!r} of {len(args)} operands")
    return made


__all__ = ["Table", "decode_expressions", "decode_signature", "encode_signature"]
