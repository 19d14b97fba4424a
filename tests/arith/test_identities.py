"""Well-known identities of integers in index expressions, each also checked by evaluation."""

from __future__ import annotations

import random

import pytest

from dlc_core.arith import Analyzer, eval_expr
from dlc_core.diag import UsageError
from dlc_core.ir.expr import Expr, Var, binary, ceildiv, const, eq, maximum, minimum, ne, select, unary

x, y, z, i0, i1, io, ii, k, n, m, w = (
    Var(name) for name in ["x", "y", "z", "i0", "i1", "io", "ii", "k", "n", "m", "w"]
)
p, q = Var("p", "bool"), Var("q", "bool")
RANGES = {i0: (0, 16), i1: (0, 4), io: (0, 8), ii: (0, 32), k: (0, 9)}
FREE = (x, y, z)
"""Any integers."""
DIMS = (n, m)
"""At least 1; w is a multiple of 8."""


def analyzer() -> Analyzer:
    az = Analyzer()
    for var, (begin, extent) in RANGES.items():
        az.bind(var, begin, extent)
    for dim in (*DIMS, w):
        az.declare_dim(dim)
    return az


def tdiv(a: Expr, b: int) -> Expr:
    return binary("truncdiv", a, b)


def tmod(a: Expr, b: int) -> Expr:
    return binary("truncmod", a, b)


