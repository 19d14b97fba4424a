"""Ten lines: compile and run an ONNX model of the onnx package on this machine."""

from pathlib import Path

import numpy as np
import onnx

import dlc_core as dlc

model = Path(onnx.__file__).parent / "backend/test/data/light/light_squeezenet.onnx"
exe = dlc.compile(model)
image = np.random.default_rng(0).random((1, 3, 224, 224), np.float32)
probabilities = exe(image)
print(f"{exe.inputs[0]} -> {exe.outputs[0]}, {exe.num_threads} threads")
print(f"probabilities sum to {probabilities.sum():.6f}")
