"""Walking and rebuilding expressions. All walks are iterative, because expressions may be deep."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from dlc_core.ir.expr.grammar import Buffer, Const, Expr, Load, Var
from dlc_core.ir.expr.make import load


def post_order(*roots: Expr) -> list[Expr]:
    """Every distinct subexpression once, operands first. Iterative."""
    done: dict[Expr, None] = {}
    for root in roots:
        stack = [root]
        while stack:
            expr = stack[-1]
            if expr not in done:
                waiting: list[Expr] = []
                for child in expr.children:
                    if child in done:
                        continue
                    # Leaves do not wait, unless an operand before them does.
                    if not waiting and (type(child) is Const or type(child) is Var):
                        done[child] = None
                    else:
                        waiting.append(child)
                if waiting:
                    waiting.reverse()
                    stack += waiting
                    continue
                done[expr] = None
            stack.pop()
    return list(done)


def transform(root: Expr, visit: Callable[[Expr], Expr | None], memo: dict[Expr, Expr] | None = None) -> Expr:
    """Rebuild bottom-up. `visit` gets each node with rebuilt operands, and returns a replacement or None.

    Results in `memo` are reused.
    """
    memo = {} if memo is None else memo
    stack = [root]
    while stack:
        expr = stack[-1]
        if expr in memo:
            stack.pop()
            continue
        rebuilt, children = expr, expr.children
        if children:
            waiting = [child for child in children if child not in memo]
            if waiting:
                waiting.reverse()
                stack += waiting
                continue
            rebuilt = expr.rebuild([memo[child] for child in children])
        memo[expr] = rebuilt if (new := visit(rebuilt)) is None else new
        stack.pop()
    return memo[root]


def substitute(
    root: Expr,
    values: Mapping[Var, Expr],
    buffers: Mapping[Buffer, Buffer] | None = None,
    memo: dict[Expr, Expr] | None = None,
) -> Expr:
    """Replace variables, and the buffers of loads. Calls with equal replacements may share a memo."""
    if type(root) is Var:
        return values.get(root, root)
    if not mentions(root, values, buffers):
        return root
    memo = {} if memo is None else memo
    stack = [root]
    while stack:
        expr = stack[-1]
        if expr in memo:
            stack.pop()
            continue
        if type(expr) is Var:
            memo[expr] = values.get(expr, expr)
        elif type(expr) is Const or not mentions(expr, values, buffers):
            memo[expr] = expr
        else:
            children = expr.children
            waiting = [child for child in children if child not in memo]
            if waiting:
                waiting.reverse()
                stack += waiting
                continue
            new = expr.rebuild([memo[child] for child in children])
            if buffers and type(new) is Load and new.buffer in buffers:
                new = load(buffers[new.buffer], new.indices)
            memo[expr] = new
        stack.pop()
    return memo[root]


def mentions(root: Expr, variables: Container[Var], buffers: Container[Buffer] | None = None) -> bool:
    """Whether one of the variables or, by a load, buffers occurs. True may also mean "not known"."""
    if type(root) is Var:
        return root in variables
    if root.operand_vars is None or root.operand_loads is None:
        return True
    for var in root.operand_vars:
        if var in variables:
            return True
    if buffers:
        for one in root.operand_loads:
            if one.buffer in buffers:
                return True
        return type(root) is Load and root.buffer in buffers
    return False


def free_vars(*roots: Expr) -> list[Var]:
    """Variables in the order of first use. Buffers of loads are not searched."""
    found: dict[Var, None] = {}
    for root in roots:
        if type(root) is Var:
            found[root] = None
        elif root.operand_vars is None:
            return [expr for expr in post_order(*roots) if isinstance(expr, Var)]
        else:
            for var in root.operand_vars:
                found[var] = None
    return list(found)


def loads_in(*roots: Expr) -> list[Load]:
    """Distinct loads in the order of first use."""
    found: dict[Load, None] = {}
    for root in roots:
        if root.operand_loads is None:
            return [expr for expr in post_order(*roots) if isinstance(expr, Load)]
        for one in root.operand_loads:
            found[one] = None
        if type(root) is Load:
            found[root] = None
    return list(found)
