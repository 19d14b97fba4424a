"""Splits and fusions of loops: named ones, and random ones against counting."""

from __future__ import annotations

import random
from itertools import product

import pytest

from dlc_core.arith import Analyzer, detect_iter_map, eval_expr
from dlc_core.ir.expr import Expr, ExprLike, Var, ceildiv, const, const_value

i, j, f, n, m = (Var(name) for name in ["i", "j", "f", "n", "m"])
Loops = dict[Var, ExprLike]

BIJECTIVE: list[tuple[str, list[Expr], Loops, ExprLike, list[str]]] = [
    ("plain", [i, j], {i: 4, j: 8}, True, ["4", "8"]),
    ("swapped", [j, i], {i: 4, j: 8}, True, ["8", "4"]),
    ("unsplit", [i * 8 + j], {i: 4, j: 8}, True, ["32"]),
    ("split", [f // 8, f % 8], {f: 32}, True, ["4", "8"]),
    ("split in three", [f // 8, f // 2 % 4, f % 2], {f: 32}, True, ["4", "4", "2"]),
    ("fuse then split", [(i * 8 + j) // 4, (i * 8 + j) % 4], {i: 4, j: 8}, True, ["8", "4"]),
    ("fuse then split unevenly", [(i * 3 + j) // 2, (i * 3 + j) % 2], {i: 4, j: 3}, True, ["6", "2"]),
    ("tail", [i * 4 + j], {i: 3, j: 4}, i * 4 + j < 10, ["10"]),
    ("tail then split", [(i * 4 + j) // 3, (i * 4 + j) % 3], {i: 3, j: 4}, i * 4 + j < 9, ["3", "3"]),
    ("short loop", [i], {i: 8}, i < 6, ["6"]),
    ("late loop", [i], {i: 8}, i > 1, ["6"]),
    ("window", [i], {i: 8}, (i > 1) & (i < 6), ["4"]),
    ("late loop split", [(i - 2) // 2, i % 2], {i: 8}, i >= 2, ["3", "2"]),
    ("late loop fused", [i * 4 + j], {i: 8, j: 4}, i >= 3, ["20"]),
    ("symbolic window", [i], {i: n + 8}, (i >= 2) & (i < n + 2), ["n"]),
    ("offset", [i + 3], {i: 8}, True, ["8"]),
    ("unit loop left out", [i], {i: 8, j: 1}, True, ["8"]),
    ("symbolic tail", [i * 8 + j], {i: ceildiv(n, 8), j: 8}, i * 8 + j < n, ["n"]),
    ("symbolic fuse", [i * n + j], {i: 4, j: n}, True, ["n * 4"]),
    ("symbolic split", [f // n, f % n], {f: n * 4}, True, ["4", "n"]),
    ("symbolic split in three", [f // n // m, f // n % m, f % n], {f: n * m * 4}, True, ["4", "m", "n"]),
]


@pytest.mark.parametrize("case", BIJECTIVE, ids=[case[0] for case in BIJECTIVE])
def test_bijective(case: tuple[str, list[Expr], Loops, ExprLike, list[str]]) -> None:
    _, values, loops, predicate, extents = case
    found = detect_iter_map(values, loops, predicate)
    assert found is not None
    assert found.bijective
    assert [str(extent) for extent in found.extents] == extents
    analyzer = Analyzer()
    analyzer.declare_dim(n)
    analyzer.declare_dim(m)
    for var, extent in loops.items():
        analyzer.bind(var, 0, extent)
    for total, value in zip(found.sums, values, strict=True):
        assert analyzer.prove_equal(total.to_expr(), value)


NOT_BIJECTIVE: list[tuple[str, list[Expr], Loops, ExprLike, bool]] = [
    ("loop unused", [i], {i: 4, j: 8}, True, False),
    ("stride", [i * 2], {i: 4}, True, True),
    ("overlapping sum", [i + j], {i: 4, j: 4}, True, False),
    ("scale too small", [i * 4 + j], {i: 4, j: 8}, True, False),
    ("digit missing", [f // 8, f % 2], {f: 32}, True, False),
    ("predicate of another shape", [i, j], {i: 3, j: 4}, i * 4 + j < 10, True),
]


@pytest.mark.parametrize("case", NOT_BIJECTIVE, ids=[case[0] for case in NOT_BIJECTIVE])
def test_not_bijective(case: tuple[str, list[Expr], Loops, ExprLike, bool]) -> None:
    _, values, loops, predicate, injective = case
    found = detect_iter_map(values, loops, predicate)
    assert found is not None
    assert not found.bijective
    assert found.injective is injective


@pytest.mark.parametrize(
    ("values", "loops", "predicate"),
    [
        ([i, i], {i: 3}, True),
        ([f // 8, f // 4], {f: 32}, True),
        ([i * j], {i: 3, j: 4}, True),
        ([i * i], {i: 3}, True),
        ([f // 4, f % 4], {f: 10}, True),
        ([(i + j) // 2], {i: 4, j: 4}, True),
        ([i], {i: 4}, i * 4 > 5 + n),
    ],
    ids=["twice", "overlap", "product", "square", "ragged", "not fused", "lower bound"],
)
def test_no_iter_map(values: list[Expr], loops: Loops, predicate: ExprLike) -> None:
    assert detect_iter_map(values, loops, predicate) is None


def _random_values(rng: random.Random, loops: dict[Var, int]) -> list[Expr]:
    """Random fusions and splits of loops. Most are bijective."""
    pieces: list[tuple[Expr, int]] = list(loops.items())
    for _ in range(rng.randrange(1, 5)):
        if rng.random() < 0.5 and len(pieces) > 1:
            (a, x), (b, y) = pieces.pop(rng.randrange(len(pieces))), pieces.pop(rng.randrange(len(pieces)))
            pieces.append((a * y + b, x * y))
        else:
            e, extent = pieces.pop(rng.randrange(len(pieces)))
            factor = rng.choice([2, 3, 4])
            pieces += [(e // factor, ceildiv_int(extent, factor)), (e % factor, min(factor, extent))]
    values = [e for e, _ in pieces]
    if rng.random() < 0.2:
        values.pop()
    if values and rng.random() < 0.2:
        values[0] = values[0] * rng.choice([2, 3]) + rng.choice([0, 1])
    rng.shuffle(values)
    return values


def ceildiv_int(a: int, b: int) -> int:
    return -(-a // b)


def test_maps_agree_with_enumeration() -> None:
    rng = random.Random(11)
    bijections = 0
    for _ in range(300):
        loops: dict[Var, int] = {
            i: rng.choice([2, 3, 4, 6]),
            j: rng.choice([1, 2, 4, 6]),
            f: rng.choice([4, 12]),
        }
        values = _random_values(rng, loops)
        limit = rng.randrange(1, loops[i] * loops[j] + 1)
        predicate: ExprLike = i * loops[j] + j < limit if rng.random() < 0.3 else True
        if rng.random() < 0.2:
            predicate = (f >= rng.randrange(loops[f])) & (f < rng.randrange(1, loops[f] + 1))
        found = detect_iter_map(values, dict(loops), predicate)
        if found is None:
            continue
        envs = [dict(zip(loops, point, strict=True)) for point in product(*map(range, loops.values()))]
        if isinstance(predicate, Expr):
            envs = [env for env in envs if eval_expr(predicate, env)]
        points = [tuple(eval_expr(v, env) for v in values) for env in envs]
        for total, column in zip(found.sums, range(len(values)), strict=True):
            assert [eval_expr(total.to_expr(), env) for env in envs] == [point[column] for point in points]
        if found.injective:
            assert len(set(points)) == len(points)
        if found.bijective:
            bijections += 1
            bases = [const_value(total.base) or 0 for total in found.sums]
            extents = [const_value(extent) or 0 for extent in found.extents if extent is not None]
            box = product(*(range(base, base + extent) for base, extent in zip(bases, extents, strict=True)))
            assert set(points) == set(box)
    assert bijections > 60


def test_no_values_and_no_loops() -> None:
    found = detect_iter_map([], {}, True)
    assert found is not None
    assert found.bijective
    assert detect_iter_map([const(3)], {i: 1}, True) is not None
