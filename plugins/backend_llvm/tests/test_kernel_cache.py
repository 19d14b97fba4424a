"""The cache of kernels: kernels of several models, keys, damaged files, limits, several processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import dlc_core as dlc
from dlc_core import driver
from dlc_core.config import config
from dlc_core.diag import ArtifactError, RuntimeFailure, UsageError
from dlc_core.driver.kernel_cache import (
    NAME,
    SHARE,
    KernelCache,
    decode_result,
    encode_result,
    kept_kernels,
    renamed,
)
from dlc_core.driver.stages import pipelines
from dlc_core.passes.tir import prim_func_pass
from dlc_core.schedule.index_map import IndexMap
from dlc_core.tir.stmt import PrimFunc, Seq

MODEL = """<ir_version: 10, opset_import: ["" : 20]>
NAME (float[BATCH, 64] x) => (float[BATCH, 32] y)
{
    a = MatMul(x, w)
    b = Relu(a)
    c = MatMul(b, v)
    y = LAST(c)
}
"""
X = np.linspace(-1, 1, 5 * 64, dtype=np.float32).reshape(5, 64)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with config.override(cache=True, cache_dir=tmp_path / "cache"):
        yield tmp_path / "cache"


def model(path: Path, last: str = "Tanh", batch: str = "5", name: str = "one", seed: int = 0) -> Path:
    made = parser.parse_model(MODEL.replace("LAST", last).replace("BATCH", batch).replace("NAME", name))
    rng = np.random.default_rng(seed)
    for weight, shape in (("w", (64, 64)), ("v", (64, 32))):
        array = rng.standard_normal(shape, np.float32) / 8
        made.graph.initializer.append(onnx.numpy_helper.from_array(array, weight))
    onnx.save(made, path)
    return path


def compiled(path: Any, **options: Any) -> Any:
    """A model without the cache of models, so that kernels are looked up."""
    for kept in (config.cache_dir / "artefacts").glob("*"):
        kept.unlink()
    return dlc.compile(path, "llvm", num_threads=1, **options)


def cached(path: Path, **options: Any) -> int:
    found: int = compiled(path, **options).report["cached_kernels"]
    return found


def test_a_changed_model_finds_its_other_kernels(tmp_path: Path) -> None:
    one = compiled(model(tmp_path / "one.onnx"))
    kernels = len(kept_kernels().entries())
    assert one.report["cached_kernels"] == 0
    assert kernels == 2
    again = compiled(tmp_path / "one.onnx")
    assert again.report["cached_kernels"] == kernels
    assert again.artifact.code == one.artifact.code
    assert again.source("llvm") == one.source("llvm")
    assert again.source("asm") == one.source("asm")
    assert str(again.explain()) == str(one.explain())
    np.testing.assert_array_equal(again(X), one(X))
    other = compiled(model(tmp_path / "two.onnx", last="Sigmoid", name="two", seed=1))
    assert other.report["cached_kernels"] == 1
    fresh = compiled(tmp_path / "two.onnx", cache=False)
    assert fresh.report["cached_kernels"] == 0
    assert other.artifact.code == fresh.artifact.code
    np.testing.assert_array_equal(other(X), fresh(X))


def test_kernels_of_models_in_memory_are_kept_alone(tmp_path: Path) -> None:
    module = dlc.load(model(tmp_path / "one.onnx"))
    assert compiled(module, cache="kernels").report["cached_kernels"] == 0
    exe = compiled(module, cache="kernels")
    assert exe.report["cached_kernels"] == 2
    assert not list((config.cache_dir / "artefacts").glob("*"))
    assert compiled(module).report["cached_kernels"] == 0
    with config.override(cache=False):
        assert compiled(module, cache="kernels").report["cached_kernels"] == 0
    with pytest.raises(UsageError, match="cache 'models'"):
        compiled(module, cache="models")


def test_symbolic_sizes(tmp_path: Path) -> None:
    path = model(tmp_path / "rows.onnx", batch="n")
    one, again = compiled(path), compiled(path)
    assert again.report["cached_kernels"] == 2
    np.testing.assert_array_equal(again(X), one(X))
    np.testing.assert_array_equal(again(X[:2]), one(X[:2]))
    with config.override(compile_processes=1):
        assert compiled(path, cache=False).artifact.code == again.artifact.code


def test_loop_bodies_call_kernels_of_the_cache(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[4] x, int64 n, bool go) => (float[4] y) {
        y = Loop (n, go, x) <body = b (int64 i, bool c, float[4] s) => (bool d, float[4] t) {
            d = Identity(c)  u = Mul(s, s)  t = Softmax(u) }> }"""
    onnx.save(parser.parse_model(text), tmp_path / "loop.onnx")
    x = np.linspace(0, 1, 4, dtype=np.float32)
    want = compiled(tmp_path / "loop.onnx", cache=False)(x, np.int64(3), np.bool_(True))
    exe = compiled(tmp_path / "loop.onnx"), compiled(tmp_path / "loop.onnx")
    assert exe[1].report["cached_kernels"] > 0
    for one in exe:
        np.testing.assert_array_equal(one(x, np.int64(3), np.bool_(True)), want)


def test_a_key_covers_settings_target_and_processor(tmp_path: Path) -> None:
    path = model(tmp_path / "one.onnx")
    assert cached(path) == 0
    assert cached(path) == 2
    assert cached(path, config={"check_bounds": True}) == 0
    assert cached(path, opt_level=1) == 0
    assert cached(path, config={"heuristics": "gemm.min_steps=32"}) == 0
    assert cached(path, config={"target": {"l2_bytes": 1 << 18}}) == 0
    assert cached(path) == 2


