"""Control flow: `if_`, `while_`, `scan`, `loop`, whose bodies are closed functions with explicit arguments.

The types of the arguments bind a function's own symbolic dims.  Shapes do not change between iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from dlc_core.arith import solve_dims
from dlc_core.cancel import checkpoint
from dlc_core.graph.node import Function, Node, constant, make_tuple, param
from dlc_core.ir.expr import Expr, Var, as_expr, substitute
from dlc_core.ir.types import Dim, TensorType, TupleType, Type, dim, tensor_type
from dlc_core.op.declare import Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, check_rank, dims_text, fail, merge_dims
from dlc_core.op.std.binary import ADD, LESS, MUL, SUB
from dlc_core.op.std.shape import RESHAPE
from dlc_core.op.std.slicing import CONCAT


def call_types(function: Function, types: Sequence[Type], what: str) -> tuple[TensorType, ...]:
    """Infer the types of a function's results for these argument types, and check the arguments."""
    if len(types) != len(function.params):
        raise fail(f"{what} takes {len(function.params)} arguments, {len(types)} are given")
    pairs = list(zip(tensor_types(p.type for p in function.params), tensor_types(types), strict=True))
    for param_type, arg_type in pairs:
        if param_type.dtype is not arg_type.dtype or param_type.ndim != arg_type.ndim:
            raise fail(f"{what} takes {param_type}, {arg_type} is given")
    symbols = dims_of_call(function, types)
    for param_type, arg_type in pairs:
        for param_dim, size in zip(param_type.shape, arg_type.shape, strict=True):
            merge_dims(
                _bound(param_dim, symbols),
                size,
                f"dims of {what} ({param_type}) and of its argument ({arg_type})",
            )
    results = (
        function.body.type.fields if isinstance(function.body.type, TupleType) else (function.body.type,)
    )
    return tuple(
        TensorType(tuple(_bound(d, symbols) for d in r.shape), r.dtype) for r in tensor_types(results)
    )


def dims_of_call(function: Function, types: Sequence[Type]) -> dict[Var, Expr]:
    """The values of a function's symbolic dims that these argument types determine."""
    return solve_dims(
        pair
        for own, given in zip(function.params, types, strict=True)
        if isinstance(own.type, TensorType) and isinstance(given, TensorType)
        for pair in zip(own.type.dim_exprs(), given.dim_exprs(), strict=True)
    )


def _bound(value: Dim, symbols: dict[Var, Expr]) -> Dim:
    return value if isinstance(value, int) else dim(substitute(value, symbols))


Types = tuple[TensorType, ...]


def check_condition(cond: TensorType, what: str) -> None:
    """Raise an error unless the type is one bool."""
    if not cond.dtype.is_bool or any(d != 1 for d in cond.shape):
        raise fail(f"{what} is {cond}", "a bool with one element is needed")


def _merged(a: TensorType, b: TensorType, what: str) -> TensorType:
    if a.dtype is not b.dtype or a.ndim != b.ndim:
        raise fail(f"{what} differ: {a} and {b}")
    return TensorType(
        tuple(
            merge_dims(x, y, f"dims of {what} ({dims_text(a.shape)} and {dims_text(b.shape)})")
            for x, y in zip(a.shape, b.shape, strict=True)
        ),
        a.dtype,
    )


def _tuple_like(function: Function, results: tuple[TensorType, ...]) -> Type:
    return TupleType(results) if isinstance(function.body.type, TupleType) else results[0]


def _resized(state: Types, changing: Sequence[int], sizes: Sequence[Var]) -> Types:
    """Replace dims of the types: `places` has pairs of (value, axis), and `sizes` has the new dims."""
    if len(changing) != 2 * len(sizes):
        raise fail(f"{len(sizes)} sizes for {len(changing)} changing dims", "a value and an axis name a dim")
    shapes = [list(t.shape) for t in state]
    for value, axis, size in zip(changing[::2], changing[1::2], sizes, strict=True):
        if not 0 <= value < len(shapes) or not 0 <= axis < len(shapes[value]):
            raise fail(f"there is no axis {axis} of value {value}")
        shapes[value][axis] = size
    return tuple(TensorType(tuple(shape), t.dtype) for shape, t in zip(shapes, state, strict=True))


def _if_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    cond, *args = tensor_types(types)
    check_condition(cond, "the condition")
    chosen, other = attrs["then_branch"], attrs["else_branch"]
    first, second = call_types(chosen, args, "then_branch"), call_types(other, args, "else_branch")
    if len(first) != len(second):
        raise fail(f"then_branch gives {len(first)} results, else_branch {len(second)}")
    first, second = (_resized(each, attrs["changing"], attrs["sizes"]) for each in (first, second))
    joined = tuple(_merged(a, b, "results of the branches") for a, b in zip(first, second, strict=True))
    return _tuple_like(chosen, joined)


