"""Decoding of images: only by decoders of the encodings that ONNX names."""

from __future__ import annotations

import io
import subprocess

import numpy as np
import pytest
from dlc_frontend_onnx.ops.images import ENCODINGS, IMAGE_DECODE

from dlc_core.diag import RuntimeFailure

Image = pytest.importorskip("PIL.Image", reason="decoding pictures needs the extra `images`")

PICTURE = np.arange(12, dtype=np.uint8).reshape(2, 2, 3) * 20


def encoded(encoding: str) -> np.ndarray:
    data = io.BytesIO()
    Image.fromarray(PICTURE).save(data, encoding)
    return np.frombuffer(data.getvalue(), np.uint8)


@pytest.mark.parametrize("encoding", ["BMP", "PNG", "PPM", "TIFF"])
def test_lossless_encodings_are_decoded(encoding):
    assert encoding in ENCODINGS
    np.testing.assert_array_equal(IMAGE_DECODE.reference(encoded(encoding), pixels="RGB"), PICTURE)


@pytest.mark.parametrize("encoding", ["EPS", "GIF", "TGA"])
def test_other_encodings_are_refused(encoding, monkeypatch):
    """Pillow would run a PostScript interpreter for EPS."""

    def refuse(*args, **kwargs):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(RuntimeFailure, match="cannot be decoded") as caught:
        IMAGE_DECODE.reference(encoded(encoding), pixels="RGB")
    assert "UnidentifiedImageError" in str(caught.value)
