"""`transform_layout`: change the layout of an intermediate buffer, or of a parameter that the caller then
repacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import BOOL
from dlc_core.ir.expr import Expr, Var, const, const_value, logical_and, transform
from dlc_core.schedule.dependence import check_not_exposed
from dlc_core.schedule.handles import BlockRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.lookup import one_buffer
from dlc_core.schedule.query import writers, written_by
from dlc_core.schedule.regions import read_regions
from dlc_core.schedule.tree import Program
from dlc_core.tir.functor import move_accesses, substitute_stmt
from dlc_core.tir.intrinsics import if_then_else
from dlc_core.tir.stmt import Block, For, IterVar, Range, Region, Stmt, Store, loop

REPACK = "repack"
"""PrimFunc attribute: parameter index to the IndexMap from the caller's layout to the parameter's."""


def transform_layout(
    program: Program,
    handle: BlockRV,
    buffer: str | tuple[str, int],
    layout: IndexMap,
    pad_value: float | None,
) -> None:
    block = program.block(handle)
    old = one_buffer(program, block, buffer)
    what = f"cannot change the layout of {old.name} to {layout}"
    if len(layout.inputs) != old.ndim:
        raise program.error(what, block, why=f"{old.name} has {old.ndim} dims")
    if old.strides is not None:
        raise program.error(what, block, why=f"{old.name} has strides of its own")
    check_not_exposed(program, old, block, what)
    makers = writers(program, [old])
    is_param = old in program.func.params
    if is_param and makers:
        raise program.error(
            what,
            block,
            *makers,
            why="it is an output: the caller reads it as it is",
            hint="cache_write, then change the cache",
        )
    new = old.like(shape=layout.output_exprs(old.shape))
    new.align = old.align
    for maker in makers:
        if pad_value is not None or _is_plain(maker, old):
            _retile_writer(program, BlockRV(maker.name), old, layout, pad_value, what)
    _replace_buffer(program, old, new, layout)
    if is_param:
        position = program.func.params.index(old)
        known: Mapping[int, IndexMap] = program.func.attrs.get(REPACK, {})
        before = known.get(position)
        repack = {**known, position: layout if before is None else before.then(layout)}
        params = tuple(new if p is old else p for p in program.func.params)
        attrs = MappingProxyType({**program.func.attrs, REPACK: MappingProxyType(repack)})
        program.set_func(replace(program.func, params=params, attrs=attrs))


def _replace_buffer(program: Program, old: Buffer, new: Buffer, layout: IndexMap) -> None:
    analyzer = program.analyzer()
    for block in program.tree.blocks.values():
        for axis in block.axes:
            analyzer.bind(axis.var, axis.dom.begin, axis.dom.extent)

    def mapped(indices: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple(analyzer.simplify(i) for i in layout(*indices))

    def on_region(region: Region) -> Region:
        if region.buffer is not old:
            return region
        if all(const_value(r.extent) == 1 for r in region.ranges):
            return Region.point(new, mapped([r.begin for r in region.ranges]))
        return Region.whole(new)

    body = move_accesses(
        program.func.body, lambda buffer, at: (new, mapped(at)) if buffer is old else None, region=on_region
    )
    program.set_body(substitute_stmt(body, {}, {old: new}))


def _is_plain(block: Block, buffer: Buffer) -> bool:
    """Whether a block writes the buffer at [axis, axis, …], with all its spatial axes."""
    if (
        not isinstance(block.body, Store)
        or block.init is not None
        or any(a.kind == "reduce" for a in block.axes)
    ):
        return False
    if block.body.buffer is not buffer or written_by(block) != [buffer]:
        return False
    indices = block.body.indices
    return len(set(indices)) == len(indices) and set(indices) == {a.var for a in block.axes}


def _retile_writer(
    program: Program, handle: BlockRV, old: Buffer, layout: IndexMap, pad_value: float | None, what: str
) -> None:
    """Let a buffer's producer iterate over the dims of the new layout: it then writes `new[axis, axis, …]`.

    With a pad value it also writes the padding.
    """
    block = program.block(handle)
    chain = program.tree.loops_above(block)
    nested = bool(chain) and all(a.body is b for a, b in zip(chain, [*chain[1:], block]))
    analyzer = program.analyzer()
    loops_of = {s.var: s for s in chain}
    whole = len(writers(program, [old])) == 1 and const_value(block.predicate) == 1
    for axis, value in zip(block.axes, block.values, strict=True):
        runs = loops_of.get(value) if isinstance(value, Var) else None
        whole = (
            whole
            and runs is not None
            and analyzer.prove_equal(runs.begin, 0)
            and analyzer.prove_equal(runs.extent, axis.dom.extent)
        )
    whole = whole and len(chain) == len(block.axes)
    if not (_is_plain(block, old) and nested and whole and layout.is_bijective):
        if pad_value is None:
            return
        raise program.error(
            what,
            block,
            why=f"block {block.name!r} cannot fill the padding: it must be one plain assignment "
            "in loops of its own, and the layout must be invertible",
        )
    assert isinstance(block.body, Store)
    sizes = layout.output_exprs(old.shape)
    names = [Var(f"v_o{d}") for d in range(len(sizes))]
    back = layout.inverse()(*names)
    env = {
        index: value for index, value in zip(block.body.indices, back, strict=True) if isinstance(index, Var)
    }
    for var, size in zip(names, sizes, strict=True):
        analyzer.bind(var, 0, size)
    inside: Expr = const(True, BOOL)
    for value, size in zip(back, old.shape, strict=True):
        inside = logical_and(inside, value < size)
    inside = analyzer.simplify(inside)
    value = transform(block.body.value, lambda e: env.get(e) if isinstance(e, Var) else None)
    loops = [Var(f"o{d}") for d in range(len(sizes))]
    predicate: Expr = const(True, BOOL)
    if const_value(inside) != 1 and pad_value is not None:
        value = if_then_else(inside, value, const(pad_value, old.dtype))
    elif const_value(inside) != 1:
        to_loop = dict(zip(names, loops, strict=True))
        predicate = transform(inside, lambda e: to_loop.get(e) if isinstance(e, Var) else None)
    body = Store(old, back, value)
    fresh: Stmt = replace(
        block,
        axes=tuple(IterVar(v, Range(const(0), size)) for v, size in zip(names, sizes, strict=True)),
        values=tuple(loops),
        writes=(Region.point(old, back),),
        body=body,
        predicate=predicate,
    )
    assert isinstance(fresh, Block)
    fresh = replace(fresh, reads=read_regions(fresh))
    for var, size in reversed(list(zip(loops, sizes, strict=True))):
        fresh = loop(var, size, fresh)
    top: For = chain[0]
    program.replace({top: fresh})
