"""Graph functions from Python's syntax tree: the inverse of `graph_printer`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from dlc_core.graph.node import (
    CALL,
    GET,
    STRUCTURAL,
    Array,
    Function,
    Node,
    Op,
    constant,
    make_tuple,
    node,
    param,
)
from dlc_core.ir.expr import Var
from dlc_core.ir.types import TensorType, Type
from dlc_core.script.expr_parser import ExprParser, LiteralParser, Source

Make = Callable[[Op, tuple[Node, ...], Mapping[str, Any]], Node]
"""Builds a node whose type is not written down, by inference."""


class GraphParser:
    """Reads one function definition with all those inside it.

    `ops` finds declared ops by name (without it ops are bare names); `make` builds nodes whose line has no
    type.
    """

    def __init__(
        self, source: Source, metadata: Mapping[str, Any], ops: Mapping[str, Op] | None, make: Make | None
    ) -> None:
        self.source = source
        self.ops = ops
        self.make = make
        self.bare: dict[str, Op] = {}
        # Symbolic dims belong to the whole definition, node names to the function they are in.
        self.symbols: dict[str, Var] = {}
        self.metadata = metadata
        self.types = LiteralParser(ExprParser(source, {}, metadata, self.symbol))

    def symbol(self, name: str) -> Var:
        if name not in self.symbols:
            self.symbols[name] = Var(name)
        return self.symbols[name]

    def function(self, node: ast.FunctionDef, name: str, outer: Mapping[str, Any] | None = None) -> Function:
        scope: dict[str, Any] = dict(outer or {})
        literals = LiteralParser(ExprParser(self.source, scope, self.metadata, self.symbol))
        params = []
        for argument in node.args.args:
            made = scope[argument.arg] = self._param(argument)
            params.append(made)
        attrs: Mapping[str, Any] = {}
        for line in node.body[:-1]:
            if isinstance(line, ast.FunctionDef):
                shown, inner = definition(self.source, line, "G.function")
                del shown
                scope[line.name] = self.function(line, inner, scope)
            elif isinstance(line, (ast.AnnAssign, ast.Assign)):
                self._assign(line, scope, literals)
            elif isinstance(line, ast.Expr) and isinstance(line.value, ast.Call):
                if ast.unparse(line.value.func) != "G.func_attr" or len(line.value.args) != 1:
                    self.source.fail(line, "a call whose value is not used")
                attrs = literals.mapping(line.value.args[0])
            elif not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)):
                self.source.fail(line, f"{ast.unparse(line).splitlines()[0]} is no line of a graph")
        last = node.body[-1]
        if not isinstance(last, ast.Return) or last.value is None:
            self.source.fail(last, "a graph function ends with `return`")
        if isinstance(last.value, ast.Tuple):
            body = make_tuple([self.operand(e, scope, literals) for e in last.value.elts])
        else:
            body = self.operand(last.value, scope, literals)
        return Function(name, tuple(params), body).with_attrs(**attrs)

    def _param(self, argument: ast.arg) -> Node:
        if argument.annotation is None:
            self.source.fail(argument, f"parameter {argument.arg} has no type")
        renamed = None
        if isinstance(argument.annotation, ast.Call):
            renamed = next((k.value for k in argument.annotation.keywords if k.arg == "name"), None)
        hint = argument.arg if renamed is None else self.types.exprs.string(renamed, "a name", argument)
        return param(hint, self.types.type(argument.annotation))

    def _assign(
        self, line: ast.AnnAssign | ast.Assign, scope: dict[str, Any], literals: LiteralParser
    ) -> None:
        target = line.target if isinstance(line, ast.AnnAssign) else line.targets[0]
        type_ = self.types.type(line.annotation) if isinstance(line, ast.AnnAssign) else None
        if not isinstance(target, ast.Name) or line.value is None:
            self.source.fail(line, "a line of a graph is `name: type = value`")
        with self.source.at(line):
            scope[target.id] = self._value(line.value, type_, scope, literals)

    def operand(self, value: ast.expr, scope: dict[str, Any], literals: LiteralParser) -> Node:
        """A node by name, or a constant written in place."""
        if isinstance(value, ast.Name):
            found = scope.get(value.id)
            return found if isinstance(found, Node) else self.source.fail(value, f"{value.id} is no value")
        return self._value(value, None, scope, literals)

    def _value(
        self, value: ast.expr, type_: Type | None, scope: dict[str, Any], literals: LiteralParser
    ) -> Node:
        if isinstance(value, ast.Name):
            return self.operand(value, scope, literals)
        if isinstance(value, ast.Subscript):
            if ast.unparse(value.value) == "metadata":
                return self._constant(value, literals.metadata(value))
            whole = self.operand(value.value, scope, literals)
            index = literals.exprs.integer(value.slice, "a field's number")
            fields = () if isinstance(whole.type, TensorType) else whole.type.fields
            if type_ is None and not 0 <= index < len(fields):
                self.source.fail(value, f"there is no field {index} in {whole.type}")
            return node(GET, (whole,), {"index": index}, fields[index] if type_ is None else type_)
        if not isinstance(value, ast.Call):
            self.source.fail(value, f"{ast.unparse(value)} is no value of a graph")
        head = ast.unparse(value.func)
        if head == "G.const":
            return self._constant(value, literals.array(value))
        operands = list(value.args)
        if isinstance(value.func, ast.Name):
            function = scope.get(head)
            if not isinstance(function, Function):
                self.source.fail(value, f"{head} is no function defined here")
            args = [self.operand(a, scope, literals) for a in operands]
            return node(CALL, args, {"function": function}, function.body.type if type_ is None else type_)
        name = head.removeprefix("G.")
        if head == "G.op":
            name = literals.exprs.string(operands.pop(0) if operands else None, "an op's name", value)
        elif name == head:
            self.source.fail(value, f"{head} is not in G")
        inputs = tuple(self.operand(a, scope, literals) for a in operands)
        attrs: dict[str, Any] = {}
        for keyword in value.keywords:
            if keyword.arg is None:
                attrs.update(literals.mapping(keyword.value))
            else:
                attrs[keyword.arg] = literals.value(keyword.value)
        op = self.op(name, value)
        if type_ is not None:
            return node(op, inputs, attrs, type_)
        if self.make is None:
            self.source.fail(
                value, "the type of this value is not written down", "write `name: G.Tensor(...) = …`"
            )
        return self.make(op, inputs, attrs)

    def _constant(self, value: ast.expr, found: Any) -> Node:
        if not isinstance(found, Array):
            self.source.fail(value, f"{ast.unparse(value)} is no array")
        return constant(found)

    def op(self, name: str, at: ast.AST) -> Op:
        if name in STRUCTURAL:
            return STRUCTURAL[name]
        if self.ops is None:
            return self.bare.setdefault(name, Op(name))
        if name not in self.ops:
            self.source.fail(at, f"there is no op {name!r}", "dlc.ops() lists those that are declared")
        return self.ops[name]


def definition(source: Source, node: ast.FunctionDef, kind: str) -> tuple[str, str]:
    """(key, name) of a definition decorated with `@kind` or `@kind(key=…, name=…)`."""
    decorator = node.decorator_list[0] if len(node.decorator_list) == 1 else None
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    head = decorator.func if isinstance(decorator, ast.Call) else decorator
    if head is None or ast.unparse(head) != kind:
        source.fail(node, f"{node.name} is not decorated with @{kind}")
    known = {k.arg: k.value.value for k in keywords if isinstance(k.value, ast.Constant)}
    key = str(known.get("key", node.name))
    return key, str(known.get("name", key))
