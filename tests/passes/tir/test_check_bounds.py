"""Checks at run time report accesses out of bounds, and no other accesses."""

from __future__ import annotations

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import driver
from dlc_core.config import config
from dlc_core.diag import RuntimeFailure
from dlc_core.passes import PassContext
from dlc_core.passes.tir.check_bounds import CheckBounds
from dlc_core.passes.tir.lower_blocks import lower_blocks
from dlc_core.testing.prim_passes import check_results, check_unchanged, parse_func
from dlc_core.tir.failures import RECORD, SITE
from dlc_core.tir.interpreter import run


def test_results_of_random_programs_stay(random_program):
    check_results(CheckBounds(), lower_blocks(random_program))


def test_does_not_check_accesses_that_are_proved():
    check_unchanged(
        CheckBounds(),
        """
        @T.prim_func
        def f(A: T.Buffer((8, n), "float32"), B: T.Buffer((4,), "float32"), n: T.int64):
            for i in range(8):
                for j in range(n):
                    if i >= 2 and j + 1 < n:
                        A[i - 2, j + 1] = T.if_then_else(j < 4, B[j], A[i, j])
        """,
    )


PROGRAMS = {
    "load": ("B[i] = A[i + k]", "f loads A[i + k] of A: int32[8]", 8),
    "store": ("B[i - k] = A[i]", "f stores to B[i - k] of B: int32[8]", -1),
    "gather": ("B[i] = A[A[i] + k * 4]", "f loads A[cast(int64, A[i]) + k * 4]", None),
    "guarded": ("B[i] = T.if_then_else(k > 0, A[i + k * 7], A[i])", "f loads A[i + k * 7]", 8),
    "condition": ("if A[i + k * 2] > 3: B[i] = 1", "f loads A[i + k * 2]", 8),
    "value": ("x = T.let(A[i + k]); B[i] = x", "f loads A[i + k]", 8),
    "extent": ("for j in range(A[i + k]): B[i] = 1", "f loads A[i + k]", 8),
    "vector": (
        "B[T.ramp(0, 1, 4)] = A[T.ramp(i // 2 + k * 2, 1, 4)]",
        "f loads A[ramp(i // 2 + k * 2, 1, 4)]",
        8,
    ),
    "while": ("while A[i + k] < B[i] * 100: B[i] = 0", "f loads A[i + k]", 8),
}


def faulty(line: str) -> str:
    body = line.replace("; ", "\n        ").replace(": B", ":\n            B")
    return f"""
@T.prim_func
def f(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32"), k: T.int64):
    for i in range(8):
        {body}
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_errors_name_the_access_out_of_bounds(name):
    line, about, index = PROGRAMS[name]
    func = parse_func(faulty(line.replace("int64", "int32").replace("A[i] + k", "T.cast(A[i], 'int64') + k")))
    checked = CheckBounds()(func)
    a = np.arange(8, dtype="int32")
    plain, kept, record = np.ones(8, "int32"), np.ones(8, "int32"), np.zeros(RECORD, "int64")
    run(func, a, plain, 0)
    run(checked, a, kept, record, 0, SITE)
    assert kept.tolist() == plain.tolist()
    assert not record.any()
    run(checked, a, np.ones(8, "int32"), record, 1, SITE)
    where, found, extent, _ = record
    assert about in checked.attrs["checks"][where - SITE]
    assert extent == 8
    assert found == index if index is not None else found >= 8


def gather() -> str:
    return """
@T.prim_func
def pick(A: T.Buffer((8, 4), "float32"), I: T.Buffer((6,), "int32"), B: T.Buffer((6, 4), "float32")):
    for i in T.parallel(6):
        for j in T.vectorized(4):
            B[i, j] = A[I[i], j] * T.float32(2.0)
"""


def test_native_code_reports_program_buffer_index_and_extent():
    exe = dlc.build(parse_func(gather()), config={"check_bounds": True})
    a = np.arange(32, dtype="float32").reshape(8, 4)
    good, bad = np.array([0, 7, 2, 3, 4, 5], "int32"), np.array([0, 7, 2, 9, 4, 5], "int32")
    assert np.array_equal(exe(a, good), a[good] * 2)
    bound = exe.bind([a, bad], None)
    for call in (lambda: exe(a, bad), bound):
        with pytest.raises(RuntimeFailure) as caught:
            call()
        assert "pick loads A[I[i], j] of A: float32[8, 4]" in caught.value.what
        assert caught.value.why == "its index is 9, the extent 8"
    # A failure does not affect later calls.
    assert np.array_equal(exe(a, good), a[good] * 2)


def test_checks_are_kept_with_the_artefact(tmp_path):
    exe = dlc.build(parse_func(gather()), config={"check_bounds": True})
    exe.save(tmp_path / "pick.dlc")
    opened = dlc.open(tmp_path / "pick.dlc")
    with pytest.raises(RuntimeFailure, match="pick loads A"):
        opened(np.zeros((8, 4), "float32"), np.full(6, -1, "int32"))


def test_runs_if_the_setting_is_on():
    target = driver.find_target(None)

    def runs(context: PassContext) -> bool:
        return "check_bounds" in str(driver.pipelines(target, context)["tir"])

    assert not runs(driver.context_for(target))
    assert runs(driver.context_for(target, config={"check_bounds": True}))
    with PassContext(config={"check_bounds": True}):
        assert runs(driver.context_for(target))
    with config.override(check_bounds=True):
        assert runs(driver.context_for(target))
        assert not runs(driver.context_for(target, config={"check_bounds": False}))


def test_a_program_keeps_its_own_codes():
    """The codes of accesses follow those of indices. Equal texts share a code."""
    func = parse_func(faulty("B[i] = A[i + k]")).with_attrs(index_checks={1: "index: gather"})
    assert CheckBounds()(func).attrs["checks"] == {
        1: "index: gather",
        2: "access: f loads A[i + k] of A: int32[8]",
    }
