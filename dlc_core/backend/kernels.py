"""The writer of kernels in languages of the C family: functions over thread axes, with shared memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from dlc_core import arith
from dlc_core.backend.emission import ModuleUnit, ModuleWriter
from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX, DType
from dlc_core.ir.expr import (
    Broadcast,
    Call,
    Const,
    Expr,
    Load,
    Ramp,
    Var,
    binary,
    const,
    const_value,
    post_order,
)
from dlc_core.ir.module import IRModule
from dlc_core.target.source import Dialect, Kernels, Large, Moves
from dlc_core.target.source.expression import neighbours
from dlc_core.target.source.helpers import NARROW
from dlc_core.target.source.scalars import ADD
from dlc_core.target.source.values import Key, eager
from dlc_core.tir.functor import allocations, exprs_of, stmts
from dlc_core.tir.intrinsics import BARRIERS, CONVERGENT
from dlc_core.tir.stmt import Alloc, Eval, For, If, Let, PrimFunc, Stmt, Store
from dlc_core.tir.tensor_copy import TensorCopy
from dlc_core.tir.threads import THREAD, axes_in, is_shared

_REDUCE = {"vector_reduce_add": "add", "vector_reduce_min": "min", "vector_reduce_max": "max"}
OFFSET = "_at"
"""The suffix of the parameter with the offset of a buffer."""


@dataclass(frozen=True)
class Shared:
    """A shared array, as the text of a kernel declares it: name and bytes."""

    name: str
    bytes: int


@dataclass(frozen=True)
class EmittedKernels:
    """The text of all kernels of a module, and their shared arrays."""

    text: str
    symbols: dict[str, str]
    """The name of each kernel in the text, by the name of its PrimFunc."""
    shared: dict[str, tuple[Shared, ...]]
    tensors: dict[str, tuple[TensorCopy, ...]] = field(default_factory=dict)
    """The tensor descriptors that precede the parameters of each kernel."""


class KernelWriter(ModuleWriter):
    """Writes kernels. Vectors are computed lane by lane. Contiguous vectors are loaded and stored at once if
    the language has vector types.
    """

    def __init__(self, unit: ModuleUnit) -> None:
        super().__init__(unit)
        assert unit.dialect.kernels is not None
        self.words: Kernels = unit.dialect.kernels
        self.shared: list[Shared] = []
        self.tensors: dict[tuple[object, ...], tuple[str, TensorCopy]] = {}
        """The tensors of tensor copies: the name of the descriptor, and one of the copies."""
        self._own: set[Buffer] = set()
        """The buffers that a thread allocates."""
        self._parts: dict[Var, list[str]] = {}
        """The texts of the lanes of vectors that a `Let` binds."""
        self._moved: dict[Expr, str] = {}
        """The names of vectors that have been loaded for the current statement."""

    # The function

    def kernel(self, func: PrimFunc, symbol: str) -> str:
        """The text of a PrimFunc that is one launch."""
        shared = [buffer for buffer in allocations(func.body) if is_shared(buffer)]
        large = self.words.large
        sizes_of = {buffer: prod(buffer.static_shape() or ()) * buffer.dtype.itemsize for buffer in shared}
        if large is not None and sum(sizes_of.values()) > large.beyond:
            self._declare_large(sizes_of, large)
        else:
            for buffer in shared:
                self._declare_shared(buffer)
        sizes = group_extents(func) if self.words.bounds else None
        bounds = "" if sizes is None else f" {self.words.bounds.format(threads=prod(sizes.values()))}"
        return self.function(func, f"{self.words.head}{bounds} {symbol}")

    def _declare_shared(self, buffer: Buffer) -> None:
        """Declare a shared array. All are at the top of the kernel, because some languages require that."""
        name = self.names.fresh(f"shared_{buffer.name}")
        self.pointers[buffer] = name
        count = self._array(buffer, name)
        self.shared.append(Shared(name, count * buffer.dtype.itemsize))

    def _declare_large(self, sizes: Mapping[Buffer, int], large: Large) -> None:
        """Declare one array of dynamic shared memory, and pointers to the parts of it that are
        the buffers.
        """
        name, total = self.names.fresh("shared"), 0
        at = len(self.lines)
        for buffer, size in sizes.items():
            kind = self.unit.stored_type(buffer.dtype)
            self.pointers[buffer] = self.names.fresh(f"shared_{buffer.name}")
            self.line(f"{kind} *const {self.pointers[buffer]} = ({kind} *)({name} + {total});")
            total += -(-size // large.align) * large.align
        self.line(f"{large.declare.format(name=name, bytes=total)};")
        self.lines.insert(at, self.lines.pop())
        self.shared.append(Shared(name, total))

    def _array(self, buffer: Buffer, name: str) -> int:
        shape = buffer.static_shape()
        dialect = self.unit.dialect
        scope = dialect.scopes.get(buffer.scope)
        if shape is None:
            raise CodegenError(f"buffer {buffer!r} has no constant size")
        if scope is None:
            raise CodegenError(f"{dialect.name} has no memory scope {buffer.scope!r}")
        align = dialect.alignment.format(align=16)
        count = max(1, prod(shape))
        kind = self.unit.stored_type(buffer.dtype)
        self.line(f"{scope + ' ' if scope else ''}{kind} {name}[{count}]{' ' + align if align else ''};")
        return count

    def parameter(self, buffer: Buffer, name: str, written: bool) -> str:
        text = super().parameter(buffer, name, written)
        if not self.words.offsets:
            return text
        at = self.names.fresh(name + OFFSET)
        self.lines.insert(0, f"    {name} += {at};")
        return f"{text}, const {self.unit.scalar_type(INDEX)} {at}"

    def space(self, buffer: Buffer) -> str:
        """The address space of a buffer. Buffers that a kernel allocates are private to threads, unless their
        scope is shared.
        """
        return "" if buffer in self._own else super().space(buffer)

    # Statements

    def visit_for(self, loop: For) -> None:
        if loop.kind != "thread":
            super().visit_for(loop)
            return
        text = self.words.axes.get(loop.thread)
        if text is None:
            raise CodegenError(
                f"{self.unit.dialect.name} has no axis {loop.thread}",
                hint=f"axes: {', '.join(self.words.axes)}",
            )
        name = self.names.fresh(loop.var.name)
        index = self.unit.dialect.index
        begin = "" if const_value(loop.begin) == 0 else f"{self.text.number(loop.begin, ADD)} + "
        self.line(f"const {index} {name} = {begin}({index}){text};")
        if self.nonnegative(loop.begin):
            self.positive.add(loop.var)
        self.text.vars[loop.var] = name
        self.stmt(loop.body)

    def _anchor(self, body: Stmt) -> None:
        """Does nothing: compilers of kernels find common parts of addresses themselves."""

    def visit_alloc(self, stmt: Alloc) -> None:
        buffer = stmt.buffer
        if is_shared(buffer):
            self.stmt(stmt.body)
            return
        self._own.add(buffer)
        if self.promoted(buffer, stmt.body) is None:
            name = self.names.fresh(buffer.name)
            self._array(buffer, name)
            self.pointers[buffer] = name
            self.stmt(stmt.body)
            return
        super().visit_alloc(stmt)

    def promoted(self, buffer: Buffer, body: Stmt) -> set[Key] | None:
        """Use a scalar variable for each element, which compilers optimise better than vectors.

        Operands of the language's dot products stay in memory.
        """
        if self._is_dotted(buffer, body):
            return None
        found = super().promoted(buffer, body)
        return found if found is None else {(first + k, 1) for first, lanes in found for k in range(lanes)}

    def _is_dotted(self, buffer: Buffer, body: Stmt) -> bool:
        """Whether dot-product instructions of the language read a buffer."""
        read = (e for stmt in stmts(body) for e in self._dotted(*exprs_of(stmt)))
        return any(isinstance(e, Load) and e.buffer is buffer for e in read)

    def _dotted(self, *roots: Expr) -> set[Expr]:
        """The operands of dot products that the language has instructions for."""
        found = (e for e in post_order(*roots) if isinstance(e, Call) and self._dot_word(e))
        return {arg for dot in found for arg in dot.children[1:]}

    def visit_let(self, stmt: Let) -> Stmt:
        lanes = stmt.var.dtype.lanes
        if lanes == 1:
            return super().visit_let(stmt)
        with_moves = self._moves(stmt.value)
        values = self._lanes(stmt.value, lanes)
        names = [self.names.fresh(f"{stmt.var.name}_{k}") for k in range(lanes)]
        for name, value in zip(names, values, strict=True):
            self.prepare(value)
            self.line(f"{self.constant(value.dtype)} {name} = {self.text.value(value)};")
            self.text.named = {}
        self._parts[stmt.var] = names
        self._forget(with_moves)
        return stmt.body

    def visit_store(self, stmt: Store) -> None:
        lanes = max(stmt.value.dtype.lanes, *(i.dtype.lanes for i in stmt.indices), 1)
        if lanes == 1 and not any(e.dtype.lanes > 1 for e in post_order(stmt.value)):
            super().visit_store(stmt)
            return
        self.text.named = {}
        moved = self._moves(stmt.value)
        values = self._lanes(stmt.value, lanes)
        lane_indices = [self._lanes(i, lanes) for i in stmt.indices]
        stores = [
            Store(stmt.buffer, tuple(index[k] for index in lane_indices), values[k]) for k in range(lanes)
        ]
        start = neighbours(stmt.buffer, stmt.indices) if lanes > 1 else None
        if (
            start is not None
            and stmt.buffer not in self.registers
            and self._is_vector_access(stmt.buffer.dtype, lanes, start)
        ):
            self._store_vector(stmt, start, values)
        elif self._reads_itself(stmt):
            held = []
            for one in stores:
                self.prepare(one.value)
                name = self.names.fresh("t")
                self.line(f"{self.constant(one.value.dtype)} {name} = {self.text.value(one.value)};")
                self.text.named = {}
                var = Var(name, one.value.dtype)
                self.text.vars[var] = name
                held.append(Store(one.buffer, one.indices, var))
            for one in held:
                super().visit_store(one)
        else:
            for one in stores:
                super().visit_store(one)
        self._forget(moved)
        self.text.named = {}

    def _reads_itself(self, stmt: Store) -> bool:
        """Whether a lane may read an element that the store of another lane changes."""
        loads = [e for e in post_order(stmt.value) if isinstance(e, Load) and e.buffer is stmt.buffer]
        return any(e.indices != stmt.indices for e in loads)

    def _store_vector(self, stmt: Store, start: Expr, values: Sequence[Expr]) -> None:
        moves, buffer = self.words.moves, stmt.buffer
        assert moves is not None
        self.prepare(*values, start)
        given = ", ".join(self.text.stored(v) for v in values)
        words = self._words_of_move(buffer, len(values))
        loaded = None if stmt.value.dtype.is_bool else self._moved.get(stmt.value)
        value = moves.make.format(values=given, **words) if loaded is None else loaded
        at = self.text.address(buffer, start)
        self.line(moves.store.format(value=value, at=at, **words) + ";")

    def visit_if(self, stmt: If) -> None:
        if stmt.cond.dtype.lanes > 1 and isinstance(stmt.then, Store) and stmt.orelse is None:
            lanes = stmt.cond.dtype.lanes
            conds = self._lanes(stmt.cond, lanes)
            values = self._lanes(stmt.then.value, lanes)
            lane_indices = [self._lanes(i, lanes) for i in stmt.then.indices]
            for k in range(lanes):
                one = Store(stmt.then.buffer, tuple(index[k] for index in lane_indices), values[k])
                super().visit_if(If(conds[k], one))
            return
        super().visit_if(stmt)

    def effect(self, value: Call) -> None:
        self.prepare(*value.args)
        if value.name in ("copies_begin", "copies_end"):
            return  # copies are synchronous here
        words = self.words.words.get("barrier" if value.name in BARRIERS else value.name)
        if words is None and value.name in CONVERGENT:
            raise CodegenError(f"{self.unit.dialect.name} does not support {value.name}")
        if words is None:
            super().effect(value)
            return
        self.line(words.format(*map(self.text.value, value.args)) + ";")

    def visit_eval(self, stmt: Eval) -> None:
        if isinstance(stmt.value, Call) and stmt.value.name.startswith("kernel."):
            raise CodegenError(
                f"a kernel calls {stmt.value.name.removeprefix('kernel.')}: only the host can call kernels"
            )
        super().visit_eval(stmt)

    # Vectors

    def _is_vector_access(self, type_: DType, lanes: int, start: Expr) -> bool:
        """Whether `lanes` contiguous elements from `start` on can be loaded or stored as one vector."""
        moves = self.words.moves
        if moves is None or lanes not in moves.lanes:
            return False
        if moves.widest and max(8, type_.scalar.bits) * lanes > moves.widest:
            return False
        if not moves.aligned:
            return True
        factor, rest = arith.Analyzer().modular(start)
        return factor % lanes == 0 and rest % lanes == 0

    def _words_of_move(self, buffer: Buffer, lanes: int) -> dict[str, object]:
        """The values of the fields in the formats of `Moves`, except values and indices."""
        moves = self.words.moves
        assert isinstance(moves, Moves)
        scalar = self.unit.stored_type(buffer.dtype)
        type_ = moves.type.format(scalar=scalar, lanes=lanes)
        space = self.space(self.roots.get(buffer, buffer))
        return {"type": type_, "scalar": scalar, "lanes": lanes, "space": space}

    def _moves(self, *roots: Expr) -> list[Expr]:
        """Load the contiguous vectors that are read unconditionally, and bind them to names."""
        found: list[Expr] = []
        dotted = self._dotted(*roots)
        for expr in eager(roots):
            cond, load = _guarded(expr)
            if load is None or load.buffer in self.registers or expr in self._moved:
                continue
            if expr in dotted:
                continue
            start, lanes = neighbours(load.buffer, load.indices), load.dtype.lanes
            if start is None or not self._is_vector_access(load.dtype, lanes, start):
                continue
            moves = self.words.moves
            assert moves is not None
            if cond is None:
                self.prepare(start)
            elif start.operand_loads == ():
                self.prepare(start, cond)
            else:
                continue  # the offset may be read only if the condition holds
            name = self._moved[expr] = self.names.fresh(load.buffer.name)
            found.append(expr)
            words = self._words_of_move(load.buffer, lanes)
            text = moves.load.format(at=self.text.address(load.buffer, start), **words)
            if cond is None:
                self.line(f"const {words['type']} {name} = {text};")
                continue
            assert isinstance(expr, Call)
            parts = self._lanes(expr.args[2], 1 if moves.arithmetic else lanes)
            other = moves.make.format(values=", ".join(map(self.text.stored, parts)), **words)
            self.line(f"{words['type']} {name} = {other};")
            if const_value(cond) != 0:
                with self.block(f"if ({self.text.value(cond)})"):
                    self.line(f"{name} = {text};")
        return found

    def _forget(self, moved: Sequence[Expr]) -> None:
        for expr in moved:
            del self._moved[expr]

    def _lanes(self, expr: Expr, lanes: int) -> list[Expr]:
        """The lanes of a vector. A scalar is repeated."""
        return [self._lane(expr, k, {}) for k in range(lanes)]

    def _lane(self, expr: Expr, lane: int, done: dict[Expr, Expr]) -> Expr:
        if expr not in done:
            done[expr] = self._made_lane(expr, lane, done)
        return done[expr]

    def _made_lane(self, expr: Expr, lane: int, done: dict[Expr, Expr]) -> Expr:
        if isinstance(expr, Call) and expr.name in _REDUCE:
            return self._reduced(expr)
        if expr.dtype.lanes == 1 and not any(e.dtype.lanes > 1 for e in expr.children):
            return expr
        if expr in self._moved:
            moves = self.words.moves
            assert moves is not None
            text = self._moved[expr] + moves.lane.format(lane=lane)
            var = Var(self._moved[expr], expr.dtype.scalar)
            narrow = NARROW.get(expr.dtype.scalar.name)
            if narrow is not None:
                self.text.raw[var] = text
                text = f"{self.unit.helper(f'{narrow}_to_f32')}({text})"
            self.text.vars[var] = f"({text} != 0)" if expr.dtype.is_bool else text
            return var
        if isinstance(expr, Var):
            var = Var(expr.name, expr.dtype.scalar)
            self.text.vars[var] = self._parts[expr][lane]
            return var
        if isinstance(expr, Ramp):
            return expr.base + expr.stride * const(lane, expr.base.dtype)
        if isinstance(expr, Broadcast):
            return expr.value
        if isinstance(expr, Call) and expr.name == "vector_shuffle":
            return self._lane(expr.args[0], int(const_value(expr.args[1 + lane]) or 0), {})
        if isinstance(expr, Call) and expr.name == "vector_concat":
            for part in expr.args:
                if lane < part.dtype.lanes:
                    return self._lane(part, lane, {}) if part.dtype.lanes > 1 else part
                lane -= part.dtype.lanes
        if isinstance(expr, Call) and expr.name == "vector_dot":
            return self._dot(expr, lane)
        return expr.rebuild([self._lane(child, lane, done) for child in expr.children])

    def _reduced(self, expr: Call) -> Expr:
        """A reduction of the lanes of a vector, in pairs."""
        parts = self._lanes(expr.args[0], expr.args[0].dtype.lanes)
        while len(parts) > 1:
            half = (len(parts) + 1) // 2
            rest = parts[half:]
            parts = [binary(_REDUCE[expr.name], a, b) for a, b in zip(parts, rest)] + parts[len(rest) : half]
        return parts[0]

    def _dot(self, expr: Call, lane: int) -> Expr:
        acc, a, b = expr.args
        group = b.dtype.lanes // acc.dtype.lanes
        total = self._lane(acc, lane, {}) if acc.dtype.lanes > 1 else acc
        shift = 0 if a.dtype.lanes == group else lane * group
        word = self._dot_word(expr)
        pointers = [self._group(a, group, shift), self._group(b, group, lane * group)]
        if word and all(pointers):
            self.prepare(total)
            made = Var("dot", acc.dtype.scalar)
            self.text.vars[made] = word.format(self.text.value(total), *pointers)
            return made
        for k in range(group):
            left = self._lane(a, shift + k, {}) if a.dtype.lanes > 1 else a
            right = self._lane(b, lane * group + k, {}) if b.dtype.lanes > 1 else b
            total = total + left.astype(acc.dtype.scalar) * right.astype(acc.dtype.scalar)
        return total

    def _dot_word(self, expr: Call) -> str | None:
        """The format of the language's instruction for this dot product; None if it has none."""
        if expr.name != "vector_dot" or expr.dtype.scalar.name != "int32":
            return None
        acc, a, b = (arg.dtype for arg in expr.args)
        return self.words.words.get(f"vector_dot.{a.scalar}.{b.scalar}x{b.lanes // acc.lanes}")

    def _group(self, value: Expr, group: int, first: int) -> str | None:
        """A pointer to `group` contiguous elements of a vector from element `first` on, aligned to their
        total size; None if they are not contiguous or not aligned.
        """
        start = neighbours(value.buffer, value.indices) if isinstance(value, Load) else None
        if start is None or not isinstance(value, Load) or value.buffer in self.registers:
            return None
        offset = start + first
        factor, rest = arith.Analyzer().modular(offset)
        if factor % group or rest % group:
            return None
        self.prepare(offset)
        return self.text.address(value.buffer, offset)


