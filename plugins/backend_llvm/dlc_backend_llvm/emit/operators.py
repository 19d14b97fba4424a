"""Instructions for arithmetic, comparisons and casts."""

from __future__ import annotations

from collections.abc import Callable

from dlc_backend_llvm.emit.types import literal, register_type, vector
from dlc_core.diag import CodegenError
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Binary, Broadcast, Const, Expr, Load

Fresh = Callable[[], str]
Convert = Callable[[str, str, str, int], tuple[list[str], str]]
"""(operand, dtype, new dtype, lanes) -> (lines, result). Narrow floats are in their memory type."""

_FLOAT = {
    "add": "fadd contract",
    "sub": "fsub contract",
    "mul": "fmul contract",
    "div": "fdiv",
}
_INT = {"add": "add", "sub": "sub", "mul": "mul", "bitand": "and", "bitor": "or", "bitxor": "xor"}
_LOGIC = {
    "and": "and",
    "or": "or",
    "bitand": "and",
    "bitor": "or",
    "bitxor": "xor",
    "eq": "icmp eq",
    "ne": "icmp ne",
}
_DIVISIONS = frozenset({"div", "truncdiv", "truncmod", "floordiv", "floormod"})
_ORDER = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}


def unary_instruction(op: str, type_: DType, a: str) -> str:
    kind = register_type(type_)
    if op == "neg":
        return f"fneg {kind} {a}" if type_.is_float else f"sub {kind} {_zero(type_)}, {a}"
    ones = "true" if type_.is_bool else "-1"
    scalar = register_type(type_.scalar)
    return f"xor {kind} {a}, {ones if type_.lanes == 1 else f'splat ({scalar} {ones})'}"


def _zero(type_: DType) -> str:
    return "0" if type_.lanes == 1 else "zeroinitializer"


def _literal_of(expr: Expr) -> Const | None:
    inner = expr.value if isinstance(expr, Broadcast) else expr
    return inner if isinstance(inner, Const) else None


def binary_instruction(
    expr: Binary, a: str, b: str, fresh: Fresh, nonnegative: bool
) -> tuple[list[str], str]:
    """The lines and the result of `expr.op` on operands a and b. `nonnegative` means that a is at least 0."""
    op, type_ = expr.op, expr.a.dtype
    kind = register_type(type_)
    lines: list[str] = []

    def emit(instruction: str) -> str:
        name = fresh()
        lines.append(f"  {name} = {instruction}")
        return name

    if op in ("min", "max"):
        return lines, _extremum(expr, a, b, emit)
    if type_.is_float:
        return lines, emit(_float_instruction(op, kind, a, b))
    if op in ("shl", "shr"):
        return lines, _shift(expr, a, b, emit)
    if op in _DIVISIONS:
        return lines, _division(expr, a, b, emit, nonnegative)
    return lines, emit(_int_instruction(op, type_, kind, a, b))


def _float_instruction(op: str, kind: str, a: str, b: str) -> str:
    if op in _FLOAT:
        return f"{_FLOAT[op]} {kind} {a}, {b}"
    if op == "eq":
        return f"fcmp oeq {kind} {a}, {b}"
    if op == "ne":
        return f"fcmp une {kind} {a}, {b}"
    if op in _ORDER:
        return f"fcmp o{_ORDER[op]} {kind} {a}, {b}"
    raise CodegenError(f"operation {op} is not defined on floats")


def _int_instruction(op: str, type_: DType, kind: str, a: str, b: str) -> str:
    signed = type_.kind == "int"
    if type_.is_bool and op in _LOGIC:
        return f"{_LOGIC[op]} {kind} {a}, {b}"
    if op in _INT:
        return f"{_INT[op]} {kind} {a}, {b}"
    if op in ("eq", "ne"):
        return f"icmp {op} {kind} {a}, {b}"
    if op in _ORDER:
        return f"icmp {'s' if signed else 'u'}{_ORDER[op]} {kind} {a}, {b}"
    raise CodegenError(f"operation {op} is not defined on {type_}")


