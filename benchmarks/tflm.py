"""The memory that TensorFlow Lite Micro needs for a small model: its arena, as its interpreter counts it.

The wheel `tflite-micro` has the interpreter, with the reference kernels, and the classes of the file format;
the file is written here, layer by layer, with channels last. The interpreter is a 64-bit program, so its
records of tensors and nodes are larger than on a microcontroller; the tensors themselves are not.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from typing import Any

import numpy as np

from dlc_core.graph.node import CONST, PARAM, Node, post_order
from dlc_core.ir.module import IRModule


class Writer:
    """A network of `dlc_core.testing.networks` as a file of TensorFlow Lite."""

    def __init__(self, schema: Any, module: IRModule) -> None:
        self.schema = schema
        self.module = module
        self.model = schema.ModelT()
        self.model.version = 3
        self.model.buffers = [schema.BufferT()]
        self.model.operatorCodes = []
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators = [], []
        self.model.subgraphs = [self.graph]
        self.tensors: dict[Node, int] = {}
        self.waiting: dict[Node, tuple[Node, Node]] = {}
        """Sums of a product or convolution and its bias, which may still get an activation."""

    def file(self) -> bytes:
        """The bytes of the file."""
        import flatbuffers

        function = self.module["main"]
        body = function.body
        for n in post_order(body):
            self.write(n)
        self.graph.inputs = [self.tensors[function.params[0]]]
        self.graph.outputs = [self.tensor(body)]
        builder = flatbuffers.Builder(1 << 20)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def write(self, n: Node) -> None:
        if n.op is PARAM:
            self.tensors[n] = self.add(last(n.shape))
        elif n.op is CONST or n.op.name in ("conv", "matmul", "transpose"):
            return
        elif n.op.name == "add" and n.args[1].op is CONST:
            self.waiting[n] = n.args[0], n.args[1]
        elif n.op.name == "relu" and n.args[0] in self.waiting:
            self.tensors[n] = self.layer(*self.waiting.pop(n.args[0]), activation=1)
        else:
            self.tensors[n] = self.plain(n)

    def tensor(self, n: Node) -> int:
        """The index of a value's tensor."""
        if n in self.waiting:
            self.tensors[n] = self.layer(*self.waiting.pop(n), activation=0)
        return self.tensors[n]

    def add(self, shape: tuple[int, ...], data: Any = None) -> int:
        one = self.schema.TensorT()
        one.shape, one.type, one.buffer, one.name = list(shape), self.schema.TensorType.FLOAT32, 0, b"t"
        if data is not None:
            one.type = getattr(self.schema.TensorType, str(data.dtype).upper())
            held = self.schema.BufferT()
            held.data = np.frombuffer(data.tobytes(), np.uint8)
            one.buffer = len(self.model.buffers)
            self.model.buffers.append(held)
        self.graph.tensors.append(one)
        return len(self.graph.tensors) - 1

    def operator(self, kind: str, inputs: list[int], shape: tuple[int, ...], options: Any, name: str) -> int:
        code = self.schema.OperatorCodeT()
        code.builtinCode = getattr(self.schema.BuiltinOperator, kind)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), 1
        self.model.operatorCodes.append(code)
        one = self.schema.OperatorT()
        one.opcodeIndex = len(self.model.operatorCodes) - 1
        one.inputs, one.outputs = inputs, [self.add(shape)]
        one.builtinOptions, one.builtinOptionsType = options, getattr(self.schema.BuiltinOptions, name)
        self.graph.operators.append(one)
        return int(one.outputs[0])

    def layer(self, product: Node, bias: Node, activation: int) -> int:
        """A convolution or a product with its bias and activation."""
        source = self.tensor(product.args[0])
        shift = bias.attrs["value"].data.reshape(-1)
        if product.op.name == "matmul":
            options = self.schema.FullyConnectedOptionsT()
            options.fusedActivationFunction = activation
            weights = product.args[1].args[0].attrs["value"].data
            inputs = [source, self.add(weights.shape, weights), self.add(shift.shape, shift)]
            name = "FullyConnectedOptions"
            return self.operator("FULLY_CONNECTED", inputs, tuple(product.shape), options, name)
        kernel = product.args[1].attrs["value"].data.transpose(0, 2, 3, 1)
        deep = product.attrs["groups"] > 1
        if deep:
            kernel = kernel.transpose(3, 1, 2, 0)
            options, name = self.schema.DepthwiseConv2DOptionsT(), "DepthwiseConv2DOptions"
            options.depthMultiplier = 1
        else:
            options, name = self.schema.Conv2DOptionsT(), "Conv2DOptions"
        options.strideH, options.strideW = product.attrs["strides"]
        options.padding, options.dilationHFactor, options.dilationWFactor = 0, 1, 1
        options.fusedActivationFunction = activation
        inputs = [source, self.add(kernel.shape, np.ascontiguousarray(kernel)), self.add(shift.shape, shift)]
        return self.operator(
            "DEPTHWISE_CONV_2D" if deep else "CONV_2D", inputs, last(product.shape), options, name
        )

    def plain(self, n: Node) -> int:
        """Any other operator."""
        inputs = [self.tensor(arg) for arg in n.args]
        schema, shape = self.schema, last(n.shape)
        if n.op.name == "max_pool":
            options = schema.Pool2DOptionsT()
            options.filterHeight, options.filterWidth = n.attrs["kernel"]
            options.strideH, options.strideW = n.attrs["strides"]
            options.padding = 1
            return self.operator("MAX_POOL_2D", inputs, shape, options, "Pool2DOptions")
        if n.op.name == "reshape":
            options = schema.ReshapeOptionsT()
            options.newShape = list(n.shape)
            inputs.append(self.add((len(n.shape),), np.array(n.shape, np.int32)))
            return self.operator("RESHAPE", inputs, shape, options, "ReshapeOptions")
        if n.op.name == "reduce_mean":
            options = schema.ReducerOptionsT()
            options.keepDims = bool(n.attrs["keepdims"])
            inputs.append(self.add((2,), np.array([1, 2], np.int32)))
            return self.operator("MEAN", inputs, tuple(n.shape), options, "ReducerOptions")
        if n.op.name == "add":
            return self.operator("ADD", inputs, shape, schema.AddOptionsT(), "AddOptions")
        options = schema.SoftmaxOptionsT()
        options.beta = 1.0
        return self.operator("SOFTMAX", inputs, shape, options, "SoftmaxOptions")


def last(shape: Any) -> tuple[int, ...]:
    """A shape with its channels last."""
    return (shape[0], *shape[2:], shape[1]) if len(shape) == 4 else tuple(shape)


def arena(module: IRModule, size: int = 1 << 22) -> tuple[int, int] | None:
    """The bytes of the arena: all, and those for tensors; None without the wheel."""
    try:
        from tflite_micro.python.tflite_micro import runtime
        from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema
    except ImportError:
        return None
    interpreter = runtime.Interpreter.from_bytes(Writer(schema, module).file(), arena_size=size)
    shape = last(module["main"].params[0].type.static_shape())
    interpreter.set_input(np.zeros(shape, np.float32), 0)
    interpreter.invoke()
    text = _printed(interpreter.print_allocations)
    found = {what: int(count) for what, count in re.findall(r"Arena allocation (\w+) (\d+)", text)}
    return found["total"], found["head"]


def _printed(call: Any) -> str:
    """Return the text that a call writes to the standard error stream, below Python."""
    with tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            call()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        file.seek(0)
        return file.read().decode()


__all__ = ["arena"]
