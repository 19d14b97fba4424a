"""Every published vulnerability of ONNX loaders, by its number; none is present here."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest
from dlc_frontend_onnx.bisect import bisect
from dlc_frontend_onnx.reader import read_model
from dlc_frontend_onnx.testing.build import model_of, node, tensor
from dlc_frontend_onnx.testing.fuzz import SECRET, traps
from onnx import TensorProto, helper, numpy_helper

import dlc_core as dlc
from dlc_core.diag import DlcError, ModelError, UsageError


@pytest.fixture
def folders(tmp_path):
    """The folder of models, which contains links and hard links, and the folder outside of it."""
    return traps(tmp_path)


def external(location, *, name="w", **more):
    """A constant of four floats whose values are in a file."""
    made = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, text in {"location": location, **more}.items():
        made.external_data.add(key=key, value=str(text))
    return made


def written(folder, *constants, **more):
    """A model file with these constants."""
    nodes = node("Sum", ["x", *(c.name for c in constants)], ["y"])
    path = folder / "model.onnx"
    path.write_bytes(model_of(nodes, initializer=list(constants), **more).SerializeToString())
    return path


def refused(path):
    """Loading raises a ModelError that does not reveal the content of outside files."""
    with pytest.raises(ModelError) as caught:
        dlc.load(path)
    assert SECRET.decode().strip() not in str(caught.value)


def test_good_external_data_are_read(folders):
    path = written(folders[0], external("weights.bin", offset=64, length=16))
    found = read_model(path).graph.initializers["w"].to_numpy()
    np.testing.assert_array_equal(found, np.frombuffer(bytes(range(64, 80)), np.float32))


@pytest.mark.parametrize("location", ["../outside/secret.bin", "/etc/hostname", "{outside}/secret.bin"])
def test_cve_2022_25882_external_data_outside_of_the_folder(folders, location):
    refused(written(folders[0], external(location.replace("{outside}", str(folders[1])))))


@pytest.mark.parametrize(
    "location",
    [
        "sub/../../outside/secret.bin",
        "./../outside/secret.bin",
        "sub//..//..//outside/secret.bin",
        "//etc/hostname",
        "..\\outside\\secret.bin",
        "weights.bin/../../outside/secret.bin",
        "file:///etc/hostname",
    ],
)
def test_cve_2024_27318_other_spellings_of_parent_folders(folders, location):
    refused(written(folders[0], external(location)))


@pytest.mark.parametrize("location", ["link.bin", "linkdir/secret.bin"])
def test_cve_2026_27489_and_2026_34447_symbolic_links(folders, location):
    refused(written(folders[0], external(location, length=16)))


def test_cve_2026_34446_hard_links(folders):
    refused(written(folders[0], external("hard.bin", length=16)))


def test_cve_2025_51480_no_file_is_written(folders):
    secret = folders[1] / "secret.bin"
    before = secret.read_bytes()
    path = written(folders[0], external("../outside/secret.bin"), external("../outside/new.bin", name="v"))
    refused(path)
    with pytest.raises(DlcError):
        bisect(path, "onnx-reference", {"x": np.zeros(4, np.float32)})
    assert secret.read_bytes() == before
    assert [file.name for file in folders[1].iterdir()] == ["secret.bin"]


def test_cve_2024_5187_archives_are_not_unpacked(folders):
    inner = folders[0] / "inner.txt"
    inner.write_text("inner", encoding="utf-8")
    archive = folders[0] / "model.onnx"
    with tarfile.open(archive, "w") as tar:
        tar.add(inner, arcname="../outside/unpacked.txt")
    refused(archive)
    assert not (folders[1] / "unpacked.txt").exists()
    with pytest.raises(UsageError, match="no frontend reads"):
        dlc.load(archive.rename(folders[0] / "model.tar.gz"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("__class__", "int"),
        ("_data", "x"),
        ("to_numpy", "x"),
        ("location", "../outside/secret.bin"),
        ("offset", "1" * 5000),
        ("length", 1 << 62),
        ("length", -1),
    ],
)
def test_cve_2026_34445_keys_are_not_attributes_and_sizes_are_checked(folders, key, value):
    constant = external("weights.bin")
    constant.external_data.add(key=key, value=str(value))
    path = written(folders[0], constant)
    try:
        found = read_model(path).graph.initializers["w"]
    except ModelError:
        return
    assert type(found).__name__ == "Tensor"
    assert callable(found.to_numpy)
    assert found.to_numpy().shape == (4,)


def test_cve_2026_34445_dims_allocate_no_memory(folders):
    huge = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 31, 1 << 31], raw_data=b"1234")
    refused(written(folders[0], huge))


@pytest.mark.parametrize("name", ["https://example.com/model.onnx", "hub://onnx/resnet50.onnx"])
def test_cve_2026_28500_nothing_is_fetched(name):
    with pytest.raises(ModelError, match="cannot be read"):
        dlc.load(name)


def test_sparse_constants_follow_the_same_rules(folders):
    values = external("../outside/secret.bin", name="w")
    values.dims[0] = 2
    indices = numpy_helper.from_array(np.array([0, 1], np.int64))
    sparse = helper.make_sparse_tensor(values, indices, [4])
    model = model_of(node("Sum", ["x", "w"], ["y"]))
    model.graph.sparse_initializer.append(sparse)
    path = folders[0] / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError):
        read_model(path)


def test_constants_among_attributes_follow_the_same_rules(folders):
    constant = node("Constant", [], ["w"], value=external("../outside/secret.bin", name=""))
    path = folders[0] / "model.onnx"
    path.write_bytes(model_of(constant, node("Sum", ["x", "w"], ["y"])).SerializeToString())
    with pytest.raises(ModelError):
        read_model(path)


def test_a_constant_with_values_in_two_fields_is_refused(folders):
    both = tensor("w", np.ones(4, np.float32))
    both.float_data.extend([0.0] * 4)
    refused(written(folders[0], both))


def test_memory_addresses_are_refused_as_locations(folders):
    refused(written(folders[0], external("*/_ORT_MEM_ADDR_/*", offset=4096, length=16)))


def test_pipes_and_devices_are_not_opened(folders):
    for location in ("pipe.bin", "/dev/zero", "sub"):
        refused(written(folders[0], external(location, length=16)))


def test_model_paths_must_be_regular_files(folders):
    with pytest.raises(ModelError):
        read_model(folders[0] / "sub")
    if (Path(folders[0]) / "pipe.bin").exists():
        with pytest.raises(ModelError):
            read_model(folders[0] / "pipe.bin")
