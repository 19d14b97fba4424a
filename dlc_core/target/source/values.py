"""The values of a function as C text: their storage, and the names of values that are used several times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
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
from dlc_core.target.source.helpers import NARROW, storage_lanes
from dlc_core.target.source.tokens import RESERVED, Names
from dlc_core.target.source.unit import Unit

Key = tuple[int, int]
"""First element and lanes of a promoted value."""


class ValueWriter:
    """Writes values. The subclass in `function.py` writes statements."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.names = Names(RESERVED | unit.dialect.reserved)
        self.text = ExpressionWriter(unit, self)
        self.lines: list[str] = []
        self.level = 1
        self.pointers: dict[Buffer, str] = {}
        self.roots: dict[Buffer, Buffer] = {}
        """The base buffers of views."""
        self.starts: dict[Buffer, int] = {}
        """The offsets in elements that pointers of views already include."""
        self.unused: dict[Buffer, str] = {}
        """Unused views, with the lines that declare them."""
        self.registers: dict[Buffer, dict[Key, str]] = {}
        self.unsigned: set[Buffer] = set()
        """The registers that are declared unsigned, because they hold sums of data."""
        self.positive: set[Var] = set()
        """Variables that are never negative."""

    def pointer(self, buffer: Buffer) -> str:
        if buffer not in self.pointers:
            raise CodegenError(f"buffer {buffer.name} is used where it is not allocated")
        self.unused.pop(buffer, None)
        return self.pointers[buffer]

    def moved(self, buffer: Buffer) -> int:
        return self.starts.get(buffer, 0)

    def register(self, load: Load) -> str | None:
        """The text of a load from a buffer in registers."""
        values = self.registers.get(load.buffer)
        if values is None:
            return None
        key = self.key(load.buffer, load.indices, load.dtype.lanes)
        if key in values:
            return values[key]
        for (first, width), name in values.items():
            if key[1] == 1 and first <= key[0] < first + width:
                return f"{name}[{key[0] - first}]"
        raise CodegenError(f"buffer {load.buffer.name} is read at {load} before it is written")

    def is_unsigned(self, load: Load) -> bool:
        """Whether a load reads a register that is declared unsigned."""
        return load.buffer in self.unsigned

    def nonnegative(self, expr: Expr) -> bool:
        return all(
            (isinstance(e, Var) and e in self.positive)
            or (isinstance(e, Const) and e.value >= 0)
            or (isinstance(e, Cast) and e.a.dtype.is_int)
            or (isinstance(e, Binary) and e.op in ("add", "mul", "floordiv", "floormod", "min", "max"))
            for e in post_order(expr)
        )

    def key(self, buffer: Buffer, indices: Sequence[Expr], lanes: int) -> Key:
        start = const_value(buffer.linear_index(indices)) if lanes == 1 else None
        if lanes > 1 and (offset := neighbours(buffer, indices)) is not None:
            start = const_value(offset)
        if start is None:
            raise CodegenError(
                f"buffer {buffer!r} was promoted to registers but is accessed at {indices}, {lanes} lanes"
            )
        return int(start), lanes

    def line(self, text: str) -> None:
        self.lines.append("    " * self.level + text if text else "")

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write `head {` … `}`. The scope of names that are defined inside is the block."""
        self.line(f"{head} {{".lstrip())
        named, names, anchors = dict(self.text.named), self.names, self.text.anchors
        self.text.anchors = dict(anchors)
        self.names = names.copy()
        self.level += 1
        try:
            yield
        finally:
            self.level -= 1
            self.text.named, self.names, self.text.anchors = named, names, anchors
        self.line("}")

    def prepare(self, *roots: Expr) -> None:
        """Name the values that the expressions use more than once, and operations without an operator in the
        language.
        """
        uses = _uses(roots)
        for expr in eager(roots):
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
        if isinstance(expr, Load) and (expr.buffer in self.registers):
            return False
        return uses > 1 and not _is_index(expr)

    def _needs_block(self, expr: Call) -> bool:
        """Whether one side of an `if_then_else` has values that need names."""
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
            self.line(f"{self.constant(expr.dtype)} {name} = {self.text_in_kind(expr)};")
        self.text.named[expr] = name

    def kind(self, type_: DType) -> str:
        """The type of a named value. Vectors of bools are byte masks."""
        if type_.is_bool and type_.lanes > 1:
            return self.unit.mask_type(8, type_.lanes)
        return self.unit.value_type(type_)

    def constant(self, type_: DType) -> str:
        return f"const {self.kind(type_)}"

    def text_in_kind(self, value: Expr) -> str:
        """The text of a value in the type of `kind`."""
        bools = value.dtype.is_bool and value.dtype.lanes > 1
        return self.text.mask(value, 8) if bools else self.text.value(value)

    def _reinterpret(self, expr: Call, name: str) -> None:
        source = expr.args[0]
        inner = self.names.fresh("bits")
        held, made = self.unit.stored_type(source.dtype), self.unit.stored_type(expr.dtype)
        narrow = NARROW.get(expr.dtype.name)
        own = self.unit.dialect.reinterpret
        if own:
            text = own.format(value=self.text.stored(source), held=held, to=made)
            text = text if narrow is None else f"{self.unit.helper(f'{narrow}_to_f32')}({text})"
            self.line(f"{self.constant(expr.dtype)} {name} = {text};")
            return
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
        """Compute a vector lane by lane."""
        type_, lanes = expr.dtype, expr.dtype.lanes
        if isinstance(expr, Call) and expr.name in ("vector_shuffle", "vector_concat"):
            raise CodegenError(f"intrinsic {expr.name} has no code in {self.unit.dialect.name}")
        kind = self.unit.mask_type(8, lanes) if type_.is_bool else self.unit.value_type(type_)
        partial = storage_lanes(lanes) != lanes
        self.line(f"{kind} {name}{' = {0}' * partial};")
        lane = Var(self.names.fresh("lane"), INDEX)
        counter = self.text.vars[lane] = lane.name
        self.positive.add(lane)
        with self.block(f"for (int {counter} = 0; {counter} < {lanes}; ++{counter})"):
            one = self.lane(expr, lane)
            self.prepare(one)
            value = self.text.value(one)
            if type_.is_bool:
                value = f"-({value})"
            self.line(f"{name}[{counter}] = {value};")

    def lane(self, expr: Expr, lane: Var) -> Expr:
        """The scalar expression of a vector's lane `lane`. Vectors that have names are indexed."""

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


def eager(roots: Sequence[Expr]) -> list[Expr]:
    """Expressions that are always evaluated, operands first. The branches of `if_then_else` are left out."""
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
    """Count the uses of each subexpression."""
    uses = Counter(roots)
    for expr in post_order(*roots):
        uses.update(expr.children)
    return uses


def _is_reinterpret(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.name == "reinterpret"


def _is_index(expr: Expr) -> bool:
    """Whether an expression is arithmetic of loop variables alone. It gets no name, because compilers share
    it and it is more readable in place. Variables of other dtypes are values that were loaded before.
    """
    if expr.operand_loads != () or isinstance(expr, Load) or not (expr.dtype.is_int or expr.dtype.is_bool):
        return False
    return all(var.dtype.is_int and var.dtype.bits >= 32 for var in expr.operand_vars or ())


def _hint(expr: Expr) -> str:
    if isinstance(expr, Call) and expr.name.isidentifier():
        return {"if_then_else": "chosen", "reinterpret": "as"}.get(expr.name, expr.name)
    return expr.buffer.name if isinstance(expr, Load) else "t"


__all__ = ["Key", "ValueWriter", "eager"]
