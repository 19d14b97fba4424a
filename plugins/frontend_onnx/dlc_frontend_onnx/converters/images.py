"""ImageDecoder."""

from __future__ import annotations

from dlc_core.graph.node import Node
from dlc_core.ir.expr import Var
from dlc_frontend_onnx.converters.base import Call, converter
from dlc_frontend_onnx.ops.images import FORMATS, IMAGE_DECODE


@converter("ImageDecoder", 20)
def image_decoder(c: Call, encoded: Node) -> Node:
    pixels = c.choice("pixel_format", "RGB", tuple(FORMATS))
    return IMAGE_DECODE.build(encoded, height=Var("height"), width=Var("width"), pixels=pixels)
