"""A plain listing of a module for dumps: one line for each node, functions one after another."""

from __future__ import annotations

from dlc_core.graph.node import PARAM, Function, Node, functions_of, post_order
from dlc_core.ir.module import IRModule


def listing(module: IRModule) -> str:
    """The text of all functions, those in attributes included."""
    parts: list[str] = []
    for name, function in module.functions.items():
        parts.append(function_listing(function) if isinstance(function, Function) else f"{name} = {function}")
    return "\n\n".join(parts) + "\n"


def function_listing(function: Function) -> str:
    """The text of one function; functions in attributes follow it, indented."""
    names: dict[Node, str] = {p: f"%{p.attrs['name']}" for p in function.params}
    lines = [f"def {function.name}({', '.join(f'{names[p]}: {p.type}' for p in function.params)}):"]
    for current in post_order(function.body):
        if current.op is PARAM:
            continue
        names[current] = f"%{len(names)}"
        given = [names.get(arg, "%?") for arg in current.args]
        given += [f"{k}={v.name if isinstance(v, Function) else v!r}" for k, v in current.attrs.items()]
        lines.append(f"    {names[current]} = {current.op.name}({', '.join(given)})  # {current.type}")
        for inner in functions_of(current):
            lines += ["    " + line for line in function_listing(inner).split("\n")]
    lines.append(f"    return {names.get(function.body, '%?')}")
    return "\n".join(lines)
