"""`shapes=`: dims that are pinned, bounded and named, from a model to its calls."""

import numpy as np
import onnx.parser
import pytest
from dlc_frontend_onnx import InferenceSession, SessionOptions

import dlc_core as dlc
from dlc_core.diag import UnsupportedError, UsageError
from dlc_core.ir.bounds import Bounds
from dlc_core.script import parse, to_script

ROWS = """<ir_version: 10, opset_import: ["" : 20]>
g (float[batch, seq, 4] x, float[seq, 4] bias) => (float[batch, seq, 4] y) { s = Add(x, bias) y = Relu(s) }"""
PAST = """<ir_version: 10, opset_import: ["" : 20]>
g (float[past, 4] a, float[new, 4] b, float[both, 4] c) => (float[total, 4] y) {
    j = Concat<axis=0>(a, b) y = Add(j, c)
}"""
OPEN = """<ir_version: 10, opset_import: ["" : 20]>
g (float[?, 4] x, float[?, 4] z) => (float[?, 4] y) { y = Add(x, z) }"""
FED = """<ir_version: 10, opset_import: ["" : 20]>
g (float[n] x, int64[2] shape) => (float[rows, columns] y) { y = Reshape(x, shape) }"""


OWN = ["batch, seq, 4", "seq, 4"]


def model(text):
    made = onnx.parser.parse_model(text)
    for value in made.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == "both":
                dim.dim_param = "past + new"
    return made


def loaded(text, shapes):
    return dlc.load(model(text), shapes=shapes)


def bounds_of(module):
    return {v.name: v.bounds for p in module["main"].params for v in p.type.symbols()}


def ones(*shape):
    return np.ones(shape, np.float32)


@pytest.mark.parametrize(
    ("text", "shapes", "types", "bounds"),
    [
        (ROWS, {"seq": (1, 512)}, OWN, {"batch": None, "seq": Bounds(1, 512)}),
        (ROWS, {"seq": (2, None), "batch": (None, 9)}, OWN, {"batch": Bounds(0, 9), "seq": Bounds(2)}),
        (ROWS, {"seq": (None, None)}, OWN, {"batch": None, "seq": None}),
        (ROWS, {"seq": (7, 7), "batch": (np.int64(2), 3)}, ["batch, 7, 4", "7, 4"], {"batch": Bounds(2, 3)}),
        (ROWS, {"x": (2, None, 4), "bias": ((1, 64), 4)}, ["2, seq, 4", "seq, 4"], {"seq": Bounds(1, 64)}),
        (ROWS, {"x": ("n", "n", 4), "n": (1, 5)}, ["n, n, 4", "n, 4"], {"n": Bounds(1, 5)}),
        (ROWS, {"x": ("n", None, 4), "bias": ("n", 4)}, ["n, n, 4", "n, 4"], {"n": None}),
        (ROWS, {"x": ("seq", None, 4), "batch": 3}, ["3, 3, 4", "3, 4"], {}),
        (ROWS, {"seq": (1, 9), "x": (None, (4, 20), None)}, OWN, {"batch": None, "seq": Bounds(4, 9)}),
        (ROWS, {"seq": (1, 9), "x": (None, 4, None)}, ["batch, 4, 4", "4, 4"], {"batch": None}),
        (ROWS, {"x": (None, None, (1, 4))}, OWN, {"batch": None, "seq": None}),
        (PAST, {"past": (1, 8), "new": 1}, ["past, 4", "1, 4", "past + 1, 4"], {"past": Bounds(1, 8)}),
        (OPEN, {"x": ("n", 4), "z": ("n", 4)}, ["n, 4", "n, 4"], {"n": None}),
        (OPEN, {"x_0": (1, 5), "z_0": 2}, ["x_0, 4", "2, 4"], {"x_0": Bounds(1, 5)}),
    ],
)  # fmt: skip
def test_dims_are_pinned_bounded_and_named(text, shapes, types, bounds):
    module = loaded(text, shapes)
    assert [f"{', '.join(map(str, p.type.shape))}" for p in module["main"].params] == types
    assert bounds_of(module) == bounds
    made, arrays = to_script(module)
    assert bounds_of(parse(made, arrays, ops=dlc.ops())) == bounds


