"""Guards and assertions of exported programs: each call checks them, in Python, in files and in libraries."""

import ctypes
import json
import zipfile

import numpy as np
import pytest
import torch
from torch.export import Dim

import dlc_core as dlc
from dlc_core.diag import DlcError, RuntimeFailure, UnsupportedError, UsageError

DYNAMIC = Dim.DYNAMIC
WITH_TEXTS = pytest.mark.skipif(torch.__version__ < "2.9", reason="torch before 2.9 has no texts of guards")


def ones(*shape):
    return torch.ones(shape)


class Multiple(torch.nn.Module):
    def forward(self, x):
        torch._check(x.shape[0] != 24)
        torch._check(x.shape[0] % 8 == 0)
        return x + 1


class Relation(torch.nn.Module):
    def forward(self, x, y):
        torch._check(x.shape[0] + y.shape[0] < 100)
        if x.shape[0] == 2 * y.shape[0]:
            return x.sum() + y.sum()
        return x.sum() - y.sum()


class Branch(torch.nn.Module):
    def forward(self, x):
        return x * 2 if x.shape[0] > 5 and x.shape[0] != 9 else x * 3


class Shifted(torch.nn.Module):
    def forward(self, x, y):
        return x[1:] + y[:-1]


class Grouped(torch.nn.Module):
    def forward(self, x):
        return x.reshape(-1, 4, x.shape[1]) * 2


class Nested(torch.nn.Module):
    def forward(self, x, tree, *more, last):
        torch._check(tree["k"][0].shape[0] % 3 == 0)
        torch._check(more[1].shape[0] != 9)
        torch._check(last.shape[0] != 11)
        return x.sum() + tree["k"][0].sum() + more[1].sum() + last.sum()


class Positive(torch.nn.Module):
    def forward(self, x):
        torch._assert_async((x > 0).all(), "x must be positive")
        return x.log()


class Found(torch.nn.Module):
    def forward(self, x):
        at = x.nonzero()
        torch._check(at.shape[0] != 3)
        torch._check(at.shape[0] < 6)
        return at * 2


class Counted(torch.nn.Module):
    def forward(self, n, y):
        count = n.item()
        torch._check(count >= 2)
        torch._check(count < y.shape[0])
        return y[:count] * 2


N = Dim("n", min=2, max=50)
STATIC = {
    "multiple": (Multiple(), (ones(16, 3),), ({0: DYNAMIC},), (ones(32, 3),),
                 [((ones(24, 3),), "dim 0 .* of input 'x' is 24"), ((ones(12, 3),), r"% 8 == 0")]),
    "relation": (Relation(), (ones(16, 3), ones(8, 2)), ({0: DYNAMIC}, {0: DYNAMIC}),
                 (ones(60, 3), ones(30, 2)),
                 [((ones(16, 3), ones(9, 2)), "input 'x'"), ((ones(72, 3), ones(36, 2)), "< 100")]),
    "branch": (Branch(), (ones(16, 3),), ({0: DYNAMIC},), (ones(6, 3),),
               [((ones(9, 3),), "is 9"), ((ones(5, 3),), "input 'x'")]),
    "auto": (Shifted(), (ones(16, 3), ones(16, 3)), ({0: Dim.AUTO}, {0: Dim.AUTO}), (ones(5, 3), ones(5, 3)),
             [((ones(5, 3), ones(6, 3)), "input 'y'"), ((ones(2, 3), ones(2, 3)), "torch guards")]),
    "derived": (Shifted(), (ones(17, 3), ones(17, 3)), ({0: 2 * N + 1}, {0: 2 * N + 1}),
                (ones(9, 3), ones(9, 3)), [((ones(8, 3), ones(8, 3)), "input 'x'")]),
    "grouped": (Grouped(), (ones(16, 3),), ({0: Dim.AUTO, 1: Dim.AUTO},), (ones(8, 5),),
                [((ones(3, 3),), "torch guards"), ((ones(18, 3),), "torch guards")]),
}  # fmt: skip
"""By name: module, example inputs, dynamic shapes, inputs of a valid call, and those of refused ones."""


