"""Single operators against onnxruntime: `python -m benchmarks.operators [NAME ...] [--threads 1]`

Rows and maps: operators that move and reduce data rather than multiply. Each line is an ONNX model of one
operator, or of several that dlc fuses. Both run it alternately in the same process, with preallocated
outputs. `copy` is the time in which this machine copies as many bytes, the roofline of such kernels.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log
from typing import Any

import numpy as np

import dlc_core as dlc
from benchmarks.peers import OURS
from benchmarks.report import head, machine, print_table

Array = np.ndarray[Any, Any]
Step = tuple[str, Mapping[str, Any], tuple[Any, ...]]
"""An operator, its attributes, and its operands after the first one: arrays, or indices of inputs."""

TITLES = ("operator", "threads", "µs", "onnxruntime µs", "ratio", "GB/s", "copy GB/s")
ROUNDS, SECONDS = 7, 0.02
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Operator:
    """A chain of operators on inputs of given shapes. All results of the last one are outputs."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]
    results: int = 1
    dtype: str = "float32"
    feeds: Mapping[int, Array] = field(default_factory=dict)
    """Inputs that are not random numbers."""

    def inputs(self) -> dict[str, Array]:
        rng = np.random.default_rng(0)
        made = {}
        for number, shape in enumerate(self.shapes):
            values = self.feeds.get(number)
            if values is None:
                values = (rng.standard_normal(shape) * 3).astype(self.dtype)
            made[f"x{number}"] = values
        return made

    def model(self) -> Any:
        """The ONNX model."""
        from onnx import helper, numpy_helper

        nodes, constants, last = [], [], ["x0"]
        for at, (op, attributes, more) in enumerate(self.steps):
            taken = list(last[:1])
            for number, operand in enumerate(more):
                if isinstance(operand, int):
                    taken.append(f"x{operand}")
                elif operand is None:
                    taken.append("")
                else:
                    constants.append(numpy_helper.from_array(np.asarray(operand), f"c{at}_{number}"))
                    taken.append(f"c{at}_{number}")
            count = self.results if at == len(self.steps) - 1 else 1
            last = [f"v{at}_{number}" for number in range(count)]
            nodes.append(helper.make_node(op, taken, last, **attributes))
        given = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in self.inputs().items()
        ]
        made = [helper.make_empty_tensor_value_info(name) for name in last]
        graph = helper.make_graph(nodes, "operator", given, made, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def one(op: str, *more: Any, **attributes: Any) -> Step:
    return op, attributes, more


def _normal(*shape: int) -> Array:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def _ints(*values: int) -> Array:
    return np.array(values, np.int64)


def rows() -> list[Operator]:
    """Reductions along axes, and operators that use reductions."""
    softmax = [
        Operator("softmax 512×128", ((512, 128),), (one("Softmax", axis=-1),)),
        Operator("softmax 12×128×128", ((12, 128, 128),), (one("Softmax", axis=-1),)),
        Operator("softmax 64×1000", ((64, 1000),), (one("Softmax", axis=-1),)),
        Operator("softmax 128×768", ((128, 768),), (one("Softmax", axis=-1),)),
        Operator("softmax 512×512", ((512, 512),), (one("Softmax", axis=-1),)),
        Operator("softmax of channels 1×21×64²", ((1, 21, 64, 64),), (one("Softmax", axis=1),)),
        Operator("log softmax 128×1000", ((128, 1000),), (one("LogSoftmax", axis=-1),)),
    ]
    image, half = (1, 256, 64, 64), (1, 64, 56, 56)
    norms = [
        Operator(
            "layer norm 512×768",
            ((512, 768),),
            (one("LayerNormalization", _normal(768), _normal(768), axis=-1),),
        ),
        Operator(
            "layer norm 197×768",
            ((197, 768),),
            (one("LayerNormalization", _normal(768), _normal(768), axis=-1),),
        ),
        Operator(
            "RMS norm 512×1024",
            ((512, 1024),),
            (
                one("Mul", 0),
                one("ReduceMean", _ints(-1)),
                one("Add", np.float32(1e-6)),
                one("Sqrt"),
                one("Reciprocal"),
                one("Mul", 0),
                one("Mul", _normal(1024)),
            ),
        ),
        Operator(
            "group norm 32 of 256 64²",
            (image,),
            (one("GroupNormalization", _normal(256), _normal(256), num_groups=32),),
        ),
        Operator("instance norm 64 56²", (half,), (one("InstanceNormalization", _normal(64), _normal(64)),)),
        Operator(
            "batch norm 256 64²",
            (image,),
            (one("BatchNormalization", _normal(256), _normal(256), _normal(256), abs(_normal(256))),),
        ),
        Operator("L2 norm 512×512", ((512, 512),), (one("LpNormalization", axis=-1, p=2),)),
    ]
    reductions = [
        Operator(f"{name} {axes} of 64×96×128", ((64, 96, 128),), (one(op, _ints(*axes), keepdims=0),))
        for name, op in (("sum", "ReduceSum"), ("max", "ReduceMax"))
        for axes in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))
    ] + [
        Operator("mean of images 1×256×64²", (image,), (one("ReduceMean", _ints(2, 3)),)),
        Operator("L2 of rows 512×1024", ((512, 1024),), (one("ReduceL2", _ints(1)),)),
        Operator("log-sum-exp 256×1000", ((256, 1000),), (one("ReduceLogSumExp", _ints(1)),)),
        Operator("argmax 128×1000", ((128, 1000),), (one("ArgMax", axis=-1),)),
        Operator("argmax of channels 1×21×128²", ((1, 21, 128, 128),), (one("ArgMax", axis=1),)),
        Operator("top 5 of 64×1000", ((64, 1000),), (one("TopK", _ints(5), axis=-1),), results=2),
        Operator("cumsum of rows 512×512", ((512, 512),), (one("CumSum", np.int64(1)),)),
        Operator("cumsum of columns 512×512", ((512, 512),), (one("CumSum", np.int64(0)),)),
    ]
    wide = (1, 64, 112, 112)
    pools = [
        Operator(
            "max pool 3×3 /2 64 112²",
            (wide,),
            (one("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),),
        ),
        Operator("max pool 2×2 /2 64 112²", (wide,), (one("MaxPool", kernel_shape=[2, 2], strides=[2, 2]),)),
        Operator(
            "max pool 3×3 /1 192 28²",
            ((1, 192, 28, 28),),
            (one("MaxPool", kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1]),),
        ),
        Operator(
            "average pool 2×2 /2 128 56²",
            ((1, 128, 56, 56),),
            (one("AveragePool", kernel_shape=[2, 2], strides=[2, 2]),),
        ),
        Operator(
            "average pool 3×3 /1 192 28²",
            ((1, 192, 28, 28),),
            (one("AveragePool", kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1]),),
        ),
        Operator("global average pool 2048 7²", ((1, 2048, 7, 7),), (one("GlobalAveragePool"),)),
        Operator("global max pool 512 14²", ((1, 512, 14, 14),), (one("GlobalMaxPool"),)),
    ]
    return [*softmax, *norms, *reductions, *pools]  # fmt: skip


