"""Networks with weights and activations of 8 bits, in ONNX's QDQ form, as onnxruntime quantizes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.corpus.exporting import save, write
from benchmarks.corpus.recipe import SEED, Make

READINGS = 4
"""The number of inputs from which ranges of activations are computed: the stored ones, and these with noise.
"""
OPERATORS = ("Conv", "MatMul", "Gemm", "Add", "AveragePool", "GlobalAveragePool", "MaxPool", "Concat")


def write_int8(network: Make, batch: int, dims: Mapping[str, int], path: Path) -> None:
    """Write the model file. Outputs are computed by onnxruntime, because PyTorch has only the float32
    network.
    """
    with TemporaryDirectory(prefix="dlc-corpus-") as folder:
        whole = Path(folder, "whole.onnx")
        write(network, batch, dims, whole)
        with np.load(whole.with_suffix(".npz")) as stored:
            feeds = {name[3:]: stored[name] for name in stored.files if name.startswith("in_")}
        quantize(whole, path, feeds)
    save(path, feeds, outputs_of(path, feeds))


def quantize(source: Path, path: Path, feeds: Mapping[str, Any]) -> None:
    """Static quantization: signed bytes, weights by channel."""
    from onnxruntime import quantization as q

    class Readings(q.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left: Iterator[Any] = iter(list(readings(feeds)))

        def get_next(self) -> Any:
            return next(self.left, None)

    q.quantize_static(
        str(source),
        str(path),
        Readings(),
        quant_format=q.QuantFormat.QDQ,
        op_types_to_quantize=list(OPERATORS),
        per_channel=True,
        activation_type=q.QuantType.QInt8,
        weight_type=q.QuantType.QInt8,
    )


def readings(feeds: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The inputs, and similar ones with noise. Integers do not change."""
    yield dict(feeds)
    rng = np.random.default_rng(SEED)
    for _ in range(READINGS - 1):
        yield {
            name: (value + 0.1 * rng.standard_normal(value.shape)).astype(value.dtype)
            if value.dtype.kind == "f"
            else value
            for name, value in feeds.items()
        }


def outputs_of(path: Path, feeds: Mapping[str, Any]) -> list[Any]:
    """The outputs of onnxruntime, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    found: list[Any] = session.run(None, dict(feeds))
    return found
