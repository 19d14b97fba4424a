"""The reference interpreter of graphs: NumPy, one node at a time, every result checked against its inferred
type.

`evaluate(function, feeds)` defines the semantics of a graph. If a result has another shape or dtype than
inference said, it raises. A declaration's reference gets floats narrower than 32 bits as float32, and
integers narrower than 8 bits as bytes, except for `raw` ops. Results are rounded once, to the inferred dtype.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from dlc_core.arith import eval_expr, solve_dim
from dlc_core.diag import DlcError, RuntimeFailure, UnsupportedError, UsageError, VerifyError, bytes_text
from dlc_core.graph.dims import CONDITIONS
from dlc_core.graph.node import (
    CALL,
    CALL_PRIM,
    CONST,
    GET,
    PARAM,
    TUPLE,
    Array,
    Function,
    Node,
    constant,
    param,
    post_order,
)
from dlc_core.ir.conditions import Condition, check_conditions, conditions_of
from dlc_core.ir.convert import convert
from dlc_core.ir.dtype import DType
from dlc_core.ir.expr import Expr, Var, const, const_value, free_vars, substitute
from dlc_core.ir.plan import without_plan
from dlc_core.ir.types import Dim, TensorType, TupleType, Type
from dlc_core.op.declare import NDArray, OpDecl

Value: TypeAlias = "NDArray | tuple[Value, ...]"
Symbols = dict[Var, int]
LARGE = 1 << 30
"""From so many bytes on, a trial allocation shows whether there is memory for a result."""
_TOO_LARGE = re.compile("too big|too large|maximum (possible|allowed|supported)", re.IGNORECASE)
"""NumPy's messages for arrays that exceed the address space."""
CallPrim = Callable[[str, Sequence[NDArray], Sequence[int], Type], Value]
"""Runs a PrimFunc of the module: symbol, arguments, its dims, result type (with known dims) -> result."""


def evaluate(
    graph: Node | Function,
    feeds: Mapping[Any, Any] | Sequence[Any],
    *,
    call_prim: CallPrim | None = None,
    symbols: Mapping[Var, int] | None = None,
) -> Value:
    """Evaluate a node or function. Returns an array, or a tuple of arrays for a tuple type.

    `feeds` maps params (nodes or their names) to arrays; for a function it may be a sequence in the order of
    the params. Symbolic dims are bound by the shapes of the feeds. Raises UsageError for wrong feeds, and for
    dims that violate a function's `conditions`. Raises VerifyError if a result contradicts inference.
    """
    params = graph.params if isinstance(graph, Function) else _params(graph)
    body = graph.body if isinstance(graph, Function) else graph
    env = dict(symbols or {})
    values: dict[Node, Value] = {}
    for own, fed in _match_feeds(params, feeds):
        values[own] = _bind(own.type, fed, env, f"feed {own.attrs['name']!r}")
    for own in params:
        _check_dims(own.type, values[own], env, f"feed {own.attrs['name']!r}", UsageError)
    conditions = conditions_of(graph.attrs.get(CONDITIONS, ())) if isinstance(graph, Function) else ()
    return _run(body, values, env, call_prim, conditions)


def apply(
    decl: OpDecl,
    args: Sequence[Value],
    attrs: Mapping[str, Any],
    type_: Type,
    env: Symbols | None = None,
    call_prim: CallPrim | None = None,
) -> Value:
    """Evaluate one op on arrays by its reference, or by its body's. Results have the dtypes of `type_`.

    Symbolic attributes need `env`. PrimFuncs called in functions among the attributes need `call_prim`.
    """
    env = {} if env is None else env
    attrs = without_plan(attrs)
    values = {n: concrete(value, env, call_prim) for n, value in attrs.items() if n not in decl.fresh}
    if decl.reference is None:
        params = [param(f"arg{index}", _type_of(arg)) for index, arg in enumerate(args)]
        body = decl.expand(params, values)
        result = _run(body, dict(zip(params, args, strict=True)), env, call_prim)
    else:
        # Functions get their arguments unconverted, because the ops in them round by themselves.
        calls = any(isinstance(value, Function) for value in attrs.values())
        wide = list(args) if calls or decl.raw else [_widen(arg) for arg in args]
        size = _bytes_of(type_, env)
        try:
            if size > LARGE:
                np.empty(size, np.uint8)  # fail early if memory is short; no page is touched
            with np.errstate(all="ignore"):
                result = decl.reference(*wide, **values)
        except (ArithmeticError, LookupError, MemoryError, ValueError) as error:
            if not isinstance(error, MemoryError) and not _TOO_LARGE.search(str(error)):
                raise _misfit_error(decl, args, error) from error
            what = f"{decl.name} needs more memory than there is"
            why = f"its result has {bytes_text(size)}: {error}" if size else str(error)
            raise RuntimeFailure(what, why=why, hint="reduce the sizes") from error
    return _bind(type_, result, env, decl.name, VerifyError)


