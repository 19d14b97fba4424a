"""The code generator: compiles PrimFuncs to an object file for any machine that LLVM supports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dlc_backend_llvm.form import FORMAT
from dlc_backend_llvm.kind import cpu_of
from dlc_core.ir.module import IRModule
from dlc_core.support.lazy import lazy
from dlc_core.target import Artifact, Target

if TYPE_CHECKING:
    from dlc_backend_llvm import engine
    from dlc_backend_llvm import export as exporting
    from dlc_backend_llvm.emit import module as unit
    from dlc_backend_llvm.emit.unit import Part
    from dlc_core.tir.stmt import PrimFunc
else:
    engine = lazy("dlc_backend_llvm.engine")
    exporting = lazy("dlc_backend_llvm.export")
    unit = lazy("dlc_backend_llvm.emit.module")


class LlvmCodegen:
    """Emits the artefact format "object"."""

    name = "llvm"
    kinds = ("llvm", "emulated")
    format = FORMAT
    forms = ("llvm", "asm")

    def emit(
        self, module: IRModule, target: Target, parts: Mapping[str, Part] = MappingProxyType({})
    ) -> Artifact:
        """Compile all PrimFuncs of the module to one object file. PrimFuncs with the attribute `entry` become
        entry points. `parts` has the results of `emit_part` by function name.
        """
        cpu = cpu_of(target)
        text, entries = unit.module_text(module, cpu, parts)
        level = target["opt"]
        machine = cpu.triple, cpu.cpu, cpu.features
        code = engine.compile_ir(text, *machine, opt=level)
        return Artifact(
            FORMAT,
            code,
            str(target),
            entries,
            {
                "llvm": text,
                "asm": lambda: engine.assemble(text, *machine, opt=level),
            },
            unit.metadata_of(cpu, level),
        )

    def emit_part(self, func: PrimFunc, target: Target) -> Part:
        """The LLVM IR of one PrimFunc, and the declarations and helpers that it needs."""
        return unit.function_part(func, cpu_of(target))

    def source(self, artifact: Artifact, form: str) -> str | None:
        """The assembly of an artefact that contains its LLVM IR; None for other forms and artefacts."""
        text = artifact.sources.get("llvm")
        if form != "asm" or text is None:
            return None
        triple, cpu, features = (str(artifact.metadata.get(key, "")) for key in ("triple", "cpu", "features"))
        level = artifact.metadata.get("opt", 2)
        return engine.assemble(text if isinstance(text, str) else text(), triple, cpu, features, opt=level)

    def export(self, exe: Any, path: Path) -> list[Path]:
        """Write a library with a C header, or a folder of objects (see `dlc_backend_llvm.export`)."""
        return exporting.export(exe, path)


CODEGEN = LlvmCodegen()
