"""External data: valid references, and all known ways to escape from the folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx import external
from dlc_frontend_onnx.reader import Graph, Tensor, read_model
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from dlc_core.diag import ModelError

VALUES = np.arange(1024, dtype=np.float32)
SECRET = np.full(1024, 42, np.float32)

needs_links = pytest.mark.skipif(not hasattr(os, "symlink") or os.name == "nt", reason="needs POSIX links")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The model's folder with data files, next to a secret file outside."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.bin").write_bytes(SECRET.tobytes())
    inside = tmp_path / "model"
    (inside / "sub").mkdir(parents=True)
    (inside / "w.bin").write_bytes(VALUES.tobytes())
    (inside / "sub" / "w.bin").write_bytes(VALUES[::-1].tobytes())
    (inside / "big.bin").write_bytes(bytes(4096) + np.tile(VALUES, 64).tobytes())
    return inside


@pytest.fixture(params=[True, False], ids=["handles", "paths"])
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to open a file: by folder handles, and by checked paths on systems without handles."""
    if request.param and not external.HAS_DIR_FDS:
        pytest.skip("no folder handles here")
    if not request.param:
        opener = external.Folder.__init__
        monkeypatch.setattr(
            external.Folder, "__init__", lambda self, path: opener(self, path, dir_fds=False), raising=True
        )


