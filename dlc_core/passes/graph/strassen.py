"""strassen: products by constant matrices through seven products of quarters, where it pays.

Law: results stay within tolerance; the root mean square error grows about one and a half times.

    matmul(x, w)   =>   strassen_matmul(x, w)       w constant, of even sizes
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dlc_core.graph.node import CONST, Function, Node, rewrite
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.mixed_precision import FLOAT32, narrow_dtype
from dlc_core.schedule.rules.cpu.core import Core
from dlc_core.schedule.rules.cpu.strassen_plan import Shape, direct_cycles, plan

MATMUL, TRANSPOSE, PRODUCT = (OPS[name] for name in ("matmul", "transpose", "strassen_matmul"))
GAIN = 0.96
"""Part of the direct product's cost that quarters must stay below to be worth the rounding."""


@dataclass(frozen=True)
class Strassen(GraphPass):
    """Products of many rows by constant matrices through sums of quarters, where cheaper.

    Only for machines whose loops run on cores with vectors: what is known of costs is known of these.
    """

    name: ClassVar[str] = "strassen"
    place: ClassVar[tuple[float, ...]] = (725,)
    min_level: ClassVar[int] = 3
    exact: ClassVar[bool] = False

    def run_function(self, function: Function, context: PassContext) -> Function:
        if context.target is None or narrow_dtype(context) is not FLOAT32:
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
            found = plan(shape, core)
            if found is None or found.cycles > GAIN * direct_cycles(shape, core):
                return None
            weights = TRANSPOSE.build(args[1], axes=(1, 0)) if old.attrs["transpose_b"] else args[1]
            return PRODUCT.build(args[0], weights)

        body = rewrite(function.body, visit)
        return function if body is function.body else function.with_body(body)


def _shape(value: Node, lanes: int) -> Shape | None:
    """The sizes of a product by a constant matrix whose quarters are whole vectors."""
    if value.op is not MATMUL or value.args[1].op is not CONST or value.dtype.name != "float32":
        return None
    x, w = value.args
    if value.attrs["transpose_a"] or len(w.shape) != 2 or w.dtype.name != "float32":
        return None
    rows = 1
    for size in value.shape[:-1]:
        if not isinstance(size, int):
            return None
        rows *= size
    inner, columns = x.shape[-1], value.shape[-1]
    if not isinstance(inner, int) or not isinstance(columns, int):
        return None
    if rows < 2 or inner % (2 * lanes) or columns % (2 * lanes):
        return None
    return Shape(rows, inner, columns)


__all__ = ["Strassen"]
