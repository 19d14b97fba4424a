"""The target `reference`, which is always available: it evaluates models by the definitions of their ops.

    reference               the graph as imported, node by node, with the ops' NumPy references
    reference -level=tir    the kernels and `main` after lowering, by the interpreter of tensor programs

It is slow, and other targets are compared with it.  It supports control flow, ops without a lowering and
data-dependent shapes.  At level tir, `-check=true` reports reads of undefined memory and conflicts between
parallel iterations.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dlc_core.diag import TargetError
from dlc_core.foreign.needed import FOREIGN
from dlc_core.ir.dtype import DType
from dlc_core.ir.module import IRModule
from dlc_core.support.lazy import lazy
from dlc_core.target.artifact import Artifact
from dlc_core.target.description import Description
from dlc_core.target.target import STAGES, Option, Stages, Target, TargetKind

if TYPE_CHECKING:
    from dlc_core.op.std import foreign_call
    from dlc_core.script import json as as_json
    from dlc_core.tir import stmt
else:
    foreign_call = lazy("dlc_core.op.std.foreign_call")
    as_json = lazy("dlc_core.script.json")
    stmt = lazy("dlc_core.tir.stmt")

GRAPH, TENSOR = "graph-json", "tir-json"
"""The artefact formats of the two levels."""

INTERFACE: Stages = ("interface",)
"""The stages of a graph that runs directly: only the pass that describes its interface."""


def _stages(options: Mapping[str, Any]) -> Stages:
    return STAGES if _level(options["level"]) == TENSOR else INTERFACE


def _level(name: str) -> str:
    if name not in ("graph", "tir"):
        raise TargetError(f"target option -level={name}", hint="graph or tir")
    return GRAPH if name == "graph" else TENSOR


KIND = TargetKind(
    name="reference",
    doc="the definition of every op, in NumPy on the host: slow; other targets are compared with it",
    codegen="reference",
    device="reference",
    options=(
        Option("level", "str", "graph", "what runs: graph (the model's nodes) or tir (the lowered kernels)"),
        Option(
            "check", "bool", False, "at level tir: report undefined reads and conflicts between iterations"
        ),
    ),
    describe=lambda options: Description(parallel=False, control=True),
    stages=_stages,
)


class ReferenceCodegen:
    """Writes a module as JSON; its arrays stay in the weights."""

    name = "reference"
    kinds = ("reference",)
    formats = (GRAPH, TENSOR)
    one_entry = True

    @property
    def format(self) -> str:
        return GRAPH

    def emit(self, module: IRModule, target: Target) -> Artifact:
        """The module's JSON. The metadata has the offsets of its arrays."""
        arrays: list[np.ndarray[Any, Any]] = []
        format_ = _level(target["level"])
        kernels: dict[str, stmt.PrimFunc] = module.of_kind(stmt.PrimFunc)
        # The graph of a host program is not code. It is a separate file of an artefact.
        bare = IRModule(kernels if format_ == TENSOR else module.functions, {}, module.entry)
        entries = tuple(n for n, f in kernels.items() if f.attrs.get("entry")) or (module.entry,)
        code = json.dumps(as_json.to_json(bare, arrays), separators=(",", ":")).encode()
        offsets = {id(data): offset for offset, data in module.attrs["constants"]}
        listed = [[DType.of(a.dtype).name, list(a.shape), offsets[id(a)]] for a in arrays]
        metadata = {
            "arrays": listed,
            "check": bool(target["check"]),
        }
        if called := foreign_call.called_functions(bare):
            metadata[FOREIGN] = called
        return Artifact(format_, code, str(target), entries, metadata=metadata)


CODEGEN = ReferenceCodegen()

__all__ = ["CODEGEN", "GRAPH", "KIND", "TENSOR", "ReferenceCodegen"]
