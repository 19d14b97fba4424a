"""Printing of all IR values as Python text: `script(obj)`, with `metadata` for values without a text form.

Use:
    text = script(module)                  # readable; large constants are named, not shown
    text, metadata = to_script(module)     # what `parse(text, metadata)` needs
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dlc_core.diag import UsageError
from dlc_core.graph.node import Function, Node
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Expr
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import TensorType, TupleType
from dlc_core.script.expr_printer import ExprPrinter
from dlc_core.script.graph_printer import GraphPrinter, print_function, print_type
from dlc_core.script.literals import Literals, Metadata, quoted
from dlc_core.script.names import Names, identifier
from dlc_core.script.tir_printer import INDENT, TirPrinter, print_prim_func
from dlc_core.tir.stmt import PrimFunc, Stmt

if TYPE_CHECKING:
    from rich.console import Console


class Script(NamedTuple):
    """Text, and the arrays and objects that it refers to by `metadata["…"]`."""

    text: str
    metadata: dict[str, Any]


def script(value: Any) -> str:
    """Python text of a module, function, PrimFunc, statement, node, expression or type."""
    return to_script(value).text


def to_script(value: Any) -> Script:
    """The text with its metadata, from which `parse` returns an equal module or function."""
    metadata = Metadata()
    return Script("\n".join(text for text, _ in lines_of(value, metadata)) + "\n", metadata)


def show(value: Any, console: Console | None = None) -> None:
    """Print the text of a value in colours; without colours if the output is not a terminal."""
    # The import is slow, and only needed for colours.
    from rich.console import Console
    from rich.syntax import Syntax

    text, console = script(value).rstrip("\n"), console or Console()
    if console.is_terminal:
        console.print(Syntax(text, "python", word_wrap=True, background_color="default"))
    else:
        # Lines of a file are not wrapped.
        console.out(text, highlight=False)


def excerpt(function: PrimFunc, stmt: Stmt, radius: int = 10) -> list[str]:
    """Lines of a PrimFunc around a statement, which is marked; for error messages."""
    lines = print_prim_func(function, Metadata())
    at = next((i for i, (_, owner) in enumerate(lines) if owner is stmt), 0)
    shown = lines[max(0, at - radius) : at + radius + 1]
    return [f"{'>' if owner is stmt else ' '} {text}" for text, owner in shown]


def lines_of(value: Any, metadata: Metadata) -> Sequence[tuple[str, Any]]:
    """The lines of a script, each with the statement, node or function that it shows."""
    if isinstance(value, IRModule):
        return _module_lines(value, metadata)
    if isinstance(value, PrimFunc):
        return print_prim_func(value, metadata)
    if isinstance(value, Function):
        return print_function(value, metadata)
    if isinstance(value, Stmt):
        statements = TirPrinter(metadata)
        statements.suite(value)
        return statements.lines
    if isinstance(value, Node):
        return _node_lines(value, metadata)
    if isinstance(value, Expr):
        names = Names()
        printer = ExprPrinter(lambda v: names.of(v, v.name), lambda b: names.of(b, b.name))
        return [(printer.text(value), None)]
    if isinstance(value, (TensorType, TupleType)):
        return [(print_type(value), None)]
    if isinstance(value, Buffer):
        return [(f"{identifier(value.name)}: {TirPrinter(metadata).annotation(value)}", None)]
    raise UsageError(f"{type(value).__name__} has no script")


def _module_lines(module: IRModule, metadata: Metadata) -> list[tuple[str, Any]]:
    lines: list[tuple[str, Any]] = [("@ir_module", None), ("class Module:", None)]
    if module.entry != "main":
        lines.append((f"{INDENT}entry = {quoted(module.entry)}", None))
    if module.attrs:
        # A module has no variables, so expressions with variables are in the metadata.
        literals = Literals(metadata, lambda e: metadata.refer("object", e))
        lines.append((f"{INDENT}attrs = {literals.mapping(module.attrs)}", None))
    for name, function in module.functions.items():
        if len(lines) > 2:
            lines.append(("", None))
        if isinstance(function, PrimFunc):
            lines += print_prim_func(function, metadata, level=1, key=name)
        elif isinstance(function, Function):
            lines += print_function(function, metadata, level=1, key=name, module=module.functions)
        else:
            raise UsageError(f"{name}: {type(function).__name__} has no script")
    if len(lines) == 2:
        lines.append((f"{INDENT}pass", None))
    return lines


def _node_lines(node: Node, metadata: Metadata) -> Sequence[tuple[str, Any]]:
    """The assignments that lead to a node, without a function around them."""
    printer = GraphPrinter(metadata)
    printer.function(Function("value", (), node))
    return printer.lines