@pytest.mark.parametrize(
    ("text", "shapes", "match"),
    [
        (ROWS, {"seq": (9, 1)}, r"\(9, 1\), which nothing is within"),
        (ROWS, {"seq": (-1, 4)}, "-1 is no size"),
        (ROWS, {"seq": (1, 1.5)}, "1.5 is no size"),
        (ROWS, {"seq": (1, True)}, "True is no size"),
        (ROWS, {"seq": (1, 1 << 70)}, "is no size"),
        (ROWS, {"seq": (0, 0)}, "at most 0"),
        (ROWS, {"seq": (None, 0)}, "at most 0"),
        (ROWS, {"seq": (1, 2, 3)}, "no shape and no bounds"),
        (ROWS, {"seq": ()}, "no shape and no bounds"),
        (ROWS, {"seq": "4"}, "'4' is no size of dim 'seq'"),
        (ROWS, {"length": (1, 4)}, r"pins no input and no dim(.|\n)*inputs: x, bias; dims: batch, seq"),
        (ROWS, {"x": (None, None, (5, 9))}, "dim 2 of input 'x' is to be in 5..9, and the model says 4"),
        (ROWS, {"x": ((1, 9), 3)}, "it has 3 dims, not 2"),
        (ROWS, {"x": (None, (1, 9), None), "bias": ((10, 20), None)}, "'seq' is to be in 10..20 and in 1..9"),
        (ROWS, {"x": (None, 40, None), "seq": (1, 9)}, "'seq' is to be in 1..9, and it is 40"),
        (ROWS, {"x": ("n", None, "n"), "n": (5, 9)}, "'n' is to be in 5..9, and it is 4"),
        (ROWS, {"x": ("a b", None, None)}, "no name for dim 0 of input 'x'"),
        (ROWS, {"x": (None, None, "n"), "n": 5}, "'n' is pinned to 5 and to 4"),
        (PAST, {"past + new": (1, 9)}, r"made of other dims(.|\n)*past, new"),
        (PAST, {"c": ("n", 4)}, "made of other dims"),
        (FED, {"x": (1, 9)}, r"bounds of its dim are shapes=\{'x': \(\(1, 9\),\)\}"),
    ],
)  # fmt: skip
def test_contradicting_bounds_are_refused(text, shapes, match):
    with pytest.raises(UsageError, match=match):
        loaded(text, shapes)


@pytest.mark.parametrize("target", ["llvm", "reference", "c"])
def test_calls_outside_of_the_bounds_are_refused_before_anything_runs(target, tmp_path):
    made = dlc.compile(model(ROWS), target, shapes={"seq": (2, 6), "x": ((1, 3), None, 4)})
    made.save(tmp_path / "m.dlc")
    for exe in (made, dlc.open(tmp_path / "m.dlc")):
        assert "batch in 1..3, seq in 2..6" in str(exe.signature)
        for batch, seq in ((1, 2), (3, 6)):
            assert exe(ones(batch, seq, 4), ones(seq, 4)).shape == (batch, seq, 4)
        for batch, seq, match in (
            (
                1,
                7,
                r"seq is 7, and the model is compiled for seq in 2..6(.|\n)*input 'x'(.|\n)*'seq': \(2, 7\)",
            ),
            (1, 1, "seq is 1"),
            (4, 3, r"batch is 4(.|\n)*dim 0 is batch"),
            (0, 3, "batch is 0"),
        ):
            feeds = ones(batch, seq, 4), ones(seq, 4)
            with pytest.raises(UsageError, match=match):
                exe(*feeds)
            with pytest.raises(UsageError, match=match):
                exe.bind(feeds)


