"""PrimFuncs from Python's syntax tree: the inverse of `tir_printer`, and what people write by hand."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from dlc_core.diag import DlcError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import HANDLE, DType
from dlc_core.ir.expr import Call, Const, Expr, Var, broadcast, const
from dlc_core.script.block_parser import BlockParser
from dlc_core.script.source import dotted, short, suggestion
from dlc_core.script.static import is_static
from dlc_core.script.words import BINDERS, BLOCKS, HEADS, LOOPS
from dlc_core.tir.stmt import (
    EMPTY,
    Alloc,
    Eval,
    For,
    If,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    View,
    While,
    seq,
    store,
)

Wrap = Callable[[Stmt], Stmt]

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


class TirParser(BlockParser):
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
        # Scalars first: buffers before them may have them as dims.
        for argument in arguments:
            type_ = self._scalar_type(argument)
            if type_ is not None:
                made = params[argument.arg] = Var(argument.arg, type_)
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

    def _scalar_type(self, argument: ast.arg) -> DType | None:
        """The dtype of a parameter `n: T.int64`; None for other annotations."""
        annotation = argument.annotation
        if isinstance(annotation, ast.Call) and not annotation.args and short(annotation.func) != "T.Buffer":
            annotation = annotation.func
        if not isinstance(annotation, ast.Attribute):
            return None
        text = short(annotation)
        if text == "T.handle":
            return HANDLE
        found = self.exprs.any(annotation) if text.startswith("T.") else None
        if isinstance(found, DType):
            return found
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
        """An indented suite: a binding without `with` has all that follows as its body."""
        self.scope.open()
        self.depth += 1
        frames: list[tuple[Wrap | None, list[Stmt], ast.stmt | None]] = [(None, [], None)]
        for node in nodes:
            self.source.reading = node
            wrap = self._binding(node)
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
                body = self.placed(wrap(body), node_)
        self.depth -= 1
        self.scope.close()
        assert body is not None
        return body

    def _binding(self, node: ast.stmt) -> Wrap | None:
        """What a Let, Alloc or View written as an assignment wraps around the rest of its suite."""
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
        """`x, y = 1, 2`: all values are those before the line."""
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
        """`x = value`: a variable that is bound once; a static value is a name for itself."""
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
        """`n = T.int64()`: a symbolic dim, which becomes a parameter."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return False
        text = dotted(node.func)
        type_: DType | None = None
        if text in ("T.var", "T.size_var", "T.Var"):
            type_ = self.exprs.dtype(node.args[-1] if node.args else None, node)
        elif text.startswith("T.") and not node.args and {k.arg for k in node.keywords} <= {"is_size_var"}:
            found = self.exprs.any(node.func)
            type_ = found if isinstance(found, DType) else None
        if type_ is None:
            return False
        if self.depth > 1:
            self.source.fail(node, "symbols are declared in the first lines of the function")
        var = Var(target.id, type_)
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
        """A handle's buffer, which takes its place among the parameters; or a window on a region."""
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

    def stmt(self, node: ast.stmt) -> Stmt | None:
        """One statement; None for lines that only name an expression."""
        self.source.reading = node
        try:
            made = self._stmt(node)
        except DlcError as error:
            raise self.source.placed(node, error) from error
        return None if made is None else self.placed(made, node)

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
            return self._for(node)
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
            self.source.fail(node, f"what T.{called} makes gets a name", f"write x = T.{called}(...)")
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
            # What binds a variable is read by `_binding`; this gives names to what is known already.
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
            self.source.fail(node, f"what T.{head} makes gets a name", f"write with T.{head}(...) as x:")
        if head == "init":
            self.source.fail(made, "T.init stands in the head of a block, before its statements")
        known = [BLOCKS[0], "seq", "init", *BINDERS]
        return self.source.fail(made, f"T.{head} is no context", suggestion(head, known))

    def _seq(self, nodes: list[ast.stmt]) -> Stmt:
        self.scope.open()
        found = [s for s in map(self.stmt, nodes) if s is not None]
        self.scope.close()
        return Seq(tuple(found))

    # Loops

    def _for(self, node: ast.For) -> Stmt:
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
            body = self.placed(For(var, *self.loops[var], body, kind, thread, annotations), node)
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
