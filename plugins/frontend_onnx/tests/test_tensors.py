"""Constants: every element type in every storage form, and all inconsistencies of the stored bytes."""

from __future__ import annotations

from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from dlc_frontend_onnx import dtypes, tensors
from dlc_frontend_onnx.external import Folder
from dlc_frontend_onnx.location import Location
from onnx import TensorProto, helper, numpy_helper

from dlc_core.diag import DlcError, ModelError, UnsupportedError

f32, i8, i32, i64 = (partial(np.array, dtype=dtype) for dtype in (np.float32, np.int8, np.int32, np.int64))
NUMERIC = [row for row in dtypes.ELEMENT_TYPES if row.name != "string"]


def make(message: TensorProto) -> tensors.Tensor:
    return tensors.make_tensor(message, "it", Folder(None), None, Location("m.onnx", "graph 'g'"))


def refused(message: TensorProto, match: str, kind: type[DlcError] = ModelError) -> None:
    with pytest.raises(kind, match=match) as caught:
        make(message).to_numpy()
    assert "m.onnx" in str(caught.value)
    assert message.name in str(caught.value)


def samples(row: dtypes.ElementType, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Values of all bit patterns of a narrow type, else of a usual range."""
    count = int(np.prod(shape))
    values: npt.NDArray[Any]
    if row.name == "bool":
        values = np.arange(count) % 3 == 0
        return values.reshape(shape)
    if row.bits <= 16 and not np.issubdtype(row.numpy, np.integer):
        width = 1 << row.bits
        codes = np.arange(count) * 7919 % width
        return codes.astype(np.uint16 if row.bits == 16 else np.uint8).view(row.numpy).reshape(shape)
    values = (np.arange(count) * 7919) % (1 << min(row.bits, 20)) - (0 if row.name.startswith("u") else 2)
    if row.name.startswith("complex"):
        return (values + 1j * values[::-1]).astype(row.numpy).reshape(shape)
    return values.astype(row.numpy).reshape(shape)


def same(got: npt.NDArray[Any], expected: npt.NDArray[Any]) -> None:
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()
    assert not got.flags.writeable


# --- types ---


def test_every_number_of_onnx_is_known() -> None:
    assert set(TensorProto.DataType.values()) - {0} <= set(dtypes.BY_NUMBER)


def test_numpy_dtypes_agree_with_onnx() -> None:
    for number in set(TensorProto.DataType.values()) - {0}:
        row = dtypes.BY_NUMBER[number]
        assert row.numpy == helper.tensor_dtype_to_np_dtype(number), row.name
        assert row.field == helper.tensor_dtype_to_field(number), row.name


def test_names_and_numbers() -> None:
    assert dtypes.name_of(16) == "bfloat16"
    assert dtypes.number_of("int4") == TensorProto.INT4
    assert dtypes.numpy_dtype("float8_e5m2") == ml_dtypes.float8_e5m2
    with pytest.raises(KeyError):
        dtypes.name_of(0)


# --- values ---


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (0,), (2, 0, 3), (256,)], ids=str)
@pytest.mark.parametrize("row", NUMERIC, ids=lambda row: row.name)
def test_raw_and_typed(row: dtypes.ElementType, shape: tuple[int, ...]) -> None:
    expected = samples(row, shape)
    raw = numpy_helper.from_array(expected, "t")
    same(make(raw).to_numpy(), expected)
    typed = TensorProto(name="t", data_type=row.number, dims=shape)
    if row.field == "int32_data":
        packed = row.bits in (2, 4)
        codes = np.frombuffer(raw.raw_data, np.uint8) if packed else expected.view(f"u{expected.itemsize}")
        typed.int32_data.extend(
            codes.reshape(-1).astype(np.int64).tolist() if row.bits < 32 else expected.reshape(-1)
        )
    elif row.name.startswith("complex"):
        getattr(typed, row.field).extend(expected.reshape(-1).view(f"f{expected.itemsize // 2}").tolist())
    else:
        getattr(typed, row.field).extend(expected.reshape(-1).tolist())
    if row.name not in ("int8", "int16"):
        same(make(typed).to_numpy(), expected)
    tensor = make(raw)
    assert (tensor.dtype, tensor.shape, tensor.size, tensor.nbytes) == (
        row.name,
        shape,
        expected.size,
        expected.nbytes,
    )


def test_signed_values_one_by_one() -> None:
    for name in ("int8", "int16", "int32", "int64"):
        expected = np.array([-128, 127, 0, -1], name)
        same(make(helper.make_tensor("t", dtypes.number_of(name), [4], expected)).to_numpy(), expected)


def test_strings() -> None:
    texts = [b"a", b"", "é".encode(), b"\0"]
    message = TensorProto(name="t", data_type=TensorProto.STRING, dims=[2, 2], string_data=texts)
    array = make(message).to_numpy()
    assert array.dtype == object
    assert array.tolist() == [["a", ""], ["é", "\0"]]
    assert not array.flags.writeable


def test_raw_bytes_are_not_copied() -> None:
    data = np.arange(1 << 16, dtype=np.float32).tobytes()
    element = dtypes.BY_NAME["float32"]
    tensor = tensors.Tensor("t", element, (1 << 16,), memoryview(data), Location("m", "g"))
    assert np.shares_memory(tensor.to_numpy(), np.frombuffer(data, np.uint8))
    assert tensor.to_numpy() is tensor.to_numpy()


# --- disagreements ---


def floats(**changes: Any) -> TensorProto:
    fields: dict[str, Any] = {"name": "t", "data_type": TensorProto.FLOAT, "dims": [2, 2]}
    return TensorProto(**{**fields, "raw_data": bytes(16), **changes})


@pytest.mark.parametrize("size", [0, 1, 15, 17, 1600])
def test_raw_data_of_another_size(size: int) -> None:
    refused(floats(raw_data=bytes(size)), f"needs 16 bytes of data, but has {size}")


@pytest.mark.parametrize("count", [1, 3, 5])
def test_typed_field_of_another_size(count: int) -> None:
    message = floats()
    message.ClearField("raw_data")
    message.float_data.extend([1.0] * count)
    refused(message, f"needs 4 entries of data, but has {count}")


def test_no_values_at_all() -> None:
    message = floats()
    message.ClearField("raw_data")
    refused(message, "needs 4 entries of data, but has 0")


@pytest.mark.parametrize(
    ("dims", "match"),
    [
        ([-1], "negative dimension"),
        ([-2, -2], "negative dimension"),
        ([-(1 << 63)], "negative dimension"),
        ([1 << 62], "no memory can hold"),
        ([1 << 32, 1 << 32], "no memory can hold"),
        ([(1 << 63) - 1] * 3, "no memory can hold"),
        ([0, 1 << 62], "no memory can hold"),
        ([1 << 40], "needs 4398046511104 bytes"),
        ([1] * 33, "33 dimensions"),
    ],
)
def test_dims(dims: list[int], match: str) -> None:
    refused(floats(dims=dims), match)


def test_float_data_and_raw_data_differ() -> None:
    message = floats(raw_data=np.ones(4, np.float32).tobytes())
    message.float_data.extend([2.0] * 4)
    refused(message, "more than one field: float_data, raw_data")


def test_empty_raw_data_and_values() -> None:
    message = floats(raw_data=b"")
    message.float_data.extend([2.0] * 4)
    refused(message, "more than one field")


@pytest.mark.parametrize("other", ["int32_data", "int64_data", "double_data", "uint64_data", "string_data"])
def test_field_of_another_type(other: str) -> None:
    message = floats()
    message.ClearField("raw_data")
    getattr(message, other).extend([b"a"] * 4 if other == "string_data" else [1] * 4)
    refused(message, f"holds its values in {other}")
    message.raw_data = bytes(16)
    refused(message, "more than one field")


def test_strings_are_never_raw() -> None:
    refused(floats(data_type=TensorProto.STRING), "strings, which cannot be raw data")


def test_strings_that_are_not_utf8() -> None:
    message = TensorProto(name="t", data_type=TensorProto.STRING, dims=[1], string_data=[b"\xff"])
    refused(message, "not valid UTF-8")


@pytest.mark.parametrize(("number", "kind"), [(0, ModelError), (-7, ModelError), (29, UnsupportedError)])
def test_unknown_types(number: int, kind: type[DlcError]) -> None:
    refused(floats(data_type=number), "element type", kind)


def test_segments() -> None:
    message = floats()
    message.segment.end = 3
    refused(message, "segments", UnsupportedError)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("int8", 300),
        ("int8", 128),
        ("int8", -129),
        ("uint8", -1),
        ("uint8", 256),
        ("int16", 1 << 20),
        ("uint16", -1),
        ("bool", 2),
        ("bool", -1),
        ("float16", 1 << 16),
        ("float8_e5m2", 256),
        ("uint4", 256),
        ("float6_e2m3fn", 64),
    ],
)
def test_values_the_type_cannot_hold(name: str, value: int) -> None:
    message = TensorProto(name="t", data_type=dtypes.number_of(name), dims=[1], int32_data=[value])
    refused(message, f"cannot hold|type {name}")


def test_uint32_out_of_range() -> None:
    message = TensorProto(name="t", data_type=TensorProto.UINT32, dims=[1], uint64_data=[1 << 32])
    refused(message, "cannot hold")


def test_raw_booleans_are_zero_or_one() -> None:
    refused(floats(data_type=TensorProto.BOOL, dims=[16], raw_data=b"\x02" * 16), "neither 0 nor 1")


# --- sparse ---


def sparse(values: Any, indices: Any, dims: list[int]) -> tensors.SparseTensor:
    message = onnx.SparseTensorProto(dims=dims)
    message.values.CopyFrom(numpy_helper.from_array(np.asarray(values), "s"))
    message.indices.CopyFrom(numpy_helper.from_array(np.asarray(indices)))
    return tensors.make_sparse(message, "it", Folder(None), None, Location("m.onnx", "graph 'g'"))


def test_sparse_by_linear_index() -> None:
    tensor = sparse(f32([5, 6]), i64([1, 5]), [2, 3])
    same(tensor.to_numpy(), f32([[0, 5, 0], [0, 0, 6]]))
    assert (tensor.name, tensor.dtype, tensor.shape) == ("s", "float32", (2, 3))


def test_sparse_by_coordinates() -> None:
    same(
        sparse(i8([5, 6]), i64([[0, 1], [1, 2]]), [2, 3]).to_numpy(),
        i8([[0, 5, 0], [0, 0, 6]]),
    )


def test_sparse_without_values() -> None:
    same(sparse(f32([]), i64([]), [2]).to_numpy(), np.zeros(2, np.float32))


@pytest.mark.parametrize(
    ("indices", "dims"),
    [
        ([1, 1], [6]),
        ([2, 1], [6]),
        ([0, 6], [6]),
        ([-1, 0], [6]),
        ([0, 1 << 62], [6]),
        ([[0, 1], [0, 1]], [2, 3]),
        ([[0, 1], [0, 3]], [2, 3]),
        ([[0, -1], [0, 1]], [2, 3]),
        ([[1, 0], [0, 2]], [2, 3]),
    ],
)
def test_sparse_indices(indices: Any, dims: list[int]) -> None:
    with pytest.raises(ModelError, match="ascending and inside"):
        sparse(f32([1, 2]), i64(indices), dims).to_numpy()


def test_sparse_memory_bomb() -> None:
    tensor = sparse(f32([1]), i64([0]), [1 << 40])
    with pytest.raises(UnsupportedError, match="would take 4398046511104 bytes"):
        tensor.to_numpy()
    with pytest.raises(ModelError, match="no memory can hold"):
        sparse(f32([1]), i64([0]), [1 << 40, 1 << 40])


@pytest.mark.parametrize(
    ("values", "indices", "dims", "match"),
    [
        (np.ones((1, 2), np.float32), i64([0, 1]), [4], "must be a vector"),
        (f32([1, 2]), i32([0, 1]), [4], "must be int64"),
        (f32([1, 2]), i64([0]), [4], "indices of shape"),
        (f32([1, 2]), i64([[0, 1], [1, 0]]), [4], "indices of shape"),
        (f32([1, 2]), i64([0, 1]), [1], "more than its shape"),
        (f32([1, 2]), i64([0, 1]), [-4], "negative"),
    ],
)
def test_sparse_that_disagrees(values: Any, indices: Any, dims: list[int], match: str) -> None:
    with pytest.raises(ModelError, match=match):
        sparse(values, indices, dims)
