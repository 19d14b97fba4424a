"""From an ONNX model to an `IRModule`: `load`.

The module's entry is the graph function "main"; its params have the names of the model's inputs, and
`attrs["inputs"]`, `attrs["outputs"]` hold the public names.  Initializers are constants by reference (also
those of old models that list them among the inputs).  Named symbolic dims are one `Var` each, unnamed ones a
fresh `Var`; shape arithmetic of the model is done on them while importing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlc_core.diag import UsageError
from dlc_core.graph.node import Function, Node, make_tuple, param
from dlc_core.ir.dtype import DType, scalar_dtypes
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import Dim, TensorType, dim
from dlc_frontend_onnx.model import Graph, Model, ValueInfo
from dlc_frontend_onnx.place import quoted
from dlc_frontend_onnx.reader import Source, read_model
from dlc_frontend_onnx.scope import Missing, Scope, Session
from dlc_frontend_onnx.support import check_support, combined, live_nodes

Pins = Mapping[str, "int | tuple[int | None, ...]"]
_DTYPES = frozenset(scalar_dtypes())


def load(model: Source | Model, context: Mapping[str, Any] | None = None) -> IRModule:
    """The model at a path, in bytes, in a `ModelProto` or read already, as a module.

    `context["shapes"]` pins dims: input name to shape (None leaves a dim as it is), or dim name to int.
    ModelError for models that contradict themselves or the standard, UnsupportedError, which names every such
    node, for what cannot be expressed, UsageError for pins that do not fit.
    """
    read = model if isinstance(model, Model) else read_model(model)
    pins = dict((context or {}).get("shapes") or {})
    nodes = live_nodes(read.graph)
    check_support(read, nodes)
    symbols = Symbols(read.graph, pins)
    session = Session(read)
    scope = Scope(session, read.opsets)
    scope.add_constants(read.graph)
    params = []
    for info in read.graph.required_inputs:
        own = param(info.name, symbols.type_of(info, read))
        scope.values[info.name] = own
        params.append(own)
        for size in own.shape:
            if isinstance(size, Var):
                session.holders.setdefault(size, own)
    scope.run(nodes)
    results = _results(read, scope, symbols)
    body = results[0] if len(results) == 1 else make_tuple(results)
    attrs = {
        "inputs": tuple(own.attrs["name"] for own in params),
        "outputs": tuple(info.name for info in read.graph.outputs),
    }
    main = Function("main", tuple(params), body).with_attrs(**attrs)
    return IRModule({"main": main}, {"source": read.source, "name": read.name})


def _results(model: Model, scope: Scope, symbols: Symbols) -> list[Node]:
    found = []
    place = model.graph.place
    for info in model.graph.outputs:
        value = scope.find(info.name)
        if isinstance(value, Missing):
            continue
        if not isinstance(value, Node):
            scope.session.problems.append(
                place.unsupported(f"output {quoted(info.name)} is a sequence or an optional, not a tensor")
            )
            continue
        symbols.check_output(info, value, model)
        found.append(value)
    if scope.session.problems:
        raise combined(model, scope.session.problems)
    if not found:
        raise place.error("the graph has no outputs")
    return found


class Symbols:
    """The dims of the inputs: names to Vars or to the ints they are pinned to."""

    def __init__(self, graph: Graph, pins: Pins) -> None:
        self._dims: dict[str, Dim] = {}
        self._pins: dict[str, tuple[int | None, ...]] = {}
        inputs = {info.name: info for info in graph.required_inputs}
        names = {d for info in inputs.values() for d in info.shape or () if isinstance(d, str)}
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
        if info.dtype not in _DTYPES:
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
                dims.append(self._dims.setdefault(declared, Var(_identifier(declared))))
            else:
                dims.append(Var(_identifier(f"{info.name}_{axis}")))
        return TensorType(tuple(dim(d) for d in dims), DType(str(info.dtype)))

    def check_output(self, info: ValueInfo, value: Node, model: Model) -> None:
        """The declared type of an output must not contradict the inferred one."""
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
        if len(info.shape) != len(value.shape):
            raise place.error(f"{what} of rank {len(info.shape)}, but its type is {value.type}").at(
                value.spans
            )
        for axis, (declared, found) in enumerate(zip(info.shape, value.shape)):
            known = self._dims.get(declared) if isinstance(declared, str) else declared
            if isinstance(known, int) and isinstance(found, int) and known != found:
                raise place.error(
                    f"{what} with dim {axis} of {known}, but it is {found}", why=f"its type is {value.type}"
                ).at(value.spans)


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


def _identifier(name: str) -> str:
    """The name of a dim as a Python identifier, which the script needs."""
    text = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    return text if text and not text[0].isdigit() else f"d_{text}"


__all__ = ["load"]
