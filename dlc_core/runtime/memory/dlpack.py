"""DLPack: exchange of arrays with other libraries without a copy.

NumPy exchanges the dtypes that it supports, in host memory. This module handles the others: bfloat16, types
smaller than float16, and memory of other devices. The layout of the structures is that of DLPack 1.1,
`dlpack.h`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.ir.dtype import DType

CPU = (1, 0)
"""The device (type, id) of host memory."""

HOST_TYPES = (1, 3, 11)
"""The device types of memory that the host can read: host memory, and pinned memory of two kinds of
accelerators.
"""

READ_ONLY = 1

_CODES = {
    **{f"int{b}": (0, b) for b in (8, 16, 32, 64)},
    **{f"uint{b}": (1, b) for b in (8, 16, 32, 64)},
    **{f"float{b}": (2, b) for b in (16, 32, 64)},
    "bfloat16": (4, 16),
    "complex64": (5, 64),
    "complex128": (5, 128),
    "bool": (6, 8),
    "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8),
    "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
}
_NAMES = {code: name for name, code in _CODES.items()}


def dtype_code(dtype: DType) -> tuple[int, int] | None:
    """The (code, bits) of a dtype; None if DLPack lacks it. Declared dtypes are exchanged as their codes,
    which are unsigned integers."""
    if dtype.decl is not None:
        return _CODES[dtype.decl.codes.name]
    return _CODES.get(dtype.name)


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    function = getattr(ctypes.pythonapi, name)
    # A separate prototype, because changing the shared function object would affect other users of ctypes.
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    made: Callable[..., Any] = ctypes.PYFUNCTYPE(result, *arguments)(address)
    return made


_new = _function("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_pointer = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_is_valid = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_rename = _function("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_raw_is_valid = _function("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_raw_pointer = _function("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)

_UNVERSIONED, _VERSIONED = b"dltensor", b"dltensor_versioned"
_USED = {_UNVERSIONED: b"used_dltensor", _VERSIONED: b"used_dltensor_versioned"}

_exported: dict[int, Any] = {}
"""Objects that exported tensors keep alive, by the address of their structure, until the consumer's deleter
runs.
"""


# At interpreter exit, tensors may outlive the globals of this module. So deleters keep what they need as
# defaults.
def _delete(address: int, exported: dict[int, Any] = _exported) -> None:
    exported.pop(address, None)


def _destroy(
    capsule: int,
    exported: dict[int, Any] = _exported,
    names: tuple[bytes, bytes] = (_UNVERSIONED, _VERSIONED),
    is_valid: Callable[..., Any] = _raw_is_valid,
    pointer: Callable[..., Any] = _raw_pointer,
) -> None:
    """The destructor of a capsule. It calls the deleter if the capsule was not consumed."""
    for name in names:
        if is_valid(capsule, name):
            exported.pop(pointer(capsule, name), None)


_deleter = _Deleter(_delete)
_destructor = _Destructor(_destroy)
for _callback in (_deleter, _destructor):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))


def export(
    owner: Any,
    address: int,
    shape: tuple[int, ...],
    dtype: DType,
    device: tuple[int, int] = CPU,
    *,
    readonly: bool = False,
    max_version: tuple[int, int] | None = None,
) -> Any:
    """A capsule of row-major memory at `address`, which `owner` keeps alive.

    Raises BufferError, as the protocol requires, for a dtype that DLPack lacks, and for read-only memory if
    the consumer does not support read-only arrays (`max_version` below 1.0).
    """
    code = dtype_code(dtype)
    if code is None:
        raise BufferError(f"DLPack has no dtype for {dtype}")
    versioned = max_version is not None and max_version[0] >= 1
    if readonly and not versioned:
        raise BufferError("read-only memory needs a consumer with DLPack 1.0 or later")
    dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    strides = (ctypes.c_int64 * max(1, len(shape)))()
    stride = 1
    for axis in reversed(range(len(shape))):
        strides[axis] = stride
        stride *= max(shape[axis], 1)
    tensor = _Tensor(address, *device, len(shape), *code, 1, dims, strides, 0)
    deleter = ctypes.cast(_deleter, ctypes.c_void_p)
    made: Any
    if versioned:
        made = _Versioned(1, 0, None, deleter, READ_ONLY if readonly else 0, tensor)
    else:
        made = _Managed(tensor, None, deleter)
    structure = ctypes.addressof(made)
    _exported[structure] = (made, dims, strides, owner)
    name = _VERSIONED if versioned else _UNVERSIONED
    return _new(structure, name, ctypes.cast(_destructor, ctypes.c_void_p))


_EMPTY = ctypes.create_string_buffer(1)


class _Owner:
    """Memory of another library. It calls the library's deleter when the last array on it is gone."""

    def __init__(self, address: int, deleter: int | None, interface: dict[str, Any]) -> None:
        self._address = address
        self._deleter = deleter
        self.__array_interface__ = interface

    def __del__(self) -> None:
        if self._deleter:
            _Deleter(self._deleter)(self._address)