def away(location: str, *, shape: tuple[int, ...] = (4,), name: str = "w", **entries: object) -> TensorProto:
    tensor = TensorProto(
        name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL
    )
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def model_with(*initializers: TensorProto, nodes: list[onnx.NodeProto] | None = None) -> onnx.ModelProto:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = nodes or [helper.make_node("Add", ["x", "w"], ["y"], name="add")]
    graph = helper.make_graph(nodes, "main", [value], [out], initializer=initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def read(folder: Path, *initializers: TensorProto, nodes: list[onnx.NodeProto] | None = None) -> Graph:
    path = folder / "m.onnx"
    path.write_bytes(model_with(*initializers, nodes=nodes).SerializeToString())
    return read_model(path).graph


def refused(folder: Path, tensor: TensorProto, match: str) -> None:
    with pytest.raises(ModelError, match=match) as caught:
        read(folder, tensor)
    assert "tensor 'w'" in str(caught.value)
    assert "m.onnx" in str(caught.value)


pytestmark = pytest.mark.usefixtures("reading")


# --- valid references ---


def test_offset_and_length(folder: Path) -> None:
    tensor = read(folder, away("w.bin", offset=16, length=16)).initializers["w"]
    assert np.array_equal(tensor.to_numpy(), VALUES[4:8])
    assert tensor.external == external.ExternalRef("w.bin", 16, 16)
    assert not tensor.to_numpy().flags.writeable


def test_without_offset_and_length(folder: Path) -> None:
    assert np.array_equal(read(folder, away("w.bin")).initializers["w"].to_numpy(), VALUES[:4])


@pytest.mark.parametrize("location", ["sub/w.bin", "./sub/w.bin", "sub//w.bin", "./sub/./w.bin"])
def test_folders_inside_the_folder(folder: Path, location: str) -> None:
    assert np.array_equal(read(folder, away(location)).initializers["w"].to_numpy(), VALUES[::-1][:4])


def test_large_files_are_mapped_once_and_not_copied(folder: Path) -> None:
    graph = read(
        folder,
        away("big.bin", shape=(64, 1024), offset=4096),
        away("big.bin", name="v", offset=4096, length=16),
    )
    big, small = (graph.initializers[name].to_numpy() for name in "wv")
    assert np.array_equal(big, np.tile(VALUES, (64, 1)))
    assert not big.flags.owndata
    assert np.shares_memory(big, small)


def test_checksum_is_recorded(folder: Path) -> None:
    ref = read(folder, away("w.bin", checksum="12ab")).initializers["w"].external
    assert ref is not None
    assert ref.checksum == "12ab"


def test_empty_tensor_at_the_end_of_a_file(folder: Path) -> None:
    tensor = read(folder, away("w.bin", shape=(0, 3), offset=4096)).initializers["w"]
    assert tensor.to_numpy().shape == (0, 3)


def test_nibbles(folder: Path) -> None:
    (folder / "n.bin").write_bytes(b"\x21\x43\x05")
    tensor = away("n.bin", shape=(5,), length=3)
    tensor.data_type = TensorProto.UINT4
    assert read(folder, tensor).initializers["w"].to_numpy().astype(int).tolist() == [1, 2, 3, 4, 5]


def test_bytes_need_base_dir(folder: Path) -> None:
    model = model_with(away("w.bin"))
    for source in (model, model.SerializeToString()):
        with pytest.raises(ModelError, match="the model's folder is not known") as caught:
            read_model(source)
        assert "base_dir" in caught.value.hint
        assert np.array_equal(
            read_model(source, base_dir=folder).graph.initializers["w"].to_numpy(), VALUES[:4]
        )


def test_relative_path_of_the_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(folder, away("w.bin"))
    monkeypatch.chdir(folder)
    assert np.array_equal(read_model("m.onnx").graph.initializers["w"].to_numpy(), VALUES[:4])


def test_arrays_outlive_the_model(folder: Path) -> None:
    array = read(folder, away("big.bin", shape=(1024,), offset=4096)).initializers["w"].to_numpy()
    assert np.array_equal(array, VALUES)


def test_no_handle_is_left_open(folder: Path) -> None:
    listing = Path("/proc/self/fd")
    if not listing.is_dir():
        pytest.skip("needs /proc")
    before = len(list(listing.iterdir()))
    kept = read(folder, away("sub/w.bin"), away("w.bin", name="v"))
    for location in ("absent", "sub", "../outside/secret.bin"):
        refused(folder, away(location), "external data")
    assert len(list(listing.iterdir())) == before
    assert kept.initializers


# --- published vulnerabilities ---


@pytest.mark.parametrize(
    "location",
    ["../outside/secret.bin", "sub/../../outside/secret.bin", "{outside}/secret.bin", "/etc/hostname", ".."],
)
def test_cve_2022_25882_path_traversal(folder: Path, location: str) -> None:
    refused(
        folder, away(location.format(outside=folder.parent / "outside")), "not a file of the model's folder"
    )


@pytest.mark.parametrize(
    "location",
    [
        "./../outside/secret.bin",
        "sub/./../../outside/secret.bin",
        "sub//..//..//outside/secret.bin",
        "..\\outside\\secret.bin",
        "sub\\..\\..\\outside\\secret.bin",
        "//outside/secret.bin",
        "w.bin\0../../outside/secret.bin",
        "w.bin/../../outside/secret.bin",
    ],
)
def test_cve_2024_27318_bypass_of_the_traversal_check(folder: Path, location: str) -> None:
    refused(folder, away(location), "not a file of the model's folder")


@needs_links
def test_cve_2026_27489_symlinked_file(folder: Path) -> None:
    (folder / "link.bin").symlink_to(folder.parent / "outside" / "secret.bin")
    refused(folder, away("link.bin"), "'link.bin' is a symbolic link")


@needs_links
@pytest.mark.parametrize("target", ["../outside", ".", "sub"])
def test_cve_2026_34447_symlinked_folder(folder: Path, target: str) -> None:
    (folder / "linked").symlink_to(target, target_is_directory=True)
    refused(folder, away("linked/secret.bin"), "'linked' is a symbolic link")
    refused(folder, away("linked/w.bin"), "'linked' is a symbolic link")


@needs_links
def test_cve_2026_34446_hard_link(folder: Path) -> None:
    os.link(folder.parent / "outside" / "secret.bin", folder / "hard.bin")
    refused(folder, away("hard.bin"), "'hard.bin' is a hard link: the file has 2 names")


@pytest.mark.parametrize("key", ["__class__", "__dict__", "offset_", "basepath", "_data", "length.__class__"])
def test_cve_2026_34445_keys_set_no_attributes(folder: Path, key: str) -> None:
    message = away("w.bin")
    message.external_data.add(key=key, value="../outside")
    tensor = read(folder, message).initializers["w"]
    assert type(tensor) is Tensor
    assert tensor.external == external.ExternalRef("w.bin")
    assert np.array_equal(tensor.to_numpy(), VALUES[:4])


@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 20, 1 << 20, 1 << 20), (1 << 31, 1 << 31), (1025,)])
@pytest.mark.parametrize("length", [None, 1 << 42, 4096])
def test_cve_2026_34445_memory_bomb(folder: Path, shape: tuple[int, ...], length: int | None) -> None:
    tensor = away("w.bin", shape=shape)
    if length is not None:
        tensor.external_data.add(key="length", value=str(length))
    refused(folder, tensor, "needs|no memory can hold")


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ({"offset": "-1"}, "not a number"),
        ({"offset": "4081"}, "which has 4096 bytes"),
        ({"offset": "9223372036854775807"}, "which has 4096 bytes"),
        ({"offset": "99999999999999999999"}, "not a number"),
        ({"offset": "9" * 5000}, "not a number"),
        ({"length": "-16"}, "not a number"),
        ({"length": "15"}, "has length 15"),
        ({"length": "0"}, "has length 0"),
        ({"length": "1_6"}, "not a number"),
        ({"length": " 16"}, "not a number"),
        ({"length": "١٦"}, "not a number"),
        ({"offset": ""}, "not a number"),
    ],
)
def test_cve_2026_34445_ranges(folder: Path, entries: dict[str, str], match: str) -> None:
    tensor = away("w.bin")
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    refused(folder, tensor, match)


