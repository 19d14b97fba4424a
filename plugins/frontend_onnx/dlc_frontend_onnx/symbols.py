"""The symbolic dims of a model's inputs and outputs, with their sizes, bounds and names."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dlc_core.graph.node import Node
from dlc_core.graph.shapes import Shapes, intersected_bounds
from dlc_core.ir.bounds import Bounds
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, Var
from dlc_core.ir.types import Dim, TensorType, dim
from dlc_frontend_onnx.dtypes import TENSOR_DTYPES
from dlc_frontend_onnx.location import quoted
from dlc_frontend_onnx.model import Graph, Model, ValueInfo
from dlc_frontend_onnx.shapes import simple
from dlc_frontend_onnx.tensors import MAX_RANK

Given = Mapping[str, Any]
"""Sizes, bounds and names of dims given by the caller: see `dlc_core.graph.shapes`."""
_EXPRESSION = re.compile(r"[A-Za-z0-9_+*/() -]{1,200}")


class WrongShapeWarning(UserWarning):
    """The declared shape of an output contradicts the inferred one."""


class Symbols:
    """The dims of the inputs: each name is mapped to a Var with bounds, or to the int it is pinned to.

    A dim without a name in the model is named after its input and axis: "x_0".
    """

    def __init__(self, graph: Graph, given: Given) -> None:
        self._dims: dict[str, Dim] = {}
        inputs = {info.name: info for info in graph.required_inputs}
        names = {d for info in inputs.values() for d in info.shape or () if isinstance(d, str)}
        self._plain = {name for name in names if not _names_in(name, names - {name})}
        self._declared: dict[str, tuple[int | str, ...] | None] = {}
        for name, info in inputs.items():
            own = [_unused(f"{name}_{axis}", names) for axis in range(len(info.shape or ()))]
            self._declared[name] = (
                None
                if info.shape is None
                else tuple(text if d is None else d for d, text in zip(info.shape, own, strict=True))
            )
        dims = {d for shape in self._declared.values() for d in shape or () if isinstance(d, str)}
        spelled = {identifier(dim): dim for dim in sorted(dims)}
        known = {*inputs, *dims}
        sizes = {name if name in known else spelled.get(name, name): size for name, size in given.items()}
        self._shapes = Shapes(sizes, self._declared, names - self._plain)

    def take(self, name: str) -> Bounds | None:
        """The bounds given for a data-dependent dim."""
        return self._shapes.pop_bounds(name)

    @property
    def chosen(self) -> Collection[str]:
        """The names of dims that come from the caller, not from the model."""
        return self._shapes.caller_names

    def check_input(self, name: str, shape: Sequence[int]) -> None:
        """Raise UsageError if the shape of an input violates what the caller gave for its dims."""
        self._shapes.check_input(name, shape)

    def of_outputs(self, infos: Sequence[ValueInfo], values: Mapping[str, Any]) -> dict[Var, Expr]:
        """Replacements of data-dependent dims that the model names in its outputs and `shapes` bounds."""
        found: dict[Var, Expr] = {}
        for info in infos:
            value = values.get(info.name)
            own = value.shape if isinstance(value, Node) and isinstance(value.type, TensorType) else ()
            for name, size in zip(info.shape or (), own):
                if isinstance(name, str) and isinstance(size, Var) and size not in found:
                    bounds = self.take(name)
                    if bounds is not None:
                        both = intersected_bounds(f"dim {name!r}", bounds, size.bounds)
                        found[size] = Var(identifier(name), bounds=both)
        return found

    def check_used(self, others: Sequence[str] = ()) -> None:
        """Raise UsageError if `shapes` names a dim that the model does not have. `others` are data-dependent
        dims, which are valid too.
        """
        self._shapes.check_used(others)

    def type_of(self, info: ValueInfo, model: Model) -> TensorType:
        """The type of an input."""
        loc = model.graph.loc
        what = f"input {quoted(info.name)}"
        if info.type is None or (info.kind == "tensor" and info.dtype is None):
            raise loc.error(f"{what} has no type")
        if info.kind != "tensor":
            raise loc.unsupported(f"{what} is a {info.kind}, not a tensor")
        if info.dtype not in TENSOR_DTYPES:
            raise loc.unsupported(f"{what} is a tensor of {info.dtype}")
        shape = self._shapes.shapes.get(info.name, self._declared[info.name])
        if shape is None:
            raise loc.unsupported(
                f"{what} has an unknown rank", hint=f"give its shape: shapes={{{info.name!r}: (...)}}"
            )
        if len(shape) > MAX_RANK:
            raise loc.unsupported(f"{what} has {len(shape)} dimensions; at most {MAX_RANK} are supported")
        dims = [self._named(d) if isinstance(d, str) else d for d in shape]
        return TensorType(tuple(dim(d) for d in dims), DType(str(info.dtype)))

    def _named(self, name: str) -> Dim:
        """The dim of a name. A name such as "past + seq" whose parts are names of dims is evaluated."""
        name = self._shapes.name(name)
        if name not in self._dims:
            size = self._shapes.size(name)
            parts = _names_in(name, self._plain)
            if isinstance(size, int):
                self._dims[name] = size
            elif parts and name not in self._plain:
                values = {part: self._named(part) for part in parts}
                self._dims[name] = simple(_evaluated(ast.parse(name, mode="eval").body, values))
            else:
                self._dims[name] = Var(identifier(name), bounds=None if size == Bounds() else size)
        return self._dims[name]

    def check_output(self, info: ValueInfo, value: Node, model: Model) -> None:
        """Check that the declared type of an output does not contradict the inferred one.

        A contradicting shape is only a warning, because otherwise correct files have such shapes.
        """
        loc = model.graph.loc
        what = f"output {quoted(info.name)} is declared"
        if info.type is None:
            return
        if info.kind != "tensor":
            raise loc.error(f"{what} a {info.kind}, but it is a tensor")
        if info.dtype is not None and info.dtype != value.dtype.name:
            raise loc.error(f"{what} a tensor of {info.dtype}, but it is one of {value.dtype}").at(
                value.spans
            )
        if info.shape is None:
            return
        known = [
            self._dims.get(self._shapes.name(size)) if isinstance(size, str) else size for size in info.shape
        ]
        if len(known) != len(value.shape) or any(
            isinstance(size, int) and isinstance(found, int) and size != found
            for size, found in zip(known, value.shape)
        ):
            text = f"{what} with the shape {list(info.shape)}, but its type is {value.type}"
            warnings.warn(f"{model.source}: {text}", WrongShapeWarning, stacklevel=2)


def _unused(name: str, taken: Collection[str]) -> str:
    """The name, with underscores appended until it is not taken."""
    while name in taken:
        name += "_"
    return name


def identifier(name: str) -> str:
    """The name of a dim as a Python identifier, because the script syntax needs one."""
    text = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    return text if text and not text[0].isdigit() else f"d_{text}"


def _names_in(text: str, known: set[str]) -> set[str]:
    """The names in an expression such as "past + 2*seq" if all of them are known, else the empty set."""
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


__all__ = ["Given", "Symbols", "WrongShapeWarning", "identifier"]
