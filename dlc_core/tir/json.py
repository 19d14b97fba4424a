"""The tensor level as JSON: the kinds (see `ir/json.py`) of statements and PrimFuncs, derived from fields.

A field that is a value of the IR becomes a reference, a tuple of these a list of references, and a string
itself. All other fields are attribute values. Mappings are read-only after reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from types import MappingProxyType, NoneType
from typing import Any, get_args, get_origin, get_type_hints

from dlc_core.diag import Span
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr
from dlc_core.ir.json import Field, Kind
from dlc_core.tir.axes import IterVar, Range, Region
from dlc_core.tir.grammar import STATEMENTS, Stmt
from dlc_core.tir.stmt import PrimFunc

_NAMES: Mapping[type, str] = {IterVar: "axis", PrimFunc: "prim_func"}
"""Names of records that are not the class's name in lower case."""


def tir_kinds() -> tuple[Kind, ...]:
    """The serialised kinds of all statement classes, of their parts and of PrimFuncs."""
    return tuple(map(_kind, (*STATEMENTS, Range, Region, IterVar, PrimFunc)))


@cache
def _kind(cls: type) -> Kind:
    hints = get_type_hints(cls)
    found = tuple(_field(f.name, hints[f.name]) for f in fields(cls))
    mappings = [f.name for f in found if get_origin(hints[f.name]) is Mapping]

    def build(**given: Any) -> Any:
        for name in mappings:
            given[name] = MappingProxyType(dict(given[name]))
        return cls(**given)

    return Kind(_NAMES.get(cls, cls.__name__.lower()), cls, found, build)


def _field(name: str, hint: Any) -> Field:
    if hint is str:
        return Field(name, "str")
    if hint == tuple[Span, ...]:
        return Field(name, "spans")
    many = get_origin(hint) is tuple
    types = get_args(hint)[:1] if many else (hint,)
    types = get_args(types[0]) or types
    required = tuple(t for t in types if t is not NoneType)
    if not all(isinstance(t, type) and issubclass(t, _RECORDED) for t in required):
        return Field(name, "literal")
    return Field(name, "refs" if many else "ref" if required == types else "opt", required)


_RECORDED = (Stmt, Expr, Buffer, Range, Region, IterVar)
"""Types of values that have their own records."""
