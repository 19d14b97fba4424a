"""Rules of arithmetic, comparison and choice. Each rule's `doc` states the identity."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dlc_core.graph.node import CONST, Node, const_array, constant, param
from dlc_core.ir.types import tensor_type
from dlc_core.op.std import BY_NAME as OPS
from dlc_core.passes.graph import rules_clip
from dlc_core.passes.graph.rules_clip import FLOATS
from dlc_core.passes.heuristics import CONSTANTS
from dlc_core.rewrite import Match, Rule, const_var, match_op, number, var
from dlc_core.rewrite.rule import Example

NEG, ABS, SQRT, IDENTITY, LOGICAL_NOT = (
    OPS[name] for name in ("neg", "abs", "sqrt", "identity", "logical_not")
)
ADD, SUB, MUL, DIV, POW, WHERE, RSQRT, RECIPROCAL = (
    OPS[name] for name in ("add", "sub", "mul", "div", "pow", "where", "rsqrt", "reciprocal")
)

x, y, z, c, d = var("x"), var("y"), var("z"), const_var("c"), const_var("d")

IDEMPOTENT = ("abs", "relu", "floor", "ceil", "round", "trunc", "sign")
NEUTRAL: tuple[tuple[str, bool, float | int | bool], ...] = (
    ("add", True, -0.0),  # 0.0 is not an identity: -0.0 + 0.0 is 0.0
    ("add", True, 0),
    ("sub", False, 0.0),
    ("sub", False, 0),
    ("mul", True, 1.0),
    ("mul", True, 1),
    ("div", False, 1.0),
    ("div", False, 1),
    ("pow", False, 1.0),
    ("pow", False, 1),
    ("logical_and", True, True),
    ("logical_or", True, False),
    ("logical_xor", True, False),
    ("bitwise_or", True, 0),
    ("bitwise_xor", True, 0),
)
COMPLEMENTS = (("equal", "not_equal"), ("not_equal", "equal"))


def _keeps_type(match: Match) -> bool:
    """Whether x has the result's type. A constant operand may broadcast it to another shape."""
    return bool(match["x"].type == match.root.type)


def _neutral() -> tuple[Rule, ...]:
    return tuple(
        Rule(
            f"{name}_{'true' if value is True else 'false' if value is False else value}",
            match_op(OPS[name], x, number(value), commutes=commutes),
            x,
            _keeps_type,
            doc=f"{name}(x, {value}) = x",
        )
        for name, commutes, value in NEUTRAL
    )


def _idempotent() -> tuple[Rule, ...]:
    twice = tuple(
        Rule(
            f"{name}_{name}",
            match_op(OPS[name], match_op(OPS[name], x)),
            match_op(OPS[name], x),
            doc=f"{name}({name}(x)) = {name}(x)",
        )
        for name in IDEMPOTENT
    )
    same = tuple(
        Rule(f"{name}_same", match_op(OPS[name], x, x), x, doc=f"{name}(x, x) = x")
        for name in ("minimum", "maximum", "logical_and", "logical_or", "bitwise_and", "bitwise_or")
    )
    return (*twice, *same)


def _involutions() -> tuple[Rule, ...]:
    return tuple(
        Rule(f"{name}_{name}", match_op(OPS[name], match_op(OPS[name], x)), x, doc=f"{name}({name}(x)) = x")
        for name in ("neg", "logical_not", "bitwise_not")
    )


def _complements() -> tuple[Rule, ...]:
    """Return the rules for negated equalities. With NaN, other comparisons have no complement."""
    return tuple(
        Rule(
            f"not_{name}",
            match_op(LOGICAL_NOT, match_op(OPS[name], x, y)),
            match_op(OPS[other], x, y),
            doc=f"not {name}(x, y) = {other}(x, y)",
            examples=(_comparison(name),),
            dtypes=("float32", "int32", "bool"),
        )
        for name, other in COMPLEMENTS
    )