def _if_reference(
    cond: NDArray, *args: Any, changing: tuple[int, ...], then_branch: Any, else_branch: Any
) -> Any:
    return (then_branch if cond.item() else else_branch)(*args)


_SCALAR = tensor_type((), "int32")


@cache
def example(body: str) -> Function:
    """A function over int32 scalars, or over a scalar and a vector, for the samples."""
    if body in ("grow", "keep", "all", "bounded"):
        many, x = param("many", tensor_type((Var("many"),), "int32")), param("x", _SCALAR)
        if body == "bounded":
            return Function(body, (x, many), LESS.build(x, constant(10, "int32")))
        more = many if body == "keep" else CONCAT.build(many, RESHAPE.build(x, shape=(1,)), axis=0)
        row = many if body == "all" else x
        return Function(body, (x, many), make_tuple((ADD.build(x, constant(4, "int32")), more, row)))
    x, y = param("x", _SCALAR), param("y", _SCALAR)
    if body == "one":
        return Function(body, (x,), x)
    results: dict[str, Callable[[], Node]] = {
        "add": lambda: ADD.build(x, y),
        "sub": lambda: SUB.build(x, y),
        "cond": lambda: LESS.build(x, constant(10, "int32")),
        "step": lambda: make_tuple((ADD.build(x, y), MUL.build(y, constant(2, "int32")))),
        "collect": lambda: make_tuple((ADD.build(x, y), y, MUL.build(x, y))),
        "sum": lambda: make_tuple((ADD.build(x, y), ADD.build(x, y))),
    }
    return Function(body, (x, y), results[body]())


_INT, PAIR = Tensor((), "positive", "int32"), (Tensor((), "positive", "int32"),) * 2

_EITHER = {"then_branch": example("add"), "else_branch": example("sub")}

IF = op(
    "if_",
    "the results of one of two functions of the arguments; only that one runs.  `changing` are dims of the"
    " results, as pairs of a value and an axis, whose sizes may differ between the branches; `sizes` are"
    " their sizes in the result",
    ["cond", "*args"],
    [
        Attr("sizes", "freshes", ()),
        Attr("changing", "ints", ()),
        Attr("then_branch", "function"),
        Attr("else_branch", "function"),
    ],
    kind="opaque",
    infer=_if_infer,
    reference=_if_reference,
    dtypes=("int32",),
    samples=(
        Sample((Tensor((), [True], "bool"), *PAIR), _EITHER),
        Sample((Tensor((), [False], "bool"), *PAIR), _EITHER),
        Sample(
            (Tensor((), [False], "bool"), _INT, Tensor((2,), "positive", "int32")),
            {
                "sizes": (Var("size"),),
                "changing": (1, 0),
                "then_branch": example("keep"),
                "else_branch": example("grow"),
            },
        ),
    ),
    error_samples=[
        ErrorSample(
            (Tensor((2,), "bool", "bool"), *PAIR),
            _EITHER,
            "one element",
        ),
        ErrorSample(
            (Tensor((), "bool", "bool"), *PAIR),
            {"then_branch": example("add"), "else_branch": example("step")},
            "1 results, else_branch 2",
        ),
        ErrorSample(
            (Tensor((), "bool", "bool"), *PAIR),
            {"then_branch": example("add"), "else_branch": example("one")},
            "else_branch takes 1",
        ),
        ErrorSample(
            (Tensor((), "bool", "bool"), _INT, Tensor(())),
            {"then_branch": example("add"), "else_branch": example("sub")},
            "is given",
        ),
    ],
)


def check_state(state: Sequence[TensorType], after: Sequence[TensorType]) -> tuple[TensorType, ...]:
    """The common types of the state before and after an iteration. Raises an error if they differ."""
    if len(state) != len(after):
        raise fail(f"the body gives {len(after)} values for {len(state)} of the state")
    return tuple(
        _merged(a, b, "the state before and after an iteration") for a, b in zip(state, after, strict=True)
    )


def _while_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    state = tensor_types(types)
    condition = call_types(attrs["cond"], state, "cond")
    if len(condition) != 1:
        raise fail(f"cond gives {len(condition)} values")
    check_condition(condition[0], "the result of cond")
    return TupleType(check_state(state, call_types(attrs["body"], state, "body")))


def _while_reference(*state: Any, cond: Any, body: Any) -> Any:
    while cond(*state).item():
        checkpoint()
        after = body(*state)
        state = after if isinstance(after, tuple) else (after,)
    return state


_ENDLESS = {"cond": example("add"), "body": example("step")}

