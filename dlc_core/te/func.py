"""From tensor computations to a PrimFunc: one block for each ComputeOp, in dependence order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dlc_core.diag import Span, UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, const, free_vars, loads_in, select, substitute
from dlc_core.te.tensor import ComputeOp, Reduction, Tensor
from dlc_core.tir.stmt import Alloc, Block, For, IterVar, Let, PrimFunc, Range, Region, Stmt, Store, seq


def create_prim_func(
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    name: str = "main",
    *,
    producers: Iterable[Tensor] = (),
    attrs: Mapping[str, Any] | None = None,
    spans: tuple[Span, ...] = (),
) -> PrimFunc:
    """The program that computes `outputs` from `inputs`.

    Parameters are the inputs' buffers, then the outputs', then every symbolic dim in first-use order (by
    value). `producers` are all tensors of the computation; those reachable through Python references are not
    discoverable from expressions alone, so every intermediate tensor must be among them. Raises UsageError
    when a tensor is read that is neither an input nor produced.
    """
    by_buffer = {t.buffer: t for t in [*producers, *outputs]}
    given = {t.buffer for t in inputs}
    order = _dependence_order([t for t in outputs if t.buffer not in given], by_buffer, given)
    params: list[Buffer] = [t.buffer for t in inputs]
    out_buffers: list[Buffer] = []
    body_parts: list[Stmt] = []
    allocated: list[Buffer] = []
    wanted = [t.buffer for t in outputs]
    for op in order:
        results = [t.buffer for t in by_buffer.values() if t.op is op]
        results.sort(key=lambda b: by_buffer[b].index)
        body_parts.append(_nest(op, results))
        allocated += [b for b in results if b not in wanted]
    for tensor in outputs:
        if tensor.buffer in given or tensor.buffer in out_buffers:
            raise UsageError(
                f"output {tensor.name} is an input or occurs twice", hint="copy it with an identity compute"
            )
        out_buffers.append(tensor.buffer)
    body = seq(*body_parts)
    for buffer in reversed(allocated):
        body = Alloc(buffer, body)
    symbols = _symbols([*params, *out_buffers], order)
    return PrimFunc(name, (*params, *out_buffers, *symbols), body, MappingProxyType(dict(attrs or {})), spans)


def _sources(op: ComputeOp) -> tuple[Expr, ...]:
    if isinstance(op.body, Reduction):
        return op.body.sources + ((op.body.condition,) if op.body.condition is not None else ())
    return op.body


def _reads(op: ComputeOp) -> list[Buffer]:
    return list(dict.fromkeys(e.buffer for e in loads_in(*_sources(op))))


def _dependence_order(
    outputs: Sequence[Tensor], by_buffer: Mapping[Buffer, Tensor], given: set[Buffer]
) -> list[ComputeOp]:
    order: dict[ComputeOp, None] = {}
    stack: list[tuple[Tensor, bool]] = [(t, False) for t in reversed(outputs)]
    while stack:
        tensor, expanded = stack.pop()
        op = tensor.op
        if op is None or op in order:
            continue
        if expanded:
            order[op] = None
            continue
        stack.append((tensor, True))
        for buffer in reversed(_reads(op)):
            if buffer in given:
                continue
            if buffer not in by_buffer:
                raise UsageError(
                    f"compute {op.name!r} reads {buffer!r}, which is neither an input nor a produced tensor",
                    hint="pass it in `inputs`, or its tensor in `producers`",
                )
            stack.append((by_buffer[buffer], False))
    return list(order)


def _symbols(buffers: Sequence[Buffer], order: Sequence[ComputeOp]) -> list[Var]:
    seen: dict[Var, None] = {}
    for buffer in buffers:
        seen.update(dict.fromkeys(free_vars(*buffer.shape)))
    for op in order:
        bound = {a.var for a in (*op.axes, *op.reduce_axes)}
        domains = [e for a in (*op.axes, *op.reduce_axes) for e in (a.dom.begin, a.dom.extent)]
        seen.update(dict.fromkeys(v for v in free_vars(*_sources(op), *domains) if v not in bound))
    return list(seen)


def _region(buffer: Buffer, indices: Sequence[Expr]) -> Region:
    return Region(buffer, tuple(Range(i, const(1)) for i in indices))


def _whole(buffer: Buffer) -> Region:
    return Region(buffer, tuple(Range(const(0), d) for d in buffer.shape))


def _read_regions(exprs: Iterable[Expr]) -> tuple[Region, ...]:
    """Point regions of affine reads; the whole buffer where one buffer is read at several places."""
    points: dict[Buffer, list[tuple[Expr, ...]]] = {}
    for expr in loads_in(*exprs):
        places = points.setdefault(expr.buffer, [])
        if expr.indices not in places:
            places.append(expr.indices)
    regions = []
    for buffer, places in points.items():
        single = len(places) == 1 and not loads_in(*places[0])
        regions.append(_region(buffer, places[0]) if single else _whole(buffer))
    return tuple(regions)


def _store_together(buffers: Sequence[Buffer], point: tuple[Expr, ...], values: Sequence[Expr]) -> Stmt:
    """Stores of values that read the buffers' old elements: all are computed before the first is stored."""
    if len(buffers) == 1:
        return Store(buffers[0], point, values[0])
    names = [Var(f"next_{b.name}", v.dtype) for b, v in zip(buffers, values, strict=True)]
    body: Stmt = seq(*(Store(b, point, v) for b, v in zip(buffers, names, strict=True)))
    for var, value in reversed(list(zip(names, values, strict=True))):
        body = Let(var, value, body)
    return body


def _nest(op: ComputeOp, results: Sequence[Buffer]) -> Stmt:
    """The loop nest of one ComputeOp around its block; blocks get fresh axes, apart from the loops."""
    axes = (*op.axes, *op.reduce_axes)
    fresh = {a.var: Var(f"v_{a.var.name}") for a in axes}
    env: dict[Var, Expr] = dict(fresh)
    block_axes = tuple(IterVar(fresh[a.var], a.dom, a.kind) for a in axes)
    point = tuple(fresh[a.var] for a in op.axes)
    writes = tuple(_region(b, point) for b in results)
    if isinstance(op.body, Reduction):
        sources = tuple(substitute(s, env) for s in op.body.sources)
        combiner = op.body.combiner
        identity = combiner.identity(tuple(s.dtype for s in sources))
        if op.body.condition is not None:
            condition = substitute(op.body.condition, env)
            sources = tuple(select(condition, s, i) for s, i in zip(sources, identity, strict=True))
        init = seq(*(Store(b, point, value) for b, value in zip(results, identity, strict=True)))
        current = tuple(b[point] for b in results)
        combined = combiner.combine(current, sources)
        body = _store_together(results, point, combined)
        reads = _read_regions(sources)
    else:
        values = tuple(substitute(e, env) for e in op.body)
        init = None
        body = seq(*(Store(b, point, value) for b, value in zip(results, values, strict=True)))
        reads = _read_regions(values)
    block: Stmt = Block(
        op.name,
        block_axes,
        tuple(a.var for a in axes),
        reads,
        writes,
        body,
        init,
        annotations=dict(op.annotations),
    )
    for axis in reversed(axes):
        block = For(axis.var, axis.dom.begin, axis.dom.extent, block)
    return block
