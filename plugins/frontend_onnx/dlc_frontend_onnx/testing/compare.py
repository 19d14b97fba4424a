"""Imported models, run by the ops' references and compared with the evaluator of the onnx package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from dlc_core.graph.node import Function
from dlc_core.op.reference import evaluate
from dlc_frontend_onnx.importer import load


def parse(text: str, opset: int = 18, domains: str = "") -> onnx.ModelProto:
    """A model of a graph in ONNX's text syntax: `parse("g (float[2] x) => (float[2] y) { y = Relu(x) }")`."""
    head = f'<ir_version: 8, opset_import: ["" : {opset}{domains}]>'
    return parser.parse_model(head + text)


def main_of(model: Any, shapes: Mapping[str, Any] | None = None) -> Function:
    """The entry function of an imported model."""
    found: Function = load(model, {"shapes": dict(shapes or {})})["main"]
    return found


def run(model: Any, feeds: Mapping[str, Any], shapes: Mapping[str, Any] | None = None) -> list[Any]:
    """The outputs of an imported model."""
    result = evaluate(main_of(model, shapes), feeds)
    return list(result) if isinstance(result, tuple) else [result]


def check(model: onnx.ModelProto, feeds: Mapping[str, Any], rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Assert that an imported model computes the same as the evaluator of the onnx package."""
    wanted = ReferenceEvaluator(model).run(None, dict(feeds))
    found = run(model, feeds)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        expected = np.asarray(b)
        assert (a.dtype, a.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(a, expected, rtol=rtol, atol=atol)


def model_of(
    op: str,
    inputs: Sequence[Any],
    outputs: int = 1,
    *,
    domain: str = "com.microsoft",
    imported: int = 18,
    version: int = 1,
    fed: Sequence[int] | None = None,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A model of one operator, and its feeds: the inputs in `fed`, by default all with several dims and
    elements.

    Other inputs are constants; None is omitted.
    """
    names = [f"x{index}" if array is not None else "" for index, array in enumerate(inputs)]
    given = {name: array for name, array in zip(names, inputs) if array is not None}
    if fed is None:
        fed = [k for k, array in enumerate(inputs) if array is not None and array.ndim > 1 and array.size > 1]
    feeds = {names[index]: inputs[index] for index in fed}
    results = [f"y{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, results, domain=domain, **attributes)],
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in feeds.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in results],
        [numpy_helper.from_array(array, name) for name, array in given.items() if name not in feeds],
    )
    opsets = [helper.make_opsetid(name, at) for name, at in {domain: version, "": imported}.items()]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return model, feeds


def check_runtime(
    op: str,
    inputs: Sequence[Any],
    outputs: int = 1,
    *,
    compared: Sequence[int] | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-4,
    **options: Any,
) -> tuple[list[Any], list[Any]]:
    """Assert that one operator computes the same as in ONNX Runtime; returns both lists of results.

    `options` are those of `model_of`. The outputs in `compared` are compared, by default all. Integers may
    differ by 1, because ties may be rounded either way. Errors of dlc are raised before ONNX Runtime runs.
    """
    import onnxruntime

    model, feeds = model_of(op, inputs, outputs, **options)
    found = run(model, feeds)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, feeds)
    for index, (own, expected) in enumerate(zip(found, wanted)):
        if compared is not None and index not in compared:
            continue
        assert (own.dtype, own.shape) == (expected.dtype, expected.shape), index
        if own.dtype.kind == "f":
            np.testing.assert_allclose(own, expected, rtol=rtol, atol=atol, err_msg=f"output {index}")
        elif own.dtype == object or own.dtype.kind == "b":
            np.testing.assert_array_equal(own, expected)
        else:
            assert np.abs(own.astype(int) - expected.astype(int)).max(initial=0) <= 1
    return found, wanted


__all__ = ["check", "check_runtime", "main_of", "model_of", "parse", "run"]