CASES: list[tuple[Expr, str]] = [
    # Linear.
    (x + y - x, "y"),
    (x * 3 + x * 5, "x * 8"),
    ((x + y) * 2 - x * 2, "y * 2"),
    (x - (y - z) - (x - y), "z"),
    (x * 4 + y * 4 - (x + y) * 3, "x + y"),
    (-unary("neg", x), "x"),
    (const(5) - (const(3) - x), "x + 2"),
    ((x + 1) * (y + 1) - x * y - x - y, "1"),
    ((n + m) * (n - m) + m * m, "n * n"),
    (x * 0 + y, "y"),
    (unary("bitnot", x) + x, "-1"),
    (unary("bitnot", unary("bitnot", x)), "x"),
    # Splits: multiples of the divisor are extracted, small terms are dropped.
    ((i0 * 4 + i1) // 4, "i0"),
    ((i0 * 4 + i1) % 4, "i1"),
    ((i0 * 4 + i1) // 2, "i0 * 2 + i1 // 2"),
    ((i0 * 4 + i1) % 2, "i1 % 2"),
    ((i0 * 4 + i1) // 8, "i0 // 2"),
    ((i0 * 4 + i1) % 8, "i0 % 2 * 4 + i1"),
    ((i0 * 4 + i1) // 64, "0"),
    ((i0 * 4 + i1) % 64, "i0 * 4 + i1"),
    (((io * 32 + ii) % 64) // 2, "io % 2 * 16 + ii // 2"),
    (((io * 32 + ii) % 64) % 2, "ii % 2"),
    ((io * 32 + ii) // 4 % 8, "ii // 4"),
    ((io * 32 + ii) // 128, "io // 4"),
    ((io * 32 + ii + 32) // 32, "io + 1"),
    ((io * 32 + ii - 32) // 32, "io - 1"),
    ((io * 32 + ii + 64) % 32, "ii"),
    ((io * 64 + ii * 2 + 1) // 2, "io * 32 + ii"),
    ((io * 64 + ii * 2 + 1) % 2, "1"),
    ((io * 64 + ii * 2) % 64, "ii * 2"),
    ((i0 * 16 + i1 * 4 + 3) // 16, "i0"),
    ((i0 * 16 + i1 * 4 + 3) // 4, "i0 * 4 + i1"),
    ((i0 * 16 + i1 * 4 + 3) % 16, "i1 * 4 + 3"),
    ((i0 * 12 + i1 * 3) // 12, "i0"),
    ((x * 4 + i1) // 4, "x"),
    ((x * 4 + i1) % 4, "i1"),
    ((x * 8 + i1) // 4, "x * 2"),
    ((x * 8 + y * 4) // 4, "x * 2 + y"),
    ((x * 8 + y * 4) % 4, "0"),
    ((x * 8 + y) // 4, "x * 2 + y // 4"),
    ((x * 8 + y) % 4, "y % 4"),
    ((x * 6 + 4) // 2, "x * 3 + 2"),
    ((x * 6 + 5) // 3, "x * 2 + 1"),
    ((x * 6 + 5) % 3, "2"),
    ((x * 6 + y * 4) // 2, "x * 3 + y * 2"),
    ((x * 6 + y * 9) // 3 % 1, "0"),
    ((x * -4 + i1) // 4, "neg(x)"),
    ((const(63) - (i0 * 4 + i1)) // 4, "15 - i0"),
    ((const(63) - (i0 * 4 + i1)) % 4, "3 - i1"),
    # Fusions.
    (x // 4 * 4 + x % 4, "x"),
    (x % 4 + x // 4 * 4 + y, "x + y"),
    (x // 32 * 32 + x % 32 // 8 * 8 + x % 8, "x"),
    (x // 8 % 4 * 8 + x % 8, "x % 32"),
    (x // 8 // 4 * 32 + x // 8 % 4 * 8 + x % 8, "x"),
    (x - x // 4 * 4, "x % 4"),
    (x - x % 4, "x // 4 * 4"),
    ((x - x % 4) // 4, "x // 4"),
    (x // 4 * 8 + x % 4 * 2, "x * 2"),
    ((x // 4 * 4 + x % 4) // 2, "x // 2"),
    (x // n * n + x % n, "x"),
    ((x // n * n + x % n) * m, "m * x"),
    # Nested quotients and remainders.
    (x // 4 // 8, "x // 32"),
    (x // 4 // n, "x // (n * 4)"),
    ((x // 4 + 1) // 8, "(x + 4) // 32"),
    (x % 32 % 8, "x % 8"),
    (x % 8 % 32, "x % 8"),
    (x % 32 // 8, "x // 8 % 4"),
    (x % 8 // 8, "0"),
    (x % n % n, "x % n"),
    (x % n // n, "0"),
    ((x + n) % n, "x % n"),
    ((x + n * 3) // n, "x // n + 3"),
    ((x * n + y) % n, "y % n"),
    ((x % 8 + y % 8) % 8, "(x + y) % 8"),
    ((x % 8 * 3) % 8, "x * 3 % 8"),
    ((x + 8) % 8, "x % 8"),
    ((x - 5) % 4, "(x + 3) % 4"),
    ((x + 9) // 4, "(x + 1) // 4 + 2"),
    (x * 2 // 4, "x // 2"),
    (x * 2 % 4, "x % 2 * 2"),
    ((x * 2 + 1) % 4, "x % 2 * 2 + 1"),
    ((x * 2 + 1) // 4, "x // 2"),
    (-x // 4, "neg((x + 3) // 4)"),
    (-x % 4, "3 - (x + 3) % 4"),
    (x // const(-4), "neg((x + 3) // 4)"),
    (x % const(-4), "(x + 3) % 4 - 3"),
    (x // 1 + x % 1, "x"),
    # Symbolic sizes.
    (n * 8 // 8, "n"),
    (n * m // m, "n"),
    ((n * m + m) // m, "n + 1"),
    ((i1 * n + n - 1) // n, "i1"),
    ((x * n + n * y) // n, "x + y"),
    ((n + 7) // 8 * 8 // 8, "(n + 7) // 8"),
    (ceildiv(n * 8, 8), "n"),
    (ceildiv(n, 4) * 4 - n, "3 - (n + 3) % 4"),
    (ceildiv(ceildiv(n, 2), 2), "(n + 3) // 4"),
    (ceildiv(n * 4 + 1, 4), "n + 1"),
    (n * 4 // (m * 4), "n // m"),
    (n * 4 % (m * 4), "n % m * 4"),
    (n * n // n, "n"),
    (n // n, "1"),
    (n % n, "0"),
    (const(0) // n, "0"),
    # min and max.
    (minimum(x, x + 3), "x"),
    (maximum(x, x + 3), "x + 3"),
    (minimum(minimum(x, 5), 3), "min(x, 3)"),
    (minimum(maximum(x, 3), 3), "3"),
    (maximum(minimum(x, 3), 5), "5"),
    (minimum(x + 2, y + 2) - 2, "min(x, y)"),
    (minimum(x, y) + maximum(x, y), "x + y"),
    (minimum(x * 4, y * 4), "min(x, y) * 4"),
    (minimum(-x, -y), "min(neg(x), neg(y))"),
    (maximum(x, minimum(x, y)), "x"),
    (minimum(i1, 3), "i1"),
    (minimum(i1, 7) + maximum(i0, 0), "i0 + i1"),
    (minimum(io * 32 + ii, 255), "io * 32 + ii"),
    (minimum(io * 32 + 32, 256) - io * 32, "32"),
    (minimum(io * 8 + 8, 61) - io * 8, "min(61 - io * 8, 8)"),
    (maximum(minimum(i0 - 1, 15), 0), "max(i0 - 1, 0)"),
    (minimum(x // 4, y // 4), "min(x // 4, y // 4)"),
    (minimum(n, n * m), "n"),
    (maximum(n * 2, n + 1), "n * 2"),
    (minimum(x, y) - minimum(y, x), "0"),
    # select.
    (select(x < y, x, y), "min(x, y)"),
    (select(x > y, x, y), "max(x, y)"),
    (select(x >= 0, x, -x) - select(x >= 0, x, -x), "0"),
    (select(p, x, x), "x"),
    (select(p, x + 1, x) - x, "select(p, 1, 0)"),
    (select(p, select(p, x, y), z), "select(p, x, z)"),
    (select(i1 < 4, x, y), "x"),
    (select(i1 > 7, x, y), "y"),
    (select(eq(x, y), x, y), "y"),
    (select(~p, x, y), "select(p, y, x)"),
    # Comparisons.
    (x + 3 < y + 5, "x < y + 2"),
    (x * 4 < y * 4, "x < y"),
    (x * 4 < 13, "x < 4"),
    (x * 4 <= 12, "x < 4"),
    (x * 4 + i1 < 16, "x < 4"),
    (i0 * 4 + i1 < 64, "True"),
    (i0 * 4 + i1 < 0, "False"),
    (io * 8 + i1 < 64, "True"),
    (io * 8 + i0 < n, "io * 8 + i0 < n"),
    (x // 4 < 3, "x < 12"),
    (x // 4 >= 3, "11 < x"),
    (eq(x // 4, 0), "x < 4 and -1 < x"),
    (x < x + 1, "True"),
    (x > x, "False"),
    (eq(x, x), "True"),
    (ne(x * 2, y * 2), "x != y"),
    (eq(x * 2, 7), "False"),
    (eq(x * 2, 8), "x == 4"),
    (x - y < 0, "x < y"),
    (~(x < y), "y < x + 1"),
    (~eq(x, y), "x != y"),
    (minimum(x, 7) < 9, "True"),
    (maximum(x, 7) < 9, "x < 9"),
    (n > 0, "True"),
    (n * m > 0, "True"),
    # Logic.
    ((x < 3) & (x < 5), "x < 3"),
    ((x < 3) | (x < 5), "x < 5"),
    ((x < 3) & (x > 5), "False"),
    ((x < 5) | (x > 3), "True"),
    ((i0 * 4 + i1 < n) & (i0 * 4 < n), "i0 * 4 + i1 < n"),
    ((i0 * 4 + i1 < n) | (i0 * 4 < n), "i0 * 4 < n"),
    ((i0 * 4 + i1 < n) & (i0 * 4 > n + 3), "False"),
    (eq(x, 3) & (x < 5), "x == 3"),
    (eq(x, 3) & (x > 5), "False"),
    (eq(x, 3) & eq(x, 5), "False"),
    (eq(x, 3) & ne(x, 5), "x == 3"),
    (eq(x, y) & (x < y + 4), "x == y"),
    (ne(x, 3) | (x > 2), "True"),
    (eq(x, 3) | (x < 5), "x < 5"),
    ((x <= y) & (y <= x), "x == y"),
    ((x < y) | (y < x), "x != y"),
    ((x < y) | eq(x, y), "x < y + 1"),
    ((x <= y) & ne(x, y), "x < y"),
    ((x < 3) & (y < 5) & (x < y) & eq(y, 4), "x < 3 and x < y and y == 4"),
    (p & p, "p"),
    (p & ~p, "False"),
    (p | ~p, "True"),
    (p & (p | q), "p"),
    (p | (p & q), "p"),
    (~(p & q), "not(p) or not(q)"),
    (~~p, "p"),
    ((i1 < 4) & p, "p"),
    (select(p, q, False), "p and q"),
    (select(p, True, q), "p or q"),
    # Other division.
    (tdiv(i0 * 4 + i1, 4), "i0"),
    (tmod(i0 * 4 + i1, 4), "i1"),
    (tdiv(-i0, 4), "neg(i0 // 4)"),
    (tmod(-i0, 4), "neg(i0 % 4)"),
    (tdiv(n * 8, 8), "n"),
    # Shifts and bits.
    (x << 3, "x * 8"),
    (x >> 2, "x // 4"),
    ((x << 2) >> 2, "x"),
    (x & 7, "x % 8"),
    ((i0 * 4 + i1) & 3, "i1"),
    (((io << 5) | 0) >> 5, "io"),
    (x & 0, "0"),
    (x & -1, "x"),
    (x ^ x, "0"),
    (x | x, "x"),
    (const(3) & x, "x % 4"),
    (x // 8 % 4 * 16 + x % 8 * 2, "x % 32 * 2"),
    (x // 8 % 4 * 8 * n + x % 8 * n, "n * (x % 32)"),
    ((minimum(x, y) + maximum(x, y)) * n, "n * x + n * y"),
    ((i0 << 2) + (i1 & 3), "i0 * 4 + i1"),
    # Casts.
    (i0.astype("int32").astype("int64"), "i0"),
    ((i0 * 4 + i1).astype("uint8").astype("int64"), "i0 * 4 + i1"),
    (p.astype("int64") * 0, "0"),
]


def _values(e: Expr, rng: random.Random) -> list[tuple[dict[Var, int], int]]:
    out = []
    for _ in range(60):
        env = {var: rng.randrange(begin, begin + extent) for var, (begin, extent) in RANGES.items()}
        env |= {var: rng.randrange(-40, 41) for var in FREE}
        env |= {n: rng.randrange(1, 9), m: rng.randrange(1, 9), w: 8 * rng.randrange(1, 5)}
        env |= {p: rng.randrange(2), q: rng.randrange(2)}
        try:
            out.append((env, eval_expr(e, env)))
        except UsageError:
            continue
    return out


@pytest.mark.parametrize(("e", "expected"), CASES, ids=[f"{k}-{c[0]}"[:60] for k, c in enumerate(CASES)])
def test_identity(e: Expr, expected: str) -> None:
    az = analyzer()
    simple = az.simplify(e)
    assert str(simple) == expected
    assert az.simplify(simple) is simple
    for env, value in _values(e, random.Random(expected)):
        assert eval_expr(simple, env) == value


ASSUMING: list[tuple[list[Expr], Expr, str]] = [
    ([eq(w % 8, 0)], w // 8 * 8, "w"),
    ([eq(w % 8, 0)], (w + 7) // 8, "w // 8"),
    ([eq(w % 8, 0)], w % 4, "0"),
    ([eq(w % 8, 0)], (w + 3) % 4, "3"),
    ([eq(w % 8, 0)], (w + 3) // 8, "w // 8"),
    ([eq(w % 8, 0)], ceildiv(w, 4), "w // 4"),
    ([eq(w % 8, 0)], minimum(w // 8 * 8, w), "w"),
    ([eq(w % 8, 2)], w % 4, "2"),
    ([eq(w % 8, 2)], (w - 2) // 8 * 8 + 2, "w"),
    ([eq(n, 4)], (io * n + i1) // n, "io"),
    ([eq(n, m * 4)], n // 4 + m, "m * 2"),
    ([x >= 0, x < 4], x // 4, "0"),
    ([x >= 0, x < 4], (y * 4 + x) // 4, "y"),
    ([x >= 4, x < 8], x // 4, "1"),
    ([x < y], minimum(x, y), "x"),
    ([x < y], select(x < y, x, z), "x"),
    ([x < y], x < y + 1, "True"),
    ([io * 8 + i1 < n], minimum(io * 8 + i1, n), "io * 8 + i1"),
    ([p], select(p, x, y), "x"),
    ([~p], select(p, x, y), "y"),
    ([p & (x > 3)], (x > 2) & p, "True"),
]


@pytest.mark.parametrize(("known", "e", "expected"), ASSUMING, ids=[f"{c[0]}-{c[1]}" for c in ASSUMING])
def test_identity_under_assumptions(known: list[Expr], e: Expr, expected: str) -> None:
    az = analyzer()
    with az.assume(*known):
        assert str(az.simplify(e)) == expected


PROVED: list[tuple[list[Expr], Expr]] = [
    ([], io * 32 + ii < 256),
    ([], io * 32 + ii >= 0),
    ([], (io * 32 + ii) // 4 < 64),
    ([], (io * 32 + ii) % n < n),
    ([], (n + 7) // 8 * 8 >= n),
    ([], (n + 7) // 8 * 8 <= n + 7),
    ([], n // 8 * 8 > n - 8),
    ([], (n + 7) // 8 >= 1),
    ([], n * m >= n),
    ([], n * m >= m),
    ([], n + m > n),
    ([], minimum(n, m) <= n),
    ([], maximum(n, m) >= minimum(n, m)),
    ([], minimum(x, y) <= maximum(x, z)),
    ([], minimum(io * 8 + 8, n) - io * 8 <= 8),
    ([], maximum(n - 4, 0) <= n),
    ([], x % 8 < 8),
    ([], x % 8 >= 0),
    ([], x // 8 * 8 <= x),
    ([], eq(x // 8 * 8 + x % 8, x)),
    ([], ne(x * 2, y * 2 + 1)),
    ([], select(p, 3, 5) < 6),
    ([io * 8 + i1 < n], io * 8 < n),
    ([io * 8 + i1 < n], io < n),
    ([io * 8 + i1 < n], eq(minimum(io * 8 + i1 + 1, n), io * 8 + i1 + 1)),
    ([x < y, y < z], x < z),
    ([x < y, y < z], x + 2 <= z),
    ([x <= y, y <= x], eq(x, y)),
    ([x >= 0, y >= 0], x + y >= 0),
    ([x >= 0, y >= 0], x * y >= 0),
    ([x >= 2, y >= 3], x * y >= 6),
    ([eq(w % 8, 0)], eq(w // 8 * 8, w)),
    ([eq(w % 8, 0)], eq((w // 2) % 4, 0)),
    ([eq(w % 8, 0)], ne(w, 12)),
    ([eq(w % 8, 0)], w >= 8),
    ([eq(w % 8, 0), io < w // 8], io * 8 + 7 < w),
    ([eq(w % 8, 0), io < w // 8], io * 8 + i1 < w),
    ([x // 4 < n, x >= 0], x < n * 4),
    ([x < n * 4], x // 4 < n),
    ([x < n * m, x >= 0], x // m < n),
    ([x >= 0], x % n <= x),
    ([x >= n], x // n >= 1),
]


@pytest.mark.parametrize(("known", "cond"), PROVED, ids=[f"{c[0]}-{c[1]}" for c in PROVED])
def test_proved(known: list[Expr], cond: Expr) -> None:
    az = analyzer()
    with az.assume(*known):
        assert az.prove(cond)


REFUSED: list[tuple[list[Expr], Expr]] = [
    ([], n > m),
    ([], n // 8 >= 1),
    ([], x // 8 * 8 < x),
    ([], io * 8 + i1 < n),
    ([], (n + 7) // 8 * 8 > n),
    ([], x * y >= 0),
    ([], x % n <= x),
    ([x < y], x + 1 < y),
    ([eq(w % 8, 0)], eq(w % 16, 0)),
    ([io * 8 + i1 < n], io * 8 + 7 < n),
    ([x < n * 4], x // 4 < n - 1),
]


@pytest.mark.parametrize(("known", "cond"), REFUSED, ids=[f"{c[0]}-{c[1]}" for c in REFUSED])
def test_not_proved(known: list[Expr], cond: Expr) -> None:
    az = analyzer()
    with az.assume(*known):
        assert not az.prove(cond)


def test_number_of_identities() -> None:
    assert len(CASES) + len(ASSUMING) >= 180