def _guarded(expr: Expr) -> tuple[Expr | None, Load | None]:
    """The load of a vector that is a load or, if a condition is false, constant; and the condition. Both may
    be None.
    """
    if expr.dtype.lanes == 1:
        return None, None
    if isinstance(expr, Load):
        return None, expr
    if not isinstance(expr, Call) or expr.name != "if_then_else":
        return None, None
    cond, load, other = expr.args
    known = isinstance(other, Broadcast) and isinstance(other.value, Const)
    cond = cond.value if isinstance(cond, Broadcast) else cond
    if const_value(cond) == 1 and isinstance(load, Load):
        return None, load
    one = cond.dtype.lanes == 1 and known and isinstance(load, Load)
    return (cond, load) if one and isinstance(load, Load) else (None, None)


def emit_kernels(
    module: IRModule, dialect: Dialect, writer: type[KernelWriter] = KernelWriter
) -> EmittedKernels:
    """Write all launches of a module to one file. Raises CodegenError for features that the
    language lacks.
    """
    if dialect.kernels is None:
        raise CodegenError(f"{dialect.name} has no kernels")
    unit = ModuleUnit(dialect)
    unit.take_foreign(func for func in module.of_kind(PrimFunc).values() if "launch" in func.attrs)
    symbols: dict[str, str] = {}
    shared: dict[str, tuple[Shared, ...]] = {}
    tensors: dict[str, tuple[TensorCopy, ...]] = {}
    for name, func in module.of_kind(PrimFunc).items():
        if "launch" not in func.attrs:
            continue
        one = writer(unit)
        symbols[name] = unit.symbol(name)
        unit.functions.append(one.kernel(func, symbols[name]))
        shared[name] = tuple(one.shared)
        tensors[name] = tuple(box for _, box in one.tensors.values())
    return EmittedKernels(unit.text().lstrip("\n"), symbols, shared, tensors)