def arrays(inputs):
    return [each.numpy() for each in inputs]


@pytest.mark.parametrize("name", STATIC)
def test_guards_of_sizes_are_checked(name, tmp_path):
    module, examples, dynamic, valid, refused = STATIC[name]
    program = torch.export.export(module, examples, dynamic_shapes=dynamic)
    dlc.torch.export(program, None, tmp_path / "m.dlc")
    for exe in (dlc.compile(program), dlc.open(tmp_path / "m.dlc")):
        np.testing.assert_allclose(exe(*arrays(valid)), module(*valid).numpy(), rtol=1e-6)
        for inputs, text in refused:
            with pytest.raises(UsageError, match=text):
                exe(*arrays(inputs))


def test_guards_of_a_file_are_checked(tmp_path):
    program = torch.export.export(Multiple(), (ones(16, 3),), dynamic_shapes=({0: DYNAMIC},))
    torch.export.save(program, tmp_path / "m.pt2")
    exe = dlc.compile(tmp_path / "m.pt2", trust=True)
    assert exe(np.ones((32, 3), np.float32)).shape == (32, 3)
    with pytest.raises(UsageError, match="is 24"):
        exe(np.ones((24, 3), np.float32))


def test_guards_name_arguments_in_trees():
    args, kwargs = (ones(4), {"k": [ones(6)]}, ones(3), ones(5)), {"last": ones(8)}
    shapes = {
        "x": {0: DYNAMIC},
        "tree": {"k": [{0: DYNAMIC}]},
        "more": ({}, {0: DYNAMIC}),
        "last": {0: DYNAMIC},
    }
    exe = dlc.compile(torch.export.export(Nested(), args, kwargs, dynamic_shapes=shapes))
    names = [value.name for value in exe.signature.inputs]
    assert names == ["x", "tree_k_0", "more_0", "more_1", "last"]
    sizes = {"x": 4, "tree_k_0": 6, "more_0": 3, "more_1": 5, "last": 8}
    assert exe.run({name: np.ones(size, np.float32) for name, size in sizes.items()})["output_0"] == 23
    for name, size in (("tree_k_0", 7), ("more_1", 9), ("last", 11)):
        with pytest.raises(UsageError, match=f"of input '{name}' is {size}"):
            exe.run({each: np.ones(n, np.float32) for each, n in {**sizes, name: size}.items()})


def test_a_size_that_no_guard_admits_is_refused_when_it_is_fixed():
    program = torch.export.export(Multiple(), (ones(16, 3),), dynamic_shapes=({0: DYNAMIC},))
    (dim,) = dlc.compile(program).signature.symbols
    assert dlc.compile(program, shapes={dim.name: 8})(np.ones((8, 3), np.float32)).shape == (8, 3)
    with pytest.raises(UsageError, match="% 8"):
        dlc.compile(program, shapes={dim.name: 12})


def test_a_library_refuses_sizes_that_no_guard_admits(tmp_path):
    program = torch.export.export(Multiple(), (ones(16, 3),), dynamic_shapes=({0: DYNAMIC},))
    dlc.torch.export(program, None, tmp_path / "m.so")
    library = ctypes.CDLL(str(tmp_path / "m.so"))
    library.m_workspace_size.restype = ctypes.c_size_t

    def status(rows):
        x, y = np.ones((rows, 3), np.float32), np.zeros((rows, 3), np.float32)
        space = np.empty(library.m_workspace_size(ctypes.c_int64(rows)) + 64, np.uint8)
        pointers = [(ctypes.c_void_p * 1)(each.ctypes.data) for each in (x, y)]
        code = library.m_run(*pointers, ctypes.c_void_p(space.ctypes.data), 1, ctypes.c_int64(rows))
        return code, y

    assert status(16)[0] == 0
    assert (status(16)[1] == 2).all()
    assert [status(rows)[0] for rows in (24, 12)] == [-1, -1]


