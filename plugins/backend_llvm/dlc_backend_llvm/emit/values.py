"""Values of expressions. Each is computed once, in the outermost scope that has its operands."""

from __future__ import annotations

from abc import ABC, abstractmethod

from dlc_backend_llvm.emit.scope import Lines, Scope
from dlc_backend_llvm.emit.types import literal, register_type
from dlc_backend_llvm.emit.unit import Unit
from dlc_core.diag import CodegenError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Binary, Call, Const, Expr, Load, Var, const_value
from dlc_core.tir.intrinsics import CONVERGENT

_TRAPPING = ("floordiv", "floormod", "truncdiv", "truncmod", "div")

Info = tuple[int, frozenset[Buffer], bool]
"""Of an expression: the depth of the innermost scope that binds one of its variables, the buffers that it
reads, and whether it may be hoisted.
"""


class ValueEmitter(ABC):
    """Emits each expression of a function once, in the outermost scope that has its operands."""

    name: str
    """The name of the function."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.scopes: list[Scope] = []
        self.lines: Lines = []
        self.vars: dict[Var, tuple[str, int]] = {}
        self.pointers: dict[Buffer, tuple[str, int]] = {}
        self.windows: dict[Buffer, Buffer] = {}
        self.registers: dict[Buffer, dict[tuple[int, int], str]] = {}
        self.mask = ""
        self.mask_lanes = 0
        self.flushes = False
        """Whether rounding to bfloat16 may use an instruction that flushes denormals."""
        self._count = 0
        self._info: dict[Expr, Info] = {}

    def fresh(self, hint: str = "v") -> str:
        """A new SSA name."""
        self._count += 1
        return f"%{hint}{self._count}"

    def emit(self, instruction: str, hint: str = "v") -> str:
        """Append an instruction, and return the name of its result."""
        name = self.fresh(hint)
        self.lines.append(f"  {name} = {instruction}")
        return name

    @property
    def depth(self) -> int:
        return len(self.scopes) - 1

    def value(self, expr: Expr) -> str:
        """The LLVM operand with the value of an expression, without its type."""
        if isinstance(expr, Const):
            return literal(expr.value, expr.dtype)
        if isinstance(expr, Var):
            if expr not in self.vars:
                raise CodegenError(f"variable {expr.name} is used outside of its loop or function")
            return self.vars[expr][0]
        if isinstance(expr, Load) and expr.buffer in self.registers:
            return self._load(expr)
        depth, reads, movable = self.info(expr)
        if movable:
            return self._movable(expr, self.scopes[depth])
        for scope in self.scopes:
            found = scope.volatile.get(expr)
            if found is not None:
                return found
        result = self._instruction(expr)
        self.scopes[-1].remember(expr, result, reads)
        return result

    def _movable(self, expr: Expr, scope: Scope) -> str:
        found = scope.values.get(expr)
        if found is None:
            here, self.lines = self.lines, scope.prefix
            masked, self.mask = self.mask, ""
            try:
                found = self._instruction(expr)
            finally:
                self.lines, self.mask = here, masked
            scope.values[expr] = found
        return found

    def root(self, buffer: Buffer) -> Buffer:
        """The allocated buffer that a view refers to, or the buffer itself. All views of it share
        its memory.
        """
        while buffer in self.windows:
            buffer = self.windows[buffer]
        return buffer

    def typed(self, expr: Expr) -> str:
        """The LLVM operand with its type: `type operand`."""
        return f"{register_type(expr.dtype)} {self.value(expr)}"

    def info(self, root: Expr) -> Info:
        known = self._info.get(root)
        if known is not None:
            return known
        stack = [root]
        while stack:
            expr = stack[-1]
            if expr in self._info:
                stack.pop()
                continue
            waiting = [child for child in expr.children if child not in self._info]
            if waiting:
                stack += waiting
                continue
            depth, movable = 0, True
            reads: frozenset[Buffer] = frozenset()
            for child in expr.children:
                child_depth, child_reads, child_movable = self._info[child]
                depth, movable = max(depth, child_depth), movable and child_movable
                reads |= child_reads
            if isinstance(expr, Var):
                depth = self.vars[expr][1] if expr in self.vars else self.depth
            elif isinstance(expr, Load):
                reads, movable = reads | {self.root(expr.buffer)}, False
            elif isinstance(expr, Call) and (
                expr.name == "if_then_else" or expr.name.startswith("kernel.") or expr.name in CONVERGENT
            ):
                movable = False
            elif isinstance(expr, Binary) and expr.op in _TRAPPING and not expr.dtype.is_float:
                movable = movable and bool(const_value(expr.b))
            self._info[expr] = (depth, reads, movable)
        return self._info[root]

    @abstractmethod
    def cast(self, operand: str, source: DType, to: DType) -> str:
        """Convert an operand from one dtype to another."""

    @abstractmethod
    def _instruction(self, expr: Expr) -> str:
        """Emit the instructions of an expression, and return the name of its result."""

    @abstractmethod
    def _load(self, expr: Load) -> str:
        """Emit a load, and return the name of its result."""


__all__ = ["ValueEmitter"]
