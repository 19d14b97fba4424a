"""Data-dependent sizes: elements of inputs, or integers computed from them.

    Reshape(x, shape)        with the shape as an input, or computed from the lengths of sentences

If the elements of a small integer tensor are unknown during the import, each element becomes a variable
(`element` of `shapes`). Converters compute sizes as integer expressions over elements and dims. `Holders.dim`
returns the dim of such an expression. There are two ways to compute the dim at run time. Any program can run
the nodes that end in `dim_of`. If all elements are elements of inputs, the dim is host-computed: the caller
evaluates it (`dlc_core.graph.data_dims`), so that native code knows it from the beginning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dlc_core.graph.data_dims import DATA_DIMS, ELEMENTS, DataDim, Element
from dlc_core.graph.node import PARAM, Node, constant, post_order
from dlc_core.graph.shapes import intersected_bounds
from dlc_core.ir.bounds import Bounds
from dlc_core.ir.conditions import ConditionRow
from dlc_core.ir.dtype import INDEX, DType
from dlc_core.ir.expr import Binary, Cast, Const, Expr, Select, Unary, Var, free_vars, ne
from dlc_core.ir.expr import post_order as operands_first
from dlc_core.ir.types import TensorType, TupleType, symbols_of
from dlc_core.op import std
from dlc_core.op.declare import fresh_dims
from dlc_core.passes.graph.dim_conditions import dim_conditions_of_nodes
from dlc_frontend_onnx.floats import FLOATS, in_floats
from dlc_frontend_onnx.floats import RULES as FLOAT_RULES
from dlc_frontend_onnx.shapes import Known, ShapeTable, at_most, element, has_elements, objects, simple
from dlc_frontend_onnx.symbols import identifier

MAX_ELEMENTS = 64
"""Larger tensors get no variable per element."""

_OPS = {
    "add": "add", "sub": "sub", "mul": "mul", "floordiv": "floordiv", "floormod": "mod", "truncdiv": "div",
    "truncmod": "fmod", "min": "minimum", "max": "maximum", "eq": "equal", "ne": "not_equal", "lt": "less",
    "le": "less_equal", "gt": "greater", "ge": "greater_equal", "and": "logical_and", "or": "logical_or",
    "neg": "neg", "not": "logical_not", "div": "div",
}  # fmt: skip
"""The graph op of each operator of integer expressions."""


class ElementTable(ShapeTable):
    """A `ShapeTable` with variables for the unknown elements of small tensors of integers and booleans."""

    def __init__(self) -> None:
        super().__init__()
        self.sources: dict[Var, tuple[Node, int]] = {}
        """The tensor of each variable, and the row-major index in it."""

    def reals(self, node: Node) -> Known | None:
        """The elements of a small float tensor: floats, ratios and expressions. Unknown elements become
        variables.
        """
        found = self.known(node)
        if found is None and isinstance(node.type, TensorType) and node.type.dtype.is_float:
            found = self._memo[node] = self._elements(node, node.type)
        return found

    def _compute(self, node: Node) -> Known | None:
        found = super()._compute(node)
        if found is None:
            found = self._in_floats(node)
        return self._unknown(node) if found is None else found

    def _in_floats(self, node: Node) -> Known | None:
        """The elements of an op on floats that are data, or on quotients of dims, as float expressions."""
        rule = FLOAT_RULES.get(node.op.name)
        if rule is None or not isinstance(node.type, TensorType) or node.type.dtype.name not in FLOATS:
            return None
        dtype, shape = node.type.dtype, node.type.static_shape()
        args = [self._memo[arg] for arg in node.args]
        if shape is None or any(arg is None or arg.size > MAX_ELEMENTS for arg in args):
            return None
        columns = [np.broadcast_to(arg, shape).reshape(-1) for arg in args if arg is not None]
        rows = zip(*columns, strict=True)
        return objects([simple(rule(*(in_floats(item, dtype) for item in row))) for row in rows], shape)

    def _unknown(self, node: Node) -> Known | None:
        if not isinstance(node.type, TensorType):
            return None
        whole = node.type.dtype.is_int or node.type.dtype.is_bool
        # Floats of inputs get variables, so that sizes computed from them are host-computed.
        return self._elements(node, node.type) if whole or node.op is PARAM else None

    def _elements(self, node: Node, type_: TensorType) -> Known | None:
        """A variable for each element of a small tensor of numbers."""
        shape, dtype = type_.static_shape(), type_.dtype
        if shape is None or not (dtype.is_int or dtype.is_bool or dtype.is_float):
            return None
        count = math.prod(shape)
        if count > MAX_ELEMENTS:
            return None
        own = dtype if dtype.name in FLOATS else DType("float32") if dtype.is_float else INDEX
        name = node.attrs["name"] if node.op is PARAM else node.op.name
        elements: list[Any] = []
        for index in range(count):
            var = element(identifier(f"{name}_{index}" if shape else name), own)
            self.sources[var] = node, index
            elements.append(ne(var, 0) if dtype.is_bool else var)
        return objects(elements, shape)


@dataclass
class Frame:
    """The nodes converted for one function, and conditions on dims in addition to those of the nodes.

    See `dlc_core.passes.graph.dim_conditions`.
    """

    nodes: dict[Node, None] = field(default_factory=dict)
    conditions: list[ConditionRow] = field(default_factory=list)


class Holders(dict[Var, Node]):
    """For each symbolic dim of a model, a value whose shape has that dim. It also creates data-dependent
    dims.
    """

    def __init__(self, bounds: Callable[[str], Bounds | None] = lambda name: None) -> None:
        """`bounds` returns the declared bounds of the dim of a name."""
        super().__init__()
        self._bounds = bounds
        self.elements = ElementTable()
        self.data_dims: dict[Var, tuple[Expr, str]] = {}
        """The definition of each dim, in order of creation, and the error message if it is negative."""
        self._required: dict[Var, None] = {}
        """Dims that exist only as checks: a call fails if they are negative."""
        self._placed: set[Var] = set()
        """The checks that a function body contains already."""
        self.frames = [Frame()]
        """The frame of the entry and of each enclosing body, innermost last."""
        self._read: dict[Var, tuple[set[Node], list[Var]]] = {}
        """The params that the holder of a dim depends on, and the dims that it mentions."""
        self._dims: dict[Expr, Var] = {}
        self._nodes: dict[Expr, Node] = {}

    @property
    def names(self) -> list[str]:
        """The names of data-dependent dims."""
        return [dim.name for dim in self.data_dims if dim not in self._required]

    def record(self, value: Node) -> None:
        """Record a node's output. It becomes the holder of the dims that no earlier value has."""
        self.frames[-1].nodes[value] = None
        for size in value.shape if isinstance(value.type, TensorType) else ():
            if isinstance(size, Var):
                self.setdefault(size, value)

    @contextmanager
    def frame(self) -> Iterator[Frame]:
        """A frame for nodes that belong to a separate function, or that may be discarded."""
        self.frames.append(Frame())
        try:
            yield self.frames[-1]
        finally:
            self.frames.pop()

    def merge(self, frame: Frame) -> None:
        """Merge a finished frame into the enclosing one."""
        self.frames[-1].nodes.update(frame.nodes)
        self.frames[-1].conditions += frame.conditions

    def add_condition(self, condition: ConditionRow) -> None:
        """Record a condition on dims in the innermost frame."""
        self.frames[-1].conditions.append(condition)

    def remaining_conditions(self, results: Sequence[Node], frame: Frame) -> list[ConditionRow]:
        """The conditions of a frame that its results do not imply. These are the recorded ones, and those of
        nodes that are not live, for example nodes used only for their shapes. A run of all nodes would check
        them.
        """
        live = set(post_order(*results))
        waiting = [n for n in frame.nodes if n not in live]
        found: dict[Node, None] = {}
        while waiting:
            n = waiting.pop()
            around = n not in frame.nodes and any(n in other.nodes for other in self.frames)
            if n not in live and n not in found and n.op is not PARAM and not around:
                found[n] = None
                waiting += n.args
        return [*frame.conditions, *dim_conditions_of_nodes(found)]

    def split_conditions(
        self, conditions: Sequence[ConditionRow], frame: Frame, own: Sequence[Node]
    ) -> list[ConditionRow]:
        """The conditions of a loop that concern dims of its body. The others move to the enclosing frame."""
        inside = []
        for condition in conditions:
            dims = [self.get(var) for var in free_vars(condition[1], condition[2])]
            params = set(own)
            if any(n is None or n in frame.nodes or n in params or self._reads(n, params) for n in dims):
                inside.append(condition)
            else:
                self.add_condition(condition)
        return inside

    def _reads(self, holder: Node, params: set[Node]) -> bool:
        return any(n in params for n in post_order(holder))

    def dim(self, size: Expr, what: str, name: str) -> Var:
        """The dim whose value is an integer expression. If it is negative at run time, the call fails with
        the error `what`.
        """
        found = self._dims.get(size)
        if found is None:
            own = self._unused(size.name if isinstance(size, Var) else name)
            found = self._dims[size] = Var(own, bounds=self._within(own, size))
            self.data_dims[found] = size, what
            self[found] = std.dim_of(self.number(size), size=found, what=what)
        return found

    def _within(self, name: str, size: Expr) -> Bounds | None:
        """The bounds of a dim: the intersection of those of its definition and those declared by `shapes`."""
        known, declared = at_most(size), self._bounds(name)
        return known if declared is None else intersected_bounds(f"dim {name!r}", declared, known)

    def _unused(self, name: str) -> str:
        """The name, with a suffix if another data-dependent dim has it."""
        known = {var.name for var in self.data_dims}
        wanted = identifier(name)
        numbers = (f"{wanted}_{number}" for number in range(2, len(known) + 3))
        return next(text for text in (wanted, *numbers) if text not in known)

    def require(self, failing: Expr, what: str) -> None:
        """Refuse calls for which this integer is negative."""
        self._required[self.dim(failing, what, "required")] = None

    def number(self, size: Expr) -> Node:
        """The integer or boolean expression as a scalar of the graph."""
        for e in operands_first(size):
            if e not in self._nodes:
                self._nodes[e] = self._made(e)
        return self._nodes[size]

    def _made(self, e: Expr) -> Node:
        if isinstance(e, Const):
            return constant(e.value, e.dtype.name)
        if isinstance(e, Var) and e in self.elements.sources:
            tensor, index = self.elements.sources[e]
            flat = std.reshape(tensor, shape=(-1,))
            one = std.squeeze(std.slice(flat, begins=(index,), ends=(index + 1,)), axes=(0,))
            return one if one.dtype is e.dtype else std.cast(one, to=e.dtype)
        if not has_elements(e) and e.dtype is DType("int64"):
            return std.squeeze(std.dims_tensor(dims=(e,)), axes=(0,))
        args = [self._nodes[child] for child in e.children]
        if isinstance(e, Select):
            return std.where(*args)
        if isinstance(e, Cast):
            return std.cast(args[0], to=e.dtype)
        assert isinstance(e, (Unary, Binary))
        made: Node = getattr(std, _OPS[e.op])(*args)
        return made

    def attached(
        self,
        results: Sequence[Node],
        params: Sequence[Node],
        *,
        entry: bool,
        checks: bool = True,
        conditions: Sequence[ConditionRow] = (),
        frame: Frame | None = None,
    ) -> list[Node]:
        """The results of a function, with the holders of its data-dependent dims attached by `with_dims`.

        Attached are the dims in its types, checks and conditions. A dim that depends on no param of a loop or
        branch body is computed outside the body. The `entry` gets the remaining dims, except checks that the
        caller evaluates (see `attributes`). If `checks` is false, the function gets no checks.
        """
        if all(value.op is PARAM for value in self.values()):
            return list(results)
        own = set(params)
        bound = {var for value in params for var in symbols_of(value.type)}
        checked = self._host_computed(params) if entry else {}
        live = set(post_order(*results)) if conditions else set()
        condition_dims = dict.fromkeys(
            var for condition in conditions for var in free_vars(condition[1], condition[2])
        )
        made = frame.nodes if frame is not None else {}
        checks_left = self._required.keys() - self._placed - checked.keys() if checks else ()
        waiting = [
            *_missing(results, bound),
            *(var for var in self._required if var in checks_left),
            *(var for var in condition_dims if var not in bound and self.get(var) not in live),
        ]
        inside: dict[Var, bool] = {}
        while waiting:
            var = waiting.pop()
            if var in self and var not in inside:
                given = self._params_of(var)
                inside[var] = given <= own if entry else bool(given & own) or self[var] in made
                waiting += _missing([self[var]], bound)
        found = [var for var in self if inside.get(var)]
        self._placed.update(var for var in found if var in self._required)
        if not found:
            return list(results)
        return [std.with_dims(*(self[var] for var in found), results[0]), *results[1:]]

    def _params_of(self, var: Var) -> set[Node]:
        """The params that a dim depends on, also transitively through other dims."""
        found: set[Node] = set()
        seen = {var}
        waiting = [var]
        while waiting:
            each = waiting.pop()
            if each not in self._read:
                value = self[each]
                self._read[each] = {n for n in post_order(value) if n.op is PARAM}, _missing([value], set())
            params, dims = self._read[each]
            found |= params
            fresh = [other for other in dims if other in self and other not in seen]
            seen.update(fresh)
            waiting += fresh
        return found

    def attributes(self, params: Sequence[Node], body: Node) -> dict[str, Any]:
        """The attributes of the entry that define its host-computed dims."""
        used = set(post_order(body))
        known = self._host_computed(params)
        waiting = [var for var in known if var in self._required or self[var] in used]
        wanted: set[Var] = set()
        while waiting:
            var = waiting.pop()
            if var not in wanted:
                wanted.add(var)
                waiting += (part for part in free_vars(self.data_dims[var][0]) if part in known)
        elements = dict.fromkeys(element for var in known if var in wanted for element in known[var])
        host_dims: tuple[DataDim, ...] = tuple((var, *self.data_dims[var]) for var in known if var in wanted)
        return {ELEMENTS: tuple(elements), DATA_DIMS: host_dims} if host_dims else {}

    def _host_computed(self, params: Sequence[Node]) -> dict[Var, tuple[Element, ...]]:
        """The dims that depend only on elements and dims of the params, with these elements."""
        names = {own: own.attrs["name"] for own in params}
        known = {var for own in params for var in symbols_of(own.type)}
        found: dict[Var, tuple[Element, ...]] = {}
        for var, (size, _) in self.data_dims.items():
            elements: list[Element] = []
            for part in free_vars(size):
                tensor, index = self.elements.sources.get(part, (None, 0))
                if tensor in names and tensor is not None:
                    elements.append((part, names[tensor], index))
                elif part not in known:
                    break
            else:
                found[var] = tuple(elements)
                known.add(var)
        return found


def _missing(roots: Sequence[Node], bound: set[Var]) -> list[Var]:
    """The dims in types and attributes of a graph that no node before defines."""
    known = set(bound)
    found: dict[Var, None] = {}
    for n in post_order(*roots):
        known.update(fresh_dims(n))
        for value in (n.type, *n.attrs.values()):
            if isinstance(value, (TensorType, TupleType)):
                needed = symbols_of(value)
            else:
                items = value if isinstance(value, tuple) else (value,)
                needed = free_vars(*(item for item in items if isinstance(item, Expr)))
            found.update(dict.fromkeys(var for var in needed if var not in known))
    return list(found)


__all__ = ["ElementTable", "Frame", "Holders"]