def _comparison(name: str) -> Example:
    def example(dtype: str) -> Node:
        a, b = (param(n, tensor_type((4, 24), dtype)) for n in "ab")
        return LOGICAL_NOT.build(OPS[name].build(a, b))

    return example


def _is_power_of_two(value: Node) -> bool:
    """Whether the reciprocal of each element is exact, so that a division can become a multiplication."""
    array = const_array(value)
    if array is None or not value.dtype.is_float or array.size > CONSTANTS.max_reciprocals:
        return False
    wide = array.astype(np.float64)
    if not np.isfinite(wide).all() or (wide == 0).any():
        return False
    mantissa, exponent = np.frexp(wide)
    # Near the ends of the exponent range the reciprocal would be denormal or overflow.
    return bool((np.abs(mantissa) == 0.5).all() and (np.abs(exponent) < 13).all())


def _reciprocal_of(value: Node) -> Node:
    array = const_array(value)
    assert array is not None
    return constant((1.0 / array.astype(np.float64)).astype(array.dtype))


def _div_example(dtype: str) -> Node:
    return DIV.build(param("x", tensor_type((4, 24), dtype)), constant(np.array([8.0, 0.5, 1.0] * 8), dtype))


def _folds(op_name: str) -> Callable[[Match], Node]:
    def replace(match: Match) -> Node:
        decl = OPS[op_name]
        return decl.build(match["x"], decl.build(match["c"], match["d"]))

    return replace


def _reassociate() -> tuple[Rule, ...]:
    rules = []
    for name in ("add", "mul"):
        chain = match_op(OPS[name], match_op(OPS[name], x, c, commutes=True), d, commutes=True)
        integer = Rule(
            f"{name}_{name}_int",
            chain,
            _folds(name),
            lambda m: not m.root.dtype.is_float and _chains(m),
            doc=f"integers wrap around, so {name} is associative",
            dtypes=("int8", "int32", "int64", "uint8"),
        )
        floating = Rule(
            f"{name}_{name}_const",
            chain,
            _folds(name),
            lambda m: m.root.dtype.is_float and _chains(m),
            approximate=True,
            doc=f"({name} with two constants) rounds once instead of twice",
            dtypes=FLOATS,
        )
        rules += [integer, floating]
    difference = Rule(
        "sub_add_int",
        match_op(ADD, match_op(SUB, x, c), d, commutes=True),
        lambda m: ADD.build(m["x"], SUB.build(m["d"], m["c"])),
        lambda m: not m.root.dtype.is_float and _chains(m),
        doc="integers wrap around, so (x - c) + d = x + (d - c)",
        dtypes=("int8", "int32", "int64", "uint8"),
    )
    return (*rules, difference)


def _affine() -> Rule:
    e = const_var("e")
    inner = match_op(MUL, x, c, commutes=True)
    chain = match_op(MUL, match_op(ADD, inner, d, commutes=True), e, commutes=True)

    def merged(match: Match) -> Node:
        factor, term, outer = match["c"], match["d"], match["e"]
        return ADD.build(MUL.build(match["x"], MUL.build(factor, outer)), MUL.build(term, outer))

    return Rule(
        "mul_affine",
        chain,
        merged,
        lambda m: m.root.dtype.is_float and _chains(m),
        approximate=True,
        doc="(x c + d) e = x (c e) + d e, which rounds in another order",
        dtypes=FLOATS,
    )


def _chains(match: Match) -> bool:
    """Whether the folded constant is no larger than the result, and x is not broadcast in between.

    A constant x is excluded: constant folding handles it, and with three constants the rules would not end.
    """
    return bool(match["x"].type == match.root.type) and match["x"].op is not CONST


