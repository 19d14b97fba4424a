"""Nodes of the graph level.  This file is the whole grammar of graphs.

    Node = Node(op, args, attrs, type)       interned: equality is identity, so CSE is free
      op is an `Op` value.  The structural ops are here; all others are declared in `op/`:
        param    a function's argument; each is unique          attrs: name
        const    an array by reference                          attrs: value (`Array`)
        tuple    several values as one                          args: the values
        get      one value of a tuple                           attrs: index
        call     a call of a closed Function (a fused group)    attrs: function
        call_prim  a call of a PrimFunc of the module           attrs: symbol
      Control flow (`if_`, `while_`, `scan`) are declared ops whose attributes are closed Functions.

    Function = (name, params, body, attrs)   closed: the body uses no params of other functions

Attributes are keyed by type and bits, so that 1, True and 1.0, or 0.0 and -0.0, make different nodes. The
attribute `plan` of a node describes how its kernel computes it (`ir/plan.py`). It does not change results.

Spans do not take part in equality: a node that several model nodes were merged into has the spans of all.
They belong to one model, because nodes are interned separately for each `GraphContext`: a node without
arguments belongs to the current context, any other node to the context of its arguments.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from dlc_core.cancel import checkpoint
from dlc_core.diag import Span, UsageError
from dlc_core.ir.convert import convert
from dlc_core.ir.dtype import STRING, DType, dtype
from dlc_core.ir.expr import Expr
from dlc_core.ir.plan import Plan
from dlc_core.ir.structural import Structure, Structured, array_digest
from dlc_core.ir.text import Pickled, Printable
from dlc_core.ir.types import TensorType, TupleType, Type, tensor_type
from dlc_core.support.record import record


class Op:
    """An operator. `op.declare.OpDecl` adds inference, reference, lowering and samples."""

    __slots__ = ("__weakref__", "name")

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<op {self.name}>"


PARAM, CONST, TUPLE, GET = Op("param"), Op("const"), Op("tuple"), Op("get")
CALL, CALL_PRIM = Op("call"), Op("call_prim")
STRUCTURAL = {op.name: op for op in (PARAM, CONST, TUPLE, GET, CALL, CALL_PRIM)}


class Array(Structured, Pickled):
    """A constant's data by reference. Arrays are compared by identity, so that weights are never copied or
    hashed.

    Arrays of at most 64 bytes are compared by content, so that equal scalars are one node. Raises UsageError
    for an array of Python objects, because their bytes are addresses. The op `texts` makes constant texts.
    """

    __slots__ = ("_digest", "_key", "data")
    INLINE_BYTES = 64

    def __init__(self, data: np.ndarray[Any, Any]) -> None:
        if data.dtype.hasobject:
            raise UsageError("a constant of texts", hint="make it by the op `texts`")
        self.data = data
        self._digest = ""
        small = data.nbytes <= self.INLINE_BYTES
        self._key: Any = (data.dtype.str, str(data.dtype), data.shape, data.tobytes()) if small else id(data)

    @property
    def type(self) -> TensorType:
        return tensor_type(self.data.shape, dtype(self.data.dtype))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Array) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"Array({self.type})"

    def digest(self) -> str:
        """SHA-256 of the content, computed on first use."""
        if not self._digest:
            self._digest = array_digest(self.data)
        return self._digest

    def structure(self) -> Structure:
        return Structure(f"array {self.type} {self.digest()}")


_interned: weakref.WeakValueDictionary[tuple[Any, ...], Node] = weakref.WeakValueDictionary()
_current_spans: ContextVar[tuple[Span, ...]] = ContextVar("dlc_current_spans", default=())


class GraphContext:
    """The scope in which equal nodes are one node: the import of one model and its compile.

    A merged node keeps the spans of all its model nodes. Equal nodes of two contexts stay separate, so that
    an error in one model does not name nodes of another one.
    """

    __slots__ = ("__weakref__",)


_current_context: ContextVar[GraphContext | None] = ContextVar("dlc_graph_context", default=None)


@contextmanager
def using_context(context: GraphContext | None) -> Iterator[None]:
    """Nodes without arguments that are built inside belong to this context. None is the default context, for
    graphs that are not imported.
    """
    token = _current_context.set(context)
    try:
        yield
    finally:
        _current_context.reset(token)


MAX_SPANS = 512
"""The maximum spans of a node. Keeping all spans would take quadratic time if a long chain of nodes is
merged."""


def merged_spans(known: tuple[Span, ...], more: Iterable[Span]) -> tuple[Span, ...]:
    """The spans of both, each once; at most MAX_SPANS of them."""
    if len(known) >= MAX_SPANS:
        return known
    seen = known if len(known) < 8 else frozenset(known)
    new = tuple(s for s in more if s not in seen)
    return (known + new)[:MAX_SPANS] if new else known


class Node(Structured, Pickled):
    """A value of the graph.  Build it with `node(...)`; never mutate it (its spans excepted)."""

    __slots__ = ("__weakref__", "args", "attrs", "context", "has_functions", "op", "spans", "type")
    op: Op
    args: tuple[Node, ...]
    attrs: Mapping[str, Any]
    type: Type
    spans: tuple[Span, ...]
    context: GraphContext | None
    has_functions: bool
    """Whether this node or one that it depends on has a function among its attributes."""

    @property
    def shape(self) -> tuple[Any, ...]:
        """The dims of a tensor-typed node."""
        return self.tensor_type.shape

    @property
    def dtype(self) -> DType:
        return self.tensor_type.dtype

    @property
    def tensor_type(self) -> TensorType:
        if not isinstance(self.type, TensorType):
            raise UsageError(f"{self.op.name} returns a tuple, not a tensor", spans=self.spans)
        return self.type

    def add_spans(self, spans: Iterable[Span]) -> None:
        """Record further model nodes that this node came from. At most MAX_SPANS are kept."""
        self.spans = merged_spans(self.spans, spans)

    def structure(self) -> Structure:
        if self.op is PARAM:
            return Structure("param", [(".type", self.type)], role=True)
        args = [(f".args[{i}]", arg) for i, arg in enumerate(self.args)]
        return Structure(self.op.name, [*args, (".attrs", self.attrs), (".type", self.type)])

    def __repr__(self) -> str:
        label = self.attrs.get("name", "") if self.op is PARAM else ""
        return f"<{self.op.name} {label}{': ' if label else ''}{self.type}>"


@record(frozen=True, eq=False)
class Function(Printable):
    """A closed graph.  `params` are param nodes, `body` any node (a tuple node for several results).

    `attrs["inputs"]`/`attrs["outputs"]` hold the public names where the function is a model's entry.
    """

    name: str
    params: tuple[Node, ...]
    body: Node
    attrs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def results(self) -> tuple[Node, ...]:
        """The result values: one for each field of a tuple body."""
        return self.body.args if self.body.op is TUPLE else (self.body,)

    def with_body(self, body: Node) -> Function:
        return replace(self, body=body)

    def with_attrs(self, **attrs: Any) -> Function:
        return replace(self, attrs=MappingProxyType({**self.attrs, **attrs}))


def attr_key(value: Any) -> Any:
    """A hashable key that distinguishes values which Python's equality does not.

    >>> attr_key(1) == attr_key(True), attr_key(0.0) == attr_key(-0.0)
    (False, False)
    """
    if isinstance(value, float):
        return ("f", struct.pack("<d", value))
    if isinstance(value, tuple):
        return ("t", *map(attr_key, value))
    if isinstance(value, (Expr, Printable)):
        return ("o", id(value))
    if isinstance(value, Plan):
        name, values = value.described()
        return ("p", type(value), name, *((field, attr_key(each)) for field, each in values.items()))
    return (type(value).__name__, value)


def freeze_attr(value: Any) -> Any:
    """The canonical immutable form: lists become tuples, NumPy scalars Python numbers, arrays `Array`.

    Graph functions and tensor programs stay as they are.
    """
    if isinstance(value, (list, tuple)):
        return tuple(freeze_attr(item) for item in value)
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    if isinstance(value, np.ndarray):
        return Array(value)
    if isinstance(value, np.dtype):
        return dtype(value)
    if value is None or isinstance(
        value, (bool, int, float, str, bytes, DType, Array, Expr, Printable, TensorType, Plan)
    ):
        return value
    raise UsageError(
        f"{type(value).__name__} cannot be an attribute", hint="use numbers, strings, tuples, arrays, dtypes"
    )


def node(op: Op, args: Sequence[Node], attrs: Mapping[str, Any], type_: Type) -> Node:
    """The interned node with these fields; a new one if there is none. The current spans are added to it."""
    frozen = {name: freeze_attr(value) for name, value in sorted(attrs.items())}
    # The key holds args and op by identity. They live at least as long as the node, and so as the entry.
    # A node with arguments belongs to the context of its arguments.
    context = args[0].context if args else _current_context.get()
    fields = tuple((name, attr_key(value)) for name, value in frozen.items())
    key = (op, tuple(args) or context, fields, type_)
    spans = _current_spans.get()
    found = _interned.get(key)
    if found is None:
        fresh = object.__new__(Node)
        fresh.op, fresh.args, fresh.attrs, fresh.type = op, tuple(args), MappingProxyType(frozen), type_
        fresh.spans, fresh.context = spans, context
        fresh.has_functions = any(arg.has_functions for arg in fresh.args) or any(
            isinstance(value, Function) for value in frozen.values()
        )
        found = _interned.setdefault(key, fresh)
    if found.spans is not spans:
        found.add_spans(spans)
    return found


def param(name: str, type_: Type) -> Node:
    """A fresh function argument. Two calls return two params."""
    fresh = object.__new__(Node)
    fresh.op, fresh.args, fresh.type = PARAM, (), type_
    fresh.attrs = MappingProxyType({"name": name})
    fresh.has_functions = False
    fresh.spans, fresh.context = _current_spans.get(), _current_context.get()
    return fresh


def constant(value: Any, dtype_: Any = None) -> Node:
    """A constant tensor. Arrays are kept by reference and must not be changed afterwards."""
    if isinstance(value, Array):
        array = value
    else:
        wanted = None if dtype_ is None else dtype(dtype_)
        if wanted is not None and wanted.decl is not None:
            array = Array(convert(value, wanted))
        else:
            array = Array(np.asarray(value, dtype=None if wanted is None else wanted.numpy))
    return node(CONST, (), {"value": array}, array.type)


def make_tuple(values: Sequence[Node]) -> Node:
    return node(TUPLE, values, {}, TupleType(tuple(v.type for v in values)))


def get_item(value: Node, index: int) -> Node:
    """Field `index` of a tuple-typed node."""
    if not isinstance(value.type, TupleType) or not 0 <= index < len(value.type.fields):
        raise UsageError(f"no field {index} in a value of type {value.type}", spans=value.spans)
    return (
        value.args[index]
        if value.op is TUPLE
        else node(GET, (value,), {"index": index}, value.type.fields[index])
    )


def call_function(function: Function, args: Sequence[Node]) -> Node:
    """A call of a closed function, such as a fused group."""
    return node(CALL, args, {"function": function}, function.body.type)


def involves_texts(value: Node) -> bool:
    """Whether a node's result or one of its arguments is a tensor of texts. Only the host can compute such a
    node."""
    if value.op is PARAM:
        return False
    types: list[Type] = [value.type, *(arg.type for arg in value.args)]
    while types:
        type_ = types.pop()
        if isinstance(type_, TupleType):
            types += type_.fields
        elif type_.dtype is STRING:
            return True
    return False


def const_array(value: Node) -> np.ndarray[Any, Any] | None:
    """The array of a const node; None for other nodes, and for declared dtypes, which NumPy does not compute
    in."""
    if value.op is not CONST or value.dtype.decl is not None:
        return None
    array: np.ndarray[Any, Any] = value.attrs["value"].data
    return array


@contextmanager
def spanned(spans: Iterable[Span]) -> Iterator[None]:
    """Nodes built inside get these spans, in addition to those of an enclosing `spanned`."""
    outer = _current_spans.get()
    token = _current_spans.set(merged_spans(outer, spans))
    try:
        yield
    finally:
        _current_spans.reset(token)


def functions_of(value: Node) -> list[Function]:
    """Functions among a node's attributes (bodies of control flow, fused groups)."""
    if not value.has_functions:
        return []
    return [attr for attr in value.attrs.values() if isinstance(attr, Function)]


