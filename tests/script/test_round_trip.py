from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from dlc_core.diag import ArtifactError, Span, UsageError
from dlc_core.graph.node import (
    CALL_PRIM,
    Function,
    Op,
    call_function,
    constant,
    get_item,
    make_tuple,
    node,
    param,
    spanned,
)
from dlc_core.ir.buffer import Buffer
from dlc_core.ir.dtype import dtype
from dlc_core.ir.expr import Expr, Var, binary, broadcast, call, const, ramp, unary
from dlc_core.ir.module import IRModule
from dlc_core.ir.structural import first_difference, structural_hash
from dlc_core.ir.types import TupleType, tensor_type
from dlc_core.script import excerpt, from_json, parse, script, to_json, to_script
from dlc_core.testing.programs import random_prim_func
from dlc_core.tir.functor import stores_in
from dlc_core.tir.intrinsics import (
    INTRINSICS,
    address_of,
    call_kernel,
    intrinsic,
    reinterpret,
    vector_concat,
    vector_shuffle,
)
from dlc_core.tir.stmt import (
    Alloc,
    Block,
    Eval,
    For,
    If,
    IterVar,
    Let,
    PrimFunc,
    Range,
    Region,
    Seq,
    Stmt,
    Store,
    View,
    While,
    loop,
    seq,
    store,
)


def assert_round_trip(value: Any) -> str:
    """Script and JSON give the value back; the script prints the same again.  Returns the script."""
    text, metadata = to_script(value)
    ast.parse(text)
    again = parse(text, metadata)
    assert first_difference(value, again) is None, text
    plain = "\n".join(line.split("  # ")[0] for line in text.splitlines())
    assert script(again).splitlines() == plain.splitlines()
    arrays: list[np.ndarray[Any, Any]] = []
    if not any(key.startswith("object") for key in metadata):
        for data, side in ((to_json(value), []), (to_json(value, arrays), arrays)):
            read = from_json(json.loads(json.dumps(data)), None, side)
            assert first_difference(value, read) is None
    return text


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    func = random_prim_func(seed)
    assert_round_trip(func)
    again = parse(*to_script(func))
    assert structural_hash(again) == structural_hash(func)


A, F, H = Buffer("A", (8, 8)), Buffer("F", (8,), "float64"), Buffer("H", (8,), "int32")
IX, N, X, FLAG = Var("i"), Var("n"), Var("x", "float32"), Var("flag", "bool")


def with_expr(value: Expr) -> PrimFunc:
    target = Buffer("out", (value.dtype.lanes,), value.dtype.scalar)
    body = Store(target, (ramp(0, 1, value.dtype.lanes),), value)
    return PrimFunc("main", (A, F, H, target, IX, N, X, FLAG), body)


VECTOR = A[0, ramp(IX, 1, 4)]
EXPRS: list[Expr] = [
    IX + N * (IX - N) - (IX - (N - 1)),
    -IX * -N,
    unary("neg", unary("neg", IX)),
    -(IX * N),
    (IX + N) // 3 % N,
    IX // (N // 2),
    (IX << 2) | (IX & 7) ^ (N >> 1),
    ~IX & ~(IX + 1),
    binary("bitand", FLAG, FLAG),
    binary("bitor", FLAG, unary("bitnot", FLAG)),
    binary("bitxor", FLAG, IX < 3),
    binary("and", IX < 1, binary("and", IX < 2, IX < 3)),
    binary("and", binary("and", IX < 1, IX < 2), IX < 3),
    binary("or", binary("and", IX < 1, FLAG), unary("not", binary("or", FLAG, IX < 3))),
    binary("eq", IX < 1, FLAG),
    unary("not", binary("eq", IX, N)),
    binary("lt", binary("min", IX, N), binary("max", IX, 3)),
    binary("truncdiv", IX, N) + binary("truncmod", IX, N),
    X / 3.0 + 0.1,
    *(
        X + const(v, "float32")
        for v in (0.0, 1e-45, 3.4e38, 1 / 3, -2.5, float("inf"), -float("inf"), float("nan"))
    ),
    unary("neg", X) + const(-0.0, "float32"),
    F[0] * 1e300 - 5e-324,
    const(2**63 - 1) + IX,
    const(-(2**63)) + IX,
    H[IX] * -7,
    H[0].astype("float32") + X.astype("float16").astype("float32"),
    const(True, "bool"),
    const(5, "uint8").astype("bool"),
    VECTOR * 2.0 + broadcast(X, 4),
    intrinsic("vector_reduce_add", VECTOR),
    vector_shuffle(VECTOR, [3, 0, 0]),
    vector_concat(VECTOR, X),
    ramp(IX, N, 4) * 3,
    reinterpret("int32", X),
    reinterpret("int32", VECTOR),
    intrinsic("if_then_else", IX < 4, A[IX, 0], X),
    call("extern.vendor_op", (X, IX), "float32"),
    call("pure_extern.vendor.op", (X, IX), "float32"),
    call("unheard_of", (X,), "int8"),
    call("exp", (IX,), "int64"),
    A[IX, IX] + A[(IX, H[0].astype("int64"))],
]


