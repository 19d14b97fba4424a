"""DLPack in both directions, with dtypes that NumPy does not exchange, and lifetimes of exported memory."""

from __future__ import annotations

import gc
import subprocess
import sys
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from dlc_core.diag import UsageError
from dlc_core.ir.dtype import DType
from dlc_core.runtime.call.arrays import as_host
from dlc_core.runtime.memory import dlpack


class Exporter:
    """An array that exports its memory by `dlpack.export`."""

    def __init__(self, array, *, readonly=False, old=False, device=dlpack.CPU):
        self.array, self.readonly, self.old, self.device = array, readonly, old, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, max_version=None, **_):
        if self.old:
            max_version = None
        address, dtype = self.array.ctypes.data, DType.of(self.array.dtype)
        options = {"readonly": self.readonly, "max_version": max_version}
        return dlpack.export(self.array, address, self.array.shape, dtype, **options)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "int8",
        "uint16",
        "int64",
        "bool",
        "complex64",
        "float8_e5m2",
    ],
)
def test_round_trip_shares_memory(dtype, old):
    array = np.arange(6).reshape(2, 3).astype(DType(dtype).numpy)
    view = dlpack.from_dlpack(Exporter(array, old=old))
    assert view.dtype == array.dtype
    assert view.tobytes() == array.tobytes()
    assert view.ctypes.data == array.ctypes.data
    view[0, 0] = view[1, 2]
    assert array[0, 0] == array[1, 2]


def test_strides_and_empty_arrays():
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    for view in (array.T, array[::2, 1:], array[:0], array[1, 2], np.zeros((0, 3), np.float32)):
        np.testing.assert_array_equal(dlpack.from_dlpack(np.asarray(view)), view)


def test_numpy_reads_exported_capsules():
    array = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(np.from_dlpack(Exporter(array)), array)


def test_read_only_memory_stays_read_only():
    array = np.arange(4, dtype=np.float32)
    array.flags.writeable = False
    assert not dlpack.from_dlpack(array).flags.writeable
    assert not dlpack.from_dlpack(Exporter(array, readonly=True)).flags.writeable
    with pytest.raises(UsageError, match=r"read-only memory needs a consumer with DLPack 1\.0"):
        dlpack.from_dlpack(Exporter(array, readonly=True, old=True))


def test_memory_is_freed_with_the_last_view():
    array = np.arange(4, dtype=np.float32)
    before = len(dlpack._exported)
    view = dlpack.from_dlpack(Exporter(array))[1:]
    assert len(dlpack._exported) == before + 1
    del view
    gc.collect()
    assert len(dlpack._exported) == before
    capsule = Exporter(array).__dlpack__()  # never consumed
    assert len(dlpack._exported) == before + 1
    del capsule
    assert len(dlpack._exported) == before


def test_refuses_memory_that_it_cannot_read():
    array = np.arange(4, dtype=np.float32)
    with pytest.raises(UsageError, match=r"on a device \(DLPack type 2\)"):
        dlpack.from_dlpack(Exporter(array, device=(2, 0)))
    used = Exporter(array).__dlpack__()
    once = SimpleNamespace(__dlpack__=lambda **_: used)
    np.testing.assert_array_equal(dlpack.from_dlpack(once), array)
    with pytest.raises(UsageError, match="did not return an unused DLPack capsule"):
        dlpack.from_dlpack(once)
    with pytest.raises(BufferError, match="no dtype for int4"):
        Exporter(np.zeros(3, ml_dtypes.int4)).__dlpack__()

    def raising(**_):
        raise BufferError("requires grad")

    with pytest.raises(UsageError, match="requires grad"):
        dlpack.from_dlpack(SimpleNamespace(__dlpack__=raising))


def test_exported_memory_outlives_the_module():
    """A deleter may run after the modules of this package are gone."""
    text = """
import sys
import numpy as np
from dlc_core.ir.dtype import DType
from dlc_core.runtime.memory import dlpack

class Exporter:
    def __init__(self):
        self.array = np.ones(3)
    def __dlpack_device__(self):
        return dlpack.CPU
    def __dlpack__(self, **_):
        return dlpack.export(self.array, self.array.ctypes.data, (3,), DType("float64"))

sys.kept = np.from_dlpack(Exporter()), Exporter().__dlpack__()
"""
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


class Lazy:
    """Tensors of some libraries are negated when they are read."""

    def is_neg(self):
        return True

    def __dlpack__(self, **_):
        return dlpack.export(None, 0, (0,), DType("float32"))


class Nowhere:
    def __dlpack_device__(self):
        raise ValueError("Unknown device type")

    def __dlpack__(self, **_):
        return None


@pytest.mark.parametrize(("source", "text"), [(Lazy(), "lazily negated"), (Nowhere(), "no device of DLPack")])
def test_arrays_without_readable_memory_are_refused(source, text):
    with pytest.raises(UsageError, match=f"input 'x': .* {text}"):
        as_host(source, "input 'x'")
