"""Slices of the core work as a plugin too, through the hooks alone."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from dlc_core.algorithms.attention import plugin as attention
from dlc_core.algorithms.row_filter import plugin as row_filter
from dlc_core.diag import PluginError
from dlc_core.driver.api import context_for
from dlc_core.driver.job import lower
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
SLICES = {"row_filter": row_filter, "attention": attention}


class Machine:
    """A plugin with only the target."""

    DLC_API = "0.1"

    @hookimpl
    def dlc_targets(self):
        return [KIND]


def outside(slice_: ModuleType, *bases: type) -> object:
    """A plugin with the hooks of a slice, and those of `bases`."""
    hooks = {name: staticmethod(hook) for name, hook in vars(slice_).items() if name.startswith("dlc_")}
    return type("Outside", bases, hooks)()


@pytest.fixture(params=SLICES)
def name(request):
    return request.param


@pytest.fixture
def without(monkeypatch, name):
    """The core without the slice."""
    left = tuple(each for each in builtin.SLICES if each != SLICES[name].__name__)
    assert len(left) == len(builtin.SLICES) - 1
    monkeypatch.setattr(builtin, "SLICES", left)


def module(name: str) -> IRModule:
    if name == "attention":
        params = [param(each, tensor_type((1, 2, 20, 32))) for each in "qkv"]
        return IRModule({"main": Function("main", tuple(params), std.attention(*params))})
    rng = np.random.default_rng(0)
    x = param("x", tensor_type((1, 56, 56, 3)))
    w = constant(rng.standard_normal((7, 7, 3, 32)) / 10, "float32")
    y = std.conv(x, w, strides=(2, 2), padding=(3, 3, 3, 3), layout="NXC", kernel_layout="XIO")
    return IRModule({"main": Function("main", (x,), y)})


def rules(name: str) -> set[str]:
    lowered, _ = lower(module(name), context_for("machine"))
    return {func.attrs["rule"] for func in lowered.of_kind(PrimFunc).values() if "rule" in func.attrs}


def test_the_core_without_the_slice_computes_by_definition(without, name):
    with fresh_registry({"outside": Machine()}) as known:
        assert name not in known.passes
        assert f"cpu.{name}" not in rules(name)


def test_a_plugin_provides_the_slice(without, name):
    with fresh_registry({"outside": outside(SLICES[name], Machine)}) as known:
        assert known.passes.provider(name) == "outside"
        assert [info.problem for info in known.plugins] == ["", ""]
        assert f"cpu.{name}" in rules(name)


def test_passes_of_the_core_are_not_replaced(name):
    with fresh_registry({"outside": outside(SLICES[name]), "machine": Machine()}) as known:
        assert known.passes.provider(name) == "core"
        assert f"cpu.{name}" in rules(name)


def test_a_target_whose_plugin_clashes_with_the_core_is_refused(name):
    broken = pytest.raises(PluginError, match="the core has a pass")
    with fresh_registry({"outside": outside(SLICES[name], Machine)}), broken:
        rules(name)
