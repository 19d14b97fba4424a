"""Parsing of Python text to the IR: `parse(script(m))` is structurally equal to `m`.

The text is read as a syntax tree and never executed. Spans, which are comments in the text, are lost.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from dlc_core.diag import DlcError, ScriptError
from dlc_core.graph.node import Function, Op
from dlc_core.ir.module import IRModule
from dlc_core.script.call_parser import CallParser
from dlc_core.script.graph_calls import Callees, Make
from dlc_core.script.graph_parser import GraphParser, OpLookup, definition
from dlc_core.script.literal_parser import LiteralParser
from dlc_core.script.op_names import OpNames, inferred
from dlc_core.script.source import Source, short, suggestion
from dlc_core.script.tir_parser import TirParser
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.verify import find_problems

MODULE_WORDS = (
    "ir_module", "module", "script.module", "dlc.script.module", "script.ir_module", "dlc.script.ir_module",
    "I.ir_module", "tvm.script.ir_module",
)  # fmt: skip


def parse(
    text: str,
    metadata: Mapping[str, Any] | None = None,
    *,
    ops: Mapping[str, Op] | OpNames | None = None,
    make: Make = inferred,
    captured: Mapping[str, Any] | None = None,
    file: str = "<script>",
    first_line: int = 1,
    indent: int = 0,
    verify: bool = False,
) -> IRModule | Function | PrimFunc:
    """The module, graph function or PrimFunc that a text defines.

    `metadata` is the metadata that `to_script` returned with the text. `ops` has the ops by name; without
    it they are all registered ops, and an unknown name is an op that can only be printed and compared.
    `make` builds the nodes whose types the text leaves out; by default they are inferred. `captured` has
    the values of names from outside the text. `file`, `first_line` and `indent` are the origin of the text,
    for errors. `verify` also verifies tensor programs, as the decorators do.
    Raises ScriptError with line and column.
    """
    source = Source(file, text, first_line, indent, captured)
    try:
        tree = ast.parse(text)
        names = ops if isinstance(ops, OpNames) else OpNames(ops)
        return _Parser(source, metadata or {}, names, make, verify).top(tree)
    except SyntaxError as error:
        raise source.syntax(error) from error
    except ScriptError:
        raise
    except DlcError as error:
        raise source.located(source.current, error) from error
    except (RecursionError, MemoryError) as error:
        made = ScriptError(
            "the text is nested too deep",
            spans=[source.span(source.current)],
            details=source.excerpt(source.current),
            hint="give parts of it names: e = T.expr(...)",
        )
        raise made from error
    except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
        raise ScriptError(f"the text cannot be read: {error}", spans=[source.span(source.current)]) from error


class _Parser:
    def __init__(
        self,
        source: Source,
        metadata: Mapping[str, Any],
        ops: OpLookup,
        make: Make,
        verify: bool,
    ) -> None:
        self.source = source
        self.metadata = metadata
        self.ops = ops
        self.make = make
        self.verify = verify

    def top(self, tree: ast.Module) -> IRModule | Function | PrimFunc:
        body = [
            n for n in tree.body if not isinstance(n, (ast.Import, ast.ImportFrom)) and not _is_docstring(n)
        ]
        if len(body) != 1:
            self.source.fail(body[1] if body else tree, "a script is one class or one function")
        node = body[0]
        if isinstance(node, ast.ClassDef):
            return self.module(node)
        if isinstance(node, ast.FunctionDef):
            return self.function(node)[1]
        return self.source.fail(node, "a script is a class decorated with @ir_module, or a function")

    def function(
        self, node: ast.FunctionDef, callees: Callees | None = None
    ) -> tuple[str, Function | PrimFunc]:
        kind = _kind(node)
        key, name = definition(self.source, node, kind)
        if kind == "T.prim_func":
            return key, self._prim_func(node, name)
        return key, self._graphs(callees).function(node, name)

    def _graphs(self, callees: Callees | None = None) -> GraphParser:
        return GraphParser(self.source, self.metadata, self.ops, self.make, callees)

    def _prim_func(self, node: ast.FunctionDef, name: str) -> PrimFunc:
        parser = TirParser(self.source, self.metadata)
        func = parser.func(node, name)
        problems = find_problems(func) if self.verify else []
        if problems:
            position = node if problems[0].stmt is None else parser.positions.get(problems[0].stmt, node)
            self.source.fail(position, problems[0].message)
        return func

    def declared(self, node: ast.FunctionDef, name: str) -> Function | None:
        """The interface of a graph function, if it declares the type of its result."""
        return self._graphs().declared(node, name)

    def module(self, node: ast.ClassDef) -> IRModule:
        for decorator in node.decorator_list:
            if short(decorator) not in MODULE_WORDS:
                hint = suggestion(short(decorator), MODULE_WORDS[:1])
                self.source.fail(decorator, f"the class {node.name} is not decorated with @ir_module", hint)
        attrs: dict[str, Any] = {}
        entry = "main"
        exprs = CallParser(self.source, {}, self.metadata)
        definitions: list[ast.FunctionDef] = []
        for line in node.body:
            self.source.current = line
            if isinstance(line, ast.FunctionDef):
                definitions.append(line)
            elif isinstance(line, ast.Assign) and short(line.targets[0]) == "entry":
                entry = exprs.string(line.value, "the entry", line.value)
            elif isinstance(line, ast.Assign) and short(line.targets[0]) == "attrs":
                attrs = LiteralParser(exprs).mapping(line.value)
            elif not isinstance(line, ast.Pass) and not _is_docstring(line):
                hint = "a module has `entry`, `attrs` and functions"
                self.source.fail(line, f"{short(line)} is no part of a module", hint)
        return IRModule(_Definitions(self, node.name, definitions).functions(), attrs, entry)


class _Definitions:
    """The functions of a class. A function that another one calls is parsed before the caller goes on."""

    def __init__(self, parser: _Parser, module: str, nodes: list[ast.FunctionDef]) -> None:
        self._parser = parser
        self._source = parser.source
        self._nodes: dict[str, ast.FunctionDef] = {}
        self._graphs: dict[str, str] = {}
        self._programs: dict[str, str] = {}
        self._made: dict[str, Function | PrimFunc] = {}
        self._open: set[str] = set()
        """The functions that are being parsed."""
        for node in nodes:
            self._source.current = node
            kind = _kind(node)
            key, _ = definition(self._source, node, kind)
            if key in self._nodes:
                self._source.fail(node, f"the module defines {key!r} twice")
            self._nodes[key] = node
            (self._graphs if kind == "G.function" else self._programs).setdefault(node.name, key)
        self._callees = Callees(
            self._source, self._find, self._graphs, self._programs, module, self._open.__contains__
        )

    def functions(self) -> dict[str, Function | PrimFunc]:
        """All functions by key, in the order of the text."""
        return {key: self._parsed(key) for key in self._nodes}

    def _find(self, name: str) -> tuple[str, Function | PrimFunc] | None:
        key = name if name in self._nodes else self._graphs.get(name) or self._programs.get(name)
        if key is None:
            return None
        if key not in self._open:
            current = self._source.current
            found = self._parsed(key)
            self._source.current = current
            return key, found
        # A recursive call: only the declared types are known.
        node = self._nodes[key]
        declared = self._parser.declared(node, key)
        if declared is None:
            self._source.fail(
                node,
                f"{key} calls itself, and its result has no declared type",
                f"write `def {node.name}(…) -> G.Tensor(…):`",
            )
        return key, declared

    def _parsed(self, key: str) -> Function | PrimFunc:
        if key not in self._made:
            self._open.add(key)
            _, self._made[key] = self._parser.function(self._nodes[key], self._callees)
            self._open.discard(key)
        return self._made[key]


def _kind(node: ast.FunctionDef) -> str:
    decorator = short(node.decorator_list[0]) if node.decorator_list else ""
    return "G.function" if decorator.startswith("G.") else "T.prim_func"


def _is_docstring(line: ast.stmt) -> bool:
    return (
        isinstance(line, ast.Expr)
        and isinstance(line.value, ast.Constant)
        and isinstance(line.value.value, str)
    )
