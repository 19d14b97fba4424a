"""Parsing of PrimFuncs from Python's syntax tree: the inverse of `tir_printer`. It also accepts forms that
are only written by hand."""

from __future__ import annotations

import ast
from types import MappingProxyType
from typing import Any

from dlc_core.diag import DlcError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import HANDLE, DType
from dlc_core.ir.expr import Call, Var, broadcast
from dlc_core.script.bind_parser import BindParser, Wrap
from dlc_core.script.keywords import BINDERS, BLOCKS, HEADS
from dlc_core.script.source import short, suggestion
from dlc_core.tir.stmt import (
    EMPTY,
    Eval,
    If,
    PrimFunc,
    Seq,
    Stmt,
    While,
    store,
)

_FOREIGN: dict[type[ast.stmt], tuple[str, str]] = {
    ast.Return: ("`return` is not", "a PrimFunc returns nothing: it writes to its buffers"),
    ast.FunctionDef: ("a function inside is not", "call another PrimFunc of the module by T.call_kernel"),
    ast.ClassDef: ("a class inside is not", ""),
    ast.Break: ("`break` is not", "put the condition into a `while`"),
    ast.Continue: ("`continue` is not", "put the rest of the loop under an `if`"),
    ast.Assert: ("`assert` is not", "write T.evaluate(T.check(condition, code))"),
    ast.Import: ("`import` is not", "import before the script"),
    ast.ImportFrom: ("`import` is not", "import before the script"),
    ast.Try: ("`try` is not", ""),
    ast.Raise: ("`raise` is not", "write T.evaluate(T.check(condition, code))"),
    ast.Delete: ("`del` is not", "memory lives as long as its suite"),
    ast.Global: ("`global` is not", ""),
    ast.Nonlocal: ("`nonlocal` is not", ""),
    ast.AsyncFor: ("`async` is not", ""),
    ast.AsyncWith: ("`async` is not", ""),
    ast.Match: ("`match` is not", "write if … elif … else"),
}


