"""NumPy accepts the dtypes of dlc."""

from __future__ import annotations

import numpy as np
import pytest

from dlc_core.ir.dtype import DType, scalar_dtypes


@pytest.mark.parametrize("name", scalar_dtypes())
def test_numpy_accepts_a_dtype(name: str) -> None:
    dtype = DType(name)
    assert np.dtype(dtype) is np.dtype(dtype.numpy)
    assert np.zeros(3, dtype).dtype == dtype.numpy


def test_a_dtype_and_its_numpy_type_convert_to_each_other() -> None:
    assert all(DType.of(DType(name).numpy) is DType(name) for name in scalar_dtypes() if name != "handle")
