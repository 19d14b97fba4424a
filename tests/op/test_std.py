"""Every standard op keeps its declaration: inference, reference, lowering and errors agree on all samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dlc_core.diag import TypeInferenceError
from dlc_core.graph.node import Node, param
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Var
from dlc_core.ir.types import TensorType, tensor_type
from dlc_core.op import std
from dlc_core.op.declare import OpDecl, Sample
from dlc_core.op.lower import lower_node, result_types
from dlc_core.op.reference import apply, evaluate
from dlc_core.op.samples import TOLERANCES, make_inputs, sample_dtypes, tolerance
from dlc_core.tir import interpreter


def cases() -> Iterator[Any]:
    for decl in std.OPS:
        for number, sample in enumerate(decl.samples):
            for dtype in sample_dtypes(decl, sample):
                yield pytest.param(decl, sample, dtype, id=f"{decl.name}-{number}-{dtype}")


def build(decl: OpDecl, sample: Sample, arrays: list[Any]) -> tuple[Node, list[Node]]:
    params = [param(f"x{i}", tensor_type(a.shape, a.dtype)) for i, a in enumerate(arrays)]
    return decl.build(*params, **sample.attrs), params


@pytest.mark.parametrize(("decl", "sample", "dtype"), list(cases()))
def test_inference_equals_reality(decl: OpDecl, sample: Sample, dtype: str) -> None:
    arrays = make_inputs(sample, dtype)
    node, params = build(decl, sample, arrays)
    value = evaluate(node, dict(zip(params, arrays, strict=True)))
    results = value if isinstance(value, tuple) else (value,)
    types = (node.type,) if isinstance(node.type, TensorType) else node.type.fields
    assert len(results) == len(types)
    for array, type_ in zip(results, types, strict=True):
        assert array.shape == type_.shape
        assert array.dtype == type_.dtype.numpy


@pytest.mark.parametrize(
    ("decl", "number"), [pytest.param(d, n, id=f"{d.name}-{n}") for d in std.OPS for n in range(len(d.error_samples))]
)
def test_wrong_use_is_refused(decl: OpDecl, number: int) -> None:
    sample = decl.error_samples[number]
    params = [
        param(f"x{i}", tensor_type(t.shape, t.dtype or sample.dtype)) for i, t in enumerate(sample.inputs)
    ]
    with pytest.raises(TypeInferenceError) as caught:
        decl.build(*params, **sample.attrs)
    assert sample.message in str(caught.value)
    assert str(caught.value).startswith(f"{decl.name}:")


@pytest.mark.parametrize(
    ("decl", "sample", "dtype"),
    [c for c in cases() if c.values[0].compose and c.values[0].reference and c.values[2] in ("float32", "float64")],
)
def test_body_of_a_composite_matches_its_reference(decl: OpDecl, sample: Sample, dtype: str) -> None:
    arrays = make_inputs(sample, dtype)
    node, params = build(decl, sample, arrays)
    body = decl.expand(params, node.attrs)
    assert body.type == node.type
    rtol, atol = TOLERANCES[dtype]
    expected = apply(decl, arrays, node.attrs, node.type)
    np.testing.assert_allclose(evaluate(body, dict(zip(params, arrays, strict=True))), expected, rtol, atol)


def assert_close(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], decl: OpDecl) -> None:
    rtol, atol = tolerance(decl, DType.of(expected.dtype))
    assert found.dtype == expected.dtype
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
        return
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol, atol)


def run_lowering(node: Node, arrays: list[Any], types: list[TensorType]) -> list[Any]:
    func = lower_node(node)
    outputs = [np.zeros(t.static_shape(), t.dtype.numpy) for t in types]
    interpreter.run(func, *arrays, *outputs, check=True)
    return outputs


@pytest.mark.parametrize(("decl", "sample", "dtype"), [c for c in cases() if c.values[0].lower])
def test_lowering_matches_the_reference(decl: OpDecl, sample: Sample, dtype: str) -> None:
    arrays = make_inputs(sample, dtype)
    node, params = build(decl, sample, arrays)
    expected = evaluate(node, dict(zip(params, arrays, strict=True)))
    many = expected if isinstance(expected, tuple) else (expected,)
    for found, wanted in zip(run_lowering(node, arrays, result_types(node.type)), many, strict=True):
        assert_close(found, wanted, decl)


def symbolic_build(decl: OpDecl, sample: Sample, arrays: list[Any]) -> tuple[Node, list[Node]] | None:
    """The sample with a symbol for each size of its inputs that is above 1; None where numbers are needed."""
    symbols: dict[int, Var] = {}
    params = []
    for i, array in enumerate(arrays):
        shape = [symbols.setdefault(n, Var(f"n{n}")) if n > 1 else n for n in array.shape]
        params.append(param(f"x{i}", tensor_type(shape, array.dtype)))
    try:
        return decl.build(*params, **sample.attrs), params
    except TypeInferenceError:
        return None


@pytest.mark.parametrize(("decl", "sample", "dtype"), [c for c in cases() if c.values[2] in ("float32", "int32")])
def test_symbolic_dims(decl: OpDecl, sample: Sample, dtype: str) -> None:
    arrays = make_inputs(sample, dtype)
    built = symbolic_build(decl, sample, arrays)
    if built is None:
        print(decl.name, sample)
        assert decl.kind not in ("elementwise", "broadcast")
        return
    node, params = built
    expected = evaluate(node, dict(zip(params, arrays, strict=True)))
    if decl.lower is not None:
        many = expected if isinstance(expected, tuple) else (expected,)
        outputs = [np.zeros_like(array) for array in many]
        interpreter.run(lower_node(node), *arrays, *outputs, check=True)
        for found, wanted in zip(outputs, many, strict=True):
            assert_close(found, wanted, decl)
