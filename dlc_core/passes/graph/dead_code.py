"""dead_code: remove nodes, functions and values on which no result depends.

Law: the entry computes the same values. Unreachable nodes of a graph do not exist by construction. This pass
removes

* functions marked `private` that are no longer called by name,
* results of branches and of loops (with the state that only they need) that nothing reads,
* arguments of branches that no branch reads.

    get(if_(c, x, y, then=f, else=g), 0)  with f giving 2 results      =>      the same with one result each
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dlc_core.graph.dims import dims_bound_by, dims_required_by
from dlc_core.graph.node import (
    CALL_PRIM,
    GET,
    PARAM,
    Function,
    Node,
    functions_of,
    get_item,
    make_tuple,
    post_order,
    rewrite,
    users_of,
)
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TupleType
from dlc_core.op.declare import fresh_dims
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.base import GraphPass, PassContext
from dlc_core.support.record import record

IF, WHILE, LOOP = OPS["if_"], OPS["while_"], OPS["loop"]


@record(frozen=True)
class DeadCode(GraphPass):
    """Dead-code elimination over graphs."""

    name: ClassVar[str] = "dead_code"
    min_level: ClassVar[int] = 1
    drops_spans: ClassVar[bool] = True

    def run(self, module: IRModule, context: PassContext) -> IRModule:
        return without_unused(super().run(module, context))

    def run_function(self, function: Function, context: PassContext) -> Function:
        users = users_of(function.body)

        def visit(old: Node, args: tuple[Node, ...]) -> Node | None:
            if old.op is GET:
                return get_item(args[0], old.attrs["index"])
            if old.attrs.get("sizes"):
                return None
            if old.op is IF:
                return _narrow_if(old, args, users[old])
            if old.op in (WHILE, LOOP):
                return _narrow_loop(old, args, users[old])
            return None

        body = rewrite(function.body, visit)
        return function if body is function.body else function.with_body(body)


def _read_fields(value: Node, users: Sequence[Node]) -> list[int] | None:
    """Return the fields of a tuple that are read; None if the tuple is used as a whole."""
    if not isinstance(value.type, TupleType) or not users or any(u.op is not GET for u in users):
        return None
    return sorted({u.attrs["index"] for u in users})


def _with_all_fields(value: Node, kept: Sequence[int], old: Node) -> Node:
    """Build a tuple in the old form from a node's kept fields. The other fields are never read."""
    assert isinstance(old.type, TupleType)
    positions = {field: i for i, field in enumerate(kept)}
    return make_tuple([get_item(value, positions.get(i, 0)) for i in range(len(old.type.fields))])


def _used_params(functions: Sequence[Function]) -> list[int]:
    used = [_used_in(f, f.results) for f in functions]
    return [i for i in range(len(functions[0].params)) if any(i in indices for indices in used)]


def _used_in(function: Function, results: Sequence[Node]) -> set[int]:
    """Return the params that results need: those that are read, and those that alone determine a dim."""
    reached = list(post_order(*results))
    read = {n for n in reached if n.op is PARAM}
    dims = {var for n in reached for var in dims_required_by(n)}
    dims -= {var for n in reached for var in (dims_bound_by(n) if n in read else fresh_dims(n))}
    for own in function.params:
        if own not in read and dims & dims_bound_by(own):
            read.add(own)
            dims -= dims_bound_by(own)
    return {i for i, own in enumerate(function.params) if own in read}


def _narrow_if(old: Node, args: tuple[Node, ...], users: Sequence[Node]) -> Node | None:
    branches = [old.attrs["then_branch"], old.attrs["else_branch"]]
    kept = _read_fields(old, users)
    total = len(old.type.fields) if isinstance(old.type, TupleType) else 1
    fewer = kept is not None and len(kept) < total
    if kept is not None and fewer:
        branches = [f.with_body(make_tuple([f.results[i] for i in kept])) for f in branches]
    used = _used_params(branches)
    if not fewer and len(used) == len(args) - 1:
        return None
    chosen, other = (Function(f.name, tuple(f.params[i] for i in used), f.body, f.attrs) for f in branches)
    new = IF.build(args[0], *(args[1 + i] for i in used), then_branch=chosen, else_branch=other)
    return _with_all_fields(new, kept, old) if kept is not None and fewer else new


def _narrow_loop(old: Node, args: tuple[Node, ...], users: Sequence[Node]) -> Node | None:
    """Remove unused rows and state from a loop.

    State is used if it is read after the loop, by its condition, by kept rows, or by the next iteration of
    kept state. A `loop` without rows and limit becomes a `while_`.
    """
    read = _read_fields(old, users)
    if read is None:
        return None
    cond, body = old.attrs["cond"], old.attrs["body"]
    rows = [i for i in read if i >= len(args)]
    needed = _used_in(cond, cond.results) | ({*read} - {*rows})
    while True:
        grown = needed | _used_in(body, [body.results[i] for i in (*sorted(needed), *rows)])
        if grown == needed:
            break
        needed = grown
    kept = sorted(needed)
    if len(kept) + len(rows) == len(body.results):
        return None
    functions = {
        "cond": Function(cond.name, tuple(cond.params[i] for i in kept), cond.body, cond.attrs),
        "body": Function(
            body.name,
            tuple(body.params[i] for i in kept),
            make_tuple([body.results[i] for i in (*kept, *rows)]),
            body.attrs,
        ),
    }
    given = [args[i] for i in kept]
    if old.op is WHILE or (not rows and old.attrs["max_iterations"] is None):
        new = WHILE.build(*given, **functions)
    else:
        new = LOOP.build(
            *given,
            iterations=old.attrs["iterations"],
            max_iterations=old.attrs["max_iterations"],
            **functions,
        )
    return _with_all_fields(new, [*kept, *rows], old)


def without_unused(module: IRModule) -> IRModule:
    """Remove private functions that no other function calls by name."""
    called: set[str] = set()
    stack = [f for f in module.of_kind(Function).values() if not f.attrs.get("private")]
    while stack:
        function = stack.pop()
        for current in post_order(function.body):
            stack.extend(functions_of(current))
            name = current.attrs.get("symbol") if current.op is CALL_PRIM else None
            if isinstance(name, str) and name not in called:
                called.add(name)
                if isinstance(module.functions.get(name), Function):
                    stack.append(module[name])
    unused = [
        name
        for name, function in module.functions.items()
        if name not in called and getattr(function, "attrs", {}).get("private") and name != module.entry
    ]
    return module.without(*unused) if unused else module
