"""TVM: the ONNX frontend of its released wheel, the default pipeline for this processor, no tuning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.peers.base import Array, Peer, Session, input_names, output_names


def load(path: Path, threads: int) -> Session:
    import onnx
    import tvm
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    device = tvm.cpu()
    tvm.get_global_func("runtime.config_threadpool")(1, threads)
    module = from_onnx(onnx.load(path))
    machine = relax.VirtualMachine(tvm.compile(module, tvm.target.Target.from_device(device)), device)
    main, takes, results = machine["main"], input_names(path), output_names(path)

    def session(feeds: Mapping[str, Array]) -> dict[str, Array]:
        found = main(*(tvm.runtime.tensor(feeds[each]) for each in takes))
        several = [found] if isinstance(found, tvm.runtime.Tensor) else list(found)
        return dict(zip(results, (each.numpy() for each in several)))

    return session


PEER = Peer("tvm", ("apache-tvm",), ("tvm",), load)
