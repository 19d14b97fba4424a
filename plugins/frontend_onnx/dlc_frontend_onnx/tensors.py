"""Constant tensors of a model. They are checked when the model is read, and converted to arrays on demand.

`make_tensor` and `make_sparse` check a message: sizes before any allocation, and exactly one field of values.
`Tensor.to_numpy` and `SparseTensor.to_numpy` return read-only arrays, without a copy if the file stores the
values in the memory layout.
"""

from __future__ import annotations

import math
import sys
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx

from dlc_frontend_onnx.dtypes import BY_NAME, BY_NUMBER, ElementType
from dlc_frontend_onnx.external import ExternalRef, Folder, parse_ref
from dlc_frontend_onnx.location import Location, quoted
from dlc_frontend_onnx.wire import Buffer, Cuts

MAX_RANK = 32
"""Limit of dimensions of a tensor, which is that of NumPy 1."""

MAX_DENSE_BYTES = 1 << 30
"""Limit of the size of a sparse tensor in dense form."""

_RAW, _EXTERNAL, _LOCATION, _SEGMENT = 9, 13, 14, 3
_FIELDS = {
    4: "float_data",
    5: "int32_data",
    6: "string_data",
    7: "int64_data",
    9: "raw_data",
    10: "double_data",
    11: "uint64_data",
    13: "external_data",
}
_LARGEST = (1 << 63) - 1
_FIELD_DTYPES = {4: np.float32, 5: np.int32, 7: np.int64, 10: np.float64, 11: np.uint64}

Stored: TypeAlias = "Buffer | tuple[bytes, ...] | npt.NDArray[Any]"
"""The values of a tensor before the conversion: packed bytes, strings, or the entries of a typed field."""


