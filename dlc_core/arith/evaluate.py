"""Evaluation of integer and bool expressions: one at a time (`eval_expr`), or compiled to a Python function.

Integers of index type are Python ints and never wrap. Integers of narrower types wrap as on the machine.
Compiled functions may also convert floats, in single or double precision, to integers, as the machine does.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType

from dlc_core.diag import RuntimeFailure, UsageError
from dlc_core.ir.dtype import INDEX, DType
from dlc_core.ir.expr import COMPARE, Binary, Cast, Const, Expr, Select, Unary, Var, post_order
from dlc_core.ir.fold import fold_binary, fold_unary, round_to

MAX_DEPTH = 20
"""Nested operations of one Python expression; a deeper part is assigned to a local variable, because Python's
compiler limits the nesting of syntax trees.
"""
_AST_BINARY: dict[str, type[ast.operator]] = {
    "add": ast.Add,
    "sub": ast.Sub,
    "mul": ast.Mult,
    "floordiv": ast.FloorDiv,
    "floormod": ast.Mod,
    "bitand": ast.BitAnd,
    "bitor": ast.BitOr,
    "bitxor": ast.BitXor,
    "shl": ast.LShift,
    "shr": ast.RShift,
}
_AST_COMPARE: dict[str, type[ast.cmpop]] = {
    "eq": ast.Eq,
    "ne": ast.NotEq,
    "lt": ast.Lt,
    "le": ast.LtE,
    "gt": ast.Gt,
    "ge": ast.GtE,
}


def eval_expr(expr: Expr, env: Mapping[Var, int]) -> int:
    """The value of an integer or bool expression. `env` has the values of its variables.

    `floordiv` and `floormod` round down, `div` and `truncdiv` toward zero. Bools are 0 and 1. Raises
    UsageError for an unbound variable, a division by zero, or a node that has no integer value (loads, calls,
    vectors, floats).
    """
    values: dict[Expr, int] = {}
    for e in post_order(expr):
        if isinstance(e, Const):
            _checked(e)
            values[e] = int(e.value)
        elif isinstance(e, Var):
            if e not in env:
                raise UsageError(f"no value for the variable {e.name}", details=[f"in {expr}"])
            values[e] = int(env[e])
        elif isinstance(e, Binary):
            folded = fold_binary(e.op, values[e.a], values[e.b], _checked(e.a))
            if folded is None:
                raise UsageError(f"{e} is undefined: {e.op} of {values[e.a]} and {values[e.b]}")
            values[e] = _wrap(int(folded), e.dtype)
        elif isinstance(e, Unary):
            values[e] = _wrap(int(fold_unary(e.op, values[e.a])), _checked(e))
        elif isinstance(e, Select):
            values[e] = values[e.a] if values[e.cond] else values[e.b]
        elif isinstance(e, Cast):
            values[e] = int(values[e.a] != 0) if e.dtype.is_bool else _wrap(values[e.a], _checked(e))
        else:
            raise UsageError(f"{e} has no integer value while compiling", details=[f"in {expr}"])
    return values[expr]


def _checked(e: Expr) -> DType:
    if e.dtype.lanes != 1 or e.dtype.kind not in ("int", "uint", "bool"):
        raise UsageError(f"{e} of type {e.dtype} is not a scalar integer")
    return e.dtype


def _wrap(value: int, to: DType) -> int:
    if to is INDEX:
        return value
    low, high = to.int_range()
    return value if low <= value <= high else (value - low) % (high - low + 1) + low


def compile_exprs(exprs: Sequence[Expr], params: Sequence[Var]) -> Callable[..., tuple[int, ...]]:
    """Compile `exprs` to a Python function of `params` (ints, by position). It returns a tuple of their
    values.

    The function is built as a syntax tree, never from text. Common subexpressions are computed once. Only
    index and bool types are accepted, and float32 and float64 in casts and comparisons. The function raises
    RuntimeFailure for an integer division by zero, and for a cast of NaN or infinity.
    """
    names = {param: f"p{i}" for i, param in enumerate(params)}
    uses: dict[Expr, int] = {}
    order = list(post_order(*exprs))
    for e in order:
        for child in e.children:
            uses[child] = uses.get(child, 0) + 1
    code: dict[Expr, ast.expr] = {}
    depth: dict[Expr, int] = {}
    body: list[ast.stmt] = []
    for e in order:
        code[e] = _to_ast(e, code, names)
        depth[e] = 1 + max((depth[c] for c in e.children), default=0)
        if e.children and (uses.get(e, 0) > 1 or depth[e] > MAX_DEPTH):
            name = f"t{len(body)}"
            body.append(ast.Assign([ast.Name(name, ast.Store())], code[e]))
            code[e], depth[e] = ast.Name(name, ast.Load()), 0
    body.append(ast.Return(ast.Tuple([code[e] for e in exprs], ast.Load())))
    arguments = ast.arguments(
        posonlyargs=[ast.arg(names[p]) for p in params], args=[], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    function = ast.FunctionDef(name="shapes", args=arguments, body=body, decorator_list=[])
    module = ast.fix_missing_locations(ast.Module([function], []))
    code_object = next(c for c in compile(module, "<expressions>", "exec").co_consts if hasattr(c, "co_code"))
    compiled = FunctionType(code_object, _HELPERS)

    def evaluate(*values: float) -> tuple[int, ...]:
        try:
            result: tuple[int, ...] = compiled(*values)
        except (ZeroDivisionError, OverflowError, ValueError) as error:
            given = ", ".join(f"{p.name}={v}" for p, v in zip(params, values, strict=True))
            what = "divides by zero" if isinstance(error, ZeroDivisionError) else "casts NaN or infinity"
            raise RuntimeFailure(f"a shape expression {what}", details=[f"with {given}"]) from error
        return result

    return evaluate


def _name_call(name: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(args), [])


def _to_ast(e: Expr, code: Mapping[Expr, ast.expr], names: Mapping[Var, str]) -> ast.expr:
    in_floats = e.dtype.name in _FLOATS
    if not in_floats:
        _checked(e)
    if isinstance(e, Const):
        return ast.Constant(float(e.value) if in_floats else int(e.value))
    if isinstance(e, Var):
        if e not in names:
            raise UsageError(f"the variable {e.name} is not a parameter of the compiled expressions")
        return ast.Name(names[e], ast.Load())
    if e.dtype is not INDEX and not e.dtype.is_bool and not in_floats:
        raise UsageError(f"{e} of type {e.dtype}: only index and bool expressions compile to Python")
    if isinstance(e, Select):
        return ast.IfExp(code[e.cond], code[e.a], code[e.b])
    if isinstance(e, Cast) and (e.a.dtype is INDEX or e.a.dtype.is_bool or e.a.dtype.name in _FLOATS):
        if in_floats:
            return _name_call(e.dtype.name, code[e.a])
        truth = ast.Compare(code[e.a], [ast.NotEq()], [ast.Constant(0)])
        return _name_call("int", truth if e.dtype.is_bool else code[e.a])
    if isinstance(e, Unary):
        sign: dict[str, ast.unaryop] = {"neg": ast.USub(), "not": ast.Not(), "bitnot": ast.Invert()}
        return ast.UnaryOp(sign[e.op], code[e.a])
    if isinstance(e, Binary):
        a, b = code[e.a], code[e.b]
        if e.op in COMPARE:
            return ast.Compare(a, [_AST_COMPARE[e.op]()], [b])
        if e.op in ("and", "or"):
            return ast.BoolOp(ast.And() if e.op == "and" else ast.Or(), [a, b])
        if in_floats:
            return _name_call(f"in_{e.dtype.name}", ast.Constant(e.op), a, b)
        if e.op in _AST_BINARY:
            return ast.BinOp(a, _AST_BINARY[e.op](), b)
        return _name_call(e.op, a, b)
    raise UsageError(f"{e} cannot be computed from symbolic dims alone")


def _truncdiv(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _truncmod(a: int, b: int) -> int:
    return a - _truncdiv(a, b) * b


def _in_floats(type_: DType, op: str, a: float, b: float) -> float:
    found = fold_binary(op, a, b, type_)
    if found is None:
        raise UsageError(f"{op} of floats is not computed for sizes")
    return float(found)


def _as_float(type_: DType, value: float) -> float:
    return round_to(float(value), type_)


_FLOATS = {name: DType(name) for name in ("float32", "float64")}

_HELPERS: dict[str, Callable[..., object]] = {
    **{name: partial(_as_float, type_) for name, type_ in _FLOATS.items()},
    **{f"in_{name}": partial(_in_floats, type_) for name, type_ in _FLOATS.items()},
    "min": min,
    "max": max,
    "int": int,
    "truncdiv": _truncdiv,
    "div": _truncdiv,
    "truncmod": _truncmod,
}
