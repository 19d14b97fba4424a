"""Rules of casts: remove conversions to a wider dtype and back."""

from __future__ import annotations

from dlc_core.graph.node import Node, param
from dlc_core.ir.dtype import DType
from dlc_core.ir.types import tensor_type
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.rewrite import Match, Rule, match_op, var
from dlc_core.rewrite.rule import Example

CAST = OPS["cast"]
x = var("x")

_DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_EXPONENT = {"float16": 5, "bfloat16": 8, "float32": 8, "float64": 11}


def holds_all(narrow: DType, wide: DType) -> bool:
    """Whether a dtype has every value of another (zeros of both signs, infinities and NaN included)."""
    if narrow is wide:
        return True
    if narrow.is_bool:
        return wide.is_int or wide.is_float
    if narrow.is_int and wide.is_int:
        low, high = narrow.int_range()
        wide_low, wide_high = wide.int_range()
        return wide_low <= low and high <= wide_high
    if narrow.is_int and wide.name in _DIGITS:
        return narrow.bits - (narrow.kind == "int") <= _DIGITS[wide.name] and wide.name != "float16"
    if narrow.name in _DIGITS and wide.name in _DIGITS:
        return _DIGITS[narrow.name] <= _DIGITS[wide.name] and _EXPONENT[narrow.name] <= _EXPONENT[wide.name]
    return False


def _drops_detour(match: Match) -> bool:
    source, middle, result = match["x"].dtype, match["inner"].dtype, match.root.dtype
    if not holds_all(source, middle):
        return False
    # A cast to bool agrees for an integer and a float of the same value. A cast of an out-of-range float to
    # an integer does not.
    return source is result or not result.is_int or source.is_float == middle.is_float


def _chain(*dtypes: str) -> Example:
    def example(_: str) -> Node:
        value = param("x", tensor_type((4, 24), dtypes[0]))
        for to in dtypes[1:]:
            value = CAST.build(value, to=to)
        return value

    return example


RULES: tuple[Rule, ...] = (
    Rule(
        "cast_nothing",
        match_op(CAST, x),
        x,
        lambda m: m["x"].dtype is m.root.dtype,
        doc="a cast to the same dtype is the value",
        examples=(_chain("float32", "float32"), _chain("bool", "bool"), _chain("int8", "int8")),
        dtypes=("float32",),
    ),
    Rule(
        "cast_detour",
        match_op(CAST, match_op(CAST, x, capture="inner")),
        lambda m: m["x"] if m["x"].dtype is m.root.dtype else CAST.build(m["x"], to=m.root.dtype),
        _drops_detour,
        doc="a first cast that keeps every value changes nothing for a second",
        dtypes=("float32",),
        examples=(
            _chain("float16", "float32", "float64"),
            _chain("float16", "float32", "float16"),
            _chain("bfloat16", "float32", "bfloat16"),
            _chain("bfloat16", "float32", "float16"),
            _chain("float32", "float64", "bfloat16"),
            _chain("float32", "float64", "bool"),
            _chain("int8", "int64", "float32"),
            _chain("int8", "int32", "int8"),
            _chain("uint8", "int32", "int8"),
            _chain("int32", "float64", "int32"),
            _chain("int32", "int64", "bool"),
            _chain("int8", "bfloat16", "float32"),
            _chain("bool", "int64", "bool"),
            _chain("bool", "int32", "float32"),
            _chain("bool", "float32", "bool"),
        ),
    ),
)
