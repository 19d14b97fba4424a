"""One executable for every batch size, and one for a single size.

A dim with a name in the model is symbolic: native code computes with its size at each call. `shapes` pins it,
by its name or by the input's shape.
"""

import numpy as np
import onnx.parser

import dlc_core as dlc

MODEL = onnx.parser.parse_model("""
<ir_version: 10, opset_import: ["" : 20]>
perceptron (float[batch, 4] x) => (float[batch, 3] y)
<float[4, 3] w = {0.5, -1, 2, 1, 0, -1, 3, 0.25, 1, -2, 1, 0.5}>
{
    product = MatMul(x, w)
    y = Softmax <axis = -1> (product)
}
""")

exe = dlc.compile(MODEL)
print(exe)
for batch in (1, 3, 1000):
    y = exe(np.ones((batch, 4), np.float32))
    assert y.shape == (batch, 3)
    np.testing.assert_allclose(y.sum(axis=1), 1, rtol=1e-6)
    print(f"batch {batch}: {y[0]}")

fixed = dlc.compile(MODEL, shapes={"batch": 8})
print(fixed)
try:
    fixed(np.ones((1, 4), np.float32))
except dlc.DlcError as error:
    print(error)