class Tensor:
    """A constant: `name`, `dtype` (a dlc name), `shape`, and its values on demand.

    `external` is the file that holds the values, `None` if the model itself does.
    """

    __slots__ = ("_array", "_data", "_element", "dtype", "external", "loc", "name", "shape")

    def __init__(
        self,
        name: str,
        element: ElementType,
        shape: tuple[int, ...],
        data: Stored,
        loc: Location,
        external: ExternalRef | None = None,
    ) -> None:
        self.name = name
        self.dtype = element.name
        self.shape = shape
        self.loc = loc
        self.external = external
        self._element = element
        self._data: Stored | None = data
        self._array: npt.NDArray[Any] | None = None

    @staticmethod
    def of(name: str, array: npt.NDArray[Any], loc: Location) -> Tensor:
        """A constant with a copy of an array; `KeyError` for a dtype that ONNX does not have."""
        own = np.array(array, order="C")
        own.flags.writeable = False
        element = BY_NAME["string" if own.dtype == object else own.dtype.name]
        made = Tensor(name, element, own.shape, own, loc)
        made._array, made._data = own, None
        return made

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the array that `to_numpy` returns (for strings, of its references)."""
        return self.size * self._element.numpy.itemsize

    def to_numpy(self) -> npt.NDArray[Any]:
        """The values as a read-only C-ordered array, the same array at each call.

        Values stored as raw bytes are not copied (types narrower than a byte are unpacked). Such an array may
        be unaligned: see `flags.aligned`. Strings are an object array of `str`. Raises `ModelError` if a
        value is invalid for the type: an 8-bit integer of 300, a boolean of 2, a string that is not UTF-8.
        """
        if self._array is None:
            data = self._data
            assert data is not None
            if isinstance(data, np.ndarray):
                array = self._typed(data)
            elif isinstance(data, tuple):
                array = self._strings(data)
            else:
                array = self._raw(data)
            array = array.reshape(self.shape)
            array.flags.writeable = False
            self._array = array
            self._data = None
        return self._array

    def _raw(self, data: Buffer) -> npt.NDArray[Any]:
        element = self._element
        if element.bits < 8:
            return _unpack(np.frombuffer(data, np.uint8), element.bits, self.size).view(element.numpy)
        if element.name == "bool":
            flags = np.frombuffer(data, np.uint8)
            if flags.size and int(flags.max()) > 1:
                raise self.loc.error(f"{self._what()} holds a boolean that is neither 0 nor 1")
            return flags.view(np.bool_)
        array: npt.NDArray[Any] = np.frombuffer(data, element.numpy)
        if sys.byteorder == "big" and element.bits > 8:
            part = element.bits // (16 if element.name.startswith("complex") else 8)
            array = array.view(f"u{part}").byteswap().view(element.numpy)
        return array

    def _typed(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        element = self._element
        if element.field in ("float_data", "double_data"):
            return values.view(element.numpy)
        if values.dtype == element.numpy:
            return values
        if element.name == "uint32":
            return self._narrow(values, 0, 32)
        if element.bits in (2, 4):
            return _unpack(self._narrow(values, -128, 8), element.bits, self.size).view(element.numpy)
        if element.bits == 6 or element.name == "bool":
            return self._narrow(values, 0, 6 if element.bits == 6 else 1).view(element.numpy)
        lowest = 0 if element.name.startswith("uint") else -(1 << (element.bits - 1))
        highest = element.bits - (element.name[:3] == "int")
        return self._narrow(values, lowest, highest).view(element.numpy)

    def _narrow(self, values: npt.NDArray[Any], lowest: int, bits: int) -> npt.NDArray[Any]:
        """The values as unsigned integers of this type's width; an error unless all are in lowest .. 2**bits
        - 1.
        """
        if values.size and (int(values.min()) < lowest or int(values.max()) >= 1 << bits):
            raise self.loc.error(f"{self._what()} holds a value that its type {self.dtype} cannot hold")
        return values.astype(f"u{max(self._element.bits // 8, 1)}")

    def _strings(self, data: tuple[bytes, ...]) -> npt.NDArray[Any]:
        array = np.empty(len(data), np.object_)
        try:
            for index, text in enumerate(data):
                array[index] = text.decode("utf-8")
        except UnicodeDecodeError:
            raise self.loc.error(f"{self._what()} holds a string that is not valid UTF-8") from None
        return array

    def _what(self) -> str:
        return f"tensor {quoted(self.name)}"

    def __repr__(self) -> str:
        return f"Tensor({quoted(self.name)}, {self.dtype}, {self.shape})"


class SparseTensor:
    """A constant given by the vector `values` at `indices`, which are linear or rows of coordinates."""

    __slots__ = ("dtype", "indices", "loc", "name", "shape", "values")

    def __init__(self, values: Tensor, indices: Tensor, shape: tuple[int, ...], loc: Location) -> None:
        self.name = values.name
        self.dtype = values.dtype
        self.shape = shape
        self.values = values
        self.indices = indices
        self.loc = loc

    @property
    def nbytes(self) -> int:
        """Bytes of the dense array."""
        return math.prod(self.shape) * self.values._element.numpy.itemsize

    def to_numpy(self) -> npt.NDArray[Any]:
        """The dense array, read-only. Elements without a value are zero or the empty string.

        Raises `ModelError` if the indices are not ascending or not within the shape, and `UnsupportedError`
        if the array would take more than `MAX_DENSE_BYTES`.
        """
        if self.nbytes > MAX_DENSE_BYTES:
            raise self.loc.unsupported(
                f"sparse tensor {quoted(self.name)} would take {self.nbytes} bytes as a dense array",
                why=f"at most {MAX_DENSE_BYTES} are allowed",
            )
        values, indices = self.values.to_numpy(), self.indices.to_numpy()
        if indices.ndim == 2:
            limits = np.array(self.shape, np.int64)
            inside = bool(((indices >= 0) & (indices < limits)).all())
            strides = np.array(
                [math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))], np.int64
            )
            linear = indices @ strides if inside else indices
        else:
            linear = indices
            inside = bool(((indices >= 0) & (indices < math.prod(self.shape))).all())
        if not inside or bool((linear[1:] <= linear[:-1]).any()):
            raise self.loc.error(
                f"the indices of sparse tensor {quoted(self.name)} are not ascending and inside its shape"
            )
        dense: npt.NDArray[Any] = np.zeros(math.prod(self.shape), values.dtype)
        if self.dtype == "string":
            dense[:] = ""
        dense[linear] = values
        dense = dense.reshape(self.shape)
        dense.flags.writeable = False
        return dense

    def __repr__(self) -> str:
        return f"SparseTensor({quoted(self.name)}, {self.dtype}, {self.shape})"


def make_tensor(
    message: onnx.TensorProto, what: str, folder: Folder, cuts: Cuts | None, loc: Location
) -> Tensor:
    """The checked tensor of a message. `what` names it in errors; `folder` reads external data."""
    fields = {field.number: value for field, value in message.ListFields()}
    name = _text(fields.get(8, ""), what, loc)
    if name:
        what = f"tensor {quoted(name)}"
    number = fields.get(2, 0)
    element = BY_NUMBER.get(number)
    if element is None:
        if number <= 0:
            raise loc.error(f"{what} has no element type")
        raise loc.unsupported(f"{what} has element type {number}, which is newer than this reader or invalid")
    if _SEGMENT in fields:
        raise loc.unsupported(f"{what} is stored in segments, which no version of ONNX defines how to read")
    shape = check_shape(tuple(fields.get(1, ())), element.numpy.itemsize, what, loc)
    count = math.prod(shape)
    external = fields.get(_LOCATION, 0) == onnx.TensorProto.EXTERNAL
    held = [key for key in fields if key in _FIELDS and not (external and key == _RAW and not fields[key])]
    if len(held) > 1:
        raise loc.error(
            f"{what} holds its values in more than one field: {', '.join(_FIELDS[key] for key in held)}",
            why="readers would disagree about what the tensor is",
        )
    if external:
        if element.name == "string":
            raise loc.error(f"{what} is of strings, which cannot be external data")
        ref = parse_ref(((entry.key, entry.value) for entry in message.external_data), what, loc)
        view = folder.read(ref, element.packed_bytes(count), what, loc)
        return Tensor(name, element, shape, view, loc, ref)
    if held == [_EXTERNAL]:
        raise loc.error(f"{what} has external data but says that its values are in the model")
    if held == [_RAW]:
        raw: bytes = fields[_RAW]
        data = raw if cuts is None else cuts.resolve(raw)
        if element.name == "string":
            raise loc.error(f"{what} is of strings, which cannot be raw data")
        _require_size(len(data), element.packed_bytes(count), "bytes", element, shape, what, loc)
        return Tensor(name, element, shape, data, loc)
    if held and _FIELDS[held[0]] != element.field:
        raise loc.error(f"{what} is of type {element.name}, but holds its values in {_FIELDS[held[0]]}")
    entries = fields[held[0]] if held else ()
    _require_size(len(entries), element.field_entries(count), "entries", element, shape, what, loc)
    if element.name == "string":
        return Tensor(name, element, shape, tuple(entries), loc)
    return Tensor(
        name, element, shape, np.array(entries, _FIELD_DTYPES[held[0]] if held else element.numpy), loc
    )


def make_sparse(
    message: onnx.SparseTensorProto, what: str, folder: Folder, cuts: Cuts | None, loc: Location
) -> SparseTensor:
    """The checked sparse tensor of a message. The order of its indices is checked by `to_numpy`."""
    values = make_tensor(message.values, f"the values of {what}", folder, cuts, loc)
    indices = make_tensor(message.indices, f"the indices of {what}", folder, cuts, loc)
    if values.name:
        what = f"sparse tensor {quoted(values.name)}"
    shape = check_shape(tuple(message.dims), values._element.numpy.itemsize, what, loc)
    if len(values.shape) != 1:
        raise loc.error(f"{what} has values of shape {values.shape}; they must be a vector")
    if indices.dtype != "int64":
        raise loc.error(f"{what} has indices of type {indices.dtype}; they must be int64")
    if indices.shape not in (values.shape, (*values.shape, len(shape))):
        raise loc.error(f"{what} has values of shape {values.shape} but indices of shape {indices.shape}")
    if values.size > math.prod(shape):
        raise loc.error(f"{what} has {values.size} values, more than its shape {shape} has elements")
    return SparseTensor(values, indices, shape, loc)


def check_shape(shape: tuple[int, ...], itemsize: int, what: str, loc: Location) -> tuple[int, ...]:
    """The shape itself; an error if a dim is negative, there are too many dims, or no memory can hold it."""
    if len(shape) > MAX_RANK:
        raise loc.error(f"{what} has {len(shape)} dimensions; at most {MAX_RANK} are allowed")
    extent = itemsize
    for dim in shape:
        if dim < 0:
            raise loc.error(f"{what} has a negative dimension: {shape}")
        extent *= dim or 1
    if extent > _LARGEST:
        raise loc.error(f"{what} has shape {shape}, which no memory can hold")
    return shape


def _require_size(
    have: int, need: int, unit: str, element: ElementType, shape: tuple[int, ...], what: str, loc: Location
) -> None:
    if have != need:
        raise loc.error(
            f"{what} of type {element.name} and shape {shape} needs {need} {unit} of data, but has {have}"
        )


def _text(value: object, what: str, loc: Location) -> str:
    if not isinstance(value, str):
        raise loc.error(f"{what} has a name that is not valid UTF-8")
    return value


def _unpack(packed: npt.NDArray[np.uint8], bits: int, count: int) -> npt.NDArray[np.uint8]:
    """`count` elements of 2, 4 or 6 bits, low bits first, as one byte each."""
    words: npt.NDArray[Any] = packed
    per = 8 // bits
    if bits == 6:
        groups = np.zeros((len(packed) + 2) // 3 * 3, np.uint8)
        groups[: len(packed)] = packed
        first, second, third = (groups[start::3].astype(np.uint32) for start in range(3))
        words, per = first | second << 8 | third << 16, 4
    out = np.empty((len(words), per), np.uint8)
    for index in range(per):
        out[:, index] = (words >> (bits * index)) & ((1 << bits) - 1)
    return out.reshape(-1)[:count]


__all__ = [
    "MAX_DENSE_BYTES",
    "MAX_RANK",
    "SparseTensor",
    "Tensor",
    "check_shape",
    "make_sparse",
    "make_tensor",
]
