"""Every expression up to a size over two variables and a few literals, evaluated at every point.

The simplified form has the same value, costs no more, and does not simplify further. Bounds, remainders and
proofs hold. The fast tests take a part of the expressions, the slow ones all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from dlc_core.arith import Analyzer
from dlc_core.ir.expr import (
    COMPARE,
    Binary,
    Cast,
    Const,
    Expr,
    Select,
    Unary,
    Var,
    binary,
    cast_to,
    const,
    post_order,
    select,
    unary,
)

A, B = Var("a"), Var("b")
POINTS = np.array(list(product(range(-4, 5), range(6))), np.int64)
"""All values of (a, b): a in [-4, 5), b in [0, 6)."""
LEAVES: tuple[Expr, ...] = (A, B, *map(const, (0, 1, 2, 3, -2, 4)))
ARITHMETIC = ("add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max")
OTHERS = ("bitand", "bitor", "bitxor")
COMPARISONS = ("lt", "le", "eq", "ne")

Values = tuple[np.ndarray, np.ndarray]
"""The value at each point, and where it is defined."""


def evaluate(e: Expr) -> Values:
    done: dict[Expr, Values] = {A: (POINTS[:, 0], np.ones(len(POINTS), bool))}
    done[B] = POINTS[:, 1], done[A][1]
    for x in post_order(e):
        if x not in done:
            done[x] = _value(x, [done[c] for c in x.children])
    return done[e]


def _value(e: Expr, parts: list[Values]) -> Values:
    defined = np.ones(len(POINTS), bool)
    for _, where in parts:
        defined &= where
    if isinstance(e, Const):
        return np.full(len(POINTS), int(e.value), np.int64), defined
    a = parts[0][0]
    if isinstance(e, Select):
        # Both sides may be evaluated, so both must be defined.
        return np.where(a != 0, parts[1][0], parts[2][0]), defined
    if isinstance(e, Cast):
        kind = np.dtype(e.dtype.name)
        return a.astype(kind).astype(np.int64), defined
    if isinstance(e, Unary):
        return {"neg": -a, "bitnot": ~a, "not": 1 - a}[e.op], defined
    assert isinstance(e, Binary)
    return _binary(e.op, a, parts[1][0], defined)


def _binary(op: str, a: np.ndarray, b: np.ndarray, defined: np.ndarray) -> Values:
    if op in ("floordiv", "floormod", "truncdiv", "truncmod", "div"):
        defined &= b != 0
        b = np.where(b == 0, 1, b)
        floor = a // b
        cut = floor + ((a % b != 0) & ((a < 0) != (b < 0)))
        quotient = floor if op.startswith("floor") else cut
        return (quotient if op.endswith("div") else a - quotient * b), defined
    if op in ("shl", "shr"):
        defined &= (b >= 0) & (b < 32)
        b = np.clip(b, 0, 31)
    if op in COMPARE:
        compare = {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b, "eq": a == b, "ne": a != b}
        return compare[op].astype(np.int64), defined
    table = {
        "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
        "and": np.bitwise_and, "or": np.bitwise_or, "bitand": np.bitwise_and, "bitor": np.bitwise_or,
        "bitxor": np.bitwise_xor, "shl": np.left_shift, "shr": np.right_shift,
    }  # fmt: skip
    return table[op](a, b), defined


DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod", "div", "shr", "bitand")


def cost(e: Expr) -> int:
    """The number of distinct operations except sums and products. Quotients and remainders count twice."""
    total = 0
    for x in post_order(e):
        if isinstance(x, Binary) and x.op not in ("add", "sub", "mul"):
            total += 1 + (x.op in DIVISIONS)
        elif isinstance(x, (Select, Cast)) or (isinstance(x, Unary) and x.op != "neg"):
            total += 1
    return total


def known() -> Analyzer:
    analyzer = Analyzer()
    analyzer.bind(A, -4, 9)
    analyzer.bind(B, 0, 6)
    return analyzer


def check(e: Expr) -> None:
    analyzer = known()
    simple = analyzer.simplify(e)
    assert analyzer.simplify(simple) is simple
    values, defined = evaluate(e)
    if not defined.any():
        return
    again, still = evaluate(simple)
    assert still[defined].all(), f"{e} became {simple}, which is not defined everywhere"
    assert (again == values)[defined].all(), f"{e} became {simple}"
    assert cost(simple) <= cost(e), f"{e} became {simple}, which is more work"
    here = values[defined]
    low, high = analyzer.const_bounds(e)
    assert low <= here.min(), e
    assert here.max() <= high, e
    if e.dtype.is_bool:
        assert not analyzer.prove(e) or here.all(), e
        assert not analyzer.prove(unary("not", e)) or not here.any(), e
        return
    modulus, residue = analyzer.modular(e)
    assert ((here - residue) % modulus == 0).all() if modulus else (here == residue).all(), e
    inner = analyzer.bounds(e, [B])
    if inner is not None:
        ends = [evaluate(end) for end in inner]
        sure = defined & ends[0][1] & ends[1][1]
        assert (ends[0][0] <= values)[sure].all(), e
        assert (values <= ends[1][0])[sure].all(), e


def level_one() -> list[Expr]:
    """Every operator on leaves."""
    made = [binary(op, a, b) for op in (*ARITHMETIC, *OTHERS) for a, b in product(LEAVES, LEAVES)]
    made += [unary(op, a) for op in ("neg", "bitnot") for a in LEAVES]
    made += [binary(op, a, k) for op in ("shl", "shr") for a in LEAVES for k in (1, 2)]
    made += [cast_to("int64", cast_to(t, a)) for t in ("int8", "uint8", "bool") for a in (A, B)]
    made += [select(binary(op, a, b), a, b) for op in COMPARISONS for a, b in product(LEAVES[:4], LEAVES[:4])]
    return sorted(set(made), key=repr)


def level_two() -> Iterator[Expr]:
    """Every operator on an expression of level one and a leaf, in both orders."""
    for e in level_one():
        if isinstance(e, Const) or e in LEAVES:
            continue
        for op in (*ARITHMETIC, *OTHERS):
            for leaf in LEAVES:
                yield binary(op, e, leaf)
                if op not in ("add", "mul", "min", "max"):
                    yield binary(op, leaf, e)


def conditions() -> Iterator[Expr]:
    """Comparisons of two expressions, and pairs of them joined."""
    first = level_one()
    compared = [binary(op, e, leaf) for e in first for op in COMPARISONS for leaf in LEAVES]
    yield from compared
    plain = [binary(op, a, b) for op in COMPARISONS for a, b in product((A, B, A + B), LEAVES)]
    for op in ("and", "or"):
        for a, b in product(plain, plain[::3]):
            yield binary(op, a, unary("not", b) if op == "or" else b)


def large() -> Iterator[Expr]:
    """Sums and quotients of two expressions of level one."""
    first = [e for e in level_one() if isinstance(e, Binary)]
    for op in ("add", "sub", "floordiv", "floormod", "min"):
        for a, b in product(first[::2], first[1::3]):
            yield binary(op, a, b)


def test_one_operator() -> None:
    for e in level_one():
        check(e)


@pytest.mark.parametrize(("kind", "step"), [(level_two, 41), (conditions, 11), (large, 83)])
def test_some_of_two_operators(kind: object, step: int) -> None:
    assert callable(kind)
    for at, e in enumerate(kind()):
        if at % step == 0:
            check(e)


def _random(rng: random.Random, depth: int) -> Expr:
    if depth == 0 or rng.random() < 0.1:
        return rng.choice((A, B, A, B, *LEAVES))
    kind = rng.random()
    if kind < 0.1:
        cond = binary(rng.choice(COMPARISONS), _random(rng, depth - 1), _random(rng, depth - 1))
        return select(cond, _random(rng, depth - 1), _random(rng, depth - 1))
    if kind < 0.2:
        return _random(rng, depth - 1) * rng.choice((-3, -1, 2, 4, 8))
    op = rng.choice((*ARITHMETIC, "floordiv", "floormod", *OTHERS))
    return binary(op, _random(rng, depth - 1), _random(rng, depth - 1))


def _check_random(seed: int, count: int) -> None:
    rng = random.Random(seed)
    for _ in range(count):
        check(_random(rng, rng.choice((3, 3, 4))))


def test_larger_expressions() -> None:
    _check_random(1, 300)


@pytest.mark.slow
def test_many_larger_expressions() -> None:
    _check_random(2, 20_000)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [level_two, conditions, large])
def test_all_of_two_operators(kind: object) -> None:
    assert callable(kind)
    for e in kind():
        check(e)
