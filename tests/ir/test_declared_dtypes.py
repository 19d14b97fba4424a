"""Dtypes that plugins declare: names, errors, arrays, text and JSON."""

from __future__ import annotations

import copy
import json
import math

import ml_dtypes
import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import ArtifactError, DlcError, PluginError, ScriptError, UsageError
from dlc_core.graph import Function, constant, param
from dlc_core.ir.codes import codec
from dlc_core.ir.convert import convert
from dlc_core.ir.dtype import DType, dtype
from dlc_core.ir.dtype_decl import DTypeDecl
from dlc_core.ir.expr import cast_to, const
from dlc_core.ir.module import IRModule
from dlc_core.ir.structural import structural_equal
from dlc_core.ir.types import tensor_type
from dlc_core.script import from_json, parse, script, to_json, to_script
from dlc_core.testing.dtypes import all_codes, check_dtype
from tests.declared import DECLARED, FLOAT6, FLOAT12, POSIT8, SAT6, UINT3, Declares, declaring

IDENTITY = (lambda codes: codes, lambda values: values)


@pytest.mark.parametrize("decl", DECLARED, ids=lambda decl: decl.name)
def test_all_codes_round_trip_and_both_forms_of_conversions_agree(decl):
    check_dtype(decl)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encode": lambda values: np.zeros_like(values, np.uint8)}, "code 1 is"),
        ({"lower_decode": lambda code: code.astype("float32")}, "lower_decode of wrong"),
        ({"lower_encode": lambda value: (value * 64.0).astype("uint8")}, "lower_encode of wrong"),
    ],
)
def test_the_check_names_what_is_wrong(change, message):
    fields = {name: getattr(POSIT8, name) for name in ("decode", "encode", "lower_decode", "lower_encode")}
    with pytest.raises(AssertionError, match=message):
        check_dtype(DTypeDecl("wrong", 8, "float", **{**fields, **change}))


def test_rounding_is_that_of_ml_dtypes():
    values = np.random.default_rng(0).standard_normal(5000).astype(np.float32) * 4
    expected = np.clip(values, -7.5, 7.5).astype(ml_dtypes.float6_e2m3fn).astype(np.float32)
    np.testing.assert_array_equal(FLOAT6.values_of(FLOAT6.array_of(values)), expected)


def test_a_declared_dtype_is_a_dtype():
    with declaring(*DECLARED):
        posit, sat = dtype("posit8"), dtype("sat6")
        assert posit is DType("posit8") is DType.of(posit.numpy) is DType.of("posit8")
        assert (posit.kind, posit.bits, posit.itemsize, posit.decl) == ("float", 8, 1, POSIT8)
        assert posit.with_lanes(4) is DType("posit8x4")
        assert posit.with_lanes(4).itemsize == 4
        assert posit.with_lanes(4).scalar is posit
        assert sat.is_int
        assert sat.int_range() == (-32, 31)
        assert dtype("float12").itemsize == 2
        assert DType.of(ml_dtypes.float6_e2m3fn) is DType("float6_e2m3fn")
        assert copy.copy(posit) is copy.deepcopy(posit) is posit
        assert np.zeros(3, posit).dtype == posit.numpy
    with declaring():
        with pytest.raises(UsageError, match="unknown dtype 'posit8'") as caught:
            DType("posit8")
        assert "float32" in str(caught.value)


def test_two_registries_may_declare_different_dtypes_of_one_name():
    other = DTypeDecl("sat6", 5, "int", *IDENTITY)
    with declaring(SAT6):
        first = dtype("sat6")
    with declaring(other):
        assert dtype("sat6") is not first
        assert dtype("sat6").int_range() == (-16, 15)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (("float32", 8, "float"), "the core has a dtype of this name"),
        (("Posit", 8, "float"), "small letters"),
        (("fixed8x8", 8, "float"), "means lanes"),
        (("lambda", 8, "float"), "small letters"),
        (("wide", 17, "float"), "1 to 16 bits"),
        (("none", 0, "int"), "1 to 16 bits"),
        (("odd", 8, "complex"), "one of float, int, uint"),
    ],
)
def test_declarations_that_cannot_work(fields, message):
    with pytest.raises(PluginError, match=message):
        DTypeDecl(*fields, *IDENTITY)


def test_the_width_must_be_that_of_the_storage():
    with pytest.raises(PluginError, match="elements of ml_dtypes\\.bfloat16 have 16 bits"):
        DTypeDecl("mine", 8, "float", *IDENTITY, numpy="bfloat16")
    with pytest.raises(PluginError, match="ml_dtypes has no 'float7'"):
        DTypeDecl("mine", 7, "float", *IDENTITY, numpy="float7")
    with pytest.raises(PluginError, match="lowers one conversion of two"):
        DTypeDecl("mine", 7, "float", *IDENTITY, lower_decode=lambda code: code)


def test_a_name_of_two_plugins_is_an_error_that_lists_them():
    with declaring(SAT6, again=Declares(SAT6)), pytest.raises(PluginError, match="2 plugins provide a dtype"):
        dtype("sat6")


def test_a_keyword_of_script_is_no_name():
    with declaring(DTypeDecl("exp2", 8, "float", *IDENTITY)) as registry:
        (broken,) = [plugin for plugin in registry.plugins if plugin.problem]
        assert broken.name == "numbers"
        assert "word of the script" in broken.problem
        assert len(registry.dtypes) == 0


