"""Statements that bind a name to a value, to memory or to a symbol."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import HANDLE, INDEX, DType
from dlc_core.ir.expr import Const, Expr, Var
from dlc_core.script.keywords import BINDERS
from dlc_core.script.loop_parser import LoopParser
from dlc_core.script.source import dotted, short
from dlc_core.script.static import is_static
from dlc_core.tir.stmt import Alloc, Let, Stmt, View

Wrap = Callable[[Stmt], Stmt]


class BindParser(LoopParser):
    """Let, Alloc and View, whose body is the rest of a suite; symbols and matched handles."""

    def binding(self, node: ast.stmt) -> Wrap | None:
        """Parse an assignment that is a Let, Alloc or View around the rest of its suite."""
        if isinstance(node, ast.AnnAssign):
            return self._typed_let(node)
        if not isinstance(node, ast.Assign):
            return None
        target, called = node.targets[0], self.called(node)
        if called in BINDERS:
            if len(node.targets) != 1 or not isinstance(target, ast.Name):
                self.source.fail(node, "a binding has one name")
            with self.source.at(node.value):
                return self.bind(target, self.call_of(node))
        if len(node.targets) != 1 or called.startswith("axis.") or called in ("expr", "meta_var"):
            return None
        if isinstance(target, ast.Name):
            return self._plain_let(target, node.value)
        return self._several(target, node.value) if isinstance(target, ast.Tuple) else None

    def _several(self, target: ast.Tuple, given: ast.expr) -> Wrap | None:
        """`x, y = 1, 2`. All values are evaluated before any name is bound."""
        names = [e for e in target.elts if isinstance(e, ast.Name)]
        if len(names) != len(target.elts):
            self.source.fail(target, f"{short(target)} cannot be assigned to", "give each value a name")
        if isinstance(given, ast.Tuple) and len(given.elts) == len(names):
            pairs = [(n, v) for n, v in zip(names, given.elts, strict=True) if not self._symbol(n, v)]
            values = [(name, node, self.exprs.any(node)) for name, node in pairs]
        else:
            found = self.exprs.any(given)
            if not isinstance(found, (tuple, list)) or len(found) != len(names):
                self.source.fail(given, f"{short(given)} is no {len(names)} values")
            values = [(name, given, value) for name, value in zip(names, found, strict=True)]
        wraps = [w for w in (self._named(*part) for part in values) if w is not None]

        def wrapped(body: Stmt) -> Stmt:
            for wrap in reversed(wraps):
                body = wrap(body)
            return body

        return wrapped if wraps else None

    def _typed_let(self, node: ast.AnnAssign) -> Wrap:
        """`x: T.int32 = value`"""
        if not isinstance(node.target, ast.Name) or node.value is None:
            return self.source.fail(node, "a value with a type is written `x: T.int32 = value`")
        type_ = self.exprs.dtype(node.annotation, node)
        value = self.exprs.typed(node.value, type_)
        if value.dtype is not type_:
            self.source.fail(node.value, f"{node.target.id} of {type_} is given a value of {value.dtype}")
        return self.let(node.target, value)

    def _plain_let(self, target: ast.Name, node: ast.expr) -> Wrap | None:
        """`x = value`: a variable that is bound once, or a name for a static value."""
        if self._symbol(target, node):
            return None
        return self._named(target, node, self.exprs.any(node))

    def _named(self, target: ast.Name, node: ast.expr, value: Any) -> Wrap | None:
        if isinstance(value, Expr) and not isinstance(value, Const):
            return self.let(target, value)
        if isinstance(value, (Buffer, Const)) or is_static(value):
            self.define(target, target.id, value, replaces=True)
            return None
        return self.source.fail(node, f"{short(node)} has no value to be named")

    def _symbol(self, target: ast.Name, node: ast.expr) -> bool:
        """`n = T.int64()`, `n = T.dim(1, 512)`: a symbolic dim, which becomes a parameter."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        text = dotted(node.func)
        type_: DType | None = None
        if text == "T.dim":
            type_ = INDEX
        elif text in ("T.var", "T.size_var", "T.Var"):
            type_ = self.exprs.dtype(node.args[-1] if node.args else None, node)
        elif text.startswith("T.") and not node.args and {k.arg for k in node.keywords} <= {"is_size_var"}:
            found = self.exprs.any(node.func)
            type_ = found if isinstance(found, DType) else None
        if type_ is None:
            return False
        if self.depth > 1:
            self.source.fail(node, "symbols are declared in the first lines of the function")
        var = self.exprs.bounded_dim(target.id, node) if text == "T.dim" else Var(target.id, type_)
        self.define(target, target.id, var)
        self.symbols.append(var)
        return True

    def let(self, target: ast.Name, value: Expr) -> Wrap:
        var = Var(target.id, value.dtype)
        self.define(target, target.id, var, replaces=True)
        return lambda body: Let(var, value, body)

    def bind(self, target: ast.Name, made: ast.Call) -> Wrap | None:
        name, head = target.id, BINDERS[self.exprs.head(made.func)]
        if head == "let":
            return self.let(target, self.exprs.expr(self.exprs.exactly(made, 1)[0]))
        if head == "alloc_buffer":
            buffer = self.buffer_of(name, made, made.args)
            self.define(target, name, buffer)
            return lambda body: Alloc(buffer, body)
        if head == "match_buffer":
            return self._match(target, made)
        if not made.args:
            self.source.fail(made, "T.view takes a buffer, a shape and a dtype")
        base = self.exprs.buffer(made.args[0])
        window = self.buffer_of(name, made, made.args[1:])
        self.define(target, name, window)
        return lambda body: View(window, base, body)

    def _match(self, target: ast.Name, made: ast.Call) -> Wrap | None:
        """The buffer of a handle, which replaces it among the parameters; or a view of a region."""
        if len(made.args) < 2:
            self.source.fail(made, "T.match_buffer takes a handle or a region, a shape and a dtype")
        first = made.args[0]
        handle = self.exprs.any(first) if isinstance(first, ast.Name) else None
        if not isinstance(handle, Var):
            region = self.exprs.region(first)
            base = region.buffer
            rank = len(made.args[1].elts) if isinstance(made.args[1], (ast.Tuple, ast.List)) else 1
            strides = base.element_strides()[base.ndim - rank :] if rank <= base.ndim else None
            offset = base.linear_index([r.begin for r in region.ranges])
            window = self.buffer_of(target.id, made, made.args[1:], base.dtype, strides, offset)
            self.define(target, target.id, window)
            return lambda body: View(window, base, body)
        if handle.dtype is not HANDLE:
            self.source.fail(first, f"{short(first)} is {handle.dtype}, not a handle")
        if self.depth > 1:
            self.source.fail(made, "handles are matched in the first lines of the function")
        if handle in self.matched:
            self.source.fail(
                first, f"{short(first)} is matched twice", "use T.view for another view of its memory"
            )
        buffer = self.matched[handle] = self.buffer_of(target.id, made, made.args[1:])
        self.define(target, target.id, buffer)
        return None
