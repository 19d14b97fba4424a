"""Callable models. A model is compiled once, or once for each combination of input values or shapes that the
import depends on.

    model = CallableModel("model.onnx")
    model({"x": x})                          # the outputs, in the order of the graph

Most models are compiled when they are read. The executable serves all values of symbolic and data-dependent
dims. If the importer refuses a model because an axis, a scale or a number of iterations is an input, the
model is compiled at its first call: the smallest set of such inputs becomes constants, and the model is
compiled again when their values change. If this is not enough and inputs have symbolic dims, for example a
number of channels, the model is compiled for the shapes of the call. If a call feeds an input that has an
initializer, the fed value becomes a constant in the same way. If inputs are sequences or optionals, the model
is compiled for their lengths and shapes.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from types import MappingProxyType
from typing import Any

import numpy as np

from dlc_core.diag import DlcError, UnsupportedError, UsageError
from dlc_core.driver import CompileRequest, compile_request
from dlc_core.ir.module import IRModule
from dlc_core.runtime.executable import Executable
from dlc_core.target import Target
from dlc_frontend_onnx.custom import importers_for
from dlc_frontend_onnx.flattening import Layout, dtype_of, fed, gathered, has_parts, shape_of, spread
from dlc_frontend_onnx.importer import import_parts
from dlc_frontend_onnx.location import quoted
from dlc_frontend_onnx.model import Model, ValueInfo
from dlc_frontend_onnx.reader import Source, read_model
from dlc_frontend_onnx.support import check_support, live_nodes
from dlc_frontend_onnx.symbols import Symbols
from dlc_frontend_onnx.tensors import Tensor

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]

MAX_DECISIVE = 4096
"""Inputs with more elements never become constants."""

MAX_SPECIALIZATIONS = 16
"""Compiled forms of one model that are kept, least recently used first out."""


@dataclass(frozen=True)
class Form:
    """A compiled form of a model: the executable, and how each output is assembled from its results."""

    exe: Executable
    layouts: tuple[Layout, ...]


class CallableModel:
    """A model with its executables.

    `importers` and `options` are arguments of `dlc.compile`. The constructor raises the errors of reading,
    importing and compiling. If the import depends on values of inputs, the remaining errors are raised by the
    first call.
    """

    def __init__(
        self,
        source: Source,
        target: Target | str | None = None,
        *,
        importers: Sequence[Any] = (),
        **options: Any,
    ) -> None:
        self.model = read_model(source)
        self.model.importers = importers_for(importers)
        self._request = CompileRequest.of(target, frontend="onnx", importers=importers, **options)
        self._lock = Lock()
        self._made: OrderedDict[object, Form] = OrderedDict()
        self.decisive: tuple[str, ...] = ()
        """The inputs whose values became constants in the latest compilation."""
        self.whole: Executable | None = None
        """The executable that serves all calls, if there is one."""
        self._by_shape: Callable[[ValueInfo], bool] | None = None
        """A predicate: the inputs for whose shapes the model is compiled; None if it depends on no shape."""
        self._form: Form
        self.latest: Executable
        """The executable that was used last. Before the first call there is none if `whole` is None."""
        graph = self.model.graph
        self.inputs: Sequence[ValueInfo] = graph.required_inputs
        """The inputs that a call must feed."""
        self.defaults: Sequence[ValueInfo] = [info for info in graph.inputs if info not in self.inputs]
        """The inputs with an initializer, which a call may override."""
        self._overridable = {info.name for info in self.defaults}
        self._composed = {
            info.name: info.type for info in self.inputs if info.type is not None and has_parts(info.type)
        }
        if self._composed:
            check_support(self.model, live_nodes(graph))
            return
        composed = any(has_parts(info.type) for info in graph.outputs)
        try:
            self._form = self._compile(self.model if composed else source)
        except UnsupportedError:
            if not any(may_decide(info) or has_open_dims(info) for info in self.inputs):
                raise
            check_support(self.model, live_nodes(graph))
        else:
            self.whole = self.latest = self._form.exe

    def __call__(self, feeds: Mapping[str, Any]) -> tuple[Any, ...]:
        """All outputs, in the order of the graph. Raises UsageError if feeds do not match the inputs.

        A sequence is a list of arrays, an empty optional is None.
        """
        form, rest = self.pick(feeds)
        found = form.exe.run(rest)
        return tuple(gathered(layout, found) for layout in form.layouts)

    def pick(self, feeds: Mapping[str, Any]) -> tuple[Form, Mapping[str, Any]]:
        """The form for these feeds, and the feeds that its executable takes."""
        overridden = [name for name in feeds if name in self._overridable]
        if self.whole is not None and not overridden:
            return self._form, feeds
        self._check_names(feeds)
        parts = {name: spread(type_, feeds[name], name) for name, type_ in self._composed.items()}
        shapes = {name: shape_of(type_, feeds[name]) for name, type_ in self._composed.items()}
        with self._lock:
            values = self._values(feeds, (*self.decisive, *overridden))
            key = self._key(values, shapes, feeds)
            form = self._made.get(key)
            if form is None:
                # The set of decisive inputs may differ for these values.
                values = self._values(feeds, overridden)
                if self.whole is None:
                    values = self._decided(feeds, values)
                    self.decisive = tuple(name for name in values if name not in overridden)
                form = self._compile(frozen(self.model, values), feeds)
                key = self._key(values, shapes, feeds)
                self._made[key] = form
                if len(self._made) > MAX_SPECIALIZATIONS:
                    self._made.popitem(last=False)
            self._made.move_to_end(key)
            self.latest = form.exe
        known = {*values, *parts}
        rest = {name: array for name, array in feeds.items() if name not in known}
        for own in parts.values():
            rest.update(own)
        return form, rest

    def _key(self, values: Arrays, shapes: object, feeds: Mapping[str, Any]) -> object:
        """The cache key of a compiled form."""
        return _key(values), repr(shapes), self._pins(feeds)

    def _decided(self, feeds: Mapping[str, Any], always: Arrays) -> dict[str, Array]:
        """The values that become constants. It tries shapes first, then values, then both."""
        if self._by_shape is not None or not any(map(has_open_dims, self.inputs)):
            return self._fewest(feeds, always)
        by_values: UnsupportedError | None = None
        for by_shape, find in (
            (has_open_length, self._none),
            (has_open_dims, self._none),
            (None, self._fewest),
            (has_open_dims, self._fewest),
        ):
            self._by_shape = by_shape
            try:
                return find(feeds, always)
            except UnsupportedError as error:
                by_values = error if by_values is None or by_shape is None else by_values
            except DlcError:
                self._by_shape = None
                raise
        self._by_shape = None
        assert by_values is not None
        raise by_values

    def _none(self, feeds: Mapping[str, Any], always: Arrays) -> dict[str, Array]:
        """`always`, if the model can be imported with these values alone."""
        self._import(frozen(self.model, always), feeds)
        return dict(always)

    def _pins(self, feeds: Mapping[str, Any]) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The shapes of the inputs that the compilation is specific to."""
        if self._by_shape is None:
            return ()
        own = filter(self._by_shape, self.inputs)
        return tuple((info.name, _fed(info, feeds[info.name]).shape) for info in own)

    def _fewest(self, feeds: Mapping[str, Any], always: Arrays) -> dict[str, Array]:
        """`always`, and a minimal set of other values with which the model can be imported."""
        names = [info.name for info in self.inputs if may_decide(info)]
        others = {n: a for n, a in self._values(feeds, names).items() if a.size <= MAX_DECISIVE}
        self._import(frozen(self.model, {**always, **others}), feeds)
        for name in sorted(others, key=lambda name: (others[name].dtype.kind in "iub", -others[name].size)):
            fewer = {other: array for other, array in others.items() if other != name}
            if self._imports({**always, **fewer}, feeds):
                others = fewer
        return {**always, **others}

    def _imports(self, values: Arrays, feeds: Mapping[str, Any]) -> bool:
        try:
            self._import(frozen(self.model, values), feeds)
        except UnsupportedError:
            return False
        return True

    def _import(self, model: Model, feeds: Mapping[str, Any]) -> tuple[IRModule, tuple[Layout, ...]]:
        fixed = model.graph.initializers
        own = dict(self._pins(feeds))
        pins = {**self._request.shapes, **own}
        if own and self._request.shapes:
            requested = Symbols(self.model.graph, self._request.shapes)
            for name, shape in own.items():
                requested.check_input(name, shape)
            # Shapes of the call replace shapes from `shapes` in which the caller named dims.
            shapes = [pin for pin in pins.values() if isinstance(pin, (tuple, list))]
            left = {dim for shape in shapes for dim in shape if isinstance(dim, str)}
            pins = {name: pin for name, pin in pins.items() if name in left or name not in requested.chosen}
        pins = {name: pin for name, pin in pins.items() if name not in fixed}
        examples = {name: feeds[name] for name in self._composed}
        return import_parts(model, pins, examples, self._request.taps)

    def _compile(self, source: Source | Model, feeds: Mapping[str, Any] = MappingProxyType({})) -> Form:
        if isinstance(source, (str, os.PathLike)):
            exe = compile_request(source, self._request)
            return Form(exe, tuple(info.name for info in self.model.graph.outputs))
        module, layouts = self._import(source if isinstance(source, Model) else self.model, feeds)
        imported = replace(self._request, shapes={}, importers=(), taps=())
        return Form(compile_request(module, imported), layouts)

    def _values(self, feeds: Mapping[str, Any], names: Sequence[str]) -> dict[str, Array]:
        infos = {info.name: info for info in (*self.inputs, *self.defaults)}
        return {name: _fed(infos[name], feeds[name]) for name in names}

    def _check_names(self, feeds: Mapping[str, Any]) -> None:
        names = [info.name for info in self.inputs]
        missing = [name for name in names if name not in feeds]
        unknown = [name for name in feeds if name not in names and name not in self._overridable]
        if missing or unknown:
            wrong = f"input {missing[0]!r} is missing" if missing else f"unknown input {unknown[0]!r}"
            raise UsageError(wrong, hint="inputs: " + (", ".join(names) or "none"))


