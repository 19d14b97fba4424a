"""The C runtime of the card of `dlc_core.testing.card`: its declaration, and the code that it loads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from dlc_core.backend.deploy import DeviceRuntime
from dlc_core.graph.node import CONST, GET, PARAM, TUPLE, post_order
from dlc_core.hooks import hookimpl
from dlc_core.target import Artifact
from dlc_core.testing.card import CardPlugin, CardProgram

SOURCE = Path(__file__).with_name("card_device.c")
_KINDS = {"matmul": 0, "add": 1, "relu": 2}


def code(artifact: Artifact) -> bytes:
    """A region as the words that `card_device.c` describes."""
    function = CardProgram(artifact).function
    order = list(post_order(function.body))
    constants = [n for n in order if n.op is CONST]
    ops = [n for n in order if n.op not in (CONST, PARAM, TUPLE, GET)]
    values = {n: i for i, n in enumerate((*function.params, *constants, *ops))}
    (rows,) = {p.shape[0] if isinstance(p.shape[0], int) else -1 for p in function.params}
    data = [np.ascontiguousarray(n.attrs["value"].data, np.float32) for n in constants]
    words = [len(function.params), len(constants), len(ops), len(function.results), rows]
    words += [n.shape[-1] for n in values]
    at = 0
    for array in data:
        words += [at, array.shape[0]]
        at += array.size
    for n in ops:
        args = [values[a] for a in n.args]
        if n.op.name == "add" and n.args[0].op is CONST:
            args.reverse()
        words += [_KINDS[n.op.name], args[0], args[-1]]
    words += [values[n] for n in function.results]
    return np.array(words, "<i8").tobytes() + b"".join(array.tobytes() for array in data)


RUNTIME = DeviceRuntime("card", "card_device_api", sources=(SOURCE,), libraries=("pthread",), code=code)
THIRD = DeviceRuntime(
    "third",
    "third_device_api",
    sources=(SOURCE.with_name("third_device.c"),),
    headers=(SOURCE,),
    libraries=("pthread",),
    code=code,
)
"""Another runtime, which does not copy between cards."""


class DeployedCard(CardPlugin):
    """The card, with its C runtime."""

    @hookimpl
    def dlc_targets(self):
        runtime = THIRD if self.name == "third" else RUNTIME
        return [replace(kind, runtime=runtime) for kind in super().dlc_targets()]