def _shift(expr: Binary, a: str, b: str, emit: Callable[[str], str]) -> str:
    """Shifts by any amount. If it is outside of [0, bits), the result is 0, or the sign for a
    signed `shr`.
    """
    type_, kind = expr.a.dtype, register_type(expr.a.dtype)
    how = "shl" if expr.op == "shl" else "ashr" if type_.kind == "int" else "lshr"
    amount = _literal_of(expr.b)
    if amount is not None and 0 <= amount.value < type_.bits:
        return emit(f"{how} {kind} {a}, {b}")

    def splat(value: int) -> str:
        return str(value) if type_.lanes == 1 else f"splat ({register_type(type_.scalar)} {value})"

    flags = vector("i1", type_.lanes)
    inside = emit(f"icmp ult {kind} {b}, {splat(type_.bits)}")
    if how == "ashr":
        clamped = emit(f"select {flags} {inside}, {kind} {b}, {kind} {splat(type_.bits - 1)}")
        return emit(f"ashr {kind} {a}, {clamped}")
    shifted = emit(f"{how} {kind} {a}, {b}")
    return emit(f"select {flags} {inside}, {kind} {shifted}, {kind} {_zero(type_)}")


def _extremum(expr: Binary, a: str, b: str, emit: Callable[[str], str]) -> str:
    """min and max. If one float is NaN, the result is NaN. With a literal operand this takes one
    instruction.
    """
    type_, kind = expr.a.dtype, register_type(expr.a.dtype)
    flags = vector("i1", type_.lanes)
    if not type_.is_float:
        sign = "s" if type_.kind == "int" else "u"
        order = f"{sign}lt" if expr.op == "min" else f"{sign}gt"
        return emit(f"select {flags} {emit(f'icmp {order} {kind} {a}, {b}')}, {kind} {a}, {kind} {b}")
    order = "olt" if expr.op == "min" else "ogt"
    known = _literal_of(expr.b)
    if known is not None and known.value == known.value:
        a, b = b, a
    elif not ((known := _literal_of(expr.a)) is not None and known.value == known.value):
        known = None
        if isinstance(expr.a, Load) and expr.a.buffer.scope == "local":
            # `b` is an accumulator. Testing the other operand for NaN keeps the test out of the dependence
            # chain.
            a, b = b, a
    # The comparison is false if an operand is NaN, so b is selected. This is correct if only b may be NaN.
    result = emit(f"select {flags} {emit(f'fcmp {order} {kind} {a}, {b}')}, {kind} {a}, {kind} {b}")
    if known is not None:
        return result
    return emit(f"select {flags} {emit(f'fcmp uno {kind} {a}, {a}')}, {kind} {a}, {kind} {result}")


def _division(expr: Binary, a: str, b: str, emit: Callable[[str], str], nonnegative: bool) -> str:
    """Quotients and remainders. A division by zero gives 0, and the smallest value divided by -1 wraps:
    unless the divisor is a literal, these divisors are replaced by 1, for which instructions do not trap.
    """
    type_, kind = expr.a.dtype, register_type(expr.a.dtype)
    unsigned = type_.kind == "uint"
    remains = expr.op in ("floormod", "truncmod")
    divisor = _literal_of(expr.b)
    if divisor is not None and divisor.value not in (0, -1):
        if unsigned or (nonnegative and divisor.value > 0):
            return emit(f"{'urem' if remains else 'udiv'} {kind} {a}, {b}")
        return _signed_division(expr, a, b, emit)

    def splat(value: int) -> str:
        return str(value) if type_.lanes == 1 else f"splat ({register_type(type_.scalar)} {value})"

    flags = vector("i1", type_.lanes)
    if unsigned:
        special = emit(f"icmp eq {kind} {b}, {_zero(type_)}")
    else:
        special = emit(f"icmp ult {kind} {emit(f'add {kind} {b}, {splat(1)}')}, {splat(2)}")
    safe = emit(f"select {flags} {special}, {kind} {splat(1)}, {kind} {b}")
    # The remainder of a division by 1 is 0.  The quotient is replaced by the product with 0 or -1.
    if unsigned:
        found = emit(f"{'urem' if remains else 'udiv'} {kind} {a}, {safe}")
    else:
        found = _signed_division(expr, a, safe, emit)
    if remains:
        return found
    product = _zero(type_) if unsigned else emit(f"mul {kind} {a}, {b}")
    return emit(f"select {flags} {special}, {kind} {product}, {kind} {found}")


