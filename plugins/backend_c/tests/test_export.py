"""Exported sources: they compile without a warning, hold their promises, and give what the model gives."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import UnsupportedError
from dlc_core.graph.node import Function, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.registry import registry
from dlc_core.testing import networks

STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
STANDARDS = [("c", "c99"), ("c", "c11"), ("c -vector-bits=128", "gnu99")]
SANITIZED = ["-std=gnu99", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def exported(
    folder: Path, name: str, target: str = "c", path: str = "net"
) -> tuple[dlc.Executable, Any, Any]:
    """An exported network, its input and the reference's output."""
    module = networks.NETWORKS[name]()
    x = networks.feed(module)
    exe = dlc.compile(module, target, cache=False)
    exe.export(folder / path)
    return exe, x, dlc.compile(module, "reference", cache=False)(x)


def compiled(folder: Path, cc: str, flags: list[str], sources: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [cc, *flags, *sources, "-o", "program", "-lm"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def run(folder: Path, data: bytes) -> np.ndarray[Any, Any]:
    done = subprocess.run(["./program"], cwd=folder, input=data, capture_output=True, check=True)
    assert not done.stderr
    return np.frombuffer(done.stdout, np.float32)


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize(
    ("target", "standard"), [("c", "c99"), ("c", "c11"), ("c -vector-bits=128", "gnu99")]
)
@pytest.mark.parametrize("name", ["mlp", "keywords"])
def test_strict_compilers_take_it(tmp_path, cc, target, standard, name):
    _, x, wanted = exported(tmp_path, name, target)
    made = compiled(tmp_path / "net", cc, [f"-std={standard}", *STRICT, "-O2"], ["main.c", "net.c"])
    assert made.returncode == 0, made.stderr
    np.testing.assert_allclose(run(tmp_path / "net", x.tobytes()), wanted.ravel(), 1e-4, 1e-5)


@pytest.mark.parametrize("name", sorted(networks.NETWORKS))
@pytest.mark.parametrize("target", ["c", "c -vector-bits=256"])
def test_sanitizers_find_nothing(tmp_path, name, target):
    _, x, wanted = exported(tmp_path, name, target)
    flags = [
        "-std=gnu99",
        "-O1",
        "-g",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-Wno-psabi",
    ]
    made = compiled(tmp_path / "net", COMPILERS[0], flags, ["main.c", "net.c"])
    if "cannot find" in made.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert made.returncode == 0, made.stderr
    np.testing.assert_allclose(run(tmp_path / "net", x.tobytes()), wanted.ravel(), 1e-4, 1e-5)


def test_makefile_builds_it(tmp_path):
    _, x, wanted = exported(tmp_path, "mlp")
    subprocess.run(["make", "-s"], cwd=tmp_path / "net", check=True, capture_output=True)
    done = subprocess.run(["./net"], cwd=tmp_path / "net", input=x.tobytes(), capture_output=True, check=True)
    np.testing.assert_allclose(np.frombuffer(done.stdout, np.float32), wanted.ravel(), 1e-4, 1e-5)
    short = subprocess.run(["./net"], cwd=tmp_path / "net", input=b"", capture_output=True, check=False)
    assert short.returncode == 1
    assert b"x cannot be read" in short.stderr


def test_weights_in_a_file(tmp_path):
    exe, x, wanted = exported(tmp_path, "mlp", "c -weights=binary")
    folder = tmp_path / "net"
    assert (folder / "net_weights.bin").stat().st_size == exe.signature.weights_size
    assert compiled(folder, COMPILERS[0], ["-std=c99", *STRICT], ["main.c", "net.c"]).returncode == 0
    np.testing.assert_allclose(run(folder, x.tobytes()), wanted.ravel(), 1e-4, 1e-5)


def test_one_header(tmp_path):
    _, x, wanted = exported(tmp_path, "mlp", path="net.h")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.h"]
    values = ", ".join(f"{v!r}f" for v in x.ravel().tolist())
    (tmp_path / "main.c").write_text(
        f"""#define NET_IMPLEMENTATION
#include "net.h"
#include <stdio.h>
static const float x[NET_INPUT0_SIZE] = {{{values}}};
int main(void) {{
    float y[NET_OUTPUT0_SIZE];
    if (net_run(x, y, NULL) != NET_OK) return 1;
    return fwrite(y, sizeof y, 1, stdout) != 1;
}}
"""
    )
    assert compiled(tmp_path, COMPILERS[0], ["-std=c99", *STRICT], ["main.c"]).returncode == 0
    np.testing.assert_allclose(run(tmp_path, b""), wanted.ravel(), 1e-4, 1e-5)


def test_errors_of_callers(tmp_path):
    exported(tmp_path, "mlp")
    (tmp_path / "net" / "main.c").write_text(
        """#include "net.h"
static float x[NET_INPUT0_SIZE], y[NET_OUTPUT0_SIZE];
static union { double align; char bytes[NET_ARENA_NEEDED + 8]; } work;
int main(void) {
    if (net_run(NULL, y, NULL) != NET_ERROR_NULL) return 1;
    if (net_run(x, NULL, NULL) != NET_ERROR_NULL) return 2;
    if (net_run(x, y, work.bytes + 4) != NET_ERROR_ALIGNMENT) return 3;
    if (net_run(x, y, work.bytes) != NET_OK) return 4;
#ifdef NET_NO_ARENA
    if (net_run(x, y, NULL) != NET_ERROR_NULL) return 5;
#else
    if (net_run(x, y, NULL) != NET_OK) return 6;
#endif
    return 0;
}
"""
    )
    for define in ([], ["-DNET_NO_ARENA"]):
        assert compiled(tmp_path / "net", COMPILERS[0], define, ["main.c", "net.c"]).returncode == 0
        done = subprocess.run(["./program"], cwd=tmp_path / "net", check=False)
        assert done.returncode == 0


@pytest.mark.parametrize("standard", ["c99", "c11"])
def test_an_arena_that_is_too_small_does_not_compile(tmp_path, standard):
    exe, *_ = exported(tmp_path, "mlp")
    needed = int(exe.signature.arena_size.value)
    for size, fine in ((needed, True), (needed + 64, True), (needed - 1, False)):
        flags = [f"-std={standard}", "-c", f"-DNET_ARENA_BYTES={size}"]
        made = subprocess.run(
            [COMPILERS[0], *flags, "net.c"], cwd=tmp_path / "net", capture_output=True, check=False
        )
        assert (made.returncode == 0) is fine


def test_the_same_bytes_each_time(tmp_path):
    (tmp_path / "a").mkdir()
    exported(tmp_path, "keywords", path="a/net.c")
    (tmp_path / "b").mkdir()
    exported(tmp_path, "keywords", path="b/net.c")
    for name in ("net.c", "net.h"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_names_lead_to_the_model(tmp_path):
    exe, *_ = exported(tmp_path, "mlp", path="net.c")
    text = (tmp_path / "net.c").read_text()
    assert "clock" not in text
    assert "__entry" not in text
    assert "dlc_max_f32" in text
    assert "model(" in text
    assert str(exe.signature.weights_size) in text


def test_open_sizes_are_refused(tmp_path):
    x = param("x", tensor_type((Var("n"), 4)))
    module = IRModule({"main": Function("main", (x,), registry().ops["relu"].build(x))})
    exe = dlc.compile(module, "c", cache=False)
    assert exe(np.float32([[-1, 2, -3, 4]])).tolist() == [[0, 2, 0, 4]]
    with pytest.raises(UnsupportedError, match="fixed sizes"):
        exe.export(tmp_path / "net.c")


def test_other_files_are_refused(tmp_path):
    exe = dlc.compile(networks.mlp(), "c", cache=False)
    with pytest.raises(UnsupportedError, match=r"no C source"):
        exe.export(tmp_path / "net.so")
