"""Whole networks of the onnx package, compared with their stored results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from dlc_frontend_onnx.testing.compare import main_of
from onnx import TensorProto, numpy_helper

from dlc_core.op.reference import evaluate

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
FAST = ("bvlc_alexnet", "shufflenet")
SLOW = ("densenet121", "inception_v1", "inception_v2", "resnet50", "vgg19", "zfnet512")


def feed(shape):
    """The input that the package's own runner generates for these models."""
    count = int(np.prod(shape))
    return (np.arange(count).reshape(shape) / count).astype(np.float32)


@pytest.mark.parametrize("name", [*FAST, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
def test_networks_have_their_stored_results(name):
    main = main_of(LIGHT / f"light_{name}.onnx")
    (x,) = main.params
    found = evaluate(main, [feed(x.type.shape)])
    expected = TensorProto.FromString((LIGHT / f"light_{name}_output_0.pb").read_bytes())
    np.testing.assert_allclose(found, numpy_helper.to_array(expected), rtol=1e-3, atol=1e-7)


def test_squeezenet_has_equal_logits():
    """Its stored result, 1/1000 everywhere, is the softmax of equal logits near 1e10. One bit of rounding
    there changes the softmax completely, so the logits are compared.
    """
    main = main_of(LIGHT / "light_squeezenet.onnx")
    (x,) = main.params
    assert main.body.op.name == "softmax"
    logits = evaluate(main.body.args[0], {x: feed(x.type.shape)})
    assert isinstance(logits, np.ndarray)
    assert logits.shape == (1, 1000, 1, 1)
    np.testing.assert_allclose(logits, logits.flat[0], rtol=1e-6)