def _misfit_error(decl: OpDecl, args: Sequence[Value], error: Exception) -> RuntimeFailure:
    """The error for arguments that NumPy refuses because of data-dependent sizes or indices."""
    given = ", ".join(str(_type_of(arg)) for arg in args)
    return RuntimeFailure(
        f"{decl.name} does not fit its inputs", why=str(error), details=[f"inputs: {given}"]
    )


def _bytes_of(type_: Type, env: Symbols) -> int:
    """The size of a result in bytes, if its dims are known."""
    if isinstance(type_, TupleType):
        return sum(_bytes_of(field, env) for field in type_.fields)
    if any(var not in env for var in type_.symbols()):
        return 0
    return math.prod(evaluate_dim(dim, env) for dim in type_.shape) * type_.dtype.numpy.itemsize


def folded(decl: OpDecl, *args: Node, **attrs: Any) -> Node:
    """A node of an op with one result. It is evaluated at once if all arguments are constants."""
    made = decl.build(*args, **attrs)
    if any(arg.op is not CONST for arg in args):
        return made
    return constant(apply(decl, [arg.attrs["value"].data for arg in args], made.attrs, made.type))


def concrete(value: Any, env: Symbols, call_prim: CallPrim | None = None) -> Any:
    """Convert an attribute for a reference: dims to ints, arrays to NumPy arrays, functions to callables."""
    if isinstance(value, Expr):
        return evaluate_dim(value, env)
    if isinstance(value, tuple):
        return tuple(concrete(item, env, call_prim) for item in value)
    if isinstance(value, Array):
        return value.data
    if isinstance(value, Function):
        return lambda *args: evaluate(value, args, call_prim=call_prim, symbols=env)
    return value


def evaluate_dim(value: Dim, env: Mapping[Var, int]) -> int:
    """The value of a dim for these symbols."""
    number = const_value(value)
    if number is not None:
        return number
    assert isinstance(value, Expr)
    missing = [v.name for v in free_vars(value) if v not in env]
    if missing:
        raise UsageError(f"the dim {value} depends on {', '.join(missing)}, which the feeds do not determine")
    return eval_expr(value, env)


def _checked(conditions: Sequence[Condition], env: Symbols) -> list[Condition]:
    """Check conditions whose dims are known, and return the others. Raises UsageError on a violation."""
    check_conditions((c for c in conditions if all(var in env for var in c.dims)), env, evaluate_dim)
    return [c for c in conditions if any(var not in env for var in c.dims)]


def _run(
    root: Node,
    values: dict[Node, Value],
    env: Symbols,
    call_prim: CallPrim | None,
    conditions: Sequence[Condition] = (),
) -> Value:
    unchecked = _checked(conditions, env)
    order = list(post_order(root))
    uses: dict[Node, int] = {root: 1}
    for node in order:
        for arg in node.args:
            uses[arg] = uses.get(arg, 0) + 1
    for node in order:
        if node not in values:
            try:
                bound = len(env)
                values[node] = _step(node, [values[arg] for arg in node.args], env, call_prim)
                if unchecked and len(env) > bound:
                    unchecked = _checked(unchecked, env)
            except DlcError as error:
                raise error.at(node.spans) from error.__cause__
        for arg in node.args:
            uses[arg] -= 1
            if not uses[arg]:
                del values[arg]
    return values[root]


def _step(node: Node, args: list[Value], env: Symbols, call_prim: CallPrim | None) -> Value:
    if node.op is PARAM:
        raise UsageError(f"no feed for the param {node.attrs['name']!r}")
    if node.op is CONST:
        return _bind(node.type, node.attrs["value"].data, env, "const", VerifyError)
    if node.op is TUPLE:
        return tuple(args)
    if node.op is GET:
        field: Value = args[0][node.attrs["index"]]
        return field
    if node.op is CALL:
        result = evaluate(node.attrs["function"], args, call_prim=call_prim, symbols=env)
        return _bind(node.type, result, env, "call", VerifyError)
    if node.op is CALL_PRIM:
        if call_prim is None:
            raise UnsupportedError(f"no interpreter given for the PrimFunc {node.attrs['symbol']!r}")
        given = node.attrs.get("dims", node.attrs.get("scalars", ()))
        dims = [evaluate_dim(dim, env) for dim in given]
        arrays = [arg for arg in args if isinstance(arg, np.ndarray)]
        return _bind(
            node.type,
            call_prim(node.attrs["symbol"], arrays, dims, _with_known_dims(node.type, env)),
            env,
            "call_prim",
            VerifyError,
        )
    if not isinstance(node.op, OpDecl):
        raise UnsupportedError(f"the op {node.op.name!r} has no reference")
    return apply(node.op, args, node.attrs, node.type, env, call_prim)


