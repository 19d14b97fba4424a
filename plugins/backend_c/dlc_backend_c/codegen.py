"""The code generator, which writes PrimFuncs to one C file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_backend_c.dsp import dsp_helpers
from dlc_backend_c.kind import index_type, vector_bits
from dlc_backend_c.micro_helpers import micro_helpers
from dlc_backend_c.mve import mve_helpers
from dlc_backend_c.processors import processor
from dlc_core.backend import SourceCodegen
from dlc_core.ir.module import IRModule
from dlc_core.support.lazy import lazy
from dlc_core.target import Target
from dlc_core.target.c_text import INSTRUCTION, CText
from dlc_core.target.confined import SourceRule

if TYPE_CHECKING:
    from dlc_backend_c import export as exporting
    from dlc_core.backend import emission
    from dlc_core.target import source
else:
    exporting = lazy("dlc_backend_c.export")
    source = lazy("dlc_core.target.source")

FORMAT = "c"
"""The format of artefacts that are C sources, whose entry points have the packed signature of the core."""

PARALLEL = """#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads({threads})
#endif"""
"""The pragma is conditional, so that compilers without OpenMP do not warn."""


def compile_flags(target: Target) -> tuple[str, ...]:
    """The options of a gcc-compatible compiler for code of this target. Integers wrap around: without
    `-fwrapv` a compiler may remove checks of what has been added.
    """
    flags = ["-std=gnu99", "-Os" if target["opt-for"] == "size" else "-O3", "-fwrapv", "-fno-math-errno"]
    flags += ["-ffp-contract=fast", "-fno-trapping-math", "-Wno-psabi"]
    flags += [f"-march={target['march']}"] if target["march"] else processor(target["mcpu"]).flags
    if vector_bits(target.values()) >= 512:
        flags.append("-mprefer-vector-width=512")
    if target.describe().parallel:
        flags.append("-fopenmp")
    return tuple(flags)


class CCodegen(SourceCodegen):
    """Emits the artefact format "c"."""

    name = "c"
    kinds = ("c",)
    format = FORMAT
    exports_programs = True

    @property
    def source_formats(self) -> Mapping[str, SourceRule]:
        """C, in which helpers for microcontrollers have single instructions as assembly."""
        return {self.format: CText(assembly=INSTRUCTION)}

    def dialect(self, module: IRModule, target: Target) -> source.Dialect:
        """Standard C, with the extensions that the options of the target enable."""
        cpu, vectors = processor(target["mcpu"]), vector_bits(target.values()) > 0
        return replace(
            source.C99,
            index=index_type(target.values(), module),
            vectors="extension" if vectors else "",
            alignment="__attribute__((aligned({align})))" if vectors else "",
            parallel=PARALLEL if target.describe().parallel else "",
            fixed={
                **(dsp_helpers() if cpu.dsp else {}),
                **(mve_helpers() if cpu.mve else {}),
                **(micro_helpers(floats=cpu.floats) if cpu.micro else {}),
            },
            separate_kernels=cpu.micro and target["opt-for"] != "size",
        )

    def flags(self, target: Target) -> tuple[str, ...]:
        """The options of a gcc-compatible compiler."""
        return compile_flags(target)

    def metadata(self, made: emission.Emitted, target: Target) -> Mapping[str, Any]:
        """The processor, and the views of the weights with their offsets."""
        return {"cpu": processor(target["mcpu"]).name, "windows": [list(window) for window in made.windows]}

    def export(self, exe: Any, path: Path) -> list[Path]:
        """Write C sources with a header, or a folder with an example and build files (see `export`)."""
        return exporting.export(exe, path)


CODEGEN = CCodegen()

__all__ = ["CODEGEN", "FORMAT", "CCodegen", "compile_flags"]
