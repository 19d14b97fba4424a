"""Models with declared dtypes: compiled, called, saved, opened with and without the plugin."""

from __future__ import annotations

import random
from dataclasses import replace

import dlc_backend_opencl.plugin
import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import ArtifactError, UsageError
from dlc_core.graph import Function, constant, make_tuple, param
from dlc_core.ir.convert import convert
from dlc_core.ir.dtype import dtype
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.runtime.call.arrays import NDArray
from dlc_core.testing.cases import module_of
from dlc_core.testing.dtypes import dtype_cases
from dlc_core.testing.runner import FAILED, run_cases, usable_target
from dlc_core.testing.strategies import random_graph
from tests.declared import DECLARED, FLOAT6, POSIT8, declaring

TARGETS = ("reference", "llvm", "c")


def layer() -> tuple[IRModule, np.ndarray]:
    """relu(x w + b) in posits, and the same in float32; and an input."""
    ops, rng = dlc.ops(), np.random.default_rng(0)
    w, b = (convert(rng.standard_normal(shape), "posit8") for shape in ((32, 48), (48,)))
    x = param("x", tensor_type((5, 32), "posit8"))
    y = ops["relu"].build(ops["add"].build(ops["matmul"].build(x, constant(w)), constant(b)))
    body = make_tuple([y, ops["cast"].build(y, to="float32")])
    return IRModule({"main": Function("main", (x,), body)}), convert(
        rng.standard_normal((5, 32)) * 2, "posit8"
    )


@pytest.mark.parametrize("target", TARGETS)
def test_conversions_moves_and_arithmetic_are_those_of_the_reference(target):
    with declaring(*DECLARED):
        cases = [case for decl in DECLARED if decl is not FLOAT6 for case in dtype_cases(decl)]
        outcomes = run_cases(cases, usable_target(target))
        assert len(outcomes) > 30
        assert not [outcome for outcome in outcomes if outcome.status == FAILED]


@pytest.mark.parametrize("target", ["llvm"])
def test_random_graphs(target):
    with declaring(*DECLARED):
        for seed in range(12):
            graph = random_graph(random.Random(seed), "posit8", steps=8)
            module, inputs = IRModule({"main": graph.function}), graph.feeds(graph.sizes[0], seed)
            found, expected = (dlc.compile(module, name)(*inputs) for name in (target, "reference"))
            for one, other in zip(make_list(found), make_list(expected), strict=True):
                np.testing.assert_array_equal(convert(one, "float64"), convert(other, "float64"))


def make_list(results):
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize("target", TARGETS)
def test_models_are_called_saved_and_opened(target, tmp_path):
    with declaring(*DECLARED):
        module, x = layer()
        exe = dlc.compile(module, target)
        assert str(exe.signature) == "(x: posit8[5, 32]) -> (output0: posit8[5, 48], output1: float32[5, 48])"
        y, wide = exe(x)
        assert y.dtype == POSIT8.array_type
        np.testing.assert_array_equal(convert(y, "float32"), wide)
        # Codes are inputs too, in any array of unsigned integers.
        np.testing.assert_array_equal(exe(x.view(np.uint8))[0], y)
        exe.save(tmp_path / "m.dlc")
        np.testing.assert_array_equal(dlc.open(tmp_path / "m.dlc")(x)[0], y)
    with declaring():
        with pytest.raises(
            ArtifactError, match="the dtype 'posit8', which no installed plugin declares"
        ) as caught:
            dlc.open(tmp_path / "m.dlc")
        assert "the plugin 'numbers' declared it" in str(caught.value)
    changed = replace(POSIT8, decode=lambda codes: codes.astype(np.float32))
    with declaring(changed), pytest.raises(ArtifactError, match="has other codes than the installed one"):
        dlc.open(tmp_path / "m.dlc")


def test_kernels_of_simulated_cards_compute_each_value_once():
    with declaring(POSIT8, opencl=dlc_backend_opencl.plugin):
        x = param("x", tensor_type((16,), "posit8"))
        exe = dlc.compile(module_of(dlc.ops()["add"].build(x, x), [x]), "opencl_simulated")
        # Conversions use their operands several times: without names the text would grow exponentially.
        assert len(exe.source("cl")) < 100_000


def test_files_without_declared_dtypes_do_not_mention_them(tmp_path):
    with declaring(*DECLARED):
        x = param("x", tensor_type((2,), "float32"))
        exe = dlc.compile(module_of(dlc.ops()["relu"].build(x), [x]), "llvm")
        exe.save(tmp_path / "m.dlc")
    with declaring():
        assert dlc.open(tmp_path / "m.dlc")(np.ones(2, np.float32)).tolist() == [1, 1]


def test_wrong_inputs_are_refused():
    with declaring(*DECLARED):
        module, x = layer()
        exe = dlc.compile(module, "llvm")
        for wrong in (convert(x, "float32"), x.view(np.int8), convert(convert(x, "float32"), "float12")):
            with pytest.raises(UsageError, match="posit8 is needed") as caught:
                exe(wrong)
            assert 'convert(array, "posit8")' in str(caught.value)


def test_dlpack_exchanges_codes():
    with declaring(*DECLARED):
        module, x = layer()
        exe = dlc.compile(module, "reference")
        held = NDArray.from_host(exe.device, x)
        assert held.dtype is dtype("posit8")
        np.testing.assert_array_equal(np.from_dlpack(held), x.view(np.uint8))
        np.testing.assert_array_equal(exe(held)[0], exe(x)[0])


def test_bound_calls_write_into_given_arrays():
    with declaring(*DECLARED):
        module, x = layer()
        exe = dlc.compile(module, "llvm")
        out = np.zeros((5, 48), POSIT8.array_type), np.zeros((5, 48), np.float32)
        exe.bind([x], list(out))()
        np.testing.assert_array_equal(out[0], exe(x)[0])


def test_steps_on_the_host_compute_declared_dtypes():
    with declaring(*DECLARED):
        ops = dlc.ops()
        x = param("x", tensor_type((8,), "posit8"))
        where = ops["nonzero"].build(
            ops["greater"].build(x, constant(convert(0.5, "posit8"))), count=Var("n")
        )
        body = make_tuple([where, ops["mul"].build(x, x)])
        module = IRModule({"main": Function("main", (x,), body)})
        given = convert(np.linspace(-2, 2, 8), "posit8")
        for found, expected in zip(
            *(dlc.compile(module, name)(given) for name in ("llvm", "reference")), strict=True
        ):
            np.testing.assert_array_equal(found, expected)


def test_types_of_ml_dtypes_are_moved_and_converted_by_numpy():
    with declaring(*DECLARED):
        x = param("x", tensor_type((64,), "float6_e2m3fn"))
        codes = np.arange(64, dtype=np.uint8).view(FLOAT6.array_type)
        exe = dlc.compile(module_of(dlc.ops()["flip"].build(x, axes=(0,)), [x]), "llvm")
        np.testing.assert_array_equal(exe(codes).view(np.uint8), np.arange(64)[::-1])


def test_arena_holds_elements_of_two_bytes():
    with declaring(*DECLARED):
        ops = dlc.ops()
        x = param("x", tensor_type((64, 64), "float32"))
        narrow = ops["cast"].build(x, to="float12")
        body = ops["cast"].build(ops["transpose"].build(narrow, axes=(1, 0)), to="float32")
        exe = dlc.compile(module_of(body, [x]), "llvm")
        given = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
        np.testing.assert_array_equal(exe(given), convert(convert(given, "float12"), "float32").T)
