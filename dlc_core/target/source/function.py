"""Functions as C text: their statements and their buffers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX, dtype
from dlc_core.ir.expr import Binary, Call, Load, Var, const_value, free_vars
from dlc_core.target.source.accesses import neighbourhoods
from dlc_core.target.source.expression import neighbours
from dlc_core.target.source.helpers import NARROW
from dlc_core.target.source.tokens import folded
from dlc_core.target.source.unit import Unit
from dlc_core.target.source.values import Key, ValueWriter
from dlc_core.tir.calls import called_kernels
from dlc_core.tir.functor import exprs_of, stmts, stmts_of, stores_in
from dlc_core.tir.in_place import shared_buffers
from dlc_core.tir.intrinsics import EXTERN
from dlc_core.tir.lanes import lane_of
from dlc_core.tir.promotion import promotable
from dlc_core.tir.stmt import Alloc, Eval, For, If, Let, PrimFunc, Stmt, Store, View, While
from dlc_core.tir.visitor import StmtVisitor

CALLS = ("kernel.", "launch.", "extern.", "clock", "note")


class FunctionWriter(ValueWriter, StmtVisitor):
    """Writes the body of one function."""

    def __init__(self, unit: Unit) -> None:
        super().__init__(unit)
        self._undeclared: dict[str, int] = {}
        """Registers without a declaration, with the level at which they are declared."""
        self._written: frozenset[Buffer] = frozenset()
        self._shared: frozenset[Buffer] = frozenset()

    def visit_let(self, stmt: Let) -> Stmt:
        self.prepare(stmt.value)
        name = self.names.fresh(stmt.var.name)
        self.line(f"{self.constant(stmt.var.dtype)} {name} = {self.text.value(stmt.value)};")
        self.text.vars[stmt.var] = name
        if stmt.var.dtype is INDEX:
            self.text.wide.add(stmt.var)
        self.text.named = {}
        return stmt.body

    def visit_store(self, stmt: Store) -> None:
        self.text.named = {}
        buffer, lanes = stmt.buffer, max(stmt.value.dtype.lanes, *(i.dtype.lanes for i in stmt.indices), 1)
        if buffer in self.registers:
            self.prepare(stmt.value)
            self._assign(buffer, stmt, lanes)
        elif lanes == 1:
            offset = buffer.linear_index(stmt.indices)
            self.prepare(stmt.value, offset)
            self.line(f"{self.text.element(buffer, offset)} = {self.text.stored(stmt.value)};")
        else:
            self._store_lanes(stmt, lanes)
        self.text.named = {}

    def _assign(self, buffer: Buffer, stmt: Store, lanes: int) -> None:
        name = self.registers[buffer][self.key(buffer, stmt.indices, lanes)]
        unsigned = buffer in self.unsigned
        value = self.text.unsigned(stmt.value) if unsigned else self.text_in_kind(stmt.value)
        if self._undeclared.get(name) == self.level:
            del self._undeclared[name]
            self.line(f"{self._register_kind(buffer, lanes)} {name} = {value};")
            return
        for sign in (" + ", " - ", " * "):
            # x += y is more readable than x = x + y.
            if value.startswith(name + sign) and isinstance(stmt.value, Binary):
                left = self.text.unsigned(stmt.value.a) if unsigned else self.text.value(stmt.value.a, 0)
                if left == name:
                    self.line(f"{name} {sign.strip()}= {value[len(name + sign) :]};")
                    return
        self.line(f"{name} = {value};")

    def _store_lanes(self, stmt: Store, lanes: int) -> None:
        buffer, value = stmt.buffer, stmt.value
        start = neighbours(buffer, stmt.indices)
        if start is not None and buffer.dtype.name not in NARROW and value.dtype.lanes == lanes:
            self.prepare(value)
            name, some = self.text.vector_access("store", self.text.in_memory(value.dtype))
            self.line(f"{name}({self.text.address(buffer, start)}, {self.text.stored_vector(value)}{some});")
            return
        if value.dtype.lanes > 1:
            self.prepare(value)
        lane = Var(self.names.fresh("lane"), INDEX)
        counter = self.text.vars[lane] = lane.name
        self.positive.add(lane)
        with self.block(f"for (int {counter} = 0; {counter} < {lanes}; ++{counter})"):
            one = self.lane(value, lane)
            offset = buffer.linear_index([self.lane(i, lane) for i in stmt.indices])
            self.prepare(one, offset)
            self.line(f"{self.text.element(buffer, offset)} = {self.text.stored(one)};")

    def _declare_rest(self, root: Stmt) -> None:
        """Declare the registers whose first write would be in a nested statement."""
        if not self._undeclared:
            return
        for buffer, values in self.registers.items():
            for key, name in values.items():
                if name in self._undeclared:
                    del self._undeclared[name]
                    zero = self.unit.dialect.zero if key[1] > 1 else "0"
                    self.line(f"{self._register_kind(buffer, key[1])} {name} = {zero};")

    def _register_kind(self, buffer: Buffer, lanes: int) -> str:
        """The type of a register."""
        if buffer in self.unsigned:
            return self.unit.scalar_type(dtype(f"uint{buffer.dtype.bits}"))
        return self.kind(buffer.dtype.with_lanes(lanes))

    def visit_for(self, loop: For) -> None:
        self._declare_rest(loop)
        self.text.named = {}
        if loop.kind == "thread":
            raise CodegenError(
                f"loop {loop.var.name} is bound to {loop.thread}, an axis that this language does not have"
            )
        self.prepare(loop.begin, loop.extent)
        name = self.names.fresh(loop.var.name)
        begin, extent = const_value(loop.begin), const_value(loop.extent)
        if extent is not None and extent <= 0:
            return
        if begin is not None and extent is not None:
            end = str(begin + extent)
        elif begin == 0:
            end = self.text.number(loop.extent, 8)
        elif isinstance(loop.extent, Binary) and loop.extent.op == "sub" and loop.extent.b is loop.begin:
            end = self.text.number(loop.extent.a, 8)
        else:
            end = f"{self.text.number(loop.begin, 10)} + {self.text.number(loop.extent, 11)}"
        if self.nonnegative(loop.begin):
            self.positive.add(loop.var)
        first = self.text.number(loop.begin)
        self.text.vars[loop.var] = name
        kind = self.unit.dialect.index if loop.var.dtype is INDEX else self.unit.scalar_type(loop.var.dtype)
        if loop.kind == "parallel" and self.unit.dialect.parallel:
            self.lines.append(self.unit.dialect.parallel.format(threads="threads"))
        with self.block(f"for ({kind} {name} = {first}; {name} < {end}; ++{name})"):
            self._anchor(loop.body)
            self.stmt(loop.body)
        self.text.named = {}

    def _anchor(self, body: Stmt) -> None:
        """Define base pointers for neighbouring accesses of a loop's body, such as the points of a tile.

        Each points to an element that is accessed unconditionally, so no pointer is outside of its array.
        """
        for (buffer, common), group in neighbourhoods(body).items():
            known = all(var in self.text.vars for var in free_vars(common))
            if len(group.offsets) < 2 or not known or buffer in self.registers or buffer not in self.pointers:
                continue
            first = min(group.offsets)
            const = "" if group.written else self.unit.dialect.constant + " "
            name = self.names.fresh(f"{self.pointers[buffer]}_at")
            where = self.text.address(buffer, common + first)
            self.line(f"{const}{self.unit.stored_type(buffer.dtype)} *const {name} = {where};")
            self.text.anchors[buffer, common] = name, first

    def visit_if(self, stmt: If) -> None:
        self._declare_rest(stmt)
        self.text.named = {}
        if stmt.cond.dtype.lanes > 1:
            self._if_lanes(stmt)
            return
        self.prepare(stmt.cond)
        with self.block(f"if ({self.text.value(stmt.cond)})"):
            self.stmt(stmt.then)
        if stmt.orelse is not None:
            self.lines.pop()
            with self.block("} else"):
                self.stmt(stmt.orelse)
        self.text.named = {}

    def _if_lanes(self, stmt: If) -> None:
        """A condition that differs between lanes: store each lane under its own branch."""
        inner = stmt.then
        if stmt.orelse is not None or not isinstance(inner, Store):
            raise CodegenError("a condition that differs between lanes may guard only a single store")
        for lane in range(stmt.cond.dtype.lanes):
            scalar = Store(
                inner.buffer, tuple(lane_of(i, lane) for i in inner.indices), lane_of(inner.value, lane)
            )
            self.visit_if(If(lane_of(stmt.cond, lane), scalar))

    def visit_while(self, stmt: While) -> None:
        self._declare_rest(stmt)
        with self.block("for (;;)"):
            self.text.named = {}
            self.prepare(stmt.cond)
            self.line(f"if (!({self.text.value(stmt.cond)}))")
            self.line("    break;")
            self.text.named = {}
            self.stmt(stmt.body)

    def visit_alloc(self, stmt: Alloc) -> None:
        buffer = stmt.buffer
        keys = self.promoted(buffer, stmt.body)
        if keys is not None:
            single = len(keys) == 1
            values = {}
            for number, key in enumerate(sorted(keys)):
                name = self.names.fresh(buffer.name if single else f"{buffer.name}_{number}")
                values[key] = name
                self._undeclared[name] = self.level
            self.registers[buffer] = values
            if all(lanes == 1 for _, lanes in keys) and sums_data(buffer, stmt.body):
                self.unsigned.add(buffer)
            self.stmt(stmt.body)
            for name in values.values():
                self._undeclared.pop(name, None)
            del self.registers[buffer]
            self.unsigned.discard(buffer)
            return
        shape = buffer.static_shape()
        if shape is None:
            raise CodegenError(
                f"buffer {buffer!r} has no fixed size",
                hint="hoist it to a workspace parameter (hoist_workspace)",
            )
        count = 1
        for dim in shape:
            count *= dim
        scope = self.unit.dialect.scopes.get(buffer.scope)
        if scope is None:
            raise CodegenError(f"{self.unit.dialect.name} has no memory of scope {buffer.scope!r}")
        name = self.names.fresh(buffer.name)
        kind = self.unit.stored_type(buffer.dtype)
        align = self.unit.dialect.alignment.format(align=64)
        self.line(
            f"{scope + ' ' if scope else ''}{kind} {name}[{max(1, count)}]{' ' + align if align else ''};"
        )
        self.pointers[buffer] = name
        self.stmt(stmt.body)

    def promoted(self, buffer: Buffer, body: Stmt) -> set[Key] | None:
        """The elements of a buffer that are kept in registers; None if it is in memory."""
        return promotable(buffer, body)

    def visit_view(self, stmt: View) -> Stmt:
        buffer = stmt.buffer
        root = self.roots[buffer] = self.roots.get(stmt.base, stmt.base)
        const = "" if buffer in self._written else self.unit.dialect.constant + " "
        name = self.names.fresh(buffer.name)
        kind, pointer = self.unit.stored_type(buffer.dtype), self.pointer(root)
        same = self.unit.stored_type(root.dtype) == kind
        start = const_value(buffer.offset) if same or root.dtype.itemsize == 1 else None
        if start:
            self.starts[buffer] = int(start)
            moved = f"{pointer} + {start if same else int(start) * buffer.dtype.itemsize}"
            pointer = moved if same else f"({moved})"
        space = self.space(root)
        cast = "" if same else f"({space}{const}{kind} *)({space}{const}void *)"
        self.line(f"{space}{const}{kind} *{name} = {cast}{pointer};")
        self.pointers[buffer] = name
        self.unused[buffer] = self.lines[-1]
        return stmt.body

    def space(self, buffer: Buffer) -> str:
        """The qualifier of pointers to a buffer, followed by a space."""
        kernels = self.unit.dialect.kernels
        found = "" if kernels is None else kernels.spaces.get(buffer.scope, "")
        return f"{found} " if found else ""

    def visit_eval(self, stmt: Eval) -> None:
        value = stmt.value
        if not isinstance(value, Call):
            return
        self.text.named = {}
        if value.name.startswith("kernel."):
            args = [self.text.value(a) for a in value.args]
            if self.unit.dialect.parallel:
                args.append("threads")
            self.line(f"{self.unit.symbol(value.name.removeprefix('kernel.'))}({', '.join(args)});")
        elif value.name == "prefetch":
            return
        else:
            self.effect(value)

    def effect(self, value: Call) -> None:
        """A call of an intrinsic for its side effect. Languages with more such intrinsics override this
        method.
        """
        if value.name.startswith(EXTERN):
            self.prepare(*value.args)
            callee = self.unit.foreign.symbol(value.name.removeprefix(EXTERN))
            self.line(f"{callee}({', '.join(map(self.text.value, value.args))});")
            return
        language = self.unit.dialect.name
        raise CodegenError(f"{language} does not support the intrinsic {value.name} as a statement")

    def function(self, func: PrimFunc, head: str) -> str:
        """The text of a PrimFunc. `head` is the text before its parameters."""
        written = frozenset(store.buffer for store in stores_in(func.body))
        self._written = _with_windows(func.body, written | self._written_by_calls(func.body))
        self._shared = shared_buffers(func)
        self.names.take(map(self.unit.symbol, called_kernels(func.body)))  # no local name may shadow them
        params = self.first_parameters()
        for param in func.params:
            name = self.names.fresh(param.name)
            if isinstance(param, Buffer):
                params.append(self.parameter(param, name, param in self._written))
                self.pointers[param] = name
            else:
                kind = self.unit.dialect.index if param.dtype is INDEX else self.unit.value_type(param.dtype)
                params.append(f"{kind} {name}")
                self.text.vars[param] = name
                if param.dtype.is_int:
                    self.positive.add(param)
        if self.unit.dialect.parallel:
            params.append("int threads")
        self.unit.writes[func.name] = frozenset(
            place for place, param in enumerate(func.params) if param in self._written
        )
        self.stmt(func.body)
        dead = {id(line) for line in self.unused.values()}
        self.lines = [line for line in self.lines if id(line) not in dead]
        # A name that only a pragma mentions is unused if the compiler ignores the pragma.
        used = "\n".join(line for line in self.lines if not line.startswith("#"))
        unused = [
            f"    (void){p.split()[-1].lstrip('*')};"
            for p in params
            if not _mentions(used, p.split()[-1].lstrip("*"))
        ]
        lines = [part for line in self.lines for part in folded(line)]
        return "\n".join([f"{head}({_wrapped(head, params)})", "{", *unused, *lines, "}", ""])

    def first_parameters(self) -> list[str]:
        """Parameters before those of the program."""
        return []

    def _written_by_calls(self, root: Stmt) -> frozenset[Buffer]:
        """Buffers whose address is passed to a function that writes to them."""
        found = set()
        for stmt in stmts(root):
            for expr in exprs_of(stmt):
                if not isinstance(expr, Call) or not expr.name.startswith(CALLS):
                    continue
                writes = self.unit.writes.get(expr.name.partition(".")[2])
                for place, arg in enumerate(expr.args):
                    target = arg.args[0] if isinstance(arg, Call) and arg.name == "address_of" else None
                    if isinstance(target, Load) and (writes is None or place in writes):
                        found.add(target.buffer)
        return frozenset(found)

    def parameter(self, buffer: Buffer, name: str, written: bool) -> str:
        """A pointer parameter."""
        dialect = self.unit.dialect
        const = "" if written else dialect.constant + " "
        restrict = f"{dialect.restrict} " if dialect.restrict and buffer not in self._shared else ""
        return f"{self.space(buffer)}{const}{self.unit.stored_type(buffer.dtype)} *{restrict}{name}"


def sums_data(buffer: Buffer, body: Stmt) -> bool:
    """Whether values are accumulated in a buffer of signed integers.

    Such a buffer is declared unsigned, because its sums wrap. With casts to unsigned and back in each
    iteration, GCC 12 generates wrong code for several sums.
    """
    if buffer.dtype.kind != "int" or buffer.dtype.bits < 32:
        return False
    return any(
        isinstance(one, Store)
        and one.buffer is buffer
        and isinstance(one.value, Binary)
        and any(isinstance(side, Load) and side.buffer is buffer for side in (one.value.a, one.value.b))
        for one in stmts(body)
    )


def _wrapped(head: str, params: Sequence[str]) -> str:
    one = ", ".join(params) or "void"
    if len(head) + len(one) < 98:
        return one
    return ",\n".join([params[0], *(" " * 8 + p for p in params[1:])])


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text) is not None


def _with_windows(root: Stmt, written: Iterable[Buffer]) -> frozenset[Buffer]:
    """Buffers that are written directly or through views."""
    known = set(written)
    for view in reversed(list(stmts_of(root, View))):
        if view.buffer in known:
            known.add(view.base)
    return frozenset(known)


__all__ = ["FunctionWriter"]
