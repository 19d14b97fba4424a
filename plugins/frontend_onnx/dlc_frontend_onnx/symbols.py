"""The symbolic dims of a model's inputs and outputs, and pinning them."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping
from typing import Any

from dlc_core.diag import UsageError
from dlc_core.graph.node import Node
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Var
from dlc_core.ir.types import Dim, TensorType, dim
from dlc_frontend_onnx.dtypes import TENSOR_DTYPES
from dlc_frontend_onnx.model import Graph, Model, ValueInfo
from dlc_frontend_onnx.place import quoted
from dlc_frontend_onnx.shapes import simple

Pins = Mapping[str, "int | tuple[int | None, ...]"]
_EXPRESSION = re.compile(r"[A-Za-z0-9_+*/() -]{1,200}")


class WrongShapeWarning(UserWarning):
    """A model declares a shape of an output that is not the one that it computes."""


class Symbols:
    """The dims of the inputs: names to Vars or to the ints they are pinned to."""

    def __init__(self, graph: Graph, pins: Pins) -> None:
        self._dims: dict[str, Dim] = {}
        self._plain: set[str] = set()
        self._pins: dict[str, tuple[int | None, ...]] = {}
        inputs = {info.name: info for info in graph.required_inputs}
        names = {d for info in inputs.values() for d in info.shape or () if isinstance(d, str)}
        self._plain = {name for name in names if not _names_in(name, names - {name})}
        for name, pin in pins.items():
            if isinstance(pin, int) and not isinstance(pin, bool) and name in names:
                if pin < 0:
                    raise UsageError(f"dim {quoted(name)} is pinned to {pin}")
                self._dims[name] = pin
            elif isinstance(pin, (tuple, list)) and name in inputs:
                self._pins[name] = _pinned_shape(inputs[name], tuple(pin))
            else:
                raise UsageError(
                    f"shapes: {quoted(name)}: {pin!r} pins no input and no dim of the model",
                    hint=f"inputs: {', '.join(inputs) or 'none'}; dims: {', '.join(sorted(names)) or 'none'}",
                )
        for name, shape in self._pins.items():
            for declared, pinned in zip(inputs[name].shape or (), shape):
                if not isinstance(declared, str) or pinned is None:
                    continue
                if self._dims.setdefault(declared, pinned) != pinned:
                    raise UsageError(
                        f"dim {quoted(declared)} is pinned to {self._dims[declared]} and to {pinned}"
                    )

    def type_of(self, info: ValueInfo, model: Model) -> TensorType:
        """The type of an input."""
        place = model.graph.place
        what = f"input {quoted(info.name)}"
        if info.type is None or (info.kind == "tensor" and info.dtype is None):
            raise place.error(f"{what} has no type")
        if info.kind != "tensor":
            raise place.unsupported(f"{what} is a {info.kind}, not a tensor")
        if info.dtype not in TENSOR_DTYPES:
            raise place.unsupported(f"{what} is a tensor of {info.dtype}")
        pinned = self._pins.get(info.name)
        shape = info.shape
        if shape is None:
            if pinned is None:
                raise place.unsupported(
                    f"{what} has an unknown rank", hint=f"give its shape: shapes={{{info.name!r}: (...)}}"
                )
            shape = (None,) * len(pinned)
        dims: list[Dim] = []
        for axis, declared in enumerate(shape):
            known = pinned[axis] if pinned is not None else None
            if known is not None:
                dims.append(known)
            elif isinstance(declared, int):
                dims.append(declared)
            elif isinstance(declared, str):
                dims.append(self._named(declared))
            else:
                dims.append(Var(identifier(f"{info.name}_{axis}")))
        return TensorType(tuple(dim(d) for d in dims), DType(str(info.dtype)))

    def _named(self, name: str) -> Dim:
        """The dim of a name; a sum or product of other dims' names is that."""
        if name not in self._dims:
            parts = _names_in(name, self._plain)
            if parts and name not in self._plain:
                values = {part: self._named(part) for part in parts}
                self._dims[name] = simple(_evaluated(ast.parse(name, mode="eval").body, values))
            else:
                self._dims[name] = Var(identifier(name))
        return self._dims[name]

    def check_output(self, info: ValueInfo, value: Node, model: Model) -> None:
        """The declared type of an output must not contradict the inferred one; a shape that does is told,
        since files have such of which the rest is right."""
        place = model.graph.place
        what = f"output {quoted(info.name)} is declared"
        if info.type is None:
            return
        if info.kind != "tensor":
            raise place.error(f"{what} a {info.kind}, but it is a tensor")
        if info.dtype is not None and info.dtype != value.dtype.name:
            raise place.error(f"{what} a tensor of {info.dtype}, but it is one of {value.dtype}").at(
                value.spans
            )
        if info.shape is None:
            return
        known = [self._dims.get(size) if isinstance(size, str) else size for size in info.shape]
        if len(known) != len(value.shape) or any(
            isinstance(size, int) and isinstance(found, int) and size != found
            for size, found in zip(known, value.shape)
        ):
            text = f"{what} with the shape {list(info.shape)}, but its type is {value.type}"
            warnings.warn(f"{model.source}: {text}", WrongShapeWarning, stacklevel=2)


def _pinned_shape(info: ValueInfo, shape: tuple[Any, ...]) -> tuple[int | None, ...]:
    if any(d is not None and (isinstance(d, bool) or not isinstance(d, int) or d < 0) for d in shape):
        raise UsageError(f"input {quoted(info.name)} is pinned to {shape!r}, which is no shape")
    if info.shape is None:
        if None in shape:
            raise UsageError(f"input {quoted(info.name)} has an unknown rank: all its dims must be given")
        return shape
    fits = len(shape) == len(info.shape) and all(
        pinned is None or not isinstance(declared, int) or declared == pinned
        for declared, pinned in zip(info.shape, shape)
    )
    if not fits:
        raise UsageError(f"input {quoted(info.name)} of shape {info.shape} is pinned to {shape}")
    return shape


def identifier(name: str) -> str:
    """The name of a dim as a Python identifier, which the script needs."""
    text = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    return text if text and not text[0].isdigit() else f"d_{text}"


def _names_in(text: str, known: set[str]) -> set[str]:
    """The names in a text like "past + 2*seq", where all of them are known; else none."""
    if not _EXPRESSION.fullmatch(text) or text.isidentifier():
        return set()
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names: set[str] = set()
    for item in ast.walk(tree):
        if isinstance(item, ast.Name):
            names.add(item.id)
        elif isinstance(item, ast.Constant):
            if type(item.value) is not int or item.value >= 1 << 31:
                return set()
        elif isinstance(item, ast.BinOp):
            if not isinstance(item.op, (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv)):
                return set()
        elif not isinstance(item, (ast.Expression, ast.Load, ast.operator)):
            return set()
    return names if names <= known else set()


def _evaluated(tree: ast.expr, values: Mapping[str, Dim]) -> Dim:
    if isinstance(tree, ast.Name):
        return values[tree.id]
    if isinstance(tree, ast.Constant):
        return int(str(tree.value))
    assert isinstance(tree, ast.BinOp)
    a, b = _evaluated(tree.left, values), _evaluated(tree.right, values)
    if isinstance(tree.op, ast.Add):
        return a + b
    if isinstance(tree.op, ast.Sub):
        return a - b
    if isinstance(tree.op, ast.Mult):
        return a * b
    return a // b if b != 0 else a


__all__ = ["Pins", "Symbols", "WrongShapeWarning", "identifier"]
