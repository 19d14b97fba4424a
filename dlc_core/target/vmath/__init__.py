"""Formulas of vector math that code generators share, each written once over `Code`: no library is called.

`FORMULAS` maps intrinsics of one operand to them.  Their errors, in units in the last place, are those of the
code generators that state them.
"""

from __future__ import annotations

from collections.abc import Callable

from dlc_core.target.vmath import error, exponential, inverse_trig, logarithm
from dlc_core.target.vmath.code import Code

FORMULAS: dict[str, Callable[[Code, str], str]] = {
    "acos": inverse_trig.acos,
    "acosh": logarithm.acosh,
    "asin": inverse_trig.asin,
    "asinh": logarithm.asinh,
    "atan": inverse_trig.atan,
    "atanh": logarithm.atanh,
    "cosh": exponential.cosh,
    "erf": error.erf,
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "log": logarithm.log,
    "log10": logarithm.log10,
    "log1p": logarithm.log1p,
    "log2": logarithm.log2,
    "sigmoid": exponential.sigmoid,
    "sinh": exponential.sinh,
    "tanh": exponential.tanh,
}

__all__ = ["FORMULAS", "Code"]
