"""Parsing of graph functions from Python's syntax tree: the inverse of `graph_printer`.

Types that the text leaves out are inferred. A block `with G.dataflow():` is a part of the function whose
names, except those of its `G.output(…)`, are not visible after it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

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
from dlc_core.ir.dtype import INDEX, DType
from dlc_core.ir.expr import Expr, Var
from dlc_core.ir.types import TensorType, TupleType, Type
from dlc_core.script.call_parser import CallParser
from dlc_core.script.graph_calls import Callees, GraphCalls, Make
from dlc_core.script.literal_parser import LiteralParser
from dlc_core.script.op_names import with_defaults
from dlc_core.script.source import Source, short, suggestion
from dlc_core.script.tir_parser import TirParser
from dlc_core.tir.stmt import PrimFunc


class OpLookup(Protocol):
    """The ops by name."""

    def get(self, name: str) -> Op | None:
        """The op of a name, or None."""

    def names(self) -> Iterable[str]:
        """The known names."""


class GraphParser:
    """Reads one function definition with all those inside it.

    `ops` returns the op of a name, or None for an unknown one; `make` builds nodes whose line has no type.
    `callees` are the functions of the module.
    """

    def __init__(
        self,
        source: Source,
        metadata: Mapping[str, Any],
        ops: OpLookup,
        make: Make,
        callees: Callees | None = None,
    ) -> None:
        self.source = source
        self.ops = ops
        self.make = make
        self.callees = Callees(source) if callees is None else callees
        # Symbolic dims belong to the whole definition, node names to the function they are in.
        self.symbols: dict[str, Expr] = {}
        self.metadata = metadata
        self.types = LiteralParser(CallParser(source, {}, metadata, self.symbol))

    def symbol(self, name: str, dtype: DType = INDEX) -> Expr:
        if name not in self.symbols:
            self.symbols[name] = Var(name, dtype)
        return self.symbols[name]

    def function(self, node: ast.FunctionDef, name: str, outer: Mapping[str, Any] | None = None) -> Function:
        scope: dict[str, Any] = dict(outer or {})
        if outer is None:
            self._bounded_dims(node)
        literals = LiteralParser(CallParser(self.source, scope, self.metadata, self.symbol))
        params = []
        if (
            node.args.posonlyargs
            or node.args.kwonlyargs
            or node.args.vararg
            or node.args.kwarg
            or node.args.defaults
        ):
            self.source.fail(node, "a graph function has positional parameters only")
        named: set[str] = set()
        for argument in node.args.args:
            if argument.arg in named:
                self.source.fail(argument, f"there are two parameters {argument.arg}")
            named.add(argument.arg)
            made = scope[argument.arg] = self._param(argument)
            params.append(made)
        attrs: dict[str, Any] = {}
        for line in node.body[:-1]:
            self._line(line, scope, literals, attrs)
        last = self.source.current = node.body[-1]
        if not isinstance(last, ast.Return) or last.value is None:
            self.source.fail(last, "a graph function ends with `return`")
        if isinstance(last.value, ast.Tuple):
            body = make_tuple([self.operand(e, scope, literals) for e in last.value.elts])
        else:
            body = self.operand(last.value, scope, literals)
        if node.returns is not None:
            self._check_result(node.returns, body.type)
        return Function(name, tuple(params), body).with_attrs(**attrs)

    def declared(self, node: ast.FunctionDef, name: str) -> Function | None:
        """The interface of a function, with its declared result type as the body; None if it has none."""
        if node.returns is None:
            return None
        self._bounded_dims(node)
        params = tuple(map(self._param, node.args.args))
        return Function(name, params, param("result", self._result_type(node.returns)))

    def _result_type(self, returns: ast.expr) -> Type:
        if isinstance(returns, ast.Tuple):
            return TupleType(tuple(map(self.types.type, returns.elts)))
        return self.types.type(returns)

    def _check_result(self, returns: ast.expr, found: Type) -> None:
        declared = self._result_type(returns)
        if str(declared) != str(found):
            self.source.fail(returns, f"the function returns {found}, not {declared}")

    def _line(
        self, line: ast.stmt, scope: dict[str, Any], literals: LiteralParser, attrs: dict[str, Any]
    ) -> None:
        self.source.current = line
        if isinstance(line, ast.FunctionDef):
            scope[line.name] = self._inner(line, scope)
        elif _bounded(line) is not None:
            return
        elif isinstance(line, ast.With):
            self._dataflow(line, scope, literals, attrs)
        elif isinstance(line, (ast.AnnAssign, ast.Assign)):
            self._assign(line, scope, literals)
        elif isinstance(line, ast.Expr) and isinstance(line.value, ast.Call):
            if short(line.value.func) != "G.func_attr" or len(line.value.args) != 1:
                self.source.fail(line, "a call whose value is not used")
            attrs.update(literals.mapping(line.value.args[0]))
        elif not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)):
            self.source.fail(line, f"{short(line)} is no line of a graph", "write `name: type = G.op(…)`")

    def _inner(self, line: ast.FunctionDef, scope: dict[str, Any]) -> Function | PrimFunc:
        """A function or tensor program that is defined inside a function."""
        head = line.decorator_list[0] if line.decorator_list else line
        if short(head).startswith("T."):
            _, name = definition(self.source, line, "T.prim_func")
            return TirParser(self.source, self.metadata).func(line, name)
        _, name = definition(self.source, line, "G.function")
        return self.function(line, name, scope)

    def _dataflow(
        self, block: ast.With, scope: dict[str, Any], literals: LiteralParser, attrs: dict[str, Any]
    ) -> None:
        """A block of pure computations. Only the names of its outputs are visible after it."""
        head = block.items[0].context_expr
        if len(block.items) != 1 or short(head) != "G.dataflow()":
            self.source.fail(block, f"{short(head)} is no block of a graph", "write `with G.dataflow():`")
        before = dict(scope)
        outputs: list[ast.expr] | None = None
        for line in block.body:
            if outputs is not None:
                self.source.fail(line, "G.output(…) is the last line of its block")
            call = line.value if isinstance(line, ast.Expr) else None
            if isinstance(call, ast.Call) and short(call.func) == "G.output":
                outputs = call.args
                continue
            self._line(line, scope, literals, attrs)
        shown: dict[str, Any] = {}
        for each in outputs or ():
            if not isinstance(each, ast.Name) or not isinstance(scope.get(each.id), Node):
                self.source.fail(each, f"{short(each)} is no value of this block")
            shown[each.id] = scope[each.id]
        scope.clear()
        scope.update({**before, **shown})

    def _bounded_dims(self, definition: ast.FunctionDef) -> None:
        """Define the symbols with bounds, `n = G.dim(1, 512)`, of the outermost function before its types are
        parsed."""
        for line in definition.body:
            found = _bounded(line)
            if found is not None:
                target, value = found
                if target.id in self.symbols:
                    self.source.fail(line, f"the bounds of {target.id} are given already")
                self.symbols[target.id] = self.types.exprs.bounded_dim(target.id, value)

    def _param(self, argument: ast.arg) -> Node:
        if argument.annotation is None:
            self.source.fail(
                argument,
                f"parameter {argument.arg} has no type",
                f'write {argument.arg}: G.Tensor((2, 3), "float32")',
            )
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
            if isinstance(found, Node):
                return found
            known = [n for n, v in scope.items() if isinstance(v, Node)]
            return self.source.fail(value, f"{value.id} is no value", suggestion(value.id, known, "values"))
        return self._value(value, None, scope, literals)

    def _value(
        self, value: ast.expr, type_: Type | None, scope: dict[str, Any], literals: LiteralParser
    ) -> Node:
        if isinstance(value, ast.Name):
            return self.operand(value, scope, literals)
        if isinstance(value, ast.Subscript):
            if short(value.value) == "metadata":
                return self._constant(value, literals.metadata(value))
            whole = self.operand(value.value, scope, literals)
            index = literals.exprs.integer(value.slice, "a field's number")
            fields = () if isinstance(whole.type, TensorType) else whole.type.fields
            if type_ is None and not 0 <= index < len(fields):
                self.source.fail(value, f"there is no field {index} in {whole.type}")
            return node(GET, (whole,), {"index": index}, fields[index] if type_ is None else type_)
        if not isinstance(value, ast.Call):
            self.source.fail(value, f"{short(value)} is no value of a graph")
        head = short(value.func)
        if head == "G.const":
            return self._constant(value, literals.array(value))
        operands = list(value.args)
        calls = GraphCalls(self.callees, literals, scope, lambda each: self.operand(each, scope, literals))
        if not head.startswith("G."):
            function = scope.get(head)
            if not isinstance(function, Function):
                return calls.by_name(value, type_)
            args = [self.operand(a, scope, literals) for a in operands]
            return node(CALL, args, {"function": function}, function.body.type if type_ is None else type_)
        if head == "G.match_cast" and len(operands) == 2:
            return calls.match_cast(value, self.symbols)
        if head == "G.call_dps" and operands and isinstance(operands[0], ast.Constant):
            return calls.call_dps(value, type_, self.make, self.op("call_dps", value))
        if head == "G.call_te":
            return calls.call_te(value, type_)
        if head == "G.call_tir" and not any(k.arg == "program" for k in value.keywords):
            return calls.call_tir(value, type_)
        name = head.removeprefix("G.")
        if head == "G.op":
            name = literals.exprs.string(operands.pop(0) if operands else None, "an op's name", value)
        inputs = tuple(self.operand(a, scope, literals) for a in operands)
        attrs: dict[str, Any] = {}
        for keyword in value.keywords:
            if keyword.arg is None:
                attrs.update(literals.mapping(keyword.value))
            else:
                if keyword.arg in attrs:
                    self.source.fail(keyword.value, f"the attribute {keyword.arg} is given twice")
                body = calls.body(keyword.value) if isinstance(keyword.value, ast.Name) else None
                attrs[keyword.arg] = literals.value(keyword.value) if body is None else body
        op = self.op(name, value)
        if type_ is not None:
            with self.source.at(value):
                return node(op, inputs, with_defaults(op, attrs), type_)
        with self.source.at(value):
            return self.make(op, inputs, attrs)

    def _constant(self, value: ast.expr, found: Any) -> Node:
        if not isinstance(found, Array):
            self.source.fail(value, f"{short(value)} is no array")
        return constant(found)

    def op(self, name: str, at: ast.AST) -> Op:
        found = STRUCTURAL.get(name) or self.ops.get(name)
        if found is None:
            hint = suggestion(name, self.ops.names()) or "dlc.ops() lists those that are declared"
            self.source.fail(at, f"there is no op {name!r}", hint)
        return found


def _bounded(line: ast.stmt) -> tuple[ast.Name, ast.Call] | None:
    """The name and the call of a line `n = G.dim(1, 512)`."""
    if not isinstance(line, ast.Assign) or len(line.targets) != 1:
        return None
    target, value = line.targets[0], line.value
    if not isinstance(target, ast.Name) or not isinstance(value, ast.Call):
        return None
    return (target, value) if short(value.func) == "G.dim" else None


def definition(source: Source, node: ast.FunctionDef, kind: str) -> tuple[str, str]:
    """(key, name) of a definition decorated with `@kind` or `@kind(key=…, name=…)`."""
    decorator = node.decorator_list[0] if len(node.decorator_list) == 1 else None
    head = decorator.func if isinstance(decorator, ast.Call) else decorator
    if head is None or short(head) != kind:
        hint = suggestion(short(head), ["T.prim_func", "G.function"]) if head is not None else ""
        source.fail(head or node, f"{node.name} is not decorated with @{kind}", hint)
    known: dict[str, str] = {}
    if isinstance(decorator, ast.Call):
        if decorator.args:
            source.fail(decorator.args[0], f"@{kind} takes its arguments by name")
        for word in decorator.keywords:
            if word.arg in IGNORED and kind == "T.prim_func":
                continue
            if word.arg not in ("key", "name"):
                hint = suggestion(word.arg or "**", ["key", "name"])
                source.fail(word.value, f"@{kind} has no {word.arg or '**'}", hint)
            if not isinstance(word.value, ast.Constant) or not isinstance(word.value.value, str):
                source.fail(word.value, f"{word.arg} is a string")
            known[word.arg] = word.value.value
    key = known.get("key", node.name)
    return key, known.get("name", key)


IGNORED = ("private", "check_well_formed")
"""Attributes of other dialects that have no meaning here."""