@pytest.mark.parametrize("value", EXPRS, ids=lambda e: str(e)[:40])
def test_expressions(value: Expr) -> None:
    assert_round_trip(with_expr(value))


@pytest.mark.parametrize("name", sorted(INTRINSICS))
def test_every_intrinsic(name: str) -> None:
    entry = INTRINSICS[name]
    if entry.result == "free" or entry.arity < 0 or name in ("if_then_else", "barrier", "check", "prefetch"):
        return
    args = [X if "float" in entry.kinds else IX] * entry.arity
    if entry.result == "first":
        args[1:] = [const(1), const(4)]
    value = intrinsic(name, *(VECTOR if name.startswith("vector_") else a for a in args))
    assert f"T.{name}(" in assert_round_trip(with_expr(value))


def stmts_of(body: Stmt, *params: Buffer | Var) -> str:
    return assert_round_trip(PrimFunc("main", params or (A, N), body))


def test_loops() -> None:
    body = store(A, (IX, 0), 0.0)
    assert "for i in range(n):" in stmts_of(loop(IX, N, body))
    assert "for i in T.parallel(8):" in stmts_of(loop(IX, 8, body, "parallel"))
    assert "T.unroll(2, extent=n)" in stmts_of(loop(IX, N, body, "unrolled", begin=2))
    assert 'T.thread_binding(8, thread="x")' in stmts_of(loop(IX, 8, body, "thread", thread="x"))
    annotated = loop(IX, 8, body, annotations={"pragma": (1, "q", None), "n": N + 1})
    assert 'T.serial(8, annotations={"pragma": (1, "q", None), "n": n + T.int64(1)})' in stmts_of(annotated)
    j, narrow = Var("j"), Var("k", "int32")
    assert "for i, j in T.grid(n, 4):" in stmts_of(loop(IX, N, loop(j, 4, body)))
    dependent = stmts_of(loop(IX, N, loop(j, IX + 1, store(A, (IX, j), 0.0))))
    assert "for j in range(i + 1):" in dependent
    index32 = For(narrow, const(0, "int32"), const(8, "int32"), store(A, (narrow, 0), 0.0))
    assert "for k in T.serial(T.int32(8)):" in stmts_of(index32)


def test_scopes_of_bindings() -> None:
    local, word = (
        Buffer("S", (4, N), scope="local", align=32),
        Buffer("W", (4,), "int8", offset=N, strides=(N,)),
    )
    x = Var("x", "float32")
    last = Alloc(local, View(word, local, Let(x, A[0, 0], seq(store(A, (0, 0), x), store(word, (0,), 1)))))
    flat = stmts_of(last)
    assert 'S = T.alloc_buffer((4, n), "float32", scope="local", align=32)' in flat
    assert 'W = T.view(S, (4,), "int8", strides=(n,), offset=n)' in flat
    assert "x = T.let(A[0, 0])" in flat
    first = seq(Let(x, A[0, 0], store(A, (0, 0), x)), store(A, (1, 1), 2.0))
    assert "with T.let(A[0, 0]) as x:" in stmts_of(first)


def test_nested_and_short_sequences_round_trip() -> None:
    one, two = store(A, (0, 0), 1.0), store(A, (0, 1), 2.0)
    for body in (
        Seq(()),
        Seq((one,)),
        Seq((one, Seq((two, one)))),
        Seq((Seq(()), one)),
        loop(IX, 2, Seq(())),
    ):
        stmts_of(body)


