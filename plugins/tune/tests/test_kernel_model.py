"""The model of one kernel, and the values of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from dlc_tune.measuring.build import compiled
from dlc_tune.measuring.comparing import disagreement
from dlc_tune.measuring.job import Job
from dlc_tune.measuring.kernel import inputs_of, kernel_module
from dlc_tune.task import kernel_key

import dlc_core as dlc
from dlc_core import te
from dlc_core.diag import DlcError, UsageError
from dlc_core.ir.expr import Var
from dlc_core.passes import PassContext
from dlc_core.plugin.registry import registry
from dlc_core.testing.cases import op_cases
from dlc_core.testing.networks import NETWORKS
from dlc_core.tir.stmt import PrimFunc

TARGET = "llvm -num-threads=1"


def kernels_of(model: Any) -> list[PrimFunc]:
    """The kernels of a model before they are scheduled."""
    found: list[PrimFunc] = []
    with PassContext(tuner=lambda func, _: found.append(func)):
        dlc.compile(model, TARGET, cache=False)
    return found


def kernel_of(op: str, sample: int = 0) -> PrimFunc:
    return kernels_of(list(op_cases(registry().ops[op]))[sample].module)[0]


def runs(func: PrimFunc, sizes: dict[str, int] | None = None, opt_level: int = 3) -> Sequence[np.ndarray]:
    module = kernel_module(func, 0, sizes)
    exe = dlc.compile(module, TARGET, cache=False, opt_level=opt_level)
    found = exe(*inputs_of(func, 0, sizes))
    return found if isinstance(found, tuple) else (found,)


def test_compiles_to_the_kernels_of_its_model() -> None:
    for func in kernels_of(NETWORKS["keywords"]()):
        (again,) = kernels_of(kernel_module(func))
        assert kernel_key(again) == kernel_key(func)


def test_constants_of_the_model_stay_constants() -> None:
    func = kernels_of(NETWORKS["keywords"]())[0]
    assert func.attrs["constants"] == (1, 2)
    assert [each.shape for each in inputs_of(func)] == [(1, 49, 10, 1)]
    assert compiled(Job(func, TARGET)).explain().kernels[0].plan  # it packs its weights


def test_a_kernel_keeps_its_plan() -> None:
    func = kernel_of("attention")
    (kernel,) = dlc.compile(kernel_module(func), TARGET, cache=False).explain().kernels
    assert kernel.rule == "cpu.attention"


def test_equal_seeds_give_equal_values() -> None:
    func = kernel_of("gather")
    first, again, other = inputs_of(func, 3), inputs_of(func, 3), inputs_of(func, 4)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("op", ["gather", "gather_nd", "scatter_nd", "gather_elements", "scatter_elements"])
def test_indices_are_in_range(op: str) -> None:
    func = kernel_of(op)
    assert disagreement(runs(func), runs(func, opt_level=0)) == ""


def test_indices_are_not_all_equal_where_their_range_is_clear() -> None:
    x, at = te.placeholder((50, 4), name="x"), te.placeholder((200,), "int64", name="at")
    picked = te.compute((200, 4), lambda i, j: x[at[i], j], "picked")
    found = inputs_of(te.create_prim_func([x, at], [picked], "pick"))[1]
    assert set(found.tolist()) == set(range(50))


def test_divisors_are_not_zero_and_shifts_not_too_far() -> None:
    x = te.placeholder((4096,), "int32", name="x")
    by, far = te.placeholder((4096,), "int8", name="by"), te.placeholder((4096,), "int32", name="far")
    done = te.compute((4096,), lambda i: te.truncdiv(x[i], by[i].astype("int32")), "done")
    moved = te.compute((4096,), lambda i: done[i] >> far[i], "moved")
    _, divisors, distances = inputs_of(te.create_prim_func([x, by, far], [moved], "divide"))
    assert divisors.min() >= 1
    assert distances.min() >= 0
    assert distances.max() < 32


@pytest.mark.parametrize(
    ("dtype", "scalar"),
    [
        ("float16", np.float16),
        ("bfloat16", ml_dtypes.bfloat16),
        ("float8_e4m3fn", ml_dtypes.float8_e4m3fn),
        ("int8", np.int8),
        ("uint8", np.uint8),
        ("bool", np.bool_),
    ],
)
def test_values_have_the_dtype_and_its_range(dtype: str, scalar: Any) -> None:
    x = te.placeholder((4096,), dtype, name="x")
    (found,) = inputs_of(te.create_prim_func([x], [te.compute((4096,), lambda i: x[i], "y")], "copy"))
    assert found.dtype == np.dtype(scalar)
    wide = found.astype(np.float32)
    if dtype in ("int8", "uint8"):
        assert (wide.min(), wide.max()) == ((-128, 127) if dtype == "int8" else (0, 255))
    elif dtype == "bool":
        assert set(wide.tolist()) == {0.0, 1.0}
    else:
        assert abs(wide.mean()) < 0.1
        assert 0.9 < wide.std() < 1.1


def test_results_of_long_sums_are_of_magnitude_one() -> None:
    x, w = te.placeholder((8, 10000), name="x"), te.placeholder((10000, 8), name="w")
    k = te.reduce_axis((0, 10000), "k")
    func = te.create_prim_func(
        [x, w], [te.compute((8, 8), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), "y")], "product"
    )
    assert 0.5 < np.std(runs(func)[0]) < 2


def test_symbolic_dims_have_the_given_sizes() -> None:
    n = Var("n")
    x = te.placeholder((n, 3), name="x")
    func = te.create_prim_func([x], [te.compute((n, 3), lambda i, j: x[i, j] * 2.0, "y")], "double")
    assert runs(func, {"n": 7})[0].shape == (7, 3)
    assert runs(func, {"n": 12})[0].shape == (12, 3)
    with pytest.raises(UsageError, match="no size for the dim 'n'"):
        inputs_of(func)


def test_dims_of_results_alone_are_given_by_a_further_input() -> None:
    n = Var("n")
    x = te.placeholder((3,), name="x")
    func = te.create_prim_func([x], [te.compute((n, 3), lambda i, j: x[j] + 1.0, "y")], "repeat")
    assert [each.shape for each in inputs_of(func, 0, {"n": 5})] == [(3,), (5,)]
    assert runs(func, {"n": 5})[0].shape == (5, 3)


def test_a_kernel_that_reads_its_results_first_is_refused() -> None:
    with pytest.raises(DlcError, match="in place"):
        compiled(Job(kernel_of("inverse"), TARGET))
