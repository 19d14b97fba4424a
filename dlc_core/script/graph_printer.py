"""Printing of graph functions as Python text. It needs only the nodes: names of ops, attributes and types.

Each node is one assignment, annotated with its type. Small constants are printed where they are used; larger
ones are in the metadata. Functions in attributes are definitions inside the outermost function, before the
first line that needs them. A function that is used several times is defined once.
"""

from __future__ import annotations

import keyword
from typing import Any

from dlc_core.graph.node import (
    CALL,
    CONST,
    GET,
    PARAM,
    TUPLE,
    Array,
    Function,
    Node,
    functions_of,
    post_order,
)
from dlc_core.ir.bounds import Bounds
from dlc_core.ir.expr import Var
from dlc_core.ir.types import Type
from dlc_core.script.expr_printer import ExprPrinter
from dlc_core.script.literals import Literals, Metadata, quoted
from dlc_core.script.names import Names
from dlc_core.script.tir_printer import INDENT, bounds_call, definition, span_comment

Line = tuple[str, Any]


class GraphPrinter:
    """Prints a function and the functions inside it, indented by `level`."""

    def __init__(self, metadata: Metadata, level: int = 0) -> None:
        self.lines: list[Line] = []
        self.level = level
        self.depth = 0
        self.count = 0
        self.names = Names()
        self.functions: dict[Function, str] = {}
        self.texts: dict[Node, str] = {}
        self.bounded: dict[str, Bounds] = {}
        """The bounds of the printed symbolic dims, by name."""
        dims = ExprPrinter(self._symbol, lambda b: self.names.of(b, b.name, "buffer"))
        explicit = ExprPrinter(dims.var, dims.buffer, explicit=True)
        self.literals = Literals(metadata, dims.text)
        self.attributes = Literals(metadata, explicit.text, self._function_name)

    def _symbol(self, var: Var) -> str:
        name = self.names.of(var, var.name, "n")
        if var.bounds is not None:
            self.bounded[name] = var.bounds
        return name

    def _function_name(self, function: Function) -> str:
        return self.functions[function]

    def emit(self, text: str, subject: Any = None) -> None:
        self.lines.append((INDENT * self.level + text, subject))

    def function(self, function: Function, key: str | None = None) -> None:
        """Print a definition and, inside it, the definitions of functions that it uses."""
        key = function.name if key is None else key
        shown = self.names.of(function, key, "func")
        self.functions[function] = shown
        outer, self.texts = self.texts, {}
        self.depth += 1
        self._head(function, shown, key)
        begin = len(self.lines)
        self.level += 1
        if function.attrs:
            self.emit(f"G.func_attr({self.attributes.mapping(function.attrs)})")
        for node in post_order(function.body):
            if node.op is PARAM or node in self.texts:
                continue
            if node.op is CONST and isinstance(node.attrs.get("value"), Array):
                self.texts[node] = self.attributes.array(node.attrs["value"], "G.const")
            elif node.op is not TUPLE or node is not function.body:
                self._node(node)
        self.emit(f"return {self._result(function.body)}")
        if self.depth == 1:
            indent = INDENT * self.level
            dims = [f"{indent}{name} = {bounds_call('G', bounds)}" for name, bounds in self.bounded.items()]
            self.lines[begin:begin] = [(line, None) for line in dims]
        self.level -= 1
        self.texts = outer
        self.depth -= 1

    def _head(self, function: Function, shown: str, key: str) -> None:
        extra = [f"key={quoted(key)}"] if shown != key else []
        extra += [f"name={quoted(function.name)}"] if function.name != key else []
        self.emit(f"@G.function({', '.join(extra)})" if extra else "@G.function")
        params = []
        for param in function.params:
            hint = str(param.attrs.get("name", ""))
            name = self.texts[param] = self.names.of(param, hint, "arg")
            renamed = f", name={quoted(hint)}" if hint != name else ""
            params.append(f"{name}: {self._param_type(param.type, renamed)}")
        for line in definition(shown, params, "", self.level):
            self.emit(line, function)

    def _param_type(self, type_: Type, renamed: str) -> str:
        text = self.literals.type(type_)
        return f"{text[:-1]}{renamed})"

    def _node(self, node: Node) -> None:
        if self.depth == 1:
            self._define(functions_of(node))
        name = self.texts[node] = self.names.fresh(f"v{self.count}")
        self.count += 1
        self.emit(
            f"{name}: {self.literals.type(node.type)} = {self._value(node)}{span_comment(node.spans)}", node
        )

    def _define(self, functions: list[Function]) -> None:
        """Print definitions that are not printed yet, after the definitions that they use."""
        work = [(function, False) for function in reversed(functions)]
        while work:
            function, ready = work.pop()
            if function in self.functions:
                continue
            if ready:
                self.function(function)
                continue
            work.append((function, True))
            inner = [f for n in post_order(function.body) for f in functions_of(n)]
            work.extend((f, False) for f in reversed(inner))

    def _value(self, node: Node) -> str:
        args = [self.texts[arg] for arg in node.args]
        if node.op is GET and list(node.attrs) == ["index"]:
            return f"{args[0]}[{node.attrs['index']!r}]"
        if node.op is CALL and list(node.attrs) == ["function"]:
            return f"{self.functions[node.attrs['function']]}({', '.join(args)})"
        plain = {k: v for k, v in node.attrs.items() if k.isidentifier() and not keyword.iskeyword(k)}
        odd = {k: v for k, v in node.attrs.items() if k not in plain}
        args += [f"{k}={self.attributes.text(v)}" for k, v in plain.items()]
        if odd:
            args.append(f"**{self.attributes.mapping(odd)}")
        parts = node.op.name.split(".")
        if all(p.isidentifier() and not keyword.iskeyword(p) for p in parts) and parts[0] not in RESERVED:
            return f"G.{node.op.name}({', '.join(args)})"
        return f"G.op({', '.join([quoted(node.op.name), *args])})"

    def _result(self, body: Node) -> str:
        if body.op is not TUPLE or body in self.texts:
            return self.texts[body]
        values = [self.texts[arg] for arg in body.args]
        return ", ".join(values) + ("," if len(values) == 1 else "") if values else "()"


RESERVED = frozenset(
    {"Tensor", "Tuple", "array", "const", "dim", "dtype", "func_attr", "function", "inf", "nan", "op", "plan"}
)
"""Names in `G` that are no ops."""


def print_function(
    function: Function, metadata: Metadata, *, level: int = 0, key: str | None = None
) -> list[Line]:
    """Lines of a function with the nodes they belong to."""
    printer = GraphPrinter(metadata, level)
    printer.function(function, key)
    return printer.lines


def print_type(type_: Type) -> str:
    """A type alone."""
    names = Names()
    dims = ExprPrinter(lambda v: names.of(v, v.name, "n"), lambda b: b.name)
    return Literals(Metadata(), dims.text).type(type_)