def moves() -> list[Operator]:
    """Operators that move data."""
    image, heads = (1, 64, 56, 56), (1, 128, 12, 64)
    parts = tuple((1, 32, 56, 56) for _ in range(4))
    scales = np.array([1, 1, 2, 2], np.float32)
    return [
        Operator("transpose NCHW→NHWC 64 56²", (image,), (one("Transpose", perm=[0, 2, 3, 1]),)),
        Operator("transpose NHWC→NCHW 56² 64", ((1, 56, 56, 64),), (one("Transpose", perm=[0, 3, 1, 2]),)),
        Operator("transpose NCHW→NHWC 3 224²", ((1, 3, 224, 224),), (one("Transpose", perm=[0, 2, 3, 1]),)),
        Operator("transpose 1024²", ((1024, 1024),), (one("Transpose", perm=[1, 0]),)),
        Operator("transpose 768×3072", ((768, 3072),), (one("Transpose", perm=[1, 0]),)),
        Operator("transpose 200×300", ((200, 300),), (one("Transpose", perm=[1, 0]),)),
        Operator("transpose of heads 12×128×64", (heads,), (one("Transpose", perm=[0, 2, 1, 3]),)),
        Operator("transpose of keys 12×64×128", (heads,), (one("Transpose", perm=[0, 2, 3, 1]),)),
        Operator("shuffle of channels 2×58 28²", ((1, 116, 28, 28),), (
            one("Reshape", _ints(1, 2, 58, 28, 28)), one("Transpose", perm=[0, 2, 1, 3, 4]),
            one("Reshape", _ints(1, 116, 28, 28)),
        )),
        Operator("depth to space 2 64 56²", (image,), (one("DepthToSpace", blocksize=2),)),
        Operator("pixels to depth 2 3 224²", ((1, 3, 224, 224),), (one("SpaceToDepth", blocksize=2),)),
        Operator("concat of channels 4×32 56²", parts, (one("Concat", 1, 2, 3, axis=1),)),
        Operator("concat of columns 512×(256+256)", ((512, 256),) * 2, (one("Concat", 1, axis=1),)),
        Operator("split of columns 512×768 in 3", ((512, 768),), (one("Split", axis=1, num_outputs=3),),
                 results=3),
        Operator("slice ::2 of columns 512×1024", ((512, 1024),),
                 (one("Slice", _ints(0), _ints(1024), _ints(1), _ints(2)),)),
        Operator("slice ::-1 of columns 512×1024", ((512, 1024),),
                 (one("Slice", _ints(-1), _ints(-2000), _ints(1), _ints(-1)),)),
        Operator("slice of a border 64 54²", (image,),
                 (one("Slice", _ints(1, 1), _ints(55, 55), _ints(2, 3)),)),
        Operator("pad by 1 64 56²", (image,), (one("Pad", _ints(0, 0, 1, 1, 0, 0, 1, 1)),)),
        Operator("pad by reflection 64 56²", (image,),
                 (one("Pad", _ints(0, 0, 1, 1, 0, 0, 1, 1), mode="reflect"),)),
        Operator("gather 128 rows of 30522×768", ((30522, 768), (1, 128)), (one("Gather", 1, axis=0),),
                 feeds={1: np.random.default_rng(2).integers(0, 30522, (1, 128))}),
        Operator("gather of columns 512×256 of 1024", ((512, 1024), (256,)), (one("Gather", 1, axis=1),),
                 feeds={1: np.random.default_rng(2).integers(0, 1024, 256)}),
        Operator("expand 1×64×1×1 to 64 56²", ((1, 64, 1, 1),), (one("Expand", _ints(1, 64, 56, 56)),)),
        Operator("tile 128×128 by 4×4", ((128, 128),), (one("Tile", _ints(4, 4)),)),
        Operator("one hot 1024 of 1000", ((1024,),),
                 (one("OneHot", np.int64(1000), np.array([0, 1], np.float32), axis=-1),),
                 feeds={0: np.random.default_rng(2).integers(0, 1000, 1024)}),
        Operator("resize bilinear ×2 64 56²", (image,),
                 (one("Resize", None, scales, mode="linear"),)),
        Operator("resize nearest ×2 64 56²", (image,),
                 (one("Resize", None, scales, mode="nearest", coordinate_transformation_mode="asymmetric",
                      nearest_mode="floor"),)),
        Operator("resize bilinear 3 480×640 to 224²", ((1, 3, 480, 640),),
                 (one("Resize", None, None, _ints(1, 3, 224, 224), mode="linear"),)),
    ]  # fmt: skip


