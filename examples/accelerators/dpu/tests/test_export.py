"""Exported models: C programs whose regions run on the card, by its runtime in C."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.graph.node import Function, constant, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.testing.networks import cifar, feed

CC = shutil.which("cc")
PLACE = {"max_pool": "host", "relu": "host"}
SANITIZED = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"

pytestmark = pytest.mark.skipif(CC is None, reason="there is no C compiler `cc` here")


def compiled(host: str, module: IRModule | None = None) -> dlc.Executable:
    pytest.importorskip(f"dlc_backend_{host}")
    place = dict.fromkeys(PLACE, host)
    return dlc.compile(module or cifar(), targets=["dpu", host], place=place, cache=False)


def make(folder: Path, flags: str) -> None:
    words = ["make", "-s", f"CC={CC}", f"CFLAGS={flags}", f"LDFLAGS={flags}"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if "cannot find" in done.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert done.returncode == 0, done.stderr


def run(folder: Path, data: bytes, **environment: str) -> subprocess.CompletedProcess[bytes]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | environment
    return subprocess.run(["./net"], cwd=folder, input=data, capture_output=True, env=env, check=False)


def errors_of(done: subprocess.CompletedProcess[bytes]) -> str:
    """The output of errors, without the sanitizer's notes on the stacks of the simulation's threads."""
    lines = done.stderr.decode().splitlines()
    notes = ("WARNING: ASan is ignoring requested", "False positive error reports", "For details see")
    return "\n".join(line for line in lines if not any(note in line for note in notes))


def test_a_c_program_computes_what_python_computes(tmp_path):
    exe = compiled("c")
    assert len(exe.regions) == 4
    exe.export(tmp_path / "net")
    make(tmp_path / "net", SANITIZED)
    x = feed(cifar())
    done = run(tmp_path / "net", x.tobytes())
    assert (done.returncode, errors_of(done)) == (0, "")
    np.testing.assert_allclose(np.frombuffer(done.stdout, np.float32), exe(x).ravel(), 1e-6, 1e-7)
    linked = subprocess.run(["ldd", "net"], cwd=tmp_path / "net", capture_output=True, text=True, check=False)
    assert "libpython" not in linked.stdout


def test_a_library_computes_what_python_computes(tmp_path):
    exe = compiled("llvm")
    exe.export(tmp_path / "net.so")
    x = feed(cifar())
    lib = dlc.load_library(tmp_path / "net.so")
    np.testing.assert_allclose(lib(x), exe(x), 1e-6, 1e-7)


def test_launches_depend_on_dims(tmp_path):
    """The list of launches has expressions over the rows; a loop over k is a launch for each."""
    ops = dlc.ops()
    x = param("x", tensor_type((Var("n"), 24)))
    w = constant(np.random.default_rng(1).standard_normal((24, 16)).astype(np.float32))
    y = ops["softmax"].build(ops["relu"].build(ops["matmul"].build(x, w)))
    exe = compiled("llvm", IRModule({"main": Function("main", (x,), y)}))
    assert len(exe.regions) == 2
    exe.export(tmp_path / "net.so")
    lib = dlc.load_library(tmp_path / "net.so")
    for rows in (1, 33, 0, 200, 7):
        x = np.random.default_rng(rows).standard_normal((rows, 24)).astype(np.float32)
        np.testing.assert_allclose(lib(x), exe(x), 1e-6, 1e-7)


def test_a_full_card_is_an_error_with_a_text(tmp_path):
    compiled("c").export(tmp_path / "net")
    make(tmp_path / "net", SANITIZED)
    done = run(tmp_path / "net", feed(cifar()).tobytes(), DPU_MEMORY="100000")
    assert done.returncode == 1
    assert "device dpu: the allocation of" in errors_of(done)
    assert "of 100000 bytes are in use" in errors_of(done)
    assert "Sanitizer" not in errors_of(done)