def test_cve_2026_34445_truncated_file(folder: Path) -> None:
    (folder / "w.bin").write_bytes(bytes(15))
    refused(folder, away("w.bin"), "which has 15 bytes")


def test_sparse_tensor_escape(folder: Path) -> None:
    indices = numpy_helper.from_array(np.arange(4), "")
    for part in ("values", "indices"):
        model = model_with()
        sparse = model.graph.sparse_initializer.add(dims=[8])
        sparse.values.CopyFrom(numpy_helper.from_array(VALUES[:4], "w"))
        sparse.indices.CopyFrom(indices)
        evil = away("../outside/secret.bin")
        evil.data_type = TensorProto.FLOAT if part == "values" else TensorProto.INT64
        getattr(sparse, part).CopyFrom(evil)
        with pytest.raises(ModelError, match="not a file of the model's folder"):
            read_model(model, base_dir=folder)


def attribute(**values: object) -> list[onnx.NodeProto]:
    node = helper.make_node("Odd", ["x"], ["y"])
    for name, value in values.items():
        node.attribute.append(helper.make_attribute(name, value))
    return [node]


def in_attribute(evil: TensorProto) -> onnx.ModelProto:
    return model_with(nodes=attribute(value=evil))


def in_attribute_list(evil: TensorProto) -> onnx.ModelProto:
    return model_with(nodes=attribute(values=[evil, evil]))


def in_subgraph(evil: TensorProto) -> onnx.ModelProto:
    return model_with(nodes=attribute(body=helper.make_graph([], "g", [], [], initializer=[evil])))


def in_subgraph_of_subgraph(evil: TensorProto) -> onnx.ModelProto:
    return model_with(nodes=attribute(body=helper.make_graph(attribute(value=evil), "g", [], [])))


def in_sparse_attribute(evil: TensorProto) -> onnx.ModelProto:
    sparse = helper.make_sparse_tensor(evil, numpy_helper.from_array(np.arange(4)), [8])
    return model_with(nodes=attribute(value=sparse))


def in_function(evil: TensorProto) -> onnx.ModelProto:
    model = model_with(nodes=attribute(f=1.0))
    model.functions.add(name="F", domain="d", input=["x"], output=["y"]).node.extend(attribute(value=evil))
    model.functions[0].opset_import.add(domain="", version=20)
    return model