def test_listings_show_declared_dtypes():
    with declaring(*DECLARED) as registry:
        (plugin,) = [plugin for plugin in registry.plugins if plugin.name == "numbers"]
        assert plugin.provides["dtypes"] == tuple(decl.name for decl in DECLARED)


def test_arrays_are_converted_by_the_declaration():
    with declaring(*DECLARED):
        given = np.array([[0.1, 100.0], [-3.0, np.nan]], np.float32)
        made = convert(given, "posit8")
        assert made.dtype == POSIT8.array_type
        np.testing.assert_array_equal(made["posit8"], [[6, 127], [152, 128]])
        np.testing.assert_array_equal(convert(made, "float32"), [[0.09375, 64], [-3, np.nan]])
        np.testing.assert_array_equal(convert(made[:1], "int32"), [[0, 64]])
        assert convert(made, "posit8") is made
        assert convert(convert([40, -40], "sat6"), "int64").tolist() == [31, -32]
        assert convert(convert([9], "uint3"), "sat6")["sat6"].tolist() == [1]
        # NumPy itself must not take codes for numbers.
        with pytest.raises(TypeError):
            made.astype(np.float32)
        with pytest.raises(UsageError, match="has no dlc dtype"):
            dtype(np.dtype([("other", np.uint8), ("", "V0")]))


def test_literals_are_rounded_and_print():
    with declaring(*DECLARED):
        assert const(0.1, "posit8").value == 0.09375
        assert const(100, "sat6").value == 31
        assert cast_to("sat6", const(-100, "int32")).value == -32
        assert (const(20, "sat6") + const(20, "sat6")).value == 31
        assert (const(3.0, "posit8") * const(0.3, "posit8")).value == POSIT8.round(3 * POSIT8.round(0.3))


PROGRAM = """
@T.prim_func
def main(a: T.Buffer((8,), "posit8"), b: T.Buffer((8,), "sat6"), c: T.Buffer((8,), "posit8")):
    for i in range(8):
        c[i] = T.max(a[i] * T.posit8(1.5), T.cast(b[i], "posit8")) + T.max_value("posit8")
"""


def test_programs_round_trip_as_text_and_json():
    with declaring(*DECLARED):
        program = parse(PROGRAM)
        text = script(program)
        assert 'T.Buffer((8,), "posit8")' in text
        assert "T.posit8(1.5)" in text
        assert structural_equal(parse(text), program)
        assert structural_equal(from_json(json.loads(json.dumps(to_json(program)))), program)
        data = to_json(program)
    with declaring():
        with pytest.raises(ScriptError, match="unknown dtype 'posit8'") as caught:
            parse(PROGRAM)
        assert "float32" in str(caught.value)
        with pytest.raises((ArtifactError, UsageError), match="unknown dtype 'posit8'"):
            from_json(data)


@pytest.mark.parametrize("decl", DECLARED, ids=lambda decl: decl.name)
def test_graphs_with_constants_round_trip(decl):
    with declaring(*DECLARED):
        ops = dlc.ops()
        codes = all_codes(decl).view(decl.array_type)
        x = param("x", tensor_type((codes.size,), decl.name))
        large = ops["concat"].build(x, constant(codes), axis=0)
        small = ops["concat"].build(large, constant(convert([1, 2, 3], decl.name)), axis=0)
        module = IRModule({"main": Function("main", (x,), ops["cast"].build(small, to="float32"))})
        text, metadata = to_script(module)
        assert f'[1.0, 2.0, 3.0], "{decl.name}")' in text or f'[1, 2, 3], "{decl.name}")' in text
        assert structural_equal(parse(text, metadata=metadata), module)
        assert structural_equal(from_json(json.loads(json.dumps(to_json(module)))), module)


def test_an_unusual_nan_keeps_its_code_in_text():
    twice = DTypeDecl("twice", 4, "float", *codec(4, lambda code: math.nan if code > 13 else code))
    with declaring(twice):
        module = IRModule(
            {"main": Function("main", (), constant(np.array([14, 15], np.uint8).view(twice.array_type)))}
        )
        text, metadata = to_script(module)
        again = parse(text, metadata=metadata)
        assert structural_equal(again, module)


def test_ops_accept_dtypes_of_their_kind():
    with declaring(*DECLARED):
        ops = dlc.ops()
        a, b, c = (param("x", tensor_type((4, 4), name)) for name in ("posit8", "sat6", "uint3"))
        assert ops["matmul"].build(a, a).dtype is dtype("posit8")
        assert ops["matmul"].build(a, a, out_dtype="float32").dtype is dtype("float32")
        assert ops["matmul"].build(b, b).dtype is dtype("int32")
        assert ops["exp"].build(a).dtype is dtype("posit8")
        for wrong in (
            lambda: ops["exp"].build(b),
            lambda: ops["add"].build(a, b),
            lambda: ops["relu"].build(c),
        ):
            with pytest.raises(DlcError, match="dtype"):
                wrong()
        with pytest.raises(DlcError, match="dtypes sat6 and int8"):
            ops["matmul"].build(b, param("y", tensor_type((4, 4), "int8")))


def test_storage_of_wide_codes():
    assert (FLOAT12.storage, FLOAT12.codes, UINT3.storage) == (16, np.dtype(np.uint16), 8)
    # Spare bits are ignored.
    assert UINT3.values_of(np.array([0xFF, 0x08], np.uint8)).tolist() == [7, 0]
