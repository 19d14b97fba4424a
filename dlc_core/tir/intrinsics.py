"""The intrinsics: each `Call.name` of the tensor level, its types, its NumPy meaning, its special values.

*Pure* intrinsics are functions of their arguments. Those of `EFFECTS` have side effects: they must not be
dropped, repeated or moved across each other. Three prefixes name functions instead of operations; these have
side effects too:

    kernel.<symbol>   a PrimFunc of the same module: buffers passed as `address_of` handles, scalars by value
    launch.<symbol>   such a PrimFunc whose body is one launch: after its arguments the extents of the thread
                      axes, in the order of `threads.launch_axes`
    extern.<symbol>   a function outside the module: a foreign function (`dlc_core.foreign`), or one that the
                      target knows (a vendor's library or instruction)

`pure_extern.<symbol>` is a foreign function whose result depends only on its arguments.

*Convergent* intrinsics are executed by every thread of a group or by none. `barrier` orders memory: after it,
all threads of a group see what the others wrote to shared and global memory before it. `subgroup_…` exchange
values within `width` consecutive iterations of the innermost thread axis.

`copies_…` mark writes to shared memory that may complete later (`tir.copies`).

Names that begin with `vector_`, and `subgroup_matrix`, mix widths, so `expr.call` does not change their
arguments. It broadcasts the scalar arguments of all other calls of several lanes.

Code generators and the reference interpreter follow these rules for floats and integers:
  * `Binary` min and max return NaN if either side is NaN (as np.minimum); of -0.0 and 0.0 they return either.
  * `Select`, `and`, `or` may evaluate all their operands, so none may trap.  `if_then_else` evaluates only
    the side that its condition chooses: it guards loads and divisions.
  * `cast` of a float to an integer rounds towards zero; out of range, and for NaN, the value is unspecified.
    A cast to bool is a comparison with zero.
  * `floordiv` and `floormod` round the quotient down; `truncdiv`, `truncmod` and integer `div` towards zero.
  * No integer division traps. By zero, quotient and remainder are 0 where the program divides, and any
    value where a pass has simplified the expression. The smallest integer divided by -1 wraps around.
    Passes that prove something from a quotient prove that its divisor is not zero.
  * A shift by the width or more gives 0 (-1 for a negative left operand shifted right).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from dlc_core.diag import UsageError
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import BOOL, HANDLE, DType, DTypeLike, dtype
from dlc_core.ir.expr import Call, Expr, ExprLike, as_expr, call, load
from dlc_core.support.record import record
from dlc_core.tir.matrix import MATRIX, matrix_problem

Reference = Callable[..., Any]

KERNEL = "kernel."
LAUNCH = "launch."
EXTERN = "extern."
PURE_EXTERN = "pure_extern."
BULK = "bulk_copy"
NOTE = "note"
FUNCTIONS = (KERNEL, LAUNCH, EXTERN)
"""Prefixes of the names of calls of functions."""
STATUS = dtype("int32")
"""The type of calls for their side effect; the value has no meaning."""


@record(frozen=True)
class Intrinsic:
    """One operation.

    `arity` is -1 for any number of arguments.  `kinds` are the dtype kinds of the (data) arguments.
    `result` is "same" (the dtype of the last argument), "first" (of the first one), "bool" (one for each
    lane), "scalar" (one lane of the argument), "status" or "free" (the call defines it).  `reference` maps
    NumPy arrays to an array: floats come in as float64, and the caller rounds the result to the call's dtype.
    """

    name: str
    arity: int
    kinds: frozenset[str]
    result: str = "same"
    reference: Reference | None = None
    note: str = ""


_FLOAT = frozenset({"float"})
_INT = frozenset({"int", "uint"})
_NUMBER = _FLOAT | _INT
_ANY = _NUMBER | {"bool", "handle"}


def _per_element(function: Callable[..., float]) -> Reference:
    return np.vectorize(function, otypes=[np.float64])


def _sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + e), e / (1.0 + e))


def fused_multiply_add(a: float, b: float, c: float) -> float:
    """a * b + c of float64 with one rounding."""
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _power(x: Any, y: Any) -> Any:
    """Of integers: exact modulo the width; for negative exponents truncated toward zero (0 for base 0)."""
    x, y = np.asarray(x), np.asarray(y)
    if x.dtype.kind == "f":
        return np.power(x, y)
    negative = y < 0
    powers = np.power(x, np.where(negative, 0, y))
    odd = (y & 1) == 1
    inverse = np.where(x == 1, 1, np.where(x == -1, np.where(odd, -1, 1), 0))
    return np.where(negative, inverse, powers)


def _popcount(x: Any) -> Any:
    x = np.asarray(x)
    bits = x.astype(x.dtype.str.replace("i", "u")) if x.dtype.kind == "i" else x
    return np.vectorize(lambda v: int(v).bit_count(), otypes=[x.dtype])(bits)


def _shuffle(vector: Any, *lanes: Any) -> Any:
    return np.asarray(vector)[[int(lane) for lane in lanes]]


def _concat(*parts: Any) -> Any:
    return np.concatenate([np.atleast_1d(part) for part in parts])


def _table(*entries: Intrinsic) -> dict[str, Intrinsic]:
    return {entry.name: entry for entry in entries}


def _math(name: str, reference: Reference, note: str = "") -> Intrinsic:
    return Intrinsic(name, 1, _FLOAT, "same", reference, note)


INTRINSICS: dict[str, Intrinsic] = _table(
    _math("exp", np.exp, "exp(-inf) = 0, exp(inf) = inf"),
    _math("exp2", np.exp2, "exp2(-inf) = 0, exp2(inf) = inf"),
    _math("expm1", np.expm1, "keeps the sign of zero"),
    _math("log", np.log, "log(0) = -inf, NaN below 0"),
    _math("log2", np.log2, "log2(0) = -inf, NaN below 0"),
    _math("log10", np.log10, "log10(0) = -inf, NaN below 0"),
    _math("log1p", np.log1p, "log1p(-1) = -inf, NaN below -1"),
    _math("sqrt", np.sqrt, "correctly rounded; NaN below 0, sqrt(-0.0) = -0.0"),
    _math("rsqrt", lambda x: 1.0 / np.sqrt(x), "rsqrt(0) = inf, rsqrt(inf) = 0"),
    _math("sin", np.sin, "NaN for infinities"),
    _math("cos", np.cos, "NaN for infinities"),
    _math("tan", np.tan, "NaN for infinities"),
    _math("asin", np.arcsin, "NaN outside [-1, 1]"),
    _math("acos", np.arccos, "NaN outside [-1, 1]"),
    _math("atan", np.arctan, "atan(±inf) = ±pi/2"),
    Intrinsic("atan2", 2, _FLOAT, "same", np.arctan2, "quadrants of (y, x), signed zeros as in C"),
    _math("sinh", np.sinh, "±inf where it overflows"),
    _math("cosh", np.cosh, "inf where it overflows"),
    _math("tanh", np.tanh, "tanh(±inf) = ±1"),
    _math("asinh", np.arcsinh, "asinh(±inf) = ±inf"),
    _math("acosh", np.arccosh, "NaN below 1"),
    _math("atanh", np.arctanh, "atanh(±1) = ±inf, NaN outside [-1, 1]"),
    _math("erf", _per_element(math.erf), "erf(±inf) = ±1"),
    _math("sigmoid", _sigmoid, "1 / (1 + exp(-x)): 0 at -inf, 1 at inf, never overflows on the way"),
    Intrinsic(
        "pow",
        2,
        _NUMBER,
        "same",
        _power,
        "pow(x, 0) = pow(1, y) = 1 even for NaN; NaN for negative ** fraction",
    ),
    Intrinsic("fma", 3, _FLOAT, "same", _per_element(fused_multiply_add), "a * b + c rounded once"),
    Intrinsic("rounded_mul", 2, _FLOAT, "same", np.multiply, "a * b, never fused with a following addition"),
    _math("floor", np.floor, "keeps infinities and the sign of zero"),
    _math("ceil", np.ceil, "keeps infinities and the sign of zero"),
    _math("round", np.rint, "ties to even; keeps infinities and the sign of zero"),
    _math("trunc", np.trunc, "towards zero; keeps infinities and the sign of zero"),
    Intrinsic(
        "abs", 1, _NUMBER, "same", np.abs, "clears the sign of NaN too; the smallest integer is its own"
    ),
    Intrinsic("sign", 1, _NUMBER, "same", np.sign, "-1, 0 or 1; NaN for NaN"),
    Intrinsic("isnan", 1, _FLOAT, "bool", np.isnan),
    Intrinsic("isinf", 1, _FLOAT, "bool", np.isinf, "of either sign"),
    Intrinsic("popcount", 1, _INT, "same", _popcount, "bits set, of two's complement"),
    Intrinsic("fmod", 2, _FLOAT, "same", np.fmod, "sign of the dividend; NaN for a zero divisor"),
    Intrinsic("copysign", 2, _FLOAT, "same", np.copysign, "magnitude of the first, sign of the second"),
    Intrinsic(
        "nextafter", 2, _FLOAT, "same", None, "the next value of the call's own dtype towards the second"
    ),
    Intrinsic("reinterpret", 1, _ANY, "free", None, "the same bits as another dtype of the same width"),
    Intrinsic("if_then_else", 3, _ANY, "same", None, "only the chosen side is evaluated"),
    Intrinsic("address_of", 1, _ANY, "free", None, "a handle to the loaded element; the element is not read"),
    Intrinsic(
        "vector_shuffle", -1, _ANY, "free", _shuffle, "the lanes of the first argument that literals name"
    ),
    Intrinsic("vector_concat", -1, _ANY, "free", _concat, "lanes of all arguments in order"),
    Intrinsic("vector_reduce_add", 1, _NUMBER, "scalar", np.sum, "the order of float additions is open"),
    Intrinsic("vector_reduce_max", 1, _NUMBER, "scalar", np.max, "NaN where any lane is"),
    Intrinsic("vector_reduce_min", 1, _NUMBER, "scalar", np.min, "NaN where any lane is"),
    Intrinsic(
        "vector_dot",
        3,
        _NUMBER,
        "first",
        None,
        "(acc, a, b): to lane i of acc the products of b's group i with a's, which is one group for all lanes"
        " or one for each; in acc's dtype, modulo its width or with the order and rounding of the sum open",
    ),
    Intrinsic("barrier", 0, _ANY, "status", None, "no thread continues before all have arrived"),
    Intrinsic(
        "copies_begin", 0, _ANY, "status", None, "from here on, writes to shared memory may be asynchronous"
    ),
    Intrinsic("copies_end", 0, _ANY, "status", None, "ends a group of copies, which may be in flight"),
    Intrinsic(
        "copies_barrier",
        2,
        _INT,
        "status",
        None,
        "copies_barrier(groups, steps): a barrier after which all but the last `groups` groups of copies are"
        " complete; reads in place that began since the last `steps` barriers may still be in flight",
    ),
    Intrinsic(
        BULK,
        -1,
        _ANY,
        "status",
        None,
        "(to, source, rank, first…, box…, dims…, strides…): a tensor copy to shared memory",
    ),
    Intrinsic("subgroup_shuffle", 3, _NUMBER, "first", None, "(x, lane, width): the x of that lane"),
    Intrinsic(
        "subgroup_shuffle_down",
        3,
        _NUMBER,
        "first",
        None,
        "(x, delta, width): the x of the lane `delta` above; the own x if the subgroup has no such lane",
    ),
    Intrinsic(
        "subgroup_shuffle_xor",
        3,
        _NUMBER,
        "first",
        None,
        "(x, mask, width): the x of the lane whose number differs in the bits of `mask`",
    ),
    Intrinsic(
        MATRIX,
        -1,
        _NUMBER,
        "first",
        None,
        "(acc, a, b, numbers…): the thread's values of acc + a @ b, matrices that its subgroup holds as the"
        " numbers say; see `tir.matrix`",
    ),
    Intrinsic("prefetch", 1, _ANY, "status", None, "a hint that the memory at a handle is used soon"),
    Intrinsic("check", 2, _ANY, "status", None, "check(cond, code): the call fails with `code` unless cond"),
    Intrinsic(
        "report_index",
        3,
        _INT,
        "same",
        lambda index, extent, code: index,
        "report_index(index, extent, code): the index; where it is not in [-extent, extent) the call fails",
    ),
    Intrinsic(
        "clock",
        2,
        _ANY,
        "status",
        None,
        "clock(handle, sign): adds sign times a steady clock's nanoseconds to the int64 at the handle",
    ),
    Intrinsic(
        NOTE,
        2,
        _ANY,
        "status",
        None,
        "note(handle, number): stores the number to the int64 at the handle before the next statement begins",
    ),
)

EXCHANGES = frozenset({"subgroup_shuffle", "subgroup_shuffle_down", "subgroup_shuffle_xor", MATRIX})
"""Intrinsics by which the threads of a subgroup exchange values."""
BARRIERS = frozenset({"barrier", "copies_barrier"})
"""Intrinsics at which the threads of a group wait for each other, and after which they see each other's
writes."""
CONVERGENT = EXCHANGES | BARRIERS | {"copies_begin", "copies_end"}
"""Intrinsics that synchronise threads; no transformation may change the conditions that they depend on."""
EFFECTS = CONVERGENT | {BULK, "prefetch", "check", "clock", NOTE}
"""Intrinsics with side effects. Calls of `kernel.*`, `launch.*` and `extern.*` have side effects too (see
`has_effect`)."""


def lookup(name: str) -> Intrinsic | None:
    """The table entry. Kernels and externs get an entry for their name."""
    if name.startswith((*FUNCTIONS, PURE_EXTERN)):
        return Intrinsic(name, -1, _ANY, "free" if name.startswith((EXTERN, PURE_EXTERN)) else "status")
    return INTRINSICS.get(name)


def has_effect(expr: Expr) -> bool:
    """Whether evaluating this node, not its operands, has a side effect."""
    return isinstance(expr, Call) and (expr.name in EFFECTS or expr.name.startswith(FUNCTIONS))


def kernel_symbol(expr: Expr) -> str | None:
    """The name of the PrimFunc that a call runs, or None."""
    return expr.name[len(KERNEL) :] if isinstance(expr, Call) and expr.name.startswith(KERNEL) else None


def launch_symbol(expr: Expr) -> str | None:
    """The name of the PrimFunc that a call launches, or None."""
    return expr.name[len(LAUNCH) :] if isinstance(expr, Call) and expr.name.startswith(LAUNCH) else None


def check_call(expr: Call) -> str | None:
    """The error of a call (name, number, kinds and widths of arguments, result dtype), or None."""
    entry = lookup(expr.name)
    if entry is None:
        return f"unknown intrinsic {expr.name!r}"
    types = [arg.dtype for arg in expr.args]
    if entry.arity >= 0 and len(types) != entry.arity:
        return f"{expr.name} takes {entry.arity} arguments, not {len(types)}"
    data = {"if_then_else": types[1:], "vector_shuffle": types[:1]}.get(expr.name, types)
    data = types[:1] if entry.result == "first" else data
    wrong = [str(t) for t in data if t.kind not in entry.kinds]
    if wrong:
        return f"{expr.name} does not take {', '.join(wrong)}"
    if expr.name == "if_then_else" and (not types[0].is_bool or types[1] is not types[2]):
        return f"if_then_else of {', '.join(map(str, types))}: wants a bool and two values of one dtype"
    if expr.name == "vector_dot":
        return _dot_problem(expr.dtype, *types)
    if expr.name == MATRIX:
        return matrix_problem(expr)
    if entry.result == "first" and not all(t.is_int and t.lanes == 1 for t in types[1:]):
        return f"{expr.name} of {', '.join(map(str, types))}: wants integers after the value"
    expected = _result(entry, expr, types)
    if expected is not None and expected is not expr.dtype:
        return f"{expr.name} of {', '.join(map(str, types))} gives {expected}, not {expr.dtype}"
    if entry.result == "same" and any(t is not expr.dtype for t in data):
        return f"{expr.name} of {', '.join(map(str, types))}: arguments must have one dtype"
    return None


def _dot_problem(result: DType, acc: DType, a: DType, b: DType) -> str | None:
    """The error in the types of a `vector_dot`, or None."""
    text = f"vector_dot of {acc}, {a} and {b}"
    if result is not acc:
        return f"{text} gives {acc}, not {result}"
    group, rest = divmod(b.lanes, acc.lanes)
    if rest or a.lanes not in (group, b.lanes):
        return f"{text}: a group of a, or one for each lane, and one of b for each lane"
    kinds = {"float" if t.is_float else "int" if t.is_int else "none" for t in (acc, a, b)}
    if kinds not in ({"float"}, {"int"}) or max(a.bits, b.bits) > acc.bits:
        return f"{text}: all floats or all integers, none wider than the sum"
    return None


def _result(entry: Intrinsic, expr: Call, types: Sequence[DType]) -> DType | None:
    if entry.result == "same":
        return types[-1]
    if entry.result == "first":
        return types[0]
    if entry.result == "bool":
        return BOOL.with_lanes(types[0].lanes)
    if entry.result == "scalar":
        return types[0].scalar
    if entry.result == "status":
        return STATUS
    if entry.name == "reinterpret" and (types[0].bits, types[0].lanes) != (expr.dtype.bits, expr.dtype.lanes):
        return types[0]
    if entry.name == "address_of":
        return HANDLE
    if entry.name == "vector_shuffle":
        return types[0].with_lanes(len(types) - 1)
    if entry.name == "vector_concat":
        return types[0].with_lanes(sum(t.lanes for t in types))
    return None


def evaluate_intrinsic(
    name: str, args: Sequence[Any], result: DTypeLike | None = None
) -> np.ndarray[Any, Any]:
    """The reference value over NumPy arrays. Floats are computed in float64 and rounded once.

    `result` is needed for `reinterpret`; otherwise it follows from the arguments. Raises UsageError for an
    intrinsic without a value.
    """
    entry = lookup(name)
    arrays = [np.asarray(arg) for arg in args]
    out = arrays[-1].dtype if result is None else dtype(result).numpy
    with np.errstate(all="ignore"):
        if name == "reinterpret":
            return np.ascontiguousarray(arrays[0]).view(out)
        if name == "if_then_else":
            return np.where(arrays[0], arrays[1], arrays[2])
        if name == "nextafter":
            return np.asarray(np.nextafter(*arrays))
        if entry is None or entry.reference is None:
            raise UsageError(f"{name} has no reference value")
        wide = [a.astype(np.float64) if DType.of(a.dtype).is_float else a for a in arrays]
        value = np.asarray(entry.reference(*wide))
        return value if entry.result == "bool" else value.astype(arrays[0].dtype if result is None else out)


def _like(values: Sequence[ExprLike]) -> list[Expr]:
    """Convert Python numbers to the dtype of the first expression among the arguments."""
    typed = next((v for v in values if isinstance(v, Expr)), None)
    scalar = None if typed is None else typed.dtype.scalar
    return [v if isinstance(v, Expr) else as_expr(v, scalar) for v in values]


def intrinsic(name: str, *args: ExprLike) -> Expr:
    """A call whose result dtype follows from the table. Raises UsageError if the arguments do not fit."""
    entry = lookup(name)
    if entry is None:
        raise UsageError(f"unknown intrinsic {name!r}", hint=f"known: {', '.join(INTRINSICS)}")
    exprs = [as_expr(a) for a in args] if entry.result == "first" else _like(args)
    lanes = max((e.dtype.lanes for e in exprs), default=1)
    types = [e.dtype.with_lanes(lanes) for e in exprs]
    if entry.result == "free" or (entry.arity >= 0 and len(types) != entry.arity):
        raise UsageError(
            f"{name} of {len(types)} arguments: its dtype does not follow", hint="use ir.expr.call"
        )
    type_ = {
        "same": lambda: types[-1],
        "first": lambda: types[0],
        "bool": lambda: BOOL.with_lanes(lanes),
        "scalar": lambda: types[0].scalar,
        "status": lambda: STATUS,
    }[entry.result]()
    made = call(name, exprs, type_)
    problem = check_call(made) if isinstance(made, Call) else None
    if problem:
        raise UsageError(problem, details=[f"in: {made}"])
    return made


def if_then_else(cond: ExprLike, a: ExprLike, b: ExprLike) -> Expr:
    """`a` if `cond` holds, else `b`. Only that side is evaluated."""
    left, right = _like((a, b))
    return intrinsic("if_then_else", as_expr(cond), left, right)


def reinterpret(to: DTypeLike, a: Expr) -> Expr:
    return call("reinterpret", (a,), dtype(to).with_lanes(a.dtype.lanes))


def address_of(buffer: Buffer, *indices: ExprLike) -> Expr:
    """A handle to `buffer[indices]`; without indices, to the first element."""
    return call("address_of", (load(buffer, indices or (0,) * buffer.ndim),), HANDLE)


def call_kernel(symbol: str, *args: Buffer | ExprLike) -> Expr:
    """A call of the module's PrimFunc `symbol`. Buffers are passed by address. Use it under `Eval`."""
    exprs = [address_of(a) if isinstance(a, Buffer) else as_expr(a) for a in args]
    return call(KERNEL + symbol, exprs, STATUS)


