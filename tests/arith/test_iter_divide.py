"""Division of bindings into outer and inner parts, and inverses of bindings: named ones, and random ones."""

from __future__ import annotations

import random
from itertools import product

import pytest

from dlc_core.arith import Analyzer, detect_iter_map, divide_iter_map, eval_expr, inverse_iter_map
from dlc_core.diag import UsageError
from dlc_core.ir.expr import Expr, ExprLike, Var, const, const_value, eq, logical_and

i, j, k, h, n, m, x, y, z = (Var(name) for name in ["i", "j", "k", "h", "n", "m", "x", "y", "z"])
Loops = dict[Var, ExprLike]

# values, loops, inner loops; of each value: outer, outer extent, inner, inner extent
DIVIDED: list[tuple[str, list[Expr], Loops, list[Var], list[tuple[str, str, str, str]]]] = [
    ("plain", [i, j], {i: 4, j: 8}, [j], [("i", "4", "0", "1"), ("0", "1", "j", "8")]),
    ("split", [i * 8 + j], {i: 4, j: 8}, [j], [("i", "4", "j", "8")]),
    ("all inner", [i * 8 + j], {i: 4, j: 8}, [i, j], [("0", "1", "i * 8 + j", "32")]),
    ("all outer", [i * 8 + j], {i: 4, j: 8}, [], [("i * 8 + j", "32", "0", "1")]),
    (
        "tiles of a matrix",
        [i * 16 + k, j * 16 + h],
        {i: 4, j: 8, k: 16, h: 16},
        [k, h],
        [("i", "4", "k", "16"), ("j", "8", "h", "16")],
    ),
    ("two outer", [i * 32 + j * 4 + k], {i: 2, j: 8, k: 4}, [k], [("i * 8 + j", "16", "k", "4")]),
    ("two inner", [i * 32 + j * 4 + k], {i: 2, j: 8, k: 4}, [j, k], [("i", "2", "j * 4 + k", "32")]),
    ("offset", [i * 8 + j + 3], {i: 4, j: 8}, [j], [("i", "4", "j", "8")]),
    (
        "digits of outer",
        [i // 4, i % 4 * 8 + j],
        {i: 8, j: 8},
        [j],
        [("i // 4", "2", "0", "1"), ("i % 4", "4", "j", "8")],
    ),
    (
        "fused, cut above",
        [(i * 6 + j) // 12, (i * 6 + j) % 12],
        {i: 8, j: 6},
        [j],
        [("i // 2", "4", "0", "1"), ("i % 2", "2", "j", "6")],
    ),
    (
        "fused, cut below",
        [(i * 6 + j) // 3, (i * 6 + j) % 3],
        {i: 8, j: 6},
        [j],
        [("i", "8", "j // 3", "2"), ("0", "1", "j % 3", "3")],
    ),
    ("symbolic inner", [i * n + j], {i: 4, j: n}, [j], [("i", "4", "j", "n")]),
    ("symbolic outer", [i * 8 + j], {i: n, j: 8}, [j], [("i", "n", "j", "8")]),
    ("symbolic both", [(i * m + j) * n + k], {i: 4, j: m, k: n}, [k], [("i * m + j", "m * 4", "k", "n")]),
    ("unit loops", [i * 8 + j + k], {i: 4, j: 8, k: 1}, [j, k], [("i", "4", "j", "8")]),
]


@pytest.mark.parametrize("case", DIVIDED, ids=[case[0] for case in DIVIDED])
def test_divided(case: tuple[str, list[Expr], Loops, list[Var], list[tuple[str, str, str, str]]]) -> None:
    _, values, loops, inner, expected = case
    found = divide_iter_map(values, loops, inner)
    assert found is not None
    assert [
        (str(p.outer), str(p.outer_extent), str(p.inner), str(p.inner_extent)) for p in found.parts
    ] == expected
    analyzer = Analyzer()
    analyzer.declare_dim(n)
    analyzer.declare_dim(m)
    analyzer.bind_extents(loops)
    for part, value in zip(found.parts, values, strict=True):
        assert analyzer.prove_equal(part.to_expr(), value)
        assert analyzer.prove(part.outer < part.outer_extent)
        assert analyzer.prove(part.inner < part.inner_extent)


@pytest.mark.parametrize(
    ("values", "loops", "inner"),
    [
        ([i * 8 + j], {i: 4, j: 8}, [i]),
        ([i * 4 + j], {i: 4, j: 8}, [j]),
        ([i * 16 + j], {i: 4, j: 8}, [j]),
        ([i * 2], {i: 4}, [i]),
        ([i + j], {i: 4, j: 4}, [j]),
        ([i * j], {i: 4, j: 4}, [j]),
        ([i, i], {i: 4}, []),
        ([(i * 6 + j) // 4, (i * 6 + j) % 4], {i: 8, j: 6}, [j]),
    ],
    ids=["inner above", "overlap", "gap", "stride", "sum", "product", "twice", "crossing"],
)
def test_not_divided(values: list[Expr], loops: Loops, inner: list[Var]) -> None:
    assert divide_iter_map(values, loops, inner) is None


def test_predicates_are_split() -> None:
    loops: Loops = {i: 4, j: 8}
    found = divide_iter_map([i * 8 + j], loops, [j], logical_and(i < 3, i * 8 + j < n, j < 7, n > 2))
    assert found is not None
    assert str(found.outer_predicate) == "i < 3 and n > 2"
    assert str(found.inner_predicate) == "i * 8 + j < n and j < 7"
    always = divide_iter_map([i * 8 + j], loops, [j])
    assert always is not None
    assert always.outer_predicate is always.inner_predicate is const(True, "bool")


def _digits(rng: random.Random, loops: dict[Var, int]) -> list[Expr]:
    """Random fusions of loops, some split again."""
    pieces: list[tuple[Expr, int]] = list(loops.items())
    while len(pieces) > 1 and rng.random() < 0.7:
        (a, first), (b, second) = (pieces.pop(rng.randrange(len(pieces))) for _ in range(2))
        pieces.append((a * second + b, first * second))
    out: list[Expr] = []
    for e, extent in pieces:
        factor = rng.choice([f for f in (1, 2, 3, 4, 6) if extent % f == 0])
        out += [e // factor, e % factor] if factor > 1 else [e]
    return out


def test_divisions_agree_with_enumeration() -> None:
    rng = random.Random(5)
    divided = inverted = 0
    for _ in range(250):
        loops = {v: rng.choice([1, 2, 3, 4, 6]) for v in (i, j, k, h)}
        values = _digits(rng, loops)
        inner = [v for v in loops if rng.random() < 0.5]
        envs = [dict(zip(loops, point, strict=True)) for point in product(*map(range, loops.values()))]
        found = divide_iter_map(values, dict(loops), inner)
        if found is not None:
            divided += 1
            for part, value in zip(found.parts, values, strict=True):
                outer, reach = const_value(part.outer_extent), const_value(part.inner_extent)
                assert outer is not None
                assert reach is not None
                assert {eval_expr(part.outer, env) for env in envs} == set(range(outer))
                assert {eval_expr(part.inner, env) for env in envs} == set(range(reach))
                for env in envs:
                    assert eval_expr(part.to_expr(), env) == eval_expr(value, env)
                    fixed_inner = env | dict.fromkeys(inner, 0)
                    assert eval_expr(part.outer, env) == eval_expr(part.outer, fixed_inner)
        mapped = detect_iter_map(values, dict(loops))
        if mapped is not None and mapped.bijective:
            inverted += 1
            outputs = [Var(f"y{at}") for at in range(len(values))]
            back = inverse_iter_map(mapped, outputs)
            for env in envs:
                image = {out: eval_expr(v, env) for out, v in zip(outputs, values, strict=True)}
                assert {v: eval_expr(back[v], image) if v in back else 0 for v in loops} == env
    assert divided > 80
    assert inverted > 150


def test_inverses() -> None:
    def inverse(values: list[Expr], loops: Loops, predicate: ExprLike = True) -> dict[str, str]:
        found = detect_iter_map(values, loops, predicate)
        assert found is not None
        return {v.name: str(e) for v, e in inverse_iter_map(found, [x, y, z][: len(values)]).items()}

    assert inverse([j, i], {i: 4, j: 8}) == {"i": "y", "j": "x"}
    assert inverse([i // 8, i % 8], {i: 32}) == {"i": "x * 8 + y"}
    assert inverse([i * 8 + j], {i: 4, j: 8}) == {"i": "x // 8", "j": "x % 8"}
    assert inverse([i * 8 + j + 5], {i: 4, j: 8}) == {"i": "(x + 3) // 8 - 1", "j": "(x + 3) % 8"}
    assert inverse([i * n + j], {i: 4, j: n}) == {"i": "x // n", "j": "x % n"}
    assert inverse([(i * 8 + j) // 4, (i * 8 + j) % 4], {i: 4, j: 8}) == {"i": "x // 2", "j": "x % 2 * 4 + y"}


def test_refuses_the_inverse_of_a_map_that_is_not_bijective() -> None:
    found = detect_iter_map([i * 2], {i: 4})
    assert found is not None
    with pytest.raises(UsageError, match="not bijective"):
        inverse_iter_map(found, [x])
    plain = detect_iter_map([i], {i: 4})
    assert plain is not None
    with pytest.raises(UsageError, match="1 bindings have as many values, not 2"):
        inverse_iter_map(plain, [x, y])


def test_a_condition_on_symbols_alone_is_outer() -> None:
    found = divide_iter_map([i], {i: 4}, [i], eq(n % 8, 0))
    assert found is not None
    assert str(found.outer_predicate) == "n % 8 == 0"
