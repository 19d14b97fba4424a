"""ONNX graphs as modules of torch that resemble hand-written ones: `module_of`. `ops` defines ONNX's
operators by functions of torch. `trace` runs these once over a graph under `torch.fx`, which records a module
without ONNX. `rewrite` replaces groups of operators by functions of torch. These modules are imported only if
torch is used.
"""
