# ruff: noqa: N803
"""The kit finds tensor intrinsics that do not compute their description. Plugins' intrinsics are found by
name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from dlc_core.diag import VerifyError
from dlc_core.hooks import hookimpl
from dlc_core.passes import PassContext
from dlc_core.passes.tir.schedule_kernels import ScheduleKernels
from dlc_core.plugin.registry import fresh_registry
from dlc_core.schedule import BlockRV, Schedule, TensorIntrin
from dlc_core.script import T
from dlc_core.target import Description
from dlc_core.testing.intrins import check_intrin
from dlc_core.testing.levels.core import CoreLevel, _intrins
from dlc_core.testing.schedules import target_of
from dlc_core.tir.interpreter import run
from tests.schedule.products import EXTERN, SCRIPTED, desc, loops, product
from tests.schedule.test_tensorize import matmul


@dataclass(frozen=True)
class Plugin:
    intrins: tuple[TensorIntrin, ...]
    DLC_API = "0.1"

    @hookimpl
    def dlc_tensor_intrins(self):
        return self.intrins


@pytest.mark.parametrize("intrin", [SCRIPTED, EXTERN], ids=["script", "extern"])
def test_correct_intrinsics_pass(intrin):
    check_intrin(intrin)


def wrong_reference(a, b, c):
    c += a @ b.T


@T.prim_func
def subtracts(
    A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32"), C: T.Buffer((16, 16), "float32")
):
    for i, j, k in T.grid(16, 16, 16):
        C[i, j] = C[i, j] - A[i, k] * B[k, j]


def scribbles(c, a, b, sc, sa, sb):
    c[17] = 5
    return 0


@pytest.mark.parametrize(
    ("intrin", "words"),
    [
        (
            replace(SCRIPTED, reference=wrong_reference),
            "the reference does not compute the same as the description",
        ),
        (replace(SCRIPTED, impl=subtracts), "the implementation does not compute"),
        (replace(EXTERN, externs={"mma16": scribbles}), "writes outside of its windows"),
    ],
    ids=["reference", "implementation", "outside"],
)
def test_wrong_intrinsics_are_found(intrin, words):
    with pytest.raises(VerifyError, match=words):
        check_intrin(intrin)


def test_plugins_give_intrinsics_to_schedules_and_to_the_kit():
    with fresh_registry({"acme": Plugin((SCRIPTED, EXTERN))}) as made:
        assert [value.id for value in _intrins(CoreLevel)] == ["mma_loops", "mma_extern"]
        func = matmul(16, 16, 16)
        sch = Schedule(func, intrins=made.tensor_intrins)
        sch.tensorize(sch.get_loops(BlockRV("C"))[0], "mma_extern")
        out = np.zeros((16, 16), "float32")
        a = np.eye(16, dtype="float32") * 3
        run(sch.func, a, a, out, externs=sch.externs)
        assert np.array_equal(out, a * 3 + 1)


class ByTiles:
    """A rule that names an intrinsic."""

    name, priority = "acme.tiles", 900

    def matches(self, func, machine):
        return True

    def apply(self, schedule, machine):
        schedule.tensorize(schedule.get_loops(schedule.get_block("C"))[0], "mma_loops")


def test_rules_name_intrinsics():
    context = PassContext(
        target=target_of(Description()), schedule_rules=(ByTiles(),), tensor_intrins={"mma_loops": SCRIPTED}
    )
    made = ScheduleKernels().run_function(matmul(16, 16, 16), context)
    assert made.attrs["rule"] == "acme.tiles"


def test_an_intrinsic_of_two_plugins_is_a_clash():
    twin = TensorIntrin("mma_loops", desc, loops, product)
    with fresh_registry({"a": Plugin((SCRIPTED,)), "b": Plugin((twin,))}) as made:
        assert "mma_loops" in made.tensor_intrins.clashes
