"""Exported libraries: C programs run the models without Python and have the same results."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess

import numpy as np
import pytest
from dlc_backend_llvm.data_object import hidden, machine_of, write_data_object
from dlc_backend_llvm.objects import read_object

import dlc_core as dlc
from dlc_core.diag import ArtifactError, UnsupportedError, UsageError
from dlc_core.graph.node import Function, constant, make_tuple, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.plugin.registry import registry
from dlc_core.runtime.library import c_name

CC = shutil.which("cc")
needs_cc = pytest.mark.skipif(CC is None, reason="there is no C compiler `cc` here")
RNG = np.random.default_rng(3)
WEIGHT = RNG.standard_normal((8, 5)).astype(np.float32)


def model(rows):
    """relu(x @ w) + s and its sum over columns; `rows` may be symbolic."""
    ops = registry().ops
    x, s = param("x", tensor_type((rows, 8))), param("shift", tensor_type((5,)))
    y = ops["add"].build(ops["relu"].build(ops["matmul"].build(x, constant(WEIGHT))), s)
    total = ops["reduce_sum"].build(y, axes=(1,))
    attrs = {"inputs": ("x", 'a "name"\n'), "outputs": ("y", "total")}
    return IRModule({"main": Function("main", (x, s), make_tuple([y, total]), attrs)})


def build_and_run(folder, source, library):
    (folder / "main.c").write_text(source)
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I", str(folder)]
    subprocess.run(
        [CC, *flags, "main.c", *library, "-o", "main"], cwd=folder, check=True, capture_output=True
    )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    done = subprocess.run(["./main"], cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return np.array([float.fromhex(word) for word in done.stdout.split()], np.float32)


STATIC = r"""
#include "net_v1.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
  static const int64_t shape[] = NET_V1_INPUT0_SHAPE;
  static float x[NET_V1_INPUT0_BYTES / 4], s[NET_V1_INPUT1_BYTES / 4];
  static float y[NET_V1_OUTPUT0_BYTES / 4], total[NET_V1_OUTPUT1_BYTES / 4];
  const void *inputs[NET_V1_NUM_INPUTS];
  void *outputs[NET_V1_NUM_OUTPUTS];
  void *workspace = malloc(net_v1_workspace_size() + 1);
  unsigned i;
  inputs[0] = x; inputs[1] = s; outputs[0] = y; outputs[1] = total;
  if (shape[0] != 3 || shape[1] != 8 || strcmp(NET_V1_INPUT0_DTYPE, "float32")) return 1;
  if (strcmp(NET_V1_INPUT1_NAME, "a \"name\"\n") || strcmp(NET_V1_OUTPUT1_NAME, "total")) return 2;
  for (i = 0; i < 24; i++) x[i] = (float)i / 7 - 1;
  for (i = 0; i < 5; i++) s[i] = (float)i;
  if (net_v1_run(inputs, outputs, workspace, 2)) return 3;
  for (i = 0; i < 15; i++) printf("%a ", y[i]);
  for (i = 0; i < 3; i++) printf("%a ", total[i]);
  if (net_v1_run(NULL, outputs, workspace, 1) != -1 || net_v1_run(inputs, NULL, workspace, 1) != -1) return 4;
  inputs[1] = NULL;
  if (net_v1_run(inputs, outputs, workspace, 1) != -1) return 5;
  if (net_v1_workspace_size() && net_v1_run(inputs, outputs, NULL, 1) != -1) return 6;
  free(workspace);
  return 0;
}
"""

SYMBOLIC = r"""
#include "net.h"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  int64_t n, shape[2], i;
  for (n = 1; n < 4; n++) {
    float *x = malloc(n * 32), s[5], *y, *total = malloc(n * 4);
    const void *inputs[2];
    void *outputs[2], *workspace = malloc(net_workspace_size(n) + 1);
    net_output0_shape(shape, n);
    if (shape[0] != n || shape[1] != 5) return 1;
    y = malloc(shape[0] * shape[1] * 4);
    inputs[0] = x; inputs[1] = s; outputs[0] = y; outputs[1] = total;
    for (i = 0; i < 8 * n; i++) x[i] = (float)i / 7 - 1;
    for (i = 0; i < 5; i++) s[i] = (float)i;
    if (net_run(inputs, outputs, workspace, 0, n)) return 2;
    for (i = 0; i < 5 * n; i++) printf("%a ", y[i]);
    for (i = 0; i < n; i++) printf("%a ", total[i]);
    free(x); free(y); free(total); free(workspace);
  }
  return 0;
}
"""


def inputs(rows):
    x = (np.arange(rows * 8, dtype=np.float32) / np.float32(7) - np.float32(1)).reshape(rows, 8)
    return x, np.arange(5, dtype=np.float32)


@needs_cc
def test_a_c_program_gets_the_same_numbers(tmp_path):
    exe = dlc.compile(model(3), "llvm", num_threads=2)
    files = exe.export(tmp_path / "libnet-v1.so")
    assert [f.name for f in files] == ["libnet-v1.so", "net_v1.h"]
    expected = np.concatenate([a.ravel() for a in exe(*inputs(3))])
    np.testing.assert_array_equal(build_and_run(tmp_path, STATIC, ["libnet-v1.so"]), expected)
    left = sorted(p.name for p in tmp_path.iterdir())
    assert left == ["libnet-v1.so", "main", "main.c", "net_v1.h"]
    shown = subprocess.run(
        ["nm", "-D", "--defined-only", tmp_path / "libnet-v1.so"], capture_output=True, text=True
    )
    if shown.returncode == 0:
        names = {line.split()[2] for line in shown.stdout.splitlines() if " T " in line}
        assert names == {"net_v1_run", "net_v1_run_dlpack", "net_v1_workspace_size"}


@needs_cc
def test_symbolic_dims_are_arguments(tmp_path):
    exe = dlc.compile(model(Var("n")), "llvm")
    exe.export(tmp_path / "net.so")
    expected = np.concatenate([a.ravel() for n in (1, 2, 3) for a in exe(*inputs(n))])
    np.testing.assert_array_equal(build_and_run(tmp_path, SYMBOLIC, ["net.so"]), expected)


DESCRIBED = r"""
#include "net.h"
#include <stdio.h>
#include <stdlib.h>
typedef struct { int32_t type, id; } Device;
typedef struct { uint8_t code, bits; uint16_t lanes; } DataType;
typedef struct {
  void *data; Device device; int32_t ndim; DataType dtype; int64_t *shape, *strides; uint64_t byte_offset;
} Tensor;
static Tensor make(void *data, int32_t ndim, int64_t *shape) {
  Tensor t = {data, {1, 0}, ndim, {2, 32, 1}, shape, NULL, 0};
  return t;
}
int main(void) {
  enum { n = 2 };
  float x[n * 8 + 1], s[5], y[n * 5], total[n];
  int64_t xs[] = {n, 8}, ss[] = {5}, ys[] = {n, 5}, ts[] = {n}, steps[] = {8, 1}, wrong[] = {1, n};
  Tensor all[] = {make(x, 2, xs), make(s, 1, ss), make(y, 2, ys), make(total, 1, ts)}, good;
  const void *in[] = {&all[0], &all[1]}, *out[] = {&all[2], &all[3]};
  void *space = malloc(net_workspace_size(n) + 1);
  int i;
  for (i = 0; i < n * 8; i++) x[i + 1] = (float)i / 7 - 1;
  for (i = 0; i < 5; i++) s[i] = (float)i;
  all[0].byte_offset = 4;
  all[0].strides = steps;
  if (net_run_dlpack(in, out, space, 0)) return 1;
  for (i = 0; i < n * 5; i++) printf("%a ", y[i]);
  for (i = 0; i < n; i++) printf("%a ", total[i]);
  if (net_run_dlpack(NULL, out, space, 0) != -1 || net_run_dlpack(in, NULL, space, 0) != -1) return 2;
  in[1] = NULL;
  if (net_run_dlpack(in, out, space, 0) != -201) return 3;
  in[1] = &all[1];
  good = all[2];
  all[2].ndim = 1;
  if (net_run_dlpack(in, out, space, 0) != -303) return 4;
  all[2] = good;
  all[2].dtype.bits = 64;
  if (net_run_dlpack(in, out, space, 0) != -304) return 5;
  all[2] = good;
  all[3].shape[0] = n + 1;
  if (net_run_dlpack(in, out, space, 0) != -405) return 6;
  all[3].shape[0] = n;
  all[0].strides = wrong;
  if (net_run_dlpack(in, out, space, 0) != -106) return 7;
  all[0].strides = NULL;
  all[0].byte_offset = 6;
  if (net_run_dlpack(in, out, space, 0) != -107) return 8;
  all[0].byte_offset = 4;
  all[0].shape = NULL;
  if (net_run_dlpack(in, out, space, 0) != -103) return 9;
  all[0].shape = xs;
  all[1].device.type = 2;
  if (net_run_dlpack(in, out, space, 0) != -202) return 10;
  free(space);
  return 0;
}
"""


@needs_cc
def test_descriptors_are_checked_before_anything_runs(tmp_path):
    exe = dlc.compile(model(Var("n")), "llvm")
    _, header = exe.export(tmp_path / "net.so")
    expected = np.concatenate([a.ravel() for a in exe(*inputs(2))])
    np.testing.assert_array_equal(build_and_run(tmp_path, DESCRIBED, ["net.so"]), expected)
    assert "1 NULL, 2 device, 3 rank, 4 dtype, 5 shape, 6 strides, 7 alignment" in header.read_text()
    assert "dim_n follows from the shapes" in header.read_text()


def data_dependent_rows():
    """x repeated, with the number of repetitions in an element of k."""
    n, rows, element = Var("n"), Var("rows"), Var("k_1")
    x, k = param("x", tensor_type((1, n))), param("k", tensor_type((2,), "int32"))
    ops = registry().ops
    last = ops["slice"].build(k, begins=(1,), ends=(2,))
    row_dim = ops["dim_of"].build(ops["cast"].build(last, to="int64"), size=rows)
    y = ops["broadcast_to"].build(ops["relu"].build(x), shape=(rows, n))
    attrs = {"inputs": ("x", "k"), "outputs": ("y",)}
    attrs |= {"elements": ((element, "k", 1),), "data_dims": ((rows, element, "no rows"),)}
    return IRModule({"main": Function("main", (x, k), ops["with_dims"].build(row_dim, y), attrs)})


DATA_DIMS = r"""
#include "net.h"
#include <stdio.h>
#include <stdlib.h>
typedef struct { int32_t type, id; } Device;
typedef struct { uint8_t code, bits; uint16_t lanes; } DataType;
typedef struct {
  void *data; Device device; int32_t ndim; DataType dtype; int64_t *shape, *strides; uint64_t byte_offset;
} Tensor;
int main(void) {
  float x[3] = {1, -2, 3}, *y;
  int32_t k[2] = {-7, 0};
  int64_t rows, shape[2], xs[] = {1, 3}, ks[] = {2}, i, n = 3;
  const void *inputs[2];
  void *outputs[1], *workspace;
  inputs[0] = x; inputs[1] = k;
  k[1] = -1;
  if (net_dims(inputs, n, &rows) >= 0) return 1;
  for (k[1] = 1; k[1] < 4; k[1]++) {
    Tensor tx = {x, {1, 0}, 2, {2, 32, 1}, xs, NULL, 0}, tk = {k, {1, 0}, 1, {0, 32, 1}, ks, NULL, 0};
    Tensor ty = {NULL, {1, 0}, 2, {2, 32, 1}, shape, NULL, 0};
    const void *in[2], *out[1];
    if (net_dims(inputs, n, &rows) != 0 || rows != k[1]) return 2;
    net_output0_shape(shape, n, rows);
    if (shape[0] != rows || shape[1] != n) return 3;
    y = malloc(shape[0] * shape[1] * 4);
    outputs[0] = y;
    workspace = malloc(net_workspace_size(n, rows) + 1);
    if (net_run(inputs, outputs, workspace, 0, n, rows)) return 4;
    for (i = 0; i < n * rows; i++) printf("%a ", y[i]);
    for (i = 0; i < n * rows; i++) y[i] = 0;
    ty.data = y; in[0] = &tx; in[1] = &tk; out[0] = &ty;
    if (net_run_dlpack(in, out, workspace, 0)) return 5;
    for (i = 0; i < n * rows; i++) printf("%a ", y[i]);
    shape[0]++;
    if (net_run_dlpack(in, out, workspace, 0) != -305) return 6;
    ks[0] = 1;
    if (net_run_dlpack(in, out, workspace, 0) != -205) return 7;
    ks[0] = 2; k[1] = -1;
    if (net_run_dlpack(in, out, workspace, 0) != -205) return 8;
    k[1] = rows;
    free(y); free(workspace);
  }
  return net_dims(NULL, n, &rows) == -1 ? 0 : 9;
}
"""


@needs_cc
def test_the_library_computes_host_computed_dims(tmp_path):
    exe = dlc.compile(data_dependent_rows(), "llvm")
    _, header = exe.export(tmp_path / "net.so")
    assert "int net_dims(const void *const *inputs, int64_t dim_n, int64_t *dim_rows);" in header.read_text()
    x = np.float32([[1, -2, 3]])
    expected = [exe(x, np.int32([-7, k])).ravel() for k in (1, 1, 2, 2, 3, 3)]
    np.testing.assert_array_equal(build_and_run(tmp_path, DATA_DIMS, ["net.so"]), np.concatenate(expected))
    library = dlc.load_library(tmp_path / "net.so")
    np.testing.assert_array_equal(library(x, np.int32([0, 4])), exe(x, np.int32([0, 4])))


@needs_cc
def test_the_exported_program_computes_dims(tmp_path):
    exe = dlc.compile(data_dependent_rows(), "llvm")
    exe.export(tmp_path / "net")
    folder = tmp_path / "net"
    objects = [p.name for p in sorted(folder.glob("*.o"))]
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "net_main.c", *objects]
    subprocess.run([CC, *flags, "-lm", "-lpthread", "-o", "net"], cwd=folder, check=True)
    np.float32([1, -2, 3]).tofile(folder / "x")
    np.int32([0, 2]).tofile(folder / "k")
    subprocess.run(["./net", "1", "x", "k", "y", "3"], cwd=folder, check=True)
    assert np.fromfile(folder / "y", np.float32).tolist() == [1, 0, 3, 1, 0, 3]
    np.int32([0, -2]).tofile(folder / "k")
    failed = subprocess.run(["./net", "1", "x", "k", "y", "3"], cwd=folder, capture_output=True, text=True)
    assert (failed.returncode, "are not valid" in failed.stderr) == (1, True)


@needs_cc
def test_objects_are_linked_elsewhere(tmp_path):
    exe = dlc.compile(model(Var("n")), "llvm")
    (tmp_path / "net").mkdir()
    files = exe.export(tmp_path / "net")
    for path in files:
        shutil.copy(path, tmp_path)
    objects = [f.name for f in files if f.suffix == ".o"]
    expected = np.concatenate([a.ravel() for n in (1, 2, 3) for a in exe(*inputs(n))])
    np.testing.assert_array_equal(build_and_run(tmp_path, SYMBOLIC, [*objects, "-lm", "-lpthread"]), expected)


@needs_cc
def test_an_opened_artefact_exports_too(tmp_path):
    exe = dlc.compile(model(3), "llvm")
    exe.save(tmp_path / "m.dlc")
    again = dlc.open(tmp_path / "m.dlc")
    again.export(tmp_path / "net_v1.so")
    expected = np.concatenate([a.ravel() for a in exe(*inputs(3))])
    np.testing.assert_array_equal(build_and_run(tmp_path, STATIC, ["net_v1.so"]), expected)


@needs_cc
def test_two_models_live_in_one_process(tmp_path):
    import ctypes

    results = []
    for name, rows in (("one", 2), ("two", 3)):
        exe = dlc.compile(model(rows), "llvm")
        exe.export(tmp_path / f"{name}.so")
        library = ctypes.CDLL(str(tmp_path / f"{name}.so"), mode=ctypes.RTLD_GLOBAL)
        arrays = [*inputs(rows), np.empty((rows, 5), np.float32), np.empty(rows, np.float32)]
        size = getattr(library, f"{name}_workspace_size")()
        workspace = ctypes.create_string_buffer(size + 1)
        pointers = [
            (ctypes.c_void_p * 2)(*(a.ctypes.data for a in pair)) for pair in (arrays[:2], arrays[2:])
        ]
        assert getattr(library, f"{name}_run")(*pointers, workspace, 1) == 0
        for got, expected in zip(arrays[2:], exe(*inputs(rows))):
            np.testing.assert_array_equal(got, expected)
        results.append(arrays[2])
    np.testing.assert_array_equal(results[1][:2], results[0])


def test_other_machines_need_no_compiler_for_objects(tmp_path):
    exe = dlc.compile(model(3), "llvm -mtriple=aarch64-linux-gnu")
    (tmp_path / "net").mkdir()
    files = exe.export(tmp_path / "net")
    objects = [f for f in files if f.suffix == ".o"]
    assert {read_object(f.read_bytes()).machine for f in objects} == {"aarch64"}
    with pytest.raises(ArtifactError, match="the code is for aarch64, this machine is"):
        exe(*inputs(3))


def test_unsupported_exports_are_errors(tmp_path, monkeypatch):
    exe = dlc.compile(model(3), "llvm")
    with pytest.raises(ArtifactError, match="there is no folder"):
        exe.export(tmp_path / "missing" / "net.so")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(UnsupportedError, match="there is no C compiler to link"):
        exe.export(tmp_path / "net.so")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UnsupportedError, match="windows"):
        dlc.compile(model(3), "llvm -mtriple=x86_64-pc-windows-msvc").export(tmp_path / "net.so")


def test_names_become_c_identifiers():
    given = ("libresnet-50", "50cent", "net", "é", "lib")
    assert [c_name(text) for text in given] == ["resnet_50", "model_50cent", "net", "_", "model"]


def test_data_objects_hold_their_bytes(tmp_path):
    code = dlc.compile(model(3), "llvm").artifact.code
    data = bytes(range(256)) * 40 + b"odd"
    write_data_object(tmp_path / "data.o", machine_of(code), "numbers", memoryview(data))
    made = (tmp_path / "data.o").read_bytes()
    info = read_object(made)
    assert (info.defined, info.undefined, info.relocatable) == (("numbers",), (), True)
    assert data in made
    entry = "main__entry"
    assert read_object(code).defined.count(entry) == 1
    changed = hidden(code, [entry])
    assert len(changed) == len(code)
    assert sum(a != b for a, b in zip(code, changed)) == 1
    with pytest.raises(UnsupportedError, match="only little-endian ELF"):
        hidden(b"MZ", [entry])


def test_contradictory_dims_are_refused(tmp_path):
    ops = registry().ops
    a, b, c = Var("a"), Var("b"), Var("c")
    x, y = param("x", tensor_type((a, b))), param("y", tensor_type((c, 4)))
    product = ops["matmul"].build(ops["reshape"].build(x, shape=(-1, c)), y)
    exe = dlc.compile(IRModule({"main": Function("main", (x, y), product)}), "llvm")
    _, header = exe.export(tmp_path / "net.so")
    assert "c >= 1" in header.read_text()
    library = ctypes.CDLL(str(tmp_path / "net.so"))
    data, out = np.ones((8, 8), np.float32), np.zeros((8, 8), np.float32)
    inputs, outputs = (ctypes.c_void_p * 2)(*[data.ctypes.data] * 2), (ctypes.c_void_p * 1)(out.ctypes.data)
    space = np.zeros(1 << 16, np.uint8)

    def run(*dims):
        words = map(ctypes.c_int64, dims)
        return library.net_run(inputs, outputs, space.ctypes.data_as(ctypes.c_void_p), 1, *words)

    assert [run(2, 6, 5), run(2, 6, 0), run(0, 6, 0)] == [-1, -1, -1]
    assert not out.any()
    assert run(2, 6, 3) == 0
    np.testing.assert_array_equal(out.ravel()[:16], 3)
    loaded = dlc.load_library(tmp_path / "net.so")
    with pytest.raises(UsageError, match=r"reshape: a \* b is 12, 10"):
        loaded(data[:2, :6], data[:5, :4])
