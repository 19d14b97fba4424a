"""Modules: names of parameters, states, graphs, and error messages."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import nn
from dlc_core.diag import DlcError, ModelError, UsageError
from dlc_core.ir.structural import first_difference
from dlc_core.ir.types import tensor_type
from dlc_core.script import parse, script, to_script


class Block(nn.Module):
    def __init__(self, size):
        self.norm = nn.RMSNorm(size)
        self.mix = nn.Linear(size, size)
        self.scale = nn.Parameter((), init="ones")

    def forward(self, x):
        return x + self.mix(self.norm(x)) * self.scale


class Net(nn.Module):
    def __init__(self):
        self.blocks = nn.ModuleList([Block(4), Block(4)])
        self.head = nn.Sequential(nn.Linear(4, 3, bias=False), nn.ReLU())

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


PATHS = [
    *(f"blocks.{i}.{name}" for i in (0, 1) for name in ("scale", "norm.weight", "mix.weight", "mix.bias")),
    "head.0.weight",
]


def test_paths():
    model = Net()
    assert sorted(path for path, _ in model.named_parameters()) == sorted(PATHS)
    assert ("blocks.1.mix", model.blocks[1].mix) in list(model.named_modules())
    assert len(model.blocks) == 2
    assert "(mix): Linear(4, 4)" in repr(model)
    assert "(0): Linear(4, 3, bias=False)" in repr(model)


def test_the_graph_has_inputs_and_then_parameters_by_name():
    model = Net().init()
    module = model.to_module({"x": ("n", 4)})
    main = module["main"]
    assert main.attrs["inputs"] == ("x", *model.state_dict())
    assert main.attrs["outputs"] == ("output",)
    assert 'name="blocks.0.mix.weight"' in script(module)
    assert first_difference(parse(*to_script(module), ops=dlc.ops()), module) is None
    exe = dlc.compile(module, "reference")
    assert str(exe.inputs[0]) == "x: float32[n, 4]"
    x = np.ones((2, 4), np.float32)
    state = model.state_dict()
    y = exe.run({"x": x, **state})["output"]
    np.testing.assert_allclose(dlc.compile(module, "reference", params=state)(x), y, rtol=1e-6)


def test_model_nodes_are_paths():
    model = Net().init()
    exe = dlc.compile(model.to_module({"x": (2, 4)}), params=model.state_dict())
    nodes = {node for kernel in exe.explain().kernels for node in kernel.nodes}
    assert {"blocks.0.norm", "blocks.1.mix", "head.0", "head.1"} <= nodes


def test_some_parameters_may_be_bound():
    model = nn.Linear(4, 3).init()
    module = model.to_module({"x": (2, 4)})
    exe = dlc.compile(module, "reference", params={"weight": model.weight.data})
    assert [value.name for value in exe.inputs] == ["x", "bias"]
    for params, said in (
        ({"wheight": model.weight.data}, "there is no input 'wheight'"),
        ({"weight": model.bias.data}, r"weight is float32\[3, 4\], not float32\[3\]"),
        ({"weight": model.weight.data.astype(float)}, "not float64"),
    ):
        with pytest.raises(UsageError, match="do not fit the inputs") as caught:
            dlc.compile(module, "reference", params=params)
        with pytest.raises(UsageError, match=said):
            raise UsageError(str(caught.value))


def test_several_inputs_and_outputs():
    class Two(nn.Module):
        def forward(self, a, b):
            return {"sum": a + b, "product": 2 * a * b}

    module = Two().to_module({"a": nn.Spec(("n",), "int32"), "b": tensor_type((1,), "int32")})
    found = dlc.compile(module, "reference").run({"a": np.arange(3, dtype=np.int32), "b": np.int32([5])})
    np.testing.assert_array_equal(found["sum"], [5, 6, 7])
    np.testing.assert_array_equal(found["product"], [0, 10, 20])
    pair = Two().to_module({"a": ("n",), "b": ("n",)})["main"]
    assert pair.params[0].shape == pair.params[1].shape


def test_operators_and_functions():
    class Mixed(nn.Module):
        def forward(self, x):
            a, b = nn.split(x, (1, 2), axis=1)
            y = nn.concat([1 - a, -b / 2.0, b**2], axis=1).transpose(1, 0)
            y = nn.where(y > 0, y, nn.minimum(y, -1)) @ nn.constant(np.eye(2))
            return nn.maximum(y, 0.5).sum(axis=0) + y.mean() - y.max(axis=0, keepdims=True).reshape(2)

    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    y = np.concatenate([1 - x[:, :1], -x[:, 1:] / 2, x[:, 1:] ** 2], axis=1).T
    y = np.where(y > 0, y, np.minimum(y, -1))
    expected = np.maximum(y, 0.5).sum(axis=0) + y.mean() - y.max(axis=0)
    exe = dlc.compile(Mixed().to_module({"x": (2, 3)}), "reference")
    np.testing.assert_allclose(exe(x), expected, rtol=1e-6)


def test_values():
    model = Net()
    with pytest.raises(UsageError, match="9 parameter"):
        model.state_dict()
    first, second = (Net().init(seed).state_dict() for seed in (0, 0))
    assert all(np.array_equal(first[path], second[path]) for path in first)
    assert not np.array_equal(first["head.0.weight"], Net().init(1).state_dict()["head.0.weight"])
    assert np.abs(first["head.0.weight"]).max() <= 0.5
    model.load_state_dict(first)
    assert model.state_dict().keys() == first.keys()
    assert model.init(5).head[0].weight.data is first["head.0.weight"]


def test_states_that_do_not_fit():
    model, state = Net(), Net().init().state_dict()
    del state["head.0.weight"]
    state["stranger"] = np.zeros(2, np.float32)
    state["blocks.0.scale"] = np.zeros(2, np.float32)
    state["blocks.1.scale"] = np.zeros((), np.float64)
    with pytest.raises(UsageError, match="does not fit Net") as caught:
        model.load_state_dict(state)
    assert caught.value.details == (
        "missing: head.0.weight",
        "unknown: stranger",
        "blocks.0.scale is float32[], not float32[2]",
        "blocks.1.scale is float32[], not float64[]",
    )
    assert model.blocks[0].mix.weight.data is None
    for path in ("blocks.0.scale", "blocks.1.scale"):
        del state[path]
    model.load_state_dict(state, strict=False)
    assert model.blocks[0].mix.weight.data is state["blocks.0.mix.weight"]


def test_shared_parameters_have_one_name():
    class Tied(nn.Module):
        def __init__(self):
            self.table = nn.Embedding(5, 3)
            self.scores = nn.Linear(3, 5, bias=False)
            self.scores.weight = self.table.weight

        def forward(self, rows):
            return self.scores(self.table(rows))

    model = Tied().init()
    assert list(model.state_dict()) == ["table.weight"]
    exe = dlc.compile(
        model.to_module({"rows": nn.Spec((2,), "int64")}), "reference", params=model.state_dict()
    )
    weight = model.table.weight.data
    np.testing.assert_allclose(exe(np.array([1, 4])), weight[[1, 4]] @ weight.T, rtol=1e-5)
    other = np.ones((5, 3), np.float32)
    assert Tied().load_state_dict({"scores.weight": other}).table.weight.data is other
    Tied().load_state_dict({"scores.weight": other, "table.weight": other})


def test_attributes_are_replaced():
    model = Block(4)
    model.mix = nn.Identity()
    assert [path for path, _ in model.named_parameters()] == ["scale", "norm.weight"]
    model.scale = 2.0
    assert [path for path, _ in model.named_parameters()] == ["norm.weight"]


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda: setattr(Net(), "parts", [nn.ReLU()]), "is a list of modules"),
        (lambda: nn.Sequential(nn.ReLU(), 3), "item 1 of a Sequential"),
        (lambda: nn.ReLU()(None), "called where no graph is being built"),
        (lambda: nn.Module().to_module({}), "Module has no forward"),
        (lambda: nn.Parameter((2,)).node, "used where its module is not part of a graph"),
        (lambda: nn.ReLU().to_module({"x": "batch"}), "the spec of input 'x'"),
        (lambda: nn.ReLU().to_module({"x": (-1,)}), "a dim of input 'x' is -1"),
        (lambda: nn.ReLU().to_module({"x": ("2 * n",)}), "a dim of input 'x'"),
        (lambda: nn.Linear(2, 2).to_module({"weight": (2, 2)}), "both an input and a parameter"),
        (lambda: nn.call("never"), "no standard op 'never'"),
        (lambda: bool(nn.constant(1.0)), "known only when the model runs"),
        (lambda: list(nn.constant([1.0])), "cannot be iterated"),
        (lambda: nn.constant(1.0) + "a", "a str cannot be an operand"),
        (lambda: nn.call("split", nn.constant([1.0, 2.0]), sizes=(1, 1), axis=0), "several results"),
    ],
)
def test_mistakes_are_reported(act, said):
    with pytest.raises(DlcError, match=said):
        act()


def test_a_parameter_of_another_model_is_reported():
    stranger = nn.Linear(2, 2)

    class Borrower(nn.Module):
        def forward(self, x):
            return stranger(x)

    with pytest.raises(UsageError, match="give their parts names"):
        Borrower().to_module({"x": (1, 2)})


def test_results_must_be_tensors():
    class Odd(nn.Module):
        def forward(self, x):
            return 3

    with pytest.raises(UsageError, match=r"Odd\.forward gives int"):
        Odd().to_module({"x": (1,)})


def test_states_from_files(tmp_path):
    state = Net().init().state_dict()
    np.savez(tmp_path / "net.npz", **state)
    write_safetensors(tmp_path / "net.safetensors", state)
    for name in ("net.npz", "net.safetensors"):
        found = nn.read_state(tmp_path / name)
        assert found.keys() == state.keys()
        assert all(np.array_equal(found[path], state[path]) for path in state)
        Net().load_state_dict(found)


def write_safetensors(path, state):
    header, place = {"__metadata__": {"format": "np"}}, 0
    for name, array in state.items():
        offsets = [place, place + array.nbytes]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": offsets}
        place = offsets[1]
    text = json.dumps(header).encode()
    data = b"".join(array.tobytes() for array in state.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def tensors(header, data=b"", length=None):
    text = json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


FOUR = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.pt", b"", "no state that can be read"),
        ("a.npz", b"no archive", "cannot be read"),
        ("a.safetensors", b"", "cannot be read"),
        ("a.safetensors", b"1234", "cut off"),
        ("a.safetensors", tensors({}, length=99), "cut off"),
        ("a.safetensors", tensors([FOUR]), "cannot be read"),
        ("a.safetensors", tensors({"a": FOUR}), "do not fit its shape or the file"),
        (
            "a.safetensors",
            tensors({"a": {**FOUR, "shape": [2]}}, b"1234"),
            "do not fit its shape or the file",
        ),
        ("a.safetensors", tensors({"a": {**FOUR, "shape": [-1]}}, b"1234"), "no list of sizes"),
        (
            "a.safetensors",
            tensors({"a": {**FOUR, "data_offsets": [4, 0]}}, b"1234"),
            "do not fit its shape or the file",
        ),
        ("a.safetensors", tensors({"a": {**FOUR, "dtype": "F7"}}, b"1234"), "dtype F7"),
        ("a.safetensors", tensors({"a": {"dtype": "F32"}}, b"1234"), "cannot be read"),
    ],
)
def test_damaged_states(name, content, said, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises((ModelError, UsageError), match=said):
        nn.read_state(tmp_path / name)


def test_pickles_are_not_read(tmp_path):
    np.savez(tmp_path / "bad.npz", weight=np.array([{}], object))
    with pytest.raises(ModelError, match="allow_pickle"):
        nn.read_state(tmp_path / "bad.npz")