class TirParser(BindParser):
    """Reads one function definition."""

    def func(self, node: ast.FunctionDef, name: str) -> PrimFunc:
        params: dict[str, Buffer | Var] = {}
        arguments = node.args.args
        if node.args.posonlyargs or node.args.kwonlyargs or node.args.vararg or node.args.kwarg:
            self.source.fail(node, "a PrimFunc has positional parameters only")
        if node.args.defaults:
            self.source.fail(node.args.defaults[0], "a parameter of a PrimFunc has no default")
        for at, argument in enumerate(arguments):
            if any(other.arg == argument.arg for other in arguments[:at]):
                self.source.fail(argument, f"there are two parameters {argument.arg}")
        # Scalars are defined first, because dims of earlier buffers may refer to them.
        for argument in arguments:
            made = self._scalar(argument)
            if made is not None:
                params[argument.arg] = made
                self.define(argument, argument.arg, made)
        for argument in arguments:
            if argument.arg not in params:
                params[argument.arg] = self._buffer_param(argument)
        body = list(node.body)
        attrs: dict[str, Any] = {}
        if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body.pop(0)
        while body and self.called(body[0]) == "func_attr":
            attrs.update(self.literals.mapping(self.exprs.exactly(self.call_of(body.pop(0)), 1)[0]))
        self.depth = 0
        inner = self.suite(body)
        given = (params[argument.arg] for argument in arguments)
        listed = [self.matched.get(p, p) if isinstance(p, Var) else p for p in given]
        return PrimFunc(name, (*listed, *self.symbols), inner, MappingProxyType(attrs) if attrs else EMPTY)

    def _scalar(self, argument: ast.arg) -> Var | None:
        """A parameter `n: T.int64` or `n: T.dim(1, 512)`; None for other annotations."""
        annotation = argument.annotation
        if isinstance(annotation, ast.Call) and short(annotation.func) == "T.dim":
            return self.exprs.bounded_dim(argument.arg, annotation)
        if isinstance(annotation, ast.Call) and not annotation.args and short(annotation.func) != "T.Buffer":
            annotation = annotation.func
        if not isinstance(annotation, ast.Attribute):
            return None
        text = short(annotation)
        if text == "T.handle":
            return Var(argument.arg, HANDLE)
        found = self.exprs.any(annotation) if text.startswith("T.") else None
        if isinstance(found, DType):
            return Var(argument.arg, found)
        return self.source.fail(
            annotation, f"{text} is no type of a parameter", "write T.int64, or T.Buffer(...)"
        )

    def _buffer_param(self, argument: ast.arg) -> Buffer:
        annotation = argument.annotation
        if annotation is None:
            return self.source.fail(
                argument,
                f"parameter {argument.arg} is no T.Buffer(...) and no T.<dtype>: it has no type",
                f'write {argument.arg}: T.Buffer((128,), "float32")',
            )
        if isinstance(annotation, ast.Subscript) and short(annotation.value) == "T.Buffer":
            inner = annotation.slice
            arguments = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            annotation = ast.copy_location(ast.Call(annotation.value, arguments, []), annotation)
        if not isinstance(annotation, ast.Call) or short(annotation.func) != "T.Buffer":
            head = short(annotation.func if isinstance(annotation, ast.Call) else annotation)
            return self.source.fail(
                annotation,
                f"parameter {argument.arg} is no T.Buffer(...) and no T.<dtype>",
                suggestion(head, ["T.Buffer", "T.int64", "T.handle"])
                or f'write {argument.arg}: T.Buffer((128,), "float32")',
            )
        made = self.buffer_of(argument.arg, annotation, annotation.args)
        self.define(argument, argument.arg, made)
        return made

    # Statements

    def suite(self, nodes: list[ast.stmt]) -> Stmt:
        """An indented suite. The body of a binding without `with` is the rest of the suite."""
        self.scope.open()
        self.depth += 1
        frames: list[tuple[Wrap | None, list[Stmt], ast.stmt | None]] = [(None, [], None)]
        for node in nodes:
            self.source.current = node
            wrap = self.binding(node)
            if wrap is not None:
                frames.append((wrap, [], node))
                continue
            stmt = self.stmt(node)
            if stmt is not None:
                frames[-1][1].append(stmt)
        body: Stmt | None = None
        for wrap, found, node_ in reversed(frames):
            parts = [*found, body] if body is not None else found
            body = parts[0] if len(parts) == 1 else Seq(tuple(parts))
            if wrap is not None and node_ is not None:
                body = self.with_position(wrap(body), node_)
        self.depth -= 1
        self.scope.close()
        assert body is not None
        return body

    def stmt(self, node: ast.stmt) -> Stmt | None:
        """One statement; None for a line that only names an expression."""
        self.source.current = node
        try:
            made = self._stmt(node)
        except DlcError as error:
            raise self.source.located(node, error) from error
        return None if made is None else self.with_position(made, node)

    def _stmt(self, node: ast.stmt) -> Stmt | None:
        if isinstance(node, ast.Pass):
            return None
        if isinstance(node, ast.Assign):
            return self._assign(node)
        if isinstance(node, ast.AugAssign):
            if not isinstance(node.target, ast.Subscript):
                return self.source.fail(
                    node, f"{short(node.target)} cannot be changed", "keep what changes in a buffer"
                )
            read = ast.Subscript(node.target.value, node.target.slice, ast.Load())
            value = ast.BinOp(ast.copy_location(read, node.target), node.op, node.value)
            return self._store(node.target, ast.copy_location(value, node))
        if isinstance(node, ast.For):
            return self.loop(node)
        if isinstance(node, ast.While):
            if node.orelse:
                self.source.fail(node.orelse[0], "a loop has no `else`")
            return While(self.exprs.condition(node.test), self.suite(node.body))
        if isinstance(node, ast.If):
            cond = self.exprs.condition(node.test)
            return If(cond, self.suite(node.body), self.suite(node.orelse) if node.orelse else None)
        if isinstance(node, ast.With):
            return self._with(node)
        if isinstance(node, ast.Expr):
            return self._eval(node)
        what, hint = _FOREIGN.get(type(node), (f"{short(node)} is not", ""))
        return self.source.fail(node, f"{what} a statement of PrimFuncs", hint)

    def _eval(self, node: ast.Expr) -> Stmt | None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return None
        if not isinstance(node.value, ast.Call):
            return self.source.fail(node, f"{short(node)} is not a statement: its value is not used")
        called = self.called(node)
        if called in HEADS or called.startswith("axis."):
            self.source.fail(node, f"T.{called} stands in the head of a block, before its statements")
        if called == "func_attr":
            self.source.fail(node, "T.func_attr stands in the first line of the function")
        if called in BINDERS:
            self.source.fail(node, f"the value of T.{called} needs a name", f"write x = T.{called}(...)")
        if called == "evaluate":
            return Eval(self.exprs.expr(self.exprs.exactly(node.value, 1)[0]))
        value = self.exprs.expr(node.value)
        if isinstance(value, Call):
            return Eval(value)
        return self.source.fail(node, f"{short(node)} is not a statement: its value is not used")

    def _assign(self, node: ast.Assign) -> Stmt | None:
        target = node.targets[0]
        if len(node.targets) != 1:
            self.source.fail(node, "one thing is assigned at a time")
        if isinstance(target, ast.Subscript):
            return self._store(target, node.value)
        called = self.called(node)
        if called.startswith("axis."):
            self.source.fail(node, f"T.{called} stands in the head of a block, before its statements")
        if isinstance(target, (ast.Name, ast.Tuple)):
            # `binding` has parsed the bindings of variables. This line names an expression.
            if isinstance(target, ast.Name) and called in ("expr", "meta_var"):
                self.alias(target, self.exprs.expr(self.exprs.exactly(self.call_of(node), 1)[0]))
            return None
        return self.source.fail(
            target, f"{short(target)} cannot be assigned to", "name one value at a time, or store to A[i, …]"
        )

    def _store(self, target: ast.Subscript, value: ast.expr) -> Stmt:
        buffer = self.exprs.buffer(target.value)
        self.exprs.check_rank(target, buffer, "written")
        indices = self.exprs.indices(target.slice) if buffer.ndim else []
        stored = self.exprs.typed(value, buffer.dtype)
        if stored.dtype.scalar is not buffer.dtype:
            self.source.fail(
                value,
                f"{stored.dtype} stored to buffer {short(target.value)} of {buffer.dtype}",
                f'write T.cast(…, "{buffer.dtype}")',
            )
        lanes = max((i.dtype.lanes for i in indices), default=1)
        if lanes != stored.dtype.lanes and lanes == 1:
            self.source.fail(
                value,
                f"{stored.dtype.lanes} lanes stored to one element of {short(target.value)}",
                "index with T.ramp(begin, 1, lanes)",
            )
        if lanes > 1 and stored.dtype.lanes == 1:
            stored = broadcast(stored, lanes)
        return store(buffer, indices, stored)

    def _with(self, node: ast.With) -> Stmt:
        item = node.items[0]
        made = item.context_expr
        if len(node.items) != 1 or not isinstance(made, ast.Call):
            return self.source.fail(node, "`with` takes one T.block, T.seq or binding")
        head = self.exprs.head(made.func)
        if head in BLOCKS:
            if item.optional_vars is not None:
                self.source.fail(
                    item.optional_vars, "a block gives no value", "its axes are T.axis lines in its head"
                )
            return self.block(made, node.body)
        if head == "seq":
            return self._seq(node.body)
        if head in BINDERS and isinstance(item.optional_vars, ast.Name):
            self.scope.open()
            wrap = self.bind(item.optional_vars, made)
            body = self.suite(node.body)
            self.scope.close()
            return body if wrap is None else wrap(body)
        if head in BINDERS:
            self.source.fail(node, f"the value of T.{head} needs a name", f"write with T.{head}(...) as x:")
        if head == "init":
            self.source.fail(made, "T.init stands in the head of a block, before its statements")
        known = [BLOCKS[0], "seq", "init", *BINDERS]
        return self.source.fail(made, f"T.{head} is no context", suggestion(head, known))

    def _seq(self, nodes: list[ast.stmt]) -> Stmt:
        self.scope.open()
        found = [s for s in map(self.stmt, nodes) if s is not None]
        self.scope.close()
        return Seq(tuple(found))
