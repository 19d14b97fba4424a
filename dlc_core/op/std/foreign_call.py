"""Calls of foreign functions by graphs.

    y = call_dps(x, w, function="vendor.gemm")

Pointers of the signature that are read take the arguments, in order. Pointers that are written take results,
which the caller of the function allocates ("destination-passing style", DPS). Their shapes follow from the
signature: a size is a dim of an argument, or is given by `names` and `values`. Values of the signature get
the size of their name, or their default; so symbolic dims are passed as integers.

Graphs assume that results depend only on the arguments: equal calls are computed once, and calls without a
use are dropped. Calls are never computed while compiling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc_core import te
from dlc_core.foreign.calls import foreign_calls, foreign_name
from dlc_core.foreign.declare import ForeignFunction
from dlc_core.foreign.lookup import find_foreign, get_foreign
from dlc_core.foreign.prototype import BOTH, READ, STAR, WRITTEN, Param, bind_sizes
from dlc_core.foreign.resolve import hosted
from dlc_core.graph.node import Function, Op, functions_of, post_order
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr, as_expr, const
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import Dim, TensorType, TupleType, Type
from dlc_core.op.declare import Attr, ErrorSample, NDArray, Tensor, foreign_attrs, op, tensor_types
from dlc_core.op.infer import Attrs, fail, merge_dims, product
from dlc_core.tir.calls import call_extern
from dlc_core.tir.intrinsics import STATUS
from dlc_core.tir.stmt import PrimFunc

Sizes = dict[str, tuple[Dim, ...]]


def _sizes(function: ForeignFunction, shapes: Sequence[Sequence[Dim]], attrs: Attrs) -> Sizes:
    """The sizes by name, from the shapes of arguments and from the attributes."""
    prototype = function.prototype
    inputs = prototype.inputs
    if len(shapes) != len(inputs):
        raise fail(f"{len(shapes)} arguments, and {function.name} reads {len(inputs)}", f"it is {prototype}")
    names, values = attrs["names"], attrs["values"]
    known_names = {p.name for p in prototype.params} | {n for p in prototype.params for n in p.names()}
    wrong = [name for name in names if name not in known_names]
    if wrong or len(names) != len(values):
        what = (
            f"{function.name} has no size {wrong[0]!r}" if wrong else "`names` and `values` differ in number"
        )
        raise fail(what, f"it is {prototype}")
    known: Sizes = {name: (value,) for name, value in zip(names, values, strict=True)}
    for param, shape in zip(inputs, shapes, strict=True):
        if param.sizes is not None:
            for wanted, given in bind_sizes(param, tuple(shape), known):
                merge_dims(wanted, given, f"the sizes of {param} in {function.name}")
    return known


def _shape(function: ForeignFunction, param: Param, known: Sizes) -> tuple[Dim, ...]:
    """The shape of a result."""
    missing = [name for name in param.names() if name not in known]
    if missing or param.sizes is None:
        what = f"the size {missing[0]}" if missing else "the shape"
        hint = "give it by `names` and `values`" if missing else "declare its sizes"
        raise fail(f"{what} of the result {param.name} of {function.name} does not follow", hint)
    sizes = ((s,) if isinstance(s, int) else known[s.lstrip(STAR)] for s in param.sizes)
    return tuple(dim for size in sizes for dim in size)


def _value(function: ForeignFunction, param: Param, known: Sizes) -> Dim | float:
    """The value that a parameter gets."""
    name = param.default if isinstance(param.default, str) else param.name
    if name in known:
        return product(known[name])
    if param.default is None or isinstance(param.default, str):
        raise fail(
            f"the value {param.name} of {function.name} is not known", "give it by `names` and `values`"
        )
    return param.default


def _infer(types: Sequence[Type], attrs: Attrs) -> Type:
    function = get_foreign(attrs["function"])
    prototype, tensors = function.prototype, tensor_types(types)
    both = [p.name for p in prototype.params if p.how == BOTH]
    if both:
        hint = "give it an input and an output"
        raise fail(f"{function.name} changes {both[0]}, and values of graphs do not change", hint)
    if not prototype.outputs:
        raise fail(f"{function.name} writes no result", f"it is {prototype}")
    known = _sizes(function, [t.shape for t in tensors], attrs)
    for param, tensor in zip(prototype.inputs, tensors, strict=True):
        if param.dtype is not tensor.dtype:
            raise fail(f"{param.name} of {function.name} is {param.dtype}, not {tensor.dtype}", "cast it")
    for param in prototype.params:
        if not param.is_pointer:
            _value(function, param, known)
    results = tuple(TensorType(_shape(function, p, known), p.dtype) for p in prototype.outputs)
    return results[0] if len(results) == 1 else TupleType(results)


def _lower(type_: Type, attrs: Attrs, *tensors: te.Tensor) -> Any:
    function = get_foreign(attrs["function"])
    prototype = function.prototype
    results = tensor_types(type_.fields if isinstance(type_, TupleType) else (type_,))
    known = _sizes(function, [t.shape for t in tensors], attrs)

    def argument(param: Param, ins: list[Buffer], outs: list[Buffer]) -> Buffer | Expr:
        if param.is_pointer:
            return (ins if param.how == READ else outs).pop(0)
        value = _value(function, param, known)
        return as_expr(value).astype(param.dtype) if isinstance(value, Expr) else const(value, param.dtype)

    def body(ins: list[Buffer], outs: list[Buffer]) -> Expr:
        ins, outs = list(ins), list(outs)
        args = [argument(p, ins, outs) for p in prototype.params]
        return call_extern(function.name, *args, dtype_=prototype.result or STATUS)

    name = function.name.replace(".", "_")
    shapes, types = [t.shape for t in results], [t.dtype for t in results]
    if len(results) == 1:
        return te.extern(shapes[0], list(tensors), body, name, dtype_=types[0])
    return te.extern(shapes, list(tensors), body, name, dtype_=types)


def _reference(*arrays: NDArray, function: str, names: Sequence[str], values: Sequence[int]) -> Any:
    found = get_foreign(function)
    known = _sizes(found, [a.shape for a in arrays], {"names": names, "values": values})
    given, results, args = list(arrays), [], []
    for param in found.prototype.params:
        if param.how == WRITTEN:
            shape = tuple(int(dim) for dim in _shape(found, param, known))  # type: ignore[arg-type]
            results.append(np.zeros(shape, param.dtype.numpy))
            args.append(results[-1].reshape(-1))
        elif param.is_pointer:
            args.append(np.ascontiguousarray(given.pop(0), param.dtype.numpy).reshape(-1))
        else:
            args.append(param.dtype.numpy.type(_value(found, param, known)).item())
    hosted(found)(*args)
    return results[0] if len(results) == 1 else tuple(results)


CALL_DPS = op(
    "call_dps",
    "the results of a foreign function, which the caller allocates; the function's signature determines their"
    " types, and `names` with `values` are sizes that do not follow from the arguments",
    ["*args"],
    [
        Attr("function", "foreign", help="the name of the function"),
        Attr("names", "strs", ()),
        Attr("values", "dims", ()),
    ],
    kind="opaque",
    infer=_infer,
    reference=_reference,
    lower=_lower,
    pure=False,
    error_samples=[
        ErrorSample((Tensor((2,)),), {"function": "no.such.function"}, "there is no foreign function"),
        ErrorSample((Tensor((2,)),), {"function": 3}, "must be foreign"),
    ],
)

CALL_ON_HOST = op(
    "call_dps_on_host",
    "`call_dps` on the host, for targets whose kernels cannot call the function",
    ["*args"],
    list(CALL_DPS.attrs.values()),
    kind="opaque",
    infer=_infer,
    reference=_reference,
    pure=False,
    error_samples=CALL_DPS.error_samples,
)


def called_functions(module: IRModule, only: Op | None = None) -> list[list[str]]:
    """The foreign functions that graphs and programs call, or those that nodes of one op call, as entries of
    an artefact's metadata (see `foreign.needed`). Their symbols are their names.
    """
    names: dict[str, None] = {}
    for func in module.of_kind(PrimFunc).values():
        names.update((foreign_name(call) or "", None) for call, _ in foreign_calls(func.body))
    work: list[Function] = list(module.of_kind(Function).values())
    for function in work:
        for n in post_order(function.body):
            if only in (None, n.op):
                names.update((n.attrs[name], None) for name in foreign_attrs(n.op))
            work += functions_of(n)
    found = {name: find_foreign(name) for name in names}
    return [[name, str(f.prototype), name] for name, f in found.items() if f is not None]


OPS = (CALL_DPS, CALL_ON_HOST)
__all__ = ["CALL_DPS", "CALL_ON_HOST", "OPS", "called_functions"]
