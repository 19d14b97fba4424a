"""Donated inputs: caches that grow in place, with all kinds of calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import UnsupportedError, UsageError
from dlc_core.driver import context_for
from dlc_core.driver.job import pack_weights
from dlc_core.driver.stages import lower
from dlc_core.graph.donate import donate
from dlc_core.graph.node import Function, Node, constant, make_tuple, param
from dlc_core.ir.expr import Var, const_value
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.reference import evaluate
from dlc_core.tir import interpreter

CAPACITY = 9
HEADS, SIZE = 2, 4
RNG = np.random.default_rng(7)


def decoder(length: object = None) -> IRModule:
    """One token attends to a cache of keys and values and to itself."""
    past = Var("past") if length is None else length
    x = param("x", tensor_type((1, 1, HEADS * SIZE)))
    keys, values = (param(name, tensor_type((1, HEADS, past, SIZE))) for name in ("keys", "values"))

    def part(seed: int) -> Node:
        weights = np.random.default_rng(seed).standard_normal((HEADS * SIZE, HEADS * SIZE)).astype(np.float32)
        split = std.reshape(std.matmul(x, constant(weights)), shape=(1, 1, HEADS, SIZE))
        return std.transpose(split, axes=(0, 2, 1, 3))

    grown = [std.concat(old, part(i), axis=2) for i, old in enumerate((keys, values))]
    scores = std.softmax(std.matmul(part(2), grown[0], transpose_b=True), axis=-1)
    attrs = {"inputs": ("x", "past.k", "past.v"), "outputs": ("y", "now.k", "now.v")}
    body = make_tuple([std.matmul(scores, grown[1]), *grown])
    return IRModule({"main": Function("main", (x, keys, values), body).with_attrs(**attrs)})


def compiled(module: IRModule, **options: object) -> dlc.Executable:
    return dlc.compile(module, "llvm", num_threads=1, donate={"past.*": CAPACITY}, **options)


def token() -> np.ndarray:
    return RNG.standard_normal((1, 1, HEADS * SIZE)).astype(np.float32)


def cache(length: int) -> np.ndarray:
    """A view of memory with capacity."""
    memory = np.zeros((1, HEADS, CAPACITY, SIZE), np.float32)
    memory[:, :, :length] = RNG.standard_normal((1, HEADS, length, SIZE))
    return memory[:, :, :length]


def memory_of(view: np.ndarray) -> np.ndarray:
    """The whole memory of a cache."""
    return np.lib.stride_tricks.as_strided(view, (1, HEADS, CAPACITY, SIZE))


def same(found: object, expected: object) -> None:
    for a, b in zip(found, expected, strict=True):  # type: ignore[call-overload]
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("opened", [False, True])
def test_steps_update_donated_memory(tmp_path: Path, opened: bool) -> None:
    module = decoder()
    exe = compiled(module)
    if opened:
        exe.save(tmp_path / "m.dlc")
        exe = dlc.open(tmp_path / "m.dlc")
    k, v = (np.zeros((1, HEADS, 0, SIZE), np.float32) for _ in range(2))
    held = None
    for _ in range(CAPACITY):
        x = token()
        expected = evaluate(module["main"], [x, k.copy(), v.copy()])
        before = k
        y, k, v = exe(x, k, v)
        same((y, k, v), expected)
        assert held is None or np.shares_memory(before, k)
        held = k
    with pytest.raises(UsageError, match="capacity is 9 elements along axis 2, and 10"):
        exe(token(), k, v)


def test_bound_calls_write_only_new_rows() -> None:
    module, x, k, v = decoder(3), token(), cache(3), cache(3)
    expected = evaluate(module["main"], [x, k.copy(), v.copy()])
    y = np.zeros((1, HEADS, 1, SIZE), np.float32)
    call = compiled(module).bind({"x": x, "past.k": k, "past.v": v}, [y, None, None])
    same(call(), expected)
    for before, after in zip((k, v), call.outputs[1:], strict=True):
        assert after.ctypes.data == before.ctypes.data
        assert after.strides == before.strides
        assert not memory_of(after)[:, :, 4:].any()
    again = compiled(module).bind([x, k, v], [y.copy(), *call.outputs[1:]])
    same(again(), expected)


def test_full_memory_cannot_be_bound_and_is_copied_by_calls() -> None:
    module, x = decoder(3), token()
    exe = compiled(module)
    compact = np.ascontiguousarray(cache(3))
    expected = evaluate(module["main"], [x, compact, compact])
    same(exe(x, compact, compact), expected)
    short = np.zeros((1, HEADS, CAPACITY - 1, SIZE), np.float32)[:, :, :3]
    readonly = cache(3)
    readonly.flags.writeable = False
    for array in (compact, short, readonly):
        with pytest.raises(UsageError, match=r"'past.k' is donated, but .* no capacity.*\n.*9 elements"):
            exe.bind([x, array, cache(3)])
        same(exe(x, array, array), evaluate(module["main"], [x, array, array]))


def test_outputs_in_other_memory_than_the_donated_input_are_refused() -> None:
    exe, x, k = compiled(decoder(3)), token(), cache(3)
    y = np.zeros((1, HEADS, 1, SIZE), np.float32)
    for outputs in ([y, cache(4), None], [y, cache(3), None], [y[0], None, None], [None, None, None]):
        with pytest.raises(UsageError, match=r"must be in the memory|is needed|'y' is None"):
            exe.bind([x, k, cache(3)], outputs)
    with pytest.raises(UsageError, match="overlaps another input"):
        exe(x, k, k)
    inside = memory_of(k)[:, 0, 4:6].reshape(1, HEADS, 1, SIZE)
    assert np.shares_memory(inside, k.base)
    with pytest.raises(UsageError, match="overlaps"):
        exe.bind([x, k, cache(3)], [inside, None, None])


@pytest.mark.parametrize("target", ["reference -level=tir", "llvm -mcpu=haswell"])
def test_kernels_stay_inside_of_donated_memory(target: str) -> None:
    """Run by the interpreter, which checks all accesses."""
    where = dlc.Target.parse(target, dlc.targets())
    module, _ = lower(donate(decoder(3), {"past.*": CAPACITY}), context_for(where))
    x, k, v = token(), cache(3), cache(3)
    expected = evaluate(decoder(3)["main"], [x, k.copy(), v.copy()])
    signature = module.attrs["signature"]
    weights = pack_weights(signature, list(module.attrs["constants"]))
    y, unused = np.empty((1, HEADS, 1, SIZE), np.float32), np.full((1, HEADS, 4, SIZE), 7, np.float32)
    arena = np.empty(const_value(signature.arena_size), np.uint8)
    memory = [np.ascontiguousarray(memory_of(array)) for array in (k, v)]
    others = unused, unused.copy()
    interpreter.run(module["main"], x, *memory, y, *others, weights, arena, module=module, check=True)
    same((y, *(array[:, :, :4] for array in memory)), expected)
    assert all((array == 7).all() for array in others)
    assert all(not array[:, :, 4:].any() for array in memory)


def test_refuses_inputs_that_cannot_be_donated() -> None:
    module = decoder(3)
    for expected, message in (
        ({"past.z": 9}, "no input 'past.z'"),
        ({"x": 9}, "no outputs extend it"),
        ({"past.k": 3}, "holds 3 elements, and 4"),
        ({"past.k": 0}, "a capacity of 0"),
    ):
        with pytest.raises(UsageError, match=message):
            dlc.compile(module, "llvm", donate=expected)
    exe = compiled(module)
    with pytest.raises(UnsupportedError, match="exported code"):
        exe.export("decoder.so")


def _reshaped() -> IRModule:
    past, new = (param(name, tensor_type((2, n, 4))) for name, n in (("past.k", 3), ("new", 1)))
    grown = std.concat(past, new, axis=1)
    flat = std.matmul(std.reshape(grown, shape=(4, 8)), constant(np.ones((8, 2), np.float32)))
    return IRModule({"main": Function("main", (past, new), make_tuple([grown, flat]))})


def test_ops_that_need_compact_memory_are_named() -> None:
    with pytest.raises(UnsupportedError, match="reshape reads it as compact memory"):
        compiled(_reshaped())
