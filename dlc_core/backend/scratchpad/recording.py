"""From a compiled module to commands: the entry point is unrolled, and its tiles are placed in scratchpads.

Sizes are known at compile time, so every loop around a nest runs here, and every iteration gives a command.
Each execution of an allocation is a tile of its own. The tiles of one allocation take turns in several
slots, as many as fit: a copy for a later iteration then runs while units use the tile of an earlier one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dlc_core.arith import eval_expr
from dlc_core.backend.scratchpad.checks import check_inside, without_checks
from dlc_core.backend.scratchpad.commands import MAIN, Command, Operand, normal
from dlc_core.backend.scratchpad.nests import Nest, nest_of
from dlc_core.backend.scratchpad.slots import Tile, place_tiles
from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Call, Expr, Load, Var
from dlc_core.ir.module import IRModule
from dlc_core.support.record import record
from dlc_core.target.description import Description
from dlc_core.tir.failures import parameters_of
from dlc_core.tir.intrinsics import kernel_symbol
from dlc_core.tir.scopes import bytes_of, in_main_memory
from dlc_core.tir.stmt import Alloc, Eval, For, If, Let, PrimFunc, Seq, Stmt, Store, View

MOST_COMMANDS = 1_000_000
"""The most commands of a stream, unless a code generator gives another number."""
MOST_SINGLE = 1 << 12
"""The most commands of one element that one statement under a condition makes in a call of a kernel."""
WHOLE = "loop to the end of a tile by T.min(tile, size - begin), or choose tiles that divide the sizes"
IGNORED = ("copies_begin", "copies_end", "copies_barrier", "barrier")
"""Calls without a meaning here: tokens follow from the accesses of commands."""


@record(frozen=True)
class Recorded:
    """The commands of an entry point, with addresses, and the kernel of each by its call."""

    commands: tuple[Command, ...]
    calls: tuple[str, ...]
    """The kernels in the order of their calls."""
    owner: tuple[int, ...]
    """The number of the call of each command."""
    slots: Mapping[str, int]
    """For each buffer on the chip, as `kernel.buffer`, the number of its slots."""


Pointer = tuple[str, int, int]
"""Space, memory, and an offset in bytes."""


@dataclass
class _Scope:
    func: PrimFunc
    buffers: dict[Buffer, Pointer]
    env: dict[Var, int]


@dataclass
class _Recorder:
    module: IRModule
    machine: Description
    most: int = MOST_COMMANDS
    commands: list[Command] = field(default_factory=list)
    owner: list[int] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    made: list[tuple[int, str, Buffer, int]] = field(default_factory=list)
    """The tiles: call, kernel, buffer, bytes."""
    used: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The first and the last command that uses a tile."""
    nests: dict[Stmt, Nest | None] = field(default_factory=dict)
    bodies: dict[PrimFunc, Stmt] = field(default_factory=dict)
    """The bodies of kernels, without checks of accesses."""
    conditions: list[Expr] = field(default_factory=list)
    """The conditions around the present statement."""
    single: dict[tuple[int, Stmt], int] = field(default_factory=dict)
    """The commands of one element under a condition, for each call and statement."""

    def statement(self, stmt: Stmt, scope: _Scope) -> None:
        if stmt not in self.nests:
            try:
                self.nests[stmt] = nest_of(stmt, self.machine, scope.func.name)
            except CodegenError as error:
                error.details += self.rules(scope)
                raise error.at(scope.func.spans) from None
        nest = self.nests[stmt]
        if nest is not None:
            self.nest(nest, scope)
            if self.conditions and not nest.extents:
                self.count_single(stmt, scope)
            return
        match stmt:
            case Seq():
                for child in stmt.stmts:
                    self.statement(child, scope)
            case For() if stmt.kind != "thread":
                begin, extent = (eval_expr(e, scope.env) for e in (stmt.begin, stmt.extent))
                for value in range(begin, begin + extent):
                    scope.env[stmt.var] = value
                    self.statement(stmt.body, scope)
            case If():
                part = stmt.then if self.value(stmt.cond, scope) else stmt.orelse
                if part is not None:
                    self.conditions.append(stmt.cond)
                    self.statement(part, scope)
                    self.conditions.pop()
            case Let():
                scope.env[stmt.var] = self.value(stmt.value, scope)
                self.statement(stmt.body, scope)
            case View():
                scope.buffers[stmt.buffer] = scope.buffers[stmt.base]
                self.statement(stmt.body, scope)
            case Alloc():
                self.allocate(stmt.buffer, scope)
                self.statement(stmt.body, scope)
            case Eval() if isinstance(stmt.value, Call):
                self.call(stmt.value, scope)
            case _:
                raise self.error(scope, f"no unit executes the statement {type(stmt).__name__.lower()}")

    def count_single(self, stmt: Stmt, scope: _Scope) -> None:
        """Count a command of one element. Too many are an error: the units would hardly work."""
        key = len(self.calls) - 1, stmt
        self.single[key] = count = self.single.get(key, 0) + 1
        if count > MOST_SINGLE:
            assert isinstance(stmt, Store)
            raise self.error(
                scope,
                f"each element of {stmt.buffer.name} is a command, more than {MOST_SINGLE:,} in one call",
                why=f"the condition {self.conditions[-1]} is inside a loop nest; a command has no condition",
                hint=WHOLE,
            )

    def too_many(self, scope: _Scope) -> CodegenError:
        """The error of a stream that is too long. It names the kernel with the most commands."""
        call, count = Counter(self.owner).most_common(1)[0]
        return self.error(
            scope,
            f"the stream has more than {self.most:,} commands",
            why=f"{self.calls[call]} has {count:,} of them; a condition, or a second statement, inside a "
            "loop nest makes a command for each element",
            hint=f"{WHOLE}; use larger tiles",
        )

    def rules(self, scope: _Scope) -> tuple[str, ...]:
        """The schedule rule of a kernel, and the reasons of those that refused it."""
        attrs = scope.func.attrs
        own = [f"schedule rule: {attrs['rule']}"] if "rule" in attrs else []
        return (*own, *(f"refused: {reason}" for reason in attrs.get("why_not", ())))

    def error(self, scope: _Scope, what: str, why: str = "", hint: str = "") -> CodegenError:
        func = scope.func
        details = self.rules(scope)
        return CodegenError(f"{func.name}: {what}", why=why, hint=hint, details=details, spans=func.spans)

    def value(self, expr: Expr, scope: _Scope) -> int:
        return eval_expr(expr, scope.env)

    def allocate(self, buffer: Buffer, scope: _Scope) -> None:
        size = bytes_of(buffer)
        if in_main_memory(buffer) or size is None:
            raise self.error(
                scope,
                f"{buffer.name} is in the scope {buffer.scope!r}",
                why="units have memories on the chip only, of sizes that are known",
                hint=f"scopes: {', '.join(self.machine.capacities)}",
            )
        scope.buffers[buffer] = buffer.scope, len(self.made), 0
        self.made.append((len(self.calls) - 1, scope.func.name, buffer, size))

    def call(self, call: Call, scope: _Scope) -> None:
        symbol = kernel_symbol(call)
        if symbol is None:
            if call.name in IGNORED:
                return
            raise self.error(scope, f"no unit executes the call {call.name}")
        callee = self.module[symbol]
        assert isinstance(callee, PrimFunc)
        inner = _Scope(callee, {}, {})
        for param, arg in zip(callee.params, call.args):
            if isinstance(param, Buffer):
                inner.buffers[param] = self.pointer(arg, scope)
            else:
                inner.env[param] = self.value(arg, scope)
        self.calls.append(symbol)
        if callee not in self.bodies:
            self.bodies[callee] = without_checks(callee)
        self.statement(self.bodies[callee], inner)

    def pointer(self, handle: Expr, scope: _Scope) -> Pointer:
        target = handle.args[0] if isinstance(handle, Call) and handle.name == "address_of" else None
        if not isinstance(target, Load):
            raise self.error(scope, f"the address {handle} is not known at compile time")
        space, memory, offset = scope.buffers[target.buffer]
        index = self.value(target.buffer.linear_index(target.indices), scope)
        return space, memory, offset + index * target.buffer.dtype.itemsize

    def nest(self, nest: Nest, scope: _Scope) -> None:
        sizes = nest.sizes(scope.env)
        operands = []
        for access in nest.accesses:
            space, memory, offset = scope.buffers[access.buffer]
            width = access.buffer.dtype.itemsize
            at = offset + self.value(access.first, scope) * width
            strides = tuple(stride * width for stride in access.strides)
            operands.append(Operand(space, memory, at, strides, access.buffer.dtype.name))
        fresh = nest.fresh is not None and all(self.value(cond, scope) for cond in nest.fresh)
        inside = nest.inside(sizes, scope.env)
        made = Command(nest.unit, nest.work, sizes, tuple(operands), nest.value, inside, fresh)
        if made.is_empty:
            return
        if parameters_of(scope.func) is not None:
            self.check(made, nest, scope)
        if len(self.commands) >= self.most:
            raise self.too_many(scope)
        number = len(self.commands)
        for operand in operands:
            if operand.space != MAIN:
                first, _ = self.used.get(operand.memory, (number, number))
                self.used[operand.memory] = first, number
        self.commands.append(normal(made))
        self.owner.append(len(self.calls) - 1)

    def check(self, command: Command, nest: Nest, scope: _Scope) -> None:
        """Prove the accesses of a command, in place of the checks that were removed."""
        places = []
        for operand, access in zip(command.operands, nest.accesses, strict=True):
            size = bytes_of(access.buffer)
            if size is not None:
                places.append((operand, access.buffer, scope.buffers[access.buffer][2], size))
        check_inside(command, places, scope.func.name)


