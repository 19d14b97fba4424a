"""Builds a graph with the plugin's op and runs it natively.

pip install ./examples/op_plugin
python examples/op_plugin/use_it.py
"""

import numpy as np

import dlc_core as dlc
from dlc_core.graph import Function, param
from dlc_core.ir.module import IRModule
from dlc_core.ir.types import tensor_type

ops = dlc.ops()
x = param("x", tensor_type((2, 8), "float32"))
y = ops["mul"].build(ops["soft_shrink"].build(x, lambd=0.25), x)
module = IRModule({"main": Function("main", (x,), y)})

exe = dlc.compile(module)
data = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)
expected = np.sign(data) * np.maximum(np.abs(data) - 0.25, 0) * data
np.testing.assert_allclose(exe(data), expected, rtol=1e-6, atol=1e-7)
print(f"{exe}\nruns on {exe.target}, from the plugin {dlc.ops().provider('soft_shrink')!r}")
