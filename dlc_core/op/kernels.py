"""`KernelRunner`: interprets the PrimFuncs that graph nodes call, for `evaluate(call_prim=...)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlc_core.arith import eval_expr
from dlc_core.diag import RuntimeFailure
from dlc_core.foreign.resolve import Externs
from dlc_core.graph.node import Function
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType, TupleType, Type, tensor_type
from dlc_core.op.depth import nested_call
from dlc_core.op.reference import Value, evaluate
from dlc_core.tir.failures import CHECKS, SITE, parameters_of
from dlc_core.tir.interface import bind_dims
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.updates import IN_PLACE

Array = np.ndarray[Any, Any]


WINDOWS = "windows"
"""Attribute of PrimFuncs: the strides, in elements, of parameters that are strided views of other memory."""


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
            return nested_call(symbol, lambda: evaluate(func, args, call_prim=self))
        checked = parameters_of(func) is not None
        if not checked and len(dims) < len(func.scalars):  # a call before `resolve_calls`
            given_types = [tensor_type(a.shape, b.dtype) for a, b in zip(args, func.buffers)]
            dims = [eval_expr(size, {}) for size in bind_dims(func, given_types, dims).values()]
        sizes = (*dims, SITE) if checked else tuple(dims)
        env = dict(zip(func.scalars, sizes, strict=True))
        layouts: Mapping[int, Any] = func.attrs.get("repack", {})
        given = [layouts[i].apply_numpy(a) if i in layouts else a for i, a in enumerate(args)]
        windows: Mapping[int, tuple[int, ...]] = func.attrs.get(WINDOWS, {})
        inputs = [
            _strided_memory(a, windows[i])
            if i in windows
            else np.ascontiguousarray(a).reshape(_shape(b, env))
            for i, (a, b) in enumerate(zip(given, func.buffers))
        ]
        types = type_.fields if isinstance(type_, TupleType) else (type_,)
        made: list[Array] = []
        for index, buffer in enumerate(func.buffers[len(inputs) :]):
            if len(inputs) + index in windows:
                zeros = np.zeros(_static_shape(types[index]), buffer.dtype.numpy)
                made.append(_strided_memory(zeros, windows[len(inputs) + index]))
            else:
                made.append(np.empty(_shape(buffer, env), buffer.dtype.numpy))
        for source, output in func.attrs.get(IN_PLACE, ()):
            made[output - len(inputs)][...] = inputs[source].reshape(made[output - len(inputs)].shape)
        if checked:
            made[-1][:] = 0
        run(func, *inputs, *made, *sizes, module=self._module, externs=Externs(), check=self._check)
        if checked and made[-1][0]:
            code, index, extent = (int(number) for number in made[-1][:3])
            why = func.attrs[CHECKS].get(code - SITE, "")
            raise RuntimeFailure(f"index {index} of {extent} elements", why=why, details=[f"in {symbol}"])
        results = tuple(
            _window(a, _static_shape(t), windows[i]) if i in windows else a.reshape(_static_shape(t))
            for i, (a, t) in enumerate(zip(made, types), len(inputs))
        )
        return results[0] if isinstance(type_, TensorType) else results


def _strided_memory(array: Array, strides: tuple[int, ...]) -> Array:
    """Copy an array into flat memory with the given strides, in elements."""
    extent = sum((size - 1) * step for size, step in zip(array.shape, strides, strict=True)) + 1
    memory = np.zeros(extent if array.size else 0, array.dtype)
    _window(memory, array.shape, strides)[...] = array
    return memory


def _window(memory: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    return np.lib.stride_tricks.as_strided(memory, shape, [step * memory.itemsize for step in strides])


def _shape(buffer: Buffer, env: Mapping[Var, int]) -> tuple[int, ...]:
    return tuple(eval_expr(dim, env) for dim in buffer.shape)


def _static_shape(type_: Type) -> tuple[int, ...]:
    assert isinstance(type_, TensorType)
    shape = type_.static_shape()
    assert shape is not None
    return shape


__all__ = ["WINDOWS", "KernelRunner"]
