"""Integer powers by repeated squaring, as a function of the module."""

from __future__ import annotations

from dlc_backend_llvm.emit.types import register_type, suffix, vector
from dlc_core.ir.dtype import DType

_LOOP = """
define internal KIND @NAME(KIND %x, KIND %y) nounwind {
entry:
  br label %loop
loop:
  %base = phi KIND [ %x, %entry ], [ %squared, %loop ]
  %left = phi KIND [ %y, %entry ], [ %halved, %loop ]
  %result = phi KIND [ ONE, %entry ], [ %next, %loop ]
  %bit = and KIND %left, ONE
  %odd = icmp ne KIND %bit, ZERO
  %multiplied = mul KIND %result, %base
  %next = select FLAGS %odd, KIND %multiplied, KIND %result
  %squared = mul KIND %base, %base
  %halved = lshr KIND %left, ONE
  %more = icmp ne KIND %halved, ZERO
MORE
  br i1 %again, label %loop, label %done
done:
RESULT
}
"""

_SIGNED = """
  %negative = icmp slt KIND %y, ZERO
  %is_one = icmp eq KIND %x, ONE
  %is_minus = icmp eq KIND %x, MINUS
  %parity = and KIND %y, ONE
  %is_odd = icmp ne KIND %parity, ZERO
  %sign = select FLAGS %is_odd, KIND MINUS, KIND ONE
  %unit = select FLAGS %is_minus, KIND %sign, KIND ZERO
  %inverse = select FLAGS %is_one, KIND ONE, KIND %unit
  %power = select FLAGS %negative, KIND %inverse, KIND %next
  ret KIND %power
"""


def integer_power(type_: DType) -> tuple[str, str]:
    """(name, definition) of x to the power y, modulo 2**bits.

    For negative exponents the exact power is rounded towards zero: it is 0, except for the bases 1 and -1.
    """
    name = f"dlc_power_{type_.kind}_{suffix(type_)}"
    lanes, scalar = type_.lanes, register_type(type_.scalar)

    def splat(value: int) -> str:
        return str(value) if lanes == 1 else f"splat ({scalar} {value})"

    some = f"  %again = call i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1> %more)"
    parts = {
        "MORE": "  %again = and i1 %more, true" if lanes == 1 else some,
        "RESULT": _SIGNED.strip("\n") if type_.kind == "int" else "  ret KIND %next",
        "NAME": name,
        "KIND": register_type(type_),
        "FLAGS": vector("i1", lanes),
        "MINUS": splat(-1),
        "ONE": splat(1),
        "ZERO": splat(0),
    }
    text = _LOOP
    for word, value in parts.items():
        text = text.replace(word, value)
    return name, text


__all__ = ["integer_power"]
