"""Conversion of ONNX operators to graph nodes: the table of converters, and the `Call` that a converter gets.

    @converter("Clip", 11)                      # operator, since which version; domain="..." for another one
    def clip(c, x, low=None, high=None):        # the call, then the inputs; the signature is the arity
        return ...                              # a node, or a sequence of them, one for each output

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
"""(domain, operator) -> its entries, by version."""

F = TypeVar("F", bound=Function)


def converter(
    ops: str, since: int = 1, domain: str = "", *, sequences: bool = False, check: Check | None = None
) -> Callable[[F], F]:
    """Registers a function for operators (names separated by blanks) from a version on."""

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
    """Registers one function for one operator from a version on."""
    entries = TABLE.setdefault((domain, op), [])
    entries.append(entry_of(since, function, sequences=sequences, check=check))
    entries.sort(key=lambda entry: entry.since)


def find_entry(domain: str, op: str, version: int, own: Entries | None = None) -> Entry | None:
    """The converter for an operator in a version of its domain, of those in `own` or else of the table."""
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
    """One call of an operator while it is converted: its attributes, and ways to read and make values."""

    def __init__(self, node: NodeDef, version: int, scope: Frame) -> None:
        self.node = node
        self.version = version
        self.scope = scope
        self._read: set[str] = set()

    # Attributes

    def has(self, name: str) -> bool:
        """Whether the node gives the attribute."""
        return name in self.node.attrs

    def ignore(self, *names: str) -> None:
        """Attributes that make no difference here."""
        self._read.update(names)

    def unread(self) -> list[str]:
        """Attributes nobody asked for."""
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
        """A text attribute that must be one of `choices`."""
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
        """An attribute that holds the number of an element type, as a DType."""
        number = self.integer(name, default)
        return number if number is default else self.element_type(number)

    def element_type(self, number: int) -> DType:
        element = BY_NUMBER.get(number)
        if element is None:
            raise self.error(f"{number} is no element type")
        return self.tensor_dtype(element.name)

    def tensor_dtype(self, name: str) -> DType:
        """Our dtype of an ONNX element type that has one."""
        if name not in TENSOR_DTYPES:
            raise self.unsupported(f"tensors of {name} are not supported")
        return DType(name)

    # Values

    def wants(self, index: int) -> bool:
        """Whether anyone uses this output."""
        return index < len(self.node.outputs) and self.node.outputs[index] != ""

    def known(self, value: Node) -> Known | None:
        """The elements of a small tensor as far as they do not depend on inputs' data (see `shapes`)."""
        return self.scope.shapes.known(value)

    def array(self, value: Node) -> np.ndarray[Any, Any] | None:
        """The elements of a small constant tensor, None where they are not all numbers."""
        found = self.known(value)
        return None if found is None or found.dtype == object else found

    def dims(self, value: Node, what: str) -> tuple[Dim, ...]:
        """The elements of an integer vector (or scalar) that is not data: ints or expressions of dims."""
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
        """As `dims`, where none may be negative; of elements that are data new dims are made."""
        found = self.elements(value, what)
        if any(isinstance(item, int) and item < 0 for item in found):
            raise self.error(f"{what} is {found}", why="sizes must not be negative")
        return tuple(self.size(item, what) for item in found)

    def _of_unknown_length(self, value: Node, what: str) -> UnsupportedError:
        """The error for a list of sizes that are data."""
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
        """An integer of elements and dims as a tensor without dims."""
        return self.scope.session.holders.number(as_expr(value))

    def elements(self, value: Node, what: str) -> tuple[Dim, ...]:
        """As `dims`, but elements may be data: expressions that `size` makes dims of."""
        if not value.dtype.is_int or len(value.shape) > 1:
            raise self.error(f"{what} must be a vector of integers, not {value.type}")
        known = self.known(value)
        found = self.scope.session.holders.elements.known(value) if known is None else known
        if found is None:
            raise self._of_unknown_length(value, what)
        return int_elements(found)

    def floats(self, value: Node, what: str) -> tuple[float | Expr, ...]:
        """The elements of a vector (or scalar) of floats: numbers, or expressions of what is data."""
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
        """A dim that is this integer; a data-dependent one must be at least 0 at run time."""
        size: Dim = simple(value)
        if isinstance(size, int) and size < 0:
            raise self.error(f"{what} is {size}", why="sizes must not be negative")
        if not isinstance(size, Expr) or not has_elements(size):
            return size
        name = next(filter(None, self.node.outputs), "size")
        return self.scope.session.holders.dim(size, f"{what} of {self._named} is negative", name)

    def offset(self, value: Dim, what: str) -> Dim:
        """As `size`, for what is often 0: the dim is one more, for dims are taken to be at least 1."""
        return self.size(value + 1, what) - 1 if has_elements(value) else value

    def require(self, condition: Any, what: str) -> None:
        """Refuse calls for which a condition about data and dims does not hold."""
        failing = simple(select(condition, as_expr(0), as_expr(-1)))
        if failing == -1:
            raise self.error(what)
        if failing != 0:
            self.scope.session.holders.require(failing, f"{what} in {self._named}")

    def at_least(self, have: Dim, least: Dim, what: str) -> None:
        """Refuse calls for which a size is less than another; `what` is a law about them."""
        self._condition(AT_LEAST, have, least, what)

    def equal(self, have: Dim, wanted: Dim, what: str) -> None:
        """Refuse calls for which two sizes differ; `what` is a law about them."""
        self._condition(EQUAL, have, wanted, what)

    def fixed(self, value: Node, shape: Sequence[Dim], what: str) -> Node:
        """The value in a shape that it must have; `what` is a law about it."""
        for have, wanted in zip(value.shape, shape, strict=True):
            self.equal(have, wanted, what)
        return value if tuple(value.shape) == tuple(shape) else std.reshape(value, shape=tuple(shape))

    def _condition(self, kind: str, have: Dim, wanted: Dim, what: str) -> None:
        name = self.node.name or next(filter(None, self.node.outputs), "")
        where = f"node {name!r} ({self.node.op})"
        need = Condition(kind, as_expr(have), as_expr(wanted), what, where)
        if need.dims:
            self.scope.session.holders.note((kind, need.left, need.right, what, where))
        elif isinstance(have, int) and isinstance(wanted, int) and not need.holds(have, wanted):
            raise self.error(what, why=f"they are {have} and {wanted}")

    @property
    def _named(self) -> str:
        name = self.node.name or next(filter(None, self.node.outputs), "")
        return f"{self.node.op} {quoted(name)}"

    def numpy_dtype(self, array: np.ndarray[Any, Any], what: str) -> DType:
        """The dtype of an array, if tensors may have it."""
        try:
            return DType.of(array.dtype)
        except DlcError:
            raise self.unsupported(f"{what} is a tensor of {array.dtype}") from None

    def numbers(self, value: Node, what: str) -> tuple[int, ...]:
        """As `dims`, where they must be plain numbers."""
        return self.plain(self.dims(value, what), what)

    def plain(self, found: Sequence[Dim], what: str) -> tuple[int, ...]:
        """Integers that must be numbers."""
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
        """A constant of one element as a Python number."""
        found = self.array(value)
        if found is None:
            raise self.unsupported(f"{what} is not a constant")
        if found.size != 1:
            raise self.error(f"{what} must be a scalar, not {value.type}")
        return found.reshape(()).item()

    def static(self, value: Node, what: str) -> tuple[int, ...]:
        """A shape that must not be symbolic."""
        shape = value.tensor_type.static_shape()
        if shape is None:
            raise self.unsupported(
                f"{what} has the symbolic shape {value.type}", hint="pin the dims with shapes={...}"
            )
        return shape

    def axis(self, name: str, default: Any, rank: int) -> int:
        """An axis attribute as a number in [0, rank)."""
        return self.check_axis(self.integer(name, default), rank)

    def check_axis(self, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            raise self.error(f"axis {axis} is out of range for rank {rank}")
        return axis + rank if axis < 0 else axis

    def rank(self, value: Node) -> int:
        return len(value.shape)

    def const(self, value: Any, dtype: DType | str) -> Node:
        """A constant; an error where the values are none of the dtype."""
        try:
            return self.scope.constant(value, dtype)
        except (ValueError, TypeError, OverflowError) as error:
            raise self.error(f"a constant of {dtype} cannot hold its values", why=str(error)) from error

    def dims_tensor(self, dims: Sequence[Dim], dtype: DType | str = "int64") -> Node:
        """A vector of dims."""
        elements = np.empty(len(dims), object)
        elements[:] = dims
        return materialised(elements, TensorType((len(dims),), DType.of(dtype)))

    def in_order(self, places: Node, size: Dim) -> Node:
        """Places that the standard counts from the begin only, as an int64 tensor: negative ones go where no
        index is, so that what is read there fails.
        """
        wide = self.cast(places, "int64")
        extent = self.number_of(size)
        return std.where(std.less(wide, self.const(0, "int64")), std.sub(wide, extent), wide)

    def draw(self) -> int:
        """A number that no other draw of random numbers in this model has."""
        self.scope.session.draws += 1
        return self.scope.session.draws

    def cast(self, value: Node, to: DType | str) -> Node:
        """The value in another dtype; itself where it has it."""
        wanted = DType.of(to)
        return value if value.dtype is wanted else std.cast(value, to=wanted)

    def inline(self, graph: Graph, args: Sequence[Value]) -> Sequence[Value]:
        """The outputs of a graph among the attributes, converted here with these inputs.

        What is not supported inside is one error of this node's inside.
        """
        return self.scope.run_graph(graph, args)

    def attempt(self, graph: Graph, args: Sequence[Value]) -> Sequence[Value] | None:
        """As `inline`, but None where something inside is not supported or does not fit."""
        return self.scope.try_graph(graph, args)

    # Errors

    def error(self, what: str, *, why: str = "", hint: str = "") -> ModelError:
        return self.node.place.error(what, why=why, hint=hint)

    def unsupported(self, what: str, *, why: str = "", hint: str = "") -> UnsupportedError:
        return self.node.place.unsupported(what, why=why, hint=hint)
