"""Single operators as modules: a graph that calls one PrimFunc, which then compiles like a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from dlc_core import te
from dlc_core.diag import UsageError
from dlc_core.graph.dims import CONDITIONS
from dlc_core.graph.node import CALL_PRIM, Function, Node, get_item, make_tuple, node, param
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var, free_vars
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType, TupleType, tensor_type
from dlc_core.passes.graph.check_module import check_program
from dlc_core.passes.lower.describe import ARGUMENTS
from dlc_core.passes.lower.names import unique_name
from dlc_core.schedule import Schedule, StagedSchedule
from dlc_core.te.divide import Part, divide
from dlc_core.tir.attributes import stated
from dlc_core.tir.calls import called_kernels
from dlc_core.tir.functor import buffers_written
from dlc_core.tir.interface import interface_of, is_scheduled
from dlc_core.tir.stmt import EMPTY, PrimFunc

ENTRY, KERNEL = "main", "kernel"
"""The name of the entry, and of a program whose own name is the entry's."""


def single_module(subject: Any, args: Sequence[te.Argument] | None = None) -> IRModule:
    """Make a module whose entry calls a PrimFunc: the result of `prim_func`, or one in a module.

    A program in a Schedule keeps that schedule. If there are several PrimFuncs, each one that no other calls
    gets its own entry. The module's attribute `entries` has the names of PrimFuncs and of their entries.
    Raises UsageError if the buffers that a program writes are not its last ones.
    """
    if isinstance(subject, IRModule):
        _no_arguments(subject, args)
        return _of_module(subject)
    if isinstance(subject, Schedule):
        _no_arguments(subject, args)
        return _of_module(scheduled_module(subject))
    func = _kernel(prim_func(subject, args))
    written_order = func.buffers
    if not isinstance(subject, PrimFunc):
        func = _outputs_last(func)
    parts = [] if isinstance(subject, (PrimFunc, StagedSchedule)) else _parts(func)
    if parts:
        return _divided(parts, _caller(func, written_order), func)
    named = {"entries": {subject.name: ENTRY}} if isinstance(subject, PrimFunc) else {}
    return IRModule({ENTRY: _caller(func, written_order), func.name: _unconditional(func)}, named)


def _parts(func: PrimFunc) -> list[Part]:
    """The kernels of a program of tensors; none if it should be one kernel."""
    written = set(buffers_written(func.body))
    inputs, outputs = ([b for b in func.buffers if (b in written) is made] for made in (False, True))
    tensors = [te.Tensor(b, *(te.tensor.producer_of(b) or ())) for b in outputs]
    return divide(tensors, [te.Tensor(b) for b in inputs])


def _divided(parts: Sequence[Part], caller: Function, func: PrimFunc) -> IRModule:
    """A module whose entry calls a PrimFunc for each part of a program; `caller` is the one for the whole."""
    written = set(buffers_written(func.body))
    inputs = [b for b in func.buffers if b not in written]
    values: dict[Buffer, Node] = dict(zip(inputs, caller.params, strict=True))
    kernels: dict[str, PrimFunc] = {}
    for part in parts:
        name = unique_name(part.name, {ENTRY: None, **kernels})
        kernel = te.create_prim_func(part.inputs, part.outputs, name)
        kernels[name] = _unconditional(kernel)
        types = tuple(_type(t.buffer) for t in part.outputs)
        call = node(
            CALL_PRIM,
            [values[t.buffer] for t in part.inputs],
            {"symbol": name, "dims": kernel.scalars},
            types[0] if len(types) == 1 else TupleType(types),
        )
        for index, tensor in enumerate(part.outputs):
            values[tensor.buffer] = call if len(types) == 1 else get_item(call, index)
    results = [values[b] for b in func.buffers if b in written]
    body = results[0] if len(results) == 1 else make_tuple(results)
    return IRModule({ENTRY: caller.with_body(body), **kernels})


def prim_func(subject: Any, args: Sequence[te.Argument] | None = None, name: str = KERNEL) -> PrimFunc:
    """Return the program of a PrimFunc, of stages (with its arguments in order), or of tensors.

    Tensors (te) are the arguments in order, or two lists: inputs and outputs. Raises UsageError for a subject
    without a program, and for `args` that do not list its inputs and outputs.
    """
    if isinstance(subject, StagedSchedule):
        return _scheduled(subject.program(args, name))
    _no_arguments(subject, args)
    if isinstance(subject, PrimFunc):
        return subject
    if isinstance(subject, te.Tensor):
        subject = [*te.inputs_of([subject]), subject]
    if isinstance(subject, (list, tuple)) and subject:
        parts: list[Any] = list(subject)
        if all(isinstance(t, (te.Tensor, Var)) for t in parts):
            return te.create_prim_func(parts, name=name)
        if len(parts) == 2 and all(isinstance(part, (list, tuple)) for part in parts):
            return te.create_prim_func(parts[0], parts[1], name)
    raise UsageError(
        f"a {type(subject).__name__} cannot be built",
        hint="give a PrimFunc, an IRModule of PrimFuncs, a schedule, or tensors from inputs to outputs",
    )


