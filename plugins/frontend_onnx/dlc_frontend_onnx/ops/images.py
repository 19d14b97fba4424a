"""Image decoding on the host by Pillow: `pip install dlc-frontend-onnx[images]`."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np

from dlc_core.diag import RuntimeFailure, UnsupportedError
from dlc_core.ir.expr import Var
from dlc_core.ir.types import TensorType
from dlc_core.op.declare import Attr, ErrorSample, Sample, Tensor, op
from dlc_core.op.infer import Attrs, check_rank, of_input

Bytes = np.ndarray[Any, Any]

FORMATS = {"RGB": ("RGB", 3), "BGR": ("RGB", 3), "Grayscale": ("L", 1)}
"""Pixel formats of ONNX: Pillow's mode, and the number of channels."""

ENCODINGS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""The encodings that ONNX names. Pillow knows others, and runs a PostScript interpreter for some."""

MAX_PIXELS = 1 << 28
"""Limit of pixels, because a small file may declare a huge image."""


def _infer(x: TensorType, attrs: Attrs) -> TensorType:
    check_rank(x, 1, 1)
    return TensorType((attrs["height"], attrs["width"], FORMATS[attrs["pixels"]][1]), x.dtype)


def _reference(encoded: Bytes, *, pixels: str) -> Bytes:
    try:
        from PIL import Image
    except ImportError:
        raise UnsupportedError(
            "decoding pictures needs Pillow", hint="pip install dlc-frontend-onnx[images]"
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(encoded.tobytes()), formats=ENCODINGS) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise RuntimeFailure(f"a picture of {image.width} x {image.height} pixels")
                found = np.asarray(image.convert(FORMATS[pixels][0]))
    except RuntimeFailure:
        raise
    except Exception as error:  # noqa: BLE001  (image decoders raise many types)
        raise RuntimeFailure(
            "the picture cannot be decoded", why=f"{type(error).__name__}: {error}"
        ) from None
    if found.ndim == 2:
        found = found[:, :, np.newaxis]
    return found[:, :, ::-1] if pixels == "BGR" else found


_PIXEL = bytes.fromhex(
    "424d3a000000000000003600000028000000010000000100000001001800000000000400000000000000000000000000000000000000"
    "0102ff00"
)
_DIMS = {"height": Var("height"), "width": Var("width")}

IMAGE_DECODE = op(
    "onnx_image_decode",
    "the pixels of an encoded image as [height, width, channels]; on the host",
    ["encoded"],
    [Attr("height", "fresh"), Attr("width", "fresh"), Attr("pixels", "str", "RGB", choices=tuple(FORMATS))],
    kind="opaque",
    infer=of_input(_infer, ("uint8",)),
    reference=_reference,
    dtypes=("uint8",),
    samples=[Sample((Tensor((len(_PIXEL),), np.frombuffer(_PIXEL, np.uint8)),), _DIMS, ("uint8",))],
    error_samples=[ErrorSample((Tensor((2, 2)),), _DIMS, "rank", "uint8")],
)

OPS = (IMAGE_DECODE,)
