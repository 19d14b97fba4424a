"""IREE: the compiler's ONNX import, code for this processor, its runtime's pool of workers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers.base import Array, Peer, Session, input_names, output_names

OPSET = 17
"""Older models are converted to it, as the documentation of the import advises."""


def load(path: Path, threads: int) -> Session:
    import iree.compiler
    import iree.runtime
    from iree.runtime import _binding

    with TemporaryDirectory(prefix="dlc-bench-") as folder:
        imported = Path(folder, "model.mlir")
        command = [sys.executable, "-m", "iree.compiler.tools.import_onnx", str(path)]
        command += ["--opset-version", str(OPSET), "-o", str(imported)]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["the import failed"])[-1])
        code = iree.compiler.compile_file(
            str(imported),
            input_type="onnx",
            target_backends=["llvm-cpu"],
            extra_args=["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"],
        )
    iree.runtime.flags.parse_flags(f"--task_topology_group_count={threads}")
    # The driver of the public functions keeps the number of threads of its first use.
    device = _binding.create_hal_driver("local-task").create_default_device()
    context = iree.runtime.SystemContext(config=iree.runtime.Config(device=device))
    context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, code))
    module = context.modules.module
    (name,) = (n for n in module.vm_module.function_names if not n.startswith("__") and "$" not in n)
    function, takes, results = module[name], input_names(path), output_names(path)

    def session(feeds: Mapping[str, Array]) -> dict[str, Array]:
        found = function(*(feeds[each] for each in takes))
        several = found if isinstance(found, (list, tuple)) else [found]
        return dict(zip(results, (each.to_host() for each in several)))

    return session


PEER = Peer("iree", ("iree-base-compiler", "iree-base-runtime"), ("iree.compiler", "iree.runtime"), load)
