"""The model of one kernel: its graph is one call of the kernel, which compiles as it does in its model.

    module = kernel_module(func, seed=0, sizes={"n": 128})
    arrays = inputs_of(func, seed=0, sizes={"n": 128})

Parameters that are constants in the model are constants, all others are inputs. Equal seeds and sizes give
equal arrays in every process. `values` says how they are chosen.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dlc_core.arith import eval_expr, solve_dims
from dlc_core.diag import UsageError
from dlc_core.graph.node import Function, Node, constant, param
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var, const_value, free_vars
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import dim, tensor_type
from dlc_core.op.declare import NDArray
from dlc_core.op.std.programs import call_tir
from dlc_core.tir.interface import interface_of
from dlc_core.tir.stmt import PrimFunc
from dlc_tune.measuring.values import Values

CONSTANTS = "constants"
"""The attribute of a kernel with the indices of the parameters that are constants in its model."""
SIZES = "sizes"
"""The name of an input of the model whose shape has the dims that follow from no input of the kernel."""


def is_of_model(func: PrimFunc) -> bool:
    """Whether a program is a kernel of a model, as lowering makes them, not one of a user. A program with
    sizes that follow from no input needs a model, too.
    """
    return CONSTANTS in func.attrs or bool(_unbound(func))


def kernel_module(func: PrimFunc, seed: int = 0, sizes: Mapping[str, int] | None = None) -> IRModule:
    """The model of an unscheduled kernel. Dims stay symbolic; `sizes` are only those of the constants.

    Raises UsageError for a kernel whose values cannot be made. A compile refuses the model of a kernel that
    reads a result before it writes it: the values of results before a call are undefined.
    """
    values = _values(func, seed, sizes or {})
    params: list[Node] = []
    args: list[Node] = []
    for buffer in interface_of(func).inputs:
        if _is_constant(func, buffer):
            args.append(constant(values.of(buffer)))
        else:
            params.append(param(buffer.name, tensor_type([dim(d) for d in buffer.shape], buffer.dtype)))
            args.append(params[-1])
    others = _unbound(func)
    if others:
        params.append(param(SIZES, tensor_type(others, "bool")))
    body = call_tir(func, *args, scalars=others)
    return IRModule({"main": Function("main", tuple(params), body)})


def inputs_of(func: PrimFunc, seed: int = 0, sizes: Mapping[str, int] | None = None) -> list[NDArray]:
    """The inputs of the model of a kernel, in order. Raises UsageError if the size of a dim is missing."""
    values = _values(func, seed, sizes or {})
    arrays = [values.of(b) for b in interface_of(func).inputs if not _is_constant(func, b)]
    others = _unbound(func)
    if others:
        arrays.append(np.zeros([eval_expr(one, values.dims) for one in others], np.bool_))
    return arrays


def dims_of(func: PrimFunc, sizes: Mapping[str, int]) -> dict[Var, int]:
    """The sizes of a kernel's symbolic dims. Raises UsageError if one is missing or out of its bounds."""
    found = {}
    for scalar in func.scalars:
        if scalar.name not in sizes:
            raise UsageError(
                f"no size for the dim {scalar.name!r} of the kernel {func.name!r}",
                hint=f"give sizes of {', '.join(each.name for each in func.scalars)}",
            )
        found[scalar] = int(sizes[scalar.name])
    return found


def _values(func: PrimFunc, seed: int, sizes: Mapping[str, int]) -> Values:
    return Values(func, dims_of(func, sizes), seed)


def _is_constant(func: PrimFunc, buffer: Buffer) -> bool:
    """Whether a parameter is a constant of the model. Constants have sizes that are known."""
    fixed = all(const_value(d) is not None for d in buffer.shape)
    return fixed and func.params.index(buffer) in func.attrs.get(CONSTANTS, ())


def _unbound(func: PrimFunc) -> tuple[Var, ...]:
    """The by-value parameters that do not follow from the shapes of the inputs."""
    used = [b for b in interface_of(func).inputs if not _is_constant(func, b)]
    known = solve_dims((d, d) for b in used for d in b.shape if free_vars(d))
    return tuple(each for each in func.scalars if each not in known)


__all__ = ["CONSTANTS", "dims_of", "inputs_of", "is_of_model", "kernel_module"]
