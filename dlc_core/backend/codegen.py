"""The code generator for languages of the C family: PrimFuncs to one file of source text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dlc_core.backend.packed import CYCLES, FLAGS
from dlc_core.ir.module import IRModule
from dlc_core.support.lazy import lazy
from dlc_core.target import Artifact, Target

if TYPE_CHECKING:
    from dlc_core.backend import emission, estimate
    from dlc_core.passes.tir import check_bounds
    from dlc_core.target import source
else:
    emission = lazy("dlc_core.backend.emission")
    estimate = lazy("dlc_core.backend.estimate")
    check_bounds = lazy("dlc_core.passes.tir.check_bounds")
    source = lazy("dlc_core.target.source")


class SourceCodegen:
    """Emits source text whose entry points have the packed signature of `packed`.

    A subclass gives `name`, `kinds` and `format`, and overrides what its language does otherwise: `dialect`
    (types, functions, qualifiers: a table), `writer` (statements and effects that no table covers), `flags`
    (of the compiler that makes it run on the machine that simulates the device).
    """

    name: str
    kinds: tuple[str, ...]
    format: str
    forms: tuple[str, ...] = ("c",)
    """The readable forms of an artefact; the first is the text itself."""

    def dialect(self, module: IRModule, target: Target) -> source.Dialect:
        """The table of the language for one module: C, with vectors where the target has some."""
        if not target.describe().vector_bits:
            return source.C99
        return replace(source.C99, vectors="extension", alignment="__attribute__((aligned({align})))")

    def writer(self) -> type[emission.ModuleWriter]:
        """The class that writes functions."""
        return emission.ModuleWriter

    def flags(self, target: Target) -> tuple[str, ...]:
        """The options of a gcc-compatible compiler."""
        speed = ("-O2", "-fno-math-errno", "-ffp-contract=fast", "-fno-trapping-math")
        return ("-std=gnu99", *speed, "-Wno-psabi")

    def metadata(self, made: emission.Emitted, target: Target) -> Mapping[str, Any]:
        """Additional metadata for the device."""
        return {}

    def emit(self, module: IRModule, target: Target) -> Artifact:
        """One file with every PrimFunc of the module; those with the attribute `entry` are callable from
        outside.
        """
        made = emission.emit_module(module, self.dialect(module, target), self.writer())
        metadata: dict[str, Any] = {
            FLAGS: list(self.flags(target)),
            CYCLES: estimate.entry_cycles(module, target),
            **self.metadata(made, target),
        }
        sources = {self.forms[0]: made.text}
        return Artifact(self.format, made.text.encode(), str(target), made.entries, sources, metadata)

    def source(self, artifact: Artifact, form: str) -> str | None:
        """The text, which is the code itself."""
        return artifact.code.decode() if form == self.forms[0] else None


__all__ = ["SourceCodegen"]
