"""Operators of dlc as operators of torch: `as_torch_op`.

    GATE = op("acme_gate", "x * sigmoid(y)", ["x", "y"], ...)     # declared for dlc, by the hook dlc_ops
    gate = dlc.torch.as_torch_op(GATE, backward=..., setup_context=...)
    gate(x, y)                                                     # also torch.ops.dlc.acme_gate

The operator runs in eager mode, compiled once for each set of shapes. torch.export and torch.compile keep it
whole, and dlc compiles it in its graph. Its fake implementation is dlc's inference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from dlc_core import driver
from dlc_core.diag import TypeInferenceError, UnsupportedError, UsageError
from dlc_core.graph.node import Function, Node, get_item, param
from dlc_core.ir.dtype import DType
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType, TupleType, Type
from dlc_core.op.declare import REQUIRED, Attr, OpDecl
from dlc_core.runtime.executable import Executable
from dlc_frontend_torch.dtypes import BY_NAME, name_of, of_torch
from dlc_frontend_torch.registry import CONVERTERS
from dlc_frontend_torch.symbols import Symbols
from dlc_frontend_torch.weights import as_array, as_tensor

TYPES = {
    "int": "int", "dim": "SymInt", "float": "float", "bool": "bool", "str": "str", "ints": "int[]",
    "dims": "SymInt[]", "floats": "float[]", "dtype": "ScalarType",
}  # fmt: skip
"""Types of torch's schemas for the kinds of attributes."""

Attrs = tuple[tuple[str, Any], ...]


def as_torch_op(
    decl: OpDecl,
    *,
    results: int = 1,
    namespace: str = "dlc",
    target: Any = None,
    backward: Callable[..., Any] | None = None,
    setup_context: Callable[..., Any] | None = None,
) -> Any:
    """Register an operator as `torch.ops.<namespace>.<name>`, and return that.

    Its tensors are positional, its attributes keywords. `results` is the number of tensors that it returns.
    `target` runs it in eager mode, None is this machine. `backward(ctx, *gradients)` and
    `setup_context(ctx, inputs, keyword_only_inputs, output)` are those of `torch.library.register_autograd`;
    without `backward`, UnsupportedError is raised where a gradient is computed through the operator.

    Raises UsageError for operators and attributes that torch's schemas cannot describe, and for a
    `setup_context` without `backward`.
    """
    qualified = f"{namespace}::{decl.name}"
    if backward is None and setup_context is not None:
        raise UsageError(f"{qualified} has a setup_context and no backward", hint="give both, or neither")
    torch.library.define(qualified, schema_of(decl, results))

    def run(*tensors: torch.Tensor | None, **attrs: Any) -> Any:
        given = [each for each in tensors if each is not None]
        types = tuple(_type(each, tuple(each.shape)) for each in given)
        exe = _compiled(decl, types, tuple(sorted((k, _frozen(v)) for k, v in _known(attrs).items())), target)
        made = exe(*(as_array(each) for each in given))
        arrays = made if isinstance(made, tuple) else (made,)
        found = [as_tensor(a, out.type.dtype) for a, out in zip(arrays, exe.signature.outputs, strict=True)]
        return found[0] if results == 1 else tuple(found)

    def fake(*tensors: torch.Tensor | None, **attrs: Any) -> Any:
        given = [each for each in tensors if each is not None]
        symbols = Symbols()
        shapes = [tuple(each.shape) for each in given]
        try:
            made = _inferred(decl, given, shapes, attrs, symbols)
        except TypeInferenceError:
            # dlc takes two symbolic sizes for different ones unless torch has been told that they are equal.
            made = _inferred(decl, given, _with_equal_sizes(shapes), attrs, symbols)
        fields = made.fields if isinstance(made, TupleType) else (made,)
        found = []
        for each in fields:
            assert isinstance(each, TensorType)
            size = [symbols.torch_size(dim) for dim in each.shape]
            found.append(given[0].new_empty(size, dtype=BY_NAME[each.dtype.name]))
        return found[0] if results == 1 else tuple(found)

    def convert(_: Any, *tensors: Node | None, **attrs: Any) -> Any:
        made = decl.build(*(each for each in tensors if each is not None), **_known(attrs))
        return made if results == 1 else tuple(get_item(made, index) for index in range(results))

    torch.library.impl(qualified, "CPU")(run)
    torch.library.register_fake(qualified)(fake)
    torch.library.register_autograd(qualified, backward or _refusing(qualified), setup_context=setup_context)
    CONVERTERS[f"{namespace}.{decl.name}.default"] = convert
    return getattr(getattr(torch.ops, namespace), decl.name)


