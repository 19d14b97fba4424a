"""The code generator `nvptx`: kernels over thread axes as PTX, for the target kind `cuda`.

`cuda -codegen=nvptx` selects it instead of the kind's default. Both emit artefacts that the device of that
kind loads, with the same list of launches. The code of this one is PTX text.

[1] LLVM, User Guide for NVPTX Back-end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlc_backend_llvm.cpu import HostCpu
from dlc_core.support.lazy import lazy
from dlc_core.target import Artifact, Target

if TYPE_CHECKING:
    from dlc_backend_llvm import engine
    from dlc_backend_llvm.emit import gpu
    from dlc_core.backend import kernels, launch_list, launches
    from dlc_core.ir.module import IRModule
    from dlc_core.tir import stmt
else:
    engine = lazy("dlc_backend_llvm.engine")
    gpu = lazy("dlc_backend_llvm.emit.gpu")
    kernels = lazy("dlc_core.backend.kernels")
    launch_list = lazy("dlc_core.backend.launch_list")
    launches = lazy("dlc_core.backend.launches")
    stmt = lazy("dlc_core.tir.stmt")

FORMAT = "ptx"
TRIPLE = "nvptx64-nvidia-cuda"
_PASSES = "O2"
"""The LLVM pipeline. It promotes private memory to registers and infers address spaces."""


@dataclass(frozen=True)
class NvptxCodegen:
    """Emits the artefact format "ptx"."""

    name: str = "nvptx"
    kinds: tuple[str, ...] = ("cuda",)
    format: str = FORMAT
    forms: tuple[str, ...] = ("ptx", "llvm")

    def emit(self, module: IRModule, target: Target) -> Artifact:
        """Compile all launches of the module to one PTX text. Raises CodegenError for unsupported
        programs.
        """
        arch = str(target["arch"])
        funcs = [f for f in module.of_kind(stmt.PrimFunc).values() if "launch" in f.attrs]
        text, shared = gpu.module_text(funcs, gpu_of(arch))
        made = kernels.EmittedKernels(text, {f.name: f.name for f in funcs}, shared)
        ptx = engine.assemble(text, TRIPLE, arch, "", opt=3, passes=_PASSES)
        metadata = {
            launches.LAUNCHES: launch_list.launch_lists(module, made, target.describe()),
            "arch": arch,
        }
        entries = tuple(func.name for func in launch_list.entries_of(module))
        return Artifact(FORMAT, ptx.encode(), str(target), entries, {"ptx": ptx, "llvm": text}, metadata)

    def source(self, artifact: Artifact, form: str) -> str | None:
        """The PTX; None for other forms."""
        return artifact.code.decode() if form == "ptx" else None


def gpu_of(arch: str) -> HostCpu:
    """The description of a GPU for the emitter: scalar code with FMA and float16 conversions."""
    return HostCpu(TRIPLE, arch, "", 0, 0, True, 0, 0, 0, 1, rounding=True, float16=True)


CODEGEN = NvptxCodegen()

__all__ = ["CODEGEN", "FORMAT", "TRIPLE", "NvptxCodegen", "gpu_of"]
