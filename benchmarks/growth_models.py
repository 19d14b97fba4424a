"""ONNX models of any size that a compiler may take too long for: one function per family, in FAMILIES.

A family makes a model of size n. The size is a number of nodes, operands, levels, constants or elements, as
its description says. `inputs_of` makes inputs for a model, `expected` its results by NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

NDArray = np.ndarray[Any, Any]
FLOAT = onnx.TensorProto.FLOAT


@dataclass(frozen=True)
class Family:
    """Models of one form: what the size counts, the sizes of a measurement, and how to make one.

    Results of sizes up to `most_checked` are those of `expected`.
    """

    counts: str
    sizes: tuple[int, ...]
    make: Callable[[int], onnx.ModelProto]
    expected: Callable[[int, Mapping[str, NDArray]], Sequence[NDArray]]
    most_checked: int


FAMILIES: dict[str, Family] = {}
"""All families by name."""

CHAINS = (100, 1_000, 10_000, 100_000)
WIDE = (100, 1_000, 10_000)


def _family(
    counts: str, sizes: tuple[int, ...], expected: Callable[..., Any], most_checked: int = 1 << 30
) -> Callable[[Callable[[int], onnx.ModelProto]], Callable[[int], onnx.ModelProto]]:
    """Declare a family; `expected` takes the size and the inputs by position."""

    def declare(make: Callable[[int], onnx.ModelProto]) -> Callable[[int], onnx.ModelProto]:
        def results(size: int, inputs: Mapping[str, NDArray]) -> Sequence[NDArray]:
            found = expected(size, *inputs.values())
            return found if isinstance(found, list) else [found]

        FAMILIES[make.__name__.removeprefix("make_")] = Family(counts, sizes, make, results, most_checked)
        return make

    return declare


def inputs_of(model: onnx.ModelProto) -> dict[str, NDArray]:
    """Seeded inputs of a model."""
    generator = np.random.default_rng(0)
    return {
        each.name: generator.uniform(
            -1, 1, [dim.dim_value for dim in each.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for each in model.graph.input
    }


def _model(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int]],
    outputs: Mapping[str, Sequence[int] | None],
    constants: Mapping[str, NDArray] = {},
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "growth",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _chain(ops: Sequence[Callable[[int, str, str], onnx.NodeProto]], size: int) -> list[onnx.NodeProto]:
    """A chain of `size` nodes from "x0" to "x<size>", whose ops alternate."""
    return [ops[i % len(ops)](i, f"x{i}", f"x{i + 1}") for i in range(size)]


def _unary(op: str) -> Callable[[int, str, str], onnx.NodeProto]:
    return lambda _, of, to: helper.make_node(op, [of], [to])


def _binary(op: str, other: str) -> Callable[[int, str, str], onnx.NodeProto]:
    return lambda _, of, to: helper.make_node(op, [of, other], [to])


def _repeated(step: Callable[[NDArray, int], NDArray], x: NDArray, size: int) -> NDArray:
    for i in range(size):
        x = step(x, i)
    return x


@_family("nodes of one op", CHAINS, lambda n, x: np.maximum(x, 0))
def make_relu_chain(size: int) -> onnx.ModelProto:
    return _model(_chain([_unary("Relu")], size), {"x0": [8]}, {f"x{size}": [8]})


@_family("nodes of one op", CHAINS, lambda n, x, y: _repeated(lambda v, _: v + y, x, n))
def make_add_chain(size: int) -> onnx.ModelProto:
    return _model(_chain([_binary("Add", "y")], size), {"x0": [8], "y": [8]}, {f"x{size}": [8]})


def _alternating(x: NDArray, i: int) -> NDArray:
    one, two = np.float32(0.75), np.float32(0.5)
    return (lambda: x + one, lambda: np.tanh(x), lambda: x * two, lambda: np.maximum(x, 0))[i % 4]()


@_family("nodes of four ops in turn", CHAINS, lambda n, x: _repeated(_alternating, x, n))
def make_alternating_chain(size: int) -> onnx.ModelProto:
    ops = [_binary("Add", "one"), _unary("Tanh"), _binary("Mul", "two"), _unary("Relu")]
    constants = {"one": np.float32(0.75), "two": np.float32(0.5)}
    return _model(
        _chain(ops, size), {"x0": [8]}, {f"x{size}": [8]}, {k: np.asarray(v) for k, v in constants.items()}
    )


def _softmax(x: NDArray) -> NDArray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@_family("nodes that are not fused", CHAINS, lambda n, x: _repeated(lambda v, _: _softmax(v), x, n))
def make_softmax_chain(size: int) -> onnx.ModelProto:
    return _model(_chain([_unary("Softmax")], size), {"x0": [2, 4]}, {f"x{size}": [2, 4]})


def _rotation(size: int) -> NDArray:
    angles = np.arange(size * size, dtype=np.float32).reshape(size, size)
    return np.linalg.qr(np.cos(angles))[0].astype(np.float32)


@_family("products with one matrix", CHAINS[:3], lambda n, x: _repeated(lambda v, _: v @ _rotation(4), x, n))
def make_matmul_chain(size: int) -> onnx.ModelProto:
    ops = [_binary("MatMul", "w")]
    return _model(_chain(ops, size), {"x0": [2, 4]}, {f"x{size}": [2, 4]}, {"w": _rotation(4)})


@_family(
    "products with a matrix each",
    CHAINS[:3],
    lambda n, x: _repeated(lambda v, i: v @ np.roll(_rotation(4), i, 1), x, n),
)
def make_matmul_weights(size: int) -> onnx.ModelProto:
    nodes = _chain([lambda i, of, to: helper.make_node("MatMul", [of, f"w{i}"], [to])], size)
    weights = {f"w{i}": np.roll(_rotation(4), i, 1) for i in range(size)}
    return _model(nodes, {"x0": [2, 4]}, {f"x{size}": [2, 4]}, weights)


@_family("products of two inputs", CHAINS[:3], lambda n, x, y: [(x @ y) * n])
def make_matmul_sum(size: int) -> onnx.ModelProto:
    nodes = []
    for i in range(size):
        nodes += [
            helper.make_node("Mul", ["x", f"c{i}"], [f"s{i}"]),
            helper.make_node("MatMul", [f"s{i}", "y"], [f"p{i}"]),
        ]
    constants = {f"c{i}": np.float32(1 + (i - size // 2) * 2**-16) for i in range(size)}
    nodes.append(helper.make_node("Sum", [f"p{i}" for i in range(size)], ["z"]))
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    return _model(nodes, {"x": [2, 4], "y": [4, 2]}, {"z": [2, 2]}, arrays)


@_family("inputs of one Concat", WIDE, lambda n, *x: np.concatenate(x))
def make_concat_inputs(size: int) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(size)]
    return _model(
        [helper.make_node("Concat", names, ["z"], axis=0)], {name: [2] for name in names}, {"z": [2 * size]}
    )


@_family(
    "distinct values of one Concat",
    WIDE,
    lambda n, x: np.concatenate([np.tanh(x * np.float32(i)) for i in range(n)]),
)
def make_concat_values(size: int) -> onnx.ModelProto:
    nodes = []
    for i in range(size):
        nodes += [
            helper.make_node("Mul", ["x", f"c{i}"], [f"m{i}"]),
            helper.make_node("Tanh", [f"m{i}"], [f"t{i}"]),
        ]
    nodes.append(helper.make_node("Concat", [f"t{i}" for i in range(size)], ["z"], axis=0))
    constants = {f"c{i}": np.asarray(np.float32(i)) for i in range(size)}
    return _model(nodes, {"x": [2]}, {"z": [2 * size]}, constants)


@_family("operands of one Concat, which are equal", (*WIDE, 20_000), lambda n, x: np.tile(x, n))
def make_concat_same(size: int) -> onnx.ModelProto:
    return _model([helper.make_node("Concat", ["x"] * size, ["z"], axis=0)], {"x": [2]}, {"z": [2 * size]})


@_family("levels of Concat(x, x)", (4, 8, 12, 16, 20), lambda n, x: np.tile(x, 2**n))
def make_concat_levels(size: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Concat", [f"x{i}"] * 2, [f"x{i + 1}"], axis=0) for i in range(size)]
    return _model(nodes, {"x0": [2]}, {f"x{size}": [2 << size]})


@_family("levels of x * x", (10, 100, 1_000), lambda n, x: _repeated(lambda v, _: v * v, x, n))
def make_square_levels(size: int) -> onnx.ModelProto:
    nodes = _chain([lambda _, of, to: helper.make_node("Mul", [of, of], [to])], size)
    return _model(nodes, {"x0": [8]}, {f"x{size}": [8]})


@_family("levels of x + x under Softmax", WIDE, lambda n, x: _repeated(lambda v, _: _softmax(v) + v, x, n))
def make_residual_levels(size: int) -> onnx.ModelProto:
    nodes = []
    for i in range(size):
        nodes += [
            helper.make_node("Softmax", [f"x{i}"], [f"s{i}"]),
            helper.make_node("Add", [f"s{i}", f"x{i}"], [f"x{i + 1}"]),
        ]
    return _model(nodes, {"x0": [2, 4]}, {f"x{size}": [2, 4]})


@_family("operands of one Sum", WIDE, lambda n, *x: np.sum(x, 0))
def make_sum_inputs(size: int) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(size)]
    return _model([helper.make_node("Sum", names, ["z"])], {name: [2] for name in names}, {"z": [2]})


@_family("kernels, each of its own shape", (10, 100, 1_000), lambda n, *x: [np.tanh(each) for each in x])
def make_distinct_shapes(size: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Tanh", [f"x{i}"], [f"y{i}"]) for i in range(size)]
    shapes = {f"x{i}": [i + 1] for i in range(size)}
    return _model(nodes, shapes, {f"y{i}": [i + 1] for i in range(size)})


@_family("outputs of one Split", WIDE, lambda n, x: [np.tanh(x[i : i + 1]) for i in range(n)])
def make_split_outputs(size: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Split", ["x"], [f"s{i}" for i in range(size)], axis=0, num_outputs=size)]
    nodes += [helper.make_node("Tanh", [f"s{i}"], [f"y{i}"]) for i in range(size)]
    return _model(nodes, {"x": [size]}, {f"y{i}": [1] for i in range(size)})


@_family("constants", WIDE, lambda n, x: _repeated(lambda v, i: v + np.float32(i), x, n))
def make_constants(size: int) -> onnx.ModelProto:
    nodes = _chain([lambda i, of, to: helper.make_node("Add", [of, f"c{i}"], [to])], size)
    constants = {f"c{i}": np.full(8, i, np.float32) for i in range(size)}
    return _model(nodes, {"x0": [8]}, {f"x{size}": [8]}, constants)


@_family("elements of one constant", (10**4, 10**6, 10**8), lambda n, x: x + np.sqrt(_numbers(n)))
def make_elements(size: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Sqrt", ["c"], ["r"]), helper.make_node("Add", ["x", "r"], ["z"])]
    return _model(nodes, {"x": [size]}, {"z": [size]}, {"c": _numbers(size)})


def _numbers(size: int) -> NDArray:
    return np.arange(size, dtype=np.float32)


@_family("logarithm of the elements of a sum", (20, 30, 33, 40), lambda n, x: x + np.float32(2.0**n), 24)
def make_folded_sum(size: int) -> onnx.ModelProto:
    value = numpy_helper.from_array(np.ones(1, np.float32))
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["ones"], value=value),
        helper.make_node("ReduceSum", ["ones"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["z"]),
    ]
    shape = np.array([2 ** (size // 2), 2 ** (size - size // 2)])
    return _model(nodes, {"x": [2]}, {"z": [2]}, {"shape": shape})


@_family("nested If", (4, 8, 16, 24), lambda n, x: np.tanh(x) if x.sum() >= 0 else x)
def make_nested_if(size: int) -> onnx.ModelProto:
    def graph(nodes: list[onnx.NodeProto], name: str) -> onnx.GraphProto:
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name, FLOAT, [2])])

    inner = [helper.make_node("Tanh", ["x"], ["b0"])]
    for i in range(size):
        other = graph([helper.make_node("Identity", ["x"], [f"e{i}"])], f"e{i}")
        branch = helper.make_node(
            "If", ["condition"], [f"b{i + 1}"], then_branch=graph(inner, f"b{i}"), else_branch=other
        )
        inner = [branch]
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("GreaterOrEqual", ["sum", "zero"], ["condition"]),
        *inner,
    ]
    return _model(nodes, {"x": [2]}, {f"b{size}": [2]}, {"zero": np.asarray(np.float32(0))})


@_family("nodes that call functions of functions", (8, 16, 32, 64, 100), lambda n, x: x + n * np.float32(1))
def make_nested_functions(size: int) -> onnx.ModelProto:
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    functions = []
    for i in range(size):
        nodes = [
            helper.make_node("Constant", [], ["one"], value_float=1.0),
            helper.make_node("Add", ["x", "one"], ["s"]),
            helper.make_node(f"f{i - 1}" if i else "Identity", ["s"], ["y"], domain="f" if i else ""),
        ]
        functions.append(helper.make_function("f", f"f{i}", ["x"], ["y"], nodes, imports))
    model = _model([helper.make_node(f"f{size - 1}", ["x"], ["y"], domain="f")], {"x": [2]}, {"y": [2]})
    model.opset_import.append(helper.make_opsetid("f", 1))
    model.functions.extend(functions)
    return model


def _reshaped(x: NDArray, i: int) -> NDArray:
    return np.tanh(x).reshape((8, 2) if i % 2 == 0 else (2, 8))


@_family("pairs of Tanh and Reshape", CHAINS[:3], lambda n, x: _repeated(_reshaped, x, n))
def make_reshape_chain(size: int) -> onnx.ModelProto:
    nodes = []
    for i in range(size):
        nodes += [
            helper.make_node("Tanh", [f"x{i}"], [f"t{i}"]),
            helper.make_node("Reshape", [f"t{i}", f"s{i % 2}"], [f"x{i + 1}"]),
        ]
    constants = {"s0": np.array([8, 2]), "s1": np.array([2, 8])}
    return _model(nodes, {"x0": [2, 8]}, {f"x{size}": None}, constants)


def _transposed(x: NDArray, i: int) -> NDArray:
    return np.tanh(x).T


@_family("pairs of Tanh and Transpose", CHAINS[:3], lambda n, x: _repeated(_transposed, x, n))
def make_transpose_chain(size: int) -> onnx.ModelProto:
    nodes = []
    for i in range(size):
        nodes += [
            helper.make_node("Tanh", [f"x{i}"], [f"t{i}"]),
            helper.make_node("Transpose", [f"t{i}"], [f"x{i + 1}"]),
        ]
    return _model(nodes, {"x0": [2, 8]}, {f"x{size}": None})


@_family("symbolic dims", (10, 100, 1_000), lambda n, *x: [np.tanh(each) for each in x])
def make_dims(size: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Tanh", [f"x{i}"], [f"y{i}"]) for i in range(size)]
    model = _model(nodes, {f"x{i}": [2] for i in range(size)}, {f"y{i}": [2] for i in range(size)})
    for group in (model.graph.input, model.graph.output):
        for i, each in enumerate(group):
            each.type.tensor_type.shape.dim[0].dim_param = f"d{i}"
    return model


def _slices(n: int, x: NDArray) -> NDArray:
    values = np.tanh(x)
    return np.concatenate([values[i % 7 : i % 7 + 2] for i in range(n)])


@_family("slices of one value in one Concat", WIDE, _slices)
def make_slices(size: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Tanh", ["x"], ["t"])]
    nodes += [helper.make_node("Slice", ["t", f"b{i % 7}", f"e{i % 7}"], [f"s{i}"]) for i in range(size)]
    nodes.append(helper.make_node("Concat", [f"s{i}" for i in range(size)], ["z"], axis=0))
    constants = {f"b{i}": np.array([i]) for i in range(7)} | {f"e{i}": np.array([i + 2]) for i in range(7)}
    return _model(nodes, {"x": [16]}, {"z": [2 * size]}, constants)
