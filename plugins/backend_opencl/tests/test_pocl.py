"""CPUs that PoCL's compiler does not know get a name that it knows."""

from __future__ import annotations

import ctypes
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from dlc_backend_opencl import pocl

HASWELL = "sse2 avx2 fma bmi1 bmi2 f16c movbe"
AVX512 = "avx512f avx512bw avx512cd avx512dq avx512vl"

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/mem is Linux's")


def record_of(*words: int) -> ctypes.Array[ctypes.c_char]:
    """A device record of PoCL that ends with these words."""
    before = 128 - len(words)
    return ctypes.create_string_buffer(struct.pack("128Q", *range(before), *words), 1024)


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (f"{HASWELL} {AVX512} avx512_vnni", "skylake-avx512"),
        (f"{HASWELL} avx512f", "haswell"),
        ("sse2 avx avx2", "x86-64"),
        ("", None),
    ],
)
def test_the_best_name_whose_features_the_processor_has(flags: str, name: str | None) -> None:
    words = f"vendor_id\t: AuthenticAMD\ncpu family\t: 26\nflags\t\t: {flags}\n"
    assert pocl.best_name(words) == name


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (f"flags\t\t: {HASWELL}\n", 16),
        (f"flags\t\t: {HASWELL} avx512f\n", 16),
        (f"flags\t\t: {HASWELL} {AVX512}\n", 32),
        ("Features\t: fp asimd\n", 32),
        ("", 16),
    ],
)
def test_vector_registers_are_those_of_the_processor(words: str, count: int) -> None:
    assert pocl.vector_registers(words) == count


def test_replacement_names_fit_the_memory() -> None:
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "malloc_usable_size"):
        pytest.skip("this C library does not tell what malloc gives")
    libc.strdup.restype, libc.strdup.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    libc.malloc_usable_size.argtypes = libc.free.argtypes = [ctypes.c_void_p]
    text = libc.strdup(pocl.UNKNOWN[:-1])
    try:
        assert max(map(len, pocl.NAMES)) + 1 <= libc.malloc_usable_size(text)
    finally:
        libc.free(text)


@linux
def test_only_the_text_of_the_device_record_is_replaced() -> None:
    name = ctypes.create_string_buffer(b"generic", 24)
    longer = ctypes.create_string_buffer(b"generic-name", 24)
    separate = ctypes.create_string_buffer(b"generic", 24)
    record = record_of(0, 2**64 - 1, 2**47, ctypes.addressof(longer), ctypes.addressof(name))
    before = record.raw
    assert pocl.rename(ctypes.addressof(record), b"haswell") == 1
    assert (name.value, longer.value, separate.value) == (b"haswell", b"generic-name", b"generic")
    assert record.raw == before
    assert pocl.rename(ctypes.addressof(record), b"x86-64") == 0


@linux
def test_only_pocl_devices_without_a_name_are_changed() -> None:
    if pocl.best_name(pocl.processor_facts()) is None:
        pytest.skip("no processor of x86-64")
    for version, changed in (
        ("OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-generic", True),
        ("OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-znver3", False),
        ("OpenCL 3.0 other-generic", False),
    ):
        name = ctypes.create_string_buffer(b"generic", 24)
        record = record_of(ctypes.addressof(name))
        pocl.name_processor(SimpleNamespace(version=version, int_ptr=ctypes.addressof(record)))
        assert (name.value != b"generic") == changed


def test_without_a_memory_file_nothing_is_changed(tmp_path: Path) -> None:
    assert pocl.rename(0, b"haswell", tmp_path / "none") == 0
