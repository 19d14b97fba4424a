"""Quantisation formats: layouts, quantisation, products that read packed weights, and errors."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import PluginError, ScriptError, UsageError
from dlc_core.graph import Node, constant, param
from dlc_core.hooks import hookimpl
from dlc_core.ir.convert import convert
from dlc_core.ir.expr import cast_to
from dlc_core.ir.structural import structural_equal
from dlc_core.ir.types import tensor_type
from dlc_core.op.bit_layout import BitStream
from dlc_core.op.formats import FORMATS, quant_format
from dlc_core.op.lower import lower_node
from dlc_core.op.quant_format import QuantFormat
from dlc_core.rewrite import const_var, match_op, var
from dlc_core.script import from_json, parse, script, to_json, to_script
from dlc_core.target.partitioner import Partitioner, RegionPattern
from dlc_core.testing.cases import module_of
from dlc_core.tir.interpreter import run
from tests.declared import DECLARED, declaring

RNG = np.random.default_rng(5)


class Interleaved:
    """A vendor's layout: byte i has element i in the low bits, and element i + group / 2 in the high bits."""

    def size(self, group: int, bits: int) -> int:
        return group // 2

    def pack(self, codes: Any, bits: int) -> Any:
        half = codes.shape[1] // 2
        return (codes[:, :half] | (codes[:, half:] << 4)).astype(np.uint8)

    def unpack(self, packed: Any, group: int, bits: int) -> Any:
        return np.concatenate([packed & 15, packed >> 4], axis=1)

    def axes(self, group: int, bits: int) -> tuple[int, ...]:
        return 2, group // 2

    def code(self, byte: Any, axes: Any, group: int, bits: int) -> Any:
        side, at = axes
        return (cast_to("int32", byte(at)) >> cast_to("int32", side * 4)) & 15


OWN = (
    QuantFormat("npu3", "uint3", 64, "float16", zero=True),
    QuantFormat("npu6", "sat6", 32, "float8_e8m0fnu"),
    QuantFormat("npu12", "float12", 16),
    QuantFormat("posits", "posit8", 16, "bfloat16"),
    QuantFormat("woven4", "uint4", 32, "float32", offset=8, layout=Interleaved()),
    QuantFormat("ones", "int8", 8, fit=lambda groups: (np.ones_like(groups[:, 0]), None)),
)
ALL = (*FORMATS, *OWN)


class Formats:
    DLC_API = "0.1"

    @hookimpl
    def dlc_quant_formats(self) -> Any:
        return OWN


def formats(**plugins: Any) -> Any:
    return declaring(*DECLARED, formats=Formats(), **plugins)


def product(made: QuantFormat, rows: int = 3, depth: int = 256, columns: int = 40) -> tuple[Node, Node, Any]:
    """A product by weights in a format, its input, and the weights as the format has them."""
    weights = RNG.standard_normal((depth, columns)).astype(np.float32)
    parts = made.quantize(weights)
    x = param("x", tensor_type((rows, depth), "float32"))
    node = dlc.ops()["quantized_matmul"].build(x, *map(constant, parts), format=made.name)
    return node, x, made.dequantize(*parts)


@pytest.mark.parametrize("bits", range(1, 17))
def test_the_bit_stream_packs_every_width(bits):
    codes = RNG.integers(0, 1 << bits, (3, 16, 5)).astype(np.uint16 if bits > 8 else np.uint8)
    layout = BitStream()
    packed = layout.pack(codes, bits)
    assert packed.shape == (3, layout.size(16, bits), 5)
    assert packed.nbytes * 8 == codes.size * bits
    np.testing.assert_array_equal(layout.unpack(packed, 16, bits), codes)
    # The first code is in the lowest bits.
    assert (packed[0, 0, 0] & ((1 << min(bits, 8)) - 1)) == (codes[0, 0, 0] & 255 & ((1 << min(bits, 8)) - 1))


