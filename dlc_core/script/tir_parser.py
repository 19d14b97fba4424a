"""PrimFuncs from Python's syntax tree: the inverse of `tir_printer`, and what people write by hand."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Call, Expr, Var, const
from dlc_core.script.expr_parser import ExprParser, LiteralParser, Source
from dlc_core.tir.stmt import (
    EMPTY,
    Alloc,
    Block,
    Eval,
    For,
    If,
    IterVar,
    Let,
    PrimFunc,
    Range,
    Region,
    Seq,
    Stmt,
    View,
    While,
    store,
)

LOOP_KINDS = {
    "serial": "serial", "parallel": "parallel", "vectorized": "vectorized", "unroll": "unrolled",
    "thread_binding": "thread",
}  # fmt: skip
_BINDERS = ("let", "alloc_buffer", "view")
Wrap = Callable[[Stmt], Stmt]


@dataclass
class _Header:
    """The first lines of a block."""

    axes: list[IterVar] = field(default_factory=list)
    values: list[Expr] = field(default_factory=list)
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    predicate: Expr | None = None
    init: Stmt | None = None
    annotations: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


class TirParser:
    """Reads one function definition."""

    def __init__(self, source: Source, metadata: Mapping[str, Any]) -> None:
        self.source = source
        self.scope: dict[str, Any] = {}
        self.exprs = ExprParser(source, self.scope, metadata)
        self.literals = LiteralParser(self.exprs)
        self.loops: dict[Var, tuple[Expr, Expr]] = {}

    def func(self, node: ast.FunctionDef, name: str) -> PrimFunc:
        params: dict[str, Buffer | Var] = {}
        arguments = node.args.args
        if node.args.posonlyargs or node.args.kwonlyargs or node.args.vararg or node.args.kwarg:
            self.source.fail(node, "a PrimFunc has positional parameters only")
        # Scalars first: buffers before them may have them as dims.
        for argument in arguments:
            annotation = argument.annotation
            if isinstance(annotation, ast.Attribute):
                made = Var(argument.arg, self.exprs.dtype(ast.Constant(annotation.attr), annotation))
                params[argument.arg] = self.scope[argument.arg] = made
        for argument in arguments:
            if argument.arg not in params:
                params[argument.arg] = self._buffer_param(argument)
        body = list(node.body)
        attrs: Mapping[str, Any] = EMPTY
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body.pop(0)
        if body and self._called(body[0]) == "func_attr":
            attrs = MappingProxyType(self.literals.mapping(self._arguments(body.pop(0))[0]))
        return PrimFunc(name, tuple(params[a.arg] for a in arguments), self.suite(body), attrs)

    def _buffer_param(self, argument: ast.arg) -> Buffer:
        annotation = argument.annotation
        if not isinstance(annotation, ast.Call) or ast.unparse(annotation.func) != "T.Buffer":
            return self.source.fail(
                argument, f"parameter {argument.arg} is no T.Buffer(...) and no T.<dtype>"
            )
        made = self.scope[argument.arg] = self._buffer(argument.arg, annotation, annotation.args)
        return made

    def _buffer(self, name: str, node: ast.Call, args: list[ast.expr]) -> Buffer:
        if not 1 <= len(args) <= 2:
            self.source.fail(node, "a buffer has a shape and a dtype")
        known = {k.arg: k.value for k in node.keywords}
        unknown = set(known) - {"strides", "scope", "offset", "align", "dtype"}
        if unknown:
            self.source.fail(node, f"a buffer has no {', '.join(map(str, sorted(map(str, unknown))))}")
        type_ = args[1] if len(args) == 2 else known.get("dtype")
        return Buffer(
            name,
            self._tuple(args[0]),
            self.exprs.dtype(type_, node) if type_ is not None else "float32",
            strides=self._tuple(known["strides"]) if "strides" in known else None,
            scope=self.exprs.string(known["scope"], "a scope", node) if "scope" in known else "global",
            offset=self.exprs.expr(known["offset"]) if "offset" in known else 0,
            align=self.exprs.integer(known["align"], "an alignment") if "align" in known else 0,
        )

    def _tuple(self, node: ast.expr) -> list[Expr]:
        items = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
        return [self.exprs.expr(item) for item in items]

    # Statements

    def suite(self, nodes: list[ast.stmt]) -> Stmt:
        """An indented suite: a binding without `with` has all that follows as its body."""
        frames: list[tuple[Wrap | None, list[Stmt]]] = [(None, [])]
        for node in nodes:
            wrap = self._binding(node)
            if wrap is not None:
                frames.append((wrap, []))
                continue
            stmt = self.stmt(node)
            if stmt is not None:
                frames[-1][1].append(stmt)
        body: Stmt | None = None
        for wrap, found in reversed(frames):
            parts = [*found, body] if body is not None else found
            inner = parts[0] if len(parts) == 1 else Seq(tuple(parts))
            body = inner if wrap is None else wrap(inner)
        assert body is not None
        return body

    def _called(self, node: ast.stmt) -> str:
        """`name` of a statement or assignment that calls T.name."""
        value = node.value if isinstance(node, (ast.Expr, ast.Assign)) else None
        if not isinstance(value, ast.Call):
            return ""
        text = ast.unparse(value.func)
        return text[2:] if text.startswith("T.") else ""

    def _arguments(self, node: ast.stmt) -> list[ast.expr]:
        value = getattr(node, "value", None)
        assert isinstance(value, ast.Call)
        return value.args

    def _binding(self, node: ast.stmt) -> Wrap | None:
        """What a Let, Alloc or View written as an assignment wraps around the rest of its suite."""
        if isinstance(node, ast.Assign) and self._called(node) in _BINDERS:
            if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
                self.source.fail(node, "a binding has one name")
            assert isinstance(node.value, ast.Call)
            return self._bind(node.targets[0].id, node.value)
        return None

    def _bind(self, name: str, made: ast.Call) -> Wrap:
        head = self.exprs.head(made.func)
        if head == "let" and len(made.args) == 1:
            value = self.exprs.expr(made.args[0])
            var = self.scope[name] = Var(name, value.dtype)
            return lambda body: Let(var, value, body)
        if head == "alloc_buffer":
            buffer = self.scope[name] = self._buffer(name, made, made.args)
            return lambda body: Alloc(buffer, body)
        if head == "view" and made.args:
            base = self.exprs.buffer(made.args[0])
            window = self.scope[name] = self._buffer(name, made, made.args[1:])
            return lambda body: View(window, base, body)
        return self.source.fail(made, f"T.{head} binds no name")

    def stmt(self, node: ast.stmt) -> Stmt | None:
        """One statement; None for lines that only name an expression."""
        with self.source.at(node):
            return self._stmt(node)

    def _stmt(self, node: ast.stmt) -> Stmt | None:
        if isinstance(node, ast.Pass):
            return None
        if isinstance(node, ast.Assign):
            return self._assign(node)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Subscript):
            read = ast.BinOp(node.target, node.op, node.value)
            return self._store(node.target, ast.copy_location(read, node))
        if isinstance(node, ast.For):
            return self._for(node)
        if isinstance(node, ast.While) and not node.orelse:
            return While(self.exprs.expr(node.test), self.suite(node.body))
        if isinstance(node, ast.If):
            cond = self.exprs.expr(node.test)
            return If(cond, self.suite(node.body), self.suite(node.orelse) if node.orelse else None)
        if isinstance(node, ast.With):
            return self._with(node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value
            evaluated = self._called(node) == "evaluate" and len(called.args) == 1
            value = self.exprs.expr(called.args[0] if evaluated else called)
            if evaluated or isinstance(value, Call):
                return Eval(value)
        return self.source.fail(node, f"{ast.unparse(node).splitlines()[0]} is not a statement of PrimFuncs")

    def _assign(self, node: ast.Assign) -> Stmt | None:
        target = node.targets[0]
        if len(node.targets) != 1:
            self.source.fail(node, "one thing is assigned at a time")
        if isinstance(target, ast.Subscript):
            return self._store(target, node.value)
        if isinstance(target, ast.Name) and self._called(node) == "expr":
            self.scope[target.id] = self.exprs.expr(self._arguments(node)[0])
            return None
        return self.source.fail(
            node, f"{ast.unparse(target)} cannot be assigned to", "name a value with T.let(...)"
        )

    def _store(self, target: ast.Subscript, value: ast.expr) -> Stmt:
        buffer = self.exprs.buffer(target.value)
        return store(buffer, self.exprs.indices(target.slice), self.exprs.value(value))

    def _with(self, node: ast.With) -> Stmt:
        item = node.items[0]
        made = item.context_expr
        if len(node.items) != 1 or not isinstance(made, ast.Call):
            return self.source.fail(node, "`with` takes one T.block, T.seq or binding")
        head = self.exprs.head(made.func)
        if head == "block":
            name = self.exprs.string(made.args[0], "a block's name", made) if made.args else ""
            return self._block(name, node.body)
        if head == "seq":
            return Seq(tuple(s for s in map(self.stmt, node.body) if s is not None))
        if isinstance(item.optional_vars, ast.Name):
            return self._bind(item.optional_vars.id, made)(self.suite(node.body))
        return self.source.fail(node, f"T.{head} is no context")

    def _for(self, node: ast.For) -> Stmt:
        call = node.iter
        if not isinstance(call, ast.Call) or node.orelse:
            return self.source.fail(node, "a loop runs over range(n), T.grid(...) or a T loop")
        names = [e.id for e in _targets(node.target) if isinstance(e, ast.Name)]
        text = ast.unparse(call.func)
        if text in ("range", "T.grid"):
            spans = [self._span(call, call.args)] if text == "range" else [
                (const(0), self.exprs.expr(a)) for a in call.args
            ]  # fmt: skip
            if len(names) != len(spans) or len(names) != len(_targets(node.target)):
                self.source.fail(node, f"{len(spans)} loops need {len(spans)} names")
            loops = [self._loop_var(name, *span) for name, span in zip(names, spans, strict=True)]
            body = self.suite(node.body)
            for var in reversed(loops):
                body = For(var, *self.loops[var], body)
            return body
        kind = LOOP_KINDS.get(self.exprs.head(call.func))
        if kind is None or len(names) != 1:
            return self.source.fail(node, f"{text} is no loop over one variable")
        return self._kind_loop(names[0], kind, call, node.body)

    def _kind_loop(self, name: str, kind: str, call: ast.Call, body: list[ast.stmt]) -> Stmt:
        known = {k.arg: k.value for k in call.keywords}
        if "extent" in known and len(call.args) == 1:
            begin, extent = self.exprs.expr(call.args[0]), self.exprs.expr(known["extent"])
        else:
            begin, extent = self._span(call, call.args)
        var = self._loop_var(name, begin, extent)
        thread = self.exprs.string(known["thread"], "a thread's name", call) if "thread" in known else ""
        notes = self.literals.mapping(known["annotations"]) if "annotations" in known else None
        annotations = EMPTY if notes is None else MappingProxyType(notes)
        return For(var, begin, extent, self.suite(body), kind, thread, annotations)

    def _span(self, node: ast.Call, args: list[ast.expr]) -> tuple[Expr, Expr]:
        """(begin, extent) of `(extent)` or `(begin, end)`."""
        if not 1 <= len(args) <= 2:
            self.source.fail(node, "a loop has an extent, or a begin and an end")
        if len(args) == 1:
            extent = self.exprs.expr(args[0])
            return const(0, extent.dtype), extent
        begin, end = self.exprs.expr(args[0]), self.exprs.expr(args[1])
        return begin, end - begin

    def _loop_var(self, name: str, begin: Expr, extent: Expr) -> Var:
        var = self.scope[name] = Var(name, extent.dtype)
        self.loops[var] = (begin, extent)
        return var

    # Blocks

    def _block(self, name: str, nodes: list[ast.stmt]) -> Stmt:
        header = _Header()
        rest = list(nodes)
        while rest and self._header_line(rest[0], header):
            rest.pop(0)
        body = self.suite(rest)
        predicate = header.predicate if header.predicate is not None else const(True, "bool")
        return Block(
            name,
            tuple(header.axes),
            tuple(header.values),
            header.reads,
            header.writes,
            body,
            header.init,
            predicate,
            header.annotations,
        )

    def _header_line(self, node: ast.stmt, header: _Header) -> bool:
        """Read a line that belongs to the block's head; False for the first that does not."""
        called = self._called(node)
        if called == "expr" and isinstance(node, ast.Assign):
            self._assign(node)
        elif called.startswith("axis.") and isinstance(node, ast.Assign):
            self._axis(node, called[5:], header)
        elif called == "where":
            header.predicate = self.exprs.expr(self._arguments(node)[0])
        elif called == "reads":
            header.reads = tuple(map(self.exprs.region, self._arguments(node)))
        elif called == "writes":
            header.writes = tuple(map(self.exprs.region, self._arguments(node)))
        elif called == "block_attr":
            header.annotations = MappingProxyType(self.literals.mapping(self._arguments(node)[0]))
        elif isinstance(node, ast.With) and ast.unparse(node.items[0].context_expr) == "T.init()":
            header.init = self.suite(node.body)
        else:
            return False
        return True

    def _axis(self, node: ast.Assign, kind: str, header: _Header) -> None:
        args = self._arguments(node)
        names = [e.id for e in _targets(node.targets[0]) if isinstance(e, ast.Name)]
        if kind == "remap" and len(args) == 2 and isinstance(args[1], (ast.List, ast.Tuple)):
            kinds = self.exprs.string(args[0], "the kinds of axes", node)
            values = [self.exprs.expr(v) for v in args[1].elts]
            if not len(names) == len(kinds) == len(values) or set(kinds) - set("SR"):
                self.source.fail(node, "remap has one letter, S or R, and one loop for each axis")
            for name, letter, value in zip(names, kinds, values, strict=True):
                if not isinstance(value, Var) or value not in self.loops:
                    self.source.fail(node, f"{value} is not a loop", "write T.axis.spatial(extent, value)")
                domain = Range(*self.loops[value])
                self._add_axis(name, domain, "spatial" if letter == "S" else "reduce", value, header)
        elif kind in ("spatial", "reduce") and len(args) == 2 and len(names) == 1:
            if isinstance(args[0], ast.Tuple) and len(args[0].elts) == 2:
                domain = Range(*map(self.exprs.expr, args[0].elts))
            else:
                extent = self.exprs.expr(args[0])
                domain = Range(const(0, extent.dtype), extent)
            self._add_axis(names[0], domain, kind, self.exprs.expr(args[1]), header)
        else:
            self.source.fail(node, f"{ast.unparse(node)} binds no axis")

    def _add_axis(self, name: str, domain: Range, kind: str, value: Expr, header: _Header) -> None:
        var = self.scope[name] = Var(name, value.dtype)
        header.axes.append(IterVar(var, domain, kind))
        header.values.append(value)


def _targets(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
