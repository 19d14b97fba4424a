"""`tensorize`: replace a block's computation by the implementation of a tensor intrinsic on windows of its
buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from dlc_core.arith.analyzer import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import BOOL
from dlc_core.ir.expr import Expr, Var, const, const_value
from dlc_core.schedule.blockize import blockize, nest_of
from dlc_core.schedule.handles import BlockRV, LoopRV
from dlc_core.schedule.intrin import TensorIntrin
from dlc_core.schedule.match import Location, Match, Matcher, MismatchError, Scattered, Window
from dlc_core.schedule.query import read_by
from dlc_core.schedule.reduction import init_nest
from dlc_core.schedule.regions import escapes, is_opaque, iter_map
from dlc_core.schedule.tree import Program, anew
from dlc_core.tir.functor import (
    block_list,
    copy_buffer,
    free_buffers,
    move_accesses,
    rename_bound,
    substitute_stmt,
    transform_each,
    transform_stmt,
)
from dlc_core.tir.stmt import Block, For, PrimFunc, Range, Region, Stmt, View, seq

MARK = "tensor_intrin"
"""Annotation of the block that an intrinsic computes: the intrinsic's name."""


def tensorize(program: Program, target: LoopRV | BlockRV, intrin: TensorIntrin) -> BlockRV:
    at: For | Block = program.loop(target) if isinstance(target, LoopRV) else program.block(target)
    name = at.var.name if isinstance(at, For) else at.name
    what = f"cannot compute {'loop' if isinstance(at, For) else 'block'} {name!r} by {intrin.name}"
    if isinstance(at, For) or not block_list(at.body):
        handle = blockize(program, target)
    else:
        handle = BlockRV(at.name)
    outer = program.block(handle)
    inner, block = nest_of(program, outer.body, what)
    described = _described(program, intrin, what)
    analyzer = program.analyzer(outer)
    _check_covers_domain(program, inner, block, analyzer, what)
    for axis in block.axes:
        analyzer.bind(axis.var, axis.dom.begin, axis.dom.extent)
    for axis in described.axes:
        analyzer.bind(axis.var, axis.dom.begin, axis.dom.extent)
    init = outer.init
    plain = block
    if block.init is not None and described.init is None:
        init, plain = init_nest(program, block, inner, what)[1], replace(block, init=None)
    elif described.init is not None and outer.init is not None:
        why = "the description initialises, but the reduction goes on over loops outside"
        raise program.error(what, outer, why=why, hint="describe the update alone")
    try:
        match = Matcher(described, plain, intrin.desc.scalars, analyzer).match()
    except MismatchError as difference:
        raise program.error(
            what,
            block,
            why=f"it is not what {intrin.name} describes; the first difference is in {difference}",
        ) from None
    body = _implementation(program, intrin, match, analyzer, outer, what)
    made = replace(
        outer,
        body=body,
        init=outer.init,
        annotations=MappingProxyType({**outer.annotations, MARK: intrin.name}),
    )
    made = replace(made, reads=_reads(made, intrin, match))
    if init is not None and outer.init is None:
        made = replace(made, body=seq(init, made.body))
    program.replace({outer: made})
    return handle


def _described(program: Program, intrin: TensorIntrin, what: str) -> Block:
    """The block of a description, whose loops must run each point of its axes once."""
    body = intrin.desc.body
    while isinstance(body, Block) and not body.axes and body.init is None:
        body = body.body
    inside = Program(replace(intrin.desc, body=body))
    chain, block = nest_of(inside, body, f"{what}: the description of {intrin.name}")
    _check_covers_domain(inside, chain, block, inside.analyzer(), f"{what}: the description of {intrin.name}")
    unknown = [b for b in free_buffers(block) if b not in intrin.desc.buffers]
    if unknown:
        raise program.error(what, why=f"the description uses {unknown[0].name}, which is no parameter of it")
    return block


def _check_covers_domain(
    program: Program, inner: list[For], block: Block, analyzer: Analyzer, what: str
) -> None:
    """Check that the loops run each point of the block's axes exactly once."""
    if const_value(block.predicate) != 1:
        raise program.error(
            what,
            block,
            why=f"it is cut by the condition {block.predicate}",
            hint="pad_einsum makes tiles whole, split(…, tail='partition') puts the rest apart",
        )
    found = iter_map(block.values, inner, const(True, BOOL), analyzer)
    whole = found is not None and found[0].bijective
    if found is not None and whole:
        for axis, extent, begin in zip(block.axes, found[0].extents, found[1], strict=True):
            assert extent is not None
            whole = whole and analyzer.prove_equal(extent, axis.dom.extent)
            whole = whole and analyzer.prove_equal(begin, axis.dom.begin)
    if not whole:
        raise program.error(what, block, why="its loops do not run over every point of its axes once")