@pytest.mark.parametrize("made", ALL, ids=lambda made: made.name)
def test_quantisation_is_within_a_step_of_the_weights(made):
    with formats():
        weights = RNG.standard_normal((128, 7)).astype(np.float32) * np.logspace(-3, 3, 7, dtype=np.float32)
        parts = made.quantize(weights)
        assert parts[0].dtype == np.uint8
        assert sum(part.nbytes for part in parts) * 8 == round(made.bits_per_weight * weights.size)
        if made.fit is None:
            spread = np.abs(weights).reshape(-1, made.group, 7).max(axis=1, keepdims=True)
            found = made.dequantize(*parts).reshape(-1, made.group, 7)
            error = np.abs(found - weights.reshape(found.shape)) / spread
            assert error.max() < {3: 0.2, 4: 0.26, 6: 0.06, 8: 0.26, 12: 0.07}[made.bits]
        zeros = made.quantize(np.zeros((128, 2), np.float32))
        np.testing.assert_array_equal(made.dequantize(*zeros), 0)


def test_mx_scales_are_those_of_the_specification():
    # The exponent of a group is that of its largest element, less the largest exponent of a 4-bit float, 2.
    weights = np.zeros((32, 3), np.float32)
    weights[3] = [1.0, 7.9, 0.1]
    codes, scales = quant_format("mxfp4").quantize(weights)
    np.testing.assert_array_equal(convert(scales, "float32"), [[0.25, 1.0, 2.0**-6]])
    found = quant_format("mxfp4").dequantize(codes, scales)
    np.testing.assert_array_equal(found[3], [1.0, 6.0, 6 * 2.0**-6])


@pytest.mark.parametrize("made", ALL, ids=lambda made: made.name)
@pytest.mark.parametrize("target", ["reference", "llvm", "c"])
def test_products_read_packed_weights(made, target):
    with formats():
        node, x, weights = product(made)
        exe = dlc.compile(module_of(node, [x]), target)
        given = RNG.standard_normal((3, 256)).astype(np.float32)
        np.testing.assert_allclose(exe(given), given @ weights, rtol=1e-4, atol=1e-4)
        packed = sum(arg.attrs["value"].data.nbytes for arg in node.args[1:])
        assert packed <= exe.signature.weights_size < weights.nbytes / 2


@pytest.mark.parametrize("made", ALL, ids=lambda made: made.name)
def test_the_inner_loop_loads_codes(made):
    """The lowered product has no buffer of the size of the weights, and reads the packed bytes in its sum."""
    with formats():
        node, _, weights = product(made)
        func = lower_node(node, "product")
        largest = max(b.dtype.itemsize * int(np.prod([int(str(d)) for d in b.shape])) for b in func.buffers)
        assert largest < weights.nbytes / 2
        text = script(func)
        assert "T.alloc_buffer" not in text.replace('T.alloc_buffer((3, 40), "float32")', "")


@pytest.mark.parametrize("made", ALL, ids=lambda made: made.name)
def test_matrices_of_packed_weights(made):
    with formats():
        parts = made.quantize(RNG.standard_normal((128, 6)).astype(np.float32))
        params = [param(f"p{i}", tensor_type(part.shape, part.dtype)) for i, part in enumerate(parts)]
        node = dlc.ops()["dequantize_groups"].build(*params, format=made.name)
        func, found = lower_node(node, "matrix"), np.zeros((128, 6), np.float32)
        run(func, *parts, found)
        np.testing.assert_array_equal(found, made.dequantize(*parts))
        np.testing.assert_array_equal(dlc.compile(module_of(node, params), "llvm")(*parts), found)


def test_models_round_trip_as_text_json_and_file(tmp_path):
    with formats():
        node, x, _ = product(quant_format("npu3"))
        module = module_of(node, [x])
        text, metadata = to_script(module)
        assert 'format="npu3"' in text
        assert structural_equal(parse(text, metadata=metadata), module)
        assert structural_equal(from_json(json.loads(json.dumps(to_json(module)))), module)
        given = RNG.standard_normal((3, 256)).astype(np.float32)
        exe = dlc.compile(module, "llvm")
        exe.save(tmp_path / "m.dlc")
        np.testing.assert_array_equal(dlc.open(tmp_path / "m.dlc")(given), exe(given))
        data = to_json(module_of(product(quant_format("woven4"))[0], []))
        assert "woven4" in json.dumps(data)
    # Compiled code needs no format. A graph does.
    with declaring(*DECLARED):
        np.testing.assert_array_equal(dlc.open(tmp_path / "m.dlc")(given).shape, (3, 40))
        with pytest.raises(ScriptError, match="there is no quantisation format 'npu3'") as caught:
            parse(text.replace(': G.Tensor((3, 40), "float32")', ""), metadata=metadata)
        assert "mxfp4" in str(caught.value)


