"""From tensor computations to a PrimFunc: the blocks of each operation, in dependence order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dlc_core.diag import Span, UsageError
from dlc_core.graph.dims import CONDITIONS
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var, free_vars
from dlc_core.te.extern import ExternOp, extern_nest
from dlc_core.te.nest import compute_nest
from dlc_core.te.scan import ScanOp, scan_nest
from dlc_core.te.tensor import ComputeOp, Operation, Tensor, producer_of
from dlc_core.tir.failures import numbered
from dlc_core.tir.stmt import Alloc, PrimFunc, Stmt, seq

Argument = Tensor | Var
"""A parameter of a program: a tensor, or a variable by value."""


def create_prim_func(
    inputs: Sequence[Argument],
    outputs: Sequence[Tensor] | Tensor | None = None,
    name: str = "main",
    *,
    producers: Iterable[Tensor] = (),
    attrs: Mapping[str, Any] | None = None,
    spans: tuple[Span, ...] = (),
) -> PrimFunc:
    """A program that computes `outputs` from `inputs`, and all intermediate tensors.

        te.create_prim_func([A, B, C])        # the arguments in order; computed tensors are outputs
        te.create_prim_func([A, B], [C])      # an input may be a computed tensor, which is not computed again

    The parameters are the buffers in the order of the arguments (inputs before outputs), then the variables
    among the arguments, then every other symbolic dim in the order of first use. Variables and dims are
    passed by value. Intermediate tensors are found from the reads; `producers`, if given, take precedence.
    Raises UsageError if a placeholder is read that is not an argument, if an argument occurs twice, or if
    nothing is computed.
    """
    given = [a for a in inputs if not isinstance(a, Var)]
    scalars = [a for a in inputs if isinstance(a, Var)]
    if outputs is None:
        sources = {t.buffer for t in given if t.op is None}
        targets = [t for t in given if t.op is not None]
        params = [t.buffer for t in given]
    else:
        targets = [outputs] if isinstance(outputs, Tensor) else list(outputs)
        sources = {t.buffer for t in given}
        params = [t.buffer for t in (*given, *targets)]
    _check_arguments(params, targets, sources)
    operations = {t.buffer: (t.op, t.index) for t in producers if t.op is not None}
    order = _dependence_order(targets, operations, sources)
    results = {op: _buffers(op, operations) for op in order}
    parts: list[Stmt] = []
    allocated: list[Buffer] = []
    loop_vars: set[Var] = set()
    for op in order:
        nest, inner = _nest(op, results[op], loop_vars)
        parts.append(nest)
        allocated += [b for b in (*results[op], *inner) if b not in params]
    conditions = tuple(dict.fromkeys(row for op in order for row in op.conditions))
    held = dict(attrs or {}) | ({CONDITIONS: conditions} if conditions else {})
    body = seq(*parts)
    for buffer in reversed(allocated):
        body = Alloc(buffer, body)
    symbols = dict.fromkeys([*scalars, *_symbols(params, order)])
    return numbered(PrimFunc(name, (*params, *symbols), body, MappingProxyType(held), spans))


def _check_arguments(params: Sequence[Buffer], targets: Sequence[Tensor], sources: set[Buffer]) -> None:
    if not targets:
        raise UsageError("none of the arguments is computed", hint="list the outputs among them")
    for tensor in targets:
        if tensor.buffer in sources or params.count(tensor.buffer) > 1:
            raise UsageError(
                f"output {tensor.name} is an input or occurs twice", hint="copy it with an identity compute"
            )
        if tensor.op is None:
            raise UsageError(
                f"output {tensor.name} is a placeholder: nothing computes it", hint="pass it in `inputs`"
            )
    twice = [b.name for b in dict.fromkeys(params) if params.count(b) > 1]
    if twice:
        raise UsageError(f"the argument {', '.join(twice)} occurs twice")


def operations_of(outputs: Sequence[Tensor], sources: Iterable[Buffer]) -> list[Operation]:
    """The operations that outputs depend on, producers first. The search stops at `sources`."""
    return _dependence_order(outputs, {}, set(sources))


def inputs_of(outputs: Iterable[Tensor]) -> list[Tensor]:
    """The placeholders that outputs depend on, in the order of first use."""
    order = _dependence_order(list(outputs), {}, None)
    found = dict.fromkeys(b for op in order for b in op.reads() if producer_of(b) is None)
    return [Tensor(b) for b in found]


def _buffers(op: Operation, known: Mapping[Buffer, tuple[Operation, int]]) -> tuple[Buffer, ...]:
    buffers = list(op.buffers())
    for buffer, (maker, index) in known.items():
        if maker is op:
            buffers[index] = buffer
    return tuple(buffers)


def _dependence_order(
    outputs: Sequence[Tensor],
    given: Mapping[Buffer, tuple[Operation, int]],
    sources: set[Buffer] | None,
) -> list[Operation]:
    """The operations that outputs depend on, producers first. The search stops at `sources`; None means at
    placeholders.
    """
    order: dict[Operation, None] = {}
    stack: list[tuple[Operation, bool]] = [(t.op, False) for t in reversed(outputs) if t.op is not None]
    while stack:
        op, expanded = stack.pop()
        if op in order:
            continue
        if expanded:
            order[op] = None
            continue
        stack.append((op, True))
        for buffer in reversed(list(op.reads())):
            if sources is not None and buffer in sources:
                continue
            known = given.get(buffer) or producer_of(buffer)
            if known is not None:
                stack.append((known[0], False))
            elif sources is not None:
                raise UsageError(
                    f"{op.name!r} reads {buffer!r}, which is neither an argument nor computed",
                    hint="list the placeholder among the inputs",
                )
    return list(order)


def _symbols(buffers: Sequence[Buffer], order: Sequence[Operation]) -> list[Var]:
    seen: dict[Var, None] = {}
    for buffer in buffers:
        seen.update(dict.fromkeys(free_vars(*buffer.shape)))
    for op in order:
        seen.update(dict.fromkeys(op.free_vars()))
    return list(seen)


def _nest(op: Operation, results: Sequence[Buffer], loop_vars: set[Var]) -> tuple[Stmt, list[Buffer]]:
    """The statements of an operation, and the buffers of its inner stages."""
    if isinstance(op, ComputeOp):
        return compute_nest(op, results, loop_vars), []
    if isinstance(op, ExternOp):
        return extern_nest(op, results), []
    assert isinstance(op, ScanOp)
    return scan_nest(op, results, loop_vars)
