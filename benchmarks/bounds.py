"""The cost and the findings of bounds proofs: `python -m benchmarks.bounds [NAME ...] [--threads 1,2]`

Models are compiled in one process and without the cache; times are processor times. `pass %` is the fraction
of a compile that the pass `prove_bounds` takes, `main %` that of the proof of the entry and of its memory.
Accesses are proved, versioned (proved under a condition on sizes that the kernel tests once, and checked if
it fails) or checked while the kernel runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from dlc_frontend_onnx.testing import light
from onnx import ModelProto, TensorProto, helper, numpy_helper

import dlc_core as dlc
from benchmarks.peers import OURS
from benchmarks.report import head, machine, print_table
from dlc_core.config import config
from dlc_core.ir.expr import const_value
from dlc_core.passes.lower import entry as lowering
from dlc_core.passes.tir import prove_bounds
from dlc_core.passes.tir.bounds import prove

TITLES = (
    "model", "threads", "compile s", "pass s", "pass %", "main %", "proved", "versioned", "checked",
    "kernels",
)  # fmt: skip


@dataclass
class Figure:
    """The seconds of one compile, and the results for its accesses."""

    name: str
    threads: int
    compile: float = 0.0
    kernels: float = 0.0
    """Seconds in the pass over kernels."""
    main: float = 0.0
    """Seconds in the proof of entries."""
    count: int = 0
    accesses: Counter[str] = field(default_factory=Counter)

    def cells(self) -> list[str]:
        found = self.accesses
        return [
            self.name, str(self.threads), f"{self.compile:.2f}", f"{self.kernels:.3f}",
            f"{100 * self.kernels / self.compile:.1f}", f"{100 * self.main / self.compile:.1f}",
            str(found["proved"]), str(found["versioned"]), str(found["checked"]), str(self.count),
        ]  # fmt: skip


class _Graph:
    """A model that is written node by node, with seeded random weights."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[Any] = []
        self.weights: list[TensorProto] = []
        self.rng = np.random.default_rng(seed)

    def op(self, type_: str, *inputs: str, **attrs: Any) -> str:
        name = f"{type_.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(type_, inputs, [name], name, **attrs))
        return name

    def weight(self, *shape: int) -> str:
        return self.array(self.rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0])))

    def integers(self, value: int | Sequence[int]) -> str:
        return self.array(np.array(value, np.int64))

    def array(self, value: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def model(self, inputs: Mapping[str, Sequence[int | str]], outputs: Mapping[str, Any]) -> ModelProto:
        def value_info(name: str, shape: Any) -> Any:
            kind = TensorProto.INT64 if name.startswith("ids") else TensorProto.FLOAT
            return helper.make_tensor_value_info(name, kind, shape)

        graph = helper.make_graph(
            self.nodes, "g", [value_info(*one) for one in inputs.items()],
            [value_info(*one) for one in outputs.items()], self.weights,
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def encoder(layers: int = 6, width: int = 256, heads: int = 4, tokens: int | str = "length") -> ModelProto:
    """A BERT: embeddings, layers of attention under a mask, of a symbolic batch and length."""
    g = _Graph()
    vocabulary, most, size = 1000, 512, width // heads
    embedded = g.op("Gather", g.weight(vocabulary, width), "ids")
    length = g.op("Gather", g.op("Shape", "ids"), g.integers(1), axis=0)
    ends = g.op("Unsqueeze", length, g.integers([0]))
    positions = g.op("Slice", g.weight(most, width), g.integers([0]), ends, g.integers([0]))
    x = _normed(g, g.op("Add", embedded, positions), width)
    mask = g.op("Unsqueeze", "mask", g.integers([1, 2]))
    bias = g.op("Mul", g.op("Sub", g.array(np.float32(1)), mask), g.array(np.float32(-1e4)))
    for _ in range(layers):
        made = []
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
            projected = g.op("Add", g.op("MatMul", x, g.weight(width, width)), g.weight(width))
            split = g.op("Reshape", projected, g.integers([0, 0, heads, size]))
            made.append(g.op("Transpose", split, perm=perm))
        query, key, value = made
        scores = g.op("Div", g.op("MatMul", query, key), g.array(np.float32(np.sqrt(size))))
        weights = g.op("Softmax", g.op("Add", scores, bias), axis=-1)
        mixed = g.op("Transpose", g.op("MatMul", weights, value), perm=[0, 2, 1, 3])
        joined = g.op("Reshape", mixed, g.integers([0, 0, width]))
        out = g.op("Add", g.op("MatMul", joined, g.weight(width, width)), g.weight(width))
        x = _normed(g, g.op("Add", out, x), width)
        wide = g.op("Add", g.op("MatMul", x, g.weight(width, 4 * width)), g.weight(4 * width))
        narrow = g.op("MatMul", g.op("Gelu", wide), g.weight(4 * width, width))
        x = _normed(g, g.op("Add", g.op("Add", narrow, g.weight(width)), x), width)
    g.nodes[-1].output[0] = "y"
    batch: int | str = "batch" if isinstance(tokens, str) else 1
    return g.model({"ids": (batch, tokens), "mask": (batch, tokens)}, {"y": (batch, tokens, width)})


def _normed(g: _Graph, x: str, width: int) -> str:
    return g.op("LayerNormalization", x, g.weight(width), g.weight(width), axis=-1)


def detector(levels: int = 3, classes: int = 80) -> ModelProto:
    """A backbone, a feature pyramid, and heads whose boxes and classes are concatenated."""
    g = _Graph()

    def conv(x: str, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> str:
        weight = g.weight(outputs, inputs, kernel, kernel)
        pads = [kernel // 2] * 4
        made = g.op("Conv", x, weight, g.weight(outputs), strides=[stride] * 2, pads=pads)
        return g.op("Mul", made, g.op("Sigmoid", made))

    def stage(x: str, channels: int) -> str:
        half = channels // 2
        parts = [conv(x, channels, half, 1), conv(x, channels, half, 1)]
        for _ in range(2):
            parts.append(g.op("Add", conv(conv(parts[-1], half, half), half, half), parts[-1]))
        return conv(g.op("Concat", *parts, axis=1), half * len(parts), channels, 1)

    x, channels = conv("image", 3, 16, stride=2), 16
    features: list[tuple[str, int]] = []
    for _ in range(levels + 1):
        x = stage(conv(x, channels, 2 * channels, stride=2), 2 * channels)
        channels *= 2
        features.append((x, channels))
    features = features[1:]
    above, wide = features[-1]
    joined = [(above, wide)]
    for below, narrow in reversed(features[:-1]):
        larger = g.op("Resize", above, "", g.array(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
        above = conv(g.op("Concat", larger, below, axis=1), wide + narrow, narrow, 1)
        wide = narrow
        joined.append((above, narrow))
    heads = []
    for feature, narrow in reversed(joined):
        boxes = conv(conv(feature, narrow, 64), 64, 64, 1)
        scores = conv(conv(feature, narrow, classes), classes, classes, 1)
        both = g.op("Concat", boxes, scores, axis=1)
        heads.append(g.op("Reshape", both, g.integers([1, 64 + classes, -1])))
    whole = g.op("Concat", *heads, axis=2)
    boxes, scores = (
        g.op("Slice", whole, *(g.integers([n]) for n in (low, high, 1)))
        for low, high in ((0, 64), (64, 64 + classes))
    )
    g.op("Concat", boxes, g.op("Sigmoid", scores), axis=1)
    g.nodes[-1].output[0] = "y"
    return g.model({"image": (1, 3, 256, 256)}, {"y": (1, 64 + classes, None)})


MODELS: Mapping[str, Callable[[], ModelProto]] = {
    "resnet50": partial(light.with_weights, "resnet50"),
    "encoder_dynamic": encoder,
    "encoder_static": partial(encoder, tokens=128),
    "detector": detector,
}


@contextmanager
def _watched(figure: Figure) -> Iterator[None]:
    """A context in which proofs are counted in a figure."""
    run_pass, prove_main = prove_bounds.ProveBounds.run_function, lowering.Emitter.proved

    def counted(*args: Any) -> Any:
        found = prove(*args)
        figure.count += 1
        versioned = sum(a.when is not None and const_value(a.when) is None for a in found.open)
        figure.accesses.update(proved=found.proved, versioned=versioned, checked=len(found.open) - versioned)
        return found

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            start = time.process_time()
            try:
                return function(*args)
            finally:
                setattr(figure, name, getattr(figure, name) + time.process_time() - start)

        return call

    with (
        mock.patch.object(prove_bounds, "prove", counted),
        mock.patch.object(lowering, "prove", counted),
        mock.patch.object(prove_bounds.ProveBounds, "run_function", timed("kernels", run_pass)),
        mock.patch.object(lowering.Emitter, "proved", timed("main", prove_main)),
    ):
        yield


def measure(name: str, threads: int, rounds: int = 3, target: str | None = None) -> Figure:
    """The fastest of several compiles of a model."""
    model = MODELS[name]()
    found = []
    for _ in range(rounds):
        figure = Figure(name, threads)
        with config.override(compile_processes=1), _watched(figure):
            start = time.process_time()
            dlc.compile(model, target, num_threads=threads, cache=False)
            figure.compile = time.process_time() - start
        found.append(figure)
    return min(found, key=lambda figure: figure.compile)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bounds", description="What the proof of bounds costs, and what it finds."
    )
    parser.add_argument("names", nargs="*", help=f"only these of {', '.join(MODELS)}")
    parser.add_argument("--threads", default="1,2", help="thread counts (%(default)s)")
    parser.add_argument("--target", help="what is compiled for (this machine)")
    parser.add_argument("--rounds", type=int, default=3, help="compiles, the fastest counts (%(default)s)")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in MODELS]
    if unknown:
        print(f"no model {unknown[0]}; known: {', '.join(MODELS)}", file=sys.stderr)
        return 2
    print(head(machine(), [OURS]), flush=True)
    figures = [
        measure(name, int(threads), options.rounds, options.target)
        for name in MODELS
        if not options.names or name in options.names
        for threads in options.threads.split(",")
    ]
    print_table(TITLES, [figure.cells() for figure in figures], markdown=options.markdown)
    if options.json is not None:
        options.json.write_text(
            json.dumps([asdict(figure) for figure in figures], indent=1), encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
