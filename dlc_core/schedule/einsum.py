"""`pad_einsum`: pad a contraction to whole tiles. Operands are padded with zeros; the padding of the result
is not read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dlc_core.arith.analyzer import Analyzer
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Var,
    ceildiv,
    const,
    const_value,
    load,
    logical_and,
    transform,
)
from dlc_core.schedule.block_axes import plain_nest
from dlc_core.schedule.dependence import check_not_exposed
from dlc_core.schedule.handles import BlockRV
from dlc_core.schedule.regions import read_regions
from dlc_core.schedule.tree import Program
from dlc_core.tir.combine import combination_of
from dlc_core.tir.intrinsics import if_then_else
from dlc_core.tir.stmt import Alloc, Block, IterVar, Range, Region, Stmt, Store, loop, seq


def pad_einsum(program: Program, handle: BlockRV, padding: Sequence[int]) -> list[BlockRV]:
    block = program.block(handle)
    what = f"cannot pad block {block.name!r} to multiples of {list(padding)}"
    if len(padding) != len(block.axes) or any(p < 1 for p in padding):
        raise program.error(
            what, block, why=f"it needs {len(block.axes)} positive numbers, one for each axis"
        )
    store, source = _einsum(program, block, what)
    chain = plain_nest(program, block, what)
    if block not in program.tree.outermost:
        raise program.error(what, block, why="blocks inside other blocks stay where they are")
    if any(axis.dom.begin is not const(0) for axis in block.axes):
        raise program.error(what, block, why="its axes do not begin at 0")
    analyzer = program.analyzer()
    extents: dict[Var, Expr] = {}
    for axis, multiple in zip(block.axes, padding, strict=True):
        extent = analyzer.simplify(ceildiv(axis.dom.extent, multiple) * multiple)
        if not analyzer.prove_equal(extent, axis.dom.extent):
            extents[axis.var] = extent
    if not extents:
        return []
    _check_zeros(program, block, source, extents, what)
    padder = _Padder(program, block, extents, analyzer)
    for buffer in dict.fromkeys(e.buffer for e in _loads(source)):
        check_not_exposed(program, buffer, block, what)
    value = transform(source, padder.padded)
    result = store.buffer
    point = _point(block, store)
    target = padder.result(result, point)
    own = load(result, store.indices)
    assert isinstance(store.value, Binary)
    first = store.value.a is own
    accumulated = load(target, point) + value if first else value + load(target, point)
    assert isinstance(block.init, Store)
    moved = replace(
        block,
        axes=tuple(IterVar(a.var, Range(const(0), padder.extent(a)), a.kind) for a in block.axes),
        writes=(Region.point(target, point),),
        body=Store(target, point, accumulated),
        init=Store(target, point, block.init.value),
    )
    nest: Stmt = replace(moved, reads=read_regions(moved))
    sizes = {v: padder.extent(a) for a, v in zip(block.axes, block.values, strict=True)}
    for stmt in reversed(chain):
        nest = replace(stmt, extent=sizes[stmt.var], body=nest)
    copy = [] if target is result else [padder.copied_back(target, result, point)]
    whole = seq(*padder.fills, nest, *copy)
    for buffer in reversed(padder.allocated):
        whole = Alloc(buffer, whole)
    program.replace({chain[0]: whole})
    return [BlockRV(name) for name in padder.names]


def _einsum(program: Program, block: Block, what: str) -> tuple[Store, Expr]:
    """The update `C[axes] = C[axes] + product` of a block, and the product."""
    found = combination_of(block.body)
    init, store = block.init, block.body
    zero = isinstance(init, Store) and isinstance(init.value, Const) and init.value.value == 0
    if (
        found is None
        or not zero
        or not isinstance(store, Store)
        or not isinstance(store.value, Binary)
        or store.value.op != "add"
    ):
        raise program.error(
            what, block, why="it is no sum from 0", hint="do this before the reduction is decomposed"
        )
    (source,) = found.terms
    axes = {a.var: a for a in block.axes}
    if not _is_product(source):
        raise program.error(what, block, why=f"{source} is no product of elements")
    point = _point(block, store)
    for buffer, indices in ((store.buffer, point), *((e.buffer, e.indices) for e in _loads(source))):
        plain = [i for i in indices if isinstance(i, Var) and i in axes]
        if len(plain) != len(indices) or len(set(plain)) != len(plain):
            shown = f"{buffer.name}[{', '.join(map(str, indices))}]"
            raise program.error(what, block, why=f"the indices of {shown} are not axes, each once")
    if any(axes[i].kind == "reduce" for i in point if isinstance(i, Var)):
        raise program.error(what, block, why="its write index depends on a reduction axis")
    missing = [a.var.name for a in block.axes if a.kind == "spatial" and a.var not in point]
    if missing:
        raise program.error(what, block, why=f"axis {missing[0]} is no index of {store.buffer.name}")
    return store, source


def _point(block: Block, store: Store) -> tuple[Expr, ...]:
    """The indices that a block writes. Axes of one point, which simplify to 0, keep their positions."""
    spatial = (a for a in block.axes if a.kind == "spatial" and a.var not in store.indices)
    single = [a.var for a in spatial if const_value(a.dom.extent) == 1]
    return tuple(single.pop(0) if const_value(i) == 0 and single else i for i in store.indices)


def _is_product(e: Expr) -> bool:
    if isinstance(e, Binary):
        return e.op == "mul" and _is_product(e.a) and _is_product(e.b)
    return isinstance(e, Load) or (isinstance(e, Cast) and _is_product(e.a))


def _loads(e: Expr) -> Iterator[Load]:
    if isinstance(e, Load):
        yield e
    else:
        for child in e.children:
            yield from _loads(child)


def _check_zeros(program: Program, block: Block, source: Expr, extents: dict[Var, Expr], what: str) -> None:
    """Check that the padded steps of a reduction add zero.

    Integers always do.  For floats, the axis must index every factor, because 0 · inf is NaN.
    """
    for axis in block.axes:
        if axis.kind == "spatial" or axis.var not in extents or not source.dtype.is_float:
            continue
        without = [e for e in _loads(source) if axis.var not in e.indices]
        if without:
            raise program.error(
                what,
                block,
                why=f"axis {axis.var.name} does not index {without[0].buffer.name}: "
                "zero times infinity would be added",
                hint="give that axis the multiple 1",
            )


class _Padder:
    """Makes the padded buffers, and the blocks that copy to and from them."""

    def __init__(self, program: Program, block: Block, extents: dict[Var, Expr], analyzer: Analyzer) -> None:
        self.program = program
        self.analyzer = analyzer
        self.axes = {a.var: a for a in block.axes}
        self.extents = extents
        self.made: dict[tuple[Buffer, tuple[Expr, ...]], Buffer] = {}
        self.fills: list[Stmt] = []
        self.allocated: list[Buffer] = []
        self.names: list[str] = []

    def extent(self, axis: IterVar) -> Expr:
        return self.extents.get(axis.var, axis.dom.extent)

    def _name(self, base: str) -> str:
        self.names.append(self.program.fresh_block_name(base, self.names))
        return self.names[-1]

    def padded(self, e: Expr) -> Expr | None:
        if not isinstance(e, Load) or not any(i in self.extents for i in e.indices):
            return None
        axes = [self.axes[i] for i in e.indices if isinstance(i, Var)]
        key = (e.buffer, e.indices)
        if key not in self.made:
            larger = Buffer(f"{e.buffer.name}_pad", [self.extent(a) for a in axes], e.buffer.dtype)
            self.made[key] = larger
            self.allocated.append(larger)
            self.fills.append(self._fill(e.buffer, larger, axes))
        return load(self.made[key], e.indices)

    def _fill(self, source: Buffer, larger: Buffer, axes: Sequence[IterVar]) -> Stmt:
        fresh = [Var(f"v_i{d}") for d in range(len(axes))]
        inside = logical_and(
            *(v < a.dom.extent for v, a in zip(fresh, axes, strict=True) if a.var in self.extents)
        )
        value = if_then_else(inside, source[tuple(fresh)], const(0, source.dtype))
        domains = [self.extent(a) for a in axes]
        return self._nest(larger.name, fresh, domains, Store(larger, tuple(fresh), value))

    def result(self, buffer: Buffer, point: Sequence[Expr]) -> Buffer:
        """The buffer that the padded block writes: the same one if only reductions are padded."""
        if not any(i in self.extents for i in point):
            return buffer
        shape = [self.extent(self.axes[i]) for i in point if isinstance(i, Var)]
        self.allocated.append(Buffer(f"{buffer.name}_pad", shape, buffer.dtype))
        return self.allocated[-1]

    def copied_back(self, source: Buffer, target: Buffer, point: Sequence[Expr]) -> Stmt:
        fresh = [Var(f"v_i{d}") for d in range(len(point))]
        domains = [self.axes[i].dom.extent for i in point if isinstance(i, Var)]
        store = Store(target, tuple(fresh), source[tuple(fresh)])
        return self._nest(f"{target.name}_cut", fresh, domains, store)

    def _nest(self, name: str, axes: Sequence[Var], sizes: Sequence[Expr], store: Store) -> Stmt:
        loops = [Var(v.name.removeprefix("v_")) for v in axes]
        block = Block(
            self._name(name),
            tuple(IterVar(v, Range(const(0), size)) for v, size in zip(axes, sizes, strict=True)),
            tuple(loops),
            (),
            (Region.point(store.buffer, store.indices),),
            store,
        )
        nest: Stmt = replace(block, reads=read_regions(block))
        for var, size in reversed(list(zip(loops, sizes, strict=True))):
            nest = loop(var, size, nest)
        return nest


__all__ = ["pad_einsum"]
