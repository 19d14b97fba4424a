"""Running graph passes under all watchers."""

from __future__ import annotations

import pytest

from dlc_core.graph.node import Function, make_tuple, post_order
from dlc_core.ir.module import IRModule
from dlc_core.passes import PassContext, Pipeline
from dlc_core.passes.watch import KeepSpans, NumericCheck, Verify


def function_of(*results, params=None):
    """A function of the params that the results reach, in reading order."""
    body = results[0] if len(results) == 1 else make_tuple(results)
    params = params or tuple(n for n in post_order(body) if n.op.name == "param")
    return Function("main", tuple(params), body)


@pytest.fixture
def make_function():
    return function_of


@pytest.fixture
def checked():
    """Runs passes over results and returns the new function. Checks grammar, results and spans after each
    pass.
    """

    def run(passes, *results, params=None, feeds=None, context=None, scale=1.0):
        function = results[0] if isinstance(results[0], Function) else function_of(*results, params=params)
        context = (context or PassContext()).with_(
            watchers=(Verify(), NumericCheck(feeds, scale=scale), KeepSpans())
        )
        passes = passes if isinstance(passes, (list, tuple, Pipeline)) else [passes]
        return Pipeline(tuple(passes)).run(IRModule({"main": function}), context)["main"]

    return run
