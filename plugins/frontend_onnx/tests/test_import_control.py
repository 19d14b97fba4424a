"""If, Loop, Scan and sequences."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_frontend_onnx import InferenceSession, backend
from dlc_frontend_onnx.testing.compare import check, main_of, parse, run

from dlc_core import compile as compile_model
from dlc_core.diag import DlcError, ModelError, UnsupportedError
from dlc_core.graph.node import post_order

IF = """g (bool[1] c, float[2,n] x, float[n] w) => (float[2,n] y) {
    h = Mul(x, w)
    y = If (c) <
        then_branch: graph = t () => (float[2,n] p) { q = Add(h, w)  p = Relu(q) },
        else_branch: graph = e () => (float[2,n] p) { p = Neg(h) }>
}"""


def ops_of(function):
    return [n.op.name for n in post_order(function.body)]


@pytest.mark.parametrize("choice", [True, False])
def test_a_branch_is_taken_at_run_time(choice):
    model = parse(IF)
    assert "if_" in ops_of(main_of(model))
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 3)).astype("f4"), rng.normal(size=3).astype("f4")
    check(model, {"c": np.array([choice]), "x": x, "w": w})


BRANCHES = """g (float[2,n] x, bool c) => (float[a,b] y) {
    y = If (c) <
        then_branch: graph = t () => (float[a,b] p) {
            shape = Constant <value = int64[2] {3, 4}> ()  p = Reshape(x, shape) },
        else_branch: graph = e () => (float[a,b] p) { p = Neg(x) }>
}"""


def test_a_branch_with_invalid_shapes_fails_only_if_taken():
    model = parse(BRANCHES)
    session = InferenceSession(model.SerializeToString())
    x, y = np.ones((2, 6), np.float32), np.ones((2, 5), np.float32)
    for feeds, expected in (
        ({"x": x, "c": np.array(True)}, x.reshape(3, 4)),
        ({"x": y, "c": np.array(False)}, -y),
    ):
        np.testing.assert_array_equal(session.run(None, feeds)[0], expected)
    with pytest.raises(UnsupportedError, match="a branch does not fit the inputs"):
        main_of(model, {"n": 5})
    with pytest.raises(DlcError):
        session.run(None, {"x": y, "c": np.array(True)})


def test_common_values_of_branches_are_computed_outside():
    main = main_of(parse(IF))
    (branch,) = [n for n in post_order(main.body) if n.op.name == "if_"]
    assert [a.op.name for a in branch.args] == ["param", "mul", "param"]
    assert ops_of(branch.attrs["then_branch"]) == ["param", "param", "add", "relu", "tuple"]


def test_a_constant_condition_is_resolved_by_the_importer():
    text = IF.replace("bool[1] c, ", "").replace("h = Mul", "c = Constant <value = bool[1] {1}> ()  h = Mul")
    assert "if_" not in ops_of(main_of(parse(text)))


def test_branches_may_use_dims_of_other_inputs():
    text = """g (bool c, float[n] x) => (float[n] y) {
        s = Shape(x)
        y = If (c) <
            then_branch: graph = t () => (float[n] p) { p = ConstantOfShape(s) },
            else_branch: graph = e () => (float[n] p) { p = Identity(x) }>
    }"""
    model = parse(text)
    for choice in (True, False):
        check(model, {"c": np.array(choice), "x": np.ones(3, "f4")})


DIFFERENT = """g (bool c, float[n,3] x) => (float[?,?] y, float z) {
    y = If (c) <
        then_branch: graph = t () => (float[3,n] p) { p = Transpose(x) },
        else_branch: graph = e () => (float[2,3] p) {
            shape = Constant <value = int64[2] {2, 3}> ()  p = Reshape(x, shape) }>
    e = Exp(y)
    z = ReduceSum <keepdims = 0> (e)
}"""


@pytest.mark.parametrize("target", ["llvm", "c", "reference"])
def test_branches_may_return_different_shapes(target):
    exe = compile_model(parse(DIFFERENT), target)
    if target != "reference":
        assert exe.about["host"][0]["why"] == "the shapes of its results are data-dependent"
    for count, choice in ((2, True), (5, True), (2, False)):
        x = np.random.default_rng(count).normal(size=(count, 3)).astype("f4")
        y, z = exe(np.array(choice), x)
        np.testing.assert_array_equal(y, x.T if choice else x)
        np.testing.assert_allclose(z, np.exp(x).sum(), rtol=1e-5)
    with pytest.raises(DlcError):
        exe(np.array(False), np.zeros((5, 3), "f4"))


def test_a_branch_with_invalid_shapes_reads_only_its_memory():
    """The then branch is valid for n = 6; its native code would read 12 elements of any x."""
    text = """g (float[n] x, bool c) => (float[3,4] y) {
        y = If (c) <
            then_branch: graph = t () => (float[3,4] p) {
                shape = Constant <value = int64[2] {3, 4}> ()  q = Reshape(x, shape)  p = Exp(q) },
            else_branch: graph = e () => (float[3,4] p) {
                shape = Constant <value = int64[2] {3, 4}> ()  p = ConstantOfShape(shape) }>
    }"""
    exe = compile_model(parse(text))
    x = np.arange(12, dtype="f4")
    np.testing.assert_allclose(exe(x, np.array(True)), np.exp(x.reshape(3, 4)), rtol=1e-5)
    assert not exe(x[:5], np.array(False)).any()
    with pytest.raises(DlcError, match="do not fit"):
        exe(x[:5], np.array(True))


def test_branches_of_different_ranks_are_unsupported():
    text = """g (bool c, float[2,3] x) => (float[?] y) {
        y = If (c) <
            then_branch: graph = t () => (float[2,3] p) { p = Neg(x) },
            else_branch: graph = e () => (float[6] p) {
                shape = Constant <value = int64[1] {6}> ()  p = Reshape(x, shape) }>
    }"""
    with pytest.raises(UnsupportedError, match="its rank depends on the condition"):
        main_of(parse(text))


def test_branches_of_different_types_are_refused():
    text = """g (bool c, float[2] x) => (float[?] y) {
        y = If (c) <
            then_branch: graph = t () => (int32[2] p) { p = Cast <to = 6> (x) },
            else_branch: graph = e () => (float[2] p) { p = Identity(x) }>
    }"""
    with pytest.raises(ModelError, match="in one branch"):
        main_of(parse(text))


COUNTED = """g (float[2] x, float[2] step) => (float[2] y, float[?,2] all) {
    count = Constant <value_int = ROUNDS> ()
    go = Constant <value = bool {1}> ()
    y, all = Loop (count, go, x) <
        body: graph = b (int64 i, bool g, float[2] h) => (bool more, float[2] k, float[2] o) {
        more = Identity(g)
        f = Cast <to = 1> (i)
        k0 = Add(h, step)
        k = Add(k0, f)
        o = Mul(k, k)
    }>
}"""


@pytest.mark.parametrize(("rounds", "loop"), [(0, False), (1, False), (5, True)])
def test_counted_loops(rounds, loop):
    model = parse(COUNTED.replace("ROUNDS", str(rounds)))
    assert ("scan" in ops_of(main_of(model))) is loop
    given = {"x": np.array([1, 2], "f4"), "step": np.array([0.5, -1], "f4")}
    if rounds:
        check(model, given)
    else:
        y, outputs = run(model, given)
        np.testing.assert_array_equal(y, given["x"])
        assert outputs.shape == (0, 2)


def test_a_loop_whose_trip_count_is_a_dim():
    text = COUNTED.replace("float[2] x,", "float[n] many, float[2] x,").replace(
        "count = Constant <value_int = ROUNDS> ()", "count = Size(many)"
    )
    model = parse(text)
    assert "scan" in ops_of(main_of(model))
    given = {"x": np.array([1, 2], "f4"), "step": np.array([0.5, -1], "f4"), "many": np.zeros(4, "f4")}
    check(model, given)


WHILE = """g (float[2] x, float limit) => (float[2] y, int64 rounds) {
    zero = Constant <value_int = 0> ()
    go = Constant <value = bool {1}> ()
    y, rounds = Loop (, go, x, zero) <
        body: graph = b (int64 i, bool c, float[2] h, int64 n) => (bool more, float[2] k, int64 m) {
            k = Add(h, h)
            one = Constant <value_int = 1> ()
            m = Add(n, one)
            total = ReduceSum <keepdims = 0> (k)
            more = Less(total, limit)
        }>
}"""


@pytest.mark.parametrize("limit", [0.0, 10.0, 100.0])
def test_loops_with_a_condition(limit):
    model = parse(WHILE)
    assert "while_" in ops_of(main_of(model))
    check(model, {"x": np.array([1, 2], "f4"), "limit": np.array(limit, "f4")})


def test_loops_with_a_condition_and_a_trip_count():
    text = WHILE.replace("float limit)", "float limit, int64 most)").replace("Loop (, go", "Loop (most, go")
    for most in (0, 2, 50):
        given = {"x": np.array([1, 2], "f4"), "limit": np.array(50, "f4"), "most": np.array(most)}
        check(parse(text), given)


@pytest.mark.parametrize("limit", [0, 3, 100])
def test_a_loop_with_data_dependent_stacked_results(limit):
    text = (
        WHILE.replace("int64 rounds)", "int64 rounds, float[?,2] o)")
        .replace("float limit)", "float limit, int64 most)")
        .replace("Loop (, go", "Loop (most, go")
        .replace("y, rounds = Loop", "y, rounds, o = Loop")
        .replace("int64 m) {", "int64 m, float[2] w) { w = Neg(h)")
    )
    model = parse(text)
    assert "loop" in ops_of(main_of(model))
    feeds = {"x": np.float32([1, 2]), "limit": np.array(50, "f4"), "most": np.array(limit)}
    found = backend.run_model(model, feeds)
    assert found[2].shape == (found[1].item(), 2)
    if limit:
        check(model, feeds)


@pytest.mark.parametrize("go", ["true", "fed"])
def test_a_loop_whose_trip_count_is_an_input_is_native(go):
    text = COUNTED.replace("count = Constant <value_int = ROUNDS> ()", "").replace(
        "float[2] step)", "float[2] step, int64 count" + (", bool go)" if go == "fed" else ")")
    )
    model = parse(text.replace("go = Constant <value = bool {1}> ()", "") if go == "fed" else text)
    assert "scan" in ops_of(main_of(model))
    exe = compile_model(model)
    assert "host" not in exe.about
    x, step = np.array([1, 2], "f4"), np.array([0.5, -1], "f4")
    for count, choice in ((0, True), (1, True), (-4, True), (6, True), (6, False)):
        feeds = {"x": x, "step": step, "count": np.array(count), "go": np.array(choice)}
        y, rows = exe.run(feeds if go == "fed" else {k: v for k, v in feeds.items() if k != "go"}).values()
        rounds = max(count, 0) if choice or go == "true" else 0
        states = [x + r * step + r * (r - 1) / 2 for r in range(rounds + 1)]
        np.testing.assert_allclose(y, states[-1], rtol=1e-5)
        np.testing.assert_allclose(rows, np.float32(states[1:]).reshape(-1, 2) ** 2, rtol=1e-5)


EARLY = """g (float[n] x, int64 stop) => (float[n] y, float[?,n] o, int64[?] s) {
    most = Constant <value_int = MOST> ()
    go = Constant <value = bool {1}> ()
    y, o, s = Loop (most, go, x) <
        body: graph = b (int64 i, bool c, float[n] h) => (bool more, float[n] k, float[n] w, int64 t) {
            k = Add(h, x)
            w = Neg(h)
            t = Mul(i, i)
            more = Less(i, stop)
        }>
}"""


@pytest.mark.parametrize("most", [5, 2**63 - 1])
def test_a_loop_that_ends_before_its_limit(most):
    model = parse(EARLY.replace("MOST", str(most)))
    exe = compile_model(model)
    assert [entry["op"] for entry in exe.about["host"]] == ["growing_loop"]
    x = np.float32([1, -2, 3])
    for stop in (-1, 2, 40):
        rounds = min(max(stop, 0) + 1, most)
        y, o, s = exe.run({"x": x, "stop": np.array(stop)}).values()
        np.testing.assert_array_equal(y, x * (rounds + 1))
        np.testing.assert_array_equal(o, -x * np.arange(1, rounds + 1, dtype="f4")[:, None])
        np.testing.assert_array_equal(s, np.arange(rounds) ** 2)


def test_a_loop_with_unused_stacked_results_is_native():
    text = EARLY.replace("MOST", "9").replace(", float[?,n] o, int64[?] s)", ")")
    exe = compile_model(parse(text.replace("y, o, s = Loop", "y = Loop")))
    assert [entry["op"] for entry in exe.about.get("host", ())] == []
    np.testing.assert_array_equal(exe(np.float32([1, 2]), np.array(3)), [5, 10])


GROWING = """g (int64[1,n] start, int64 stop, float[8,8] w INPUTS) => (int64[1,m] tokens, float[?] scores) {
    go = Constant <value = bool {1}> ()
    tokens, scores = Loop (LIMIT, go, start) <
        body: graph = b (int64 i, bool c, int64[1,k] t) => (bool more, int64[1,l] t2, float s) {
            first = Constant <value = int64[1] {0}> ()
            both = Constant <value = int64[2] {0, 1}> ()
            rows = Gather(w, t)
            sums = ReduceSum <keepdims = 0> (rows, both)
            best = ArgMax <axis = 0, keepdims = 1> (sums)
            next = Unsqueeze(best, first)
            t2 = Concat <axis = 1> (t, next)
            s = ReduceMax <keepdims = 0> (sums)
            number = Squeeze(best)
            same = Equal(number, stop)
            more = Not(same)
        }>
}"""


def generated(start, w, stop, most):
    """GROWING in NumPy."""
    tokens, scores = list(start), []
    while len(scores) < most:
        sums = w[tokens].sum(0)
        tokens.append(int(sums.argmax()))
        scores.append(sums.max())
        if tokens[-1] == stop:
            break
    return [tokens], scores


@pytest.mark.parametrize("limited", [True, False])
def test_a_state_that_grows_until_a_data_dependent_end(limited):
    model = parse(
        GROWING.replace("INPUTS", ", int64 most").replace("LIMIT", "most")
        if limited
        else GROWING.replace("INPUTS", "").replace("LIMIT", "")
    )
    exe = compile_model(model)
    assert [entry["op"] for entry in exe.about["host"]] == ["loop"]
    assert exe.about["host"][0]["why"] == "its state changes its shape between iterations"
    rng = np.random.default_rng(0)
    for start, most in (([0], 9), ([2, 1], 9), ([6, 0, 6], 1), ([7], 0)):
        w = rng.normal(size=(8, 8)).astype("f4")
        stop = generated(start, w, -1, 5)[0][0][-1]
        feeds = {"start": np.array([start]), "stop": np.array(stop), "w": w}
        tokens, scores = exe.run({**feeds, "most": np.array(most)} if limited else feeds).values()
        expected = generated(start, w, stop, most if limited else 99)
        assert tokens.tolist() == expected[0]
        np.testing.assert_allclose(scores, expected[1], rtol=1e-5)


def test_a_state_of_an_invalid_shape_is_an_error():
    """Each iteration doubles the state and reshapes it to rows of 5."""
    text = """g (float[n] x, float limit) => (float[m] y) {
        go = Constant <value = bool {1}> ()
        y = Loop (, go, x) <
            body: graph = b (int64 i, bool c, float[k] h) => (bool more, float[l] h2) {
                both = Concat <axis = 0> (h, h)
                shape = Constant <value = int64[2] {5, 4}> ()
                rows = Reshape(both, shape)
                flat = Constant <value = int64[1] {-1}> ()
                sums = ReduceSum <keepdims = 0> (rows)
                h2 = Concat <axis = 0> (h, h)
                more = Less(sums, limit)
            }>
    }"""
    exe = compile_model(parse(text))
    assert exe(np.ones(10, "f4"), np.float32(0)).shape == (20,)
    for size, limit in ((10, 1000), (3, 0)):
        with pytest.raises(DlcError, match="do not fit"):
            exe(np.ones(size, "f4"), np.float32(limit))


def test_stacked_results_that_grow_are_unsupported():
    text = (
        GROWING.replace("INPUTS", "").replace("LIMIT", "").replace("s = ReduceMax <keepdims = 0> (sums)", "")
    )
    text = text.replace("float[?] scores", "int64[?,?,?] scores").replace("float s)", "int64[1,q] s)")
    with pytest.raises(UnsupportedError, match="stacked results change"):
        main_of(parse(text.replace("best = ArgMax", "s = Identity(t)  best = ArgMax")))


def test_loops_whose_state_grows_are_unrolled():
    text = """g (float[2] x) => (float[?] y) {
        count = Constant <value_int = 3> ()
        go = Constant <value = bool {1}> ()
        y = Loop (count, go, x) <body: graph = b (int64 i, bool g, float[?] h) => (bool more, float[?] k) {
            more = Identity(g)
            k = Concat <axis = 0> (h, h)
        }>
    }"""
    main = main_of(parse(text))
    assert str(main.body.type) == "float32[16]"
    check(parse(text), {"x": np.array([1, 2], "f4")})


def test_loops_inside_branches_inside_loops():
    text = """g (float[2] x, bool c) => (float[2] y) {
        count = Constant <value_int = 2> ()
        go = Constant <value = bool {1}> ()
        y = Loop (count, go, x) <body: graph = b (int64 i, bool g, float[2] h) => (bool more, float[2] k) {
            more = Identity(g)
            k = If (c) <
                then_branch: graph = t () => (float[2] p) {
                    three = Constant <value_int = 3> ()
                    p = Loop (three, go, h) <
                        body: graph = d (int64 j, bool g2, float[2] a) => (bool m2, float[2] e) {
                            m2 = Identity(g2)
                            e = Add(a, x)
                        }>
                },
                else_branch: graph = f () => (float[2] p) { p = Neg(h) }>
        }>
    }"""
    for choice in (True, False):
        check(parse(text), {"x": np.array([1, 2], "f4"), "c": np.array(choice)})


@pytest.mark.parametrize("attributes", ["", ", scan_input_directions = [1], scan_output_directions = [1]"])
def test_scans(attributes):
    text = f"""g (float[2] start, float[n,2] xs, float[2] w) => (float[2] last, float[n,2] sums) {{
        last, sums = Scan <num_scan_inputs = 1{attributes},
            body: graph = b (float[2] h, float[2] x) => (float[2] k, float[2] o) {{
                p = Mul(x, w)
                k = Add(h, p)
                o = Identity(k)
            }}> (start, xs)
    }}"""
    rng = np.random.default_rng(0)
    xs, w = rng.normal(size=(4, 2)).astype("f4"), np.array([1, 2], "f4")
    given = {"start": np.zeros(2, "f4"), "xs": xs, "w": w}
    found = run(parse(text), given)
    order = slice(None, None, -1) if attributes else slice(None)
    sums = np.cumsum((given["xs"] * given["w"])[order], 0)
    np.testing.assert_allclose(found[0], sums[-1], rtol=1e-5)
    np.testing.assert_allclose(found[1], sums[order], rtol=1e-5)


def test_sequences_are_resolved_by_the_importer():
    text = """g (float[6,2] x) => (float[?,2] y, int64 n) {
        parts = SplitToSequence <axis = 0> (x, two)
        two = Constant <value_int = 2> ()
        n = SequenceLength(parts)
        last = Constant <value_int = -1> ()
        tail = SequenceAt(parts, last)
        more = SequenceInsert(parts, tail)
        fewer = SequenceErase(more, last0)
        last0 = Constant <value_int = 0> ()
        y = ConcatFromSequence <axis = 0> (fewer)
    }"""
    x = np.arange(12, dtype="f4").reshape(6, 2)
    y, n = run(parse(text), {"x": x})
    assert n == 3
    np.testing.assert_array_equal(y, np.concatenate([x[2:4], x[4:6], x[4:6]]))
