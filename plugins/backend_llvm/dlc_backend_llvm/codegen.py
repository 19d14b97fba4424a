"""The code generator: compiles PrimFuncs to an object file for any machine that LLVM supports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dlc_backend_llvm import binding
from dlc_backend_llvm.form import FORMAT
from dlc_backend_llvm.kind import cpu_of
from dlc_core.disk_cache import disk_cached
from dlc_core.foreign.needed import FOREIGN
from dlc_core.ir.module import IRModule
from dlc_core.support.lazy import lazy
from dlc_core.target import Artifact, Target
from dlc_core.target.confined import PlainText, check_source

if TYPE_CHECKING:
    from dlc_backend_llvm import engine, foreign, joining
    from dlc_backend_llvm import export as exporting
    from dlc_backend_llvm.emit import kernels
    from dlc_backend_llvm.emit import module as unit
    from dlc_core.tir.stmt import PrimFunc
else:
    engine = lazy("dlc_backend_llvm.engine")
    exporting = lazy("dlc_backend_llvm.export")
    foreign = lazy("dlc_backend_llvm.foreign")
    joining = lazy("dlc_backend_llvm.joining")
    kernels = lazy("dlc_backend_llvm.emit.kernels")
    unit = lazy("dlc_backend_llvm.emit.module")

IR_RULE = PlainText(r"\basm\b(?! sideeffect \"syscall\",)")
"""LLVM IR of files has no assembly, which could include other files, besides the call that enables tiles."""


LONG = 1 << 19
"""The length of the text of entry points, some 500 calls of kernels, from which LLVM does not optimise them:
its time would grow faster than the number of calls. It costs a few nanoseconds per call.
"""


class LlvmCodegen:
    """Emits the artefact format "object"."""

    name = "llvm"
    kinds = ("llvm", "emulated", "wasm32")
    format = FORMAT
    exports_programs = True
    forms = ("llvm", "asm")

    def emit(
        self, module: IRModule, target: Target, parts: Mapping[str, bytes] = MappingProxyType({})
    ) -> Artifact:
        """Compile all PrimFuncs of the module to one object file. PrimFuncs with the attribute `entry` become
        entry points. `parts` has the results of `emit_part` by function name.
        """
        cpu, level = cpu_of(target), target["opt"]
        found = kernels.module_kernels(module, parts, cpu, level)
        text, entries, rest, names = unit.emit_module(module, cpu, found)
        machine = cpu.triple, cpu.cpu, cpu.features
        code = None
        if all(kernel.code for kernel in found.values()):
            made = [joining.Part(kernel.code, kernel.old, name) for name, kernel in found.items()]
            code = joining.join_objects([joining.Part(_rest_object(rest, *machine, level)), *made])
        if code is None:
            code = engine.compile_ir(text, *machine, opt=level, apart=True)
        metadata = unit.metadata_of(cpu, level)
        if names:
            needed, texts = foreign.check_module(names, cpu)
            code = foreign.with_texts(code, text, texts, cpu, level)
            metadata[FOREIGN] = needed
        return Artifact(
            FORMAT,
            code,
            str(target),
            entries,
            {
                "llvm": text,
                "asm": lambda: engine.assemble(text, *machine, opt=level),
            },
            metadata,
        )

    def emit_part(self, func: PrimFunc, target: Target) -> bytes:
        """The LLVM IR of one PrimFunc with the declarations and helpers that it needs, and its object."""
        return kernels.encode_kernel(func, cpu_of(target), target["opt"])

    def source(self, artifact: Artifact, form: str) -> str | None:
        """The assembly of an artefact that contains its LLVM IR; None for other forms and artefacts."""
        found = artifact.sources.get("llvm")
        if form != "asm" or found is None:
            return None
        text = found if isinstance(found, str) else found()
        check_source(artifact, IR_RULE, text)
        triple, cpu, features = (str(artifact.metadata.get(key, "")) for key in ("triple", "cpu", "features"))
        level = artifact.metadata.get("opt", 2)
        return engine.assemble(text, triple, cpu, features, opt=level)

    def release(self) -> None:
        """Drop the memory that LLVM's code takes in this process until the next compile."""
        binding.release()

    def library(self, exe: Any) -> bytes:
        """A shared library of the code without the weights, for a `.dlc` file that runs without Python."""
        return exporting.bare_library(exe)

    def export(self, exe: Any, path: Path) -> list[Path]:
        """Write a library with a C header, or a folder of objects (see `dlc_backend_llvm.export`)."""
        return exporting.export(exe, path)


def _rest_object(text: str, triple: str, cpu: str, features: str, level: int) -> bytes:
    """The object of a module's entry points.  It is cached on disk, because models whose kernels are equal
    often differ in their weights only; so LLVM is not loaded if all kernels are in the cache.
    """

    if len(text) >= LONG:
        level = 0

    def make() -> bytes:
        return engine.compile_ir(text, triple, cpu, features, opt=level, apart=True)

    stamp = binding.installed()
    key = f"{stamp}\n{triple} {cpu} {features} {level}\n{text}"
    return disk_cached("entries", key, make) if stamp else make()


CODEGEN = LlvmCodegen()
