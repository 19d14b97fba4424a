"""Accesses in bounds are proved, and other accesses are checked at run time."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc_core.arith import Analyzer
from dlc_core.diag import DlcError, RuntimeFailure
from dlc_core.ir.expr import conjuncts, const, const_value, eq, loads_in, substitute
from dlc_core.ir.module import IRModule
from dlc_core.passes import PassContext
from dlc_core.passes.tir.bounds import prove, with_access_checks
from dlc_core.passes.tir.flatten import flatten_and_simplify
from dlc_core.passes.tir.lower_blocks import lower_blocks
from dlc_core.passes.tir.prove_bounds import ProveBounds
from dlc_core.passes.tir.strided import group_strided
from dlc_core.passes.tir.unroll import unroll_loops
from dlc_core.passes.tir.vectorize import vectorize_loops
from dlc_core.passes.tir.workspace import hoist_workspace
from dlc_core.testing.prim_passes import check_results, parse_func
from dlc_core.testing.random_schedules import random_schedule
from dlc_core.testing.te_programs import random_te_program
from dlc_core.tir.failures import RECORD, SITE
from dlc_core.tir.interpreter import run
from tests.schedule.products import TINY, TINY_EXTERN

HEAD = """
@T.prim_func
def f(A: T.Buffer((n * 16,), "float32"), B: T.Buffer((n * 16,), "float32"), C: T.Buffer((40,), "float32"),
      I: T.Buffer((n,), "int64"), n: T.int64, m: T.int64):
