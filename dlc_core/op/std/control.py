"""Control flow: `if_`, `while_`, `scan`, `loop`, whose bodies are closed functions with explicit arguments.

The types of the arguments bind a function's own symbolic dims.  Shapes do not change between iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from dlc_core.graph.node import Function, Node, constant, make_tuple, param
from dlc_core.ir.expr import Expr, Var, as_expr, substitute
from dlc_core.ir.types import Dim, TensorType, TupleType, Type, dim, tensor_type
from dlc_core.op.declare import Attr, ErrorSample, NDArray, Sample, Tensor, op, tensor_types
from dlc_core.op.infer import Attrs, check_rank, dims_text, fail, merge_dims
from dlc_core.op.std.binary import ADD, LESS, MUL, SUB
from dlc_core.op.std.shape import RESHAPE
from dlc_core.op.std.slicing import CONCAT


def result_of(function: Function, types: Sequence[Type], what: str) -> tuple[TensorType, ...]:
    """Infer the types of a function's results for these argument types, and check the arguments."""
    if len(types) != len(function.params):
        raise fail(f"{what} takes {len(function.params)} arguments, {len(types)} are given")
    symbols: dict[Var, Expr | int] = {}
    for own, given in zip(tensor_types(p.type for p in function.params), tensor_types(types), strict=True):
        if own.dtype is not given.dtype or own.ndim != given.ndim:
            raise fail(f"{what} takes {own}, {given} is given")
        for mine, size in zip(own.shape, given.shape, strict=True):
            if isinstance(mine, Var):
                symbols.setdefault(mine, size)
            merge_dims(_bound(mine, symbols), size, f"dims of {what} ({own}) and of its argument ({given})")
    results = (
        function.body.type.fields if isinstance(function.body.type, TupleType) else (function.body.type,)
    )
    return tuple(
        TensorType(tuple(_bound(d, symbols) for d in r.shape), r.dtype) for r in tensor_types(results)
    )


def _bound(value: Dim, symbols: dict[Var, Expr | int]) -> Dim:
    if isinstance(value, int):
        return value
    known = {var: tensor_type([size]).dim_exprs()[0] for var, size in symbols.items()}
    return dim(substitute(value, known))


Types = tuple[TensorType, ...]


def check_condition(cond: TensorType, what: str) -> None:
    if not cond.dtype.is_bool or any(d != 1 for d in cond.shape):
        raise fail(f"{what} is {cond}", "a bool with one element is needed")


def _joined(a: TensorType, b: TensorType, what: str) -> TensorType:
    if a.dtype is not b.dtype or a.ndim != b.ndim:
        raise fail(f"{what} differ: {a} and {b}")
    return TensorType(
        tuple(
            merge_dims(x, y, f"dims of {what} ({dims_text(a.shape)} and {dims_text(b.shape)})")
            for x, y in zip(a.shape, b.shape, strict=True)
        ),
        a.dtype,
    )


def _like(function: Function, results: tuple[TensorType, ...]) -> Type:
    return TupleType(results) if isinstance(function.body.type, TupleType) else results[0]


def _resized(state: Types, places: Sequence[int], sizes: Sequence[Var]) -> Types:
    """Replace dims of the types: `places` has pairs of (value, axis), and `sizes` has the new dims."""
    if len(places) != 2 * len(sizes):
        raise fail(f"{len(sizes)} sizes for {len(places)} changing dims", "a value and an axis name a dim")
    shapes = [list(t.shape) for t in state]
    for value, axis, size in zip(places[::2], places[1::2], sizes, strict=True):
        if not 0 <= value < len(shapes) or not 0 <= axis < len(shapes[value]):
            raise fail(f"there is no axis {axis} of value {value}")
        shapes[value][axis] = size
    return tuple(TensorType(tuple(shape), t.dtype) for shape, t in zip(shapes, state, strict=True))


def _if_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    cond, *args = tensor_types(types)
    check_condition(cond, "the condition")
    chosen, other = attrs["then_branch"], attrs["else_branch"]
    first, second = result_of(chosen, args, "then_branch"), result_of(other, args, "else_branch")
    if len(first) != len(second):
        raise fail(f"then_branch gives {len(first)} results, else_branch {len(second)}")
    first, second = (_resized(each, attrs["changing"], attrs["sizes"]) for each in (first, second))
    joined = tuple(_joined(a, b, "results of the branches") for a, b in zip(first, second, strict=True))
    return _like(chosen, joined)


