"""Models run by onnxruntime, those with types that NumPy lacks included."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

WIDER = {
    TensorProto.BFLOAT16: TensorProto.FLOAT,
    TensorProto.FLOAT8E4M3FN: TensorProto.FLOAT,
    TensorProto.FLOAT8E4M3FNUZ: TensorProto.FLOAT,
    TensorProto.FLOAT8E5M2: TensorProto.FLOAT,
    TensorProto.FLOAT8E5M2FNUZ: TensorProto.FLOAT,
    TensorProto.INT4: TensorProto.INT8,
    TensorProto.UINT4: TensorProto.UINT8,
}
"""Element types that onnxruntime does not return to Python, and those to which the outputs are cast first."""


class Session:
    """A session with the default optimisations, or without any if these fail or `optimised` is false."""

    def __init__(self, path: Path, model: onnx.ModelProto, optimised: bool = True) -> None:
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)
        kinds = {info.name: info.type.tensor_type.elem_type for info in model.graph.output}
        self._kinds = {info.name: info.type.tensor_type.elem_type for info in model.graph.input}
        self._wide = {name for name, kind in kinds.items() if kind in WIDER}
        source: str | bytes = str(path)
        if self._wide:
            source = _with_casts(model, kinds, self._wide).SerializeToString()
        self._session: Any = None
        levels = [onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL]
        if optimised:
            levels.insert(0, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)
        for level in levels:
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = 1
            options.log_severity_level = 4
            options.graph_optimization_level = level
            try:
                self._session = onnxruntime.InferenceSession(
                    source, options, providers=["CPUExecutionProvider"]
                )
                break
            except Exception:
                if level == onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL:
                    raise

    def __call__(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The outputs, those of `WIDER` types in the wider type."""
        kinds = [self._kinds.get(name) for name in feeds]
        if not any(kind in WIDER for kind in kinds):
            return [_dense(each) for each in self._session.run(None, dict(feeds))]
        import onnxruntime

        make = onnxruntime.OrtValue
        values = {}
        for name, value in feeds.items():
            kind = self._kinds.get(name)
            if kind in WIDER:
                bits = np.ascontiguousarray(value).view(f"uint{8 * value.dtype.itemsize}")
                values[name] = make.ortvalue_from_numpy_with_onnx_type(bits, kind)
            else:
                values[name] = make.ortvalue_from_numpy(np.ascontiguousarray(value))
        return [each.numpy() for each in self._session.run_with_ort_values(None, values)]


def _dense(value: Any) -> Any:
    """An output, a sparse one as the array that it stands for."""
    if type(value).__name__ != "SparseTensor":
        return value
    array = np.zeros(value.dense_shape(), value.values().dtype)
    at = np.asarray(value.as_coo_view().indices())
    array.reshape(-1)[at if at.ndim == 1 else np.ravel_multi_index(tuple(at.T), array.shape)] = value.values()
    return array


def _with_casts(model: onnx.ModelProto, kinds: Mapping[str, int], wide: set[str]) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for position, name in enumerate(kinds):
        if name in wide:
            to = WIDER[kinds[name]]
            made.graph.node.append(helper.make_node("Cast", [name], [f"{name}/wide"], to=to))
            info = made.graph.output[position]
            info.name, info.type.tensor_type.elem_type = f"{name}/wide", to
    return made