def test_host_computed_dims_are_checked():
    exe = dlc.compile(model(FED), shapes={"rows": (1, 4), "n": (1, 20)})
    shape = np.array([2, 6])
    assert exe(ones(12), shape).shape == (2, 6)
    with pytest.raises(UsageError, match=r"rows is 6, and(.|\n)*1..4(.|\n)*elements of the inputs"):
        exe(ones(12), np.array([6, 2]))
    with pytest.raises(UsageError, match="n is 24"):
        exe(ones(24), np.array([4, 6]))
    call = exe.bind([ones(12), shape])
    shape[:] = 6, 2
    with pytest.raises(UsageError, match="have changed"):
        call()


def test_data_dependent_dims_are_checked_at_run_time():
    text = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[n, 4] x) => (float[q, 4] y) <int64[1] a = {-1}, int64[1] zero = {0}>
        { m = ReduceMax<keepdims=0>(x) i = Cast<to=7>(m) r = Reshape(i, a) y = Slice(x, zero, r, zero) }"""
    exe = dlc.compile(model(text), shapes={"n": (1, 10), "q": (1, 3)})
    assert exe.memory.maximum.results == 3 * 4 * 4
    assert exe(3 * ones(5, 4)).shape == (3, 4)
    with pytest.raises(UsageError, match=r"q is 4, and the model is compiled for q in 1\.\.3(.|\n)*node 'y'"):
        exe(4 * ones(5, 4))
    with pytest.raises(UsageError, match=r"'q' is to be in 12\.\.30 and in 0\.\.10"):
        loaded(text, {"n": (5, 10), "q": (12, 30)})


def test_the_error_for_sizes_of_unknown_length_names_the_dim_to_pin():
    text = FED.replace("int64[2]", "int64[r]")
    with pytest.raises(UnsupportedError, match=r"length of input 'shape': shapes=\{'r': 2\}(.|\n)*") as found:
        loaded(text, {"r": (1, 3)})
    assert "node 'y' (Reshape)" in str(found.value)
    assert str(loaded(text, {"r": 2})["main"].params[1].type) == "int64[2]"


def test_sessions_accept_bounds():
    made = model(ROWS).SerializeToString()
    options = SessionOptions()
    options.add_free_dimension_override_by_name("batch", (1, 2))
    session = InferenceSession(made, options, shapes={"seq": (1, 4)})
    assert session.run(None, {"x": ones(2, 4, 4), "bias": ones(4, 4)})[0].shape == (2, 4, 4)
    for batch, seq, match in ((3, 4, "batch is 3"), (2, 5, "seq is 5")):
        with pytest.raises(UsageError, match=match):
            session.run(None, {"x": ones(batch, seq, 4), "bias": ones(seq, 4)})


def test_shapes_of_specialized_models_are_checked():
    text = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[n, m] x, int64[r] k) => (float[a, b] y) { y = Reshape(x, k) }"""
    session = InferenceSession(model(text).SerializeToString(), shapes={"x": ("rows", None), "rows": (1, 4)})
    assert session.run(None, {"x": ones(4, 6), "k": np.array([8, 3])})[0].shape == (8, 3)
    with pytest.raises(UsageError, match="rows"):
        session.run(None, {"x": ones(5, 6), "k": np.array([10, 3])})


def test_bounds_are_part_of_the_cache_key(tmp_path, monkeypatch):
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path / "cache"))
    onnx.save(model(ROWS), tmp_path / "m.onnx")
    seen = []
    for shapes in ({"seq": (1, 8)}, {"seq": (1, 9)}, {"seq": (1, 8)}, None):
        exe = dlc.compile(tmp_path / "m.onnx", shapes=shapes, cache=True)
        seen.append((exe.report["cache"], str(exe.signature).count("1..9")))
    assert seen == [("stored", 0), ("stored", 1), ("hit", 0), ("stored", 0)]
    assert "seq in 1..8" in str(
        dlc.compile(tmp_path / "m.onnx", shapes={"seq": (1, 8)}, cache=True).signature
    )


def test_kernels_use_bounds():
    free = dlc.compile(model(ROWS)).source("tir")
    few = dlc.compile(model(ROWS), shapes={"batch": (1, 4), "seq": (1, 7)}).source("tir")
    assert "range(seq // 4)" in free
    assert "range(seq // 4)" in few
    assert "i1_i2_fused_0 * 16" in free
    # There is at most one iteration.
    assert "i1_i2_fused_0 * 16" not in few
    assert "T.parallel(batch)" in few


