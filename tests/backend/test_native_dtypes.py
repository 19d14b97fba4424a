"""A simulated chip that computes in declared dtypes: its C has functions for the operations."""

from __future__ import annotations

from dataclasses import replace
from shutil import which
from typing import Any

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend import SimulatedDevice, SourceCodegen
from dlc_core.graph import param
from dlc_core.hooks import hookimpl
from dlc_core.ir.convert import convert
from dlc_core.ir.types import tensor_type
from dlc_core.target import COMPUTED, Description, TargetKind
from dlc_core.testing.cases import module_of
from dlc_core.testing.dtypes import dtype_cases
from dlc_core.testing.runner import FAILED, run_cases, usable_target
from tests.declared import FLOAT12, SAT6, declaring

pytestmark = pytest.mark.skipif(which("cc") is None, reason="the simulation needs a C compiler")

CONVERSIONS = """
static inline int32_t sat6_to_int32(uint8_t a) { return (int32_t)((uint32_t)a << 26) >> 26; }
static inline uint8_t sat6_from_int32(int32_t a) { return (a < -32 ? -32 : a > 31 ? 31 : a) & 63; }
static inline float float12_to_float32(uint16_t a) {
    uint32_t bits = (uint32_t)a << 20; float value; memcpy(&value, &bits, 4); return value;
}
static inline uint16_t float12_from_float32(float a) {
    uint32_t bits; memcpy(&bits, &a, 4);
    return a != a ? 0x7FC : (uint16_t)((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20);
}
"""
OPERATION = """
static inline {code} {dtype}_{word}({code} a, {code} b) {{
    return {dtype}_from_{wide}({dtype}_to_{wide}(a) {sign} {dtype}_to_{wide}(b));
}}"""
WORDS = CONVERSIONS + "".join(
    OPERATION.format(code=code, dtype=dtype, wide=wide, word=word, sign=sign)
    for code, dtype, wide in (("uint8_t", "sat6", "int32"), ("uint16_t", "float12", "float32"))
    for word, sign in (("add", "+"), ("sub", "-"), ("mul", "*"))
)


class Codegen(SourceCodegen):
    name, kinds, format = "chip", ("chip",), "chip-source"

    def dialect(self, module: Any, target: Any) -> Any:
        return replace(super().dialect(module, target), preamble=WORDS)


class Device(SimulatedDevice):
    name, formats = "chip", ("chip-source",)


class Chip:
    DLC_API = "0.1"

    @hookimpl
    def dlc_targets(self) -> Any:
        own = (*COMPUTED, "sat6", "float12")
        return [TargetKind("chip", "for the test", "chip", "chip", (), lambda _: Description(dtypes=own))]

    @hookimpl
    def dlc_codegens(self) -> Any:
        return [Codegen()]

    @hookimpl
    def dlc_devices(self) -> Any:
        return [Device()]


@pytest.mark.parametrize("name", ["sat6", "float12"])
def test_models_compute_in_the_dtype_of_the_chip(name):
    with declaring(SAT6, FLOAT12, chip=Chip()):
        ops = dlc.ops()
        x, y = (param(label, tensor_type((4, 8), name)) for label in ("x", "y"))
        body = ops["mul"].build(ops["add"].build(x, y), ops["maximum"].build(x, y))
        exe = dlc.compile(module_of(body, [x, y]), "chip")
        text = exe.source("c").partition(WORDS)[2]
        assert f"{name}_mul(" in text
        assert f"{name}_add(" in text
        a, b = (convert(np.random.default_rng(i).normal(size=(4, 8)) * 9, name) for i in range(2))
        expected = dlc.compile(module_of(body, [x, y]), "reference")(a, b)
        np.testing.assert_array_equal(exe(a, b), expected)


def test_the_kit_passes_on_the_chip():
    with declaring(SAT6, FLOAT12, chip=Chip()):
        cases = [case for decl in (SAT6, FLOAT12) for case in dtype_cases(decl, True)]
        outcomes = run_cases(cases, usable_target("chip"))
        assert len(outcomes) == 24
        assert not [outcome for outcome in outcomes if outcome.status == FAILED]
