"""The interface of exported programs: names, bounds, changed buffers, files, errors."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import dlc_core as dlc
from dlc_core.cli.main import main
from dlc_core.diag import ModelError, UnsupportedError, UntrustedError, UsageError


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, image):
        self.calls += 1
        return {"scores": self.linear(image), "parts": [image * 2, image + self.calls]}


def exported(**options):
    torch.manual_seed(0)
    return torch.export.export(Model(), (torch.randn(2, 4),), **options)


def test_names_and_changed_buffers():
    exe = dlc.compile(exported())
    assert [value.name for value in exe.signature.inputs] == ["calls", "image"]
    names = [value.name for value in exe.signature.outputs]
    assert names == ["calls.new", "scores", "parts.0", "parts.1"]
    x = np.ones((2, 4), np.float32)
    found = exe.run({"calls": np.zeros((), np.float32), "image": x})
    again = exe.run({"calls": found["calls.new"], "image": x})
    assert again["calls.new"] == 2
    np.testing.assert_array_equal(again["parts.1"], x + 2)


def test_an_input_may_be_called_input_and_the_program_is_unchanged():
    x = torch.randn(2, 4)
    program = torch.export.export(torch.nn.Sequential(torch.nn.Flatten(0), torch.nn.ReLU()), (x,))
    before = str(program.graph)
    exe = dlc.compile(program)
    np.testing.assert_array_equal(exe(x), x.relu().flatten())
    assert str(program.graph) == before
    assert [value.name for value in exe.signature.inputs] == ["input"]


def test_bounds_of_sizes_are_checked():
    rows = torch.export.Dim("rows", min=2, max=8)
    exe = dlc.compile(exported(dynamic_shapes=({0: rows},)))
    calls = np.zeros((), np.float32)
    assert exe.run({"calls": calls, "image": np.ones((8, 4), np.float32)})["scores"].shape == (8, 3)
    with pytest.raises(UsageError, match="is 9"):
        exe.run({"calls": calls, "image": np.ones((9, 4), np.float32)})


class Branch(torch.nn.Module):
    def forward(self, x):
        return x * (5 if x.shape[0] == 1 else 2)


def test_sizes_for_which_a_branch_was_not_traced_are_refused():
    program = torch.export.export(
        Branch(), (torch.ones(4, 3),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
    )
    exe = dlc.compile(program)
    np.testing.assert_array_equal(exe(np.ones((9, 3), np.float32)), np.full((9, 3), 2, np.float32))
    with pytest.raises(UsageError, match="is 1, and the model is compiled for"):
        exe(np.ones((1, 3), np.float32))


def test_unknown_arguments_are_refused():
    with pytest.raises(UsageError, match="takes no 'exmaple_inputs'") as caught:
        dlc.compile(Branch(), exmaple_inputs=(torch.ones(4, 3),))
    assert "example_inputs" in caught.value.hint


def test_a_file_is_read(tmp_path):
    path = tmp_path / "m.pt2"
    torch.export.save(exported(), path)
    assert len(dlc.compile(path, trust=True).signature.outputs) == 4


class Hostile:
    """A pickle that makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.mkdir, (self.path,)


def test_a_hostile_file_runs_nothing_without_trust(tmp_path):
    torch.export.save(exported(), tmp_path / "own.pt2")
    made = tmp_path / "made"
    pickled = io.BytesIO()
    torch.save(Hostile(made), pickled)
    path = tmp_path / "hostile.pt2"
    with zipfile.ZipFile(tmp_path / "own.pt2") as own, zipfile.ZipFile(path, "w") as hostile:
        for name in own.namelist():
            is_sample = name.endswith("sample_inputs/model.pt")
            hostile.writestr(name, pickled.getvalue() if is_sample else own.read(name))
    for refused in (lambda: dlc.compile(path), lambda: dlc.load(str(path)), lambda: dlc.load(path)):
        with pytest.raises(UntrustedError, match="not read without trust=True"):
            refused()
    assert main(["inspect", str(path)]) != 0
    assert not made.exists()
    with pytest.raises((ModelError, FileExistsError)):
        dlc.load(path, trust=True)
    assert made.exists()  # so the file is what this test is about


@pytest.mark.parametrize("damage", ["cut", "empty", "text"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    path = tmp_path / "m.pt2"
    torch.export.save(exported(), path)
    data = {"cut": path.read_bytes()[:500], "empty": b"", "text": b"no archive at all"}[damage]
    path.write_bytes(data)
    with pytest.raises(ModelError, match="cannot be read"):
        dlc.compile(path, trust=True)


def test_missing_files_and_inputs_are_named(tmp_path):
    with pytest.raises(UsageError, match="no file"):
        dlc.compile(tmp_path / "none.pt2")
    with pytest.raises(UsageError, match="example inputs"):
        dlc.compile(Model())
    with pytest.raises(UsageError, match="already exported"):
        dlc.compile(exported(), example_inputs=(torch.randn(2, 4),))


class Missing(torch.nn.Module):
    def forward(self, x):
        a = torch.linalg.eigvalsh(x)
        b = torch.special.bessel_j0(x)
        return torch.linalg.qr(x)[0] + a + b


def test_all_missing_operators_are_named_with_their_lines():
    with pytest.raises(UnsupportedError) as caught:
        dlc.compile(Missing(), example_inputs=(torch.randn(3, 3),))
    text = str(caught.value)
    first = Missing.forward.__code__.co_firstlineno
    for line, operator in enumerate(("_linalg_eigh", "bessel_j0", "linalg_qr"), first + 1):
        assert operator in text
        assert f"test_export.py:{line}" in text
