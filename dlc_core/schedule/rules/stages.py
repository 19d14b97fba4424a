"""Kernels of several stages: which axes of the result each stage runs with."""

from __future__ import annotations

from collections.abc import Mapping

from dlc_core.ir.expr import Binary, Call, Expr, Var, post_order
from dlc_core.schedule.handles import BlockRV
from dlc_core.schedule.rules.analysis import is_pointwise, loads_of, reductions
from dlc_core.schedule.schedule import Schedule
from dlc_core.tir.functor import block_list
from dlc_core.tir.stmt import PrimFunc, Store

Along = Mapping[BlockRV, Mapping[Var, Var | None]]
"""Which axis of the output each axis of a block runs with, None for one that runs with none."""


def has_row_stages(func: PrimFunc) -> bool:
    """Whether a kernel reduces, one value at a time, and does nothing besides but elementwise work."""
    found = reductions(func)
    others = [b for b in block_list(func.body) if b not in found]
    return bool(found) and all(isinstance(b.body, Store) for b in found) and all(map(is_pointwise, others))


def axes_along(s: Schedule, out: BlockRV) -> dict[BlockRV, dict[Var, Var | None]]:
    """For every block that the output depends on: which axis of the output each of its axes runs with."""
    writers = {}
    for handle in s.get_blocks():
        body = s.get(handle).body
        assert isinstance(body, Store)
        writers[body.buffer] = handle
    along: dict[BlockRV, dict[Var, Var | None]] = {out: {a.var: a.var for a in s.get(out).axes}}
    for handle in reversed(s.get_blocks()):
        known = along.setdefault(handle, {})
        for load in loads_of(s.get(handle)):
            producer = writers.get(load.buffer)
            if producer is None or producer == handle:
                continue
            body = s.get(producer).body
            assert isinstance(body, Store)
            owners = along.setdefault(producer, {})
            for place, index in zip(body.indices, load.indices, strict=True):
                if isinstance(place, Var):
                    owner = known.get(index) if isinstance(index, Var) else None
                    owners[place] = owner if owners.get(place, owner) is owner else None
    return along


def row_axes(s: Schedule, out: BlockRV, along: Along) -> list[Var]:
    """The output's axes along which every reduction has one result for each point, outer to inner."""
    found = [owners for handle, owners in along.items() if s.get(handle).init is not None]
    return [a.var for a in s.get(out).axes if all(a.var in owners.values() for owners in found)]


def is_costly(value: Expr) -> bool:
    """Whether computing a value again costs more than keeping it: calls and divisions."""
    return any(isinstance(e, Call) or (isinstance(e, Binary) and e.op == "div") for e in post_order(value))


__all__ = ["Along", "axes_along", "has_row_stages", "is_costly", "row_axes"]
