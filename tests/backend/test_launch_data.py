"""Lists of launches as data: `dlc_launches.h` evaluates what `pack_launches` writes as Python does."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlc_core.backend import read_launches
from dlc_core.backend.deploy import HEADERS, pack_launches
from dlc_core.diag import ArtifactError, UnsupportedError
from dlc_core.target import Artifact

CC = shutil.which("cc")
SHIM = r"""
#include "dlc_launches.h"

typedef struct { int64_t *out; size_t used, room; int stop; } record;

static void put(record *r, int64_t value) {
  if (r->used < r->room) r->out[r->used] = value;
  r->used++;
}

static int start(void *context, const dlc_launch *launch) {
  record *r = (record *)context;
  size_t i;
  put(r, launch->kernel);
  put(r, (int64_t)strlen(launch->name));
  put(r, (int64_t)strlen(launch->order));
  put(r, launch->shared_bytes);
  for (i = 0; i < 3; i++) put(r, launch->groups[i]);
  for (i = 0; i < 3; i++) put(r, launch->threads[i]);
  for (i = 0; i < launch->num_buffers; i++) {
    put(r, launch->buffers[i].buffer);
    put(r, launch->buffers[i].offset);
    put(r, launch->buffers[i].size);
  }
  for (i = 0; i < launch->num_scalars; i++) put(r, launch->scalars[i]);
  return r->stop;
}

int64_t run(const void *code, size_t size, const char *entry, const int64_t *scalars, size_t count,
            int64_t *out, size_t room, int stop) {
  dlc_launches list;
  record r = {out, 0, room, stop};
  int status = dlc_launches_open(&list, code, size);
  if (status) return status;
  status = dlc_launches_run(&list, dlc_launches_entry(&list, entry), scalars, count, start, &r);
  return status ? status : (int64_t)r.used;
}

