"""Arrays that go into and come out of executables.

`as_host` converts any array of a caller (NumPy, or an object with `__array_interface__`, `__array__` or
`__dlpack__`) to a NumPy array, without a copy if possible. `NDArray` is an array in the memory of a device
that has its own.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.ir.dtype import STRING, DType, DTypeLike, dtype
from dlc_core.runtime.device import Device, shares_memory
from dlc_core.runtime.memory.host import bytes_of, empty
from dlc_core.support.lazy import lazy

if TYPE_CHECKING:
    from dlc_core.runtime.memory import dlpack
else:
    dlpack = lazy("dlc_core.runtime.memory.dlpack")


MAX_OVERLAP_WORK = 1 << 12
"""The number of candidate solutions that the test for overlapping strided arrays considers."""


class NDArray:
    """A row-major array in a device's memory, which is freed with the last reference to the array.

    `handle` identifies the memory; it is an address if the device has addresses. `numpy()` copies the array
    to the host.
    """

    def __init__(
        self,
        device: Device,
        handle: int,
        shape: tuple[int, ...],
        dtype_: DTypeLike,
        *,
        free: Callable[[int], None] | None = None,
    ) -> None:
        """Takes ownership of `handle` from `device.alloc`. `free` is called with it in place of
        `device.free`.
        """
        self.device = device
        self.handle = handle
        self.shape = shape
        self.dtype = dtype(dtype_)
        self._free = weakref.finalize(self, free or device.free, handle)
        self._free.atexit = False

    @staticmethod
    def empty(device: Device, shape: tuple[int, ...], dtype_: DTypeLike) -> NDArray:
        """An uninitialised array. Raises RuntimeFailure if there is not enough memory."""
        size = math.prod(shape) * dtype(dtype_).itemsize
        return NDArray(device, device.alloc(max(size, 1)), shape, dtype_)

    @staticmethod
    def from_host(device: Device, array: Any) -> NDArray:
        """Copy a host array (any that `as_host` accepts) to the device."""
        host = contiguous(as_host(array, "array"))
        made = NDArray.empty(device, host.shape, host.dtype)
        if host.nbytes:
            device.write(made.handle, bytes_of(host))
        return made

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy in host memory."""
        self.device.sync()
        host = empty(self.shape, self.dtype.numpy)
        if host.nbytes:
            self.device.read(self.handle, bytes_of(host))
        return host

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("the array is in the memory of a device: it cannot be accessed without a copy")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        own = getattr(self.device, "dlpack_device", None)
        return own if own is not None else dlpack.CPU

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None, **_: Any) -> Any:
        """A capsule of the device's memory if DLPack knows the device, else of a copy in host memory."""
        self.device.sync()
        own = getattr(self.device, "dlpack_device", None)
        if own is not None or shares_memory(self.device):
            device = own or dlpack.CPU
            return dlpack.export(self, self.handle, self.shape, self.dtype, device, max_version=max_version)
        host = self.numpy()
        return dlpack.export(host, host.ctypes.data, self.shape, self.dtype, max_version=max_version)

    def __repr__(self) -> str:
        return f"<{self.dtype}[{', '.join(map(str, self.shape))}] on {self.device.name}>"


def as_host(value: Any, what: str, expected: DType | None = None) -> np.ndarray[Any, Any]:
    """A value as a NumPy array in host memory, a view if possible. `what` names it in errors.

    Raises UsageError for values that are not arrays: None, objects, and lists and Python numbers, whose dtype
    is not defined. If strings are expected, NumPy's string arrays are converted to arrays of objects. If a
    declared dtype is expected, unsigned integers of its width in memory are taken as its codes. Complex
    numbers are taken as their parts, in a new last dim, if the parts have the expected dtype.
    """
    if isinstance(value, np.ndarray):
        array = value
    elif isinstance(value, np.generic):
        array = np.asarray(value)
    elif isinstance(value, NDArray):
        array = value.numpy()
    elif value is None or isinstance(value, (list, tuple, bool, int, float, complex, str, bytes, dict, set)):
        name = "None" if value is None else f"a Python {type(value).__name__}"
        hint = (
            f"give an array, such as numpy.asarray(..., {str(expected)!r})"
            if expected is not None
            else "give an array"
        )
        raise UsageError(f"{what} is {name}, not an array", hint=hint)
    elif hasattr(value, "__dlpack__") and not hasattr(value, "__array_interface__"):
        try:
            array = dlpack.from_dlpack(value)
        except UsageError as error:
            raise UsageError(f"{what}: {error.what}", why=error.why, hint=error.hint) from None
    elif hasattr(value, "__array_interface__") or hasattr(value, "__array__") or _is_buffer(value):
        try:
            array = np.asarray(value)
        except (TypeError, ValueError, RuntimeError, BufferError) as error:
            raise UsageError(
                f"{what} is a {type(value).__name__} that cannot be converted to an array", why=str(error)
            ) from None
    else:
        raise UsageError(
            f"{what} is a {type(value).__name__}, not an array", hint="give a NumPy or DLPack array"
        )
    if expected is STRING:
        return _as_strings(array, what)
    if expected is not None and expected.decl is not None and array.dtype == expected.decl.codes:
        return array.view(expected.numpy)
    if expected is not None and array.dtype.kind == "c" and array.real.dtype == expected.numpy:
        real = array.real
        return np.lib.stride_tricks.as_strided(
            real, (*real.shape, 2), (*real.strides, real.itemsize), writeable=array.flags.writeable
        )
    if array.dtype.hasobject:
        raise UsageError(
            f"{what} has the dtype {array.dtype}", hint="give numbers; convert with .astype(...)"
        )
    return array


def _as_strings(array: np.ndarray[Any, Any], what: str) -> np.ndarray[Any, Any]:
    """An array of `str` objects. Raises UsageError if an element is not a `str`."""
    if array.dtype.kind in "UT":
        return array.astype(object)
    if array.dtype.kind != "O":
        raise UsageError(f"{what} is {array.dtype}, strings are needed", hint="give an array of str")
    for item in array.flat:
        if not isinstance(item, str):
            raise UsageError(f"{what} contains a {type(item).__name__}, strings are needed")
    return array


def contiguous(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array itself if it is row-major, contiguous, aligned and in native byte order; else a copy."""
    return (
        array
        if is_plain(array) and array.dtype.isnative
        else array.astype(array.dtype.newbyteorder("="), order="C")
    )


def is_plain(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array is row-major, contiguous and aligned, so that its memory can be passed directly."""
    flags = array.flags
    return flags.c_contiguous and flags.aligned


def has_memory(value: Any) -> bool:
    """Whether `as_host` gives a view of the value's own memory, so that writing to it changes the value."""
    exports = any(hasattr(value, name) for name in ("__dlpack__", "__array_interface__"))
    return isinstance(value, np.ndarray) or (
        not isinstance(value, NDArray) and (exports or _is_buffer(value))
    )


def overlap(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays have a byte in common; also true if that is expensive to find out."""
    if not np.may_share_memory(one, other):
        return False
    try:
        return np.shares_memory(one, other, max_work=MAX_OVERLAP_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _is_buffer(value: Any) -> bool:
    try:
        memoryview(value).release()
    except TypeError:
        return False
    return True


__all__ = ["NDArray", "as_host", "contiguous", "has_memory", "is_plain", "overlap"]
