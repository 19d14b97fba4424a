"""Guard mode: values are separated by protected pages, and unwritten memory is NaN or large integers."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.config import config
from dlc_core.diag import RuntimeFailure, UsageError
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.dtype import dtype
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes import PassContext
from dlc_core.passes.base import Pass
from dlc_core.runtime.call.guarded import Layouts
from dlc_core.runtime.guard.memory import GuardedMemory, owner_of, shaped
from dlc_core.runtime.guard.mode import MODES, PAGE, Layout, SizedSlot, fill_of, mode_of, single_value_layout
from dlc_core.runtime.interface.encode import decode_signature, encode_signature
from dlc_core.runtime.memory.host import address
from dlc_core.testing.control_programs import scan_and_loop
from dlc_core.tir.functor import stmts, transform_stmt
from dlc_core.tir.intrinsics import kernel_symbol
from dlc_core.tir.stmt import Eval, Seq, seq

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pages are protected by POSIX calls")

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)


def chain(rows):
    """Three kernels in a row with constants of odd sizes."""
    rng = np.random.default_rng(1)
    x = param("x", tensor_type((rows, 6)))
    first, second = (constant(rng.standard_normal(s).astype(np.float32)) for s in ((6, 5), (5, 3)))
    y = std.softmax(std.matmul(std.softmax(std.matmul(x, first)), second))
    return IRModule({"main": Function("main", (x,), y)})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [0, 1, 24, PAGE - 8, PAGE, 3 * PAGE + 4])
def test_a_value_ends_or_begins_where_its_pages_do(mode, size):
    memory = GuardedMemory(single_value_layout("x", size, 0xFF, mode, 1))
    begin = address(memory.bytes)
    assert memory.bytes.size == size
    assert (memory.bytes == 0xFF).all()
    assert (begin if mode == "begin" else begin + size) % PAGE == 0
    near = begin - 1 if mode == "begin" else begin + size
    assert f"{int(mode == 'begin')} bytes {'before' if mode == 'begin' else 'after'} x" in owner_of(near)


def test_values_can_be_aligned_to_more_than_their_elements():
    memory = GuardedMemory(single_value_layout("x", 20, 0xFF, "end", 16))
    assert address(memory.bytes) % 16 == 0
    memory.check()
    assert PAGE - (address(memory.bytes) + 20) % PAGE == 12


def test_finds_writes_next_to_a_value_in_its_pages():
    memory = GuardedMemory(Layout(PAGE, (SizedSlot("x", 0, 8, 0xFF),)))
    memory.check()
    memory.bytes[8:10] = 1
    with pytest.raises(RuntimeFailure, match="2 bytes after x"):
        memory.check()


def test_refuses_shapes_that_arrays_cannot_have():
    """They have no elements, so they take no memory."""
    none, huge = np.zeros(0, np.uint8), (0, 1 << 40, 1 << 40)
    with pytest.raises(RuntimeFailure, match=r"a result cannot have the shape \(0, "):
        shaped(none, huge, np.dtype(np.float32))
    assert shaped(none, (0, 3), np.dtype(np.float32)).shape == (0, 3)


@pytest.mark.parametrize("mode", ["off", *MODES])
def test_results_without_elements_have_a_shape_that_arrays_can_have(mode):
    pytest.importorskip("dlc_backend_llvm", reason="the LLVM backend is not installed")
    n, a, b = Var("n"), Var("a"), Var("b")
    x, y = param("x", tensor_type((n, a, 1))), param("y", tensor_type((n, 1, b)))
    exe = dlc.compile(IRModule.of(Function("main", (x, y), std.add(x, y))), "llvm", config={"guard": mode})
    given = np.empty((0, 1 << 40, 1), np.float32), np.empty((0, 1, 1 << 40), np.float32)
    with pytest.raises(RuntimeFailure, match=r"the shape \(0, 1099511627776, 1099511627776\)"):
        exe(*given)
    assert exe(given[0], given[1][:, :, :3]).shape == (0, 1 << 40, 3)


@pytest.mark.parametrize("slots", [[(-8, 4)], [(0, PAGE + 1)], [(0, 8), (16, 8)], [(4 * PAGE, 0)]])
def test_refuses_slots_outside_the_memory_or_on_a_shared_page(slots):
    with pytest.raises(RuntimeFailure, match="is not inside"):
        GuardedMemory(Layout(PAGE, tuple(SizedSlot("x", at, size, 0) for at, size in slots)))


def test_unwritten_floats_are_nan_and_integers_are_large():
    for name in ("float32", "float64", "float16", "bfloat16", "float8_e5m2"):
        filled = np.full(8, fill_of(dtype(name)), np.uint8).view(dtype(name).numpy)
        assert np.isnan(filled.astype(np.float64)).all()
    for name in ("int64", "int32", "uint16", "int8"):
        filled = np.full(8, fill_of(dtype(name)), np.uint8).view(dtype(name).numpy)
        assert filled[0] % 2 == 1
        assert filled[0] > np.iinfo(dtype(name).numpy).max // 3


def test_settings_name_a_mode():
    assert [mode_of(text) for text in ("off", "0", "1", "end", "begin")] == [
        None,
        None,
        "end",
        "end",
        "begin",
    ]
    with pytest.raises(UsageError, match="guard"):
        mode_of("middle")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", ["llvm", "c", "opencl_simulated"])
def test_results_equal_those_without_guard_mode(target, mode):
    plain = dlc.compile(chain(2), target)
    guarded = dlc.compile(chain(2), target, config={"guard": mode})
    np.testing.assert_array_equal(guarded(X), plain(X))
    bound = guarded.bind([X])
    np.testing.assert_array_equal(bound(), plain(X))


@pytest.mark.parametrize("target", ["shared", "board", "reference"])
def test_devices_without_guarded_memory_run_the_same_code(devices, target):
    exe = dlc.compile(chain(2), target, config={"guard": "end"})
    np.testing.assert_allclose(exe(X), dlc.compile(chain(2), "reference")(X), 1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rows", [2, 700, "n"])
def test_no_two_values_share_a_page(mode, rows):
    exe = dlc.compile(chain(Var("n") if rows == "n" else rows), "llvm", config={"guard": mode})
    signature = decode_signature(encode_signature(exe.signature))
    assert encode_signature(signature) == encode_signature(exe.signature)
    plan = signature.plan([(700 if rows == "n" else rows, 6)])
    layouts = Layouts(signature, mode)
    assert layouts.arena(plan).size % PAGE == 0
    for layout, count in ((layouts.arena(plan), 3), (layouts.weights(signature.weights_size), 2)):
        slots = [r for r in layout.slots if r.fill]
        assert len(slots) >= count - 1
        assert layout.size >= slots[-1].end
        ends = [(r.offset // PAGE, -(-r.end // PAGE)) for r in slots]
        assert all(end < begin for (_, end), (begin, _) in pairwise(ends))
        assert all((r.offset if mode == "begin" else r.end) % PAGE == 0 for r in slots)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("size", [1, 5, 1500])
def test_loop_states_and_bodies_have_their_own_pages(mode, target, size):
    rng = np.random.default_rng(size)
    arrays = [rng.standard_normal(s).astype(np.float32) / 3 for s in (size, size, (4, size))]
    inputs = [*arrays, np.int32(0)]
    exe = dlc.compile(scan_and_loop(), target, config={"guard": mode})
    for got, want in zip(exe(*inputs), dlc.compile(scan_and_loop(), "reference")(*inputs), strict=True):
        np.testing.assert_allclose(got, want, 1e-5, 1e-6)
    plan = exe.signature.plan([np.shape(a) for a in inputs])
    slots = Layouts(exe.signature, mode).arena(plan).slots
    pages = sorted((r.offset // PAGE, -(-r.end // PAGE)) for r in slots)
    assert all(end < begin for (_, end), (begin, _) in pairwise(pages))
    assert sum("state" in r.name for r in slots) == 6


@pytest.mark.parametrize("rows", [2, 700, "n"])
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_dead_values_are_filled_again(target, rows, monkeypatch):
    exe = dlc.compile(chain(Var("n") if rows == "n" else rows), target, config={"guard": "end"})
    found = []

    def record(memory):
        found.extend((slot, bool((memory.part(slot) == slot.fill).all())) for slot in memory.layout.slots)

    monkeypatch.setattr(GuardedMemory, "check", record)
    exe(np.ones((700 if rows == "n" else rows, 6), np.float32))
    values = [(region.name, filled) for region, filled in found if region.name.startswith("the result")]
    assert len(values) >= 2
    assert all(filled for _, filled in values)


@dataclass(frozen=True)
class LateRead(Pass):
    """Breaks an entry: it calls a kernel again at its end, after the live ranges of its inputs."""

    name: ClassVar[str] = "late"
    stage: ClassVar[str] = "main"
    after: ClassVar[str] = "build_main"

    def run(self, module, context):
        main = module["main"]
        (inner,) = [s for s in stmts(main.body) if isinstance(s, Seq)]
        last = [s for s in inner.stmts if isinstance(s, Eval) and kernel_symbol(s.value)][-1]
        body = transform_stmt(main.body, stmt_fn=lambda s: seq(s, last) if s is inner else None)
        return module.with_function("main", replace(main, body=body))


@pytest.mark.parametrize("mode", MODES)
def test_reads_after_a_live_range_give_nan(mode):
    """A matmul that runs after the last use of its operand."""
    plain = dlc.compile(chain(2), "llvm", cache=False)(X)
    with PassContext(passes=[LateRead()]):
        exe = dlc.compile(chain(2), "llvm", config={"guard": mode}, cache=False)
    assert np.isfinite(plain).all()
    assert np.isnan(exe(X)).all()


def test_the_setting_is_part_of_the_cache_key():
    with config.override(guard="1"):
        assert dlc.compile(chain(2), "llvm").signature.guard.mode == "end"
    assert dlc.compile(chain(2), "llvm").signature.guard is None


def test_executables_compiled_without_guard_mode_get_guarded_arrays():
    exe = dlc.compile(chain(2), "llvm")
    plain = exe(X)
    other = dlc.compile(chain(2), "llvm")
    with config.override(guard="end"):
        np.testing.assert_array_equal(other(X), plain)
        assert type(other._caller).__name__ == "GuardedInPlace"


COPY = """
@T.prim_func
def copy(A: T.Buffer((8,), "float32"), B: T.Buffer((10,), "float32")):
    for i in range(8):
        B[i] = A[i]
"""
SHIFTED = COPY.replace("B[i] =", "B[i + 3] =")


def test_unwritten_elements_are_nan():
    exe = dlc.build(dlc.script.parse(COPY), "llvm", config={"guard": "end"})
    y = exe(np.ones(8, np.float32))
    assert np.isnan(y[8:]).all()
    assert (y[:8] == 1).all()


def test_finds_writes_in_the_last_page_of_a_value():
    with PassContext(disabled=("prove_bounds",)):
        exe = dlc.build(dlc.script.parse(SHIFTED), "llvm", config={"guard": "begin"})
    with pytest.raises(RuntimeFailure, match="4 bytes after output 'B' have been written"):
        exe(np.ones(8, np.float32))
