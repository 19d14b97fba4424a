"""Golden files with the CUDA C of representative kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

import dlc_core as dlc
from dlc_core.graph.node import param
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.script import parse
from dlc_core.testing import Golden
from dlc_core.testing.cases import module_of
from dlc_core.testing.languages import LANGUAGE, SHUFFLES, TILES

GOLDEN = Path(__file__).parent / "golden"
TARGET = "cuda_simulated -arch=sm_80"


@pytest.mark.parametrize("kernel", LANGUAGE)
def test_text_is_the_golden_one(kernel: str, bless: bool) -> None:
    text = dlc.compile(module_of(*LANGUAGE[kernel]()), TARGET, cache=False).source("cu")
    Golden(GOLDEN, bless).check(f"{kernel}.cu", text)


@pytest.mark.parametrize(("name", "script"), [("shuffles", SHUFFLES), ("tiles", TILES)])
def test_thread_kernels_are_the_golden_text(name: str, script: str, bless: bool) -> None:
    Golden(GOLDEN, bless).check(f"{name}.cu", dlc.build(parse(script), TARGET).source("cu"))


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_products_by_matrix_units(dtype: str, bless: bool) -> None:
    x, y = param("x", tensor_type((64, 64), dtype)), param("y", tensor_type((64, 64), dtype))
    made = std.matmul(x, y, out_dtype="int32" if dtype == "int8" else None)
    text = dlc.compile(module_of(made, [x, y]), TARGET, cache=False).source("cu")
    Golden(GOLDEN, bless).check(f"matrix_{dtype}.cu", text)


SHIFTED = """
@T.prim_func
def main(A: T.Buffer((33,), "float32"), B: T.Buffer((32,), "float32")):
    for t in T.thread_binding(8, thread="thread.x"):
        for v in T.vectorized(4):
            B[t * 4 + v] = A[t * 4 + v + 1]
"""


def test_vector_accesses_need_alignment() -> None:
    text = dlc.build(parse(SHIFTED), TARGET).source("cu")
    assert "*(floatx4 *)(B + t * 4) = make_floatx4(A[t * 4 + 1], A[t * 4 + 2]" in text
    assert "(const floatx4 *)" not in text


def test_products_in_place(bless: bool) -> None:
    x, y = param("x", tensor_type((128, 256), "float16")), param("y", tensor_type((256, 64), "float16"))
    module = module_of(std.matmul(x, y), [x, y])
    text = dlc.compile(module, "cuda_simulated -arch=sm_90a -units=1", cache=False).source("cu")
    assert "dlc_wgmma_f16_f16_n64_nt(" in text
    Golden(GOLDEN, bless).check("matrix_in_place.cu", text)


RESERVED = """
@T.prim_func
def main(template: T.Buffer((8,), "float32"), threadIdx: T.Buffer((8,), "float32")):
    for operator in T.thread_binding(8, thread="thread.x"):
        threadIdx[operator] = template[operator]
"""


def test_reserved_words_are_renamed() -> None:
    text = dlc.build(parse(RESERVED), TARGET).source("cu")
    assert "threadIdx_1[operator_] = template_[operator_];" in text


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("layout", ["NCX", "NXC"])
def test_windows_of_classifiers_are_proved_in_bounds(layout: str, arch: str) -> None:
    """Sizes as in AlexNet, where loops over rows and channels are fused. Smaller sizes have
    separate loops.
    """
    sizes = {"NCX": (1, 256, 12, 12), "NXC": (1, 12, 12, 256)}[layout]
    x = param("x", tensor_type(sizes, "float32"))
    pooled = std.max_pool(x, kernel=(3, 3), strides=(2, 2), ceil_mode=True, layout=layout)
    y = param("y", tensor_type((1, 54, 54, 96), "float32"))
    for module in (module_of(pooled, [x]), module_of(std.lrn(y, size=5, axis=3), [y])):
        exe = dlc.compile(module, f"cuda_simulated -arch={arch}", cache=False)
        assert exe.explain().accesses["checked"] == 0
