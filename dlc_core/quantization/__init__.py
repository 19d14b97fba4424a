"""Post-training quantization: convert a float model to bytes, by the ranges of its values on calibration
data.

quantized = dlc.quantize("model.onnx", calibration=[batch, …])
exe = dlc.compile(quantized)

`quantize_weights` needs no data: it stores the weights of products in a quantisation format.
"""

from dlc_core.quantization.quantize import quantize
from dlc_core.quantization.weights import quantize_weights

__all__ = ["quantize", "quantize_weights"]
