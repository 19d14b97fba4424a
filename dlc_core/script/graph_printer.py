"""Printing of graph functions as Python text. It needs only the nodes: names of ops, attributes and types.

Each node is one assignment, annotated with its type. Small constants are printed where they are used; larger
ones are in the metadata. Functions and tensor programs in attributes are definitions inside the outermost
function, before the first line that needs them. A function that is used several times is defined once. Calls
of the module's functions are printed by name if the module is given.
"""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from typing import Any

from dlc_core.graph.node import (
    CALL,
    CALL_PRIM,
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
from dlc_core.script.tir_printer import (
    INDENT,
    bounds_call,
    definition,
    print_prim_func,
    span_comment,
    tuple_text,
)
from dlc_core.tir.stmt import PrimFunc

Line = tuple[str, Any]
Callee = Function | PrimFunc
CALL_TIR = "call_tir"
"""The op that calls a tensor program."""
MATCH_CAST = "match_cast"
"""The op that gives a value a more specific shape."""


class GraphPrinter:
    """Prints a function and the functions inside it, indented by `level`.

    `module` are the functions that calls by symbol may name.
    """

    def __init__(
        self, metadata: Metadata, level: int = 0, module: Mapping[str, Any] | None = None, key: str = ""
    ) -> None:
        self.metadata = metadata
        self.module = {n: f for n, f in (module or {}).items() if _is_name(n)}
        self.lines: list[Line] = []
        self.level = level
        self.depth = 0
        self.count = 0
        self.names = Names()
        for name in self.module:
            if name != key:
                self.names.fresh(name)
        self.functions: dict[Callee, str] = {}
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

    def _function_name(self, function: Callee) -> str:
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
            self._define(_callees(node))
        name = self.texts[node] = self.names.fresh(f"v{self.count}")
        self.count += 1
        self.emit(
            f"{name}: {self.literals.type(node.type)} = {self._value(node)}{span_comment(node.spans)}", node
        )

    def _define(self, functions: list[Callee]) -> None:
        """Print definitions that are not printed yet, after the definitions that they use."""
        work = [(function, False) for function in reversed(functions)]
        while work:
            function, ready = work.pop()
            if function in self.functions:
                continue
            if isinstance(function, PrimFunc):
                shown = self.functions[function] = self.names.fresh(function.name, "program")
                self.lines += print_prim_func(function, self.metadata, level=self.level, key=shown)
                continue
            if ready:
                self.function(function)
                continue
            work.append((function, True))
            inner = [f for n in post_order(function.body) for f in _callees(n)]
            work.extend((f, False) for f in reversed(inner))

    def _value(self, node: Node) -> str:
        args = [self.texts[arg] for arg in node.args]
        if node.op is GET and list(node.attrs) == ["index"]:
            return f"{args[0]}[{node.attrs['index']!r}]"
        if node.op is CALL and list(node.attrs) == ["function"]:
            return f"{self.functions[node.attrs['function']]}({', '.join(args)})"
        attrs = dict(node.attrs)
        if node.op is CALL_PRIM and isinstance(attrs.get("symbol"), str):
            symbol = attrs.pop("symbol")
            known = self.module.get(symbol)
            if isinstance(known, Function) and not attrs:
                return f"{symbol}({', '.join(args)})"
            args = [symbol if isinstance(known, PrimFunc) else quoted(symbol), tuple_text(args)]
            return self._call(CALL_TIR, args, attrs)
        if node.op.name == CALL_TIR and isinstance(attrs.get("program"), PrimFunc):
            args = [self.functions[attrs.pop("program")], tuple_text(args)]
            attrs = {k: v for k, v in attrs.items() if k != "scalars" or v}
        if node.op.name == MATCH_CAST and list(attrs) == ["shape"]:
            return self._call(MATCH_CAST, [*args, self.literals.type(node.type)], {})
        return self._call(node.op.name, args, attrs)

    def _call(self, name: str, args: list[str], attrs: Mapping[str, Any]) -> str:
        plain = {k: v for k, v in attrs.items() if _is_name(k)}
        odd = {k: v for k, v in attrs.items() if k not in plain}
        args = [*args, *(f"{k}={self.attributes.text(v)}" for k, v in plain.items())]
        if odd:
            args.append(f"**{self.attributes.mapping(odd)}")
        parts = name.split(".")
        if all(map(_is_name, parts)) and parts[0] not in RESERVED:
            return f"G.{name}({', '.join(args)})"
        return f"G.op({', '.join([quoted(name), *args])})"

    def _result(self, body: Node) -> str:
        if body.op is not TUPLE or body in self.texts:
            return self.texts[body]
        values = [self.texts[arg] for arg in body.args]
        return ", ".join(values) + ("," if len(values) == 1 else "") if values else "()"


RESERVED = frozenset((
    "Tensor", "Tuple", "array", "call_te", "const", "dataflow", "dim", "dtype", "func_attr", "function",
    "inf", "nan", "op", "output", "plan",
))  # fmt: skip
"""Names in `G` that are no ops, or whose arguments are not those of an op."""


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _callees(node: Node) -> list[Callee]:
    """The functions and programs among a node's attributes."""
    programs = [attr for attr in node.attrs.values() if isinstance(attr, PrimFunc)]
    return [*functions_of(node), *programs]


def print_function(
    function: Function,
    metadata: Metadata,
    *,
    level: int = 0,
    key: str | None = None,
    module: Mapping[str, Any] | None = None,
) -> list[Line]:
    """Lines of a function with the nodes they belong to. `module` has the functions that it calls by name."""
    printer = GraphPrinter(metadata, level, module, function.name if key is None else key)
    printer.function(function, key)
    return printer.lines


def print_type(type_: Type) -> str:
    """A type alone."""
    names = Names()
    dims = ExprPrinter(lambda v: names.of(v, v.name, "n"), lambda b: b.name)
    return Literals(Metadata(), dims.text).type(type_)
