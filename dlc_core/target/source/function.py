"""Functions as text of the C family: statements, the values that they name, and where buffers live."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import INDEX, DType
from dlc_core.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Var,
    const_value,
    post_order,
)
from dlc_core.target.source.expression import ExpressionWriter, neighbours
from dlc_core.target.source.helpers import storage_lanes
from dlc_core.target.source.unit import Unit
from dlc_core.target.source.words import RESERVED, Names
from dlc_core.tir.functor import exprs_of, stmts, stores_in
from dlc_core.tir.lanes import lane_of
from dlc_core.tir.promotion import promotable
from dlc_core.tir.stmt import Alloc, Eval, For, If, Let, PrimFunc, Seq, Stmt, Store, View, While

CALLS = ("kernel.", "launch.", "extern.", "clock")

Key = tuple[int, int]
"""First element and lanes of a promoted value."""


class FunctionWriter:
    """Writes the body of one function."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.names = Names(RESERVED)
        self.text = ExpressionWriter(unit, self)
        self.lines: list[str] = []
        self.level = 1
        self._pointers: dict[Buffer, str] = {}
        self._registers: dict[Buffer, dict[Key, str]] = {}
        self._undeclared: dict[str, int] = {}
        """Registers that have no declaration yet, with the level where they get it."""
        self._nonnegative: set[Var] = set()
        self._written: frozenset[Buffer] = frozenset()

    # Places of values, as the expression writer asks for them

    def pointer(self, buffer: Buffer) -> str:
        if buffer not in self._pointers:
            raise CodegenError(f"buffer {buffer.name} is used where it is not allocated")
        return self._pointers[buffer]

    def register(self, load: Load) -> str | None:
        """The text of a load from a promoted buffer."""
        values = self._registers.get(load.buffer)
        if values is None:
            return None
        key = self._key(load.buffer, load.indices, load.dtype.lanes)
        if key in values:
            return values[key]
        for (first, width), name in values.items():
            if key[1] == 1 and first <= key[0] < first + width:
                return f"{name}[{key[0] - first}]"
        raise CodegenError(f"buffer {load.buffer.name} is read at {load} before it is written")

    def nonnegative(self, expr: Expr) -> bool:
        return all(
            (isinstance(e, Var) and e in self._nonnegative)
            or (isinstance(e, Const) and e.value >= 0)
            or (isinstance(e, Cast) and e.a.dtype.is_int)
            or (isinstance(e, Binary) and e.op in ("add", "mul", "floordiv", "floormod", "min", "max"))
            for e in post_order(expr)
        )

    def _key(self, buffer: Buffer, indices: Sequence[Expr], lanes: int) -> Key:
        start = const_value(buffer.linear_index(indices)) if lanes == 1 else None
        if lanes > 1 and (offset := neighbours(buffer, indices)) is not None:
            start = const_value(offset)
        if start is None:
            raise CodegenError(
                f"buffer {buffer!r} was promoted to registers but is accessed at {indices}, {lanes} lanes"
            )
        return int(start), lanes

    # Lines

    def line(self, text: str) -> None:
        self.lines.append("    " * self.level + text if text else "")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """`head {` … `}`; what is named inside is forgotten after it."""
        self.line(f"{head} {{".lstrip())
        named, names = dict(self.text.named), self.names
        self.names = names.copy()
        self.level += 1
        try:
            yield
        finally:
            self.level -= 1
            self.text.named, self.names = named, names
        self.line("}")

    # Values that are named before a statement

    def prepare(self, *roots: Expr) -> None:
        """Name what the expressions use more than once, and what the language has no operator for."""
        uses = _uses(roots)
        for expr in _eager(roots):
            if expr in self.text.named or isinstance(expr, Var | Const):
                continue
            if self._needs_name(expr, uses[expr]):
                self._name(expr)

    def _needs_name(self, expr: Expr, uses: int) -> bool:
        if expr.dtype.lanes > 1:
            if isinstance(expr, Load) and self.register(expr) is not None:
                return False
            if not self.text.direct(expr):
                return True
        if _is_reinterpret(expr):
            return True
        if isinstance(expr, Call) and expr.name == "if_then_else" and self._needs_block(expr):
            return True
        if isinstance(expr, Broadcast | Ramp) or expr.dtype.name == "handle":
            return False
        if isinstance(expr, Load) and (expr.buffer in self._registers):
            return False
        return uses > 1 and not _is_index(expr)

    def _needs_block(self, expr: Call) -> bool:
        """Whether a lazily chosen side has values of its own to name."""
        for side in expr.args[1:]:
            for inner, uses in _uses((side,)).items():
                if isinstance(inner, Var | Const) or inner in self.text.named:
                    continue
                if (uses > 1 and not _is_index(inner)) or _is_reinterpret(inner):
                    return True
        return False

    def _name(self, expr: Expr) -> None:
        name = self.names.fresh(_hint(expr))
        lanes = expr.dtype.lanes
        if lanes > 1 and not self.text.direct(expr):
            self._lane_loop(expr, name)
        elif isinstance(expr, Call) and _is_reinterpret(expr):
            self._reinterpret(expr, name)
        elif isinstance(expr, Call) and expr.name == "if_then_else" and self._needs_block(expr):
            self.line(f"{self.unit.value_type(expr.dtype)} {name};")
            cond, *sides = expr.args
            for head, side in zip((f"if ({self.text.value(cond)})", "else"), sides, strict=True):
                with self.block(head):
                    self.prepare(side)
                    self.line(f"{name} = {self.text.value(side)};")
        else:
            self.line(f"{self._constant(expr.dtype)} {name} = {self.text.value(expr)};")
        self.text.named[expr] = name

    def _constant(self, type_: DType) -> str:
        kind = (
            self.unit.mask_type(8, type_.lanes)
            if type_.is_bool and type_.lanes > 1
            else self.unit.value_type(type_)
        )
        return f"const {kind}"

    def _reinterpret(self, expr: Call, name: str) -> None:
        source = expr.args[0]
        inner = self.names.fresh("bits")
        held, made = self.unit.stored_type(source.dtype), self.unit.stored_type(expr.dtype)
        narrow = {"float16": "f16", "bfloat16": "bf16"}.get(expr.dtype.name)
        self.line(f"const {held} {inner} = {self.text.stored(source)};")
        if narrow is None:
            self.line(f"{made} {name};")
            self.line(f"memcpy(&{name}, &{inner}, sizeof {name});")
            return
        raw = self.names.fresh("raw")
        self.line(f"{made} {raw};")
        self.line(f"memcpy(&{raw}, &{inner}, sizeof {raw});")
        self.line(f"const float {name} = {self.unit.helper(f'{narrow}_to_f32')}({raw});")

    def _lane_loop(self, expr: Expr, name: str) -> None:
        """A vector whose lanes are computed one by one."""
        type_, lanes = expr.dtype, expr.dtype.lanes
        if isinstance(expr, Call) and expr.name in ("vector_shuffle", "vector_concat"):
            raise CodegenError(f"intrinsic {expr.name} has no code in {self.unit.dialect.name}")
        kind = self.unit.mask_type(8, lanes) if type_.is_bool else self.unit.value_type(type_)
        partial = storage_lanes(lanes) != lanes
        self.line(f"{kind} {name}{' = {0}' * partial};")
        lane = Var(self.names.fresh("lane"), INDEX)
        counter = self.text.vars[lane] = lane.name
        self._nonnegative.add(lane)
        with self.block(f"for (int {counter} = 0; {counter} < {lanes}; ++{counter})"):
            one = self._lane(expr, lane)
            self.prepare(one)
            value = self.text.value(one)
            if type_.is_bool:
                value = f"-({value})"
            self.line(f"{name}[{counter}] = {value};")

    def _lane(self, expr: Expr, lane: Var) -> Expr:
        """The scalar that a vector's lane of that number is; vectors that have names are read there."""

        done: dict[Expr, Expr] = {}

        def one(e: Expr) -> Expr:
            if e not in done:
                done[e] = make(e)
            return done[e]

        def make(e: Expr) -> Expr:
            if e.dtype.lanes == 1:
                return e
            held = self.text.named.get(e)
            if held is None and isinstance(e, Load):
                held = self.register(e)
            if held is not None:
                var = Var(held, e.dtype.scalar)
                text = f"{held}[{self.text.vars[lane]}]"
                self.text.vars[var] = f"({text} != 0)" if e.dtype.is_bool else text
                return var
            if isinstance(e, Ramp):
                return e.base + e.stride * lane.astype(e.base.dtype)
            return e.value if isinstance(e, Broadcast) else e.rebuild([one(child) for child in e.children])

        return one(expr)

    # Statements

    def stmt(self, stmt: Stmt) -> None:
        if isinstance(stmt, Seq):
            for part in stmt.stmts:
                self.stmt(part)
        elif isinstance(stmt, Store):
            self._store(stmt)
        elif isinstance(stmt, For):
            self._for(stmt)
        elif isinstance(stmt, If):
            self._if(stmt)
        elif isinstance(stmt, Let):
            self.prepare(stmt.value)
            name = self.names.fresh(stmt.var.name)
            self.line(f"{self._constant(stmt.var.dtype)} {name} = {self.text.value(stmt.value)};")
            self.text.vars[stmt.var] = name
            self.text.named = {}
            self.stmt(stmt.body)
        elif isinstance(stmt, Alloc):
            self._alloc(stmt)
        elif isinstance(stmt, View):
            self._view(stmt)
        elif isinstance(stmt, Eval):
            self._eval(stmt.value)
        elif isinstance(stmt, While):
            self._while(stmt)
        else:
            raise CodegenError(
                f"{type(stmt).__name__} reached code generation",
                hint="lower blocks to loops first (pass lower_blocks)",
            )

    def _store(self, stmt: Store) -> None:
        self.text.named = {}
        buffer, lanes = stmt.buffer, max(stmt.value.dtype.lanes, *(i.dtype.lanes for i in stmt.indices), 1)
        if buffer in self._registers:
            self.prepare(stmt.value)
            self._assign(buffer, stmt, lanes)
        elif lanes == 1:
            offset = self.text.index(buffer, stmt.indices)
            self.prepare(stmt.value, offset)
            self.line(f"{self.text.element(buffer, offset)} = {self.text.stored(stmt.value)};")
        else:
            self._store_lanes(stmt, lanes)
        self.text.named = {}

    def _assign(self, buffer: Buffer, stmt: Store, lanes: int) -> None:
        name = self._registers[buffer][self._key(buffer, stmt.indices, lanes)]
        value = self.text.value(stmt.value)
        if self._undeclared.get(name) == self.level:
            del self._undeclared[name]
            self.line(f"{self.unit.value_type(stmt.value.dtype)} {name} = {value};")
            return
        for sign in (" + ", " - ", " * "):
            # x = x + y reads better as x += y.
            if value.startswith(name + sign) and isinstance(stmt.value, Binary):
                left = self.text.value(stmt.value.a, 0)
                if left == name:
                    self.line(f"{name} {sign.strip()}= {value[len(name + sign) :]};")
                    return
        self.line(f"{name} = {value};")

    def _store_lanes(self, stmt: Store, lanes: int) -> None:
        buffer, value = stmt.buffer, stmt.value
        start = neighbours(buffer, stmt.indices)
        narrow = buffer.dtype.is_bool or buffer.dtype.name in ("float16", "bfloat16")
        if start is not None and not narrow and value.dtype.lanes == lanes:
            self.prepare(value)
            name, some = self.text.vector_access("store", value.dtype)
            self.line(f"{name}({self.text.address(buffer, start)}, {self.text.value(value)}{some});")
            return
        if value.dtype.lanes > 1:
            self.prepare(value)
        lane = Var(self.names.fresh("lane"), INDEX)
        counter = self.text.vars[lane] = lane.name
        self._nonnegative.add(lane)
        with self.block(f"for (int {counter} = 0; {counter} < {lanes}; ++{counter})"):
            one = self._lane(value, lane)
            offset = self.text.index(buffer, [self._lane(i, lane) for i in stmt.indices])
            self.prepare(one, offset)
            self.line(f"{self.text.element(buffer, offset)} = {self.text.stored(one)};")

    def _declare_rest(self, root: Stmt) -> None:
        """Declare the registers that a nested statement would be the first to write."""
        if not self._undeclared:
            return
        for buffer, values in self._registers.items():
            for key, name in values.items():
                if name in self._undeclared:
                    del self._undeclared[name]
                    type_ = buffer.dtype.with_lanes(key[1])
                    zero = "{0}" if key[1] > 1 else "0"
                    self.line(f"{self.unit.value_type(type_)} {name} = {zero};")

    def _for(self, loop: For) -> None:
        self._declare_rest(loop)
        self.text.named = {}
        if loop.kind == "thread":
            raise CodegenError(
                f"loop {loop.var.name} is bound to hardware thread {loop.thread}, which this language has not"
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
        else:
            end = f"{self.text.number(loop.begin, 10)} + {self.text.number(loop.extent, 11)}"
        if self.nonnegative(loop.begin):
            self._nonnegative.add(loop.var)
        first = self.text.number(loop.begin)
        self.text.vars[loop.var] = name
        kind = self.unit.dialect.index if loop.var.dtype is INDEX else self.unit.scalar_type(loop.var.dtype)
        if loop.kind == "parallel" and self.unit.dialect.parallel:
            self.lines.append(self.unit.dialect.parallel.format(threads="threads"))
        with self.block(f"for ({kind} {name} = {first}; {name} < {end}; ++{name})"):
            self.stmt(loop.body)
        self.text.named = {}

    def _if(self, stmt: If) -> None:
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
        """A condition that differs between lanes: each lane's store under its own branch."""
        inner = stmt.then
        if stmt.orelse is not None or not isinstance(inner, Store):
            raise CodegenError("only a single store may stand under a condition that differs between lanes")
        for lane in range(stmt.cond.dtype.lanes):
            scalar = Store(
                inner.buffer, tuple(lane_of(i, lane) for i in inner.indices), lane_of(inner.value, lane)
            )
            self._if(If(lane_of(stmt.cond, lane), scalar))

    def _while(self, stmt: While) -> None:
        self._declare_rest(stmt)
        with self.block("for (;;)"):
            self.text.named = {}
            self.prepare(stmt.cond)
            self.line(f"if (!({self.text.value(stmt.cond)}))")
            self.line("    break;")
            self.text.named = {}
            self.stmt(stmt.body)

    def _alloc(self, stmt: Alloc) -> None:
        buffer = stmt.buffer
        keys = promotable(buffer, stmt.body)
        if keys is not None:
            single = len(keys) == 1
            values = {}
            for number, key in enumerate(sorted(keys)):
                name = self.names.fresh(buffer.name if single else f"{buffer.name}_{number}")
                values[key] = name
                self._undeclared[name] = self.level
            self._registers[buffer] = values
            self.stmt(stmt.body)
            for name in values.values():
                self._undeclared.pop(name, None)
            del self._registers[buffer]
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
        self._pointers[buffer] = name
        self.stmt(stmt.body)

    def _view(self, stmt: View) -> None:
        buffer, base = stmt.buffer, stmt.base
        const = "" if buffer in self._written else self.unit.dialect.constant + " "
        name = self.names.fresh(buffer.name)
        kind, pointer = self.unit.stored_type(buffer.dtype), self.pointer(base)
        if self.unit.stored_type(base.dtype) == kind:
            self.line(f"{const}{kind} *{name} = {pointer};")
        else:
            self.line(f"{const}{kind} *{name} = ({const}{kind} *)({const}void *){pointer};")
        self._pointers[buffer] = name
        self.stmt(stmt.body)

    def _eval(self, value: Expr) -> None:
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
        """An intrinsic called for what it does; a language with more of them overrides this."""
        raise CodegenError(f"intrinsic {value.name} has no effect that {self.unit.dialect.name} knows")

    # The whole function

    def function(self, func: PrimFunc, head: str) -> str:
        """The text of a PrimFunc; `head` is what stands before its parameters."""
        written = frozenset(store.buffer for store in stores_in(func.body))
        self._written = _with_windows(func.body, written | self._written_by_calls(func.body))
        params = []
        for param in func.params:
            name = self.names.fresh(param.name)
            if isinstance(param, Buffer):
                params.append(self.parameter(param, name, param in self._written))
                self._pointers[param] = name
            else:
                kind = self.unit.dialect.index if param.dtype is INDEX else self.unit.value_type(param.dtype)
                params.append(f"{kind} {name}")
                self.text.vars[param] = name
                if param.dtype.is_int:
                    self._nonnegative.add(param)
        if self.unit.dialect.parallel:
            params.append("int threads")
        self.unit.writes[func.name] = frozenset(
            place for place, param in enumerate(func.params) if param in self._written
        )
        self.stmt(func.body)
        used = "\n".join(self.lines)
        unused = [
            f"    (void){p.split()[-1].lstrip('*')};"
            for p in params
            if not _mentions(used, p.split()[-1].lstrip("*"))
        ]
        return "\n".join([f"{head}({_wrapped(head, params)})", "{", *unused, *self.lines, "}", ""])

    def _written_by_calls(self, root: Stmt) -> frozenset[Buffer]:
        """Buffers whose address goes to a function that writes through it."""
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
        restrict = f"{dialect.restrict} " if dialect.restrict else ""
        return f"{const}{self.unit.stored_type(buffer.dtype)} *{restrict}{name}"


def _wrapped(head: str, params: Sequence[str]) -> str:
    one = ", ".join(params) or "void"
    if len(head) + len(one) < 98:
        return one
    return ",\n".join([params[0], *(" " * 8 + p for p in params[1:])])


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text) is not None