size_t code_size(const void *code, size_t size) {
  dlc_launches list;
  return dlc_launches_open(&list, code, size) ? 0 : list.code_size;
}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Any:
    if CC is None:
        pytest.skip("there is no C compiler `cc` here")
    folder = tmp_path_factory.mktemp("launches")
    (folder / "shim.c").write_text(SHIM)
    words = [CC, "-std=c99", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{HEADERS[2].parent}"]
    subprocess.run([*words, "shim.c", "-o", "shim.so"], cwd=folder, check=True)
    library = ctypes.CDLL(str(Path(folder, "shim.so")))
    library.run.restype = ctypes.c_int64
    library.code_size.restype = ctypes.c_size_t
    return library


def kernel(symbol: str, buffers: int, scalars: int, shared: int = 0) -> dict[str, Any]:
    return {
        "symbol": symbol,
        "buffers": [[f"b{i}", 4, True] for i in range(buffers)],
        "scalars": ["int64"] * scalars,
        "order": "b" * buffers + "s" * scalars,
        "shared": [["s", shared]] if shared else [],
        "meets": False,
    }


BINARY = ("add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max")
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
ROWS: list[list[Any]] = [
    ["var", "n"], ["var", "m"], ["const", 7],
    *([op, 0, 1] for op in BINARY),
    *([op, 0, 1] for op in COMPARE),
]  # fmt: skip


def expr(index: int) -> dict[str, int]:
    return {"expr": index}


def artifact(rows: list[list[Any]], steps: list[dict[str, Any]], kernels: list[dict[str, Any]]) -> Artifact:
    entries = {"main": {"buffers": 2, "scalars": [0, 1], "steps": steps}}
    data = {"kernels": kernels, "entries": entries, "exprs": rows}
    return Artifact("text", b"the kernels", "card", ("main",), metadata={"launches": data})


def launch(number: int, grid: list[Any], buffers: list[Any], scalars: list[Any]) -> dict[str, Any]:
    return {"kernel": number, "grid": grid, "group": [8, 1, 1], "buffers": buffers, "scalars": scalars}


def program() -> Artifact:
    """All operations as scalars of a launch; a loop with a branch in it, whose launches use its variable."""
    rows = [*ROWS]
    both = len(rows)
    rows += [["lt", 0, 1], ["ge", 1, 2], ["and", both, both + 1], ["or", both, both + 1], ["not", both]]
    rows += [["select", both, 0, 1], ["neg", 0]]
    i = len(rows)
    rows += [
        ["var", "i"],
        ["mul", i, 2],
        ["floormod", i, 3],
        ["const", 0],
        ["eq", i + 2, i + 3],
        ["mul", i, i],
    ]
    scalars = [expr(k) for k in range(3, 3 + len(BINARY))]
    first = launch(0, [3, 1, 1], [[0, 0, 64]], [*scalars, expr(both + 5), expr(both + 6)])
    side = launch(1, [expr(i + 5), 2, 1], [[1, expr(i + 1), 8], [0, expr(i), expr(i)]], [])
    other = launch(1, [1, 1, 1], [[0, 0, 0], [1, 0, expr(2)]], [])
    branch = {"if": i + 4, "then": [side], "else": [other]}
    nested = {"for": i, "begin": 1, "extent": expr(2), "steps": [branch]}
    last = {"if": both + 3, "then": [other], "else": []}
    return artifact(
        rows, [first, nested, last], [kernel("one", 1, len(scalars) + 2, 32), kernel("second", 2, 0)]
    )


def expected(made: Artifact, scalars: tuple[int, ...]) -> list[int]:
    kernels, lists = read_launches(made.metadata["launches"])
    found: list[int] = []
    for one in lists["main"].launches(scalars):
        head = [
            kernels.index(one.kernel),
            len(one.kernel.symbol),
            len(one.kernel.order),
            one.kernel.shared_bytes,
        ]
        windows = [number for w in one.buffers for number in (w.buffer, w.offset, w.size)]
        found += [*head, *one.grid, *one.group, *windows, *one.scalars]
    return found


def run(shim: Any, blob: bytes, scalars: tuple[int, ...], entry: bytes = b"main", stop: int = 0) -> Any:
    out = (ctypes.c_int64 * 4096)()
    given = (ctypes.c_int64 * len(scalars))(*scalars)
    aligned = np.frombuffer(blob, np.uint8).copy()
    address = ctypes.c_void_p(aligned.ctypes.data)
    sizes = ctypes.c_size_t(len(blob)), ctypes.c_size_t(len(scalars)), ctypes.c_size_t(4096)
    count = shim.run(address, sizes[0], entry, given, sizes[1], out, sizes[2], stop)
    return list(out[:count]) if count >= 0 and not stop else count


@pytest.mark.parametrize("scalars", [*itertools.product((5, -5), (3, -3, 7)), (1, 1), (100, 9)])
def test_c_evaluates_launches_as_python_does(shim, scalars):
    made = program()
    assert run(shim, pack_launches(made), scalars) == expected(made, scalars)


def test_the_code_of_the_kernels_follows(shim):
    made = program()
    blob, other = pack_launches(made), pack_launches(made, b"compiled")
    assert blob.endswith(b"the kernels")
    assert other.endswith(b"compiled")
    assert len(other) - len(b"compiled") == len(blob) - len(b"the kernels")
    assert (len(blob) - len(b"the kernels")) % 64 == 0
    assert shim.code_size(ctypes.c_char_p(blob), ctypes.c_size_t(len(blob))) == len(b"the kernels")


def test_errors_of_the_reader(shim):
    blob = pack_launches(program())
    assert run(shim, blob, (5, 3), stop=42) == 42
    assert run(shim, blob, (5, 3), entry=b"none") == -3
    assert run(shim, blob, (5,)) == -4
    assert run(shim, blob[:-1], (5, 3)) == -1
    assert run(shim, b"x" + blob[1:], (5, 3)) == -1
    assert run(shim, blob[:40], (5, 3)) == -1
    negative = artifact(
        [["var", "n"], ["var", "m"]], [launch(0, [expr(0), 1, 1], [[0, 0, 8]], [])], [kernel("k", 1, 0)]
    )
    assert run(shim, pack_launches(negative), (-1, 0)) == -5
    assert run(shim, pack_launches(negative), (0, 0)) == []


def test_what_c_runtimes_do_not_support_is_refused():
    with pytest.raises(ArtifactError, match="list of launches"):
        pack_launches(Artifact("text", b"", "card"))
    rows = [["var", "n"], ["var", "m"], ["cast", "float32", 0], ["float", "float32", 2.0], ["mul", 2, 3]]
    with pytest.raises(UnsupportedError, match="the operation 'cast'"):
        pack_launches(artifact(rows, [], []))
    one = kernel("k", 1, 0)
    one["tensors"] = [
        {"buffer": 0, "itemsize": 4, "swizzled": False, "dims": [8], "strides": [1], "box": [4]}
    ]
    one["variables"] = []
    with pytest.raises(UnsupportedError, match="kernel k has tensor copies"):
        pack_launches(artifact(ROWS, [], [one]))