"""


def body(lines: str):
    return parse_func(HEAD + "\n".join("    " + line for line in lines.strip("\n").splitlines()))


PROVED = {
    "a loop": "for i in range(n * 16): A[i] = B[i]",
    "two loops": "for i, j in T.grid(n, 16): A[i * 16 + j] = B[j * n + i]",
    "vectors": "for i in range(n): A[T.ramp(i * 16, 1, 16)] = B[T.ramp(i, n, 16)]",
    "a condition": "for i in range(64):\n    if i < 40: C[i] = T.float32(0)",
    "a condition around others": "if n >= 3:\n    for i in range(48): A[i] = B[47 - i]",
    "the other side": "for i in range(64):\n    if i >= 40: C[0] = C[1]\n    else: C[i] = T.float32(0)",
    "a choice": "for i in range(n * 16): A[i] = T.if_then_else(i < 40, C[i], B[i])",
    "a choice in a choice": (
        "for i in range(60):"
        " C[i % 40] = T.if_then_else(i < 50, T.if_then_else(i >= 10, C[i - 10], C[i]), C[0])"
    ),
    "a choice by lane": (
        "C[T.ramp(0, 1, 16)] = T.if_then_else("
        "T.ramp(n, 1, 16) < T.broadcast(40, 16), C[T.ramp(n, 1, 16)], C[T.ramp(0, 1, 16)])"
    ),
    "a tail": (
        "for i in range((n * 16 + 6) // 7):\n"
        "    for j in range(7):\n"
        "        if i * 7 + j < n * 16: A[i * 7 + j] = T.float32(1)"
    ),
    "what is left": "for i in T.serial(n // 4 * 4, extent=n % 4): A[i * 16] = B[i * 16 + 15]",
    "digits": "for i in range(n * 16): A[i] = B[i // 16 * 16 + (15 - i % 16)]",
    "parts of a loop": (
        "for p in range(8):\n"
        "    for i in T.serial(n * 16 * p // 8, extent=n * 16 * (p + 1) // 8 - n * 16 * p // 8): A[i] = B[i]"
    ),
    "a name": "for i in range(n):\n    x = T.let(i * 16)\n    A[x + 15] = B[x]",
    "an index that is data, in range": "for i in range(n): C[T.min(T.max(I[i], 0), 39)] = T.float32(1)",
    "a tested index that is data": (
        "for i in range(n):\n    if I[i] >= 0 and I[i] < 40: C[I[i]] = T.float32(1)"
    ),
    "a while loop": "if n > 0:\n    while I[0] < 40 and I[0] >= 0: C[I[0]] = T.float32(1)",
    "memory of its own": (
        "t = T.alloc_buffer((n, 4), 'float32')\nfor i, j in T.grid(n, 4): t[i, j] = A[i * 4 + j]"
    ),
    "a window": (
        "w = T.view(C, (4, 10), 'float32')\nfor i, j in T.grid(4, 10): w[i, j] = T.float32(0)"
    ),
    "a window elsewhere": (
        "w = T.view(A, (n,), 'float32', offset=n * 15)\nfor i in range(n): w[i] = T.float32(0)"
    ),
    "prefetching": "for i in range(n): T.evaluate(T.prefetch(T.address_of(A[i * 16 + 1000])))",
    "no iterations": "for i in range(0): C[i + 100] = T.float32(0)",
    "a minimum": "for i in range(T.min(n * 16, 40)): C[i] = A[i]",
    "a remainder of a quotient that a condition bounds": (  # pooling with ceil_mode, one thread a pixel
        "D = T.alloc_buffer((4 * 96,), 'float32')\n"
        "for x in range(8):\n"
        "    C[x] = T.if_then_else(x // 4 * 2 + 1 < 4 and x // 2 % 2 * 2 + 2 < 4,"
        " D[x // 4 * 192 + 96 + x // 2 % 2 * 48 + 48 + x % 2 * 20], C[0])"
    ),
    "neighbours in a row that a condition keeps": (  # LRN, several rows and channels in one loop
        "for x in range(4):\n"
        "    for t in range(16):\n"
        "        if x * 16 + t < n * 4:\n"
        "            A[T.ramp(x * 64 + t * 4, 1, 4)] = T.if_then_else("
        "T.broadcast((x * 16 + t) % 4 * 4 + 3, 4) + T.ramp(0, 1, 4) < T.broadcast(16, 4),"
        " B[T.ramp(x * 64 + t * 4 + 3, 1, 4)], B[T.ramp(x * 64 + t * 4, 1, 4)])"
    ),
    "a multiple": (
        "if n % 4 == 0:\n"
        "    for i in range(n // 4): A[T.ramp(i * 64, 1, 64)] = B[T.ramp(n * 16 - i * 64 - 64, 1, 64)]"
    ),
    "clamped coordinates": (
        "if n >= 1 and m >= 1:\n"
        "    D = T.alloc_buffer((n * m,), 'float32')\n"
        "    for i, j in T.grid(8, 6):\n"
        "        D[m * T.max(T.min(n - 1, I[0]), 0) + T.max(T.min(m - 1, (j * m + 2) // 6), 0)] = C[i]"
    ),
    "coordinates that shrink": (
        "if n >= 1 and m >= 1:\n"
        "    D = T.alloc_buffer((n * m,), 'float32')\n"
        "    for i, j in T.grid(8, 4):\n"
        "        D[m * T.max((i * n * 2 + n + 15) // 16 - 1, 0)"
        " + T.max((j * m * 2 + m + 11) // 12 - 1, 0)] = C[i]"
    ),
}  # fmt: skip
OPEN = {
    "one too far": "for i in range(n * 16): A[i] = B[i + 1]",
    "one before": "for i in range(n * 16): A[i] = B[i - 1]",
    "the last lane": "A[T.ramp(n * 16 - 15, 1, 16)] = A[T.ramp(0, 1, 16)]",
    "an empty buffer": "A[0] = T.float32(0)",
    "another size": "for i in range(m): A[i] = T.float32(0)",
    "an index that is data": "for i in range(n): C[I[i]] = T.float32(1)",
    "an index that was tested": (
        "for i in range(n):\n    if I[i] >= 0 and I[i] < 40:\n"
        "        I[i] = I[i] + 1\n        C[I[i]] = T.float32(1)"
    ),
    "a choice that asks too little": "for i in range(64): C[0] = T.if_then_else(i < 41, C[i], C[0])",
    "both sides are evaluated": "for i in range(64): C[0] = T.select(i < 40, C[i], C[0])",
    "the wrong side": "for i in range(64): C[0] = T.if_then_else(i < 40, C[0], C[i])",
    "a window that is too long": "w = T.view(C, (41,), 'float32')\nw[0] = T.float32(0)",
    "a window of other elements": "w = T.view(C, (21,), 'float64')\nw[0] = T.float64(0)",
    "a window that begins too late": "w = T.view(A, (n,), 'float32', offset=n * 15 + 1)\nw[0] = T.float32(0)",
    "a remainder of a quotient whose condition allows one more": (
        "D = T.alloc_buffer((4 * 96,), 'float32')\n"
        "for x in range(8):\n"
        "    C[x] = T.if_then_else(x // 4 * 2 + 1 < 4 and x // 2 % 2 * 2 + 2 < 5,"
        " D[x // 4 * 192 + 96 + x // 2 % 2 * 48 + 48 + x % 2 * 20], C[0])"
    ),
    "neighbours in a row whose condition allows one more": (
        "for x in range(4):\n"
        "    for t in range(16):\n"
        "        if x * 16 + t < n * 4:\n"
        "            A[T.ramp(x * 64 + t * 4, 1, 4)] = T.if_then_else("
        "T.broadcast((x * 16 + t) % 4 * 4 + 3, 4) + T.ramp(0, 1, 4) < T.broadcast(17, 4),"
        " B[T.ramp(x * 64 + t * 4 + 3, 1, 4)], B[T.ramp(x * 64 + t * 4, 1, 4)])"
    ),
    "coordinates clamped to the other dim": (
        "if n >= 1 and m >= 1:\n"
        "    D = T.alloc_buffer((n * m,), 'float32')\n"
        "    for i, j in T.grid(8, 6):\n"
        "        D[m * T.max(T.min(m - 1, I[0]), 0) + T.max(T.min(m - 1, (j * m + 2) // 6), 0)] = C[i]"
    ),
    "a coordinate clamped to one more": (
        "if n >= 1 and m >= 1:\n"
        "    D = T.alloc_buffer((n * m,), 'float32')\n"
        "    for i, j in T.grid(8, 6):\n"
        "        D[m * T.max(T.min(n - 1, I[0]), 0) + T.max(T.min(m, (j * m + m) // 6), 0)] = C[i]"
    ),
    "a step too many": (
        "for i in range((n * 16 + 6) // 7):\n    for j in range(7): A[i * 7 + j] = T.float32(1)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROVED)
def test_proves_accesses_in_bounds(name):
    func = body(PROVED[name])
    for form in (func, flatten_and_simplify(func)):
        if form is func and name == "no iterations":
            continue  # the first simplification removes it
        found = prove(form)
        assert [str(access) for access in found.open] == []
        assert "no iterations" in name or "prefetch" in name or found.proved


@pytest.mark.parametrize("name", OPEN)
def test_does_not_prove_accesses_that_may_be_out_of_bounds(name):
    assert prove(body(OPEN[name])).open


def test_conditions_on_callers_sizes_are_facts():
    func = body("for i in range(m): A[i] = B[i]")
    n, m = func.scalars
    assert prove(func).open
    assert not prove(func, given=[eq(m, n)]).open
    assert not prove(func, given=[m <= n * 16]).open
    assert prove(func, given=[m >= n]).open


SIZES = {"n": (0, 1, 2, 3, 5), "m": (0, 16, 90)}


def outcome_of(func, sizes, seed, guard=False):
    """The arrays after a run, and the record of its checks. With `guard`, accesses out of bounds raise."""
    rng = np.random.default_rng(seed)
    n, m = sizes
    arrays = [rng.random(n * 16, np.float32), rng.random(n * 16, np.float32), rng.random(40, np.float32)]
    arrays.append(rng.integers(-2, 45, n))
    record = [np.zeros(RECORD, np.int64)] if "checks" in func.attrs else []
    run(func, *arrays, *record, n, m, *([SITE] if record else []), check=guard)
    return arrays, record[0] if record else np.zeros(RECORD, np.int64)


@pytest.mark.parametrize("name", [name for name in OPEN if not name.startswith("a window")])
@pytest.mark.parametrize("n", SIZES["n"])
@pytest.mark.parametrize("m", SIZES["m"])
def test_checked_programs_stay_in_bounds_and_record_failures(name, n, m):
    """If a program accesses memory out of bounds, a check fails; else it computes the same as before."""
    func = body(OPEN[name])
    checked = ProveBounds()(flatten_and_simplify(func))
    found, record = outcome_of(checked, (n, m), n)
    try:
        expected, _ = outcome_of(func, (n, m), n)
    except RuntimeFailure:
        assert record[0] // SITE == 1
        assert not 0 <= record[1] < record[2]
        return
    if name != "both sides are evaluated":  # where the interpreter evaluates one
        assert not record.any()
    for new, old in zip(found, expected, strict=True):
        np.testing.assert_array_equal(new, old)


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("n", SIZES["n"])
def test_lanes_are_checked_with_and_without_vectors(n, vectors):
    func = body(OPEN["neighbours in a row whose condition allows one more"])
    checked = with_access_checks(func, prove(func).open, vectors=vectors)
    assert ("vector_reduce" in checked.script()) is vectors
    arrays, record = outcome_of(checked, (n, 0), n)
    expected = np.random.default_rng(n).random((2, n * 16), np.float32)
    assert record.any() == (0 < n < 17)
    rows = expected[0][: n * 16].reshape(-1, 16), arrays[0].reshape(-1, 16)
    np.testing.assert_array_equal(rows[1][:-1, :12], np.roll(expected[1], -3).reshape(-1, 16)[:-1, :12])


def test_keeps_programs_with_proved_accesses():
    func = flatten_and_simplify(body(PROVED["two loops"]))
    after = ProveBounds()(func)
    assert after.body is func.body
    assert after.params == func.params
    assert after.attrs["bounds"] == (2, 0)


def test_a_condition_on_sizes_chooses_between_two_versions():
    """If an access is in bounds for all but some sizes, one version of its loop has no checks."""
    func = flatten_and_simplify(body("for i in range(n * 16): A[i] = C[i]"))
    after = ProveBounds()(func)
    assert "if n * 16" in after.script()
    for n in (0, 1, 2):
        _, record = outcome_of(after, (n, 0), 0)
        assert not record.any()
    _, record = outcome_of(after, (3, 0), 0)
    assert record[:3].tolist() == [SITE + 1, 40, 40]


def test_clamped_coordinates_need_sizes_of_at_least_one():
    """A clamp to an empty dim gives 0, which is out of bounds. No other check is left."""
    func = body(
        "D = T.alloc_buffer((n * m,), 'float32')\n"
        "for i, j in T.grid(8, 6):\n"
        "    C[i] = D[m * T.max(T.min(n - 1, (i * n + 3) // 8), 0)"
        " + T.max(T.min(m - 1, (j * m + 2) // 6), 0)]"
    )
    (access,) = prove(flatten_and_simplify(func)).open
    assert access.when is not None
    assert sorted(str(part) for part in conjuncts(access.when)) == ["m >= 1", "n >= 1"]


INDEXED = """
@T.prim_func
def f(A: T.Buffer((8, 16), "float32"), I: T.Buffer((6,), "int64"), B: T.Buffer((6, 16), "float32")):
    T.func_attr({"index_checks": {1: "index: gather"}})
    for i in range(6):
        for j in range(16):
            B[i, j] = A[T.max(T.min(T.report_index(I[i], 8, 1), 7), 0), j]
