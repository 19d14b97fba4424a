"""Tools to test loaders of ONNX models: a mutation fuzzer and the models it starts from."""
