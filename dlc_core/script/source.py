"""The source of a script: its text, its position for errors, and the values of the surrounding Python code.

An error is shown with its line and column, the line itself, and a caret below it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from dlc_core.diag import DlcError, ScriptError, Span, similar

MAX_WIDTH = 150
MAX_LISTED = 12


class Source:
    """A text, dedented by `indent` columns, that begins at `first_line` of its file.

    `captured` has the values of names from outside the text.
    """

    def __init__(
        self,
        name: str,
        text: str = "",
        first_line: int = 1,
        indent: int = 0,
        captured: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.lines = text.splitlines()
        self.first_line = first_line
        self.indent = indent
        self.captured = captured or {}
        self.current: ast.AST = ast.Pass(lineno=1, col_offset=0)
        """The statement that is being parsed: the position of errors that have no other."""

    def span(self, node: ast.AST) -> Span:
        line, column = self._position(node)
        return Span(self.name, line=line + self.first_line - 1, column=column + self.indent + 1)

    def _position(self, node: ast.AST) -> tuple[int, int]:
        """Line from one and column from zero, in the text."""
        line = getattr(node, "lineno", 1)
        # Python counts bytes.
        before = self._line(line).encode()[: getattr(node, "col_offset", 0)]
        return line, len(before.decode(errors="replace"))

    def _line(self, number: int) -> str:
        return self.lines[number - 1] if 0 < number <= len(self.lines) else ""

    def excerpt(self, node: ast.AST) -> list[str]:
        """The line of a node, and carets below the node."""
        line, column = self._position(node)
        end = len(self._line(line))
        if getattr(node, "end_lineno", None) == line:
            after = self._line(line).encode()[: getattr(node, "end_col_offset", 0)]
            end = len(after.decode(errors="replace"))
        return self.marked(line, column, end)

    def marked(self, line: int, column: int, end: int) -> list[str]:
        text = self._line(line)
        if not text.strip():
            return []
        label = str(line + self.first_line - 1)
        carets = "^" * max(1, min(end, len(text)) - column)
        shown = f"{label} | {text}", f"{' ' * len(label)} | {' ' * column}{carets}"
        return [part if len(part) <= MAX_WIDTH else part[: MAX_WIDTH - 1] + "…" for part in shown]

    def fail(self, node: ast.AST, what: str, hint: str = "") -> NoReturn:
        raise ScriptError(what, spans=[self.span(node)], hint=hint, details=self.excerpt(node))

    def located(self, node: ast.AST, error: DlcError) -> ScriptError:
        """Convert an error of the IR to an error of the script at this position."""
        if isinstance(error, ScriptError):
            return error
        details = (*self.excerpt(node), *error.details)
        made = ScriptError(
            error.what, spans=[self.span(node)], why=error.why, hint=error.hint, details=details
        )
        made.__cause__ = error
        return made

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Convert errors of the IR that are raised inside to errors of the script at this position."""
        try:
            yield
        except DlcError as error:
            raise self.located(node, error) from error

    def syntax(self, error: SyntaxError) -> ScriptError:
        """Convert a syntax error of Python's parser."""
        line, column = error.lineno or 1, max(0, (error.offset or 1) - 1)
        span = Span(self.name, line=line + self.first_line - 1, column=column + self.indent + 1)
        end = (error.end_offset or 0) - 1 if error.end_lineno == line else column + 1
        return ScriptError(error.msg, spans=[span], details=self.marked(line, column, end))


def suggestion(name: str, known: Iterable[str], what: str = "known") -> str:
    """A hint: the most similar known names, or all known names if these are few."""
    names = list(dict.fromkeys(known))
    close = similar(name, names, 2)
    if not close and len(name) > 1:
        folded = {n.lower(): n for n in names}
        close = [folded[name.lower()]] if name.lower() in folded else []
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"{what}: {', '.join(names)}" if 0 < len(names) <= MAX_LISTED else ""


def dotted(node: ast.AST) -> str:
    """The text of a dotted name such as `T.axis.spatial`; "" for other nodes."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def short(node: ast.AST) -> str:
    """The beginning of a part's text, for messages."""
    text = ast.unparse(node).splitlines()[0] if not isinstance(node, ast.Module) else ""
    return text if len(text) <= 60 else text[:57] + "..."
