"""fold_batch_norm: replace a batch norm with constant statistics by a scale and a shift of each channel.

Law: results stay within tolerance; the two constants are computed in float64 and rounded once.

    batch_norm(x, scale, bias, mean, var)      =>      x * a + b,     a = scale / sqrt(var + eps),  b = bias -
    mean * a
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dlc_core.graph.node import Function, Node, const_array, constant, rewrite
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.support.record import record

BATCH_NORM, MUL, ADD = OPS["batch_norm"], OPS["mul"], OPS["add"]


@record(frozen=True)
class FoldBatchNorm(GraphPass):
    """Replace a batch norm with constant statistics by a scale and a shift of each channel."""

    name: ClassVar[str] = "fold_batch_norm"
    min_level: ClassVar[int] = 1
    exact: ClassVar[bool] = False

    def run_function(self, function: Function, context: PassContext) -> Function:
        body = rewrite(function.body, _fold)
        return function if body is function.body else function.with_body(body)


def _fold(old: Node, args: tuple[Node, ...]) -> Node | None:
    if old.op is not BATCH_NORM:
        return None
    x, *vectors = args
    arrays = [const_array(v) for v in vectors]
    if any(a is None for a in arrays):
        return None
    scale, bias, mean, var = (a.astype(np.float64) for a in arrays if a is not None)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(var + old.attrs["eps"])
        shift = bias - mean * factor
    shape = [1] * len(x.shape)
    shape[old.attrs["axis"]] = scale.size
    constants = [constant(v.reshape(shape), x.dtype) for v in (factor, shift)]
    return ADD.build(MUL.build(x, constants[0]), constants[1])
