"""The quantisation formats of the core, and all by name."""

from __future__ import annotations

from dlc_core.diag import UsageError, similar
from dlc_core.op.lookup import registered_formats
from dlc_core.op.quant_format import EXPONENTS, QuantFormat

FORMATS = (
    QuantFormat("mxfp4", "float4_e2m1fn", 32, EXPONENTS, doc="OCP MX: 4-bit floats, an exponent for 32"),
    QuantFormat("mxfp8", "float8_e4m3fn", 32, EXPONENTS, doc="OCP MX: 8-bit floats, an exponent for 32"),
    QuantFormat("int4g32", "uint4", 32, "float16", offset=8, doc="4-bit integers, symmetric, groups of 32"),
    QuantFormat("uint4g128", "uint4", 128, "float16", zero=True, doc="4-bit integers with zero points"),
)
"""The formats of the core."""


def quant_format(name: str) -> QuantFormat:
    """The format of a name. Raises UsageError, which lists the known ones, if there is none."""
    known = registered_formats()
    found = known.get(name)
    if found is None:
        close = similar(name, known)
        raise UsageError(
            f"there is no quantisation format {name!r}",
            details=[f"known: {', '.join(known)}"],
            hint=f"did you mean {close[0]!r}?" if close else "install the package that declares it",
        )
    return found


__all__ = ["FORMATS", "quant_format"]
