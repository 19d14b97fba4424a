"""fold_constants: evaluate nodes that depend on constants only.

Law: the function computes the same values, bit for bit as the reference does.

    add(c1, c2)                       =>      constant(c1 + c2)
    full(shape=(64, 3, 7, 7), v=0.1)  =>      a constant whose elements share one memory location
    if_(True, x, then_branch=f, …)    =>      f(x)

A result larger than `max_bytes` is folded only if its operands together are at least as large. So a broadcast
does not become an array. A node below such results is folded by the same rule, with the constants that it
depends on as operands, so that a small sum of a large table of sines is computed at compile time. Views
(transposes, reshapes) of constants stay views.

Evaluation has a budget: a node that takes more than `max_work` operations, with the tables below it, stays in
the program. Sums, means and extremes of a tensor whose elements are all equal are computed from one element
then, so that a reduction of a large filled tensor costs nothing in a call either.

A contraction reads its operands from memory. So an operand that each call would gather or reduce from
constants is folded up to `constants.operand_bytes`, unless a broadcast has enlarged it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dlc_core.diag import PassError
from dlc_core.graph.dims import CONDITIONS
from dlc_core.graph.node import (
    CONST,
    GET,
    TUPLE,
    Function,
    Node,
    const_array,
    constant,
    functions_of,
    get_item,
    make_tuple,
    node,
    rewrite,
)
from dlc_core.ir.convert import convert
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, free_vars
from dlc_core.ir.types import TensorType, TupleType, Type, static_bytes
from dlc_core.op.declare import NDArray, OpDecl
from dlc_core.op.reference import Value, apply
from dlc_core.op.std import BY_NAME
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.passes.graph.inline import inlined
from dlc_core.passes.heuristics import CONSTANTS
from dlc_core.runtime.memory.mapped import drop_pages
from dlc_core.support.record import record

IF = BY_NAME["if_"]
EQUAL_REDUCTIONS = frozenset(BY_NAME[f"reduce_{name}"] for name in ("sum", "mean", "max", "min"))
"""Reductions whose result for equal elements follows from one of them."""
GATHERING = frozenset(BY_NAME[name] for name in ("gather", "gather_elements", "gather_nd", "one_hot"))
"""Ops that are not fused into a contraction, beside reductions and contractions."""


MAX_DEPTH = 64
"""The most tables in a row, from a constant on: evaluation is recursive."""


class _Chain(NamedTuple):
    """The constants that a table depends on, the number of tables in a row down to one of them, and the bytes
    of the largest table that is not fused into a contraction. `work` are the operations of all tables.
    """

    constants: tuple[Node, ...]
    depth: int
    separate: int
    work: int


@record(frozen=True)
class FoldConstants(GraphPass):
    """Evaluate nodes that depend on constants only; results larger than their operands have at most
    `max_bytes`.  None takes the heuristic `constants.folded_bytes`."""

    name: ClassVar[str] = "fold_constants"
    min_level: ClassVar[int] = 1
    drops_spans: ClassVar[bool] = True
    max_bytes: int | None = None
    max_work: int = 1 << 27

    def run_function(self, function: Function, context: PassContext) -> Function:
        tables = _Tables(self.max_work)
        operand_bytes = _operand_bytes(context)

        def fold(old: Node, args: tuple[Node, ...]) -> Node | None:
            folded = self._fold(old, args, tables)
            return _with_operands(old, args, tables, operand_bytes) if folded is None else folded

        body = rewrite(function.body, fold)
        return function if body is function.body else function.with_body(body)

    def _fold(self, old: Node, args: tuple[Node, ...], tables: _Tables) -> Node | None:
        if old.op is GET and args[0].op is TUPLE:
            return get_item(args[0], old.attrs["index"])
        if old.op is IF and args[0].op is CONST:
            return _chosen_branch(old, args)
        if not tables.evaluable(args) or not _foldable(old):
            return None
        size = static_bytes(old.type)
        assert size is not None
        if old.op is BY_NAME["full"]:
            return _filled(old) if size <= CONSTANTS.filled_bytes else None
        given = sum(array.nbytes for c in tables.constants(args) if (array := const_array(c)) is not None)
        most = CONSTANTS.folded_bytes if self.max_bytes is None else self.max_bytes
        if size > max(most, CONSTANTS.growth * given):
            return None
        if tables.work(args) + _work(old) > self.max_work:
            return _of_equal_elements(old, args)
        return tables.folded(old, args)


def _operand_bytes(context: PassContext) -> int:
    """The most bytes of a folded operand. Targets with small caches have little memory for constants."""
    if context.target is None:
        return CONSTANTS.operand_bytes
    caches = context.target.describe().caches
    return min(CONSTANTS.operand_bytes, CONSTANTS.operand_caches * max(caches, default=0))


def _with_operands(old: Node, args: tuple[Node, ...], tables: _Tables, operand_bytes: int) -> Node | None:
    """A contraction with folded operands; None if there are none to fold."""
    if not isinstance(old.op, OpDecl) or old.op.kind != "contraction":
        return None
    new = tuple(
        tables.folded(arg, arg.args) if tables.is_operand(arg, operand_bytes) else arg for arg in args
    )
    return None if new == args else node(old.op, new, old.attrs, old.type)


def _foldable(node: Node) -> bool:
    """Whether a node can be evaluated once its operands are known."""
    decl = node.op
    if not isinstance(decl, OpDecl) or not decl.pure or functions_of(node):
        return False
    if decl is BY_NAME["call_tir"]:  # its reference is an interpreter, too slow for large tensors
        return False
    return static_bytes(node.type) is not None and not any(map(_depends_on_dims, node.attrs.values()))


def _work(node: Node) -> int:
    """The operations of evaluating a node with static shapes."""
    made, *given = (_elements(each.type) for each in (node, *node.args))
    if isinstance(node.op, OpDecl) and node.op.kind == "contraction" and len(given) > 1:
        return math.isqrt(made * given[0] * given[1])
    return made + sum(given)


def _elements(type_: Type) -> int:
    fields = type_.fields if isinstance(type_, TupleType) else (type_,)
    shapes = [f.static_shape() for f in fields if isinstance(f, TensorType)]
    return sum(math.prod(shape) for shape in shapes if shape is not None)


def _of_equal_elements(old: Node, args: tuple[Node, ...]) -> Node | None:
    """A reduction of a constant whose elements share one memory location, from this element; else None."""
    array = const_array(args[0]) if args else None
    if old.op not in EQUAL_REDUCTIONS or array is None or not array.size or any(array.strides):
        return None
    type_ = old.type
    assert isinstance(type_, TensorType)
    shape = type_.static_shape()
    assert shape is not None
    one: NDArray = array[(0,) * array.ndim]
    if old.op is BY_NAME["reduce_sum"]:
        count = array.size // math.prod(shape)
        # Integers wrap around; floats are rounded once.
        exact = np.float64(one) * count if type_.dtype.is_float else int(one) * count
        one = convert(_wrapped(exact, type_.dtype), type_.dtype)
    return constant(np.broadcast_to(np.asarray(one), shape))


def _wrapped(value: Any, dtype: DType) -> Any:
    """An exact integer modulo the width of its dtype; floats are unchanged."""
    if dtype.is_float:
        return value
    low = value % (1 << 8 * dtype.itemsize)
    return low - (1 << 8 * dtype.itemsize) if dtype.kind == "int" and low >> (8 * dtype.itemsize - 1) else low


def _result(node: Node, args: Sequence[Value]) -> Value:
    """The value of a node whose operands have these values."""
    decl = node.op
    assert isinstance(decl, OpDecl)
    try:
        return apply(decl, args, node.attrs, node.type)
    except Exception as error:
        raise PassError(f"{decl.name} of constants fails: {error}", spans=node.spans) from error


class _Tables:
    """Results that depend on constants only and are too large to be folded: their constants and values.

    A table has at most `CONSTANTS.table_bytes`, and so have the values that are kept for a next user.
    """

    def __init__(self, max_work: int) -> None:
        self._max_work = max_work
        self._chains: dict[Node, _Chain | None] = {}
        self._values: dict[Node, Value] = {}
        self._bytes = 0

    def evaluable(self, nodes: Sequence[Node]) -> bool:
        """Whether all the nodes are constants or tables."""
        return None not in [self._chain(node) for node in nodes]

    def constants(self, nodes: Iterable[Node]) -> list[Node]:
        """The distinct constants that evaluable nodes depend on."""
        chains = [self._chain(node) for node in nodes]
        return list(dict.fromkeys(c for chain in chains if chain is not None for c in chain.constants))

    def _chain(self, node: Node) -> _Chain | None:
        chains = self._chains
        pending = [] if node in chains else [node]
        while pending:
            current = pending[-1]
            missing = [arg for arg in current.args if arg not in chains]
            if missing:
                pending += missing
                continue
            if current not in chains:
                chains[current] = self._found(current)
            pending.pop()
        return chains[node]

    def _found(self, node: Node) -> _Chain | None:
        if node.op is CONST:
            return _Chain((node,), 0, 0, 0)
        # Most nodes depend on an input, so this is tested first.
        below = [chain for arg in node.args if (chain := self._chains[arg]) is not None]
        if len(below) < len(node.args) or not _foldable(node):
            return None
        if (static_bytes(node.type) or 0) > CONSTANTS.table_bytes:
            return None
        assert isinstance(node.op, OpDecl)
        if node.op.kind == "opaque":  # its reference may be a loop in Python, too slow for a table
            return None
        depth = 1 + max((chain.depth for chain in below), default=0)
        work = _work(node) + sum(chain.work for chain in below)
        if depth > MAX_DEPTH or work > self._max_work:
            return None
        separate = max((chain.separate for chain in below), default=0)
        if node.op in GATHERING or node.op.kind in ("reduction", "contraction"):
            separate = max(separate, static_bytes(node.type) or 0)
        return _Chain(tuple(self.constants(node.args)), depth, separate, work)

    def work(self, nodes: Iterable[Node]) -> int:
        """The operations that evaluable nodes take."""
        return sum(chain.work for node in nodes if (chain := self._chain(node)) is not None)

    def is_operand(self, node: Node, most: int) -> bool:
        """Whether a contraction's operand is a table to fold."""
        chain = self._chain(node)
        size = static_bytes(node.type)
        return chain is not None and size is not None and 0 < size <= min(most, chain.separate)

    def folded(self, node: Node, args: Sequence[Node]) -> Node:
        """The constant of a node with evaluable arguments."""
        folded = _constant(_result(node, [self.value(arg) for arg in args]))
        for constant_ in self.constants(args):
            folded.add_spans(constant_.spans)
            drop_pages(constant_.attrs["value"].data)
        return folded

    def value(self, node: Node) -> Value:
        """The value of an evaluable node."""
        if node.op is CONST:
            data: Value = node.attrs["value"].data
            return data
        if node in self._values:
            return self._values[node]
        result = _result(node, [self.value(arg) for arg in node.args])
        self._bytes += static_bytes(node.type) or 0
        if self._bytes > CONSTANTS.table_bytes:
            self._values, self._bytes = {}, static_bytes(node.type) or 0
        self._values[node] = result
        return result


def _chosen_branch(old: Node, args: tuple[Node, ...]) -> Node | None:
    """Inline the branch of a constant condition, if it has the result's type and no conditions on sizes."""
    cond = const_array(args[0])
    assert cond is not None
    branch: Function = old.attrs["then_branch" if cond.item() else "else_branch"]
    taken = inlined(branch, args[1:])
    return taken if taken.type == old.type and not branch.attrs.get(CONDITIONS) else None


def _depends_on_dims(value: Any) -> bool:
    """Whether an attribute contains symbolic dims."""
    items = value if isinstance(value, tuple) else (value,)
    return any(isinstance(item, Expr) and free_vars(item) for item in items)


def _constant(value: Value) -> Node:
    if isinstance(value, tuple):
        return make_tuple([_constant(item) for item in value])
    return constant(value)


def _filled(old: Node) -> Node:
    type_ = old.type
    assert isinstance(type_, TensorType)
    shape = type_.static_shape()
    assert shape is not None
    one: NDArray = convert(old.attrs["value"], type_.dtype)
    return constant(np.broadcast_to(one, shape))
