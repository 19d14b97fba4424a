"""Declared dtypes in tensor programs: emulated by their conversions, native, or refused."""

from __future__ import annotations

import random

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import PluginError, UnsupportedError
from dlc_core.ir.convert import convert
from dlc_core.ir.dtype_decl import DTypeDecl
from dlc_core.ir.structural import structural_equal
from dlc_core.passes.tir.legalize import legalize_dtypes
from dlc_core.schedule import Schedule
from dlc_core.script import parse, script
from dlc_core.testing.programs import random_prim_func
from dlc_core.testing.random_schedules import check_schedule_trace, random_schedule
from dlc_core.testing.te_programs import TeMaker
from dlc_core.tir.interpreter import run
from dlc_core.tir.stmt import PrimFunc
from tests.declared import DECLARED, FLOAT12, POSIT8, declaring

CORE = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float32", "float64")


def results(func: PrimFunc, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The arrays after a run on copies of them, by the buffers' dtypes."""
    own = [a.view(b.dtype.numpy).copy() for a, b in zip(arrays, func.buffers, strict=True)]
    run(func, *own, *(1.5 if s.dtype.is_float else 5 for s in func.scalars))
    return [a.view(b.dtype) for a, b in zip(own, arrays, strict=True)]


@pytest.mark.parametrize("seed", range(30))
def test_random_programs_keep_their_results(seed):
    with declaring(*DECLARED):
        func = random_prim_func(seed, dtypes=("float32", "int32", "bool", "posit8", "sat6", "uint3"))
        assert structural_equal(parse(script(func)), func)
        rng = np.random.default_rng(seed)
        arrays = [
            convert(rng.standard_normal((8, 8)) if b.dtype.is_float else rng.integers(0, 5, (8, 8)), b.dtype)
            for b in func.buffers
        ]
        legal = legalize_dtypes(func, CORE)
        assert not any(b.dtype.decl for b in legal.buffers)
        for one, other in zip(results(func, arrays), results(legal, arrays), strict=True):
            np.testing.assert_array_equal(convert(one, "float64"), convert(other, "float64"))


def test_random_schedules_keep_their_results():
    # Sums of integers that wrap are the same in any order.
    with declaring(*DECLARED):
        for seed in range(25):
            rng = random.Random(seed)
            program = TeMaker(rng, "uint3").program(rng.randint(1, 4))
            calls = random_schedule(program.func, rng)
            check_schedule_trace(program.func, program.sizes, calls.sch, seed)


def test_a_native_dtype_stays():
    with declaring(*DECLARED):
        func = parse(SUMS.format("float12"))
        assert legalize_dtypes(func, (*CORE, "float12")) is func


LAYER = """
@T.prim_func
def layer(a: T.Buffer((8,), "sat6"), b: T.Buffer((8,), "sat6"), c: T.Buffer((8,), "bool")):
    for i in range(8):
        b[i] = T.cast(T.cast(a[i], "int32") + T.int32(3), "sat6") * a[i]
        c[i] = T.abs(a[i]) > b[i]
"""


def test_native_operations_replace_casts_and_others_are_emulated():
    with declaring(*DECLARED):
        func = parse(LAYER)
        legal = legalize_dtypes(func, (*CORE, "sat6"))
        text = script(legal)
        assert "(a[i] + T.sat6(3)) * a[i]" in text  # without casts
        assert 'T.cast(T.abs(T.cast(a[i], "int32")), "sat6")' in text  # abs is not native
        arrays = [convert(np.arange(-4, 4), "sat6"), convert(np.zeros(8), "sat6"), np.zeros(8, bool)]
        for one, other in zip(results(func, arrays), results(legal, arrays), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_keep_their_results_on_targets_that_compute_in_the_dtypes(seed):
    with declaring(*DECLARED):
        func = random_prim_func(seed, dtypes=("float32", "int32", "bool", "posit8", "sat6"), vectors=False)
        rng = np.random.default_rng(seed)
        arrays = [
            convert(rng.standard_normal((8, 8)) if b.dtype.is_float else rng.integers(0, 5, (8, 8)), b.dtype)
            for b in func.buffers
        ]
        legal = legalize_dtypes(func, (*CORE, "posit8", "sat6"))
        for one, other in zip(results(func, arrays), results(legal, arrays), strict=True):
            np.testing.assert_array_equal(convert(one, "float64"), convert(other, "float64"))


SUMS = """
@T.prim_func
def sums(a: T.Buffer((8,), "{0}"), b: T.Buffer((8,), "{0}")):
    for i in range(8):
        b[i] = a[i] + a[i]
"""
MOVES = """
@T.prim_func
def moves(a: T.Buffer((8,), "float12"), b: T.Buffer((8,), "float12"), c: T.Buffer((8,), "float32")):
    for i in range(8):
        b[i] = T.if_then_else(c[i] > 0.0, a[7 - i], T.float12(1.5))
        c[i] = T.cast(a[i], "float32") * 2.0
"""


def test_arithmetic_that_is_not_emulated_is_refused():
    with declaring(*DECLARED):
        with pytest.raises(UnsupportedError) as caught:
            legalize_dtypes(parse(SUMS.format("float12")), CORE, "npu -cores=2")
        assert "add of float12 on the target npu -cores=2 in sums" in str(caught.value)
        compared = parse(
            SUMS.format("float12").replace("b[i] = a[i] + a[i]", "b[i] = T.select(a[i] < b[i], a[i], b[i])")
        )
        with pytest.raises(UnsupportedError, match="lt of float12"):
            legalize_dtypes(compared, CORE)


def test_storage_and_casts_of_such_a_dtype_are_lowered():
    with declaring(*DECLARED):
        func = parse(MOVES)
        given = convert(np.arange(8) / 4, "float12")
        arrays = [given, given, np.linspace(-1, 1, 8, dtype=np.float32)]
        for one, other in zip(
            results(func, arrays), results(legalize_dtypes(func, CORE), arrays), strict=True
        ):
            np.testing.assert_array_equal(one, other)
        assert "uint16" in script(legalize_dtypes(func, CORE))


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_model_is_refused_by_op_dtype_and_target(target):
    with declaring(*DECLARED):
        module = dlc.script.parse(
            """@ir_module
class Module:
    @G.function
    def main(x: G.Tensor((4, 4), "float12")):
        y = G.transpose(x, axes=(1, 0))
        return G.exp(y)"""
        )
        with pytest.raises(UnsupportedError, match=f"exp of float12 on the target {target}"):
            dlc.compile(module, target)
        # The reference defines the results, so it computes every dtype.
        x = convert(np.arange(16.0).reshape(4, 4) / 8, "float12")
        expected = convert(np.exp(convert(x.T, "float32")), "float12")
        np.testing.assert_array_equal(dlc.compile(module, "reference")(x), expected)


def test_a_dtype_without_a_tensor_level_form():
    with declaring(*DECLARED):
        with pytest.raises(UnsupportedError, match="float6_e2m3fn have no tensor-level form"):
            legalize_dtypes(parse(SUMS.format("float6_e2m3fn")), CORE)
        copies = parse(SUMS.format("float6_e2m3fn").replace("a[i] + a[i]", "a[7 - i]"))
        given = convert(np.arange(8.0), "float6_e2m3fn")
        np.testing.assert_array_equal(results(legalize_dtypes(copies, CORE), [given, given])[1], given[::-1])


@pytest.mark.parametrize(
    ("lower", "message"),
    [(lambda code: 1.0, "an expression is needed"), (lambda code: code > 3, "float32 is needed")],
)
def test_wrong_conversions_are_errors_of_the_plugin(lower, message):
    wrong = DTypeDecl("wrong", 8, "float", POSIT8.decode, POSIT8.encode, lower, POSIT8.lower_encode)
    with declaring(wrong), pytest.raises(PluginError, match=message):
        legalize_dtypes(parse(SUMS.format("wrong")), CORE)


def test_vectors_are_converted_lane_by_lane():
    with declaring(FLOAT12, POSIT8):
        sch = Schedule(dlc.te.create_prim_func(*_doubled("posit8", 32)))
        (loop,) = sch.get_loops(sch.get_block("doubled"))
        sch.vectorize(sch.split(loop, [None, 8])[1])
        x = convert(np.random.default_rng(0).standard_normal(32), "posit8")
        found = dlc.build(sch, "llvm")(x)
        np.testing.assert_array_equal(found, convert(2 * convert(x, "float32"), "posit8"))


def _doubled(dtype: str, size: int) -> tuple[list, list]:
    x = dlc.te.placeholder((size,), dtype, name="x")
    return [x], [dlc.te.compute((size,), lambda i: x[i] + x[i], "doubled")]