def _implementation(
    program: Program, intrin: TensorIntrin, match: Match, analyzer: Analyzer, outer: Block, what: str
) -> Stmt:
    """The implementation's body on the matched windows."""
    impl = intrin.impl
    windows = {
        own: match.windows[described]
        for own, described in zip(impl.buffers, intrin.desc.buffers, strict=True)
        if described in match.windows
    }
    missing = [own.name for own in impl.buffers if own not in windows]
    if missing:
        raise program.error(what, why=f"the description does not use {', '.join(missing)}")
    for own, window in windows.items():
        if isinstance(window, Window):
            _check_layout(program, impl, own, window, analyzer, outer, what)
        elif own.strides is not None or isinstance(own.offset, Var) or escapes(impl.body, own):
            why = f"the elements of {own.name} are no window of {window.buffer.name}"
            raise program.error(
                what, outer, why=why, hint="read them through a copy in the order of the loops"
            )
    values: dict[Var, Expr] = {}
    for var in impl.scalars:
        location = intrin.layout_params.get(var)
        if location is None:
            values[var] = next(value for d, value in match.scalars.items() if d.name == var.name)
            continue
        window = windows[location[0]]
        assert isinstance(window, Window)
        if location[1] is None:
            values[var] = window.buffer.linear_index(window.starts)
        else:
            values[var] = window.strides()[location[1]]
    values = {var: analyzer.simplify(value) for var, value in values.items()}
    body = _on_windows(program, rename_bound(substitute_stmt(impl.body, values)), windows, what)
    names: dict[str, str] = {}
    for block in block_list(body):
        names[block.name] = program.fresh_block_name(block.name, names.values())

    def rename(stmt: Stmt) -> Stmt | None:
        return replace(stmt, name=names[stmt.name]) if isinstance(stmt, Block) else anew(stmt)

    return transform_stmt(body, stmt_fn=rename)


def _check_layout(
    program: Program,
    impl: PrimFunc,
    own: Buffer,
    window: Window,
    analyzer: Analyzer,
    outer: Block,
    what: str,
) -> None:
    """Check the strides and the alignment that an implementation requires if it takes addresses."""
    strides = window.strides()
    if own.strides is None and not escapes(impl.body, own):
        return
    for dim, (needed, found) in enumerate(zip(own.element_strides(), strides, strict=True)):
        if isinstance(needed, Var) or const_value(own.shape[dim]) == 1:
            continue
        if not analyzer.prove_equal(needed, found):
            raise program.error(
                what,
                outer,
                why=f"dim {dim} of {window.buffer.name} has the stride {found}, "
                f"the implementation needs {needed}",
                hint="declare the stride as a parameter of the implementation, or change the layout",
            )
    if own.align > own.dtype.itemsize:
        start = window.buffer.linear_index(window.starts) * own.dtype.itemsize
        if window.buffer.align % own.align or not analyzer.prove_equal(start % own.align, 0):
            why = f"the window of {window.buffer.name} is not known to be aligned to {own.align} bytes"
            raise program.error(what, outer, why=why)


def _on_windows(program: Program, body: Stmt, windows: Mapping[Buffer, Location], what: str) -> Stmt:
    def location(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]] | None:
        window = windows.get(buffer)
        return None if window is None else (window.buffer, window.indices_of(indices))

    def on_region(region: Region) -> Region:
        window = windows.get(region.buffer)
        if window is None:
            return region
        if isinstance(window, Scattered):
            raise program.error(
                what, why=f"the parts of {region.buffer.name} that the implementation reads are no region"
            )
        begins = window.indices_of([r.begin for r in region.ranges])
        extents: list[Expr] = [const(1)] * len(begins)
        for dim, r in zip(window.dims, region.ranges, strict=True):
            if dim is not None:
                extents[dim] = r.extent
        return Region(window.buffer, tuple(map(Range, begins, extents)))

    def on_view(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, View) or stmt.base not in windows:
            return None
        window = windows[stmt.base]
        assert isinstance(window, Window)  # addresses are taken only of windows
        start = window.buffer.linear_index(window.starts) * stmt.base.dtype.itemsize
        if stmt.base.dtype.itemsize % stmt.buffer.dtype.itemsize:
            raise program.error(
                what, why=f"{stmt.buffer.name} is a view of wider elements than {window.buffer.name} has"
            )
        moved = copy_buffer(stmt.buffer)
        moved.offset = stmt.buffer.offset + start // stmt.buffer.dtype.itemsize
        return View(moved, window.buffer, substitute_stmt(stmt.body, {}, {stmt.buffer: moved}))

    return move_accesses(body, location, region=on_region, stmt_fn=on_view)


def _reads(made: Block, intrin: TensorIntrin, match: Match) -> tuple[Region, ...]:
    """Return the declared reads of a block, including its accumulator if calls read it."""
    if not is_opaque(made):
        return made.reads
    declared = {r.buffer for r in made.reads}
    updated = {match.windows[b].buffer for b in read_by(_body_of(intrin.desc)) if b in match.windows}
    missing = [r for r in made.writes if r.buffer in updated and r.buffer not in declared]
    return (*made.reads, *missing)


def _body_of(func: PrimFunc) -> Stmt:
    """The body without the initialisations of its blocks."""

    return transform_each(func.body, Block, lambda block: replace(block, init=None))
