"""Reduced networks that onnxruntime quantizes: static in both forms, by channels, dynamic, 4-bit weights."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.corpus.recipe import SEED, small
from benchmarks.corpus.small.images import export

Change = Callable[[str, str], None]
"""A function that makes a model file from another one."""


def _image() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from torch import nn

    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU6(),
        nn.Conv2d(8, 16, 1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 8 * 8, 10),
    )  # fmt: skip
    return module, (torch.randn(1, 3, 32, 32),)


def _tagger() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from torch import nn

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTM(16, 24, batch_first=True, bidirectional=True)
            self.out = nn.Linear(48, 5)

        def forward(self, x: Any) -> Any:
            return self.out(self.cell(x)[0])

    return Tagger(), (torch.randn(1, 6, 16),)


def _layers() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from torch import nn

    module = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
    return module, (torch.randn(1, 6, 64),)


def _static(form: str, **options: Any) -> Change:
    def change(source: str, to: str) -> None:
        from onnxruntime import quantization as q

        class Readings(q.CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                rng = np.random.default_rng(SEED)
                self.left: Iterator[Any] = iter(
                    {"x0": rng.standard_normal((1, 3, 32, 32)).astype("f4")} for _ in range(8)
                )

            def get_next(self) -> Any:
                return next(self.left, None)

        types = {key: getattr(q.QuantType, value) for key, value in options.items() if key.endswith("type")}
        others = {key: value for key, value in options.items() if key not in types}
        form_of = getattr(q.QuantFormat, form)
        q.quantize_static(source, to, Readings(), quant_format=form_of, **types, **others)

    return change


def _dynamic(source: str, to: str) -> None:
    from onnxruntime import quantization as q

    q.quantize_dynamic(source, to)


def _four_bits(source: str, to: str) -> None:
    import onnx
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    made = MatMulNBitsQuantizer(onnx.load(source), 4, 32, True)
    made.process()
    onnx.save(made.model.model, to)


def _changed(path: Path, make: Callable[[], tuple[Any, tuple[Any, ...]]], how: Change) -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "m.onnx"
        export(*make(), whole, False)
        how(str(whole), str(path))


SIGNED = {"activation_type": "QInt8", "weight_type": "QInt8"}
MODELS: dict[str, tuple[Callable[[], tuple[Any, tuple[Any, ...]]], Change]] = {
    "qdq": (_image, _static("QDQ")),
    "qdq_channels": (_image, _static("QDQ", per_channel=True)),
    "qoperator": (_image, _static("QOperator")),
    "qdq_signed": (_image, _static("QDQ", **SIGNED)),
    "lstm": (_tagger, _dynamic),
    "four_bits": (_layers, _four_bits),
}
for _name, (_make, _how) in MODELS.items():
    small(f"quantized/{_name}", "onnxruntime", "int8")(
        lambda path, make=_make, how=_how: _changed(path, make, how)  # type: ignore[misc]
    )
