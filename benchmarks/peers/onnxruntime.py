"""ONNX Runtime on its CPU provider."""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers.base import Peer, Session


def load(path: Path, threads: int) -> Session:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # it warns of constants that old models list among their inputs
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(None, dict(feeds))))


PEER = Peer("onnxruntime", ("onnxruntime",), ("onnxruntime",), load, together=True)