NODES_BETWEEN_CHECKPOINTS = 64


def post_order(*roots: Node) -> Iterator[Node]:
    """Every distinct node once, arguments first. Iterative. Functions in attributes are not visited."""
    opened: set[Node] = set()
    done: set[Node] = set()
    stack = list(reversed(roots))
    while stack:
        current = stack.pop()
        if current not in opened:
            opened.add(current)
            if current.args:
                # The node comes after its arguments. Further entries of it lie below this one.
                stack.append(current)
                stack.extend([arg for arg in reversed(current.args) if arg not in opened])
                continue
        elif current in done:
            continue
        done.add(current)
        if not len(done) % NODES_BETWEEN_CHECKPOINTS:
            checkpoint()
        yield current


def nodes_of(*functions: Function) -> Iterator[Node]:
    """The nodes of functions and of all functions among their attributes. Each function is visited once."""
    seen: set[int] = set()
    pending = list(reversed(functions))
    while pending:
        function = pending.pop()
        if id(function) not in seen:
            seen.add(id(function))
            for current in post_order(function.body):
                pending.extend(functions_of(current))
                yield current


def context_of(function: Function) -> GraphContext | None:
    """The context of a function: that of its params, or that of its body if it has none."""
    return function.params[0].context if function.params else function.body.context