def test_few_rows_stay_packed_and_many_become_floats():
    with formats():
        ops, made = dlc.ops(), quant_format("mxfp4")
        parts = list(map(constant, made.quantize(RNG.standard_normal((64, 48)).astype(np.float32))))
        for rows, name in ((1, "quantized_matmul"), (500, "matmul")):
            x = param("x", tensor_type((rows, 64), "float32"))
            matrix = ops["dequantize_groups"].build(*parts, format="mxfp4")
            exe = dlc.compile(module_of(ops["matmul"].build(x, matrix), [x]), "llvm")
            assert [kernel.name for kernel in exe.explain().kernels] == [f"fused_{name}"]
            given = RNG.standard_normal((rows, 64)).astype(np.float32)
            weights = made.dequantize(*(part.attrs["value"].data for part in parts))
            np.testing.assert_allclose(exe(given), given @ weights, rtol=1e-4, atol=1e-4)


def test_weights_of_a_model_are_quantized():
    with formats():
        ops = dlc.ops()
        a, b = (RNG.standard_normal(shape).astype(np.float32) for shape in ((64, 96), (10, 96)))
        x = param("x", tensor_type((2, 64), "float32"))
        hidden = ops["relu"].build(ops["matmul"].build(x, constant(a)))
        module = module_of(ops["matmul"].build(hidden, constant(b), transpose_b=True), [x])
        quantized = dlc.quantize_weights(module, "int4g32")
        text = script(quantized)
        assert text.count("G.quantized_matmul") == 2
        made, given = quant_format("int4g32"), RNG.standard_normal((2, 64)).astype(np.float32)
        expected = np.maximum(given @ made.dequantize(*made.quantize(a)), 0) @ made.dequantize(
            *made.quantize(b.T)
        )
        np.testing.assert_allclose(dlc.compile(quantized, "llvm")(given), expected, rtol=1e-4, atol=1e-3)
        with pytest.raises(UsageError, match="nothing can be quantized to uint4g128"):
            dlc.quantize_weights(module, "uint4g128")
        with pytest.raises(UsageError, match="no quantisation format 'int4g23'") as caught:
            dlc.quantize_weights(module, "int4g23")
        assert "did you mean 'int4g32'?" in str(caught.value)


def test_partitioners_see_packed_weights_of_any_number_of_rows():
    seen = []

    def accepts(match: Any, target: Any) -> Any:
        seen.append((match.root.attrs["format"], match.root.shape[0]))
        return "the format is not npu3" if match.root.attrs["format"] != "npu3" else True

    pattern = match_op(
        "quantized_matmul", var("x"), const_var("codes"), const_var("scale"), const_var("zero")
    )
    partitioner = Partitioner("npu-gemm", "reference", [RegionPattern("product", pattern, accepts)])

    class Npu:
        DLC_API = "0.1"

        @hookimpl
        def dlc_partitioners(self) -> Any:
            return [partitioner]

    with formats(npu=Npu()):
        node, x, weights = product(quant_format("npu3"), rows=300)
        exe = dlc.compile(module_of(node, [x]), ["reference", "llvm"])
        assert ("npu3", 300) in seen
        given = RNG.standard_normal((300, 256)).astype(np.float32)
        np.testing.assert_allclose(exe(given), given @ weights, rtol=1e-4, atol=1e-3)
        assert list(exe.regions)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: QuantFormat("Bad", "int8", 8), "small letters"),
        (lambda: QuantFormat("bad", "int8", 0), "groups of 0"),
        (lambda: QuantFormat("bad", "float32", 8).bits, "numbers of at most 16 bits"),
        (lambda: QuantFormat("bad", "float8_e5m2", 8, zero=True).bits, "has no zero points"),
        (lambda: QuantFormat("bad", "uint4", 5).bytes, "does not end with a byte"),
    ],
)
def test_formats_that_cannot_work(make, message):
    with pytest.raises(PluginError, match=message):
        make()


def test_weights_must_be_whole_groups():
    with pytest.raises(UsageError, match="not whole groups of 32"):
        quant_format("mxfp4").quantize(np.zeros((40, 2), np.float32))


def test_a_format_of_two_plugins_is_an_error():
    with (
        formats(again=Formats()),
        pytest.raises(PluginError, match="2 plugins provide a quantisation format"),
    ):
        quant_format("npu3")
