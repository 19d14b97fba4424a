"""Data-dependent sizes in graphs and bodies: invalid ones are refused with the node's name."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_frontend_onnx.testing.compare import parse
from onnx.reference import ReferenceEvaluator

import dlc_core as dlc
from dlc_core.diag import RuntimeFailure, UsageError

TARGETS = ["llvm", "c", "reference"]


@pytest.fixture(autouse=True)
def guarded(monkeypatch):
    """Surround each value with foreign memory, so that native code that reads beyond it is detected."""
    monkeypatch.setenv("DLC_GUARD", "end")


def floats(*shape):
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def ints(*values):
    return np.array(values, np.int64)


MASK = np.float32([1, 0, 1, 1])
KNOWN = """<bool yes = {1}, int64[1] flat = {-1}, int64[1] one = {1}, int64[1] most = {99},
            int64[2] ones = {1, 1}, int64[2] rows = {-1, 3}, float f0 = {0}, float[3] three = {5, 6, 7}>"""
PLACES = "q = NonZero(m) q1 = Reshape(q, flat) p = Cast<to = 1>(q1)"
"""As many floats as the mask has nonzero elements."""


def loop(body):
    return f"""(int64 n, float[j] m, float[k] v) => (float z) {KNOWN} {{
        z = Loop(n, yes, f0) <body = b (int64 i, bool c, float s) => (bool going, float w) {{
            going = Identity(c) {body} w = Add(s, r)
        }}>
    }}"""


def branch(body):
    return f"""(bool c, float[j] m, float[k] v) => (float z) {KNOWN} {{
        z = If(c) <then_branch = t () => (float r) {{ {body} }},
                   else_branch = e () => (float o) {{ o = Identity(f0) }}>
    }}"""


def vectors(sizes, **others):
    return [{**others, "m": MASK, "v": floats(size)} for size in sizes]


# A graph, the node that checks a size, valid feeds and invalid feeds.
CASES = {
    "data in a loop": (
        loop(f"{PLACES} r = MatMul(p, v)"), "r (MatMul)",
        vectors([3], n=np.int64(2)) + vectors([3, 2], n=np.int64(0)),
        vectors([2, 4, 1, 0, 9], n=np.int64(2)),
    ),
    "data in a loop and a constant": (
        loop(f"{PLACES} t = Add(p, three) r = ReduceSum<keepdims = 0>(t)"), "t (Add)",
        vectors([1], n=np.int64(2)), [{"n": np.int64(2), "m": floats(4), "v": floats(1)}],
    ),
    "the round's number": (
        loop("i1 = Reshape(i, one) i2 = Add(i1, one) p = ConstantOfShape<value = float[1] {2}>(i2)"
             "r = MatMul(p, v)"), "r (MatMul)",
        vectors([1], n=np.int64(1)), vectors([2, 0, 9], n=np.int64(1)) + vectors([1, 2], n=np.int64(2)),
    ),
    "reshapes by the round's number": (
        loop("i1 = Reshape(i, one) k2 = Concat<axis = 0>(one, i1) k3 = Add(k2, ones) t = Reshape(m, k3)"
             "r = ReduceSum<keepdims = 0>(t)"), "Reshape 't'",
        [{"n": np.int64(1), "m": floats(2), "v": floats(1)}, {"n": np.int64(0), "m": MASK, "v": floats(1)}],
        [{"n": np.int64(2), "m": floats(2), "v": floats(1)}, {"n": np.int64(1), "m": MASK, "v": floats(1)}],
    ),
    "expands by the round's number": (
        loop("i1 = Reshape(i, one) i2 = Add(i1, one) i3 = Add(i2, one) t = Expand(v, i3)"
             "r = ReduceSum<keepdims = 0>(t)"), "Expand 't'",
        vectors([2, 1], n=np.int64(1)) + vectors([1], n=np.int64(3)),
        vectors([3], n=np.int64(1)) + vectors([2], n=np.int64(2)),
    ),
    "the largest as many as rounds": (
        loop("i1 = Reshape(i, one) i2 = Add(i1, one) t, chosen = TopK(v, i2) r = ReduceSum<keepdims = 0>(t)"),
        "(TopK)", vectors([2, 5], n=np.int64(2)), vectors([1, 0], n=np.int64(2)),
    ),
    "a loop in a loop": (
        f"""(int64 n, float[j] m, float[k] v) => (float z) {KNOWN} {{
            z = Loop(n, yes, f0) <body = b (int64 i, bool c, float s) => (bool going, float w) {{
                going = Identity(c)
                w = Loop(n, yes, s) <body = b2 (int64 i2, bool c2, float s2) => (bool going2, float w2) {{
                    going2 = Identity(c2) both = Add(i, i2) k1 = Reshape(both, one) k2 = Add(k1, one)
                    t, chosen = TopK(v, k2) r = ReduceSum<keepdims = 0>(t) w2 = Add(s2, r)
                }}>
            }}>
        }}""", "(TopK)",
        vectors([3, 4], n=np.int64(2)) + vectors([3], n=np.int64(0)), vectors([2, 1], n=np.int64(2)),
    ),
    "data in a branch": (
        branch(f"{PLACES} r = MatMul(p, v)"), "r (MatMul)",
        vectors([3], c=np.array(True)) + vectors([3, 4, 0], c=np.array(False)),
        vectors([2, 4, 0], c=np.array(True)),
    ),
    "dims that only formulas in a branch show": (
        f"""(bool c, float[j] m, float[k] v) => (float z) {KNOWN} {{
            s = Slice(m, one, most)
            z = If(c) <then_branch = t () => (float r) {{ r = MatMul(s, v) }},
                       else_branch = e () => (float o) {{ o = Identity(f0) }}>
        }}""", "r (MatMul)",
        vectors([3], c=np.array(True)) + vectors([4, 0], c=np.array(False)),
        vectors([2, 4, 0], c=np.array(True)),
    ),
    "data in a scan": (
        f"""(float[n, j] m, float[k] v) => (float z) {KNOWN} {{
            z = Scan<num_scan_inputs = 1, body = b (float s, float[j] x) => (float w) {{
                q = NonZero(x) q1 = Reshape(q, flat) p = Cast<to = 1>(q1) r = MatMul(p, v) w = Add(s, r)
            }}>(f0, m)
        }}""", "r (MatMul)",
        [{"m": np.stack([MASK, MASK]), "v": floats(3)}],
        [{"m": np.stack([MASK, floats(4)]), "v": floats(3)}, {"m": np.stack([MASK, MASK]), "v": floats(4)}],
    ),
    "a fed size and one of data": (
        f"""(float[j] m, int64[1] k) => (float z) {KNOWN}
        {{ {PLACES} v = ConstantOfShape<value = float[1] {{2}}>(k) z = MatMul(p, v) }}""", "z (MatMul)",
        [{"m": MASK, "k": ints(3)}], [{"m": MASK, "k": ints(size)} for size in (2, 4, 0, 100)],
    ),
    "two sizes of data": (
        f"""(float[j] m, float[k] v) => (float z) {KNOWN} {{
            {PLACES} q2 = NonZero(v) q3 = Reshape(q2, flat) p2 = Cast<to = 1>(q3) z = MatMul(p, p2)
        }}""", "z (MatMul)", vectors([3]), vectors([2, 4, 0, 100]),
    ),
}  # fmt: skip


def named(node):
    """How a message names a node: `y (MatMul)` stands for its name and its operator."""
    return node if "'" in node or node.startswith("(") else f"'{node.replace(' (', chr(39) + ' (')}"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_data_dependent_sizes_are_checked_where_they_are_computed(case, target, tmp_path):
    text, node, right, wrong = CASES[case]
    model = parse(f"g {text}")
    made = dlc.compile(model, target)
    made.save(tmp_path / "m.dlc")
    for exe in (made, dlc.open(tmp_path / "m.dlc")):
        for feeds in right:
            expected = ReferenceEvaluator(model).run(None, feeds)[0]
            np.testing.assert_allclose(exe.run(feeds)["z"], expected, rtol=1e-6)
        for feeds in wrong:
            with pytest.raises(UsageError, match="do not fit the model") as caught:
                exe.run(feeds)
            assert named(node) in str(caught.value)


UNREAD = {
    "a product": (
        "(float[a, b] x, float[c, d] y) => (int64[2] z) { t = MatMul(x, y) z = Shape(t) }",
        {"x": floats(2, 3), "y": floats(3, 2)},
        [{"x": floats(2, 4), "y": floats(3, 2)}, {"x": floats(2, 3), "y": floats(2, 2)}],
    ),
    "a sum with a constant": (
        "(float[a] x) => (int64[1] z) <float[3] c = {1, 2, 3}> { t = Add(x, c) z = Shape(t) }",
        {"x": floats(3)}, [{"x": floats(2)}, {"x": floats(0)}],
    ),
    "what a size is made of": (
        """(float[a, b] x, float[c, d] y) => (float[q, r] z)
        { t = Concat<axis = 0>(x, y) s = Shape(t) z = ConstantOfShape(s) }""",
        {"x": floats(2, 2), "y": floats(3, 2)}, [{"x": floats(2, 3), "y": floats(3, 2)}],
    ),
    "data": (
        f"""(float[j] m, float[k] v) => (int64[1] z) {KNOWN}
        {{ {PLACES} u = Reshape(p, rows) t = MatMul(u, v) z = Shape(t) }}""",
        {"m": MASK, "v": floats(3)}, [{"m": MASK, "v": floats(4)}],
    ),
    "the body of a loop": (
        f"""(int64 n, float[a] x, float[b, c] y) => (float z) {KNOWN} {{
            z = Loop(n, yes, f0) <body = l (int64 i, bool g, float s) => (bool going, float w) {{
                going = Identity(g) t = MatMul(x, y) u = Shape(t) p = Cast<to = 1>(u)
                r = ReduceSum<keepdims = 0>(p) w = Add(s, r)
            }}>
        }}""",
        {"n": np.int64(2), "x": floats(3), "y": floats(3, 2)},
        [{"n": np.int64(2), "x": floats(size), "y": floats(3, 2)} for size in (2, 4)],
    ),
    "data of the state of a loop": (
        f"""(int64 n, float[j] m, float[k] v) => (float[j] z) {KNOWN} {{
            z = Loop(n, yes, m) <body = l (int64 i, bool g, float[j] s) => (bool going, float[j] w) {{
                going = Identity(g) q = NonZero(s) q1 = Reshape(q, flat) p = Cast<to = 1>(q1)
                t = MatMul(p, v) u = Reshape(t, flat) h = Shape(u) h1 = Cast<to = 1>(h) w = Mul(s, h1)
            }}>
        }}""",
        {"n": np.int64(2), "m": MASK, "v": floats(3)},
        [{"n": np.int64(2), "m": MASK, "v": floats(size)} for size in (2, 4)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", UNREAD)
def test_nodes_used_only_for_their_shapes_are_checked(case, target):
    text, right, wrong = UNREAD[case]
    model = parse(f"g {text}")
    exe = dlc.compile(model, target)
    expected = ReferenceEvaluator(model).run(None, right)[0]
    np.testing.assert_array_equal(exe.run(right)["z"], expected)
    for feeds in wrong:
        with pytest.raises(UsageError, match=r"do not fit the model: node 't'"):
            exe.run(feeds)


@pytest.mark.parametrize("target", TARGETS)
def test_branches_that_are_not_taken_are_not_checked(target):
    body = f"{PLACES} t = MatMul(p, v) u = Reshape(t, flat) h = Shape(u) h1 = Cast<to = 1>(h)"
    exe = dlc.compile(parse(f"g {branch(f'{body} r = ReduceSum<keepdims = 0>(h1)')}"), target)
    assert exe(np.array(True), MASK, floats(3)) == 1
    assert exe(np.array(False), MASK, floats(4)) == 0
    with pytest.raises(UsageError, match=r"node 't' \(MatMul\)"):
        exe(np.array(True), MASK, floats(4))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_updates_longer_than_the_cache(mode, target):
    model = parse(
        f"""g (float[b, s, 4] x, float[b, t, 4] u, int64[b] i) => (float[b, s, 4] y)
        {{ y = TensorScatter<mode = "{mode}">(x, u, i) }}""",
        24,
    )
    exe = dlc.compile(model, target)
    x = floats(1, 6, 4)
    for size in (0, 2, 6):
        feeds = {"x": x, "u": -floats(1, size, 4), "i": ints(0)}
        np.testing.assert_array_equal(exe.run(feeds)["y"], ReferenceEvaluator(model).run(None, feeds)[0])
    for at in (0, 3):
        with pytest.raises(UsageError, match=r"node 'y' \(TensorScatter\): .* is 6, at least 7 "):
            exe(x, floats(1, 7, 4), ints(at))
    if mode == "linear":  # only the data shows that it does not fit
        with pytest.raises(RuntimeFailure, match="'y'"):
            exe(x, floats(1, 2, 4), ints(5))


def test_errors_of_references_name_the_node():
    """Signatures do not check indices."""
    model = parse("g (float[8, 5] x, int64[k] i) => (float[k, 5] y) { y = Gather(x, i) }")
    with pytest.raises(RuntimeFailure, match="index 1 to 9 of a dim of 8") as caught:
        dlc.compile(model, "reference")(floats(8, 5), ints(1, 9))
    assert "'y' (Gather)" in str(caught.value)