def _capsule_of(source: Any) -> Any:
    """The DLPack capsule of an object."""
    try:
        return source.__dlpack__(max_version=(1, 1))
    except TypeError:  # an exporter for DLPack before 1.0
        return source.__dlpack__()


def _is_lazily_negated(source: Any) -> bool:
    """Whether an object says so by a method `is_neg`, as tensors of some libraries do."""
    told = getattr(source, "is_neg", None)
    return callable(told) and told() is True


def from_dlpack(source: Any) -> np.ndarray[Any, Any]:
    """A view of the host memory of an object with `__dlpack__`. Raises UsageError if the object cannot export
    it.
    """
    if _is_lazily_negated(source):
        raise UsageError(
            f"a {type(source).__name__} is lazily negated",
            why="its memory has the values of the opposite sign, which DLPack does not tell",
            hint="convert it, by resolve_neg()",
        )
    try:
        kind = source.__dlpack_device__() if hasattr(source, "__dlpack_device__") else CPU
    except (BufferError, RuntimeError, ValueError, TypeError) as error:
        raise UsageError(f"a {type(source).__name__} is on no device of DLPack", why=str(error)) from None
    if int(kind[0]) not in HOST_TYPES:
        raise UsageError(
            f"the array is on a device (DLPack type {int(kind[0])})", hint="copy it to the host first"
        )
    try:
        capsule = _capsule_of(source)
    except (BufferError, RuntimeError, ValueError, TypeError) as error:
        raise UsageError(f"a {type(source).__name__} does not export its memory", why=str(error)) from None
    name = next((n for n in (_VERSIONED, _UNVERSIONED) if _is_valid(capsule, n)), None)
    if name is None:
        raise UsageError(f"__dlpack__ of {type(source).__name__} did not return an unused DLPack capsule")
    structure = _pointer(capsule, name)
    flags = 0
    if name == _VERSIONED:
        versioned = _Versioned.from_address(structure)
        if versioned.major != 1:
            raise UsageError(
                f"the array is in DLPack {versioned.major}.{versioned.minor}", why="only 1.x is supported"
            )
        tensor, deleter, flags = versioned.tensor, versioned.deleter, versioned.flags
    else:
        managed = _Managed.from_address(structure)
        tensor, deleter = managed.tensor, managed.deleter
    interface, dtype = _interface(tensor, bool(flags & READ_ONLY))
    _rename(capsule, _USED[name])
    return np.asarray(_Owner(structure, deleter, interface)).view(dtype)


def _interface(tensor: Any, readonly: bool) -> tuple[dict[str, Any], np.dtype[Any]]:
    name = _NAMES.get((tensor.code, tensor.bits))
    if name is None or tensor.lanes != 1:
        raise UsageError(
            f"no dtype for DLPack code {tensor.code} of {tensor.bits} bits, {tensor.lanes} lanes"
        )
    dtype = DType(name).numpy
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = (
        tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim)) if tensor.strides else None
    )
    # NumPy's interface has no codes for the dtypes of ml_dtypes. Use integers of the same size, and view
    # them.
    code = dtype.str if dtype.isbuiltin == 1 else np.dtype(f"u{dtype.itemsize}").str
    # An empty array may have a null pointer, which NumPy does not accept.
    address = ctypes.addressof(_EMPTY) if 0 in shape else (tensor.data or 0) + tensor.byte_offset
    interface = {
        "version": 3,
        "shape": shape,
        "typestr": code,
        "data": (address, readonly),
        "strides": strides,
    }
    return interface, dtype


__all__ = ["CPU", "HOST_TYPES", "export", "from_dlpack"]
