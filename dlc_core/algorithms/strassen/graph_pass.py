"""strassen: GEMM with constant matrices by Strassen's algorithm, if the cost model predicts a gain.

Law: results stay within tolerance; the root mean square error grows about one and a half times on one level,
about twice on two.  Only where the compile's precision is "fast".

    matmul(x, w)   =>   strassen_matmul(x, w, levels=…)     w constant, of even sizes; operands are scaled
                                                    (see `scaled_rows.py`)
                        concat(strassen_matmul(x, w[:, :n]), matmul(x, w[:, n:]))
                                                    where a result of the function has more columns than fit
    conv(x, w, b)  =>   strassen_matmul(x, w, levels=…) + b     windows of one pixel, channels last; of x the
                                                    pixels that they step to
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from dlc_core.algorithms.strassen.choice import (
    Shape,
    direct_cycles,
    is_memory_bound,
    plan,
    plan_blocks,
)
from dlc_core.algorithms.strassen.op import MATMUL as PRODUCT
from dlc_core.algorithms.strassen.scaled_rows import can_scale, scaled_product
from dlc_core.arith.analyzer import Analyzer
from dlc_core.decisions import Decision
from dlc_core.graph.node import CONST, Function, Node, const_array, constant, rewrite
from dlc_core.ir.expr import as_expr, free_vars
from dlc_core.op.declare import NDArray
from dlc_core.op.infer import product
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.mixed_precision import FAST, is_fast
from dlc_core.schedule.rules.cpu.core import FLOAT, Core

MATMUL, CONV, ADD = (OPS[name] for name in ("matmul", "conv", "add"))
CONCAT, SLICE = OPS["concat"], OPS["slice"]
BLOCKS = (64, 128, 256)
"""Candidate block sizes for a symbolic number of rows. The first one with a predicted gain is used; the tail
is computed by a plain GEMM."""
PARTS = 8
"""Candidates for the number of columns that use Strassen's algorithm."""
GAIN = ((0.96, 0.985), (0.96, 0.96))
"""A level is used only if its cost is below this part of the cost with one level less (plain GEMM for none),
to be worth the rounding error. The values are for cores that begin one multiply-add per cycle, and several.
On the latter, costs that the model does not count have a larger share. If neighbouring GEMMs use different
numbers of levels, they read memory that other threads have written."""
FORM = Decision(
    "strassen.form",
    "Whether a GEMM uses Strassen's algorithm: levels, blocks of rows, and the number of columns.",
    ("direct", "once", "twice", "blocks"),
    has_values=True,
)
Form = tuple[int, int, int]
"""Levels, columns and rows of a block, 0 for all."""
READ, CHOSEN = 1, 2
"""How often scaling moves an element of the left-hand side, and of the result, to or from the LLC."""


@dataclass(frozen=True)
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
        if lanes < 2 or machine.thread_axes:
            return function
        core = Core.of(machine, machine.workers)

        def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
            shape = _shape(old, lanes)
            if shape is None:
                return None
            found = _found(shape, core, old.op is MATMUL and old in results, _is_known(old), _most_rows(old))
            if found is None:
                return None
            levels, columns, block = found
            form = {"levels": levels, "block": block}
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


def _found(shape: Shape, core: Core, parts: bool, known: bool, most: float) -> Form | None:
    """Choose the levels, the columns, and the rows per block (0: all) of Strassen's algorithm.

    All columns are used, or, if the result may be in parts, the number with the least cost.  None if it does
    not pay.  Two levels need a known number of rows; a symbolic number, at most `most`, uses blocks.
    """
    blocks = [0] if known else [block for block in BLOCKS if 2 * block <= most]

    def of(block: int) -> Shape:
        return replace(shape, rows=block) if block else shape

    def in_blocks(form: Form, block: int) -> Form:
        return (form[0], form[1], block) if block else form

    each = ((block, _found_of(of(block), core, parts, known)) for block in blocks)
    return FORM.pick(
        next((in_blocks(form, block) for block, form in each if form is not None), None),
        lambda: [
            None,
            *(
                in_blocks(form, block)
                for block in blocks
                for _, form in _forms(of(block), core, parts, known)
            ),
        ],
        _kind,
        lambda form: "" if form is None else f"{form[1]} by {form[2]}" if form[2] else str(form[1]),
        where=(shape, known),
    )


def _kind(form: Form | None) -> str:
    if form is None:
        return "direct"
    return "twice" if form[0] == 2 else "blocks" if form[2] else "once"


