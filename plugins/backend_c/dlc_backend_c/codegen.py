"""The code generator: PrimFuncs to one C file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc_backend_c.kind import index_type, vector_bits
from dlc_backend_c.processors import processor
from dlc_core.ir.module import IRModule
from dlc_core.lazy import lazy
from dlc_core.runtime.failure import CHECKS
from dlc_core.target import Artifact, Target

if TYPE_CHECKING:
    from dlc_backend_c import emit as emission
    from dlc_backend_c import export as exporting
    from dlc_core.passes.tir import check_bounds
else:
    emission = lazy("dlc_backend_c.emit")
    exporting = lazy("dlc_backend_c.export")
    check_bounds = lazy("dlc_core.passes.tir.check_bounds")

FORMAT = "c"
"""Artefacts of this format are C sources whose entry points have the packed signature of `emit`."""


def compile_flags(target: Target) -> tuple[str, ...]:
    """Options of a compiler in the manner of gcc for code of this target."""
    flags = ["-std=gnu99", "-Os" if target["opt-for"] == "size" else "-O3", "-fno-math-errno"]
    flags += ["-ffp-contract=fast", "-fno-trapping-math", "-Wno-psabi"]
    if target["march"]:
        flags.append(f"-march={target['march']}")
    elif target["mcpu"] == "native":
        flags.append("-march=native")
    elif target["mcpu"].startswith("x86-64"):
        flags.append(f"-march={target['mcpu']}")
    elif target["mcpu"]:
        flags.append(f"-mcpu={target['mcpu']}")
    if vector_bits(target.values()) >= 512:
        flags.append("-mprefer-vector-width=512")
    if target.describe().parallel:
        flags.append("-fopenmp")
    return tuple(flags)


class CCodegen:
    """Emits the artefact format "c"."""

    name = "c"
    kinds = ("c",)
    format = FORMAT
    forms = ("c",)

    def emit(self, module: IRModule, target: Target) -> Artifact:
        """One C file with every PrimFunc of the module; those with the attribute `entry` are callable from
        outside.
        """
        options = emission.COptions(
            vectors=vector_bits(target.values()) > 0,
            parallel=target.describe().parallel,
            index=index_type(target.values(), module),
        )
        made = emission.emit_module(module, options)
        metadata: dict[str, Any] = {
            "flags": list(compile_flags(target)),
            "cpu": processor(target["mcpu"]).name,
            "windows": [list(window) for window in made.windows],
        }
        checks = check_bounds.described_checks(module)
        if checks:
            metadata[CHECKS] = checks
        return Artifact(FORMAT, made.text.encode(), str(target), made.entries, {"c": made.text}, metadata)

    def source(self, artifact: Artifact, form: str) -> str | None:
        """The C text, which is the code itself."""
        return artifact.code.decode() if form == "c" else None

    def export(self, exe: Any, path: Path) -> list[Path]:
        """C sources with a header, or a folder with an example and build files; see `export`."""
        return exporting.export(exe, path)


__all__ = ["FORMAT", "CCodegen", "compile_flags"]
