"""`call_tir`: a tensor program (PrimFunc) as an op of the graph.

    call_tir(x){program=scale}          the results of scale(x, y); in Python call_tir(scale, x)

The program is part of the node. Its inputs are the node's arguments, and the buffers that it writes are the
results. A call of a program by its name in the module is the structural node `call_prim`. The pass
`resolve_calls` turns most of these into this op, so that passes know its types and may fuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dlc_core import te
from dlc_core.arith.evaluate import eval_expr
from dlc_core.diag import TypeInferenceError, UsageError
from dlc_core.graph.node import Node
from dlc_core.ir.conditions import EQUAL
from dlc_core.ir.expr import Expr, Var, substitute
from dlc_core.ir.types import TupleType, Type, tensor_type
from dlc_core.op.assume import assume
from dlc_core.op.declare import Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs
from dlc_core.support.lazy import lazy
from dlc_core.tir.interface import bind_dims, interface_of, is_scheduled, result_types
from dlc_core.tir.stmt import PrimFunc

if TYPE_CHECKING:
    from dlc_core.tir import interpreter
else:
    # Only the reference runs programs.
    interpreter = lazy("dlc_core.tir.interpreter")


def _infer(types: Sequence[Type], attrs: Attrs) -> Type:
    program: PrimFunc = attrs["program"]
    inputs = tensor_types(types)
    try:
        dims = bind_dims(program, inputs, attrs["scalars"])
    except UsageError as error:
        raise TypeInferenceError(error.what, why=error.why, hint=error.hint, details=error.details) from error
    for buffer, type_ in zip(interface_of(program).inputs, inputs, strict=True):
        for formal, size in zip(buffer.shape, type_.dim_exprs(), strict=True):
            needed = substitute(formal, dims)
            if needed is not size:
                assume(EQUAL, size, needed, f"input {buffer.name} of program {program.name}")
    results = result_types(program, dims)
    return results[0] if len(results) == 1 else TupleType(results)


def _reference(*arrays: NDArray, program: PrimFunc, scalars: tuple[int, ...]) -> Any:
    types = [tensor_type(a.shape, b.dtype) for a, b in zip(arrays, interface_of(program).inputs, strict=True)]
    dims = {var: eval_expr(size, {}) for var, size in bind_dims(program, types, scalars).items()}
    results = [
        np.zeros([eval_expr(size, dims) for size in buffer.shape], buffer.dtype.numpy)
        for buffer in interface_of(program).results
    ]
    given = [np.ascontiguousarray(a).reshape(a.shape) for a in arrays]
    interpreter.run(program, *given, *results, *(dims[var] for var in program.scalars))
    return results[0] if len(results) == 1 else tuple(results)


def _lower(type_: Type, attrs: Attrs, *tensors: te.Tensor) -> Any:
    program: PrimFunc = attrs["program"]
    inputs = [tensor_type(t.shape, t.dtype) for t in tensors]
    dims = bind_dims(program, inputs, attrs["scalars"])
    return te.extern_primfunc(tensors, program, dims=dims, blocks=not is_scheduled(program))


def call_tir(program: PrimFunc, *args: Node, scalars: Sequence[int | Expr] = ()) -> Node:
    """A call of a tensor program on values of a graph. Its type is a tuple if the program has several
    results.

    `scalars` are the values of by-value parameters that are no dims of an input, in order. Raises
    TypeInferenceError if the arguments do not fit.
    """
    return CALL_TIR.build(*args, program=program, scalars=tuple(scalars))


def call_te(function: Callable[..., Any], *args: Node, name: str = "") -> Node:
    """A call of the tensor program that a function over te tensors describes.

    `function` gets one placeholder for each argument, and returns a tensor or several.
    """
    inputs = [te.placeholder(a.shape, a.dtype, f"p{i}") for i, a in enumerate(args)]
    made = function(*inputs)
    outputs = list(made) if isinstance(made, (tuple, list)) else [made]
    label = name or getattr(function, "__name__", "program")
    return call_tir(te.create_prim_func(inputs, outputs, label if label.isidentifier() else "program"), *args)


@cache
def _example(kind: str) -> PrimFunc:
    """Programs for the samples."""
    n, m = Var("n"), Var("m")
    x = te.placeholder((n, m), "float32", "X")
    if kind == "scale":
        scaled = te.compute((n, m), lambda i, j: x[i, j] * 2.0 + 1.0, "scaled")
        return te.create_prim_func([x], [scaled], "scale")
    k = te.reduce_axis((0, m), "k")
    total = te.compute((n,), lambda i: te.sum(x[i, k], axis=k), "total")
    turned = te.compute((m, n), lambda i, j: x[j, i], "turned")
    return te.create_prim_func([x], [total, turned], "several")


CALL_TIR = op(
    "call_tir",
    "the results of a tensor program on the inputs; `scalars` are its by-value parameters that are no dims of"
    " an input",
    ["*args"],
    [Attr("program", "program"), Attr("scalars", "dims", ())],
    kind="opaque",
    infer=_infer,
    reference=_reference,
    lower=_lower,
    dtypes=("float32",),
    raw=True,
    samples=(
        Sample((Tensor((4, 5)),), {"program": _example("scale")}),
        Sample((Tensor((3, 7)),), {"program": _example("several")}),
    ),
    error_samples=(
        ErrorSample((Tensor((4, 5)), Tensor((4, 5))), {"program": _example("scale")}, "takes 1 inputs"),
        ErrorSample((Tensor((4,)),), {"program": _example("scale")}, "is given"),
        ErrorSample((Tensor((4, 5)),), {"program": _example("scale"), "scalars": (3,)}, "by-value"),
    ),
)

OPS = (CALL_TIR,)
