"""Models of the onnx package for level 3 of the conformance kit: some of its node tests, and its networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dlc_core.diag import UnsupportedError
from dlc_core.graph.node import Function
from dlc_core.ir.module import IRModule
from dlc_core.op.reference import evaluate
from dlc_core.testing.cases import Case, Tolerance, Trial, outputs_of
from dlc_core.testing.models import Models
from dlc_frontend_onnx.importer import load
from dlc_frontend_onnx.testing import light, suite

FAMILIES: Mapping[str, Sequence[str]] = {
    "arithmetic": ("add", "clip", "gelu", "mod", "where"),
    "contractions": ("conv", "gemm", "matmul", "einsum"),
    "normalisations": ("layernormalization", "groupnormalization", "softmax"),
    "pools": ("maxpool", "averagepool", "resize"),
    "moves": ("concat", "gather", "pad", "slice", "transpose", "expand"),
    "reductions": ("argmax", "cumsum", "reducemean", "reducemax", "topk"),
    "recurrent": ("gru", "lstm", "rnn"),
    "quantized": ("quantizelinear", "dequantizelinear", "qlinearmatmul", "qlinearconv", "matmulinteger"),
    "selections": ("nonzero", "scatternd", "compress", "onehot", "unique"),
}
"""Operators of which all node tests are taken, by family."""

QUICK = ("contractions", "normalisations")
"""Families of the fast tests."""

WHOLE_MODELS = ("resnet50", "shufflenet", "squeezenet")
"""Networks that are tested with random weights too."""


def node_cases(operators: Sequence[str]) -> Iterator[Case]:
    """The suite's tests of some operators, without those whose inputs are not tensors."""
    for test in suite.cases(*operators):
        values = [item for data in test.data_sets for side in data for item in side]
        if all(isinstance(suite.as_array(item), np.ndarray | np.generic) for item in values):
            yield _node_case(test)


def _node_case(test: Any) -> Case:
    trials, module = [], None
    for inputs, outputs in test.data_sets:
        given, wanted = ([np.asarray(suite.as_array(item)) for item in side] for side in (inputs, outputs))
        feeds = dict(zip((info.name for info in test.model.graph.input), given, strict=False))
        module = module or _imported(test.model, feeds)
        function: Function = module[module.entry]
        trials.append(Trial([feeds[str(p.attrs["name"])] for p in function.params], wanted))
    assert module is not None
    return Case(test.name, module, trials, _tolerances(test, trials))


def _imported(model: Any, feeds: Mapping[str, Any]) -> IRModule:
    """The imported model. If its shapes depend on inputs, these inputs become constants."""
    try:
        return load(model)
    except UnsupportedError:
        return load(suite.with_constants(model, feeds))


def _tolerances(test: Any, trials: Sequence[Trial]) -> dict[str, Tolerance]:
    """The test's tolerance. Results that cancel to nearly zero get an absolute tolerance by their terms.
    Narrow floats get two units in the last digit, because the suite rounds them after each step.
    """
    sizes = [
        float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
        for trial in trials
        for array in trial.expected
        if array.dtype.kind == "f"
    ]
    atol = max(float(test.atol), 4 * float(np.finfo(np.float32).eps) * max(sizes, default=0.0))
    narrow = {"float16": 2.0**-9, "bfloat16": 2.0**-6}
    wide = dict.fromkeys(("float32", "float64"), (float(test.rtol), atol))
    return wide | {name: (max(float(test.rtol), unit), atol) for name, unit in narrow.items()}


def network_cases(network: str) -> Iterator[Case]:
    """A network with the package's constants and its stored output, and one with random weights."""
    feeds = light.input_of(network)
    stored = load(str(light.path_of(network)))
    arrays = [feeds[str(p.attrs["name"])] for p in stored["main"].params]
    tolerances = {"float32": (1e-3, 1e-6)}
    yield Case("stored", stored, [Trial(arrays, [light.stored_output(network)])], tolerances)
    if network in WHOLE_MODELS:
        module = load(light.with_weights(network))
        function: Function = module["main"]
        expected = outputs_of(evaluate(function, dict(zip(function.params, arrays, strict=True))))
        yield Case("weights", module, [Trial(arrays, expected)], {"float32": (1e-2, 1e-5)})


MODELS = (
    *(Models(f"onnx-{name}", partial(node_cases, ops), name not in QUICK) for name, ops in FAMILIES.items()),
    *(Models(f"onnx-{name}", partial(network_cases, name), True, "float32") for name in light.NETWORKS),
)

__all__ = ["FAMILIES", "MODELS", "network_cases", "node_cases"]
