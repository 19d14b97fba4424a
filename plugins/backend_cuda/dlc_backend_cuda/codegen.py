"""The code generator: kernels as CUDA C, in the subset that is also C.

The text needs no header and no runtime library. NVRTC and nvcc compile it directly. A C compiler can compile
it too, with definitions for a few words (`simulated`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dlc_backend_cuda.architectures import STATIC_SHARED, architecture, number
from dlc_backend_cuda.kind import AXES, is_binary
from dlc_core.backend import LaunchCodegen
from dlc_core.ir.module import IRModule
from dlc_core.support.lazy import lazy
from dlc_core.target import COMPILED, Artifact, Target
from dlc_core.target.c_text import CText
from dlc_core.tir.threads import SWIZZLED, SWIZZLED_ALIGN

if TYPE_CHECKING:
    from dlc_backend_cuda import matrices, nvrtc, polyfills, report, tma
    from dlc_core.backend import in_place, kernels, launches
    from dlc_core.backend import polyfills as plain
    from dlc_core.target import source
else:
    tma = lazy("dlc_backend_cuda.tma")
    matrices = lazy("dlc_backend_cuda.matrices")
    nvrtc = lazy("dlc_backend_cuda.nvrtc")
    report = lazy("dlc_backend_cuda.report")
    polyfills = lazy("dlc_backend_cuda.polyfills")
    in_place = lazy("dlc_core.backend.in_place")
    kernels = lazy("dlc_core.backend.kernels")
    launches = lazy("dlc_core.backend.launches")
    plain = lazy("dlc_core.backend.polyfills")
    source = lazy("dlc_core.target.source")

TEXT = "cuda-c"
"""The format of artefacts that are CUDA C. `launches` in their metadata lists the launches."""
BINARY = "cuda-binary"
"""The format of artefacts that are machine code for one architecture, followed by PTX for later ones."""
PTX = "ptx"
"""The format of artefacts that are PTX."""
CODE_BYTES = "cubin"
"""The key in the metadata of a binary for the number of bytes of its machine code."""
ARCH = "arch"
"""The key in the metadata for the architecture."""

_BOUNDS = re.compile(r"__launch_bounds__\((\d+)(?:, 1)?\) (\w+)\(")
_PTX = r"(?!.*(?:^|[;{}:\s])\.(?!(?:reg|pred|[bufs]\d+)\b))(?s:[\w\s.,:;%{}()\[\]@!+-]*)"
"""A pattern of inline assembly without other directives than those that declare registers."""
_OWN, _ROWS = "__align__(16)", f"__align__({SWIZZLED_ALIGN})"
_ALL = "0xffffffffu"
"""The mask of all threads of a warp, which the exchange instructions synchronise."""
_DOT = "dlc_dot_{a}_{b}({{0}}, {{1}}, {{2}})"
_WORDS = {
    "barrier": "__syncthreads()",
    "subgroup_shuffle": f"__shfl_sync({_ALL}, {{0}}, (int)({{1}}), {{2}})",
    "subgroup_shuffle_down": f"__shfl_down_sync({_ALL}, {{0}}, (unsigned)({{1}}), {{2}})",
    "subgroup_shuffle_xor": f"__shfl_xor_sync({_ALL}, {{0}}, (int)({{1}}), {{2}})",
}


class CudaCodegen(LaunchCodegen):
    """Emits the artefact format "cuda-c", or "cuda-binary" if the target's option `code` selects it."""

    name = "cuda"
    kinds = ("cuda", "cuda_simulated")
    format = TEXT
    formats = (TEXT, BINARY)
    forms = ("cu", "ptx")
    source_formats = MappingProxyType({TEXT: CText(headers=frozenset({"stdint.h"}), assembly=_PTX)})

    def dialect(self, module: IRModule, target: Target) -> source.Dialect:
        """CUDA C. Indices have 32 bits if all sizes fit."""
        levels = (("block", "blockIdx"), ("thread", "threadIdx"))
        return source.Dialect(
            "CUDA C",
            index="int" if kernels.narrow_index(module) else "int64_t",
            inline=polyfills.INLINE,
            restrict="__restrict__",
            # Memory that a kernel allocates belongs to one thread, unless its scope is shared.
            scopes={
                **dict.fromkeys(("local", "global"), _OWN),
                "shared": f"__shared__ {_OWN}",
                SWIZZLED: f"__shared__ {_ROWS}",
            },
            headers=(),
            reserved=polyfills.RESERVED,
            fixed=polyfills.FIXED,
            foreign=("cuda",),
            kernels=source.Kernels(
                head="__global__ void",
                axes={f"{level}.{axis}": f"{word}.{axis}" for axis in AXES for level, word in levels},
                words={**_WORDS, **plain.dot_words(_DOT)},
                bounds="__launch_bounds__({threads})",
                copies=polyfills.COPIES if number(architecture(target["arch"])) >= 80 else None,
                tensor_copies=tma.COPIES if target.describe().bulk else None,
                matrices=matrices.matrices(target.describe().matrix_units),
                large=source.Large(
                    STATIC_SHARED,
                    f"dlc_dynamic __shared__ {_ROWS} uint8_t {{name}}[dlc_static_size({{bytes}})]",
                    SWIZZLED_ALIGN,
                ),
                moves=source.Moves(
                    polyfills.LANES,
                    type="{scalar}x{lanes}",
                    make="make_{type}({values})",
                    load="*(const {type} *)({at})",
                    store="*({type} *)({at}) = {value}",
                    widest=polyfills.WIDEST,
                    aligned=True,
                ),
            ),
        )

    def writer(self) -> type[kernels.KernelWriter]:
        """The class that writes kernels."""
        return in_place.InPlaceWriter

    def emit(self, module: IRModule, target: Target) -> Artifact:
        """Write the kernels, preceded by the definitions that they need, and compile them if the target asks
        for binaries.

        The assembler may spill registers of a kernel so that more groups are resident. Such kernels are
        compiled again with launch bounds of one resident group.
        """
        made = super().emit(module, target)
        more = {**tma.WORDS, **matrices.matrix_words(target.describe().matrix_units)}
        text = with_words(made.code.decode(), more)
        made = replace(made, code=text.encode(), sources={"cu": text})
        if not is_binary(target.values()):
            return made
        compiled = nvrtc.compile_kernels(text, target["arch"])
        facts = report.read_report(compiled.log)
        spilt = {symbol for symbol, known in facts.items() if known.get("spill bytes")}
        if spilt:
            text = _BOUNDS.sub(lambda m: m[0].replace(")", ", 1)", 1) if m[2] in spilt else m[0], text)
            compiled = nvrtc.compile_kernels(text, target["arch"])
            facts = report.read_report(compiled.log)
        threads = {symbol: int(count) for count, symbol in _BOUNDS.findall(text)}
        for kernel in launches.read_launches(made.metadata[launches.LAUNCHES])[0]:
            known = facts[kernel.symbol]
            known["shared bytes"] = max(kernel.shared_bytes, known["shared bytes"])
        facts = report.with_occupancy(facts, threads, target.describe())
        return replace(
            made,
            format=BINARY,
            code=compiled.cubin + compiled.ptx,
            sources={"cu": text, "ptx": compiled.ptx.decode()},
            metadata={**made.metadata, CODE_BYTES: len(compiled.cubin), COMPILED: facts},
        )

    def launch_metadata(self, module: IRModule, target: Target) -> Mapping[str, Any]:
        """The architecture of the code."""
        return {ARCH: target["arch"]}

    def source(self, artifact: Artifact, form: str) -> str | None:
        """The PTX of an artefact; None for other forms."""
        if form != "ptx":
            return None
        if artifact.format == BINARY:
            return artifact.code[artifact.metadata[CODE_BYTES] :].decode()
        return nvrtc.compile_kernels(artifact.code.decode(), artifact.metadata[ARCH]).ptx.decode()


def with_words(text: str, more: Mapping[str, str] = MappingProxyType({})) -> str:
    """The text of kernels with the definitions of all helpers that it uses, so that it is complete."""
    definitions = [*kernels.defined(text, polyfills.WORDS), *kernels.defined(text, more)]
    return plain.standalone("\n".join([*definitions, text]), "__CUDACC_RTC__")


CODEGEN = CudaCodegen()

__all__ = ["ARCH", "BINARY", "CODEGEN", "CODE_BYTES", "PTX", "TEXT", "CudaCodegen", "with_words"]
