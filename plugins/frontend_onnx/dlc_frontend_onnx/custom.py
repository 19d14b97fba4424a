"""Custom operators: a few lines of Python define how `domain::Op` is imported.

    from dlc_core.op import std
    from dlc_frontend_onnx import Result, host_function, operator

    @operator("com.acme::Swish")                       # as core ops: compiled and fused like any other
    def swish(c, x):
        return std.mul(x, std.sigmoid(std.mul(x, c.const(c.real("beta", 1.0), x.dtype))))

    @host_function("com.acme::Median", results=lambda x, axis=-1: Result(x.shape[:-1], x.dtype))
    def median(x, axis=-1):                            # in NumPy, on the host
        return np.median(x, axis).astype(x.dtype)

    dlc.compile("model.onnx", importers=[swish, median])

A plugin returns the same values from its hook `dlc_importers`; then every model may use the operators. A name
may end in "@3", which means from version 3 of the domain on. Of several versions, the newest one not above
the model's is used. Custom operators take precedence over the package's operators. Functions of the model
take precedence over both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from dlc_core.diag import DlcError, UsageError
from dlc_core.graph.node import Node, get_item
from dlc_core.ir.dtype import DTypeLike
from dlc_core.ir.types import Dim, TensorType, tensor_type
from dlc_core.plugin.registry import registry
from dlc_frontend_onnx.converters.base import Call
from dlc_frontend_onnx.entries import Entry, entry_of
from dlc_frontend_onnx.host_op import HOST, IMPURE, key_of
from dlc_frontend_onnx.location import quoted
from dlc_frontend_onnx.tensors import Tensor


@dataclass(frozen=True)
class Result:
    """The type of an output: a shape of ints and expressions over the inputs' dims, and a dtype."""

    shape: Sequence[Dim]
    dtype: DTypeLike


DataDim: TypeAlias = "Result | TensorType"
Results: TypeAlias = "Callable[..., DataDim | Sequence[DataDim]]"
"""A function from the types of the inputs (None if omitted) and the attributes to the types of the outputs.
"""


@dataclass(frozen=True)
class Importer:
    """How one operator is imported; a declaration of the hook `dlc_importers`.

    `name` is "domain::Op" or "domain::Op@version". `convert` makes the nodes.
    """

    name: str
    convert: Callable[..., Any]
    frontend: str = "onnx"
    key: tuple[str, str] = field(init=False)
    """(domain, operator)."""
    entry: Entry = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        domain, _, rest = self.name.rpartition("::")
        operator, at, version = rest.partition("@")
        if not operator or "::" in domain or (at and not version.isdecimal()):
            raise UsageError(
                f"{self.name!r} does not name an operator",
                hint='write "com.acme::Swish" or "com.acme::Swish@3"',
            )
        object.__setattr__(self, "key", ("" if domain == "ai.onnx" else domain, operator))
        object.__setattr__(self, "entry", entry_of(int(version or 1), self.convert))

    def __call__(self, *args: Any, **attrs: Any) -> Any:
        """Call the decorated function itself."""
        return self.convert(*args, **attrs)


@dataclass(frozen=True)
class HostFunction(Importer):
    """An importer whose nodes call a Python function."""

    call: Callable[..., Any] = lambda: None

    def __call__(self, *args: Any, **attrs: Any) -> Any:
        return self.call(*args, **attrs)


def operator(name: str) -> Callable[[Callable[..., Any]], Importer]:
    """Declare an importer by a function that takes the call and the inputs and makes nodes of core ops.

    The signature defines the inputs: those with the default None are optional, and `*xs` takes any number.
    The function reads attributes through the call (`c.integer("axis", 0)`, `c.real`, `c.text`, `c.integers`,
    `c.tensor`, ...). It returns a node, or one for each output. If the function does not read an attribute of
    the node, or if an attribute is missing that it requires, an error names the node.
    """

    def register(function: Callable[..., Any]) -> Importer:
        return Importer(name, function)

    return register