WHILE = op(
    "while_",
    "replaces the state by `body` of it while `cond` of it holds; gives the last state as a tuple",
    ["*state"],
    [Attr("cond", "function"), Attr("body", "function")],
    kind="opaque",
    infer=_while_infer,
    reference=_while_reference,
    dtypes=("int32",),
    samples=(
        Sample(PAIR, {"cond": example("cond"), "body": example("step")}),
        Sample(
            (Tensor((), [20], "int32"), _INT),
            {"cond": example("cond"), "body": example("step")},
            note="no iteration",
        ),
    ),
    error_samples=[
        ErrorSample(PAIR, _ENDLESS, "result of cond is int32"),
        ErrorSample(PAIR, {"cond": example("cond"), "body": example("add")}, "1 values for 2"),
        ErrorSample((_INT,), {"cond": example("cond"), "body": example("step")}, "takes 2 arguments"),
    ],
)


def _scan_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    count = attrs["num_state"]
    arguments = tensor_types(types)
    state, xs = arguments[:count], arguments[count:]
    if not 0 <= count <= len(arguments) or not xs:
        raise fail(f"{count} of {len(arguments)} arguments are state", "at least one must be left to scan")
    length = xs[0].shape[0] if xs[0].ndim else 0
    for x in xs:
        check_rank(x, 1, None, "a scanned argument")
        length = merge_dims(length, x.shape[0], "the lengths of the scanned arguments")
    results = call_types(attrs["body"], [*state, *(TensorType(x.shape[1:], x.dtype) for x in xs)], "body")
    if len(results) < count:
        raise fail(f"the body gives {len(results)} values, of which {count} should be state")
    kept = check_state(state, results[:count])
    return TupleType((*kept, *(TensorType((length, *r.shape), r.dtype) for r in results[count:])))


def _scan_reference(*args: Any, num_state: int, body: Any) -> Any:
    state, xs = args[:num_state], args[num_state:]
    iterations = []
    for items in zip(*xs, strict=True):
        after = body(*state, *(np.asarray(item) for item in items))
        values = after if isinstance(after, tuple) else (after,)
        state = values[:num_state]
        iterations.append(values[num_state:])
    if not iterations:
        # Without iterations, a trial run of the body on blank items gives the shapes of its results.
        blank = [np.full(x.shape[1:], "" if x.dtype == object else 0, x.dtype) for x in xs]
        after = body(*state, *blank)
        made = (after if isinstance(after, tuple) else (after,))[num_state:]
        return (*state, *(np.empty((0, *row.shape), row.dtype) for row in made))
    return (*state, *(np.stack(column) for column in zip(*iterations, strict=True)))


SCAN = op(
    "scan",
    "runs `body` on the state and the elements of the other arguments along their first axis; gives the last"
    " state and, stacked along a new first axis, the body's other results",
    ["*args"],
    [Attr("num_state", "int"), Attr("body", "function")],
    kind="opaque",
    infer=_scan_infer,
    reference=_scan_reference,
    dtypes=("int32",),
    samples=(
        Sample((_INT, Tensor((5,), "normal", "int32")), {"num_state": 1, "body": example("sum")}),
        Sample((Tensor((4,), "normal", "int32"),), {"num_state": 0, "body": example("one")}),
        Sample(
            (_INT, Tensor((0,), "normal", "int32")),
            {"num_state": 1, "body": example("sum")},
            note="no iteration",
        ),
    ),
    error_samples=[
        ErrorSample(PAIR, {"num_state": 2, "body": example("sum")}, "left to scan"),
        ErrorSample(PAIR, {"num_state": 1, "body": example("sum")}, "rank"),
        ErrorSample(
            (Tensor((3,), dtype="int32"), Tensor((4,), dtype="int32")),
            {"num_state": 0, "body": example("sum")},
            "must be equal",
        ),
    ],
)


def loop_types(
    types: Sequence[Type], attrs: Attrs, length: Dim, resized: Callable[[Types], Types] = lambda state: state
) -> tuple[Types, Types]:
    """The types of a loop's state and of its stacked results. `length` is the leading dim of the stacked
    results.

    `resized` returns the state types with the dims that an iteration may change.
    """
    state = tensor_types(types)
    condition = call_types(attrs["cond"], state, "cond")
    if len(condition) != 1:
        raise fail(f"cond gives {len(condition)} values")
    check_condition(condition[0], "the result of cond")
    results = call_types(attrs["body"], state, "body")
    if len(results) < len(state):
        raise fail(f"the body gives {len(results)} values, of which {len(state)} should be state")
    kept = check_state(state, resized(results[: len(state)]))
    return kept, tuple(TensorType((length, *r.shape), r.dtype) for r in results[len(state) :])