CHOICE = (
    Rule(
        "where_true",
        match_op(WHERE, number(True), x, y),
        x,
        _keeps_type,
        doc="where(true, x, y) = x",
        examples=(lambda t: WHERE.build(constant(True), *(param(n, tensor_type((4, 24), t)) for n in "xy")),),
    ),
    Rule(
        "where_false",
        match_op(WHERE, number(False), y, x),
        x,
        _keeps_type,
        doc="where(false, y, x) = x",
        examples=(
            lambda t: WHERE.build(constant(False), *(param(n, tensor_type((4, 24), t)) for n in "xy")),
        ),
    ),
    Rule(
        "where_same",
        match_op(WHERE, y, x, x),
        x,
        _keeps_type,
        doc="where(y, x, x) = x",
        examples=(
            lambda t: (lambda v: WHERE.build(param("c", tensor_type((4, 24), "bool")), v, v))(
                param("x", tensor_type((4, 24), t))
            ),
        ),
    ),
    Rule(
        "where_not",
        match_op(WHERE, match_op(LOGICAL_NOT, z), x, y),
        match_op(WHERE, z, y, x),
        doc="where(not z, x, y) = where(z, y, x)",
        examples=(
            lambda t: WHERE.build(
                LOGICAL_NOT.build(param("c", tensor_type((4, 24), "bool"))),
                *(param(n, tensor_type((4, 24), t)) for n in "xy"),
            ),
        ),
    ),
)

SIGNS_AND_POWERS = (
    Rule(
        "div_power_of_two",
        match_op(DIV, x, const_var("c", _is_power_of_two)),
        lambda m: MUL.build(m["x"], _reciprocal_of(m["c"])),
        doc="x / 2**k = x * 2**-k",
        examples=(_div_example,),
        dtypes=FLOATS,
    ),
    Rule(
        "mul_minus_one",
        match_op(MUL, x, number(-1.0), commutes=True),
        match_op(NEG, x),
        _keeps_type,
        doc="x * -1 = -x",
    ),
    Rule(
        "add_neg",
        match_op(ADD, x, match_op(NEG, y), commutes=True),
        match_op(SUB, x, y),
        doc="x + -y = x - y",
    ),
    Rule("sub_neg", match_op(SUB, x, match_op(NEG, y)), match_op(ADD, x, y), doc="x - -y = x + y"),
    Rule(
        "neg_mul_neg",
        match_op(MUL, match_op(NEG, x), match_op(NEG, y)),
        match_op(MUL, x, y),
        doc="-x * -y = x * y",
    ),
    Rule(
        "abs_neg",
        match_op(ABS, match_op(NEG, x)),
        match_op(ABS, x),
        lambda m: m.root.dtype.kind != "uint",
        doc="|-x| = |x| of signed numbers",
        dtypes=(*FLOATS, "int8", "int64"),
    ),
    Rule(
        "pow_2",
        match_op(POW, x, number(2.0)),
        match_op(MUL, x, x),
        _keeps_type,
        approximate=True,
        doc="x**2 = x x",
        dtypes=FLOATS,
    ),
    Rule(
        "pow_3",
        match_op(POW, x, number(3.0)),
        match_op(MUL, match_op(MUL, x, x), x),
        _keeps_type,
        approximate=True,
        doc="x**3 = x x x, rounded twice",
        dtypes=FLOATS,
    ),
    Rule(
        "rsqrt_div",
        match_op(DIV, number(1.0), match_op(SQRT, x)),
        match_op(RSQRT, x),
        _keeps_type,
        approximate=True,
        doc="1 / sqrt(x) = rsqrt(x)",
        dtypes=FLOATS,
    ),
    Rule(
        "rsqrt_reciprocal",
        match_op(RECIPROCAL, match_op(SQRT, x)),
        match_op(RSQRT, x),
        approximate=True,
        doc="1 / sqrt(x) = rsqrt(x)",
        dtypes=FLOATS,
    ),
)

RULES: tuple[Rule, ...] = (
    Rule("identity", match_op(IDENTITY, x), x, doc="identity(x) = x"),
    *_neutral(),
    *_involutions(),
    *_idempotent(),
    *_complements(),
    *rules_clip.RULES,
    *CHOICE,
    *SIGNS_AND_POWERS,
    *_reassociate(),
    _affine(),
)
