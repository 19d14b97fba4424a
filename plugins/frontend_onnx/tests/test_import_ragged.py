"""Sequences of data-dependent length: insertion, access, concatenation; one compilation for all lengths."""

from __future__ import annotations

import numpy as np
import pytest
from dlc_frontend_onnx.specialized import CallableModel
from dlc_frontend_onnx.testing.compare import parse

import dlc_core as dlc
from dlc_core.diag import UsageError

TARGETS = ["llvm", "reference"]


def one(value):
    return np.array(value, np.int64)


GROWING = """s0 = SequenceEmpty <dtype = 1> ()
    s = Loop(n, , s0) <body = b (int64 i, bool c, seq(float[]) v) => (bool going, seq(float[]) w) {
        going = Identity(c) more = Add(i, one) k = Reshape(more, flat) piece = Slice(x, zero, k)
        w = SequenceInsert(v, piece)
    }>"""
HEAD = "<int64 one = {1}, int64[1] flat = {-1}, int64[1] zero = {0}>"


def pieces(x, n):
    return [x[: i + 1] for i in range(n)]


@pytest.mark.parametrize("target", TARGETS)
def test_a_loop_appends_a_data_dependent_number_of_elements(target):
    model = parse(f"""g (int64 n, float[5, 2] x, int64 p) => (float[q, 2] joined, int64 many, float[t, 2] at)
    {HEAD} {{
        {GROWING} joined = ConcatFromSequence <axis = 0> (s) many = SequenceLength(s) at = SequenceAt(s, p)
    }}""")
    exe = dlc.compile(model, target)
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    for rounds, position in ((3, 1), (1, 0), (5, -1), (4, -4)):
        found = exe.run({"n": one(rounds), "x": x, "p": one(position)})
        expected = pieces(x, rounds)
        np.testing.assert_array_equal(found["joined"], np.concatenate(expected))
        np.testing.assert_array_equal(found["at"], expected[position])
        assert found["many"] == rounds
    for rounds, position in ((3, 3), (3, -4), (0, 0)):
        with pytest.raises(UsageError, match="do not fit the model"):
            exe.run({"n": one(rounds), "x": x, "p": one(position)})


def test_an_output_sequence_is_its_data_and_shapes():
    model = parse(f"g (int64 n, float[5, 2] x) => (seq(float[]) s) {HEAD} {{ {GROWING} }}")
    exe = dlc.compile(model)
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    called = CallableModel(model)
    for rounds in (3, 0, 1):
        found = exe.run({"n": one(rounds), "x": x})
        expected = pieces(x, rounds)
        assert found["s[shapes]"].tolist() == [list(piece.shape) for piece in expected]
        assert found["s[data]"].tolist() == [value for piece in expected for value in piece.reshape(-1)]
        (made,) = called({"n": one(rounds), "x": x})
        assert [piece.tolist() for piece in made] == [piece.tolist() for piece in expected]
    assert called.whole is not None


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("axis", "stacked"), [(0, 0), (1, 0), (2, 0), (-1, 0), (0, 1), (1, 1), (3, 1), (-1, 1)]
)
def test_elements_are_concatenated_along_any_axis(axis, stacked, target):
    model = parse(f"""g (int64 n, float[2, 3, 4] x) => (float[] y) <int64 one = {{1}}, float[1] k = {{1}}> {{
        s0 = SequenceConstruct(x)
        s = Loop(n, , s0) <body = b (int64 i, bool c, seq(float[]) v) => (bool going, seq(float[]) w) {{
            going = Identity(c) f = CastLike(i, k) z = Add(x, f) w = SequenceInsert(v, z)
        }}>
        y = ConcatFromSequence <axis = {axis}, new_axis = {stacked}> (s)
    }}""")
    exe = dlc.compile(model, target)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for rounds in (0, 1, 3):
        items = [x, *(x + i for i in range(rounds))]
        join = np.stack if stacked else np.concatenate
        np.testing.assert_array_equal(exe(one(rounds), x), join(items, axis))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("axis", [0, 1])
def test_split_to_sequence_with_size_as_input(axis, target):
    model = parse(f"""g (float[h, w] x, int64 k, int64 p) => (float[a, b] y, float[c, d] z, int64 m) {{
        s = SplitToSequence <axis = {axis}> (x, k) y = SequenceAt(s, p)
        z = ConcatFromSequence <axis = {axis}> (s) m = SequenceLength(s)
    }}""")
    exe = dlc.compile(model, target)
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    for each, position in ((2, 1), (3, -1), (1, 0), (9, 0), (2**40, 0)):
        expected = [
            np.take(x, range(b, min(b + each, x.shape[axis])), axis) for b in range(0, x.shape[axis], each)
        ]
        y, z, many = exe(x, one(each), one(position))
        np.testing.assert_array_equal(y, expected[position])
        np.testing.assert_array_equal(z, x)
        assert many == len(expected)
    for each in (0, -1):
        with pytest.raises(UsageError, match="not positive"):
            exe(x, one(each), one(0))


@pytest.mark.parametrize("target", TARGETS)
def test_positions_as_inputs(target):
    model = parse("""g (float[2] a, float[3] b, float[1] c, int64 p, int64 q) => (float[n] y, float[m] z) {
        s = SequenceConstruct(a, b) t = SequenceInsert(s, c, p) u = SequenceErase(t, q)
        y = ConcatFromSequence <axis = 0> (t) z = ConcatFromSequence <axis = 0> (u)
    }""")
    exe = dlc.compile(model, target)
    a, b, c = np.float32([1, 2]), np.float32([3, 4, 5]), np.float32([6])
    for p, q in ((0, 0), (1, 2), (2, -1), (-1, -3), (-2, 1)):
        items = [a, b]
        items.insert(p, c)
        y, z = exe(a, b, c, one(p), one(q))
        np.testing.assert_array_equal(y, np.concatenate(items))
        del items[q]
        np.testing.assert_array_equal(z, np.concatenate(items))
    for p, q in ((3, 0), (-3, 0), (0, 3), (0, -4)):
        with pytest.raises(UsageError, match="not in the sequence"):
            exe(a, b, c, one(p), one(q))


@pytest.mark.parametrize("target", TARGETS)
def test_branches_return_sequences_of_any_length(target):
    model = parse("""g (bool c, float[2] a, float[3] b) => (float[n] y) {
        s = If(c) <then_branch = t () => (seq(float[]) u) { u = SequenceConstruct(a, b, a) },
                   else_branch = e () => (seq(float[]) v) { v = SequenceConstruct(b) }>
        y = ConcatFromSequence <axis = 0> (s)
    }""")
    exe = dlc.compile(model, target)
    a, b = np.float32([1, 2]), np.float32([3, 4, 5])
    assert exe(np.array(True), a, b).tolist() == [1, 2, 3, 4, 5, 1, 2]
    assert exe(np.array(False), a, b).tolist() == [3, 4, 5]
