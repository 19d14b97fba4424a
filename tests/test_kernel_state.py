"""Tuners with a text for each kernel: compiled kernels are kept, each with its schedule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.schedule import Schedule

TARGET = "llvm -num-threads=1"


class Tuner:
    """Unrolls the loops of kernels by hand, as `schedules` says: a factor by number of the kernel."""

    def __init__(self, factor: int) -> None:
        self.factor = factor
        self.seen: list[str] = []
        self.asked = 0

    def __call__(self, func, target):
        self.asked += 1
        if not self.factor or "softmax" in func.name:
            return None
        schedule = Schedule(func)
        *_, last = schedule.get_loops(schedule.get_blocks()[-1])
        schedule.unroll(schedule.split(last, [None, self.factor])[1])
        return schedule.trace

    def kernel_state(self, func, target):
        self.seen.append(func.name)
        return str(self.factor) if self.factor else ""


def compiled(tuner: object) -> dlc.Executable:
    x = param("x", tensor_type((8, 16)))
    body = std.softmax(std.relu(std.matmul(x, constant(np.ones((16, 12), np.float32)))))
    with dlc.PassContext(tuner=tuner):
        return dlc.compile(IRModule({"main": Function("main", (x,), body)}), TARGET, cache=True)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path / "cache"))


def test_kernels_are_kept_with_their_schedules() -> None:
    first = Tuner(4)
    exe = compiled(first)
    assert first.asked == len(first.seen) > 0
    again = Tuner(4)
    other = compiled(again)
    assert again.asked == 0
    assert again.seen == first.seen
    assert [k.rule for k in other.explain().kernels] == [k.rule for k in exe.explain().kernels]
    assert "tuned" in [k.rule for k in other.explain().kernels]
    changed = Tuner(2)
    compiled(changed)
    assert changed.asked == len(changed.seen)
    x = np.ones((8, 16), np.float32)
    np.testing.assert_allclose(other(x), exe(x), 1e-6)


def test_kernels_of_the_rules_have_the_same_key_for_all_tuners() -> None:
    one, other = Tuner(0), Tuner(0)
    compiled(one)
    compiled(other)
    assert (one.asked > 0, other.asked) == (True, 0)


def test_without_the_cache_the_tuner_sees_every_kernel() -> None:
    tuner = Tuner(0)
    x = param("x", tensor_type((8, 16)))
    with dlc.PassContext(tuner=tuner):
        exe = dlc.compile(IRModule({"main": Function("main", (x,), std.softmax(x))}), TARGET, cache=False)
    assert tuner.asked == len(exe.explain().kernels)


def test_tuners_without_a_state_are_asked_each_time() -> None:
    asked = []
    for _ in range(2):
        compiled(lambda func, target: asked.append(func.name))
    assert len(asked) % 2 == 0
    assert asked[: len(asked) // 2] == asked[len(asked) // 2 :]
