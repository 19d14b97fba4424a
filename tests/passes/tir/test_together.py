"""The passes one after another, as a pipeline text names them."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.ir.module import IRModule
from dlc_core.passes import PassContext, Pipeline
from dlc_core.passes.tir import PASSES
from dlc_core.passes.tir.lower_blocks import lower_blocks
from dlc_core.passes.watch import Verify
from dlc_core.testing.prim_passes import check_results, make_arguments, program, run_func

EARLY = (
    "simplify_tir | lower_blocks | rewrite_unsafe_select | hoist_conditions{max_copied=9} | partition_loops"
)
LATE = """
    remove_no_ops | vectorize_loops | unroll_loops{max_steps=12} | promote_registers | storage_rewrite
    | common_subexpressions{loads=True} | narrow_indices | remove_no_ops
"""
TEXTS = {
    "flat": f"{EARLY} | check_bounds | flatten_buffers | {LATE}",
    "dims": f"{EARLY} | {LATE}",
    "turned": f"narrow_indices | {LATE} | {EARLY}",
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("seed", range(8))
def test_results_of_random_programs_stay(name, seed):
    func = program(seed)
    pipeline = Pipeline.parse(TEXTS[name], PASSES)
    after = pipeline.run(IRModule({func.name: func}), PassContext(watchers=(Verify(),)))[func.name]
    for given in (make_arguments(func, 0), make_arguments(func, 1)):
        flat = [a.reshape(-1) if name == "flat" and isinstance(a, np.ndarray) else a for a in given]
        for old, new in zip(run_func(func, given), run_func(after, flat), strict=True):
            np.testing.assert_array_equal(new.reshape(old.shape), old)


ALONE = (
    "simplify_tir", "compact_buffers", "remove_no_ops", "hoist_conditions{max_copied=50}",
    "partition_loops{max_steps=1000}", "rewrite_unsafe_select",
    "common_subexpressions{min_ops=1, loads=True}",
    "promote_registers", "storage_rewrite", "narrow_indices", "narrow_indices{bits=8}", "check_bounds",
    "unroll_loops{max_steps=50}", "vectorize_loops",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("text", ALONE)
def test_results_of_many_random_programs_stay(text):
    (one,) = Pipeline.parse(text, PASSES)
    for seed in range(100, 400):
        func = program(seed)
        check_results(one, lower_blocks(func) if one.name in ("check_bounds", "vectorize_loops") else func)
