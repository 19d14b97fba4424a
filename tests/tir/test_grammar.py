"""Tests of the methods that are derived from the fields of statement classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any

import pytest

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var, const, transform
from dlc_core.ir.structural import structural_equal, structural_hash
from dlc_core.script.json import from_json, to_json
from dlc_core.testing.programs import random_prim_func
from dlc_core.tir.functor import (
    child_stmts,
    exprs_of,
    free_buffers,
    free_vars_stmt,
    rename_bound,
    stmts,
    substitute_stmt,
    transform_stmt,
    with_children,
)
from dlc_core.tir.grammar import BINDS, FIRST, STATEMENTS, Stmt
from dlc_core.tir.stmt import Eval, IterVar, Region, Store, seq


@pytest.fixture
def attempt():
    """A statement class of a third party."""

    @dataclass(frozen=True, eq=False)
    class Attempt(Stmt):
        var: Var
        limit: Expr
        args: tuple[Expr, ...]
        source: Buffer
        scratch: Annotated[Buffer, BINDS]
        body: Stmt
        cases: tuple[Stmt, ...] = ()
        before: Annotated[Stmt | None, FIRST] = None
        label: str = ""
        notes: Mapping[str, Any] = field(default_factory=dict)

    yield Attempt
    STATEMENTS.remove(Attempt)


def make(cls: Any, limit: Expr, n: Var) -> tuple[Any, list[Stmt]]:
    i, out = Var("i"), Buffer("out", (8,), "int64")
    scratch = Buffer("scratch", (n, 4))
    parts: list[Stmt] = [Store(out, (const(k),), i + k) for k in range(4)]
    before, body, *cases = parts
    made = cls(i, limit, (n, i + 1), out, scratch, body, tuple(cases), before, "try", {"deep": 1})
    return made, parts


def test_a_new_class_has_children_expressions_and_bound_names(attempt):
    n = Var("n")
    made, parts = make(attempt, n * 2, n)
    assert child_stmts(made) == tuple(parts)
    assert list(stmts(made)) == [made, *parts]
    shape = made.scratch.shape
    assert exprs_of(made) == (n * 2, n, made.var + 1, *shape, made.scratch.offset)
    assert made.bound_vars() == (made.var,)
    assert made.bound_buffers() == (made.scratch,)
    assert made.accessed_buffers() == (made.source,)
    assert free_vars_stmt(made) == [n]
    assert free_buffers(made) == [made.source]
    assert child_stmts(replace(made, before=None)) == tuple(parts[1:])


def test_a_new_class_is_rebuilt(attempt):
    n = Var("n")
    made, parts = make(attempt, n * 2, n)
    assert with_children(made, parts) is made
    assert transform_stmt(made, expr_fn=lambda e: None) is made
    other = with_children(made, [Eval(const(k)) for k in range(4)])
    assert [s.value.value for s in child_stmts(other)] == [0, 1, 2, 3]
    assert (other.label, other.notes, other.limit) == (made.label, made.notes, made.limit)
    moved = substitute_stmt(made, {n: const(5)})
    assert moved.limit is const(10)
    assert moved.scratch is not made.scratch
    assert moved.scratch.shape[0] is const(5)
    fresh = rename_bound(made)
    assert fresh.var is not made.var
    assert structural_equal(made, fresh)


def test_a_new_class_is_compared_hashed_and_written(attempt):
    n = Var("n")
    made, _ = make(attempt, n * 2, n)
    again, _ = make(attempt, n * 2, n)
    other, _ = make(attempt, n * 3, n)
    assert structural_equal(made, again)
    assert structural_hash(made) == structural_hash(again)
    assert not structural_equal(made, other)
    assert structural_hash(made) != structural_hash(other)
    assert structural_equal(from_json(to_json(made)), made)


def parts_by_value(stmt: Stmt, cls: type) -> list[Any]:
    """The values of a class in the fields and their tuples, found without the declarations."""
    found = []
    for f in fields(stmt):
        value = getattr(stmt, f.name)
        found += [item for item in (value if isinstance(value, tuple) else (value,)) if isinstance(item, cls)]
    return found


@pytest.mark.parametrize("seed", range(12))
def test_derived_methods_see_every_part_of_random_programs(seed):
    body = random_prim_func(seed).body
    for stmt in stmts(body):
        assert set(child_stmts(stmt)) == set(parts_by_value(stmt, Stmt))
        axes = parts_by_value(stmt, IterVar)
        bound = [axis.var for axis in axes] + [getattr(stmt, f.name) for f in fields(stmt) if f.type == "Var"]
        assert set(stmt.bound_vars()) == set(bound)
        plain = [e for e in parts_by_value(stmt, Expr) if e not in bound]
        assert set(plain) <= set(stmt.exprs())
        assert list(stmt.regions()) == parts_by_value(stmt, Region)
        assert set(stmt.bound_buffers() + stmt.accessed_buffers()) == set(parts_by_value(stmt, Buffer))
        assert with_children(stmt, child_stmts(stmt)) is stmt
        copied = replace(stmt)
        assert structural_equal(stmt, copied)
        assert transform_stmt(copied, expr_fn=lambda e: transform(e, lambda x: None)) is copied
    assert structural_equal(from_json(to_json(body)), body)


def test_every_class_derives_each_method():
    derived = [name for name in vars(Stmt) if not name.startswith("_")]
    assert len(derived) == 7
    assert len(STATEMENTS) >= 10
    for cls in STATEMENTS:
        assert all(name in vars(cls) for name in derived), cls


def test_a_sequence_stays_flat():
    inner = seq(Eval(const(1)), Eval(const(2)))
    outer = seq(Eval(const(0)), Eval(const(3)))
    assert len(child_stmts(with_children(outer, [inner, Eval(const(3))]))) == 3
