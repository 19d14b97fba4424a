"""The whole grammar of scalar expressions, and of the buffers that they load from.

    Expr = Var(name, dtype, bounds)            identity: two Vars of one name differ; dims may have bounds
         | Const(value, dtype)
         | Unary(op, a)                        op in UNARY
         | Binary(op, a, b)                    op in ARITH | COMPARE | LOGIC | BITS; operands of one dtype
         | Cast(dtype, a)
         | Select(cond, a, b)                  both sides may be evaluated; neither may trap
         | Call(name, args, dtype)             an intrinsic: exp, erf, call_extern, …
         | Ramp(base, stride, lanes)           the vector base + stride * [0 … lanes-1]
         | Broadcast(value, lanes)
         | Load(buffer, indices)               of an element, or of a vector when the last index is a Ramp

Expressions are immutable and interned: structural equality is identity, so `a == b` is `a is b`, and a table
keyed by expressions is a CSE.  Use `eq(a, b)` for the comparison *expression*.

A class declares its fields once, as annotations, in the order in which its constructor function takes them
(`make.py`).  Slots, operands, rebuilding, structure, JSON and pickling follow from the declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import get_annotations
from itertools import count
from operator import attrgetter, is_
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.ir.bounds import Bounds
from dlc_core.ir.dtype import BOOL, INDEX, DType, DTypeLike, dtype

E = TypeVar("E", bound="Expr")

UNARY = frozenset({"neg", "not", "bitnot"})
ARITH = frozenset({"add", "sub", "mul", "div", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max"})
COMPARE = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
LOGIC = frozenset({"and", "or"})
BITS = frozenset({"bitand", "bitor", "bitxor", "shl", "shr"})
MIXED = ("vector_", "subgroup_matrix")
"""Prefixes of intrinsics whose arguments have different numbers of lanes."""
DEFAULT_ALIGN = 64

EXPRESSIONS: list[type[Expr]] = []
"""All classes of expressions."""

_ROLES: Mapping[str, str] = {
    "Expr": "operand",
    "tuple[Expr, ...]": "operands",
    "Buffer": "buffer",
    "DType": "dtype",
    "Bounds | None": "bounds",
    "str": "text",
    "int": "lanes",
}
"""The role of a field by the text of its annotation; all others are literals."""


_created = count()

_DATA = ("text", "lanes", "literal", "bounds")
"""Roles of fields other than operands, buffers and the type of the value."""


class Part(NamedTuple):
    """A field of a class of expressions."""

    name: str
    role: str


def _declared(cls: type[E]) -> type[E]:
    """Rebuild the class with slots, and with methods for the fields that it declares.

    This is a decorator, because a metaclass would make each `isinstance` slower.
    """
    declared = get_annotations(cls)
    parts = tuple(Part(name, _ROLES.get(text, "literal")) for name, text in declared.items())
    inherited = {slot for base in cls.__mro__ for slot in getattr(base, "__slots__", ())}
    space = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    space["__slots__"] = tuple(name for name in declared if name not in inherited)
    space["parts"], space["values"] = parts, _getter(list(declared))
    space["data"] = _getter([part.name for part in parts if part.role in _DATA])
    operands = [part for part in parts if part.role in ("operand", "operands")]
    if operands:
        space["children"] = _getter([part.name for part in operands], single=operands[0].role == "operand")
        if "rebuild" not in space:
            namespace: dict[str, Any] = {"identical": identical}
            exec(_rebuild(parts), namespace)  # noqa: S102  (the text is made of names of fields)
            space["rebuild"] = namespace["rebuild"]
    rebuilt: type[E] = type(cls.__name__, cls.__bases__, space)
    EXPRESSIONS.append(rebuilt)
    return rebuilt


def _getter(names: Sequence[str], single: bool = True) -> Any:
    """A property that returns the values of fields as a tuple. With `single=False` the field is a tuple
    itself.
    """
    if not names:
        return property(lambda self: ())
    get: Callable[[Any], Any] = attrgetter(*names)
    return property(get if len(names) > 1 or not single else lambda self: (get(self),))


def _rebuild(parts: Sequence[Part]) -> str:
    """The source text of `rebuild` for a class with these fields."""
    operands = [name for name, role in parts if role == "operand"]
    same = " and ".join(f"{name} is self.{name}" for name in operands)
    values = {name: name if name in operands else f"self.{name}" for name, _ in parts}
    for name, role in parts:
        if role == "operands":
            same, values[name] = f"identical(children, self.{name})", "children"
        if role == "dtype":  # with the lanes of the new operands
            values[name] = f"self.{name}.with_lanes({operands[0]}.dtype.lanes)"
    unpack = f"    {', '.join(operands)}, = children\n" if operands else ""
    arguments = ", ".join(values.values())
    return f"def rebuild(self, children):\n{unpack}    return self if {same} else self.make({arguments})\n"


def identical(new: Sequence[object], old: Sequence[object]) -> bool:
    """Whether both have the same objects in the same order."""
    return len(new) == len(old) and all(map(is_, new, old))


class Expr:
    """Base of all expressions.  `dtype` is the type of the value, lanes included.

    `operand_vars` and `operand_loads` are the distinct variables and loads in its operands, in the order of
    first use; None if there are too many.
    """

    __slots__ = ("__weakref__", "dtype", "operand_loads", "operand_vars")
    dtype: DType
    operand_vars: tuple[Var, ...] | None
    operand_loads: tuple[Load, ...] | None

    parts: ClassVar[tuple[Part, ...]] = ()
    """The fields of the class."""
    operators: ClassVar[frozenset[str]] = frozenset()
    """The legal values of the field `op`; empty if the class has no such field."""
    make: ClassVar[Callable[..., Expr]]
    """The constructor function of the class. It takes the fields in order, and may return a simpler
    expression."""

    @property
    def values(self) -> tuple[Any, ...]:
        """The values of the fields."""
        return ()

    @property
    def data(self) -> tuple[Any, ...]:
        """The values of the fields that are plain data, besides `dtype`: an operator, a name, lanes."""
        return ()

    @property
    def children(self) -> tuple[Expr, ...]:
        """The direct operands."""
        return ()

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        """The same expression with other operands. It is the same object if the operands are the same."""
        return self

    # Equality and hashing are by identity, inherited from `object`, because nodes are interned.

    def __add__(self, other: ExprLike) -> Expr:
        return Binary.make("add", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return Binary.make("add", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return Binary.make("sub", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return Binary.make("sub", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return Binary.make("mul", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return Binary.make("mul", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return Binary.make("div", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return Binary.make("div", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return Binary.make("floordiv", self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return Binary.make("floordiv", other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return Binary.make("floormod", self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return Binary.make("floormod", other, self)

    def __neg__(self) -> Expr:
        return Unary.make("neg", self)

    def __lt__(self, other: ExprLike) -> Expr:
        return Binary.make("lt", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return Binary.make("le", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return Binary.make("gt", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return Binary.make("ge", self, other)

    def __and__(self, other: ExprLike) -> Expr:
        return Binary.make("and" if self.dtype.is_bool else "bitand", self, other)

    def __or__(self, other: ExprLike) -> Expr:
        return Binary.make("or" if self.dtype.is_bool else "bitor", self, other)

    def __xor__(self, other: ExprLike) -> Expr:
        return Binary.make("bitxor", self, other)

    def __lshift__(self, other: ExprLike) -> Expr:
        return Binary.make("shl", self, other)

    def __rshift__(self, other: ExprLike) -> Expr:
        return Binary.make("shr", self, other)

    def __invert__(self) -> Expr:
        return Unary.make("not" if self.dtype.is_bool else "bitnot", self)

    def __bool__(self) -> bool:
        if isinstance(self, Const):
            return bool(self.value)
        raise UsageError(
            f"the expression {self} has no truth value while compiling",
            hint="use select(cond, a, b), `arith.Analyzer.prove`, or `is` to compare expressions",
        )

    def astype(self, to: DTypeLike) -> Expr:
        return Cast.make(dtype(to), self)


ExprLike = Expr | int | float | bool


class Axis(Protocol):
    """An object that stands for its variable in expressions."""

    @property
    def var(self) -> Var: ...


class _Created(Expr):
    """An expression that knows its place in the order of creation, `serial`. It is not a field."""

    __slots__ = ("serial",)
    serial: int


@_declared
class Var(_Created):
    """A variable, compared by identity. `name` is a hint for printing. Dims may have `bounds`."""

    name: str
    dtype: DType
    bounds: Bounds | None

    def __init__(self, name: str, dtype_: DTypeLike = INDEX, bounds: Bounds | None = None) -> None:
        self.name = name
        self.dtype = dtype(dtype_)
        self.bounds = bounds
        self.serial = next(_created)
        # A reference to itself would be a cycle.
        self.operand_vars = self.operand_loads = ()


Var.make = Var


@_declared
class Const(Expr):
    """A literal. It is interned by type and bits, so that 1, True and 1.0, or -0.0 and 0.0, are different."""

    value: int | float | bool
    dtype: DType


@_declared
class Unary(Expr):
    operators = UNARY
    op: str
    a: Expr


@_declared
class Binary(Expr):
    operators = ARITH | COMPARE | LOGIC | BITS
    op: str
    a: Expr
    b: Expr


@_declared
class Cast(Expr):
    dtype: DType
    a: Expr


@_declared
class Select(Expr):
    cond: Expr
    a: Expr
    b: Expr


@_declared
class Call(Expr):
    """An intrinsic of the tensor level.  Pure unless its name is in `tir.intrinsics.EFFECTS`."""

    name: str
    args: tuple[Expr, ...]
    dtype: DType

    def rebuild(self, children: Sequence[Expr]) -> Expr:
        if identical(children, self.args):
            return self
        if self.name.startswith(MIXED):
            return Call.make(self.name, children, self.dtype)
        lanes = max((child.dtype.lanes for child in children), default=1)
        return Call.make(self.name, children, self.dtype.with_lanes(lanes))


@_declared
class Ramp(Expr):
    base: Expr
    stride: Expr
    lanes: int


@_declared
class Broadcast(Expr):
    value: Expr
    lanes: int


class Buffer:
    """A region of memory, compared by identity.

    `shape` and `strides` are index expressions in elements; no strides means row-major. `scope` is the memory
    scope: "global" (the caller's or arena memory), "local" (registers or stack of one thread), "shared", or a
    scope of the target. `offset` is the element offset of index zero from the pointer. `align` is the
    pointer's alignment in bytes.
    """

    __slots__ = ("__weakref__", "_steps", "align", "dtype", "name", "offset", "scope", "shape", "strides")

    def __init__(
        self,
        name: str,
        shape: Sequence[ExprLike],
        dtype_: DTypeLike = "float32",
        *,
        strides: Sequence[ExprLike] | None = None,
        scope: str = "global",
        offset: ExprLike = 0,
        align: int = 0,
    ) -> None:
        self.name = name
        self.shape: tuple[Expr, ...] = tuple(as_expr(dim) for dim in shape)
        for dim in self.shape:
            if isinstance(dim, Const) and dim.value < 0:
                raise UsageError(f"buffer {name} has a dim of {dim.value}")
        self.dtype: DType = dtype(dtype_)
        self.strides: tuple[Expr, ...] | None = (
            None if strides is None else tuple(as_expr(s) for s in strides)
        )
        self.scope = scope
        self.offset: Expr = as_expr(offset)
        self.align = align or min(DEFAULT_ALIGN, self.dtype.itemsize)
        self._steps: tuple[Expr, ...] | None = self.strides

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Load:
        expr = Load.make(self, indices if isinstance(indices, tuple) else (indices,))
        assert isinstance(expr, Load)
        return expr

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def element_strides(self) -> tuple[Expr, ...]:
        """Strides in elements; row-major strides if none are given."""
        if self._steps is None:
            strides: list[Expr] = []
            step: Expr = Const.make(1)
            for dim in reversed(self.shape):
                strides.append(step)
                step = dim * step
            self._steps = tuple(reversed(strides))
        return self._steps

    def linear_index(self, indices: Sequence[Expr]) -> Expr:
        """The offset of `buffer[indices]` from the pointer, in elements."""
        total = self.offset
        for index, stride in zip(indices, self.element_strides(), strict=True):
            if index.dtype.scalar is not INDEX:
                index = index.astype(INDEX.with_lanes(index.dtype.lanes))
            term = index if _is_index(stride, 1) and index.dtype is INDEX else index * stride
            total = term if _is_index(total, 0) and term.dtype is INDEX else term + total
        return total

    def num_elements(self) -> Expr:
        """The product of the shape."""
        total: Expr = Const.make(1)
        for dim in self.shape:
            total = total * dim
        return total

    def static_shape(self) -> tuple[int, ...] | None:
        """The shape as ints; None if a dim is symbolic."""
        values = [int(dim.value) for dim in self.shape if isinstance(dim, Const)]
        return tuple(values) if len(values) == len(self.shape) else None

    def like(
        self, name: str | None = None, *, shape: Sequence[ExprLike] | None = None, scope: str | None = None
    ) -> Buffer:
        """A new compact buffer of the same dtype."""
        return Buffer(
            name or self.name, self.shape if shape is None else shape, self.dtype, scope=scope or self.scope
        )

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@_declared
class Load(Expr):
    """Read of `buffer[indices]`; lanes come from the indices (a Ramp or another vector index)."""

    buffer: Buffer
    indices: tuple[Expr, ...]


def as_expr(value: ExprLike | np.generic | Axis, type_: DTypeLike | None = None) -> Expr:
    """Convert a Python number or expression to an expression. Plain ints get the index type unless `type_` is
    given.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, np.generic):
        return as_expr(value.item(), type_ or dtype(value.dtype))
    if isinstance(value, (int, float)):
        if type_ is not None:
            return Const.make(value, type_)
        if isinstance(value, bool):
            return Const.make(value, BOOL)
        return Const.make(value, INDEX if isinstance(value, int) else "float32")
    if isinstance(getattr(value, "var", None), Var):
        return value.var
    raise UsageError(f"{value!r} is not an expression")


def _is_index(e: Expr, value: int) -> bool:
    """Whether an expression is the index literal `value`."""
    return type(e) is Const and e.dtype is INDEX and e.value == value
