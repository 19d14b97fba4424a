"""NVRTC compiles all kernels of the ops' samples, of the kit's models, of classifiers and of larger models.

The larger models are ONNX files of the folder that the variable DLC_TEST_MODELS names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import dlc_core as dlc
from dlc_core import te
from dlc_core.driver import find_target
from dlc_core.op.declare import OpDecl
from dlc_core.plugin.registry import registry
from dlc_core.target import Target
from dlc_core.testing.cases import Case, op_cases, symbolic_cases
from dlc_core.testing.models import all_models

Cases = Callable[[OpDecl, tuple[str, ...]], Iterator[Case]]
DTYPES = ("float32", "float16", "int8")
CONTRACTIONS = ("gpu.attention", "gpu.attention_matrix", "gpu.contraction", "gpu.skinny_gemm", "gpu.matrix")
"""Rules whose kernels keep all their values in registers, so that they must not spill."""
PRODUCTS = (
    ("float16", "float32"),
    ("bfloat16", "float32"),
    ("float32", "float32"),
    ("int8", "int32"),
    ("float8_e4m3fn", "float32"),
)
SIZES = ((1, 4096, 4096, 4096), (1, 4095, 1000, 333), (2, 1000, 777, 4095))
FOLDER = os.environ.get("DLC_TEST_MODELS", "")
LARGE = [path.stem for path in sorted(Path(FOLDER).glob("*.onnx"))] if FOLDER else []
CLASSIFIERS = ("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet",
               "squeezenet", "vgg19", "zfnet512")  # fmt: skip

pytestmark = pytest.mark.usefixtures("compiler")
archs = pytest.mark.parametrize("arch", ["sm_70", "sm_80", "sm_90"])


def faults(exe: dlc.Executable) -> list[str]:
    """The failures of a model: kernels that are missing in the report, or that spill."""
    explained, text = exe.explain(), exe.source("cu")
    found = [f"{symbol} is not compiled" for symbol in _symbols(text) - explained.compiled.keys()]
    for kernel in explained.kernels:
        for symbol, facts in explained.compiled.items():
            if kernel.rule in CONTRACTIONS and re.fullmatch(rf"{kernel.name}_kernel(_\d+)?", symbol):
                held = {key: facts[key] for key in ("spill bytes", "stack bytes") if facts[key]}
                found += [f"{symbol} of {kernel.rule}: {held}"] if held else []
    return found


def _symbols(text: str) -> set[str]:
    return set(re.findall(r"^__global__ .*?(\w+)\((?!\d)", text, re.MULTILINE))


def wrong(cases: Iterable[Case], target: Target) -> list[str]:
    """The failures of the kernels of cases, with the names of the cases."""
    found = []
    for case in cases:
        try:
            exe = dlc.compile(case.module, target, cache=False)
            found += [f"{case.name}: {fault}" for fault in faults(exe)] if exe.artifact.code else []
        except dlc.DlcError as error:
            found.append(f"{case.name}: {error}")
    return found


@archs
def test_some_ops(arch: str) -> None:
    target = find_target(f"cuda -arch={arch}")
    for name in ("attention", "conv", "layer_norm", "matmul", "softmax"):
        first = list(op_cases(registry().ops[name], DTYPES))[:1]
        assert wrong(first, target) == []


@pytest.mark.slow
@archs
@pytest.mark.parametrize("cases", [op_cases, symbolic_cases])
@pytest.mark.parametrize("name", sorted(registry().ops))
def test_all_ops(name: str, cases: Cases, arch: str) -> None:
    assert wrong(cases(registry().ops[name], DTYPES), find_target(f"cuda -arch={arch}")) == []


@pytest.mark.slow
@archs
@pytest.mark.parametrize("group", sorted(all_models()))
def test_all_models(group: str, arch: str) -> None:
    assert wrong(all_models()[group].named(), find_target(f"cuda -arch={arch}")) == []


@pytest.mark.slow
@archs
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name: str, arch: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    light = pytest.importorskip("dlc_frontend_onnx.testing.light")
    onnx.save(light.with_weights(name), tmp_path / "model.onnx")
    assert faults(dlc.compile(tmp_path / "model.onnx", f"cuda -arch={arch}", cache=False)) == []


@pytest.mark.slow
@archs
@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize(
    "name", LARGE or [pytest.param("", marks=pytest.mark.skip("DLC_TEST_MODELS names no models"))]
)
def test_large_models(name: str, precision: str, arch: str) -> None:
    model = Path(FOLDER, f"{name}.onnx")
    assert faults(dlc.compile(model, f"cuda -arch={arch}", precision=precision, cache=False)) == []


@pytest.mark.slow
@pytest.mark.parametrize("majors", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(("of", "acc"), PRODUCTS)
@pytest.mark.parametrize("arch", ["sm_70", "sm_80", "sm_90", "sm_90a"])
def test_products(arch: str, of: str, acc: str, size: tuple[int, int, int, int], majors: str) -> None:
    """Products of all sizes and operand layouts, and `float32` exact and rounded to TF32."""
    for option in ("", " -tf32=true") if of == "float32" else ("",):
        exe = dlc.build(product(of, acc, size, majors), f"cuda -arch={arch}{option}")
        assert exe.explain().kernels[0].rule in CONTRACTIONS
        assert faults(exe) == []


def product(of: str, acc: str, size: tuple[int, int, int, int], majors: str) -> list[te.Tensor]:
    """A product of (batches, rows, columns, K). `majors` has a letter for each operand: n if it is contiguous
    along K.
    """
    batches, m, n, k = size
    x = te.placeholder((batches, m, k) if majors[0] == "n" else (batches, k, m), of, "x")
    y = te.placeholder((batches, n, k) if majors[1] == "n" else (batches, k, n), of, "y")
    r = te.reduce_axis((0, k), "r")

    def sums(b: te.Expr, i: te.Expr, j: te.Expr) -> te.Expr:
        left = x[(b, i, r) if majors[0] == "n" else (b, r, i)]
        right = y[(b, j, r) if majors[1] == "n" else (b, r, j)]
        return te.sum(left.astype(acc) * right.astype(acc), axis=r)

    return [x, y, te.compute((batches, m, n), sums, "z")]
