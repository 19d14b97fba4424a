"""OpenVINO on its CPU device, held to float32: by itself it computes in bfloat16 where the processor can."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.base import Peer, Session, output_names


def load(path: Path, threads: int) -> Session:
    import openvino

    options = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
    }
    model = openvino.Core().compile_model(str(path), "CPU", options)
    names = output_names(path)
    return lambda feeds: dict(zip(names, model(dict(feeds)).values()))


PEER = Peer("openvino", ("openvino",), ("openvino",), load)