def users_of(*roots: Node) -> dict[Node, list[Node]]:
    """Map each reachable node to the nodes that use it, in post order. There is one entry for each use."""
    users: dict[Node, list[Node]] = {}
    for current in post_order(*roots):
        users.setdefault(current, [])
        for arg in current.args:
            users[arg].append(current)
    return users


def rewrite(root: Node, visit: Any, memo: dict[Node, Node] | None = None) -> Node:
    """Rebuild a graph bottom-up.

    `visit(old, args)` gets a node and its rebuilt arguments. It returns the replacement, or None to keep the
    node (rebuilt if its arguments changed). Nodes that it builds inherit the old node's spans.
    """
    memo = {} if memo is None else memo
    for old in post_order(root):
        if old in memo:
            continue
        checkpoint()
        args = tuple([memo[arg] for arg in old.args])
        token = _current_spans.set(old.spans)
        try:
            new = visit(old, args)
            if new is None:
                new = old if args == old.args else node(old.op, args, old.attrs, old.type)
        finally:
            _current_spans.reset(token)
        if new is not old:
            new.add_spans(old.spans)
        memo[old] = new
    return memo[root]


@contextmanager
def only_spans(spans: tuple[Span, ...]) -> Iterator[None]:
    """Nodes built inside get only these spans, not those of an enclosing `spanned`."""
    token = _current_spans.set(spans)
    try:
        yield
    finally:
        _current_spans.reset(token)
