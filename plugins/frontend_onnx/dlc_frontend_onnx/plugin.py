"""The hooks of this package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dlc_core.config import Knob
from dlc_core.hooks import Command, Declaration, Frontend, hookimpl
from dlc_core.support.record import record

DLC_API = "0.1"

TARGET = Knob[str | None](
    "onnx_target",
    str,
    None,
    'Target of the device "CPU" in dlc_frontend_onnx.backend and InferenceSession; by default the best.',
)


@record(frozen=True)
class Onnx:
    """The ONNX frontend. The importer is loaded when the first model is read."""

    name: str = "onnx"
    suffixes: tuple[str, ...] = (".onnx",)
    help: str = "ONNX models: files, bytes, onnx.ModelProto"
    options: tuple[str, ...] = ("shapes", "importers", "taps")

    def load(self, model: Any, context: Mapping[str, Any] | None = None) -> Any:
        """The model as an `IRModule`; see `dlc_frontend_onnx.importer.load`."""
        from dlc_frontend_onnx.importer import load

        return load(model, context)

    def digest(self, model: Any, context: Mapping[str, Any] | None = None) -> str | None:
        """A digest of the model's content, including external data; None if there is none."""
        from dlc_frontend_onnx.digest import digest

        return digest(model)

    def accepts(self, model: Any) -> bool:
        """Whether `load` takes this in-memory value: bytes, or an `onnx.ModelProto`."""
        if isinstance(model, (bytes, bytearray, memoryview)):
            return True
        return any(
            kind.__module__.startswith("onnx") and kind.__name__ == "ModelProto"
            for kind in type(model).__mro__
        )

    def supported_ops(self) -> list[Any]:
        """The table of operators with their versions, types, and how they run."""
        from dlc_frontend_onnx.operators import operator_table

        return list(operator_table())


@hookimpl
def dlc_frontends() -> Iterable[Frontend]:
    return [Onnx()]


@hookimpl
def dlc_ops() -> Iterable[Declaration]:
    from dlc_frontend_onnx.host_op import HOST_OP, IMPURE_OP
    from dlc_frontend_onnx.ops import images

    return [HOST_OP, IMPURE_OP, *images.OPS]


@hookimpl
def dlc_commands() -> Iterable[Command]:
    return [
        Command(
            "bisect",
            "dlc_frontend_onnx.bisect.command:command",
            "Find the first node of an ONNX model whose result is wrong.",
        )
    ]


@hookimpl
def dlc_models() -> Iterable[Declaration]:
    from dlc_frontend_onnx.testing.models import MODELS

    return MODELS


@hookimpl
def dlc_knobs() -> Iterable[Knob[Any]]:
    return [TARGET]
