"""References for the values of a model: `reference_of("onnx-reference")(model, feeds, names)`.

A reference takes a model, its inputs and names of values. It returns the values that it can compute.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from onnx import ModelProto, ValueInfoProto, helper
from onnx.reference import ReferenceEvaluator

from dlc_core.cli.arrays import read_arrays
from dlc_core.diag import DlcError, UnsupportedError, UsageError
from dlc_core.driver import find_target
from dlc_frontend_onnx.dtypes import number_of
from dlc_frontend_onnx.specialized import CallableModel

Array = np.ndarray[Any, Any]
Reference: TypeAlias = "Callable[[ModelProto, Mapping[str, Array], Sequence[str]], dict[str, Array]]"


def reference_of(text: str) -> Reference:
    """The reference of a name: "onnx-reference" is the evaluator of the onnx package, "onnxruntime" is that
    package if it is installed, a path that ends in .npz is saved values by name, and any other text is a
    target.

    Raises UsageError for other texts.
    """
    if text == "onnx-reference":
        return by_evaluator
    if text == "onnxruntime":
        return by_onnxruntime
    if text.endswith(".npz"):
        saved = read_arrays(Path(text))
        return lambda model, feeds, names: _saved(saved, model, names)
    try:
        target = find_target(text)
    except DlcError as error:
        raise UsageError(
            f"{text!r} is not a reference",
            why=error.what,
            hint='"onnx-reference", "onnxruntime", a target, or a .npz file',
        ) from error

    def by_target(model: ModelProto, feeds: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
        return run_dlc(model, feeds, names, target=target, opt_level=0)

    return by_target


def run_dlc(
    model: ModelProto,
    feeds: Mapping[str, Array],
    names: Sequence[str],
    types: dict[str, ValueInfoProto] | None = None,
    **options: Any,
) -> dict[str, Array]:
    """Values of a model by dlc, which compiles it with them as outputs. Sequences are left out.

    `types` is filled with their types, which may have symbolic dims.
    """
    outputs = {value.name for value in model.graph.output}
    made = CallableModel(model, taps=[name for name in names if name not in outputs], **options)
    form, rest = made.pick({info.name: feeds[info.name] for info in made.inputs})
    if types is not None:
        for value in form.exe.outputs:
            dims = [size if isinstance(size, int) else str(size) for size in value.shape]
            types[value.name] = helper.make_tensor_value_info(value.name, number_of(value.dtype.name), dims)
    return {name: np.asarray(array) for name, array in form.exe.run(rest).items()}


def by_evaluator(model: ModelProto, feeds: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """Values by the evaluator of the onnx package."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = ReferenceEvaluator(_giving(model, names)).run(list(names), dict(feeds))
    except Exception as error:  # the evaluator has no common exception type
        raise UnsupportedError(
            "the evaluator of the onnx package does not run the model",
            why=f"{type(error).__name__}: {error}",
            hint="compare with another target, or with saved values",
        ) from error
    return _arrays(names, list(found))


def by_onnxruntime(model: ModelProto, feeds: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """Values by onnxruntime without optimization."""
    try:
        import onnxruntime
    except ImportError as error:
        raise UsageError("onnxruntime is not installed", hint="pip install onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            _giving(model, names).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        found = session.run(list(names), dict(feeds))
    except Exception as error:  # its exceptions have no common public base
        raise UnsupportedError("onnxruntime does not run the model", why=str(error)) from error
    return _arrays(names, found)


def _arrays(names: Sequence[str], found: Sequence[Any]) -> dict[str, Array]:
    kinds = (np.ndarray, np.generic)
    return {name: np.asarray(value) for name, value in zip(names, found) if isinstance(value, kinds)}


def _giving(model: ModelProto, names: Sequence[str]) -> ModelProto:
    """The model with other outputs."""
    declared = {value.name: value for value in model.graph.output}
    made = ModelProto()
    made.CopyFrom(model)
    made.graph.ClearField("output")
    made.graph.output.extend(declared.get(name, ValueInfoProto(name=name)) for name in names)
    return made


def _saved(saved: Mapping[str, Array], model: ModelProto, names: Sequence[str]) -> dict[str, Array]:
    found = {name: saved[name] for name in names if name in saved}
    for index, value in enumerate(model.graph.output):
        if f"out_{index}" in saved:
            found.setdefault(value.name, saved[f"out_{index}"])
    return found


__all__ = ["Reference", "by_evaluator", "by_onnxruntime", "reference_of", "run_dlc"]
