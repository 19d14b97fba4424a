"""Post-training quantization: convert a float model to bytes, by the ranges of its values on calibration
data.

quantized = dlc.quantize("model.onnx", calibration=[batch, …])
exe = dlc.compile(quantized)
"""

from dlc_core.quantization.quantize import quantize

__all__ = ["quantize"]
