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
from dlc_core.script.graph_parser import GraphParser, Make, definition
from dlc_core.script.literal_parser import LiteralParser
from dlc_core.script.source import Source, short, suggestion
from dlc_core.script.tir_parser import TirParser
from dlc_core.tir.stmt import PrimFunc
from dlc_core.tir.verify import find_problems

MODULE_WORDS = ("ir_module", "I.ir_module", "script.ir_module", "tvm.script.ir_module")


def parse(
    text: str,
    metadata: Mapping[str, Any] | None = None,
    *,
    ops: Mapping[str, Op] | None = None,
    make: Make | None = None,
    captured: Mapping[str, Any] | None = None,
    file: str = "<script>",
    first_line: int = 1,
    indent: int = 0,
    verify: bool = False,
) -> IRModule | Function | PrimFunc:
    """The module, graph function or PrimFunc that a text defines.

    `metadata` is the metadata that `to_script` returned with the text. `ops` finds declared ops by name;
    without it ops are bare names, enough to print and compare. `make` infers types that the text of a graph
    leaves out. `captured` has the values of names from outside the text. `file`, `first_line` and `indent`
    are the origin of the text, for errors. `verify` also verifies tensor programs, as the decorators do.
    Raises ScriptError with line and column.
    """
    source = Source(file, text, first_line, indent, captured)
    try:
        tree = ast.parse(text)
        return _Parser(source, metadata or {}, ops, make, verify).top(tree)
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
        ops: Mapping[str, Op] | None,
        make: Make | None,
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

    def function(self, node: ast.FunctionDef) -> tuple[str, Function | PrimFunc]:
        decorator = short(node.decorator_list[0]) if node.decorator_list else ""
        kind = "G.function" if decorator.startswith("G.") else "T.prim_func"
        key, name = definition(self.source, node, kind)
        if kind == "T.prim_func":
            return key, self._prim_func(node, name)
        return key, GraphParser(self.source, self.metadata, self.ops, self.make).function(node, name)

    def _prim_func(self, node: ast.FunctionDef, name: str) -> PrimFunc:
        parser = TirParser(self.source, self.metadata)
        func = parser.func(node, name)
        problems = find_problems(func) if self.verify else []
        if problems:
            position = node if problems[0].stmt is None else parser.positions.get(problems[0].stmt, node)
            self.source.fail(position, problems[0].message)
        return func

    def module(self, node: ast.ClassDef) -> IRModule:
        for decorator in node.decorator_list:
            if short(decorator) not in MODULE_WORDS:
                hint = suggestion(short(decorator), MODULE_WORDS[:1])
                self.source.fail(decorator, f"the class {node.name} is not decorated with @ir_module", hint)
        functions: dict[str, Any] = {}
        attrs: dict[str, Any] = {}
        entry = "main"
        exprs = CallParser(self.source, {}, self.metadata)
        for line in node.body:
            self.source.current = line
            if isinstance(line, ast.FunctionDef):
                key, function = self.function(line)
                if key in functions:
                    self.source.fail(line, f"the module defines {key!r} twice")
                functions[key] = function
            elif isinstance(line, ast.Assign) and short(line.targets[0]) == "entry":
                entry = exprs.string(line.value, "the entry", line.value)
            elif isinstance(line, ast.Assign) and short(line.targets[0]) == "attrs":
                attrs = LiteralParser(exprs).mapping(line.value)
            elif not isinstance(line, ast.Pass) and not _is_docstring(line):
                hint = "a module has `entry`, `attrs` and functions"
                self.source.fail(line, f"{short(line)} is no part of a module", hint)
        return IRModule(functions, attrs, entry)


def _is_docstring(line: ast.stmt) -> bool:
    return (
        isinstance(line, ast.Expr)
        and isinstance(line.value, ast.Constant)
        and isinstance(line.value.value, str)
    )
