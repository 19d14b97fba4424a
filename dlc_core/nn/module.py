"""`Module`: named parameters and submodules, and the graph that `forward` describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from dlc_core.diag import DlcError, Span, UsageError
from dlc_core.graph.node import Function, GraphContext, Node, make_tuple, only_spans, param, using_context
from dlc_core.ir.dtype import dtype as dtype_of
from dlc_core.ir.expr import Expr, Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import Dim, TensorType, tensor_type
from dlc_core.nn.tensor import Spec, Tensor

NDArray = np.ndarray[Any, Any]
InputSpec = Spec | TensorType | Sequence[Any]


@dataclass(frozen=True)
class _GraphContext:
    """A graph that is being built: the nodes of parameters and the paths of modules, by identity."""

    model: str
    parameters: Mapping[int, Node]
    paths: Mapping[int, str]


_context: ContextVar[_GraphContext | None] = ContextVar("dlc_nn_building", default=None)


class Parameter(Tensor):
    """A tensor that belongs to a module.  `data` is its value, None until it has one.

    `init` is its distribution in `Module.init`: "zeros", "ones", "normal" (standard deviation 1), or a number
    r for uniform values between -r and r.
    """

    __slots__ = ("_data", "init", "type")

    def __init__(self, shape: Sequence[int], dtype: str = "float32", init: str | float = "zeros") -> None:
        self.type = tensor_type(tuple(shape), dtype)
        self.init = init
        self._data: NDArray | None = None

    @property
    def data(self) -> NDArray | None:
        return self._data

    @data.setter
    def data(self, value: Any) -> None:
        array = np.asarray(value)
        if array.shape != self.type.static_shape() or array.dtype != self.type.dtype.numpy:
            raise UsageError(
                f"a parameter of {self.type} cannot hold {dtype_of(array.dtype)}{list(array.shape)}",
                hint=""
                if array.dtype == self.type.dtype.numpy
                else f'convert it: .astype("{self.type.dtype}")',
            )
        self._data = array

    def draw(self, rng: np.random.Generator) -> None:
        """Draw a value from the distribution `init`."""
        shape, kind = self.type.static_shape() or (), self.type.dtype.numpy
        if self.init in ("zeros", "ones"):
            self._data = np.full(shape, self.init == "ones", kind)
        elif self.init == "normal":
            self._data = rng.standard_normal(shape).astype(kind)
        else:
            self._data = rng.uniform(-float(self.init), float(self.init), shape).astype(kind)

    @property
    def node(self) -> Node:
        """The parameter in the graph that is being built; UsageError outside of `to_module`."""
        context = _context.get()
        found = None if context is None else context.parameters.get(id(self))
        if found is None:
            raise UsageError(
                f"a parameter of {self.type} is used where its module is not part of a graph",
                hint="call modules inside forward, and give their parts names: self.part = ...",
            )
        return found

    def __repr__(self) -> str:
        return f"<Parameter {self.type}{'' if self._data is None else ', set'}>"


class Module:
    """A part of a network: parameters and modules that are set as attributes are its own, under those names.

    `forward` takes Tensors and gives one, a tuple of them, or a dict of them by the outputs' names.
    """

    _parameters: dict[str, Parameter]
    _modules: dict[str, Module]

    def __new__(cls, *args: Any, **options: Any) -> Any:
        # Not in __init__, so that a class need not call the base constructor.
        instance = super().__new__(cls)
        object.__setattr__(instance, "_parameters", {})
        object.__setattr__(instance, "_modules", {})
        return instance

    def __setattr__(self, name: str, value: Any) -> None:
        self._parameters.pop(name, None)
        self._modules.pop(name, None)
        if isinstance(value, Parameter):
            self._parameters[name] = value
        elif isinstance(value, Module):
            self._modules[name] = value
        elif isinstance(value, (list, tuple)) and any(isinstance(v, (Module, Parameter)) for v in value):
            raise UsageError(
                f"{type(self).__name__}.{name} is a {type(value).__name__} of modules",
                why="their parameters would have no names",
                hint="nn.ModuleList([...]) or nn.Sequential(...)",
            )
        object.__setattr__(self, name, value)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Compute the outputs of the module."""
        raise UsageError(f"{type(self).__name__} has no forward", hint="define forward(self, x, ...)")

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Call `forward` under the module's name, which nodes and errors then contain."""
        context = _context.get()
        if context is None:
            raise UsageError(
                f"{type(self).__name__} is called where no graph is being built",
                hint="to_module gives a graph, which dlc.compile makes callable",
            )
        span = Span(context.model, context.paths.get(id(self), ""), type(self).__name__)
        try:
            with only_spans((span,)):
                return self.forward(*inputs, **options)
        except DlcError as error:
            # The innermost module is the location.
            raise (error if error.spans else error.at([span])) from None

    # Names.

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module (under the empty name) and all inside it, by their paths."""
        yield prefix, self
        for name, part in self._modules.items():
            yield from part.named_modules(_joined(prefix, name))

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """All parameters by their paths, such as `layers.0.weight`; a shared one under its first path."""
        visited: set[int] = set()
        for path, value in self._all_parameters():
            if id(value) not in visited:
                visited.add(id(value))
                yield path, value

    def _all_parameters(self) -> Iterator[tuple[str, Parameter]]:
        for path, part in self.named_modules():
            for name, value in part._parameters.items():
                yield _joined(path, name), value

    # Values.

    def init(self, seed: int = 0) -> Any:
        """Give every parameter that has no value one, the same for the same seed; returns the module."""
        rng = np.random.default_rng(seed)
        for _, value in self.named_parameters():
            if value.data is None:
                value.draw(rng)
        return self

    def state_dict(self) -> dict[str, NDArray]:
        """The values of all parameters; UsageError where some have none."""
        values = dict(self.named_parameters())
        unset = [path for path, value in values.items() if value.data is None]
        if unset:
            raise UsageError(
                f"{len(unset)} parameter(s) of {type(self).__name__} have no value",
                details=unset,
                hint="load_state_dict(...) sets them, init(seed) draws them",
            )
        return {path: value.data for path, value in values.items() if value.data is not None}

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> Any:
        """Give parameters their values by their paths; returns the module.

        With `strict`, the state must have every parameter and nothing else.  Raises UsageError that names
        every parameter that is missing, unknown, or of another shape or dtype; then no parameter has changed.
        """
        known = dict(self._all_parameters())
        ignored = {_joined(path, name) for path, part in self.named_modules() for name in part.ignored_state}
        unknown = [path for path in state if path not in known and path not in ignored]
        input_params = {id(known[path]) for path in state if path in known}
        missing = [path for path, value in self.named_parameters() if id(value) not in input_params]
        wrong = [f"missing: {path}" for path in missing] + [f"unknown: {path}" for path in unknown]
        details = wrong if strict else []
        arrays = {path: np.asarray(value) for path, value in state.items() if path in known}
        for path, array in arrays.items():
            type_ = known[path].type
            if array.shape != type_.static_shape() or array.dtype != type_.dtype.numpy:
                details.append(f"{path} is {type_}, not {dtype_of(array.dtype)}{list(array.shape)}")
        if details:
            raise UsageError(
                f"the state does not fit {type(self).__name__}",
                details=details,
                hint="strict=False takes what fits by name" if wrong and strict else "",
            )
        for path, array in arrays.items():
            known[path].data = array
        return self

    ignored_state: tuple[str, ...] = ()
    """Names in state dicts of this kind of module that are not used at inference."""

    # Graphs.

    def to_module(self, inputs: Mapping[str, InputSpec]) -> IRModule:
        """The graph of `forward`: a function `main` of the inputs and then of all parameters, by their names.

        An input is a Spec, or a shape (of float32) whose dims are ints or names.  `dlc.compile` takes the
        module, with `params=model.state_dict()` if the parameters shall be constants.
        """
        with using_context(GraphContext()):
            return self._module(inputs)

    def _module(self, inputs: Mapping[str, InputSpec]) -> IRModule:
        symbols: dict[str, Var] = {}
        input_params = {name: param(name, _type_of(name, spec, symbols)) for name, spec in inputs.items()}
        weights = {path: param(path, value.type) for path, value in self.named_parameters()}
        clash = next((path for path in weights if path in input_params), None)
        if clash is not None:
            raise UsageError(f"{clash!r} is both an input and a parameter", hint="rename the input")
        nodes = {id(value): weights[path] for path, value in self.named_parameters()}
        paths: dict[int, str] = {}
        for path, part in self.named_modules():
            paths.setdefault(id(part), path)
        with _building_in(_GraphContext(type(self).__name__, nodes, paths)):
            results = _named(self, self(*map(Tensor, input_params.values())))
        values = [value.node for value in results.values()]
        body = values[0] if len(values) == 1 else make_tuple(values)
        names = {"inputs": (*input_params, *weights), "outputs": tuple(results)}
        function = Function(
            "main", (*input_params.values(), *weights.values()), body, MappingProxyType(names)
        )
        return IRModule({"main": function})

    def __repr__(self) -> str:
        parts = [f"  ({name}): {part!r}".replace("\n", "\n  ") for name, part in self._modules.items()]
        inside = "\n".join(parts)
        return f"{type(self).__name__}({self.extra_repr()}" + (f"\n{inside}\n)" if parts else ")")

    def extra_repr(self) -> str:
        """The text in the parentheses of a layer's representation."""
        return ""


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


