"""How graphs and callers see a program: its inputs, its results, and how an output element depends on the
inputs.

The results of a program are the buffers that it writes. They come after the buffers that it only reads. The
by-value parameters are dims of buffers, or further numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc_core.arith import Analyzer, solve_dims
from dlc_core.diag import UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Load, Var, as_expr, const_value, free_vars, post_order, substitute
from dlc_core.ir.types import Dim, TensorType, dim, tensor_type
from dlc_core.support.record import record
from dlc_core.tir.functor import block_list, buffers_read, buffers_written, stmts, stmts_of
from dlc_core.tir.stmt import Alloc, Block, For, PrimFunc, Seq, Store

ELEMENTWISE, BROADCAST, INJECTIVE, OPAQUE = KINDS = ("elementwise", "broadcast", "injective", "opaque")
"""The kinds of `kind_of_program`, from the most to the least restricted accesses."""


@record(frozen=True)
class ProgramInterface:
    """The parameters of a program by role."""

    inputs: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    scalars: tuple[Var, ...]


def interface_of(func: PrimFunc) -> ProgramInterface:
    """The parameters of a program by role. Workspaces, which a schedule may add after the results, have none.

    Raises UsageError if the program writes no parameter, or if a result comes before an input.
    """
    buffers = func.buffers[: len(func.buffers) - func.attrs.get("workspaces", 0)]
    written = set(buffers_written(func.body))
    inputs = tuple(b for b in buffers if b not in written)
    results = buffers[len(inputs) :]
    if not results:
        raise UsageError(f"program {func.name!r} writes none of its buffers")
    if any(b not in written for b in results):
        names = ", ".join(b.name for b in buffers if b in written)
        raise UsageError(
            f"the buffers that {func.name!r} writes do not come last", details=[f"it writes {names}"]
        )
    return ProgramInterface(inputs, results, func.scalars)


def is_scheduled(func: PrimFunc) -> bool:
    """Whether a program already has a schedule: loops that are not serial, or no blocks."""
    serial = all(s.kind == "serial" for s in stmts_of(func.body, For))
    return not serial or not block_list(func.body)


def bind_dims(func: PrimFunc, inputs: Sequence[TensorType], given: Sequence[Dim] = ()) -> dict[Var, Expr]:
    """The values of a program's by-value parameters for inputs of these types.

    Dims follow from the shapes of the inputs. `given` are the values of all other by-value parameters, in
    order. Raises UsageError if the inputs do not fit in number, dtype, rank or known sizes, or if `given` has
    another number of values than are needed.
    """
    wanted = interface_of(func)
    if len(inputs) != len(wanted.inputs):
        raise UsageError(
            f"program {func.name!r} takes {len(wanted.inputs)} inputs, {len(inputs)} are given",
            details=[_parameters(wanted)],
        )
    pairs = [(b, t) for b, t in zip(wanted.inputs, inputs, strict=True)]
    for buffer, type_ in pairs:
        if buffer.dtype is not type_.dtype or buffer.ndim != type_.ndim:
            raise UsageError(
                f"input {buffer.name!r} of program {func.name!r} is {_type(buffer)}, {type_} is given"
            )
    known = solve_dims((d, s) for b, t in pairs for d, s in zip(b.shape, t.dim_exprs(), strict=True))
    missing = [v for v in wanted.scalars if v not in known]
    if len(given) != len(missing):
        names = ", ".join(v.name for v in missing) or "none"
        raise UsageError(
            f"program {func.name!r} needs values of by-value parameters: {names}; {len(given)} are given",
            why="all others follow from the shapes of its inputs",
        )
    known.update((var, as_expr(value)) for var, value in zip(missing, given, strict=True))
    for buffer, type_ in pairs:
        for formal, size in zip(buffer.shape, type_.shape, strict=True):
            needed = dim(Analyzer().simplify(substitute(formal, known)))
            if isinstance(needed, int) and isinstance(size, int) and needed != size:
                raise UsageError(
                    f"input {buffer.name!r} of program {func.name!r} is {_type(buffer)}, {type_} is given",
                    why=f"a dim of {size} where {needed} is needed",
                )
    return {var: known[var] for var in wanted.scalars}


def result_types(func: PrimFunc, dims: dict[Var, Expr]) -> tuple[TensorType, ...]:
    """The types of a program's results for these values of its by-value parameters."""
    analyzer = Analyzer()
    for var in free_vars(*dims.values()):
        analyzer.declare_dim(var, 0)
    made = []
    for buffer in interface_of(func).results:
        sizes = [dim(analyzer.simplify(substitute(d, dims))) for d in buffer.shape]
        made.append(tensor_type(sizes, buffer.dtype))
    return tuple(made)


