"""The conformance kit in guard mode: no kernel of this backend accesses memory outside of its values."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from dlc_backend_llvm.emulator import device, qemu, server

import dlc_core as dlc
from dlc_core.backend.compiler import compiler_problem
from dlc_core.config import config
from dlc_core.diag import RuntimeFailure
from dlc_core.driver import find_target
from dlc_core.graph.node import Function, make_tuple, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes import PassContext
from dlc_core.passes.base import Pass
from dlc_core.runtime.guard.mode import MODES
from dlc_core.testing import conformance_suite, networks
from dlc_core.testing.guarded import call_guarded
from dlc_core.testing.levels.layers import subject_of
from dlc_core.tir.functor import stmts, transform_stmt
from dlc_core.tir.stmt import Store

EDGES = ("conv", "max_pool", "slice", "pad")
"""Ops whose kernels have windows that extend over the borders of their inputs."""
OPS = (*EDGES, "matmul", "softmax", "concat", "gather", "transpose")
DTYPES = ("float32", "int8")
MORE = ("device", "ops", "graphs", "models")

TestEnd = conformance_suite("llvm", levels=("ops",), ops=OPS, dtypes=DTYPES, guard="end")
TestBegin = conformance_suite("llvm", levels=("ops",), ops=EDGES, dtypes=DTYPES, guard="begin")
TestAllEnd = pytest.mark.slow(conformance_suite("llvm", levels=MORE, guard="end"))
TestAllBegin = pytest.mark.slow(conformance_suite("llvm", levels=MORE, guard="begin"))


def test_cached_executables_of_the_kit_use_guard_mode() -> None:
    made = {}
    for mode in MODES:
        with config.override(guard=mode):
            made[mode] = subject_of(find_target("llvm"), "shared").exe
    assert made["end"].artifact.code != made["begin"].artifact.code


PICKED = """
@T.prim_func
def picked(
    A: T.Buffer((40,), "float32"), I: T.Buffer((n,), "int64"), B: T.Buffer((16,), "float32"), n: T.int64
):
    B[T.ramp(0, 1, 16)] = T.if_then_else(
        T.ramp(0, 1, 16) < T.broadcast(n, 16),
        A[T.max(T.min(I[T.ramp(0, 1, 16)], T.broadcast(39, 16)), T.broadcast(0, 16))],
        T.broadcast(T.float32(0), 16))
"""


STRIDED = """
@T.prim_func
def picked(
    A: T.Buffer((40,), "float32"), I: T.Buffer((n * 3,), "int64"), B: T.Buffer((16,), "float32"), n: T.int64
):
    B[T.ramp(0, 1, 16)] = T.if_then_else(
        T.ramp(0, 1, 16) < T.broadcast(n, 16), A[I[T.ramp(0, 3, 16)]], T.broadcast(T.float32(0), 16))
