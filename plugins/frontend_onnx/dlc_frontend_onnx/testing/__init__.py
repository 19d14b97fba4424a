"""Tools to test loaders of ONNX models."""
