"""Golden files with the LLVM IR of representative kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_llvm.codegen import LlvmCodegen

from dlc_core.driver import context_for, find_target
from dlc_core.driver.stages import lower
from dlc_core.graph.node import Node, constant, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.testing import Golden
from dlc_core.testing.cases import module_of
from dlc_core.tir.stmt import PrimFunc

TARGET = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64-v3 -num-threads=2"

Built = tuple[Node, list[Node]]


def matmul_relu() -> Built:
    x = param("x", tensor_type((12, 24)))
    return std.relu(std.matmul(x, constant(np.ones((24, 16), np.float32)))), [x]


def conv() -> Built:
    x = param("x", tensor_type((1, 4, 6, 6)))
    return std.conv(x, constant(np.ones((8, 4, 3, 3), np.float32)), padding=(1, 1, 1, 1)), [x]


def softmax() -> Built:
    x = param("x", tensor_type((Var("rows"), 20)))
    return std.softmax(x), [x]


def chain() -> Built:
    x, y = param("x", tensor_type((30, 7))), param("y", tensor_type((7,)))
    return std.tanh(std.add(x, y)), [x, y]


def row_sums() -> Built:
    x = param("x", tensor_type((5, 33), "float16"))
    return std.reduce_sum(x, axes=(1,)), [x]


def logic() -> Built:
    x, y = param("x", tensor_type((19,), "int8")), param("y", tensor_type((19,), "bool"))
    return std.logical_and(std.less(x, constant(np.int8(3))), y), [x, y]


KERNELS = (matmul_relu, conv, softmax, chain, row_sums, logic)


def text_of(build: Callable[[], Built], *, kernels_only: bool = True) -> str:
    """The IR of a graph, optionally only of its kernels, without entry points."""
    target = find_target(TARGET)
    body, params = build()
    module, _ = lower(module_of(body, params), context_for(target))
    if kernels_only:
        funcs = module.of_kind(PrimFunc)
        module = IRModule({n: f for n, f in funcs.items() if not f.attrs.get("entry")})
    text = LlvmCodegen().emit(module, target).sources["llvm"]
    text = text if isinstance(text, str) else text()
    assert "define internal void @fused_" in text
    return text


@pytest.mark.parametrize("build", KERNELS, ids=lambda f: f.__name__)
def test_text_is_the_golden_one(build: Callable[[], Built], bless: bool) -> None:
    Golden(Path(__file__).parent / "golden", bless).check(f"{build.__name__}.ll", text_of(build))


@pytest.mark.parametrize("build", KERNELS, ids=lambda f: f.__name__)
def test_text_is_deterministic(build: Callable[[], Built]) -> None:
    assert text_of(build, kernels_only=False) == text_of(build, kernels_only=False)


def test_code_is_deterministic() -> None:
    target = find_target(TARGET)
    objects = []
    for _ in range(2):
        body, params = conv()
        module, _ = lower(module_of(body, params), context_for(target))
        objects.append(LlvmCodegen().emit(module, target).code)
    assert objects[0] == objects[1]
