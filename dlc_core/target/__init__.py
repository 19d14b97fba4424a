"""Targets, description records, artefacts, and the cost model."""

from dlc_core.target.artifact import COMPILED, Artifact, Codegen
from dlc_core.target.target import BYTE_DOTS, COMPUTED, STAGES, Description, Dot, Option, Target, TargetKind

__all__ = [
    "BYTE_DOTS",
    "COMPILED",
    "COMPUTED",
    "STAGES",
    "Artifact",
    "Codegen",
    "Description",
    "Dot",
    "Option",
    "Target",
    "TargetKind",
]
