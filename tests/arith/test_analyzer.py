"""The analyzer's interface: facts, their scope, and answers."""

from __future__ import annotations

import math

import pytest

from dlc_core.arith import INF, Analyzer, solve_dim
from dlc_core.diag import UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import (
    Binary,
    Const,
    Expr,
    Var,
    binary,
    broadcast,
    call,
    ceildiv,
    const,
    eq,
    maximum,
    minimum,
    ne,
    post_order,
    ramp,
    select,
)

i, j, n, m = Var("i"), Var("j"), Var("n"), Var("m")


def test_bounds_of_an_unknown_variable_are_infinite() -> None:
    assert Analyzer().const_bounds(i * 2 + 1) == (-math.inf, math.inf)


def test_bind_constant_and_symbolic_ranges() -> None:
    analyzer = Analyzer()
    analyzer.bind(i, 2, 6)
    assert analyzer.const_bounds(i) == (2, 7)
    analyzer.declare_dim(n, 1, 64)
    analyzer.bind(j, 0, n)
    assert analyzer.const_bounds(j) == (0, 63)
    assert analyzer.const_bounds(n - j) == (1, 64)
    assert analyzer.prove(j < n)
    assert not analyzer.prove(j < n - 1)


def test_a_later_binding_replaces_an_earlier_one() -> None:
    analyzer = Analyzer()
    analyzer.bind(i, 0, 4)
    assert analyzer.simplify(i // 4) is const(0)
    analyzer.bind(i, 0, 8)
    assert analyzer.simplify(i // 4) is i // 4
    analyzer.bind(i, 0, 2)
    assert analyzer.simplify(i // 2) is const(0)


def test_a_range_may_not_mention_its_own_variable() -> None:
    with pytest.raises(UsageError, match="mentions i itself"):
        Analyzer().bind(i, 0, i + 1)


def test_ranges_of_narrower_types_have_constant_bounds() -> None:
    a, b = Var("a", "int32"), Var("b", "uint8")
    analyzer = Analyzer()
    analyzer.bind(a, const(2, "int32"), const(6, "int32"))
    assert analyzer.const_bounds(a * 4) == (8, 28)
    assert analyzer.prove(a < 8)
    assert not analyzer.prove(a < 7)
    analyzer.bind(b, const(0, "uint8"), Var("c", "uint8"))
    assert analyzer.const_bounds(b) == (0, 254)
    assert analyzer.simplify(a.astype("int64") // 8) is const(0)


def test_an_extent_of_one_is_a_constant() -> None:
    analyzer = Analyzer()
    analyzer.bind(i, 3, 1)
    assert analyzer.simplify(i * 5 + j) is j + 15


def test_declare_dim() -> None:
    analyzer = Analyzer()
    analyzer.declare_dim(n)
    analyzer.declare_dim(m, 0)
    assert analyzer.prove(n >= 1)
    assert not analyzer.prove(m >= 1)
    assert analyzer.const_bounds(n) == (1, INF)


def test_assumptions_hold_inside_only() -> None:
    analyzer = Analyzer()
    analyzer.declare_dim(n)
    assert not analyzer.prove(i < n)
    with analyzer.assume(i < n, i >= 0):
        assert analyzer.prove(i < n)
        assert analyzer.prove(i <= n * 2)
        assert analyzer.const_bounds(i)[0] == 0
        with analyzer.assume(eq(n % 8, 0)):
            assert analyzer.simplify(n // 8 * 8) is n
            assert analyzer.modular(n * 3 + 5) == (24, 5)
            assert analyzer.prove(ne(n % 16, 3))
        assert analyzer.simplify(n // 8 * 8) is not n
    assert not analyzer.prove(i < n)
    assert analyzer.const_bounds(i) == (-INF, INF)


def test_a_loop_that_runs_has_a_positive_extent() -> None:
    """Under `extent > 0` the extent's maximum with zero, and the minimum in what is left, are decided."""
    analyzer, i = Analyzer(), Var("i")
    analyzer.bind(i, 0, 28)
    with analyzer.assume(maximum(3 - i, 0) > 0):
        assert str(analyzer.simplify(maximum(3 - i, 0))) == "3 - i"
    with analyzer.assume(7 - minimum(31 - i, 7) > 0):
        assert str(analyzer.simplify(minimum(31 - i, 7))) == "31 - i"


def test_assumed_equality_replaces() -> None:
    analyzer = Analyzer()
    with analyzer.assume(eq(n, m * 4)):
        assert analyzer.simplify(n // 4) is m
        assert analyzer.prove_equal(n * 2, m * 8)
    with analyzer.assume(eq(n, 12)):
        assert analyzer.simplify(n + i) is i + 12


def test_assumed_opaque_conditions_are_recognised() -> None:
    analyzer = Analyzer()
    flag = eq(call("probe", [i], "int64"), 3)
    with analyzer.assume(flag):
        assert analyzer.prove(flag)
        assert analyzer.simplify(select(flag, n, m)) is n
        assert analyzer.simplify(select(~flag, n, m)) is m


def test_a_tail_predicate_implies_bounds_on_its_parts() -> None:
    analyzer = Analyzer()
    analyzer.bind(i, 0, 13)
    analyzer.bind(j, 0, 8)
    assert not analyzer.prove(i * 8 + j < 100)
    with analyzer.assume(i * 8 + j < 100):
        assert analyzer.prove(i * 8 + j < 100)
        assert analyzer.prove(i * 8 < 100)
        assert not analyzer.prove(i * 8 + j < 99)


def test_bindings_end_with_their_scope() -> None:
    analyzer = Analyzer()
    with analyzer.scope():
        analyzer.bind(i, 0, 8)
        assert analyzer.prove(i < 8)
    assert not analyzer.prove(i < 8)


def test_prove_equal() -> None:
    analyzer = Analyzer()
    analyzer.declare_dim(n)
    assert analyzer.prove_equal(n // 4 * 4 + n % 4, n)
    assert analyzer.prove_equal(ceildiv(n, 8) * 8 - n, (const(0) - n) % 8)
    assert analyzer.prove_equal(maximum(n, m) + minimum(n, m), n + m)
    assert not analyzer.prove_equal(n, m)
    assert not analyzer.prove_equal(n, n.astype("int32"))


def test_modular() -> None:
    analyzer = Analyzer()
    assert analyzer.modular(i * 8 + j * 12 + 3) == (4, 3)
    assert analyzer.modular(const(7)) == (0, 7)
    assert analyzer.modular(minimum(i * 4 + 1, j * 6 + 1)) == (2, 1)
    assert analyzer.modular(i * i * 2) == (2, 0)
    assert analyzer.modular(select(i < j, i * 4, 6)) == (2, 0)


def test_linear_and_coefficients() -> None:
    analyzer = Analyzer()
    terms, start = analyzer.linear(i * 8 + n * j * 2 - 3 + i // 2)
    assert terms == {i: 8, j * n: 2, i // 2: 1}
    assert start == -3
    assert analyzer.coefficient_of(i * n + j, i) is n
    assert analyzer.coefficient_of(i * n + j, j) is const(1)
    assert analyzer.coefficient_of(i * n + j, m) is const(0)
    assert analyzer.coefficient_of(i * i, i) is None
    assert analyzer.coefficient_of(i // 2, i) is None


def test_symbolic_bounds() -> None:
    analyzer = Analyzer()
    analyzer.declare_dim(n)
    analyzer.bind(i, 0, 4)
    analyzer.bind(j, 0, n)
    cases: list[tuple[Expr, list[Var], str, str]] = [
        (i * 8 + m, [i], "m", "m + 24"),
        (i * n + j, [i, j], "0", "n * 4 - 1"),
        (i * n + j, [j], "i * n", "i * n + n - 1"),
        (j - i, [i, j], "-3", "n - 1"),
        ((m * 4 + i) // 2, [i], "m * 2", "m * 2 + 1"),
        ((m + i) % 8, [i], "0", "7"),
        ((m * 8 + i) % 8, [i], "0", "3"),
        (maximum(m + i - 1, 0), [i], "max(m - 1, 0)", "max(m + 2, 0)"),
        (select(m < 3, i, i + 5), [i], "select(m < 3, 0, 5)", "select(m < 3, 0, 5) + 3"),
        (select(i < m, i, 3 - i), [i], "0", "3"),
    ]
    for e, moving, low, high in cases:
        found = analyzer.bounds(e, moving)
        assert found is not None
        assert (str(found[0]), str(found[1])) == (low, high)
    assert analyzer.bounds(i * i * m, [i]) is None
    assert analyzer.bounds(m + 1, {m: (n, 3)}) == (n + 1, n + 3)


def test_triangular_ranges_are_eliminated_inside_out() -> None:
    analyzer = Analyzer()
    analyzer.bind(i, 0, 10)
    analyzer.bind(j, i, 3)
    assert analyzer.bounds(j - i, [i, j]) == (const(0), const(2))
    assert analyzer.const_bounds(j - i) == (0, 2)
    assert analyzer.bounds(j, [j]) == (i, i + 2)


def test_solve() -> None:
    analyzer = Analyzer()
    assert analyzer.solve(n * 2 + m, m * 3, n) is m
    assert analyzer.solve(n * n, 4, n) is None
    assert solve_dim(n * 2 + 1, 7, n) == 3
    assert solve_dim(n * 2 + 1, 8, n) is None
    assert solve_dim(n, 5, n) == 5
    assert solve_dim(const(3), 3, n) is None
    assert solve_dim(n + m, 3, n) is None
    assert solve_dim(n * (-3), 9, n) == -3


# Nodes that are kept.


def test_floats_are_not_reordered() -> None:
    x, y = Var("x", "float32"), Var("y", "float32")
    for e in (y + x, (x + y) - x, x * 0.0, (x / 3.0) * 3.0, minimum(x, x * 1.0)):
        assert Analyzer().simplify(e) is e


def test_index_operands_of_opaque_nodes_are_simplified() -> None:
    analyzer = Analyzer()
    analyzer.bind(i, 0, 4)
    analyzer.bind(j, 0, 8)
    data = Buffer("data", (4, 8))
    load = data[(i * 8 + j) // 8, (i * 8 + j) % 8]
    assert analyzer.simplify(load * 2.0) is data[i, j] * 2.0
    assert analyzer.simplify(call("exp", [load], "float32")) is call("exp", [data[i, j]], "float32")
    assert analyzer.simplify(load.astype("int64") + i - i) is data[i, j].astype("int64")


def test_vectors() -> None:
    analyzer = Analyzer()
    analyzer.bind(i, 0, 4)
    lanes = ramp(i * 8, 1, 8)
    assert analyzer.simplify(lanes + broadcast(j, 8)) is ramp(i * 8 + j, 1, 8)
    assert analyzer.simplify(lanes * broadcast(const(2), 8)) is ramp(i * 16, 2, 8)
    assert analyzer.simplify(broadcast(i + 1, 8) - broadcast(i, 8)) is broadcast(const(1), 8)
    assert analyzer.simplify(ramp(i, 0, 4)) is broadcast(i, 4)
    kept = binary("floordiv", lanes, broadcast(const(3), 8))
    assert analyzer.simplify(kept) is kept


def test_narrow_integers_are_not_simplified() -> None:
    a = Var("a", "int8")
    analyzer = Analyzer()
    assert analyzer.const_bounds(a) == (-128, 127)
    assert analyzer.const_bounds(a + const(1, "int8")) == (-128, 127)
    grows = (a + const(1, "int8")) > a
    assert not analyzer.prove(grows)
    assert analyzer.simplify(grows) is grows
    assert analyzer.prove(a.astype("int64") + 1 > a.astype("int64"))
    assert analyzer.prove(a.astype("int64") < 128)
    pixel = Buffer("pixels", (4,), "uint8")[i]
    assert analyzer.const_bounds(pixel.astype("int64") * 2) == (0, 510)


def test_a_cast_that_may_wrap_is_kept() -> None:
    analyzer = Analyzer()
    wraps = i.astype("int8").astype("int64")
    assert analyzer.simplify(wraps) is wraps
    analyzer.bind(i, 0, 100)
    assert analyzer.simplify(wraps) is i


# Robustness.


def test_deep_expressions_do_not_recurse_deeply() -> None:
    analyzer = Analyzer()
    total, quotient, extreme = i, i, i
    cond: Expr = i < 0
    variables = [Var(f"v{k}") for k in range(3000)]
    for k, var in enumerate(variables):
        total = total + var * (k + 1)
        quotient = (quotient // 3 + var) % 1000
        extreme = minimum(extreme * 2, var) if k < 500 else extreme
        cond = cond & (var < k)
    for e in (total, quotient, extreme, cond):
        simple = analyzer.simplify(e)
        assert analyzer.simplify(simple) is simple


def test_a_shared_graph_is_walked_once() -> None:
    e: Expr = i
    for _ in range(300):
        e = e + e
    assert Analyzer().coefficient_of(e, i) is not None
    doubled = Analyzer().linear(e)[0]
    assert doubled == {i: 2**300} or len(doubled) == 1


def test_big_products_stay_products() -> None:
    factors = [Var(f"a{k}") + Var(f"b{k}") + 1 for k in range(12)]
    product: Expr = const(1)
    for factor in factors:
        product = product * factor
    simple = Analyzer().simplify(product)
    assert Analyzer().simplify(simple) is simple
    assert sum(1 for _ in post_order(simple)) < 100


def test_canonical_forms_do_not_depend_on_history() -> None:
    first, second = Analyzer(), Analyzer()
    second.simplify(j * 3 + m // 2 - i)
    e = m // 2 + i * n + j * i + minimum(j, i)
    assert first.simplify(e) is second.simplify(e)
    assert first.simplify(i + j) is second.simplify(j + i)


def test_variables_of_the_same_name_are_distinct() -> None:
    a, b = Var("x"), Var("x")
    analyzer = Analyzer()
    assert analyzer.simplify(a - b) is not const(0)
    assert analyzer.simplify(a + b) is analyzer.simplify(b + a)
    assert analyzer.simplify(a // 2 + b // 2) is analyzer.simplify(b // 2 + a // 2)


def test_calls_are_memoised(counted) -> None:
    analyzer = Analyzer()
    analyzer.bind(i, 0, 16)
    analyzer.bind(j, 0, 8)
    e = ((i * 8 + j) // 4) % 16 + (i * 8 + j) % 4
    analyzer.simplify(e)
    assert counted(lambda: analyzer.simplify(e))[1] < 10


def test_division_by_zero_is_kept() -> None:
    e = i // const(0)
    simple = Analyzer().simplify(e + 1)
    assert any(isinstance(x, Binary) and x.op == "floordiv" for x in post_order(simple))
    assert not isinstance(simple, Const)


@pytest.mark.parametrize("low", [1, 3])
def test_quotients_by_positive_dims_bound_the_dividend(low):
    """A padded axis that is fused with one of a symbolic size: row x // n is inside, so x - n is."""
    x, n = Var("x"), Var("n")
    analyzer = Analyzer()
    analyzer.declare_dim(n, low)
    analyzer.bind(x, 0, n * 9)
    assert not analyzer.prove(x >= n)
    with analyzer.assume(x // n > 0, x // n < 5):
        assert analyzer.prove(x >= n)
        assert analyzer.prove(x < n * 5)
        assert not analyzer.prove(x >= n * 2)
        assert not analyzer.prove(x < n * 5 - 1)


def test_quotients_by_dims_that_may_be_negative_bound_nothing():
    x, n = Var("x"), Var("n")
    analyzer = Analyzer()
    analyzer.bind(n, -4, 9)
    analyzer.bind(x, -50, 100)
    with analyzer.assume(x // n > 0):
        assert not analyzer.prove(x >= n)