def test_control_flow_and_calls() -> None:
    inner = If(FLAG, store(A, (0, 0), 1.0), If(N < 3, store(A, (0, 0), 2.0), Seq(())))
    text = stmts_of(seq(While(A[0, 0] < 1.0, inner), If(FLAG, Seq(()))), A, N, FLAG)
    assert "while A[0, 0] < T.float32(1.0):" in text
    calls = seq(
        Eval(call_kernel("conv", A, address_of(A, 1, N), N, X)),
        Eval(intrinsic("barrier")),
        Eval(intrinsic("check", N < 4, const(3, "int32"))),
    )
    text = stmts_of(calls, A, N, X)
    assert 'T.call_kernel("conv", T.address_of(A), T.address_of(A[1, n]), n, x)' in text
    assert "T.evaluate(T.check(n < 4, T.int32(3)))" in text


def test_blocks() -> None:
    vi, vj, vk, vl = Var("vi"), Var("vj"), Var("vk"), Var("vl")
    i, j, k = Var("i"), Var("j"), Var("k")
    axes = (
        IterVar(vi, Range(const(0), N)),
        IterVar(vj, Range(const(0), const(8))),
        IterVar(vk, Range(const(2), const(6)), "reduce"),
        IterVar(vl, Range(const(0), const(64)), "reduce"),
    )
    reads = (
        Region(A, (Range(vi, const(1)), Range(const(0), const(8)))),
        Region(A, (Range(vi, N), Range(vj + 1, N))),
    )
    writes = (
        Region(A, (Range(const(3), const(0)), Range(const(3), const(4)))),
        Region(A, (Range(vi, const(0)), Range(const(2), N))),
    )
    block = Block(
        'the "block"', axes, (i, j, k + 2, j * 8 + k), reads, writes, store(A, (vi, vj), 1.0),
        store(A, (vi, vj), 0.0), vi < 3, {"tile": (4, 4), "scale": 0.5},
    )  # fmt: skip
    text = stmts_of(loop(i, N, loop(j, 8, loop(k, 4, block))))
    assert 'vi, vj = T.axis.remap("SS", [i, j])' in text
    assert "vk = T.axis.reduce((2, 6), k + 2)" in text
    assert "vl = T.axis.reduce(64, j * 8 + k)" in text
    assert "T.where(vi < 3)" in text
    assert "T.reads(A[vi, 0:8], A[vi:vi + n, vj + 1:vj + 1 + n])" in text
    assert "A[3:3, 3:7]" in text
    bare = Block("", (), (), (), (), Seq(()))
    stmts_of(bare)


def test_names_are_identifiers_and_unique() -> None:
    weird = [Buffer(name, (2,)) for name in ("conv/1:0", "conv_1_0", "for", "T", "1st", "é", "")]
    i, other = Var("i"), Var("i")
    body = loop(i, 2, loop(other, 2, seq(*(store(b, (i,), weird[0][other]) for b in weird))))
    text = stmts_of(body, *weird)
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.FunctionDef)
    names = [a.arg for a in tree.args.args]
    assert len(set(names)) == len(names) == 7
    assert "for i, i_1 in T.grid(2, 2):" in text


def test_disjoint_scopes_share_names() -> None:
    first, second = Var("i"), Var("i")
    text = stmts_of(
        seq(loop(first, 2, store(A, (first, 0), 0.0)), loop(second, 2, store(A, (second, 0), 1.0)))
    )
    assert text.count("for i in range(2):") == 2


def test_scalars() -> None:
    zero = Buffer("Z", (), "int8")
    assert "Z[()] = T.int8(5)" in stmts_of(store(zero, (), 5), zero)
    text = assert_round_trip(
        PrimFunc(
            "a b",
            (zero,),
            store(zero, (), zero[()]),
            {"entry": True, "x": (1.5, b"\0", float("inf")), "by": {1: "a", 2: {}}},
        )
    )
    assert '@T.prim_func(key="a b")' in text
    assert "def a_b(Z" in text


def test_deep_and_shared_expressions_are_bound_to_names() -> None:
    deep: Expr = X
    for _ in range(500):
        deep = deep * 0.5 + X
    shared: Expr = X
    for _ in range(40):
        shared = shared * 0.25 + shared * 0.75
    text = assert_round_trip(with_expr(deep + shared))
    assert len(text) < 40_000
    assert "e = T.expr(" in text
    body: Stmt = store(A, (0, 0), 1.0)
    for k in range(300):
        body = Let(Var(f"x{k}", "float32"), A[0, 0], body)
    stmts_of(body)


