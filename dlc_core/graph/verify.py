"""The verifier of graphs.

* A function's parameters are distinct param nodes, and its body uses no others.
* The structural ops have the arguments, attributes and types that `graph/node.py` defines.
* A call's arguments have the types of the called function's parameters. Its type is that of the function's
  body.
* Every other node has the type that inference gives for its arguments (if the caller passes `infer`).
* Functions in attributes satisfy the same rules. The module has its entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dlc_core.arith.analyzer import Analyzer
from dlc_core.diag import DlcError, VerifyError
from dlc_core.graph.node import (
    CALL,
    CALL_PRIM,
    CONST,
    GET,
    PARAM,
    STRUCTURAL,
    TUPLE,
    Array,
    Function,
    Node,
    functions_of,
    post_order,
)
from dlc_core.ir.expr import Expr, Var, free_vars
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import Dim, TensorType, TupleType, Type, symbols_of

MAX_REPORTED = 10
Infer = Callable[[Node], "Type | None"]
"""The type that a node's op infers from its arguments and attributes; None if unknown."""


@dataclass(frozen=True)
class Problem:
    """A violated rule: the node that violates it (None: the function itself) and its function."""

    message: str
    function: Function
    node: Node | None = None


def verify_function(
    function: Function, *, infer: Infer | None = None, module: IRModule | None = None
) -> None:
    """Raise VerifyError if the function violates a rule. It lists up to 10 problems with the spans of their
    nodes.
    """
    problems = list(find_problems(function, infer=infer, module=module))
    if not problems:
        return
    details = [f"{p.message} (in {p.function.name})" for p in problems[:MAX_REPORTED]]
    if len(problems) > MAX_REPORTED:
        details.append(f"… and {len(problems) - MAX_REPORTED} more")
    spans = [span for p in problems[:MAX_REPORTED] if p.node is not None for span in p.node.spans]
    raise VerifyError(
        f"{function.name} violates {len(problems)} rule(s) of the verifier",
        spans=dict.fromkeys(spans),
        details=details,
    )


def verify_module(module: IRModule, *, infer: Infer | None = None) -> None:
    """Apply `verify_function` to every graph function of a module, and check the module's entry."""
    if module.functions and module.entry not in module:
        raise VerifyError(f"the module has no function {module.entry!r}, which is its entry")
    for function in module.of_kind(Function).values():
        verify_function(function, infer=infer, module=module)


def find_problems(
    function: Function, *, infer: Infer | None = None, module: IRModule | None = None
) -> Iterator[Problem]:
    """The violated rules of a function and of functions in its attributes. Each function is checked once."""
    seen: set[Function] = set()
    work = [function]
    while work:
        current = work.pop()
        if current in seen:
            continue
        seen.add(current)
        for message in _param_problems(current):
            yield Problem(message, current)
        own = set(current.params)
        for node in post_order(current.body):
            if node.op is PARAM and node not in own:
                yield Problem(f"param {node.attrs.get('name')!r} belongs to another function", current, node)
            for message in _node_problems(node, infer, module):
                yield Problem(message, current, node)
            work.extend(functions_of(node))


def _param_problems(function: Function) -> Iterator[str]:
    if len(set(function.params)) != len(function.params):
        yield "a parameter occurs twice"
    for param in function.params:
        if param.op is not PARAM:
            yield f"parameter {param!r} is not a param node"


def _node_problems(node: Node, infer: Infer | None, module: IRModule | None) -> Iterator[str]:
    if node.op.name in STRUCTURAL:
        yield from _structural_problems(node, module)
        return
    if infer is None:
        return
    try:
        inferred = infer(node)
    except DlcError as error:
        yield f"{node.op.name} does not fit its declaration: {error.what}"
        return
    if inferred is not None and not types_agree(inferred, node.type, node.args):
        yield f"{node.op.name} has the type {node.type}, but inference gives {inferred}"


def types_agree(inferred: Type, actual: Type, args: tuple[Node, ...]) -> bool:
    """Whether two types are equal. Dims are compared after simplification; a fresh dim of the inference
    matches any symbol.
    """
    known = {symbol for arg in args for symbol in symbols_of(arg.type)}
    work: list[tuple[Type, Type]] = [(inferred, actual)]
    while work:
        a, b = work.pop()
        if isinstance(a, TupleType) and isinstance(b, TupleType):
            if len(a.fields) != len(b.fields):
                return False
            work.extend(zip(a.fields, b.fields, strict=True))
            continue
        if not isinstance(a, TensorType) or not isinstance(b, TensorType) or a.dtype is not b.dtype:
            return False
        if a.ndim != b.ndim:
            return False
        for left, right in zip(a.shape, b.shape, strict=True):
            if left != right and not _dims_agree(left, right, known):
                return False
    return True


def _dims_agree(inferred: Dim, actual: Dim, known: set[Var]) -> bool:
    fresh = isinstance(inferred, Expr) and known.isdisjoint(free_vars(inferred))
    return (fresh and isinstance(actual, Expr)) or Analyzer().prove_equal(inferred, actual)


def _structural_problems(node: Node, module: IRModule | None) -> Iterator[str]:
    op, types = node.op, [arg.type for arg in node.args]
    if op is PARAM or op is CONST:
        if node.args:
            yield f"{op.name} has arguments"
        if op is CONST:
            value = node.attrs.get("value")
            if not isinstance(value, Array):
                yield "const without an array"
            elif value.type != node.type:
                yield f"const of type {node.type} holds {value.type}"
    elif op is TUPLE:
        if node.type != TupleType(tuple(types)):
            yield f"tuple has the type {node.type}, its values ({', '.join(map(str, types))})"
    elif op is GET:
        yield from _get_problems(node)
    elif op is CALL:
        yield from _call_problems(node)
    elif op is CALL_PRIM:
        symbol = node.attrs.get("symbol")
        if module is not None and symbol not in module:
            yield f"call_prim of {symbol!r}, which the module does not have"


def _get_problems(node: Node) -> Iterator[str]:
    index = node.attrs.get("index")
    if len(node.args) != 1 or not isinstance(node.args[0].type, TupleType):
        yield "get of something that is not one tuple"
    elif not isinstance(index, int) or not 0 <= index < len(node.args[0].type.fields):
        yield f"get of field {index} of {node.args[0].type}"
    elif node.args[0].type.fields[index] != node.type:
        yield f"get has the type {node.type}, the field {node.args[0].type.fields[index]}"


def _call_problems(node: Node) -> Iterator[str]:
    function = node.attrs.get("function")
    if not isinstance(function, Function):
        yield "call without a function"
        return
    if len(function.params) != len(node.args):
        yield f"call of {function.name} with {len(node.args)} arguments, it takes {len(function.params)}"
    for param, arg in zip(function.params, node.args):
        if param.type != arg.type:
            yield f"argument {param.attrs.get('name')!r} of {function.name} is {arg.type}, not {param.type}"
    if node.type != function.body.type:
        yield f"call of {function.name} has the type {node.type}, its body {function.body.type}"
