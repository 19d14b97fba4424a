"""`apply`: an op on te tensors, by its inference and its lowering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dlc_core import te
from dlc_core.diag import TypeInferenceError, UsageError
from dlc_core.graph.node import Function, Node, param
from dlc_core.ir.dtype import DType, DTypeLike, dtype
from dlc_core.ir.expr import const
from dlc_core.ir.types import TupleType, tensor_type
from dlc_core.op.declare import OpDecl
from dlc_core.op.lower_graph import lower_graph, own_tensors
from dlc_core.passes.base import PassContext
from dlc_core.passes.graph.dim_conditions import dim_conditions_of_nodes
from dlc_core.passes.graph.expand_composites import ExpandComposites

Number = bool | int | float
Operand = te.Tensor | Number


def apply(decl: OpDecl, operands: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """The result of an op as a new tensor, or a tuple of tensors for an op of several results.

    Operands are te tensors or numbers; numbers take the dtype of the tensors among them. A composite is
    computed by the ops of its body. What inference assumes about symbolic dims becomes a condition of the
    program, which every call checks.

    Raises TypeInferenceError for operands and attributes that do not fit, UnsupportedError for an op that has
    no lowering.
    """
    tensors = _tensors(decl, operands)
    params = [param(t.name, tensor_type(t.shape, t.dtype)) for t in tensors]
    made = decl.build(*params, **attrs)
    whole = Function(decl.name, tuple(params), made)
    body = ExpandComposites().run_function(whole, PassContext.current()).body
    values = lower_graph(body, dict(zip(params, tensors, strict=True)), decl.name)
    results = own_tensors(values[body], tensors)
    te.require(results, dim_conditions_of_nodes([made]))
    return tuple(results) if isinstance(made.type, TupleType) else results[0]


def _tensors(decl: OpDecl, operands: Sequence[Any]) -> list[te.Tensor]:
    """The operands as tensors; numbers become computes of no dims."""
    given = (each.dtype for each in operands if isinstance(each, te.Tensor))
    like = next((found for found in given if not found.is_bool), None)
    return [_tensor(decl, position, each, like) for position, each in enumerate(operands)]


def _tensor(decl: OpDecl, position: int, value: Any, like: DType | None) -> te.Tensor:
    if isinstance(value, te.Tensor):
        return value
    what = f"{decl.name}: argument {input_name(decl, position)!r} is a {type(value).__name__}"
    if isinstance(value, (bool, int, float)):
        return scalar(value, _natural(value) if like is None else like)
    if isinstance(value, (np.ndarray, np.generic)):
        hint = "make it an input of the program (te.placeholder), and pass it in calls"
    elif isinstance(value, Node):
        hint = "nodes of graphs are built by dlc_core.op.std; here a te tensor is needed"
    else:
        hint = "te tensors and numbers can be operands"
    raise TypeInferenceError(what, hint=hint)


def _natural(value: Number) -> DTypeLike:
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"


def scalar(value: Number, type_: DTypeLike) -> te.Tensor:
    """A number as a tensor of no dims."""
    made: te.Tensor = te.compute((), lambda: const(value, dtype(type_)), "literal")
    return made


def input_name(decl: OpDecl, position: int) -> str:
    """The name of an input without its marks; several inputs have the last name."""
    return decl.inputs[min(position, len(decl.inputs) - 1)].strip("*?")


def computable(decl: OpDecl) -> bool:
    """Whether te can express an op: it has a lowering, or is a composite whose sizes follow from shapes."""
    return decl.lower is not None or (decl.is_composite and not decl.fresh)


def refusal(decl: OpDecl) -> UsageError:
    """The error for an op that te cannot express."""
    why = "its size depends on data" if decl.is_composite else "it has no lowering: it runs on the host"
    return UsageError(f"te cannot express the op {decl.name!r}", why=why, hint="use it in a graph (dlc.nn)")


__all__ = ["Operand", "apply", "computable", "input_name", "refusal", "scalar"]
