"""The update of a reduction block: the accumulators, the terms, and the function that combines them.

    B[p] = B[p] op term                            one value and one operation

    term = let(…)                                  any other function of one value
    B[p] = f(B[p], term)

    term_0 = let(…); term_1 = let(…)               several values: the terms by name, then every new value
    next_0 = let(f_0(B0[p], B1[p], term_0, …))     before the first is stored
    next_1 = let(f_1(B0[p], B1[p], term_0, …))
    B0[p] = next_0; B1[p] = next_1

`update` writes these forms and `combination_of` reads them, so that a schedule can combine partial results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Binary, Expr, Load, Var, const, free_vars, load, loads_in, transform
from dlc_core.support.record import record
from dlc_core.tir.interpreter import evaluate
from dlc_core.tir.stmt import Let, Seq, Stmt, Store, seq

OPERATIONS = frozenset({"add", "mul", "min", "max", "and", "or", "bitand", "bitor", "bitxor"})
"""Binary operations that are commutative and associative (sums and products of floats up to rounding)."""

Combine = Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, ...]]


@record(frozen=True)
class Combination:
    """`combine` computes one tuple of values from `buffers[i][point]` and `terms[i]`.

    `plain`: it is one operation, written without names for the terms.
    """

    buffers: tuple[Buffer, ...]
    point: tuple[Expr, ...]
    terms: tuple[Expr, ...]
    combine: Combine
    plain: bool


def update(buffers: Sequence[Buffer], point: Sequence[Expr], terms: Sequence[Expr], combine: Combine) -> Stmt:
    """A statement that combines elements of buffers with terms. The terms do not read the buffers."""
    indices = tuple(point)
    current = tuple(load(b, indices) for b in buffers)
    if len(buffers) == 1:
        (value,) = combine(current, tuple(terms))
        if isinstance(value, Binary) and value.op in OPERATIONS and _operands(value, current[0], terms[0]):
            return Store(buffers[0], indices, value)
    names = tuple(Var(f"term_{b.name}", t.dtype) for b, t in zip(buffers, terms, strict=True))
    values = combine(current, names)
    body: Stmt
    if len(buffers) == 1:
        body = Store(buffers[0], indices, values[0])
    else:
        fresh = tuple(Var(f"next_{b.name}", v.dtype) for b, v in zip(buffers, values, strict=True))
        body = seq(*(Store(b, indices, v) for b, v in zip(buffers, fresh, strict=True)))
        for var, value in reversed(list(zip(fresh, values, strict=True))):
            body = Let(var, value, body)
    for var, term in reversed(list(zip(names, terms, strict=True))):
        body = Let(var, term, body)
    return body


def _operands(value: Binary, a: Expr, b: Expr) -> bool:
    return (value.a is a and value.b is b) or (value.a is b and value.b is a)


def combination_of(body: Stmt) -> Combination | None:
    """The combination of an update; None if it has none of the forms above."""
    if isinstance(body, Store):
        return _operation(body)
    lets: list[Let] = []
    while isinstance(body, Let):
        lets.append(body)
        body = body.body
    stores = body.stmts if isinstance(body, Seq) else (body,)
    found = [s for s in stores if isinstance(s, Store)]
    buffers = tuple(s.buffer for s in found)
    count = len(found)
    if len(found) != len(stores) or not found or len(set(buffers)) != count:
        return None
    point = found[0].indices
    if any(s.indices != point for s in found) or len(lets) != (1 if count == 1 else 2 * count):
        return None
    values = tuple(s.value for s in found)
    if count > 1:
        if values != tuple(one.var for one in lets[count:]):
            return None
        values = tuple(one.value for one in lets[count:])
    names, terms = tuple(one.var for one in lets[:count]), tuple(one.value for one in lets[:count])
    own = tuple(load(b, point) for b in buffers)
    if any(e.buffer in buffers for e in loads_in(*terms, *point)):
        return None
    if any(e.buffer in buffers and e not in own for e in loads_in(*values)):
        return None
    if any(b.dtype is not t.dtype for b, t in zip(buffers, terms, strict=True)):
        return None

    def combine(current: tuple[Expr, ...], others: tuple[Expr, ...]) -> tuple[Expr, ...]:
        replaced = dict(zip((*own, *names), (*current, *others), strict=True))
        return tuple(transform(v, replaced.get) for v in values)

    return Combination(buffers, point, terms, combine, False)


def _operation(store: Store) -> Combination | None:
    value = store.value
    if not isinstance(value, Binary) or value.op not in OPERATIONS:
        return None
    own = load(store.buffer, store.indices)
    first = value.a is own
    if first == (value.b is own):
        return None
    term = value.b if first else value.a
    if any(isinstance(e, Load) and e.buffer is store.buffer for e in loads_in(term, *store.indices)):
        return None

    def combine(current: tuple[Expr, ...], others: tuple[Expr, ...]) -> tuple[Expr, ...]:
        pair = (current[0], others[0]) if first else (others[0], current[0])
        return (value.rebuild(pair),)

    return Combination((store.buffer,), store.indices, (term,), combine, True)


def violated_property(combine: Combine, identity: Sequence[Expr]) -> str:
    """Test a combination on examples. Returns the name of a property that it lacks; empty if it has all.

    The properties allow combining partial results: the initial value is neutral, and the function is
    commutative and associative. The examples are results of combining the initial value with others, because
    partial results are such values.
    """
    start = tuple(identity)
    dtypes = tuple(i.dtype for i in start)
    known = (*start, *combine(_example(dtypes, 0), _example(dtypes, 1)))
    if loads_in(*known) or free_vars(*known):
        return "a function of its values alone"
    for seed in range(2):
        x, y, z = (_example(dtypes, 3 * seed + i) for i in range(3))
        u, v = combine(start, x), combine(start, y)
        properties = (
            ("neutral at its initial value", combine(u, start), u),
            ("neutral at its initial value", combine(start, u), u),
            ("commutative", combine(u, v), combine(v, u)),
            ("associative", combine(u, combine(v, z)), combine(combine(u, v), z)),
        )
        for name, left, right in properties:
            if not all(_close(a, b) for a, b in zip(left, right, strict=True)):
                return name
    return ""


def _example(dtypes: Sequence[DType], number: int) -> tuple[Expr, ...]:
    """Values of the dtypes, different for each number."""
    values = (0.75, -1.5, 2.25, 1.25, 0.5, -0.25)
    return tuple(
        const(values[number] + i / 8 if t.is_float else number % 2 if t.is_bool else 3 * number + i + 1, t)
        for i, t in enumerate(dtypes)
    )


def _close(a: Expr, b: Expr) -> bool:
    if a is b:
        return True
    left, right = evaluate(a), evaluate(b)
    if not a.dtype.is_float or left == right:
        return bool(left == right)
    return bool(abs(left - right) <= 0.02 * max(abs(left), abs(right), 1e-3))


__all__ = ["OPERATIONS", "Combination", "Combine", "combination_of", "update", "violated_property"]
