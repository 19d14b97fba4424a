"""Host-computed dims: the caller computes them from elements of a function's params before the call.

Two attributes of a function, pairs and triples in the order of their computation:

    elements    (variable, public name of the param, index): the variable is the element at that row-major
                index; a float is truncated if the variable is an integer
    data_dims   (dim, expression, what): the dim is the value of the expression over dims of the params,
                elements and earlier data_dims; if it is negative, the error names `what`

The nodes `dim_of` in the function compute the same dims for programs that run node by node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlc_core.graph.node import Function
from dlc_core.ir.expr import Expr, Var, const, substitute
from dlc_core.ir.fold import number_of

ELEMENTS = "elements"
DATA_DIMS = "data_dims"

DataDim = tuple[Var, Expr, str]
Element = tuple[Var, str, int]


def data_dims(function: Function) -> tuple[Var, ...]:
    """The dims that are computed from elements of params."""
    return tuple(var for var, _, _ in function.attrs.get(DATA_DIMS, ()))


def with_known_elements(
    attrs: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]
) -> dict[str, Any]:
    """A function's attributes after some params, given by public name, have become constants."""
    elements: tuple[Element, ...] = attrs.get(ELEMENTS, ())
    if not elements:
        return dict(attrs)
    known: dict[Var, Expr] = {
        var: const(number_of(arrays[name].item(index), var.dtype), var.dtype)
        for var, name, index in elements
        if name in arrays
    }
    data = tuple((var, substitute(expr, known), what) for var, expr, what in attrs.get(DATA_DIMS, ()))
    left = tuple(element for element in elements if element[0] not in known)
    return {**attrs, ELEMENTS: left, DATA_DIMS: data}


__all__ = ["DATA_DIMS", "ELEMENTS", "DataDim", "Element", "data_dims", "with_known_elements"]
