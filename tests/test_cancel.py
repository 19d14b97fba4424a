"""Cancellation of compiles and of host programs, limits of models and of the time of a compile."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.cancel import CancelToken, awaited, checkpoint, current, stoppable
from dlc_core.config import config
from dlc_core.diag import CancelledError, LimitError, UsageError
from dlc_core.graph.node import Function, Node, const_array, constant, param, post_order, rewrite
from dlc_core.hooks import hookimpl
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes import Pass, PassContext, Pipeline
from dlc_core.passes.graph.fold_constants import FoldConstants
from dlc_core.passes.lower.order import Work, better_order
from dlc_core.plugin.registry import fresh_registry


def module(body: Any, shape: tuple[int, ...] = (4,)) -> IRModule:
    x = param("x", tensor_type(shape, "float32"))
    return IRModule.of(Function("main", (x,), body(x)))


def chain(length: int) -> IRModule:
    def body(x: Node) -> Node:
        for i in range(length):
            x = std.sin(x) if i % 2 else std.exp(x)
        return x

    return module(body)


def test_tokens_are_of_a_block_and_stay_cancelled() -> None:
    outer, inner = CancelToken(), CancelToken()
    assert current() is None
    with outer:
        with inner:
            assert current() is inner
            outer.cancel()
            with pytest.raises(CancelledError):
                checkpoint()
        with pytest.raises(CancelledError):
            checkpoint()
    checkpoint()
    assert inner.cancelled
    assert outer.cancelled
    with outer, CancelToken() as late:
        assert late.cancelled


def test_tokens_are_seen_by_their_own_thread_only() -> None:
    token, seen = CancelToken(), []
    token.cancel()
    with token:
        thread = threading.Thread(target=lambda: seen.append(current()))
        thread.start()
        thread.join()
    assert seen == [None]


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan")])
def test_timeouts_are_positive(timeout: float) -> None:
    with pytest.raises(UsageError, match="positive"):
        CancelToken(timeout=timeout)


def test_a_pipeline_stops_between_passes() -> None:
    token = CancelToken()

    class Cancelling(Pass):
        name = "cancelling"

        def run(self, module: IRModule, context: PassContext) -> IRModule:
            token.cancel()
            return module

    class Never(Pass):
        name = "never"

        def run(self, module: IRModule, context: PassContext) -> IRModule:
            raise AssertionError("the pipeline has been cancelled")

    with token, pytest.raises(CancelledError):
        Pipeline((Cancelling(), Never())).run(chain(2))


def test_walks_stop() -> None:
    nodes = enumerate(post_order(chain(10_000)["main"].body))
    with CancelToken() as token:
        assert next(nodes)[0] == 0
        token.cancel()
        with pytest.raises(CancelledError):
            list(nodes)
    assert next(nodes, None) is None


def test_models_have_limits() -> None:
    with config.override(max_nodes=100), pytest.raises(LimitError, match="DLC_MAX_NODES"):
        dlc.compile(chain(101), "reference", cache=False)
    with pytest.raises(LimitError, match=r"(?s)a tensor takes .* DLC_MAX_BYTES"):
        dlc.compile(module(lambda x: std.broadcast_to(x, shape=(1 << 62, 4))), "reference", cache=False)
    weights = constant(np.ones((64, 4), np.float32))
    with config.override(max_bytes=1000), pytest.raises(LimitError, match=r"the constants|a tensor"):
        dlc.compile(module(lambda x: std.add(x, weights)), "reference", cache=False)


def test_cached_results_have_the_limits_of_their_models(tmp_path: Path) -> None:
    with config.override(cache_dir=tmp_path):
        assert dlc.compile(chain(101), "reference", cache=True).report["cache"] == "stored"
        with config.override(max_nodes=100), pytest.raises(LimitError, match="DLC_MAX_NODES"):
            dlc.compile(chain(101), "reference", cache=True)
        with config.override(max_bytes=7), pytest.raises(LimitError, match="a tensor takes"):
            dlc.compile(chain(101), "reference", cache=True)
        assert dlc.compile(chain(101), "reference", cache=True).report["cache"] == "hit"


def test_the_interpreter_stops_in_loops() -> None:
    i, limit = param("i", tensor_type((), "int64")), constant(np.int64(1 << 62))
    cond = Function("cond", (i,), std.less(i, limit))
    body = Function("body", (i,), dlc.graph.make_tuple([std.add(i, constant(np.int64(1)))]))
    start = param("x", tensor_type((), "int64"))
    made = dlc.graph.get_item(std.while_(start, cond=cond, body=body), 0)
    exe = dlc.compile(IRModule.of(Function("main", (start,), made)), "reference")
    with pytest.raises(CancelledError):
        exe(np.int64(0), cancel=dlc.CancelToken(timeout=0.1))


@pytest.mark.parametrize(("op", "expected"), [("reduce_sum", 1.5 * 2**33), ("reduce_max", 1.5)])
def test_large_equal_constants_are_reduced_without_reading_them(op: str, expected: float) -> None:
    filled = np.broadcast_to(np.float32(1.5), (1 << 33,))
    made = FoldConstants().run(
        module(lambda x: std.add(x, getattr(std, op)(constant(filled)))), PassContext()
    )
    folded = const_array(made["main"].body.args[1])
    assert folded is not None
    assert folded.item() == np.float32(expected)


def test_what_exceeds_the_budget_stays_in_the_program() -> None:
    filled = np.broadcast_to(np.float32(1.5), (1 << 33,))
    given = module(lambda x: std.add(x, std.reduce_sum(std.exp(constant(filled)))))
    assert FoldConstants().run(given, PassContext())["main"].body.args[1].op.name == "reduce_sum"
    small = module(lambda x: std.add(x, std.reduce_sum(std.exp(constant(np.ones(1000, np.float32))))))
    assert const_array(FoldConstants().run(small, PassContext())["main"].body.args[1]) is not None
    assert FoldConstants(max_work=500).run(small, PassContext())["main"].body.args[1].op.name == "reduce_sum"


def test_sums_of_large_equal_integers_wrap_around() -> None:
    filled = np.broadcast_to(np.int32(3), (1 << 31,))
    x = param("x", tensor_type((), "int32"))
    made = Function("main", (x,), std.add(x, std.reduce_sum(constant(filled))))
    folded = const_array(FoldConstants().run(IRModule.of(made), PassContext())["main"].body.args[1])
    assert folded is not None
    assert folded.item() == np.array(3 << 31, np.int64).astype(np.int32)


def test_waits_for_other_threads_stop() -> None:
    end, token, never = threading.Event(), CancelToken(timeout=0.1), Future[None]()
    with token, pytest.raises(CancelledError):
        stoppable(lambda: end.wait(30))
    end.set()
    with CancelToken(timeout=0.1), pytest.raises(CancelledError):
        awaited(never)
    with CancelToken() as own:
        assert stoppable(current) is own
    with pytest.raises(ZeroDivisionError):
        stoppable(lambda: 1 // 0)


def test_plugins_that_load_under_a_cancelled_token_are_not_broken() -> None:
    class Tests:
        @hookimpl
        def dlc_rules(self) -> list[Any]:
            checkpoint()
            return []

    with fresh_registry({"tests": Tests()}) as found, CancelToken() as token:
        token.cancel()
        list(found.rules)
        assert [plugin.problems for plugin in found.loaded] == [[] for _ in found.loaded]


FIRST = """
import sys, threading
import numpy as np
import dlc_core as dlc
from dlc_core.diag import CancelledError
from dlc_core.testing.networks import mlp

assert "dlc_core.driver.job" not in sys.modules
token = dlc.CancelToken()
token.cancel()
try:
    dlc.compile(mlp(), "reference", cancel=token, cache=False)
except CancelledError:
    print(any(thread.name == "dlc-stoppable" for thread in threading.enumerate()))
print(dlc.compile(mlp(), "reference", cache=False)(np.zeros((1, 64), np.float32)).shape)
"""


def test_a_compile_stops_while_the_compiler_is_imported() -> None:
    """The import goes on in another thread, for the next compile."""
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["True", "(1, 10)"]


def test_rewrites_and_orders_stop() -> None:
    body, steps = chain(100)["main"].body, [Work((), 4, 0), Work((), 4, 0), Work((0, 1), 4, 0)]
    with CancelToken() as token:
        token.cancel()
        with pytest.raises(CancelledError):
            rewrite(body, lambda old, args: None)
        with pytest.raises(CancelledError):
            better_order(steps)
