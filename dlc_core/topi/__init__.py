"""Library of tensor expressions: a function on te tensors for every op that has a lowering.

    x, w = te.placeholder((1, 64)), te.placeholder((10, 64))
    y = topi.nn.softmax(topi.nn.relu(topi.nn.dense(x, w)))
    exe = dlc.build([x, w, y])

There is a function for each declared op, those of plugins included: `dir(topi)` lists them, and
`help(topi.conv)` has the parameters. They take te tensors and numbers, broadcast as NumPy does, and return
tensors whose stages can be scheduled (`dlc.create_schedule`). A composite is computed by the ops of its
body.

`topi.nn`, `topi.reduce` and `topi.image` have functions by the names and parameters of TVM's topi, and so has
`topi` itself: `topi.subtract`, `topi.sum(x, axis=1)`, `topi.concatenate`, `topi.nn.conv2d`.

Ops whose sizes depend on data (`nonzero`), control flow and ops that run on the host have no function.
"""

from __future__ import annotations

from typing import Any

from dlc_core.topi import image as image
from dlc_core.topi import nn as nn
from dlc_core.topi import reduce as reduce
from dlc_core.topi.lookup import find, names
from dlc_core.topi.names import ALIASES

_MODULES = ("image", "nn", "reduce")


def __getattr__(name: str) -> Any:
    if name == "__all__":  # `help` shows these
        return __dir__()
    return find(__name__, name, ALIASES)


def __dir__() -> list[str]:
    return sorted({*names(ALIASES), *_MODULES})
