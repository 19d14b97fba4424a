"""Properties of simplification on random expressions: same value, valid bounds, sound proofs, idempotence."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlc_core.arith import Analyzer, compile_exprs, eval_expr
from dlc_core.diag import UsageError
from dlc_core.ir.expr import Expr, Var, binary, ceildiv, const, select, unary

A, B, C, N = Var("a"), Var("b"), Var("c"), Var("n")
VARS = (A, B, C, N)
LITERALS = (-9, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7, 8, 12, 16)
DIVISORS = (1, 2, 3, 4, 6, 8, 12, -2, -4, 0)
COMMON = settings(suppress_health_check=[HealthCheck.too_slow])
Env = dict[Var, int]


def _static() -> tuple[Analyzer, list[Env]]:
    domains = {A: range(4), B: range(-3, 3), C: range(8), N: range(1, 6)}
    analyzer = Analyzer()
    for var in (A, B, C):
        analyzer.bind(var, domains[var][0], len(domains[var]))
    analyzer.declare_dim(N, 1, 5)
    return analyzer, [dict(zip(domains, values, strict=True)) for values in product(*domains.values())]


def _triangular() -> tuple[Analyzer, list[Env]]:
    """a in [0, n), b in [a, a+3), c in [0, ceildiv(n, 2))"""
    analyzer = Analyzer()
    analyzer.declare_dim(N)
    analyzer.bind(A, 0, N)
    analyzer.bind(B, A, 3)
    analyzer.bind(C, 0, ceildiv(N, 2))
    return analyzer, [
        {A: a, B: b, C: c, N: n}
        for n in range(1, 5)
        for a in range(n)
        for b in range(a, a + 3)
        for c in range((n + 1) // 2)
    ]


def _shifted() -> tuple[Analyzer, list[Env]]:
    """a in [-2, 3), b in [2a, 2a+n), c in [n-2, n+2)"""
    analyzer = Analyzer()
    analyzer.declare_dim(N)
    analyzer.bind(A, -2, 5)
    analyzer.bind(B, A * 2, N)
    analyzer.bind(C, N - 2, 4)
    return analyzer, [
        {A: a, B: b, C: c, N: n}
        for n in range(1, 5)
        for a in range(-2, 3)
        for b in range(2 * a, 2 * a + n)
        for c in range(n - 2, n + 2)
    ]


WORLDS = (_static, _triangular, _shifted)


def _value(e: Expr, env: Env) -> int | None:
    """The value, or None if the expression is undefined."""
    try:
        return eval_expr(e, env)
    except UsageError:
        return None


def _grow(indices: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    pairs = st.tuples(indices, indices)
    divisors = st.one_of(st.sampled_from(DIVISORS).map(const), st.sampled_from(VARS))
    comparisons = st.builds(binary, st.sampled_from(("lt", "le", "gt", "ge", "eq", "ne")), indices, indices)
    return st.one_of(
        st.builds(binary, st.sampled_from(("add", "sub", "mul", "min", "max")), indices, indices),
        st.builds(lambda e, k: e * k, indices, st.sampled_from(LITERALS)),
        st.builds(
            binary,
            st.sampled_from(("floordiv", "floormod", "floordiv", "floormod", "truncdiv", "truncmod", "div")),
            indices,
            divisors,
        ),
        st.builds(lambda c, p: select(c, *p), comparisons, pairs),
        st.builds(unary, st.sampled_from(("neg", "bitnot")), indices),
        st.builds(binary, st.sampled_from(("shl", "shr")), indices, st.sampled_from((0, 1, 3)).map(const)),
        st.builds(lambda e, k: e & k, indices, st.sampled_from((1, 7, 6))),
    )


LEAVES = st.one_of(st.sampled_from(VARS), st.sampled_from(LITERALS).map(const))
INDICES = st.recursive(LEAVES, _grow, max_leaves=10)
COMPARISONS = st.builds(binary, st.sampled_from(("lt", "le", "gt", "ge", "eq", "ne")), INDICES, INDICES)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda conds: st.one_of(
        st.builds(binary, st.sampled_from(("and", "or")), conds, conds),
        conds.map(lambda c: ~c),
        st.builds(select, conds, conds, conds),
    ),
    max_leaves=4,
)


@given(INDICES, st.sampled_from(WORLDS), st.integers(0, 1000))
@COMMON
def test_index_expressions(e: Expr, world: object, seed: int) -> None:
    assert callable(world)
    analyzer, envs = world()
    simple = analyzer.simplify(e)
    assert analyzer.simplify(simple) is simple
    assert world()[0].simplify(simple) is simple
    low, high = analyzer.const_bounds(e)
    modulus, residue = analyzer.modular(e)
    inner = analyzer.bounds(e, [B, C])
    for env in random.Random(seed).sample(envs, min(60, len(envs))):
        value = _value(e, env)
        if value is None:
            continue
        assert compile_exprs([simple], VARS)(*(env[v] for v in VARS)) == (value,)
        assert low <= value <= high
        assert (value - residue) % modulus == 0 if modulus else value == residue
        if inner is not None:
            assert eval_expr(inner[0], env) <= value <= eval_expr(inner[1], env)


@given(CONDITIONS, st.sampled_from(WORLDS))
@COMMON
def test_conditions(cond: Expr, world: object) -> None:
    assert callable(world)
    analyzer, envs = world()
    simple = analyzer.simplify(cond)
    assert world()[0].simplify(simple) is simple
    proved, refuted = analyzer.prove(cond), analyzer.prove(~cond)
    for env in envs[:: max(1, len(envs) // 60)]:
        value = _value(cond, env)
        if value is None:
            continue
        assert compile_exprs([simple], VARS)(*(env[v] for v in VARS)) == (value,)
        assert not (proved and not value)
        assert not (refuted and value)


@given(st.lists(COMPARISONS, min_size=1, max_size=2), INDICES, COMPARISONS, st.sampled_from(WORLDS))
@COMMON
def test_assumptions(assumed: list[Expr], e: Expr, goal: Expr, world: object) -> None:
    assert callable(world)
    analyzer, envs = world()
    with analyzer.assume(*assumed):
        simple, proved = analyzer.simplify(e), analyzer.prove(goal)
        low, high = analyzer.const_bounds(e)
        modulus, residue = analyzer.modular(e)
    for env in envs[:: max(1, len(envs) // 60)]:
        if any(_value(cond, env) != 1 for cond in assumed):
            continue
        value = _value(e, env)
        if value is not None:
            assert compile_exprs([simple], VARS)(*(env[v] for v in VARS)) == (value,)
            assert low <= value <= high
            assert (value - residue) % modulus == 0 if modulus else value == residue
        assert not (proved and _value(goal, env) == 0)


@given(INDICES, INDICES, st.sampled_from(WORLDS))
@COMMON
def test_equality_proofs(a: Expr, b: Expr, world: object) -> None:
    assert callable(world)
    analyzer, envs = world()
    if analyzer.prove_equal(a, b):
        for env in envs:
            left, right = _value(a, env), _value(b, env)
            assert left is None or right is None or left == right


@given(INDICES, st.sampled_from(VARS))
@COMMON
def test_affine_decomposition(e: Expr, var: Var) -> None:
    analyzer, envs = _static()
    terms, start = analyzer.linear(e)
    factor = analyzer.coefficient_of(e, var)
    if factor is not None:
        rest = analyzer.simplify(e - factor * var)
    for env in envs[::40]:
        value = _value(e, env)
        if value is None:
            continue
        assert start + sum(c * eval_expr(atom, env) for atom, c in terms.items()) == value
        if factor is not None:
            other = {**env, var: 2}
            assert eval_expr(factor, env) == eval_expr(factor, other)
            assert eval_expr(factor * var + rest, env) == value


def _exhaustive(depth: int) -> list[Expr]:
    """Every expression of a given depth over few operators, one variable and few literals."""
    x = A
    smaller: list[Expr] = (
        [x, const(0), const(1), const(3), const(-2)] if depth == 1 else _exhaustive(depth - 1)
    )
    operators = ("add", "sub", "mul", "floordiv", "floormod", "min", "max")
    out = {
        binary(op, a, b)
        for op in operators
        for a, b in product(smaller[:60], (x, const(2), const(3), const(-2)))
    }
    out |= {binary(op, b, a) for op in operators for a, b in product(smaller[:60], (x, const(5)))}
    return sorted(out, key=repr)


def test_exhaustive_over_one_variable() -> None:
    analyzer = Analyzer()
    analyzer.bind(A, -5, 12)
    for e in _exhaustive(2):
        simple = analyzer.simplify(e)
        assert Analyzer().simplify(e) is not None
        for value in range(-5, 7):
            expected = _value(e, {A: value})
            if expected is not None:
                assert eval_expr(simple, {A: value}) == expected, f"{e} became {simple}"


@pytest.mark.slow
def test_many_random_index_expressions() -> None:
    """A longer seeded run over deeper expressions than hypothesis builds."""
    operators = ("add", "add", "sub", "mul", "floordiv", "floordiv", "floormod", "floormod", "min", "max")
    rng = random.Random(7)

    def build(depth: int) -> Expr:
        if depth == 0 or rng.random() < 0.1:
            return rng.choice(VARS) if rng.random() < 0.75 else const(rng.choice(LITERALS))
        op = rng.choice(operators)
        a = build(depth - 1)
        if op in ("floordiv", "floormod"):
            return binary(op, a, rng.choice([*map(const, DIVISORS[:-1]), N]))
        return binary(op, a, build(depth - 1) if rng.random() < 0.7 else const(rng.choice(LITERALS)))

    for _ in range(3000):
        analyzer, envs = rng.choice(WORLDS)()
        e = build(5)
        simple = analyzer.simplify(e)
        for env in rng.sample(envs, 20):
            assert eval_expr(simple, env) == eval_expr(e, env), f"{e} became {simple}"


def test_narrow_integers_and_casts() -> None:
    """Types that wrap: values and bounds agree with evaluation that wraps."""
    types = ("int8", "uint8", "int16", "int32", "int64")
    leaves = {"int64": A, "uint8": Var("u", "uint8"), "int8": Var("s", "int8"), "int32": Var("w", "int32")}
    operators = [
        "add",
        "sub",
        "mul",
        "floordiv",
        "floormod",
        "truncdiv",
        "truncmod",
        "min",
        "max",
        "bitand",
        "bitor",
        "bitxor",
    ]
    rng = random.Random(3)

    def build(depth: int, type_: str) -> Expr:
        if depth == 0 or rng.random() < 0.1:
            leaf = leaves.get(type_)
            return (
                leaf
                if leaf is not None and rng.random() < 0.7
                else const(rng.choice((0, 1, 3, 100, -1)), type_)
            )
        kind, other = rng.random(), rng.choice(types)
        if kind < 0.3:
            return build(depth - 1, other).astype(type_)
        if kind < 0.4:
            cond = binary(
                rng.choice(("lt", "le", "eq", "ne")), build(depth - 1, other), build(depth - 1, other)
            )
            return select(cond, build(depth - 1, type_), build(depth - 1, type_))
        return binary(rng.choice(operators), build(depth - 1, type_), build(depth - 1, type_))

    for _ in range(600):
        analyzer = Analyzer()
        analyzer.bind(A, -20, 60)
        e = build(rng.choice((2, 3)), rng.choice(types))
        simple = analyzer.simplify(e)
        low, high = analyzer.const_bounds(e)
        for _ in range(8):
            env = {
                A: rng.randrange(-20, 40),
                leaves["uint8"]: rng.randrange(256),
                leaves["int8"]: rng.randrange(-128, 128),
                leaves["int32"]: rng.choice((-(2**31), 2**31 - 1, -7, 0, 3, 99)),
            }
            value = _value(e, env)
            if value is None or abs(value) >= 2**62:
                continue
            assert eval_expr(simple, env) == value, f"{e} became {simple}"
            assert low <= value <= high