def group_extents(func: PrimFunc) -> dict[str, int] | None:
    """The threads of a group along each axis of a kernel; None if they are symbolic."""
    sizes: dict[str, int] = {}
    for axis in axes_in(func.body, THREAD):
        extent = const_value(axis.extent)
        if not isinstance(extent, int) or extent < 1:
            return None
        sizes[axis.thread] = max(sizes.get(axis.thread, 1), extent)
    return sizes


def defined(text: str, meanings: Mapping[str, str]) -> list[str]:
    """The definitions of the words in `meanings` that a text contains, in the order of the table."""
    used = set(re.findall(r"\w+", text))
    return [meaning for word, meaning in meanings.items() if word in used]


def narrow_index(module: IRModule) -> bool:
    """Whether indices of 32 bits suffice for all kernels: all sizes are known and small enough."""
    for func in module.of_kind(PrimFunc).values():
        if "launch" not in func.attrs:
            continue
        shapes = [buffer.static_shape() for buffer in func.buffers]
        if any(v.dtype is INDEX for v in func.scalars) or any(
            shape is None or prod(shape) * 8 >= 1 << 31 for shape in shapes
        ):
            return False
    return True


__all__ = [
    "EmittedKernels",
    "KernelWriter",
    "Shared",
    "defined",
    "emit_kernels",
    "group_extents",
    "narrow_index",
]
