"""Tensors computed by user-written statements, or by external functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlc_core.diag import UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType, DTypeLike, dtype
from dlc_core.ir.expr import Call, Expr, Var, as_expr
from dlc_core.ir.types import Dim, tensor_type
from dlc_core.te.tensor import Operation, Tensor, make_tensors
from dlc_core.tir.functor import (
    buffers_read,
    buffers_written,
    free_buffers,
    free_vars_stmt,
    rename_bound,
    stores_in,
    substitute_buffer,
    substitute_stmt,
)
from dlc_core.tir.interface import bind_dims, interface_of
from dlc_core.tir.intrinsics import has_effect
from dlc_core.tir.stmt import Block, Eval, PrimFunc, Region, Stmt, seq

Body = Callable[[list[Buffer], list[Buffer]], "Stmt | Expr | Sequence[Stmt | Expr]"]


@dataclass(frozen=True, eq=False)
class ExternOp(Operation):
    """Statements over the inputs' buffers, and over `formal` buffers, which represent those of its
    tensors."""

    inputs: tuple[Tensor, ...]
    formal: tuple[Buffer, ...]
    body: Stmt
    blocks: bool = False
    """Whether the statements are blocks in loops, which schedules can transform, instead of one opaque
    block."""

    @property
    def axis(self) -> tuple[()]:
        return ()

    @property
    def reduce_axis(self) -> tuple[()]:
        return ()

    def results(self) -> tuple[tuple[tuple[Expr, ...], DType], ...]:
        return tuple((b.shape, b.dtype) for b in self.formal)

    def reads(self) -> Iterable[Buffer]:
        return dict.fromkeys(t.buffer for t in self.inputs)

    def free_vars(self) -> Iterable[Var]:
        return free_vars_stmt(self.body)


def extern_nest(op: ExternOp, results: Sequence[Buffer]) -> Stmt:
    """The opaque block of an ExternOp, which reads and writes whole buffers, or the op's own blocks."""
    body = substitute_stmt(op.body, {}, dict(zip(op.formal, results, strict=True)))
    if op.blocks:
        return rename_bound(body)
    reads = tuple(Region.whole(b) for b in op.reads())
    return Block(op.name, (), (), reads, tuple(Region.whole(b) for b in results), rename_bound(body))


def extern(
    shape: Sequence[Dim] | Sequence[Sequence[Dim]],
    inputs: Sequence[Tensor],
    fcompute: Body,
    name: str = "extern",
    *,
    dtype_: DTypeLike | Sequence[DTypeLike] | None = None,
    blocks: bool = False,
) -> Any:
    """A tensor (a tuple if `shape` is a list of shapes) computed by the statements that `fcompute` returns.

    `fcompute(ins, outs)` takes the buffers of the inputs and of the results. It returns a statement, a call
    with a side effect such as `te.call_extern("symbol", ins[0], outs[0])`, or a list of these. It must write
    all elements of the results that are read. `dtype_` is the dtype of the results, a list for several. The
    default is the dtype of the inputs, if they have one.

    It becomes an opaque block that reads all of its inputs and writes all of its results. With `blocks` the
    statements are blocks in loops, and allocations, which schedules can transform.

    Raises UsageError for statements that access other buffers, write an input, or leave a result unwritten.
    """
    given = list(shape) if isinstance(shape, Sequence) else [shape]
    several = any(isinstance(s, Sequence) for s in given)
    shapes: list[Any] = given if several else [given]
    inputs = tuple(inputs)
    types = _dtypes(name, inputs, len(shapes), dtype_)
    outs = [
        Buffer(name if not several else f"{name}_{i}", tuple(as_expr(d) for d in s), t)
        for i, (s, t) in enumerate(zip(shapes, types, strict=True))
    ]
    found = fcompute([t.buffer for t in inputs], list(outs))
    parts = found if isinstance(found, Sequence) else (found,)
    body = seq(*(_statement(name, part) for part in parts))
    _check(name, body, [t.buffer for t in inputs], outs)
    made = make_tensors(ExternOp(name, inputs, tuple(outs), body, blocks))
    return made if several else made[0]


def extern_primfunc(
    inputs: Sequence[Tensor],
    func: PrimFunc,
    *,
    dims: Mapping[Var, Expr] | None = None,
    blocks: bool = False,
) -> Any:
    """Tensors computed by a tensor program. Its first parameters are the inputs. The buffers that it writes
    are the results.

    By-value parameters that are dims of its buffers follow from the inputs' shapes; `dims` are the values of
    others. `blocks` is that of `extern`. Raises UsageError if the inputs do not fit its parameters.
    """
    formal = interface_of(func)
    if dims is None:
        dims = bind_dims(func, [tensor_type(t.shape, t.dtype) for t in inputs])
    values = {var: dims[var] for var in func.scalars}
    results = [substitute_buffer(b, values) for b in formal.results]

    def body(given: list[Buffer], made: list[Buffer]) -> Stmt:
        return substitute_stmt(func.body, values, dict(zip(func.buffers, (*given, *made), strict=True)))

    shapes = [b.shape for b in results]
    tensors = extern(shapes, inputs, body, func.name, dtype_=[b.dtype for b in results], blocks=blocks)
    return tensors if len(results) > 1 else tensors[0]


def _dtypes(
    name: str, inputs: Sequence[Tensor], count: int, given: DTypeLike | Sequence[DTypeLike] | None
) -> tuple[DType, ...]:
    if given is None:
        known = {t.dtype for t in inputs}
        if len(known) != 1:
            raise UsageError(
                f"the dtype of the results of extern {name!r} does not follow from its inputs",
                hint="give dtype_",
            )
        return tuple(known) * count
    types = tuple(map(dtype, given)) if isinstance(given, (list, tuple)) else (dtype(given),) * count  # type: ignore[arg-type]
    if len(types) != count:
        raise UsageError(f"extern {name!r} has {count} results and {len(types)} dtypes")
    return types


def _statement(name: str, part: Any) -> Stmt:
    if isinstance(part, Stmt):
        return part
    if isinstance(part, Call) and has_effect(part):
        return Eval(part)
    raise UsageError(
        f"the body of extern {name!r} is {part!r}",
        hint="give a statement (dlc.tir), or a call made for its effect (te.call_extern)",
    )


def _check(name: str, body: Stmt, ins: Sequence[Buffer], outs: Sequence[Buffer]) -> None:
    foreign = [b.name for b in free_buffers(body) if b not in ins and b not in outs]
    if foreign:
        raise UsageError(
            f"the body of extern {name!r} accesses {', '.join(foreign)}", hint="list them among the inputs"
        )
    stored = [s.buffer for s in stores_in(body)]
    changed = [b.name for b in ins if b in stored]
    if changed:
        raise UsageError(f"the body of extern {name!r} writes its input {', '.join(changed)}")
    written = set(buffers_written(body))
    missing = [b.name for b in outs if b not in written]
    if missing:
        raise UsageError(f"the body of extern {name!r} writes nothing to {', '.join(missing)}")
    unread = [b.name for b in ins if b not in set(buffers_read(body))]
    if unread:
        raise UsageError(
            f"the body of extern {name!r} does not read {', '.join(unread)}", hint="leave that input out"
        )


__all__ = ["ExternOp", "extern", "extern_nest", "extern_primfunc"]