def scheduled_module(schedule: Schedule) -> IRModule:
    """Return the module of a Schedule. Rules do not schedule it again."""
    module = schedule.mod
    kernels: dict[str, PrimFunc] = module.of_kind(PrimFunc)
    return module.with_functions({name: _scheduled(func) for name, func in kernels.items()})


def _no_arguments(subject: Any, args: object) -> None:
    if args is not None:
        raise UsageError(
            f"arguments are given with a {type(subject).__name__}",
            hint="only a schedule of tensors takes arguments",
        )


def _outputs_last(func: PrimFunc) -> PrimFunc:
    """Order a program's buffers: inputs, then those that it writes. Executables return the latter."""
    written = set(buffers_written(func.body))
    inputs, outputs = (tuple(b for b in func.buffers if (b in written) is made) for made in (False, True))
    return replace(func, params=(*inputs, *outputs, *func.scalars))


def _of_module(module: IRModule) -> IRModule:
    """Put the entry of a module first, or the first of its PrimFuncs if it has no entry."""
    kernels: dict[str, PrimFunc] = module.of_kind(PrimFunc)
    if not kernels:
        raise UsageError("the module has no PrimFunc", hint="dlc.compile takes graphs")
    called = {name for f in kernels.values() for name in called_kernels(f.body)}
    if ENTRY in called:
        raise UsageError(f"the program {ENTRY!r} is called by another", why="it is the entry of the module")
    roots = [name for name in kernels if name not in called] or list(kernels)
    if module.entry in kernels:
        roots = [module.entry, *(name for name in roots if name != module.entry)]
    functions: dict[str, Any] = {}
    entries: dict[str, str] = {}
    callers: dict[str, Function] = {}
    for name, func in kernels.items():
        func = _kernel(func if func.name == name else replace(func, name=name), kernels)
        functions[func.name] = _unconditional(func)
        if name in roots:
            entry = unique_name(f"{ENTRY}_{name}", {**kernels, **functions})
            entries[name] = ENTRY if name == roots[0] else entry
            callers[name] = _caller(func)
            functions[entries[name]] = replace(callers[name], name=entries[name]).with_attrs(segment=True)
    functions[ENTRY] = callers[roots[0]]
    return IRModule(functions, {"entries": {name: entries[name] for name in roots}})


def _kernel(func: PrimFunc, functions: Mapping[str, object] = EMPTY) -> PrimFunc:
    """Return the program as a kernel of the new module; `functions` are those that it may call."""
    check_program(func, functions)
    func = stated(func)
    if is_scheduled(func):
        func = _scheduled(func)
    return replace(func, name=unique_name(KERNEL, functions)) if func.name == ENTRY else func


def _scheduled(func: PrimFunc) -> PrimFunc:
    return replace(func, attrs=MappingProxyType({**func.attrs, "scheduled": True}))


def _caller(func: PrimFunc, order: Sequence[Buffer] | None = None) -> Function:
    """Make a graph that calls a program on its inputs. `order` has its buffers as the user listed them."""
    formal = interface_of(func)
    inputs, outputs = formal.inputs, formal.results
    buffers = (*inputs, *outputs)
    known = free_vars(*(dim for b in inputs for dim in b.shape))
    unbound = [v.name for v in func.scalars if v not in known]
    if unbound:
        raise UsageError(
            f"program {func.name!r} takes {', '.join(unbound)} by value",
            why="no input has it as a dim of its shape",
            hint="pass it as an array of one element",
        )
    params = [param(b.name, _type(b)) for b in inputs]
    types = tuple(_type(b) for b in outputs)
    attrs = {"symbol": func.name, "dims": func.scalars}
    type_ = types[0] if len(types) == 1 else TupleType(types)
    call = node(CALL_PRIM, params, attrs, type_)
    call.add_spans(func.spans)
    body = call if len(types) == 1 else make_tuple([get_item(call, i) for i in range(len(types))])
    listed = [b for b in order or buffers if b in buffers]
    public: dict[str, Any] = {
        "inputs": tuple(b.name for b in inputs),
        "outputs": tuple(b.name for b in outputs),
        ARGUMENTS: tuple(map(buffers.index, listed)),
    }
    if func.attrs.get(CONDITIONS):
        public[CONDITIONS] = func.attrs[CONDITIONS]
    return Function(ENTRY, tuple(params), body, MappingProxyType(public))


def _unconditional(func: PrimFunc) -> PrimFunc:
    """The program without its conditions on dims, which its entry checks."""
    held = {name: value for name, value in func.attrs.items() if name != CONDITIONS}
    return replace(func, attrs=MappingProxyType(held)) if CONDITIONS in func.attrs else func


def _type(buffer: Buffer) -> TensorType:
    return tensor_type(buffer.shape, buffer.dtype)


__all__ = ["single_module"]