@contextmanager
def _building_in(context: _GraphContext) -> Iterator[None]:
    token = _context.set(context)
    try:
        yield
    finally:
        _context.reset(token)


def _type_of(name: str, spec: InputSpec, symbols: dict[str, Var]) -> TensorType:
    if isinstance(spec, TensorType):
        return spec
    if isinstance(spec, str) or not isinstance(spec, (Spec, tuple, list)):
        raise UsageError(
            f"the spec of input {name!r} is {spec!r}", hint='a shape such as ("batch", 784), or nn.Spec'
        )
    shape, kind = (spec.shape, spec.dtype) if isinstance(spec, Spec) else (tuple(spec), "float32")
    return tensor_type([_dim(name, size, symbols) for size in shape], kind)


def _dim(name: str, size: Any, symbols: dict[str, Var]) -> Dim:
    if isinstance(size, str) and size.isidentifier():
        return symbols.setdefault(size, Var(size))
    if isinstance(size, Expr) or (
        isinstance(size, (int, np.integer)) and not isinstance(size, bool) and size >= 0
    ):
        return size if isinstance(size, Expr) else int(size)
    raise UsageError(f"a dim of input {name!r} is {size!r}", hint="sizes from 0, or names of symbolic dims")


def _named(model: Module, results: Any) -> dict[str, Tensor]:
    """The outputs by their names."""
    if isinstance(results, Tensor):
        named = {"output": results}
    elif isinstance(results, Mapping):
        named = {str(name): value for name, value in results.items()}
    elif isinstance(results, (tuple, list)):
        named = {f"output{i}": value for i, value in enumerate(_flat(results))}
    else:
        named = {}
    if not named or not all(isinstance(value, Tensor) for value in named.values()):
        raise UsageError(
            f"{type(model).__name__}.forward gives {type(results).__name__}",
            hint="give a Tensor, a tuple of them, or a dict of them",
        )
    return named