def may_decide(info: ValueInfo) -> bool:
    """Whether sizes may depend on the input's values: integers, booleans, or a vector or scalar of floats."""
    if info.kind != "tensor" or info.dtype is None:
        return False
    shape = info.shape
    if info.dtype == "bool" or info.dtype.startswith(("int", "uint")):
        return True
    return info.dtype.startswith(("float", "bfloat")) and shape is not None and len(shape) <= 1


def has_open_dims(info: ValueInfo) -> bool:
    """Whether the input is a tensor whose declared shape is not static."""
    shape = info.shape
    return info.kind == "tensor" and (shape is None or not all(isinstance(size, int) for size in shape))


def has_open_length(info: ValueInfo) -> bool:
    """Whether the input is a vector of numbers, possibly a shape, whose declared length is unknown."""
    return has_open_dims(info) and may_decide(info) and info.shape is not None and len(info.shape) == 1


def frozen(model: Model, values: Mapping[str, Array]) -> Model:
    """The model with inputs replaced by constants; the weights are shared."""
    graph = model.graph
    constants = {name: Tensor.of(name, array, graph.loc) for name, array in values.items()}
    sparse = {name: tensor for name, tensor in graph.sparse_initializers.items() if name not in constants}
    changed = replace(graph, initializers={**graph.initializers, **constants}, sparse_initializers=sparse)
    return replace(model, graph=changed)


def _key(values: Mapping[str, Array]) -> object:
    return tuple((name, a.dtype.str, a.shape, _content(a)) for name, a in sorted(values.items()))


def _content(array: Array) -> object:
    return tuple(array.flat) if array.dtype == object else array.tobytes()


def _fed(info: ValueInfo, value: Any) -> Array:
    """The array for an input; UsageError if its dtype or shape does not match."""
    array = fed(value, f"input {quoted(info.name)}")
    if info.dtype is not None and dtype_of(array) != info.dtype:
        raise UsageError(
            f"input {quoted(info.name)} is {array.dtype}, {info.dtype} is needed",
            hint=f'convert it with .astype("{info.dtype}")',
        )
    if not _fits(array.shape, info.shape):
        raise UsageError(f"input {quoted(info.name)} has shape {array.shape}, {info.shape} is needed")
    return array


def _fits(shape: tuple[int, ...], declared: Sequence[object] | None) -> bool:
    if declared is None:
        return True
    return len(shape) == len(declared) and all(
        not isinstance(size, int) or size == have for have, size in zip(shape, declared)
    )


__all__ = ["CallableModel", "frozen", "has_open_dims", "may_decide"]
