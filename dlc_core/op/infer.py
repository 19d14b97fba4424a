"""Parts of type inference that op declarations share: broadcasting, axes, arithmetic on symbolic dims, dtype
checks.

Two dims are known to be equal if they are the same int or the same (interned) expression. If equality is
unknown, it is assumed, and recorded as a condition that every call checks (see `assume`). If an int and a
symbol are merged, the result is the int. Symbolic dims without bounds are at least 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from dlc_core.arith import Analyzer
from dlc_core.diag import TypeInferenceError
from dlc_core.ir.conditions import AT_LEAST, EQUAL, MULTIPLE, ONE_OR
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Binary, Expr, as_expr, const_value, free_vars, maximum, minimum
from dlc_core.ir.types import Dim, TensorType, Type, dim
from dlc_core.op.assume import assume
from dlc_core.op.declare import Infer, tensor_types

Attrs = Mapping[str, Any]


def fail(what: str, hint: str = "") -> TypeInferenceError:
    """The error to raise. The declaration adds the op's name, inputs and attributes."""
    return TypeInferenceError(what, hint=hint)


def simplify(value: Dim) -> Dim:
    """A dim in its simplest form, an int if it is a number. If the simplification requires dims of at least
    1, this is recorded as a condition.
    """
    if isinstance(value, int):
        return value
    made, exact = _simplified(value, 1), _simplified(value, 0)
    if made != exact:
        assume(EQUAL, exact, made, f"{exact} is taken to be {made}")
    return made


@lru_cache(maxsize=8192)
def _simplified(value: Expr, least: int) -> Dim:
    analyzer = Analyzer()
    for var in free_vars(value):
        # A dim with bounds may have each size within them, including 0, as data-dependent dims often have.
        analyzer.declare_dim(var, least if var.bounds is None else 0)
    return dim(analyzer.simplify(value))