def graph_module() -> IRModule:
    h = Var("h")
    t = tensor_type((1, 3, h, h + 1))
    add, conv, if_, split = Op("add"), Op("nn.conv2d"), Op("if_"), Op("a-b")
    x, unused = param("input.1", t), param("in", TupleType((t, tensor_type((), "int64"))))
    with spanned([Span("m.onnx", "conv1", "Conv")]):
        attrs = {
            "strides": (2, 2),
            "to": "x",
            "else": 1.0,
            "dt": dtype("int8"),
            "dim": h * 2,
            "one": const(1),
            "b": True,
        }
        y = node(conv, (x, constant(np.ones((64, 3, 3, 3), np.float32)), constant(1.5)), attrs, t)
    small = np.array([[1, -2], [3, 4]], np.int64)
    p = param("p", t)
    body = Function(
        "body", (p,), node(add, (p, constant(np.array([0.1, -0.0, np.inf, np.nan], np.float16))), {}, t)
    )
    z = node(if_, (y, constant(small)), {"then": body, "orelse": body, "table": np.zeros((0, 3))}, t)
    s = node(split, (z, constant(np.zeros((2, 0), np.int8))), {"type": t}, TupleType((t, t)))
    kernel = node(CALL_PRIM, (get_item(s, 0),), {"symbol": "k"}, t)
    results = make_tuple((get_item(s, 1), call_function(body, (kernel,)), x))
    main = Function("main", (x, unused), results, {"inputs": ("input.1", "in"), "outputs": ("a",)})
    return IRModule({"main": main, "k": random_prim_func(3)}, {"pipeline": "fuse", "n": 3})


def test_graphs_and_modules() -> None:
    text = assert_round_trip(graph_module())
    for line in (
        'input_1: G.Tensor((1, 3, "h", "h + 1"), "float32", name="input.1"),',
        'G.Tuple(G.Tensor((1, 3, "h", "h + 1"), "float32"), G.Tensor((), "int64"), name="in"),',
        '= G.nn.conv2d(input_1, metadata["const_0"], G.const(1.5, "float64"), b=True, dim=h * T.int64(2)',
        '**{"else": 1.0})  # conv1',
        'G.const([[1, -2], [3, 4]], "int64")',
        'G.const([0.0999755859375, -0.0, G.inf, G.nan], "float16")',
        'table=G.array([], "float64", shape=(0, 3))',
        '= G.op("a-b", ',
        '"float32") = G.call_tir(k, (v',
        '@T.prim_func(name="main")',
        'attrs = {"pipeline": "fuse", "n": 3}',
    ):
        assert line in text, line


def test_results_of_every_shape() -> None:
    t = tensor_type((2,))
    x = param("x", t)
    for body in (
        x,
        make_tuple(()),
        make_tuple((x,)),
        make_tuple((x, x)),
        constant(np.float32(1.0)),
        make_tuple((make_tuple((x,)), x)),
    ):
        assert_round_trip(Function("main", (x,), body))


def test_functions_in_functions_keep_their_scopes() -> None:
    t = tensor_type((2,))
    op = Op("f")
    shared = node(op, (constant(np.float32(2.0)),), {}, t)
    p, q, x = param("p", t), param("q", t), param("x", t)
    inner = Function("inner", (p,), node(op, (p, shared), {}, t))
    outer = Function("outer", (q,), node(op, (call_function(inner, (q,)), shared), {}, t))
    body = node(op, (call_function(outer, (x,)), call_function(inner, (x,)), shared), {}, t)
    assert_round_trip(Function("main", (x,), body))


def test_objects_without_text_are_in_the_metadata() -> None:
    marker = {"a": np.arange(3)}
    module = IRModule({"k": random_prim_func(1)}, {"signature": marker, "data": np.arange(100)}, "k")
    text, metadata = to_script(module)
    assert 'attrs = {"signature": {"a": metadata["object_0"]}, "data": metadata["object_1"]}' in text
    assert 'entry = "k"' in text
    assert first_difference(module, parse(text, metadata)) is None


