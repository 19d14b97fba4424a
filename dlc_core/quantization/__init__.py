"""Post-training quantization: a model of floats as one of bytes, by ranges that are seen on data.

quantized = dlc.quantize("model.onnx", calibration=[batch, …])
exe = dlc.compile(quantized)
"""

from dlc_core.quantization.quantize import quantize

__all__ = ["quantize"]