def dims_text(shape: Iterable[Dim]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def dim_min(a: Dim, b: Dim) -> Dim:
    return simplify(minimum(a, b))


def dim_max(a: Dim, b: Dim) -> Dim:
    return simplify(maximum(a, b))


def ceil_div(a: Dim, b: int) -> Dim:
    """ceil(a / b) for b > 0."""
    return simplify((a + (b - 1)) // b)


def factors(shape: Iterable[Dim]) -> tuple[int, list[Expr]]:
    """The product of dims as an int and symbolic factors."""
    number, symbols = 1, list[Expr]()
    stack = [as_expr(d) for d in shape][::-1]
    while stack:
        current = stack.pop()
        value = const_value(current)
        if value is not None:
            number *= value
        elif isinstance(current, Binary) and current.op == "mul":
            stack += [current.b, current.a]
        else:
            symbols.append(current)
    return number, symbols


def product(shape: Iterable[Dim]) -> Dim:
    """The number of elements of a shape."""
    number, symbols = factors(shape)
    total: Dim = 1
    for symbol in symbols:
        total = total * symbol
    return dim(total * number)


def quotient(dividend: Sequence[Dim], divisor: Sequence[Dim]) -> Dim | None:
    """product(dividend) / product(divisor). None if it is known that the division is not exact."""
    number, symbols = factors(dividend)
    below, remaining = factors(divisor)
    left = []
    for symbol in symbols:
        if symbol in remaining:
            remaining.remove(symbol)
        else:
            left.append(symbol)
    if not remaining and below and number % below == 0:
        return product([number // below, *left])
    if below == 0 or (not left and not remaining):
        return None
    return simplify(as_expr(product([number, *left])) // product([below, *remaining]))


def same_size(a: Sequence[Dim], b: Sequence[Dim]) -> bool | None:
    """Whether two shapes have equally many elements. None if that depends on symbols."""
    a_number, a_symbols = factors(a)
    b_number, b_symbols = factors(b)
    if sorted(map(id, a_symbols)) == sorted(map(id, b_symbols)):
        return a_number == b_number
    return None


def merge_dims(a: Dim, b: Dim, what: str) -> Dim:
    """The common dim of `a` and `b`; the int if one is known. Two different ints are an error."""
    if a == b:
        return a
    if isinstance(a, int) and isinstance(b, int):
        raise fail(f"{what} must be equal, not {a} and {b}")
    known, other = (a, b) if isinstance(a, int) or not isinstance(b, int) else (b, a)
    assume(EQUAL, other, known, f"{what} must be equal")
    return known


def at_least(size: Dim, least: Dim, what: str) -> None:
    """Require that `size` is at least `least`. An error if this is known to be false."""
    if isinstance(size, int) and isinstance(least, int):
        if size < least:
            raise fail(f"{what} must be at least {least}, not {size}")
    else:
        assume(AT_LEAST, size, least, f"{what} must be at least {least}")


def multiple_of(size: Dim, by: Dim, what: str) -> None:
    """Require that `by` divides `size`. An error if this is known to be false."""
    if isinstance(size, int) and isinstance(by, int):
        if by == 0 or size % by:
            raise fail(f"{what} must be a multiple of {by}, not {size}")
    elif by != 1 and size != by:
        assume(MULTIPLE, size, by, f"{what} must be a multiple of {by}")


def broadcast_into(shape: Sequence[Dim], target: Sequence[Dim], what: str) -> None:
    """Require that a shape broadcasts to another one without changing it. Dims are aligned at the right."""
    shown = f"{what} {dims_text(shape)}".lstrip()
    why = f"{shown} is broadcast to {dims_text(target)}"
    if len(shape) > len(target):
        raise fail(f"{shown} does not broadcast to {dims_text(target)}")
    for a, b in zip(reversed(shape), reversed(target)):
        if isinstance(a, int) and isinstance(b, int):
            if a not in (1, b):
                raise fail(f"{shown} does not broadcast to {dims_text(target)}")
        elif isinstance(a, int) and a != 1:
            assume(EQUAL, b, a, why)
        elif a not in (1, b):
            assume(ONE_OR, a, b, why)


def broadcast_dims(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """NumPy broadcasting; dims are aligned at the right."""
    rank = max(map(len, shapes), default=0)
    result = []
    for position in range(rank):
        found: Dim = 1
        for shape in shapes:
            index = position - rank + len(shape)
            if index >= 0:
                found = _broadcast_pair(found, shape[index], shapes)
        result.append(found)
    return tuple(result)


def _broadcast_pair(a: Dim, b: Dim, shapes: Sequence[Sequence[Dim]]) -> Dim:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    given = " and ".join(map(dims_text, shapes))
    if isinstance(a, int) and not isinstance(b, int):
        assume(ONE_OR, b, a, f"shapes {given} broadcast")
        return a
    if isinstance(b, int) and not isinstance(a, int):
        assume(ONE_OR, a, b, f"shapes {given} broadcast")
        return b
    raise fail(
        f"shapes {given} do not broadcast: {a} against {b}",
        "dims must be equal or 1, aligned to the right",
    )


def axis_of(axis: int, rank: int, name: str = "axis") -> int:
    """A non-negative axis, from one that may count from the end."""
    if not -rank <= axis < rank:
        raise fail(f"{name} {axis} is out of range for rank {rank}", f"it must be in [{-rank}, {rank})")
    return axis % rank if rank else 0


def axes_of(axes: Sequence[int], rank: int, name: str = "axes") -> tuple[int, ...]:
    """Non-negative distinct axes, in the given order."""
    found = tuple(axis_of(a, rank, name) for a in axes)
    if len(set(found)) != len(found):
        raise fail(f"{name} {tuple(axes)} has an axis twice")
    return found


STANDS_FOR = {"float": ("bfloat16", "float8_e4m3fn"), "int": ("int8", "int4"), "uint": ("uint8", "uint4")}
"""The dtypes of the core that a declared dtype is like, by its kind: one that is computed in, and one for
storage. Ops accept a declared dtype if they accept one of these."""


def admits(found: DType, allowed: Sequence[str]) -> bool:
    """Whether a declared dtype is like one of the allowed dtypes."""
    return found.decl is not None and any(name in allowed for name in STANDS_FOR[found.kind])


def check_dtype(found: DType, allowed: Sequence[str], what: str = "input") -> None:
    if found.name not in allowed and not admits(found, allowed):
        raise fail(f"{what} has dtype {found}", f"allowed: {', '.join(allowed)}")


def check_rank(type_: TensorType, low: int, high: int | None = None, what: str = "input") -> None:
    """Raise an error for ranks outside [low, high]. None for `high` means no upper bound."""
    if type_.ndim < low or (high is not None and type_.ndim > high):
        ranks = f"{low}" if high == low else f"{low} to {high}" if high is not None else f"at least {low}"
        raise fail(f"{what} has rank {type_.ndim}, rank {ranks} is needed")


def common_dtype(tensors: Sequence[TensorType], allowed: Sequence[str]) -> DType:
    """The common dtype of all inputs."""
    first = tensors[0].dtype
    for other in tensors[1:]:
        if other.dtype is not first:
            raise fail(
                f"inputs have dtypes {first} and {other.dtype}", "all must have one dtype: insert a cast"
            )
    check_dtype(first, allowed)
    return first


def same_type(allowed: Sequence[str], result: str = "") -> Infer:
    """Inference of a unary elementwise op: the input's type, with dtype `result` if given."""

    def infer(types: Sequence[Type], attrs: Attrs) -> Type:
        (x,) = tensor_types(types)
        check_dtype(x.dtype, allowed)
        return x.with_dtype(result) if result else x

    return infer


def broadcast_type(allowed: Sequence[str], result: str = "") -> Infer:
    """Inference of an elementwise op with several inputs of one dtype."""

    def infer(types: Sequence[Type], attrs: Attrs) -> Type:
        tensors = tensor_types(types)
        found = common_dtype(tensors, allowed)
        shape = broadcast_dims(*(t.shape for t in tensors))
        return TensorType(shape, DType(result) if result else found)

    return infer


def of_input(make: Callable[[TensorType, Attrs], Type], allowed: Sequence[str]) -> Infer:
    """Inference of an op with one input. `make` gets the checked input type."""

    def infer(types: Sequence[Type], attrs: Attrs) -> Type:
        (x,) = tensor_types(types)
        check_dtype(x.dtype, allowed)
        return make(x, attrs)

    return infer
