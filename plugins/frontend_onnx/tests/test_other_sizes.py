"""Symbolic dims with sizes that contradict each other. A call is refused if the static model is refused, and
else computes the same.

The cases are those of the onnx package: one per operator with several inputs and their ranks. All dims of the
inputs are symbolic, or one of them is. The sizes are equal by use, not by name.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx.testing.suite import cases
from onnx import helper

import dlc_core as dlc
from dlc_core.diag import DlcError, ModelError, RuntimeFailure, UnsupportedError, UsageError

Axis = tuple[int, int]
"""An input and an axis."""
FEW = (
    "matmul",
    "gemm",
    "where",
    "concat",
    "gathernd",
    "scatterelements",
    "onehot",
    "affinegrid",
    "tensorscatter",
)
ROUGH = {"Dropout", "Bernoulli", "RandomNormalLike", "RandomUniformLike", "Multinomial"}
"""Operators with random results."""
KINDER = {("Einsum", 1)}
"""Operators and sizes that the static model accepts by broadcasting a size of 1; symbolic types do not allow
this.
"""


def resized(array: Any, axis: int, size: int) -> Any:
    """The array with repeated or fewer elements; indices stay valid."""
    return np.ascontiguousarray(np.take(array, np.arange(size) % array.shape[axis], axis))


def opened(model: onnx.ModelProto, arrays: list[Any], dims: Mapping[Axis, str]) -> onnx.ModelProto:
    """The model for arrays of these types, with some symbolic dims."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.graph.node[0].name = "the_node"
    for index, (info, array) in enumerate(zip(made.graph.input, arrays, strict=True)):
        shape = [dims.get((index, axis), size) for axis, size in enumerate(array.shape)]
        info.type.CopyFrom(helper.make_tensor_type_proto(info.type.tensor_type.elem_type, shape))
    for info in made.graph.output:
        info.type.tensor_type.ClearField("shape")
    del made.graph.value_info[:]
    return made


def chosen(*modules: str) -> dict[str, list[tuple[onnx.ModelProto, list[Any]]]]:
    """The cases of each operator with several inputs, one per combination of ranks, at most three."""
    found: dict[str, dict[tuple[int, ...], tuple[onnx.ModelProto, list[Any]]]] = {}
    for case in cases(*modules):
        nodes, values = case.model.graph.node, case.data_sets[0][0] if case.data_sets else []
        plain = all(isinstance(v, (np.ndarray, np.generic)) and v.dtype != object for v in values)
        if len(nodes) != 1 or not plain or len(values) < 2 or len(values) != len(case.model.graph.input):
            continue
        if any(not info.type.HasField("tensor_type") for info in case.model.graph.output):
            continue
        arrays = [np.asarray(v) for v in values]
        ranks = tuple(a.ndim for a in arrays)
        mine = found.setdefault(nodes[0].op_type, {})
        if len(mine) < 3 and any(ranks):
            mine.setdefault(ranks, (case.model, arrays))
    return {op: list(mine.values()) for op, mine in found.items()}


def results(exe: Any, arrays: list[Any]) -> list[Any]:
    made = exe(*arrays)
    return list(made) if isinstance(made, tuple) else [made]


def of_numbers(model: onnx.ModelProto, arrays: list[Any]) -> list[Any] | None:
    """The results of the static model for arrays of these sizes; None if it is refused or fails."""
    try:
        return results(dlc.compile(opened(model, arrays, {}), "reference"), arrays)
    except DlcError:
        return None


def near(a: Any, b: Any) -> bool:
    if a.dtype.kind in "biu" or a.dtype == object:
        return bool(np.array_equal(a, b))
    wide = (a.astype(np.complex128 if a.dtype.kind == "c" else np.float64), b.astype(np.complex128))
    tolerance = 2e-2 if a.dtype.itemsize < 4 else 1e-3
    return bool(np.allclose(*wide, rtol=tolerance, atol=tolerance, equal_nan=True))


def problems(op: str, model: onnx.ModelProto, arrays: list[Any], target: str, each: bool) -> Iterator[str]:
    """The errors of calls with other sizes than those of a case."""
    positions = [(i, axis) for i, array in enumerate(arrays) for axis, size in enumerate(array.shape) if size]
    names = {position: f"d{position[0]}_{position[1]}" for position in positions}
    for dims in (names, *({position: name} for position, name in names.items() if each)):
        try:
            exe = dlc.compile(opened(model, arrays, dims), target)
        except (ModelError, UnsupportedError):
            continue  # an operator may need some static sizes
        except DlcError as error:
            yield f"{op} of {dims} cannot be compiled: {error}"
            continue
        for index, axis in dims:
            now = arrays[index].shape[axis]
            for size in sorted({1, now - 1, now + 1, 2 * now} - {0, now}):
                fed = [*arrays[:index], resized(arrays[index], axis, size), *arrays[index + 1 :]]
                expected = of_numbers(model, fed)
                about = f"{op} of {', '.join(str(a.shape) for a in fed)} at {dims}"
                try:
                    found = results(exe, fed)
                except UsageError as error:
                    if expected is not None and (op, size) not in KINDER:
                        yield f"{about} is refused: {error}"
                    if "the_node" not in str(error) and op not in ("Scan", "Loop", "If"):
                        yield f"{about} is refused without a name: {error}"
                except RuntimeFailure as error:
                    # Only data-dependent indices are checked at run time.
                    if expected is not None or "out of range" not in str(error):
                        yield f"{about} fails: {error}"
                else:
                    if expected is None:
                        yield f"{about} runs"
                    elif op not in ROUGH and not all(map(near, found, expected)):
                        yield f"{about} gives something else"


def judge(modules: tuple[str, ...], target: str, each: bool) -> list[str]:
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # values of samples that are repeated overflow and divide by zero
        for op, samples in chosen(*modules).items():
            for model, arrays in samples:
                found += problems(op, model, arrays, target, each)
    return found


def test_sizes_that_contradict_each_other(monkeypatch):
    monkeypatch.setenv("DLC_GUARD", "end")
    assert judge(FEW, "llvm", each=False) == []


@pytest.mark.slow
@pytest.mark.parametrize("target", ["llvm", "c"])
def test_every_operator(target, monkeypatch):
    monkeypatch.setenv("DLC_GUARD", "end")
    assert judge((), target, each=True) == []