"""
"""Its indices cannot be proved to be in bounds, so they are checked at run time."""


@pytest.mark.parametrize(("text", "step"), [(PICKED, 1), (STRIDED, 3)])
@pytest.mark.parametrize("count", [0, 1, 5, 16])
def test_indices_of_masked_lanes_are_not_read(count, text, step):
    exe = dlc.build(dlc.script.parse(text), "llvm", config={"guard": "end"})
    a, i = np.arange(40, dtype=np.float32), (np.arange(count * step, dtype=np.int64) * 7) % 40
    (found,) = call_guarded(exe, a, i)
    np.testing.assert_array_equal(found[:count], a[i[::step]])
    np.testing.assert_array_equal(found[count:], 0)


CAPACITY = 9
KERNEL = "fused_exp_in_place"


def grown() -> IRModule:
    """A cache to which each call appends a row, and the sum of its rows."""
    x, past = param("x", tensor_type((2, 1, 5))), param("past", tensor_type((2, Var("n"), 5)))
    now = std.concat(past, std.exp(x), axis=1)
    attrs = {"inputs": ("x", "past"), "outputs": ("y", "now")}
    body = make_tuple([std.reduce_sum(now, axes=(1,)), now])
    return IRModule({"main": Function("main", (x, past), body).with_attrs(**attrs)})


@dataclass(frozen=True)
class ShiftStores(Pass):
    """Change a kernel so that it writes its output at an offset of some elements."""

    name: ClassVar[str] = "shift_stores"
    stage: ClassVar[str] = "tir"
    before: ClassVar[str] = "prove_bounds"
    by: int = 0

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        func = module[KERNEL]

        def moved(s):
            if isinstance(s, Store) and s.buffer is func.buffers[-1]:
                return replace(s, indices=(*s.indices[:-1], s.indices[-1] + self.by))
            return None

        assert any(isinstance(s, Store) and s.buffer is func.buffers[-1] for s in stmts(func.body))
        return module.with_function(KERNEL, replace(func, body=transform_stmt(func.body, stmt_fn=moved)))


def growing(mode: str, by: int = 0) -> dlc.Executable:
    with PassContext(disabled=("prove_bounds",), passes=[ShiftStores(by)] if by else []):
        return dlc.compile(
            grown(), "llvm", donate={"past": CAPACITY}, config={"guard": mode}, num_threads=1, cache=False
        )


@pytest.mark.parametrize("mode", MODES)
def test_donated_caches_grow_in_the_callers_memory(mode):
    exe, rng = growing(mode), np.random.default_rng(0)
    memory = np.full((2, CAPACITY, 5), 7, np.float32)
    past, rows = memory[:, :0], []
    for length in range(1, 4):
        rows.append(rng.standard_normal((2, 1, 5)).astype(np.float32))
        expected = np.exp(np.concatenate(rows, 1))
        y, now = exe(rows[-1], past) if length < 3 else exe.bind([rows[-1], past])()
        assert np.shares_memory(now, memory)
        np.testing.assert_allclose(now, expected, 1e-5)
        np.testing.assert_allclose(y, expected.sum(1), 1e-5)
        assert (memory[:, length:] == 7).all()
        past = now


@pytest.mark.parametrize(("mode", "length", "by", "message"), [
    ("end", CAPACITY - 1, 5, "0 bytes after input 'past'"),
    ("begin", 0, -5, "20 bytes before input 'past'"),
])  # fmt: skip
def test_writes_beyond_donated_memory_end_the_process(mode, length, by, message):
    with pytest.raises(RuntimeFailure) as caught:
        call_guarded(growing(mode, by), np.ones((2, 1, 5), np.float32), np.ones((2, length, 5), np.float32))
    assert f"in kernel {KERNEL}" in str(caught.value)
    assert message in str(caught.value)


def test_writes_after_the_output_in_donated_memory_are_found():
    with pytest.raises(RuntimeFailure, match="40 bytes of input 'past' after the end of its output"):
        growing("end", 5)(np.ones((2, 1, 5), np.float32), np.ones((2, 3, 5), np.float32))


SHIFTED = """
@T.prim_func
def shifted(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        B[i] = A[i + OFF]
"""


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An emulated target whose machine is this one."""
    monkeypatch.setattr(qemu, "any_problem", lambda: None)
    monkeypatch.setattr(server, "emulator", lambda cpu: ["env"])
    monkeypatch.setattr(device, "problem", lambda cpu: None)
    monkeypatch.setattr(device, "_servers", {})
    yield "emulated"
    for one in device._servers.values():
        one.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the process is one of Linux")
@pytest.mark.skipif(compiler_problem() is not None, reason=str(compiler_problem()))
@pytest.mark.parametrize("mode", MODES)
def test_guard_mode_protects_pages_of_an_emulated_process(mode, emulated):
    x = networks.feed(networks.mlp())
    exe = dlc.compile(networks.mlp(), emulated, config={"guard": mode}, cache=False)
    expected = dlc.compile(networks.mlp(), "reference", cache=False)(x)
    for _ in range(2):
        np.testing.assert_allclose(exe(x), expected, 1e-4, 1e-5)
    func = dlc.script.parse(SHIFTED.replace("OFF", "1" if mode == "end" else "-1"))
    with PassContext(disabled=("prove_bounds",)):
        exe = dlc.build(func, emulated, config={"guard": mode})
    with pytest.raises(RuntimeFailure, match="SIGSEGV"):
        exe(np.ones(8, np.float32))
