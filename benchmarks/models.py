"""The measured models: those of a folder, or the default ones, which are generated.

The default ones are the nine image classifiers of the onnx package with random weights, and small models of
other shapes: a perceptron, a transformer layer with 128 tokens, one step of it with a KV cache, a chain of
elementwise operators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from dlc_frontend_onnx.testing import light
from onnx import ModelProto, numpy_helper, parser

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A model with inputs, and with outputs if they are known."""

    name: str
    make: Callable[[Path], Path]
    """Gives the model's file; one that is generated is written into the folder."""
    feeds: Callable[[], Mapping[str, Array]]
    expected: Callable[[], Mapping[str, Array]] = field(default=dict)
    family: str = ""
    """The kind of network, of which the report has a geometric mean."""
    precision: str = "float32"
    """That in which it is measured, unless the run has another."""
    of_largest: float | None = None
    """The part of an output's largest value that errors may be, where the precision does not say it."""

    @contextmanager
    def file(self) -> Iterator[Path]:
        """The model's file, for the time of the `with`."""
        with TemporaryDirectory(prefix="dlc-bench-") as folder:
            yield self.make(Path(folder))


def folder_cases(folder: Path) -> list[Case]:
    """Every `.onnx` file of a folder with an `.npz` file next to it, which has the inputs `in_<name>` and, if
    known, the outputs `out_<index>`.
    """
    cases = []
    for path in sorted(folder.glob("*.onnx")):
        arrays = path.with_suffix(".npz")
        if arrays.is_file():
            feeds, expected = partial(_arrays, arrays, "in_"), partial(_arrays, arrays, "out_")
            cases.append(Case(path.stem, lambda _, path=path: path, feeds, expected))
    return cases


def _arrays(path: Path, prefix: str) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as file:
        return {n.removeprefix(prefix): file[n] for n in file.files if n.startswith(prefix)}


def default_cases() -> list[Case]:
    """The generated models."""
    cases = [
        Case(name, _written(name, partial(light.with_weights, name)), partial(light.input_of, name))
        for name in light.NETWORKS
    ]
    for name, make in SMALL.items():
        cases.append(Case(name, _written(name, make), partial(_drawn_inputs, make)))
    return cases


def _written(name: str, make: Callable[[], ModelProto]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / f"{name}.onnx"
        onnx.save(make(), path)
        return path

    return write


def _drawn_inputs(make: Callable[[], ModelProto], seed: int = 1) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    feeds = {}
    for info in make().graph.input:
        shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        feeds[info.name] = rng.standard_normal(shape, np.float32)
    return feeds


def _model(text: str, weights: Mapping[str, Sequence[int]], seed: int = 0) -> ModelProto:
    """A model of its text, with random weights of the given shapes."""
    model = parser.parse_model(text)
    rng = np.random.default_rng(seed)
    for name, shape in weights.items():
        scale = np.float32(np.sqrt(1 / shape[0]) if len(shape) > 1 else 0.1)
        drawn = rng.standard_normal(tuple(shape), np.float32) * scale
        model.graph.initializer.append(numpy_helper.from_array(drawn, name))
    return model


HEAD = '<ir_version: 10, opset_import: ["" : 20]>\n'
WIDTH, HEADS, HIDDEN = 512, 8, 2048


def perceptron() -> ModelProto:
    """784 to 256 to 10."""
    text = """
    perceptron (float[1, 784] x) => (float[1, 10] y)
    {
        p = MatMul(x, w1)
        q = Add(p, b1)
        h = Relu(q)
        r = MatMul(h, w2)
        y = Add(r, b2)
    }
    """
    return _model(HEAD + text, {"w1": (784, 256), "b1": (256,), "w2": (256, 10), "b2": (10,)})


_LAYER = {
    "wq": (WIDTH, WIDTH), "wk": (WIDTH, WIDTH), "wv": (WIDTH, WIDTH), "wo": (WIDTH, WIDTH),
    "g1": (WIDTH,), "c1": (WIDTH,), "g2": (WIDTH,), "c2": (WIDTH,),
    "wi": (WIDTH, HIDDEN), "bi": (HIDDEN,), "wd": (HIDDEN, WIDTH), "bd": (WIDTH,),
}  # fmt: skip


def _layer(name: str, tokens: int, past: int) -> ModelProto:
    """A transformer layer over `tokens`, whose keys and values are appended to those of `past`."""
    size = WIDTH // HEADS
    given = f", float[1, {HEADS}, {past}, {size}] past_k, float[1, {HEADS}, {past}, {size}] past_v"
    text = f"""
    {name} (float[1, {tokens}, {WIDTH}] x{given if past else ""}) => (float[1, {tokens}, {WIDTH}] y)
    <int64[4] split = {{1, {tokens}, {HEADS}, {size}}}, int64[3] join = {{1, {tokens}, {WIDTH}}},
     float scale = {{{1 / np.sqrt(size):.8f}}}>
    {{
        n1 = LayerNormalization <axis = -1> (x, g1, c1)
        q0 = MatMul(n1, wq)
        k0 = MatMul(n1, wk)
        v0 = MatMul(n1, wv)
        q1 = Reshape(q0, split)
        k1 = Reshape(k0, split)
        v1 = Reshape(v0, split)
        q = Transpose <perm = [0, 2, 1, 3]> (q1)
        k2 = Transpose <perm = [0, 2, 1, 3]> (k1)
        v2 = Transpose <perm = [0, 2, 1, 3]> (v1)
        {"k = Concat <axis = 2> (past_k, k2)" if past else "k = Identity(k2)"}
        {"v = Concat <axis = 2> (past_v, v2)" if past else "v = Identity(v2)"}
        kt = Transpose <perm = [0, 1, 3, 2]> (k)
        s0 = MatMul(q, kt)
        s1 = Mul(s0, scale)
        s = Softmax <axis = -1> (s1)
        a0 = MatMul(s, v)
        a1 = Transpose <perm = [0, 2, 1, 3]> (a0)
        a2 = Reshape(a1, join)
        a = MatMul(a2, wo)
        r = Add(a, x)
        n2 = LayerNormalization <axis = -1> (r, g2, c2)
        f0 = MatMul(n2, wi)
        f1 = Add(f0, bi)
        f2 = Gelu(f1)
        f3 = MatMul(f2, wd)
        f = Add(f3, bd)
        y = Add(f, r)
    }}
    """
    return _model(HEAD + text, _LAYER)


def elementwise() -> ModelProto:
    """A chain of elementwise functions of a million elements."""
    text = """
    elementwise (float[1024, 1024] x) => (float[1024, 1024] y)
    {
        a = Sigmoid(x)
        b = Mul(a, x)
        c = Tanh(b)
        d = Exp(c)
        e = Sqrt(d)
        y = Add(e, x)
    }
    """
    return _model(HEAD + text, {})


SMALL: Mapping[str, Callable[[], ModelProto]] = {
    "perceptron": perceptron,
    "transformer_128": partial(_layer, "transformer_128", 128, 0),
    "transformer_step": partial(_layer, "transformer_step", 1, 127),
    "elementwise": elementwise,
}