def _parameters(wanted: ProgramInterface) -> str:
    inputs = ", ".join(f"{b.name}: {_type(b)}" for b in wanted.inputs)
    results = ", ".join(f"{b.name}: {_type(b)}" for b in wanted.results)
    return f"({inputs}) -> ({results})"


def _type(buffer: Buffer) -> TensorType:
    return tensor_type([dim(d) for d in buffer.shape], buffer.dtype)


def kind_of_program(func: PrimFunc) -> str:
    """How the elements of a program's result depend on the inputs, as ops declare it: "elementwise",
    "broadcast", "injective" or "opaque".

    The program is a chain of blocks, each of which stores one element of one buffer for each point of its
    spatial axes, at the axes in order. Anything else is opaque: reductions, several results, schedules,
    conditions on axes, accesses of a buffer whose layout is not compact.
    """
    if is_scheduled(func) or len(interface_of(func).results) != 1 or not _is_plain(func):
        return OPAQUE
    blocks = block_list(func.body)
    if len({store.buffer for store in stmts_of(func.body, Store)}) != len(blocks):
        return OPAQUE  # a later block overwrites the result of an earlier one
    kinds = [_kind_of_block(block) for block in blocks]
    return max(kinds, key=KINDS.index)


def _is_plain(func: PrimFunc) -> bool:
    """Whether the program consists of loops, allocations, and blocks that are in no other block."""
    nodes = list(stmts(func.body))
    blocks = [s for s in nodes if isinstance(s, Block)]
    outside = len(blocks) + sum(isinstance(s, (For, Seq, Alloc)) for s in nodes)
    return all(isinstance(b.body, Store) for b in blocks) and len(nodes) == outside + len(blocks)


def _kind_of_block(block: Block) -> str:
    store = block.body
    assert isinstance(store, Store)
    axes = tuple(a.var for a in block.axes)
    spatial = all(a.kind == "spatial" and const_value(a.dom.begin) == 0 for a in block.axes)
    whole = len(axes) == store.buffer.ndim and all(
        a.dom.extent is size for a, size in zip(block.axes, store.buffer.shape, strict=True)
    )
    if not spatial or not whole or block.init is not None or const_value(block.predicate) != 1:
        return OPAQUE
    if store.indices != axes or store.buffer in buffers_read(block.body):
        return OPAQUE
    loads = [e for e in post_order(store.value) if isinstance(e, Load)]
    if any(isinstance(inner, Load) for load in loads for i in load.indices for inner in post_order(i)):
        return OPAQUE
    shape = store.buffer.shape
    return max((_kind_of_load(load, axes, shape) for load in loads), key=KINDS.index, default=INJECTIVE)


def _kind_of_load(load: Load, axes: tuple[Var, ...], shape: Sequence[Expr]) -> str:
    if load.buffer.strides or len(load.indices) > len(axes):
        return INJECTIVE
    if load.indices == axes and tuple(load.buffer.shape) == tuple(shape):
        return ELEMENTWISE
    last = axes[len(axes) - len(load.indices) :]
    sizes = zip(load.indices, last, load.buffer.shape, strict=True)
    if all(i is axis or (const_value(i) == 0 and const_value(size) == 1) for i, axis, size in sizes):
        return BROADCAST
    return INJECTIVE


__all__ = [
    "KINDS",
    "ProgramInterface",
    "bind_dims",
    "interface_of",
    "is_scheduled",
    "kind_of_program",
    "result_types",
]
