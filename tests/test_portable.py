"""Portable models: written, opened without trust, compiled; and what they may not have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core import te
from dlc_core.cli.main import main
from dlc_core.config import config
from dlc_core.diag import ArtifactError, LimitError, UnsupportedError, UntrustedError, UsageError
from dlc_core.graph.node import CALL_PRIM, Function, constant, node, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.op.std.programs import call_te
from dlc_core.script import difference
from tests.forging.files import header_of
from tests.forging.models import GRAPHS

TARGET = "reference -level=tir"


@pytest.fixture(autouse=True)
def other_user(tmp_path):
    """Nobody vouches for the files of these tests."""
    with config.override(keys_dir=tmp_path / "keys", cache_dir=tmp_path / "cache"):
        yield


def relu() -> IRModule:
    x = param("x", tensor_type((Var("n"), 4)))
    return IRModule({"main": Function("main", (x,), std.relu(x), {"inputs": ("x",), "outputs": ("y",)})})


@pytest.fixture
def portable(tmp_path) -> Path:
    return dlc.save_portable(relu(), tmp_path / "relu.dlc")


@pytest.mark.parametrize("name", GRAPHS)
def test_a_portable_file_has_the_same_module(name, tmp_path):
    module = dlc.load(GRAPHS[name]())
    path = dlc.save_portable(module, tmp_path / "m.dlc")
    assert difference(dlc.load(path), module) is None
    assert header_of(path.read_bytes())["core"] == dlc.__version__


def test_an_onnx_model_has_a_portable_form(tmp_path):
    parser = pytest.importorskip("onnx.parser", reason="onnx is not installed")
    pytest.importorskip("dlc_frontend_onnx", reason="the ONNX frontend is not installed")
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[n, 4] x) => (float[n, 4] y) {y = Relu(x)}'
    model = dlc.load(parser.parse_model(text))
    path = dlc.save_portable(model, tmp_path / "m.dlc")
    assert difference(dlc.load(path), model) is None
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(dlc.open(path, TARGET)(x), np.maximum(x, 0))


@pytest.mark.parametrize("name", ["control", "quantised", "data_dims", "bfloat16", "functions"])
def test_an_opened_portable_file_computes_the_same(name, tmp_path):
    module = GRAPHS[name]()
    path = dlc.save_portable(module, tmp_path / "m.dlc")
    expected, exe = dlc.compile(module, TARGET, cache=False), dlc.open(path, TARGET)
    rng = np.random.default_rng(0)
    sizes = dict.fromkeys(exe.signature.dims, 3)
    arrays = []
    for value in exe.inputs:
        shape = [dim if isinstance(dim, int) else sizes.get(dim, 3) for dim in value.type.shape]
        arrays.append(rng.integers(-2, 4, shape).astype(value.type.dtype.numpy))
    found, wanted = exe(*arrays), expected(*arrays)
    found, wanted = (made if isinstance(made, tuple) else (made,) for made in (found, wanted))
    for a, b in zip(found, wanted, strict=True):
        assert a.tobytes() == b.tobytes()
    assert exe.entries == expected.entries


def test_opening_needs_no_trust_and_uses_the_cache(portable, tmp_path):
    compiled = tmp_path / "compiled.dlc"
    dlc.compile(portable, TARGET, cache=True).save(compiled)
    with config.override(keys_dir=tmp_path / "other", cache=True):
        exe = dlc.open(portable, TARGET)
        assert exe.report["vouched"] == "portable"
        assert exe.report["cache"] == "hit"
        with pytest.raises(UntrustedError):
            dlc.open(compiled)
    assert str(dlc.open(portable, "reference").target) == "reference"


def test_compile_takes_portable_files_with_all_options(portable):
    exe = dlc.compile(portable, TARGET, shapes={"n": 2})
    assert str(exe.inputs[0]) == "x: float32[2, 4]"


def test_options_that_do_not_fit_are_refused(portable, tmp_path):
    with pytest.raises(UsageError, match="cannot be mapped"):
        dlc.open(portable, mapped=True)
    dlc.compile(portable, TARGET).save(tmp_path / "compiled.dlc")
    with pytest.raises(UsageError, match="is compiled already"):
        dlc.open(tmp_path / "compiled.dlc", TARGET)
    with pytest.raises(ArtifactError, match="is compiled already"):
        dlc.compile(tmp_path / "compiled.dlc", TARGET)


def test_a_constant_of_one_value_is_stored_once(tmp_path):
    x = param("x", tensor_type((1000, 1000)))
    ones = constant(np.broadcast_to(np.float32(1), (1000, 1000)))
    module = IRModule({"main": Function("main", (x,), std.add(x, ones))})
    path = dlc.save_portable(module, tmp_path / "m.dlc")
    assert path.stat().st_size < 20_000
    assert difference(dlc.load(path), module) is None


def test_the_folder_of_the_model_stays_private(tmp_path):
    module = relu().with_attrs(source="/data/secret/model.onnx")
    dlc.save_portable(module, tmp_path / "m.dlc")
    assert b"secret" not in (tmp_path / "m.dlc").read_bytes()
    assert dlc.load(tmp_path / "m.dlc").attrs["source"] == "model.onnx"


def test_code_and_what_names_code_is_refused(tmp_path):
    x = param("x", tensor_type((4,)))
    scaled = call_te(lambda a: te.compute((4,), lambda i: a[i] * 2, "b"), x)
    program = te.create_prim_func(
        [t := te.placeholder((4,), "float32", "a"), te.compute((4,), lambda i: t[i])]
    )
    for module, why in (
        (IRModule({"main": Function("main", (x,), scaled)}), "a call of a tensor program"),
        (IRModule({"main": program}), "the tensor program 'main'"),
        (IRModule({"main": Function("main", (x,), std.relu(x), {"rule": 1})}), "the attribute 'rule'"),
        (_recursive(), "the recursive function"),
    ):
        with pytest.raises(UnsupportedError, match=why):
            dlc.save_portable(module, tmp_path / "m.dlc")
    assert not (tmp_path / "m.dlc").exists()


def _recursive() -> IRModule:
    x = param("x", tensor_type((4,)))
    again = node(CALL_PRIM, (x,), {"symbol": "main"}, x.type)
    return IRModule({"main": Function("main", (x,), std.relu(again))})


def test_dims_and_nesting_are_limited(tmp_path):
    size = Var("n")
    for _ in range(20):
        size = size + size * 2 // 3
    x = param("x", tensor_type((size,)))
    with pytest.raises(LimitError, match="a dim has more than"):
        dlc.save_portable(IRModule({"main": Function("main", (x,), std.relu(x))}), tmp_path / "m.dlc")
    with config.override(max_nodes=3), pytest.raises(LimitError, match="nodes"):
        dlc.save_portable(GRAPHS["mlp"](), tmp_path / "m.dlc")


def test_commands(tmp_path, monkeypatch, capsys):
    pytest.importorskip("dlc_frontend_onnx", reason="the ONNX frontend is not installed")
    monkeypatch.chdir(tmp_path)
    dlc.save_portable(relu(), "first.dlc")
    assert main(["compile", "first.dlc", "--portable", "-o", "m.dlc", "--shape", "n=2"]) == 0
    assert "portable" in capsys.readouterr().out
    assert main(["inspect", "m.dlc"]) == 0
    assert "portable: no code" in capsys.readouterr().out
    assert main(["inspect", "m.dlc", "--stage", "load"]) == 0
    assert "G.relu" in capsys.readouterr().out
    assert main(["verify", "m.dlc"]) == 0
    assert "portable: no code" in capsys.readouterr().out
    assert main(["run", "m.dlc", "-t", TARGET, "--random"]) == 0
    assert "float32[2, 4]" in capsys.readouterr().out
    assert main(["compile", "m.dlc", "-t", TARGET]) != 0  # it would replace its input
    assert main(["compile", "m.dlc", "-t", TARGET, "-o", "code.dlc"]) == 0
    assert main(["compile", "m.dlc", "-t", TARGET, "--portable", "-o", "n.dlc"]) != 0
