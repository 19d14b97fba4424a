"""Single operators as modules: a graph that calls one PrimFunc, so that they take the way of a
model from there on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from dlc_core.diag import UsageError
from dlc_core.graph.node import CALL_PRIM, Function, get_item, make_tuple, node, param
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType, TupleType, tensor_type
from dlc_core.schedule import Schedule
from dlc_core.te import Tensor, create_prim_func
from dlc_core.tir.functor import block_list, buffers_written, stmts
from dlc_core.tir.stmt import For, PrimFunc

KERNEL = "kernel"
"""What a program is called whose own name is the entry's."""


def single_module(subject: Any) -> IRModule:
    """A module whose entry calls a PrimFunc: that given, that of a Schedule, of a module, or made of tensors.

    Tensors (te) are given from the inputs to the outputs.  Raises UsageError where the buffers that the
    program writes do not come last.
    """
    if isinstance(subject, IRModule):
        kernels: dict[str, PrimFunc] = subject.of_kind(PrimFunc)
        if not kernels:
            raise UsageError("the module has no PrimFunc", hint="dlc.compile takes graphs")
        name = subject.entry if subject.entry in kernels else next(iter(kernels))
        if len(kernels) > 1 and name != subject.entry:
            raise UsageError(f"which of {', '.join(kernels)} is to be called?", hint="set the module's entry")
        func, rest = kernels[name], {n: f for n, f in kernels.items() if n != name}
    elif isinstance(subject, Schedule):
        func, rest = _scheduled(subject.func), {}
    elif isinstance(subject, PrimFunc):
        func, rest = subject, {}
    elif isinstance(subject, Sequence) and subject and all(isinstance(t, Tensor) for t in subject):
        func, rest = _of_tensors(subject), {}
    else:
        raise UsageError(
            f"a {type(subject).__name__} cannot be built",
            hint="give a PrimFunc, a Schedule, an IRModule of PrimFuncs, or tensors from inputs to outputs",
        )
    if _is_scheduled(func):
        func = _scheduled(func)
    if func.name == "main":
        func = replace(func, name=KERNEL)
    return IRModule({"main": _caller(func), func.name: func, **rest})


def _of_tensors(tensors: Sequence[Tensor]) -> PrimFunc:
    inputs = [t for t in tensors if t.op is None]
    outputs = [t for t in tensors if t.op is not None]
    if not outputs:
        raise UsageError("none of the tensors is computed", hint="give the outputs after the inputs")
    return create_prim_func(inputs, outputs, KERNEL)


def _is_scheduled(func: PrimFunc) -> bool:
    """Whether somebody has chosen how the loops run, so that no rule may choose again."""
    serial = all(s.kind == "serial" for s in stmts(func.body) if isinstance(s, For))
    return not serial or not block_list(func.body)


def _scheduled(func: PrimFunc) -> PrimFunc:
    return replace(func, attrs=MappingProxyType({**func.attrs, "scheduled": True}))


def _caller(func: PrimFunc) -> Function:
    """The graph that calls a program on its inputs."""
    buffers = list(func.buffers)
    workspaces = buffers[len(buffers) - func.attrs.get("workspaces", 0) :]
    buffers = buffers[: len(buffers) - len(workspaces)]
    written = set(buffers_written(func.body))
    inputs = [b for b in buffers if b not in written]
    outputs = buffers[len(inputs) :]
    if not outputs:
        raise UsageError(f"program {func.name!r} writes none of its buffers")
    if any(b in written for b in buffers[: len(inputs)]):
        names = ", ".join(b.name for b in buffers if b in written)
        raise UsageError(
            f"the buffers that {func.name!r} writes do not come last", details=[f"it writes {names}"]
        )
    params = [param(b.name, _type(b)) for b in inputs]
    types = tuple(_type(b) for b in outputs)
    attrs = {"symbol": func.name, "dims": func.scalars}
    type_ = types[0] if len(types) == 1 else TupleType(types)
    call = node(CALL_PRIM, params, attrs, type_)
    call.add_spans(func.spans)
    body = call if len(types) == 1 else make_tuple([get_item(call, i) for i in range(len(types))])
    public = {"inputs": tuple(b.name for b in inputs), "outputs": tuple(b.name for b in outputs)}
    return Function("main", tuple(params), body, MappingProxyType(public))


def _type(buffer: Buffer) -> TensorType:
    return tensor_type(buffer.shape, buffer.dtype)


__all__ = ["single_module"]
