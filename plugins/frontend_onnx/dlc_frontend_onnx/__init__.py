"""Reads ONNX models for the dlc compiler."""
