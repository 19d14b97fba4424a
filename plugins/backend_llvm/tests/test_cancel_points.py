"""Stop points around foreign functions, products in tile registers and guarded memory."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest
from dlc_backend_llvm.host import host_cpu
from dlc_backend_llvm.pool_text import has_stops

import dlc_core as dlc
from dlc_core import te
from dlc_core.diag import CancelledError
from dlc_core.foreign import ForeignFunction, PythonCallable, register_foreign, unregister_foreign
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.runtime.guard.mode import MODES

pytestmark = pytest.mark.skipif(not has_stops(host_cpu().triple), reason="calls cannot be stopped here")

SOON = 2.0
"""Seconds within which a call ends on a busy machine; it takes less than 0.05 on an idle one."""
CALLS, ENOUGH = 100, 3


@pytest.fixture
def paused() -> Iterator[tuple[dlc.CancelToken, list[int]]]:
    """A token, which call number `ENOUGH` of the foreign function `test.pause` cancels, and the calls."""
    token, calls = dlc.CancelToken(), []

    def pause(x: np.ndarray, y: np.ndarray, n: int) -> None:
        calls.append(n)
        if len(calls) == ENOUGH:
            token.cancel()
        y[...] = x + 1

    signature = "(in float32 x[n], out float32 y[n], int64 n)"
    register_foreign(ForeignFunction("test.pause", signature, [PythonCallable(pause)]))
    yield token, calls
    unregister_foreign("test.pause")


def test_a_call_stops_between_foreign_functions(paused: tuple[dlc.CancelToken, list[int]]) -> None:
    token, calls = paused
    x = made = param("x", tensor_type((4,)))
    for _ in range(CALLS):
        made = std.call_dps(made, function="test.pause")
    exe = dlc.compile(IRModule.of(Function("main", (x,), made)), "llvm", cache=False)
    with pytest.raises(CancelledError):
        exe(np.zeros(4, np.float32), cancel=token)
    assert ENOUGH <= len(calls) <= ENOUGH + 20
    np.testing.assert_array_equal(exe(np.zeros(4, np.float32)), np.full(4, CALLS))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("mode", MODES)
def test_guarded_calls_stop_and_are_right_afterwards(mode: str, threads: int) -> None:
    x, k = te.placeholder((64,), name="x"), te.reduce_axis(1 << 40, "k")
    total = te.compute((64,), lambda i: te.sum(x[i] * (k % 8).astype("float32"), axis=k), "total")
    with dlc.PassContext(config={"guard": mode}):
        endless = dlc.build([x, total], f"llvm -num-threads={threads}", num_threads=threads)
    for _ in range(3):
        begin = time.perf_counter()
        with pytest.raises(CancelledError):
            endless(np.ones(64, np.float32), cancel=dlc.CancelToken(timeout=0.05))
        assert time.perf_counter() - begin < SOON
    value = param("x", tensor_type((64,)))
    module = IRModule.of(
        Function("main", (value,), std.exp(std.add(value, constant(np.ones(64, np.float32)))))
    )
    exe = dlc.compile(module, "llvm", config={"guard": mode}, num_threads=threads, cache=False)
    given = np.linspace(-1, 1, 64, dtype=np.float32)
    np.testing.assert_allclose(exe(given), np.exp(given + 1), rtol=1e-6)


DEEP = 1 << 17
"""The K of a product: its loop alone takes longer than the time between two stop points."""


def test_tile_products_stop_between_blocks_of_rows() -> None:
    """Tile registers do not survive a call, so no stop point may be where tiles are live."""
    w = constant(np.zeros((DEEP, 32), ml_dtypes.bfloat16))
    x = param("x", tensor_type((1024, DEEP), "bfloat16"))
    module = IRModule.of(Function("main", (x,), std.matmul(x, w, out_dtype="float32")))
    target = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=sapphirerapids -num-threads=1"
    text = dlc.compile(module, target, cache=False).source("llvm")
    functions = re.findall(r"^define .*?^}$", text, re.MULTILINE | re.DOTALL)
    assert any("@fused_matmul(" in body.split("\n")[0] and "@dlc_stop_look" in body for body in functions)
    kernels = [body for body in functions if "tdpbf16ps" in body]
    assert kernels
    for body in kernels:
        live = False
        for line in body.splitlines():
            if "tilezero" in line or "tileload" in line:
                live = True
            elif "tilestore" in line:
                live = False
            assert not (live and "@dlc_stop_look" in line)
