"""The rules for the graphs of portable models, which may come from anybody.

A portable model has graphs of declared ops only. It has no tensor programs, no calls of foreign functions, no
plans and no fused groups: these name code, or promise facts that kernels rely on. The recorded types are
those that inference gives. The size of every expression, the depth of functions inside of functions, and the
number of nodes after inlining are limited, because passes take time in proportion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from dlc_core.diag import ArtifactError, DlcError, LimitError, Span, UnsupportedError
from dlc_core.graph.data_dims import DATA_DIMS, ELEMENTS
from dlc_core.graph.dims import CONDITIONS
from dlc_core.graph.limits import check_limits
from dlc_core.graph.node import CALL, CALL_PRIM, STRUCTURAL, Function, Node, functions_of, post_order
from dlc_core.graph.verify import verify_module
from dlc_core.ir.conditions import KINDS
from dlc_core.ir.expr import Binary, Cast, Const, Expr, Select, Unary, Var, free_vars
from dlc_core.ir.expr import post_order as expr_post_order
from dlc_core.ir.module import IRModule
from dlc_core.ir.plan import PLAN
from dlc_core.ir.types import TensorType, TupleType, Type
from dlc_core.limits import check_nodes
from dlc_core.op.declare import OpDecl, foreign_attrs
from dlc_core.passes.graph.check_module import check_module

EXPRS = (Var, Const, Unary, Binary, Cast, Select)
"""The classes of expressions that dims consist of."""
_MAX_TERMS = 4096
"""The most terms of an expression, each counted as often as it is used."""
_MAX_DEPTH = 128
"""The deepest nesting of an expression."""
_MAX_NESTING = 48
"""The deepest nesting of functions."""
_MAX_NAME = 4096
"""The most characters of a name."""
_NAMES = ("inputs", "outputs")
"""Attributes of functions with the names of params and results."""
_HINT = "dlc.compile and exe.save make a file with code"


def check_portable(module: IRModule) -> None:
    """Raise an error unless a portable model may consist of this module: UnsupportedError for what it may not
    have, ArtifactError for malformed attributes, LimitError for what exceeds a limit, and the errors of the
    verifiers.
    """
    for name, value in module.attrs.items():
        fits = isinstance(name, str) and (isinstance(value, str) or (type(value) is int and value >= 0))
        _expect(fits, "an attribute of the module is no text or number")
    _expect(module.entry in module.functions, f"there is no function {module.entry!r}, which is the entry")
    for name, function in module.functions.items():
        if not isinstance(function, Function):
            raise _refused(
                f"the tensor program {name!r}", "kernels of tensor programs rely on their schedules"
            )
    exprs = _Exprs()
    for function in _functions(module):
        _check_function(function, exprs)
    check_nodes(_unfolded(module))
    check_limits(module)
    check_module(module)
    verify_module(module, infer=_inferred)


def _inferred(value: Node) -> Type | None:
    if not isinstance(value.op, OpDecl):
        return None
    return value.op.infer_type([arg.type for arg in value.args], value.attrs, value.args)


def _functions(module: IRModule) -> Iterator[Function]:
    """Every function of a module once, those inside of functions included."""
    seen: set[int] = set()
    work = [(function, 0) for function in module.functions.values()]
    while work:
        function, depth = work.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        if depth > _MAX_NESTING:
            raise LimitError(f"functions are nested more than {_MAX_NESTING} deep")
        yield function
        for node in post_order(function.body):
            work += [(inner, depth + 1) for inner in functions_of(node)]


def _check_function(function: Function, exprs: _Exprs) -> None:
    _check_name(function.name)
    for name, value in function.attrs.items():
        check = _FUNCTION_ATTRS.get(name)
        if check is None:
            raise _refused(f"the attribute {name!r} of {function.name}", "it is one that passes set")
        check(function, value, exprs)
    for param in function.params:
        exprs.check_type(param.type, param.spans)
    for node in post_order(function.body):
        exprs.check_type(node.type, node.spans)
        _check_node(node, exprs)


def _check_node(node: Node, exprs: _Exprs) -> None:
    if PLAN in node.attrs:
        raise _refused("a plan", "plans choose kernels", node.spans)
    if node.op is CALL:
        raise _refused("a call of a fused group", "passes make groups", node.spans)
    if isinstance(node.op, OpDecl):
        kinds = {attr.kind for attr in node.op.attrs.values()}
        if "program" in kinds:
            raise _refused("a call of a tensor program", "kernels rely on its schedule", node.spans)
        if foreign_attrs(node.op):
            raise _refused("a call of a foreign function", "it could pass any sizes", node.spans)
    elif node.op.name not in STRUCTURAL:
        raise UnsupportedError(f"the op {node.op.name!r} is not declared", spans=node.spans)
    for value in node.attrs.values():
        exprs.check_value(value, node.spans)


def _unfolded(module: IRModule) -> int:
    """The number of nodes after all calls by name and all functions inside of functions are expanded."""
    counts: dict[int, int] = {}
    work: list[tuple[Function, bool]] = [(function, False) for function in module.functions.values()]
    open_: set[int] = set()
    while work:
        function, expanded = work.pop()
        if id(function) in counts:
            continue
        nodes = list(post_order(function.body))
        callees = [callee for node in nodes for callee in _callees(node, module)]
        if expanded:
            counts[id(function)] = len(nodes) + sum(counts[id(callee)] for callee in callees)
            open_.discard(id(function))
            continue
        if id(function) in open_:
            raise _refused(f"the recursive function {function.name!r}", "it might never end")
        open_.add(id(function))
        work.append((function, True))
        work += [(callee, False) for callee in callees]
    return sum(counts[id(function)] for function in module.functions.values())


def _callees(node: Node, module: IRModule) -> list[Function]:
    if node.op is not CALL_PRIM:
        return functions_of(node)
    found = module.functions.get(str(node.attrs.get("symbol")))
    return [found] if isinstance(found, Function) else []


class _Exprs:
    """Checks of expressions and types; each expression is checked once."""

    def __init__(self) -> None:
        self._sizes: dict[Expr, tuple[int, int]] = {}
        self._types: set[int] = set()

    def check_type(self, type_: Any, spans: Iterable[Span] = ()) -> None:
        """Check the dims of a type."""
        if isinstance(type_, TupleType):
            for field in type_.fields:
                if isinstance(field, TupleType):
                    raise _refused("a tuple in a tuple", "no op gives one", spans)
                self.check_type(field, spans)
            return
        _expect(isinstance(type_, TensorType), "a type is none")
        if id(type_) in self._types:
            return
        for dim in type_.shape:
            if isinstance(dim, Expr):
                self.check_expr(dim, spans)
                _expect(dim.dtype.name == "int64", f"a dim is a {dim.dtype}", spans)
            else:
                _expect(type(dim) is int and dim >= 0, f"a dim is {dim!r}", spans)
        self._types.add(id(type_))

    def check_value(self, value: Any, spans: Iterable[Span] = ()) -> None:
        """Check the expressions in an attribute. The numbers and texts in it are checked by its op."""
        if isinstance(value, Expr):
            self.check_expr(value, spans)
        elif isinstance(value, tuple):
            for item in value:
                self.check_value(item, spans)
        elif isinstance(value, TensorType):
            self.check_type(value, spans)

    def check_expr(self, root: Expr, spans: Iterable[Span] = ()) -> None:
        """Check an expression: its classes, dtypes, names and size."""
        if root in self._sizes:
            return
        for each in expr_post_order(root):
            if each in self._sizes:
                continue
            if not isinstance(each, EXPRS):
                raise _refused(f"a {type(each).__name__.lower()} in a dim", "a dim is arithmetic", spans)
            _expect(each.dtype.lanes == 1 and each.dtype.kind != "handle", "a dim is a vector", spans)
            if isinstance(each, Var):
                _check_name(each.name)
            parts = [self._sizes[child] for child in each.children]
            terms = 1 + sum(size for size, _ in parts)
            depth = 1 + max((level for _, level in parts), default=0)
            if terms > _MAX_TERMS or depth > _MAX_DEPTH:
                raise LimitError(
                    f"a dim has more than {_MAX_TERMS} terms, or is nested more than {_MAX_DEPTH} deep",
                    spans=spans,
                )
            self._sizes[each] = terms, depth


def _check_names(function: Function, value: Any, exprs: _Exprs) -> None:
    del exprs
    _expect(isinstance(value, tuple), f"the names of {function.name} are malformed")
    for name in value:
        _check_name(name)


def _check_inputs(function: Function, value: Any, exprs: _Exprs) -> None:
    _check_names(function, value, exprs)
    _expect(len(value) == len(function.params), f"{function.name} has other numbers of params and names")


def _check_outputs(function: Function, value: Any, exprs: _Exprs) -> None:
    _check_names(function, value, exprs)
    fields = function.body.type.fields if isinstance(function.body.type, TupleType) else (function.body,)
    _expect(len(value) == len(fields), f"{function.name} has other numbers of results and names")


def _check_conditions(function: Function, value: Any, exprs: _Exprs) -> None:
    for row in _rows(function, value, 5):
        kind, left, right, why, where = row
        _expect(kind in KINDS and isinstance(why, str) and isinstance(where, str), "a condition is malformed")
        for side in (left, right):
            _expect(type(side) is int or isinstance(side, Expr), "a condition is malformed")
            exprs.check_value(side)


def _check_elements(function: Function, value: Any, exprs: _Exprs) -> None:
    known = {param.attrs.get("name"): param for param in function.params}
    known.update(zip(function.attrs.get("inputs", ()), function.params))
    for var, name, index in _rows(function, value, 3):
        type_ = known[name].type if name in known else None
        shape = type_.static_shape() if isinstance(type_, TensorType) else None
        fits = isinstance(var, Var) and shape is not None and type(index) is int
        _expect(fits and 0 <= index < math.prod(shape or ()), "an element that defines a dim is in no input")
        exprs.check_expr(var)


def _check_data_dims(function: Function, value: Any, exprs: _Exprs) -> None:
    known = {var for param in function.params for var in param.tensor_type.symbols()}
    known.update(row[0] for row in _rows(function, function.attrs.get(ELEMENTS, ()), 3))
    for var, expr, what in _rows(function, value, 3):
        fits = isinstance(var, Var) and isinstance(expr, Expr) and isinstance(what, str)
        fits = fits and var not in known and expr.dtype.name == "int64"
        _expect(fits, "the definition of a dim is malformed")
        exprs.check_expr(var)
        exprs.check_expr(expr)
        _expect(known.issuperset(free_vars(expr)), "a dim is defined by unknown ones")
        known.add(var)


def _rows(function: Function, value: Any, columns: int) -> tuple[tuple[Any, ...], ...]:
    fits = isinstance(value, tuple) and all(isinstance(row, tuple) and len(row) == columns for row in value)
    _expect(fits, f"an attribute of {function.name} is malformed")
    rows: tuple[tuple[Any, ...], ...] = value
    return rows


_FUNCTION_ATTRS: Mapping[str, Callable[[Function, Any, _Exprs], None]] = {
    "inputs": _check_inputs,
    "outputs": _check_outputs,
    CONDITIONS: _check_conditions,
    ELEMENTS: _check_elements,
    DATA_DIMS: _check_data_dims,
}
"""The attributes that frontends give functions, each with its check."""


def _check_name(name: Any) -> None:
    _expect(isinstance(name, str) and len(name) <= _MAX_NAME, "a name is no text, or too long")


def _expect(fits: bool, why: str, spans: Iterable[Span] = ()) -> None:
    if not fits:
        raise ArtifactError(
            "the portable model is malformed", why=why, spans=spans, hint="write the file again"
        )


def _refused(what: str, why: str, spans: Iterable[Span] = ()) -> DlcError:
    return UnsupportedError(f"a portable model may not have {what}", why=why, spans=spans, hint=_HINT)


__all__ = ["EXPRS", "check_portable"]
