"""Targets, description records, artefacts, and the cost model."""

from dlc_core.target.artifact import COMPILED, Artifact, Codegen
from dlc_core.target.description import BYTE_DOTS, COMPUTED, Description, Dot
from dlc_core.target.device_runtime import DeviceRuntime
from dlc_core.target.target import STAGES, Option, Target, TargetKind, TargetTag
from dlc_core.target.units import MemoryScope, Unit

__all__ = [
    "BYTE_DOTS",
    "COMPILED",
    "COMPUTED",
    "STAGES",
    "Artifact",
    "Codegen",
    "Description",
    "DeviceRuntime",
    "Dot",
    "MemoryScope",
    "Option",
    "Target",
    "TargetKind",
    "TargetTag",
    "Unit",
]
