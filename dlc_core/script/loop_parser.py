"""Parsing of loops from Python's syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dlc_core.ir.expr import Expr, Var, const
from dlc_core.script.block_parser import BlockParser
from dlc_core.script.keywords import LOOPS
from dlc_core.script.source import dotted, short, suggestion
from dlc_core.tir.stmt import EMPTY, For, Stmt, seq


class LoopParser(BlockParser):
    """`for` over ranges, grids and loops of a kind, and over static values."""

    def loop(self, node: ast.For) -> Stmt:
        if node.orelse:
            self.source.fail(node.orelse[0], "a loop has no `else`")
        call, targets = node.iter, _targets(node.target)
        names = [e for e in targets if isinstance(e, ast.Name)]
        if len(names) != len(targets):
            self.source.fail(node.target, "a loop gives its values to names")
        head = dotted(call.func) if isinstance(call, ast.Call) else ""
        if head in ("range", "T.grid"):
            assert isinstance(call, ast.Call)
            arguments = self.exprs.plain(call)
            spans = (
                [self.span(call, arguments)]
                if head == "range"
                else [self.span(call, a.elts if isinstance(a, ast.Tuple) else [a]) for a in arguments]
            )
            if len(names) != len(spans):
                self.source.fail(node.target, f"{len(spans)} loops need {len(spans)} names, not {len(names)}")
            return self._nest(node, names, spans, "serial", "", EMPTY)
        if not head.startswith("T."):
            return self._unrolled(node, names)
        assert isinstance(call, ast.Call)
        kind = LOOPS.get(head[2:])
        if kind is None:
            return self.source.fail(
                call.func,
                f"{head} is no loop over one variable",
                suggestion(head[2:], [*LOOPS, "grid"], "loops"),
            )
        if len(names) != 1:
            self.source.fail(node.target, f"{head} is a loop over one variable")
        known = self.exprs.keywords(call, "extent", "thread", "annotations", "end", "stop")
        if "extent" in known and len(call.args) == 1:
            begin = self.exprs.index(call.args[0], "the begin of a loop")
            span = begin, self.exprs.index(known["extent"], "the extent of a loop")
        else:
            span = self.span(call, [*call.args, *(known[k] for k in ("end", "stop") if k in known)])
        thread = self.exprs.string(known["thread"], "a thread's name", call) if "thread" in known else ""
        if (kind == "thread") != bool(thread):
            says = "needs" if kind == "thread" else "has no"
            self.source.fail(call, f"{head} {says} thread", 'write T.thread_binding(32, thread="…")')
        notes = self.literals.mapping(known["annotations"]) if "annotations" in known else None
        return self._nest(
            node, names, [span], kind, thread, EMPTY if notes is None else MappingProxyType(notes)
        )

    def _nest(
        self,
        node: ast.For,
        names: list[ast.Name],
        spans: list[tuple[Expr, Expr]],
        kind: str,
        thread: str,
        annotations: Mapping[str, Any],
    ) -> Stmt:
        self.scope.open()
        loops = [Var(name.id, extent.dtype) for name, (_, extent) in zip(names, spans, strict=True)]
        for name, var, span in zip(names, loops, spans, strict=True):
            if any(other.id == name.id for other in names if other is not name):
                self.source.fail(name, f"two loops of one nest are called {name.id}")
            self.define(name, name.id, var)
            self.loops[var] = span
        body = self.suite(node.body)
        self.scope.close()
        for var in reversed(loops):
            body = self.with_position(For(var, *self.loops[var], body, kind, thread, annotations), node)
        return body

    def span(self, node: ast.Call, args: list[ast.expr]) -> tuple[Expr, Expr]:
        """(begin, extent) of `(extent)` or `(begin, end)`."""
        if len(args) == 3:
            self.source.fail(args[2], "a loop has no step", "write range(count), and i * step in the body")
        if not 1 <= len(args) <= 2:
            self.source.fail(node, f"{short(node.func)} takes an extent, or a begin and an end")
        values = [self.exprs.value(a) for a in args]
        typed = next((v.dtype for v in values if isinstance(v, Expr)), None)
        ends = [
            self.exprs.typed(a, typed)
            if typed is not None and not isinstance(v, Expr)
            else self.exprs.expr(a)
            for a, v in zip(args, values, strict=True)
        ]
        for end, argument in zip(ends, args, strict=True):
            if not end.dtype.is_int or end.dtype.lanes != 1:
                self.source.fail(argument, f"an end of a loop is an integer, not {end.dtype}")
        if len(ends) == 1:
            return const(0, ends[0].dtype), ends[0]
        return ends[0], ends[1] - ends[0]

    def _unrolled(self, node: ast.For, names: list[ast.Name]) -> Stmt:
        """A loop over static values: its body once for each of them."""
        over = None if isinstance(node.iter, ast.Call) else self.exprs.any(node.iter)
        if not isinstance(over, (tuple, list)):
            known = [f"T.{w}" for w in (*LOOPS, "grid")]
            hint = suggestion(short(node.iter.func), known) if isinstance(node.iter, ast.Call) else ""
            return self.source.fail(node.iter, "a loop runs over range(n), T.grid(...) or a T loop", hint)
        parts: list[Stmt] = []
        for value in over:
            row = value if len(names) > 1 and isinstance(value, (tuple, list)) else [value]
            if len(row) != len(names):
                self.source.fail(node.target, f"{len(row)} values need {len(row)} names, not {len(names)}")
            self.scope.open()
            for name, item in zip(names, row, strict=True):
                self.define(name, name.id, item)
            parts.append(self.suite(node.body))
            self.scope.close()
        return seq(*parts)


def _targets(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
