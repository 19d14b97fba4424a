"""The code generator for languages of the C family. It writes all PrimFuncs to one file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dlc_core.backend.packed import CYCLES
from dlc_core.foreign.needed import FOREIGN
from dlc_core.ir.module import IRModule
from dlc_core.support.lazy import lazy
from dlc_core.target import Artifact, Target
from dlc_core.target.artifact import FLAGS
from dlc_core.target.c_text import CText
from dlc_core.target.confined import SourceRule

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

    A subclass defines `name`, `kinds` and `format`. It overrides the parts in which its language differs from
    C: `dialect`, a table of types, functions and qualifiers; `writer`, the class that writes statements;
    `flags`, the options of the C compiler of the simulated device.
    """

    name: str
    kinds: tuple[str, ...]
    format: str
    forms: tuple[str, ...] = ("c",)
    """The readable forms of an artefact. The first is the text itself."""

    @property
    def source_formats(self) -> Mapping[str, SourceRule]:
        """The rules of formats that a compiler of this machine reads: text of the C family."""
        return {self.format: CText()}

    def dialect(self, module: IRModule, target: Target) -> source.Dialect:
        """The table of the language for one module: C, with vector types if the target has vectors."""
        if not target.describe().vector_bits:
            return source.C99
        return replace(source.C99, vectors="extension", alignment="__attribute__((aligned({align})))")

    def writer(self) -> type[emission.ModuleWriter]:
        """The class that writes functions."""
        return emission.ModuleWriter

    def flags(self, target: Target) -> tuple[str, ...]:
        """The options of a gcc-compatible compiler. Integers wrap around, as those of all targets do: without
        `-fwrapv` a compiler may remove checks of what has been added.
        """
        speed = ("-O2", "-fwrapv", "-fno-math-errno", "-ffp-contract=fast", "-fno-trapping-math")
        return ("-std=gnu99", *speed, "-Wno-psabi")

    def metadata(self, made: emission.Emitted, target: Target) -> Mapping[str, Any]:
        """Additional metadata for the device."""
        return {}

    def emit(self, module: IRModule, target: Target) -> Artifact:
        """Write all PrimFuncs of the module to one file. Those with the attribute `entry` become entry
        points.
        """
        made = emission.emit_module(module, self.dialect(module, target), self.writer())
        metadata: dict[str, Any] = {
            FLAGS: list(self.flags(target)),
            CYCLES: estimate.entry_cycles(module, target),
            **({FOREIGN: list(made.foreign)} if made.foreign else {}),
            **self.metadata(made, target),
        }
        sources = {self.forms[0]: made.text}
        return Artifact(self.format, made.text.encode(), str(target), made.entries, sources, metadata)

    def source(self, artifact: Artifact, form: str) -> str | None:
        """The source text of an artefact; None for other forms."""
        return artifact.code.decode() if form == self.forms[0] else None


__all__ = ["SourceCodegen"]