def run_loop(
    state: Sequence[Any], cond: Any, body: Any, max_iterations: int | None
) -> tuple[list[Any], list[NDArray], int, bool]:
    """Run a loop with a maximum number of iterations.

    Returns the last state, the other results stacked, the number of iterations, and whether the condition
    still holds at the end.
    """
    kept, count = list(state), len(state)
    rows: list[Any] = []
    holds: bool = cond(*kept).item()
    while holds and (max_iterations is None or len(rows) < max_iterations):
        checkpoint()
        after = body(*kept)
        kept = list(after[:count])
        rows.append(after[count:])
        holds = cond(*kept).item()
    if not rows:
        # Without iterations, a trial run of the body gives the shape of its rows.
        return kept, [np.empty((0, *row.shape), row.dtype) for row in body(*kept)[count:]], 0, holds
    return kept, [np.stack(column) for column in zip(*rows, strict=True)], len(rows), holds


def _loop_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    changing, sizes = attrs["changing"], attrs["sizes"]

    def resized(state: Types) -> Types:
        return _resized(state, changing, sizes)

    kept, rows = loop_types(resized(tensor_types(types)), attrs, attrs["iterations"], resized)
    if any(size in row.symbols() for row in rows for size in sizes):
        raise fail("the shapes of stacked results change between iterations")
    return TupleType((*kept, *rows))


def _loop_reference(
    *state: Any, changing: tuple[int, ...], max_iterations: int | None, cond: Any, body: Any
) -> Any:
    kept, columns, _, _ = run_loop(state, cond, body, max_iterations)
    return (*kept, *columns)


_GROWING = (_INT, Tensor((2,), "positive", "int32"))
_GROW = {"cond": example("bounded"), "body": example("grow")}

LOOP = op(
    "loop",
    "runs `body` on the state while `cond` of it holds, at most `max_iterations` times; gives the last state"
    " and the body's other results, stacked along a new first axis with one row per iteration.  `changing`"
    " are dims of the state, as pairs of a value and an axis, whose sizes may change in each iteration;"
    " `sizes` are the last ones",
    ["*state"],
    [
        Attr("iterations", "fresh"),
        Attr("sizes", "freshes", ()),
        Attr("changing", "ints", ()),
        Attr("max_iterations", "dim", None),
        Attr("cond", "function"),
        Attr("body", "function"),
    ],
    kind="opaque",
    infer=_loop_infer,
    reference=_loop_reference,
    dtypes=("int32",),
    samples=(
        Sample(PAIR, {"iterations": Var("iterations"), "cond": example("cond"), "body": example("collect")}),
        Sample(
            (Tensor((), [20], "int32"), _INT),
            {"iterations": Var("iterations"), "cond": example("cond"), "body": example("collect")},
            note="no iteration",
        ),
        Sample(
            PAIR,
            {
                "iterations": Var("iterations"),
                "max_iterations": 2,
                "cond": example("cond"),
                "body": example("collect"),
            },
        ),
        Sample(
            _GROWING, {"iterations": Var("iterations"), "sizes": (Var("size"),), "changing": (1, 0), **_GROW}
        ),
    ),
    error_samples=[
        ErrorSample(
            PAIR,
            {"iterations": Var("iterations"), "cond": example("cond"), "body": example("add")},
            "1 values",
        ),
        ErrorSample(
            _GROWING,
            {"iterations": Var("iterations"), "sizes": (Var("size"),), "changing": (1, 1), **_GROW},
            "no axis",
        ),
        ErrorSample(
            _GROWING,
            {"iterations": Var("iterations"), "sizes": (Var("size"),), **_GROW},
            "1 sizes for 0 ",
        ),
        ErrorSample(
            _GROWING,
            {
                "iterations": Var("iterations"),
                "sizes": (Var("size"),),
                "changing": (1, 0),
                "cond": example("bounded"),
                "body": example("all"),
            },
            "stacked results change",
        ),
    ],
)


def body_dims(value: Node, function: Function) -> dict[Var, Expr]:
    """Map the params' dims that are a single symbol to the dims of the node's arguments."""
    shapes: list[tuple[Dim, ...]] = [arg.shape for arg in value.args]
    if value.op is IF:
        shapes = shapes[1:]
    elif value.op is SCAN:
        count = value.attrs["num_state"]
        shapes = [*shapes[:count], *(shape[1:] for shape in shapes[count:])]
    known: dict[Var, Expr] = {}
    for param_type, shape in zip(function.params, shapes):
        for param_dim, size in zip(param_type.shape, shape, strict=True):
            if isinstance(param_dim, Var):
                known.setdefault(param_dim, as_expr(size))
    return known


OPS = (IF, WHILE, SCAN, LOOP)
