from __future__ import annotations

from dataclasses import replace

import pytest

from dlc_core import te
from dlc_core.diag import UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Binary, Expr, ExprLike, Load, Var, as_expr, binary, const, load, ramp
from dlc_core.tir.functor import (
    allocations,
    block_list,
    buffers_read,
    buffers_written,
    copy_func,
    free_buffers,
    free_vars_stmt,
    loads_in,
    move_accesses,
    rename_bound,
    specialize,
    stmts,
    stmts_of,
    stores_in,
    substitute_stmt,
    transform_each,
    transform_stmt,
    walk,
)
from dlc_core.tir.intrinsics import call_kernel, intrinsic
from dlc_core.tir.stmt import (
    Alloc,
    Block,
    Eval,
    For,
    If,
    Let,
    PrimFunc,
    Range,
    Region,
    Seq,
    Stmt,
    Store,
    View,
    While,
    loop,
    seq,
    store,
)


def matmul() -> tuple[PrimFunc, Var]:
    n = Var("n")
    a = te.placeholder((n, 16), name="A")
    b = te.placeholder((16, 8), name="B")
    k = te.reduce_axis(16, "k")
    c = te.compute((n, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((n, 8), lambda i, j: c[i, j] + 1.0, name="D")
    return te.create_prim_func([a, b], [d], producers=[c]), n


def test_walk_sees_outer_before_inner_and_skips_on_false() -> None:
    func, _ = matmul()
    seen: list[str] = []
    left: list[str] = []
    walk(func.body, lambda s: seen.append(type(s).__name__), after=lambda s: left.append(type(s).__name__))
    assert seen[:4] == ["Alloc", "Seq", "For", "For"]
    assert sorted(seen) == sorted(left)
    assert left[-1] == "Alloc"
    blocks: list[Stmt] = []
    walk(func.body, lambda s: not isinstance(s, Seq) or blocks.append(s) is not None)
    assert len(blocks) == 1


def test_walk_yields_every_subexpression_once_per_statement() -> None:
    i = Var("i")
    buffer = Buffer("A", (8,))
    value = buffer[i] * buffer[i]
    seen: list[Expr] = []
    walk(store(buffer, (i,), value), on_expr=seen.append)
    assert seen == [i, buffer[i], value]


def test_queries() -> None:
    func, n = matmul()
    a, b, d = func.buffers
    (c,) = allocations(func.body)
    assert free_buffers(func.body) == [a, b, d]
    assert free_vars_stmt(func.body) == [n]
    assert set(buffers_read(func.body)) == {a, b, c}
    assert buffers_written(func.body) == [c, d]
    assert [block.name for block in block_list(func.body)] == ["C", "D"]
    assert [s.buffer for s in stores_in(func.body)] == [c, c, d]


def test_an_address_counts_as_read_and_written() -> None:
    a, b = Buffer("A", (4,)), Buffer("B", (4,))
    body = Eval(call_kernel("k", a, b, 3))
    assert buffers_read(body) == [a, b]
    assert buffers_written(body) == [a, b]


def test_transform_keeps_unchanged_statements() -> None:
    func, _ = matmul()
    assert transform_stmt(func.body) is func.body
    assert transform_stmt(func.body, stmt_fn=lambda s: None, expr_fn=lambda e: None) is func.body


def test_transform_replaces_and_removes() -> None:
    func, _ = matmul()

    def no_stores(s: Stmt) -> Stmt | None:
        return Seq(()) if isinstance(s, Store) and isinstance(s.value, Binary) else None

    assert len(stores_in(transform_stmt(func.body, stmt_fn=no_stores))) == 1

    def halve(e: Expr) -> Expr | None:
        return const(0.5, "float32") if e is const(1.0, "float32") else None

    changed = transform_stmt(func.body, expr_fn=halve)
    assert "0.5" in str(stores_in(changed)[-1].value)


def test_substitute_renews_allocations_and_specialize_drops_the_parameter() -> None:
    func, n = matmul()
    fixed = specialize(func, {n: 32})
    assert free_vars_stmt(fixed.body) == []
    assert [b.static_shape() for b in fixed.buffers] == [(32, 16), (16, 8), (32, 8)]
    assert allocations(fixed.body)[0].static_shape() == (32, 8)
    assert not fixed.scalars
    with pytest.raises(UsageError, match="not a by-value parameter"):
        specialize(func, {Var("m"): 1})


def test_substitute_replaces_buffers_everywhere() -> None:
    a, b, view = Buffer("A", (8,)), Buffer("B", (8,)), Buffer("V", (4,))
    i = Var("i")
    body = View(view, a, loop(i, 4, seq(store(a, (i,), view[i]), store(view, (i,), a[i]))))
    moved = substitute_stmt(body, {}, {a: b})
    assert isinstance(moved, View)
    assert moved.base is b
    assert free_buffers(moved) == [b]


def test_rename_bound_makes_all_bound_names_fresh() -> None:
    func, n = matmul()
    copy = rename_bound(func.body)
    assert free_vars_stmt(copy) == [n]
    assert not set(allocations(copy)) & set(allocations(func.body))
    mine = {axis.var for block in block_list(func.body) for axis in block.axes}
    theirs = {axis.var for block in block_list(copy) for axis in block.axes}
    assert not mine & theirs
    assert len(theirs) == len(mine)


def test_copy_func_makes_fresh_parameters_variables_and_buffers() -> None:
    func, _ = matmul()
    copy = copy_func(func, "other")
    assert copy.name == "other"
    assert not set(copy.params) & set(func.params)
    assert free_vars_stmt(copy.body) == list(copy.scalars)
    assert free_buffers(copy.body) == list(copy.buffers)


def test_every_statement_kind_rebuilds() -> None:
    a, x, i, s = Buffer("A", (8,)), Var("x", "float32"), Var("i"), Buffer("S", (1,), scope="local")
    body = Alloc(
        s,
        Let(
            x,
            a[0],
            seq(
                While(a[0] < 3.0, store(a, (0,), a[0] + x)),
                If(x > 0.0, store(s, (0,), x), loop(i, 8, store(a, (ramp(i, 1, 1),), x))),
                Eval(call_kernel("k", s)),
            ),
        ),
    )
    kinds = {type(st) for st in stmts(body)}
    assert kinds == {Alloc, Let, Seq, While, If, For, Store, Eval}
    y = Var("y", "float32")
    renamed = substitute_stmt(body, {x: y})
    assert isinstance(renamed, Alloc)
    assert isinstance(renamed.body, Let)
    assert renamed.body.var is y
    assert x not in free_vars_stmt(renamed)


def test_deep_chains_do_not_recurse() -> None:
    body: Stmt = Seq(())
    for k in range(5000):
        body = Alloc(Buffer(f"b{k}", (1,)), body)
    assert len(list(stmts(body))) == 5001
    copy = rename_bound(body)
    assert len(allocations(copy)) == 5000


def test_lane_reductions_stay_scalar_when_rebuilt() -> None:
    a, i, j = Buffer("A", (64,)), Var("i"), Var("j")
    total = intrinsic("vector_reduce_add", a[ramp(i, 1, 8)])
    body = substitute_stmt(store(a, (0,), total), {i: binary("add", j, as_expr(1))})
    assert isinstance(body, Store)
    assert body.value.dtype.lanes == 1
    assert isinstance(loads_in(body.value)[0], Load)


def test_statements_of_one_class_are_found_and_rebuilt() -> None:
    func, _ = matmul()
    loops = [stmt for stmt in stmts(func.body) if isinstance(stmt, For)]
    assert list(stmts_of(func.body, For)) == loops
    changed = transform_each(func.body, For, lambda one: replace(one, kind="parallel"))
    assert [one.kind for one in stmts_of(changed, For)] == ["parallel"] * len(loops)
    assert transform_each(func.body, View, lambda _: Seq(())) is func.body


def test_accesses_move_with_their_regions() -> None:
    old, new, i = Buffer("old", (4,)), Buffer("new", (2, 4)), Var("i")
    body = Block("b", (), (), (point(old, i),), (point(old, i),), store(old, [i], load(old, [i]) + 1.0))
    moved = move_accesses(
        loop(i, 4, body),
        lambda buffer, at: (new, (const(1), *at)) if buffer is old else None,
        region=lambda region: point(new, 1, i),
    )
    (block,) = block_list(moved)
    assert free_buffers(moved) == [new]
    assert [region.buffer for region in (*block.reads, *block.writes)] == [new, new]
    assert [str(index) for index in stores_in(moved)[0].indices] == ["1", "i"]
    kept = move_accesses(loop(i, 4, body.body), lambda *_: None)
    assert stores_in(kept) == stores_in(body.body)


def point(buffer: Buffer, *at: ExprLike) -> Region:
    return Region(buffer, tuple(Range(as_expr(i), const(1)) for i in at))
