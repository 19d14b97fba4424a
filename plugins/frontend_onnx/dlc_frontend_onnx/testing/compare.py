"""Imported models on the ops' references, compared with the evaluator of the ONNX package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import parser
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
    """Assert that an imported model gives what the evaluator of the ONNX package gives."""
    wanted = ReferenceEvaluator(model).run(None, dict(feeds))
    found = run(model, feeds)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted):
        expected = np.asarray(b)
        assert (a.dtype, a.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(a, expected, rtol=rtol, atol=atol)


__all__ = ["check", "main_of", "parse", "run"]
