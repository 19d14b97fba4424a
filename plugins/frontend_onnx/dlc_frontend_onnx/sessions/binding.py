"""Bindings to fixed memory: `OrtValue`, and `IOBinding` for calls of a session without copies."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from dlc_core.diag import DlcError, UsageError
from dlc_core.ir.dtype import DType
from dlc_core.runtime.call.arrays import as_host
from dlc_frontend_onnx.dtypes import BY_NUMBER, number_of
from dlc_frontend_onnx.sessions.naming import NodeArg, type_text
from dlc_frontend_onnx.specialized import CallableModel

Array = np.ndarray[Any, Any]


class OrtValue:
    """A tensor in host memory, which shares the memory of an array."""

    def __init__(self, array: Array) -> None:
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(array: Any, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """A value that shares the memory of an array."""
        _on_host(device_type)
        return OrtValue(as_host(array, "the value"))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """A value with new, uninitialized memory."""
        _on_host(device_type)
        return OrtValue(np.empty(tuple(shape), _numpy(element_type)))

    def numpy(self) -> Array:
        """The array itself."""
        return self._array

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def data_type(self) -> str:
        """For example "tensor(float)"."""
        return type_text(self._array.dtype.name)

    def element_type(self) -> int:
        """The number of the element type in `onnx.TensorProto`."""
        return number_of(self._array.dtype.name)

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self._array.ctypes.data)

    def device_name(self) -> str:
        return "cpu"

    def tensor_size_in_bytes(self) -> int:
        return self._array.nbytes

    def has_value(self) -> bool:
        return True

    def is_tensor(self) -> bool:
        return True

    def is_sparse_tensor(self) -> bool:
        return False

    def is_tensor_sequence(self) -> bool:
        return False

    def update_inplace(self, array: Any) -> None:
        """Copy an array of the same shape and dtype into the memory."""
        other = as_host(array, "the value")
        if (other.shape, other.dtype) != (self._array.shape, self._array.dtype):
            raise UsageError(
                f"the value is {other.dtype}{list(other.shape)}, not {self._array.dtype}{self.shape()}"
            )
        self._array[...] = other

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return dict(self._array.__array_interface__)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._array, dtype=dtype, copy=bool(copy))


class Bindable(Protocol):
    """The part of a session that a binding uses."""

    model: CallableModel

    def get_inputs(self) -> Sequence[NodeArg]: ...

    def get_outputs(self) -> Sequence[NodeArg]: ...


class IOBinding:
    """Inputs and outputs of a session bound to fixed memory: `session.run_with_iobinding(binding)`.

    A call reads the inputs in place, so they may be overwritten before the next call. Outputs bound without
    memory get it at the first call and keep it while the shapes stay the same.
    """

    def __init__(self, session: Bindable) -> None:
        self._session = session
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, Array | None] = {}
        self._results: dict[str, Array] = {}
        self._bound: tuple[object, Callable[[], object]] | None = None

    def bind_cpu_input(self, name: str, array: Any) -> None:
        """Bind an input to an array."""
        self._check(name, [arg.name for arg in self._session.get_inputs()], "input")
        self._inputs[name] = as_host(array, f"input {name!r}")
        self._bound = None

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Bind an input to an address. The memory must live as long as the binding."""
        _on_host(device_type)
        self.bind_cpu_input(name, _at(buffer_ptr, shape, element_type))

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        """Bind an input to the memory of a value."""
        self.bind_cpu_input(name, ortvalue.numpy())

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Bind an output to an address, or to memory that the binding allocates."""
        _on_host(device_type)
        self._check(name, [arg.name for arg in self._session.get_outputs()], "output")
        if buffer_ptr is not None and (shape is None or element_type is None):
            raise UsageError(f"output {name!r} is bound to an address without element_type and shape")
        array = None
        if buffer_ptr is not None and shape is not None:
            array = _at(buffer_ptr, shape, element_type)
        self._outputs[name] = array
        self._bound = None

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        """Bind an output to the memory of a value."""
        self.bind_output(name)
        self._outputs[name] = ortvalue.numpy()

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()
        self._bound = None

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()
        self._results.clear()
        self._bound = None

    def synchronize_inputs(self) -> None:
        """Does nothing, because inputs are in host memory."""

    def synchronize_outputs(self) -> None:
        """Does nothing, because calls are synchronous."""

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the latest call in the order of binding, without copies."""
        if not all(name in self._results for name in self._outputs):
            raise UsageError("the binding has no results", hint="call session.run_with_iobinding first")
        return [OrtValue(self._results[name]) for name in self._outputs]

    def copy_outputs_to_cpu(self) -> list[Array]:
        """Copies of the outputs in the order of binding."""
        return [value.numpy().copy() for value in self.get_outputs()]

    def run(self) -> None:
        """Call the session."""
        form, feeds = self._session.model.pick(self._inputs)
        if not self._outputs:
            raise UsageError("no output is bound", hint="binding.bind_output(name)")
        names = [value.name for value in form.exe.inputs]
        missing = [name for name in names if name not in feeds]
        if missing:
            raise UsageError(f"input {missing[0]!r} is not bound", hint=f"inputs: {', '.join(names)}")
        # Sizes may depend on elements of bound inputs.
        sizes = form.exe.signature.call_sizes([np.asarray(feeds[name]) for name in names])
        key = form.exe, sizes
        if self._bound is None or self._bound[0] != key:
            self._bound = key, self._bind(form.exe, feeds, sizes)
        self._bound[1]()

    def _bind(self, exe: Any, feeds: Mapping[str, Array], sizes: object) -> Callable[[], object]:
        plan = exe.signature.plan(sizes)
        arrays: list[Array | None] = []
        continued = {donation.output for donation in exe.signature.donated}
        for index, (value, shape) in enumerate(zip(exe.outputs, plan.outputs)):
            own = self._outputs.get(value.name)
            if index in continued:
                arrays.append(own)
                continue
            kept = self._results.get(value.name)
            if own is None and kept is not None and (kept.shape, kept.dtype) == (shape, value.dtype.numpy):
                own = kept
            arrays.append(np.empty(shape, value.dtype.numpy) if own is None else own)
        call = exe.bind(dict(feeds), arrays)
        self._results = {value.name: array for value, array in zip(exe.outputs, call.outputs)}
        bound: Callable[[], object] = call
        return bound

    def _check(self, name: str, known: Sequence[str], what: str) -> None:
        if name not in known:
            raise UsageError(f"unknown {what} {name!r}", hint=f"{what}s: {', '.join(known) or 'none'}")


def _on_host(device_type: str) -> None:
    if device_type.lower() != "cpu":
        raise UsageError(
            f"a value on {device_type!r}", why="sessions take values in host memory", hint='"cpu"'
        )


def _numpy(element_type: Any) -> np.dtype[Any]:
    """The NumPy dtype of an element type: a number of `onnx.TensorProto`, or anything that NumPy accepts as a
    dtype.
    """
    if isinstance(element_type, int) and element_type in BY_NUMBER:
        return BY_NUMBER[element_type].numpy
    try:
        return DType.of(np.dtype(element_type)).numpy
    except (TypeError, DlcError):
        raise UsageError(f"{element_type!r} is not an element type", hint="numpy.float32, ...") from None


def _at(address: int, shape: Sequence[int], element_type: Any) -> Array:
    """The array at an address of this process."""
    dtype = _numpy(element_type)
    memory = (ctypes.c_uint8 * (math.prod(shape) * dtype.itemsize)).from_address(address)
    return np.ctypeslib.as_array(memory).view(dtype).reshape(tuple(shape))


__all__ = ["IOBinding", "OrtValue"]