def test_errors_name_the_kernel_of_their_model(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[8] x, int64[2] i) => (float[2] y) { TABLE = Relu(x)  y = Gather(TABLE, i) }"""
    messages = []
    for table in ("first", "first", "other"):
        path = tmp_path / f"{table}.onnx"
        onnx.save(parser.parse_model(text.replace("TABLE", table)), path)
        exe = compiled(path)
        with pytest.raises(RuntimeFailure) as caught:
            exe(np.zeros(8, np.float32), np.array([1, 9]))
        messages.append(str(caught.value))
        assert NAME not in messages[-1]
    assert exe.report["cached_kernels"] > 0
    assert messages[0] == messages[1]
    assert messages[2] == messages[0].replace("first", "other")


@prim_func_pass(position="end tir")
def by_name(func: PrimFunc) -> PrimFunc:
    """A pass that reads names."""
    assert func.name != NAME
    return func


def test_passes_of_others_see_names(tmp_path: Path) -> None:
    path = model(tmp_path / "one.onnx")
    with dlc.PassContext(passes=[by_name()]):
        assert [cached(path), cached(path)] == [0, 2]


def test_rules_of_a_context_have_no_name(tmp_path: Path) -> None:
    path = model(tmp_path / "one.onnx")
    cached(path)
    with dlc.PassContext(rules=(object(),)):
        context = driver.context_for("llvm -num-threads=1")
        assert KernelCache.of(context, pipelines(context.target, context)["tir"]) is None


def test_damaged_files_are_compiled_again(tmp_path: Path) -> None:
    path = model(tmp_path / "one.onnx")
    want = compiled(path)(X)
    whole = {file.path: file.path.read_bytes() for file in kept_kernels().entries()}
    for damage in (lambda data: data[:40], lambda data: data[:-1] + b"?", lambda data: b""):
        for file, data in whole.items():
            file.write_bytes(damage(data))
        exe = compiled(path)
        assert exe.report["cached_kernels"] == 0
        np.testing.assert_array_equal(exe(X), want)
        assert {file: file.read_bytes() for file in whole} == whole


def test_malformed_records_are_errors() -> None:
    func = PrimFunc("f", (), Seq(()))
    data = encode_result((func, b"code"), func)
    assert decode_result(data, func)[1] == b"code"
    for other in (data[:8], data[:20], b"", data.replace(b"prim_func", b"seq")):
        with pytest.raises(ArtifactError):
            decode_result(other, func)
    with pytest.raises(UsageError):
        encode_result((func.with_attrs(own=object()), b""), func)


def test_attributes_are_kept() -> None:
    layout = IndexMap.of(lambda k, n: (n // 32, k, n % 32))
    attrs = {"repack": {1: layout}, "checks": {1: f"access: {NAME}"}, "bounds": (3, 0)}
    func = PrimFunc(NAME, (), Seq(()), attrs)
    made, _ = renamed(decode_result(encode_result((func, b""), func), func), "conv")
    assert made.name == "conv"
    assert made.attrs["checks"] == {1: "access: conv"}
    assert made.attrs["bounds"] == (3, 0)
    assert str(made.attrs["repack"][1]) == str(layout)


def test_a_folder_that_cannot_be_written(tmp_path: Path, folder: Path) -> None:
    folder.mkdir()
    (folder / "kernels").write_text("a file")
    exe = compiled(model(tmp_path / "one.onnx"))
    assert exe.report["cached_kernels"] == 0
    assert exe(X).shape == (5, 32)


def test_the_least_recently_used_are_removed(tmp_path: Path) -> None:
    path = model(tmp_path / "one.onnx")
    compiled(path)
    files = kept_kernels()
    assert files.limit == (config.cache_size << 20) // SHARE
    first, second = files.entries()
    os.utime(first.path, (1, 1))
    files.limit = second.size
    assert files.trim() == 1
    assert [file.path for file in files.entries()] == [second.path]
    assert cached(path) == 1


def test_no_cache(tmp_path: Path) -> None:
    path = model(tmp_path / "one.onnx")
    with config.override(cache=False):
        assert cached(path) == 0
    compiled(path, cache=False)
    module = dlc.load(path)
    dlc.compile(module, "llvm")  # models in memory are cached only on request
    assert kept_kernels().entries() == []
    assert dlc.compile(module, "llvm", cache=True).report["cached_kernels"] == 0
    assert len(kept_kernels().entries()) == 2


def test_processes_at_the_same_time(tmp_path: Path, folder: Path) -> None:
    path = model(tmp_path / "one.onnx")
    want = compiled(path, cache=False)(X)
    code = f"""
import numpy as np, dlc_core as dlc
x = np.linspace(-1, 1, 320, dtype=np.float32).reshape(5, 64)
np.save(__import__("sys").argv[1], dlc.compile({str(path)!r}, "llvm", num_threads=1)(x))
"""
    environment = {**os.environ, "DLC_CACHE": "1", "DLC_CACHE_DIR": str(folder)}
    outs = [tmp_path / f"{i}.npy" for i in range(3)]
    running = [subprocess.Popen([sys.executable, "-c", code, str(out)], env=environment) for out in outs]
    assert [one.wait(120) for one in running] == [0, 0, 0]
    for out in outs:
        np.testing.assert_array_equal(np.load(out), want)
    assert len(kept_kernels().entries()) == 2
