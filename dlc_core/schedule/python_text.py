"""Arguments of primitives as executable Python text. Handles appear by the names that the trace assigns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Binary, Const, Expr, Unary, Var
from dlc_core.schedule.handles import BlockRV, Drawn, Handle, LoopRV
from dlc_core.schedule.index_map import IndexMap
from dlc_core.schedule.intrin import TensorIntrin

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "floormod": "%", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=", "bitand": "&", "bitor": "|", "and": "&", "or": "|",
}  # fmt: skip
CALLS = {"min": "minimum", "max": "maximum", "eq": "eq", "ne": "ne"}
SOURCES = {
    "dlc_core.schedule": ("IndexMap", "flat"),
    "dlc_core.ir.expr": ("eq", "maximum", "minimum", "ne"),
}


class Names:
    """Python names of the results of a trace: b0, b1 … blocks, l0 … loops, n0 … drawn numbers."""

    def __init__(self, schedule: str) -> None:
        self.schedule = schedule
        self.handles: dict[Handle, str] = {}
        self.vars: dict[Var, str] = {}
        self.drawn: list[Drawn] = []

    def target(self, result: Handle | Drawn) -> str:
        """The name of a result; the existing name if it already has one."""
        if isinstance(result, Drawn):
            self.drawn.append(result)
            return f"n{len(self.drawn) - 1}"
        if result not in self.handles:
            prefix = "b" if isinstance(result, BlockRV) else "l"
            self.handles[result] = f"{prefix}{sum(n.startswith(prefix) for n in self.handles.values())}"
            if isinstance(result, LoopRV):
                self.vars[result.var] = f"{self.handles[result]}.var"
        return self.handles[result]


def text_of(value: Any, names: Names) -> str:
    """The Python text of an argument."""
    if isinstance(value, (BlockRV, LoopRV)):
        if value in names.handles or isinstance(value, LoopRV):
            return names.handles.get(value, repr(value))
        func = f", {value.func!r}" if value.func else ""
        return f"{names.schedule}.get_block({value.name!r}{func})"
    if isinstance(value, Drawn):
        found = [i for i, known in enumerate(names.drawn) if known is value]
        return f"n{found[0]}" if found else str(int(value))
    if isinstance(value, (list, tuple)):
        items = ", ".join(text_of(v, names) for v in value)
        if isinstance(value, list):
            return f"[{items}]"
        return f"({items},)" if len(value) == 1 else f"({items})"
    if isinstance(value, TensorIntrin):
        return repr(value.name)
    if isinstance(value, IndexMap):
        return _index_map(value, names)
    return expr_text(value, names, {}) if isinstance(value, Expr) else repr(value)


def _index_map(value: IndexMap, names: Names) -> str:
    if value.parts:
        first, *rest = (_index_map(part, names) for part in value.parts)
        return first + "".join(f".then({part})" for part in rest)
    inputs = {var: f"i{d}" for d, var in enumerate(value.inputs)}
    outputs = ", ".join(expr_text(o, names, inputs) for o in value.outputs)
    return f"IndexMap.of(lambda {', '.join(inputs.values())}: ({outputs}{',' * (len(value.outputs) == 1)}))"


def expr_text(expr: Expr, names: Names, bound: Mapping[Var, str]) -> str:
    """The Python text of an expression over loops of the trace and symbolic dims."""
    if isinstance(expr, Var):
        return bound.get(expr) or names.vars.get(expr) or f"{names.schedule}.dim({expr.name!r})"
    if isinstance(expr, Const) and (expr.dtype is INDEX or expr.dtype.is_bool):
        return repr(expr.value)
    if isinstance(expr, Binary) and expr.op in CALLS:
        return f"{CALLS[expr.op]}({expr_text(expr.a, names, bound)}, {expr_text(expr.b, names, bound)})"
    if isinstance(expr, Binary) and expr.op in INFIX:
        a, b = (
            f"({text})" if isinstance(child, Binary) and child.op in INFIX else text
            for child in (expr.a, expr.b)
            for text in (expr_text(child, names, bound),)
        )
        return f"{a} {INFIX[expr.op]} {b}"
    if isinstance(expr, Unary) and expr.op == "neg":
        return f"-({expr_text(expr.a, names, bound)})"
    return str(expr)


def imports_of(lines: Iterable[str]) -> list[str]:
    """The import statements that lines of a trace need."""
    words = {word for line in lines for word in re.findall(r"(?<![.'\w])(\w+)(?=[.(])", line)}
    found: list[str] = []
    for module, known in SOURCES.items():
        used = [name for name in known if name in words]
        if used:
            found.append(f"from {module} import {', '.join(used)}")
    return found


__all__ = ["Names", "expr_text", "imports_of", "text_of"]
