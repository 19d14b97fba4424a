"""Loading exported libraries into Python by `dlc.load_library`."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from dlc_backend_llvm.engine import compile_ir
from dlc_backend_llvm.linking import link_shared

import dlc_core as dlc
from dlc_core import te
from dlc_core.diag import ArtifactError, UnsupportedError, UsageError
from dlc_core.ir.expr import Var
from dlc_core.target import Target

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler `cc` here")


def add_one(rows):
    x = te.placeholder((rows, 3), name="x")
    return dlc.build([x, te.compute((rows, 3), lambda i, j: x[i, j] + 1.0, name="y")], num_threads=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("libraries")
    add_one(4).export(where / "add_one.so")
    add_one(Var("n")).export(where / "libany-rows.so")
    return where


def test_a_library_is_called_bound_and_timed(folder):
    lib = dlc.load_library(folder / "add_one.so", num_threads=1)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(lib(x), x + 1)
    assert [str(v) for v in (*lib.inputs, *lib.outputs)] == ["x: float32[4, 3]", "y: float32[4, 3]"]
    out = np.zeros_like(x)
    bound = lib.bind([x], [out])
    x += 10
    assert bound() is out
    np.testing.assert_array_equal(out, x + 1)
    assert lib.run({"x": x})["y"][0, 0] == x[0, 0] + 1
    assert lib.time_evaluator(number=3, repeat=2)(x).min > 0
    assert "add_one.so" in repr(lib)
    assert lib.num_threads == 1


def test_symbolic_dims_come_from_the_inputs(folder):
    lib = dlc.load_library(folder / "libany-rows.so")
    for rows in (1, 7):
        x = np.ones((rows, 3), np.float32)
        np.testing.assert_array_equal(lib(x), x + 1)


def test_inputs_are_checked_before_anything_runs(folder):
    lib = dlc.load_library(folder / "add_one.so")
    with pytest.raises(UsageError, match="input 'x' has shape"):
        lib(np.ones((3, 3), np.float32))
    with pytest.raises(UsageError, match="float64"):
        lib(np.ones((4, 3)))


def test_unsupported_operations_of_a_library_are_refused(folder, tmp_path):
    lib = dlc.load_library(folder / "add_one.so")
    with pytest.raises(UnsupportedError, match="is a library"):
        lib.save(tmp_path / "again.dlc")
    with pytest.raises(UnsupportedError, match="does not support export"):
        lib.export(tmp_path / "again.so")
    (row,) = lib.profile([np.ones((4, 3), np.float32)])
    assert row.measured == "clock"
    with pytest.raises(UsageError, match="this executable has: none"):
        lib.source("asm")


def test_a_renamed_library_needs_its_name(folder, tmp_path):
    shutil.copy(folder / "add_one.so", tmp_path / "other.so")
    with pytest.raises(ArtifactError, match="has no description of its interface"):
        dlc.load_library(tmp_path / "other.so")
    lib = dlc.load_library(tmp_path / "other.so", name="add_one")
    np.testing.assert_array_equal(lib(np.zeros((4, 3), np.float32)), 1)


def test_files_that_are_not_libraries_are_refused(tmp_path):
    with pytest.raises(ArtifactError, match="there is no library"):
        dlc.load_library(tmp_path / "none.so")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(ArtifactError, match="cannot be loaded"):
        dlc.load_library(tmp_path / "text.so")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not JSON"),
        ("[]", "version None"),
        ('{"version":99}', "version 99"),
        ('{"version":1,"name":"bad"}', "no function bad_run"),
        ('{"version":1,"metadata":{"features":"+no-such-feature"},"device":"cpu"}', "no-such-feature"),
    ],
)
def test_damaged_descriptions_are_refused(text, why, tmp_path):
    data = "".join(f"\\{b:02X}" for b in text.encode() + b"\0")
    code = compile_ir(f'@bad_signature = constant [{len(text) + 1} x i8] c"{data}"\n')
    link_shared([code], tmp_path / "bad.so")
    with pytest.raises(ArtifactError, match=why):
        dlc.load_library(tmp_path / "bad.so")


def test_the_description_contains_the_target(folder, monkeypatch):
    """The description of a library has its target."""
    assert dlc.load_library(folder / "add_one.so").artifact.target == str(Target(dlc.targets()["llvm"]))
