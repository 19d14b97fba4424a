"""Guard mode reports accesses outside of values: the kernel, its model nodes, and the nearest value."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend.compiler import compiler_problem
from dlc_core.diag import RuntimeFailure, Span, UsageError
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.expr import Load, Var, load
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes import PassContext
from dlc_core.passes.base import Pass
from dlc_core.runtime.guard.mode import MODES
from dlc_core.testing.control_programs import scan_and_loop
from dlc_core.testing.guarded import call_guarded
from dlc_core.tir.functor import transform_stmt

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="fault reports are written on Linux"),
    pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem())),
]

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(4, 12)


@dataclass(frozen=True)
class Shift(Pass):
    """Breaks a kernel: it reads a parameter `by` elements further."""

    name: ClassVar[str] = "shift"
    stage: ClassVar[str] = "tir"
    before: ClassVar[str] = "prove_bounds"
    kernel: str = ""
    param: str = ""
    by: int = 1

    def run(self, module, context):
        func = module[self.kernel]
        (wrong,) = [b for b in func.buffers if b.name == self.param]

        def moved(e):
            if isinstance(e, Load) and e.buffer is wrong:
                return load(wrong, [*e.indices[:-1], e.indices[-1] + self.by])
            return None

        return module.with_function(self.kernel, replace(func, body=transform_stmt(func.body, expr_fn=moved)))


def named(value, name):
    value.add_spans([Span("a model", name)])
    return value


def chain(rows):
    """Kernels that read an input, a constant and two values in the arena."""
    x = param("x", tensor_type((rows, 12)))
    bias = constant(np.linspace(0, 1, 12, dtype=np.float32))
    first = named(std.softmax(x), "first")
    middle = named(std.reduce_sum(std.add(first, bias), axes=(1,), keepdims=True), "middle")
    last = named(std.softmax(std.mul(first, middle)), "last")
    return IRModule({"main": Function("main", (x,), last)})


def broken(module, target, mode, kernel, param):
    shift = Shift(kernel, param, {"end": 1, "begin": -1}[mode])
    with PassContext(disabled=("prove_bounds",), passes=[shift]):
        return dlc.compile(module, target, config={"guard": mode}, num_threads=2, cache=False)


CASES = {
    "an input": ("fused_softmax", "p0", "first", "input 'x', of 192 bytes"),
    "a constant": ("fused_add_reduce_sum", "p1", "middle", "constant 'add_reduce_sum_p1', of 48 bytes"),
    "a value": ("fused_add_reduce_sum", "p0", "middle", "the result of softmax, of 192 bytes"),
    "a small value": ("fused_mul_softmax", "p1", "last", "the result of add_reduce_sum, of 16 bytes"),
}


SLOW = pytest.mark.slow
READS = [
    pytest.param(target, case, mode, marks=[] if target == "llvm" or case == "a value" else SLOW)
    for target in ("llvm", "c", "opencl_simulated")
    for case in CASES
    for mode in MODES
]


def report(exe, *arrays):
    """The report of a call whose process dies."""
    with pytest.raises(RuntimeFailure) as caught:
        call_guarded(exe, *arrays)
    return str(caught.value)


@pytest.mark.parametrize(("target", "case", "mode"), READS)
def test_reports_a_read_next_to_a_value(target, case, mode):
    kernel, wrong, node, near = CASES[case]
    text = report(broken(chain(4), target, mode, kernel, wrong), X)
    assert "died of SIGSEGV" in text
    assert f"in kernel {kernel}" in text
    assert f"of '{node}'" in text
    assert f"touched: {'0 bytes after' if mode == 'end' else '4 bytes before'} {near}" in text


@pytest.mark.parametrize("mode", MODES)
def test_reports_a_read_next_to_a_value_of_symbolic_size(mode):
    text = report(broken(chain(Var("n")), "llvm", mode, "fused_mul_softmax", "p1"), X)
    assert "in kernel fused_mul_softmax" in text
    assert "the result of add_reduce_sum, of 16 bytes" in text


def test_reports_a_read_of_another_thread():
    x = np.ones((4096, 12), np.float32)
    text = report(broken(chain(4096), "llvm", "end", "fused_softmax", "p0"), x)
    assert "in kernel fused_softmax" in text
    assert "0 bytes after input 'x'" in text


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_reports_a_read_in_the_body_of_a_loop(target):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in (5, 5, (4, 5))]
    (kernel,) = [name for name in kernels(scan_and_loop(), target) if "tanh" in name]
    text = report(broken(scan_and_loop(), target, "end", kernel, "p0"), *arrays, np.int32(0))
    assert f"in kernel {kernel}" in text
    assert "0 bytes after state 0 of a loop, of 20 bytes" in text


def kernels(module, target):
    """The names of a model's kernels."""
    exe = dlc.compile(module, target, config={"guard": "end"}, num_threads=2, cache=False)
    return {call.kernel for call in exe.signature.guard.calls}


def test_successful_calls_return_results():
    exe = dlc.compile(chain(4), "llvm", config={"guard": "end"})
    np.testing.assert_array_equal(call_guarded(exe, X)[0], exe(X))
    with pytest.raises(UsageError, match="shape"):
        call_guarded(exe, X[:2])
