"""The shared emitter of languages of the C family: a table per language, one writer for all."""

from dlc_core.target.source.dialect import (
    C99,
    MATH,
    Blocks,
    Copies,
    Dialect,
    InPlace,
    Kernels,
    Large,
    Matrices,
    Moves,
    TensorCopies,
)
from dlc_core.target.source.function import FunctionWriter
from dlc_core.target.source.unit import Unit

__all__ = [
    "C99",
    "MATH",
    "Blocks",
    "Copies",
    "Dialect",
    "FunctionWriter",
    "InPlace",
    "Kernels",
    "Large",
    "Matrices",
    "Moves",
    "TensorCopies",
    "Unit",
]
