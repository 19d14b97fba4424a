"""Host ops that ONNX alone needs."""
