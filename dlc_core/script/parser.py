"""Python text back to the IR: `parse(script(m))` is structurally equal to `m`.

The text is read as a syntax tree and never run.  Spans (comments) do not come back.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from dlc_core.diag import ScriptError, Span
from dlc_core.graph.node import Function, Op
from dlc_core.ir.module import IRModule
from dlc_core.script.expr_parser import ExprParser, LiteralParser, Source
from dlc_core.script.graph_parser import GraphParser, Make, definition
from dlc_core.script.tir_parser import TirParser
from dlc_core.tir.stmt import PrimFunc


def parse(
    text: str,
    metadata: Mapping[str, Any] | None = None,
    *,
    ops: Mapping[str, Op] | None = None,
    make: Make | None = None,
    captured: Mapping[str, Any] | None = None,
    file: str = "<script>",
    first_line: int = 1,
) -> IRModule | Function | PrimFunc:
    """The module, graph function or PrimFunc that a text defines.

    `metadata` is what `to_script` gave with the text.  `ops` finds declared ops by name; without it ops are
    bare names, enough to print and compare.  `make` infers the types that the text of a graph leaves out.
    `captured` has the numbers that names outside the text stand for.  Raises ScriptError with line and
    column.
    """
    source = Source(file, first_line, captured)
    try:
        tree = ast.parse(text)
        return _Parser(source, metadata or {}, ops, make).top(tree)
    except SyntaxError as error:
        line = (error.lineno or 1) + first_line - 1
        raise ScriptError(error.msg, spans=[Span(file, line=line, column=error.offset or 0)]) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ScriptError(f"the text cannot be read: {error}", spans=[Span(file, line=1)]) from error


class _Parser:
    def __init__(
        self, source: Source, metadata: Mapping[str, Any], ops: Mapping[str, Op] | None, make: Make | None
    ) -> None:
        self.source = source
        self.metadata = metadata
        self.ops = ops
        self.make = make

    def top(self, tree: ast.Module) -> IRModule | Function | PrimFunc:
        body = [n for n in tree.body if not isinstance(n, (ast.Import, ast.ImportFrom))]
        if len(body) != 1:
            self.source.fail(tree, "a script is one class or one function")
        node = body[0]
        if isinstance(node, ast.ClassDef):
            return self.module(node)
        if isinstance(node, ast.FunctionDef):
            return self.function(node)[1]
        return self.source.fail(node, "a script is a class decorated with @ir_module, or a function")

    def function(self, node: ast.FunctionDef) -> tuple[str, Function | PrimFunc]:
        decorator = ast.unparse(node.decorator_list[0]) if node.decorator_list else ""
        kind = "G.function" if decorator.startswith("G.function") else "T.prim_func"
        key, name = definition(self.source, node, kind)
        if kind == "T.prim_func":
            return key, TirParser(self.source, self.metadata).func(node, name)
        return key, GraphParser(self.source, self.metadata, self.ops, self.make).function(node, name)

    def module(self, node: ast.ClassDef) -> IRModule:
        functions: dict[str, Any] = {}
        attrs: dict[str, Any] = {}
        entry = "main"
        exprs = ExprParser(self.source, {}, self.metadata)
        for line in node.body:
            if isinstance(line, ast.FunctionDef):
                key, function = self.function(line)
                if key in functions:
                    self.source.fail(line, f"the module defines {key!r} twice")
                functions[key] = function
            elif isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "entry":
                entry = exprs.string(line.value, "the entry", line)
            elif isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "attrs":
                attrs = LiteralParser(exprs).mapping(line.value)
            elif not isinstance(line, ast.Pass) and not _is_docstring(line):
                self.source.fail(line, f"{ast.unparse(line).splitlines()[0]} is no part of a module")
        return IRModule(functions, attrs, entry)


def _is_docstring(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
