"""Conversion of ONNX operators to graph nodes: the table of converters, and the `Call` they work on.

    @converter("Clip", 11)                      # operator, first version; domain="..." for another domain
    def clip(c, x, low=None, high=None):        # the call, then the inputs; the signature is the arity
        return ...                              # a node, or a sequence of nodes, one per output

For a model of opset V, the converter with the largest version not above V is used. A missing input is None,
which only parameters annotated `Node | None` accept. Attributes are read through the call (`c.integer("axis",
0)`). If a node has an attribute that its converter does not read, this is an error; attributes are never
silently ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from dlc_core.diag import DlcError, ModelError, UnsupportedError
from dlc_core.graph.node import PARAM, Node
from dlc_core.ir.conditions import AT_LEAST, EQUAL, Condition
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, Var, as_expr, select
from dlc_core.ir.types import Dim, TensorType
from dlc_core.op import std
from dlc_frontend_onnx.dtypes import BY_NUMBER, TENSOR_DTYPES
from dlc_frontend_onnx.entries import Check, Entries, Entry, Function, entry_of
from dlc_frontend_onnx.floats import in_floats
from dlc_frontend_onnx.location import quoted
from dlc_frontend_onnx.model import Graph, NodeDef, ValueType
from dlc_frontend_onnx.ratios import Ratio
from dlc_frontend_onnx.shapes import Known, has_elements, int_elements, materialised, simple
from dlc_frontend_onnx.sizes import MAX_ELEMENTS
from dlc_frontend_onnx.state import Frame
from dlc_frontend_onnx.tensors import SparseTensor, Tensor
from dlc_frontend_onnx.values import Value

MICROSOFT = "com.microsoft"


Result: TypeAlias = "Value | Sequence[Value | None]"
TABLE: dict[tuple[str, str], list[Entry]] = {}
"""(domain, operator) -> its entries, sorted by version."""

F = TypeVar("F", bound=Function)


def converter(
    ops: str, since: int = 1, domain: str = "", *, sequences: bool = False, check: Check | None = None
) -> Callable[[F], F]:
    """Register a function for operators (names separated by blanks) from a version on."""

    def register(function: F) -> F:
        for op in ops.split():
            add_entry(op, since, function, domain, sequences=sequences, check=check)
        return function

    return register


def add_entry(
    op: str,
    since: int,
    function: Function,
    domain: str = "",
    *,
    sequences: bool = False,
    check: Check | None = None,
) -> None:
    """Register a function for one operator from a version on."""
    entries = TABLE.setdefault((domain, op), [])
    entries.append(entry_of(since, function, sequences=sequences, check=check))
    entries.sort(key=lambda entry: entry.since)


def find_entry(domain: str, op: str, version: int, own: Entries | None = None) -> Entry | None:
    """The entry for an operator in a version of its domain. Entries in `own` take precedence over the
    table.
    """
    for entries in ((own or {}).get((domain, op), ()), TABLE.get((domain, op), ())):
        found = None
        for entry in entries:
            if entry.since <= version:
                found = entry
        if found is not None:
            return found
    return None


_REQUIRED: Any = object()


class Call:
    """One operator call during its conversion: its attributes, and methods to read and make values."""

    def __init__(self, node: NodeDef, version: int, scope: Frame) -> None:
        self.node = node
        self.version = version
        self.scope = scope
        self._read: set[str] = set()

    # Attributes

    def has(self, name: str) -> bool:
        """Whether the node has the attribute."""
        return name in self.node.attrs

    def ignore(self, *names: str) -> None:
        """Mark attributes as read that do not affect the conversion."""
        self._read.update(names)

    def unread(self) -> list[str]:
        """The attributes that the converter has not read."""
        return [name for name in self.node.attrs if name not in self._read]

    def _attr(self, name: str, kind: type | tuple[type, ...], word: str, default: Any) -> Any:
        self._read.add(name)
        value: Any = self.node.attrs.get(name)
        if value is None:
            if default is _REQUIRED:
                raise self.error(f"attribute {quoted(name)} is missing")
            return default
        if not isinstance(value, kind):
            raise self.error(f"attribute {quoted(name)} must be {word}, not {type(value).__name__}")
        return value

    def _attrs(self, name: str, kind: type, word: str, default: Any) -> Any:
        values = self._attr(name, tuple, f"a list of {word}", default)
        if values is not default and not all(isinstance(value, kind) for value in values):
            raise self.error(f"attribute {quoted(name)} must be a list of {word}")
        return values

    def integer(self, name: str, default: Any = _REQUIRED) -> Any:
        return self._attr(name, int, "an integer", default)

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.integer(name, int(default)))

    def real(self, name: str, default: Any = _REQUIRED) -> Any:
        value = self._attr(name, (float, int), "a number", default)
        return value if value is None else float(value)

    def text(self, name: str, default: Any = _REQUIRED) -> Any:
        return self._attr(name, str, "a text", default)

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        """A string attribute that must be one of `choices`."""
        found: str = self.text(name, default)
        if found not in choices:
            raise self.error(
                f"attribute {quoted(name)} is {quoted(found)}", hint=f"it must be one of {', '.join(choices)}"
            )
        return found

    def integers(self, name: str, default: Any = _REQUIRED) -> Any:
        return self._attrs(name, int, "integers", default)

    def reals(self, name: str, default: Any = _REQUIRED) -> Any:
        return self._attrs(name, float, "numbers", default)

    def texts(self, name: str, default: Any = _REQUIRED) -> Any:
        return self._attrs(name, str, "texts", default)

    def tensor(self, name: str, default: Any = _REQUIRED) -> Any:
        """A tensor attribute as an array."""
        value = self._attr(name, (Tensor, SparseTensor), "a tensor", default)
        return value if value is None else value.to_numpy()

    def graph(self, name: str) -> Graph:
        found: Graph = self._attr(name, Graph, "a graph", _REQUIRED)
        return found

    def value_type(self, name: str) -> ValueType:
        found: ValueType = self._attr(name, ValueType, "a type", _REQUIRED)
        return found

    def dtype(self, name: str, default: Any = _REQUIRED) -> Any:
        """The DType of an attribute that holds an element type number."""
        number = self.integer(name, default)
        return number if number is default else self.element_type(number)

    def element_type(self, number: int) -> DType:
        element = BY_NUMBER.get(number)
        if element is None:
            raise self.error(f"{number} is no element type")
        return self.tensor_dtype(element.name)

    def tensor_dtype(self, name: str) -> DType:
        """The DType of an ONNX element type name, if tensors may have it."""
        if name not in TENSOR_DTYPES:
            raise self.unsupported(f"tensors of {name} are not supported")
        return DType(name)

    # Values

    def uses_output(self, index: int) -> bool:
        """Whether the output is used."""
        return index < len(self.node.outputs) and self.node.outputs[index] != ""

    def known(self, value: Node) -> Known | None:
        """The elements of a small tensor if they depend only on constants and dims (see `shapes`)."""
        return self.scope.shapes.known(value)

    def array(self, value: Node) -> np.ndarray[Any, Any] | None:
        """The elements of a small constant tensor; None if they are not all numbers."""
        found = self.known(value)
        return None if found is None or found.dtype == object else found

    def dims(self, value: Node, what: str) -> tuple[Dim, ...]:
        """The elements of an integer vector or scalar as ints or expressions over dims. Data-dependent ones
        are refused.
        """
        if not value.dtype.is_int or len(value.shape) > 1:
            raise self.error(f"{what} must be a vector of integers, not {value.type}")
        found = self.known(value)
        if found is None:
            raise self.unsupported(
                f"{what} depends on the data of the inputs",
                hint="fold the model's constants first, or pin its dims with shapes={...}",
            )
        return int_elements(found)

    def sizes(self, value: Node, what: str) -> tuple[Dim, ...]:
        """As `dims`, but nonnegative. Data-dependent elements become new dims."""
        found = self.elements(value, what)
        if any(isinstance(item, int) and item < 0 for item in found):
            raise self.error(f"{what} is {found}", why="sizes must not be negative")
        return tuple(self.size(item, what) for item in found)

    def _of_unknown_length(self, value: Node, what: str) -> UnsupportedError:
        """The error for a list of data-dependent sizes whose length is unknown."""
        length = value.shape[0] if value.shape else 1
        shown = self.scope.session.holders.get(length) if isinstance(length, Var) else None
        if isinstance(length, Var) and shown is not None and shown.op is PARAM:
            given = f"of input {shown.attrs['name']!r}: shapes={{{length.name!r}: 2}} if it is 2"
            hint = f"give the length {given}; or make the list a constant"
        else:
            hint = "make the list a constant, or fold the model's constants first"
        return self.unsupported(
            f"{what} depends on the data of the inputs, and its length does too or is more than"
            f" {MAX_ELEMENTS}",
            why=f"it is {value.type}",
            hint=hint,
        )

    def number_of(self, value: Dim) -> Node:
        """An integer expression over elements and dims as a scalar tensor."""
        return self.scope.session.holders.number(as_expr(value))

    def elements(self, value: Node, what: str) -> tuple[Dim, ...]:
        """As `dims`, but elements may be data-dependent expressions. `size` makes dims of them."""
        if not value.dtype.is_int or len(value.shape) > 1:
            raise self.error(f"{what} must be a vector of integers, not {value.type}")
        known = self.known(value)
        found = self.scope.session.holders.elements.known(value) if known is None else known
        if found is None:
            raise self._of_unknown_length(value, what)
        return int_elements(found)

    def element(self, value: Node, what: str) -> Dim:
        """As `elements`, for a tensor that must have one."""
        found = self.elements(value, what)
        if len(found) != 1:
            raise self.error(f"{what} must be one integer, not {len(found)}")
        return found[0]

    def floats(self, value: Node, what: str) -> tuple[float | Expr, ...]:
        """The elements of a float vector or scalar: numbers, or expressions if they are data-dependent."""
        if not value.dtype.is_float or len(value.shape) > 1:
            raise self.error(f"{what} must be a vector of floats, not {value.type}")
        known = self.known(value)
        found = self.scope.session.holders.elements.reals(value) if known is None else known
        if found is None:
            raise self._of_unknown_length(value, what)
        wide = DType("float64" if value.dtype.name == "float64" else "float32")
        return tuple(
            in_floats(item, wide) if isinstance(item, (Expr, Ratio)) else float(item) for item in found.flat
        )

    def size(self, value: Dim, what: str) -> Dim:
        """The dim of this value. If it is data-dependent, a call with a negative value fails."""
        size: Dim = simple(value)
        if isinstance(size, int) and size < 0:
            raise self.error(f"{what} is {size}", why="sizes must not be negative")
        if not isinstance(size, Expr) or not has_elements(size):
            return size
        name = next(filter(None, self.node.outputs), "size")
        return self.scope.session.holders.dim(size, f"{what} of {self._named} is negative", name)

    def offset(self, value: Dim, what: str) -> Dim:
        """As `size`, for values that are often 0. Dims are assumed to be at least 1, so the dim is value
        + 1.
        """
        return self.size(value + 1, what) - 1 if has_elements(value) else value

    def require(self, condition: Any, what: str) -> None:
        """Refuse calls for which a condition on data and dims does not hold."""
        failing = simple(select(condition, as_expr(0), as_expr(-1)))
        if failing == -1:
            raise self.error(what)
        if failing != 0:
            self.scope.session.holders.require(failing, f"{what} in {self._named}")

    def at_least(self, have: Dim, least: Dim, what: str) -> None:
        """Refuse calls for which a size is less than another; `what` states the condition."""
        self._condition(AT_LEAST, have, least, what)

    def equal(self, have: Dim, wanted: Dim, what: str) -> None:
        """Refuse calls for which two sizes differ; `what` states the condition."""
        self._condition(EQUAL, have, wanted, what)

    def fixed(self, value: Node, shape: Sequence[Dim], what: str) -> Node:
        """The value with the given shape; calls with another shape are refused. `what` states the
        condition.
        """
        for have, wanted in zip(value.shape, shape, strict=True):
            self.equal(have, wanted, what)
        return value if tuple(value.shape) == tuple(shape) else std.reshape(value, shape=tuple(shape))

    def _condition(self, kind: str, have: Dim, wanted: Dim, what: str) -> None:
        name = self.node.name or next(filter(None, self.node.outputs), "")
        where = f"node {name!r} ({self.node.op})"
        need = Condition(kind, as_expr(have), as_expr(wanted), what, where)
        if need.dims:
            self.scope.session.holders.add_condition((kind, need.left, need.right, what, where))
        elif isinstance(have, int) and isinstance(wanted, int) and not need.holds(have, wanted):
            raise self.error(what, why=f"they are {have} and {wanted}")

    @property
    def _named(self) -> str:
        name = self.node.name or next(filter(None, self.node.outputs), "")
        return f"{self.node.op} {quoted(name)}"

    def numpy_dtype(self, array: np.ndarray[Any, Any], what: str) -> DType:
        """The DType of an array, if tensors may have it."""
        try:
            return DType.of(array.dtype)
        except DlcError:
            raise self.unsupported(f"{what} is a tensor of {array.dtype}") from None

    def numbers(self, value: Node, what: str) -> tuple[int, ...]:
        """As `dims`, but constant."""
        return self.plain(self.dims(value, what), what)

    def plain(self, found: Sequence[Dim], what: str) -> tuple[int, ...]:
        """The dims as constants; an error if one is symbolic."""
        if not all(isinstance(item, int) for item in found):
            text = ", ".join(map(str, found))
            raise self.unsupported(f"{what} is ({text})", hint="pin the dims with shapes={...}")
        return tuple(item for item in found if isinstance(item, int))

    def number(self, value: Node, what: str) -> int:
        """An integer constant of one element."""
        found = self.numbers(value, what)
        if len(found) != 1:
            raise self.error(f"{what} must be one integer, not {len(found)}")
        return found[0]

    def scalar(self, value: Node, what: str) -> Any:
        """A constant with one element as a Python number."""
        found = self.array(value)
        if found is None:
            raise self.unsupported(f"{what} is not a constant")
        if found.size != 1:
            raise self.error(f"{what} must be a scalar, not {value.type}")
        return found.reshape(()).item()

    def static(self, value: Node, what: str) -> tuple[int, ...]:
        """The shape of a value; an error if it is symbolic."""
        shape = value.tensor_type.static_shape()
        if shape is None:
            raise self.unsupported(
                f"{what} has the symbolic shape {value.type}", hint="pin the dims with shapes={...}"
            )
        return shape

    def axis(self, name: str, default: Any, rank: int) -> int:
        """An axis attribute, normalized to [0, rank)."""
        return self.check_axis(self.integer(name, default), rank)

    def check_axis(self, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            raise self.error(f"axis {axis} is out of range for rank {rank}")
        return axis + rank if axis < 0 else axis

    def rank(self, value: Node) -> int:
        return len(value.shape)

    def const(self, value: Any, dtype: DType | str) -> Node:
        """A constant; an error if the dtype cannot represent the values."""
        try:
            return self.scope.constant(value, dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise self.error(f"a constant of {dtype} cannot hold its values", why=str(error)) from error

    def dims_tensor(self, dims: Sequence[Dim], dtype: DType | str = "int64") -> Node:
        """A vector of dims."""
        elements = np.empty(len(dims), object)
        elements[:] = dims
        return materialised(elements, TensorType((len(dims),), DType.of(dtype)))

    def in_order(self, positions: Node, size: Dim) -> Node:
        """Indices that must not be negative, as an int64 tensor. Core ops count negative indices from the
        end, so they are moved out of range, where a read fails.
        """
        wide = self.cast(positions, "int64")
        extent = self.number_of(size)
        return std.where(std.less(wide, self.const(0, "int64")), std.sub(wide, extent), wide)

    def draw(self) -> int:
        """A number that is unique to each random op of the model."""
        self.scope.session.draws += 1
        return self.scope.session.draws

    def cast(self, value: Node, to: DType | str) -> Node:
        """The value in another dtype; the value itself if it has that dtype."""
        wanted = DType.of(to)
        return value if value.dtype is wanted else std.cast(value, to=wanted)

    def inline(self, graph: Graph, args: Sequence[Value]) -> Sequence[Value]:
        """The outputs of a subgraph, converted in place with these inputs.

        Errors inside are reported at the inner node.
        """
        return self.scope.run_graph(graph, args)

    def attempt(self, graph: Graph, args: Sequence[Value]) -> Sequence[Value] | None:
        """As `inline`, but None if something inside is unsupported or invalid."""
        return self.scope.try_graph(graph, args)

    # Errors

    def error(self, what: str, *, why: str = "", hint: str = "") -> ModelError:
        return self.node.loc.error(what, why=why, hint=hint)

    def unsupported(self, what: str, *, why: str = "", hint: str = "") -> UnsupportedError:
        return self.node.loc.unsupported(what, why=why, hint=hint)
