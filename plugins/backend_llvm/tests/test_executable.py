"""Native executables: the overhead of calls, profiles, saved code, and checks of the machine."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from dlc_backend_llvm.device import CpuDevice
from dlc_backend_llvm.host import host_cpu

import dlc_core as dlc
from dlc_core import te
from dlc_core.diag import ArtifactError
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.plugin.registry import registry

RNG = np.random.default_rng(0)
W1, W2 = (RNG.standard_normal(s).astype(np.float32) / 8 for s in ((64, 96), (96, 10)))


def mlp(rows):
    ops = registry().ops
    x = param("x", tensor_type((rows, 64)))
    hidden = ops["relu"].build(ops["matmul"].build(x, constant(W1)))
    return IRModule({"main": Function("main", (x,), ops["matmul"].build(hidden, constant(W2)))})


def expected(x):
    return np.maximum(x @ W1, 0) @ W2


@pytest.fixture(scope="module")
def exe():
    return dlc.compile(mlp(4), "llvm", num_threads=2)


@pytest.fixture(scope="module")
def dynamic():
    return dlc.compile(mlp(Var("n")), "llvm", num_threads=2)


X = RNG.standard_normal((4, 64)).astype(np.float32)


def test_results_match_both_oracles(exe, dynamic):
    reference = dlc.compile(mlp(4), "reference")(X)
    lowered = dlc.compile(mlp(4), "reference -level=tir")(X)
    for value in (exe(X), dynamic(X), lowered):
        np.testing.assert_allclose(value, reference, rtol=2e-5, atol=1e-6)


def test_calls_have_little_overhead(counted):
    """A call makes few calls of Python functions, and a bound call even fewer."""
    a = te.placeholder((16,), name="a")
    tiny = dlc.build([a, te.compute((16,), lambda i: a[i] + 1.0, name="b")], "llvm")
    x = np.arange(16, dtype=np.float32)
    bound = tiny.bind([x])
    tiny(x)
    assert counted(lambda: tiny(x))[1] < 20
    assert counted(bound)[1] < 5
    assert bound() is bound.outputs[0]


def test_a_profile_names_kernels_and_their_work(exe):
    before = exe(X)
    report = exe.profile([X], runs=5)
    assert len(report) == 2
    assert [row.calls for row in report] == [1, 1]
    assert sum(row.share for row in report) == pytest.approx(1)
    assert {row.flops for row in report} >= {2 * 4 * 96 * 10}
    assert all(row.milliseconds > 0 and row.bytes and row.gflops for row in report)
    assert report.milliseconds >= sum(row.milliseconds for row in report) * 0.5
    text = str(report)
    assert all(row.kernel in text for row in report)
    assert '"threads": 2' in report.to_json()
    np.testing.assert_array_equal(exe(X), before)


def test_opened_artefacts_have_profiles_too(dynamic, tmp_path):
    dynamic.save(tmp_path / "m.dlc", sources=("llvm",))
    again = dlc.open(tmp_path / "m.dlc")
    np.testing.assert_array_equal(again(X), dynamic(X))
    assert len(again.profile({"x": X}, runs=1, warmup=0)) == 2
    assert "define" in again.source("llvm")
    assert "main__entry" in dynamic.source("asm")


def test_threads_share_an_executable(dynamic):
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(60):
            x = rng.standard_normal((int(rng.integers(1, 40)), 64)).astype(np.float32)
            if not np.allclose(dynamic(x), expected(x), rtol=1e-4, atol=1e-5):
                wrong.append(x.shape)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(dynamic._caller._arenas) <= 8


def test_code_for_other_processors_is_refused(exe):
    device = CpuDevice()
    device.check(exe.artifact)
    features = exe.artifact.metadata["features"]
    newer = replace(exe.artifact, metadata={**exe.artifact.metadata, "features": features + ",+avx1024,+sgx"})
    with pytest.raises(ArtifactError, match="processor features that this machine does not have: avx1024\n"):
        device.check(newer)
    foreign = replace(exe.artifact, metadata={**exe.artifact.metadata, "triple": "x86_64-apple-darwin"})
    if "linux" in host_cpu().triple:
        with pytest.raises(ArtifactError, match="the code is for x86_64-apple-darwin"):
            device.check(foreign)
    for code in (b"", b"\x7fELF", exe.artifact.code[:200]):
        with pytest.raises(ArtifactError, match="object file"):
            device.check(replace(exe.artifact, code=code))


def test_compiling_for_another_machine_loads_nothing(tmp_path):
    other = dlc.compile(mlp(4), "llvm -mtriple=riscv64-linux-gnu")
    other.save(tmp_path / "m.dlc")
    with pytest.raises(ArtifactError, match="the code is for riscv64"):
        dlc.open(tmp_path / "m.dlc")


def test_code_depends_on_the_number_of_threads(tmp_path):
    """Code for any number of threads. A target that names the number keeps it."""
    usual = dlc.compile(mlp(4), "llvm")
    cores = usual.target.describe().cores
    assert dlc.compile(mlp(4), "llvm", num_threads=cores).target == usual.target
    exe = dlc.compile(mlp(4), "llvm", num_threads=cores + 1)
    assert exe.target == usual.target.with_options(num_threads=cores + 1)
    assert exe.num_threads == exe.target.describe().cores == cores + 1
    exe.save(tmp_path / "m.dlc")
    assert dlc.open(tmp_path / "m.dlc").num_threads == cores + 1
    given = dlc.compile(mlp(4), "llvm -num-threads=1", num_threads=2)
    assert (given.target["num-threads"], given.num_threads) == (1, 2)
    for one in (exe, given):
        for one.num_threads in (1, 2, 3):
            np.testing.assert_allclose(one(X), expected(X), rtol=1e-4, atol=1e-5)
