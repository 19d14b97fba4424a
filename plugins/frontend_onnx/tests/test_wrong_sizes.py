"""Calls whose sizes contradict the types of a model: refused by a UsageError that names the node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx.testing.build import tensor
from onnx import helper

import dlc_core as dlc
from dlc_core.diag import UnsupportedError, UsageError


@dataclass
class Case:
    """One node: its inputs in order, arrays as constants or the dims of what is fed, and sizes of calls."""

    op: str
    inputs: dict[str, Any]
    right: dict[str, int]
    """Valid sizes."""
    wrong: Sequence[dict[str, int]]
    """Replacements with invalid sizes."""
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 18
    dtypes: dict[str, str] = field(default_factory=dict)
    domain: str = ""
    note: str = ""

    def __str__(self) -> str:
        return f"{self.op}-{self.note}" if self.note else self.op

    def model(self) -> onnx.ModelProto:
        fed = {n: d for n, d in self.inputs.items() if isinstance(d, str)}
        kinds = {n: helper.np_dtype_to_tensor_dtype(np.dtype(self.dtypes.get(n, "float32"))) for n in fed}
        infos = [helper.make_tensor_value_info(n, kinds[n], self.dims(n)) for n in fed]
        names = ["" if d is None else n for n, d in self.inputs.items()]
        results = [f"y{k}" for k in range(self.outputs)]
        made = helper.make_node(self.op, names, results, "the_node", domain=self.domain, **self.attrs)
        constants = [tensor(n, d) for n, d in self.inputs.items() if isinstance(d, np.ndarray)]
        graph = helper.make_graph(
            [made], "g", infos, [onnx.ValueInfoProto(name=name) for name in results], constants
        )
        opsets = [helper.make_opsetid(self.domain, 1 if self.domain else self.opset)]
        if self.domain:
            opsets.append(helper.make_opsetid("", self.opset))
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def dims(self, name: str) -> list[Any]:
        return [int(d) if d.isdigit() else d for d in self.inputs[name].split()]

    def feeds(self, sizes: dict[str, int]) -> list[Any]:
        """Arrays of these sizes; indices are all 0."""
        made = []
        for name, dims in self.inputs.items():
            if isinstance(dims, str):
                shape = [sizes.get(d, d) for d in self.dims(name)]
                type_ = self.dtypes.get(name, "float32")
                zeros = type_ in ("int64", "int32")
                made.append(np.zeros(shape, type_) if zeros else np.ones(shape, type_))
        return made


def ones(*shape: int, dtype: str = "float32") -> Any:
    return np.ones(shape, dtype)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


INDEX = {"i": "int64"}
CASES = [
    Case("Add", {"x": "a b", "c": ones(5)}, {"a": 2, "b": 5}, [{"b": 3}, {"b": 6}, {"b": 0}]),
    Case("Sub", {"c": ones(4, 5), "x": "a b"}, {"a": 4, "b": 5}, [{"a": 3}, {"b": 2}]),
    Case("Mul", {"x": "a b c", "c": ones(6, 1)}, {"a": 1, "b": 6, "c": 3}, [{"b": 7}]),
    Case("Div", {"x": "n", "c": ones(2, 8)}, {"n": 8}, [{"n": 4}, {"n": 9}]),
    Case("Max", {"x": "n", "y": "3 8", "c": ones(8)}, {"n": 8}, [{"n": 4}, {"n": 9}]),
    Case("Where", {"i": "a b", "x": "3 4", "y": "4"}, {"a": 3, "b": 4}, [{"a": 2}, {"b": 5}],
         dtypes={"i": "bool"}),
    Case("PRelu", {"x": "a b", "c": ones(7)}, {"a": 2, "b": 7}, [{"b": 5}]),
    Case("Equal", {"x": "a", "c": ones(7)}, {"a": 7}, [{"a": 5}]),
    Case("MatMul", {"x": "a b", "c": ones(64, 16)}, {"a": 3, "b": 64}, [{"b": 32}, {"b": 128}, {"b": 1}]),
    Case("MatMul", {"x": "a b", "y": "c d"}, {"a": 3, "b": 4, "c": 4, "d": 5}, [{"b": 3}, {"c": 5}],
         note="both fed"),
    Case("MatMul", {"x": "7 a b", "y": "n 4 5"}, {"a": 3, "b": 4, "n": 7}, [{"n": 3}], note="batches"),
    Case("Gemm", {"x": "a b", "c": ones(8, 6), "d": ones(6)}, {"a": 2, "b": 8}, [{"b": 4}, {"b": 9}]),
    Case("Gemm", {"x": "2 8", "c": ones(8, 6), "d": "n"}, {"n": 6}, [{"n": 5}], note="bias"),
    Case("Gemm", {"x": "k a", "y": "k2 b"}, {"k": 4, "a": 2, "k2": 4, "b": 3}, [{"k": 5}, {"k2": 3}],
         {"transA": 1}, note="both fed"),
    Case("MatMulInteger", {"x": "a b", "c": ones(8, 3, dtype="uint8")}, {"a": 2, "b": 8}, [{"b": 6}],
         dtypes={"x": "uint8"}),
    Case("Einsum", {"x": "a b", "y": "c d"}, {"a": 2, "b": 3, "c": 3, "d": 4}, [{"b": 5}, {"c": 2}],
         {"equation": "ij,jk->ik"}),
    Case("Conv", {"x": "n c 8 8", "w": ones(4, 3, 3, 3)}, {"n": 1, "c": 3}, [{"c": 2}, {"c": 4}]),
    Case("Conv", {"x": "n 3 8 8", "w": ones(4, 3, 3, 3), "b": "k"}, {"n": 1, "k": 4}, [{"k": 3}, {"k": 5}],
         note="bias"),
    Case("Conv", {"x": "1 3 h w", "k": ones(4, 3, 3, 3)}, {"h": 5, "w": 4}, [{"h": 2}, {"w": 1}],
         note="window"),
    Case("ConvTranspose", {"x": "n c 4 4", "w": ones(3, 2, 3, 3)}, {"n": 1, "c": 3}, [{"c": 4}]),
    Case("ConvInteger", {"x": "n c 4 4", "w": ones(3, 2, 3, 3, dtype="uint8")}, {"n": 1, "c": 2}, [{"c": 4}],
         dtypes={"x": "uint8"}),
    Case("MaxPool", {"x": "1 2 h w"}, {"h": 5, "w": 4}, [{"h": 2}, {"w": 1}], {"kernel_shape": [3, 3]}),
    Case("AveragePool", {"x": "1 2 h 9"}, {"h": 5}, [{"h": 1}], {"kernel_shape": [3, 3]}),
    Case("BatchNormalization", {"x": "n c", "a": ones(5), "b": ones(5), "m": ones(5), "v": ones(5)},
         {"n": 2, "c": 5}, [{"c": 3}, {"c": 7}]),
    Case("BatchNormalization", {"x": "n 5", "a": "k", "b": ones(5), "m": ones(5), "v": ones(5)},
         {"n": 2, "k": 5}, [{"k": 3}], note="scale"),
    Case("InstanceNormalization", {"x": "n c 4", "a": ones(5), "b": ones(5)}, {"n": 2, "c": 5}, [{"c": 3}]),
    Case("LayerNormalization", {"x": "n c", "a": ones(5)}, {"n": 2, "c": 5}, [{"c": 3}, {"c": 1}]),
    Case("Concat", {"x": "a b", "y": "c d"}, {"a": 2, "b": 3, "c": 2, "d": 9}, [{"a": 3}, {"c": 1}],
         {"axis": 1}),
    Case("Concat", {"x": "2 b", "y": "2 d"}, {"b": 3, "d": 3}, [{"d": 9}, {"b": 2}], {"axis": 0},
         note="rows"),
    Case("Reshape", {"x": "n", "s": ints(3, 4)}, {"n": 12}, [{"n": 11}, {"n": 24}]),
    Case("Reshape", {"x": "n", "s": ints(-1, 4)}, {"n": 12}, [{"n": 13}], note="divisible"),
    Case("Expand", {"x": "n", "s": ints(3, 4)}, {"n": 4}, [{"n": 3}]),
    Case("Squeeze", {"x": "n 4", "s": ints(0)}, {"n": 1}, [{"n": 2}]),
    Case("Split", {"x": "n", "s": ints(2, 3)}, {"n": 5}, [{"n": 6}, {"n": 4}], outputs=2),
    Case("Pad", {"x": "n", "s": ints(2, 1)}, {"n": 4}, [{"n": 2}, {"n": 1}], {"mode": "reflect"}),
    Case("Pad", {"x": "n", "s": ints(-2, -1)}, {"n": 4}, [{"n": 2}], note="crop"),
    Case("DepthToSpace", {"x": "1 c 2 2"}, {"c": 8}, [{"c": 6}], {"blocksize": 2}),
    Case("SpaceToDepth", {"x": "1 1 h w"}, {"h": 4, "w": 6}, [{"h": 5}, {"w": 3}], {"blocksize": 2}),
    Case("ScatterElements", {"x": "a b", "i": "c d", "u": "e f"},
         {"a": 4, "b": 3, "c": 2, "d": 3, "e": 2, "f": 3}, [{"d": 5, "f": 5}, {"e": 1}, {"f": 2}],
         dtypes=INDEX),
    Case("GatherElements", {"x": "a b", "i": "c d"}, {"a": 4, "b": 3, "c": 9, "d": 3}, [{"d": 5}, {"b": 2}],
         dtypes=INDEX),
    Case("ScatterND", {"x": "a b", "i": "c 1", "u": "d e"}, {"a": 4, "b": 3, "c": 2, "d": 2, "e": 3},
         [{"d": 3}, {"e": 2}, {"e": 4}], dtypes=INDEX),
    Case("GatherND", {"x": "a 5 b", "i": "c 1"}, {"a": 4, "b": 3, "c": 4}, [{"c": 3}, {"a": 9}],
         {"batch_dims": 1}, dtypes=INDEX),
    Case("TopK", {"x": "n", "k": ints(3)}, {"n": 4}, [{"n": 2}], outputs=2),
    Case("Det", {"x": "a b"}, {"a": 3, "b": 3}, [{"a": 2}]),
    Case("NonMaxSuppression", {"x": "n b 4", "s": "m c k", "l": ints(2)},
         {"n": 1, "b": 6, "m": 1, "c": 2, "k": 6}, [{"k": 8}, {"m": 2}, {"b": 3}]),
    Case("NonMaxSuppression", {"x": "1 6 f", "s": "1 2 6", "l": ints(2)}, {"f": 4}, [{"f": 3}],
         note="corners"),
    Case("LSTM", {"x": "s n i", "w": ones(1, 16, 3), "r": ones(1, 16, 4)}, {"s": 2, "n": 1, "i": 3},
         [{"i": 2}, {"i": 4}], {"hidden_size": 4}, outputs=3),
    Case("LSTM", {"x": "s 2 3", "w": ones(1, 16, 3), "r": ones(1, 16, 4), "b": None, "l": None, "h": "1 m 4"},
         {"s": 2, "m": 2}, [{"m": 3}], {"hidden_size": 4}, outputs=3, note="state"),
    Case("GRU", {"x": "s n i", "w": ones(1, 12, 3), "r": ones(1, 12, 4)}, {"s": 2, "n": 1, "i": 3},
         [{"i": 2}], {"hidden_size": 4}, outputs=2),
    Case("GRU", {"x": "2 1 3", "w": ones(1, 12, 3), "r": "1 12 h"}, {"h": 4}, [{"h": 3}, {"h": 5}],
         {"hidden_size": 4}, outputs=2, note="hidden size"),
    Case("RNN", {"x": "s n i", "w": ones(1, 4, 3), "r": ones(1, 4, 4)}, {"s": 2, "n": 1, "i": 3},
         [{"i": 5}], {"hidden_size": 4}, outputs=2),
    Case("RotaryEmbedding", {"x": "b 2 s 8", "c": "9 v", "d": "9 w", "i": "b s"},
         {"b": 1, "s": 3, "v": 4, "w": 4}, [{"w": 2}, {"v": 3}],
         dtypes=INDEX, opset=23),
    Case("TensorScatter", {"x": "b 2 s 4", "u": "c 2 t 4", "i": "d"},
         {"b": 1, "s": 6, "c": 1, "t": 2, "d": 1}, [{"c": 2}, {"d": 2}, {"t": 7}, {"s": 1}], dtypes=INDEX,
         opset=24),
    Case("OneHot", {"i": "n", "d": ints(4), "v": "m"}, {"n": 3, "m": 2}, [{"m": 1}, {"m": 3}], dtypes=INDEX),
    Case("AffineGrid", {"t": "n a b", "s": ints(2, 1, 3, 4)}, {"n": 2, "a": 2, "b": 3},
         [{"n": 1}, {"a": 3}, {"b": 4}], opset=20),
    Case("DeformConv", {"x": "1 2 3 3", "w": "1 c 2 2", "o": "1 8 2 2"}, {"c": 2}, [{"c": 1}, {"c": 3}],
         opset=19),
    Case("Attention", {"q": "b 2 s 8", "k": "b 2 t e", "v": "b 2 t 8"},
         {"b": 1, "s": 3, "t": 5, "e": 8}, [{"e": 4}, {"e": 9}], opset=23),
    Case("QuantizeLinear", {"x": "n c", "s": ones(5), "z": np.zeros(5, np.uint8)}, {"n": 2, "c": 5},
         [{"c": 3}, {"c": 1}], {"axis": 1}),
    Case("DequantizeLinear", {"x": "n c", "s": ones(5), "z": np.zeros(5, np.uint8)}, {"n": 2, "c": 5},
         [{"c": 7}], {"axis": 1}, dtypes={"x": "uint8"}),
    Case("RoiAlign", {"x": "1 2 8 8", "r": "n 4", "i": "m"}, {"n": 3, "m": 3}, [{"m": 2}, {"n": 4}],
         {"sampling_ratio": 1}, dtypes=INDEX),
    Case("GridSample", {"x": "n 2 4 4", "g": "m 3 3 2"}, {"n": 2, "m": 2}, [{"m": 1}, {"n": 3}]),
    Case("NegativeLogLikelihoodLoss", {"x": "n 5", "i": "m"}, {"n": 3, "m": 3}, [{"m": 4}], dtypes=INDEX),
    Case("SoftmaxCrossEntropyLoss", {"x": "n 5 k", "i": "m l"}, {"n": 3, "k": 2, "m": 3, "l": 2},
         [{"m": 4}, {"l": 3}], dtypes=INDEX),
    Case("SkipLayerNormalization", {"x": "b s c", "y": "b s c", "a": ones(8)},
         {"b": 1, "s": 2, "c": 8}, [{"c": 4}], domain="com.microsoft"),
    Case("BiasGelu", {"x": "n c", "b": ones(8)}, {"n": 2, "c": 8}, [{"c": 4}], domain="com.microsoft"),
    Case("GroupQueryAttention",
         {"q": "1 1 64", "k": "1 1 32", "v": "1 1 32", "p": "1 2 s 16", "o": "1 2 t h",
          "l": np.array([6], np.int32), "n": np.array(7, np.int32)},
         {"s": 6, "t": 6, "h": 16}, [{"s": 5}, {"s": 0}, {"t": 5}, {"h": 8}],
         {"num_heads": 4, "kv_num_heads": 2}, outputs=3, domain="com.microsoft"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("MatMulNBits", {"x": "2 k", "b": np.zeros((3, 2, 16), np.uint8), "s": ones(6)},
         {"K": 64, "N": 3, "bits": 4, "block_size": 32}),
        ("MultiHeadAttention", {"q": "1 4 h", "k": "1 5 8", "v": "1 5 8"}, {"num_heads": 2}),
        ("Attention", {"x": "1 4 8", "w": "8 h"}, {"num_heads": 2}),
        ("ConvInteger", {"x": "1 1 7 7", "w": "4 1 3 3", "p": np.array(3, np.uint8), "z": "k"}, {}),
    ],
)  # fmt: skip
def test_dims_that_must_be_static_are_unsupported_not_invalid(op, inputs, attrs):
    domain = "" if op == "ConvInteger" else "com.microsoft"
    bytes_ = dict.fromkeys("xwz", "uint8") if op == "ConvInteger" else {}
    case = Case(op, inputs, {}, (), attrs, domain=domain, dtypes=bytes_)
    with pytest.raises(UnsupportedError, match="pin the dims"):
        dlc.load(case.model())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_wrong_sizes_are_refused(case):
    exe = dlc.compile(case.model(), "llvm")
    exe(*case.feeds(case.right))
    for change in case.wrong:
        with pytest.raises(UsageError) as caught:
            exe(*case.feeds({**case.right, **change}))
        assert "'the_node'" in str(caught.value)
        size = next(iter(change.values()))
        assert f"is {size}" in str(caught.value) or f"={size}" in str(caught.value)