FAMILIES = {
    "matmul": "g (float[n, m] x, float[m, k] w) => (float[n, k] y) { y = MatMul(x, w) }",
    "batched": """g (float[n, 3, m] x, float[n, m, k] w) => (float[n, 3, k] y)
        { p = MatMul(x, w) y = Softmax(p) }""",
    "rows": "g (float[n, m] x, float[m] z) => (float[n, m] y) { y = LayerNormalization<axis=-1>(x, z) }",
    "conv": """g (float[n, 3, m, k] x) => (float[n, 5, m, k] y) <float[5, 3, 3, 3] w = {WEIGHTS}>
        { c = Conv<pads=[1, 1, 1, 1]>(x, w) y = Relu(c) }""",
    "joined": """g (float[n, m] x, float[k, m] z) => (float[q, m] y)
        { j = Concat<axis=0>(x, z) t = Transpose(j) s = ReduceSum<keepdims=1>(t) y = Mul(j, s) }""",
    "cumulative": "g (float[n, m] x) => (float[n, m] y) <int64 a = {1}> { y = CumSum(x, a) }",
    "places": "g (float[n, m] x) => (int64[2, q] y) { r = Relu(x) y = NonZero(r) }",
    "shaped": """g (float[n, m] x) => (float[q] y) <int64[1] a = {-1}, int64[1] b = {2}, int64[1] c = {0}>
        { t = Transpose(x) f = Reshape(t, a) y = Slice(f, c, b, c) }""",
}  # fmt: skip


def family(name):
    text = FAMILIES[name].replace("WEIGHTS", ", ".join(str((k * 7 % 11 - 5) / 4) for k in range(135)))
    return model(f'<ir_version: 10, opset_import: ["" : 20]>\n{text}')


@pytest.mark.parametrize("name", FAMILIES)
def test_bounds_do_not_change_results(name):
    rng = np.random.default_rng(5)
    graph = family(name)
    plain = dlc.compile(graph, "reference")
    dims = sorted({v.name for value in plain.inputs for v in value.type.symbols()})
    for high in (3, 17, 64):
        bounds = {dim: (int(rng.integers(1, 3)), int(rng.integers(2, high + 1))) for dim in dims}
        exe = dlc.compile(graph, shapes=bounds)
        for k in range(4):
            ends = [(low, high) if k else (high, high) for low, high in bounds.values()]
            sizes = {dim: int(rng.integers(a, b + 1)) for dim, (a, b) in zip(dims, ends, strict=True)}
            feeds = [
                rng.integers(-3, 4, [sizes.get(str(d), d) for d in value.shape]).astype(np.float32)
                for value in plain.inputs
            ]
            np.testing.assert_allclose(exe(*feeds), plain(*feeds), rtol=2e-5, atol=1e-5)


def test_an_exported_library_checks_bounds(tmp_path):
    exe = dlc.compile(model(ROWS), "llvm", shapes={"seq": (2, 6), "batch": 2})
    exe.export(tmp_path / "rows.so")
    header = (tmp_path / "rows.h").read_text()
    assert "#define ROWS_DIM_SEQ_LEAST 2" in header
    assert "#define ROWS_DIM_SEQ_MOST 6" in header
    library = dlc.load_library(tmp_path / "rows.so")
    assert library(ones(2, 6, 4), ones(6, 4)).shape == (2, 6, 4)
    with pytest.raises(UsageError, match="seq is 7"):
        library(ones(2, 7, 4), ones(7, 4))
    entry = library.device.load(library.artifact).entry(library.entry)
    x, bias, y = ones(2, 7, 4), ones(7, 4), ones(2, 7, 4)
    buffers = [a.ctypes.data for a in (x, bias, y, library.weights, np.zeros(64))]
    for seq, fits in ((2, True), (6, True), (1, False), (7, False)):
        if fits:
            entry(buffers, [seq], 1)
        else:
            with pytest.raises(dlc.DlcError, match="its status is -1"):
                entry(buffers, [seq], 1)
