"""The comparison of outputs, with a tolerance for each element type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

RTOL = {"float64": 1e-6, "float32": 2e-4, "float16": 3e-2, "bfloat16": 1e-1}
"""By the narrowest float type of a model, the largest error relative to an output's largest element: sums
have another order, and dlc rounds narrow floats less. All other types are equal.
"""
_NUMBERS = {"float64": "DOUBLE", "float32": "FLOAT", "float16": "FLOAT16", "bfloat16": "BFLOAT16"}
OF_QUANTIZED = 2e-2
"""The same for floats of models that round to 8 bits or fewer, because the last bit of a float may move a
rounded value by one step. Their integers may differ by one step.
"""
_ROUNDING = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinear", "QGemm", "QAttention", "DynamicQuantize")
RANDOM = (
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
)  # fmt: skip
"""Operators whose values have no seed in common. The types and shapes of their models are compared."""


def nodes_of(model: onnx.ModelProto) -> Iterable[onnx.NodeProto]:
    """All nodes, those of subgraphs and functions included."""
    waiting: list[Any] = [model.graph, *model.functions]
    while waiting:
        for node in waiting.pop().node:
            yield node
            for attribute in node.attribute:
                waiting += [attribute.g, *attribute.graphs]


@dataclass(frozen=True)
class Features:
    """The properties of a model that set the tolerance."""

    narrowest: str = "float32"
    """The float type of lowest precision among those of `RTOL`."""
    rounds: bool = False
    """Whether it is quantized to 8 bits or fewer."""
    random: bool = False
    """Whether its values are random."""


def features(model: onnx.ModelProto) -> Features:
    nodes = list(nodes_of(model))
    trained = any(n.op_type == "Dropout" and len(n.input) > 2 for n in nodes)
    kinds = {each.type.tensor_type.elem_type for each in (*model.graph.input, *model.graph.output)}
    kinds |= {each.data_type for each in model.graph.initializer}
    kinds |= {a.i for n in nodes if n.op_type == "Cast" for a in n.attribute if a.name == "to"}
    kinds |= {a.t.data_type for n in nodes if n.op_type == "Constant" for a in n.attribute}
    names = [name for name in RTOL if getattr(onnx.TensorProto, _NUMBERS[name]) in kinds]
    return Features(
        narrowest=names[-1] if names else "float32",
        rounds=any(n.op_type.startswith(_ROUNDING) for n in nodes),
        random=trained or any(n.op_type in RANDOM for n in nodes),
    )


def difference(found: Sequence[Any], wanted: Sequence[Any], known: Features) -> str:
    """How outputs differ; empty if they do not."""
    if len(found) != len(wanted):
        return f"{len(found)} outputs instead of {len(wanted)}"
    for index, (a, b) in enumerate(zip(found, wanted)):
        problem = _difference(a, b, known)
        if problem:
            return f"output {index}: {problem}"
    return ""


def _difference(found: Any, wanted: Any, known: Features) -> str:
    if found is None or wanted is None:
        return "" if found is wanted else f"{'empty' if found is None else 'filled'}, not as wanted"
    if isinstance(wanted, (list, tuple)):
        if not isinstance(found, (list, tuple)):
            return f"{type(found).__name__} instead of a sequence"
        return difference(list(found), list(wanted), known)
    if isinstance(wanted, Mapping):
        if not isinstance(found, Mapping) or sorted(found) != sorted(wanted):
            return "other keys"
        return difference([found[k] for k in wanted], list(wanted.values()), known)
    a, b = np.asarray(found), np.asarray(wanted)
    if a.dtype != b.dtype and not _is_wider(a.dtype, b.dtype):
        return f"{a.dtype} instead of {b.dtype}"
    if a.shape != b.shape:
        return f"shape {list(a.shape)} instead of {list(b.shape)}"
    return "" if known.random else _values(a, b, known)


def _is_wider(narrow: np.dtype[Any], wide: np.dtype[Any]) -> bool:
    """Whether onnxruntime's output was cast, see `runtime.WIDER`."""
    narrow_float = narrow.name.startswith(("bfloat", "float8"))
    return (wide.name == "float32" and narrow_float) or narrow.name == f"{wide.name[:-1]}4"


def _values(a: Any, b: Any, known: Features) -> str:
    name = a.dtype.name
    if name not in RTOL and a.dtype.kind != "c":
        if name.startswith("float8"):
            a, b = a.astype(np.float32), b.astype(np.float32)
            return "" if np.array_equal(a, b, equal_nan=True) else "other values"
        if a.dtype.kind in "iu" and known.rounds and a.size:
            off = int(np.abs(a.astype(object) - b.astype(object)).max())
            return "" if off <= 1 else f"off by {off}"
        return "" if np.array_equal(a, b) else f"{int(np.sum(a != b))} of {a.size} elements"
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    finite = np.abs(b[np.isfinite(b)])
    scale = max(float(finite.max()), 1e-3) if finite.size else 1.0
    rtol = max(RTOL.get(name, 0.0), RTOL[known.narrowest], OF_QUANTIZED if known.rounds else 0.0)
    if np.allclose(a, b, rtol=0, atol=rtol * scale, equal_nan=True):
        return ""
    with np.errstate(all="ignore"):
        return f"off by {np.nanmax(np.abs(a - b)):.3g}, the largest element is {scale:.3g}"
