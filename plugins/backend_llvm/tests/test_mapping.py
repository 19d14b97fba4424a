"""Objects mapped without LLVM: addresses, page protections, and errors for damaged objects."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from dlc_backend_llvm.elf import read_elf
from dlc_backend_llvm.engine import compile_ir
from dlc_backend_llvm.host import host_cpu
from dlc_backend_llvm.mapping import map_object

import dlc_core as dlc
from dlc_core import nn
from dlc_core.diag import ArtifactError, CodegenError

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or host_cpu().arch != "x86_64", reason="LLVM's own loader is used elsewhere"
)

PROGRAM = """
@counter = global i64 5, align 8
@zeros = internal global [1000 x i64] zeroinitializer, align 64
@table = internal constant [2 x ptr] [ptr @one, ptr @two], align 16
@environ = external global ptr
declare double @cos(double)
define i64 @one(i64 %x) { ret i64 1 }
define i64 @two(i64 %x) { %y = add i64 %x, 2 ret i64 %y }
define i64 @by_table(i64 %i) {
  %p = getelementptr ptr, ptr @table, i64 %i
  %f = load ptr, ptr %p
  %r = call i64 %f(i64 40)
  ret i64 %r
}
define i64 @count(i64 %by) {
  %p = getelementptr [1000 x i64], ptr @zeros, i64 0, i64 999
  %z = load i64, ptr %p
  %v = load i64, ptr @counter
  %w = add i64 %v, %by
  %s = add i64 %w, %z
  store i64 %s, ptr @counter
  ret i64 %s
}
define double @outer(double %x) {
  %c = call double @cos(double %x)
  %r = fadd double %c, 0.125
  ret double %r
}
define ptr @place() { ret ptr @environ }
"""


@pytest.fixture(scope="module")
def data() -> bytes:
    return compile_ir(PROGRAM)


def _call(loaded, name: str, result, *arguments):
    types = [ctypes.c_double if isinstance(a, float) else ctypes.c_int64 for a in arguments]
    return ctypes.CFUNCTYPE(result, *types)(loaded.address(name))(*arguments)


def test_code_constants_data_and_external_functions(data: bytes) -> None:
    loaded = map_object(data)
    assert loaded is not None
    assert [_call(loaded, "by_table", ctypes.c_int64, i) for i in (0, 1)] == [1, 42]
    assert [_call(loaded, "count", ctypes.c_int64, i) for i in (1, 10)] == [6, 16]
    assert ctypes.c_int64.from_address(loaded.address("counter")).value == 16
    assert _call(loaded, "outer", ctypes.c_double, 0.0) == 1.125
    expected = ctypes.addressof(ctypes.c_void_p.in_dll(ctypes.CDLL(None), "environ"))
    assert _call(loaded, "place", ctypes.c_void_p) == expected
    other = map_object(data)
    assert other is not None
    assert _call(other, "count", ctypes.c_int64, 0) == 5


def test_no_page_is_writeable_and_executable(data: bytes) -> None:
    loaded = map_object(data)
    assert loaded is not None
    rights = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, right = line.split()[:2]
        low, high = (int(word, 16) for word in place.split("-"))
        for name in ("one", "counter"):
            if low <= loaded.address(name) < high:
                rights[name] = right
    assert rights == {"one": "r-xp", "counter": "rw-p"}


def test_closed_code_is_unmapped_unless_kept(data: bytes) -> None:
    loaded = map_object(data)
    assert loaded is not None
    start = f"{loaded.address('one') & ~4095:x}-"
    assert start in Path("/proc/self/maps").read_text()
    loaded.close()
    loaded.close()
    assert loaded.closed
    assert start not in Path("/proc/self/maps").read_text()
    with pytest.raises(CodegenError, match="unloaded"):
        loaded.address("one")
    kept = map_object(data, keep=True)
    assert kept is not None
    with pytest.raises(CodegenError, match="no symbol 'three'"):
        kept.address("three")
    kept.close()
    assert not kept.closed


def test_undefined_symbols_are_named() -> None:
    text = "declare void @nobody_has_this()\ndefine void @f() { call void @nobody_has_this() ret void }"
    with pytest.raises(CodegenError, match="this process does not define\n  nobody_has_this"):
        map_object(compile_ir(text))


def test_unsupported_objects_are_loaded_by_llvm(data: bytes) -> None:
    text = "define i64 @f(i64 %x) { ret i64 %x }"
    assert map_object(compile_ir(text, "aarch64-linux-gnu")) is None
    assert map_object(b"no object at all") is None
    local = "@t = thread_local global i64 1\ndefine i64 @f() { %v = load i64, ptr @t ret i64 %v }"
    assert map_object(compile_ir(local)) is None


def test_damaged_objects_are_refused(data: bytes) -> None:
    generator = random.Random(0)
    refused = 0
    for _ in range(400):
        changed = bytearray(data)
        for _ in range(generator.randrange(1, 4)):
            changed[generator.randrange(len(changed))] = generator.randrange(256)
        try:
            map_object(bytes(changed))
        except (ArtifactError, CodegenError):
            refused += 1
    assert refused > 20
    for size in range(64, len(data), 97):
        try:
            map_object(data[:size])
        except ArtifactError:
            continue
        raise AssertionError(f"cut off at {size}")
    elf = read_elf(data)
    assert elf is not None
    assert {"one", "two", "counter", "cos"} <= {symbol.name for symbol in elf.symbols}


START = """
import sys
import numpy as np
import dlc_core as dlc
exe = dlc.open(sys.argv[1])
exe(np.zeros((2, 8), np.float32))
heavy = [name for name in sys.modules if name.split(".")[0] in ("llvmlite", "onnx")]
heavy += [name for name in ("dlc_core.passes", "dlc_core.schedule", "dlc_core.op.std") if name in sys.modules]
print(heavy)
"""


def test_opening_imports_neither_llvm_nor_the_compiler(tmp_path: Path) -> None:
    model = nn.Linear(8, 4).init(seed=0)
    exe = dlc.compile(model.to_module({"x": (2, 8)}), params=model.state_dict())
    exe.save(tmp_path / "m.dlc")
    variables = {**os.environ, "DLC_CACHE": "1", "DLC_CACHE_DIR": str(tmp_path)}
    for _ in range(2):  # the first run may have to load LLVM for the properties of the processor
        command = [sys.executable, "-c", START, str(tmp_path / "m.dlc")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
        assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
