"""Random numbers, which the host draws.

With a seed they are those of NumPy's `RandomState` (the Mersenne Twister, whose stream NumPy guarantees), as
in ONNX's reference implementation.  Without a seed, every call draws other numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlc_core.ir.dtype import DType
from dlc_core.ir.types import TensorType, Type
from dlc_core.op.declare import FLOATS, Attr, ErrorSample, NDArray, Sample, op
from dlc_core.op.infer import Attrs, check_dtype, fail

_FLOAT32 = DType("float32")


def _infer(types: Sequence[Type], attrs: Attrs) -> Type:
    check_dtype(attrs["dtype"], FLOATS, "the result")
    seed = attrs["seed"]
    if seed is not None and not 0 <= seed < 1 << 32:
        raise fail(f"the seed is {seed}", "it must be in [0, 2**32)")
    return TensorType(tuple(attrs["shape"]), attrs["dtype"])


def _reference(
    *,
    shape: tuple[int, ...],
    distribution: str,
    a: float,
    b: float,
    seed: int | None,
    instance: int,
    dtype: DType,
) -> NDArray:
    state = np.random.RandomState(seed)
    drawn = state.uniform(a, b, shape) if distribution == "uniform" else state.normal(a, b, shape)
    return np.asarray(drawn).astype(np.float64 if dtype.bits == 64 else np.float32)


RANDOM = op(
    "random",
    "independent random numbers: uniform in [a, b), or normal with the mean a and the standard deviation b;"
    " nodes with different `instance` draw independently",
    [],
    [
        Attr("shape", "dims"),
        Attr("distribution", "str", "uniform", choices=("uniform", "normal")),
        Attr("a", "float", 0.0),
        Attr("b", "float", 1.0),
        Attr("seed", "int", None),
        Attr("instance", "int", 0),
        Attr("dtype", "dtype", _FLOAT32),
    ],
    kind="opaque",
    infer=_infer,
    reference=_reference,
    dtypes=("float32",),
    samples=(
        Sample((), {"shape": (2, 3), "seed": 3}),
        Sample(
            (), {"shape": (5,), "distribution": "normal", "a": 1.0, "b": 0.5, "seed": 0, "dtype": "float64"}
        ),
        Sample((), {"shape": (), "seed": 7, "dtype": "float16"}),
    ),
    error_samples=[
        ErrorSample((), {"shape": (2,), "seed": -1}, "seed"),
        ErrorSample((), {"shape": (2,), "dtype": "int32"}, "dtype"),
    ],
    pure=False,
)

OPS = (RANDOM,)
