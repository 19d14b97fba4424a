"""A custom op as a plugin: one declaration, found by the entry point in pyproject.toml. The declaration has
inference, a NumPy reference, a lowering to native code, and samples, from which the conformance kit makes the
op's tests for every installed target.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dlc_core.hooks import Declaration, hookimpl
from dlc_core.ir.expr import select
from dlc_core.op.declare import FLOATS, Attr, op
from dlc_core.op.infer import same_type
from dlc_core.op.lower import elementwise
from dlc_core.op.samples import unary_samples

DLC_API = "0.1"

SHRINK = op(
    "soft_shrink",
    "x moved towards 0 by lambd; 0 where |x| <= lambd",
    ["x"],
    [Attr("lambd", "float", 0.5)],
    kind="elementwise",
    infer=same_type(FLOATS),
    reference=lambda x, *, lambd: np.where(x > lambd, x - lambd, np.where(x < -lambd, x + lambd, x * 0)),
    lower=elementwise(
        "soft_shrink",
        lambda x, *, lambd: select(x > lambd, x - lambd, select(x < -lambd, x + lambd, x * 0.0)),
    ),
    samples=unary_samples(),
)


@hookimpl
def dlc_ops() -> Iterable[Declaration]:
    return [SHRINK]
