"""The C runtime opens models with regions on devices: saved files with registered devices, and libraries."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.backend.deploy import HEADERS
from tests.backend import test_deploy as deploy
from tests.backend.card_runtime import SOURCE

pytestmark = deploy.pytestmark

DRIVER = r"""
#include "dlc_device.h"
#include "dlc_runtime.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const dlc_device_api *card_device_api(void);

static int run(const char *path, const float *x, int again) {
  const int64_t shape[] = {6, 8}, *found;
  const float *y;
  dlc_session *session;
  dlc_model *model = dlc_open(path), *second = NULL;
  if (!model) return puts(dlc_error()), 1;
  if (again) {
    second = dlc_open(path);
    dlc_close(model);
    model = second;
  }
  session = dlc_session_new(model, NULL);
  dlc_set_input(session, 0, x, shape, 2);
  if (dlc_run(session, 1)) {
    puts(dlc_error());
    dlc_session_free(session);
    dlc_close(model);
    return 2;
  }
  y = dlc_get_output(session, 0, &found);
  if (found[0] != 6 || found[1] != 8) return 3;
  fwrite(y, 4, 48, stdout);
  dlc_session_free(session);
  dlc_close(model);
  return 0;
}

int main(int count, char **words) {
  float x[48];
  int i, status = 0;
  if (fread(x, 4, 48, stdin) != 48) return 9;
  if (strcmp(words[1], "unregistered")) {
    dlc_device_api other = *card_device_api();
    if (dlc_register_device(card_device_api()) || dlc_register_device(card_device_api())) return 8;
    if (!dlc_register_device(&other)) return 7;
    if (!strstr(dlc_error(), "another runtime of the device 'card'")) return 6;
    other.version = 9;
    if (!dlc_register_device(&other) || !strstr(dlc_error(), "has version 9")) return 5;
  }
  for (i = 2; i < count && !status; i++) status = run(words[i], x, !strcmp(words[1], "again"));
  return status;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with the C runtime and the card's runtime."""
    source = pytest.importorskip("dlc_backend_llvm.runtime_source")
    folder = tmp_path_factory.mktemp("runtime")
    source.write_runtime(folder)
    assert (folder / "dlc_device.h").read_bytes() == HEADERS[0].read_bytes()
    (folder / "driver.c").write_text(DRIVER)
    strict = ["-Wall", "-Wextra", "-Werror", *deploy.sanitizers(folder)]
    words = [
        deploy.CC,
        "-std=gnu11",
        *strict,
        "-I.",
        "driver.c",
        "dlc_runtime.c",
        str(SOURCE),
        "-o",
        "driver",
    ]
    subprocess.run([*words, "-ldl", "-lm", "-lpthread"], cwd=folder, check=True)
    return folder / "driver"


@pytest.fixture
def net(tmp_path: Path) -> Any:
    """A model, and its results in Python."""
    with deploy.registered("llvm", pytest.importorskip("dlc_backend_llvm.plugin")):
        exe = dlc.compile(deploy.model(), targets=["card", "llvm"], cache=False)
        yield exe, exe(deploy.X)


def test_saved_files_run_on_registered_devices(program, net, tmp_path):
    exe, want = net
    exe.save(tmp_path / "net.dlc", library=True)
    got = deploy.numbers(deploy.run(program, "registered", tmp_path / "net.dlc"), 6, 8)
    np.testing.assert_allclose(got, want, 1e-5, 1e-6)
    with deploy.registered("llvm", pytest.importorskip("dlc_backend_llvm.plugin")):
        np.testing.assert_allclose(dlc.open(tmp_path / "net.dlc")(deploy.X), want, 1e-5, 1e-6)


def test_libraries_contain_their_devices(program, net, tmp_path):
    exe, want = net
    exe.export(tmp_path / "net.so")
    got = deploy.numbers(deploy.run(program, "unregistered", tmp_path / "net.so"), 6, 8)
    np.testing.assert_allclose(got, want, 1e-5, 1e-6)


def test_models_share_the_devices_of_a_library(program, net, tmp_path):
    """Opened twice, the first closed; and models that differ only in constants of their regions."""
    exe, want = net
    exe.save(tmp_path / "net.dlc", library=True)
    deploy.WEIGHTS[0] *= 2
    try:
        with deploy.registered("llvm", pytest.importorskip("dlc_backend_llvm.plugin")):
            second = dlc.compile(deploy.model(), targets=["card", "llvm"], cache=False)
            second.save(tmp_path / "second.dlc", library=True)
            other = second(deploy.X)
    finally:
        deploy.WEIGHTS[0] /= 2
    assert not np.allclose(want, other)
    paths = [tmp_path / name for name in ("net.dlc", "second.dlc", "net.dlc")]
    got = deploy.numbers(deploy.run(program, "again", *paths), 3, 6, 8)
    for found, expected in zip(got, (want, other, want), strict=True):
        np.testing.assert_allclose(found, expected, 1e-5, 1e-6)


def test_devices_that_are_not_registered_are_named(program, net, tmp_path):
    net[0].save(tmp_path / "net.dlc", library=True)
    done = deploy.run(program, "unregistered", tmp_path / "net.dlc")
    assert done.returncode == 1
    assert b"it runs on the device 'card', whose runtime is not registered" in done.stdout
    assert b"Sanitizer" not in done.stderr


@pytest.mark.parametrize(
    ("what", "status"), [("open", 1), ("alloc:1", 2), ("load:2", 1), ("launch", 2), ("kernel", 2)]
)
def test_failures_of_devices_have_their_texts(program, net, tmp_path, what, status):
    net[0].save(tmp_path / "net.dlc", library=True)
    done = deploy.run(program, "registered", tmp_path / "net.dlc", CARD_FAIL=what)
    assert done.returncode == status, done
    assert b"device card: " in done.stdout
    assert b"failed with code" in done.stdout
    assert not done.stderr, done.stderr