def maps() -> list[Operator]:
    """Functions of each element."""
    million, quarter = (1024, 1024), (1, 64, 64, 64)
    root = np.float32(2**-0.5)
    bytes_ = np.random.default_rng(2).integers(0, 255, million).astype(np.uint8)
    return [
        *(Operator(f"{op.lower()} 1024²", (million,), (one(op),))
          for op in ("Relu", "Exp", "Tanh", "Sigmoid", "Erf", "Log", "Sqrt", "Sin", "Softplus", "Mish")),
        Operator("gelu 1024²", (million,), (one("Gelu"),)),
        Operator("gelu of tanh 1024²", (million,), (one("Gelu", approximate="tanh"),)),
        Operator("gelu of erf, single operators 1024²", (million,), (
            one("Mul", root), one("Erf"), one("Add", np.float32(1)), one("Mul", 0), one("Mul", root),
        )),
        Operator("swish 1024²", (million,), (one("Sigmoid"), one("Mul", 0))),
        Operator("hard swish 1024²", (million,), (one("HardSwish"),)),
        Operator("add 1024²", (million, million), (one("Add", 1),)),
        Operator("add of a bias 1024²", (million,), (one("Add", _normal(1024)),)),
        Operator("scale and shift of channels 64 64²", (quarter,), (
            one("Mul", _normal(1, 64, 1, 1)), one("Add", _normal(1, 64, 1, 1)), one("Relu"),
        )),
        Operator("outer product 1024×1024", ((1024, 1), (1, 1024)), (one("Mul", 1),)),
        Operator("chain of 8 1024²", (million, million), (
            one("Add", 1), one("Mul", np.float32(0.5)), one("Tanh"), one("Sub", 1), one("Abs"), one("Sqrt"),
            one("Mul", 1), one("Clip", np.float32(-2), np.float32(2)),
        )),
        Operator("where x > 0 1024²", (million, million), (
            one("Greater", np.float32(0)), one("Where", 0, 1),
        )),
        Operator("compare and cast 1024²", (million, million), (one("Less", 1), one("Cast", to=1))),
        Operator("clip 1024²", (million,), (one("Clip", np.float32(-1), np.float32(1)),)),
        Operator("power of 3 1024²", (million,), (one("Pow", np.float32(3)),)),
        Operator("power of 0.3 1024²", (million,), (one("Abs"), one("Pow", np.float32(0.3)))),
        Operator("uint8 to float32, scaled 1024²", (million,), (
            one("Cast", to=1), one("Mul", np.float32(1 / 255)),
        ), feeds={0: bytes_}),
        Operator("float32 to int8 1024²", (million,), (one("Round"), one("Cast", to=3))),
        Operator("float32 to float16 1024²", (million,), (one("Cast", to=10),)),
        Operator("quantize 1024²", (million,), (
            one("QuantizeLinear", np.float32(0.05), np.uint8(128)),
        )),
        Operator("dequantize 1024²", (million,), (
            one("DequantizeLinear", np.float32(0.05), np.uint8(128)),
        ), feeds={0: bytes_}),
        Operator("add of int32 1024²", (million, million), (one("Add", 1),), dtype="int32"),
        Operator("float64 exp 512²", ((512, 512),), (one("Exp"),), dtype="float64"),
    ]  # fmt: skip