def _with_windows(root: Stmt, written: Iterable[Buffer]) -> frozenset[Buffer]:
    """Written buffers, and those that are written through windows on them."""
    known = set(written)
    for stmt in reversed(list(stmts(root))):
        if isinstance(stmt, View) and stmt.buffer in known:
            known.add(stmt.base)
    return frozenset(known)


def _eager(roots: Sequence[Expr]) -> list[Expr]:
    """What is evaluated in any case, operands first: the chosen sides of `if_then_else` are left out."""
    done: dict[Expr, None] = {}
    stack = list(reversed(roots))
    while stack:
        expr = stack[-1]
        children = expr.args[:1] if isinstance(expr, Call) and expr.name == "if_then_else" else expr.children
        waiting = [c for c in children if c not in done]
        if expr not in done and waiting:
            stack += reversed(waiting)
            continue
        done[expr] = None
        stack.pop()
    return list(done)


def _uses(roots: Sequence[Expr]) -> Counter[Expr]:
    """How many places of the expressions mention each of their parts."""
    uses = Counter(roots)
    for expr in post_order(*roots):
        uses.update(expr.children)
    return uses


def _is_reinterpret(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.name == "reinterpret"


def _is_index(expr: Expr) -> bool:
    """Arithmetic of loop variables alone: compilers share it, and readers want it where it is used."""
    return expr.kept_loads == () and not isinstance(expr, Load) and (expr.dtype.is_int or expr.dtype.is_bool)


def _hint(expr: Expr) -> str:
    if isinstance(expr, Call) and expr.name.isidentifier():
        return {"if_then_else": "chosen", "reinterpret": "as"}.get(expr.name, expr.name)
    return expr.buffer.name if isinstance(expr, Load) else "t"


__all__ = ["FunctionWriter"]
