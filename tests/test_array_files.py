"""Files of arrays that anybody may have written."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from dlc_core import nn
from dlc_core.cli.arrays import read_array, read_arrays
from dlc_core.diag import ModelError, UsageError
from dlc_core.support.array_files import load_arrays


def npy(shape: str, descr: str = "<f4", body: bytes = b"") -> bytes:
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body


HOSTILE = {
    "huge": npy(f"({1 << 50},)"),
    "beyond": npy(f"({1 << 70},)"),
    "negative": npy("(-1,)"),
    "short": npy("(9,)", body=b"xx"),
    "object": npy("(1,)", "|O", b"cos\nsystem\n(S'exit 1'\ntR."),
    "text": npy("(1,)", "<f4', 'x"),
    "nested": b"\x93NUMPY\x02\x00" + (9000).to_bytes(4, "little") + b"(" * 9000,
    "cut": npy("(4,)")[:20],
    "empty": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_errors(name, tmp_path):
    array, arrays = tmp_path / "x.npy", tmp_path / "x.npz"
    array.write_bytes(HOSTILE[name])
    with zipfile.ZipFile(arrays, "w") as file:
        file.writestr("x.npy", HOSTILE[name])
    for path in (array, arrays):
        with pytest.raises((ValueError, OSError)):
            load_arrays(path)
    with pytest.raises(UsageError, match="cannot be read"):
        read_array(array)
    with pytest.raises(UsageError, match="cannot be read"):
        read_arrays(arrays)
    with pytest.raises(ModelError, match="cannot be read"):
        nn.read_state(arrays)


def test_arrays_are_read(tmp_path):
    x = np.arange(6.0).reshape(2, 3)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x, y=x + 1)
    np.testing.assert_array_equal(load_arrays(tmp_path / "x.npy"), x)
    found = load_arrays(tmp_path / "x.npz")
    assert isinstance(found, dict)
    assert sorted(found) == ["x", "y"]
    np.testing.assert_array_equal(found["y"], x + 1)
    with pytest.raises(UsageError, match="holds one array"):
        read_arrays(tmp_path / "x.npy")
    with pytest.raises(UsageError, match="holds several arrays"):
        read_array(tmp_path / "x.npz")
