"""Forged and damaged portable models are refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import dlc_core as dlc
from dlc_core.config import config
from dlc_core.diag import ArtifactError, DlcError
from dlc_core.graph.node import Function, constant, node, param
from dlc_core.ir.expr import Var
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type
from dlc_core.op import std
from dlc_core.passes.graph.infer import Infer
from tests.forging.files import forged, forged_portable
from tests.forging.models import GRAPHS
from tests.forging.workers import run

TARGET = "reference -level=tir"


@pytest.fixture(autouse=True)
def other_user(tmp_path):
    """Nobody vouches for the files of these tests."""
    with config.override(keys_dir=tmp_path / "keys"):
        yield


@pytest.fixture
def portable(tmp_path) -> Path:
    x = param("x", tensor_type((Var("n"), 4)))
    return dlc.save_portable(IRModule({"main": Function("main", (x,), std.relu(x))}), tmp_path / "relu.dlc")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: data["records"][0].update(k="buffer"), "unknown kind"),
        (lambda data: data["records"][-1].update(entry="other"), "which is the entry"),
        (lambda data: _record(data, "node", op="relu")["attrs"][1].append(["plan", "x"]), "plan|malformed"),
        (lambda data: _record(data, "node", op="relu").update(op="os.system"), "no plugin has declared"),
        (lambda data: _record(data, "function")["attrs"][1].append(["scheduled", True]), "may not have"),
        (lambda data: _record(data, "var").update(dtype="float32x4"), "vector"),
        (lambda data: data.update(root=10**30), "not JSON"),
    ],
)
def test_forged_graphs_are_refused(portable, tmp_path, change, why):
    bad = tmp_path / "bad.dlc"
    bad.write_bytes(forged_portable(portable.read_bytes(), graph=change))
    with pytest.raises(DlcError, match=why):
        dlc.open(bad, TARGET)


def _record(data, kind, **fields):
    return next(
        one for one in data["records"] if one["k"] == kind and all(one[k] == v for k, v in fields.items())
    )


def test_recorded_types_must_be_those_of_inference(portable, tmp_path):
    """A type with another symbol would pass the pass `infer`, which keeps recorded symbols."""

    def change(data):
        records = data["records"]
        relu = _record(data, "node", op="relu")
        at = records.index(relu)
        fresh = [
            {"k": "var", "name": "m", "dtype": "int64"},
            {"k": "tensor_type", "shape": ["t", [["r", at], 4]], "dtype": "float32"},
        ]
        for later in records[at:]:
            if later["k"] == "function":
                later["body"] += 2
            elif later["k"] == "module":
                later["functions"][1][0][1][1] += 2
        relu["type"] = at + 1
        records[at:at] = fresh
        data["root"][1] += 2

    bad = tmp_path / "bad.dlc"
    bad.write_bytes(forged_portable(portable.read_bytes(), graph=change))
    with pytest.raises(DlcError, match="but inference gives"):
        dlc.open(bad, TARGET)


@pytest.mark.parametrize(
    "entry",
    [
        ["float32", [4], "constants", 1 << 40, False],
        ["float32", [1 << 61, 8], "constants", 0, True],
        ["float32", [-1], "constants", 0, False],
        ["string", [1], "constants", 0, False],
        ["float32x4", [1], "constants", 0, False],
        ["float32", [1], "graph", 0, False],
        ["float32", [1], "../constants", 0, False],
        "float32",
        None,
    ],
)
def test_arrays_outside_of_the_file_are_refused(tmp_path, entry):
    good = dlc.save_portable(GRAPHS["mlp"](), tmp_path / "good.dlc")
    bad = tmp_path / "bad.dlc"

    def change(header):
        header["arrays"][0] = entry

    bad.write_bytes(forged_portable(good.read_bytes(), header=change))
    with pytest.raises(DlcError):
        dlc.open(bad, TARGET)


def test_elements_that_are_no_codes_are_refused(tmp_path):
    x = param("x", tensor_type((64,), "bool"))
    mask = constant(np.ones(64, bool))
    path = dlc.save_portable(
        IRModule({"main": Function("main", (x,), std.logical_and(x, mask))}), tmp_path / "m.dlc"
    )
    data = path.read_bytes()
    at = data.rindex(b"\1" * 64)
    other = data[:at] + b"\7" + data[at + 1 :]
    path.write_bytes(forged_portable(other))
    with pytest.raises(ArtifactError, match="elements that are none"):
        dlc.open(path, TARGET)


def test_dims_are_defined_by_known_ones(tmp_path):
    size, element = Var("size"), Var("element")
    x = param("x", tensor_type((3,), "int64"))
    made = std.full(shape=(size,), value=1.0, dtype="float32")

    def write(at, definition):
        attrs = {"elements": ((element, "x", at),), "data_dims": ((size, definition, "the size"),)}
        return dlc.save_portable(IRModule({"main": Function("main", (x,), made, attrs)}), tmp_path / "m.dlc")

    exe = dlc.open(write(2, element * 2), TARGET)
    assert exe(np.array([1, 2, 3])).shape == (6,)
    for at, definition, why in (
        (3, element * 2, "is in no input"),
        (2, element + size, "by unknown ones"),
        (2, element + Var("other"), "by unknown ones"),
    ):
        with pytest.raises(ArtifactError, match="malformed") as caught:
            write(at, definition)
        assert why in caught.value.why


def test_damaged_files_are_refused(portable, tmp_path):
    data = portable.read_bytes()
    bad = tmp_path / "bad.dlc"
    length = int.from_bytes(data[12:16], "little")
    for at in (9, 20, 60, 48 + length - 3, 4096 + 5, len(data) - 60):
        bad.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        try:
            dlc.open(bad, TARGET)
        except DlcError:
            continue
        assert at == len(data) - 60  # a changed mark: nobody vouches, and nobody has to
    for size in (0, 7, 30, 100, 4100, len(data) - 3000):
        bad.write_bytes(data[:size])
        with pytest.raises(DlcError):
            dlc.open(bad, TARGET)


def test_a_compiled_file_with_the_other_magic_is_refused(tmp_path, portable):
    compiled = tmp_path / "compiled.dlc"
    dlc.compile(portable, TARGET, cache=False).save(compiled)
    swapped = tmp_path / "swapped.dlc"
    swapped.write_bytes(portable.read_bytes()[:8] + forged(compiled.read_bytes(), lambda header: None)[8:])
    with pytest.raises(ArtifactError, match="has no graph"):
        dlc.open(swapped, TARGET)
    swapped.write_bytes(compiled.read_bytes()[:8] + portable.read_bytes()[8:])
    with pytest.raises(ArtifactError):
        dlc.open(swapped, trust=True)


def test_the_pass_infer_alone_is_not_enough():
    """The reason why types are verified: `infer` records a symbol that inference does not give."""
    x = param("x", tensor_type((Var("n"), 4)))
    lying = node(std.relu(x).op, (x,), {}, tensor_type((Var("m"), 4)))
    module = IRModule({"main": Function("main", (x,), lying)})
    kept = Infer().run(module, dlc.PassContext())
    assert str(kept["main"].body.type) == "float32[m, 4]"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")
def test_forged_portable_models_do_no_harm():
    found = run(60, 1, TARGET, models=("mlp", "dims", "data_dims"), portable=True)
    assert not [word for word in found if word.startswith(("died", "unexpected"))]
    assert found.total() == 60
    assert found["ArtifactError"] > 10
    assert found["called"] + found["refused"] > 10
