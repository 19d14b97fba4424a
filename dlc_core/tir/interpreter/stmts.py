"""Statements and PrimFuncs as Python functions.

A buffer parameter is a pointer (Memory, byte offset, dtype), and a scalar is a Python number. Each generated
line is mapped to its statement and block, so that a failure names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from dlc_core.diag import DlcError, RuntimeFailure, UnsupportedError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Call, Const, Expr, Var, const_value, free_vars, post_order
from dlc_core.tir.functor import exprs_of, stmts
from dlc_core.tir.interpreter import scalars
from dlc_core.tir.interpreter.exprs import BufferText, Writer
from dlc_core.tir.interpreter.intervals import UNKNOWN_INDEX, Intervals
from dlc_core.tir.interpreter.storage import Races, allocate, bulk_copy
from dlc_core.tir.interpreter.thread_group import ThreadGroup, exchanged
from dlc_core.tir.intrinsics import CONVERGENT
from dlc_core.tir.scopes import in_main_memory
from dlc_core.tir.stmt import Alloc, Block, Eval, For, If, Let, PrimFunc, Seq, Stmt, Store, View, While
from dlc_core.tir.threads import GROUP, level

PARALLEL_KINDS = ("parallel", "vectorized", "thread")
MAX_NESTED_LOOPS = 15
"""Python allows 20 nested blocks in a function; deeper loops are moved to separate functions."""


class FunctionWriter(Writer):
    """Writes one PrimFunc. `checked` reports parallel iterations to `races`; `reverse` runs them in reverse
    order."""

    def __init__(self, func: PrimFunc, checked: bool, reverse: bool) -> None:
        super().__init__(Intervals())
        self.func = func
        self.checked = checked
        self.reverse = reverse
        self.nesting = 0
        self.block = ""

    def source(self) -> str:
        params = [self.fresh("s" if isinstance(p, Var) else "p") for p in self.func.params]
        self.subject = ("", None)
        self.indent = 0
        self.emit(f"def run({', '.join(params)}):")
        self.indent = 1
        self.emit("cell = new_cell()")
        for param, name in zip(self.func.params, params, strict=True):
            if isinstance(param, Var):
                self.names[param] = name
        for dim in free_vars(*(d for b in self.func.buffers for d in b.shape)):
            self.intervals.bind(dim, *UNKNOWN_INDEX)
        for param, name in zip(self.func.params, params, strict=True):
            if isinstance(param, Buffer):
                self.bind(param, name)
        self.body(self.func.body)
        return "\n".join(self.lines) + "\n"

    def constant(self, expr: Expr) -> str:
        """The text of a dim, stride or offset: a number or a name."""
        known = const_value(expr)
        return str(known) if known is not None else self.temporary(self.value(expr))

    def bind(self, buffer: Buffer, pointer: str) -> None:
        window = self.fresh("m")
        type_ = self.helper(f"dtype_{buffer.dtype}", buffer.dtype)
        self.emit(f"{window} = {pointer}[0].typed({pointer}[1], {type_}, {buffer.name!r})")
        dims = tuple(map(self.constant, buffer.shape))
        strides = tuple(map(self.constant, buffer.element_strides()))
        self.buffers[buffer] = BufferText(pointer, window, dims, strides, self.constant(buffer.offset))
        if self.checked and buffer.strides is None and self.buffers[buffer].offset == "0":
            self.emit(f"{window}.shape = ({''.join(f'{dim}, ' for dim in dims)})")

    def body(self, stmt: Stmt) -> None:
        """A nested suite; an empty one is `pass`."""
        before = len(self.lines)
        self.stmt(stmt)
        if len(self.lines) == before:
            self.emit("pass")

    def suite(self, head: str, stmt: Stmt) -> None:
        self.emit(head)
        self.indent += 1
        self.body(stmt)
        self.indent -= 1

    def stmt(self, stmt: Stmt) -> None:
        # Statements with one nested statement and no loop are handled iteratively, because chains may be
        # long.
        while True:
            self.memo = {}
            self.subject = (self.block, stmt)
            match stmt:
                case Let():
                    self._let(stmt)
                case Alloc():
                    self._alloc(stmt.buffer)
                case View():
                    self.bind(stmt.buffer, self.buffers[stmt.base].pointer)
                case _:
                    break
            stmt = stmt.body
        match stmt:
            case Seq():
                for child in stmt.stmts:
                    self.stmt(child)
            case Store():
                self._store(stmt)
            case For():
                self._for(stmt)
            case Block():
                self._block(stmt)
            case If():
                self.suite(f"if {self.value(stmt.cond)}:", stmt.then)
                if stmt.orelse is not None:
                    self.suite("else:", stmt.orelse)
            case While():
                self._while(stmt)
            case Eval():
                self.emit(self.value(stmt.value))
            case _:
                raise UnsupportedError(f"the interpreter does not know the statement {type(stmt).__name__}")

    def _let(self, stmt: Let) -> None:
        name = self.fresh("v")
        value = stmt.value
        self.emit(f"{name} = {self.value(value) if value.dtype.lanes == 1 else self.lanes(value)}")
        self.names[stmt.var] = name
        interval = self.intervals.of(value)
        if interval is not None:
            self.intervals.bind(stmt.var, *interval)

    def _alloc(self, buffer: Buffer) -> None:
        size = buffer.num_elements()
        if buffer.strides is not None:
            size = buffer.offset + 1
            for dim, stride in zip(buffer.shape, buffer.strides, strict=True):
                size = size + (dim - 1) * stride
        pointer = self.fresh("p")
        type_ = self.helper(f"dtype_{buffer.dtype}", buffer.dtype)
        shared = "" if in_main_memory(buffer) else ", True"
        self.emit(f"{pointer} = (allocate({self.value(size)}, {type_}, races{shared}), 0, {type_})")
        self.bind(buffer, pointer)

    def _store(self, stmt: Store) -> None:
        buffer, value = stmt.buffer, stmt.value
        window = self.buffers[buffer].window
        encode = scalars.encoder(buffer.dtype)
        wide = max(value.dtype.lanes, *(i.dtype.lanes for i in stmt.indices), 1)
        if wide > 1:
            listed = self.lanes(value) if value.dtype.lanes > 1 else ""
            lane = self.fresh("l")
            self.emit(f"for {lane} in range({wide}):")
            self.indent += 1
            self.memo, self.lane = {}, lane
            text = f"{listed}[{lane}]" if listed else self.value(value)
        else:
            # A float32 view rounds a value when it is stored.
            text = self.value(value, rounded=encode is not None)
        at = self.element_number(buffer, stmt.indices, [self.value(i) for i in stmt.indices])
        if encode is not None:
            text = f"{self.helper(f'encode_{buffer.dtype}', encode)}({text})"
        self.emit(f"{window}[{at}] = {text}")
        if wide > 1:
            self.indent -= 1
            self.memo, self.lane = {}, ""

    def _loop_range(self, loop: For) -> str:
        begin, extent = const_value(loop.begin), const_value(loop.extent)
        low, high = UNKNOWN_INDEX
        begins, extents = self.intervals.of(loop.begin), self.intervals.of(loop.extent)
        if begins is not None and extents is not None:
            low, high = max(low, begins[0]), min(high, begins[1] + extents[1] - 1)
        self.intervals.bind(loop.var, low, high)
        if begin is not None and extent is not None:
            return f"range({begin}, {begin + extent})" if begin else f"range({extent})"
        first, count = self.constant(loop.begin), self.value(loop.extent)
        return f"range({count})" if first == "0" else f"range({first}, {first} + {count})"

    def _for(self, loop: For) -> None:
        name = self.fresh("v")
        text = self._loop_range(loop)
        self.names[loop.var] = name
        group = level(loop) == GROUP
        if loop.kind == "thread" and not group and _synchronises(loop.body):
            self._threads(loop, name, text)
            return
        parallel = loop.kind in PARALLEL_KINDS
        outer, self.yielding = self.yielding, self.yielding and not group
        if parallel and self.reverse:
            text = f"reversed({text})"
        if parallel and self.checked:
            self.emit(f"races.enter({_loop_name(loop)!r})")
        self.emit(f"for {name} in {text}:")
        self.indent += 1
        if parallel and self.checked:
            self.emit(f"races.step({name})")
        self._nested(loop.body)
        self.indent -= 1
        if parallel and self.checked:
            self.emit("races.leave()")
        self.yielding = outer

    def _threads(self, loop: For, name: str, text: str) -> None:
        """Write threads with barriers as generators. Each yields at a barrier, and they are resumed in
        rotation."""
        body, group, barrier = self.fresh("thread"), self.fresh("group"), self.fresh("barrier")
        outer, nesting = self.yielding, self.nesting
        self.yielding, self.nesting = True, 0
        self.suite(f"def {body}({name}):", loop.body)
        self.yielding, self.nesting = outer, nesting
        numbers = f"reversed({text})" if self.reverse else text
        self.emit(f"{group} = ThreadGroup({body}, {numbers}, {_loop_name(loop)!r}, races)")
        self.emit(f"while ({barrier} := {group}.advance()) is not None:")
        self.emit(f" yield {barrier}" if outer else " pass")

    def _nested(self, stmt: Stmt) -> None:
        self.nesting += 1
        if self.nesting % MAX_NESTED_LOOPS == 0:
            name = self.fresh("inner")
            self.suite(f"def {name}():", stmt)
            yields = self.yielding and _synchronises(stmt)
            self.emit(f"yield from {name}()" if yields else f"{name}()")
        else:
            self.body(stmt)
        self.nesting -= 1

    def _while(self, stmt: While) -> None:
        self.emit("while True:")
        self.indent += 1
        self.emit(f"if not {self.value(stmt.cond)}: break")
        self._nested(stmt.body)
        self.indent -= 1

    def _block(self, block: Block) -> None:
        outer, self.block = self.block, block.name
        self.subject = (block.name, block)
        domain_checks = [
            self._axis(axis, value) for axis, value in zip(block.axes, block.values, strict=True)
        ]
        indent = self.indent
        if not isinstance(block.predicate, Const):
            self.emit(f"if {self.value(block.predicate)}:")
            self.indent += 1
        elif not block.predicate.value:
            self.emit("if False:")
            self.indent += 1
        for check in domain_checks:
            if check:
                self.emit(check)
        if block.init is not None:
            first = [
                f"{self.names[a.var]} == {self.value(a.dom.begin)}" for a in block.axes if a.kind == "reduce"
            ]
            self.suite(f"if {' and '.join(first) or 'True'}:", block.init)
        self.body(block.body)
        self.indent = indent
        self.block = outer

    def _axis(self, axis: Any, value: Expr) -> str:
        """Bind an axis. Returns the line that checks its domain; an empty result means that the check cannot
        fail.
        """
        name = self.fresh("v")
        self.emit(f"{name} = {self.value(value)}")
        self.names[axis.var] = name
        begin, extent = const_value(axis.dom.begin), const_value(axis.dom.extent)
        interval = self.intervals.of(value)
        if begin is not None and extent is not None and interval is not None:
            inside = begin <= interval[0] and interval[1] < begin + extent
            self.intervals.bind(axis.var, *(interval if inside else (begin, begin + extent - 1)))
            if inside:
                return ""
        elif axis.var.dtype is INDEX:
            self.intervals.bind(axis.var, *UNKNOWN_INDEX)
        first, count = self.constant(axis.dom.begin), self.constant(axis.dom.extent)
        return (
            f"if not {first} <= {name} < {first} + {count}: "
            f"outside_domain({axis.var.name!r}, {name}, {first}, {count})"
        )


def _synchronises(stmt: Stmt) -> bool:
    """Whether threads synchronise inside, by barriers or exchanges."""
    return any(
        isinstance(e, Call) and e.name in CONVERGENT for s in stmts(stmt) for e in post_order(*exprs_of(s))
    )


def _loop_name(loop: For) -> str:
    return f"{loop.var.name} ({loop.thread or loop.kind})"


def out_of_bounds(buffer: Buffer, indices: tuple[int, ...], dims: tuple[int, ...]) -> None:
    raise RuntimeFailure(
        f"access out of bounds: {buffer.name}[{', '.join(map(str, indices))}]",
        why=f"the buffer has shape ({', '.join(map(str, dims))})",
    )


def outside_domain(name: str, value: int, begin: int, extent: int) -> None:
    raise RuntimeFailure(f"block axis {name} = {value} is outside its domain [{begin}, {begin + extent})")


def check(cond: bool, code: int) -> int:
    if not cond:
        raise RuntimeFailure(f"check {code} of the program failed")
    return 0


def report_index(index: int, extent: int, code: int) -> int:
    """Check an index that may count from the end, and return it."""
    if not -extent <= index < extent:
        raise RuntimeFailure(f"index {index} of {extent} elements", why=f"check {code} of the program failed")
    return index


def _new_cell() -> Any:
    return memoryview(bytearray(4)).cast("f")


_RUNTIME: dict[str, Any] = {name: value for name, value in vars(scalars).items() if name[0] != "_"}
_RUNTIME.update({f"m_{name}": function for name, function in (scalars.UNARY | scalars.BINARY).items()})
_RUNTIME.update(
    ThreadGroup=ThreadGroup, exchanged=exchanged, reduce=reduce, new_cell=_new_cell, allocate=allocate,
    bulk_copy=bulk_copy, check=check, report_index=report_index, out_of_bounds=out_of_bounds,
    outside_domain=outside_domain,
)  # fmt: skip


class Program:
    """A PrimFunc translated to Python: `bind` it to the arguments of a run, then call it."""

    def __init__(self, func: PrimFunc, *, checked: bool, reverse: bool) -> None:
        writer = FunctionWriter(func, checked, reverse)
        self.func_name = func.name
        self.source = writer.source()
        self.subjects = writer.subjects
        self.file = f"<tensor program {func.name}>"
        self.names = {name: var.name for var, name in writer.names.items()}
        self.namespace = {**_RUNTIME, **writer.namespace}
        self.code = compile(self.source, self.file, "exec")

    def bind(
        self, kernels: Mapping[str, Callable[..., Any]], extern: Callable[..., Any], races: Races | None
    ) -> Callable[..., int]:
        namespace = {**self.namespace, "kernels": kernels, "extern": extern, "races": races}
        # The text is generated only from numbered names and literal numbers, so no text of a model can enter
        # it.
        exec(self.code, namespace)  # noqa: S102
        run: Callable[..., Any] = namespace["run"]

        def call(*args: Any) -> int:
            try:
                run(*args)
            except DlcError as error:
                self._locate(error, error)
                raise
            except (ArithmeticError, LookupError, ValueError, TypeError, MemoryError) as error:
                failure = RuntimeFailure(_explain(error))
                self._locate(failure, error)
                raise failure from error
            return 0

        return call

    def _locate(self, failure: DlcError, error: BaseException) -> None:
        """Add the statement, the block and the loop variables to the error."""
        traceback = error.__traceback__
        frame = None
        while traceback is not None:
            if traceback.tb_frame.f_code.co_filename == self.file:
                frame = traceback
            traceback = traceback.tb_next
        if frame is None:
            return
        block, stmt = self.subjects[frame.tb_lineno - 1]
        known = {self.names[n]: v for n, v in frame.tb_frame.f_locals.items() if n in self.names}
        values = ", ".join(f"{n} = {v}" for n, v in known.items() if isinstance(v, (int, float)))
        lines = [f"in {self.func_name}" + (f", block {block}" if block else "")]
        if stmt is not None:
            lines.append(f"at {describe(stmt)}")
        if values:
            lines.append(f"with {values}")
        failure.details += tuple(lines)


def _explain(error: BaseException) -> str:
    if isinstance(error, ZeroDivisionError):
        return "integer division by zero"
    if isinstance(error, IndexError):
        return "access outside the memory of a buffer"
    if isinstance(error, TypeError) and "read-only" in str(error):
        return "a read-only array is written to"
    return f"the program fails: {error}"


def describe(stmt: Stmt) -> str:
    """The statement as one line, for messages."""
    match stmt:
        case Store():
            return f"{stmt.buffer.name}[{', '.join(map(str, stmt.indices))}] = {stmt.value}"
        case For():
            return f"for {stmt.var.name} in {stmt.begin} + [0, {stmt.extent})"
        case Block():
            return f"block {stmt.name}"
        case Let():
            return f"{stmt.var.name} = {stmt.value}"
        case Eval():
            return str(stmt.value)
        case If() | While():
            return f"{type(stmt).__name__.lower()} {stmt.cond}"
        case Alloc() | View():
            return f"{type(stmt).__name__.lower()} {stmt.buffer!r}"
    return type(stmt).__name__