def _if_reference(
    cond: NDArray, *args: Any, changing: tuple[int, ...], then_branch: Any, else_branch: Any
) -> Any:
    return (then_branch if cond.item() else else_branch)(*args)


_SCALAR = tensor_type((), "int32")


@cache
def example(body: str) -> Function:
    """Functions over int32 scalars, and one over a vector, for the samples."""
    if body in ("grow", "keep", "all", "few"):
        many, x = param("many", tensor_type((Var("many"),), "int32")), param("x", _SCALAR)
        if body == "few":
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
    "the results of one of two functions of the arguments; only that one runs.  The dims `changing` of"
    " the results, pairs of a value and an axis, they may have different sizes: that of the result is in"
    " `sizes`",
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


def keeps_state(state: Sequence[TensorType], after: Sequence[TensorType]) -> tuple[TensorType, ...]:
    if len(state) != len(after):
        raise fail(f"the body gives {len(after)} values for {len(state)} of the state")
    return tuple(
        _joined(a, b, "the state before and after a round") for a, b in zip(state, after, strict=True)
    )


def _while_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    state = tensor_types(types)
    condition = result_of(attrs["cond"], state, "cond")
    if len(condition) != 1:
        raise fail(f"cond gives {len(condition)} values")
    check_condition(condition[0], "the result of cond")
    return TupleType(keeps_state(state, result_of(attrs["body"], state, "body")))


def _while_reference(*state: Any, cond: Any, body: Any) -> Any:
    while cond(*state).item():
        after = body(*state)
        state = after if isinstance(after, tuple) else (after,)
    return state


_ENDLESS = {"cond": example("add"), "body": example("step")}

