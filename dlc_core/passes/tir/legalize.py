"""Express dtypes that a machine does not support by dtypes that it supports.

Narrow floats are stored as the bits of unsigned integers. They are computed in float32, and each result is
rounded to the narrow type, as the interpreter does. Integers below a byte are stored and computed in bytes,
and wrapped after each operation. Declared dtypes (`ir/dtype_decl.py`) are stored as their codes. They are
computed in float32 or int32, and each result is rounded by the declaration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from dlc_core.ir.declared import declared_dtypes
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.expr import (
    Expr,
    post_order,
)
from dlc_core.op.narrow_floats import NARROW_FLOATS
from dlc_core.passes.base import PassContext
from dlc_core.passes.tir.base import PrimFuncPass
from dlc_core.passes.tir.dtype_walker import LegalDtypes
from dlc_core.passes.tir.native_dtypes import NativeDtypes
from dlc_core.support.record import record
from dlc_core.tir.functor import exprs_of, stmts
from dlc_core.tir.stmt import Alloc, PrimFunc, View

SMALL_INTS = ("int4", "uint4", "int2", "uint2")
LEGAL = (*NARROW_FLOATS, *SMALL_INTS)
"""The dtypes that can be expressed by others."""


def legalize_dtypes(func: PrimFunc, native: Sequence[str], target: str = "") -> PrimFunc:
    """Rewrite a program to the dtypes of `native`, as far as other dtypes can be expressed by these.

    No `native` dtypes are all dtypes of the core, and no declared ones. Parameters keep their bytes: a buffer
    of a narrow dtype becomes one of unsigned integers of its width. Raises UnsupportedError for a parameter
    by value of such a dtype, and for arithmetic in a declared dtype that is not emulated; `target` is a text
    for that message.
    """
    narrow = {dtype(name) for name in LEGAL if name not in native} if native else set()
    return _legalized(func, narrow, native, target)


def legalize_declared(func: PrimFunc, native: Sequence[str]) -> PrimFunc:
    """Rewrite a program without the declared dtypes that `native` does not have. Other dtypes stay."""
    return _legalized(func, set(), native, "") if declared_dtypes() else func


def _legalized(func: PrimFunc, narrow: set[DType], native: Sequence[str], target: str) -> PrimFunc:
    found = _dtypes(func)
    own = {t for t in found if t.decl is not None and t.name in native}
    if own:
        body = NativeDtypes(func, own).stmt(func.body)
        func = func if body is func.body else replace(func, body=body)
    unsupported = narrow | {t for t in found if t.decl is not None and t.name not in native}
    if not any(t in unsupported for t in found):
        return func
    walker = LegalDtypes(func, unsupported, target)
    params = tuple(walker.parameter(p) for p in func.params)
    return replace(func, params=params, body=walker.stmt(func.body))


def _dtypes(func: PrimFunc) -> set[DType]:
    """Return the element types that a program stores or computes."""
    found = {p.dtype.scalar for p in func.params}
    roots: list[Expr] = []
    for s in stmts(func.body):
        if isinstance(s, (Alloc, View)):
            found.add(s.buffer.dtype)
        roots += exprs_of(s)
    found.update({e.dtype for e in post_order(*roots)})
    return {t.scalar for t in found}


@record(frozen=True)
class LegalizeDtypes(PrimFuncPass):
    """Express unsupported dtypes by supported ones: narrow floats by float32 and bits, integers below a byte
    by bytes.

    `native` names the supported dtypes. If it is empty, they are those of the target's description; if that
    lists none, all dtypes of the core are supported.

    Before:

        @T.prim_func
        def f(A: T.Buffer((8,), "int4"), B: T.Buffer((8,), "int4")):
            for i in range(8):
                B[i] = A[i] + A[i]

    After legalize_dtypes{native=("int8",)}:

        @T.prim_func
        def f(A: T.Buffer((8,), "uint8"), B: T.Buffer((8,), "uint8")):
            for i in range(8):
                e = T.expr(T.cast(A[i], "int8") << T.int8(4) >> T.int8(4))
                B[i] = T.cast(e + e << T.int8(4) >> T.int8(4), "uint8") & T.uint8(15)
    """

    name: ClassVar[str] = "legalize_dtypes"
    native: tuple[str, ...] = ()

    def run_function(self, func: PrimFunc, context: PassContext) -> PrimFunc:
        native = self.native
        if not native and context.target is not None:
            native = context.target.describe().dtypes
        if not native and not declared_dtypes():
            return func
        target = "" if context.target is None else str(context.target)
        return legalize_dtypes(func, native, target)


__all__ = ["LEGAL", "LegalizeDtypes", "legalize_declared", "legalize_dtypes"]
