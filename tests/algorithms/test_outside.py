"""A slice of the core, given by another plugin through the hooks alone."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.algorithms.row_filter import plugin as row_filter
from dlc_core.driver import context_for
from dlc_core.driver.stages import lower
from dlc_core.graph.node import Function, constant, param
from dlc_core.hooks import hookimpl
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.plugin import builtin
from dlc_core.plugin.registry import fresh_registry
from dlc_core.target import Description, TargetKind
from dlc_core.tir.stmt import PrimFunc

RECORD = Description(vector_bits=512, vector_registers=32, vector_units=1, cores=1)
KIND = TargetKind("machine", "a test", "reference", "reference", describe=lambda options: RECORD)


class Outside:
    """A plugin: a target, and the hooks of a slice that the core does not list here."""

    DLC_API = "0.1"
    dlc_ops = staticmethod(row_filter.dlc_ops)
    dlc_passes = staticmethod(row_filter.dlc_passes)
    dlc_schedule_rules = staticmethod(row_filter.dlc_schedule_rules)

    @hookimpl
    def dlc_targets(self):
        return [KIND]


class Machine:
    """A plugin with the target alone."""

    DLC_API = "0.1"

    @hookimpl
    def dlc_targets(self):
        return [KIND]


@pytest.fixture
def without(monkeypatch):
    """The core without the slice."""
    left = tuple(name for name in builtin.SLICES if name != row_filter.__name__)
    assert len(left) == len(builtin.SLICES) - 1
    monkeypatch.setattr(builtin, "SLICES", left)


def module() -> IRModule:
    rng = np.random.default_rng(0)
    x = param("x", tensor_type((1, 56, 56, 3)))
    w = constant(rng.standard_normal((7, 7, 3, 32)) / 10, "float32")
    y = std.conv(x, w, strides=(2, 2), padding=(3, 3, 3, 3), layout="NXC", kernel_layout="XIO")
    return IRModule({"main": Function("main", (x,), y)})


def rules() -> set[str]:
    lowered, _ = lower(module(), context_for("machine"))
    return {func.attrs["rule"] for func in lowered.of_kind(PrimFunc).values() if "rule" in func.attrs}


def test_the_core_without_the_slice_computes_by_definition(without):
    with fresh_registry({"outside": Machine()}) as known:
        assert "row_filter" not in known.passes
        assert "cpu.row_filter" not in rules()


def test_a_plugin_gives_the_slice(without):
    with fresh_registry({"outside": Outside()}) as known:
        assert known.ops.giver("row_filter_conv") == "outside"
        assert [info.problem for info in known.plugins] == ["", ""]
        assert "cpu.row_filter" in rules()


def test_what_the_core_gives_stays_its_own():
    with fresh_registry({"outside": Outside()}) as known:
        assert known.ops.giver("row_filter_conv") == "core"
        assert "cpu.row_filter" in rules()