WHILE = op(
    "while_",
    "the state after `body` ran on it as long as `cond` held of it; always a tuple",
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
            note="no round",
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
    given = tensor_types(types)
    state, xs = given[:count], given[count:]
    if not 0 <= count <= len(given) or not xs:
        raise fail(f"{count} of {len(given)} arguments are state", "at least one must be left to scan")
    length = xs[0].shape[0] if xs[0].ndim else 0
    for x in xs:
        check_rank(x, 1, None, "a scanned argument")
        length = merge_dims(length, x.shape[0], "the lengths of the scanned arguments")
    results = result_of(attrs["body"], [*state, *(TensorType(x.shape[1:], x.dtype) for x in xs)], "body")
    if len(results) < count:
        raise fail(f"the body gives {len(results)} values, of which {count} should be state")
    kept = keeps_state(state, results[:count])
    return TupleType((*kept, *(TensorType((length, *r.shape), r.dtype) for r in results[count:])))


def _scan_reference(*args: Any, num_state: int, body: Any) -> Any:
    state, xs = args[:num_state], args[num_state:]
    rounds = []
    for items in zip(*xs, strict=True):
        after = body(*state, *(np.asarray(item) for item in items))
        values = after if isinstance(after, tuple) else (after,)
        state = values[:num_state]
        rounds.append(values[num_state:])
    if not rounds:
        # Without iterations, a trial run of the body on blank items gives the shapes of its results.
        blank = [np.full(x.shape[1:], "" if x.dtype == object else 0, x.dtype) for x in xs]
        after = body(*state, *blank)
        made = (after if isinstance(after, tuple) else (after,))[num_state:]
        return (*state, *(np.empty((0, *row.shape), row.dtype) for row in made))
    return (*state, *(np.stack(column) for column in zip(*rounds, strict=True)))


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
            (_INT, Tensor((0,), "normal", "int32")), {"num_state": 1, "body": example("sum")}, note="no round"
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


def stacking(
    types: Sequence[Type], attrs: Attrs, length: Dim, resized: Callable[[Types], Types] = lambda state: state
) -> tuple[Types, Types]:
    """The types of a loop's state and of its stacked results. `length` is the leading dim of the stacked
    results.

    `resized` returns the state types with the dims that an iteration may change.
    """
    state = tensor_types(types)
    condition = result_of(attrs["cond"], state, "cond")
    if len(condition) != 1:
        raise fail(f"cond gives {len(condition)} values")
    check_condition(condition[0], "the result of cond")
    results = result_of(attrs["body"], state, "body")
    if len(results) < len(state):
        raise fail(f"the body gives {len(results)} values, of which {len(state)} should be state")
    kept = keeps_state(state, resized(results[: len(state)]))
    return kept, tuple(TensorType((length, *r.shape), r.dtype) for r in results[len(state) :])


def stacked(
    state: Sequence[Any], cond: Any, body: Any, most: int | None
) -> tuple[list[Any], list[NDArray], int, bool]:
    """Run a loop with a maximum number of iterations.

    Returns the last state, the other results stacked, the number of iterations, and whether the condition
    still holds at the end.
    """
    kept, count = list(state), len(state)
    rows: list[Any] = []
    going: bool = cond(*kept).item()
    while going and (most is None or len(rows) < most):
        after = body(*kept)
        kept = list(after[:count])
        rows.append(after[count:])
        going = cond(*kept).item()
    if not rows:
        # Without iterations, a trial run of the body gives the shape of its rows.
        return kept, [np.empty((0, *row.shape), row.dtype) for row in body(*kept)[count:]], 0, going
    return kept, [np.stack(column) for column in zip(*rows, strict=True)], len(rows), going


def _loop_infer(types: Sequence[Type], attrs: Attrs) -> Type:
    places, sizes = attrs["changing"], attrs["sizes"]

    def resized(state: Types) -> Types:
        return _resized(state, places, sizes)

    kept, rows = stacking(resized(tensor_types(types)), attrs, attrs["rounds"], resized)
    if any(size in row.symbols() for row in rows for size in sizes):
        raise fail("the shapes of stacked results change between iterations")
    return TupleType((*kept, *rows))


def _loop_reference(*state: Any, changing: tuple[int, ...], most: int | None, cond: Any, body: Any) -> Any:
    kept, columns, _, _ = stacked(state, cond, body, most)
    return (*kept, *columns)


_GROWING = (_INT, Tensor((2,), "positive", "int32"))
_FEW = {"cond": example("few"), "body": example("grow")}

LOOP = op(
    "loop",
    "runs `body` on the state as long as `cond` holds of it, at most `most` rounds where that is given; gives"
    " the last state and, stacked along a new first axis as long as there were rounds, the body's other"
    " results.  The dims `changing` of the state, pairs of a value and an axis, may have another size in"
    " each round; the last ones are `sizes`",
    ["*state"],
    [
        Attr("rounds", "fresh"),
        Attr("sizes", "freshes", ()),
        Attr("changing", "ints", ()),
        Attr("most", "dim", None),
        Attr("cond", "function"),
        Attr("body", "function"),
    ],
    kind="opaque",
    infer=_loop_infer,
    reference=_loop_reference,
    dtypes=("int32",),
    samples=(
        Sample(PAIR, {"rounds": Var("rounds"), "cond": example("cond"), "body": example("collect")}),
        Sample(
            (Tensor((), [20], "int32"), _INT),
            {"rounds": Var("rounds"), "cond": example("cond"), "body": example("collect")},
            note="no round",
        ),
        Sample(
            PAIR, {"rounds": Var("rounds"), "most": 2, "cond": example("cond"), "body": example("collect")}
        ),
        Sample(_GROWING, {"rounds": Var("rounds"), "sizes": (Var("size"),), "changing": (1, 0), **_FEW}),
    ),
    error_samples=[
        ErrorSample(
            PAIR, {"rounds": Var("rounds"), "cond": example("cond"), "body": example("add")}, "1 values"
        ),
        ErrorSample(
            _GROWING,
            {"rounds": Var("rounds"), "sizes": (Var("size"),), "changing": (1, 1), **_FEW},
            "no axis",
        ),
        ErrorSample(
            _GROWING,
            {"rounds": Var("rounds"), "sizes": (Var("size"),), **_FEW},
            "1 sizes for 0 ",
        ),
        ErrorSample(
            _GROWING,
            {
                "rounds": Var("rounds"),
                "sizes": (Var("size"),),
                "changing": (1, 0),
                "cond": example("few"),
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
    for own, shape in zip(function.params, shapes):
        for mine, size in zip(own.shape, shape, strict=True):
            if isinstance(mine, Var):
                known.setdefault(mine, as_expr(size))
    return known


OPS = (IF, WHILE, SCAN, LOOP)
