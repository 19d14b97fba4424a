"""Products of matrices in the tile registers of x86 (AMX).

Accumulators are in memory. Statements that only multiply, including their loops, have them as SSA values:
they are loaded before and stored after. LLVM keeps such values in tile registers, also across loops, if they
are only cast from and to tiles. It configures the registers itself. Other statements access the accumulators
in memory.

A process must request tile registers from Linux before it uses them. Kernels with products do so once.

Source: LLVM Language Reference, x86_amx type.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dlc_backend_llvm.amx import ARCH_PRCTL, REQUEST, TILE_DATA
from dlc_backend_llvm.emit.function import FunctionEmitter
from dlc_backend_llvm.emit.types import register_type
from dlc_core.arith import Analyzer
from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import dtype
from dlc_core.ir.expr import Call, Expr, Load, call, const, load, loads_in, post_order, ramp
from dlc_core.tir.functor import stmts, transform_stmt
from dlc_core.tir.matrix import MATRIX, MatrixUnit, products, unit_of
from dlc_core.tir.stmt import Alloc, Eval, For, Let, Seq, Stmt, Store, seq

TILE = "vector_tile"
"""The internal function for an operand in the form of a tile register: rows of 32-bit words."""
ENABLE = "dlc.request_tiles"
MOST_SUMS = 4
"""The maximum number of accumulators that are values at the same time. There are eight registers, operands
need some of them, and LLVM's tile register allocation cannot always spill.
"""
ENABLE_IR = f"""
@{ENABLE}.done = internal global i8 0, align 1
define internal void @{ENABLE}() nounwind noinline cold {{
  %done = load atomic i8, ptr @{ENABLE}.done monotonic, align 1
  %again = icmp ne i8 %done, 0
  br i1 %again, label %out, label %ask
ask:
  %code = call i64 asm sideeffect "syscall", "={{rax}},{{rax}},{{rdi}},{{rsi}},~{{rcx}},~{{r11}},~{{memory}}"(
    i64 {ARCH_PRCTL}, i64 {REQUEST}, i64 {TILE_DATA})
  store atomic i8 1, ptr @{ENABLE}.done monotonic, align 1
  br label %out
out:
  ret void
}}
"""

_X86 = "llvm.x86."
_LOAD, _STORE = f"{_X86}tileloadd64.internal", f"{_X86}tilestored64.internal"
_SIGNS = {"int8": "s", "uint8": "u"}


class TileEmitter(FunctionEmitter):
    """Emits a function with tile products."""

    def find_accumulators(self, body: Stmt) -> None:
        """Record the buffers that products add to."""
        self._sums = {each.buffer for made in products(body) for each in loads_in(made.args[0])}
        self._slots: dict[tuple[Buffer, Expr], tuple[Buffer, MatrixUnit, Expr]] | None = None
        """While products are emitted: for each accumulator its register buffer, its unit, and its row stride
        in bytes.
        """

    def stop_point(self) -> None:
        if self._slots is None:  # no calls while tiles are in registers
            super().stop_point()

    def visit_alloc(self, stmt: Alloc) -> None:
        if stmt.buffer in self._sums:
            self.in_memory(stmt)
        else:
            super().visit_alloc(stmt)

    def stmt(self, stmt: Stmt) -> None:
        if self._slots is not None:
            super().stmt(stmt)
        elif isinstance(stmt, Seq):
            self._parts(stmt.stmts)
        elif self._only_multiplies(stmt):
            self._products(stmt)
        else:
            super().stmt(stmt)

    def inner_emitter(self, name: str, body: Stmt) -> FunctionEmitter:
        inner = TileEmitter(self.unit, name, self.kernels)
        inner.find_accumulators(body)
        return inner

    def _parts(self, parts: Sequence[Stmt]) -> None:
        """Emit statements in order. Consecutive statements that only multiply are emitted together, with at
        most `MOST_SUMS` accumulators.
        """
        together: list[Stmt] = []
        sums: set[tuple[Buffer, Expr]] = set()
        for part in (*parts, None):
            own = set() if part is None else self._sums_in(part)
            if together and (not own or len(sums | own) > MOST_SUMS):
                self._products(seq(*together))
                together, sums = [], set()
            if own and part is not None:
                together.append(part)
                sums |= own
            elif part is not None:
                self.stmt(part)

    def _only_multiplies(self, stmt: Stmt) -> bool:
        found = list(stmts(stmt))
        if not any(isinstance(s, Let) and _is_product(s.value) for s in found):
            return False
        made = {s.var for s in found if isinstance(s, Let) and _is_product(s.value)}
        for s in found:
            if isinstance(s, Store):
                if not any(e in made for e in post_order(s.value)):
                    return False
            elif isinstance(s, Eval):
                if not (isinstance(s.value, Call) and s.value.name == "prefetch"):
                    return False
            elif not isinstance(s, (Let, Seq, For)) or (isinstance(s, For) and s.kind == "parallel"):
                return False
        return True

    def _sums_in(self, stmt: Stmt) -> set[tuple[Buffer, Expr]]:
        """The accumulators of a statement that only multiplies; empty for other statements."""
        if not self._only_multiplies(stmt):
            return set()
        first = [_rows(made.args[0])[0] for made in products(stmt)]
        return {(row.buffer, self._offset_of([row])[0]) for row in first}

    def _products(self, stmt: Stmt) -> None:
        """Emit a statement that only multiplies, with its accumulators as values."""
        self.unit.helpers.setdefault(ENABLE, ENABLE_IR)
        slots: dict[tuple[Buffer, Expr], tuple[Buffer, MatrixUnit, Expr]] = {}
        self._slots = slots
        inner = self._with_slots(stmt)
        for (buffer, start), (slot, unit, stride) in slots.items():
            words = self._load_tile(unit.m, unit.n * 4, self.pointer(buffer, start), self.value(stride))
            self.registers[slot] = {(0, unit.m * unit.n): self._from_tile(words, unit)}
        self.stmt(inner)
        for (buffer, start), (slot, unit, stride) in slots.items():
            (value,) = self.registers.pop(slot).values()
            tile, pointer = self._to_tile(value, unit), self.pointer(buffer, start)
            sizes = f"i16 {unit.m}, i16 {unit.n * 4}"
            self.unit.declare(_STORE, f"void @{_STORE}(i16, i16, ptr, i64, x86_amx)")
            address = f"ptr {pointer}, i64 {self.value(stride)}"
            self.lines.append(f"  call void @{_STORE}({sizes}, {address}, x86_amx {tile})")
        self._forget([buffer for buffer, _ in slots])
        self._slots = None

    def _with_slots(self, stmt: Stmt) -> Stmt:
        """The statement with accumulators in register buffers in place of memory."""

        def moved(each: Stmt) -> Stmt | None:
            if not isinstance(each, Let) or not _is_product(each.value):
                return None
            assert isinstance(each.value, Call)
            sums, a, b, *numbers = each.value.args
            unit = unit_of(each.value)
            slot = self._slot(_rows(sums), unit, each.body)
            indices = _all_lanes(unit.m * unit.n)
            return Store(slot, indices, call(MATRIX, (load(slot, indices), a, b, *numbers), each.value.dtype))

        return transform_stmt(stmt, stmt_fn=moved)

    def _slot(self, rows: Sequence[Load], unit: MatrixUnit, after: Stmt) -> Buffer:
        """The register buffer of an accumulator whose rows are read. The following statement must write the
        same rows; otherwise CodegenError is raised.
        """
        written = [(s.buffer, s.indices) for s in stmts(after) if isinstance(s, Store)]
        start, stride = self._offset_of(rows)
        if written != [(row.buffer, row.indices) for row in rows] or stride is None:
            raise CodegenError(
                f"{self.name}: accumulators of a tile product are not stored where they were loaded"
            )
        assert self._slots is not None
        found = self._slots.get((rows[0].buffer, start))
        if found is None:
            slot = Buffer(f"tile{len(self._slots)}", (unit.m * unit.n,), unit.acc, scope="local")
            found = self._slots[rows[0].buffer, start] = slot, unit, stride
        return found[0]

    def _offset_of(self, rows: Sequence[Load]) -> tuple[Expr, Expr | None]:
        """The offset of the first row, and the row stride in bytes; None if the stride is not constant."""
        analyzer = Analyzer()
        accesses = [self.offsets_of(row.buffer, row.indices) for row in rows]
        starts = [analyzer.simplify(start) for start, _, _ in accesses]
        same = all(row.buffer is rows[0].buffer for row in rows) and all(step == 1 for _, step, _ in accesses)
        steps = [analyzer.simplify(b - a) for a, b in pairwise(starts)] or [const(0)]
        even = same and all(analyzer.prove_equal(step, steps[0]) for step in steps)
        return starts[0], analyzer.simplify(steps[0] * rows[0].buffer.dtype.itemsize) if even else None

    # Values

    def _call(self, expr: Call) -> str:
        if expr.name == TILE:
            return self._operand(expr.args[0])
        if expr.name != MATRIX:
            return super()._call(expr)
        unit = unit_of(expr)
        if (unit.a, unit.b) == ("bfloat16", "bfloat16"):
            name = f"{_X86}tdpbf16ps.internal"
        else:
            name = f"{_X86}tdpb{_SIGNS[unit.a]}{_SIGNS[unit.b]}d.internal"
        words = dtype("int32").with_lanes(unit.m * unit.n)
        a, b = (self.value(call(TILE, (arg,), words)) for arg in expr.args[1:3])
        acc = self._to_tile(self.value(expr.args[0]), unit)
        self.unit.declare(name, f"x86_amx @{name}(i16, i16, i16, x86_amx, x86_amx, x86_amx)")
        sizes = f"i16 {unit.m}, i16 {unit.n * 4}, i16 {unit.k * dtype(unit.a).itemsize}"
        made = self.emit(f"call x86_amx @{name}({sizes}, x86_amx {acc}, x86_amx {a}, x86_amx {b})")
        return self._from_tile(made, unit)

    def _operand(self, expr: Expr) -> str:
        """Load a matrix as a tile. If the row stride is not constant, its rows are first copied
        to the stack.
        """
        rows = _rows(expr)
        start, stride = self._offset_of(rows)
        size = rows[0].dtype.lanes * rows[0].buffer.dtype.itemsize
        if stride is not None:
            return self._load_tile(len(rows), size, self.pointer(rows[0].buffer, start), self.value(stride))
        name = self.fresh("rows")
        self.entry_allocas.append(f"  {name} = alloca [{len(rows) * size} x i8], align 64")
        for number, row in enumerate(rows):
            offset, step, _ = self.offsets_of(row.buffer, row.indices)
            if step != 1:
                raise CodegenError(f"{self.name}: a row of an operand of a tile product is not contiguous")
            value = self.emit(f"load <{size} x i8>, ptr {self.pointer(row.buffer, offset)}, align 1")
            at = self.emit(f"getelementptr i8, ptr {name}, i64 {number * size}", "p")
            self.lines.append(f"  store <{size} x i8> {value}, ptr {at}, align 1")
        return self._load_tile(len(rows), size, name, str(size))

    def _load_tile(self, rows: int, size: int, pointer: str, stride: str) -> str:
        self.unit.declare(_LOAD, f"x86_amx @{_LOAD}(i16, i16, ptr, i64)")
        return self.emit(f"call x86_amx @{_LOAD}(i16 {rows}, i16 {size}, ptr {pointer}, i64 {stride})", "t")

    def _from_tile(self, tile: str, unit: MatrixUnit) -> str:
        """Cast a tile of accumulators to a vector."""
        count = unit.m * unit.n
        words, kind = f"<{count} x i32>", register_type(dtype(unit.acc).with_lanes(count))
        name = f"{_X86}cast.tile.to.vector.v{count}i32"
        self.unit.declare(name, f"{words} @{name}(x86_amx)")
        found = self.emit(f"call {words} @{name}(x86_amx {tile})")
        return found if kind == words else self.emit(f"bitcast {words} {found} to {kind}")

    def _to_tile(self, value: str, unit: MatrixUnit) -> str:
        count = unit.m * unit.n
        words, kind = f"<{count} x i32>", register_type(dtype(unit.acc).with_lanes(count))
        if kind != words:
            value = self.emit(f"bitcast {kind} {value} to {words}")
        name = f"{_X86}cast.vector.to.tile.v{count}i32"
        self.unit.declare(name, f"x86_amx @{name}({words})")
        return self.emit(f"call x86_amx @{name}({words} {value})", "t")


def _is_product(value: Expr) -> bool:
    return isinstance(value, Call) and value.name == MATRIX


def _rows(value: Expr) -> list[Load]:
    """The loads of the rows of a matrix."""
    parts = value.args if isinstance(value, Call) and value.name == "vector_concat" else (value,)
    rows = [part for part in parts if isinstance(part, Load)]
    if len(rows) < len(parts):
        raise CodegenError("a matrix of a tile product is not loaded row by row")
    return rows


def _all_lanes(count: int) -> tuple[Expr]:
    return (const(0) if count == 1 else ramp(const(0), const(1), count),)


def request_tiles(body: Stmt) -> list[str]:
    """The prologue of a kernel with tile products."""
    return [f"  call void @{ENABLE}()"] if products(body) else []


__all__ = ["TILE", "TileEmitter", "request_tiles"]
