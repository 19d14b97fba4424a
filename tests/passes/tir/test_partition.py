"""Loop partitioning by conditions."""

from __future__ import annotations

import pytest

from dlc_core.passes.tir.partition import PartitionLoops
from dlc_core.testing.prim_passes import check_results, check_rewrite, check_unchanged, parse_func, program
from dlc_core.tir.functor import stmts
from dlc_core.tir.stmt import For, If


def test_results_of_random_programs_stay(random_program):
    check_results(PartitionLoops(max_steps=1000), random_program)


def test_some_random_program_changes():
    assert any(PartitionLoops(max_steps=1000)(func) is not func for func in map(program, range(60)))


def ranges(func) -> list[tuple[str, str, bool]]:
    """Begin and end of the outermost loops, and whether a condition is left in them."""
    top = [s for s in stmts(func.body) if isinstance(s, For) and s.var.name == "i"]
    return [
        (str(s.begin), str(s.begin + s.extent), any(isinstance(x, If) for x in stmts(s.body))) for s in top
    ]


@pytest.mark.parametrize(
    ("cond", "expected"),
    [
        ("i * 3 + 1 < 20", [("0", "7", True), ("7", "20", False)]),
        ("i * 3 <= 50", [("0", "17", False), ("17", "20", True)]),
        ("i * 2 > 9", [("0", "5", True), ("5", "20", False)]),
        ("9 - 2 * i > 0", [("0", "5", True), ("5", "20", False)]),
        ("30 >= 2 * i", [("0", "16", False), ("16", "20", True)]),
        ("i == 0", [("0", "1", True), ("1", "20", False)]),
        ("i != 19", [("0", "19", False), ("19", "20", True)]),
        ("i * 2 == i + 19", [("0", "19", False), ("19", "20", True)]),
        ("i < 50", [("0", "20", False)]),
        ("i + j < 18", [("0", "15", False), ("15", "20", True)]),
        ("i + j >= 3 and i - j <= 16", [("0", "3", True), ("3", "17", False), ("17", "20", True)]),
        ("i + j < n", None),
        ("i - 5 * j > 0 and i < 5 * j + 4", [("0", "20", True)]),
        ("i % 3 < 2", [("0", "20", True)]),
        ("i == 5", [("0", "20", True)]),
        ("A[i] > 0", [("0", "20", True)]),
    ],
)
def test_conditions_of_all_kinds(cond, expected):
    func = parse_func(f"""
        @T.prim_func
        def f(A: T.Buffer((20,), "int32"), B: T.Buffer((23,), "int32"), n: T.int64):
            for i in range(20):
                for j in range(4):
                    if {cond}:
                        B[i + j] = B[i + j] * 3 + A[i]
                    else:
                        B[i + j] = B[i + j] + 1
    """)
    cut = check_results(PartitionLoops(), func)
    if expected is not None:
        assert ranges(cut) == expected
        assert PartitionLoops()(cut) is cut or any(has for *_, has in expected)


@pytest.mark.parametrize("op", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("factor", [1, 2, 3, -1, -2, -3])
def test_splits_loops_exactly_where_a_condition_changes(op, factor):
    """The longer of the two ranges has no condition. In the other range the condition has the other value."""
    begin, end = 2, 13
    turns = [factor * i + off for i in (begin - 1, begin, 4, 7, 10, end - 1, end) for off in (-1, 0, 1)]
    for bound in sorted(set(turns)):
        func = parse_func(f"""
            @T.prim_func
            def f(A: T.Buffer((20,), "int32")):
                for i in range({begin}, {end}):
                    if i * ({factor}) {op} {bound}:
                        A[i] = A[i] + 1
                    else:
                        A[i] = 2
        """)
        parts = ranges(check_results(PartitionLoops(), func))
        said = {i: eval(f"{i} * {factor} {op} {bound}") for i in range(begin, end)}  # noqa: S307
        free = [range(int(low), int(high)) for low, high, asks in parts if not asks]
        asking = [range(int(low), int(high)) for low, high, asks in parts if asks]
        assert len(free) == 1, (bound, parts)
        assert len({said[i] for i in free[0]}) == 1, (bound, parts)
        assert all(said[i] != said[free[0][0]] for one in asking for i in one), (bound, parts)
        assert len(free[0]) >= sum(map(len, asking)), (bound, parts)
        assert sorted(i for one in (*free, *asking) for i in one) == list(said)


@pytest.mark.parametrize("cond", ["i * 3 < n", "i * 2 + 1 <= n", "n - i * 2 > 3", "5 >= n - i * 3"])
def test_a_condition_on_a_size_of_the_call(cond):
    func = parse_func(f"""
        @T.prim_func
        def f(A: T.Buffer((20,), "int32"), n: T.int64):
            for i in range(2, 20):
                if {cond}:
                    A[i] = A[i] + 1
                else:
                    A[i] = 2
    """)
    cut = check_results(PartitionLoops(), func)
    assert not all(asks for *_, asks in ranges(cut))


def test_symbolic_ends_are_clamped():
    func = parse_func("""
        @T.prim_func
        def f(A: T.Buffer((n,), "int32"), n: T.int64):
            for i in range(n):
                if i >= 2 and i < n - 2:
                    A[i] = 1
                else:
                    A[i] = 2
    """)
    cut = check_results(PartitionLoops(), func)
    assert [has for *_, has in ranges(cut)] == [True, False, True]


def test_inner_ends_may_depend_on_the_loop():
    check_rewrite(
        PartitionLoops(),
        """
        @T.prim_func
        def f(A: T.Buffer((400,), "int32")):
            for i in range(20):
                for j in range(i + 1):
                    if i + j < 10:
                        A[i * 20 + j] = 1
        """,
        """
        @T.prim_func
        def f(A: T.Buffer((400,), "int32")):
            for i in range(10):
                for j in range(i + 1):
                    if i + j < 10:
                        A[i * 20 + j] = 1
            for i in range(10, 20):
                for j in range(i + 1):
                    pass
        """,
    )


SOURCE = """
@T.prim_func
def f(A: T.Buffer((20,), "int32")):
    for i in T.{kind}(20, annotations={notes}):
        if i < 15:
            A[i] = 1
"""


@pytest.mark.parametrize(
    ("kind", "notes", "options", "loops"),
    [
        ("serial", {}, {}, 2),
        ("serial", {}, {"max_steps": 1}, 1),
        ("serial", {}, {"annotated": True}, 1),
        ("serial", {"partition": False}, {}, 1),
        ("serial", {"partition": True}, {"annotated": True, "max_steps": 0}, 2),
        ("parallel", {}, {}, 1),
        ("parallel", {"partition": True}, {}, 2),
    ],
)
def test_selects_loops_by_size_kind_and_annotation(kind, notes, options, loops):
    cut = PartitionLoops(**options)(parse_func(SOURCE.format(kind=kind, notes=notes)))
    assert len(ranges(cut)) == loops
    if loops == 2:
        assert not any(s.annotations for s in stmts(cut.body) if isinstance(s, For))


def test_blocks_keep_their_loops():
    check_unchanged(
        PartitionLoops(),
        """
        @T.prim_func
        def f(A: T.Buffer((20,), "int32")):
            for i in range(20):
                with T.block("b"):
                    v = T.axis.spatial(20, i)
                    T.reads()
                    T.writes(A[v])
                    if v < 15:
                        A[v] = 1
        """,
    )
