"""strassen: GEMM with constant matrices by Strassen's algorithm, if the cost model predicts a gain.

Law: results stay within tolerance; the root mean square error grows about one and a half times on one level,
about twice on two.  It applies only with the precision "fast".

    matmul(x, w)   =>   strassen_matmul(x, w, levels=…)     w constant, of even sizes; operands are scaled
                                                    (see `scaled_rows.py`)
                        concat(strassen_matmul(x, w[:, :n]), matmul(x, w[:, n:]))
                                                    if a result of the function has other columns
    conv(x, w, b)  =>   strassen_matmul(x, w, levels=…) + b     windows of one pixel, channels last; of x the
                                                    pixels that they step to
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dlc_core.algorithms.strassen.choice import Shape, choose_form
from dlc_core.algorithms.strassen.heuristics import STRASSEN
from dlc_core.algorithms.strassen.op import MATMUL as PRODUCT
from dlc_core.algorithms.strassen.plan import StrassenPlan
from dlc_core.algorithms.strassen.scaled_rows import can_scale, scaled_product
from dlc_core.arith.analyzer import Analyzer
from dlc_core.graph.node import CONST, Function, Node, const_array, constant, rewrite
from dlc_core.ir.expr import as_expr, free_vars
from dlc_core.op.declare import NDArray
from dlc_core.op.infer import product
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.mixed_precision import FAST, is_fast
from dlc_core.schedule.rules.cpu.core import Core
from dlc_core.support.record import record

MATMUL, CONV, ADD = (OPS[name] for name in ("matmul", "conv", "add"))
CONCAT, SLICE = OPS["concat"], OPS["slice"]


@record(frozen=True)
class Strassen(GraphPass):
    """Use Strassen's algorithm for GEMM with many rows and constant matrices, if requested and cheaper.

    This is only for machines with vector cores, for which the cost model holds.
    """

    name: ClassVar[str] = "strassen"
    min_level: ClassVar[int] = 3
    exact: ClassVar[bool] = False
    precisions: ClassVar[tuple[str, ...]] = (FAST,)

    def run_function(self, function: Function, context: PassContext) -> Function:
        if context.target is None or not is_fast(context):
            return function
        machine = context.target.describe()
        lanes = machine.lanes(32)
        if not machine.multiplies_in_vectors:
            return function
        core = Core.of(machine, machine.workers)

        def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
            shape = _shape(old, lanes)
            if shape is None:
                return None
            found = choose_form(
                shape,
                core,
                parts=old.op is MATMUL and old in results,
                static_rows=_has_static_rows(old),
                max_rows=_max_rows(old),
                spans=old.spans,
            )
            if found is None:
                return None
            columns = found.columns
            form = {"levels": found.levels, "block": found.block, "plan": StrassenPlan.of(found.plan)}
            if old.op is CONV:
                return _of_pixels(old, args, form)
            x, weights = args[0], _matrix(old)
            made = _product(x, weights[:, :columns], form)
            if columns == shape.columns:
                return made
            return CONCAT.build(made, MATMUL.build(x, constant(weights[:, columns:])), axis=-1)

        results = set(function.results)
        body = rewrite(function.body, visit)
        return function if body is function.body else function.with_body(body)


def _shape(value: Node, lanes: int) -> Shape | None:
    """The sizes of a GEMM by a constant matrix; None for others, and unless half of K is whole vectors."""
    fits = _is_product(value) if value.op is MATMUL else value.op is CONV and _is_of_pixels(value)
    if not fits or value.args[1].op is not CONST or value.dtype.name != "float32":
        return None
    x, w = value.args[:2]
    if w.dtype.name != "float32" or not can_scale(_matrix(value)):
        return None
    rows = (
        math.prod(int(size) for size in value.shape[:-1]) if _has_static_rows(value) else STRASSEN.blocks[-1]
    )
    inner, columns = x.shape[-1], value.shape[-1]
    if not isinstance(inner, int) or not isinstance(columns, int):
        return None
    if rows < 2 or inner % (2 * lanes):
        return None
    return Shape(rows, inner, columns)


def _is_product(value: Node) -> bool:
    return not value.attrs["transpose_a"] and len(value.args[1].shape) == 2


def _is_of_pixels(value: Node) -> bool:
    """Whether a convolution is a GEMM: 1 × 1 windows, no padding, one group, channels last."""
    attrs = value.attrs
    last = attrs["layout"] == "NXC" and attrs["kernel_layout"] == "XIO"
    one = last and all(size == 1 for size in value.args[1].shape[:-2])
    return one and attrs["groups"] == 1 and not any(attrs["padding"] or ()) and _has_static_rows(value)


def _of_pixels(old: Node, args: Sequence[Node], form: Mapping[str, Any]) -> Node:
    """Rewrite a 1 × 1 convolution as a GEMM by Strassen's algorithm."""
    x, _, *bias = args
    steps = old.attrs["strides"] or ()
    if any(step != 1 for step in steps):
        axes = tuple(range(1, 1 + len(steps)))
        ends = tuple(x.shape[axis] for axis in axes)
        x = SLICE.build(x, axes=axes, begins=(0,) * len(axes), ends=ends, strides=steps)
    y = _product(x, _matrix(old), form)
    return ADD.build(y, *bias) if bias else y


def _product(x: Node, weights: NDArray, form: Mapping[str, Any]) -> Node:
    return scaled_product(x, weights, lambda a, b: PRODUCT.build(a, b, **form))


def _matrix(value: Node) -> NDArray:
    """The constant right-hand side of a GEMM, [inner, columns]."""
    array = const_array(value.args[1])
    assert array is not None
    transposed = value.op is MATMUL and value.attrs["transpose_b"]
    return np.ascontiguousarray(array.T if transposed else array.reshape(array.shape[-2:]))


def _max_rows(value: Node) -> float:
    """The maximum number of rows of a GEMM."""
    rows = as_expr(product(value.shape[:-1]))
    analyzer = Analyzer()
    for var in free_vars(rows):
        analyzer.declare_dim(var)
    return analyzer.quick_bounds(rows)[1]


def _has_static_rows(value: Node) -> bool:
    """Whether the number of rows of a GEMM is static."""
    return all(isinstance(size, int) for size in value.shape[:-1])


__all__ = ["Strassen"]