"""


def test_indices_that_are_data_are_checked_once_for_all_that_use_them():
    after = ProveBounds()(parse_func(INDEXED))
    assert "report_index" not in after.script()
    lines = after.script().splitlines()
    check = next(k for k, line in enumerate(lines) if "if not" in line)
    inner = next(k for k, line in enumerate(lines) if "for j" in line)
    assert check < inner
    a, out, record = np.ones((8, 16), np.float32), np.zeros((6, 16), np.float32), np.zeros(RECORD, np.int64)
    run(after, a, np.array([0, 7, -8, -1, 3, 3]), out, record, SITE)
    assert not record.any()
    run(after, a, np.array([0, 7, -9, -1, 8, 3]), out, record, SITE)
    assert record[:3].tolist() == [SITE + 1, -9, 8]


VECTORS = """
@T.prim_func
def f(A: T.Buffer((8,), "float32"), I: T.Buffer((n,), "int64"), B: T.Buffer((n,), "float32"), n: T.int64):
    T.func_attr({"index_checks": {1: "index: gather"}})
    for k in range(n // 4):
        for j in range(3):
            B[j] = A[T.max(T.min(T.report_index(I[3], 8, 1), 7), 0)]
"""


@pytest.mark.parametrize("n", [0, 3, 4])
def test_checks_before_a_loop_read_only_if_it_runs(n):
    after = ProveBounds()(parse_func(VECTORS))
    index = np.full(n, 9, np.int64)
    record = np.zeros(RECORD, np.int64)
    run(after, np.ones(8, np.float32), index, np.zeros(n, np.float32), record, n, SITE)
    assert record[:3].tolist() == ([SITE + 1, 9, 8] if n == 4 else [0, 0, 0])
    assert after.attrs["bounds"][1] == 0


def test_indices_that_are_data_may_go_unchecked():
    with PassContext(config={"check_indices": False}) as context:
        after = ProveBounds()(parse_func(INDEXED), context)
    assert "report_index" not in after.script()
    assert len(after.params) == 3
    out = np.zeros((6, 16), np.float32)
    a = np.arange(8, dtype=np.float32)[:, None] * np.ones(16, np.float32)
    run(after, a, np.array([0, 7, -9, -1, 8, 3]), out)
    assert out[:, 0].tolist() == [0, 7, 0, 0, 7, 3]


STAGES = {
    "lower_blocks": lower_blocks,
    "flatten": flatten_and_simplify,
    "vectorize": vectorize_loops,
    "unroll": unroll_loops,
    "strided": group_strided,
    "hoist": hoist_workspace,
}


def first_open(seed: int) -> str:
    """The first pass after which accesses of a randomly scheduled program are not proved."""
    rng = random.Random(seed)
    program = random_te_program(rng)
    func = random_schedule(program.func, rng, intrins=(TINY, TINY_EXTERN)).sch.func
    for name, stage in STAGES.items():
        func = stage(func)
        for access in prove(func).open:
            if not loads_in(*access.indices):
                return f"seed {seed}, {name}: {access}\n{func.script()}"
    return ""


def test_every_pass_keeps_proved_accesses():
    assert [found for found in map(first_open, range(60)) if found] == []


@pytest.mark.slow
def test_every_pass_keeps_proved_accesses_of_many_programs():
    """Proofs are not complete: in 1% of the programs, sums of products of symbolic tile sizes (minima and
    quotients of dims) are not proved."""
    found = [found for found in map(first_open, range(60, 900)) if found]
    assert len(found) <= 8, "\n".join(found)


def shifted(source: str, rng: random.Random) -> str:
    """A program with one number of its body changed by a little."""
    start = source.index("):\n")
    numbers = list(re.finditer(r"(?<![\w.])\d+(?![\w.])", source[start:]))
    if not numbers:
        return source
    chosen = rng.choice(numbers)
    value = max(0, int(chosen.group()) + rng.choice((-2, -1, 1, 2, 16)))
    return source[: start + chosen.start()] + str(value) + source[start + chosen.end() :]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000))
def test_proved_accesses_are_in_bounds(seed):
    """Programs with a number changed at random stay in bounds if all their accesses are proved."""
    rng = random.Random(seed)
    program = random_te_program(rng)
    plain = flatten_and_simplify(lower_blocks(random_schedule(program.func, rng, 6).sch.func))
    try:
        broken = parse_func(shifted(plain.script(), rng))
    except DlcError:  # a number of the syntax, such as that of lanes
        return
    by_name = {var.name: size for var, size in program.sizes.items()}
    values = {v: const(by_name.get(v.name, 3)) for v in broken.scalars}
    counts = [const_value(Analyzer().simplify(substitute(b.shape[0], values))) for b in broken.buffers]
    if any(count is None or count < 0 for count in counts):
        return
    arrays = [np.zeros(count, b.dtype.numpy) for count, b in zip(counts, broken.buffers, strict=True)]
    found = prove(broken)
    outside = ""
    try:
        run(broken, *arrays, *(by_name.get(v.name, 3) for v in broken.scalars))
    except RuntimeFailure as error:
        outside = str(error)
    assert found.open or not re.search("outside|shape", outside), f"{outside}\n{broken.script()}"


def test_results_of_random_programs_stay(random_program):
    check_results(ProveBounds(), lower_blocks(random_program))


def test_kernel_parameters_are_no_larger_than_arguments():
    """A parameter of a called kernel is no larger than what is passed for it."""
    module = """
@ir_module
class M:
    @T.prim_func
    def kernel(a: T.Buffer((n, 4), "float32"), b: T.Buffer((n * 4,), "float32"), n: T.int64):
        for i in range(n * 4): b[i] = a[i // 4, i % 4]

    @T.prim_func
    def main(x: T.Buffer((m, 8), "float32"), y: T.Buffer((m, 8), "float32"), m: T.int64):
        T.call_kernel("kernel", T.address_of(x), T.address_of(y), COUNT)
"""
    for count, fits in (("m * 2", True), ("m", True), ("m * 2 + 1", False), ("m * 3", False)):
        made = parse_module(module.replace("COUNT", count))
        found = prove(made["main"], made.functions)
        assert (not found.open) is fits, count
        assert found.proved + len(found.open) == 2


def parse_module(source: str) -> IRModule:
    from dlc_core.script import parse

    made = parse(source)
    assert isinstance(made, IRModule)
    return made


OVERFLOWS = {
    "sum": ("if v >= 0 and w >= 0 and v + w < 8:", "    B[i] = A[v]"),
    "negated": (
        "if v >= 0 and w >= 0:",
        "    if v + w >= 8:",
        "        B[i] = 1",
        "    else:",
        "        B[i] = A[v]",
    ),
    "named": ("u = T.let(v + w)", "if v >= 0 and w >= 0 and u < 8:", "    B[i] = A[v]"),
    "loop": ("if v >= 0 and w >= 0:", "    for k in range(8 - v - w):", "        B[i] = A[v]"),
    "product": ("if v >= 0 and v * 4 < 32:", "    B[i] = A[v]"),
    "narrow": (
        "x = T.let(N[i])",
        "if x >= T.int32(0) and x + T.int32(5) < T.int32(8):",
        "    B[i] = A[T.cast(x, 'int64')]",
    ),
    "clamped": ("if v >= 0 and w >= 0:", "    B[i] = A[T.min(v + w, 7)]"),
    "far": (f"if v >= -{1 << 62} and v < {3 << 61}:", "    B[i] = A[v]"),
}


@pytest.mark.parametrize("name", OVERFLOWS)
def test_conditions_that_may_wrap_around_prove_nothing(name):
    func = parse_func(
        """
@T.prim_func
def f(A: T.Buffer((8,), "int64"), I: T.Buffer((8,), "int64"), J: T.Buffer((8,), "int64"),
      N: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int64")):
    for i in range(8):
        v = T.let(I[i])
        w = T.let(J[i])
"""
        + "".join(f"        {line}\n" for line in OVERFLOWS[name])
    )
    assert [str(access.buffer.name) for access in prove(func).open] == ["A"]


def test_a_program_has_a_budget_of_steps(monkeypatch):
    """Accesses after the last step have no proof, so that they are checked."""
    func = body("for i in range(n * 16): A[i] = B[i]")
    assert not prove(func).open
    monkeypatch.setattr("dlc_core.passes.tir.bounds.prover.MAX_STEPS", -1)
    assert {access.buffer.name for access in prove(func).open} == {"A", "B"}
