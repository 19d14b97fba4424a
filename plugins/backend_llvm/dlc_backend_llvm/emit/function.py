"""Conversion of statements to basic blocks, and of PrimFuncs to functions.

Loops keep register values in phis: a "local" buffer whose accesses all have constant indices after unrolling
is never in memory. A parallel loop becomes a separate function (closure, begin, end), which the thread pool
runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from dlc_backend_llvm.emit.clock import CLOCK
from dlc_backend_llvm.emit.expression import ExpressionEmitter
from dlc_backend_llvm.emit.scope import Lines, Scope, flatten
from dlc_backend_llvm.emit.stops import STOP, divided
from dlc_backend_llvm.emit.types import memory_type, register_type
from dlc_backend_llvm.emit.unit import Unit
from dlc_backend_llvm.pool_text import STOP_LOOK, STOP_WORD
from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX
from dlc_core.ir.expr import Binary, Call, Const, Expr, Var, const_value, post_order
from dlc_core.tir.functor import buffers_written, child_stmts, free_buffers, free_vars_stmt, walk
from dlc_core.tir.in_place import shared_buffers
from dlc_core.tir.intrinsics import EXTERN, NOTE
from dlc_core.tir.lanes import lane_of
from dlc_core.tir.promotion import promotable
from dlc_core.tir.stmt import Alloc, Eval, For, If, Let, PrimFunc, Stmt, Store, View, While
from dlc_core.tir.visitor import StmtVisitor

STACK_LIMIT = 1 << 20
"""The maximum size in bytes of the stack allocations of a function."""

POOL = "dlc_parallel_for"


class FunctionEmitter(ExpressionEmitter, StmtVisitor):
    """Emits the body of a function."""

    def __init__(self, unit: Unit, name: str, kernels: Sequence[str] = ()) -> None:
        super().__init__(unit)
        self.name = name
        self.kernels = kernels
        self.entry_allocas: list[str] = []
        self.threads = "%threads"
        self._labels = 0
        self._block = "entry"
        self._stack = 0
        self._regions = 0
        self._nonnegative: set[Var] = set()
        self._written: dict[Stmt, frozenset[Buffer]] = {}
        self.stop_word = STOP_WORD
        """The function that returns the address of the stop word."""
        self._stops = False

    def written(self, stmt: Stmt) -> frozenset[Buffer]:
        """The buffers that a statement stores to. The result is cached."""
        if stmt not in self._written:
            walk(stmt, lambda part: part not in self._written, after=self._note_written)
        return self._written[stmt]

    def _note_written(self, stmt: Stmt) -> None:
        found = frozenset().union(*(self._written[part] for part in child_stmts(stmt)))
        if isinstance(stmt, Store):
            found |= {stmt.buffer}
        elif isinstance(stmt, Eval):
            found |= frozenset(buffers_written(stmt))
        self._written[stmt] = found

    # Blocks and scopes

    def label(self, hint: str) -> str:
        self._labels += 1
        return f"{hint}{self._labels}"

    def start(self, label: str) -> None:
        """Begin a basic block."""
        self.lines.append(f"{label}:")
        self._block = label

    @contextmanager
    def scope(self) -> Iterator[Scope]:
        fresh = Scope(self.lines, len(self.scopes))
        self.scopes.append(fresh)
        try:
            yield fresh
        finally:
            self.scopes.pop()

    def nonnegative(self, expr: Expr) -> bool:
        return all(
            (isinstance(e, Var) and e in self._nonnegative)
            or (isinstance(e, Const) and e.value >= 0)
            or (isinstance(e, Binary) and e.op in ("add", "mul", "floordiv", "floormod", "min", "max"))
            for e in post_order(expr)
        )

    # Statements

    def stmt(self, stmt: Stmt) -> None:
        outer = len(self.scopes)
        super().stmt(stmt)
        del self.scopes[outer:]

    def visit_let(self, stmt: Let) -> Stmt:
        operand = self.value(stmt.value)
        # Open a scope, so that expressions of the variable are emitted after it. `stmt` closes the scope.
        self.scopes.append(Scope(self.lines, len(self.scopes)))
        self.vars[stmt.var] = (operand, self.depth)
        return stmt.body

    def visit_view(self, stmt: View) -> Stmt:
        self.pointers[stmt.buffer] = self.base(stmt.base)
        self.windows[stmt.buffer] = stmt.base
        return stmt.body

    def visit_store(self, stmt: Store) -> None:
        buffer, lanes = stmt.buffer, max(stmt.value.dtype.lanes, *(i.dtype.lanes for i in stmt.indices), 1)
        if lanes > 1 and all(i.dtype.lanes == 1 for i in stmt.indices):
            raise CodegenError(f"a vector is stored to one element of {buffer.name}")
        start, stride, offsets = self.offsets_of(buffer, stmt.indices)
        operand = self.value(stmt.value)
        if stmt.value.dtype.lanes != lanes:
            operand = self._splat(stmt.value, lanes)
        type_ = buffer.dtype.with_lanes(lanes)
        if buffer in self.registers:
            self.registers[buffer][self.register_key(buffer, start, stride, lanes)] = operand
        elif stride == 1:
            pointer = self.pointer(buffer, start)
            stored = self.to_memory(operand, type_)
            align = self.alignment(buffer, start, lanes)
            self.lines.append(f"  store {memory_type(type_)} {stored}, ptr {pointer}, align {align}")
        else:
            scalar = memory_type(buffer.dtype)
            stored = self.to_memory(operand, type_)
            for lane in range(lanes):
                pointer = self.pointer(buffer, offsets[lane] if offsets else start + lane * (stride or 0))
                one = self.emit(f"extractelement {memory_type(type_)} {stored}, i32 {lane}")
                self.lines.append(f"  store {scalar} {one}, ptr {pointer}, align {buffer.dtype.itemsize}")
        self._forget([buffer])

    def _forget(self, buffers: Iterable[Buffer]) -> None:
        for scope in self.scopes:
            for buffer in buffers:
                scope.forget(self.root(buffer))

    def _carried(self, body: Stmt) -> list[tuple[Buffer, tuple[int, int]]]:
        """The promoted registers that a loop or branch changes. They need phis."""
        written = self.written(body)
        return [(b, key) for b in self.registers if b in written for key in self.registers[b]]

    def visit_for(self, loop: For) -> None:
        if loop.kind == "parallel":
            self._parallel(loop)
            return
        if loop.kind == "thread":
            raise CodegenError(
                f"loop {loop.var.name} is bound to hardware thread {loop.thread}, which a CPU does not have"
            )
        begin, extent = (self.value(e.astype(INDEX)) for e in (loop.begin, loop.extent))
        known = const_value(loop.extent)
        if known is not None and known <= 0:
            return
        if begin == "0":
            end = extent
        elif _is_int(begin) and _is_int(extent):
            end = str(int(begin) + int(extent))
        else:
            end = self.emit(f"add i64 {begin}, {extent}")
        if self.nonnegative(loop.begin):
            self._nonnegative.add(loop.var)
        body, done = self.label("loop"), self.label("done")
        carried = self._carried(loop.body)
        self._forget(self.written(loop.body))
        before = self._block
        if known is None:
            some = self.emit(f"icmp sgt i64 {extent}, 0")
            self.lines.append(f"  br i1 {some}, label %{body}, label %{done}")
        else:
            self.lines.append(f"  br label %{body}")
        initial = [self.registers[b][key] for b, key in carried]
        self.start(body)
        index, following = self.fresh("i"), self.fresh("n")
        header: Lines = []
        self.lines.append(header)
        inside = []
        for b, key in carried:
            name = self.fresh("r")
            inside.append(name)
            self.registers[b][key] = name
        with self.scope() as inner:
            counter = index
            if loop.var.dtype is not INDEX:
                counter = self.fresh("i")
                inner.prefix.append(f"  {counter} = trunc i64 {index} to {register_type(loop.var.dtype)}")
            self.vars[loop.var] = (counter, self.depth)
            if STOP in loop.annotations:
                self.stop_point()
            self.stmt(loop.body)
        latch = self._block
        final = [self.registers[b][key] for b, key in carried]
        header.append(f"  {index} = phi i64 [ {begin}, %{before} ], [ {following}, %{latch} ]")
        for (b, key), name, old, new in zip(carried, inside, initial, final, strict=True):
            type_ = register_type(b.dtype.with_lanes(key[1]))
            header.append(f"  {name} = phi {type_} [ {old}, %{before} ], [ {new}, %{latch} ]")
        self.lines.append(f"  {following} = add nsw i64 {index}, 1")
        more = self.emit(f"icmp slt i64 {following}, {end}")
        self.lines.append(f"  br i1 {more}, label %{body}, label %{done}")
        self.start(done)
        if known is None:
            for (b, key), old, new in zip(carried, initial, final, strict=True):
                type_ = register_type(b.dtype.with_lanes(key[1]))
                self.registers[b][key] = self.emit(
                    f"phi {type_} [ {old}, %{before} ], [ {new}, %{latch} ]", "r"
                )
        self._forget(self.written(loop.body))

    def visit_if(self, stmt: If) -> None:
        if stmt.cond.dtype.lanes > 1:
            self._if_lanes(stmt)
            return
        cond = self.value(stmt.cond)
        if cond in ("true", "false"):
            taken = stmt.then if cond == "true" else stmt.orelse
            if taken is not None:
                self.stmt(taken)
            return
        carried = self._carried(stmt)
        initial = [self.registers[b][key] for b, key in carried]
        then, orelse, done = self.label("then"), self.label("else"), self.label("end")
        self.lines.append(f"  br i1 {cond}, label %{then}, label %{orelse if stmt.orelse else done}")
        arms = [(self._block, initial)] if stmt.orelse is None else []
        for label, body in ((then, stmt.then), (orelse, stmt.orelse)):
            if body is None:
                continue
            for (b, key), old in zip(carried, initial, strict=True):
                self.registers[b][key] = old
            self.start(label)
            with self.scope():
                self.stmt(body)
            self.lines.append(f"  br label %{done}")
            arms.append((self._block, [self.registers[b][key] for b, key in carried]))
        self.start(done)
        for index, (b, key) in enumerate(carried):
            type_ = register_type(b.dtype.with_lanes(key[1]))
            incoming = ", ".join(f"[ {values[index]}, %{block} ]" for block, values in arms)
            self.registers[b][key] = self.emit(f"phi {type_} {incoming}", "r")
        self._forget(self.written(stmt))

    def _if_lanes(self, stmt: If) -> None:
        """A condition with several lanes: a branch for each lane, around a store of this lane."""
        if stmt.orelse is not None or not isinstance(stmt.then, Store):
            raise CodegenError("a condition that differs between lanes may guard only a single store")
        inner = stmt.then
        for lane in range(stmt.cond.dtype.lanes):
            scalar = Store(
                inner.buffer, tuple(lane_of(i, lane) for i in inner.indices), lane_of(inner.value, lane)
            )
            self.visit_if(If(lane_of(stmt.cond, lane), scalar))

    def visit_while(self, stmt: While) -> None:
        if self._carried(stmt.body):
            raise CodegenError("a while loop may not change promoted registers")
        head, body, done = self.label("while"), self.label("body"), self.label("done")
        self._forget(self.written(stmt.body))
        self.lines.append(f"  br label %{head}")
        self.start(head)
        with self.scope():
            cond = self.value(stmt.cond)
        self.lines.append(f"  br i1 {cond}, label %{body}, label %{done}")
        self.start(body)
        with self.scope():
            self.stop_point()
            self.stmt(stmt.body)
        self.lines.append(f"  br label %{head}")
        self.start(done)

    def visit_alloc(self, stmt: Alloc) -> None:
        buffer = stmt.buffer
        keys = promotable(buffer, stmt.body, subvectors=True)
        if keys is not None:
            self.registers[buffer] = dict.fromkeys(sorted(keys), "poison")
            self.stmt(stmt.body)
            del self.registers[buffer]
            return
        self.in_memory(stmt)

    def in_memory(self, stmt: Alloc) -> None:
        """Allocate a buffer on the stack."""
        buffer = stmt.buffer
        shape = buffer.static_shape()
        count = 1
        for dim in shape or ():
            count *= dim
        size = count * buffer.dtype.itemsize
        self._stack += size
        if shape is None or self._stack > STACK_LIMIT:
            raise CodegenError(
                f"{self.name}: buffer {buffer!r} is too large for the stack",
                hint="hoist it to a workspace parameter (pass hoist_workspace)",
            )
        name = self.fresh("buf")
        self.entry_allocas.append(f"  {name} = alloca [{count} x {memory_type(buffer.dtype)}], align 64")
        self.pointers[buffer] = (name, 0)
        self.stmt(stmt.body)

    def visit_eval(self, stmt: Eval) -> None:
        value = stmt.value
        if not isinstance(value, Call):
            return
        if value.name.startswith("kernel."):
            args = [*(self.typed(a) for a in value.args), f"i32 {self.threads}"]
            self.lines.append(f"  call void @{value.name.removeprefix('kernel.')}({', '.join(args)})")
            for scope in self.scopes:
                scope.volatile.clear()
            self.stop_point()
            return
        if value.name == "clock":
            self.unit.use_clock()
            self.lines.append(f"  call void @{CLOCK}({', '.join(self.typed(a) for a in value.args)})")
            return
        if value.name == NOTE:
            handle, number = value.args
            self.lines.append(f"  store volatile {self.typed(number)}, {self.typed(handle)}, align 8")
            return
        if value.name == "prefetch":
            self._prefetch(value.args[0])
            return
        if value.name.startswith(EXTERN):
            self._call_foreign(value)
            return
        raise CodegenError(f"this backend does not support the intrinsic {value.name} as a statement")

    def _call_foreign(self, value: Call) -> None:
        """Call a foreign function, which may write to all memory."""
        callee = self.unit.call_foreign(value.name.removeprefix(EXTERN), f"program {self.name}")
        args = ", ".join(self.typed(arg) for arg in value.args)
        self.lines.append(f"  call {callee}({args})")
        for scope in self.scopes:
            scope.volatile.clear()

    def _prefetch(self, handle: Expr) -> None:
        """Prefetch a cache line to L2, because the prefetch distance is too large for L1."""
        self.unit.declare("llvm.prefetch.p0", "void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        pointer = self.typed(handle)
        self.lines.append(f"  call void @llvm.prefetch.p0({pointer}, i32 0, i32 2, i32 1)")

    def branch_value(self, cond: Expr, a: Expr, b: Expr) -> str:
        test = self.value(cond)
        if test in ("true", "false"):
            return self.value(a if test == "true" else b)
        then, orelse, done = self.label("then"), self.label("else"), self.label("end")
        self.lines.append(f"  br i1 {test}, label %{then}, label %{orelse}")
        incoming = []
        for label, side in ((then, a), (orelse, b)):
            self.start(label)
            with self.scope():
                operand = self.value(side)
            self.lines.append(f"  br label %{done}")
            incoming.append(f"[ {operand}, %{self._block} ]")
        self.start(done)
        return self.emit(f"phi {register_type(a.dtype)} {', '.join(incoming)}")

    # Parallel loops

    def _parallel(self, loop: For) -> None:
        """Outline the body as a function of (closure, begin, end), and call the thread pool with it."""
        if any(b in self.registers for b in free_buffers(loop.body)):
            raise CodegenError(
                f"parallel loop {loop.var.name} uses a buffer that is in registers outside of the loop"
            )
        self._regions += 1
        name = f"{self.name}.region{self._regions}"
        buffers = [b for b in free_buffers(loop.body) if b in self.pointers]
        strides = [e for b in buffers for e in (*b.element_strides(), b.offset)]
        needed = {v for e in strides for v in post_order(e) if isinstance(v, Var)}
        scalars = [v for v in {*free_vars_stmt(loop.body), *needed} if v in self.vars and v is not loop.var]
        scalars.sort(key=lambda v: int("".join(c for c in self.vars[v][0] if c.isdigit()) or 0))
        closure = self.fresh("closure")
        self.entry_allocas.append(f"  {closure} = alloca [{len(buffers) + len(scalars) + 1} x i64], align 64")
        inner = self.inner_emitter(name, loop.body)
        inner._nonnegative = set(self._nonnegative)
        inner.windows, inner.flushes = dict(self.windows), self.flushes
        head: list[str] = []
        captures: list[Buffer | Var] = [*buffers, *scalars]
        for slot, captured in enumerate(captures):
            kind = "ptr" if isinstance(captured, Buffer) else register_type(captured.dtype)
            operand = self.base(captured)[0] if isinstance(captured, Buffer) else self.vars[captured][0]
            address = self.emit(f"getelementptr i64, ptr {closure}, i64 {slot}", "p")
            self.lines.append(f"  store {kind} {operand}, ptr {address}, align 8")
            source, target = inner.fresh("p"), inner.fresh("c")
            head.append(f"  {source} = getelementptr i64, ptr %closure, i64 {slot}")
            head.append(f"  {target} = load {kind}, ptr {source}, align 8")
            if isinstance(captured, Buffer):
                inner.pointers[captured] = (target, 0)
            else:
                inner.vars[captured] = (target, 0)
        begin = Var("begin")
        end = Var("end")
        inner.vars[begin], inner.vars[end] = ("%begin", 0), ("%end", 0)
        inner._nonnegative.add(begin)
        inner.threads = "1"
        serial = For(
            loop.var, loop.begin.astype(INDEX) + begin, end - begin, loop.body, annotations=loop.annotations
        )
        signature = f"define internal void @{name}(ptr %closure, i64 %begin, i64 %end)"
        inner.unit.functions.append(inner.function_text(signature, divided(serial), head))
        self.unit.declare(POOL, f"i32 @{POOL}(ptr, ptr, i64, i32)")
        count = self.value(loop.extent.astype(INDEX))
        self.emit(f"call i32 @{POOL}(ptr @{name}, ptr {closure}, i64 {count}, i32 {self.threads})")
        for scope in self.scopes:
            scope.volatile.clear()
        self.stop_point()

    def inner_emitter(self, name: str, body: Stmt) -> FunctionEmitter:
        """An emitter for the outlined body of a parallel loop."""
        return FunctionEmitter(self.unit, name, self.kernels)

    def take_params(self, func: PrimFunc, about: str = "") -> list[str]:
        """Define the parameters of a function. Returns their texts for its signature. `about` has more
        attributes of pointers.
        """
        params = []
        shared = shared_buffers(func)
        for index, param in enumerate(func.params):
            operand = f"%arg{index}"
            if isinstance(param, Buffer):
                params.append(f"ptr {'' if param in shared else 'noalias '}{about}{operand}")
                self.pointers[param] = (operand, 0)
            else:
                params.append(f"{register_type(param.dtype)} {operand}")
                self.vars[param] = (operand, 0)
                if param.dtype.is_int:
                    self._nonnegative.add(param)
        return params

    def function_text(self, signature: str, body: Stmt, head: Sequence[str] = ()) -> str:
        """The text of a function with this signature and body."""
        with self.scope():
            self.stmt(body)
        code, end = flatten(self.lines), ["  ret void"]
        if self._stops:
            self.unit.declare(self.stop_word, f"ptr @{self.stop_word}()")
            self.unit.declare(STOP_LOOK, f"i32 @{STOP_LOOK}(ptr) cold")
            head = [f"  %stop = call ptr @{self.stop_word}()", *head]
            end += ["stopped:", "  ret void"]
        return "\n".join(
            [signature + " nounwind {", "entry:", *self.entry_allocas, *head, *code, *end, "}", ""]
        )

    def stop_point(self) -> None:
        """Leave the function if its call is cancelled."""
        if not self.unit.stops:
            return
        self._stops = True
        go, look = self.label("go"), self.label("look")
        word = self.emit("load atomic i32, ptr %stop monotonic, align 4")
        clear = self.emit(f"icmp eq i32 {word}, 0")
        self.lines.append(f"  br i1 {clear}, label %{go}, label %{look}")
        self.start(look)
        asked = self.emit(f"call i32 @{STOP_LOOK}(ptr %stop)")
        goes_on = self.emit(f"icmp eq i32 {asked}, 0")
        self.lines.append(f"  br i1 {goes_on}, label %{go}, label %stopped")
        self.start(go)


def _is_int(text: str) -> bool:
    return text.lstrip("-").isdigit()
