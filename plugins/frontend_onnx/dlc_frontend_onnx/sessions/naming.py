"""Inputs, outputs and types with onnxruntime's names: "tensor(float)", "seq(tensor(int64))"."""

from __future__ import annotations

from dataclasses import dataclass

from dlc_frontend_onnx.model import ValueType

_WORDS = {
    "float32": "float",
    "float64": "double",
    "float8_e4m3fn": "float8e4m3fn",
    "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2",
    "float8_e5m2fnuz": "float8e5m2fnuz",
    "float8_e8m0fnu": "float8e8m0",
    "float4_e2m1fn": "float4e2m1",
}


@dataclass(frozen=True)
class NodeArg:
    """An input or output. Its dims are ints, names of symbolic dims, or None. An unknown rank is an empty
    shape.
    """

    name: str
    shape: list[int | str | None]
    type: str


def type_text(type_: ValueType | str | None) -> str:
    """The text of a type, or of a tensor type of a dtype; "" if it is undeclared."""
    if isinstance(type_, str):
        return f"tensor({_WORDS.get(type_, type_)})"
    if type_ is None:
        return ""
    if type_.kind in ("tensor", "sparse_tensor"):
        dtype = type_.dtype or ""
        return f"{type_.kind}({_WORDS.get(dtype, dtype)})"
    inner = type_text(type_.elem)
    if type_.kind == "map":
        return f"map({_WORDS.get(type_.key or '', type_.key)},{inner})"
    return f"{'seq' if type_.kind == 'sequence' else type_.kind}({inner})"


__all__ = ["NodeArg", "type_text"]
