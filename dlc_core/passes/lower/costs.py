"""What each kernel is: the model nodes it computes, its arithmetic operations, the bytes it must move.

Counted before scheduling, while loops are as the ops' definitions say: tiling and vectors do not change the
counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dlc_core.graph.node import CALL_PRIM, Function, post_order
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Binary, Call, Expr, const_value
from dlc_core.ir.expr import post_order as expr_order
from dlc_core.ir.module import IRModule
from dlc_core.passes.base import Pass, PassContext
from dlc_core.tir.stmt import Alloc, Block, For, If, Let, PrimFunc, Seq, Stmt, Store, View, While

_WEIGHT = {"fma": 2, "if_then_else": 0, "reinterpret": 0, "address_of": 0}
_FREE = frozenset({"and", "or"})


def operations(func: PrimFunc) -> int | None:
    """Arithmetic operations on data (index arithmetic aside) of one run; None where extents are not known."""
    return _count(func.body)


def _count(stmt: Stmt) -> int | None:
    if isinstance(stmt, Store):
        return _of_expr(stmt.value)
    if isinstance(stmt, (For, Block)):
        extents = [stmt.extent] if isinstance(stmt, For) else []
        inner = _count(stmt.body)
        for extent in extents:
            times = const_value(extent)
            if inner is None or times is None:
                return None if inner != 0 else 0
            inner *= times
        return inner
    if isinstance(stmt, Seq):
        return _total([_count(s) for s in stmt.stmts])
    if isinstance(stmt, If):
        return _count(stmt.then)
    if isinstance(stmt, Let):
        return _total([_of_expr(stmt.value), _count(stmt.body)])
    if isinstance(stmt, (Alloc, View)):
        return _count(stmt.body)
    return None if isinstance(stmt, While) else 0


def _total(parts: list[int | None]) -> int | None:
    known = [p for p in parts if p is not None]
    return sum(known) if len(known) == len(parts) else None


def _of_expr(expr: Expr) -> int:
    count = 0
    for e in expr_order(expr):
        if e.dtype.scalar is INDEX or e.dtype.is_bool:
            continue
        if isinstance(e, Binary) and e.op not in _FREE:
            count += e.dtype.lanes
        elif isinstance(e, Call):
            count += _WEIGHT.get(e.name, 1) * e.dtype.lanes
    return count


def bytes_moved(func: PrimFunc) -> int | None:
    """Bytes of all buffer parameters, each once; None where shapes are not known."""
    total = 0
    for buffer in func.buffers:
        elements = const_value(buffer.num_elements())
        if elements is None:
            return None
        total += elements * buffer.dtype.itemsize
    return total


@dataclass(frozen=True)
class RecordCosts(Pass):
    """Note for every kernel call its model nodes, operations and bytes: the module's attribute `calls`."""

    name: ClassVar[str] = "record_costs"
    stage: ClassVar[str] = "lower"
    place: ClassVar[tuple[float, ...]] = (150,)

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        kernels = module.of_kind(PrimFunc)
        known: dict[str, tuple[int | None, int | None]] = {}
        calls: list[dict[str, Any]] = []
        for function in module.of_kind(Function).values():
            for n in post_order(function.body):
                if n.op is not CALL_PRIM or n.attrs["symbol"] not in kernels:
                    continue
                symbol = n.attrs["symbol"]
                if symbol not in known:
                    known[symbol] = operations(kernels[symbol]), bytes_moved(kernels[symbol])
                nodes = [s.name or str(s) for s in n.spans]
                calls.append(
                    {"kernel": symbol, "nodes": nodes, "flops": known[symbol][0], "bytes": known[symbol][1]}
                )
        return module.with_attrs(calls=tuple(calls))


__all__ = ["RecordCosts", "bytes_moved", "operations"]