def test_large_weights_are_kept_by_reference() -> None:
    weight = np.ones((1000, 1000), np.float32)
    function = Function("main", (), constant(weight))
    text, metadata = to_script(function)
    assert len(text) < 300
    assert metadata["const_0"].data is weight
    again = parse(text, metadata)
    assert isinstance(again, Function)
    assert again.body is function.body
    arrays: list[np.ndarray[Any, Any]] = []
    assert len(json.dumps(to_json(function, arrays))) < 2000
    assert arrays[0] is weight


def test_deep_graphs_do_not_recurse() -> None:
    x = param("x", tensor_type((2,)))
    op, body = Op("f"), x
    for _ in range(20_000):
        body = node(op, (body, x), {}, x.type)
    function = Function("main", (x,), body)
    assert first_difference(function, from_json(to_json(function))) is None
    assert script(function).count("G.f(") == 20_000


def test_scripts_of_parts() -> None:
    t = tensor_type((2, Var("h")))
    assert script(t) == 'G.Tensor((2, "h"), "float32")\n'
    assert script(IX + 1) == "i + 1\n"
    assert script(A) == 'A: T.Buffer((8, 8), "float32")\n'
    assert "A[i, 0] = T.float32(1.0)" in script(store(A, (IX, 0), 1.0))
    assert "return v" in script(node(Op("f"), (constant(1.0),), {}, t))
    with pytest.raises(UsageError, match="object has no script"):
        script(object())


def test_excerpts_mark_the_statement() -> None:
    func = random_prim_func(5)
    target = stores_in(func.body)[-1]
    lines = excerpt(func, target, radius=2)
    assert len(lines) <= 5
    assert sum(line.startswith(">") for line in lines) >= 1


def test_the_script_is_the_same_every_time() -> None:
    assert script(graph_module()) == script(graph_module())


def records() -> Mapping[str, Any]:
    return to_json(graph_module())


def table(*rows: Any, root: Any = None, version: int = 1, **more: Any) -> Any:
    return {"schema": "dlc-ir", "version": version, "root": root, "records": list(rows), **more}


HOSTILE: list[Any] = [
    None,
    [],
    {},
    table(version=2),
    table(root=["r", 0]),
    table(more=1),
    table({"k": "nothing"}),
    table({"k": "var", "name": "n"}),
    table({"k": "var", "name": 3, "dtype": "int64"}),
    table({"k": "var", "name": "n", "dtype": "int65"}),
    table({"k": "var", "name": "n", "dtype": "int8x99999999"}),
    table({"k": "unary", "op": "neg", "a": 0}),
    table({"k": "const", "value": "x", "dtype": "int8"}),
    table({"k": "seq", "stmts": [[0]]}),
    table(root=json.loads("[" * 60 + "1" + "]" * 60)),
    table(root=["z", 1]),
    table(root=["f", "zero"]),
    table(root=["m", [["a", 1, 2]]]),
    table({"k": "ndarray", "data": {"dtype": "float32", "shape": [1 << 40], "base64": ""}}),
    table({"k": "ndarray", "data": {"dtype": "float32", "shape": [1], "at": 7}}),
    table({"k": "ndarray", "data": {"dtype": "float32", "shape": [1], "at": -1}}),
]


@pytest.mark.parametrize("data", HOSTILE, ids=lambda d: str(d)[-60:])
def test_hostile_json_is_refused(data: Any) -> None:
    with pytest.raises(ArtifactError):
        from_json(data)


def test_damaged_json_raises_only_artifact_errors() -> None:
    whole = json.loads(json.dumps(records()))
    junk = [None, -1, 10**9, "x", [], {}, ["r", 10**6], 1.5, True]
    for index, record in enumerate(whole["records"]):
        for key in record:
            for value in (junk[(index + len(key)) % len(junk)], junk[(index * 3 + 1) % len(junk)]):
                data = {
                    **whole,
                    "records": [
                        *whole["records"][:index],
                        {**record, key: value},
                        *whole["records"][index + 1 :],
                    ],
                }
                try:
                    from_json(data)
                except ArtifactError:
                    continue


def test_unknown_ops_are_named() -> None:
    with pytest.raises(ArtifactError, match=r"'nn\.conv2d', which no plugin has declared"):
        from_json(records(), ops={})


def test_json_refuses_other_objects() -> None:
    with pytest.raises(UsageError, match="object cannot be written"):
        to_json(IRModule({}, {"x": object()}))