DATA = {
    "async": (Positive(), (ones(3),), None, (ones(3),), [((-ones(3),), "x must be positive")]),
    "nonzero": (Found(), (ones(4),), None, (ones(4),), [((torch.tensor([0.0, 1, 1, 1]),), "u0 != 3")]),
    "item": (Counted(), (torch.tensor(3), ones(9)), (None, {0: DYNAMIC}), (torch.tensor(4), ones(8)),
             [((torch.tensor(1), ones(8)), "is 1"), ((torch.tensor(8), ones(8)), "is 8")]),
}  # fmt: skip


@pytest.mark.parametrize("name", DATA)
def test_assertions_of_data_are_checked(name, tmp_path):
    module, examples, dynamic, valid, refused = DATA[name]
    program = torch.export.export(module, examples, dynamic_shapes=dynamic)
    dlc.torch.export(program, None, tmp_path / "m.dlc")
    for exe in (dlc.compile(program), dlc.open(tmp_path / "m.dlc")):
        np.testing.assert_allclose(exe(*arrays(valid)), module(*valid).numpy(), rtol=1e-6)
        for inputs, text in refused:
            with pytest.raises(DlcError, match=text):
                exe(*arrays(inputs))


@pytest.mark.parametrize("target", ["llvm", "c", "reference"])
def test_checks_of_data_name_the_text(target):
    exe = dlc.compile(Positive(), target, example_inputs=(ones(3),))
    with pytest.raises(RuntimeFailure, match="x must be positive"):
        exe(np.zeros(3, np.float32))


def test_torch_compile_checks_data():
    torch._dynamo.reset()
    compiled = torch.compile(Positive(), backend="dlc", fullgraph=True)
    torch.testing.assert_close(compiled(ones(3)), ones(3).log())
    with pytest.raises(RuntimeFailure, match="x must be positive"):
        compiled(-ones(3))


@WITH_TEXTS
def test_a_guard_that_is_no_integer_arithmetic_is_refused():
    program = torch.export.export(Multiple(), (ones(16, 3),), dynamic_shapes=({0: DYNAMIC},))
    program._guards_code.append("math.trunc(L['x'].size()[0] / 2.5) == 6")
    with pytest.raises(UnsupportedError, match=r"the guard .* 2\.5"):
        dlc.compile(program)


@WITH_TEXTS
def test_guards_are_not_executed_as_code(tmp_path):
    program = torch.export.export(Multiple(), (ones(16, 3),), dynamic_shapes=({0: DYNAMIC},))
    program._guards_code.append(f"open({str(tmp_path / 'made')!r}, 'w') is None")
    torch.export.save(program, tmp_path / "m.pt2")
    with pytest.raises(UnsupportedError, match="the guard open"):
        dlc.compile(tmp_path / "m.pt2", trust=True)
    assert not (tmp_path / "made").exists()


def without_guards(source, target):
    """Write a file as torch 2.8 saves it, without guards."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("models/model.json"):
                described = json.loads(data)
                del described["guards_code"]
                data = json.dumps({**described, "torch_version": "2.8.0"}).encode()
            new.writestr(name, data)


@WITH_TEXTS
def test_a_file_without_guards_is_refused_unless_accepted(tmp_path):
    program = torch.export.export(Multiple(), (ones(16, 3),), dynamic_shapes=({0: DYNAMIC},))
    torch.export.save(program, tmp_path / "m.pt2")
    without_guards(tmp_path / "m.pt2", tmp_path / "old.pt2")
    with pytest.raises(UnsupportedError, match=r"(?s)no guards.*torch 2\.8\.0 saved it") as caught:
        dlc.compile(tmp_path / "old.pt2", trust=True)
    assert "unguarded=True" in caught.value.hint
    exe = dlc.compile(tmp_path / "old.pt2", trust=True, unguarded=True)
    assert exe(np.ones((24, 3), np.float32)).shape == (24, 3)


@WITH_TEXTS
def test_a_file_without_symbolic_sizes_needs_no_guards(tmp_path):
    torch.export.save(torch.export.export(Multiple(), (ones(16, 3),)), tmp_path / "m.pt2")
    without_guards(tmp_path / "m.pt2", tmp_path / "old.pt2")
    assert dlc.compile(tmp_path / "old.pt2", trust=True)(np.ones((16, 3), np.float32)).shape == (16, 3)
