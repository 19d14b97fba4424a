"""Exported sources compile without warnings, have the documented properties, and compute the
model's results.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.diag import DlcError, UnsupportedError, UsageError
from dlc_core.graph.node import Function, constant, make_tuple, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.plugin.registry import registry
from dlc_core.testing import networks

STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
STANDARDS = [("c", "c99"), ("c", "c11"), ("c -vector-bits=128", "gnu99")]
SANITIZED = ["-std=gnu99", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def exported(
    folder: Path, name: str, target: str = "c", path: str = "net"
) -> tuple[dlc.Executable, Any, Any]:
    """An exported network, its input, and the output of the reference."""
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
def test_strict_compilers_accept_the_sources(tmp_path, cc, target, standard, name):
    _, x, expected = exported(tmp_path, name, target)
    made = compiled(tmp_path / "net", cc, [f"-std={standard}", *STRICT, "-O2"], ["main.c", "net.c"])
    assert made.returncode == 0, made.stderr
    np.testing.assert_allclose(run(tmp_path / "net", x.tobytes()), expected.ravel(), 1e-4, 1e-5)


@pytest.mark.parametrize("name", sorted(networks.NETWORKS))
@pytest.mark.parametrize("target", ["c", "c -vector-bits=256"])
def test_sanitizers_find_nothing(tmp_path, name, target):
    _, x, expected = exported(tmp_path, name, target)
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
    np.testing.assert_allclose(run(tmp_path / "net", x.tobytes()), expected.ravel(), 1e-4, 1e-5)


def test_the_makefile_builds_the_example(tmp_path):
    _, x, expected = exported(tmp_path, "mlp")
    subprocess.run(["make", "-s"], cwd=tmp_path / "net", check=True, capture_output=True)
    done = subprocess.run(["./net"], cwd=tmp_path / "net", input=x.tobytes(), capture_output=True, check=True)
    np.testing.assert_allclose(np.frombuffer(done.stdout, np.float32), expected.ravel(), 1e-4, 1e-5)
    short = subprocess.run(["./net"], cwd=tmp_path / "net", input=b"", capture_output=True, check=False)
    assert short.returncode == 1
    assert b"x cannot be read" in short.stderr


def test_weights_in_a_file(tmp_path):
    exe, x, expected = exported(tmp_path, "mlp", "c -weights=binary")
    folder = tmp_path / "net"
    assert (folder / "net_weights.bin").stat().st_size == exe.signature.weights_size
    assert compiled(folder, COMPILERS[0], ["-std=c99", *STRICT], ["main.c", "net.c"]).returncode == 0
    np.testing.assert_allclose(run(folder, x.tobytes()), expected.ravel(), 1e-4, 1e-5)


def test_one_header(tmp_path):
    _, x, expected = exported(tmp_path, "mlp", path="net.h")
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
    np.testing.assert_allclose(run(tmp_path, b""), expected.ravel(), 1e-4, 1e-5)


ODD_NAMES = [
    ("class", "new", "int", "restrict"),
    ("model", "net_run", "net_arena", "fused_add"),
    ("NULL", "INFINITY", "uint8_t", "linux"),
    ("NET_OK", "NET_H", "stdin", "fread"),
    ("sin", "expf", "memcpy", "printf"),
    ("é", "日本", "a.b", "a_b"),
    ("*/", '"q"', "x\ny", "??/"),
]


def named(inputs: tuple[str, str], outputs: tuple[str, str]) -> IRModule:
    """A model with these names of inputs and outputs, which computes their sum and its maximum with 0."""
    x, y = (param(name, tensor_type((2, 4), "float32")) for name in inputs)
    total = registry().ops["add"].build(x, y)
    body = make_tuple([total, registry().ops["relu"].build(total)])
    return IRModule({"main": Function("main", (x, y), body, {"inputs": inputs, "outputs": outputs})})


@pytest.mark.parametrize("names", ODD_NAMES)
def test_reserved_words_of_c_are_renamed(tmp_path, names):
    exe = dlc.compile(named(names[:2], names[2:]), "c", cache=False)
    exe.export(tmp_path / "net")
    flags = ["-std=gnu99", *STRICT, "-Wshadow"]
    made = compiled(tmp_path / "net", COMPILERS[0], flags, ["main.c", "net.c"])
    assert made.returncode == 0, made.stderr
    x = np.arange(8, dtype=np.float32).reshape(2, 4) - 3
    found = run(tmp_path / "net", x.tobytes() * 2)
    np.testing.assert_array_equal(found, np.concatenate([2 * x, np.maximum(2 * x, 0)]).ravel())


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
@pytest.mark.parametrize("names", ODD_NAMES)
def test_headers_are_for_cpp_too(tmp_path, names):
    dlc.compile(named(names[:2], names[2:]), "c", cache=False).export(tmp_path / "net.c")
    (tmp_path / "user.cpp").write_text('#include "net.h"\nint main() { return NET_OK; }\n')
    subprocess.run(["g++", "-std=c++11", *STRICT, "-c", "user.cpp"], cwd=tmp_path, check=True)


@pytest.mark.parametrize(
    ("path", "name"), [("main", "main_model"), ("math", "math_model"), ("int", "int_model"), ("é", "model")]
)
def test_file_names_do_not_collide_with_standard_headers(tmp_path, path, name):
    exe = dlc.compile(networks.mlp(), "c", cache=False)
    files = {file.name for file in exe.export(tmp_path / path)}
    assert {"main.c", f"{name}.c", f"{name}.h"} <= files
    flags = ["-std=c99", *STRICT, "-I."]
    assert compiled(tmp_path / path, COMPILERS[0], flags, ["main.c", f"{name}.c"]).returncode == 0


def test_empty_arrays(tmp_path):
    x = param("x", tensor_type((0, 4), "float32"))
    module = IRModule({"main": Function("main", (x,), registry().ops["relu"].build(x))})
    dlc.compile(module, "c", cache=False).export(tmp_path / "net")
    made = compiled(tmp_path / "net", COMPILERS[0], ["-std=c99", *STRICT], ["main.c", "net.c"])
    assert made.returncode == 0, made.stderr
    assert run(tmp_path / "net", b"").size == 0


PICK = """
@T.prim_func
def pick(A: T.Buffer((8,), "float32"), I: T.Buffer((4,), "int32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        B[i] = A[I[i]]
"""


def test_failed_bounds_checks_are_errors_of_the_call(tmp_path):
    exe = dlc.build(dlc.script.parse(PICK), "c", config={"check_bounds": True})
    exe.export(tmp_path / "net.c")
    exe.export(tmp_path / "other.c")
    (tmp_path / "main.c").write_text(
        """#include "net.h"
#include "other.h"
int main(void) {
    static const float a[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const int32_t good[4] = {7, 0, 1, 2}, bad[4] = {7, 8, 1, 2};
    float b[4];
    if (net_run(a, bad, b, NULL) != NET_ERROR_CHECK) return 1;
    if (other_run(a, good, b, NULL) != OTHER_OK) return 2;
    if (net_run(a, good, b, NULL) != NET_OK) return 3;
    return b[0] == 8 && b[3] == 3 ? 0 : 4;
}
"""
    )
    made = compiled(tmp_path, COMPILERS[0], ["-std=c99", *STRICT], ["main.c", "net.c", "other.c"])
    assert made.returncode == 0, made.stderr
    assert subprocess.run(["./program"], cwd=tmp_path, check=False).returncode == 0


@pytest.mark.parametrize("target", ["c", "c -vector-bits=128"])
def test_several_models_in_one_file(tmp_path, target):
    for name in ("mlp", "keywords"):
        exported(tmp_path, name, target, f"{name}.h")
        exported(tmp_path, name, target, f"{name}_too.h")
    headers = sorted(path.stem for path in tmp_path.iterdir())
    lines = [f'#define {name.upper()}_IMPLEMENTATION\n#include "{name}.h"\n' for name in headers]
    (tmp_path / "all.c").write_text("".join(lines))
    made = [COMPILERS[0], "-std=gnu99", *STRICT, "-Wno-psabi", "-c", "all.c"]
    subprocess.run(made, cwd=tmp_path, check=True)
    listed = subprocess.run(["nm", "-g", "all.o"], cwd=tmp_path, capture_output=True, text=True, check=True)
    given = [line.split()[-1] for line in listed.stdout.splitlines() if " U " not in line]
    assert given == ["keywords_run", "keywords_too_run", "mlp_run", "mlp_too_run"]


def test_kernels_and_values_are_named_after_their_operators():
    text = dlc.compile(networks.keywords(), "c -mcpu=cortex-m4", cache=False).source("c")
    assert "fused_conv_relu(x, conv_relu_p1, conv_relu_p2, conv_relu, pad);" in text
    assert "false ?" not in text
    assert "true ?" not in text
    assert "_i64" not in text, "indices are of 32 bits"


def test_invalid_calls_return_error_codes(tmp_path):
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


def test_exporting_twice_gives_the_same_bytes(tmp_path):
    (tmp_path / "a").mkdir()
    exported(tmp_path, "keywords", path="a/net.c")
    (tmp_path / "b").mkdir()
    exported(tmp_path, "keywords", path="b/net.c")
    for name in ("net.c", "net.h"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_sources_have_readable_names(tmp_path):
    exe, *_ = exported(tmp_path, "mlp", path="net.c")
    text = (tmp_path / "net.c").read_text()
    assert "clock" not in text
    assert "__entry" not in text
    assert "dlc_max_f32" in text
    assert "model(" in text
    assert str(exe.signature.weights_size) in text


def test_symbolic_dims_are_refused(tmp_path):
    x = param("x", tensor_type((Var("n"), 4)))
    module = IRModule({"main": Function("main", (x,), registry().ops["relu"].build(x))})
    exe = dlc.compile(module, "c", cache=False)
    assert exe(np.float32([[-1, 2, -3, 4]])).tolist() == [[0, 2, 0, 4]]
    with pytest.raises(UnsupportedError, match="fixed sizes"):
        exe.export(tmp_path / "net.c")


def test_unsupported_file_suffixes_are_refused(tmp_path):
    exe = dlc.compile(networks.mlp(), "c", cache=False)
    with pytest.raises(UnsupportedError, match="is not a C source"):
        exe.export(tmp_path / "net.so")


def test_sizes_that_do_not_broadcast_are_refused(tmp_path):
    a, b = Var("a"), Var("b")
    x = param("x", tensor_type((a, b)))
    y = registry().ops["add"].build(x, constant(np.ones(5, np.float32)))
    module = IRModule({"main": Function("main", (x,), registry().ops["relu"].build(y))})
    exe = dlc.compile(module, "c", shapes={"a": 2, "b": 5}, cache=False)
    assert [path.name for path in exe.export(tmp_path / "net.c")] == ["net.h", "net.c"]
    with pytest.raises(DlcError, match="do not broadcast: 3 against 5"):
        dlc.compile(module, "c", shapes={"a": 2, "b": 3}, cache=False)
    free = dlc.compile(module, "c", cache=False)
    with pytest.raises(UsageError, match=r"dim 1 \(b\) of input 'x' is 3, 1 or 5 is needed"):
        free(np.ones((2, 3), np.float32))
    with pytest.raises(UnsupportedError):
        free.export(tmp_path / "free.c")
