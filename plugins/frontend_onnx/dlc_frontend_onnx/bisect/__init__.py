"""Search for the node of a model whose result is wrong, and for the smallest model that reproduces it."""

from dlc_frontend_onnx.bisect.search import Bisection, Culprit, bisect, plain_message

__all__ = ["Bisection", "Culprit", "bisect", "plain_message"]