def host_function(
    name: str, *, results: Results | None = None, pure: bool = True
) -> Callable[[Callable[..., Any]], HostFunction]:
    """Declare an importer by a function of arrays, which runs in Python on the host.

    The function takes the inputs as arrays (None if omitted) and the attributes by name (tensors as arrays).
    It returns an array, or a tuple for several outputs. `results` returns the types of the outputs; it takes
    the types of the inputs (`shape`, `dtype`) and the same attributes. Without `results` there is one output
    with the first input's type. If the function is not `pure`, it runs at every call, even if its inputs are
    constants.
    """

    def register(function: Callable[..., Any]) -> HostFunction:
        def convert(c: Call, *inputs: Node | None) -> Sequence[Node]:
            return _calls(c, made, results or _as_first, pure, inputs)

        made = HostFunction(name, convert, call=function)
        return made

    return register


def importers_for(given: Iterable[Any] = ()) -> Mapping[tuple[str, str], tuple[Entry, ...]]:
    """The entries of plugins and of the `given` importers, by (domain, operator). Given ones take precedence.

    Raises UsageError for values that are not importers, and for duplicate names.
    """
    own: dict[str, Importer] = {}
    for item in given:
        if not isinstance(item, Importer):
            raise UsageError(f"{item!r} is no importer", hint="make it by @operator or @host_function")
        if item.name in own:
            raise UsageError(f"two importers are given for {item.name!r}")
        own[item.name] = item
    every = [item for item in registry().importers.values() if isinstance(item, Importer)]
    table: dict[tuple[str, str], tuple[Entry, ...]] = {}
    for item in (*(item for item in every if item.name not in own), *own.values()):
        entries = (*table.get(item.key, ()), item.entry)
        table[item.key] = tuple(sorted(entries, key=lambda entry: entry.since))
    return MappingProxyType(table)


def _as_first(*types: TensorType | None, **attrs: Any) -> TensorType:
    first = next((type_ for type_ in types if type_ is not None), None)
    if first is None:
        raise UsageError("it has no input whose type its output could have", hint="pass results=...")
    return first


def _calls(
    c: Call, item: HostFunction, results: Results, pure: bool, inputs: Sequence[Node | None]
) -> Sequence[Node]:
    """The `HOST` node of one call, and its outputs."""
    attrs: dict[str, Any] = {}
    plain: dict[str, Any] = {}
    args = [value for value in inputs if value is not None]
    slots: list[int | None] = []
    for value in inputs:
        slots.append(None if value is None else sum(slot is not None for slot in slots))
    for name, given in c.node.attrs.items():
        c.ignore(name)
        if isinstance(given, Tensor):
            array = given.to_numpy()
            attrs[name] = array
            plain[name] = {"input": len(args)}
            args.append(c.const(array, c.numpy_dtype(array, f"attribute {quoted(name)}")))
        elif _is_plain(given):
            attrs[name] = plain[name] = list(given) if isinstance(given, tuple) else given
        else:
            raise c.unsupported(f"attribute {quoted(name)} cannot be passed to a host function")
    try:
        declared = results(*(None if value is None else value.tensor_type for value in inputs), **attrs)
        types = [tensor_type(one.shape, one.dtype) for one in _several(declared)]
    except DlcError as error:
        raise c.error(f"{item.name}: {error.what}", why=error.why, hint=error.hint) from error
    except Exception as error:  # any error of a third party's function is reported with the node
        raise c.error(
            f"the result types of {item.name} cannot be computed", why=f"{type(error).__name__}: {error}"
        ) from error
    made = (HOST if pure else IMPURE)(
        *args,
        function=key_of(item),
        where=c.node.loc.describe(),
        inputs=json.dumps(slots),
        attributes=json.dumps(plain),
        dims=tuple(dim for type_ in types for dim in type_.shape),
        ranks=tuple(len(type_.shape) for type_ in types),
        dtypes=",".join(type_.dtype.name for type_ in types),
    )
    return [made] if len(types) == 1 else [get_item(made, index) for index in range(len(types))]


def _is_plain(value: Any) -> bool:
    items = value if isinstance(value, tuple) else (value,)
    return all(isinstance(item, (int, float, str)) for item in items)


def _several(declared: DataDim | Sequence[DataDim]) -> Sequence[DataDim]:
    return [declared] if isinstance(declared, (Result, TensorType)) else list(declared)


__all__ = ["HostFunction", "Importer", "Result", "host_function", "importers_for", "operator"]
