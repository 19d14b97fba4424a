"""The code generator: PrimFuncs to an object file for any machine LLVM knows."""

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
        """One object with every PrimFunc of the module; those with the attribute `entry` are
        callable from outside.  `parts` are what `emit_part` made of functions, by name.
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
        """The text of one PrimFunc and what it refers to."""
        return unit.function_part(func, cpu_of(target))

    def source(self, artifact: Artifact, form: str) -> str | None:
        """The assembly listing of an artefact that has kept its LLVM IR; None for what cannot be made."""
        text = artifact.sources.get("llvm")
        if form != "asm" or text is None:
            return None
        triple, cpu, features = (str(artifact.metadata.get(key, "")) for key in ("triple", "cpu", "features"))
        level = artifact.metadata.get("opt", 2)
        return engine.assemble(text if isinstance(text, str) else text(), triple, cpu, features, opt=level)

    def export(self, exe: Any, path: Path) -> list[Path]:
        """A library with a C header, or a folder of objects; see `dlc_backend_llvm.export`."""
        return exporting.export(exe, path)


CODEGEN = LlvmCodegen()
