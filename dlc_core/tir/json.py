"""The tensor level as JSON: the kinds of statements and PrimFuncs (see `ir/json.py`)."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, Var
from dlc_core.ir.json import Field, Kind
from dlc_core.tir.stmt import (
    Alloc,
    Block,
    Eval,
    For,
    If,
    IterVar,
    Let,
    PrimFunc,
    Range,
    Region,
    Seq,
    Stmt,
    Store,
    View,
    While,
)


def _one(type_: type, *names: str) -> tuple[Field, ...]:
    return tuple(Field(name, "ref", (type_,)) for name in names)


def _many(type_: type, *names: str) -> tuple[Field, ...]:
    return tuple(Field(name, "refs", (type_,)) for name in names)


def _text(*names: str) -> tuple[Field, ...]:
    return tuple(Field(name, "str") for name in names)


def _attributes(build: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The class with one field of attributes made read-only."""

    def made(**fields: Any) -> Any:
        return build(**{**fields, name: MappingProxyType(dict(fields[name]))})

    return made


TIR_KINDS = (
    Kind("seq", Seq, _many(Stmt, "stmts"), Seq),
    Kind(
        "for",
        For,
        (
            *_one(Var, "var"),
            *_one(Expr, "begin", "extent"),
            *_one(Stmt, "body"),
            *_text("kind", "thread"),
            Field("annotations", "literal"),
        ),
        _attributes(For, "annotations"),
    ),
    Kind("while", While, (*_one(Expr, "cond"), *_one(Stmt, "body")), While),
    Kind("if", If, (*_one(Expr, "cond"), *_one(Stmt, "then"), Field("orelse", "opt", (Stmt,))), If),
    Kind("let", Let, (*_one(Var, "var"), *_one(Expr, "value"), *_one(Stmt, "body")), Let),
    Kind("store", Store, (*_one(Buffer, "buffer"), *_many(Expr, "indices"), *_one(Expr, "value")), Store),
    Kind("eval", Eval, _one(Expr, "value"), Eval),
    Kind("alloc", Alloc, (*_one(Buffer, "buffer"), *_one(Stmt, "body")), Alloc),
    Kind("view", View, (*_one(Buffer, "buffer", "base"), *_one(Stmt, "body")), View),
    Kind("range", Range, _one(Expr, "begin", "extent"), Range),
    Kind("region", Region, (*_one(Buffer, "buffer"), *_many(Range, "ranges")), Region),
    Kind("axis", IterVar, (*_one(Var, "var"), *_one(Range, "dom"), *_text("kind")), IterVar),
    Kind(
        "block",
        Block,
        (
            *_text("name"),
            *_many(IterVar, "axes"),
            *_many(Expr, "values"),
            *_many(Region, "reads", "writes"),
            Field("init", "opt", (Stmt,)),
            *_one(Stmt, "body"),
            *_one(Expr, "predicate"),
            Field("annotations", "literal"),
        ),
        _attributes(Block, "annotations"),
    ),
    Kind(
        "prim_func",
        PrimFunc,
        (
            *_text("name"),
            Field("params", "refs", (Buffer, Var)),
            *_one(Stmt, "body"),
            Field("attrs", "literal"),
            Field("spans", "spans"),
        ),
        _attributes(PrimFunc, "attrs"),
    ),
)
