"""Inference, reference, lowering and errors of each standard op agree on all its samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlc_core.diag import TypeInferenceError
from dlc_core.graph.node import Node, param
from dlc_core.ir.dtype import DType
from dlc_core.ir.types import TensorType, tensor_type
from dlc_core.op import std
from dlc_core.op.declare import OpDecl, Sample
from dlc_core.op.lower import lower_node, result_types
from dlc_core.op.reference import apply, evaluate
from dlc_core.op.samples import TOLERANCES, make_inputs, sample_dtypes, tolerance
from dlc_core.plugin.registry import fresh_registry, registry
from dlc_core.testing.cases import fits_type, symbolic_node
from dlc_core.tir import interpreter

with fresh_registry({}):
    OPS = tuple(registry().ops.values())

Arrays = list[np.ndarray[Any, Any]]


def cases(selects: Callable[[OpDecl], Any] = lambda decl: True) -> list[Any]:
    """One test for each sample. The test loops over dtypes, which are many and fast."""
    return [
        pytest.param(decl, sample, id=f"{decl.name}-{number}")
        for decl in OPS
        if selects(decl)
        for number, sample in enumerate(decl.samples)
    ]


def node_of(decl: OpDecl, sample: Sample, arrays: Arrays) -> tuple[Node, list[Node]]:
    params = [param(f"x{i}", tensor_type(a.shape, a.dtype)) for i, a in enumerate(arrays)]
    return decl.build(*params, **sample.attrs), params


def values(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def run_lowering(node: Node, arrays: Arrays, like: tuple[Any, ...]) -> Arrays:
    outputs = [np.zeros(array.shape, array.dtype) for array in like]
    interpreter.run(lower_node(node), *arrays, *outputs, check=True)
    return outputs


def assert_close(found: Any, expected: Any, decl: OpDecl) -> None:
    rtol, atol = tolerance(decl, DType.of(expected.dtype))
    assert found.dtype == expected.dtype
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
    else:
        wide = found.astype(np.float64), expected.astype(np.float64)
        np.testing.assert_allclose(*wide, rtol, atol, err_msg=f"of {expected.dtype}")


@pytest.mark.parametrize(("decl", "sample"), cases())
def test_lowering_and_inference_equal_the_reference(decl: OpDecl, sample: Sample) -> None:
    for dtype in sample_dtypes(decl, sample):
        arrays = make_inputs(sample, dtype)
        node, params = node_of(decl, sample, arrays)
        expected = values(evaluate(node, dict(zip(params, arrays, strict=True))))
        types = (node.type,) if isinstance(node.type, TensorType) else result_types(node.type)
        assert len(expected) == len(types)
        assert all(map(fits_type, expected, types))
        if decl.lower is not None:
            for found, reference in zip(run_lowering(node, arrays, expected), expected, strict=True):
                assert_close(found, reference, decl)


@pytest.mark.parametrize(("decl", "sample"), cases(lambda decl: decl.inputs))
def test_lowering_with_symbolic_dims_equals_the_reference(decl: OpDecl, sample: Sample) -> None:
    dtype = sample_dtypes(decl, sample)[0]
    arrays = make_inputs(sample, dtype)
    built = symbolic_node(decl, sample, arrays)
    assert built is not None
    node, params, _ = built
    expected = values(evaluate(node, dict(zip(params, arrays, strict=True))))
    if decl.lower is not None:
        for found, reference in zip(run_lowering(node, arrays, expected), expected, strict=True):
            assert_close(found, reference, decl)


@pytest.mark.parametrize(("decl", "sample"), cases(lambda decl: decl.compose and decl.reference))
def test_body_of_a_composite_equals_its_reference(decl: OpDecl, sample: Sample) -> None:
    for dtype in set(sample_dtypes(decl, sample)) & {"float32", "float64"}:
        arrays = make_inputs(sample, dtype)
        node, params = node_of(decl, sample, arrays)
        body = decl.expand(params, node.attrs)
        assert body.type == node.type
        expected = values(apply(decl, arrays, node.attrs, node.type))
        rtol, atol = TOLERANCES[dtype]
        for found, reference in zip(
            values(evaluate(body, dict(zip(params, arrays, strict=True)))), expected, strict=True
        ):
            np.testing.assert_allclose(found, reference, rtol, atol)


@pytest.mark.parametrize(
    ("decl", "number"),
    [pytest.param(d, n, id=f"{d.name}-{n}") for d in OPS for n in range(len(d.error_samples))],
)
def test_refuses_wrong_use(decl: OpDecl, number: int) -> None:
    sample = decl.error_samples[number]
    params = [
        param(f"x{i}", tensor_type(t.shape, t.dtype or sample.dtype)) for i, t in enumerate(sample.inputs)
    ]
    with pytest.raises(TypeInferenceError) as caught:
        decl.build(*params, **sample.attrs)
    assert sample.message in str(caught.value)
    assert str(caught.value).startswith(f"{decl.name}:")


def test_declarations_are_complete() -> None:
    names = [decl.name for decl in OPS]
    assert len(set(names)) == len(names)
    for decl in OPS:
        assert decl.samples or decl.calls_foreign, decl.name
        assert decl.error_samples, decl.name
        assert decl.doc, decl.name
        assert decl.lower is not None or decl.is_composite or decl.kind == "opaque", decl.name


def test_builders_are_found_by_name() -> None:
    x = param("x", tensor_type((2, 3)))
    assert std.relu(x).op is std.BY_NAME["relu"]
    assert set(std.BY_NAME) <= set(dir(std))
    with pytest.raises(AttributeError, match="no standard op 'relo'"):
        std.relo(x)
