"""Parsing of blocks and buffers from Python's syntax tree, and the scope of names that the statements of a
PrimFunc share."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, Var, const
from dlc_core.script.call_parser import CallParser
from dlc_core.script.keywords import AXES, HEADS
from dlc_core.script.literal_parser import LiteralParser
from dlc_core.script.scope import Scope
from dlc_core.script.source import Source, dotted, short, suggestion
from dlc_core.tir.access import access_regions
from dlc_core.tir.stmt import EMPTY, Block, IterVar, Range, Region, Stmt

_BUFFER_WORDS = ("dtype", "strides", "scope", "offset", "elem_offset", "align")
RESERVED = ("T", "G", "metadata")


@dataclass
class _Header:
    """The first lines of a block."""

    axes: list[IterVar] = field(default_factory=list)
    values: list[Expr] = field(default_factory=list)
    reads: tuple[Region, ...] | None = None
    writes: tuple[Region, ...] | None = None
    predicate: Expr | None = None
    init: Stmt | None = None
    annotations: Mapping[str, Any] | None = None


class BlockParser:
    """The interface of the statement parser for blocks."""

    def __init__(self, source: Source, metadata: Mapping[str, Any]) -> None:
        self.source = source
        self.scope = Scope()
        self.exprs = CallParser(source, self.scope, metadata)
        self.literals = LiteralParser(self.exprs)
        self.loops: dict[Var, tuple[Expr, Expr]] = {}
        self.aliases: set[str] = set()
        self.symbols: list[Var] = []
        self.matched: dict[Var, Buffer] = {}
        self.depth = 0
        self.positions: dict[Stmt, ast.AST] = {}
        """The position of each statement in the text."""

    def suite(self, nodes: list[ast.stmt]) -> Stmt:
        raise NotImplementedError

    def with_position(self, stmt: Stmt, node: ast.AST) -> Stmt:
        self.positions.setdefault(stmt, node)
        return stmt

    # Names

    def define(self, node: ast.AST, name: str, value: Any, *, replaces: bool = False) -> None:
        """Define a name in the innermost suite. With `replaces` it may be defined again in the same suite."""
        if name in RESERVED:
            self.source.fail(node, f"{name} has a meaning of its own in a script", "choose another name")
        if name in self.scope and name not in self.aliases and not (replaces and self.scope.is_inner(name)):
            line = self.scope.line_of(name) + self.source.first_line - 1
            if replaces:
                self.source.fail(
                    node,
                    f"{name} of line {line} cannot be changed in an inner suite",
                    "values do not change: keep what changes in a buffer, or choose another name",
                )
            self.source.fail(node, f"the name {name!r} is already used in line {line}", "choose another name")
        self.aliases.discard(name)
        self.scope.define(name, value, getattr(node, "lineno", 0))

    def alias(self, target: ast.Name, value: Expr) -> None:
        """Define a name for an expression. It may be redefined."""
        if target.id in self.scope and target.id not in self.aliases:
            self.define(target, target.id, value)
        self.scope.define(target.id, value, target.lineno)
        self.aliases.add(target.id)

    def called(self, node: ast.stmt) -> str:
        """`name` of a statement or assignment that calls T.name."""
        value = node.value if isinstance(node, (ast.Expr, ast.Assign)) else None
        text = dotted(value.func) if isinstance(value, ast.Call) else ""
        return text[2:] if text.startswith("T.") else ""

    def call_of(self, node: ast.stmt) -> ast.Call:
        value = getattr(node, "value", None)
        assert isinstance(value, ast.Call)
        return value

    # Buffers

    def buffer_of(
        self,
        name: str,
        node: ast.Call,
        args: list[ast.expr],
        dtype: DType | None = None,
        strides: Sequence[Expr] | None = None,
        offset: Expr | None = None,
    ) -> Buffer:
        """The buffer that (shape, dtype, strides=…, scope=…, offset=…, align=…) describe, with defaults for
        missing arguments."""
        known = self.exprs.keywords(node, "shape", *_BUFFER_WORDS)
        given = list(args)
        if "shape" in known and not given:
            given = [known["shape"]]
        if not 1 <= len(given) <= 3:
            self.source.fail(node, "a buffer has a shape and a dtype", 'write ((128, 128), "float32")')
        type_ = given[1] if len(given) > 1 else known.get("dtype")
        scope = given[2] if len(given) > 2 else known.get("scope")
        start = known.get("offset", known.get("elem_offset"))
        shape = self._dims(given[0], "a dim")
        if "strides" in known:
            strides = self._dims(known["strides"], "a stride")
        if strides is not None and len(strides) != len(shape):
            self.source.fail(
                known.get("strides", node), f"{len(shape)} dims have as many strides, not {len(strides)}"
            )
        found = self.exprs.dtype(type_, node) if type_ is not None else dtype or "float32"
        align = self.exprs.integer(known["align"], "an alignment") if "align" in known else 0
        if align < 0:
            self.source.fail(known["align"], f"an alignment of {align} bytes")
        return Buffer(
            name,
            shape,
            found,
            strides=strides,
            scope=self.exprs.string(scope, "a scope", node) if scope is not None else "global",
            offset=self.exprs.index(self._unquoted(start), "an offset") if start is not None else offset or 0,
            align=align,
        )

    def _dims(self, node: ast.expr, what: str) -> list[Expr]:
        if isinstance(node, (ast.Tuple, ast.List)):
            return [self.exprs.index(self._unquoted(item), what) for item in node.elts]
        found = self.exprs.any(node)
        if isinstance(found, (tuple, list)):
            for item in found:
                if type(item) is not int and not isinstance(item, Expr):
                    self.source.fail(node, f"{what} is an integer, not {item!r}")
            return [item if isinstance(item, Expr) else const(item) for item in found]
        return [self.exprs.index(self._unquoted(node), what)]

    def _unquoted(self, node: ast.expr) -> ast.expr:
        """The expression in a string. Dims are quoted in files without the future import, so that Python does
        not look up their names."""
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            return node
        try:
            made = ast.parse(node.value.strip(), mode="eval").body
        except (SyntaxError, ValueError):
            self.source.fail(node, f"{node.value!r} is not an expression", "write a name or n + 1")
        for inner in ast.walk(made):
            if "lineno" in inner._attributes:
                ast.copy_location(inner, node)
        return made

    # Blocks

    def block(self, made: ast.Call, nodes: list[ast.stmt]) -> Stmt:
        known = self.exprs.keywords(made, "name", "no_realize")
        given = made.args[0] if made.args else known.get("name")
        if len(made.args) > 1:
            self.source.fail(
                made.args[1], "a block has a name alone", "its axes are T.axis lines in its head"
            )
        name = self.exprs.string(given, "a block's name", made) if given is not None else ""
        header = _Header()
        rest = list(nodes)
        self.scope.open()
        while rest and self._header_line(rest[0], header):
            rest.pop(0)
        body = self.suite(rest)
        self.scope.close()
        reads, writes = header.reads, header.writes
        if reads is None or writes is None:
            found = access_regions(header.axes, body, header.init)
            reads = found[0] if reads is None else reads
            writes = found[1] if writes is None else writes
        return Block(
            name,
            tuple(header.axes),
            tuple(header.values),
            reads,
            writes,
            body,
            header.init,
            header.predicate if header.predicate is not None else const(True, "bool"),
            EMPTY if header.annotations is None else header.annotations,
        )

    def _header_line(self, node: ast.stmt, header: _Header) -> bool:
        """Parse a line of the block's head. False if the line does not belong to it."""
        self.source.current = node
        called = self.called(node)
        if called in ("expr", "meta_var") and isinstance(node, ast.Assign):
            target = node.targets[0]
            if not isinstance(target, ast.Name):
                self.source.fail(node, "an expression is given one name")
            self.alias(target, self.exprs.expr(self.exprs.exactly(self.call_of(node), 1)[0]))
            return True
        if called.startswith("axis."):
            if not isinstance(node, ast.Assign):
                self.source.fail(node, f"the value of T.{called} needs a name", f"write vi = T.{called}(...)")
            with self.source.at(node):
                self._axis(node, called[5:], header)
            return True
        if isinstance(node, ast.With) and short(node.items[0].context_expr) == "T.init()":
            self._once(node, "init", header.init)
            header.init = self.suite(node.body)
            return True
        word = HEADS.get(called)
        if word is None or not isinstance(node, ast.Expr):
            return False
        call = self.call_of(node)
        if word == "where":
            self._once(node, word, header.predicate)
            header.predicate = self.exprs.condition(
                self.exprs.exactly(call, 1)[0], "the predicate of a block"
            )
        elif word == "block_attr":
            self._once(node, word, header.annotations)
            header.annotations = MappingProxyType(self.literals.mapping(self.exprs.exactly(call, 1)[0]))
        else:
            self._once(node, word, header.reads if word == "reads" else header.writes)
            parts = self.exprs.plain(call)
            if len(parts) == 1 and isinstance(parts[0], (ast.List, ast.Tuple)):
                parts = parts[0].elts
            regions = tuple(map(self.exprs.region, parts))
            header.reads, header.writes = (
                (regions, header.writes) if word == "reads" else (header.reads, regions)
            )
        return True

    def _once(self, node: ast.AST, word: str, found: object) -> None:
        if found is not None:
            self.source.fail(node, f"T.{word} stands twice in the head of one block")

    def _axis(self, node: ast.Assign, kind: str, header: _Header) -> None:
        call = self.call_of(node)
        args = self.exprs.plain(call)
        target = node.targets[0]
        targets = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        names = [e for e in targets if isinstance(e, ast.Name)]
        if kind == "remap":
            self._remap(node, call, names, header)
            return
        role = AXES.get(kind)
        if role is None:
            known = ["remap", *AXES]
            self.source.fail(call.func, f"T.axis has no {kind}", suggestion(kind, known, "axes"))
        if len(args) != 2 or len(names) != 1 or len(targets) != 1:
            self.source.fail(
                node,
                f"{short(call)} binds no axis",
                f"write vi = T.axis.{kind}(extent, value), one at a time",
            )
        if isinstance(args[0], ast.Tuple) and len(args[0].elts) == 2:
            domain = Range(*(self.exprs.index(e, "an end of a domain") for e in args[0].elts))
        else:
            extent = self.exprs.index(args[0], "the extent of an axis")
            domain = Range(const(0, extent.dtype), extent)
        value = self.exprs.typed(args[1], domain.extent.dtype)
        if not value.dtype.is_int:
            self.source.fail(args[1], f"an axis is bound to an integer, not {value.dtype}")
        self._add_axis(names[0], domain, role, value, header)

    def _remap(self, node: ast.Assign, call: ast.Call, names: list[ast.Name], header: _Header) -> None:
        args = self.exprs.exactly(call, 2)
        kinds = self.exprs.string(args[0], "the kinds of axes", args[0])
        bound = args[1].elts if isinstance(args[1], (ast.List, ast.Tuple)) else [args[1]]
        if not len(names) == len(kinds) == len(bound) or set(kinds) - set("SR"):
            self.source.fail(
                node,
                "remap has one letter, S or R, and one loop for each axis",
                f"here are {len(names)} names, {len(kinds)} letters and {len(bound)} loops",
            )
        for name, letter, item in zip(names, kinds, bound, strict=True):
            value = self.exprs.expr(item)
            if not isinstance(value, Var) or value not in self.loops:
                self.source.fail(item, f"{short(item)} is not a loop", "write T.axis.spatial(extent, value)")
            domain = Range(*self.loops[value])
            self._add_axis(name, domain, "spatial" if letter == "S" else "reduce", value, header)

    def _add_axis(self, node: ast.Name, domain: Range, kind: str, value: Expr, header: _Header) -> None:
        var = Var(node.id, value.dtype)
        self.define(node, node.id, var)
        header.axes.append(IterVar(var, domain, kind))
        header.values.append(value)
