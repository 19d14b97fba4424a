"""Portable models: graphs and weights in a `.dlc` file without native code, compiled where they are opened.

save_portable("model.onnx", "model.dlc")       a model as a file
read_portable("model.dlc") -> PortableModel    the checked file
model.module() -> IRModule                     its graphs, checked
"""
