"""PrimFuncs as the reference of the graph nodes that call them: what `evaluate(call_prim=...)` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlc_core.arith import eval_expr
from dlc_core.graph.node import Function
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType, TupleType, Type
from dlc_core.op.reference import Value, evaluate
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import PrimFunc

Array = np.ndarray[Any, Any]


class KernelRunner:
    """Runs the PrimFuncs of a module by the interpreter, at any stage of their lowering, and its graphs.

    `check` reports reads of undefined memory and conflicts between parallel iterations.
    """

    def __init__(self, module: IRModule, *, check: bool = False) -> None:
        self._module = module
        self._check = check

    def __call__(self, symbol: str, args: Sequence[Array], dims: Sequence[int], type_: Type) -> Value:
        func: PrimFunc | Function = self._module[symbol]
        if isinstance(func, Function):
            return evaluate(func, args, call_prim=self)
        env = dict(zip(func.scalars, dims, strict=True))
        layouts: Mapping[int, Any] = func.attrs.get("repack", {})
        given = [layouts[i].apply_numpy(a) if i in layouts else a for i, a in enumerate(args)]
        inputs = [np.ascontiguousarray(a).reshape(_shape(b, env)) for a, b in zip(given, func.buffers)]
        made = [np.empty(_shape(b, env), b.dtype.numpy) for b in func.buffers[len(inputs) :]]
        run(func, *inputs, *made, *dims, module=self._module, check=self._check)
        types = type_.fields if isinstance(type_, TupleType) else (type_,)
        results = tuple(a.reshape(_known(t)) for a, t in zip(made, types))
        return results[0] if isinstance(type_, TensorType) else results


def _shape(buffer: Buffer, env: Mapping[Var, int]) -> tuple[int, ...]:
    return tuple(eval_expr(dim, env) for dim in buffer.shape)


def _known(type_: Type) -> tuple[int, ...]:
    assert isinstance(type_, TensorType)
    shape = type_.static_shape()
    assert shape is not None
    return shape


__all__ = ["KernelRunner"]
