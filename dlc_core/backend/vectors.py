"""Vectors of floats in languages with vector operators. The text is much shorter than with separate lanes,
and it compiles faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from dlc_core.backend.emission import ModuleUnit
from dlc_core.backend.kernels import KernelWriter
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Binary, Broadcast, Expr, Load, Unary, load, post_order, select
from dlc_core.target.source import Moves
from dlc_core.target.source.expression import neighbours
from dlc_core.target.source.function import FunctionWriter
from dlc_core.target.source.scalars import ADD, ATOM, MUL, OPERATORS, UNARY, Text, choice_of
from dlc_core.target.source.values import Key
from dlc_core.tir.stmt import If, Stmt, Store

_SIGNS = {"max_number": ">=", "min_number": "<="}
"""The comparison by which the other operand replaces an element. It is false if the element is NaN."""


class Scalars(Protocol):
    """The writer of scalar expressions."""

    def value(self, expr: Expr, level: int = 0) -> str: ...


class VectorText:
    """Writes vector expressions. `held` returns the name of a vector that is loaded already."""

    def __init__(
        self,
        moves: Moves,
        scalars: Scalars,
        held: Callable[[Expr], str | None],
        named: Callable[[DType, str], str],
    ) -> None:
        self.moves = moves
        self.scalars = scalars
        self.held = held
        self.named = named
        """Declares a variable of a type with a value, and returns its name."""
        self._uses: Counter[Expr] = Counter()

    def has(self, type_: DType) -> bool:
        """Whether the language has arithmetic for this type."""
        return (
            self.moves.arithmetic
            and type_.scalar.name in ("float32", "float64")
            and type_.lanes in self.moves.lanes
            and (not self.moves.widest or type_.bits * type_.lanes <= self.moves.widest)
        )

    def direct(self, expr: Expr) -> bool:
        """Whether an expression can be written with vector operators."""
        work, met = [expr], set[Expr]()
        while work:
            e = work.pop()
            if e in met:
                continue
            met.add(e)
            if isinstance(e, Broadcast):
                continue
            if not self.has(e.dtype):
                return False
            if self.held(e) is not None:
                continue
            if isinstance(e, Unary):
                if e.op != "neg":
                    return False
                work.append(e.a)
            elif isinstance(e, Binary):
                if isinstance(e.a, Broadcast) and isinstance(e.b, Broadcast):
                    return False
                if e.op in ("min", "max"):
                    helper, value, number = choice_of(e)
                    if helper not in _SIGNS or not isinstance(number, Broadcast):
                        return False
                    work.append(value)
                elif e.op in ("add", "sub", "mul", "div"):
                    work += (e.a, e.b)
                else:
                    return False
            else:
                return False
        return True

    def value(self, expr: Expr) -> str:
        """The text of an expression that is `direct`. Subexpressions that it uses twice are bound to names
        first.
        """
        self._uses = Counter(child for e in post_order(expr) for child in e.children)
        return self._text(expr, {})[0]

    def _text(self, expr: Expr, done: dict[Expr, str]) -> Text:
        held = done.get(expr) or self.held(expr)
        if held is not None:
            return held, ATOM
        if isinstance(expr, Broadcast):
            return self._splat(expr), UNARY
        if isinstance(expr, Unary):
            text, level = self._text(expr.a, done)
            return f"-{text if level > UNARY else f'({text})'}", UNARY
        assert isinstance(expr, Binary)
        if expr.op in ("min", "max"):
            helper, a, b = choice_of(expr)
            assert isinstance(b, Broadcast)
            operand, number = self._named_operand(a, done), self._splat(b)
            done[expr] = self.named(expr.dtype, f"{number} {_SIGNS[helper]} {operand} ? {number} : {operand}")
            return done[expr], ATOM
        sign, level = OPERATORS[expr.op]
        assert level in (ADD, MUL)
        left, right = self._operand(expr.a, level, done), self._operand(expr.b, level + 1, done)
        text = f"{left} {sign} {right}"
        if self._uses[expr] > 1:
            done[expr] = self.named(expr.dtype, text)
            return done[expr], ATOM
        return text, level

    def _named_operand(self, expr: Expr, done: dict[Expr, str]) -> str:
        """The name of a vector that the text uses twice."""
        text, level = self._text(expr, done)
        if level < ATOM:
            text = done[expr] = self.named(expr.dtype, text)
        return text

    def _operand(self, expr: Expr, level: int, done: dict[Expr, str]) -> str:
        """The text of a vector operand. A scalar is broadcast by the language."""
        if isinstance(expr, Broadcast):
            return self.scalars.value(expr.value, level)
        text, own = self._text(expr, done)
        return text if own >= level else f"({text})"

    def _splat(self, expr: Broadcast) -> str:
        type_ = self.moves.type.format(scalar=self._scalar(expr.dtype), lanes=expr.dtype.lanes)
        return f"({type_})({self.scalars.value(expr.value)})"

    @staticmethod
    def _scalar(type_: DType) -> str:
        return {"float32": "float", "float64": "double"}[type_.scalar.name]


class VectorWriter(KernelWriter):
    """Writes kernels with vector variables and vector arithmetic, for the types that the language
    supports.
    """

    def __init__(self, unit: ModuleUnit) -> None:
        super().__init__(unit)
        self._vectors = VectorText(self.words.moves or Moves(), self.text, self._held, self._declared)

    def _held(self, expr: Expr) -> str | None:
        """The name of a vector that is already in a variable; else None."""
        if expr in self._moved or not isinstance(expr, Load):
            return self._moved.get(expr)
        values = self.registers.get(expr.buffer)
        return None if values is None else values.get(self.key(expr.buffer, expr.indices, expr.dtype.lanes))

    def _declared(self, type_: DType, text: str) -> str:
        name = self.names.fresh("t")
        self.line(f"const {self.kind(type_)} {name} = {text};")
        return name

    def kind(self, type_: DType) -> str:
        """The type of a variable."""
        if not self._vectors.has(type_):
            return super().kind(type_)
        return self._vectors.moves.type.format(scalar=self.unit.stored_type(type_.scalar), lanes=type_.lanes)

    def promoted(self, buffer: Buffer, body: Stmt) -> set[Key] | None:
        """Use a variable for each vector that the language supports, and for each element of others."""
        found = super().promoted(buffer, body)
        keys = None if found is None else FunctionWriter.promoted(self, buffer, body)
        if keys is None or not all(n == 1 or self._vectors.has(buffer.dtype.with_lanes(n)) for _, n in keys):
            return found
        return keys

    def register(self, load: Load) -> str | None:
        """The text of a load from a promoted buffer, which may be a lane of a vector variable."""
        values = self.registers.get(load.buffer)
        if values is not None and load.dtype.lanes == 1:
            element, _ = key = self.key(load.buffer, load.indices, 1)
            for (first, width), name in () if key in values else values.items():
                if first <= element < first + width:
                    return name + self._vectors.moves.lane.format(lane=element - first)
        return super().register(load)

    def visit_store(self, stmt: Store) -> None:
        lanes = max(stmt.value.dtype.lanes, *(i.dtype.lanes for i in stmt.indices), 1)
        vector = stmt.buffer.dtype.with_lanes(lanes)
        operand = self._is_register(stmt, lanes)
        if lanes == 1 or not (operand or self._vectors.has(vector)):
            super().visit_store(stmt)
            return
        self.text.named = {}
        start = neighbours(stmt.buffer, stmt.indices)
        in_memory = start is not None and self._is_vector_access(stmt.buffer.dtype, lanes, start)
        moved = self._moves(stmt.value)
        direct = stmt.value.dtype is vector and self._vectors.direct(stmt.value)
        if operand:
            self._keep(stmt, lanes, self._lanes_of(stmt.value, lanes) if not direct else None)
        elif direct and in_memory and start is not None and stmt.buffer not in self.registers:
            self._prepare_scalars(stmt.value, start)
            words, moves = self._words_of_move(stmt.buffer, lanes), self._vectors.moves
            value, at = self._vectors.value(stmt.value), self.text.address(stmt.buffer, start)
            self.line(moves.store.format(value=value, at=at, **words) + ";")
        else:
            self._forget(moved)
            super().visit_store(stmt)
            return
        self._forget(moved)
        self.text.named = {}

    def visit_if(self, stmt: If) -> None:
        lanes, inner = stmt.cond.dtype.lanes, stmt.then
        if lanes == 1 or not isinstance(inner, Store) or not self._is_register(inner, lanes):
            super().visit_if(stmt)
            return
        self._declare_rest(stmt)
        self.text.named = {}
        moved = self._moves(stmt.cond, inner.value)
        before = self._lanes(load(inner.buffer, inner.indices), lanes)
        conds, values = self._lanes(stmt.cond, lanes), self._lanes(inner.value, lanes)
        self._keep(inner, lanes, [select(*each) for each in zip(conds, values, before, strict=True)])
        self._forget(moved)
        self.text.named = {}

    def _is_register(self, stmt: Store, lanes: int) -> bool:
        """Whether a store is to a vector variable."""
        values = self.registers.get(stmt.buffer)
        return lanes > 1 and values is not None and self.key(stmt.buffer, stmt.indices, lanes) in values

    def _lanes_of(self, value: Expr, lanes: int) -> list[Expr]:
        return self._lanes(value, lanes) if value.dtype.lanes > 1 else [value] * lanes

    def _prepare_scalars(self, value: Expr, *others: Expr) -> None:
        """Bind common values of the scalars in a vector expression to names."""
        self.prepare(*(e.value for e in post_order(value) if isinstance(e, Broadcast)), *others)

    def _keep(self, stmt: Store, lanes: int, parts: Sequence[Expr] | None) -> None:
        """Assign a vector to its variable, from its lanes if they are given."""
        name = self.registers[stmt.buffer][self.key(stmt.buffer, stmt.indices, lanes)]
        words = self._words_of_move(stmt.buffer, lanes)
        if parts is None:
            self._prepare_scalars(stmt.value)
            value = self._vectors.value(stmt.value)
        else:
            self.prepare(*parts)
            given = ", ".join(map(self.text.value, parts))
            value = self._vectors.moves.make.format(values=given, **words)
        if self._undeclared.get(name) == self.level:
            del self._undeclared[name]
            self.line(f"{words['type']} {name} = {value};")
        elif value.startswith(f"{name} + ") and parts is None and isinstance(stmt.value, Binary):
            self.line(f"{name} += {value[len(name) + 3 :]};")
        else:
            self.line(f"{name} = {value};")


__all__ = ["VectorText", "VectorWriter"]
