"""The networks in the onnx package: nine image classifiers without weights, with stored outputs.

All their weights are the constant 0.02, so that the scores of all classes are almost equal. `stored_output`
shows that a network runs, but hardly that it computes the right values. `with_weights` gives a network seeded
random weights in the usual ranges, so that results depend on every layer:

    python -m dlc_frontend_onnx.testing.light resnet50 resnet50.onnx
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper

Array = np.ndarray[Any, Any]

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"

NETWORKS = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)


def path_of(network: str) -> Path:
    """The model file of a network."""
    return FOLDER / f"light_{network}.onnx"


def input_of(network: str) -> dict[str, Array]:
    """The input of the stored output by name: ascending numbers from 0 to 1."""
    model = onnx.load(path_of(network))
    constants = {tensor.name for tensor in model.graph.initializer}
    feeds = {}
    for info in model.graph.input:
        if info.name not in constants:
            shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
            count = int(np.prod(shape))
            feeds[info.name] = (np.arange(count).reshape(shape) / count).astype(np.float32)
    return feeds


def stored_output(network: str) -> Array:
    """The package's output of the unchanged network."""
    tensor = onnx.load_tensor(FOLDER / f"light_{network}_output_0.pb")
    return np.asarray(numpy_helper.to_array(tensor))


def with_weights(network: str, seed: int = 0) -> ModelProto:
    """The network with random weights instead of constants.

    The weights of convolutions and products have variance 2 / fan-in, a quarter of it for depthwise
    convolutions, and a hundredth before the softmax. Normalization scales are near 1, or near 0.5 if the
    result is one of two summands. So magnitudes stay similar from layer to layer, and no class dominates.
    """
    model = onnx.load(path_of(network))
    graph = model.graph
    shapes = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    fills = {
        node.output[0]: [int(size) for size in shapes[node.input[0]]]
        for node in graph.node
        if node.op_type == "ConstantOfShape"
    }
    users: dict[str, list[tuple[NodeProto, int]]] = {}
    for node in graph.node:
        for index, name in enumerate(node.input):
            users.setdefault(name, []).append((node, index))
    rng = np.random.default_rng(seed)
    drawn = [
        numpy_helper.from_array(_draw(name, shape, users, rng).astype(np.float32), name)
        for name, shape in fills.items()
    ]
    kept = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    used = {name for node in kept for name in node.input}
    made = helper.make_graph(
        kept,
        graph.name,
        [info for info in graph.input if info.name not in shapes or info.name in used],
        graph.output,
        [*(t for t in graph.initializer if t.name in used), *drawn],
    )
    return helper.make_model(made, opset_imports=model.opset_import, ir_version=model.ir_version)


def _draw(
    name: str, shape: list[int], users: dict[str, list[tuple[NodeProto, int]]], rng: np.random.Generator
) -> Array:
    node, index = users[name][0]
    while node.op_type == "Unsqueeze":  # scales and shifts of channels
        node, index = users[node.output[0]][0]
    if node.op_type in ("Conv", "Gemm") and index == 1:
        transposed = any(a.name == "transB" and a.i for a in node.attribute)
        fan_in = shape[0] if node.op_type == "Gemm" and not transposed else int(np.prod(shape[1:]))
        last = any(user.op_type == "Softmax" for user, _ in users.get(node.output[0], ()))
        depthwise = node.op_type == "Conv" and shape[1] == 1
        variance = (0.02 if last else 0.5 if depthwise else 2.0) / fan_in
        return np.asarray(rng.standard_normal(shape, np.float32) * np.float32(np.sqrt(variance)))
    scales = (node.op_type == "BatchNormalization" and index == 1) or node.op_type == "Mul"
    if scales:
        summed = any(user.op_type == "Sum" for user, _ in users.get(node.output[0], ()))
        return rng.uniform(0.8, 1.2, shape) * (0.5 if summed else 1.0)
    if node.op_type == "BatchNormalization" and index == 4:
        return rng.uniform(0.8, 1.2, shape)
    return rng.standard_normal(shape) * 0.1


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in NETWORKS:
        usage = "usage: python -m dlc_frontend_onnx.testing.light NETWORK FILE.onnx"
        sys.exit(f"{usage}\nnetworks: {', '.join(NETWORKS)}")
    onnx.save(with_weights(sys.argv[1]), sys.argv[2])