def record_commands(
    module: IRModule, entry: PrimFunc, machine: Description, most: int = MOST_COMMANDS
) -> Recorded:
    """The commands of an entry point, whose tiles are placed in the scopes of the machine.

    The buffers of the entry point are main memory. Raises CodegenError for symbolic sizes, for statements
    that no unit executes, for tiles that do not fit, for more than `most` commands, and for a loop nest whose
    condition would make a command of each element.
    """
    checked = parameters_of(entry)
    dims = [v for v in entry.scalars if checked is None or v is not checked[1]]
    if dims:
        names = ", ".join(v.name for v in dims)
        raise CodegenError(
            f"{entry.name}: the dims {names} are not known at compile time",
            why="a stream of instructions has constant sizes",
            hint="give their values by shapes=",
        )
    recorder = _Recorder(module, machine, most)
    buffers = {buffer: (MAIN, number, 0) for number, buffer in enumerate(entry.buffers)}
    recorder.calls.append(entry.name)
    recorder.statement(without_checks(entry), _Scope(entry, buffers, {}))
    tiles = {number: Tile(*recorder.made[number], *span) for number, span in recorder.used.items()}
    addresses, slots = place_tiles(tiles, machine)
    commands = tuple(_placed(command, addresses) for command in recorder.commands)
    return Recorded(commands, tuple(recorder.calls), tuple(recorder.owner), slots)


def _placed(command: Command, addresses: Mapping[int, int]) -> Command:
    operands = tuple(
        o if o.space == MAIN else replace(o, memory=0, offset=o.offset + addresses[o.memory])
        for o in command.operands
    )
    return replace(command, operands=operands)


__all__ = ["Recorded", "record_commands"]
