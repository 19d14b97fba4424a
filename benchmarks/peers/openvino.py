"""OpenVINO on its CPU device, restricted to float32. By default it uses bfloat16 if the processor supports
it.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.base import Peer, Session, output_names

HINTS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def load(path: Path, threads: int, precision: str = "float32") -> Session:
    import openvino

    options = {
        "INFERENCE_PRECISION_HINT": HINTS[precision],
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
    }
    model = openvino.Core().compile_model(str(path), "CPU", options)
    names = output_names(path)
    return lambda feeds: dict(zip(names, model(dict(feeds)).values()))


PEER = Peer("openvino", ("openvino",), ("openvino",), load, precisions=tuple(HINTS))
