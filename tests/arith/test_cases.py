"""Simplifications that schedules and lowering depend on. Each is also checked by evaluation."""

from __future__ import annotations

import random
import time

import pytest

from dlc_core.arith import Analyzer, eval_expr
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import (
    Expr,
    Load,
    Ramp,
    Var,
    binary,
    ceildiv,
    const,
    eq,
    logical_and,
    maximum,
    minimum,
    ramp,
    select,
)

i, j, k, io, ii, f, h, kh, n, m, t = (
    Var(name) for name in ["i", "j", "k", "io", "ii", "f", "h", "kh", "n", "m", "t"]
)
A = Buffer("A", (64, 64))
EXTENTS = {i: 8, j: 8, k: 16, io: 4, ii: 32, f: 1024, h: 56, kh: 3}


def _analyzer() -> Analyzer:
    analyzer = Analyzer()
    for var, extent in EXTENTS.items():
        analyzer.bind(var, 0, extent)
    analyzer.declare_dim(n)
    analyzer.declare_dim(m)
    analyzer.bind(t, 0, n)
    return analyzer


CASES: list[tuple[str, Expr, str]] = [
    ("split outer", (io * 32 + ii) // 32, "io"),
    ("split inner", (io * 32 + ii) % 32, "ii"),
    ("split inner part", (io * 32 + ii) // 8, "io * 4 + ii // 8"),
    ("split inner lane", (io * 32 + ii) % 8, "ii % 8"),
    ("split twice", (io * 32 + ii) // 8 // 4, "io"),
    ("split middle digit", (io * 32 + ii) // 8 % 4, "ii // 8"),
    ("fuse then split", (i * 8 + j) // 8 * 8 + (i * 8 + j) % 8, "i * 8 + j"),
    ("fuse back", f // 32 * 32 + f % 32, "f"),
    ("fuse three", f // 64 * 64 + f // 8 % 8 * 8 + f % 8, "f"),
    (
        "fuse three of tiles",
        (i * 14 + j) // 49 * 49 + (i * 14 + j) // 7 % 7 * 7 + (i * 14 + j) % 7,
        "i * 14 + j",
    ),
    ("quotient in a quotient", (i * 2 + k // 7) // 3, "(i * 14 + k) // 21"),
    ("fuse scaled", f // 32 * 320 + f % 32 * 10, "f * 10"),
    ("digit above extent", f // 32 % 64, "f // 32"),
    ("digit beyond", f // 2048, "0"),
    ("mod beyond", f % 2048, "f"),
    ("offset split", (i * 8 + j + 8) // 8, "i + 1"),
    ("offset split mod", (i * 8 + j + 8) % 8, "j"),
    ("offset crosses", (i * 8 + j + 1) // 8, "i + (j + 1) // 8"),
    ("negative offset", (i * 8 + j - 8) // 8, "i - 1"),
    ("tile tail", minimum(i * 8 + 8, 60) - i * 8, "min(60 - i * 8, 8)"),
    ("tail guard", i * 8 + j < 61, "i * 8 + j < 61"),
    ("tail guard whole tiles", i * 8 + j < 56, "i < 7"),
    ("guard always", i * 8 + j < 64, "True"),
    ("guard never", i * 8 + j < 0, "False"),
    ("guard by rest", i * 16 + j * 2 < 50, "i * 8 + j < 25"),
    ("halo start", maximum(h * 2 - 1, 0), "max(h * 2 - 1, 0)"),
    ("halo both", minimum(maximum(h + kh - 1, 0), 55), "min(max(h + kh - 1, 0), 55)"),
    ("pad lower", h + kh - 1 >= 0, "0 < h + kh"),
    ("pad upper", h + kh - 1 < 56, "h + kh < 57"),
    ("pad upper true", h + kh - 1 < 57, "True"),
    ("pad both", logical_and(h * 2 + kh - 1 >= 0, h * 2 + kh - 1 < 112), "0 < h * 2 + kh"),
    ("pad twice", logical_and(h + kh >= 1, h + kh - 1 < 56, h + kh > 0), "0 < h + kh and h + kh < 57"),
    ("contradiction", logical_and(h < 3, h > 5), "False"),
    ("tautology", (h < 5) | (h > 2), "True"),
    ("NCHWc", k // 8 * 8 + k % 8, "k"),
    ("layout pack", (i * 8 + j) // 16 * 16 + (i * 8 + j) % 16, "i * 8 + j"),
    ("im2col row", f // 9 * 9 + f // 3 % 3 * 3 + f % 3, "f"),
    ("symbolic outer", (i * n + t) // n, "i"),
    ("symbolic inner", (i * n + t) % n, "t"),
    ("symbolic product", (t * m + f % m) // m, "t"),
    ("symbolic fuse", f // n * n + f % n, "f"),
    ("symbolic cancel", n * m * 4 // (n * 2), "m * 2"),
    ("symbolic cancel mod", (n * 4 + n * m) % n, "0"),
    ("ceil times", (n + 7) // 8 * 8 - n, "7 - (n + 7) % 8"),
    ("ceil of multiple", (n * 8 + 7) // 8, "n"),
    ("ceil of const", ceildiv(const(13), 4), "4"),
    ("ceil of ceil", ceildiv(ceildiv(n, 4), 8), "(n + 31) // 32"),
    ("difference of products", (n + 1) * (m + 1) - n * m - n, "m + 1"),
    ("square", (n + 1) * (n + 1) - (n * n + n * 2), "1"),
    ("min same", minimum(n, n), "n"),
    ("min shifted", minimum(n + 3, n + 5), "n + 3"),
    ("max shifted", maximum(n * 2, n), "n * 2"),
    ("min const", minimum(minimum(n, 8), 4), "min(n, 4)"),
    ("min common", minimum(n + i, n + j) - n, "min(i, j)"),
    ("min scaled", minimum(i * 8, j * 8) // 8, "min(i, j)"),
    ("clamp in range", maximum(minimum(h, 100), 0), "h"),
    ("select min", select(n < m, n, m), "min(m, n)"),
    ("select max", select(n > m, n, m), "max(m, n)"),
    ("select known", select(h < 56, n, m), "n"),
    ("select shared", select(n < m, n + 5, n + 2) - n, "select(n < m, 5, 2)"),
    ("neg index", select(i - 8 < 0, i - 8 + 8, i - 8), "i"),
    ("shift as mul", (i << 3) + (j & 7), "i * 8 + j"),
    ("shift right", f >> 5, "f // 32"),
    ("compare scaled", n * 8 < m * 8, "n < m"),
    ("compare moved", n + 3 < m - 4, "n < m - 7"),
    ("compare eq", eq(n * 2 + 4, m * 2), "m == n + 2"),
    ("odd eq", eq(n * 2 + 1, m * 2), "False"),
    ("not lt", ~(n < m), "m < n + 1"),
    ("implied", (n < 3) & (n < 5), "n < 3"),
    ("weaker", (n < 3) | (n < 5), "n < 5"),
    ("trunc of natural", binary("truncdiv", f, 8), "f // 8"),
    ("cast round trip", f.astype("int32").astype("int64"), "f"),
    ("load index", A[(i * 8 + j) // 8, (i * 8 + j) % 8], "A[i, j]"),
    ("x minus mod", n - n % 8, "n // 8 * 8"),
    ("mod minus", n - n // 8 * 8, "n % 8"),
    ("neg", -(n - m), "m - n"),
    ("slice len", (n - 1 - -1 + 1) // 2, "(n + 1) // 2"),
    ("reverse", (63 - (i * 8 + j)) // 8, "7 - i"),
    ("strided slice", (i * 2 + 1) // 2, "i"),
    ("transpose digits", (j * 8 + i) // 8 + (j * 8 + i) % 8 * 8, "i * 8 + j"),
    ("broadcast lane", ramp((i * 8 + j) // 8, 1, 4), "ramp(i, 1, 4)"),
]


def test_case_names_are_unique() -> None:
    assert len({name for name, _, _ in CASES}) == len(CASES)


@pytest.mark.parametrize(("e", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_case(e: Expr, expected: str) -> None:
    analyzer = _analyzer()
    simple = analyzer.simplify(e)
    assert str(simple) == expected
    assert _analyzer().simplify(simple) is simple
    if isinstance(e, Load | Ramp):
        return
    rng = random.Random(expected)
    for _ in range(40):
        env = {var: rng.randrange(extent) for var, extent in EXTENTS.items()}
        env |= {n: rng.randrange(1, 20), m: rng.randrange(1, 20)}
        env[t] = rng.randrange(env[n])
        assert eval_expr(simple, env) == eval_expr(e, env)


PROVABLE = [
    ("tiles cover", ceildiv(n, 8) * 8 >= n, True),
    ("tiles overshoot less than one", ceildiv(n, 8) * 8 < n + 8, True),
    ("flat index in bounds", i * n + t < n * 8, True),
    ("flat index of three", (i * n + t) * m + m - 1 < n * m * 8, True),
    ("tail of a tile", minimum(i * 8 + 8, n) - i * 8 <= 8, True),
    ("tail may be empty", minimum(i * 8 + 8, n) - i * 8 > 0, False),
    ("product grows", n * m >= n, True),
    ("product grows strictly", n * m > n, False),
    ("clamped index", maximum(minimum(h + kh - 1, 55), 0) < 56, True),
    ("unclamped index", h + kh - 1 < 56, False),
    ("remainder below divisor", f % n < n, True),
    ("remainder below dividend", f % n <= f, True),
    ("rounded down", n // 8 * 8 <= n, True),
    ("half of a dim", n // 2 < n, True),
    ("two ways to round up", eq(ceildiv(n, 8) * 8, n + (-n) % 8), True),
    ("select of two sizes", select(n < m, 4, 8) <= 8, True),
    ("max of dims", maximum(n, m) >= m, True),
    ("sum of dims", n + m >= 2, True),
    ("dims differ", n < m, False),
]


@pytest.mark.parametrize(("cond", "expected"), [p[1:] for p in PROVABLE], ids=[p[0] for p in PROVABLE])
def test_proofs(cond: Expr, expected: bool) -> None:
    assert _analyzer().prove(cond) is expected


def test_sums_of_many_bounded_sizes() -> None:
    """Sums as in a concatenation of many results. Failing proofs must be fast, too."""
    start = time.process_time()
    sizes = [Var(f"n{index}") for index in range(150)]
    analyzer = Analyzer()
    for size in sizes:
        analyzer.declare_dim(size, 0)
    total = sum((minimum(size, 300) for size in sizes), const(0))
    assert analyzer.prove(total >= 0)
    assert analyzer.prove(total <= 45000)
    assert analyzer.prove(total - minimum(sizes[3], 300) <= 44700)
    assert analyzer.prove(total // 4 * 4 <= total)
    assert not analyzer.prove(total < 45000)
    assert not analyzer.prove_equal(total % 4, 0)
    with analyzer.assume(sizes[0] < 10):
        assert analyzer.prove(total < 44711)
    assert analyzer.prove(minimum(sizes[0], 300) <= sizes[0]), "what else speaks of a size counts"
    assert time.process_time() - start < 10