def launch_kernel(symbol: str, args: Sequence[Buffer | ExprLike], extents: Sequence[ExprLike]) -> Expr:
    """A launch of the module's PrimFunc `symbol` over thread axes of these extents. Use it under `Eval`."""
    exprs = [address_of(a) if isinstance(a, Buffer) else as_expr(a) for a in (*args, *extents)]
    return call(LAUNCH + symbol, exprs, STATUS)


def prefetch(handle: Expr) -> Expr:
    """A hint that the memory at a handle will be used soon. Use it under `Eval`."""
    return intrinsic("prefetch", handle)


def barrier() -> Expr:
    """A barrier for the threads of a group. Use it under `Eval`."""
    return intrinsic("barrier")


def vector_shuffle(vector: Expr, lanes: Sequence[int]) -> Expr:
    """The chosen lanes of a vector, in the given order."""
    return call("vector_shuffle", (vector, *lanes), vector.dtype.with_lanes(len(lanes)))


def vector_concat(*parts: Expr) -> Expr:
    """All lanes of the parts. The parts have the same scalar dtype."""
    return call("vector_concat", parts, parts[0].dtype.with_lanes(sum(p.dtype.lanes for p in parts)))


def vector_dot(acc: Expr, a: Expr, b: Expr) -> Expr:
    """Add to each lane of `acc` the products of `a` and that lane's group of `b`."""
    made = call("vector_dot", (acc, a, b), acc.dtype)
    problem = check_call(made) if isinstance(made, Call) else None
    if problem:
        raise UsageError(problem)
    return made


