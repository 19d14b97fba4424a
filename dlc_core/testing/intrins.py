"""Checks of tensor intrinsics: description, implementation and reference must compute the same.

    check_intrin(TensorIntrin("npu.mma16", desc, impl, reference))

Values are small integers, so that the order of a sum does not change the result. Memory around the windows
must not change.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dlc_core.diag import VerifyError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.expr import Var, const_value
from dlc_core.schedule import TensorIntrin
from dlc_core.tir.interpreter import run
from dlc_core.tir.verify import verify_func

Array = np.ndarray[Any, Any]
MARGIN = 7
"""The number of elements before and after each window, and between its rows."""


def check_intrin(intrin: TensorIntrin, seeds: tuple[int, ...] = (0, 1)) -> None:
    """Run description, implementation and reference on the same arrays. Raises VerifyError that names the
    first buffer that differs.
    """
    verify_func(intrin.desc, level=2)
    verify_func(intrin.impl)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        inputs = [_values(b, rng) for b in intrin.desc.buffers]
        scalars = {v.name: int(rng.integers(1, 4)) for v in intrin.desc.scalars}
        expected = [a.copy() for a in inputs]
        run(intrin.desc, *expected, *(scalars[v.name] for v in intrin.desc.scalars))
        by_reference = [a.copy() for a in inputs]
        intrin.reference(*by_reference)
        _compare(intrin, "the reference", by_reference, expected)
        _compare(intrin, "the implementation", _by_impl(intrin, inputs, scalars), expected)


def _values(buffer: Buffer, rng: np.random.Generator) -> Array:
    low = 0 if buffer.dtype.is_bool or str(buffer.dtype).startswith("uint") else -3
    return rng.integers(low, 2 if buffer.dtype.is_bool else 4, buffer.static_shape()).astype(
        buffer.dtype.numpy
    )


def _by_impl(intrin: TensorIntrin, inputs: list[Array], scalars: dict[str, int]) -> list[Array]:
    """Run the implementation on windows of larger arrays, and return the windows. Dims that must be
    contiguous are not padded.
    """
    params = intrin.layout_params
    scalar_values: dict[Var, int] = {}
    arguments: list[Array] = []
    windows: list[Array] = []
    untouched: list[tuple[Array, Array]] = []
    for buffer, values in zip(intrin.impl.buffers, inputs, strict=True):
        if buffer.strides is None and const_value(buffer.offset) == 0:
            arguments.append(values.copy())
            windows.append(arguments[-1])
            continue
        for stride in reversed(buffer.element_strides()):
            if isinstance(stride, Var) and stride not in scalar_values:
                dim = params[stride][1]
                assert dim is not None
                scalar_values[stride] = int(np.prod(values.shape[dim + 1 :])) + MARGIN
        if isinstance(buffer.offset, Var):
            scalar_values[buffer.offset] = MARGIN
        steps = [_number(s, scalar_values) for s in buffer.element_strides()]
        offset = _number(buffer.offset, scalar_values)
        extent = sum((size - 1) * step for size, step in zip(values.shape, steps, strict=True)) + 1
        memory = np.full(offset + extent + MARGIN, 77, values.dtype)
        window = np.lib.stride_tricks.as_strided(
            memory[offset:], values.shape, [s * memory.itemsize for s in steps]
        )
        window[...] = values
        arguments.append(memory if buffer.strides is not None else window)
        windows.append(window)
        mask = np.ones(memory.shape, bool)
        inside = np.lib.stride_tricks.as_strided(mask[offset:], values.shape, steps)
        inside[...] = False
        untouched.append((memory, mask))
    numbers = [scalar_values[v] if v in scalar_values else scalars[v.name] for v in intrin.impl.scalars]
    run(intrin.impl, *arguments, *numbers, externs=intrin.functions())
    for memory, mask in untouched:
        if not np.all(memory[mask] == np.asarray(77, memory.dtype)):
            raise VerifyError(f"intrinsic {intrin.name}: the implementation writes outside of its windows")
    return windows


def _number(expr: Any, scalar_values: dict[Var, int]) -> int:
    value = scalar_values[expr] if isinstance(expr, Var) else const_value(expr)
    if value is None:
        raise VerifyError(f"a stride or an offset {expr} is neither a constant nor a parameter")
    return value


def _compare(intrin: TensorIntrin, name: str, found: list[Array], expected: list[Array]) -> None:
    for buffer, a, b in zip(intrin.desc.buffers, found, expected, strict=True):
        if not np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            at = tuple(int(i[0]) for i in np.nonzero(np.asarray(a != b)))
            raise VerifyError(
                f"intrinsic {intrin.name}: {name} does not compute the same as the description",
                details=[f"{buffer.name}{list(at)} is {a[at]}, described {b[at]}"],
            )


__all__ = ["check_intrin"]
