"""Tokenizer of com.microsoft, compared with onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import dlc_core as dlc
from dlc_core.diag import ModelError, UnsupportedError


def tokenizer(rank=1, **attributes):
    attributes = {"mark": 0, "mincharnum": 1, "pad_value": "#", **attributes}
    node = helper.make_node("Tokenizer", ["x"], ["y"], domain="com.microsoft", **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.STRING, [f"n{i}" for i in range(rank)])
    y = helper.make_tensor_value_info("y", TensorProto.STRING, None)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "tokens", [x], [y])
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


@pytest.mark.parametrize(
    ("texts", "attributes"),
    [
        (["hello world!", "a bc  def", ""], {"separators": [" "]}),
        (["hello world!", "a bc  def", ""], {"separators": [" "], "mark": 1, "mincharnum": 2}),
        (["h\u00e9llo", "ab\n"], {"separators": [""]}),
        (["h\u00e9llo", "ab"], {"separators": [""], "mark": 1}),
        (["foo bar_baz 12", "..."], {"tokenexp": "[a-z]+"}),
        (["foo bar_baz 12", "..."], {"tokenexp": "[a-z]+", "mark": 1, "mincharnum": 4}),
        (["ab ba"], {"tokenexp": "a*"}),
        ([["a,b;c", "d"], ["e;f", "g,,h"]], {"separators": [",", ";"]}),
        (["a1b22c", "xx"], {"separators": ["[0-9]+"]}),
        (["aab", "abab"], {"separators": ["ab", "a"]}),
        (["x1y 2 z3"], {"separators": ["([0-9])( )?"]}),
    ],
)
def test_tokens(texts, attributes):
    onnxruntime = pytest.importorskip("onnxruntime")
    x = np.array(texts, object)
    model = tokenizer(x.ndim, **attributes)
    (expected,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    found = dlc.compile(model).run({"x": x})["y"]
    assert (found.shape, found.tolist()) == (expected.shape, expected.tolist())


def test_no_strings_have_no_tokens():
    found = dlc.compile(tokenizer(separators=[" "], mark=1)).run({"x": np.array([], object)})["y"]
    assert found.shape == (0, 0)


@pytest.mark.parametrize(
    ("attributes", "kind", "problem"),
    [
        ({}, ModelError, "one of the attributes separators and tokenexp"),
        ({"separators": [" "], "tokenexp": "a"}, ModelError, "one of the attributes separators and tokenexp"),
        ({"separators": [" "], "mincharnum": 0}, ModelError, "mincharnum is 0"),
        ({"separators": [""], "mincharnum": 2}, ModelError, "mincharnum is 2"),
        ({"separators": ["("]}, ModelError, "no regular expression"),
        ({"separators": [" ", ""]}, UnsupportedError, "an empty separator among others"),
    ],
)
def test_refused(attributes, kind, problem):
    with pytest.raises(kind, match=problem):
        dlc.compile(tokenizer(**attributes))