def _found_of(shape: Shape, core: Core, parts: bool, known: bool) -> Form | None:
    if is_memory_bound(shape, core):
        return None
    forms = _forms(shape, core, parts, known)
    if not forms:
        return None
    cycles, (levels, columns, block) = min(forms, key=lambda one: (one[0], -one[1][1], one[1][0], one[1][2]))
    return None if cycles + _scaling(shape, core) > direct_cycles(shape, core) else (levels, columns, block)


def _forms(shape: Shape, core: Core, parts: bool, known: bool) -> list[tuple[float, Form]]:
    """The variants of Strassen's algorithm, each with its cost."""
    gain = GAIN[min(core.units, 2) - 1]
    found: list[tuple[float, Form]] = []
    for levels in (1, 2) if known else (1,):
        step = 2**levels * core.lanes
        most = shape.columns // step * step
        if shape.inner % step or (most < shape.columns and not parts):
            continue
        for columns in range(most, max(0, most - PARTS * step), -step) if parts else (most,):
            rest = shape.columns - columns
            made = plan(replace(shape, columns=columns), core, levels)
            if made is not None:
                beside = direct_cycles(replace(shape, columns=rest), core) if rest else 0.0
                found.append(((made.cycles + beside) / math.prod(gain[:levels]), (levels, columns, 0)))
    step = 2 * core.lanes
    if known and shape.inner % step == 0 and shape.columns % step == 0:
        blocks = plan_blocks(shape, core)
        if blocks is not None:
            found.append((blocks[1].cycles / gain[0], (1, shape.columns, blocks[0])))
    return found


def _scaling(shape: Shape, core: Core) -> float:
    """Cycles to scale rows, to find out whether they are finite, and to choose results."""
    moved = shape.rows * (READ * shape.inner + CHOSEN * shape.columns)
    return FLOAT * moved / core.beyond_second


def _shape(value: Node, lanes: int) -> Shape | None:
    """The sizes of a product by a constant matrix whose halves of rows are whole vectors."""
    fits = _is_product(value) if value.op is MATMUL else value.op is CONV and _is_of_pixels(value)
    if not fits or value.args[1].op is not CONST or value.dtype.name != "float32":
        return None
    x, w = value.args[:2]
    if w.dtype.name != "float32" or not can_scale(_matrix(value)):
        return None
    rows = math.prod(int(size) for size in value.shape[:-1]) if _is_known(value) else BLOCKS[-1]
    inner, columns = x.shape[-1], value.shape[-1]
    if not isinstance(inner, int) or not isinstance(columns, int):
        return None
    if rows < 2 or inner % (2 * lanes):
        return None
    return Shape(rows, inner, columns)


def _is_product(value: Node) -> bool:
    return not value.attrs["transpose_a"] and len(value.args[1].shape) == 2


def _is_of_pixels(value: Node) -> bool:
    """Whether a convolution is a product: windows of one pixel, no border, all channels, these last."""
    attrs = value.attrs
    last = attrs["layout"] == "NXC" and attrs["kernel_layout"] == "XIO"
    one = last and all(size == 1 for size in value.args[1].shape[:-2])
    return one and attrs["groups"] == 1 and not any(attrs["padding"] or ()) and _is_known(value)


def _of_pixels(old: Node, args: Sequence[Node], form: Mapping[str, int]) -> Node:
    """Rewrite a 1 × 1 convolution as a GEMM by Strassen's algorithm."""
    x, _, *bias = args
    steps = old.attrs["strides"] or ()
    if any(step != 1 for step in steps):
        axes = tuple(range(1, 1 + len(steps)))
        ends = tuple(x.shape[axis] for axis in axes)
        x = SLICE.build(x, axes=axes, begins=(0,) * len(axes), ends=ends, strides=steps)
    y = _product(x, _matrix(old), form)
    return ADD.build(y, *bias) if bias else y


def _product(x: Node, weights: NDArray, form: Mapping[str, int]) -> Node:
    return scaled_product(x, weights, lambda a, b: PRODUCT.build(a, b, **form))


def _matrix(value: Node) -> NDArray:
    """The constant right-hand side of a product, [inner, columns]."""
    array = const_array(value.args[1])
    assert array is not None
    turned = value.op is MATMUL and value.attrs["transpose_b"]
    return np.ascontiguousarray(array.T if turned else array.reshape(array.shape[-2:]))


def _most_rows(value: Node) -> float:
    """The greatest number of rows that a product may have."""
    rows = as_expr(product(value.shape[:-1]))
    analyzer = Analyzer()
    for var in free_vars(rows):
        analyzer.declare_dim(var)
    return analyzer.quick_bounds(rows)[1]


def _is_known(value: Node) -> bool:
    """Whether the number of rows of a product is known."""
    return all(isinstance(size, int) for size in value.shape[:-1])


__all__ = ["Strassen"]
