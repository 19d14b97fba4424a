"""The values of functions of te tensors."""

from __future__ import annotations

import numpy as np

from dlc_core import te
from dlc_core.tir.interpreter import run

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.standard_normal(shape).astype("float32")


def value(function, *arrays):
    """The result of a function of te tensors, computed by the interpreter."""
    inputs = [te.placeholder(a.shape, str(a.dtype), f"x{i}") for i, a in enumerate(arrays)]
    result = function(*inputs)
    made = np.zeros([int(str(d)) for d in result.shape], result.dtype.numpy)
    run(te.create_prim_func(inputs, [result]), *arrays, made, check=True)
    return made
