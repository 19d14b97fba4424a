"""Host ops that only ONNX needs."""