def in_default_of_function(evil: TensorProto) -> onnx.ModelProto:
    model = in_function(away("w.bin"))
    model.functions[0].attribute_proto.add(name="d", type=AttributeProto.TENSOR).t.CopyFrom(evil)
    return model


@pytest.mark.parametrize(
    "place",
    [
        in_attribute,
        in_attribute_list,
        in_subgraph,
        in_subgraph_of_subgraph,
        in_sparse_attribute,
        in_function,
        in_default_of_function,
    ],
)
def test_every_tensor_goes_through_the_same_check(
    folder: Path, place: Callable[[TensorProto], onnx.ModelProto]
) -> None:
    with pytest.raises(ModelError, match="not a file of the model's folder"):
        read_model(place(away("../outside/secret.bin")), base_dir=folder)
    read_model(place(away("w.bin")), base_dir=folder)


@pytest.mark.parametrize("field", ["raw_data", "float_data"])
def test_external_and_inline_values(folder: Path, field: str) -> None:
    tensor = away("w.bin")
    if field == "raw_data":
        tensor.raw_data = bytes(16)
    else:
        tensor.float_data.extend([0] * 4)
    refused(folder, tensor, "more than one field")


def test_external_entries_of_an_inline_tensor(folder: Path) -> None:
    tensor = away("w.bin")
    tensor.data_location = TensorProto.DEFAULT
    refused(folder, tensor, "says that its values are in the model")


def test_address_of_memory_as_location(folder: Path) -> None:
    refused(folder, away("*/_ORT_MEM_ADDR_/*", offset=1 << 40), "cannot be read")


# --- paths that are not regular files ---


@pytest.mark.parametrize(
    "location", ["", ".", "./", "sub/", "w.bin/", "absent.bin", "sub/absent/x", "sub", "w.bin/x"]
)
def test_no_file(folder: Path, location: str) -> None:
    refused(folder, away(location), "external data")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_pipe_does_not_block(folder: Path) -> None:
    os.mkfifo(folder / "pipe.bin")
    refused(folder, away("pipe.bin"), "'pipe.bin' is not a regular file")


@pytest.mark.parametrize("location", ["a" * 300, "a" * 5000, "/".join("a" * 200)])
def test_long_names(folder: Path, location: str) -> None:
    refused(folder, away(location), "external data")


def test_repeated_key(folder: Path) -> None:
    tensor = away("w.bin")
    tensor.external_data.add(key="location", value="sub/w.bin")
    refused(folder, tensor, "two entries 'location'")


def test_no_location(folder: Path) -> None:
    tensor = away("w.bin")
    del tensor.external_data[:]
    refused(folder, tensor, "without a location")


def test_strings_are_never_external(folder: Path) -> None:
    tensor = away("w.bin")
    tensor.data_type = TensorProto.STRING
    refused(folder, tensor, "strings, which cannot be external data")


def test_missing_folder(folder: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        read_model(model_with(away("w.bin")), base_dir=folder / "absent")


def test_error_names_the_node_and_the_tensor(folder: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["h"]), *attribute(value=away("absent.bin", name="inner"))]
    nodes[1].name = "odd\nnode"
    with pytest.raises(ModelError) as caught:
        read(folder, nodes=nodes)
    text = str(caught.value)
    assert "tensor 'inner'" in text
    assert r"in node 1 'odd\nnode', operator 'Odd' of domain 'ai.onnx', of graph 'main'" in text
    assert text.count("\n") == len(text.splitlines()) - 1 <= 5


@pytest.mark.parametrize("name", ["con", "NUL.bin", "com1.txt", "stream:x", "dot.", "space ", "LPT¹"])
def test_strange_names_of_windows(name: str) -> None:
    assert external.is_special_on_windows(name)
    assert not external.is_special_on_windows("w" + name.strip(". ").replace(":", "_"))
