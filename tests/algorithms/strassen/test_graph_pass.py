"""strassen: the GEMMs with constant matrices that use Strassen's algorithm."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.algorithms.strassen.graph_pass import Strassen
from dlc_core.graph.node import constant, param, post_order
from dlc_core.ir.bounds import Bounds
from dlc_core.ir.expr import Var
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes import PassContext
from dlc_core.passes.graph import FoldConstants
from dlc_core.target import Description, Target, TargetKind

RNG = np.random.default_rng(5)
CACHES = (32 << 10, 1 << 20, 32 << 20)
ALONE = {"vector_bits": 512, "vector_registers": 32, "vector_units": 1, "cores": 1}


def context(precision="fast", **facts):
    record = Description(**{**ALONE, **facts})
    kind = TargetKind("machine", "a test", "none", "none", describe=lambda options: record)
    return PassContext(target=Target(kind), config={"precision": precision})


def product(*lead, inner=256, columns=256, dtype="float32", **attrs):
    shape = (columns, inner) if attrs.get("transpose_b") else (inner, columns)
    weights = constant(RNG.standard_normal(shape) / np.sqrt(inner), dtype)
    return std.matmul(param("x", tensor_type((*lead, inner), dtype)), weights, **attrs)


def pixels(*, size=14, inputs=512, outputs=1024, window=1, bias=False, layout="NXC", **attrs):
    """A convolution, by default with windows of one pixel."""
    last = layout == "NXC"
    shape = (1, size, size, inputs) if last else (1, inputs, size, size)
    inner = inputs // attrs.get("groups", 1)
    w = (window, window, inner, outputs) if last else (outputs, inner, window, window)
    weights = [constant(RNG.standard_normal(w) / np.sqrt(inputs), "float32")]
    if bias:
        weights.append(constant(RNG.standard_normal(outputs), "float32"))
    x = param("x", tensor_type(shape))
    return std.conv(x, *weights, layout=layout, kernel_layout="XIO" if last else "OIX", **attrs)


NAMES = {"matmul", "conv", "strassen_matmul", "slice", "concat", "relu", "add"}


def ops(function):
    """The names of the ops, without scaling ones."""
    return [n.op.name for n in post_order(function.body) if n.op.name in NAMES]


def product_of(function):
    return next(n for n in post_order(function.body) if n.op.name == "strassen_matmul")


@pytest.mark.parametrize("lead", [(64,), (1, 64), (5, 3, 9), (Var("n"),), (Var("b"), Var("n"))])
def test_a_large_product_uses_strassens_algorithm(checked, lead):
    y = std.relu(product(*lead, inner=1024, columns=512))
    assert ops(checked([Strassen(), FoldConstants()], y, context=context())) == ["strassen_matmul", "relu"]


@pytest.mark.parametrize(
    ("lead", "inner", "columns", "levels"),
    [
        ((128,), 768, 3072, 2),
        ((1, 197), 768, 768, 2),
        ((128,), 768, 3072 + 96, 1),
        ((128,), 800, 3072, 1),
        ((28,), 768, 3072, 1),
        ((Var("n"),), 768, 3072, 1),
    ],
)
def test_chooses_two_levels_by_predicted_cycles(checked, lead, inner, columns, levels):
    y = std.relu(product(*lead, inner=inner, columns=columns))
    found = checked([Strassen(), FoldConstants()], y, context=context(caches=CACHES))
    assert ops(found) == ["strassen_matmul", "relu"]
    assert product_of(found).attrs["levels"] == levels


def test_cores_that_multiply_fast_gain_less(checked):
    y = product(1, 197, inner=768, columns=3072)
    for units, wanted in ((1, ["strassen_matmul"]), (2, ["matmul"])):
        made = context(vector_units=units, caches=CACHES)
        assert ops(checked([Strassen(), FoldConstants()], y, context=made)) == wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (pixels(), ["strassen_matmul"]),
        (pixels(bias=True), ["strassen_matmul", "add"]),
        (pixels(size=27, strides=(2, 2), bias=True), ["slice", "strassen_matmul", "add"]),
        (pixels(padding=(0, 0, 0, 0), dilation=(2, 2)), ["strassen_matmul"]),
    ],
    ids=["plain", "bias", "steps", "attributes that change nothing"],
)
def test_convolutions_of_one_pixel_are_gemms(checked, value, wanted):
    found = checked([Strassen(), FoldConstants()], std.relu(value), context=context(caches=CACHES))
    assert ops(found) == [*wanted, "relu"]
    assert product_of(found).attrs["levels"] == 2
    assert product_of(found).shape == value.shape


@pytest.mark.parametrize(("cores", "size", "inputs", "outputs"), [(1, 28, 512, 512), (2, 14, 1024, 256)])
def test_splits_rows_into_blocks_by_predicted_cycles(checked, cores, size, inputs, outputs):
    """Rows that exceed L2, and rows that threads have written."""
    y = pixels(size=size, inputs=inputs, outputs=outputs)
    found = checked([Strassen(), FoldConstants()], y, context=context(caches=CACHES, cores=cores))
    assert ops(found) == ["strassen_matmul"]
    block = product_of(found).attrs["block"]
    assert block
    assert size * size % (block * cores) == 0


@pytest.mark.parametrize(("units", "inner", "block"), [(1, 1024, 64), (2, 2048, 128), (2, 128, None)])
def test_symbolic_rows_are_split_into_the_smallest_faster_blocks(checked, units, inner, block):
    """With fast multiplications, sums of submatrices need more rows to pay, or never pay."""
    y = product(Var("n"), inner=inner, columns=1024)
    found = checked([Strassen(), FoldConstants()], y, context=context(vector_units=units, caches=CACHES))
    assert ops(found) == ["matmul" if block is None else "strassen_matmul"]
    if block is not None:
        assert product_of(found).attrs["block"] == block


@pytest.mark.parametrize(("most", "block"), [(127, None), (128, 64), (4096, 64)])
def test_rows_of_one_block_are_not_divided(checked, most, block):
    y = product(Var("n", bounds=Bounds(0, most)), inner=1024, columns=1024)
    found = checked([Strassen(), FoldConstants()], y, context=context(caches=CACHES))
    assert ops(found) == ["matmul" if block is None else "strassen_matmul"]
    if block is not None:
        assert product_of(found).attrs["block"] == block


@pytest.mark.parametrize(("size", "cores", "op"), [
    (7, 1, "conv"), (10, 1, "strassen_matmul"), (8, 2, "conv"), (10, 2, "strassen_matmul"),
])  # fmt: skip
def test_memory_bound_gemms_are_unchanged(checked, size, cores, op):
    """GEMMs of few rows are memory-bound, above all on several cores."""
    y = pixels(size=size, inputs=2048, outputs=2048)
    found = checked(
        [Strassen(), FoldConstants()], y, context=context(vector_units=2, caches=CACHES, cores=cores)
    )
    assert ops(found) == [op]


def test_weights_are_transposed_at_compile_time(checked):
    y = product(64, inner=1024, columns=768, transpose_b=True)
    found = checked([Strassen(), FoldConstants()], y, context=context())
    assert ops(found) == ["strassen_matmul"]
    assert product_of(found).args[1].shape == (1024, 768)


@pytest.mark.parametrize("turned", [False, True])
def test_tail_columns_are_a_separate_gemm(checked, turned):
    """The columns after the last whole vector are computed separately."""
    y = product(64, inner=1024, columns=770, transpose_b=turned)
    found = checked([Strassen(), FoldConstants()], y, context=context())
    assert ops(found) == ["strassen_matmul", "matmul", "concat"]
    assert product_of(found).shape == (64, 768)
    assert next(n for n in post_order(found.body) if n.op.name == "matmul").shape == (64, 2)


@pytest.mark.parametrize(
    "left",
    [
        product(1, inner=1024, columns=512),
        product(64, inner=32, columns=1024),
        product(64, inner=1024, columns=32),
        product(64, inner=1040, columns=512),
        std.relu(product(64, inner=1024, columns=528)),
        product(64, inner=1024, columns=512, dtype="float64"),
        std.matmul(param("x", tensor_type((64, 1024))), param("w", tensor_type((1024, 512)))),
        pixels(window=3, padding=(1, 1, 1, 1)),
        pixels(padding=(1, 1, 1, 1)),
        pixels(groups=2),
        pixels(layout="NCX"),
        pixels(inputs=64),
    ],
    ids=[
        "one row",
        "short sums",
        "few columns",
        "odd depth",
        "odd columns",
        "wide",
        "no constant",
        "windows",
        "border",
        "groups",
        "channels first",
        "few channels",
    ],
)
def test_keeps_other_products(checked, left):
    assert "strassen_matmul" not in ops(checked([Strassen()], left, context=context()))


@pytest.mark.parametrize(
    "found",
    [
        None,
        context(vector_bits=0),
        context(thread_axes={"lane": 32}),
        context(precision="float32"),
        context(precision="bfloat16"),
        context(vector_units=8),
    ],
    ids=["no machine", "no vectors", "threads", "default", "narrow", "arithmetic costs little"],
)
def test_keeps_products_if_no_gain_is_predicted(checked, found):
    y = product(64, inner=1024, columns=512)
    assert ops(checked([Strassen()], y, **({} if found is None else {"context": found}))) == ["matmul"]


def test_keeps_matrices_near_the_ends_of_the_range(checked):
    """Their columns' factors could overflow."""
    for size, wanted in ((1.0, "strassen_matmul"), (1e20, "matmul"), (np.inf, "matmul")):
        w = RNG.standard_normal((1024, 512)).astype(np.float32)
        w[3, 5] = size
        y = std.matmul(param("x", tensor_type((64, 1024))), constant(w))
        assert ops(checked([Strassen()], y, context=context())) == [wanted]