def _signed_division(expr: Binary, a: str, b: str, emit: Callable[[str], str]) -> str:
    """A signed quotient or remainder for a divisor that is neither 0 nor -1."""
    type_, kind = expr.a.dtype, register_type(expr.a.dtype)
    if expr.op in ("div", "truncdiv"):
        return emit(f"sdiv {kind} {a}, {b}")
    rest = emit(f"srem {kind} {a}, {b}")
    if expr.op == "truncmod":
        return rest
    flags = vector("i1", type_.lanes)
    # If the signs differ and the division is inexact, truncation has rounded up.
    mixed = emit(f"icmp slt {kind} {emit(f'xor {kind} {rest}, {b}')}, {_zero(type_)}")
    inexact = emit(f"icmp ne {kind} {rest}, {_zero(type_)}")
    fix = emit(f"and {flags} {mixed}, {inexact}")
    if expr.op == "floormod":
        return emit(f"select {flags} {fix}, {kind} {emit(f'add {kind} {rest}, {b}')}, {kind} {rest}")
    plain = emit(f"sdiv {kind} {a}, {b}")
    return emit(f"add {kind} {plain}, {emit(f'sext {flags} {fix} to {kind}')}")


def cast_instructions(
    source: DType, to: DType, a: str, fresh: Fresh, convert: Convert
) -> tuple[list[str], str]:
    """Convert a register value: the lines and the result.

    Conversions from floats to integers truncate; the result is unspecified if the value is out of range.
    `convert` converts between float dtypes.
    """
    lines: list[str] = []

    def emit(instruction: str) -> str:
        name = fresh()
        lines.append(f"  {name} = {instruction}")
        return name

    old, new = register_type(source), register_type(to)
    if to.is_bool:
        if source.is_float:
            return lines, emit(f"fcmp une {old} {a}, {_float_zero(source)}")
        return lines, a if source.is_bool else emit(f"icmp ne {old} {a}, {_zero(source)}")
    if to.is_float:
        if not source.is_float:
            how = "sitofp" if source.kind == "int" else "uitofp"
            wide = vector("double" if to.bits == 64 else "float", to.lanes)
            a = emit(f"{how} {old} {a} to {wide}")
            return lines, a if to.bits >= 32 else _narrow(a, "float32", to, emit, lines, convert)
        if source.bits <= 32 < to.bits:
            return lines, emit(f"fpext {old} {a} to {new}")
        if to.bits < 32:
            held = "float64" if source.bits == 64 else "float32"
            return lines, _narrow(a, held, to, emit, lines, convert)
        return lines, emit(f"fptrunc {old} {a} to {new}") if source.bits == 64 and to.bits == 32 else a
    if source.is_float:
        cut = emit(f"{'fptosi' if to.kind == 'int' else 'fptoui'} {old} {a} to {new}")
        return lines, emit(f"freeze {new} {cut}")
    if source.is_bool:
        return lines, emit(f"zext {old} {a} to {new}")
    if source.bits == to.bits:
        return lines, a
    how = "trunc" if to.bits < source.bits else ("sext" if source.kind == "int" else "zext")
    return lines, emit(f"{how} {old} {a} to {new}")


def _float_zero(type_: DType) -> str:
    return literal(0.0, type_) if type_.lanes == 1 else "zeroinitializer"


def _narrow(
    a: str, held: str, to: DType, emit: Callable[[str], str], lines: list[str], convert: Convert
) -> str:
    """Round float32 or float64 to the nearest float16 or bfloat16 value. The result has the type float32."""
    name = to.scalar.name
    if name == "float16" or held == "float64":
        there, short = convert(a, held, name, to.lanes)
        back, result = convert(short, name, "float32", to.lanes)
        lines += there + back
        return result
    wide, ints, flags = vector("float", to.lanes), vector("i32", to.lanes), vector("i1", to.lanes)

    def splat(value: int) -> str:
        return str(value) if to.lanes == 1 else f"splat (i32 {value})"

    bits = emit(f"bitcast {wide} {a} to {ints}")
    odd = emit(f"and {ints} {emit(f'lshr {ints} {bits}, {splat(16)}')}, {splat(1)}")
    nudged = emit(f"add {ints} {bits}, {emit(f'add {ints} {odd}, {splat(0x7FFF)}')}")
    kept = emit(f"and {ints} {nudged}, {splat(-0x10000)}")
    # The addition that rounds could change a NaN to an infinity or another sign. So NaNs are selected, quiet.
    quiet = emit(f"and {ints} {emit(f'or {ints} {bits}, {splat(0x400000)}')}, {splat(-0x10000)}")
    nan = emit(f"fcmp uno {wide} {a}, {a}")
    return emit(f"bitcast {ints} {emit(f'select {flags} {nan}, {ints} {quiet}, {ints} {kept}')} to {wide}")
