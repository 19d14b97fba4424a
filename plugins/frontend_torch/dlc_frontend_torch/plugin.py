"""The hooks of this package. torch is imported when the first program is read."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from dlc_core.hooks import Frontend, Namespace, hookimpl
from dlc_core.support.record import record

DLC_API = "0.1"


@record(frozen=True)
class Torch:
    """The PyTorch frontend. The importer is loaded when the first program is read."""

    name: str = "torch"
    suffixes: tuple[str, ...] = (".pt2",)
    help: str = "PyTorch programs: torch.export.ExportedProgram, torch.nn.Module, .pt2 files"
    options: tuple[str, ...] = ("shapes", "importers", "example_inputs", "dynamic_shapes", "unguarded")
    runs_files: bool = True
    """torch unpickles parts of `.pt2` files, and evaluates text of them."""

    def load(self, model: Any, context: Mapping[str, Any] | None = None) -> Any:
        """The program as an `IRModule`; see `dlc_frontend_torch.exported.load`."""
        from dlc_frontend_torch.exported import load

        return load(model, context)

    def accepts(self, model: Any) -> bool:
        """Whether `load` takes this in-memory value: an ExportedProgram or an nn.Module."""
        torch = sys.modules.get("torch")  # without it there is no such value
        if torch is None:
            return False
        export = sys.modules.get("torch.export")
        return isinstance(model, torch.nn.Module) or (
            export is not None and isinstance(model, export.ExportedProgram)
        )


@hookimpl
def dlc_frontends() -> Iterable[Frontend]:
    return [Torch()]


@hookimpl
def dlc_namespaces() -> Iterable[Namespace]:
    return [Namespace("torch", "dlc_frontend_torch.api")]