@dataclass(frozen=True)
class Line:
    """The measurements of an operator, in seconds."""

    name: str
    threads: int
    ours: float
    theirs: float
    gbytes: float
    copy: float
    error: float
    rules: tuple[str, ...]

    def cells(self) -> list[str]:
        ours, theirs = 1e6 * self.ours, 1e6 * self.theirs
        ratio = f"{self.ours / self.theirs:.2f}"
        return [self.name, str(self.threads), f"{ours:.1f}", f"{theirs:.1f}", ratio, f"{self.gbytes:.1f}",
                f"{self.copy:.1f}"]  # fmt: skip


def interleaved_times(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """The shortest time of each call, in interleaved rounds."""
    best = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for at, call in enumerate(calls):
            call()
            spent = 0.0
            while spent < SECONDS / ROUNDS:
                begin = time.perf_counter()
                call()
                took = time.perf_counter() - begin
                spent += took
                best[at] = min(best[at], took)
    return best


def measure(operator: Operator, threads: int, target: str | None = None) -> Line:
    """Measure both on the same inputs, with preallocated outputs."""
    import onnxruntime

    model, feeds = operator.model(), operator.inputs()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    expected = session.run(None, feeds)
    binding = session.io_binding()
    for name, array in feeds.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    for value, array in zip(session.get_outputs(), expected, strict=True):
        binding.bind_ortvalue_output(value.name, onnxruntime.OrtValue.ortvalue_from_numpy(array.copy()))

    exe = dlc.compile(model, target, num_threads=threads, cache=False)
    outputs = [np.empty_like(array) for array in expected]
    bound = exe.bind(list(feeds.values()), outputs)
    size = sum(a.nbytes for a in (*feeds.values(), *expected))
    if operator.name.startswith("gather 128"):
        size = 2 * expected[0].nbytes
    source = np.zeros(size // 2, np.uint8)
    target_bytes = np.zeros_like(source)
    run = onnxruntime.RunOptions()
    ours, theirs, copy = interleaved_times([
        bound, lambda: session.run_with_iobinding(binding, run), lambda: np.copyto(target_bytes, source),
    ])  # fmt: skip
    error = max(_distance(a, b) for a, b in zip(outputs, expected, strict=True))
    rules = tuple(kernel.rule or "–" for kernel in exe.explain().kernels)
    return Line(operator.name, threads, ours, theirs, size / ours / 1e9, size / copy / 1e9, error, rules)


def _distance(a: Array, b: Array) -> float:
    """The largest difference relative to the largest number."""
    wide, other = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where((wide == other) | (np.isnan(wide) & np.isnan(other)), 0, np.abs(wide - other))
    finite = np.abs(other[np.isfinite(other)])
    return float(apart.max(initial=0) / max(finite.max(initial=0), 1e-30))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.operators", description="Single operators against onnxruntime."
    )
    parser.add_argument("names", nargs="*", help="only operators whose names contain one of these")
    parser.add_argument("--threads", default="1", help="thread counts, with commas (%(default)s)")
    parser.add_argument("--target", help="such as 'llvm -mcpu=haswell'; this machine if not given")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    options = parser.parse_args(arguments)
    known = [*rows(), *moves(), *maps()]
    chosen = [o for o in known if not options.names or any(name in o.name for name in options.names)]
    if not chosen:
        print(f"no operator {options.names[0]}; known: {', '.join(o.name for o in known)}", file=sys.stderr)
        return 2
    print(head(machine(), [OURS]), flush=True)
    counts = [int(word) for word in options.threads.split(",")]
    lines = [measure(each, threads, options.target) for each in chosen for threads in counts]
    print_table(TITLES, [line.cells() for line in lines], markdown=options.markdown)
    ratios = [line.ours / line.theirs for line in lines]
    print(f"geometric mean of the ratios: {exp(sum(map(log, ratios)) / len(ratios)):.2f}")
    for line in lines:
        if not line.error < TOLERANCE:
            print(f"{line.name}: results differ by {line.error:.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