def vector_reduce(op: str, vector: Expr) -> Expr:
    """Combine all lanes by "add", "max" or "min"."""
    return intrinsic(f"vector_reduce_{op}", vector)


def exp(x: Expr) -> Expr:
    """e ** x."""
    return intrinsic("exp", x)


def log(x: Expr) -> Expr:
    """Natural logarithm."""
    return intrinsic("log", x)


def sqrt(x: Expr) -> Expr:
    """Square root."""
    return intrinsic("sqrt", x)


def rsqrt(x: Expr) -> Expr:
    """1 / sqrt(x)."""
    return intrinsic("rsqrt", x)


def tanh(x: Expr) -> Expr:
    """Hyperbolic tangent."""
    return intrinsic("tanh", x)


def erf(x: Expr) -> Expr:
    """The error function."""
    return intrinsic("erf", x)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + exp(-x))."""
    return intrinsic("sigmoid", x)


def power(x: ExprLike, y: ExprLike) -> Expr:
    """x ** y, of floats or of integers."""
    return intrinsic("pow", x, y)


def fma(a: ExprLike, b: ExprLike, c: ExprLike) -> Expr:
    """a * b + c of floats, rounded once."""
    return intrinsic("fma", a, b, c)


def rounded_mul(a: ExprLike, b: ExprLike) -> Expr:
    """a * b of floats, always rounded. It is never fused with an addition, so every target returns the same
    bits.
    """
    return intrinsic("rounded_mul", a, b)


def floor(x: Expr) -> Expr:
    """Rounded down."""
    return intrinsic("floor", x)


def ceil(x: Expr) -> Expr:
    """Rounded up."""
    return intrinsic("ceil", x)


def round_even(x: Expr) -> Expr:
    """Rounded to the nearest integer, ties to even."""
    return intrinsic("round", x)


def trunc(x: Expr) -> Expr:
    """Rounded towards zero."""
    return intrinsic("trunc", x)


def absolute(x: Expr) -> Expr:
    """Magnitude."""
    return intrinsic("abs", x)


def sign(x: Expr) -> Expr:
    return intrinsic("sign", x)


def isnan(x: Expr) -> Expr:
    return intrinsic("isnan", x)


def isinf(x: Expr) -> Expr:
    return intrinsic("isinf", x)