def _refusing(qualified: str) -> Callable[..., Any]:
    """A `backward` that raises. An operator of torch without one has results that require no gradient, so
    the gradients of its operands would be missing without an error.
    """

    def backward(*_: Any) -> Any:
        raise UnsupportedError(
            f"{qualified} has no gradient",
            why="as_torch_op registered it without backward",
            hint="give backward= and setup_context=, or call the operator under torch.no_grad()",
        )

    return backward


def schema_of(decl: OpDecl, results: int = 1) -> str:
    """The operator's schema in torch's notation.

    >>> from dlc_core.op import std
    >>> schema_of(std.BY_NAME["leaky_relu"])
    '(Tensor x, *, float alpha=0.01) -> Tensor'
    """
    if any(name.startswith("*") for name in decl.inputs):
        raise UsageError(f"operator {decl.name!r} takes any number of tensors, which torch cannot declare")
    tensors = [f"Tensor? {name[:-1]}=None" if name[-1] == "?" else f"Tensor {name}" for name in decl.inputs]
    attrs = [_attribute(decl, attr) for attr in decl.attrs.values()]
    text = ", ".join([*tensors, *(["*", *attrs] if attrs else [])])
    return f"({text}) -> {'Tensor' if results == 1 else '(' + ', '.join(['Tensor'] * results) + ')'}"


def _attribute(decl: OpDecl, attr: Attr) -> str:
    kind = TYPES.get(attr.kind)
    if kind is None:
        raise UsageError(
            f"attribute {attr.name!r} of operator {decl.name!r} is of kind {attr.kind!r}",
            why="torch's schemas have no such type",
            hint=f"they have: {', '.join(TYPES)}",
        )
    if attr.default is REQUIRED:
        return f"{kind} {attr.name}"
    if attr.default is None:
        return f"{kind}? {attr.name}=None"
    if attr.kind == "dtype":
        return f"{kind} {attr.name}={attr.default.name}"
    default = list(attr.default) if isinstance(attr.default, tuple) else attr.default
    return f"{kind} {attr.name}={repr(default).replace(chr(39), chr(34))}"


def _type(tensor: torch.Tensor, shape: Sequence[Any]) -> TensorType:
    return TensorType(tuple(shape), _dtype(tensor.dtype))


def _inferred(
    decl: OpDecl, tensors: Sequence[torch.Tensor], shapes: Sequence[Any], attrs: Any, symbols: Symbols
) -> Type:
    """The type of the result for tensors of these shapes."""
    params = [
        param(f"x{index}", _type(tensor, symbols.shape(shape)))
        for index, (tensor, shape) in enumerate(zip(tensors, shapes, strict=True))
    ]
    return decl.build(*params, **{k: _dims(v, symbols) for k, v in _known(attrs).items()}).type


def _with_equal_sizes(shapes: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """The shapes with one symbolic size for all that are equal in this call. torch guards the equality."""
    known: list[torch.SymInt] = []

    def of(size: Any) -> Any:
        if not isinstance(size, torch.SymInt):
            return size
        for other in known:
            if size == other:
                return other
        known.append(size)
        return size

    return [tuple(of(size) for size in shape) for shape in shapes]


def _known(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes with dtypes of dlc instead of torch's."""
    return {k: _dtype(v) if isinstance(v, torch.dtype) else v for k, v in attrs.items()}


def _dtype(of: torch.dtype) -> DType:
    kind = of_torch(of)
    if kind is None:
        raise UsageError(f"the dtype {name_of(of)}, which dlc lacks")
    return kind


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, (list, tuple)) else value


def _dims(value: Any, symbols: Symbols) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_dims(each, symbols) for each in value)
    return symbols.dim(value) if isinstance(value, torch.SymInt) else value


@lru_cache(maxsize=512)
def _compiled(decl: OpDecl, types: tuple[TensorType, ...], attrs: Attrs, target: Any) -> Executable:
    params = tuple(param(f"x{index}", each) for index, each in enumerate(types))
    body = decl.build(*params, **dict(attrs))
    return driver.compile(IRModule.of(Function(decl.name, params, body)), target)


__all__ = ["as_torch_op", "schema_of"]
