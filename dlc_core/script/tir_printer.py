"""Printing of PrimFuncs as Python text. docs/internals/script.md describes the syntax.

Every line is mapped to its statement, so that an excerpt around a statement can be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from dlc_core.diag import Span, UsageError
from dlc_core.ir.bounds import Bounds
from dlc_core.ir.buffer import DEFAULT_ALIGN, Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Call, Const, Expr, Var, const_value, free_vars
from dlc_core.script.expr_printer import ExprPrinter
from dlc_core.script.literals import Literals, Metadata, quoted
from dlc_core.script.names import Names, identifier
from dlc_core.tir.intrinsics import KERNEL, LAUNCH
from dlc_core.tir.stmt import (
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
    Store,
    View,
    While,
)

LOOPS = {"serial": "serial", "parallel": "parallel", "vectorized": "vectorized", "unrolled": "unroll"}
INDENT = "    "
WIDTH = 110


def bounds_call(module: str, bounds: Bounds) -> str:
    """A symbolic dim with bounds: `T.dim(1, 512)`."""
    return f"{module}.dim({bounds.low}, {bounds.high})"


class TirPrinter:
    """Prints one PrimFunc, indented by `level`; `key` is its name in the module.

    `lines` are (text, statement) pairs; `metadata` collects what attributes refer to.
    """

    def __init__(self, metadata: Metadata, level: int = 0) -> None:
        self.lines: list[tuple[str, Stmt | None]] = []
        self.level = level
        self.names = Names()
        self.subject: Stmt | None = None
        self.loops: dict[Var, For] = {}
        self.aliases: list[str] = []
        self.todo: list[Callable[[], None]] = []
        self.exprs = ExprPrinter(
            lambda v: self.names.of(v, v.name), lambda b: self.names.of(b, b.name, "buffer"), self._alias
        )
        self.inline = ExprPrinter(self.exprs.var, self.exprs.buffer)
        explicit = ExprPrinter(self.exprs.var, self.exprs.buffer, explicit=True)
        self.literals = Literals(metadata, explicit.text)

    def emit(self, text: str) -> None:
        self.lines.append((INDENT * self.level + text, self.subject))

    def _alias(self, text: str) -> str:
        name = self.names.fresh("e")
        self.aliases.append(name)
        self.emit(f"{name} = T.expr({text})")
        return name

    def func(self, func: PrimFunc, key: str | None = None) -> None:
        key = func.name if key is None else key
        shown = identifier(key, "func")
        extra = [f"key={quoted(key)}"] if shown != key else []
        extra += [f"name={quoted(func.name)}"] if func.name != key else []
        self.emit(f"@T.prim_func({', '.join(extra)})" if extra else "@T.prim_func")
        # Parameters are named first, so that their names are those of their hints.
        for param in func.params:
            self.names.of(param, param.name, "arg")
        params = [f"{self.names.of(p, p.name)}: {self.annotation(p)}" for p in func.params]
        for line in definition(shown, params, span_comment(func.spans), self.level):
            self.emit(line)
        self.level += 1
        if func.attrs:
            self.emit(f"T.func_attr({self.literals.mapping(func.attrs)})")
        self.suite(func.body)
        self.level -= 1

    def suite(self, stmt: Stmt) -> None:
        """Print a statement as the rest of an indented suite."""
        self._later(partial(self._suite, stmt))
        while self.todo:
            self.todo.pop()()

    def _later(self, *tasks: Callable[[], None]) -> None:
        """Queue tasks before those that are pending; a queue avoids recursion in deeply nested programs."""
        self.todo += reversed(tasks)

    def annotation(self, param: Buffer | Var) -> str:
        if isinstance(param, Var):
            return f"T.{param.dtype}" if param.bounds is None else bounds_call("T", param.bounds)
        return f"T.Buffer({self._description(param, self.inline)})"

    def _description(self, b: Buffer, exprs: ExprPrinter) -> str:
        """The arguments that describe a buffer: shape, dtype, and all values that differ from the
        defaults."""
        strides = b.strides if b.strides is not None else ()
        texts = exprs.texts((*b.shape, *strides, b.offset))
        parts = [tuple_text(texts[: b.ndim]), f'"{b.dtype}"']
        if b.strides is not None:
            parts.append(f"strides={tuple_text(texts[b.ndim : -1])}")
        if b.scope != "global":
            parts.append(f"scope={quoted(b.scope)}")
        if const_value(b.offset) != 0:
            parts.append(f"offset={texts[-1]}")
        if b.align != min(DEFAULT_ALIGN, b.dtype.itemsize):
            parts.append(f"align={b.align}")
        return ", ".join(parts)

    # Statements.  In the rest of a suite a Let, Alloc or View may be an assignment whose scope is all that
    # follows; elsewhere it needs a `with`.

    def _suite(self, stmt: Stmt, bound: list[Var | Buffer] | None = None) -> None:
        bound = [] if bound is None else bound
        while True:
            self.begin(stmt)
            match stmt:
                case Seq() if _plain(stmt):
                    first = [partial(self.stmt, child) for child in stmt.stmts[:-1]]
                    self._later(*first, partial(self._suite, stmt.stmts[-1], bound))
                    return
                case Let() | Alloc() | View():
                    name, made = self._binding(stmt)
                    self.emit(f"{name} = {made}")
                    bound += (*stmt.bound_vars(), *stmt.bound_buffers())
                    stmt = stmt.body
                case _:
                    break
        self._later(partial(self.names.release, bound))
        if isinstance(stmt, Seq) and not stmt.stmts:
            self.emit("pass")
        else:
            self.stmt(stmt)

    def begin(self, stmt: Stmt) -> None:
        self.subject = stmt
        self.names.release_texts(self.aliases)
        self.aliases.clear()
        self.exprs.aliases = {}

    def nested(self, head: str, body: Stmt, *after: Callable[[], None]) -> None:
        self.emit(head)
        self.level += 1
        self._later(partial(self._suite, body), self._dedent, *after)

    def _dedent(self) -> None:
        self.level -= 1

    def stmt(self, stmt: Stmt) -> None:
        self.begin(stmt)
        match stmt:
            case Store():
                *indices, value = self.exprs.texts((*stmt.indices, stmt.value))
                self.emit(f"{self.exprs.buffer(stmt.buffer)}[{', '.join(indices) or '()'}] = {value}")
            case For():
                self._for(stmt)
            case Block():
                self._block(stmt)
            case Seq():
                self._seq(stmt)
            case If():
                self._if(stmt)
            case While():
                self.nested(f"while {self.exprs.text(stmt.cond)}:", stmt.body)
            case Eval():
                text = self.exprs.text(stmt.value)
                bare = isinstance(stmt.value, Call) and stmt.value.name.startswith((KERNEL, LAUNCH))
                self.emit(text if bare else f"T.evaluate({text})")
            case Let() | Alloc() | View():
                name, made = self._binding(stmt)
                bound = (*stmt.bound_vars(), *stmt.bound_buffers())
                self.nested(f"with {made} as {name}:", stmt.body, partial(self.names.release, bound))
            case _:
                raise UsageError(f"{type(stmt).__name__} is not a statement of the grammar")

    def _seq(self, stmt: Seq) -> None:
        """A sequence that a suite would not reproduce: one inside another, or one of less than two
        statements."""
        self.emit("with T.seq():")
        self.level += 1
        if not stmt.stmts:
            self.emit("pass")
        self._later(*(partial(self.stmt, child) for child in stmt.stmts), self._dedent)

    def _binding(self, stmt: Let | Alloc | View) -> tuple[str, str]:
        if isinstance(stmt, Let):
            value = self.exprs.text(stmt.value)
            return self.names.of(stmt.var, stmt.var.name), f"T.let({value})"
        name = self.names.of(stmt.buffer, stmt.buffer.name, "buffer")
        description = self._description(stmt.buffer, self.exprs)
        base = f"T.view({self.exprs.buffer(stmt.base)}, " if isinstance(stmt, View) else "T.alloc_buffer("
        return name, f"{base}{description})"

    def _if(self, stmt: If) -> None:
        rest = () if stmt.orelse is None else (partial(self._else, stmt, stmt.orelse),)
        self.nested(f"if {self.exprs.text(stmt.cond)}:", stmt.then, *rest)

    def _else(self, stmt: If, orelse: Stmt) -> None:
        self.subject = stmt
        self.nested("else:", orelse)

    def _for(self, loop: For) -> None:
        nest = [loop]
        while _griddable(nest[-1]) and isinstance(nest[-1].body, For) and _griddable(nest[-1].body):
            outer = {f.var for f in nest}
            if any(var in outer for var in free_vars(nest[-1].body.extent)):
                break
            nest.append(nest[-1].body)
        for inner in nest:
            self.loops[inner.var] = inner
        names = [self.names.of(f.var, f.var.name) for f in nest]
        if len(nest) > 1:
            extents = self.exprs.texts(f.extent for f in nest)
            over = f"T.grid({', '.join(extents)})"
        else:
            over = f"range({self.exprs.text(loop.extent)})" if _griddable(loop) else self._loop_kind(loop)
        release = partial(self.names.release, [f.var for f in nest])
        self.nested(f"for {', '.join(names)} in {over}:", nest[-1].body, release)

    def _loop_kind(self, loop: For) -> str:
        begin, extent = self.exprs.texts((loop.begin, loop.extent))
        zero = const_value(loop.begin) == 0 and loop.begin.dtype is loop.extent.dtype
        args = [extent] if zero else [begin, f"extent={extent}"]
        if loop.kind == "thread":
            args.append(f"thread={quoted(loop.thread)}")
        if loop.annotations:
            args.append(f"annotations={self.literals.mapping(loop.annotations)}")
        return f"T.{LOOPS.get(loop.kind, 'thread_binding')}({', '.join(args)})"

    def _block(self, block: Block) -> None:
        self.emit(f"with T.block({quoted(block.name)}):")
        self.level += 1
        self._axes(block)
        if not (isinstance(block.predicate, Const) and block.predicate.value is True):
            self.emit(f"T.where({self.exprs.text(block.predicate)})")
        for word, regions in (("reads", block.reads), ("writes", block.writes)):
            self.emit(f"T.{word}({', '.join(map(self._region, regions))})")
        if block.annotations:
            self.emit(f"T.block_attr({self.literals.mapping(block.annotations)})")
        release = partial(self.names.release, [axis.var for axis in block.axes])
        self._later(partial(self._suite, block.body), self._dedent, release)
        if block.init is not None:
            self.nested("with T.init():", block.init)

    def _axes(self, block: Block) -> None:
        pairs = list(zip(block.axes, block.values, strict=True))
        # The values and domains are outside the block's scope, so all are named before any axis is.
        texts = self.exprs.texts(e for a, v in pairs for e in (a.dom.begin, a.dom.extent, v))
        run: list[tuple[IterVar, str]] = []
        for k, (axis, value) in enumerate(pairs):
            begin, extent, bound = texts[3 * k : 3 * k + 3]
            if self._remappable(axis, value):
                run.append((axis, bound))
                continue
            self._remap(run)
            zero = const_value(axis.dom.begin) == 0 and axis.dom.begin.dtype is axis.dom.extent.dtype
            domain = extent if zero else f"({begin}, {extent})"
            self.emit(f"{self.names.of(axis.var, axis.var.name)} = T.axis.{axis.kind}({domain}, {bound})")
        self._remap(run)

    def _remappable(self, axis: IterVar, value: Expr) -> bool:
        loop = self.loops.get(value) if isinstance(value, Var) else None
        return (
            loop is not None
            and loop.extent is axis.dom.extent
            and loop.begin is axis.dom.begin
            and const_value(loop.begin) == 0
            and axis.var.dtype is loop.var.dtype
        )

    def _remap(self, run: list[tuple[IterVar, str]]) -> None:
        if run:
            kinds = "".join("S" if axis.kind == "spatial" else "R" for axis, _ in run)
            names = ", ".join(self.names.of(axis.var, axis.var.name) for axis, _ in run)
            self.emit(f'{names} = T.axis.remap("{kinds}", [{", ".join(value for _, value in run)}])')
            run.clear()

    def _region(self, region: Region) -> str:
        ranges = ", ".join(map(self._range, region.ranges))
        return f"{self.exprs.buffer(region.buffer)}[{ranges or '()'}]"

    def _range(self, r: Range) -> str:
        if const_value(r.extent) == 1 and r.extent.dtype is INDEX and r.begin.dtype is INDEX:
            return self.exprs.text(r.begin)
        begin, end = self.exprs.texts((r.begin, r.begin + r.extent))
        return f"{begin}:{end}"


def _plain(stmt: Seq) -> bool:
    """Whether a suite parses back as this sequence."""
    return len(stmt.stmts) > 1 and not any(isinstance(s, Seq) for s in stmt.stmts)


def _griddable(loop: For) -> bool:
    return (
        loop.kind == "serial"
        and not loop.thread
        and not loop.annotations
        and loop.var.dtype is INDEX
        and loop.begin.dtype is INDEX
        and const_value(loop.begin) == 0
    )


def definition(name: str, params: Sequence[str], comment: str, level: int) -> list[str]:
    """The head of a function, on one line if it fits."""
    line = f"def {name}({', '.join(params)}):{comment}"
    if len(line) + len(INDENT) * level <= WIDTH or not params:
        return [line]
    return [f"def {name}(", *(f"{INDENT}{p}," for p in params), f"):{comment}"]


def tuple_text(items: Sequence[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def span_comment(spans: Iterable[Span]) -> str:
    """Names of the model nodes, as a comment at the end of a line."""
    names = [" ".join((span.name or str(span)).split()) for span in spans]
    return f"  # {'; '.join(dict.fromkeys(names))}" if names else ""


def print_prim_func(
    func: PrimFunc, metadata: Metadata, *, level: int = 0, key: str | None = None
) -> list[tuple[str, Stmt | None]]:
    """Lines of a PrimFunc with the statements they belong to."""
    printer = TirPrinter(metadata, level)
    printer.func(func, key)
    return printer.lines
