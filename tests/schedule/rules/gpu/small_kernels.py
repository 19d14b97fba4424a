"""Small kernels of odd sizes, of each kind that the rules know, with machines that are quick to interpret."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dlc_core.graph.node import Node
from dlc_core.ir.expr import Var
from dlc_core.op import std
from dlc_core.target import Description
from dlc_core.testing.schedules import kernel_of
from dlc_core.tir.stmt import PrimFunc
from tests.algorithms.attention import test_gpu_matrix_rule, test_gpu_rule
from tests.schedule.rules.gpu.machines import QUICK, USUAL
from tests.schedule.rules.gpu.test_contraction import TINY, product, tensor
from tests.schedule.rules.gpu.test_matrix import PLACES
from tests.schedule.rules.gpu.test_matrix import TINY as UNITS
from tests.schedule.rules.gpu.test_skinny_gemm import transposed

M, N = Var("m"), Var("n")
DEEP = replace(UNITS, pipeline_stages=4)
"""Matrix units, and asynchronous copies over several stages."""


@dataclass(frozen=True)
class Case:
    """A kernel, which is made on demand, a machine, and values of symbolic sizes."""

    make: Callable[[], PrimFunc]
    machine: Description
    sizes: dict[Var, int] = field(default_factory=dict)
    besides: str = ""
    """Decisions that are forced so that others have alternatives."""


def _kernel(make: Callable[[], Node]) -> Callable[[], PrimFunc]:
    return lambda: kernel_of(make())


def _biased(m: object, n: int, k: int, dtype: str = "float32") -> Node:
    made = product(m, n, k, dtype=dtype)
    return std.relu(std.add(made, tensor(n, name="b", dtype=dtype)))


def _conv(dtype: str = "float32") -> Node:
    x, w = tensor(1, 4, 5, 4, dtype=dtype), tensor(3, 3, 4, 6, name="w", dtype=dtype)
    made = std.conv(x, w, strides=(2, 1), padding=(1, 2, 1, 2), layout="NXC", kernel_layout="XIO")
    return std.relu(made)


def _depthwise() -> Node:
    x, w = tensor(1, 5, 8, 8), tensor(3, 3, 1, 8, name="w")
    made = std.conv(x, w, groups=8, padding=(1, 1, 1, 1), layout="NXC", kernel_layout="XIO")
    return std.relu(std.add(made, tensor(8, name="b")))


def _pool() -> Node:
    return std.max_pool(
        tensor(1, 9, 8, 12), kernel=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1), layout="NXC"
    )


def _norm() -> PrimFunc:
    x, scale, shift = tensor(3, 36), tensor(36, name="s"), tensor(36, name="b")
    return kernel_of(std.gelu(std.add(std.layer_norm(x, scale, shift, axis=-1), x)), [x, scale, shift])


def _mean_of_squares(*shape: object, axis: int) -> Node:
    x = tensor(*shape)
    return std.sqrt(std.reduce_mean(std.mul(x, x), axes=(axis,)))


def _split(m: int, n: int, k: int) -> Node:
    return std.relu(product(m, n, k, dtype="float16"))


CASES: dict[str, Case] = {
    "product": Case(_kernel(lambda: _biased(9, 11, 37)), TINY),
    "small product": Case(_kernel(lambda: _biased(5, 6, 12)), TINY),
    "thin product": Case(_kernel(lambda: product(17, 3, 8)), TINY),
    "plain product": Case(_kernel(lambda: product(7, 5, 16)), TINY),
    "batches": Case(_kernel(lambda: product(5, 6, 9, 2)), TINY),
    "unknown rows": Case(_kernel(lambda: _biased(M, 9, 12)), TINY, {M: 13}),
    "convolution": Case(_kernel(_conv), TINY),
    "units": Case(_kernel(lambda: _biased(9, 11, 40, "float16")), DEEP),
    "small units": Case(
        _kernel(lambda: product(9, 4, 40, dtype="float16")), DEEP, besides="gpu.tile=8x4x16/1x1"
    ),
    "units of many steps": Case(_kernel(lambda: _split(9, 4, 256)), DEEP),
    "units in place": Case(_kernel(lambda: _split(9, 60, 34)), PLACES),
    "convolution by units": Case(_kernel(lambda: _conv("float16")), DEEP),
    "few rows": Case(_kernel(lambda: std.relu(std.add(product(3, 12, 64), tensor(12, name="b")))), QUICK),
    "few rows transposed": Case(_kernel(lambda: std.relu(transposed(2, 11, 64))), QUICK),
    "softmax": Case(_kernel(lambda: std.softmax(tensor(6, 36))), QUICK),
    "softmax over columns": Case(_kernel(lambda: std.softmax(tensor(13, 10), axis=0)), QUICK),
    "softmax of unknown rows": Case(_kernel(lambda: std.softmax(tensor(M, 12))), QUICK, {M: 7}),
    "softmax of unknown length": Case(_kernel(lambda: std.softmax(tensor(3, N))), QUICK, {N: 45}),
    "layer norm": Case(_norm, QUICK),
    "sums of rows": Case(_kernel(lambda: _mean_of_squares(12, 40, axis=1)), QUICK),
    "sums of columns": Case(_kernel(lambda: _mean_of_squares(21, 35, axis=0)), QUICK),
    "sum": Case(_kernel(lambda: std.reduce_sum(tensor(77))), QUICK),
    "short columns": Case(_kernel(lambda: _mean_of_squares(17, 9, axis=0)), USUAL),
    "softmax on a larger machine": Case(_kernel(lambda: std.softmax(tensor(19, 12), axis=0)), USUAL),
    "sums on a larger machine": Case(_kernel(lambda: _mean_of_squares(5, 40, axis=1)), USUAL),
    "argmax": Case(_kernel(lambda: std.argmax(tensor(5, 33), axis=1)), QUICK),
    "attention": Case(lambda: test_gpu_rule.kernel(9, 21, 5, 7), QUICK),
    "causal attention": Case(lambda: test_gpu_rule.kernel(9, 17, causal=True), QUICK),
    "attention by units": Case(
        lambda: test_gpu_matrix_rule.kernel(9, 21, 5, 7), test_gpu_matrix_rule.SMALL
    ),
    "elementwise": Case(
        _kernel(lambda: std.relu(std.add(tensor(7, 12), tensor(12, name="y")))), QUICK
    ),
    "elementwise of odd rows": Case(_kernel(lambda: std.mul(tensor(5, 9), tensor(9, name="y"))), QUICK),
    "elementwise of unknown sizes": Case(
        _kernel(lambda: std.add(tensor(M, N), tensor(N, name="y"))), QUICK, {M: 5, N: 7}
    ),
    "transposition": Case(_kernel(lambda: std.exp(std.transpose(tensor(3, 5, 8), axes=(2, 0, 1)))), QUICK),
    "depthwise": Case(_kernel(_depthwise), QUICK),
    "pooling": Case(_kernel(_pool), QUICK),
}  # fmt: skip

__all__ = ["CASES", "Case"]
