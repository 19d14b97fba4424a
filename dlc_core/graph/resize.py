"""Fix, bound and rename the dims of an existing module by `shapes=`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from dlc_core.arith import Analyzer, eval_expr
from dlc_core.diag import UsageError
from dlc_core.graph.data_dims import ELEMENTS
from dlc_core.graph.dims import CONDITIONS
from dlc_core.graph.node import Function, Node, node, param, rewrite
from dlc_core.graph.shapes import Shapes
from dlc_core.ir.bounds import Bounds
from dlc_core.ir.conditions import check_conditions, conditions_of
from dlc_core.ir.expr import Const, Expr, Var, const, free_vars, substitute
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import Dim, TensorType, TupleType, dim


def with_shapes(module: IRModule, given: Mapping[str, Any] | None) -> IRModule:
    """Apply the sizes, bounds and names of `shapes` to the dims of the module's entry (see `Shapes`).

    Raises UsageError if they contradict the module.
    """
    if not given:
        return module
    entry = module.functions.get(module.entry)
    if not isinstance(entry, Function):
        raise UsageError(
            f"shapes are of graphs, and {module.entry!r} is none", hint="give the sizes in the program itself"
        )
    names = tuple(entry.attrs.get("inputs") or (p.attrs["name"] for p in entry.params))
    types = dict(zip(names, (p.tensor_type for p in entry.params), strict=True))
    declared = {n: tuple(d if isinstance(d, int) else str(d) for d in t.shape) for n, t in types.items()}
    dims = dict.fromkeys(d for t in types.values() for d in t.shape if isinstance(d, Expr))
    bounds = {d.name: d.bounds for d in dims if isinstance(d, Var) and d.bounds}
    shapes = Shapes(given, declared, {str(d) for d in dims if not isinstance(d, Var)}, bounds)
    shapes.check_used()
    sizes: dict[Var, Expr] = {}
    made: dict[str, Expr] = {}
    for var in dims:
        if isinstance(var, Var):
            size, name = shapes.size(var.name), shapes.name(var.name)
            if isinstance(size, int):
                sizes[var] = const(size)
            elif name != var.name or size != (var.bounds or Bounds()) or name in shapes.new_names:
                sizes[var] = made.setdefault(name, Var(name, bounds=None if size == Bounds() else size))
    known = {var: int(size.value) for var, size in sizes.items() if isinstance(size, Const)}
    held = conditions_of(entry.attrs.get(CONDITIONS, ()))
    check_conditions([each for each in held if known.keys() >= {*each.dims}], known, eval_expr)
    return module.with_function(module.entry, replace_dims(entry, sizes))


def replace_dims(function: Function, sizes: Mapping[Var, Expr]) -> Function:
    """Replace dims of a function in types and attributes, and in functions among the attributes."""
    if not sizes:
        return function
    inner: dict[Function, Function] = {}
    elements = {var for var, _, _ in function.attrs.get(ELEMENTS, ())}

    def resized(value: Any) -> Any:
        if isinstance(value, Expr):
            return _replaced(value, sizes, elements)
        if isinstance(value, TensorType):
            return TensorType(
                tuple(resized(d) if isinstance(d, Expr) else d for d in value.shape), value.dtype
            )
        if isinstance(value, TupleType):
            return TupleType(tuple(map(resized, value.fields)))
        if isinstance(value, Function):
            if value not in inner:
                inner[value] = replaced(value)
            return inner[value]
        if isinstance(value, (tuple, list)):
            return type(value)(map(resized, value))
        if isinstance(value, Mapping):
            return {key: resized(item) for key, item in value.items()}
        return value

    def visit(old: Node, args: tuple[Node, ...]) -> Node:
        return node(old.op, args, resized(old.attrs), resized(old.type))

    def replaced(one: Function) -> Function:
        params = tuple(param(p.attrs["name"], resized(p.type)) for p in one.params)
        body = rewrite(one.body, visit, dict(zip(one.params, params, strict=True)))
        return Function(one.name, params, body, MappingProxyType(resized(one.attrs)))

    return replaced(function)


def _replaced(size: Expr, sizes: Mapping[Var, Expr], elements: Collection[Var]) -> Dim:
    """Replace dims in an expression, and simplify it if it changes. `elements` may be negative."""
    made = substitute(size, sizes)
    if made is size or isinstance(made, Var):
        return made
    analyzer = Analyzer()
    for var in free_vars(made):
        if var not in elements:
            analyzer.declare_dim(var, low=0)
    return dim(analyzer.simplify(made))


__all__ = ["replace_dims", "with_shapes"]
