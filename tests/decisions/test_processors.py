"""Every alternative of the decisions of processors computes what the reference target computes.

Kernels are small, with sizes that leave tails.  Each alternative is forced, then all decisions at random.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.decisions import DECISIONS, Choice, declared
from dlc_core.diag import UsageError
from dlc_core.graph.node import Node, constant, param
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.testing.cases import module_of
from dlc_core.testing.decision_coverage import executed

pytest.importorskip("dlc_backend_llvm", reason="kernels run on the backend for this machine")

N = Var("n")
RNG = np.random.default_rng(5)


def _x(*shape, name="x", dtype="float32"):
    return param(name, tensor_type(shape, dtype))


def _w(*shape):
    return constant(RNG.standard_normal(shape).astype("float32"))


def _graphs() -> dict[str, tuple[Node, list[Node]]]:
    image, rows, batch = _x(2, 20, 11, 13), _x(13, 37), _x(3, 17, 33)
    wide, tall, short = _x(3, 128), _x(45, 19), _x(19, 6, name="y")
    few, odd, long, other = _x(1, 150), _x(1, 5, 9, 14), _x(3, 300), _x(19, 37, name="y")
    deep = _x(1, 96, 6, 12)
    pair = _x(2, 37)
    unknown, left = _x(N, 24), _x(3, 17, 21, name="y")
    around = (1, 1, 1, 1)
    return {
        "dense": (std.relu(std.matmul(rows, _w(37, 70))), [rows]),
        "one row": (std.matmul(few, _w(150, 45)), [few]),
        "symbolic rows": (std.add(std.matmul(unknown, _w(24, 40)), _w(40)), [unknown]),
        "two inputs": (std.matmul(tall, short), [tall, short]),
        "batched": (std.matmul(std.transpose(batch, axes=(0, 2, 1)), left), [batch, left]),
        "transposed": (std.matmul(rows, std.transpose(other, axes=(1, 0))), [rows, other]),
        "transposed row": (std.matmul(pair, std.transpose(other, axes=(1, 0))), [pair, other]),
        "conv": (std.relu(std.conv(image, _w(24, 20, 3, 3), padding=around)), [image]),
        "wide conv": (std.conv(image, _w(9, 20, 5, 5), padding=(2, 2, 2, 2)), [image]),
        "dilated conv": (
            std.conv(image, _w(24, 20, 3, 3), dilation=(4, 5), padding=(4, 5, 4, 5)),
            [image],
        ),
        "strided conv": (std.conv(odd, _w(7, 5, 3, 2), strides=(2, 1)), [odd]),
        "wide depthwise": (std.conv(image, _w(20, 1, 9, 9), groups=20, padding=(4, 4, 4, 4)), [image]),
        "many channels": (std.conv(deep, _w(96, 1, 3, 3), groups=96, padding=around), [deep]),
        "softmax of columns": (std.softmax(batch, axis=1), [batch]),
        "depthwise": (std.conv(image, _w(20, 1, 3, 3), groups=20, padding=around), [image]),
        "pool": (std.max_pool(image, kernel=(3, 2), padding=(1, 0, 1, 1)), [image]),
        "softmax": (std.softmax(batch), [batch]),
        "columns": (std.reduce_sum(batch, axes=(1,)), [batch]),
        "long rows": (std.reduce_sum(wide, axes=(1,)), [wide]),
        "rows": (std.reduce_max(std.exp(long), axes=(1,)), [long]),
        "norm": (
            std.div(std.sub(long, std.reduce_mean(long, axes=(1,), keepdims=True)), std.exp(long)),
            [long],
        ),
        "transpose": (std.transpose(batch, axes=(2, 0, 1)), [batch]),
        "map": (std.tanh(std.exp(std.add(batch, batch))), [batch]),
    }


GRAPHS = _graphs()
FEEDS = {
    name: [
        RNG.standard_normal([11 if d is N else d for d in each.shape]).astype("float32") for each in params
    ]
    for name, (_, params) in GRAPHS.items()
}
SHOWN = {
    "gemm.tile": ("dense", "symbolic rows", "conv"),
    "gemm.columns": ("two inputs",),
    "gemm.k_block": tuple(GRAPHS),
    "gemm.packing": ("transposed",),
    "gemm.pad_rows": tuple(GRAPHS),
    "gemm.padding": ("dilated conv",),
    "gemm.partial_sums": ("one row",),
    "gemm.tails": ("symbolic rows",),
    "gemm.transposed": ("transposed", "transposed row"),
    "gemm.loop_order": ("batched", "dense"),
    "gemm.prefetch": ("conv", "dense"),
    "conv.border": ("wide depthwise",),
    "window.vectors": ("pool", "depthwise"),
    "window.pixels": ("pool", "depthwise"),
    "window.channel_block": ("many channels",),
    "rows.lanes": ("softmax of columns",),
    "rows.keep": ("norm", "softmax"),
    "rows.chains": ("long rows",),
    "map.registers": ("map",),
    "map.transpose": ("transpose",),
    "loops.threads": ("map",),
}
"""For each decision, the kernels whose candidates must include its alternatives."""


def check(name: str, decisions: str, threads: int = 1, guard: str = "off") -> set[tuple[str, str]]:
    """Check the values of a kernel with forced decisions, and return the executed alternatives."""
    body, params = GRAPHS[name]
    config = {DECISIONS: decisions, "guard": guard}
    exe = dlc.compile(module_of(body, params), "llvm", cache=False, num_threads=threads, config=config)
    expected = _expected(name)
    found = exe(*FEEDS[name])
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5 * scale, err_msg=f"{name}: {decisions}")
    executed(exe.about[DECISIONS])
    made = [Choice.parse(text) for site in exe.about["sites"] for text in site[DECISIONS]]
    return {(choice.decision, choice.alternative) for choice in made}


@cache
def _expected(name: str) -> np.ndarray:
    body, params = GRAPHS[name]
    return np.asarray(dlc.compile(module_of(body, params), "reference", cache=False)(*FEEDS[name]))


@pytest.mark.parametrize(
    ("decision", "alternative"),
    [(name, alternative) for name in SHOWN for alternative in declared()[name].alternatives],
)
def test_an_alternative_is_executed(decision, alternative):
    """Some kernel uses each alternative if it is forced, and computes the right values."""
    wanted = decision, alternative
    for name in SHOWN[decision]:
        with suppress(UsageError):  # no candidate of this kernel
            if wanted in check(name, f"{decision}={alternative}"):
                return
    pytest.fail(f"no kernel takes {decision}={alternative}")


@pytest.mark.parametrize("seed", [1, *(pytest.param(s, marks=pytest.mark.slow) for s in range(2, 40))])
@pytest.mark.parametrize("name", GRAPHS)
def test_random_decisions_compute_the_same(name, seed):
    guard = ("off", "end", "begin")[seed % 3]
    check(name, f"*=random:{seed}", threads=1 + seed % 2, guard=guard)
