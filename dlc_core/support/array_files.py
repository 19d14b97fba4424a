"""Arrays of `.npy` and `.npz` files that anybody may have written: `load_arrays`."""

from __future__ import annotations

import os
import tokenize
import zipfile
import zlib
from typing import Any

import numpy as np

NDArray = np.ndarray[Any, Any]


def load_arrays(path: str | os.PathLike[str]) -> NDArray | dict[str, NDArray]:
    """The array of a `.npy` file, or those of a `.npz` file by name. Nothing is unpickled.

    Raises OSError if the file cannot be read, and ValueError if it is damaged, or declares more elements than
    memory has.
    """
    try:
        found = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            return found
        with found:
            arrays = {name: found[name] for name in found.files}
    except MemoryError as error:
        raise ValueError(f"its arrays do not fit into memory: {error}") from None
    except (
        EOFError,
        KeyError,
        TypeError,
        SyntaxError,
        OverflowError,
        RecursionError,
        NotImplementedError,
        RuntimeError,
        tokenize.TokenError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:  # NumPy parses headers as Python literals
        raise ValueError(f"{error}" or type(error).__name__) from None
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # NumPy returns the bytes of other files
            raise ValueError(f"{name!r} is no array")
    return arrays


__all__ = ["load_arrays"]