def _with_known_dims(type_: Type, env: Symbols) -> Type:
    if isinstance(type_, TupleType):
        return TupleType(tuple(_with_known_dims(field, env) for field in type_.fields))
    return TensorType(tuple(evaluate_dim(dim, env) for dim in type_.shape), type_.dtype)


def _params(root: Node) -> tuple[Node, ...]:
    return tuple(node for node in post_order(root) if node.op is PARAM)


def _match_feeds(params: Sequence[Node], feeds: Mapping[Any, Any] | Sequence[Any]) -> list[tuple[Node, Any]]:
    if not isinstance(feeds, Mapping):
        if len(feeds) != len(params):
            raise UsageError(f"{len(feeds)} feeds for {len(params)} params")
        return list(zip(params, feeds, strict=True))
    matched = []
    for node in params:
        name = node.attrs["name"]
        if node not in feeds and name not in feeds:
            raise UsageError(
                f"no feed for the param {name!r}", hint=f"fed: {', '.join(map(str, feeds)) or 'nothing'}"
            )
        matched.append((node, feeds[node] if node in feeds else feeds[name]))
    return matched


def _type_of(value: Value) -> Type:
    if isinstance(value, tuple):
        return TupleType(tuple(_type_of(item) for item in value))
    return TensorType(value.shape, DType.of(value.dtype))


def _widen(value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(_widen(item) for item in value)
    type_ = DType.of(value.dtype)
    if type_.decl is not None:
        return type_.decl.values_of(value)
    if type_.is_float and type_.bits < 32:
        return value.astype(np.float32)
    if type_.is_int and type_.bits < 8:
        return value.astype(np.int8 if type_.kind == "int" else np.uint8)
    return value


def _bind(type_: Type, value: Any, env: Symbols, what: str, error: type[DlcError] = UsageError) -> Value:
    """Convert the value to the dtypes of its type, and bind the symbols that the type introduces."""
    if isinstance(type_, TupleType):
        if not isinstance(value, (tuple, list)) or len(value) != len(type_.fields):
            raise error(f"{what}: {type_} is expected, not {type(value).__name__}")
        fields = zip(type_.fields, value, strict=True)
        return tuple(_bind(t, v, env, f"{what}, field {i}", error) for i, (t, v) in enumerate(fields))
    array = np.asarray(value)
    _check_dtype(type_, array, what, error)
    if array.ndim != type_.ndim:
        raise error(f"{what}: shape {array.shape}, but inferred is {type_}")
    for dim, size in zip(type_.shape, array.shape, strict=True):
        if isinstance(dim, Var) and dim not in env:
            if dim.bounds is not None and not dim.bounds.admits(size):
                raise dim.bounds.violation(dim.name, size)
            env[dim] = size
    for dim, size in zip(type_.shape, array.shape, strict=True):
        if isinstance(dim, Expr) and not isinstance(dim, Var):
            solve_formula(dim, size, env)
    if error is not UsageError:
        _check_dims(type_, array, env, what, error)
    return convert(array, type_.dtype)


def _check_dtype(type_: TensorType, array: NDArray, what: str, error: type[DlcError]) -> None:
    found = DType.of(array.dtype)
    if found is type_.dtype:
        return
    rounded = found.is_float and type_.dtype.is_float
    decl = type_.dtype.decl
    stored_wider = found.kind == type_.dtype.kind and (type_.dtype.bits < 8 or decl is not None)
    computed = decl is not None and found.name == decl.computed
    if error is UsageError or not (rounded or stored_wider or computed):
        raise error(
            f"{what}: dtype {found}, but {'inferred' if error is VerifyError else 'declared'} is {type_}"
        )


def solve_formula(dim: Expr, size: int, env: Symbols) -> None:
    """Bind the one unknown symbol of a dim that is a formula, such as n + 1, if the size determines it."""
    unknown = [var for var in free_vars(dim) if var not in env]
    if len(unknown) == 1:
        known = {var: const(env[var]) for var in free_vars(dim) if var in env}
        solved = solve_dim(substitute(dim, known), size, unknown[0])
        if solved is not None:
            env[unknown[0]] = solved


def _check_dims(type_: Type, value: Value, env: Symbols, what: str, error: type[DlcError]) -> None:
    if isinstance(type_, TupleType):
        for field, item in zip(type_.fields, value, strict=True):
            _check_dims(field, item, env, what, error)
        return
    assert isinstance(value, np.ndarray)
    expected = tuple(evaluate_dim(dim, env) for dim in type_.shape)
    if expected != value.shape:
        raise error(f"{what}: shape {value.shape}, but {expected} is expected of {type_}")
