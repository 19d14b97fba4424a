"""Exported models: C programs whose regions run on the card, by its runtime in C."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend.deploy import HEADERS
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


DRIVER = r"""
#include "dlc_device.h"
#include "dlc_runtime.h"
#include <stdio.h>

const dlc_device_api *dpu_device_api(void);

int main(int count, char **words) {
  static float x[3 * 32 * 32];
  const dlc_tensor *image;
  dlc_session *session;
  dlc_model *model;
  if (count != 2 || fread(x, 1, sizeof x, stdin) != sizeof x) return 2;
  if (dlc_register_device(dpu_device_api())) return puts(dlc_error()), 1;
  model = dlc_open(words[1]);
  if (!model) return puts(dlc_error()), 1;
  image = dlc_input(model, 0, 0);
  session = dlc_session_new(model, NULL);
  dlc_set_input(session, 0, x, image->shape, image->ndim);
  if (dlc_run(session, 1)) return puts(dlc_error()), 1;
  fwrite(dlc_get_output(session, 0, NULL), 4, 10, stdout);
  dlc_session_free(session);
  dlc_close(model);
  return 0;
}
"""


def test_saved_files_run_by_the_c_runtime(tmp_path):
    """The weights of the regions are sections of the file."""
    exe = compiled("llvm")
    from dlc_backend_llvm.runtime_source import write_runtime

    write_runtime(tmp_path)
    for path in exe.regions["region_0"].target.kind.runtime.sources:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "dlc_launches.h").write_bytes(HEADERS[2].read_bytes())
    (tmp_path / "driver.c").write_text(DRIVER)
    words = [CC, "-std=gnu11", *SANITIZED.split(), "-I.", "driver.c", "dlc_runtime.c", "dpu_device.c"]
    words += ["-o", "net", "-ldl", "-lm", "-lpthread"]
    made = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    if "cannot find" in made.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert made.returncode == 0, made.stderr
    exe.save(tmp_path / "net.dlc", library=True)
    x = feed(cifar())
    done = subprocess.run(["./net", "net.dlc"], cwd=tmp_path, input=x.tobytes(), capture_output=True)
    assert (done.returncode, errors_of(done)) == (0, ""), done.stdout[:500]
    np.testing.assert_allclose(np.frombuffer(done.stdout, np.float32), exe(x).ravel(), 1e-6, 1e-7)