def _flat(results: Any) -> Iterator[Any]:
    """The items of nested tuples in order."""
    for item in results:
        yield from _flat(item) if isinstance(item, (tuple, list)) else (item,)


class _NumberedModules(Module):
    """Modules whose names are their indices."""

    def __init__(self, parts: Sequence[Module]) -> None:
        for number, part in enumerate(parts):
            if not isinstance(part, Module):
                raise UsageError(f"item {number} of a {type(self).__name__} is {part!r}, not a module")
            setattr(self, str(number), part)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __getitem__(self, index: int) -> Module:
        return list(self._modules.values())[index]


class Sequential(_NumberedModules):
    """Modules one after the other."""

    def __init__(self, *parts: Module) -> None:
        super().__init__(parts)

    def forward(self, x: Any) -> Any:
        for part in self:
            x = part(x)
        return x


class ModuleList(_NumberedModules):
    """Modules in a list; their owner calls them."""


class ModuleDict(Module):
    """Modules by name; their owner calls them."""

    def __init__(self, parts: Mapping[str, Module]) -> None:
        for name, part in parts.items():
            if not isinstance(part, Module):
                raise UsageError(f"item {name!r} of a ModuleDict is {part!r}, not a module")
            setattr(self, name, part)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __getitem__(self, name: str) -> Module:
        return self._modules[name]

    def items(self) -> Iterator[tuple[str, Module]]:
        """The names and the modules."""
        return iter(self._modules.items())


__all__ = ["InputSpec", "Module", "ModuleDict", "ModuleList", "Parameter", "Sequential"]
